//! [`Graphs`]: a cache of CUDA graphs for repeated submissions.
//!
//! Two submissions are equal if their kernels, bindings and grids are equal. Everything that
//! changes from step to step (tokens, positions, places of cache blocks) is in device memory, so a
//! graph that was captured once serves all later steps of the same shape.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cuda::Graph;
use foldhash::fast::RandomState;

use crate::backend::{Buffer, Command, Handle};

/// Maximum number of entries. Steps of one row need few; prompts need one for each length.
const MAX_ENTRIES: usize = 64;
/// Minimum number of commands of a graph: shorter submissions gain nothing.
const MIN_COMMANDS: usize = 8;

/// Identity of a submission: kind, handle addresses and numbers of each command.
type Key = Vec<u64>;

/// Graphs of submissions, by their commands.
pub(super) struct Graphs {
    is_enabled: bool,
    /// Each step hashes its commands: some ten thousand bytes.
    entries: HashMap<Key, Entry, RandomState>,
    /// Number of lookups so far; orders entries by their last use.
    clock: u64,
}

struct Entry {
    /// `None` until the submission is repeated, and if the driver cannot capture it.
    graph: Option<Graph>,
    /// Whether capturing failed.
    is_refused: bool,
    /// Value of the clock at the last use.
    last_used: u64,
    /// The handles in the key. The weak references keep their addresses from being reused, so that
    /// a key cannot match other objects.
    handles: Vec<Weak<dyn Any + Send + Sync>>,
}

impl Graphs {
    /// Creates an empty cache. If it is disabled, [`find`](Self::find) never returns a graph.
    pub(super) fn new(is_enabled: bool) -> Graphs {
        Graphs { is_enabled, entries: HashMap::default(), clock: 0 }
    }

    /// Finds the graph of a submission.
    ///
    /// Returns `None` at the first occurrence, which may be the only one. At the second occurrence
    /// `capture` records the graph; if that fails, the submission is never captured again. The flag tells whether the graph
    /// existed before this call.
    pub(super) fn find<E>(
        &mut self,
        commands: &[Command<'_>],
        capture: impl FnOnce() -> Result<Graph, E>,
    ) -> Option<(&Graph, bool)> {
        if !self.is_enabled || commands.len() < MIN_COMMANDS {
            return None;
        }
        self.clock += 1;
        let key = key(commands);
        if !self.entries.contains_key(&key) {
            self.evict();
            let (last_used, handles) = (self.clock, handles(commands));
            self.entries.insert(key, Entry { graph: None, is_refused: false, last_used, handles });
            return None;
        }
        let clock = self.clock;
        let entry = self.entries.get_mut(&key).expect("the key was found above");
        entry.last_used = clock;
        let existed = entry.graph.is_some();
        if !existed && !entry.is_refused {
            entry.graph = capture().ok();
            entry.is_refused = entry.graph.is_none();
        }
        entry.graph.as_ref().map(|graph| (graph, existed))
    }

    /// Removes entries with freed handles, then the least recently used ones, to make room for one.
    fn evict(&mut self) {
        self.entries.retain(|_, entry| entry.handles.iter().all(|its| its.strong_count() > 0));
        while self.entries.len() >= MAX_ENTRIES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            self.entries.remove(&oldest);
        }
    }
}

/// Address of the object of a handle.
fn address(handle: &Handle) -> u64 {
    Arc::as_ptr(handle).cast::<()>() as u64
}

/// Identity of a submission.
fn key(commands: &[Command<'_>]) -> Key {
    let mut key = Vec::with_capacity(6 * commands.len());
    for command in commands {
        match *command {
            Command::Dispatch { kernel, bindings, groups } => {
                key.extend([0, address(kernel), address(bindings)]);
                key.extend(groups.map(u64::from));
            }
            Command::Copy { from, from_at, to, to_at, bytes } => {
                key.extend([1, address(&from.handle), from_at, address(&to.handle), to_at, bytes]);
            }
            Command::Clear { buffer, at, bytes } => {
                key.extend([2, address(&buffer.handle), at, bytes]);
            }
        }
    }
    key
}

/// Weak references to all handles whose addresses are in the key.
fn handles(commands: &[Command<'_>]) -> Vec<Weak<dyn Any + Send + Sync>> {
    let of = |buffer: &Buffer| Arc::downgrade(&buffer.handle);
    let mut handles = Vec::with_capacity(2 * commands.len());
    for command in commands {
        match *command {
            Command::Dispatch { kernel, bindings, .. } => {
                handles.extend([kernel, bindings].map(Arc::downgrade));
            }
            Command::Copy { from, to, .. } => handles.extend([from, to].map(of)),
            Command::Clear { buffer, .. } => handles.push(of(buffer)),
        }
    }
    handles
}
