//! [`Reads`]: which cached positions the queries of a layer read.

use program::{
    BlockAnchor, BlockSharing, CacheId, CacheKind, CacheSpec, ContextMemory, KvPolicy, Mask, Node,
    Op, Program, Selection, StateCopies,
};

use crate::formula::{positions_seen, product};

/// Which cached positions queries read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reads {
    /// All that a mask lets them see.
    Seen(Mask),
    /// Few blocks of a long past.
    Memory(ContextMemory),
    /// The same, which another layer chose.
    Following(ContextMemory),
    /// What an indexer chose, each query its own.
    Selected(Selection),
}

/// Of `n` queries after `past` positions those that read all they see, and those that choose.
pub(crate) fn choosing(select: &Selection, past: u64, n: u64) -> [u64; 2] {
    let all = (select.limit() as u64).saturating_sub(past).min(n);
    [all, n - all]
}

/// Positions that `n` queries after `past` positions read, each its own choice, in tiles that read no position twice: of the
/// past all, or as many as the tile's queries may choose together.
pub(crate) fn chosen_positions(select: &Selection, past: u64, n: u64, tile: u64) -> u64 {
    let tile = tile.clamp(1, n.max(1));
    let limit = select.limit() as u64;
    let most = tile.saturating_mul(limit);
    // tiles whose last query sees no more than that
    let early = most.saturating_sub(past) / tile;
    let (early, full) = (early.min(n / tile), n / tile);
    let seen = positions_seen(Mask::Causal, past, early * tile, tile);
    let rest = (n % tile).saturating_mul(limit).min(past.saturating_add(n));
    seen.saturating_add((full - early).saturating_mul(most)).saturating_add(rest)
}

/// A position beyond all that changes with depth.
const DEEP: usize = 1 << 31;

/// Tiles of queries that are looked at; of more, so many that stand for their neighbours.
const SAMPLES: u64 = 1024;

impl Reads {
    /// Of a node over this cache under a policy.
    pub fn of(
        program: &Program,
        node: &Node,
        cache: CacheId,
        mask: Mask,
        policy: &KvPolicy,
    ) -> Reads {
        let appends = node.appends_to().is_some();
        match policy.of_cache(program, cache) {
            None => Reads::Seen(mask),
            Some(memory) if policy.chooses(program, cache, appends) => Reads::Memory(memory),
            Some(memory) => Reads::Following(memory),
        }
    }

    /// Positions that `n_tokens` queries after `past` positions read, `tile` of which share what they read: the least where a
    /// certificate decides.
    pub fn positions(&self, past: u64, n_tokens: u64, tile: u64) -> u64 {
        self.bounds(past, n_tokens, tile)[0]
    }

    /// The same, and the most.
    pub fn bounds(&self, past: u64, n_tokens: u64, tile: u64) -> [u64; 2] {
        match self {
            Reads::Seen(mask) => [positions_seen(*mask, past, n_tokens, tile); 2],
            Reads::Selected(select) => [chosen_positions(select, past, n_tokens, tile); 2],
            Reads::Memory(memory) | Reads::Following(memory) => [0, 1].map(|i| {
                over_tiles(past, n_tokens, tile, |last, rows| {
                    let [always, all] =
                        [memory.reads(last)[i] as u64, memory.finished(last).len() as u64];
                    // every row that chooses does for itself, and the others of a tile see positions before those of the last
                    let few = always_read(memory, last);
                    let chosen = (always - few) / u64::from(memory.block);
                    let choices = rows.div_ceil(u64::from(memory.token_step.max(1)));
                    let of_tile = all.min(chosen.saturating_mul(choices));
                    always
                        + (of_tile - chosen) * u64::from(memory.block)
                        + (rows - 1).min(last as u64 + 1 - always)
                })
            }),
        }
    }

