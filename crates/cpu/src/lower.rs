//! Lowering: a [`Program`] becomes a [`Plan`] of few phases.
//!
//! For a decoder layer this yields: norm + q, k, v | rotation, cache, attention | output + residual | norm + gate, up,
//! activation | down + residual. With experts the last two become: norm + router, shared gate, up, activation | experts
//! (+ residual) | shared down + its gate + experts + residual. Fusion is by pattern over the op list: any program lowers, these lower well.
//!
//! ```text
//! for each op in order, unless an earlier phase took it in:
//!   linear      take all linears of the same input; take the norm that only feeds them, the adds or the gated
//!               activation that alone read each
//!   experts     take the norm, the router and the adds likewise
//!   row op      join the row phase before it
//!   view        another name of its input
//! ```

mod act;
mod attention;
mod experts;
mod indexer;
mod latent;
mod recurrence;
mod rows;

use program::{Error, Gate, Node, Norm, Op, OutputKind, Program, Result, Uses, ValueId};

use act::{gated, unary};

use crate::mla::MlaChoice;
use crate::plan::{
    Buffers, Cached, Job, LinearPhase, Link, Matrix, Operand, Phase, Plan, RowOp, TableRows,
    Turning,
};

/// Lower `program`.
///
/// # Errors
/// [`Error::Unsupported`] for an op this executor does not know.
pub(crate) fn lower(program: &Program, form: MlaChoice) -> Result<Plan> {
    let mut lowering = Lowering::new(program, form);
    for index in 0..program.nodes.len() {
        if !lowering.taken[index] {
            lowering.taken[index] = true;
            lowering.node(index)?;
            lowering.settle();
        }
    }
    Ok(lowering.finish())
}

struct Lowering<'a> {
    program: &'a Program,
    /// Of latent attention.
    form: MlaChoice,
    uses: Uses,
    /// Nodes that a phase computes, be it one under construction.
    taken: Vec<bool>,
    /// Nodes that the phases so far compute.
    settled: Vec<bool>,
    phases: Vec<Phase>,
    /// See [`Plan::hidden_phase`].
    hidden_phase: Option<usize>,
    ropes: Vec<Turning>,
    caches: Vec<Option<Cached>>,
    /// Values of the program, and those that lowering introduced.
    n_values: usize,
}

impl<'a> Lowering<'a> {
    fn new(program: &'a Program, form: MlaChoice) -> Self {
        Lowering {
            program,
            form,
            uses: Uses::of(program),
            taken: vec![false; program.nodes.len()],
            settled: vec![false; program.nodes.len()],
            phases: Vec::new(),
            hidden_phase: None,
            ropes: Vec::new(),
            caches: vec![None; program.caches.len()],
            n_values: program.values.len(),
        }
    }

    fn operand(&self, id: ValueId) -> Operand {
        let value = self.uses.root(id);
        let shape = self.program.value(value).shape;
        Operand { value, rows: shape.rows, cols: shape.cols() }
    }

