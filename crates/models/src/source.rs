//! [`GgufWeights`]: the tensors of an open file as executors read them.

use gguf::{Gguf, TensorInfo};
use program::{Error, Result, WeightSource, WeightSpec};

/// The weights of a model file. Give it to [`program::Executor::load`] with the program of the same file.
#[derive(Clone, Copy)]
pub struct GgufWeights<'a>(pub &'a Gguf);

impl GgufWeights<'_> {
    fn tensor(&self, spec: &WeightSpec) -> Result<&TensorInfo> {
        let problem = |problem: String| Error::Weight { name: spec.name.clone(), problem };
        let tensor = self.0.tensor(&spec.name).ok_or_else(|| problem("missing".into()))?;
        let end = spec.start as u64 + spec.rows as u64 * spec.cols as u64;
        // a part of a vector is shorter than the file's one row
        let vector = spec.rows == 1 && tensor.dims.iter().skip(1).all(|&dim| dim == 1);
        let rows = tensor.dims.first() == Some(&(spec.cols as u64));
        if tensor.type_number() != spec.ty.number() || end > tensor.elements() || !(rows || vector)
        {
            let WeightSpec { ty, rows, cols, start, .. } = spec;
            let from = if *start > 0 { format!(" from {start}") } else { String::new() };
            let expected = format!("{ty} of {rows} x {cols}{from}");
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
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        let start = spec.first_byte() as usize + first;
        self.0
            .read(self.tensor(spec)?, start, out)
            .map_err(|error| Error::Weight { name: spec.name.clone(), problem: error.to_string() })
    }
}
