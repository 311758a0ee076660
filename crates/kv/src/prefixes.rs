//! Prefixes that sessions computed, for others to share.
//!
//! Tokens are cut into stretches of whole blocks. A stretch is found by the one before it and its own tokens, which are
//! compared, not their hash alone; the first one by the family of sessions that may share. Blocks are held weakly: an
//! entry is worth something as long as sessions hold what it names.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use crate::{CacheBlock, Store, TableSpec};

/// What a stretch of tokens follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Before {
    /// Nothing; sessions of the same family compute the same from the same tokens.
    Start(u64),
    /// Another stretch.
    Stretch(u64),
}

/// For each cache, the blocks of one stretch.
pub(crate) type StretchBlocks<S> = Box<[Box<[Weak<CacheBlock<S>>]>]>;

struct Stretch<S: Store> {
    before: Before,
    tokens: Arc<[u32]>,
    blocks: StretchBlocks<S>,
}

impl<S: Store> Stretch<S> {
    fn is_alive(&self) -> bool {
        self.blocks.iter().flatten().any(|block| block.strong_count() > 0)
    }
}

/// For each cache the number of its first block, and the blocks.
pub(crate) type Adopted<S> = Vec<(usize, Vec<Arc<CacheBlock<S>>>)>;

/// All stretches of a pool.
pub(crate) struct Prefixes<S: Store> {
    numbers: HashMap<(Before, Arc<[u32]>), u64>,
    /// Every stretch has a higher number than the one before it.
    stretches: BTreeMap<u64, Stretch<S>>,
    next: u64,
    /// Stretches left by the last sweep.
    swept: usize,
}

impl<S: Store> Default for Prefixes<S> {
    fn default() -> Self {
        let (numbers, stretches) = (HashMap::new(), BTreeMap::new());
        Prefixes { numbers, stretches, next: 0, swept: 0 }
    }
}

/// Stretches below which none are looked for that have died.
const FEW: usize = 64;

impl<S: Store> Prefixes<S> {
    /// Make the stretches of `tokens` known, which are `len` tokens each; `blocks` yields those of a stretch.
    pub(crate) fn register(
        &mut self,
        family: u64,
        stretches: std::slice::ChunksExact<'_, u32>,
        blocks: impl Fn(usize) -> StretchBlocks<S>,
    ) {
        let mut before = Before::Start(family);
        for (i, tokens) in stretches.enumerate() {
            let key = (before, Arc::from(tokens));
            let number = match self.numbers.get(&key) {
                Some(&number) => {
                    let known = self.stretches.get_mut(&number).expect("numbers name stretches");
                    renew(&mut known.blocks, || blocks(i));
                    number
                }
                None => {
                    let number = self.next;
                    self.next += 1;
                    let tokens = Arc::clone(&key.1);
                    self.stretches.insert(number, Stretch { before, tokens, blocks: blocks(i) });
                    self.numbers.insert(key, number);
                    number
                }
            };
            before = Before::Stretch(number);
        }
        if self.stretches.len() > 2 * self.swept.max(FEW) {
            self.sweep();
        }
    }

    /// Forget stretches that nobody holds, unless one that follows them is held.
    fn sweep(&mut self) {
        let mut needed = std::collections::HashSet::new();
        for (number, stretch) in self.stretches.iter().rev() {
            if (needed.contains(number) || stretch.is_alive())
                && let Before::Stretch(before) = stretch.before
            {
                needed.insert(before);
            }
        }
        let numbers = &mut self.numbers;
        self.stretches.retain(|number, stretch| {
            let kept = needed.contains(number) || stretch.is_alive();
            if !kept {
                numbers.remove(&(stretch.before, Arc::clone(&stretch.tokens)));
            }
            kept
        });
        self.swept = self.stretches.len();
    }

    /// The blocks of the longest known prefix of `stretches` that has more than `held` of them, and how many it has.
    pub(crate) fn find(
        &self,
        family: u64,
        stretches: std::slice::ChunksExact<'_, u32>,
        held: usize,
        specs: &[TableSpec],
    ) -> Option<(usize, Adopted<S>)> {
        let mut before = Before::Start(family);
        let mut path = Vec::new();
        for tokens in stretches {
            let Some(number) = self.numbers.get(&(before, Arc::from(tokens))) else { break };
            path.push(&self.stretches[number].blocks);
            before = Before::Stretch(*number);
        }
        (held + 1..=path.len()).rev().find_map(|n| Some((n, adopt(&path[..n], specs)?)))
    }
}

/// Name our blocks where those known are gone.
fn renew<S: Store>(known: &mut StretchBlocks<S>, ours: impl Fn() -> StretchBlocks<S>) {
    let gone = |block: &Weak<CacheBlock<S>>| block.strong_count() == 0;
    if known.iter().flatten().any(gone) {
        let ours = ours().into_iter().flatten();
        let known = known.iter_mut().flatten();
        for (known, ours) in known.zip(ours).filter(|(known, _)| gone(known)) {
            *known = ours;
        }
    }
}

/// Hold what a session needs that goes on after these stretches; `None` if some of it is gone.
fn adopt<S: Store>(path: &[&StretchBlocks<S>], specs: &[TableSpec]) -> Option<Adopted<S>> {
    let table = |(cache, spec): (usize, &TableSpec)| {
        let all = path.iter().flat_map(|stretch| stretch[cache].iter());
        let len = path.iter().map(|stretch| stretch[cache].len()).sum::<usize>() * spec.positions;
        let first = spec.first_block(len);
        let blocks = all.skip(first).map(Weak::upgrade).collect::<Option<Vec<_>>>()?;
        Some((first, blocks))
    };
    specs.iter().enumerate().map(table).collect()
}
