//! Context memory: which blocks a query chooses, by the definition of their anchors.

use super::attention::KvWidths;
use super::ops::dot;
use super::session::Cached;
use crate::{BlockAnchor, BlockSharing, ContextMemory};

/// A query whose keys are not near, and what it may read.
pub(super) struct Asking<'a> {
    pub(super) memory: ContextMemory,
    /// `[n_heads, key_dim]`, as keys that are not near are met.
    pub(super) q: &'a [f32],
    pub(super) position: usize,
    pub(super) cached: &'a Cached,
    pub(super) widths: &'a KvWidths,
}

impl Asking<'_> {
    /// The blocks that promise each key-value head's queries most, in ascending order; all, if none is left out.
    pub(super) fn choices(&self) -> Vec<Vec<u32>> {
        let heads = self.widths.n_kv_heads;
        let finished = self.memory.finished(self.position);
        if !self.memory.chooses(self.position) {
            return vec![finished.map(|block| block as u32).collect(); heads];
        }
        let heads: Vec<usize> = (0..heads).collect();
        match self.memory.sharing {
            BlockSharing::KvHead => heads.chunks(1).map(|head| self.choice(head)).collect(),
            BlockSharing::Layer => vec![self.choice(&heads); heads.len()],
        }
    }

    /// The blocks that promise the queries of some key-value heads together most.
    fn choice(&self, heads: &[usize]) -> Vec<u32> {
        let sum =
            |of: &dyn Fn(usize) -> f64| heads.iter().map(|head| of(*head)).sum::<f64>() as f32;
        let (memory, position) = (&self.memory, self.position);
        let blocks: Vec<u32> = if memory.looks_at_few(position) {
            let promises: Vec<f32> =
                memory.supers(position).map(|s| sum(&|head| self.super_promise(head, s))).collect();
            let mut looked = Vec::new();
            memory.look_at(position, &promises, &mut looked);
            let blocks = looked.iter().flat_map(|s| memory.blocks_of(position, *s as usize));
            blocks.map(|block| block as u32).collect()
        } else {
            memory.finished(position).map(|block| block as u32).collect()
        };
        let promise = |block: &u32| sum(&|head| self.promise(head, *block as usize));
        let promises: Vec<f32> = blocks.iter().map(promise).collect();
        let mut chosen = Vec::new();
        memory.choose_among(&blocks, &promises, &mut chosen);
        chosen
    }

    /// The queries of a key-value head, and what each counts: those before, where they are smoothed.
    fn queries(&self, head: usize) -> Vec<(f64, &[f32])> {
        let KvWidths { n_kv_heads, key_dim, .. } = *self.widths;
        let width = self.q.len() / n_kv_heads;
        let Some(smoothing) = self.memory.smooths() else {
            return of_head(self.q, head, width).chunks_exact(key_dim).map(|q| (1.0, q)).collect();
        };
        let share = f64::from(smoothing.share());
        let first = self.position - self.position % self.memory.block as usize;
        let at = |position: usize| {
            let later = (self.position - position) as i32;
            let counts = (1.0 - share).powi(later) * if position == first { 1.0 } else { share };
            let asked = of_head(self.cached.asked(position), head, width);
            asked.chunks_exact(key_dim).map(move |q| (counts, q))
        };
        (first..=self.position).flat_map(at).collect()
    }

    /// What a block promises the queries of a key-value head.
    fn promise(&self, head: usize, block: usize) -> f64 {
        let anchor = self.anchor(head, block);
        let queries = self.queries(head).into_iter();
        queries.map(|(counts, q)| counts * self.promised(q, &anchor)).sum()
    }

    /// What a super-block promises them: at least what any of its blocks does.
    fn super_promise(&self, head: usize, number: usize) -> f64 {
        let first = number * ContextMemory::SUPER;
        let anchors: Vec<_> =
            (first..first + ContextMemory::SUPER).map(|block| self.anchor(head, block)).collect();
        let queries = self.queries(head);
        let channel = |c: usize| {
            let all = anchors.iter().flatten().map(|vector| f64::from(vector[c]));
            let greatest = all.clone().fold(f64::NEG_INFINITY, f64::max);
            let least = all.fold(f64::INFINITY, f64::min);
            let most = |q: f64| (q * greatest).max(q * least);
            let queries = queries.iter().map(|(counts, q)| (counts, f64::from(q[c])));
            match self.memory.anchor {
                // bounds are those of each query
                BlockAnchor::Bounds => queries.map(|(counts, q)| counts * most(q)).sum(),
                _ => most(queries.map(|(counts, q)| counts * q).sum::<f64>()),
            }
        };
        (0..self.widths.key_dim).map(channel).sum()
    }

    /// What a block promises one query head.
    pub(super) fn promise_to(&self, query_head: usize, block: usize) -> f64 {
        let KvWidths { n_kv_heads, key_dim, .. } = *self.widths;
        let group = self.q.len() / key_dim / n_kv_heads;
        let q = &self.q[query_head * key_dim..][..key_dim];
        self.promised(q, &self.anchor(query_head / group, block))
    }

    /// What an anchor promises a query.
    fn promised(&self, q: &[f32], anchor: &[Vec<f32>]) -> f64 {
        match (self.memory.anchor, anchor) {
            (BlockAnchor::Bounds, [greatest, least]) => {
                let bound = |((q, most), least): ((&f32, &f32), &f32)| {
                    let q = f64::from(*q);
                    (q * f64::from(*most)).max(q * f64::from(*least))
                };
                q.iter().zip(greatest).zip(least).map(bound).sum()
            }
            (_, vectors) => {
                vectors.iter().map(|vector| dot(q, vector)).fold(f64::NEG_INFINITY, f64::max)
            }
        }
    }

    /// The vectors that stand for a block: [`BlockAnchor::n_vectors`] of the width of a key, or all its keys.
    fn anchor(&self, head: usize, block: usize) -> Vec<Vec<f32>> {
        let KvWidths { n_kv_heads, key_dim, .. } = *self.widths;
        let size = self.memory.block as usize;
        let keys = self.cached.far_keys();
        let rows = (block * size..(block + 1) * size)
            .map(|t| &keys[(t * n_kv_heads + head) * key_dim..][..key_dim]);
        let by_channel = |start: f32, f: fn(f32, f32) -> f32| -> Vec<f32> {
            let mut all = vec![start; key_dim];
            for row in rows.clone() {
                all.iter_mut().zip(row).for_each(|(so_far, x)| *so_far = f(*so_far, *x));
            }
            all
        };
        let greatest = || by_channel(f32::NEG_INFINITY, f32::max);
        match self.memory.anchor {
            BlockAnchor::Bounds => vec![greatest(), by_channel(f32::INFINITY, f32::min)],
            BlockAnchor::Greatest => vec![greatest()],
            BlockAnchor::Mean => {
                let mut sums = vec![0.0; key_dim];
                for row in rows {
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
                }
                vec![sums.iter().map(|sum| (sum / size as f64) as f32).collect()]
            }
            BlockAnchor::Fixed => {
                let mut sums = vec![0.0; key_dim];
                for row in self.memory.spaced().filter_map(|at| rows.clone().nth(at)) {
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
                }
                let n = f64::from(self.memory.n_representatives);
                vec![sums.iter().map(|sum| (sum / n) as f32).collect()]
            }
            BlockAnchor::Products => {
                vec![self.represented(head, block, &self.products(head, block))]
            }
            BlockAnchor::All => rows.map(<[f32]>::to_vec).collect(),
            BlockAnchor::Mass => vec![self.represented(head, block, &self.masses(head, block))],
        }
    }

    /// For each key of a block: its products with the queries after the block, until it is finished.
    fn products(&self, head: usize, block: usize) -> Vec<f64> {
        let KvWidths { n_kv_heads, key_dim, .. } = *self.widths;
        let size = self.memory.block as usize;
        let end = (block + 1) * size;
        let mut asked = vec![0.0; key_dim];
        for position in end..end + self.memory.n_local as usize {
            let said = &self.cached.heard(position)[head * key_dim..][..key_dim];
            asked.iter_mut().zip(said).for_each(|(sum, q)| *sum += q);
        }
        let of_key = |t: usize| -> f64 {
            let key = &self.cached.k[(t * n_kv_heads + head) * key_dim..][..key_dim];
            asked.iter().zip(key).map(|(q, k)| q * f64::from(*k)).sum()
        };
        (block * size..end).map(of_key).collect()
    }

    /// For each key of a block: the probabilities that queries gave it while it was near.
    fn masses(&self, head: usize, block: usize) -> Vec<f64> {
        let size = self.memory.block as usize;
        let of_key = |t: usize| -> f64 {
            let said = |position: usize| {
                let first = self.memory.first_near(position);
                self.cached.heard(position)[head * (position + 1 - first) + t - first]
            };
            (t..t + self.memory.n_local as usize).map(said).sum()
        };
        (block * size..(block + 1) * size).map(of_key).collect()
    }

    /// The mean of the keys of a block that have the greatest scores.
    fn represented(&self, head: usize, block: usize, scores: &[f64]) -> Vec<f32> {
        let KvWidths { n_kv_heads, key_dim, .. } = *self.widths;
        let scores: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
        let mut chosen = Vec::new();
        self.memory.represent(&scores, &mut chosen);
        let first = block * self.memory.block as usize;
        let element = |t: usize, c: usize| {
            f64::from(self.cached.far_keys()[(t * n_kv_heads + head) * key_dim + c])
        };
        let mean = |c: usize| {
            let keys = chosen.iter().map(|t| element(first + *t as usize, c));
            (keys.sum::<f64>() / chosen.len() as f64) as f32
        };
        (0..key_dim).map(mean).collect()
    }
}

