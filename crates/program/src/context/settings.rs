//! Which settings go together, which caches of a program they are for, and how they read.

use std::fmt;

use super::{BlockAnchor, ContextMemory, FarPositions, KvPolicy};
use crate::{CacheId, CacheKind, Error, Mask, Op, Program, Result};

impl ContextMemory {
    /// Refuse what does not fit together.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which names the setting, what it is and what it may be.
    pub fn check(&self) -> Result<()> {
        let ContextMemory { n_init, n_local, block, .. } = *self;
        if !Self::BLOCKS.contains(&block) {
            return Err(Error::Unsupported(format!(
                "a context memory with blocks of {block} positions: 64 or 128"
            )));
        }
        for (what, n) in [("first", n_init), ("latest", n_local)] {
            if !n.is_multiple_of(block) {
                return Err(Error::Unsupported(format!(
                    "a context memory of the {n} {what} positions with blocks of {block}: a multiple of {block}"
                )));
            }
        }
        if self.certificate.is_some() && self.anchor != BlockAnchor::Bounds {
            return Err(Error::Unsupported(format!(
                "a context memory that proves what it leaves out with blocks chosen by {}: by bounds",
                self.anchor.name()
            )));
        }
        if !(1..=block).contains(&self.n_representatives) {
            return Err(Error::Unsupported(format!(
                "a context memory with {} representatives of a block of {block}: 1 to {block}",
                self.n_representatives
            )));
        }
        if let Some(wrong) = self.wrong() {
            return Err(Error::Unsupported(format!("a context memory with {wrong}")));
        }
        if n_local == 0 {
            return Err(Error::Unsupported(
                "a context memory without latest positions: a query reads at least its own block"
                    .into(),
            ));
        }
        Ok(())
    }
}

impl ContextMemory {
    /// Why settings of choices do not go with others, if they do not.
    fn wrong(&self) -> Option<String> {
        let wrong = self.wrong_supers().or_else(|| self.wrong_steps());
        wrong.or_else(|| self.wrong_smoothing()).or_else(|| self.wrong_given())
    }
}

impl KvPolicy {
    /// The memory of a cache of `program`, if this policy gives it one: layers with windows, latents, queries that see
    /// later rows, or that select what they read already, stay as they are.
    pub fn of_cache(&self, program: &Program, cache: CacheId) -> Option<ContextMemory> {
        let KvPolicy::Memory(memory) = *self else { return None };
        let spec = program.cache(cache);
        let remembers = matches!(spec.kind, CacheKind::Heads { window: None, .. })
            && spec.layer >= memory.dense_layers as usize
            && program.nodes.iter().all(|node| match &node.op {
                Op::Attention(at) if at.cache == cache => {
                    at.score.mask == Mask::Causal && at.select.is_none()
                }
                Op::LatentAttention(at) => at.cache != cache,
                _ => true,
            });
        remembers.then_some(memory)
    }

    /// Refuse what `program` cannot be run with.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn check(&self, program: &Program) -> Result<()> {
        let KvPolicy::Memory(memory) = self else { return Ok(()) };
        memory.check()?;
        self.check_heads(memory, program)?;
        let leans = program.nodes.iter().any(|node| match &node.op {
            Op::Attention(at) => {
                at.score.alibi.is_some() && self.of_cache(program, at.cache).is_some()
            }
            _ => false,
        });
        if leans && memory.keeps_far_keys() {
            return Err(Error::Unsupported(
                "a context memory at a fixed distance for a model whose scores fall with distance (ALiBi): take exact positions"
                    .into(),
            ));
        }
        Ok(())
    }
}

impl fmt::Display for KvPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KvPolicy::Full => f.write_str("full"),
            KvPolicy::Memory(memory) => memory.fmt(f),
        }
    }
}

impl fmt::Display for ContextMemory {
    /// `first 128, latest 4096, 16 blocks of 128 by bounds for a layer, of 32 super-blocks, at a fixed distance`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContextMemory { n_init, n_local, block, n_blocks, anchor, sharing, .. } = self;
        write!(f, "first {n_init}, latest {n_local}")?;
        if self.has_blocks() {
            write!(f, ", {n_blocks} blocks of {block} by {}", anchor.name())?;
            if anchor.is_of_few_keys() {
                write!(f, " of {} keys", self.n_representatives)?;
            }
            write!(f, " for a {}", sharing.name())?;
            if self.has_supers() {
                write!(f, ", of {} super-blocks", self.n_supers)?;
            }
            if let Some(smoothing) = self.smoothing {
                write!(f, ", smoothed by {}", smoothing.share())?;
            }
            if let Some(given) = self.given {
                write!(f, ", among them {given}")?;
            }
            match (self.token_step, self.layer_step) {
                (1, 1) => {}
                (tokens, 1) => write!(f, ", every {tokens} tokens")?,
                (1, layers) => write!(f, ", every {layers} layers")?,
                (tokens, layers) => write!(f, ", every {tokens} tokens and {layers} layers")?,
            }
        }
        if let Some(certificate) = self.certificate {
            write!(f, " and more until at most {} of a head is left out", certificate.eps())?;
        }
        match self.positions {
            FarPositions::Fixed => f.write_str(", at a fixed distance")?,
            FarPositions::Exact => f.write_str(", at exact positions")?,
        }
        match self.dense_layers {
            0 => Ok(()),
            n => write!(f, ", all in the first {n} layers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> ContextMemory {
        ContextMemory { n_init: 64, n_local: 192, n_blocks: 2, ..ContextMemory::suited(1024) }
    }

    #[test]
    fn settings_suit_a_model() {
        let short = ContextMemory::suited(1024);
        assert_eq!((short.n_init, short.n_local, short.block, short.n_blocks), (128, 512, 64, 8));
        let long = ContextMemory::suited(32_768);
        assert_eq!((long.n_init, long.n_local, long.block, long.n_blocks), (128, 4096, 128, 16));
        let said = "first 128, latest 4096, 16 blocks of 128 by bounds for a layer, of 32 super-blocks, at a fixed distance";
        assert_eq!(KvPolicy::Memory(long).to_string(), said);
        for trained in [0, 1, 100, 777, 4096, 1 << 20] {
            ContextMemory::suited(trained).check().expect("settings that fit");
        }
    }

    #[test]
    fn settings_that_do_not_fit_are_refused() {
        let said = |change: fn(&mut ContextMemory)| {
            let mut memory = memory();
            change(&mut memory);
            memory.check().expect_err("refused").to_string()
        };
        assert!(said(|m| m.block = 96).contains("64 or 128"));
        assert!(said(|m| m.n_local = 100).contains("multiple of 64"));
        assert!(said(|m| m.n_init = 100).contains("first"));
        assert!(said(|m| m.n_local = 0).contains("latest"));
    }
}