    /// The node that writes the value's root.
    fn writer(&self, id: ValueId) -> Option<&'a Node> {
        self.uses.writer(self.uses.root(id)).map(|n| &self.program.nodes[n])
    }

    fn node(&mut self, index: usize) -> Result<()> {
        let program = self.program;
        let node = &program.nodes[index];
        let out = self.operand(node.output);
        let input = |i: usize| self.operand(node.inputs[i]);
        let phase = match &node.op {
            Op::View => return Ok(()),
            Op::Embed { table, by } => Phase::Embed { table: *table, by: TableRows::By(*by), out },
            Op::Grams { table, grams } => {
                let by = TableRows::Grams { grams: grams.clone(), ids: input(0) };
                Phase::Embed { table: *table, by, out }
            }
            Op::SelectRows => Phase::SelectRows { x: input(0), out },
            Op::MeanRows => Phase::MeanRows { x: input(0), out },
            Op::Norm(norm) => {
                let dim = program.value(node.inputs[0]).shape.dim;
                let op = RowOp::Norm { x: input(0), norm: *norm, dim, out };
                if self.feeds_only_matrices(node) {
                    if self.uses.is_output(node.output) {
                        self.hidden_phase = Some(self.phases.len());
                        self.phases.push(Phase::Rows(vec![op]));
                    }
                    return Ok(());
                }
                if self.is_norm_of_latent(node) {
                    return Ok(());
                }
                return self.row_op(op);
            }
            Op::Slice { .. }
                if self.is_slice_of_latent(node) || self.is_slice_of_recurrence(node) =>
            {
                return Ok(());
            }
            Op::Act(_)
            | Op::GatedAct(_)
            | Op::Add
            | Op::Scale(_)
            | Op::Shift(_)
            | Op::Softmax
            | Op::Ids
            | Op::SignedRoot { .. }
            | Op::Turn
            | Op::Sinkhorn { .. }
            | Op::Multiply { .. }
            | Op::Slice { .. }
            | Op::Concat
            | Op::Mix
            | Op::Resize
            | Op::Excess { .. }
            | Op::SumGroups => return self.row_op(self.of_rows(node)),
            Op::LatentAttention(_) => return self.latent(index),
            Op::Indexer(at) => Phase::Indexer(self.indexer(node, at)?),
            Op::CausalConv(conv) => self.causal_conv(node, conv),
            Op::Scan(scan) => self.scan(node, scan),
            Op::Route(router) => {
                if self.feeds_only_experts(node) {
                    return Ok(());
                }
                let (scores, router) = (input(0), router.clone());
                return self.row_op(RowOp::Route { scores, router, out });
            }
            Op::Experts { .. } => Phase::Experts(self.experts(node)?),
            Op::Linear { .. } => Phase::Linear(self.linear_group(index)),
            Op::Attention(at) => Phase::Attention(self.attention(index, at)?),
        };
        self.phases.push(phase);
        Ok(())
    }

    fn row_op(&mut self, op: RowOp) -> Result<()> {
        let closed = self.hidden_phase.is_some_and(|phase| phase + 1 == self.phases.len());
        match self.phases.last_mut() {
            Some(Phase::Rows(ops)) if !closed && ops[0].out().rows == op.out().rows => ops.push(op),
            _ => self.phases.push(Phase::Rows(vec![op])),
        }
        Ok(())
    }

    fn rope(&mut self, rope: &program::Rope) -> usize {
        self.rope_back(rope, 0)
    }

    /// The same by positions so many before those of rows.
    fn rope_back(&mut self, rope: &program::Rope, back: u32) -> usize {
        let turning = Turning { rope: rope.clone(), back };
        self.ropes.iter().position(|known| *known == turning).unwrap_or_else(|| {
            self.ropes.push(turning);
            self.ropes.len() - 1
        })
    }

    /// What is taken is computed by the phases there are.
    fn settle(&mut self) {
        self.settled.clone_from(&self.taken);
    }

    /// Whether a norm over whole rows is read by linear layers and experts alone, which then norm on their own; a step
    /// that asks for it has a phase for that.
    fn feeds_only_matrices(&self, node: &Node) -> bool {
        let whole_rows = self.program.value(node.output).shape.groups == 1;
        let matrix = |op: &Op| matches!(op, Op::Linear { .. } | Op::Experts { .. });
        let reads = |reader: usize| matrix(&self.program.nodes[reader].op);
        whole_rows && self.uses.feeds_only_unasked(node.output, reads)
    }

    /// Whether some ops read what the node writes, and only such.
    fn feeds_only(&self, node: &Node, such: impl Fn(&Op) -> bool) -> bool {
        self.uses.feeds_only(node.output, |reader| such(&self.program.nodes[reader].op))
    }

    /// What a phase reads that takes in the norm before it: the norm's input, if `source` is such a norm.
    fn normed(&self, source: ValueId) -> (Operand, Option<Norm>) {
        match self.writer(source) {
            Some(node @ Node { op: Op::Norm(norm), .. }) if self.feeds_only_matrices(node) => {
                (self.operand(node.inputs[0]), Some(*norm))
            }
            _ => (self.operand(source), None),
        }
    }

    /// The phase of the linear at `first` and all others that read the same value.
    fn linear_group(&mut self, first: usize) -> LinearPhase {
        let program = self.program;
        let source = self.uses.root(program.nodes[first].inputs[0]);
        let group: Vec<usize> = self
            .uses
            .readers(source)
            .iter()
            .copied()
            .filter(|&n| matches!(program.nodes[n].op, Op::Linear { .. }))
            .filter(|&n| n == first || !self.taken[n])
            .collect();
        for &index in &group {
            self.taken[index] = true;
        }
        let mut jobs = Vec::new();
        let mut paired = Vec::new();
        for &index in &group {
            if !paired.contains(&index) {
                jobs.push(self.job(index, &group, &mut paired));
            }
        }
        let (x, norm) = self.normed(source);
        LinearPhase { x, norm, jobs }
    }

    /// The job of the linear at `index`, with the ops after it that can be taken in.
    fn job(&mut self, index: usize, group: &[usize], paired: &mut Vec<usize>) -> Job {
        let program = self.program;
        let output = program.nodes[index].output;
        if let Some(reader) = self.uses.only_reader(output)
            && let node @ Node { op: Op::GatedAct(act), .. } = &program.nodes[reader]
            && let [Some(gate), Some(up)] =
                [0, 1].map(|i| self.uses.writer(self.uses.root(node.inputs[i])))
        {
            let [gate_cols, up_cols] = [0, 1].map(|i| self.operand(node.inputs[i]).cols);
            let both = gate != up
                && gate_cols == up_cols
                && [gate, up].iter().all(|n| group.contains(n) && !paired.contains(n));
            let alone = |n: usize| self.uses.only_reader(program.nodes[n].output) == Some(reader);
            if both && alone(gate) && alone(up) {
                paired.extend([gate, up]);
                self.taken[reader] = true;
                return Job::Gated {
                    gate: self.matrix(gate),
                    up: self.matrix(up),
                    act: gated(*act),
                    out: self.operand(node.output),
                };
            }
        }
        let (links, out) = self.links(output);
        Job::One { matrix: self.matrix(index), links, out: self.operand(out) }
    }

    /// Take in the sums, activations and gates of one column that read `id` and only what was computed before; also returns the
    /// value they end in.
    fn links(&mut self, mut id: ValueId) -> (Vec<Link>, ValueId) {
        let program = self.program;
        let mut links = Vec::new();
        while let Some(reader) = self.uses.only_reader(id) {
            let node = &program.nodes[reader];
            let root = |i: usize| self.uses.root(node.inputs[i]);
            let settled = |id: ValueId| self.uses.writer(id).is_none_or(|n| self.settled[n]);
            let (other, link) = match node.op {
                Op::Add => {
                    let other = if root(0) == id { root(1) } else { root(0) };
                    (Some(other), Link::Add(self.operand(other)))
                }
                Op::Act(act) => (None, Link::Act(unary(act))),
                Op::GatedAct(Gate::Act(act))
                    if root(1) == id && self.operand(root(0)).cols == 1 =>
                {
                    let gate = self.operand(root(0));
                    (Some(root(0)), Link::Gated { act: unary(act), gate })
                }
                Op::GatedAct(Gate::Act(act))
                    if root(0) == id
                        && self.operand(root(0)).cols == self.operand(root(1)).cols =>
                {
                    let up = self.operand(root(1));
                    (Some(root(1)), Link::Gate { act: unary(act), up })
                }
                _ => break,
            };
            if other.is_some_and(|other| other == id || !settled(other)) {
                break;
            }
            self.taken[reader] = true;
            links.push(link);
            id = node.output;
        }
        (links, id)
    }

    fn matrix(&self, index: usize) -> Matrix {
        match self.program.nodes[index].op {
            Op::Linear { weight, bias } => Matrix { weight, bias },
            _ => unreachable!("groups hold linears only"),
        }
    }

    fn finish(self) -> Plan {
        let [logits, hidden] = [OutputKind::Logits, OutputKind::Hidden]
            .map(|kind| self.program.output(kind).map(|id| self.operand(id)));
        let inputs: Vec<Operand> = self.program.inputs.iter().map(|id| self.operand(*id)).collect();
        let outputs = self.program.outputs.iter().filter(|(kind, _)| *kind == OutputKind::Rows);
        let handed = outputs.map(|(_, id)| self.operand(*id)).collect();
        let Lowering { phases, hidden_phase, ropes, caches, .. } = self;
        let buffers = Buffers::default();
        let mut plan =
            Plan { phases, hidden_phase, buffers, ropes, caches, logits, hidden, inputs, handed };
        plan.buffers = Buffers::assign(&plan);
        debug_assert_eq!(plan.check(), Ok(()));
        plan
    }
}

fn unsupported(op: &Op) -> Error {
    Error::Unsupported(format!("op `{}` on the CPU", op.name()))
}
