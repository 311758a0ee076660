//! [`Graphs`]: the submissions that came before, as graphs. What changes from step to step (tokens, positions, where blocks
//! lie) is in the device's memory; a submission is the same if its kernels, what they bind and their workgroups are.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cuda::Graph;

use crate::backend::{Buffer, Command, Handle};

/// Most graphs that are kept: prompts of many lengths make many, steps of one row few.
const MOST: usize = 64;
/// Fewest commands that a graph is worth being made for.
const FEWEST: usize = 8;

/// A submission: of each command what it does, by addresses.
type Key = Vec<u64>;

pub(super) struct Graphs {
    is_on: bool,
    known: HashMap<Key, Known>,
    /// Counts submissions, to know which came last.
    clock: u64,
}

struct Known {
    /// `None` before it came a second time.
    graph: Option<Graph>,
    last: u64,
    /// What it runs and binds. As long as these are here their addresses are nobody else's, also when they are gone.
    parts: Vec<Weak<dyn Any + Send + Sync>>,
}

impl Graphs {
    /// None yet, and none to come if it is not on.
    pub(super) fn new(is_on: bool) -> Graphs {
        Graphs { is_on, known: HashMap::new(), clock: 0 }
    }

    /// The graph of a submission that came before, and whether it was there already: made by `capture` when it comes a
    /// second time. `None` the first time, for what may never come again.
    pub(super) fn find<E>(
        &mut self,
        commands: &[Command<'_>],
        capture: impl FnOnce() -> Result<Graph, E>,
    ) -> Result<Option<(&Graph, bool)>, E> {
        if !self.is_on || commands.len() < FEWEST {
            return Ok(None);
        }
        self.clock += 1;
        let key = key(commands);
        if !self.known.contains_key(&key) {
            self.make_room();
            let known = Known { graph: None, last: self.clock, parts: parts(commands) };
            self.known.insert(key, known);
            return Ok(None);
        }
        let clock = self.clock;
        let known = self.known.get_mut(&key).expect("it is there");
        known.last = clock;
        let was_there = known.graph.is_some();
        if !was_there {
            known.graph = Some(capture()?);
        }
        Ok(known.graph.as_ref().map(|graph| (graph, was_there)))
    }

    /// Forget what can never come again, and what came longest ago.
    fn make_room(&mut self) {
        self.known.retain(|_, known| known.parts.iter().all(|part| part.strong_count() > 0));
        while self.known.len() >= MOST {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
            self.known.remove(&oldest);
        }
    }
}

fn address(handle: &Handle) -> u64 {
    Arc::as_ptr(handle).cast::<()>() as u64
}

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

fn parts(commands: &[Command<'_>]) -> Vec<Weak<dyn Any + Send + Sync>> {
    let of = |buffer: &Buffer| Arc::downgrade(&buffer.handle);
    let mut parts = Vec::with_capacity(2 * commands.len());
    for command in commands {
        match *command {
            Command::Dispatch { kernel, bindings, .. } => {
                parts.extend([kernel, bindings].map(Arc::downgrade));
            }
            Command::Copy { from, to, .. } => parts.extend([from, to].map(of)),
            Command::Clear { buffer, .. } => parts.push(of(buffer)),
        }
    }
    parts
}
