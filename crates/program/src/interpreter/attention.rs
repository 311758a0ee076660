//! Attention of both kinds: rotate and append, then each query attends by the definition of its score.

use std::ops::Range;

use super::context::Asking;
use super::latent::{Latent, Up};
use super::ops::{Heads, dot, norm};
use super::session::{Cached, Session};
use super::{Batch, Interpreted};
use crate::{
    Attention, BlockAnchor, CacheId, CacheKind, ContextMemory, Held, LatentAttention, LatentUp,
    MeterReading, NO_UNIT, NormKind, RotatedNorm, Score, Selection, Stretch, alibi_slope,
};

/// What is cached of one position: a key and a value for each key-value head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KvWidths {
    pub(super) n_kv_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
}

/// One query row, `[n_heads, key_dim]`.
pub(super) struct QueryRow<'a> {
    /// As near keys are met.
    pub(super) q: &'a [f32],
    /// As the others are.
    pub(super) far_q: &'a [f32],
    pub(super) position: usize,
    /// What of the positions it reads, if not all that it sees.
    pub(super) chosen: Option<Chosen<'a>>,
    /// For each key-value head the blocks that another query chose, where it does not choose for itself.
    pub(super) shared: Option<Vec<Vec<u32>>>,
}

/// What an indexer chose for a row.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    /// `[choices, n_units]`.
    units: &'a [f32],
    select: Selection,
}

impl<'a> Chosen<'a> {
    /// Of row `i` of a value.
    fn of_row(heads: &Heads<'a>, select: Selection, i: usize) -> Chosen<'a> {
        Chosen { units: &heads.x[heads.row(i)], select }
    }

    /// Positions among `seen`, for each choice.
    fn stretches(&self, seen: &Range<usize>) -> Vec<Vec<Stretch>> {
        let unit = self.select.unit as usize;
        let stretch = |id: &f32| {
            let first = *id as usize * unit;
            let positions = first.max(seen.start)..(first + unit).min(seen.end);
            (!positions.is_empty()).then_some(Stretch { positions, is_near: true })
        };
        let choice =
            |units: &[f32]| units.iter().filter(|id| **id != NO_UNIT).filter_map(stretch).collect();
        self.units.chunks_exact(self.select.n_units as usize).map(choice).collect()
    }
}

/// From a query and keys to weights.
pub(super) struct Scorer<'a> {
    score: &'a Score,
    /// `[n_heads]`.
    sinks: Option<&'a [f32]>,
}

