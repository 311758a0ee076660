//! [`SessionStore`]: sessions on disk, by name, over restarts.
//!
//! A session is a manifest over its blocks; what is where in it stands in an image. A block that is on disk already, as it is,
//! is not written again. Whoever has the folder bounds what it takes: where there is no room, the session goes that was used
//! longest ago, if the store is one that lets go.

mod held;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::HeldRecords;
use crate::image::{SessionImage, TableKinds, WantedRecord};
use crate::{
    BlockKind, BlockStore, CacheBlock, ContentKey, DiskError, DiskLayer, DiskOptions, Error,
    KeptRecords, Limit, RecordId, Result, StateSpec, Store, TableSpec, Tables,
};

use held::{HeldSession, digest};

pub use held::SessionPut;

/// Most sessions of a store that lets go.
const MOST_SESSIONS: usize = 4096;
/// Bytes that are read to learn how fast a disk is.
const PROBE: u64 = 4 << 20;
/// How often they are read, if that takes no longer than this.
const PROBES: usize = 3;
const PROBE_TIME: Duration = Duration::from_millis(20);
/// Blocks that are asked for ahead of the one that is taken.
const AHEAD: usize = 16;
/// Bytes on their way to disk, and as many on their way back.
const BUFFER: usize = 16 << 20;

/// How a [`SessionStore`] works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStoreOptions {
    /// Most bytes of its file; `None`: as many as the disk has.
    pub max_bytes: Option<u64>,
    /// Whether the session that was used longest ago goes where there is no room for another.
    pub lets_go: bool,
}

/// Sessions in a folder that one process has, for all models of that.
#[derive(Debug)]
pub struct SessionStore {
    blocks: BlockStore,
    options: SessionStoreOptions,
    /// Bytes per second that were read of late, once some were.
    rate: Mutex<Option<f64>>,
    /// Sessions that went when it was opened.
    let_go: usize,
}

/// What is kept under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAbout {
    /// What its numbers depend on.
    pub key: ContentKey,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// What the caller wrote beside them.
    pub note: Vec<u8>,
    /// Bytes of its blocks.
    pub bytes: u64,
}

/// A part of a session on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionPart {
    /// Its first so many positions.
    pub positions: usize,
    /// Bytes of their blocks.
    pub bytes: u64,
    /// Time to read these, as fast as others were read.
    pub time: Duration,
}

/// What keeping a session did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionKept {
    /// Positions that are on disk now.
    pub positions: usize,
    /// Bytes of their blocks.
    pub bytes: u64,
    /// Bytes of those that were not there yet.
    pub written: u64,
    /// Sessions that had to go.
    pub let_go: usize,
}

impl SessionStore {
    /// The sessions in a folder, which is made if need be; those beyond the bound go, and what is wrong with a manifest is
    /// told by [`about`](Self::about).
    ///
    /// # Errors
    /// [`DiskError::Locked`] if another process has it; what the system says.
    pub fn open(folder: &Path, options: SessionStoreOptions) -> Result<SessionStore, DiskError> {
        SessionStore::open_over(folder, options, &DiskLayer::default())
    }

