//! What a model is, by its contents: its program, and the numbers of the weights that were read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use program::{Program, Result, WeightBytes, WeightSource, WeightSpec};
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
    fn bytes(&self, spec: &WeightSpec) -> Result<WeightBytes<'_>> {
        let bytes = self.source.bytes(spec)?;
        let key = (spec.name.clone(), spec.start, spec.rows, spec.cols);
        let is_new = {
            let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
            !digests.contains_key(&key)
        };
        if is_new {
            let digest = XxHash3_128::oneshot(bytes);
            self.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(key, digest);
        }
        Ok(bytes)
    }

    fn release(&self, spec: &WeightSpec, rows: Range<usize>) {
        self.source.release(spec, rows);
    }
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
