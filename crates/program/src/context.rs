//! [`KvPolicy`]: what of a long past a query reads, if not all of it.
//!
//! The past is cut into blocks of positions. A query reads the first positions, the latest ones, and those blocks among
//! the others that promise most for it: InfLLM (arXiv:2402.04617), StreamingLLM (arXiv:2309.17453), Quest
//! (arXiv:2406.10774). Everything here follows from a query's position and the tokens before it, never from how they
//! were cut into steps.

mod given;
mod settings;
mod smooth;
mod steps;
mod supers;

use std::ops::Range;

pub use given::GivenBlocks;
pub use smooth::Smoothing;

/// What of a session's past its queries read, chosen when it opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvPolicy {
    /// All of it.
    #[default]
    Full,
    /// The first positions, the latest, and few blocks of the others: in layers whose queries see everything before them.
    Memory(ContextMemory),
}

/// Blocks of which each query reads few. A query at position `p` reads, in this order,
///
/// ```text
/// first    0 .. n_init                            what of it is not near
/// chosen   n_blocks of the finished blocks        those with the greatest sums of `query . anchor`
/// rest     from the finished blocks to the near   nothing if n_blocks is 0
/// near     p + 1 - n_local ..= p                  at their positions
/// ```
///
/// Blocks end at multiples of `block`. One is finished for `p` once all of it is not near to the multiple at or before
/// `p`. The first one that counts comes after `n_init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextMemory {
    /// Positions at the start that every query reads; a multiple of `block`.
    pub n_init: u32,
    /// Latest positions that a query reads, its own included; a multiple of `block`.
    pub n_local: u32,
    /// Positions in a block: [`Self::BLOCKS`].
    pub block: u32,
    /// Blocks that are chosen; 0: without a certificate the first and the latest positions are all that is read.
    pub n_blocks: u32,
    /// What stands for a block when they are chosen.
    pub anchor: BlockAnchor,
    /// Keys whose mean stands for a block, if the anchor is [such](BlockAnchor::is_of_few_keys): 1 to `block`.
    pub n_representatives: u32,
    /// Which query heads choose together.
    pub sharing: BlockSharing,
    /// Where keys stand that are not near.
    pub positions: FarPositions,
    /// Layers at the start, which read everything.
    pub dense_layers: u32,
    /// Whether more blocks are read, until what is left out is proven to be little.
    pub certificate: Option<Certificate>,
    /// Super-blocks of [`SUPER`](Self::SUPER) blocks whose blocks a query looks at, where there are more: those that promise
    /// most. 0: it looks at all blocks, as it must with a certificate or [`BlockAnchor::All`].
    pub n_supers: u32,
    /// Tokens that one choice serves: the query at each multiple of it chooses, and those up to the next read the same
    /// blocks. 1: each query chooses for itself. See [`TOKEN_STEPS`](Self::TOKEN_STEPS).
    pub token_step: u32,
    /// Layers that one choice serves. 1: each chooses for itself.
    pub layer_step: u32,
    /// How much queries before it count when one chooses; `None`: not at all.
    pub smoothing: Option<Smoothing>,
    /// Blocks that are chosen whatever they promise, before others; `None`: none.
    pub given: Option<GivenBlocks>,
}

/// A proof that of the attention of each query head at most a share, eps, is left out.
///
/// [`BlockAnchor::Bounds`] bound the scores of a block's keys. Beside the `n_blocks` blocks that promise most, each query
/// head in turn, in ascending order, adds the block with its greatest bound among those that are not read (of equals the
/// earlier), until
///
/// ```text
/// sum over blocks that are not read of block * exp(bound)  <=  eps / 1.001 * sum over all that is read of exp(score)
/// ```
///
/// A sink counts as read; 1.001 is room for rounded scores. What is left out is then less than `eps / (1 + eps)` of the
/// whole. With 0 nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Certificate {
    /// Of eps, which has no sign, so that settings can be compared.
    bits: u32,
}

