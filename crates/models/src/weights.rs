//! Binding: GGUF tensor names to weights of a program, shapes checked against the hyper-parameters.

use program::{LinearWeight, Norm, Recorder, WeightId, WeightSpec};
use quant::GgmlType;

use crate::{Error, ModelConfig, Result};

/// A tensor as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Element type.
    pub ty: GgmlType,
    /// Dimensions as GGUF writes them, row length first.
    pub dims: Vec<u64>,
}

/// Looks a tensor up by name; the second argument is the shape the model takes.
pub(crate) type Find<'a> = dyn Fn(&str, &[u64]) -> Result<Option<Found>> + 'a;

/// Whether a matrix has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// No; one in the file is not read.
    Never,
    /// Yes: a file without it is refused.
    Always,
    /// Where the file has one.
    IfPresent,
}

/// The tensors of a model, or of one of its layers: names are given without `.weight` and without `blk.N.`.
#[derive(Clone)]
pub struct Weights<'a> {
    recorder: &'a Recorder,
    find: &'a Find<'a>,
    prefix: String,
}

impl<'a> Weights<'a> {
    pub(crate) fn new(recorder: &'a Recorder, find: &'a Find<'a>) -> Self {
        Weights { recorder, find, prefix: String::new() }
    }

    /// The tensors `blk.N.…`.
    pub fn layer(&self, layer: usize) -> Weights<'a> {
        Weights { prefix: format!("blk.{layer}."), ..self.clone() }
    }

    /// `NAME.weight`, `rows` outputs of `cols` inputs.
    ///
    /// # Errors
    /// If it is missing, of another shape or of a type that cannot be computed with.
    pub fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<WeightId> {
        self.require(&format!("{}{name}.weight", self.prefix), &[cols, rows])
    }

    /// The first of the `rows` rows of `NAME.weight`, as a table of its own.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn first_row(&self, name: &str, rows: usize, cols: usize) -> Result<WeightId> {
        let name = format!("{}{name}.weight", self.prefix);
        let found = self.found(&name, &[cols, rows])?;
        let ty = found.ok_or_else(|| Error::MissingTensor { name: name.clone() })?;
        Ok(self.recorder.weight(WeightSpec { name, ty, rows: 1, cols, start: 0 }))
    }

    /// Whether the file has the matrix `NAME.weight`.
    ///
    /// # Errors
    /// If it is there and does not fit.
    pub fn has(&self, name: &str, rows: usize, cols: usize) -> Result<bool> {
        Ok(self.found(&format!("{}{name}.weight", self.prefix), &[cols, rows])?.is_some())
    }

    /// `NAME.weight`, a vector; some writers leave `.weight` out.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn vector(&self, name: &str, len: usize) -> Result<WeightId> {
        let found = self.optional_vector(name, len)?;
        found.ok_or_else(|| Error::MissingTensor { name: format!("{}{name}.weight", self.prefix) })
    }

    /// The same if the file has it.
    ///
    /// # Errors
    /// If it is there and does not fit.
    pub fn optional_vector(&self, name: &str, len: usize) -> Result<Option<WeightId>> {
        let bare = format!("{}{name}", self.prefix);
        match self.bind(&format!("{bare}.weight"), &[len])? {
            Some(id) => Ok(Some(id)),
            None => self.bind(&bare, &[len]),
        }
    }

    /// `NAME.weight`, `count` matrices of `rows` outputs and `cols` inputs, one after the other.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn stack(&self, name: &str, count: usize, rows: usize, cols: usize) -> Result<WeightId> {
        self.require(&format!("{}{name}.weight", self.prefix), &[cols, rows, count])
    }

    /// `NAME.bias`, a vector.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn bias(&self, name: &str, len: usize) -> Result<WeightId> {
        self.require(&format!("{}{name}.bias", self.prefix), &[len])
    }

    /// A vector by its whole name, such as those whose names end in neither `.weight` nor `.bias`.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn tensor(&self, name: &str, len: usize) -> Result<WeightId> {
        self.require(&format!("{}{name}", self.prefix), &[len])
    }

    /// The same if the file has it.
    ///
    /// # Errors
    /// If it is there and does not fit.
    pub fn optional_tensor(&self, name: &str, len: usize) -> Result<Option<WeightId>> {
        self.bind(&format!("{}{name}", self.prefix), &[len])
    }

    /// Whether the file has the vector `NAME.weight`, or `NAME`.
    ///
    /// # Errors
    /// If it is there and does not fit.
    pub fn has_vector(&self, name: &str, len: usize) -> Result<bool> {
        let bare = format!("{}{name}", self.prefix);
        Ok(self.found(&format!("{bare}.weight"), &[len])?.is_some()
            || self.found(&bare, &[len])?.is_some())
    }

    /// Whether the file has `NAME.weight`, of whatever shape.
    pub fn is_there(&self, name: &str) -> bool {
        let found = (self.find)(&format!("{}{name}.weight", self.prefix), &[]);
        found.is_ok_and(|found| found.is_some())
    }

    /// Vector `i` of the `count` that stand one after another in `NAME.weight`, `[n, 1, 1, count]`.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn part(&self, name: &str, i: usize, count: usize, n: usize) -> Result<WeightId> {
        let name = format!("{}{name}.weight", self.prefix);
        let ty = self.found(&name, &[n, 1, 1, count])?;
        let ty = ty.ok_or_else(|| Error::MissingTensor { name: name.clone() })?;
        Ok(self.recorder.weight(WeightSpec { name, ty, rows: 1, cols: n, start: i * n }))
    }

    /// `len` numbers from `start` on of `NAME.weight`, which has these dimensions, as a vector of their own.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn stretch(
        &self,
        name: &str,
        dims: &[usize],
        start: usize,
        len: usize,
    ) -> Result<WeightId> {
        let name = format!("{}{name}.weight", self.prefix);
        let ty = self.found(&name, dims)?;
        let ty = ty.ok_or_else(|| Error::MissingTensor { name: name.clone() })?;
        if ty.block_len() != 1 {
            return Err(Error::Type { name, ty, role: "vector" });
        }
        Ok(self.recorder.weight(WeightSpec { name, ty, rows: 1, cols: len, start }))
    }

    /// `NAME`, so many numbers in a row or one below the other.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn numbers(&self, name: &str, n: usize) -> Result<WeightId> {
        match self.bind(&format!("{}{name}", self.prefix), &[1, n]) {
            Ok(Some(id)) => Ok(id),
            Ok(None) | Err(Error::Shape { .. }) => self.vector(name, n),
            Err(other) => Err(other),
        }
    }

    /// `NAME`, `rows` of `cols` numbers.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn table(&self, name: &str, rows: usize, cols: usize) -> Result<WeightId> {
        self.require(&format!("{}{name}", self.prefix), &[cols, rows])
    }

    /// Matrices that stand one after another in `NAME.weight`, each of as many rows as `rows` says, and the parts of
    /// `NAME.bias` where there is to be one.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix), for both tensors.
    pub fn joint<const N: usize>(
        &self,
        name: &str,
        rows: [usize; N],
        cols: usize,
        bias: Bias,
    ) -> Result<[LinearWeight; N]> {
        let all = rows.iter().sum();
        let (name, its_bias) =
            (format!("{}{name}.weight", self.prefix), format!("{}{name}.bias", self.prefix));
        let missing = |name: &String| Error::MissingTensor { name: name.clone() };
        let ty = self.found(&name, &[cols, all])?.ok_or_else(|| missing(&name))?;
        let bias_ty = match bias {
            Bias::Never => None,
            Bias::IfPresent => self.found(&its_bias, &[all])?,
            Bias::Always => Some(self.found(&its_bias, &[all])?.ok_or_else(|| missing(&its_bias))?),
        };
        if let Some(ty) = bias_ty.filter(|ty| ty.block_len() != 1) {
            return Err(Error::Type { name: its_bias, ty, role: "vector" });
        }
        let mut first = 0;
        Ok(rows.map(|rows| {
            let part = |name: &String, ty, rows, cols, start| {
                self.recorder.weight(WeightSpec { name: name.clone(), ty, rows, cols, start })
            };
            let weight = part(&name, ty, rows, cols, first * cols);
            let bias = bias_ty.map(|ty| part(&its_bias, ty, 1, rows, first));
            first += rows;
            LinearWeight { weight, bias }
        }))
    }

    /// The matrices that [`stack`](Self::stack) names, one by one.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn each(
        &self,
        name: &str,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Vec<WeightId>> {
        let name = format!("{}{name}.weight", self.prefix);
        let ty = self.found(&name, &[cols, rows, count])?;
        let ty = ty.ok_or_else(|| Error::MissingTensor { name: name.clone() })?;
        let one =
            |i: usize| WeightSpec { name: name.clone(), ty, rows, cols, start: i * rows * cols };
        Ok((0..count).map(|i| self.recorder.weight(one(i))).collect())
    }

    /// `NAME.bias`, one vector after the other.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn biases(&self, name: &str, count: usize, len: usize) -> Result<WeightId> {
        self.require(&format!("{}{name}.bias", self.prefix), &[len, count])
    }

    /// A matrix, and its `NAME.bias` where there is to be one.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix), for both.
    pub fn linear(&self, name: &str, rows: usize, cols: usize, bias: Bias) -> Result<LinearWeight> {
        let bias = match bias {
            Bias::Never => None,
            Bias::Always => Some(self.bias(name, rows)?),
            Bias::IfPresent => self.bind(&format!("{}{name}.bias", self.prefix), &[rows])?,
        };
        Ok(LinearWeight { weight: self.matrix(name, rows, cols)?, bias })
    }

    /// The model's norm with the vector `NAME.weight`, and `NAME.bias` where models of its kind have one; without vectors
    /// where no norm of the model has one.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn norm(&self, name: &str, c: &ModelConfig, len: usize) -> Result<Norm> {
        if c.plain_norms {
            return Ok(c.plain_norm());
        }
        let weight = Some(self.vector(name, len)?);
        let bias = format!("{}{name}.bias", self.prefix);
        let bias = if c.norm_bias { self.bind(&bias, &[len])? } else { None };
        Ok(Norm { weight, bias, ..c.plain_norm() })
    }

    /// `token_embd.weight`: `[vocab_size, hidden_size]`.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn token_embd(&self, c: &ModelConfig) -> Result<WeightId> {
        self.matrix("token_embd", c.vocab_size, c.hidden_size)
    }

    /// `output.weight`, or the embedding table where the model ties them; a bias where norms have one and the file, too.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn output(&self, c: &ModelConfig) -> Result<LinearWeight> {
        let bias = if c.norm_bias { self.bind("output.bias", &[c.vocab_size])? } else { None };
        let weight = if c.tied_embeddings {
            self.token_embd(c)?
        } else {
            self.matrix("output", c.vocab_size, c.hidden_size)?
        };
        Ok(LinearWeight { weight, bias })
    }

    fn require(&self, name: &str, dims: &[usize]) -> Result<WeightId> {
        self.bind(name, dims)?.ok_or_else(|| Error::MissingTensor { name: name.to_owned() })
    }

    fn bind(&self, name: &str, dims: &[usize]) -> Result<Option<WeightId>> {
        let Some(ty) = self.found(name, dims)? else { return Ok(None) };
        let (cols, rows) = (dims[0], dims[1..].iter().product());
        let spec = WeightSpec { name: name.to_owned(), ty, rows, cols, start: 0 };
        Ok(Some(self.recorder.weight(spec)))
    }

    /// The type of a tensor, if the file has it, its shape and type checked.
    fn found(&self, name: &str, dims: &[usize]) -> Result<Option<GgmlType>> {
        let expected: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
        let Some(Found { ty, dims: found }) = (self.find)(name, &expected)? else {
            return Ok(None);
        };
        let name = name.to_owned();
        if without_ones(&found) != without_ones(&expected) || expected.contains(&0) {
            return Err(Error::Shape { name, expected, found });
        }
        if quant::format(ty).is_none() {
            return Err(Error::Type {
                name,
                ty,
                role: if dims.len() == 1 { "vector" } else { "matrix" },
            });
        }
        let cols = dims[0];
        if ty.row_bytes(cols).is_none() {
            return Err(Error::Blocks { name, cols: cols as u64, ty });
        }
        Ok(Some(ty))
    }
}

/// Dimensions without trailing ones, which writers may add or leave out.
fn without_ones(dims: &[u64]) -> &[u64] {
    let len = dims.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1);
    &dims[..len.min(dims.len())]
}
