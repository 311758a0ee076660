//! How each cache of a plan is kept.

use std::sync::Arc;

use kernels::attention::{ANCHORS, BLOCK, ElemType, HeadShape, Partials};
use kernels::latent::LatentShape;
use kernels::rows::Pairs;
use kv::{Layout, StateSpec, TableSpec};
use program::{
    BlockAnchor, BlockSharing, CacheId, CacheOptions, CacheType, ContextMemory, Error, KvPolicy,
    Program, Result, Rope, RopePairs, StateCopies,
};

use crate::plan::Cached;
use crate::schedule::Schedule;

/// How a cache of keys and values lies, and how attention over it is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadsCache {
    pub(crate) head: HeadShape,
    pub(crate) layout: Layout,
    /// Most query rows of a tile, over the layers that read it.
    pub(crate) tile_rows: usize,
    /// Query heads of the layer that appends.
    pub(crate) n_heads: usize,
    /// Most positions that a query sees; `None`: all.
    window: Option<usize>,
    /// What queries read of it, if not all.
    pub(crate) memory: Option<MemoryTables>,
}

/// The tables of a cache of which queries read blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemoryTables {
    pub(crate) settings: ContextMemory,
    /// The table of what is not near, where the cache's own has near positions only.
    pub(crate) far: Option<usize>,
    /// The table of anchors: `[head][vector][element]` rows of [`ANCHORS`] blocks, each where the block is that came to an end
    /// when it was known; then `[head][greatest, least][element]` of as many, if any stand together for a super-block.
    pub(crate) index: usize,
    /// The table of what queries say of keys, where that decides what stands for blocks: sums of queries by position,
    /// `[head][position][element]`, or by block of positions what its queries and those before gave to keys,
    /// `[head][near positions]`.
    pub(crate) heard: Option<usize>,
    /// The table of queries whose block has not come to an end, where what they give is computed then:
    /// `[query head][position][element]`, then `[query head][position][max, sum]`.
    pub(crate) queries: Option<usize>,
    /// The table of choices that serve the tokens after their query, this layer's or the one's that chooses for it:
    /// `[run of tokens][choice][block]` numbers.
    pub(crate) choices: Option<usize>,
    /// The table of what queries ask for together with those before, where choices are smoothed: `[head][position][element]` of
    /// a block of positions.
    pub(crate) smoothed: Option<usize>,
    /// Whether the layer that appends chooses for itself, if it chooses.
    pub(crate) chooses: bool,
    /// Choices of a row that a step keeps before this layer's, those of layers that choose for others too.
    pub(crate) slot: usize,
    /// Elements of the anchors of a key-value head.
    pub(crate) anchor_width: usize,
    /// Elements of what stands for a super-block and a key-value head, if something does.
    pub(crate) super_width: usize,
    /// Choices of a row: one for each key-value head, or one.
    pub(crate) n_choices: usize,
}

impl MemoryTables {
    /// The last of its tables.
    fn last(&self) -> usize {
        let late = [self.heard, self.queries, self.choices, self.smoothed];
        late.into_iter().flatten().max().unwrap_or(self.index)
    }

    /// Positions whose anchors lie in one block of the index.
    pub(crate) fn index_positions(&self) -> usize {
        ANCHORS * self.settings.block as usize
    }

    /// What a row of `n_heads` query heads asks of blocks.
    pub(crate) fn asks(&self, n_kv_heads: usize, n_heads: usize) -> Asks {
        match self.settings.certificate {
            Some(_) => Asks { n: n_heads, width: self.anchor_width, alike: n_heads / n_kv_heads },
            None => {
                let width = self.anchor_width * n_kv_heads / self.n_choices;
                Asks { n: self.n_choices, width, alike: 1 }
            }
        }
    }

    /// Whether a layer chooses that reads this cache, and perhaps appends to it.
    pub(crate) fn chooses_for(&self, appends: bool) -> bool {
        self.chooses && (appends || !self.settings.shares_choices())
    }

    /// Near positions of which something is kept: blocks whose anchors come late are looked at when they are not near anymore.
    pub(crate) fn near_positions(&self) -> usize {
        let late = if self.heard.is_some() { self.settings.block } else { 0 };
        (self.settings.n_local + late) as usize
    }