impl Interpreted {
    /// Inputs are q, if the layer appends, k and v, and what an indexer chose, if it selects.
    pub(super) fn attention(
        &self,
        sessions: &mut [Held<'_, Session>],
        batch: &Batch,
        at: &Attention,
        inputs: &[Heads<'_>],
    ) -> Vec<f32> {
        let rotation = at.rope.as_ref().map(|rope| self.rotation(rope));
        let CacheKind::Heads { n_kv_heads, key_dim, value_dim, .. } =
            self.program.cache(at.cache).kind
        else {
            unreachable!("the recorder gave attention a cache of heads")
        };
        let widths = KvWidths { n_kv_heads, key_dim, value_dim };
        let turned = |heads: &Heads<'_>, i: usize, position: usize, key: bool| {
            let mut row = heads.x[heads.row(i)].to_vec();
            if let Some(rotation) = &rotation {
                rotation.turn(&mut row, heads.dim, position);
            }
            let Some(RotatedNorm { q, k, eps }) = at.norm else { return row };
            let weight = if key { k } else { q }.map(|id| self.weight(id));
            let heads = Heads { x: &row, groups: heads.groups, dim: heads.dim };
            norm(&heads, NormKind::Rms, [weight, None], eps)
        };
        let (inputs, chosen) = match (at.select, inputs) {
            (Some(select), [inputs @ .., chosen]) => (inputs, Some((chosen, select))),
            _ => (inputs, None),
        };
        if let [_, k, v] = inputs {
            for (i, row) in batch.rows.iter().enumerate() {
                let key = turned(k, i, row.position, true);
                sessions[row.sequence].append(at.cache, &key, &v.x[v.row(i)]);
                sessions[row.sequence].append_far(at.cache, || turned(k, i, 0, true));
            }
        }
        let scorer = self.scorer(&at.score);
        if at.appends {
            for (i, row) in batch.rows.iter().enumerate() {
                let session = &mut sessions[row.sequence];
                if session.cache(at.cache).hears(BlockAnchor::Products) {
                    let q = turned(&inputs[0], i, row.position, false);
                    session.hear(at.cache, scorer.summed(&q, row.position, &widths));
                }
            }
        }
        let mut out = Vec::new();
        for (i, row) in batch.rows.iter().enumerate() {
            let cached = sessions[row.sequence].cache(at.cache);
            let q = turned(&inputs[0], i, row.position, false);
            let far = cached.memory.filter(ContextMemory::keeps_far_keys);
            let far = far.map(|memory| turned(&inputs[0], i, memory.far_position(), false));
            let far_q = far.as_deref().unwrap_or(&q);
            let chosen = chosen.map(|(heads, select)| Chosen::of_row(heads, select, i));
            let position = row.position;
            if at.appends {
                let factor = scorer.factor(position);
                let asked = || far_q.iter().map(|q| (factor * f64::from(*q)) as f32).collect();
                sessions[row.sequence].ask(at.cache, asked);
            }
            let cached = sessions[row.sequence].cache(at.cache);
            if let Some(memory) = cached.memory
                && cached.chooser == Some(at.cache)
                && at.appends
                && memory.chosen_at(position) == position
            {
                let asking = Asking { memory, q: far_q, position, cached, widths: &widths };
                let choices = asking.choices();
                sessions[row.sequence].choose(at.cache, choices);
            }
            let shared = sessions[row.sequence].shared_choice(at.cache, position);
            let query = QueryRow { q: &q, far_q, position, chosen, shared };
            let cached = sessions[row.sequence].cache(at.cache);
            out.extend(scorer.attend(&query, cached, &widths));
            let meter = sessions[row.sequence].meter.as_ref().filter(|_| at.appends);
            let due = meter.and_then(|meter| meter.at(row.position));
            if let Some((_, head)) = due.filter(|(cache, _)| *cache == at.cache) {
                let readings = scorer.readings(&query, cached, &widths, (at.cache, head));
                sessions[row.sequence].new_readings.extend(readings);
            }
            let cached = sessions[row.sequence].cache(at.cache);
            if at.appends && cached.hears(BlockAnchor::Mass) {
                let masses = scorer.masses(&query, cached, &widths);
                sessions[row.sequence].hear(at.cache, masses);
            }
        }
        out
    }

    /// Inputs are q_nope, q_pe, c and k_pe, and what an indexer chose, if it selects; the values of all heads are `width`
    /// wide.
    pub(super) fn latent_attention(
        &self,
        sessions: &mut [Held<'_, Session>],
        batch: &Batch,
        at: &LatentAttention,
        (inputs, chosen): ([Heads<'_>; 4], Option<Heads<'_>>),
        width: usize,
    ) -> Vec<f32> {
        let chosen = at.select.zip(chosen);
        let up = match at.up {
            LatentUp::Split { k_b, v_b } => {
                Up::Split { k_b: self.weight(k_b), v_b: self.weight(v_b) }
            }
            LatentUp::Joint { kv_b } => Up::Joint { kv_b: self.weight(kv_b) },
        };
        let value_dim = width / inputs[0].groups;
        let rotation = at.rope.as_ref().map(|rope| self.rotation(rope));
        let latent = Latent { inputs, rotation, up, value_dim };
        for (i, row) in batch.rows.iter().enumerate() {
            let (k, v) = latent.key_value(i, row.position);
            sessions[row.sequence].append(at.cache, &k, &v);
        }
        let scorer = self.scorer(&at.score);
        let mut out = Vec::new();
        for (i, row) in batch.rows.iter().enumerate() {
            let cached = sessions[row.sequence].cache(at.cache);
            let q = latent.query(i, row.position);
            let chosen = chosen.as_ref().map(|(select, heads)| Chosen::of_row(heads, *select, i));
            let query = QueryRow { q: &q, far_q: &q, position: row.position, chosen, shared: None };
            out.extend(scorer.attend(&query, cached, &latent.expanded()));
        }
        out
    }

    fn scorer<'a>(&'a self, score: &'a Score) -> Scorer<'a> {
        Scorer { score, sinks: score.sinks.map(|sinks| self.weight(sinks)) }
    }
}

impl Scorer<'_> {
    /// One query row: `[n_heads, value_dim]`. Query head `h` reads key-value head `h / (n_heads / n_kv_heads)`.
    fn attend(&self, query: &QueryRow<'_>, cached: &Cached, widths: &KvWidths) -> Vec<f32> {
        let KvWidths { n_kv_heads, key_dim, value_dim } = *widths;
        let n_heads = query.q.len() / key_dim;
        let seen = self.seen(query, cached, widths);
        let mut out = Vec::with_capacity(n_heads * value_dim);
        for h in 0..n_heads {
            let head = h / (n_heads / n_kv_heads);
            let seen = &seen[head % seen.len()];
            let seen = seen.iter().flat_map(|s| s.positions.clone().map(|t| (t, s.is_near)));
            let value = |t: usize| &cached.v[(t * n_kv_heads + head) * value_dim..][..value_dim];
            let score = |at| self.score_at(query, cached, widths, h, at);
            let scores: Vec<f64> = seen.clone().map(score).collect();
            out.extend(mix(&scores, self.sink(h), seen.map(|(t, _)| value(t)), value_dim));
        }
        out
    }

    /// What share of its attention each query head left out that reads a key-value head of a cache.
    fn readings(
        &self,
        query: &QueryRow<'_>,
        cached: &Cached,
        widths: &KvWidths,
        (cache, head): (CacheId, usize),
    ) -> Vec<MeterReading> {
        let group = query.q.len() / widths.key_dim / widths.n_kv_heads;
        let seen = self.seen(query, cached, widths);
        let seen = &seen[head % seen.len()];
        let near = cached.memory.map_or(0, |memory| memory.first_near(query.position));
        let reading = |h: usize| {
            let score = |t: usize| self.score_at(query, cached, widths, h, (t, t >= near));
            let scores: Vec<f64> = (0..=query.position).map(score).collect();
            let max = scores.iter().copied().fold(self.sink(h), f64::max);
            let is_read = |t: usize| seen.iter().any(|stretch| stretch.positions.contains(&t));
            let mass = |read: bool| -> f64 {
                let of = scores.iter().enumerate().filter(|(t, _)| is_read(*t) == read);
                of.map(|(_, score)| (score - max).exp()).sum()
            };
            let read = mass(true) + (self.sink(h) - max).exp();
            let missed = (mass(false) / (mass(false) + read)) as f32;
            let found = cached.memory.map_or(1.0, |memory| {
                let (finished, size) = (memory.finished(query.position), memory.block as usize);
                let mass = |block: usize| -> f32 {
                    let scores = &scores[block * size..(block + 1) * size];
                    scores.iter().map(|score| (score - max).exp()).sum::<f64>() as f32
                };
                let masses: Vec<f32> = finished.clone().map(mass).collect();
                memory.found(finished.start, &masses, |block| is_read(block * size))
            });
            MeterReading { position: query.position as u32, cache, head: h as u32, missed, found }
        };
        (head * group..(head + 1) * group).map(reading).collect()
    }

    /// The score of query head `h` and the key of a position, which is near or is not.
    pub(super) fn score_at(
        &self,
        query: &QueryRow<'_>,
        cached: &Cached,
        widths: &KvWidths,
        h: usize,
        (t, is_near): (usize, bool),
    ) -> f64 {
        let KvWidths { n_kv_heads, key_dim, .. } = *widths;
        let n_heads = query.q.len() / key_dim;
        let (q, k) =
            if is_near { (query.q, &cached.k[..]) } else { (query.far_q, cached.far_keys()) };
        let q = &q[h * key_dim..][..key_dim];
        let k = &k[(t * n_kv_heads + h / (n_heads / n_kv_heads)) * key_dim..][..key_dim];
        self.score(dot(q, k), query.position) + self.lean(h, n_heads, t.abs_diff(query.position))
    }

    /// What ALiBi adds to a score at a distance.
    pub(super) fn lean(&self, h: usize, n_heads: usize, distance: usize) -> f64 {
        self.score.alibi.map_or(0.0, |bias| alibi_slope(h, n_heads, bias) * -(distance as f64))
    }

    /// The sink of query head `h`.
    pub(super) fn sink(&self, h: usize) -> f64 {
        self.sinks.map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[h]))
    }

