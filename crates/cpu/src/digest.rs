//! What a model is, by its contents: its program, and the numbers of the weights that were read.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use program::{Program, Result, WeightSource, WeightSpec};
use twox_hash::XxHash3_128;

/// Hands on weights, and remembers a digest of each.
pub(crate) struct DigestedWeights<'a> {
    source: &'a dyn WeightSource,
    /// Of each tensor, or part of one: by name, first number, rows and columns.
    digests: Mutex<BTreeMap<(String, usize, usize, usize), u128>>,
}

impl<'a> DigestedWeights<'a> {
    pub(crate) fn new(source: &'a dyn WeightSource) -> DigestedWeights<'a> {
        DigestedWeights { source, digests: Mutex::default() }
    }

    /// Of a model of this program that was loaded with these weights.
    pub(crate) fn digest(&self, program: &Program) -> String {
        let mut all = Digest(XxHash3_128::new());
        let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        // a digest takes whatever is written to it
        let _ = write!(all, "{program:?} {digests:?}");
        all.finish()
    }
}

impl WeightSource for DigestedWeights<'_> {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        let key = (spec.name.clone(), spec.start, spec.rows, spec.cols);
        // held meanwhile: others read parts of the same tensor, which is digested once
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(new) = digests.entry(key) {
            new.insert(digest_of(self.source, spec)?);
        }
        drop(digests);
        self.source.read(spec, first, out)
    }
}

/// Bytes of a tensor that are digested at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The digest of a whole tensor.
fn digest_of(source: &dyn WeightSource, spec: &WeightSpec) -> Result<u128> {
    let len = spec.bytes() as usize;
    let mut hasher = XxHash3_128::new();
    let mut piece = vec![0; len.min(PIECE_BYTES)];
    for first in (0..len).step_by(PIECE_BYTES) {
        let piece = &mut piece[..PIECE_BYTES.min(len - first)];
        source.read(spec, first, piece)?;
        hasher.write(piece);
    }
    Ok(hasher.finish_128())
}

/// A digest of 128 bits that text, or bytes, are written to: XXH3.
pub(crate) struct Digest(XxHash3_128);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(XxHash3_128::new())
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(crate) fn finish(&self) -> String {
        format!("{:032x}", self.0.finish_128())
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conformance::{MemoryWeights, tiny_config, tiny_model};
    use program::{Executor, Model};
    use quant::GgmlType;

    use super::*;
    use crate::{Cpu, Options};

    fn load(
        program: &Arc<Program>,
        weights: &dyn WeightSource,
        threads: usize,
    ) -> (Box<dyn Model>, String) {
        let cpu = Cpu::new(&Options { threads: Some(threads), ..Options::default() });
        let digested = DigestedWeights::new(weights);
        let model = cpu.load(Arc::clone(program), &digested, &mut |_| ()).expect("it loads");
        let digest = digested.digest(program);
        (model, digest)
    }

    /// A number of a weight, or of the program, that differs is seen; how the model was loaded is not.
    #[test]
    fn a_digest_is_of_what_is_computed() {
        for architecture in ["qwen2", "deepseek2", "qwen3moe"] {
            let program = tiny_model(&tiny_config(architecture, 64, false), GgmlType::F32);
            let weights = MemoryWeights::random(&program, 3);
            let (_, digest) = load(&program, &weights, 1);
            assert_eq!(load(&program, &weights, 3).1, digest);
            let others = MemoryWeights::random(&program, 4);
            assert_ne!(load(&program, &others, 1).1, digest);
            let mut config = tiny_config(architecture, 64, false);
            config.norm_eps *= 2.0;
            let other = tiny_model(&config, GgmlType::F32);
            assert_ne!(load(&other, &weights, 1).1, digest);
        }
    }
}