/// What is of one head of a row, so many numbers each.
fn of_head(row: &[f32], head: usize, width: usize) -> &[f32] {
    &row[head * width..(head + 1) * width]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FarPositions;

    /// Numbers from -1 to 1 that look random.
    fn noise(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    /// No key of a block has a greater product with a query than the block's bounds promise.
    #[test]
    fn bounds_are_at_least_every_product() {
        let memory = ContextMemory {
            n_init: 0,
            n_local: 64,
            positions: FarPositions::Exact,
            ..ContextMemory::suited(1024)
        };
        let widths = KvWidths { n_kv_heads: 2, key_dim: 5, value_dim: 1 };
        for seed in 0..50 {
            let cached = Cached::of(noise(300 * 10, seed), vec![0.0; 600], [10, 2]);
            let q = noise(10, seed + 1000);
            let asking = Asking { memory, q: &q, position: 299, cached: &cached, widths: &widths };
            for head in 0..2 {
                assert!(memory.finished(299).len() > 2);
                for block in memory.finished(299) {
                    let promise = asking.promise(head, block);
                    let keys = block * 64..(block + 1) * 64;
                    let key = |t: usize| &cached.k[(t * 2 + head) * 5..][..5];
                    let products = keys.map(|t| dot(&q[head * 5..][..5], key(t)));
                    let most = products.fold(f64::NEG_INFINITY, f64::max);
                    assert!(most <= promise + 1e-12, "{most} beyond {promise}");
                }
            }
        }
    }

    /// No block of a super-block promises more than that does.
    #[test]
    fn super_blocks_promise_at_least_what_their_blocks_do() {
        let anchors = [BlockAnchor::Bounds, BlockAnchor::Mean, BlockAnchor::Greatest];
        for (i, anchor) in anchors.into_iter().cycle().take(30).enumerate() {
            let memory = ContextMemory {
                n_init: 0,
                n_local: 64,
                anchor,
                positions: FarPositions::Exact,
                ..ContextMemory::suited(1024)
            };
            let widths = KvWidths { n_kv_heads: 2, key_dim: 5, value_dim: 1 };
            let cached = Cached::of(noise(1100 * 10, i as u64), vec![0.0; 2200], [10, 2]);
            let q = noise(20, i as u64 + 1000);
            let asking = Asking { memory, q: &q, position: 1099, cached: &cached, widths: &widths };
            assert_eq!(memory.supers(1099), 0..1);
            for (head, block) in (0..2).flat_map(|head| (0..16).map(move |block| (head, block))) {
                let (most, promise) = (asking.super_promise(head, 0), asking.promise(head, block));
                assert!(promise <= most + 1e-12, "{promise} beyond {most}");
            }
        }
    }
}