    /// Whether near keys and the others are in tables of their own.
    pub(crate) fn is_split(&self) -> bool {
        self.far.is_some()
    }
}

/// What a row asks of blocks: for each of its choices together, or, if bounds of each are wanted, for each query head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    pub(crate) n: usize,
    /// Elements of each.
    pub(crate) width: usize,
    /// How many in a row read the same anchors.
    pub(crate) alike: usize,
}

impl HeadsCache {
    /// Floats that the partials of one tile and block take.
    pub(crate) fn partial_floats(&self) -> usize {
        Partials::floats(self.tile_rows, &self.head)
    }
}

/// How a cache of latents lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LatentCache {
    pub(crate) shape: LatentShape,
    pub(crate) layout: Layout,
}

/// How the keys of an indexer lie: as those of a head without values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct KeysCache {
    pub(crate) head: HeadShape,
    pub(crate) layout: Layout,
}

/// How what recurs lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StateCache {
    /// Its number among those of a session.
    pub(crate) number: usize,
    /// Floats of the state.
    pub(crate) state: usize,
    /// Floats that a row gives.
    pub(crate) row: usize,
    /// Floats that a worker needs to change it.
    pub(crate) scratch: usize,
}

impl StateCache {
    fn spec(&self) -> StateSpec {
        let state = StateCopies::state_bytes(self.state as u64);
        StateSpec::of(usize::try_from(state).unwrap_or(usize::MAX), self.row.saturating_mul(4))
    }
}

/// Which elements rotate together.
pub(crate) fn pairs(rope: &Rope) -> Pairs {
    match rope.pairs {
        RopePairs::Interleaved => Pairs::Interleaved,
        RopePairs::HalfSplit => Pairs::HalfSplit,
    }
}

/// What one layer keeps.
#[expect(clippy::large_enum_variant, reason = "one for each layer, most of which have heads")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CacheShape {
    /// Keys and values by head.
    Heads(HeadsCache),
    /// Latents, a row per position.
    Latent(LatentCache),
    /// Keys of an indexer.
    Keys(KeysCache),
    /// Numbers that every position changes, beside the tables.
    State(StateCache),
}

impl CacheShape {
    /// Where it lies in a block.
    ///
    /// # Panics
    /// If it is a state, which lies in no block of positions.
    pub(crate) fn layout(&self) -> Layout {
        match self {
            CacheShape::State(_) => unreachable!("states lie in no blocks of positions"),
            CacheShape::Heads(shape) => shape.layout,
            CacheShape::Latent(cache) => cache.layout,
            CacheShape::Keys(cache) => cache.layout,
        }
    }

    /// What its own table has to know.
    fn table(&self) -> TableSpec {
        if self.as_state().is_some() {
            // a block of a table has bytes, also where none is kept
            return TableSpec { limit: Some(0), ..TableSpec::all(BLOCK, 64) };
        }
        let all = TableSpec::all(BLOCK, self.layout().block_bytes());
        let window = self.as_heads().and_then(|heads| match heads.memory {
            Some(memory) if memory.is_split() => Some(memory.near_positions()),
            _ => heads.window,
        });
        let memory = self.as_heads().and_then(|heads| heads.memory);
        let chosen =
            memory.is_some_and(|memory| !memory.is_split() && memory.settings.has_blocks());
        TableSpec { window, chosen, ..all }
    }

