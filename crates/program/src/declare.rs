//! What an executor says of itself before it loads anything: which ops it takes, how much memory it would need, and when
//! its logits keep their bits.

use crate::CacheOptions;

/// What is to be run, as far as memory depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// How each session's caches are kept, and how many positions of them are filled.
    pub cache: CacheOptions,
    /// Sessions that are full at once, and step together.
    pub sessions: usize,
    /// Most rows of a step; of a prompt's the last alone has outputs.
    pub chunk: usize,
}

/// Bytes of memory that a program needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeeds {
    /// Weights as the executor keeps them.
    pub weights: u64,
    /// The caches of all sessions, at the positions asked for: what of it is in memory.
    pub cache: u64,
    /// The least bound on the caches that all steps work with, in memory alone: what does not, gives up some comfort.
    pub bounded_cache: u64,
    /// The least bound that they work with where a disk has the rest.
    pub least_cache: u64,
    /// What steps need besides.
    pub work: u64,
    /// Of weights, cache and work together, what lies in a card's own memory and takes none of the machine's.
    pub on_card: u64,
    /// Of the cache alone, what lies there.
    pub cache_on_card: u64,
}

impl MemoryNeeds {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.cache).saturating_add(self.work)
    }

    /// All of it that takes memory of the machine.
    pub fn here(&self) -> u64 {
        self.total().saturating_sub(self.on_card)
    }

    /// What two of them need that are loaded together.
    pub fn and(self, other: MemoryNeeds) -> MemoryNeeds {
        MemoryNeeds {
            weights: self.weights.saturating_add(other.weights),
            cache: self.cache.saturating_add(other.cache),
            bounded_cache: self.bounded_cache.saturating_add(other.bounded_cache),
            least_cache: self.least_cache.saturating_add(other.least_cache),
            work: self.work.saturating_add(other.work),
            on_card: self.on_card.saturating_add(other.on_card),
            cache_on_card: self.cache_on_card.saturating_add(other.cache_on_card),
        }
    }
}

/// Something in which two runs of the same tokens may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variation {
    /// Nothing: the same steps again, after a truncation, in a fork or in another session.
    Again,
    /// How tokens are cut into steps.
    Cuts,
    /// The other sequences of a step.
    BatchMates,
    /// How many threads, or units of the machine, compute.
    Threads,
}

impl Variation {
    /// All of them.
    pub const ALL: [Variation; 4] =
        [Variation::Again, Variation::Cuts, Variation::BatchMates, Variation::Threads];
}

/// When an executor's logits keep their bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Runs that differ in these alone give the same bits.
    pub same_bits: Vec<Variation>,
    /// Where that is not so all the same: a sentence for each.
    pub exceptions: Vec<&'static str>,
}

impl Promises {
    /// Every variation, without exception.
    pub fn all() -> Promises {
        Promises { same_bits: Variation::ALL.to_vec(), exceptions: Vec::new() }
    }

    /// What two executors promise that run parts of a program each.
    pub fn and(self, other: &Promises) -> Promises {
        let Promises { mut same_bits, mut exceptions } = self;
        same_bits.retain(|variation| other.same_bits.contains(variation));
        exceptions.extend(&other.exceptions);
        Promises { same_bits, exceptions }
    }

    /// Whether runs that differ in these give the same bits, exceptions apart.
    pub fn cover(&self, variations: &[Variation]) -> bool {
        variations.iter().all(|variation| self.same_bits.contains(variation))
    }
}
