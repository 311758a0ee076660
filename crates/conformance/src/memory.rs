//! [`MemoryWeights`]: random weights for a program that has no file.

use std::collections::HashMap;

use program::{Error, Program, Result, WeightSource, WeightSpec, read_memory};

use crate::Random;

/// Weights in memory, in the types the program names.
#[derive(Clone, Debug, Default)]
pub struct MemoryWeights {
    /// By name and start.
    tensors: HashMap<(String, usize), Vec<u8>>,
}

impl MemoryWeights {
    /// Random weights for every tensor of `program`: matrices near `1 / sqrt(cols)`, so that activations keep their
    /// size; norms near 1; biases near 0; frequency factors from 1 to 8.
    pub fn random(program: &Program, seed: u64) -> Self {
        let mut weights = MemoryWeights::default();
        for (i, spec) in program.weights.iter().enumerate() {
            let random = &mut Random::new(seed.wrapping_mul(1_000_003).wrapping_add(i as u64));
            let deviation = (spec.cols as f64).powf(-0.5);
            let values: Vec<f32> = (0..spec.rows * spec.cols)
                .map(|i| match spec.name.as_str() {
                    "rope_freqs.weight" => 1.0 + 7.0 * i as f64 / spec.cols as f64,
                    name if name.starts_with("token_embd") => random.normal(),
                    name if name.ends_with("norm.weight") => 1.0 + 0.1 * random.normal(),
                    name if name.ends_with(".bias") => 0.1 * random.normal(),
                    _ => deviation * random.normal(),
                })
                .map(|x| x as f32)
                .collect();
            let bytes = encode(spec, &values).unwrap_or_else(|| invent(spec, deviation, random));
            weights.tensors.insert((spec.name.clone(), spec.start), bytes);
        }
        weights
    }

    /// Replace a tensor by these values, quantized to its type.
    ///
    /// # Panics
    /// If the lengths differ or the type has no quantizer.
    pub fn set(&mut self, spec: &WeightSpec, values: &[f32]) {
        let bytes = encode(spec, values).expect("the type has a quantizer");
        self.tensors.insert((spec.name.clone(), spec.start), bytes);
    }

    /// Take a tensor out.
    pub fn remove(&mut self, name: &str) {
        self.tensors.retain(|(its, _), _| its != name);
    }
}

impl WeightSource for MemoryWeights {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        let problem =
            |problem: &str| Error::Weight { name: spec.name.clone(), problem: problem.into() };
        let bytes =
            self.tensors.get(&(spec.name.clone(), spec.start)).ok_or_else(|| problem("missing"))?;
        if bytes.len() as u64 != spec.bytes() {
            return Err(problem("of another length"));
        }
        read_memory(bytes, spec, first, out)
    }
}

/// `None` if the type has no quantizer.
fn encode(spec: &WeightSpec, values: &[f32]) -> Option<Vec<u8>> {
    assert_eq!(values.len(), spec.rows * spec.cols, "values of `{}`", spec.name);
    let format = quant::format(spec.ty).expect("programs name weight types only");
    let mut bytes = vec![0; usize::try_from(spec.bytes()).expect("test weights are small")];
    format.quantize(values, &mut bytes).then_some(bytes)
}

/// Random blocks of a type without a quantizer, all of which begin with an f16 scale: it is set so that the values'
/// root mean square is `deviation`.
fn invent(spec: &WeightSpec, deviation: f64, random: &mut Random) -> Vec<u8> {
    const ONE: [u8; 2] = 0x3C00u16.to_le_bytes();
    let format = quant::format(spec.ty).expect("programs name weight types only");
    let mut bytes: Vec<u8> = (0..spec.bytes()).map(|_| random.bits() as u8).collect();
    bytes
        .chunks_exact_mut(spec.ty.block_bytes())
        .for_each(|block| block[..2].copy_from_slice(&ONE));
    let mut values = vec![0.0; spec.rows * spec.cols];
    format.dequantize(&bytes, &mut values);
    let mean =
        values.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / values.len() as f64;
    let scale = half(deviation / mean.sqrt());
    bytes
        .chunks_exact_mut(spec.ty.block_bytes())
        .for_each(|block| block[..2].copy_from_slice(&scale));
    bytes
}

/// A number in f16.
fn half(x: f64) -> [u8; 2] {
    let mut out = [0; 2];
    let f16 = quant::format(quant::GgmlType::F16).expect("F16 is a weight type");
    assert!(f16.quantize(&[x as f32], &mut out), "every number converts to F16");
    out
}