    /// Positions whose keys they read a second time.
    pub fn again(&self, past: u64, n_tokens: u64) -> u64 {
        match self {
            Reads::Memory(memory) if memory.certificate.is_some() => {
                // to tell what is left out
                self.bounds(past, n_tokens, 1)[1]
            }
            Reads::Memory(memory) if memory.has_blocks() && memory.anchor == BlockAnchor::Mass => {
                // to tell what each gets
                positions_seen(Mask::Window(memory.n_local), past, n_tokens, 1)
            }
            Reads::Memory(_) | Reads::Following(_) | Reads::Seen(_) | Reads::Selected(_) => {
                self.asked_keys(past, n_tokens, 1)
            }
        }
    }

    /// Positions whose keys they look at to choose blocks: where all keys stand for theirs.
    pub fn asked_keys(&self, past: u64, n_tokens: u64, tile: u64) -> u64 {
        match self {
            Reads::Memory(memory) if memory.anchor == BlockAnchor::All => {
                let each = u64::from(memory.block);
                self.looked(past, n_tokens, tile, |looks| looks[0].saturating_mul(each))
            }
            Reads::Memory(_) | Reads::Following(_) | Reads::Seen(_) | Reads::Selected(_) => 0,
        }
    }

    /// Blocks whose anchors they look at, all together, and super-blocks before that; none where nothing is chosen. Where a
    /// choice serves several tokens, a token's share of it.
    pub fn looks(&self, past: u64, n_tokens: u64, tile: u64) -> [u64; 2] {
        [0, 1].map(|level| self.looked(past, n_tokens, tile, |looks| looks[level]))
    }

    /// The sum of what `each` makes of the blocks and the super-blocks that a tile looks at, a token's share of it where few
    /// tokens choose.
    fn looked(&self, past: u64, n_tokens: u64, tile: u64, each: impl Fn([u64; 2]) -> u64) -> u64 {
        let Reads::Memory(memory) = self else { return 0 };
        let step = u64::from(memory.token_step.max(1));
        let all = over_tiles(past, n_tokens, tile, |last, rows| {
            let [blocks, supers] = memory.looks(last).map(|n| n as u64);
            // every row that chooses looks at super-blocks of its own
            let finished = memory.finished(last).len() as u64;
            let blocks = blocks.saturating_mul((rows / step).max(1)).min(finished);
            each([blocks, supers]).saturating_mul(rows.min(step))
        });
        all / step
    }

    /// Bytes of what they look at to choose blocks of a cache of this kind: 4 for each number.
    pub fn index_bytes(&self, past: u64, n_tokens: u64, tile: u64, kind: &CacheKind) -> u64 {
        let Reads::Memory(memory) = self else { return 0 };
        let [block, super_block] = [anchor_bytes(memory, kind), super_bytes(kind)];
        self.looked(past, n_tokens, tile, |[blocks, supers]| {
            blocks.saturating_mul(block).saturating_add(supers.saturating_mul(super_block))
        })
    }
}

/// Positions that a query reads whatever it chooses.
fn always_read(memory: &ContextMemory, position: usize) -> u64 {
    let far: usize = memory.always_far(position).iter().map(|range| range.len()).sum();
    (far + position + 1 - memory.first_near(position)) as u64
}

/// The sum over tiles of queries of `f`, which is told the last position of a tile and its queries.
fn over_tiles(past: u64, n_tokens: u64, tile: u64, f: impl Fn(usize, u64) -> u64) -> u64 {
    let tile = tile.clamp(1, n_tokens.max(1));
    let n_tiles = n_tokens.div_ceil(tile);
    let of = |i: u64| {
        let first = i * tile;
        let rows = tile.min(n_tokens - first);
        let last = past.saturating_add(first + rows - 1);
        f(usize::try_from(last).unwrap_or(usize::MAX / 2), rows)
    };
    if n_tiles <= SAMPLES {
        return (0..n_tiles).map(of).fold(0, u64::saturating_add);
    }
    let start = |i: u64| (u128::from(i) * u128::from(n_tiles) / u128::from(SAMPLES)) as u64;
    let stands_for =
        |i: u64| of((start(i) + start(i + 1)) / 2).saturating_mul(start(i + 1) - start(i));
    (0..SAMPLES).map(stands_for).fold(0, u64::saturating_add)
}

