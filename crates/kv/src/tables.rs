//! [`Tables`]: what one session holds of all caches.

use std::sync::Arc;

use crate::states::{StateRows, StateSpec, StateStep, StateTables, StepPlace};
use crate::{BlockPool, BlockTable, CachedRows, ChosenBlocks, Error, Result, Store, TableSpec};

/// The tables of a session, and the tokens that its positions stand for.
///
/// A step goes [`prepare`](Self::prepare), write and read [`rows`](Self::rows), [`extend`](Self::extend); one that fails
/// ends with [`abandon`](Self::abandon) and leaves everything as it was. Rows are tentative until
/// [`commit`](Self::commit), which lets windows leave blocks behind and other sessions share what is whole.
pub struct Tables<S: Store> {
    pool: BlockPool<S>,
    tables: Vec<BlockTable<S>>,
    states: StateTables<S>,
    specs: Arc<[TableSpec]>,
    tokens: Vec<u32>,
    /// Positions whose rows it has: all, or fewer where some were let go of or lost.
    held: usize,
    committed: usize,
    capacity: usize,
    family: Option<u64>,
    /// Positions of a stretch: whole blocks of every cache.
    stretch: usize,
    /// Stretches that others were told of.
    registered: usize,
}

impl<S: Store> Tables<S> {
    /// An empty session that may hold `capacity` positions; `specs` has one entry per cache. Sessions of one `family`
    /// compute the same from the same tokens and share it; `None`: this one shares with its forks alone.
    pub fn new(
        pool: &BlockPool<S>,
        specs: Arc<[TableSpec]>,
        capacity: usize,
        family: Option<u64>,
    ) -> Tables<S> {
        Tables::with_states(pool, specs, Arc::from([]), capacity, family)
    }

    /// The same with caches of states beside, which only forks share: a `family` is for sessions without any.
    pub fn with_states(
        pool: &BlockPool<S>,
        specs: Arc<[TableSpec]>,
        states: Arc<[StateSpec]>,
        capacity: usize,
        family: Option<u64>,
    ) -> Tables<S> {
        let family = family.filter(|_| states.is_empty());
        let states = StateTables::new(pool.clone(), states);
        let tables = specs.iter().map(|spec| BlockTable::new(pool.clone(), *spec)).collect();
        let stretch = specs.iter().fold(1, |all, spec| lcm(all, spec.positions));
        let (tokens, pool) = (Vec::new(), pool.clone());
        let (held, committed, registered) = (0, 0, 0);
        Tables {
            pool,
            tables,
            states,
            specs,
            tokens,
            held,
            committed,
            capacity,
            family,
            stretch,
            registered,
        }
    }

    /// Positions held, tentative ones included.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether no position is held.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens that the positions stand for.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Most positions it may hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What each cache was made for.
    pub fn specs(&self) -> &Arc<[TableSpec]> {
        &self.specs
    }

    /// What each cache of states was made for.
    pub fn state_specs(&self) -> &Arc<[StateSpec]> {
        self.states.specs()
    }

