//! Works of single architectures: streams that are balanced, rows of tables by hashes of tokens.

use program::{Error, Grams, Node, Result, WeightId};

use super::Lowering;
use crate::plan::{BalanceWork, GpuWork, GramsWork, RowOrder, VectorSpec};

/// Rows of a matrix that is balanced, at most: it lies in workgroup memory.
const MOST_STREAMS: usize = 32;

impl Lowering<'_> {
    pub(super) fn balance(&mut self, node: &Node, rounds: u32, eps: f32) -> Result<()> {
        let n = self.program.value(node.inputs[0]).shape.dim;
        if n > MOST_STREAMS {
            return Err(Error::Unsupported(format!(
                "matrices of {n} rows balanced on a GPU: at most {MOST_STREAMS}"
            )));
        }
        let a = self.place(node.inputs[0]);
        let out = self.output(node.output);
        self.plan.works.push(GpuWork::Balance(BalanceWork { n, rounds, eps, a, out }));
        Ok(())
    }

    pub(super) fn grams(&mut self, node: &Node, table: WeightId, grams: &Grams) {
        let cols = self.program.weight(table).cols;
        let table = self.matrix_of(&[table], RowOrder::AsTheyAre);
        // kernels read floats: of every whole number 16 bits at a time
        let parts = |n: u64, parts: u32| (0..parts).map(move |i| (n >> (16 * i) & 0xffff) as f32);
        let multipliers = grams.multipliers.iter().flat_map(|n| parts(*n, 4));
        let heads = grams.heads.iter();
        let heads =
            heads.flat_map(|head| parts(head.start as u64, 2).chain(parts(head.n_rows as u64, 2)));
        let numbers = self.vector(VectorSpec::Numbers(multipliers.chain(heads).collect()));
        let ids = self.place(node.inputs[0]);
        let out = self.output(node.output);
        self.plan.works.push(GpuWork::Grams(GramsWork {
            table,
            numbers,
            n_ids: grams.multipliers.len(),
            n_heads: grams.heads.len(),
            end: grams.end,
            cols,
            ids,
            out,
        }));
    }
}
