//! Certificates: blocks are added until what is left out is proven to be little, by the definition of [`Certificate`].

use std::ops::Range;

use super::attention::{KvWidths, QueryRow, Scorer};
use super::context::Asking;
use crate::{BlockSharing, Certificate};

impl Scorer<'_> {
    /// Add to the blocks that each key-value head's queries read, `[n_kv_heads]`.
    pub(super) fn certify(
        &self,
        certificate: Certificate,
        query: &QueryRow<'_>,
        asking: &Asking<'_>,
        chosen: &mut [Vec<u32>],
    ) {
        let KvWidths { n_kv_heads, key_dim, .. } = *asking.widths;
        let group = query.q.len() / key_dim / n_kv_heads;
        match asking.memory.sharing {
            BlockSharing::Layer => {
                let heads = 0..n_kv_heads * group;
                self.certify_heads(certificate, query, asking, heads, &mut chosen[0]);
                let all = chosen[0].clone();
                chosen.fill(all);
            }
            BlockSharing::KvHead => {
                for (head, chosen) in chosen.iter_mut().enumerate() {
                    let heads = head * group..(head + 1) * group;
                    self.certify_heads(certificate, query, asking, heads, chosen);
                }
            }
        }
    }

    /// Of query heads that choose together.
    fn certify_heads(
        &self,
        certificate: Certificate,
        query: &QueryRow<'_>,
        asking: &Asking<'_>,
        heads: Range<usize>,
        chosen: &mut Vec<u32>,
    ) {
        let Asking { memory, position, cached, widths, .. } = asking;
        let size = memory.block as usize;
        let n_heads = query.q.len() / widths.key_dim;
        for h in heads {
            let bound = |block: usize| {
                let nearest = position - ((block + 1) * size - 1);
                let product = asking.promise_to(h, block);
                self.score(product, *position) + self.lean(h, n_heads, nearest)
            };
            let bounds: Vec<(u32, f64)> =
                memory.finished(*position).map(|b| (b as u32, bound(b))).collect();
            loop {
                let stretches = memory.stretches(*position, chosen);
                let read =
                    stretches.iter().flat_map(|s| s.positions.clone().map(|t| (t, s.is_near)));
                let read: Vec<f64> =
                    read.map(|at| self.score_at(query, cached, widths, h, at)).collect();
                let max = read.iter().copied().fold(self.sink(h), f64::max);
                let sum: f64 = read.iter().map(|s| (s - max).exp()).sum::<f64>();
                let sum = sum + (self.sink(h) - max).exp();
                let unread = bounds.iter().filter(|(b, _)| !chosen.contains(b));
                let left: f64 = unread.clone().map(|(_, u)| size as f64 * (u - max).exp()).sum();
                if certificate.holds(left, sum) {
                    break;
                }
                let greater =
                    |a: &&(u32, f64), b: &&(u32, f64)| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0));
                let Some((next, _)) = unread.max_by(greater) else { break };
                chosen.push(*next);
                chosen.sort_unstable();
            }
        }
    }
}
