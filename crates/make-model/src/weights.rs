//! Random weights, block by block.
//!
//! Some 260,000 numbers are drawn and quantized once for each type and spread; rows are then put together from blocks
//! of these in random order, which is as fast as a disk takes them. Numbers come from integers by exact operations, so
//! that they are the same on every machine.

use std::cell::RefCell;
use std::io::{self, Write};

use anyhow::ensure;
use models::Mixture;
use quant::GgmlType;

use super::shapes::Shape;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub(crate) name: String,
    pub(crate) ty: GgmlType,
    /// Row length first.
    pub(crate) dims: Vec<u64>,
    values: Values,
}

/// What the numbers of a tensor are like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Values {
    /// Around 0 with this spread: matrices keep activations near unit scale with one over the root of the row length.
    Matrix { spread: f32 },
    /// Around `mean` with a spread of 0.1: norms, biases and rates of decay.
    Vector { mean: f32 },
    /// Divisors of the rotation's frequencies, as Llama 3.1 has them: 1 for the fast ones, up to 8 for the slow ones.
    Divisors,
}

impl Tensor {
    pub(crate) fn bytes(&self) -> u64 {
        self.row_bytes() as u64 * self.rows()
    }

    fn rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }

    fn row_bytes(&self) -> usize {
        self.ty.row_bytes(self.cols()).expect("types are chosen by whole blocks of a row")
    }

    fn cols(&self) -> usize {
        usize::try_from(self.dims[0]).expect("a row fits in memory")
    }
}

/// The tensors of a model in the order in which its architecture asks for them.
///
/// # Errors
/// If the architecture cannot be recorded or a type has no quantizer.
pub(crate) fn tensors(shape: &Shape, mixture: &Mixture) -> anyhow::Result<Vec<Tensor>> {
    let asked = RefCell::new(Vec::<Tensor>::new());
    let ty = |name: &str, dims: &[u64]| {
        let ty = if name.starts_with("rope_freqs") {
            shape.rope_divisors.then_some(GgmlType::F32)?
        } else {
            mixture.tensor_type(&shape.config, name, dims)?
        };
        // it is asked whether there is one
        if dims.is_empty() {
            return Some(ty);
        }
        let values = values(shape, name, dims);
        let tensor = Tensor { name: name.to_owned(), ty, dims: dims.to_vec(), values };
        let mut asked = asked.borrow_mut();
        // tied embeddings are asked for twice
        if !asked.iter().any(|other| other.name == name) {
            asked.push(tensor);
        }
        Some(ty)
    };
    let loaded = models::from_config(&shape.config, &ty)?;
    if shape.config.n_guessing > 0 {
        loaded.with_guesses_of(&ty)?;
    }
    let tensors = asked.into_inner();
    for tensor in &tensors {
        let format = quant::format(tensor.ty).filter(|format| format.can_quantize());
        ensure!(format.is_some(), "`{}`: {} has no quantizer here", tensor.name, tensor.ty);
    }
    Ok(tensors)
}

fn values(shape: &Shape, name: &str, dims: &[u64]) -> Values {
    let root = |n: u64| 1.0 / (n as f32).sqrt();
    match (name, dims) {
        ("token_embd.weight", _) if !shape.config.tied_embeddings => Values::Matrix { spread: 1.0 },
        ("rope_freqs.weight", _) => Values::Divisors,
        // what it makes of a query is as wide as a latent
        (name, [_, rows, _]) if name.ends_with("attn_k_b.weight") => {
            Values::Matrix { spread: root(*rows) }
        }
        (name, _) if name.ends_with("ssm_a") => Values::Vector { mean: -1.0 },
        (name, [_]) if name.ends_with(".bias") => Values::Vector { mean: 0.0 },
        (_, [_]) => Values::Vector { mean: 1.0 },
        _ => Values::Matrix { spread: root(dims[0]) },
    }
}

/// Numbers drawn and quantized at once.
const DRAWN: usize = 1 << 18;
/// Numbers that stay together where blocks are shorter.
const PIECE: usize = 256;
/// Bytes that are written at once.
const CHUNK: usize = 1 << 18;

