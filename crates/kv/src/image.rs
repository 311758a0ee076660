//! [`SessionImage`]: what a session on disk consists of: its tokens, and which of its records is what.
//!
//! Records stand in this order: the blocks of each table, ascending; the states of each snapshot, ascending, by cache; the rings,
//! by cache. An image is the note of a manifest, and read as a stranger's: every number is checked against what tables have.
//!
//! All numbers are little-endian: a version (u32); tokens (u64, and u32 each); tables (u32): the number of the first block and
//! of blocks (u64 each); snapshots (u32): position (u64) and how long it stays (u8); where rows begin (u64); whether there are
//! rings (u8); the caller's note (u64 bytes and these).

use std::sync::Arc;

use crate::{CacheBlock, Error, Result, StateSpec, Store, TableSpec, Tables};

const VERSION: u32 = 1;

/// What a session on disk consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionImage {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Blocks of each table.
    pub tables: Vec<TableImage>,
    /// What caches of states have.
    pub states: StatesImage,
    /// The caller's.
    pub note: Vec<u8>,
}

/// Which blocks a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableImage {
    /// The number of its first one.
    pub first: usize,
    /// How many it has.
    pub blocks: usize,
}

/// What there is of caches of states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatesImage {
    /// Positions of snapshots, ascending, and how long each stays.
    pub snapshots: Vec<(usize, u8)>,
    /// Rows from here on are in the rings.
    pub rows_from: usize,
    /// Whether rings are kept.
    pub has_rings: bool,
}

/// A record that a session needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedRecord {
    /// Which one of the manifest's.
    pub record: usize,
    /// Bytes of the block.
    pub bytes: usize,
    /// Which memory of the store's the block lies in.
    pub area: usize,
    /// Position of its first row, if it is a block of a table all of whose rows are there.
    pub whole_from: Option<usize>,
}

/// What tables have to be for an image.
#[derive(Clone, Copy, Debug)]
pub struct TableKinds<'a> {
    /// Of each table.
    pub specs: &'a [TableSpec],
    /// Of each cache of states.
    pub states: &'a [StateSpec],
}

