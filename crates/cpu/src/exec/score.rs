//! What a layer's score asks of each row: which positions it sees, the factor on its query, ALiBi, sinks.

use std::ops::Range;

use kernels::attention::{Alibi, BLOCK, Partials, QueryRows, ScoreSum, Seen, score_of};
use program::{Mask, Score, alibi_slope};

use super::{Exec, SequenceRows};
use crate::geometry::TILE_ROWS;

/// A score with its weights.
#[derive(Clone, Copy)]
pub(super) struct RowScore<'a> {
    score: &'a Score,
    /// Query heads of the layer.
    n_heads: usize,
    /// `[n_heads]`.
    sinks: Option<&'a [f32]>,
}

/// A row that attends: a head of a token.
#[derive(Clone, Copy)]
pub(super) struct HeadRow {
    pub(super) head: usize,
    /// Within its sequence's rows.
    pub(super) token: usize,
}

/// Of up to [`TILE_ROWS`] rows against one block.
pub(super) struct BlockRows {
    seen: [Seen; TILE_ROWS],
    alibi: [Alibi; TILE_ROWS],
    n: usize,
    leans: bool,
}

/// Positions that a token of these rows sees.
fn seen(mask: Mask, rows: &SequenceRows, token: usize) -> Range<usize> {
    let position = rows.start + token;
    mask.first(position)..mask.end(position, rows.start + rows.n)
}

/// Blocks that some of these tokens, of which there is one at least, see something of.
pub(super) fn blocks(mask: Mask, rows: &SequenceRows, tokens: &Range<usize>) -> Range<usize> {
    let (first, last) = (seen(mask, rows, tokens.start), seen(mask, rows, tokens.end - 1));
    first.start / BLOCK..last.end.div_ceil(BLOCK)
}

impl Exec<'_> {
    /// A layer's score, for `n_heads` query heads.
    pub(super) fn score<'s>(&'s self, score: &'s Score, n_heads: usize) -> RowScore<'s> {
        let sinks = score.sinks.map(|sinks| self.weights.vector(sinks));
        RowScore { score, n_heads, sinks }
    }
}

impl RowScore<'_> {
    /// Positions that a token of these rows sees.
    pub(super) fn seen(&self, rows: &SequenceRows, token: usize) -> Range<usize> {
        seen(self.score.mask, rows, token)
    }

    /// Blocks that some of these tokens see something of.
    pub(super) fn blocks(&self, rows: &SequenceRows, tokens: &Range<usize>) -> Range<usize> {
        blocks(self.score.mask, rows, tokens)
    }

    /// Factor on the query at a position.
    pub(super) fn factor(&self, position: usize) -> f32 {
        match &self.score.temperature {
            None => self.score.scale,
            Some(temperature) => (f64::from(self.score.scale) * temperature.at(position)) as f32,
        }
    }

    /// A fresh state of rows of these heads: they have seen their sinks, if there are any.
    pub(super) fn begin(&self, state: &mut Partials<'_>, heads: impl Iterator<Item = usize>) {
        match self.sinks {
            None => state.clear(),
            Some(sinks) => state.start(heads.map(|head| sinks[head])),
        }
    }

    /// What a row's scores come to before it has seen any but its sink.
    pub(super) fn start(&self, head: usize) -> ScoreSum {
        self.sinks.map_or(ScoreSum::NOTHING, |sinks| ScoreSum::of(sinks[head]))
    }

    /// The greatest score of keys at least `distance` away whose products are at most `product`.
    pub(super) fn at_most(&self, head: usize, product: f32, distance: usize) -> f32 {
        let slope = |bias| alibi_slope(head, self.n_heads, bias) as f32;
        let alibi = self.score.alibi.map(|bias| [slope(bias), distance as f32]);
        score_of(product, self.score.softcap, alibi)
    }

    /// Query heads of the layer.
    pub(super) fn n_heads(&self) -> usize {
        self.n_heads
    }

    /// What rows see of a block by the mask, and how their scores lean there.
    pub(super) fn of_block(
        &self,
        sequence: &SequenceRows,
        rows: impl Iterator<Item = HeadRow>,
        block: usize,
    ) -> BlockRows {
        self.of_seen(sequence, rows, block, |row| self.seen(sequence, row.token))
    }

    /// [`of_block`](Self::of_block) of rows that see these positions.
    pub(super) fn of_seen(
        &self,
        sequence: &SequenceRows,
        rows: impl Iterator<Item = HeadRow>,
        block: usize,
        seen: impl Fn(HeadRow) -> Range<usize>,
    ) -> BlockRows {
        let mut of = BlockRows {
            seen: [Seen::NOTHING; TILE_ROWS],
            alibi: [Alibi { slope: 0.0, offset: 0.0 }; TILE_ROWS],
            n: 0,
            leans: self.score.alibi.is_some(),
        };
        for row in rows {
            let HeadRow { head, token } = row;
            of.seen[of.n] = Seen::within(&seen(row), block);
            if let Some(bias) = self.score.alibi {
                let slope = alibi_slope(head, self.n_heads, bias) as f32;
                let offset = (block * BLOCK) as f32 - (sequence.start + token) as f32;
                of.alibi[of.n] = Alibi { slope, offset };
            }
            of.n += 1;
        }
        of
    }

    /// Queries as the kernel takes them.
    pub(super) fn queries<'q>(&self, q: &'q [f32], of: &'q BlockRows) -> QueryRows<'q> {
        let alibi = if of.leans { &of.alibi[..of.n] } else { &[] };
        QueryRows { q, seen: &of.seen[..of.n], softcap: self.score.softcap, alibi }
    }
}
