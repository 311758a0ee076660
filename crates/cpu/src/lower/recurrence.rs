//! Lowering of what recurs: takes in the slices of its inputs.

use program::{CausalConv, Node, Op, Scan, ValueId};

use super::Lowering;
use super::act::unary;
use crate::plan::{Cached, Columns, ConvPhase, Phase, ScanPhase};

impl Lowering<'_> {
    /// The phase of a convolution, whose cache is noted.
    pub(super) fn causal_conv(&mut self, node: &Node, conv: &CausalConv) -> Phase {
        let CausalConv { cache, taps, bias, width, step, act } = *conv;
        let (x, out) = (self.columns(node.inputs[0]), self.operand(node.output));
        let phase = ConvPhase { cache, x, taps, bias, width, step, act: act.map(unary), out };
        let (state, row) = (phase.state_floats(), phase.x.n);
        self.caches[cache.0 as usize] = Some(Cached::State { state, row, scratch: 0 });
        Phase::Conv(phase)
    }

    /// The phase of a recurrence, whose cache is noted.
    pub(super) fn scan(&mut self, node: &Node, scan: &Scan) -> Phase {
        let inputs = node.inputs.iter().map(|id| self.columns(*id)).collect();
        let phase = ScanPhase { scan: *scan, inputs, out: self.operand(node.output) };
        let (state, row) = (phase.state_floats(), phase.row_floats());
        let scratch = crate::exec::scan_floats(&phase);
        self.caches[scan.cache.0 as usize] = Some(Cached::State { state, row, scratch });
        Phase::Scan(phase)
    }

    /// Whether only what recurs reads this slice of whole rows: it then reads the slice's input instead.
    pub(super) fn is_slice_of_recurrence(&self, node: &Node) -> bool {
        let recurs = |op: &Op| matches!(op, Op::Scan(_) | Op::CausalConv(_));
        matches!(node.op, Op::Slice { .. })
            && self.program.value(node.inputs[0]).shape.groups == 1
            && self.feeds_only(node, recurs)
    }

    /// Where an input is: in what it is a slice of, if the slice is taken in.
    fn columns(&self, id: ValueId) -> Columns {
        match self.writer(id) {
            Some(node @ Node { op: Op::Slice { start, len }, .. })
                if self.is_slice_of_recurrence(node) =>
            {
                Columns { operand: self.operand(node.inputs[0]), start: *start, n: *len }
            }
            _ => {
                let operand = self.operand(id);
                Columns { operand, start: 0, n: operand.cols }
            }
        }
    }
}