/// Quantized numbers of one type and spread.
struct Pool {
    ty: GgmlType,
    spread: f32,
    bytes: Vec<u8>,
}

/// The source of all weights of a file.
pub(super) struct Random {
    seed: u64,
    pools: Vec<Pool>,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { seed, pools: Vec::new() }
    }

    /// Writes the tensor's bytes.
    ///
    /// # Errors
    /// If writing fails.
    pub(crate) fn write(&mut self, tensor: &Tensor, out: &mut dyn Write) -> io::Result<()> {
        let mut numbers = Numbers(seed_of(self.seed, &tensor.name));
        let cols = tensor.cols();
        let spread = match tensor.values {
            Values::Matrix { spread } => spread,
            Values::Vector { mean } => {
                let mut vector = |_: u64| mean + 0.1 * numbers.normal();
                let n = cols as u64 * tensor.rows();
                return write_f32(out, &mut (0..n).map(&mut vector));
            }
            Values::Divisors => {
                let slow = |i: usize| (i as f32 / cols as f32 - 0.5).max(0.0);
                return write_f32(out, &mut (0..cols).map(|i| 1.0 + 14.0 * slow(i)));
            }
        };
        let pool = self.pool(tensor.ty, spread);
        let block = tensor.ty.block_bytes();
        let piece = (PIECE / tensor.ty.block_len()).max(1) * block;
        let starts = (pool.len() - piece) / block + 1;
        let mut chunk = Vec::with_capacity(CHUNK + tensor.row_bytes());
        for _ in 0..tensor.rows() {
            let mut missing = tensor.row_bytes();
            while missing > 0 {
                let start = numbers.below(starts) * block;
                let len = missing.min(piece);
                chunk.extend_from_slice(&pool[start..start + len]);
                missing -= len;
            }
            if chunk.len() >= CHUNK {
                out.write_all(&chunk)?;
                chunk.clear();
            }
        }
        out.write_all(&chunk)
    }

    /// Numbers of this type and spread, whole blocks.
    fn pool(&mut self, ty: GgmlType, spread: f32) -> &[u8] {
        let found = self.pools.iter().position(|pool| pool.ty == ty && pool.spread == spread);
        let at = found.unwrap_or_else(|| {
            let mut numbers = Numbers(seed_of(self.seed, ty.name()));
            let x: Vec<f32> = (0..DRAWN).map(|_| spread * numbers.normal()).collect();
            let len = ty.row_bytes(DRAWN).expect("a power of two is whole blocks of any type");
            let mut bytes = vec![0; len];
            let format = quant::format(ty).expect("tensors have types that weights can have");
            assert!(format.quantize(&x, &mut bytes), "checked when the tensors were listed");
            self.pools.push(Pool { ty, spread, bytes });
            self.pools.len() - 1
        });
        &self.pools[at].bytes
    }
}

fn write_f32(out: &mut dyn Write, values: &mut dyn Iterator<Item = f32>) -> io::Result<()> {
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    out.write_all(&bytes)
}

/// A seed for each name.
fn seed_of(seed: u64, name: &str) -> u64 {
    let mut numbers = Numbers(seed);
    name.bytes().fold(numbers.next(), |state, byte| Numbers(state ^ u64::from(byte)).next())
}

/// Random numbers: SplitMix64 (Steele, Lea and Flood, 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..n`.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Mean 0 and deviation 1, close to normal: the sum of eight 16-bit numbers.
    fn normal(&mut self) -> f32 {
        const MEAN: f32 = 8.0 * 65_535.0 / 2.0;
        /// `sqrt(8 * (2^32 - 1) / 12)`.
        const DEVIATION: f32 = 53_509.9;
        let fields = |x: u64| (0..4).map(move |i| (x >> (16 * i)) & 0xFFFF);
        let sum: u64 = fields(self.next()).chain(fields(self.next())).sum();
        (sum as f32 - MEAN) / DEVIATION
    }
}
