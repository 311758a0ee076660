//! Lowering of what is done row by row, with nothing kept.

use program::{Node, Op, ValueId};

use super::Lowering;
use super::act::{gated, unary};
use crate::plan::RowOp;

impl Lowering<'_> {
    /// What a node does with each row.
    pub(super) fn of_rows(&self, node: &Node) -> RowOp {
        let out = self.operand(node.output);
        let input = |i: usize| self.operand(node.inputs[i]);
        let dim = |id: ValueId| self.program.value(id).shape.dim;
        match &node.op {
            Op::Act(act) => RowOp::Act { act: unary(*act), x: input(0), out },
            Op::GatedAct(act) => {
                RowOp::GatedAct { act: gated(*act), gate: input(0), up: input(1), out }
            }
            Op::Add => RowOp::Add { a: input(0), b: input(1), out },
            Op::Scale(factor) => RowOp::Scale { x: input(0), factor: *factor, out },
            Op::Shift(number) => RowOp::Shift { x: input(0), number: *number, out },
            Op::Softmax => RowOp::Softmax { x: input(0), dim: dim(node.output), out },
            Op::Ids => RowOp::Ids { out },
            Op::SignedRoot { least } => RowOp::SignedRoot { x: input(0), least: *least, out },
            Op::Turn => RowOp::Turn { x: input(0), dim: dim(node.inputs[0]), out },
            Op::Sinkhorn { rounds, eps } => {
                let n = dim(node.output);
                RowOp::Sinkhorn { x: input(0), n, rounds: *rounds, eps: *eps, out }
            }
            Op::Multiply { weight, by_group } => {
                let each = if *by_group { dim(node.output) } else { 1 };
                RowOp::Multiply { x: input(0), weight: *weight, each, out }
            }
            Op::Slice { start, len } => {
                let (x, dim) = (input(0), dim(node.inputs[0]));
                RowOp::Slice { x, dim, start: *start, out, len: *len }
            }
            Op::Concat => {
                let values = node.inputs.iter().map(|id| self.operand(*id)).collect();
                RowOp::Concat { values, out }
            }
            Op::Mix => {
                let groups = self.program.value(node.inputs[1]).shape.groups;
                RowOp::Mix { weights: input(0), x: input(1), groups, out }
            }
            Op::Resize => RowOp::Resize { x: input(0), y: input(1), dim: dim(node.output), out },
            Op::Excess { deviations } => {
                RowOp::Excess { x: input(0), dim: dim(node.output), deviations: *deviations, out }
            }
            Op::SumGroups => RowOp::Sums { x: input(0), dim: dim(node.inputs[0]), out },
            other => unreachable!("{} is no op of single rows", other.name()),
        }
    }
}
