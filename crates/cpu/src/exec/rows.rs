//! Phases whose rows are independent: dealt to the workers by row.

use kernels::rows::Gated;
use program::{Lookup, Norm, NormKind};

use super::experts::MixScratch;
use super::streams;
use super::{Exec, SequenceRows};
use crate::plan::{Operand, RowOp, TableRows};
use crate::pool::Worker;
use crate::weights::Table;

impl Exec<'_> {
    /// One row of `out`, to write.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    unsafe fn row_mut(&self, out: Operand, row: usize) -> &mut [f32] {
        // SAFETY: rows are dealt to one worker each, and no phase reads what it writes, but a row phase,
        // which reads the same row on the same worker.
        unsafe { self.value(out).slice_mut(row * out.cols..(row + 1) * out.cols) }
    }

    pub(super) fn embed(&self, worker: &Worker<'_>, table: &Table, by: &TableRows, out: Operand) {
        worker.section(|section| {
            for row in section.take(self.rows_of(out.rows)) {
                // SAFETY: rows are dealt to one worker each.
                let out = unsafe { self.row_mut(out, row) };
                let wanted = match by {
                    TableRows::By(Lookup::Token) => self.tokens[row] as usize,
                    TableRows::By(Lookup::Position) => self.position(row),
                    TableRows::By(Lookup::Only) => 0,
                    TableRows::Grams { grams, ids } => {
                        let each = out.len() / grams.heads.len();
                        let rows = grams.rows(self.row(*ids, row));
                        for (out, wanted) in out.chunks_exact_mut(each).zip(rows) {
                            table.embed(self.weights, wanted, out);
                        }
                        continue;
                    }
                };
                table.embed(self.weights, wanted, out);
            }
        });
    }

    /// Position of a row of the step within its session.
    fn position(&self, row: usize) -> usize {
        let SequenceRows { first_row, start, .. } = self.sequence(row);
        start + row - first_row
    }

    /// The sequence that a row of the step belongs to.
    fn sequence(&self, row: usize) -> &SequenceRows {
        let after = self.sequences.partition_point(|sequence| sequence.first_row <= row);
        &self.sequences[after - 1]
    }

    pub(super) fn select_rows(&self, worker: &Worker<'_>, x: Operand, out: Operand) {
        worker.section(|section| {
            for row in section.take(self.selected.len()) {
                // SAFETY: rows are dealt to one worker each.
                unsafe { self.row_mut(out, row) }.copy_from_slice(self.row(x, self.selected[row]));
            }
        });
    }

    /// For each selected row the mean of its sequence's rows, which are added in ascending order.
    pub(super) fn mean_rows(&self, worker: &Worker<'_>, x: Operand, out: Operand) {
        worker.section(|section| {
            for row in section.take(self.selected.len()) {
                let SequenceRows { first_row, n, .. } = *self.sequence(self.selected[row]);
                // SAFETY: rows are dealt to one worker each.
                let out = unsafe { self.row_mut(out, row) };
                out.fill(0.0);
                for of_sequence in first_row..first_row + n {
                    let x = self.row(x, of_sequence);
                    out.iter_mut().zip(x).for_each(|(out, x)| *out += x);
                }
                out.iter_mut().for_each(|out| *out /= n as f32);
            }
        });
    }

    /// Norm one group of a row.
    pub(super) fn norm(&self, norm: &Norm, group: usize, x: &[f32], out: &mut [f32]) {
        // vectors are as long as a group or as a row
        let part = |id| {
            let vector = self.weights.vector(id);
            let start = if vector.len() == x.len() { 0 } else { group * x.len() };
            &vector[start..start + x.len()]
        };
        let weight = norm.weight.map_or_else(|| self.weights.ones(x.len()), part);
        let kernel = match norm.kind {
            NormKind::Rms => self.kernels.rms_norm,
            NormKind::Layer => self.kernels.layer_norm,
        };
        kernel.call(x, weight, norm.eps, out);
        if let Some(bias) = norm.bias {
            out.iter_mut().zip(part(bias)).for_each(|(out, bias)| *out += bias);
        }
    }

    pub(super) fn row_ops(&self, worker: &Worker<'_>, ops: &[RowOp], mixture: &mut MixScratch) {
        let Some(first) = ops.first() else { return };
        worker.section(|section| {
            for row in section.take(self.rows_of(first.out().rows)) {
                for op in ops {
                    // SAFETY: rows are dealt to one worker each.
                    let out = unsafe { self.row_mut(op.out(), row) };
                    self.row_op(op, row, out, mixture);
                }
            }
        });
    }

    fn row_op(&self, op: &RowOp, row: usize, out: &mut [f32], mixture: &mut MixScratch) {
        match op {
            RowOp::Norm { x, norm, dim, .. } => {
                let groups = self.row(*x, row).chunks_exact(*dim);
                for (i, (x, out)) in groups.zip(out.chunks_exact_mut(*dim)).enumerate() {
                    self.norm(norm, i, x, out);
                }
            }
            RowOp::Act { act, x, .. } => {
                out.copy_from_slice(self.row(*x, row));
                self.kernels.act.call(*act, out);
            }
            RowOp::GatedAct { act: Gated::Unary(act), gate, up, .. } if gate.cols < up.cols => {
                let width = up.cols / gate.cols;
                let groups =
                    out.chunks_exact_mut(width).zip(self.row(*up, row).chunks_exact(width));
                for (factor, (out, x)) in self.row(*gate, row).iter().zip(groups) {
                    let mut factor = [*factor];
                    self.kernels.act.call(*act, &mut factor);
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = factor[0] * x;
                    }
                }
            }
            RowOp::Route { scores, router, .. } => {
                let scores = self.row(*scores, row);
                self.route(scores, router, out, &mut mixture.route);
            }
            RowOp::GatedAct { act, gate, up, .. } => {
                self.kernels.gated.call(*act, self.row(*gate, row), self.row(*up, row), out);
            }
            RowOp::Add { a, b, .. } => {
                self.kernels.add.call(self.row(*a, row), self.row(*b, row), out)
            }
            RowOp::Slice { x, dim, start, len, .. } => {
                let groups = self.row(*x, row).chunks_exact(*dim);
                for (out, group) in out.chunks_exact_mut(*len).zip(groups) {
                    out.copy_from_slice(&group[*start..start + len]);
                }
            }
            RowOp::Concat { values, .. } => {
                let mut rest = out;
                for value in values {
                    let (part, after) = rest.split_at_mut(value.cols);
                    part.copy_from_slice(self.row(*value, row));
                    rest = after;
                }
            }
            RowOp::Mix { weights, x, groups, .. } => {
                streams::mix(self.row(*weights, row), self.row(*x, row), *groups, out);
            }
            RowOp::Resize { x, y, dim, .. } => {
                let groups = self.row(*x, row).chunks_exact(*dim);
                let groups = groups.zip(self.row(*y, row).chunks_exact(*dim));
                for ((x, y), out) in groups.zip(out.chunks_exact_mut(*dim)) {
                    streams::resize(x, y, out);
                }
            }
            RowOp::Excess { x, dim, deviations, .. } => {
                let groups = self.row(*x, row).chunks_exact(*dim);
                for (x, out) in groups.zip(out.chunks_exact_mut(*dim)) {
                    streams::excess(x, *deviations, out);
                }
            }
            RowOp::Sums { x, dim, .. } => streams::sums(self.row(*x, row), *dim, out),
            RowOp::Multiply { x, weight, each, .. } => {
                let factors = self.weights.vector(*weight);
                streams::multiply(self.row(*x, row), factors, *each, out);
            }
            RowOp::Scale { x, factor, .. } => {
                for (out, x) in out.iter_mut().zip(self.row(*x, row)) {
                    *out = x * factor;
                }
            }
            RowOp::Shift { x, number, .. } => {
                for (out, x) in out.iter_mut().zip(self.row(*x, row)) {
                    *out = x + number;
                }
            }
            RowOp::Softmax { x, dim, .. } => {
                let groups = self.row(*x, row).chunks_exact(*dim);
                for (x, out) in groups.zip(out.chunks_exact_mut(*dim)) {
                    streams::softmax(x, out);
                }
            }
            RowOp::Ids { .. } => out[0] = self.tokens[row] as f32 + 1.0,
            RowOp::SignedRoot { x, least, .. } => {
                streams::signed_roots(self.row(*x, row), *least, out);
            }
            RowOp::Turn { x, dim, .. } => streams::turned(self.row(*x, row), *dim, out),
            RowOp::Sinkhorn { x, n, rounds, eps, .. } => {
                let matrices = self.row(*x, row).chunks_exact(n * n);
                for (x, out) in matrices.zip(out.chunks_exact_mut(n * n)) {
                    streams::sinkhorn(x, *n, *rounds, f64::from(*eps), out);
                }
            }
        }
    }
}