impl Certificate {
    /// `None` unless `eps` is a share: 0 to 1.
    pub const fn new(eps: f32) -> Option<Certificate> {
        let is_share = eps >= 0.0 && eps <= 1.0;
        if is_share { Some(Certificate { bits: eps.abs().to_bits() }) } else { None }
    }

    /// The greatest share that is left out.
    pub fn eps(self) -> f32 {
        f32::from_bits(self.bits)
    }

    /// Whether bounds that come to `left` prove it beside scores that come to `read`.
    pub fn holds(self, left: f64, read: f64) -> bool {
        left <= f64::from(self.eps()) / 1.001 * read
    }
}

/// What stands for the keys of a block and a key-value head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockAnchor {
    /// Channel by channel the greatest and the least: `sum_c max(q_c * greatest_c, q_c * least_c)` is at least `q.k` of
    /// every key of the block.
    Bounds,
    /// The mean of its keys.
    Mean,
    /// Channel by channel the greatest.
    Greatest,
    /// The mean of few keys at equal distances: [`ContextMemory::spaced`].
    Fixed,
    /// The mean of its [`representatives`](ContextMemory::n_representatives): the keys with the greatest sum of products, as
    /// near keys are met, with the queries that read the key-value head and come after the block, until it is finished:
    /// as many as are near.
    Products,
    /// The mean of its representatives: the keys with the greatest sum of probabilities that queries of the key-value head
    /// give them while they are near.
    Mass,
    /// All of its keys: the greatest product of a query with any of them. No anchor can tell more of that, and none reads as
    /// much: it is there to measure others by.
    All,
}

impl BlockAnchor {
    /// Every anchor, in the order they are listed to users.
    pub const ALL: [BlockAnchor; 7] = [
        BlockAnchor::Bounds,
        BlockAnchor::Mean,
        BlockAnchor::Greatest,
        BlockAnchor::Fixed,
        BlockAnchor::Products,
        BlockAnchor::Mass,
        BlockAnchor::All,
    ];

    /// Name as `--kv-anchor` takes it.
    pub fn name(self) -> &'static str {
        match self {
            BlockAnchor::Bounds => "bounds",
            BlockAnchor::Mean => "mean",
            BlockAnchor::Greatest => "max",
            BlockAnchor::Fixed => "fixed",
            BlockAnchor::Products => "products",
            BlockAnchor::Mass => "mass",
            BlockAnchor::All => "all",
        }
    }

    /// Vectors of a key's width that it keeps beside keys.
    pub fn n_vectors(self) -> usize {
        match self {
            BlockAnchor::Bounds => 2,
            BlockAnchor::Mean
            | BlockAnchor::Greatest
            | BlockAnchor::Fixed
            | BlockAnchor::Products
            | BlockAnchor::Mass => 1,
            BlockAnchor::All => 0,
        }
    }

    /// Whether few keys of a block stand for it, which later queries decide.
    pub fn has_representatives(self) -> bool {
        match self {
            BlockAnchor::Products | BlockAnchor::Mass => true,
            BlockAnchor::Bounds
            | BlockAnchor::Mean
            | BlockAnchor::Greatest
            | BlockAnchor::Fixed
            | BlockAnchor::All => false,
        }
    }

    /// Whether few keys of a block stand for it, whoever decides which.
    pub fn is_of_few_keys(self) -> bool {
        self.has_representatives() || self == BlockAnchor::Fixed
    }
}

/// Which query heads choose blocks together, by the sum of what blocks promise each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSharing {
    /// All heads of a layer.
    Layer,
    /// Those that read the same key-value head.
    KvHead,
}

impl BlockSharing {
    /// Both, in the order they are listed to users.
    pub const ALL: [BlockSharing; 2] = [BlockSharing::Layer, BlockSharing::KvHead];