/// What one layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheCost {
    pub(crate) position_bytes: u64,
    /// Of states of fixed size, and of what is kept beside them.
    state_bytes: u64,
    /// Positions that are kept at most.
    pub(crate) window: Option<u64>,
    /// Positions at the start that are kept beside those of a window, in places of their own.
    first: u64,
    /// Positions that are kept twice: near, and as they are met from afar.
    twice: u64,
    /// Positions that a step reads at most, however deep it is, all being kept: the least where a certificate decides. Beside
    /// them are those that it looks at to choose.
    most_read: Option<u64>,
    /// Bytes of each position that whoever chooses looks at, those of its key where all keys stand for theirs, and positions
    /// that are read in any case and not looked at.
    asked: [u64; 2],
    /// Positions of a block, bytes of what stands for it, and of what stands for a super-block.
    anchor: Option<(u64, u64, u64)>,
    /// Bytes of anchors that a step looks at however deep it is.
    looked: u64,
    /// Tokens that a choice serves.
    token_step: u64,
    /// Positions whose choices are kept, and bytes of 64 of them.
    choices: [u64; 2],
    /// Positions of which it is kept what their queries say of keys, and bytes of that.
    heard: [u64; 2],
    /// The same of what queries ask for together with those before.
    smoothed: [u64; 2],
}

impl CacheCost {
    /// Of cache `id` of `program` under a policy.
    pub(crate) fn of(
        program: &Program,
        id: CacheId,
        cache: &CacheSpec,
        position_bytes: u64,
        policy: &KvPolicy,
    ) -> CacheCost {
        let window = cache.kind.window().map(|window| window as u64);
        let state_bytes = cache.kind.recurrent_bytes(StateCopies::Most);
        let plain = CacheCost {
            position_bytes,
            state_bytes,
            window,
            first: 0,
            twice: 0,
            most_read: most_read(program, id),
            asked: [0; 2],
            anchor: None,
            looked: 0,
            token_step: 1,
            choices: [0; 2],
            heard: [0; 2],
            smoothed: [0; 2],
        };
        let Some(memory) = policy.of_cache(program, id) else { return plain };
        let near = u64::from(memory.n_local);
        if !memory.has_blocks() {
            return CacheCost { window: Some(near), first: u64::from(memory.n_init), ..plain };
        }
        let chooses = policy.chooses(program, id, true);
        let late = if chooses && memory.anchor_lag() > 0 { u64::from(memory.block) } else { 0 };
        let twice = if memory.keeps_far_keys() { near + late } else { 0 };
        let of_super = if chooses && memory.has_supers() { super_bytes(&cache.kind) } else { 0 };
        let each = if chooses { anchor_bytes(&memory, &cache.kind) } else { 0 };
        let anchor = Some((u64::from(memory.block), each, of_super));
        let kept = if memory.keeps_far_keys() { near + late } else { u64::MAX };
        let choices = if chooses { [kept, choice_bytes(&memory, &cache.kind)] } else { [0; 2] };
        let token_step = u64::from(memory.token_step.max(1));
        let heard = if late > 0 { heard(program, id, &memory) } else { [0; 2] };
        let reads_all = chooses && memory.anchor == BlockAnchor::All;
        let asked = if reads_all { key_bytes(&cache.kind, position_bytes) } else { 0 };
        let asked = [asked, always_read(&memory, DEEP)];
        let most_read = Some(memory.reads(DEEP)[0] as u64);
        let looked = if of_super > 0 { memory.looks(DEEP)[0] as u64 } else { 0 };
        let looked = looked.saturating_mul(each);
        // at most those of a block and the one before
        let smoothed = match memory.smooths() {
            Some(_) => [2 * u64::from(memory.block), each],
            None => [0; 2],
        };
        let read = CacheCost { most_read, asked, looked, token_step, ..plain };
        CacheCost { twice, anchor, heard, choices, smoothed, ..read }
    }

