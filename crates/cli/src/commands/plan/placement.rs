//! `--placement`: what of a model a card should have, and the options that place it so.

use std::fmt::Write as _;

use engine::DEFAULT_CHUNK;
use planner::{CardBeside, Machine, PlacedKind, PlacedStep};
use program::{CacheOptions, KvPolicy, Program};
use serde_json::{Value, json};

use super::target::Target;
use crate::executor::{self, Counter, SUBMISSION};
use crate::exit::Failure;
use crate::ui;
use crate::units::{decimal_bytes, short_seconds, thousands, three_figures};

/// A placement and what it was chosen by.
pub(super) struct Placing {
    placed: executor::Placing,
    /// Whether the time of a submission was measured.
    measured: bool,
    alone: PlacedStep,
    tokens: u64,
    card: String,
    processor: String,
    /// What the processor would have to keep is more than there is.
    pub(super) misfit: Option<String>,
}

impl Placing {
    /// Of a program with such a cache, on the card that is planned for beside this machine's processor.
    ///
    /// # Errors
    /// [`Failure::Usage`] if no card is planned for, or nobody knows its memory; a processor that cannot be measured.
    pub(super) fn of(
        program: &Program,
        cache: &CacheOptions,
        card: &Target,
        bytes: u64,
    ) -> anyhow::Result<Placing> {
        if !card.has_own_memory {
            let problem = "--placement wants a card with memory of its own: --device NAME, or --executor wgpu or cuda";
            return Err(Failure::Usage(problem.into()).into());
        }
        if cache.policy != KvPolicy::Full {
            let problem = "--placement: GPUs have no context memory: --kv-policy full";
            return Err(Failure::Usage(problem.into()).into());
        }
        if executor::on_a_gpu(cache) != *cache {
            ui::warn("--placement: a GPU keeps f16 where a cache of q8_0 is asked for");
        }
        let Some(memory) = card.room() else {
            let problem = "--placement: how much memory the card has, nobody tells: --memory 24GB";
            return Err(Failure::Usage(problem.into()).into());
        };
        let processor = Target::processor()?;
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
        Ok(Placing {
            placed,
            measured: card.submission().is_some(),
            alone,
            tokens: cache.capacity as u64,
            card: card.name.clone(),
            processor: processor.name,
            misfit,
        })
    }

    pub(super) fn json(&self) -> Value {
        let executor::Placing { placements, beside, best, .. } = &self.placed;
        let kinds = PlacedKind::ALL.map(|kind| {
            let piece = placements.of_kind(kind);
            json!({
                "kind": kind.name(),
                "bytes": piece.resident,
                "step_bytes": piece.work.bytes(),
                "seconds_saved_per_byte": piece.density(&beside.processor, &beside.card),
            })
        });
        json!({
            "processor": self.processor,
            "pieces": kinds,
            "options": self.placed.options(),
            "n_gpu_layers": best.layers,
            "n_cpu_moe": best.apart,
            "card_bytes": best.card_bytes,
            "submissions": best.submissions,
            "submissions_waited_for": best.waits,
            "submission_seconds": beside.submission,
            "step_seconds": best.seconds,
            "processor_step_seconds": self.alone.seconds,
        })
    }

    pub(super) fn text(&self) -> String {
        let executor::Placing { placements, best, beside, .. } = &self.placed;
        let alone = self.alone;
        let mut text = format!(
            "placement, steps at depth {}, at the limit\n{}\nbeside {}\n{:<10}{:>10}{:>14}{:>22}\n",
            thousands(self.tokens),
            self.card,
            self.processor,
            "",
            "keeps",
            "a step reads",
            "the card saves a GB"
        );
        for kind in PlacedKind::ALL {
            let piece = placements.of_kind(kind);
            if piece.resident == 0 {
                continue;
            }
            let saved = 1e9 * piece.density(&beside.processor, &beside.card);
            let saved = match saved {
                saved if saved > 0.0 => short_seconds(saved),
                _ => "nothing".to_owned(),
            };
            let [keeps, reads] =
                [piece.resident, piece.work.bytes()].map(|bytes| decimal_bytes(bytes as f64));
            let _ = writeln!(text, "{:<10}{keeps:>10}{reads:>14}{saved:>22}", kind.name());
        }
        let _ = writeln!(
            text,
            "the processor alone: {} a step, {} tok/s",
            short_seconds(alone.seconds),
            rate(alone.seconds)
        );
        if best.layers == 0 {
            let _ = writeln!(text, "no card: nothing that fits is worth asking it");
            return text;
        }
        let submission = short_seconds(beside.submission);
        let known = if self.measured { "measured" } else { "assumed" };
        let plural = if best.submissions == 1 { "" } else { "s" };
        let waits = match best.waits {
            all if all == best.submissions => String::new(),
            some => format!(", {some} waited for,"),
        };
        let _ = writeln!(
            text,
            "--executor wgpu {}: {} a step, {} tok/s\n{} on the card, {} submission{plural} a step{waits} of {submission} each ({known})",
            self.placed.options(),
            short_seconds(best.seconds),
            rate(best.seconds),
            decimal_bytes(best.card_bytes as f64),
            best.submissions
        );
        text
    }
}

fn rate(seconds: f64) -> String {
    three_figures(1.0 / seconds)
}
