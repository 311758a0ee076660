//! The [`Recorder`]: architecture files call it to write down one forward pass.

mod attention;
mod experts;
mod grams;
mod indexer;
mod latent;
mod recurrence;
mod streams;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use crate::{
    Act, CacheId, CacheSpec, Error, Gate, Lookup, Node, Norm, Op, OutputKind, Program, Result,
    Rows, Shape, ValueId, ValueSpec, WeightId, WeightSpec,
};

pub use experts::ExpertWeights;
pub use recurrence::ConvWeights;

/// Records ops in order and checks every shape as it goes.
#[derive(Default)]
pub struct Recorder {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    program: Program,
    names: HashMap<String, usize>,
    weights: HashMap<(String, [usize; 3]), WeightId>,
    layer: Option<usize>,
    /// Caches that a node appends to.
    appended: HashSet<CacheId>,
}

/// A linear layer: a matrix and, for some models, a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearWeight {
    /// `[out, in]`.
    pub weight: WeightId,
    /// `[out]`.
    pub bias: Option<WeightId>,
}

impl From<WeightId> for LinearWeight {
    fn from(weight: WeightId) -> Self {
        LinearWeight { weight, bias: None }
    }
}

impl Recorder {
    /// An empty recording.
    pub fn new() -> Self {
        Self::default()
    }

    /// Name a tensor of the file, or a part of one. The same part of the same tensor has the same id.
    pub fn weight(&self, spec: WeightSpec) -> WeightId {
        let state = &mut *self.state.borrow_mut();
        let key = (spec.name.clone(), [spec.start, spec.rows, spec.cols]);
        if let Some(&id) = state.weights.get(&key) {
            return id;
        }
        let id = WeightId(state.program.weights.len() as u32);
        state.weights.insert(key, id);
        state.program.weights.push(spec);
        id
    }

    /// Name a layer's cache.
    pub fn cache(&self, spec: CacheSpec) -> CacheId {
        let caches = &mut self.state.borrow_mut().program.caches;
        caches.push(spec);
        CacheId(caches.len() as u32 - 1)
    }

    /// The cache of a layer before, if it has one.
    pub fn cache_of(&self, layer: usize) -> Option<CacheId> {
        let caches = &self.state.borrow().program.caches;
        caches.iter().position(|cache| cache.layer == layer).map(|id| CacheId(id as u32))
    }

    /// Ops recorded from now on belong to this layer; values are named `blk.N.…`.
    pub fn layer(&self, layer: Option<usize>) {
        self.state.borrow_mut().layer = layer;
    }

    /// A value that the caller gives: `[Tokens, cols]`.
    pub fn input(&self, name: &str, cols: usize) -> ValueId {
        let id = self.value(name, Shape { rows: Rows::Tokens, groups: 1, dim: cols });
        self.state.borrow_mut().program.inputs.push(id);
        id
    }

