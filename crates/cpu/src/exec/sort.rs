//! The rows of a step sorted by expert.

use std::ops::Range;

/// Most rows of one block: what is arranged and multiplied together, and what many rows of one expert are cut into.
pub(crate) const BLOCK_ROWS: usize = 256;

/// Rows of one expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpertRows {
    pub(crate) expert: usize,
    /// First place in [`Routing::rows`].
    pub(crate) start: usize,
    pub(crate) n: usize,
    /// Numbers of its first item and of its first tile in the phase.
    pub(crate) first_item: usize,
    pub(crate) first_tile: usize,
    /// Where its rows lie once arranged: inputs of gate, of up, of down.
    pub(crate) words: [usize; 3],
}

impl ExpertRows {
    /// Its places in [`Routing::rows`].
    pub(crate) fn places(&self) -> Range<usize> {
        self.start..self.start + self.n
    }
}

/// Rows in the order of their experts; every worker has its own, and memory is kept between phases.
#[derive(Default)]
pub(crate) struct Routing {
    /// Rows by expert, each as often as it uses experts; ascending within an expert.
    pub(crate) rows: Vec<u32>,
    /// The weight of the expert in each of these.
    pub(crate) weights: Vec<f32>,
    /// Ascending by expert; experts without rows have none.
    pub(crate) blocks: Vec<ExpertRows>,
    ends: Vec<usize>,
}

impl Routing {
    /// Sort rows by expert: `routes` is `[rows][2 * n_used]`.
    pub(crate) fn sort(&mut self, routes: &[f32], n_experts: usize, n_used: usize) {
        let Routing { rows, weights, blocks, ends, .. } = self;
        let expert = |id: &f32| (*id as usize).min(n_experts - 1);
        ends.clear();
        ends.resize(n_experts + 1, 0);
        for id in routes.chunks_exact(2 * n_used).flat_map(|route| &route[..n_used]) {
            ends[expert(id) + 1] += 1;
        }
        blocks.clear();
        let mut start = 0;
        for e in 0..n_experts {
            let n = ends[e + 1];
            let n_blocks = n.div_ceil(BLOCK_ROWS);
            for block in 0..n_blocks {
                let part = block * n / n_blocks..(block + 1) * n / n_blocks;
                let (start, n) = (start + part.start, part.len());
                blocks.push(ExpertRows { expert: e, start, n, ..ExpertRows::default() });
            }
            ends[e] = start;
            start += n;
        }
        rows.clear();
        rows.resize(start, 0);
        weights.clear();
        weights.resize(start, 0.0);
        for (row, route) in routes.chunks_exact(2 * n_used).enumerate() {
            let (ids, chosen) = route.split_at(n_used);
            for (id, weight) in ids.iter().zip(chosen) {
                let at = &mut ends[expert(id)];
                (rows[*at], weights[*at]) = (row as u32, *weight);
                *at += 1;
            }
        }
    }

    /// The block that item `item` belongs to.
    pub(crate) fn block_of_item(&self, item: usize) -> &ExpertRows {
        &self.blocks[self.blocks.partition_point(|block| block.first_item <= item) - 1]
    }

    /// The block that tile `tile` belongs to.
    pub(crate) fn block_of_tile(&self, tile: usize) -> &ExpertRows {
        &self.blocks[self.blocks.partition_point(|block| block.first_tile <= tile) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_expert_and_cut_into_blocks() {
        let mut routing = Routing::default();
        let routes = [[3.0, 1.0, 0.75, 0.25], [1.0, 0.0, 0.5, 0.5], [3.0, 0.0, 1.0, 0.0]].concat();
        routing.sort(&routes, 5, 2);
        assert_eq!(routing.rows, [1, 2, 0, 1, 0, 2]);
        assert_eq!(routing.weights, [0.5, 0.0, 0.25, 0.5, 0.75, 1.0]);
        let blocks: Vec<_> = routing.blocks.iter().map(|b| (b.expert, b.places())).collect();
        assert_eq!(blocks, [(0, 0..2), (1, 2..4), (3, 4..6)]);

        let many = [2.0, 1.0].repeat(BLOCK_ROWS + 5);
        routing.sort(&many, 5, 1);
        let blocks: Vec<_> = routing.blocks.iter().map(|b| (b.expert, b.places())).collect();
        let half = (BLOCK_ROWS + 5) / 2;
        assert_eq!(blocks, [(2, 0..half), (2, half..BLOCK_ROWS + 5)]);
        assert!(routing.rows.iter().enumerate().all(|(i, row)| i == *row as usize));
    }
}