    /// The probability that a query gives to each near position, summed over the heads that read a key-value head:
    /// `[n_kv_heads, near]`.
    fn masses(&self, query: &QueryRow<'_>, cached: &Cached, widths: &KvWidths) -> Vec<f64> {
        let group = query.q.len() / widths.key_dim / widths.n_kv_heads;
        let seen = self.seen(query, cached, widths);
        let mut masses = Vec::new();
        for head in 0..widths.n_kv_heads {
            let seen = &seen[head % seen.len()];
            let seen = seen.iter().flat_map(|s| s.positions.clone().map(|t| (t, s.is_near)));
            let mut sums = vec![0.0; seen.clone().filter(|(_, is_near)| *is_near).count()];
            for h in head * group..(head + 1) * group {
                let score = |at| self.score_at(query, cached, widths, h, at);
                let scores: Vec<f64> = seen.clone().map(score).collect();
                let max = scores.iter().copied().fold(self.sink(h), f64::max);
                let all: f64 = scores.iter().map(|score| (score - max).exp()).sum();
                let all = all + (self.sink(h) - max).exp();
                // near positions come last
                let near = &scores[scores.len() - sums.len()..];
                sums.iter_mut().zip(near).for_each(|(sum, s)| *sum += (s - max).exp() / all);
            }
            masses.extend(sums);
        }
        masses
    }

