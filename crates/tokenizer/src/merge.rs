//! Merging neighbours in long texts: linear for runs, and small in memory.
//!
//! The `tokenizers` crate keeps 40 bytes per character and one heap over all of them, which is fine for words. This is
//! for what can be long: the whole text of a SentencePiece vocabulary, and words of many thousand letters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

use ahash::{HashMap, HashMapExt as _};

/// No symbol, and no neighbour.
pub(crate) const NONE: u32 = u32::MAX;

/// What pairs of symbols become. Of all pairs in a text the one of the least rank is merged first, of equal ranks the
/// leftmost.
#[derive(Default)]
pub(crate) struct Merges {
    /// Rank and symbol.
    pairs: HashMap<(u32, u32), (u32, u32)>,
}

/// A run of the text that has become one symbol. Linked, so that a merge takes constant time.
struct Node {
    symbol: u32,
    prev: u32,
    next: u32,
}

impl Merges {
    pub(crate) fn with_capacity(n: usize) -> Merges {
        Merges { pairs: HashMap::with_capacity(n) }
    }

    /// Number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Adds a pair, its rank and what it becomes; `false` if the pair is there already, which then stays.
    pub(crate) fn insert(&mut self, pair: (u32, u32), rank: u32, symbol: u32) -> bool {
        match self.pairs.entry(pair) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert((rank, symbol));
                true
            }
        }
    }

    /// Merges the symbols of a text, fewer than 2^32, until no pair is left; calls `each` for every symbol that remains
    /// and the place of its first part among `symbols`. [`NONE`] stands for what never merges.
    pub(crate) fn apply(
        &self,
        symbols: impl Iterator<Item = u32>,
        mut each: impl FnMut(u32, usize),
    ) {
        let node = |(i, symbol): (u32, u32)| Node { symbol, prev: i.wrapping_sub(1), next: i + 1 };
        let mut nodes: Vec<Node> = (0..NONE).zip(symbols).map(node).collect();
        let Some(last) = nodes.last_mut() else { return };
        last.next = NONE;
        self.merge(&mut nodes);
        let mut at = 0;
        while at != NONE {
            let node = &nodes[at as usize];
            each(node.symbol, at as usize);
            at = node.next;
        }
    }

    fn pair(&self, nodes: &[Node], left: u32, right: u32) -> Option<(u32, u32)> {
        self.pairs.get(&(nodes[left as usize].symbol, nodes[right as usize].symbol)).copied()
    }

    fn merge(&self, nodes: &mut [Node]) {
        let mut queue = Queue::default();
        for left in (0..NONE).take(nodes.len() - 1) {
            if let Some((rank, _)) = self.pair(nodes, left, left + 1) {
                queue.push(rank, left);
            }
        }
        while let Some((rank, left)) = queue.pop() {
            // Places whose pair has changed since are skipped; a new pair has its own entry.
            let right = nodes[left as usize].next;
            if nodes[left as usize].symbol == NONE || right == NONE {
                continue;
            }
            let Some((_, symbol)) = self.pair(nodes, left, right).filter(|pair| pair.0 == rank)
            else {
                continue;
            };
            let next = nodes[right as usize].next;
            nodes[right as usize].symbol = NONE;
            nodes[left as usize].symbol = symbol;
            nodes[left as usize].next = next;
            if next != NONE {
                nodes[next as usize].prev = left;
                if let Some((rank, _)) = self.pair(nodes, left, next) {
                    queue.push(rank, left);
                }
            }
            let prev = nodes[left as usize].prev;
            if prev != NONE
                && let Some((rank, _)) = self.pair(nodes, prev, left)
            {
                queue.push(rank, prev);
            }
        }
    }
}

/// Places by rank, then from left to right.
#[derive(Default)]
struct Queue {
    ranks: BinaryHeap<Reverse<u32>>,
    places: HashMap<u32, Places>,
}

/// Places of one rank. They nearly always come from left to right, so that most need no heap.
#[derive(Default)]
struct Places {
    in_order: Vec<u32>,
    /// How many of `in_order` are done.
    done: usize,
    late: BinaryHeap<Reverse<u32>>,
}

impl Queue {
    fn push(&mut self, rank: u32, place: u32) {
        let places = match self.places.entry(rank) {
            Entry::Occupied(places) => places.into_mut(),
            Entry::Vacant(places) => {
                self.ranks.push(Reverse(rank));
                places.insert(Places::default())
            }
        };
        match places.in_order.last() {
            Some(&last) if last > place => places.late.push(Reverse(place)),
            _ => places.in_order.push(place),
        }
    }

    fn pop(&mut self) -> Option<(u32, u32)> {
        loop {
            let Reverse(rank) = *self.ranks.peek()?;
            if let Some(place) = self.places.get_mut(&rank).and_then(Places::pop) {
                return Some((rank, place));
            }
            self.places.remove(&rank);
            self.ranks.pop();
        }
    }
}

impl Places {
    fn pop(&mut self) -> Option<u32> {
        let first = self.in_order.get(self.done).copied();
        if let Some(&Reverse(late)) = self.late.peek()
            && first.is_none_or(|first| late < first)
        {
            self.late.pop();
            return Some(late);
        }
        self.done += 1;
        first
    }
}
