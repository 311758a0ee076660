//! What of a model a card should hold, and the rest the processor.

use engine::DEFAULT_CHUNK;
use planner::{CardBeside, Machine, PlacedStep};
use program::{CacheOptions, KvPolicy, Program};

use super::target::Target;
use crate::executor::{self, Counter, SUBMISSION};
use crate::notices::Topic;
use crate::units::decimal_bytes;
use crate::{Error, Runtime};

/// The fastest placement of a model on a card and a processor.
pub struct PlannedPlacement {
    /// The placement, and the others that it was chosen from.
    pub placed: executor::Placing,
    /// Whether the time of a submission to the card was measured; otherwise it is assumed.
    pub measured: bool,
    /// A step by the processor alone.
    pub alone: PlacedStep,
    /// Size of the context, in tokens.
    pub tokens: u64,
    /// Name of the card.
    pub card: String,
    /// Name of the processor.
    pub processor: String,
    /// Message if the processor has less memory than its part takes.
    pub misfit: Option<String>,
}

impl PlannedPlacement {
    /// Of a program with such a cache, on the card that is planned for beside this machine's processor.
    ///
    /// # Errors
    /// [`Error::Options`] if no card is planned for, or nobody knows its memory; a processor that cannot be measured.
    pub(super) fn of(
        runtime: &Runtime,
        program: &Program,
        cache: &CacheOptions,
        card: &Target,
        bytes: u64,
    ) -> anyhow::Result<PlannedPlacement> {
        if !card.has_own_memory {
            let problem = "--placement wants a card with memory of its own: --device NAME, or --executor wgpu or cuda";
            return Err(Error::Options(problem.into()).into());
        }
        if cache.policy != KvPolicy::Full {
            let problem = "--placement: GPUs have no context memory: --kv-policy full";
            return Err(Error::Options(problem.into()).into());
        }
        if executor::on_a_gpu(cache) != *cache {
            let text = "--placement: a GPU keeps f16 where a cache of q8_0 is asked for";
            runtime.warn(Topic::Plan, text);
        }
        let Some(memory) = card.room() else {
            let problem = "--placement: how much memory the card has, nobody tells: --memory 24GB";
            return Err(Error::Options(problem.into()).into());
        };
        let processor = Target::processor(runtime)?;
        PlannedPlacement::beside(program, cache, (card, &processor), memory, bytes)
    }

    /// Of a program with such a cache on a card with so much memory, beside a processor. `bytes`: what a step reads.
    pub(super) fn beside(
        program: &Program,
        cache: &CacheOptions,
        (card, processor): (&Target, &Target),
        memory: f64,
        bytes: u64,
    ) -> anyhow::Result<PlannedPlacement> {
        let machine: Machine = processor.machine(bytes)?;
        let beside = CardBeside {
            processor: machine,
            card: card.machine(bytes)?,
            memory,
            submission: card.submission().unwrap_or(SUBMISSION),
        };
        let counter = card.gpu().map(|executor| Counter { executor, chunk: DEFAULT_CHUNK });
        let placed = executor::Placing::of(program, cache, beside, counter);
        let alone = placed.placements.step(0, 0, &beside);
        let left = placed.best.processor_bytes as f64;
        let misfit = processor.room().filter(|room| left > *room).map(|room| {
            let (left, room) = (decimal_bytes(left), decimal_bytes(room.max(0.0)));
            format!("does not fit: the card leaves {left} to the processor, which has {room}")
        });
        Ok(PlannedPlacement {
            placed,
            measured: card.submission().is_some(),
            alone,
            tokens: cache.capacity as u64,
            card: card.name.clone(),
            processor: processor.name.clone(),
            misfit,
        })
    }
}