    /// Rows of the embedding table for the step's tokens: `[Tokens, hidden_size]`.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn embed(&self, table: WeightId) -> Result<ValueId> {
        self.lookup("embed", table, Lookup::Token)
    }

    /// Rows of a table, chosen `by` what the step says of its rows: `[Tokens, cols]`.
    ///
    /// # Errors
    /// [`Error::Operand`] if the only row is wanted of a table that has more.
    pub fn lookup(&self, name: &str, table: WeightId, by: Lookup) -> Result<ValueId> {
        let WeightSpec { rows, cols: dim, .. } = self.spec(table);
        if by == Lookup::Only && rows != 1 {
            return Err(self.operand(name, "a table of one row".into(), rows.to_string()));
        }
        let shape = Shape { rows: Rows::Tokens, groups: 1, dim };
        self.push(name, Op::Embed { table, by }, &[], shape)
    }

    /// RMS norm over each group of `x`, with factors.
    ///
    /// # Errors
    /// As [`norm`](Self::norm).
    pub fn rms_norm(&self, name: &str, x: ValueId, weight: WeightId, eps: f32) -> Result<ValueId> {
        self.norm(name, x, Norm::rms(weight, eps))
    }

    /// A norm over each group of `x`.
    ///
    /// # Errors
    /// [`Error::Operand`] if a vector is as long as neither a group nor a row, or `eps` is not a positive number.
    pub fn norm(&self, name: &str, x: ValueId, norm: Norm) -> Result<ValueId> {
        let shape = self.shape(x);
        for id in norm.vectors() {
            let found = self.spec(id);
            if found.rows != 1 && shape.groups == 1
                || ![shape.dim, shape.cols()].contains(&(found.rows * found.cols))
            {
                let expected = match shape.groups {
                    1 => format!("a norm weight of {}", shape.dim),
                    n => format!("a norm weight of {} or of {n} times as many", shape.dim),
                };
                return Err(self.operand(name, expected, (found.rows * found.cols).to_string()));
            }
        }
        if !(norm.eps.is_finite() && norm.eps > 0.0) {
            return Err(self.operand(name, "eps finite and > 0".into(), norm.eps.to_string()));
        }
        self.push(name, Op::Norm(norm), &[x], shape)
    }

    /// `w . x + bias`: `[rows, in]` -> `[rows, out]`.
    ///
    /// # Errors
    /// [`Error::Operand`] if the widths differ.
    pub fn linear(&self, name: &str, x: ValueId, w: impl Into<LinearWeight>) -> Result<ValueId> {
        let LinearWeight { weight, bias } = w.into();
        let shape = self.shape(x);
        let spec = self.spec(weight);
        if spec.cols != shape.cols() {
            return Err(self.operand(
                name,
                format!("{} inputs", spec.cols),
                shape.cols().to_string(),
            ));
        }
        if let Some(bias) = bias {
            let found = self.spec(bias).cols;
            if found != spec.rows {
                return Err(self.operand(
                    name,
                    format!("a bias of {}", spec.rows),
                    found.to_string(),
                ));
            }
        }
        self.push(
            name,
            Op::Linear { weight, bias },
            &[x],
            Shape { rows: shape.rows, groups: 1, dim: spec.rows },
        )
    }

    /// `act(x)`.
    ///
    /// # Errors
    /// [`Error::Operand`] if the activation's parameters are no sound numbers.
    pub fn act(&self, name: &str, act: Act, x: ValueId) -> Result<ValueId> {
        if !act.is_sound() {
            return Err(self.operand(name, "sound parameters".into(), format!("{act:?}")));
        }
        self.push(name, Op::Act(act), &[x], self.shape(x))
    }

    /// An activation of `gate` and `up`; a gate of one column for each group of `up` is, activated, the factor of all of
    /// that group.
    ///
    /// # Errors
    /// [`Error::Operand`] if the shapes differ and the gate is not a column for each group, of as many rows, whose
    /// activation is a factor, or the activation's parameters are no sound numbers.
    pub fn gated_act(
        &self,
        name: &str,
        act: impl Into<Gate>,
        gate: ValueId,
        up: ValueId,
    ) -> Result<ValueId> {
        let (factor, shape, act) = (self.shape(gate), self.shape(up), act.into());
        if !act.is_sound() || matches!(act, Gate::Alone(_)) {
            return Err(self.operand(name, "sound parameters".into(), format!("{act:?}")));
        }
        let factors = factor.cols() == shape.groups
            && factor.rows == shape.rows
            && matches!(act, Gate::Act(_));
        if !factors {
            self.same_shape(name, gate, up)?;
        }
        self.push(name, Op::GatedAct(act), &[gate, up], shape)
    }

    /// `a + b`.
    ///
    /// # Errors
    /// [`Error::Operand`] if the shapes differ.
    pub fn add(&self, name: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.same_shape(name, a, b)?;
        self.push(name, Op::Add, &[a, b], self.shape(a))
    }

    /// `x * factor`.
    ///
    /// # Errors
    /// [`Error::Operand`] if `factor` is not finite.
    pub fn scale(&self, name: &str, x: ValueId, factor: f32) -> Result<ValueId> {
        if !factor.is_finite() {
            return Err(self.operand(name, "a finite factor".into(), factor.to_string()));
        }
        self.push(name, Op::Scale(factor), &[x], self.shape(x))
    }

    /// `x + number`.
    ///
    /// # Errors
    /// [`Error::Operand`] if `number` is not finite.
    pub fn shift(&self, name: &str, x: ValueId, number: f32) -> Result<ValueId> {
        if !number.is_finite() {
            return Err(self.operand(name, "a finite number".into(), number.to_string()));
        }
        self.push(name, Op::Shift(number), &[x], self.shape(x))
    }

    /// `x` times a vector, element by element: as long as a group or a row, or one number for all.
    ///
    /// # Errors
    /// [`Error::Operand`] if it is of another length.
    pub fn multiply(&self, name: &str, x: ValueId, weight: WeightId) -> Result<ValueId> {
        let (shape, found) = (self.shape(x), self.spec(weight));
        let len = found.rows * found.cols;
        if ![1, shape.dim, shape.cols()].contains(&len) {
            let expected = format!("a vector of 1, {} or {}", shape.dim, shape.cols());
            return Err(self.operand(name, expected, len.to_string()));
        }
        self.push(name, Op::Multiply { weight, by_group: false }, &[x], shape)
    }

    /// `x` times a number for each of its groups.
    ///
    /// # Errors
    /// [`Error::Operand`] if there are not as many.
    pub fn multiply_groups(&self, name: &str, x: ValueId, weight: WeightId) -> Result<ValueId> {
        let (shape, found) = (self.shape(x), self.spec(weight));
        let len = found.rows * found.cols;
        if len != shape.groups {
            return Err(self.operand(name, format!("{} numbers", shape.groups), len.to_string()));
        }
        self.push(name, Op::Multiply { weight, by_group: true }, &[x], shape)
    }

    /// Split each row of `x` into `groups` (heads); 1 joins them again.
    ///
    /// # Errors
    /// [`Error::Operand`] if the row does not divide.
    pub fn view(&self, name: &str, x: ValueId, groups: usize) -> Result<ValueId> {
        let shape = self.shape(x);
        if groups == 0 || !shape.cols().is_multiple_of(groups) {
            return Err(self.operand(
                name,
                format!("a row that divides by {groups}"),
                shape.cols().to_string(),
            ));
        }
        self.push(
            name,
            Op::View,
            &[x],
            Shape { rows: shape.rows, groups, dim: shape.cols() / groups },
        )
    }

    /// Elements `start .. start + len` of each group.
    ///
    /// # Errors
    /// [`Error::Operand`] if a group has no such elements.
    pub fn slice(&self, name: &str, x: ValueId, start: usize, len: usize) -> Result<ValueId> {
        let shape = self.shape(x);
        if len == 0 || start.checked_add(len).is_none_or(|end| end > shape.dim) {
            let expected = format!("some of {} elements", shape.dim);
            return Err(self.operand(name, expected, format!("{len} from {start}")));
        }
        self.push(name, Op::Slice { start, len }, &[x], Shape { dim: len, ..shape })
    }

    /// Only the rows whose outputs the step asks for.
    ///
    /// # Errors
    /// [`Error::Operand`] if rows were selected already.
    pub fn select_rows(&self, name: &str, x: ValueId) -> Result<ValueId> {
        self.selected(name, Op::SelectRows, x)
    }

    /// For each row whose output the step asks for the mean of all rows of its sequence.
    ///
    /// # Errors
    /// As [`select_rows`](Self::select_rows).
    pub fn mean_rows(&self, name: &str, x: ValueId) -> Result<ValueId> {
        self.selected(name, Op::MeanRows, x)
    }

    fn selected(&self, name: &str, op: Op, x: ValueId) -> Result<ValueId> {
        let shape = self.shape(x);
        if shape.rows == Rows::Selected {
            return Err(self.operand(name, "all rows".into(), "selected rows".into()));
        }
        self.push(name, op, &[x], Shape { rows: Rows::Selected, ..shape })
    }

    /// Declare an output and finish.
    pub fn finish(self, outputs: &[(OutputKind, ValueId)]) -> Program {
        let mut program = self.state.into_inner().program;
        program.outputs = outputs.to_vec();
        program
    }

    /// Shape of a recorded value.
    pub fn shape(&self, id: ValueId) -> Shape {
        self.state.borrow().program.value(id).shape
    }

    fn spec(&self, id: WeightId) -> WeightSpec {
        self.state.borrow().program.weight(id).clone()
    }

    fn same_shape(&self, name: &str, a: ValueId, b: ValueId) -> Result<()> {
        let (a, b) = (self.shape(a), self.shape(b));
        if a == b { Ok(()) } else { Err(self.operand(name, format!("{a:?}"), format!("{b:?}"))) }
    }

    fn operand(&self, name: &str, expected: String, found: String) -> Error {
        Error::Operand { op: self.qualified(name), expected, found }
    }

    fn qualified(&self, name: &str) -> String {
        match self.state.borrow().layer {
            Some(layer) => format!("blk.{layer}.{name}"),
            None => name.to_owned(),
        }
    }

    fn push(&self, name: &str, op: Op, inputs: &[ValueId], shape: Shape) -> Result<ValueId> {
        let output = self.value(name, shape);
        let state = &mut *self.state.borrow_mut();
        let node = Node { op, inputs: inputs.to_vec(), output, layer: state.layer };
        state.appended.extend(node.appends_to());
        state.program.nodes.push(node);
        Ok(output)
    }

    fn value(&self, name: &str, shape: Shape) -> ValueId {
        let mut name = self.qualified(name);
        let state = &mut *self.state.borrow_mut();
        let seen = state.names.entry(name.clone()).or_insert(0);
        *seen += 1;
        if *seen > 1 {
            name = format!("{name}.{seen}");
        }
        state.program.values.push(ValueSpec { name, shape });
        ValueId(state.program.values.len() as u32 - 1)
    }
}