    /// What a query reads: a list for each key-value head, or one for all.
    fn seen(&self, query: &QueryRow<'_>, cached: &Cached, widths: &KvWidths) -> Vec<Vec<Stretch>> {
        let position = query.position;
        let Some(memory) = cached.memory else {
            let len = cached.k.len() / (widths.n_kv_heads * widths.key_dim);
            let mask = self.score.mask;
            let positions = mask.first(position)..mask.end(position, len);
            return match &query.chosen {
                Some(chosen) => chosen.stretches(&positions),
                None => vec![vec![Stretch { positions, is_near: true }]],
            };
        };
        let asking = Asking { memory, q: query.far_q, position, cached, widths };
        let mut chosen = query.shared.clone().unwrap_or_else(|| asking.choices());
        if let Some(certificate) = memory.certificate
            && memory.chooses(position)
        {
            self.certify(certificate, query, &asking, &mut chosen);
        }
        chosen.iter().map(|chosen| memory.stretches(position, chosen)).collect()
    }

    /// What a query's products are multiplied by.
    fn factor(&self, position: usize) -> f64 {
        let temperature = self.score.temperature.map_or(1.0, |t| t.at(position));
        temperature * f64::from(self.score.scale)
    }

    /// The sum of a query row's heads that read the same key-value head, with their factor: `[n_kv_heads, key_dim]`.
    fn summed(&self, q: &[f32], position: usize, widths: &KvWidths) -> Vec<f64> {
        let KvWidths { n_kv_heads, key_dim, .. } = *widths;
        let of_head = |heads: &[f32]| -> Vec<f64> {
            let sum = |c: usize| {
                heads.iter().skip(c).step_by(key_dim).map(|q| f64::from(*q)).sum::<f64>()
            };
            (0..key_dim).map(|c| self.factor(position) * sum(c)).collect()
        };
        q.chunks_exact(q.len() / n_kv_heads).flat_map(of_head).collect()
    }

    /// Of a product of a query at `position` and a key, before ALiBi.
    pub(super) fn score(&self, product: f64, position: usize) -> f64 {
        let score = self.factor(position) * product;
        match self.score.softcap.map(f64::from) {
            Some(cap) => cap * (score / cap).tanh(),
            None => score,
        }
    }
}