impl SessionImage {
    /// The image as the note of a manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let long = |bytes: &mut Vec<u8>, n: usize| bytes.extend((n as u64).to_le_bytes());
        long(&mut bytes, self.tokens.len());
        self.tokens.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
        bytes.extend((self.tables.len() as u32).to_le_bytes());
        for table in &self.tables {
            long(&mut bytes, table.first);
            long(&mut bytes, table.blocks);
        }
        bytes.extend((self.states.snapshots.len() as u32).to_le_bytes());
        for (position, stays) in &self.states.snapshots {
            long(&mut bytes, *position);
            bytes.push(*stays);
        }
        long(&mut bytes, self.states.rows_from);
        bytes.push(u8::from(self.states.has_rings));
        long(&mut bytes, self.note.len());
        bytes.extend(&self.note);
        bytes
    }

    /// The version that is read here and that of an image, where they differ.
    pub(crate) fn other_version(bytes: &[u8]) -> Option<(u32, u32)> {
        let found = u32::from_le_bytes(*bytes.first_chunk()?);
        (found != VERSION).then_some((VERSION, found))
    }

    /// Read what [`to_bytes`](Self::to_bytes) wrote; `None`: it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<SessionImage> {
        let mut rest = Rest(bytes);
        if u32::from_le_bytes(rest.array()?) != VERSION {
            return None;
        }
        let n = rest.count(4)?;
        let tokens =
            (0..n).map(|_| Some(u32::from_le_bytes(rest.array()?))).collect::<Option<_>>()?;
        let n = u32::from_le_bytes(rest.array()?);
        let table = |_| Some(TableImage { first: rest.long()?, blocks: rest.long()? });
        let tables = (0..n).map(table).collect::<Option<_>>()?;
        let n = u32::from_le_bytes(rest.array()?);
        let snapshot = |_| Some((rest.long()?, rest.array::<1>()?[0]));
        let snapshots = (0..n).map(snapshot).collect::<Option<_>>()?;
        let rows_from = rest.long()?;
        let has_rings = match rest.array()? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let n = rest.count(1)?;
        let note = rest.take(n)?.to_vec();
        let states = StatesImage { snapshots, rows_from, has_rings };
        rest.0.is_empty().then_some(SessionImage { tokens, tables, states, note })
    }

    /// Whether it is one of a session with such tables, in so many records.
    pub fn fits(&self, kinds: TableKinds<'_>, records: usize) -> bool {
        let TableKinds { specs, states } = kinds;
        let len = self.tokens.len();
        let table = |(table, spec): (&TableImage, &TableSpec)| {
            let end = spec.end_block(len);
            table.first <= end
                && table.first <= spec.first_block(len)
                && table.blocks == end - table.first
        };
        let tables = self.tables.len() == specs.len() && self.tables.iter().zip(specs).all(table);
        let StatesImage { snapshots, rows_from, has_rings } = &self.states;
        let ascend = snapshots.is_sorted_by(|(a, _), (b, _)| a < b);
        let within = snapshots.iter().all(|(position, _)| (1..=len).contains(position));
        let few = snapshots.len() <= StateSpec::MOST_STATES && *rows_from <= len;
        let in_rings = !has_rings || len - (*rows_from).min(len) <= StateSpec::ROWS;
        let any = !snapshots.is_empty() || *has_rings;
        let states_fit = ascend && within && few && in_rings && !(states.is_empty() && any);
        let blocks = self.tables.iter().map(|table| table.blocks).fold(0, usize::saturating_add);
        let of_states = states.len() * (snapshots.len() + usize::from(*has_rings));
        tables && states_fit && len > 0 && blocks.saturating_add(of_states) == records
    }

    /// The greatest length up to `len` that a session can be cut to and go on from.
    pub fn reached(&self, kinds: TableKinds<'_>, len: usize) -> usize {
        let len = len.min(self.tokens.len());
        let base = self.states.snapshots.iter().rfind(|(position, _)| *position <= len);
        let base = base.map_or(0, |(position, _)| *position);
        let rows = self.states.has_rings && self.states.rows_from <= base;
        let len = if kinds.states.is_empty() || rows { len } else { base };
        let reaches =
            |(table, spec): (&TableImage, &TableSpec)| table.first <= spec.first_block(len);
        if self.tables.iter().zip(kinds.specs).all(reaches) { len } else { 0 }
    }

    /// The records that the first `len` positions need, in their order.
    pub fn wanted(&self, kinds: TableKinds<'_>, len: usize) -> Vec<WantedRecord> {
        let mut wanted = Vec::new();
        let mut next = 0;
        for (table, spec) in self.tables.iter().zip(kinds.specs) {
            let blocks = table.first..spec.end_block(len).min(table.first + table.blocks);
            wanted.extend(blocks.enumerate().map(|(i, number)| {
                let from = number * spec.positions;
                let whole_from = Some(from).filter(|from| from + spec.positions <= len);
                WantedRecord { record: next + i, bytes: spec.bytes, area: spec.area, whole_from }
            }));
            next += table.blocks;
        }
        let of_states = |bytes: fn(&StateSpec) -> usize, first: usize| {
            let each = move |(i, spec): (usize, &StateSpec)| WantedRecord {
                record: first + i,
                bytes: bytes(spec),
                area: spec.area,
                whole_from: None,
            };
            kinds.states.iter().enumerate().map(each)
        };
        for (position, _) in &self.states.snapshots {
            if *position <= len {
                wanted.extend(of_states(|spec| spec.state, next));
            }
            next += kinds.states.len();
        }
        if self.states.has_rings {
            wanted.extend(of_states(StateSpec::ring_bytes, next));
        }
        wanted
    }
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A number that blocks and positions may have.
    fn long(&mut self) -> Option<usize> {
        let n = u64::from_le_bytes(self.array()?);
        usize::try_from(n).ok().filter(|_| n < 1 << 40)
    }

    /// How many things of so many bytes follow: no more than there are bytes.
    fn count(&mut self, bytes: usize) -> Option<usize> {
        self.long().filter(|n| n.saturating_mul(bytes) <= self.0.len())
    }
}

impl<S: Store> Tables<S> {
    /// What it consists of, and the blocks of it in the order of an image. All its positions must be held and committed.
    pub(crate) fn image(&self) -> (SessionImage, Vec<&Arc<CacheBlock<S>>>) {
        let len = self.len();
        let mut blocks = Vec::new();
        let tables = self.tables().iter().map(|table| {
            let first = table.positions().start / table.spec().positions;
            let n = table.spec().end_block(len).saturating_sub(first);
            blocks.extend(table.blocks().take(n));
            TableImage { first, blocks: n }
        });
        let tables = tables.collect();
        blocks.extend(self.states().blocks());
        let (tokens, states) = (self.tokens().to_vec(), self.states().image());
        (SessionImage { tokens, tables, states, note: Vec::new() }, blocks)
    }

    /// Hold the first `len` positions of an image that fits and reaches them, with the blocks that they need: of an empty
    /// session.
    ///
    /// # Errors
    /// [`Error::Capacity`], [`Error::Length`] of a session that is not empty.
    pub(crate) fn take_image(
        &mut self,
        image: &SessionImage,
        len: usize,
        blocks: Vec<Arc<CacheBlock<S>>>,
    ) -> Result<()> {
        if len > self.capacity() {
            return Err(Error::Capacity { capacity: self.capacity(), wanted: len });
        }
        if !self.is_empty() {
            return Err(Error::Length { len: 0, wanted: self.len() });
        }
        let mut blocks = blocks.into_iter();
        let (tables, states) = self.parts_mut();
        for (table, of) in tables.iter_mut().zip(&image.tables) {
            let n = table.spec().end_block(len).saturating_sub(of.first).min(of.blocks);
            table.adopt(of.first, blocks.by_ref().take(n).collect());
        }
        states.take_image(&image.states, len, &mut blocks);
        self.filled(&image.tokens[..len]);
        Ok(())
    }
}