    /// Bytes of so many positions.
    pub(crate) fn bytes(&self, positions: u64) -> u64 {
        let kept = self.window.map_or(positions, |window| window.min(positions));
        let kept = kept.saturating_add(self.first.min(positions));
        let kept = kept.saturating_add(self.twice.min(positions));
        let anchors = self.anchor.map_or(0, |(block, bytes, of_super)| {
            let supers = positions / block / ContextMemory::SUPER as u64;
            (positions / block)
                .saturating_mul(bytes)
                .saturating_add(supers.saturating_mul(of_super))
        });
        let heard = self.heard[0].min(positions).saturating_mul(self.heard[1]);
        let smoothed = self.smoothed[0].min(positions).saturating_mul(self.smoothed[1]);
        let heard = heard.saturating_add(smoothed);
        let choices = self.choices[0].min(positions).saturating_mul(self.choices[1]) / 64;
        let state = if positions == 0 { 0 } else { self.state_bytes };
        let kept = self.position_bytes.saturating_mul(kept).saturating_add(anchors);
        kept.saturating_add(heard).saturating_add(choices).saturating_add(state)
    }

    /// Bytes that so many more positions, of whole blocks and super-blocks, add at last to what a step reads.
    pub(crate) fn lasting_bytes(&self, positions: u64) -> u64 {
        // beyond what is looked at whole, super-blocks
        let anchors = self.anchor.map_or(0, |(block, bytes, of_super)| match of_super {
            0 => (positions / block).saturating_mul(bytes),
            _ => (positions / block / ContextMemory::SUPER as u64).saturating_mul(of_super),
        });
        let asked = self.asked[0].saturating_mul(positions);
        match self.bound() {
            Some(_) => anchors.saturating_add(asked) / self.token_step,
            None => self.position_bytes.saturating_mul(positions).saturating_add(anchors),
        }
    }

    /// Bytes that a step reads at most, beside those.
    pub(crate) fn bounded_bytes(&self) -> u64 {
        self.position_bytes
            .saturating_mul(self.bound().unwrap_or(0))
            .saturating_add(self.looked / self.token_step)
            .saturating_add(self.state_bytes)
            .saturating_sub(self.asked[0].saturating_mul(self.asked[1]) / self.token_step)
    }

    /// Positions of a window and of the start, or of a choice.
    fn bound(&self) -> Option<u64> {
        self.window.map(|window| window.saturating_add(self.first)).or(self.most_read)
    }
}

/// Positions that a step reads at most of a cache that is kept whole, if whatever reads it chooses.
fn most_read(program: &Program, id: CacheId) -> Option<u64> {
    let readers = program.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(at) if at.cache == id => Some(at.select),
        Op::LatentAttention(at) if at.cache == id => Some(at.select),
        _ => None,
    });
    let limits = readers.map(|select| select.map(|select| select.limit() as u64));
    limits.reduce(|a, b| Some(a?.max(b?))).flatten()
}

/// Of the bytes that a position has in a cache those of its keys, as attention counts them: by their share of numbers.
fn key_bytes(kind: &CacheKind, position_bytes: u64) -> u64 {
    match *kind {
        CacheKind::Heads { key_dim, value_dim, .. } => {
            let (keys, all) = (key_dim as u64, (key_dim as u64).saturating_add(value_dim as u64));
            position_bytes.saturating_mul(keys) / all.max(1)
        }
        CacheKind::Latent { .. } | CacheKind::Keys { .. } | CacheKind::State { .. } => 0,
    }
}

/// Bytes of what stands for one block of a layer.
fn anchor_bytes(memory: &ContextMemory, kind: &CacheKind) -> u64 {
    vector_bytes(kind).saturating_mul(memory.anchor.n_vectors() as u64)
}

/// Bytes of what stands for one super-block of a layer.
fn super_bytes(kind: &CacheKind) -> u64 {
    vector_bytes(kind).saturating_mul(ContextMemory::SUPER_VECTORS as u64)
}