    /// Its tables beside its own, with their numbers.
    fn more_tables(&self) -> impl Iterator<Item = (usize, TableSpec)> {
        let memory = self.as_heads().and_then(|heads| Some((heads, heads.memory?)));
        let far = memory.and_then(|(heads, memory)| {
            let all = TableSpec::all(BLOCK, heads.layout.block_bytes());
            let first = memory.settings.n_init as usize;
            let limit = (!memory.settings.has_blocks()).then_some(first);
            Some((memory.far?, TableSpec { limit, chosen: limit.is_none(), ..all }))
        });
        let index = memory.map(|(heads, memory)| {
            let each = ANCHORS * memory.anchor_width + memory.super_width;
            let bytes = 4 * each * heads.layout.n_kv_heads();
            // a layer that does not choose has no anchors
            let is_empty = !memory.settings.has_blocks() || memory.anchor_width == 0;
            let limit = is_empty.then_some(0);
            // a block of a table has bytes, also where none is kept
            let all = TableSpec::all(memory.index_positions(), bytes.max(4));
            (memory.index, TableSpec { limit, ..all })
        });
        let windowed = |positions, bytes, window| TableSpec {
            window: Some(window),
            ..TableSpec::all(positions, bytes)
        };
        let heard = memory.and_then(|(heads, memory)| {
            let (near, n_heads) = (memory.near_positions(), heads.layout.n_kv_heads());
            let block = memory.settings.block as usize;
            let spec = match memory.queries {
                None => windowed(BLOCK, 4 * BLOCK * n_heads * heads.head.key_dim, near),
                Some(_) => windowed(block, 4 * n_heads * near, 2 * block),
            };
            Some((memory.heard?, spec))
        });
        let queries = memory.and_then(|(heads, memory)| {
            let bytes = 4 * BLOCK * heads.n_heads * (heads.head.key_dim + 2);
            Some((memory.queries?, windowed(BLOCK, bytes, memory.settings.block as usize)))
        });
        let choices = memory.filter(|(_, memory)| memory.chooses).and_then(|(_, memory)| {
            let settings = &memory.settings;
            let runs = settings.choosers(0..BLOCK).len();
            let bytes = 4 * runs * memory.n_choices * settings.n_blocks as usize;
            // a step reads those of the blocks that it writes
            let spec = TableSpec { chosen: true, ..TableSpec::all(BLOCK, bytes) };
            let window = memory.is_split().then(|| memory.near_positions());
            Some((memory.choices?, TableSpec { window, ..spec }))
        });
        let smoothed = memory.and_then(|(heads, memory)| {
            let block = memory.settings.block as usize;
            let bytes = 4 * block * heads.layout.n_kv_heads() * memory.anchor_width;
            Some((memory.smoothed?, windowed(block, bytes, block)))
        });
        let late = heard.into_iter().chain(queries).chain(choices).chain(smoothed);
        far.into_iter().chain(index).chain(late)
    }

    /// The shape of keys and values, if it keeps such.
    pub(crate) fn as_heads(&self) -> Option<&HeadsCache> {
        match self {
            CacheShape::Heads(shape) => Some(shape),
            CacheShape::Latent(_) | CacheShape::Keys(_) | CacheShape::State(_) => None,
        }
    }

    /// The shape of latents, if it keeps such.
    pub(crate) fn as_latent(&self) -> Option<&LatentCache> {
        match self {
            CacheShape::Latent(cache) => Some(cache),
            CacheShape::Heads(_) | CacheShape::Keys(_) | CacheShape::State(_) => None,
        }
    }

    /// The shape of what recurs, if that is what it keeps.
    pub(crate) fn as_state(&self) -> Option<&StateCache> {
        match self {
            CacheShape::State(cache) => Some(cache),
            CacheShape::Heads(_) | CacheShape::Latent(_) | CacheShape::Keys(_) => None,
        }
    }

    /// The shape of what recurs.
    pub(crate) fn state(&self) -> StateCache {
        *self.as_state().expect("a phase of what recurs has a state")
    }

    /// The shape of keys and values.
    pub(crate) fn heads(&self) -> &HeadsCache {
        self.as_heads().expect("an attention phase reads keys and values")
    }

    /// The shape of an indexer's keys.
    pub(crate) fn keys(&self) -> KeysCache {
        match self {
            CacheShape::Keys(cache) => *cache,
            _ => unreachable!("an indexer has keys"),
        }
    }

    /// The shape of latents.
    pub(crate) fn latent(&self) -> LatentCache {
        *self.as_latent().expect("a latent phase reads latents")
    }
}

