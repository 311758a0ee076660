//! [`StateTables`]: what recurs, of one session: numbers that every position changes, and the rows they have not taken in yet.
//!
//! A **snapshot** is the state of every cache after some position. A step reads the latest one and computes its rows from it
//! and from the rows since, which lie in a **ring** by position; it makes a new snapshot where that has become worth its
//! while. So the last rows can be taken back for nothing, and what is further back is reached at an earlier snapshot: of
//! those a few are kept, at the ends of prompts and turns and every so many positions, fewer the longer ago. A step of many
//! rows writes another ring; the one before stays until the next step or commit, so that the latest step can be taken back
//! whole.

use std::ops::Range;
use std::sync::Arc;

use crate::image::StatesImage;
use crate::{BlockAccess, BlockKind, BlockPool, CacheBlock, Result, Store};

/// Rows that a ring has.
const ROWS: usize = StateSpec::ROWS;
/// Committed rows beside a snapshot that are worth a new one.
const FOLD: usize = 8;
/// Rows behind a snapshot that a step makes of its own rows.
const BACK: usize = 16;
/// Positions between two that are kept, but for those at ends of prompts and turns.
const EVERY: usize = 1024;

/// What a cache of states has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateSpec {
    /// Bytes of a state.
    pub state: usize,
    /// Bytes of a row.
    pub row: usize,
    /// Which memory of the store its blocks lie in: see [`BlockKind`].
    pub area: usize,
}

impl StateSpec {
    /// Of so many bytes, in a store that has one memory.
    pub const fn of(state: usize, row: usize) -> StateSpec {
        StateSpec { state, row, area: 0 }
    }

    /// Rows of a ring.
    pub const ROWS: usize = 32;
    /// Most states of a session: one that a step makes, the one it starts from, and those to go back to.
    pub const MOST_STATES: usize = 6;
    /// Those without which no step runs: what it makes, and what it starts from.
    pub const LEAST_STATES: usize = 2;
    /// Most rings: a step that writes another one reads the one before.
    pub const RINGS: usize = 2;

    /// Bytes of a ring.
    pub(crate) fn ring_bytes(&self) -> usize {
        ROWS * self.row
    }
}

/// What a step's rows are to those who come back later: they come to the ends of prompts and turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepPlace {
    /// The first row begins a prompt: before it a turn has ended.
    pub begins_prompt: bool,
    /// The last row ends a prompt.
    pub ends_prompt: bool,
    /// The rows are made up: nobody can compute them again, so a state is made at their very end, and kept like those at
    /// ends of turns.
    pub made_up: bool,
}

/// The state of every cache after the first `position` positions.
struct Snapshot<S: Store> {
    position: usize,
    blocks: Vec<Arc<CacheBlock<S>>>,
    kept: Kept,
}

/// How long a snapshot stays that is not among the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    /// Until the next one.
    Not,
    /// As long as it is worth its memory.
    Longer,
    /// Until another prompt ends: a reply is begun anew more often than anything else.
    PromptEnd,
}

/// By their numbers in images.
const KEPT: [Kept; 3] = [Kept::Not, Kept::Longer, Kept::PromptEnd];

impl<S: Store> Clone for Snapshot<S> {
    fn clone(&self) -> Self {
        Snapshot { blocks: self.blocks.clone(), ..*self }
    }
}

/// Where the rows of a step stand, alike for all caches of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateStep {
    /// The snapshot that it starts from: positions that this has taken in.
    pub base: usize,
    /// Its rows: those between `base` and its first lie in the ring.
    pub new: Range<usize>,
    /// After which position it makes a new snapshot.
    pub fold: Option<usize>,
    /// Rows from here on go into the ring, also those before the step if it has another ring then.
    pub stored_from: usize,
}

impl StateStep {
    /// Where the row of a position lies in a ring, in rows.
    pub fn slot(position: usize) -> usize {
        position % ROWS
    }
}

/// The memory of one cache of states in a step.
#[derive(Debug)]
pub struct StateRows<'a, M> {
    /// The state at `base`; zeros at position 0.
    pub base: Option<&'a M>,
    /// Where the new one goes.
    pub fold: Option<&'a mut M>,
    /// Rows before the step; to be written where those of the step go into it, too.
    pub ring: BlockAccess<'a, M>,
    /// Where rows go if those of the step would overwrite others that it reads.
    pub next: Option<&'a mut M>,
}