    /// Name as `--kv-share` takes it.
    pub fn name(self) -> &'static str {
        match self {
            BlockSharing::Layer => "layer",
            BlockSharing::KvHead => "kv-head",
        }
    }
}

/// Where keys stand that are not near, for the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarPositions {
    /// All of them `n_local - 1` before the query: no distance is greater than those of a near key, so a model reads
    /// farther than it was trained. Blocks are chosen by the same rotation.
    Fixed,
    /// Where they are.
    Exact,
}

impl FarPositions {
    /// Both, in the order they are listed to users.
    pub const ALL: [FarPositions; 2] = [FarPositions::Fixed, FarPositions::Exact];

    /// Name as `--kv-positions` takes it.
    pub fn name(self) -> &'static str {
        match self {
            FarPositions::Fixed => "fixed",
            FarPositions::Exact => "exact",
        }
    }
}

/// One stretch of positions that a query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The positions.
    pub(crate) positions: Range<usize>,
    /// Whether they are near.
    pub(crate) is_near: bool,
}

impl ContextMemory {
    /// What [`block`](Self::block) may be.
    pub const BLOCKS: [u32; 2] = [64, 128];

    /// What suits a model trained on `trained` positions: blocks of 128, chosen by their bounds for a layer, at a fixed
    /// distance; less of everything for models of short contexts.
    pub fn suited(trained: usize) -> ContextMemory {
        let trained = u32::try_from(trained).unwrap_or(u32::MAX);
        let block = if trained < 2048 { 64 } else { 128 };
        let whole = |n: u32| n.next_multiple_of(block);
        let chosen = (trained / 2).clamp(512, 2048);
        let memory = ContextMemory {
            n_init: whole((trained / 8).min(128)),
            n_local: whole((trained / 2).clamp(1, 4096)),
            block,
            n_blocks: chosen / block,
            anchor: BlockAnchor::Bounds,
            n_representatives: 4,
            sharing: BlockSharing::Layer,
            positions: FarPositions::Fixed,
            dense_layers: 0,
            certificate: None,
            n_supers: 0,
            token_step: 1,
            layer_step: 1,
            smoothing: None,
            given: None,
        };
        ContextMemory { n_supers: memory.suited_supers(), ..memory }
    }