/// How each cache of `program` is kept under `options`.
pub(crate) fn cache_shapes(
    program: &Program,
    schedule: &Schedule,
    options: &CacheOptions,
) -> Result<Arc<[CacheShape]>> {
    options.policy.check(program)?;
    let unread = |cache| Error::Unsupported(format!("cache {cache} that no op reads"));
    let (mut n_tables, mut n_states) = (schedule.caches.len(), 0);
    let policy = &options.policy;
    let shape = |(cache, cached): (usize, &Option<Cached>)| {
        let mut shape = shape(cached.ok_or_else(|| unread(cache))?, options)?;
        let id = CacheId(cache as u32);
        let settings = policy.of_cache(program, id);
        if let CacheShape::State(state) = &mut shape {
            state.number = n_states;
            n_states += 1;
        }
        if let (CacheShape::Heads(heads), Some(settings)) = (&mut shape, settings) {
            let chooses = policy.chooses(program, id, true);
            let tables = memory_tables(heads, settings, n_tables, chooses);
            n_tables = tables.last() + 1;
            heads.memory = Some(tables);
        }
        Ok(shape)
    };
    let mut shapes: Vec<CacheShape> =
        schedule.caches.iter().enumerate().map(shape).collect::<Result<_>>()?;
    share_choices(program, policy, &mut shapes);
    Ok(shapes.into())
}

/// Have layers find the choices of those that choose for them.
fn share_choices(program: &Program, policy: &KvPolicy, shapes: &mut [CacheShape]) {
    let chooser = |cache: usize| policy.chooser(program, CacheId(cache as u32));
    let choosers: Vec<Option<CacheId>> = (0..shapes.len()).map(chooser).collect();
    let (mut n_choices, mut own) = (0, Vec::new());
    for (shape, chooser) in shapes.iter().zip(&choosers) {
        let memory = shape.as_heads().and_then(|heads| heads.memory);
        own.push((memory.and_then(|memory| memory.choices), n_choices));
        let is_one = chooser.is_some_and(|chooser| chooser.0 as usize + 1 == own.len());
        n_choices += memory.filter(|_| is_one).map_or(0, |memory| memory.n_choices);
    }
    for (shape, chooser) in shapes.iter_mut().zip(choosers) {
        if let (CacheShape::Heads(heads), Some(chooser)) = (shape, chooser)
            && let Some(memory) = &mut heads.memory
        {
            (memory.choices, memory.slot) = own[chooser.0 as usize];
        }
    }
}

/// `first`: the number of the first table that is free.
fn memory_tables(
    heads: &HeadsCache,
    settings: ContextMemory,
    first: usize,
    chooses: bool,
) -> MemoryTables {
    // where nothing is chosen the first positions are all that is kept of what is not near
    let is_split = settings.keeps_far_keys() || !settings.has_blocks();
    let n_choices = match settings.sharing {
        BlockSharing::Layer => 1,
        BlockSharing::KvHead => heads.layout.n_kv_heads(),
    };
    let index = first + usize::from(is_split);
    let is_heard = chooses && settings.anchor_lag() > 0;
    let has_supers = chooses && settings.has_supers();
    let n_super_vectors = if has_supers { ContextMemory::SUPER_VECTORS } else { 0 };
    let n_vectors = if chooses { settings.anchor.n_vectors() } else { 0 };
    let heard = is_heard.then_some(index + 1);
    let queries = (is_heard && settings.anchor == BlockAnchor::Mass).then_some(index + 2);
    let keeps_choices = chooses && settings.has_blocks() && settings.token_step > 1;
    let choices = keeps_choices.then_some(queries.or(heard).unwrap_or(index) + 1);
    let smooths = chooses && settings.smooths().is_some();
    MemoryTables {
        settings,
        far: is_split.then_some(first),
        index,
        heard,
        queries,
        choices,
        smoothed: smooths.then_some(choices.or(queries).or(heard).unwrap_or(index) + 1),
        chooses,
        slot: 0,
        anchor_width: n_vectors * heads.head.key_dim,
        super_width: n_super_vectors * heads.head.key_dim,
        n_choices,
    }
}

/// What the tables of a session have to know: one for each cache, then what memories keep besides.
pub(crate) fn table_specs(shapes: &[CacheShape]) -> Arc<[TableSpec]> {
    let mut specs: Vec<TableSpec> = shapes.iter().map(CacheShape::table).collect();
    let more = shapes.iter().flat_map(CacheShape::more_tables);
    more.for_each(|(number, spec)| {
        assert_eq!(number, specs.len(), "tables are numbered in order");
        specs.push(spec);
    });
    specs.into()
}