/// The states of one session.
pub(crate) struct StateTables<S: Store> {
    pool: BlockPool<S>,
    specs: Arc<[StateSpec]>,
    /// Ascending; of position 0 there is none.
    snapshots: Vec<Snapshot<S>>,
    /// By cache.
    rings: Vec<Arc<CacheBlock<S>>>,
    /// Rows from here on are in the rings, as far as positions are held.
    rows_from: usize,
    /// Of the latest step, if it has written other rings.
    replaced: Option<Replaced<S>>,
    step: Option<Prepared<S>>,
}

/// The rings before a step that wrote others.
struct Replaced<S: Store> {
    rings: Vec<Arc<CacheBlock<S>>>,
    rows_from: usize,
    /// Where its rows end and the step begins.
    end: usize,
}

impl<S: Store> Replaced<S> {
    /// Whether it has all rows from a snapshot's position to `len`.
    fn reaches(&self, base: usize, len: usize) -> bool {
        self.rows_from <= base && len <= self.end
    }
}

struct Prepared<S: Store> {
    step: StateStep,
    /// What the snapshot that it starts from is worth once the step is done.
    mark: Kept,
    fold: Option<Snapshot<S>>,
    next: Vec<Arc<CacheBlock<S>>>,
}

impl<S: Store> StateTables<S> {
    pub(crate) fn new(pool: BlockPool<S>, specs: Arc<[StateSpec]>) -> StateTables<S> {
        let (snapshots, rings) = (Vec::new(), Vec::new());
        StateTables { pool, specs, snapshots, rings, rows_from: 0, replaced: None, step: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// What its caches have to know.
    pub(crate) fn specs(&self) -> &Arc<[StateSpec]> {
        &self.specs
    }

    /// Bytes of the blocks it holds, shared ones included.
    pub(crate) fn bytes(&self) -> u64 {
        let states: usize = self.specs.iter().map(|spec| spec.state).sum();
        let replaced = self.replaced.iter().flat_map(|before| &before.rings);
        let rings =
            self.rings.iter().chain(replaced).map(|block| block.kind().bytes).sum::<usize>();
        (self.snapshots.len() * states + rings) as u64
    }

    fn base(&self) -> usize {
        self.snapshots.last().map_or(0, |last| last.position)
    }

    /// The first `committed` positions stay: nobody takes back the step that wrote them.
    pub(crate) fn settle(&mut self, committed: usize) {
        self.replaced.take_if(|before| before.end < committed);
    }

    /// Make ready for a step with rows at `new`, of a session whose first `committed` positions are.
    ///
    /// # Errors
    /// [`Error::Budget`](crate::Error::Budget), [`Error::Memory`](crate::Error::Memory); nothing is changed then, but that
    /// there may be fewer ways back.
    pub(crate) fn prepare(
        &mut self,
        new: Range<usize>,
        committed: usize,
        place: StepPlace,
    ) -> Result<()> {
        self.abandon();
        // another step than the latest comes: there is room for one ring beside the one at hand
        self.replaced = None;
        if self.is_empty() {
            return Ok(());
        }
        let StepPlace { begins_prompt, ends_prompt, made_up } = place;
        let base = self.base();
        let is_long = new.end - base > ROWS;
        let settled = committed.min(new.start);
        let fold = if made_up {
            Some(new.end)
        } else if is_long || ends_prompt && new.end >= base + BACK {
            Some(new.end - BACK).filter(|fold| *fold > base)
        } else {
            Some(settled).filter(|settled| *settled >= base + FOLD)
        };
        // near the end of a turn, or of a prompt that ends soon after it
        let mark = match () {
            () if ends_prompt && fold.is_none() => Kept::PromptEnd,
            () if begins_prompt => Kept::Longer,
            () => Kept::Not,
        };
        let stored_from = fold.filter(|_| is_long).unwrap_or(new.start);
        let blocks = match fold {
            None => Vec::new(),
            Some(_) => {
                self.thin(new.end, committed);
                self.new_blocks(|spec| spec.state)?
            }
        };
        let fold_to = fold.map(|position| {
            let known = self.snapshots.iter().rfind(|known| known.kept > Kept::Not);
            let before = match mark {
                Kept::Not => known.map_or(0, |kept| kept.position),
                Kept::Longer | Kept::PromptEnd => base,
            };
            let far = position >= before + EVERY;
            let kept = match () {
                () if ends_prompt => Kept::PromptEnd,
                () if far || made_up => Kept::Longer,
                () => Kept::Not,
            };
            Snapshot { position, blocks, kept }
        });
        if self.rings.is_empty() {
            self.rings = self.new_blocks(StateSpec::ring_bytes)?;
        }
        let next = if is_long { self.new_blocks(StateSpec::ring_bytes)? } else { Vec::new() };
        if !is_long {
            for ring in &mut self.rings {
                if Arc::get_mut(ring).and_then(CacheBlock::memory_mut).is_none() {
                    *ring = self.pool.copy(ring)?;
                }
            }
            // what new rows overwrite is gone, whatever becomes of them
            self.rows_from = self.rows_from.max(new.end.saturating_sub(ROWS));
        }
        let step = StateStep { base, new, fold, stored_from };
        self.step = Some(Prepared { step, mark, fold: fold_to, next });
        Ok(())
    }

    /// A block for each cache.
    fn new_blocks(&self, bytes: impl Fn(&StateSpec) -> usize) -> Result<Vec<Arc<CacheBlock<S>>>> {
        let kind = |spec: &StateSpec| BlockKind { bytes: bytes(spec), area: spec.area };
        self.specs.iter().map(|spec| self.pool.block(kind(spec))).collect()
    }

    /// Give up a way back, if there is one beside what the next step starts from: that before the latest step, then the longest, but the end of the latest
    /// prompt after all others. What forks have too frees nothing before the last of them gives it up: it goes at the end.
    pub(crate) fn give_up(&mut self) -> bool {
        if self.replaced.take().is_some() {
            return true;
        }
        let older = self.snapshots.len().saturating_sub(1);
        let prompt_end = self.snapshots.iter().rposition(|known| known.kept == Kept::PromptEnd);
        let is_shared =
            |i: usize| self.snapshots[i].blocks.iter().any(|block| Arc::strong_count(block) > 1);
        let least = (0..older).min_by_key(|i| (is_shared(*i), prompt_end == Some(*i), *i));
        least.map(|least| self.snapshots.remove(least)).is_some()
    }

    /// The step at hand, and the memory of each cache.
    ///
    /// # Panics
    /// If it was not prepared.
    pub(crate) fn step(&mut self) -> (Option<StateStep>, Vec<StateRows<'_, S::Memory>>) {
        let Some(Prepared { step, fold, next, .. }) = &mut self.step else {
            return (None, Vec::new());
        };
        let (base, is_long) = (self.snapshots.last(), !next.is_empty());
        let mut folds = fold.iter_mut().flat_map(|fold| &mut fold.blocks);
        let mut nexts = next.iter_mut();
        let rows = self.rings.iter_mut().enumerate().map(|(i, ring)| StateRows {
            base: base.map(|base| base.blocks[i].memory().expect("states are not sealed")),
            fold: folds.next().map(memory_mut),
            ring: match is_long {
                true => BlockAccess::Read(ring.memory().expect("rows are not sealed")),
                false => BlockAccess::Write(memory_mut(ring)),
            },
            next: nexts.next().map(memory_mut),
        });
        (Some(step.clone()), rows.collect())
    }

    /// Whether a step was prepared whose last row is before `end`.
    pub(crate) fn is_ready(&self, end: usize) -> bool {
        let prepared = self.step.as_ref().map(|prepared| prepared.step.new.end);
        self.is_empty() || prepared == Some(end)
    }

    /// The step's rows were written.
    pub(crate) fn extend(&mut self) {
        let Some(Prepared { step, mark, fold, next }) = self.step.take() else { return };
        if let Some(last) = self.snapshots.last_mut() {
            last.kept = last.kept.max(mark);
        }
        if !next.is_empty() {
            let rings = std::mem::replace(&mut self.rings, next);
            let rows_from = std::mem::replace(&mut self.rows_from, step.stored_from);
            self.replaced = Some(Replaced { rings, rows_from, end: step.new.start });
        }
        self.snapshots.extend(fold);
    }

    /// Make room for another snapshot of a session that will have `len` positions: the latest one stays, the one from which
    /// committed rows go on, and the one at the end of the latest prompt; of the others kept a few, which are the further
    /// apart the longer ago they were.
    fn thin(&mut self, len: usize, committed: usize) {
        let stays = |snapshots: &[Snapshot<S>], i: usize| {
            let (snapshot, after) = (&snapshots[i], &snapshots[i + 1..]);
            let next = after.first().map(|next| next.position);
            let is_settled = snapshot.position <= committed;
            let ends_prompt = |snapshot: &Snapshot<S>| snapshot.kept == Kept::PromptEnd;
            next.is_none_or(|next| is_settled && next > committed)
                || ends_prompt(snapshot) && !after.iter().any(ends_prompt)
        };
        for i in (0..self.snapshots.len()).rev() {
            if self.snapshots[i].kept == Kept::Not && !stays(&self.snapshots, i) {
                self.snapshots.remove(i);
            }
        }
        while self.snapshots.len() >= StateSpec::MOST_STATES {
            let position = |i: usize| self.snapshots[i].position as f64;
            // how much longer the way back becomes without it, beside how long it is
            let loss = |i: usize| {
                let before = if i == 0 { 0.0 } else { position(i - 1) };
                (position(i + 1) - before) / (len as f64 - position(i) + 1.0)
            };
            let old = (0..self.snapshots.len()).filter(|i| !stays(&self.snapshots, *i));
            let least = old.min_by(|a, b| loss(*a).total_cmp(&loss(*b)));
            self.snapshots.remove(least.expect("three stay at most"));
        }
    }

    /// Nothing comes of the step at hand.
    pub(crate) fn abandon(&mut self) {
        self.step = None;
    }

    /// The greatest position up to `len` from which it goes on.
    pub(crate) fn reached(&self, len: usize) -> usize {
        if self.is_empty() {
            return len;
        }
        let base = self.snapshots.iter().rfind(|snapshot| snapshot.position <= len);
        let base = base.map_or(0, |snapshot| snapshot.position);
        let replaced = self.replaced.as_ref().is_some_and(|before| before.reaches(base, len));
        if self.rows_from <= base || replaced { len } else { base }
    }

    /// Let go of what is after `len`, a position that it reaches.
    pub(crate) fn cut(&mut self, len: usize) {
        self.abandon();
        self.snapshots.retain(|snapshot| snapshot.position <= len);
        if len == 0 {
            // whoever lets go of all may not come back for long
            self.rings.clear();
            self.replaced = None;
        }
        let base = self.base();
        if self.rows_from > base {
            match self.replaced.take() {
                Some(before) if before.reaches(base, len) => {
                    (self.rings, self.rows_from) = (before.rings, before.rows_from);
                }
                // there are no rows between both
                _ => self.rows_from = base,
            }
        }
    }

    /// What there is of it.
    pub(crate) fn image(&self) -> StatesImage {
        let stays = |kept| KEPT.iter().position(|known| *known == kept).unwrap_or_default() as u8;
        let snapshots = self.snapshots.iter().map(|known| (known.position, stays(known.kept)));
        let (snapshots, has_rings) = (snapshots.collect(), !self.rings.is_empty());
        StatesImage { snapshots, rows_from: self.rows_from, has_rings }
    }

    /// Its blocks in the order of an image.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<CacheBlock<S>>> {
        self.snapshots.iter().flat_map(|known| &known.blocks).chain(&self.rings)
    }

    /// Have what an image says of the first `len` positions, with the blocks of that.
    pub(crate) fn take_image(
        &mut self,
        image: &StatesImage,
        len: usize,
        blocks: &mut dyn Iterator<Item = Arc<CacheBlock<S>>>,
    ) {
        let n = self.specs.len();
        let reached = image.snapshots.iter().filter(|(position, _)| *position <= len);
        let snapshot = |(position, stays): &(usize, u8)| Snapshot {
            position: *position,
            blocks: (&mut *blocks).take(n).collect(),
            kept: KEPT.get(usize::from(*stays)).copied().unwrap_or(Kept::Not),
        };
        self.snapshots = reached.map(snapshot).collect();
        self.rings = if image.has_rings { blocks.take(n).collect() } else { Vec::new() };
        self.rows_from = image.rows_from;
        self.replaced = None;
        self.cut(len);
    }

    pub(crate) fn fork(&self, len: usize) -> StateTables<S> {
        let replaced = self.replaced.as_ref().map(|before| Replaced {
            rings: before.rings.clone(),
            rows_from: before.rows_from,
            end: before.end,
        });
        let mut fork = StateTables {
            pool: self.pool.clone(),
            specs: Arc::clone(&self.specs),
            snapshots: self.snapshots.clone(),
            rings: self.rings.clone(),
            rows_from: self.rows_from,
            replaced,
            step: None,
        };
        fork.cut(len);
        // of the step that it may have been taken back from it knows nothing
        fork.replaced = None;
        fork
    }
}

fn memory_mut<S: Store>(block: &mut Arc<CacheBlock<S>>) -> &mut S::Memory {
    let own = Arc::get_mut(block).and_then(CacheBlock::memory_mut);
    own.expect("`prepare` made the block this table's own")
}