    /// Positions whose rows it has: [`len`](Self::len), but where some were [let go of](Self::let_go) or
    /// [lost](Self::lose) and are still to be computed again.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes of the blocks held, in memory or on disk. Blocks shared with others count in each.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(BlockTable::bytes).sum::<u64>() + self.states.bytes()
    }

    /// Make the blocks exist that positions `held..new_len` fall into, for this session alone to write, and have those in
    /// memory that are read whatever is chosen. `len` stays.
    ///
    /// # Errors
    /// [`Error::Capacity`], [`Error::Budget`], [`Error::Memory`], [`Error::Disk`], [`Error::Lost`]; the session then holds
    /// what it held.
    pub fn prepare(&mut self, new_len: usize) -> Result<()> {
        self.prepare_step(new_len, StepPlace::default(), &mut || false)
    }

    /// The same for rows of which it is known where they stand: states near some places are kept. Where there is no room, in
    /// memory or on disk, `make_room` has others let go of something, for as long as it says that they did; then ways back to earlier states
    /// are given up.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_step(
        &mut self,
        new_len: usize,
        place: StepPlace,
        make_room: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        if new_len > self.capacity {
            return Err(Error::Capacity { capacity: self.capacity, wanted: new_len });
        }
        let new = self.held..new_len;
        let done = loop {
            let done = self.tables.iter_mut().try_for_each(|table| table.prepare(new.clone()));
            let states = |()| self.states.prepare(new.clone(), self.committed, place);
            match done.and_then(states) {
                Err(Error::Budget { .. }) if make_room() || self.states.give_up() => {}
                // blocks that nobody holds need no disk, and leave memory and room on it
                Err(Error::Disk(error)) if error.is_full() && make_room() => {}
                done => break done,
            }
        };
        if done.is_err() {
            self.abandon();
        }
        done
    }

    /// What a step up to `new_len` reads and writes, cache by cache, each in ascending order.
    ///
    /// # Panics
    /// If it was not [prepared](Self::prepare).
    pub fn rows(
        &mut self,
        new_len: usize,
    ) -> impl Iterator<Item = impl Iterator<Item = CachedRows<'_, S::Memory>>> {
        self.step(new_len).map(|(_, rows)| rows)
    }

    /// The same, each with the blocks before that a step takes as it chooses.
    ///
    /// # Panics
    /// As [`rows`](Self::rows).
    pub fn step(
        &mut self,
        new_len: usize,
    ) -> impl Iterator<Item = (ChosenBlocks<'_, S>, impl Iterator<Item = CachedRows<'_, S::Memory>>)>
    {
        let new = self.held..new_len;
        self.tables.iter_mut().map(move |table| table.rows(new.clone()))
    }

    /// The same, and the caches of states beside.
    ///
    /// # Panics
    /// As [`rows`](Self::rows).
    #[expect(clippy::type_complexity, reason = "of two lists each")]
    pub fn step_of_all(
        &mut self,
        new_len: usize,
    ) -> (
        impl Iterator<Item = (ChosenBlocks<'_, S>, impl Iterator<Item = CachedRows<'_, S::Memory>>)>,
        (Option<StateStep>, Vec<StateRows<'_, S::Memory>>),
    ) {
        let new = self.held..new_len;
        let tables = self.tables.iter_mut().map(move |table| table.rows(new.clone()));
        (tables, self.states.step())
    }

    /// Rows of these tokens were written: hold them, tentatively.
    ///
    /// # Errors
    /// [`Error::Length`] if they were not prepared, or rows before them are missing.
    pub fn extend(&mut self, tokens: &[u32]) -> Result<()> {
        let wanted = self.len() + tokens.len();
        if self.held < self.len() {
            return Err(Error::Length { len: self.held, wanted });
        }
        self.hold(wanted)?;
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Rows up to `len` were written.
    fn hold(&mut self, wanted: usize) -> Result<()> {
        let prepared = self.tables.iter().map(BlockTable::room);
        let len = prepared.fold(self.capacity, usize::min);
        if wanted > len || !self.states.is_ready(wanted) {
            return Err(Error::Length { len: len.min(self.held), wanted });
        }
        self.states.extend();
        let new = self.held..wanted;
        self.tables.iter_mut().for_each(|table| table.seal(&new));
        self.held = wanted;
        Ok(())
    }

    /// Rows that were missing were computed again, up to position `held`, as far as tokens go.
    ///
    /// # Errors
    /// [`Error::Length`] if they were not prepared.
    pub fn restore(&mut self, held: usize) -> Result<()> {
        self.check(held)?;
        self.hold(held)?;
        let committed = self.committed.min(held);
        self.tables.iter_mut().for_each(|table| table.leave(committed));
        Ok(())
    }

    /// Let go of all rows: they are computed again from its tokens when they are wanted.
    pub fn let_go(&mut self) {
        self.lose(0);
    }

    /// Rows from `position` on are lost, or cannot be relied on.
    pub fn lose(&mut self, position: usize) {
        self.held = self.reached(position.min(self.held));
        self.registered = self.registered.min(self.held / self.stretch);
        self.abandon();
    }

    /// Let go of blocks that were prepared for rows that never came.
    pub fn abandon(&mut self) {
        let len = self.held;
        self.tables.iter_mut().for_each(|table| table.cut(len));
        self.states.cut(len);
    }

    /// Make the first `len` positions permanent: a window leaves behind what no later query sees, and other sessions of
    /// the family may share whole blocks.
    ///
    /// # Errors
    /// [`Error::Length`] if it holds fewer.
    pub fn commit(&mut self, len: usize) -> Result<()> {
        self.check(len)?;
        if len > self.committed {
            self.committed = len;
            let len = len.min(self.held);
            self.register(len);
            self.tables.iter_mut().for_each(|table| table.leave(len));
            self.states.settle(self.committed);
        }
        Ok(())
    }

    fn register(&mut self, len: usize) {
        let (n, stretch) = (len / self.stretch, self.stretch);
        let Some(family) = self.family.filter(|_| n > self.registered) else { return };
        let blocks = |i: usize| {
            let positions = i * stretch..(i + 1) * stretch;
            self.tables.iter().map(|table| table.weak(positions.clone())).collect()
        };
        let tokens = self.tokens[..n * stretch].chunks_exact(stretch);
        self.pool.prefixes().register(family, tokens, blocks);
        self.registered = n;
    }

    /// Keep the first `len` positions only, or fewer if a window has left behind what a query at `len` sees, or there is no
    /// state to go on from. Returns how many are kept; whoever needs the others computes them again. Tentative ones can be
    /// taken back one by one all the same: rows that this takes are then [computed again](Self::held) from their tokens.
    ///
    /// # Errors
    /// [`Error::Length`] if it holds fewer.
    pub fn truncate(&mut self, len: usize) -> Result<usize> {
        self.check(len)?;
        let reached = self.reached(len);
        let len = if len >= self.committed { len } else { reached };
        self.tokens.truncate(len);
        self.held = self.held.min(reached);
        self.committed = self.committed.min(len);
        self.registered = self.registered.min(len / self.stretch);
        self.abandon();
        Ok(len)
    }

    fn reached(&self, len: usize) -> usize {
        let len = self.states.reached(len);
        if self.tables.iter().all(|table| table.reaches(len)) { len } else { 0 }
    }

    /// Another session with the first `len` positions, or with none if a window has left behind what a query at `len`
    /// sees. The two share blocks until one of them writes there.
    ///
    /// # Errors
    /// [`Error::Length`] if it holds fewer.
    pub fn fork(&self, len: usize) -> Result<Tables<S>> {
        self.check(len)?;
        let held = self.reached(len);
        let len = if len >= self.committed { len } else { held };
        Ok(Tables {
            pool: self.pool.clone(),
            tables: self.tables.iter().map(|table| table.fork(held)).collect(),
            states: self.states.fork(held),
            specs: Arc::clone(&self.specs),
            tokens: self.tokens[..len].to_vec(),
            held: self.held.min(held),
            committed: self.committed.min(len),
            registered: self.registered.min(len / self.stretch),
            ..*self
        })
    }

    /// Take over the longest prefix of `tokens` that another session of the family has committed, in whole blocks, if it
    /// is longer than what this one holds, and goes on from that. Returns how many positions were gained; they are
    /// committed.
    pub fn adopt(&mut self, tokens: &[u32]) -> usize {
        let (held, family) = (self.len(), self.family);
        let tokens = &tokens[..tokens.len().min(self.capacity)];
        let goes_on = self.held == held && tokens.starts_with(&self.tokens);
        let Some(family) = family.filter(|_| goes_on) else { return 0 };
        let stretches = tokens.chunks_exact(self.stretch);
        let prefixes = self.pool.prefixes();
        let found = prefixes.find(family, stretches, held / self.stretch, &self.specs);
        drop(prefixes);
        let Some((n, adopted)) = found else { return 0 };
        for (table, (first, blocks)) in self.tables.iter_mut().zip(adopted) {
            table.adopt(first, blocks);
        }
        self.tokens.extend_from_slice(&tokens[held..n * self.stretch]);
        (self.held, self.committed, self.registered) = (self.len(), self.len(), n);
        self.len() - held
    }

    /// Its tables, one for each cache.
    pub(crate) fn tables(&self) -> &[BlockTable<S>] {
        &self.tables
    }

    /// Its caches of states.
    pub(crate) fn states(&self) -> &StateTables<S> {
        &self.states
    }

    /// The same, to be filled.
    pub(crate) fn parts_mut(&mut self) -> (&mut [BlockTable<S>], &mut StateTables<S>) {
        (&mut self.tables, &mut self.states)
    }

    /// The pool of its blocks.
    pub(crate) fn pool(&self) -> &BlockPool<S> {
        &self.pool
    }

    /// Positions that stay.
    pub(crate) fn committed(&self) -> usize {
        self.committed
    }

    /// Blocks were brought in that have the rows of these tokens: hold them, committed.
    pub(crate) fn filled(&mut self, tokens: &[u32]) {
        self.tokens = tokens.to_vec();
        self.held = tokens.len();
        self.committed = self.held;
        self.register(self.held);
        let len = self.held;
        self.tables.iter_mut().for_each(|table| table.leave(len));
    }

    fn check(&self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(Error::Length { len: self.len(), wanted: len });
        }
        Ok(())
    }
}

/// The least number that both divide.
fn lcm(a: usize, b: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    a / gcd(a, b).max(1) * b
}

impl<S: Store> std::fmt::Debug for Tables<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Tables");
        out.field("len", &self.len()).field("committed", &self.committed);
        out.field("capacity", &self.capacity).field("tables", &self.tables).finish_non_exhaustive()
    }
}