/// What the caches of states of a session have to know.
pub(crate) fn state_specs(shapes: &[CacheShape]) -> Arc<[StateSpec]> {
    shapes.iter().filter_map(CacheShape::as_state).map(StateCache::spec).collect()
}

/// Bytes of the states of a session and of the rows beside them.
pub(crate) fn state_bytes(shapes: &[CacheShape], copies: StateCopies) -> u64 {
    let specs = state_specs(shapes);
    let bytes = specs.iter().map(|spec| copies.bytes(spec.state as u64, spec.row as u64));
    bytes.fold(0, u64::saturating_add)
}

// tables keep what plans count
const _: () =
    assert!(StateSpec::ROWS == StateCopies::ROWS && StateSpec::RINGS == StateCopies::RINGS);
const _: () = assert!(StateSpec::MOST_STATES == StateCopies::Most.count());
const _: () = assert!(StateSpec::LEAST_STATES == StateCopies::Least.count());

/// The most bytes that a session's tables take of `len` positions, of which at most `tentative` are not committed.
pub(crate) fn most_bytes(specs: &[TableSpec], len: usize, tentative: usize) -> u64 {
    let most = specs.iter().map(|spec| spec.most_bytes(len, tentative));
    most.fold(0, u64::saturating_add)
}

/// The fewest bytes of memory that the tables of these caches work with where a disk has the rest; `workers` read at once what
/// was chosen.
pub(crate) fn least_bytes(
    (shapes, specs): (&[CacheShape], &[TableSpec]),
    len: usize,
    tentative: usize,
    workers: usize,
) -> u64 {
    // what is lost is computed again in steps of a block
    let tentative = tentative.max(BLOCK);
    let least = specs.iter().map(|spec| spec.least_bytes(len, tentative));
    least.fold(reserve_bytes(shapes, workers), u64::saturating_add)
}

/// Bytes of the blocks that `workers` hold at once of those that were chosen: keys and values, for of kept choices a step
/// reads what it writes.
pub(crate) fn reserve_bytes(shapes: &[CacheShape], workers: usize) -> u64 {
    let chooses = |heads: &&HeadsCache| heads.memory.is_some_and(|m| m.settings.has_blocks());
    let heads = shapes.iter().filter_map(CacheShape::as_heads).filter(chooses);
    let chosen = heads.map(|heads| heads.layout.block_bytes()).max();
    // one that is attended to, and one that is copied
    2 * workers as u64 * chosen.unwrap_or(0) as u64
}

fn shape(cached: Cached, options: &CacheOptions) -> Result<CacheShape> {
    let k = elem_type(options.k)?;
    Ok(match cached {
        Cached::Latent { rank, rope_dim } => {
            let shape = LatentShape { rank, rope_dim, elem: k };
            let layout = Layout::new(1, shape.block_bytes(), 0);
            CacheShape::Latent(LatentCache { shape, layout })
        }
        Cached::Keys { dim } => {
            let head = HeadShape { key_dim: dim, value_dim: 0, k, v: k };
            let layout = Layout::new(1, head.key_bytes(), 0);
            CacheShape::Keys(KeysCache { head, layout })
        }
        Cached::State { state, row, scratch } => {
            CacheShape::State(StateCache { number: 0, state, row, scratch })
        }
        Cached::Heads { n_kv_heads, key_dim, value_dim, window, tile_rows, n_heads } => {
            let head = HeadShape { key_dim, value_dim, k, v: elem_type(options.v)? };
            let layout = Layout::new(n_kv_heads, head.key_bytes(), head.value_bytes());
            CacheShape::Heads(HeadsCache { head, layout, tile_rows, n_heads, window, memory: None })
        }
    })
}

fn elem_type(ty: CacheType) -> Result<ElemType> {
    match ty {
        CacheType::F32 => Ok(ElemType::F32),
        CacheType::F16 => Ok(ElemType::F16),
        CacheType::Q8_0 => Ok(ElemType::Q8_0),
    }
}