/// `values` weighted by the softmax of their scores and a sink's.
fn mix<'a>(
    scores: &[f64],
    sink: f64,
    values: impl Iterator<Item = &'a [f32]>,
    dim: usize,
) -> Vec<f32> {
    let max = scores.iter().copied().fold(sink, f64::max);
    let mut sum = (sink - max).exp();
    let mut mixed = vec![0.0; dim];
    for (score, value) in scores.iter().zip(values) {
        let p = (score - max).exp();
        sum += p;
        for (m, &v) in mixed.iter_mut().zip(value) {
            *m += p * f64::from(v);
        }
    }
    mixed.iter().map(|m| (m / sum) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mask, Temperature};

    /// Keys 0, 2, 7, 1 of one dimension; values are unit vectors.
    fn cached() -> Cached {
        let mut v = vec![0.0; 16];
        (0..4).for_each(|i| v[i * 5] = 1.0);
        Cached::of(vec![0.0, 2.0, 7.0, 1.0], v, [1, 4])
    }

    fn attend(change: impl Fn(&mut Score), sinks: Option<&[f32]>, position: usize) -> Vec<f32> {
        let widths = KvWidths { n_kv_heads: 1, key_dim: 1, value_dim: 4 };
        let mut score = Score::causal(0.5);
        change(&mut score);
        // two query heads share the one key-value head
        let query =
            QueryRow { q: &[0.0, 1.0], far_q: &[0.0, 1.0], position, chosen: None, shared: None };
        Scorer { score: &score, sinks }.attend(&query, &cached(), &widths)
    }

    fn close(found: &[f32], want: &[f64]) {
        let near = found.iter().zip(want).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-6);
        assert!(near && found.len() == want.len(), "{found:?} vs {want:?}");
    }

    /// Softmax of scores, where there are any, as `[4]`.
    fn softmax(scores: [Option<f64>; 4], more: f64) -> [f64; 4] {
        let weight = |s: Option<f64>| s.map_or(0.0, f64::exp);
        let sum: f64 = scores.into_iter().map(weight).sum::<f64>() + more;
        scores.map(|s| weight(s) / sum)
    }

    #[test]
    fn a_query_mixes_values_by_softmax_and_shares_kv_heads() {
        let out = attend(|_| (), None, 1);
        close(&out[..4], &[0.5, 0.5, 0.0, 0.0]);
        close(&out[4..], &softmax([Some(0.0), Some(1.0), None, None], 0.0));
    }

    #[test]
    fn masks_let_a_query_see_what_they_say() {
        let seen = |mask, position: usize| attend(|s| s.mask = mask, None, position)[..4].to_vec();
        close(&seen(Mask::Window(2), 2), &[0.0, 0.5, 0.5, 0.0]);
        close(&seen(Mask::Window(9), 1), &[0.5, 0.5, 0.0, 0.0]);
        close(&seen(Mask::Chunk(2), 2), &[0.0, 0.0, 1.0, 0.0]);
        close(&seen(Mask::Chunk(2), 3), &[0.0, 0.0, 0.5, 0.5]);
        close(&seen(Mask::Full, 0), &[0.25; 4]);
        close(&seen(Mask::Around(1), 1), &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]);
        close(&seen(Mask::Around(1), 3), &[0.0, 0.0, 0.5, 0.5]);
    }

    #[test]
    fn scores_are_capped_warmed_and_biased_in_this_order() {
        let alone = |change: &dyn Fn(&mut Score)| attend(change, None, 1)[4..].to_vec();
        let cap = |x: f64| 2.0 * (x / 2.0).tanh();
        let want = |second| softmax([Some(0.0), Some(second), None, None], 0.0);
        close(&alone(&|s| s.softcap = Some(2.0)), &want(cap(1.0)));
        let temperature = Temperature { beta: 0.5, floor: 2.0, offset: 1.0 };
        let warmth = 1.0 + 0.5 * 2f64.ln();
        close(&alone(&|s| s.temperature = Some(temperature)), &want(warmth));
        // the slope of the second of two heads is 2^-8
        let biased = softmax([Some(-1.0 / 256.0), Some(cap(warmth)), None, None], 0.0);
        let all = |s: &mut Score| {
            (s.softcap, s.temperature, s.alibi) = (Some(2.0), Some(temperature), Some(8.0));
        };
        close(&alone(&all), &biased);
    }

    /// Of units of two positions the first and the query's own, which is incomplete.
    #[test]
    fn a_query_reads_what_was_chosen_for_it() {
        let widths = KvWidths { n_kv_heads: 1, key_dim: 1, value_dim: 4 };
        let score = Score::causal(0.5);
        let units = [0.0, 1.0, NO_UNIT];
        let attend = |n_units: u32| {
            let select = Selection { unit: 2, n_units, has_tail: false };
            let chosen = Some(Chosen { units: &units[..n_units as usize], select });
            let query = QueryRow { q: &[1.0], far_q: &[1.0], position: 2, chosen, shared: None };
            Scorer { score: &score, sinks: None }.attend(&query, &cached(), &widths)
        };
        close(&attend(1), &softmax([Some(0.0), Some(1.0), None, None], 0.0));
        close(&attend(3), &softmax([Some(0.0), Some(1.0), Some(3.5), None], 0.0));
    }

    /// The slope of the second of two heads is 2^-8, either way from the query.
    #[test]
    fn scores_fall_with_distance_either_way() {
        let out = attend(|s| (s.mask, s.alibi) = (Mask::Full, Some(8.0)), None, 1);
        let falls = |distance: f64| Some(-distance / 256.0);
        let scores =
            [falls(1.0), Some(1.0), falls(1.0).map(|s| s + 3.5), falls(2.0).map(|s| s + 0.5)];
        close(&out[4..], &softmax(scores, 0.0));
    }

    #[test]
    fn a_sink_takes_weight_and_cannot_overflow() {
        let out = attend(|_| (), Some(&[0.0, 1e4]), 1);
        close(&out[..4], &softmax([Some(0.0), Some(0.0), None, None], 1.0));
        close(&out[4..], &[0.0; 4]);
    }
}