/// Bytes of the choices of 64 positions of a layer, where they are kept.
fn choice_bytes(memory: &ContextMemory, kind: &CacheKind) -> u64 {
    let heads = match (memory.sharing, *kind) {
        (BlockSharing::KvHead, CacheKind::Heads { n_kv_heads, .. }) => n_kv_heads as u64,
        _ => 1,
    };
    if memory.token_step <= 1 {
        return 0;
    }
    product(&[4 * 64 / u64::from(memory.token_step), heads, u64::from(memory.n_blocks)])
}

/// Bytes of a vector of a key's width for each key-value head: 4 for each number.
fn vector_bytes(kind: &CacheKind) -> u64 {
    match *kind {
        CacheKind::Heads { n_kv_heads, key_dim, .. } => {
            (n_kv_heads as u64).saturating_mul(key_dim as u64).saturating_mul(4)
        }
        CacheKind::Latent { .. } | CacheKind::Keys { .. } | CacheKind::State { .. } => 0,
    }
}

/// Positions of which a layer keeps what their queries say of keys, and bytes of that: 4 for each number.
fn heard(program: &Program, id: CacheId, memory: &ContextMemory) -> [u64; 2] {
    let CacheKind::Heads { n_kv_heads, key_dim, .. } = program.cache(id).kind else {
        return [0; 2];
    };
    let (block, near) = (u64::from(memory.block), u64::from(memory.n_local + memory.block));
    if memory.anchor != BlockAnchor::Mass {
        return [near, 4 * (n_kv_heads * key_dim) as u64];
    }
    let width = program.nodes.iter().find_map(|node| match &node.op {
        Op::Attention(at) if at.cache == id => Some(program.value(node.inputs[0]).shape.cols()),
        _ => None,
    });
    let n_heads = width.unwrap_or(0) / key_dim.max(1);
    // queries of a block of positions, and of two what they gave to those that were near
    let queries = (n_heads * (key_dim + 2)) as u64;
    [block, 4 * (queries + 2 * n_kv_heads as u64 * near / block)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted one by one.
    #[test]
    fn a_memory_reads_what_its_rows_read() {
        let memory = ContextMemory { n_blocks: 2, ..ContextMemory::suited(1024) };
        let reads = Reads::Memory(memory);
        for (past, n) in [(0, 1), (0, 700), (500, 900), (3000, 1)] {
            let rows = (past..past + n).map(|p| memory.reads(p as usize)[0] as u64);
            assert_eq!(reads.positions(past, n, 1), rows.sum::<u64>(), "{past} {n}");
            let anchors = (past..past + n).map(|p| p as usize).filter(|p| memory.chooses(*p));
            let anchors: u64 = anchors.map(|p| memory.finished(p).len() as u64).sum();
            assert_eq!(reads.looks(past, n, 1), [anchors, 0], "{past} {n}");
        }
        // a tile reads no more than its rows one by one, and no less than its last
        let (tiled, one, last) = (
            reads.positions(5000, 64, 64),
            reads.positions(5000, 64, 1),
            reads.positions(5063, 1, 1),
        );
        assert!(last <= tiled && tiled <= one, "{last} {tiled} {one}");
    }

    /// A certificate may ask for all of it, and asks for some.
    #[test]
    fn a_certificate_reads_between_its_bounds() {
        let certificate = program::Certificate::new(0.01);
        let suited = ContextMemory::suited(1024);
        let memory = ContextMemory { n_blocks: 2, certificate, n_supers: 0, ..suited };
        let [plain, all] = [None, program::Certificate::new(0.0)]
            .map(|certificate| Reads::Memory(ContextMemory { certificate, ..memory }));
        let full = Reads::Seen(Mask::Causal);
        for (past, n, tile) in [(0, 700, 1), (5000, 1, 1), (5000, 100, 16)] {
            let [least, most] = Reads::Memory(memory).bounds(past, n, tile);
            assert_eq!(least, plain.positions(past, n, tile), "{past} {n} {tile}");
            assert_eq!(most, full.positions(past, n, tile), "{past} {n} {tile}");
            assert_eq!(all.bounds(past, n, tile), [most; 2], "{past} {n} {tile}");
        }
    }

    /// Near keys are read a second time to tell what they get.
    #[test]
    fn masses_read_near_keys_again() {
        let suited = ContextMemory { n_supers: 0, ..ContextMemory::suited(1024) };
        let of = |anchor| Reads::Memory(ContextMemory { anchor, ..suited });
        let mass = of(BlockAnchor::Mass);
        assert_eq!(mass.again(5000, 1), 512);
        assert_eq!(mass.again(0, 100), 5050);
        assert_eq!(of(BlockAnchor::Products).again(5000, 1), 0);
        // all finished blocks: 5,000 in blocks of 64 without the first 128 and what is near
        let all = of(BlockAnchor::All);
        let finished = ContextMemory::suited(1024).finished(5000).len() as u64;
        assert_eq!([all.again(5000, 1), all.asked_keys(5000, 1, 1)], [64 * finished; 2]);
        assert_eq!(all.asked_keys(0, 100, 16), 0);
    }

    /// Counted one by one, and by tiles, which read no position twice.
    #[test]
    fn queries_that_choose_read_so_much_each() {
        let select = Selection { unit: 4, n_units: 10, has_tail: false };
        let reads = Reads::Selected(select);
        for (past, n) in [(0, 1), (0, 39), (0, 100), (39, 2), (500, 7)] {
            let one_by_one: u64 = (past..past + n).map(|p| (p + 1).min(40)).sum();
            assert_eq!(reads.positions(past, n, 1), one_by_one, "{past} {n}");
        }
        assert_eq!(reads.positions(0, 40, 40), 40);
        assert_eq!(reads.positions(0, 50, 50), 50);
        // of two tiles and a shorter one the last may choose less than there is
        assert_eq!(reads.positions(200, 12, 5), 200 + 200 + 80);
        assert_eq!(reads.positions(197, 12, 5), 200 + 200 + 80);
        assert_eq!(reads.positions(10, 12, 5), 15 + 20 + 22);
        assert_eq!(reads.positions(u64::MAX, 2, 1), 80);
        assert_eq!((reads.looks(500, 7, 1), reads.again(500, 7)), ([0; 2], 0));
    }

    /// Beyond what is looked at whole, what a step looks at grows by super-blocks.
    #[test]
    fn few_super_blocks_are_looked_at() {
        let memory = ContextMemory { n_supers: 4, ..ContextMemory::suited(32_768) };
        let (reads, all) = (Reads::Memory(memory), ContextMemory { n_supers: 0, ..memory });
        let kind = CacheKind::Heads { n_kv_heads: 2, key_dim: 64, value_dim: 64, window: None };
        let bytes = |reads: Reads, past| reads.index_bytes(past, 1, 1, &kind);
        let (early, late) = (10_000, 1_000_000u64);
        assert_eq!(bytes(reads, early), bytes(Reads::Memory(all), early));
        let [blocks, supers] = memory.looks(late as usize).map(|n| n as u64);
        assert_eq!(bytes(reads, late), 1024 * (blocks + supers));
        assert!(blocks < 6 * 16 && bytes(Reads::Memory(all), late) > 12 * bytes(reads, late));
        // rows of a tile look at super-blocks of their own, and at no block twice
        let [tiled, one] = [16, 1].map(|tile| reads.looks(late, 16, tile)[0]);
        assert_eq!(tiled, one);
        let finished = memory.finished(late as usize + 1023).len() as u64;
        assert_eq!(reads.looks(late, 1024, 1024)[0], finished);
    }

    #[test]
    fn long_prompts_are_sampled() {
        let memory = ContextMemory::suited(1024);
        let reads = Reads::Memory(memory);
        let exact: u64 = (0..20_000).map(|p| memory.reads(p)[0] as u64).sum();
        let found = reads.positions(0, 20_000, 1);
        let off = (found as f64 / exact as f64 - 1.0).abs();
        assert!(off < 1e-3, "{found} of {exact}");
        assert!(reads.positions(0, 1 << 40, 1) > 1 << 40);
    }
}
