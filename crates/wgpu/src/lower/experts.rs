//! Mixtures of experts: the choice, the products of those that are chosen, their weighted sum.

use program::{Error, Gate, Node, Op, Result, Router, ValueId, WeightId};

use super::Lowering;
use crate::formats::CHUNK;
use crate::kernels::{Finish, element};
use crate::plan::{
    ChosenPieces, Crowd, ElementWork, GpuWork, Many, MatrixId, MixedWork, PiecesWork, Place,
    RouteWork, RowOrder, SortedWork, VectorId, VectorSpec,
};

/// Experts at most that are chosen from, and that are chosen: a workgroup has some numbers of each in its memory.
const MOST_EXPERTS: usize = 1024;
const MOST_USED: usize = 256;

/// Products of a mixture that are one work.
struct Inner {
    matrix: MatrixId,
    bias: Option<VectorId>,
    finish: Finish,
    /// Rows of the matrix for each number of a slot.
    by: usize,
}

impl Lowering<'_> {
    pub(super) fn route(&mut self, node: &Node, router: &Router) -> Result<()> {
        let n_experts = self.program.value(node.inputs[0]).shape.cols();
        let n_used = router.n_used;
        if n_experts > MOST_EXPERTS || n_used > MOST_USED {
            return Err(Error::Unsupported(format!(
                "{n_used} of {n_experts} experts on a GPU: at most {MOST_USED} of {MOST_EXPERTS}"
            )));
        }
        let [bias, factors] =
            [router.bias, router.factors].map(|id| id.map(|id| self.weight_vector(id)));
        let scores = self.place(node.inputs[0]);
        let out = self.output(node.output);
        let router = router.clone();
        let work = RouteWork { router, n_experts, bias, factors, scores, out };
        self.plan.works.push(GpuWork::Route(work));
        Ok(())
    }

    /// Gate, up and activation of each expert in a slot of its own, then down and the sum; and a residual, if there is one,
    /// in the value of who adds it.
    pub(super) fn experts(&mut self, node: &Node, sum: Option<(ValueId, ValueId)>) {
        let Op::Experts { gate, up, down, biases, act, weighs_inputs, n_experts, n_used } =
            &node.op
        else {
            unreachable!("a node of experts was asked for")
        };
        let (n_experts, n_used) = (*n_experts, *n_used);
        let width = self.program.weight(*down).cols;
        let pitch = width.next_multiple_of(CHUNK);
        let [x, place] = [0, 1].map(|i| self.place(node.inputs[i]));
        let routes = |weigh| ChosenPieces { place, n_used, weigh };
        let many = self.sorted(node, n_experts, routes(*weighs_inputs));
        let slots = |lowering: &mut Self, inner: &Inner| {
            let rows = lowering.program.value(node.output).shape.rows;
            let out = lowering.new_buffer(rows, n_used * pitch);
            lowering.plan.works.push(GpuWork::Pieces(PiecesWork {
                matrix: inner.matrix,
                each: inner.by * width,
                skipped: 0,
                taken: inner.by * width,
                slots: n_used,
                routes: Some(routes(*weighs_inputs)),
                bias: inner.bias,
                finish: inner.finish,
                x,
                x_pitch: 0,
                out,
                out_pitch: pitch,
                many: Some(many),
            }));
            out
        };
        let rows = n_experts * width;
        let inner = match self.inner([*gate, *up], *act, width) {
            Some((matrix, by)) => {
                let bias = biases.map(|biases| {
                    let parts = [biases.gate, biases.up].map(|id| (Some(id), rows)).to_vec();
                    self.vector(VectorSpec::Biases { parts, in_turn: true })
                });
                slots(self, &Inner { matrix, bias, finish: Finish::Gate(*act), by })
            }
            None => {
                let biases = biases.map(|biases| [biases.gate, biases.up]);
                let sides = [0, 1].map(|i| {
                    let bias = biases.map(|ids| self.weight_vector(ids[i]));
                    let matrix = self.matrix_of(&[[*gate, *up][i]], RowOrder::AsTheyAre);
                    slots(self, &Inner { matrix, bias, finish: Finish::Plain, by: 1 })
                });
                self.gated(sides, *act, n_used * pitch, node)
            }
        };
        let bias = biases.map(|biases| self.weight_vector(biases.down));
        let matrix = self.matrix_of(&[*down], RowOrder::AsTheyAre);
        let residual = sum.map(|(residual, _)| self.place(residual));
        let out = self.output(sum.map_or(node.output, |(_, output)| output));
        let each = self.program.value(node.output).shape.cols();
        let (routes, crowd) = (routes(!*weighs_inputs), many.crowd);
        let (x, x_pitch) = (inner, pitch);
        let work = MixedWork { crowd, matrix, each, routes, bias, x, x_pitch, residual, out };
        self.mixed_of_many(&work, many);
        self.plan.works.push(GpuWork::Mixed(work));
    }

    /// The list of the rows that each expert has.
    fn sorted(&mut self, node: &Node, n_experts: usize, routes: ChosenPieces) -> Many {
        let crowd = Crowd { n_experts, n_used: routes.n_used };
        let rows = self.program.value(node.output).shape.rows;
        // whole chunks: nobody finds words of a list behind the numbers of a row
        let list = self.new_buffer(rows, crowd.words().next_multiple_of(CHUNK));
        self.plan.works.push(GpuWork::Sorted(SortedWork { crowd, routes, out: list }));
        Many { crowd, list, only: false }
    }

    /// Of many rows: what each expert makes of its slot, then their sum.
    fn mixed_of_many(&mut self, work: &MixedWork, many: Many) {
        let MixedWork { matrix, each, routes, bias, x, x_pitch, residual, out, .. } = *work;
        let pitch = each.next_multiple_of(CHUNK);
        let rows = self.plan.buffer(out.buffer).rows;
        let made = self.new_buffer(rows, routes.n_used * pitch);
        self.plan.works.push(GpuWork::Pieces(PiecesWork {
            matrix,
            each,
            skipped: 0,
            taken: each,
            slots: routes.n_used,
            routes: None,
            bias,
            finish: Finish::Plain,
            x,
            x_pitch,
            out: made,
            out_pitch: pitch,
            many: Some(Many { only: true, ..many }),
        }));
        let weights = Place { offset: routes.place.offset + routes.n_used, ..routes.place };
        let elements = |value, a, b, out| ElementWork {
            value,
            finish: Finish::Plain,
            a,
            b,
            out,
            cols: each,
            sizes: [routes.n_used, pitch, 0],
            vector: None,
            factor: 0.0,
        };
        let weights = routes.weigh.then_some(weights);
        let sums = match residual {
            None => vec![elements(element::JOINED, made, weights, out)],
            Some(residual) => {
                let joined = self.new_buffer(rows, each);
                vec![
                    elements(element::JOINED, made, weights, joined),
                    elements(element::ADD, joined, Some(residual), out),
                ]
            }
        };
        let crowd = many.crowd;
        self.plan.works.extend(sums.into_iter().map(|sum| GpuWork::OfMany(sum, crowd)));
    }

    /// The matrix of gate and up, and how many of its rows make one number of a slot; `None` if they are of different
    /// types.
    fn inner(
        &mut self,
        [gate, up]: [WeightId; 2],
        act: Gate,
        width: usize,
    ) -> Option<(MatrixId, usize)> {
        let ty = |id| self.program.weight(id).ty;
        match act {
            Gate::Alone(_) => Some((self.matrix_of(&[gate], RowOrder::AsTheyAre), 1)),
            _ if gate == up => Some((self.matrix_of(&[gate], RowOrder::Halves(width)), 2)),
            _ if ty(gate) == ty(up) => Some((self.matrix_of(&[gate, up], RowOrder::InTurn), 2)),
            _ => None,
        }
    }

    /// What a gate lets through of slots that lie apart.
    fn gated(&mut self, [a, b]: [Place; 2], act: Gate, cols: usize, node: &Node) -> Place {
        let rows = self.program.value(node.output).shape.rows;
        let out = self.new_buffer(rows, cols);
        self.plan.works.push(GpuWork::Elements(ElementWork {
            value: element::GATE,
            finish: Finish::Gate(act),
            a,
            b: Some(b),
            out,
            cols,
            sizes: [1, 0, 0],
            vector: None,
            factor: 0.0,
        }));
        out
    }
}
