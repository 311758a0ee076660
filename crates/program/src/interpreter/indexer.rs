//! Indexers: keys go into the cache, then every row scores all units up to its own and chooses some.

use super::ops::{Heads, dot};
use super::session::Session;
use super::{Batch, Interpreted};
use crate::{Held, IndexScore, Indexer, UnitScore};

impl Interpreted {
    /// Inputs are q, weights where the score has such, and k.
    pub(super) fn indexer(
        &self,
        sessions: &mut [Held<'_, Session>],
        batch: &Batch,
        at: &Indexer,
        inputs: &[Heads<'_>],
    ) -> Vec<f32> {
        let rotation = at.rope.as_ref().map(|rope| self.rotation(rope));
        let turned = |heads: &Heads<'_>, i: usize, position: usize| {
            let mut row = heads.x[heads.row(i)].to_vec();
            if let Some(rotation) = &rotation {
                for head in row.chunks_exact_mut(heads.dim) {
                    let rotates = &mut head[at.rope_start..];
                    let dim = rotates.len();
                    rotation.turn(rotates, dim, position);
                }
            }
            row
        };
        let (q, k) = (&inputs[0], &inputs[inputs.len() - 1]);
        for (i, row) in batch.rows.iter().enumerate() {
            let key = turned(k, i, row.position.saturating_sub(at.keys_back as usize));
            sessions[row.sequence].append(at.cache, &key, &[]);
        }
        let n_units = at.selection().n_units as usize;
        let mut out = Vec::new();
        for (i, row) in batch.rows.iter().enumerate() {
            let keys = &sessions[row.sequence].cache(at.cache).k;
            let keys = &keys[..(row.position + 1) * k.dim];
            let query = turned(q, i, row.position);
            let weights =
                (at.score == IndexScore::Weighted).then(|| &inputs[1].x[inputs[1].row(i)]);
            for scores in unit_scores(at, &query, weights, (keys, k.dim)) {
                let mut chosen = vec![0.0; n_units];
                at.choose(row.position, &scores, &mut vec![0; scores.len()], &mut chosen);
                out.extend(chosen);
            }
        }
        out
    }
}

/// Scores of the units of `keys`, `[positions, dim]`, for each choice of a query `[heads, dim]`.
fn unit_scores(
    at: &Indexer,
    query: &[f32],
    weights: Option<&[f32]>,
    (keys, dim): (&[f32], usize),
) -> Vec<Vec<f32>> {
    let heads: Vec<&[f32]> = query.chunks_exact(dim).collect();
    let units = |score: &dyn Fn(&[f32]) -> f64| -> Vec<f32> {
        let of_unit = |unit: &[f32]| {
            let mut scores = unit.chunks_exact(dim).map(score);
            match at.unit_score {
                UnitScore::Greatest => scores.fold(f64::NEG_INFINITY, f64::max) as f32,
                UnitScore::Last | UnitScore::OfPool(_) => scores.next_back().unwrap_or(0.0) as f32,
            }
        };
        let scores: Vec<f32> = keys.chunks(dim * at.unit as usize).map(of_unit).collect();
        let UnitScore::OfPool(len) = at.unit_score else { return scores };
        let len = len as usize;
        let of_pool = |i: usize| scores.get(i / len * len + len - 1).copied();
        (0..scores.len()).map(|i| of_pool(i).unwrap_or(f32::INFINITY)).collect()
    };
    match weights {
        Some(weights) => {
            let score = |key: &[f32]| {
                let of = heads.iter().zip(weights);
                of.map(|(q, w)| f64::from(*w) * dot(q, key).max(0.0)).sum()
            };
            vec![units(&score)]
        }
        None => heads.iter().map(|q| units(&|key: &[f32]| dot(q, key))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CacheId;

    /// Two heads of two numbers; keys 1 0, 0 1, -1 -1 of which units of two are made.
    #[test]
    fn scores_by_hand() {
        let at = |score| Indexer {
            cache: CacheId(0),
            rope: None,
            rope_start: 0,
            keys_back: 0,
            score,
            unit: 2,
            unit_score: UnitScore::Greatest,
            n_units: 1,
            n_last: 0,
        };
        let keys = ([1.0, 0.0, 0.0, 1.0, -1.0, -1.0], 2);
        let keys = (&keys.0[..], keys.1);
        let query = [3.0, -2.0, 0.5, 4.0];
        // 3 and 0.5; nothing and 4; nothing and nothing
        let weighted = unit_scores(&at(IndexScore::Weighted), &query, Some(&[10.0, -1.0]), keys);
        assert_eq!(weighted, [[29.5, 0.0]]);
        let each = unit_scores(&at(IndexScore::PerHead), &query, None, keys);
        assert_eq!(each, [[3.0, -1.0], [4.0, -4.5]]);
        let last = Indexer { unit_score: UnitScore::Last, ..at(IndexScore::PerHead) };
        assert_eq!(unit_scores(&last, &query, None, keys), [[-2.0, -1.0], [4.0, -4.5]]);
        let (unit, unit_score) = (1, UnitScore::OfPool(2));
        let pools = Indexer { unit, unit_score, ..at(IndexScore::PerHead) };
        let most = f32::INFINITY;
        let want = [[-2.0, -2.0, most], [4.0, 4.0, most]];
        assert_eq!(unit_scores(&pools, &query, None, keys), want);
    }
}
