//! Sessions that outlive their model: what an executor keeps of them on disk, by name.
//!
//! What a session's cache consists of, and what its numbers depend on, the executor knows; when something is kept, found again
//! and brought back is others' business.

use std::time::Duration;

use crate::{CacheOptions, Result, SessionId};

/// Where sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptPlace {
    /// Conversations that came to rest. Where there is no room, the one goes that was used longest ago.
    Conversations,
    /// What somebody saved by a name, which stays until it is saved anew or removed.
    Saved,
}

/// What is kept under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptSession {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// What the caller wrote beside them.
    pub note: Vec<u8>,
    /// Bytes of its cache.
    pub bytes: u64,
    /// Why it is of no use here, if it is not: `made for instruction set "avx512", not "avx2"`.
    pub differs: Option<String>,
}

/// How much of a session can be had, or was had.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeptPart {
    /// Its first so many positions.
    pub positions: usize,
    /// Bytes of their cache.
    pub bytes: u64,
    /// Time to read them.
    pub time: Duration,
}

/// What keeping a session did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptNow {
    /// Positions that are kept now: those that were committed and there.
    pub positions: usize,
    /// Bytes of their cache.
    pub bytes: u64,
    /// Bytes that had to be written: what was there already is not written again.
    pub written: u64,
    /// Others that had to go for it.
    pub let_go: usize,
}

/// Whether a session may be kept under a name: 1 to 64 letters, digits, `.`, `_` and `-`, the first no `.`, which leads nowhere
/// else.
pub fn is_kept_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// The sessions of one place, by names that [are such](is_kept_name). Nothing here waits for a step, but who keeps a session that is in one.
pub trait KeptSessions {
    /// What there is, also of other models, those first that were used longest ago.
    fn names(&self) -> Vec<String>;

    /// What is kept under a name, for a session with these options.
    ///
    /// # Errors
    /// [`crate::Error::Disk`]: nothing is, or it is damaged, or it cannot be read now.
    fn about(&self, name: &str, options: &CacheOptions) -> Result<KeptSession>;

    /// How many of its first `len` positions such a session would go on from, and what reading them takes.
    ///
    /// # Errors
    /// As [`about`](Self::about).
    fn part(&self, name: &str, options: &CacheOptions, len: usize) -> Result<KeptPart>;

    /// Put a session on disk under a name, in place of what had it; one that has no positions any more is left as it was. When
    /// this returns it is there.
    ///
    /// # Errors
    /// An unknown session; [`crate::Error::Disk`].
    fn keep(&self, name: &str, id: SessionId, note: &[u8]) -> Result<KeptNow>;

    /// Have an empty session take as many of these tokens as what is kept under a name begins with, or as many of those as
    /// [`part`](Self::part) says; they are committed. Asked between blocks, `go_on` may say no.
    ///
    /// # Errors
    /// [`crate::Error::Disk`]: nothing is kept, it was made by other means, or is damaged; memory;
    /// [`crate::Error::Cancelled`]. The session is empty then.
    fn restore(
        &self,
        name: &str,
        id: SessionId,
        tokens: &[u32],
        go_on: &dyn Fn() -> bool,
    ) -> Result<KeptPart>;

    /// Keep nothing under a name any more.
    ///
    /// # Errors
    /// [`crate::Error::Disk`].
    fn discard(&self, name: &str) -> Result<()>;
}