    /// The same with something between the file and the store.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_over(
        folder: &Path,
        options: SessionStoreOptions,
        layer: &DiskLayer,
    ) -> Result<SessionStore, DiskError> {
        let disk = DiskOptions {
            max_bytes: options.max_bytes,
            queue_bytes: BUFFER,
            ahead_bytes: BUFFER,
            keep: true,
            ..DiskOptions::default()
        };
        let blocks = BlockStore::open_with(folder, disk, |file| layer.over(file))?;
        let mut store = SessionStore { blocks, options, rate: Mutex::default(), let_go: 0 };
        // while one cannot be read nobody knows what is free
        let is_known = !store.names().iter().any(|name| store.blocks.is_out_of_reach(name));
        if let Some(most) = options.max_bytes.filter(|_| is_known)
            && store.blocks.stats().file_bytes > most
        {
            while options.lets_go && store.blocks.stats().bytes > most && store.make_room("")? {
                store.let_go += 1;
            }
            // what is left may lie at the end
            store.blocks.give_back();
        }
        Ok(store)
    }

    /// Sessions that went when it was opened, for there were more than it may have.
    pub fn let_go_at_open(&self) -> usize {
        self.let_go
    }

    /// Where its files are.
    pub fn folder(&self) -> PathBuf {
        self.blocks.kept_folder()
    }

    /// What there is, in the order in which it was used, those of longest ago first.
    pub fn names(&self) -> Vec<String> {
        self.blocks.kept_by_use()
    }

    /// What is kept under a name.
    ///
    /// # Errors
    /// [`DiskError::Vanished`] if nothing is; what is wrong with it.
    pub fn about(&self, name: &str) -> Result<SessionAbout, DiskError> {
        let about = self.blocks.kept_about(name)?;
        let image = self.image(name, &about.note)?;
        let SessionImage { tokens, note, .. } = image;
        Ok(SessionAbout { key: about.key, tokens, note, bytes: about.bytes })
    }

    /// What a note says.
    fn image(&self, name: &str, note: &[u8]) -> Result<SessionImage, DiskError> {
        let path = || self.blocks.manifest(name).unwrap_or_default();
        if let Some((expected, found)) = SessionImage::other_version(note) {
            let (expected, found) = (expected.to_string(), found.to_string());
            return Err(DiskError::Manifest { path: path(), what: "version", expected, found });
        }
        SessionImage::from_bytes(note).ok_or_else(|| self.strange(name))
    }

    /// A manifest that is none of a session such as those that are asked for.
    fn strange(&self, name: &str) -> DiskError {
        let (expected, found) = ("an image of a session".into(), "something else".into());
        let path = self.blocks.manifest(name).unwrap_or_default();
        DiskError::Manifest { path, what: "note", expected, found }
    }

    /// Hold what is kept under a name.
    fn held<'a>(&'a self, name: &'a str) -> Result<HeldSession<'a>, DiskError> {
        let HeldRecords { key, records: KeptRecords { ids, note } } =
            self.blocks.hold_kept(name)?;
        let image = SessionImage::default();
        let mut held = HeldSession { store: self, name, key, image, ids };
        held.image = self.image(name, &note)?;
        Ok(held)
    }

    /// How much of the first `len` positions of a session can be had, for tables of these kinds, and how long that takes. The
    /// first time that something is asked for, some of it is read to learn how fast the disk is.
    ///
    /// # Errors
    /// As [`about`](Self::about); [`DiskError::Manifest`] for a session with other tables.
    pub fn part(
        &self,
        name: &str,
        (specs, states): (&[TableSpec], &[StateSpec]),
        len: usize,
    ) -> Result<SessionPart, DiskError> {
        let kinds = TableKinds { specs, states };
        let held = self.held(name)?;
        held.check(kinds)?;
        let positions = held.image.reached(kinds, len);
        let wanted = if positions == 0 { Vec::new() } else { held.image.wanted(kinds, positions) };
        let ids = held.ids_of(&wanted)?;
        let bytes = wanted.iter().map(|one| one.bytes as u64).sum();
        let rate = match self.rate() {
            _ if bytes == 0 => return Ok(SessionPart { positions, ..SessionPart::default() }),
            Some(rate) => rate,
            None => self.probe(&wanted, &ids)?,
        };
        // blocks of another size than they should have may be read in no time
        let time = Duration::try_from_secs_f64(bytes as f64 / rate).unwrap_or(Duration::MAX);
        Ok(SessionPart { positions, bytes, time })
    }

    fn rate(&self) -> Option<f64> {
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes took so long to read.
    fn read(&self, bytes: u64, time: Duration) {
        let found = bytes as f64 / time.as_secs_f64().max(1e-9);
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        // what is small says more of waking up than of the disk
        let new = match *rate {
            Some(old) if bytes < PROBE / 4 => old.max(found),
            Some(old) => (old + found) / 2.0,
            None => found,
        };
        *rate = Some(new);
    }

    /// Read the first of these blocks to learn how fast that is, in bytes per second.
    fn probe(&self, wanted: &[WantedRecord], ids: &[RecordId]) -> Result<f64, DiskError> {
        let mut bytes = 0;
        let few = wanted.iter().take_while(|one| {
            let first = bytes == 0;
            bytes += one.bytes as u64;
            first || bytes <= PROBE
        });
        let few = &ids[..few.count()];
        let (mut best, begun) = (Ok(0.0), Instant::now());
        // once more where it was over soon: somebody else may have had the processor
        for sample in 0..PROBES {
            if sample > 0 && begun.elapsed() > PROBE_TIME {
                break;
            }
            let (mut read, started) = (0, Instant::now());
            let done = self.take_all(few, |_, bytes| {
                read += bytes.len() as u64;
                Ok::<_, DiskError>(())
            });
            let rate = read as f64 / started.elapsed().as_secs_f64().max(1e-9);
            best = done.and_then(|()| Ok(f64::max(best?, rate)));
            if best.is_err() {
                break;
            }
        }
        let best = best?;
        *self.rate.lock().unwrap_or_else(PoisonError::into_inner) = Some(best);
        Ok(best)
    }

    /// Put a session on disk under a name of 1 to 64 letters, digits, `.`, `_` and `-` that begins with no `.`, in place of what
    /// has that name: its positions that are committed and held. `key`: what its numbers depend on, without the tokens. When
    /// this returns the disk has it. A session without positions leaves what is there. Asked between blocks, `go_on` may say no.
    ///
    /// # Errors
    /// [`DiskError`] where it has no room, or something else; [`Error::Lost`] for a block that is not to be had any more;
    /// [`Error::Stopped`]. What had the name before is there still, unless it had to go for room.
    pub fn keep<S: Store>(
        &self,
        (name, key): (&str, &ContentKey),
        tables: &Tables<S>,
        note: &[u8],
        go_on: &dyn Fn() -> bool,
    ) -> Result<SessionKept> {
        self.begin((name, key), tables, note, go_on)?.finish()
    }

    /// The first half of [`keep`](Self::keep): have all blocks of a session that are not there yet copied for the disk, after
    /// which its tables may change or go.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    pub fn begin<S: Store>(
        &self,
        (name, key): (&str, &ContentKey),
        tables: &Tables<S>,
        note: &[u8],
        go_on: &dyn Fn() -> bool,
    ) -> Result<SessionPut<'_>> {
        let settled = tables.committed().min(tables.held());
        let fork;
        let tables = if settled < tables.len() {
            fork = tables.fork(settled)?;
            &fork
        } else {
            tables
        };
        let (mut image, blocks) = tables.image();
        note.clone_into(&mut image.note);
        let key = ContentKey { tokens: digest(&image.tokens), ..key.clone() };
        let kept = SessionKept { positions: tables.len(), ..SessionKept::default() };
        let (name, ids) = (name.to_owned(), Vec::with_capacity(blocks.len()));
        let mut put = SessionPut { store: self, name, key, image, ids, kept };
        if put.kept.positions == 0 {
            return Ok(put);
        }
        let done = self.put_all((&put.name, &blocks), (&mut put.ids, &mut put.kept), go_on);
        match done {
            Ok(()) => Ok(put),
            // whoever says stop waits for this
            Err(Error::Stopped) => Err(Error::Stopped),
            Err(error) => {
                drop(put);
                self.forget_failure();
                Err(error)
            }
        }
    }

    /// What had no room is nobody's now: whoever comes next is not told of it.
    fn forget_failure(&self) {
        let _ = self.blocks.flush();
    }

    /// Hold a record for each block.
    fn put_all<S: Store>(
        &self,
        (name, blocks): (&str, &[&Arc<CacheBlock<S>>]),
        (ids, kept): (&mut Vec<RecordId>, &mut SessionKept),
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let bytes = blocks.iter().map(|block| block.kind().size());
        kept.bytes = bytes.clone().sum();
        // one that has no room whatever goes pushes nothing out
        if let Some(most) = self.options.max_bytes
            && bytes.map(BlockStore::record_bytes).sum::<u64>() > most
        {
            let path = self.blocks.manifest(name)?;
            let taken = self.blocks.stats().bytes;
            return Err(DiskError::Full { path, most, taken, wanted: kept.bytes }.into());
        }
        let is_new = !self.blocks.kept_names().iter().any(|known| known == name);
        while is_new && self.options.lets_go && self.blocks.kept_names().len() >= MOST_SESSIONS {
            kept.let_go += usize::from(self.make_room(name)?);
        }
        for block in blocks {
            if !go_on() {
                return Err(Error::Stopped);
            }
            if let Some(id) = self.blocks.hold_marked(&block.kept()) {
                ids.push(id);
                continue;
            }
            let mut put = Ok(None);
            CacheBlock::read_out(block, &mut |bytes| {
                put = self.put(bytes, name, kept).map(Some);
            })?;
            let id = put?.expect("a store hands out the bytes of a block");
            ids.push(id);
            block.set_kept(self.blocks.mark(id)?);
        }
        Ok(())
    }

    fn put(&self, bytes: &[u8], name: &str, kept: &mut SessionKept) -> Result<RecordId, DiskError> {
        kept.written += bytes.len() as u64;
        self.with_room(name, kept, &|| self.blocks.put(bytes))
    }

    /// Write the manifest.
    fn write(
        &self,
        name: &str,
        key: &ContentKey,
        ids: &[RecordId],
        image: &SessionImage,
        kept: &mut SessionKept,
    ) -> Result<(), DiskError> {
        let note = image.to_bytes();
        self.with_room(name, kept, &|| self.blocks.keep(name, key, ids, &note))
    }

    /// Do something that needs room; where there is none, what was used longest ago goes.
    fn with_room<T>(
        &self,
        name: &str,
        kept: &mut SessionKept,
        work: &dyn Fn() -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        loop {
            match work() {
                Err(error)
                    if error.is_full() && self.options.lets_go && self.make_room(name)? =>
                {
                    kept.let_go += 1;
                }
                done => return done,
            }
        }
    }

    /// Let go of the session that was used longest ago, of this name after all others; whether there was one.
    fn make_room(&self, name: &str) -> Result<bool, DiskError> {
        let names = self.names();
        let mut names = names.iter().filter(|name| !self.blocks.is_out_of_reach(name));
        let first = names.clone().next();
        match names.find(|other| *other != name).or(first) {
            Some(oldest) => self.blocks.discard(oldest).map(|()| true),
            None => Ok(false),
        }
    }

    /// Have an empty session take as many of these tokens as what is kept under a name begins with, and can be cut to. Where
    /// memory has no room, `room` has others let go of something, for as long as it says that they did. Asked between blocks,
    /// `go_on` may say no.
    ///
    /// # Errors
    /// What is wrong with the manifest, for whom it was made ([`DiskError::Key`]), blocks that are not as they were written;
    /// the pool's; [`Error::Stopped`]. The session is empty then.
    pub fn restore<S: Store>(
        &self,
        (name, key): (&str, &ContentKey),
        tables: &mut Tables<S>,
        tokens: &[u32],
        room: &mut dyn FnMut() -> bool,
        go_on: &dyn Fn() -> bool,
    ) -> Result<SessionPart> {
        let held = self.held(name)?;
        // who made other tables is told why
        if let Some((field, expected, found)) = key.differs(&held.key) {
            let path = self.blocks.manifest(name)?;
            let (expected, found) = (expected.to_owned(), found.to_owned());
            return Err(DiskError::Key { path, field, expected, found }.into());
        }
        let (specs, states) = (Arc::clone(tables.specs()), Arc::clone(tables.states().specs()));
        let kinds = TableKinds { specs: &specs, states: &states };
        held.check(kinds)?;
        let image = &held.image;
        // what has this name now may be another one than whoever asks has seen
        let same = image.tokens.iter().zip(tokens).take_while(|(held, wanted)| held == wanted);
        let positions = image.reached(kinds, same.count().min(tables.capacity()));
        if positions == 0 {
            return Ok(SessionPart::default());
        }
        let wanted = image.wanted(kinds, positions);
        let ids = held.ids_of(&wanted)?;
        let started = Instant::now();
        let mut blocks = Vec::with_capacity(wanted.len());
        self.take_all(&ids, |i, bytes| {
            if !go_on() {
                return Err(Error::Stopped);
            }
            let block = self.block(tables, &wanted[i], bytes, room)?;
            block.set_kept(self.blocks.mark(ids[i])?);
            blocks.push(block);
            Ok::<_, Error>(())
        })?;
        tables.take_image(image, positions, blocks)?;
        let (bytes, time) = (wanted.iter().map(|one| one.bytes as u64).sum(), started.elapsed());
        self.read(bytes, time);
        // who cannot write that down loses its place in the order, no more
        let _ = self.blocks.touch(name);
        Ok(SessionPart { positions, bytes, time })
    }

    /// A block in memory with these bytes.
    fn block<S: Store>(
        &self,
        tables: &Tables<S>,
        wanted: &WantedRecord,
        bytes: &[u8],
        room: &mut dyn FnMut() -> bool,
    ) -> Result<Arc<CacheBlock<S>>> {
        let WantedRecord { bytes: expected, area, whole_from, .. } = *wanted;
        if bytes.len() != expected {
            return Err(DiskError::Length { expected, found: bytes.len() }.into());
        }
        let (pool, kind) = (tables.pool(), BlockKind { bytes: expected, area });
        let mut memory = loop {
            match pool.memory_of(kind, Limit::Growth) {
                Err(Error::Budget { .. }) if room() => {}
                taken => break taken?,
            }
        };
        pool.store().load(bytes, memory.get_mut());
        let mut block = Arc::new(CacheBlock::own(memory));
        if let Some(position) = whole_from {
            CacheBlock::seal(&mut block, position);
        }
        Ok(block)
    }

    /// Hand out these blocks in order, read ahead.
    fn take_all<E: From<DiskError>>(
        &self,
        ids: &[RecordId],
        mut take: impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (i, id) in ids.iter().enumerate() {
            if i.is_multiple_of(AHEAD / 2) {
                self.blocks.read_ahead(&ids[i..ids.len().min(i + AHEAD)]);
            }
            take(i, &self.blocks.take(*id)?)?;
        }
        Ok(())
    }

    /// Keep nothing under a name any more.
    ///
    /// # Errors
    /// [`DiskError::Vanished`] if nothing is; why it cannot be removed.
    pub fn discard(&self, name: &str) -> Result<(), DiskError> {
        self.blocks.discard(name)
    }

    fn let_go(&self, id: RecordId) {
        // who does not have it any more has nothing to free
        let _ = self.blocks.free(id);
    }
}
