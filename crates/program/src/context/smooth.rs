//! Smoothing: a query chooses by what it asks for and what those before it did.

use super::{BlockAnchor, ContextMemory};

/// How much a query counts when blocks are chosen, beside those before it.
///
/// What a block promises the query at position `t` is `share * its own + (1 - share) * what it promises the one before`. The
/// first position of each block of positions begins anew: there it is its own. So what is chosen follows from the block's
/// tokens and those before, and is found again wherever a session is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Smoothing {
    /// Of the share, so that settings can be compared.
    bits: u32,
}

impl Smoothing {
    /// `None` unless `share` is more than 0 and at most 1.
    pub const fn new(share: f32) -> Option<Smoothing> {
        let is_share = share > 0.0 && share <= 1.0;
        if is_share { Some(Smoothing { bits: share.to_bits() }) } else { None }
    }

    /// The share that a query's own promises have.
    pub fn share(self) -> f32 {
        f32::from_bits(self.bits)
    }
}

impl ContextMemory {
    /// How queries are smoothed that choose, if they are.
    pub fn smooths(&self) -> Option<Smoothing> {
        self.smoothing.filter(|_| self.has_blocks())
    }

    /// Why smoothing does not go with the other settings, if it does not.
    pub(super) fn wrong_smoothing(&self) -> Option<String> {
        self.smooths()?;
        if self.certificate.is_some() {
            return Some("smoothed choices and a proof of what each query leaves out".into());
        }
        let reads_all = self.anchor == BlockAnchor::All;
        reads_all.then(|| "smoothed choices and all keys read to choose: by an anchor".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Certificate;

    #[test]
    fn a_share_is_more_than_nothing() {
        for (share, is_share) in
            [(0.05, true), (1.0, true), (0.0, false), (1.5, false), (-0.1, false)]
        {
            assert_eq!(Smoothing::new(share).map(Smoothing::share), is_share.then_some(share));
        }
        assert_eq!(Smoothing::new(f32::NAN), None);
    }

    #[test]
    fn settings_that_do_not_go_with_it_are_refused() {
        let smoothing = Smoothing::new(0.05);
        let memory = ContextMemory { smoothing, n_supers: 0, ..ContextMemory::suited(1024) };
        assert_eq!(memory.check(), Ok(()));
        let certificate = Certificate::new(0.1);
        for bad in [
            ContextMemory { certificate, ..memory },
            ContextMemory { anchor: BlockAnchor::All, ..memory },
        ] {
            assert!(bad.check().is_err_and(|error| error.to_string().contains("smoothed")));
        }
    }
}