    /// The first near position for a query at `position`.
    pub fn first_near(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.n_local as usize)
    }

    /// Blocks that a query at `position` may choose from.
    pub fn finished(&self, position: usize) -> Range<usize> {
        let block = self.block as usize;
        let first = self.n_init as usize / block;
        let end = self.first_near(position / block * block) / block;
        if self.has_blocks() { first..end.max(first) } else { first..first }
    }

    /// Whether queries may read blocks, beside what is always read.
    pub fn has_blocks(&self) -> bool {
        self.n_blocks > 0 || self.certificate.is_some()
    }

    /// Whether a query at `position` may leave blocks unread: else it reads all that is finished.
    pub fn chooses(&self, position: usize) -> bool {
        let may = self.certificate.is_none_or(|certificate| certificate.eps() > 0.0);
        may && self.finished(position).len() > self.n_blocks as usize
    }

    /// Positions that are neither near nor in a block that may be chosen: the first ones, and the rest.
    pub fn always_far(&self, position: usize) -> [Range<usize>; 2] {
        let near = self.first_near(position);
        let init = (self.n_init as usize).min(near);
        let rest = self.finished(position).end * self.block as usize;
        let rest = if self.has_blocks() { rest.max(init).min(near) } else { near };
        [0..init, rest..near]
    }

    /// Least and most positions that a query reads when `position` are before it; they differ where a certificate decides.
    pub fn reads(&self, position: usize) -> [usize; 2] {
        let far: usize = self.always_far(position).iter().map(|range| range.len()).sum();
        let finished = self.finished(position).len();
        let least = if self.chooses(position) { self.n_blocks as usize } else { finished };
        let most = if self.certificate.is_some() { finished } else { least };
        let always = far + position + 1 - self.first_near(position);
        [least, most].map(|blocks| always + blocks * self.block as usize)
    }

    /// Whether positions that are not near have keys and a rotation of their own.
    pub fn keeps_far_keys(&self) -> bool {
        self.positions == FarPositions::Fixed
    }

    /// The position that a query takes for keys that are not near, which stand at 0: with [`FarPositions::Fixed`].
    pub fn far_position(&self) -> usize {
        self.n_local as usize - 1
    }

    /// The `n_blocks` blocks that promise most, in ascending order. `promises` are those of the finished blocks from
    /// number `first` on; of equals the earlier is chosen, and before all others those that are given.
    pub fn choose(&self, first: usize, promises: &[f32], chosen: &mut Vec<u32>) {
        self.choose_of(|i| first as u32 + i, promises, chosen);
    }

    /// The same of blocks whose numbers `block` has, ascending.
    fn choose_of(&self, block: impl Fn(u32) -> u32, promises: &[f32], chosen: &mut Vec<u32>) {
        let n = self.n_blocks as usize;
        match self.given {
            None => greatest(n, promises, chosen),
            Some(given) => {
                let score = |i: u32| (given.has(block(i)), promises[i as usize]);
                greatest_by(n, promises.len(), chosen, |a, b| {
                    let ((a_given, a), (b_given, b)) = (score(a), score(b));
                    b_given.cmp(&a_given).then(b.total_cmp(&a))
                });
            }
        }
        chosen.iter_mut().for_each(|i| *i = block(*i));
    }

    /// The keys of a block that stand for it, in ascending order: those with the greatest of these scores; of equals the
    /// earlier.
    pub fn represent(&self, scores: &[f32], chosen: &mut Vec<u32>) {
        greatest(self.n_representatives as usize, scores, chosen);
    }

    /// The keys of a block that stand for it if nobody decides which, in ascending order: the first of each of as many parts.
    pub fn spaced(&self) -> impl Iterator<Item = usize> {
        let (n, block) = (self.n_representatives as usize, self.block as usize);
        (0..n).map(move |i| i * block / n)
    }

    /// Blocks that come to an end after one until it is finished, where queries between decide what stands for it; else 0.
    pub fn anchor_lag(&self) -> usize {
        let waits = self.anchor.has_representatives() && self.has_blocks();
        if waits { (self.n_local / self.block) as usize } else { 0 }
    }

    /// All that a query at `position` reads whose choice is `chosen`, in ascending order.
    pub(crate) fn stretches(&self, position: usize, chosen: &[u32]) -> Vec<Stretch> {
        let block = self.block as usize;
        let far = |positions| Stretch { positions, is_near: false };
        let [init, rest] = self.always_far(position);
        let blocks = chosen.iter().map(|b| *b as usize * block..(*b as usize + 1) * block);
        let mut all: Vec<Stretch> = std::iter::once(far(init)).chain(blocks.map(far)).collect();
        all.push(far(rest));
        all.push(Stretch { positions: self.first_near(position)..position + 1, is_near: true });
        all.retain(|stretch| !stretch.positions.is_empty());
        all
    }
}

/// The numbers of the `n` greatest scores, in ascending order; of equals the earlier.
pub(crate) fn greatest(n: usize, scores: &[f32], chosen: &mut Vec<u32>) {
    greatest_by(n, scores.len(), chosen, |a, b| scores[b as usize].total_cmp(&scores[a as usize]));
}

