//! [`GgufWeights`]: the tensors of an open file as executors read them.

use std::ops::Range;

use gguf::{Gguf, TensorInfo};
use program::{Error, Result, WeightBytes, WeightSource, WeightSpec};

/// The weights of a model file. Give it to [`program::Executor::load`] with the program of the same file.
#[derive(Clone, Copy)]
pub struct GgufWeights<'a>(pub &'a Gguf);

impl GgufWeights<'_> {
    fn tensor(&self, spec: &WeightSpec) -> Result<&TensorInfo> {
        let problem = |problem: String| Error::Weight { name: spec.name.clone(), problem };
        let tensor = self.0.tensor(&spec.name).ok_or_else(|| problem("missing".into()))?;
        let elements = spec.rows as u64 * spec.cols as u64;
        if tensor.type_number() != spec.ty.number()
            || tensor.elements() != elements
            || tensor.dims.first() != Some(&(spec.cols as u64))
        {
            let expected = format!("{} of {} x {}", spec.ty, spec.rows, spec.cols);
            return Err(problem(format!(
                "expected {expected}, file has {} of {:?}",
                tensor.type_name(),
                tensor.dims
            )));
        }
        Ok(tensor)
    }
}

impl WeightSource for GgufWeights<'_> {
    fn bytes(&self, spec: &WeightSpec) -> Result<WeightBytes<'_>> {
        Ok(self.0.bytes(self.tensor(spec)?))
    }

    fn release(&self, spec: &WeightSpec, rows: Range<usize>) {
        let Ok(tensor) = self.tensor(spec) else { return };
        let Some(row_bytes) = spec.ty.row_bytes(spec.cols) else { return };
        self.0.release(tensor, rows.start * row_bytes..rows.end.min(spec.rows) * row_bytes);
    }
}
