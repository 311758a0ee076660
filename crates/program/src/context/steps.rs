//! Choices that serve more than one query: the tokens after it, or the layers after its own.
//!
//! Runs of tokens begin at multiples of [`ContextMemory::token_step`], which divides blocks: all of a run may choose from the
//! same blocks, and which query chose for one follows from its position.

use std::ops::Range;

use super::{BlockSharing, ContextMemory, KvPolicy};
use crate::{CacheId, CacheKind, Error, Program, Result};

impl ContextMemory {
    /// What [`token_step`](Self::token_step) may be.
    pub const TOKEN_STEPS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

    /// Most blocks of a choice that is kept for the tokens after it.
    pub const MOST_KEPT: u32 = 4096;

    /// Whether what is chosen for the layer that appends to a cache goes for all that read it: where a choice takes more than
    /// one query, or serves more.
    pub fn shares_choices(&self) -> bool {
        self.has_blocks() && (self.serves_several() || self.smoothing.is_some())
    }

    fn serves_several(&self) -> bool {
        self.token_step > 1 || self.layer_step > 1
    }

    /// The position whose query chooses for the one at `position`.
    pub fn chosen_at(&self, position: usize) -> usize {
        position - position % self.run()
    }

    /// Numbers of the queries at these positions that choose: see [`chooser_position`](Self::chooser_position).
    pub fn choosers(&self, positions: Range<usize>) -> Range<usize> {
        positions.start.div_ceil(self.run())..positions.end.div_ceil(self.run())
    }

    /// Where the query stands that chooses for run `number` of tokens.
    pub fn chooser_position(&self, number: usize) -> usize {
        number * self.run()
    }

    fn run(&self) -> usize {
        self.token_step.max(1) as usize
    }

    /// Why choices that serve several queries do not go with the other settings, if they do not.
    pub(super) fn wrong_steps(&self) -> Option<String> {
        let ContextMemory { token_step, layer_step, n_blocks, .. } = *self;
        if !Self::TOKEN_STEPS.contains(&token_step) {
            return Some(format!("a choice for {token_step} tokens: 1, 2, 4, 8, 16, 32 or 64"));
        }
        if layer_step == 0 {
            return Some("a choice for 0 layers: at least 1".into());
        }
        if self.serves_several() && self.certificate.is_some() {
            return Some(format!(
                "a proof of what each query leaves out and a choice for {token_step} tokens and {layer_step} layers: 1 and 1"
            ));
        }
        (token_step > 1 && n_blocks > Self::MOST_KEPT).then(|| {
            let most = Self::MOST_KEPT;
            format!(
                "{n_blocks} blocks of a choice that is kept for {token_step} tokens: at most {most}"
            )
        })
    }
}

impl KvPolicy {
    /// The cache of the layer that chooses for those that read `cache`, where [choices are
    /// shared](ContextMemory::shares_choices): of layers that append to a cache with a memory the first, and after it every
    /// [`layer_step`](ContextMemory::layer_step)-th.
    pub fn chooser(&self, program: &Program, cache: CacheId) -> Option<CacheId> {
        let memory = self.of_cache(program, cache).filter(ContextMemory::shares_choices)?;
        let appended = program.nodes.iter().filter_map(|node| node.appends_to());
        let remembering: Vec<CacheId> =
            appended.filter(|cache| self.of_cache(program, *cache).is_some()).collect();
        let place = remembering.iter().position(|other| *other == cache)?;
        Some(remembering[place - place % memory.layer_step.max(1) as usize])
    }

    /// Whether a layer that reads `cache`, and perhaps appends to it, chooses for itself, if it chooses at all. Who reads what
    /// another layer appended reads the blocks that were chosen for that one, where choices are shared.
    pub fn chooses(&self, program: &Program, cache: CacheId, appends: bool) -> bool {
        self.chooser(program, cache).is_none_or(|chooser| appends && chooser == cache)
    }

    /// Refuse key-value heads that read what others chose where layers have different numbers of them.
    pub(super) fn check_heads(&self, memory: &ContextMemory, program: &Program) -> Result<()> {
        if memory.sharing != BlockSharing::KvHead || memory.layer_step == 1 || !memory.has_blocks()
        {
            return Ok(());
        }
        let caches = (0..program.caches.len() as u32).map(CacheId);
        let remembering = caches.filter(|cache| self.of_cache(program, *cache).is_some());
        let heads = |cache| match program.cache(cache).kind {
            CacheKind::Heads { n_kv_heads, .. } => n_kv_heads,
            CacheKind::Latent { .. } | CacheKind::Keys { .. } | CacheKind::State { .. } => 0,
        };
        let mut counts: Vec<usize> = remembering.map(heads).collect();
        counts.sort_unstable();
        match counts[..] {
            [least, .., most] if least != most => Err(Error::Unsupported(format!(
                "choices of key-value heads for {} layers in a model whose layers have {least} to {most} of them: choose for a layer",
                memory.layer_step
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Certificate;

    fn memory(token_step: u32) -> ContextMemory {
        ContextMemory {
            n_init: 64,
            n_local: 192,
            n_blocks: 2,
            token_step,
            ..ContextMemory::suited(1024)
        }
    }

    /// Whoever chooses for a query may choose the same blocks, and whether it chooses is the same.
    #[test]
    fn a_choice_serves_a_run_of_tokens() {
        for step in ContextMemory::TOKEN_STEPS {
            let memory = memory(step);
            assert_eq!(memory.check(), Ok(()));
            for position in 0..1500 {
                let at = memory.chosen_at(position);
                assert!(at <= position && position - at < step as usize);
                assert_eq!(memory.finished(at), memory.finished(position), "{position}");
                assert_eq!(memory.chooses(at), memory.chooses(position), "{position}");
            }
            for (start, n) in [(0, 1), (1, 1), (63, 2), (64, 64), (5, 200), (130, 0)] {
                let all = (start..start + n).filter(|p| memory.chosen_at(*p) == *p);
                let numbers = memory.choosers(start..start + n);
                let found = numbers.map(|number| memory.chooser_position(number));
                assert!(found.eq(all), "{start} {n} {step}");
            }
        }
    }

    #[test]
    fn settings_that_do_not_go_with_them_are_refused() {
        let said = |change: fn(&mut ContextMemory)| {
            let mut memory = memory(1);
            change(&mut memory);
            memory.check().map_err(|error| error.to_string())
        };
        let bad: [fn(&mut ContextMemory); 3] =
            [|m| m.token_step = 0, |m| m.token_step = 3, |m| m.token_step = 128];
        for bad in bad {
            assert!(said(bad).is_err_and(|e| e.contains("2, 4, 8")));
        }
        assert!(said(|m| m.layer_step = 0).is_err_and(|e| e.contains("0 layers")));
        let proof = |m: &mut ContextMemory| {
            (m.certificate, m.n_supers, m.layer_step) = (Certificate::new(0.1), 0, 2);
        };
        assert!(said(proof).is_err_and(|e| e.contains("proof")));
        let many = |m: &mut ContextMemory| (m.n_blocks, m.token_step, m.n_supers) = (5000, 2, 0);
        assert!(said(many).is_err_and(|e| e.contains("at most 4096")));
        assert_eq!(said(|m| (m.n_blocks, m.n_supers) = (5000, 0)), Ok(()));
    }
}