/// The first `n` of the numbers below `len` in an order, in ascending order; of equals the earlier.
fn greatest_by(
    n: usize,
    len: usize,
    chosen: &mut Vec<u32>,
    order: impl Fn(u32, u32) -> std::cmp::Ordering,
) {
    chosen.clear();
    chosen.extend(0..len as u32);
    if n < len {
        let order = |a: &u32, b: &u32| order(*a, *b).then(a.cmp(b));
        chosen.select_nth_unstable_by(n, order);
        chosen.truncate(n);
        chosen.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> ContextMemory {
        ContextMemory { n_init: 64, n_local: 192, n_blocks: 2, ..ContextMemory::suited(1024) }
    }

    #[test]
    fn a_certificate_has_a_share() {
        for (eps, is_share) in [(0.0, true), (-0.0, true), (1.0, true), (1.1, false), (-0.1, false)]
        {
            assert_eq!(Certificate::new(eps).is_some(), is_share, "{eps}");
        }
        assert_eq!(Certificate::new(f32::NAN), None);
        assert_eq!(Certificate::new(0.0), Certificate::new(-0.0));
        let certificate = Certificate::new(0.5).expect("a share");
        assert!(certificate.holds(0.499, 1.0) && !certificate.holds(0.5, 1.0));
        assert!(!certificate.holds(f64::NAN, 1.0) && !certificate.holds(1.0, f64::NAN));
        let memory = ContextMemory { certificate: Some(certificate), n_supers: 0, ..memory() };
        assert_eq!(memory.check(), Ok(()));
        let by_mean = ContextMemory { anchor: BlockAnchor::Mean, ..memory };
        assert!(matches!(by_mean.check(), Err(crate::Error::Unsupported(_))));
    }

    /// Every position up to a query's is read once, or lies in a finished block that was not chosen.
    #[test]
    fn what_a_query_reads_falls_into_parts() {
        for (n_init, n_local, n_blocks) in
            [(0, 64, 1), (64, 192, 2), (128, 64, 3), (64, 128, 0), (0, 512, 100)]
        {
            let memory = ContextMemory { n_init, n_local, n_blocks, ..memory() };
            for position in 0..1500 {
                let finished = memory.finished(position);
                let promises: Vec<f32> = finished.clone().map(|b| (b * 7 % 5) as f32).collect();
                let mut chosen = Vec::new();
                memory.choose(finished.start, &promises, &mut chosen);
                assert_eq!(chosen.len(), finished.len().min(n_blocks as usize));
                let mut read = vec![0; position + 1];
                let stretches = memory.stretches(position, &chosen);
                assert!(stretches.is_sorted_by_key(|stretch| stretch.positions.start));
                for Stretch { positions, is_near } in stretches {
                    let near = positions.end > memory.first_near(position);
                    assert_eq!(near, is_near, "{position}: {positions:?}");
                    read[positions].iter_mut().for_each(|n| *n += 1);
                }
                let unread = |p: &usize| read[*p] == 0;
                let left: Vec<usize> = (0..=position).filter(unread).collect();
                assert!(read.iter().all(|n| *n <= 1), "{position}: read twice");
                let total: usize = read.iter().sum();
                assert_eq!([total; 2], memory.reads(position), "{position}");
                for p in left {
                    let skipped = finished.contains(&(p / 64)) || n_blocks == 0;
                    assert!(skipped && !chosen.contains(&(p as u32 / 64)), "{position}: {p}");
                }
            }
        }
    }

    #[test]
    fn the_best_blocks_are_chosen_and_earlier_ones_of_equals() {
        let mut chosen = Vec::new();
        memory().choose(1, &[1.0, 3.0, 2.0, 3.0, 3.0], &mut chosen);
        assert_eq!(chosen, [2, 4]);
        memory().choose(5, &[1.0, 0.5], &mut chosen);
        assert_eq!(chosen, [5, 6]);
    }

    /// Within a stretch of 64 rows nothing new is finished, and near positions move with the query.
    #[test]
    fn blocks_are_finished_at_multiples() {
        let memory = memory();
        assert_eq!(memory.finished(255), 1..1);
        assert_eq!((memory.finished(319), memory.finished(320)), (1..1, 1..2));
        assert_eq!((memory.finished(383), memory.finished(384)), (1..2, 1..3));
        assert_eq!(memory.always_far(383), [0..64, 128..192]);
        assert_eq!(memory.first_near(383), 192);
    }
}
