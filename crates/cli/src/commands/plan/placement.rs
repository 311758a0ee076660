//! `--placement`: what of a model a card should have, and the options that place it so.

use std::fmt::Write as _;

use planner::{CardBeside, Machine, PlacedKind, PlacedStep, Placements};
use program::{CacheOptions, CacheType, KvPolicy, Program};
use serde_json::{Value, json};

use super::target::Target;
use crate::exit::Failure;
use crate::ui;
use crate::units::{decimal_bytes, short_seconds, thousands, three_figures};

/// Seconds in which a card answers, where it was not measured: some 90 us are what frameworks are said to lose each time
/// that a layer's experts are the processor's.
const SUBMISSION: f64 = 100e-6;

/// A placement and what it was chosen by.
pub(super) struct Placing {
    placements: Placements,
    beside: CardBeside,
    /// Whether the time of a submission was measured.
    measured: bool,
    best: PlacedStep,
    alone: PlacedStep,
    n_layers: usize,
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
            let problem = "--placement wants a card with memory of its own: --device NAME, or --executor wgpu";
            return Err(Failure::Usage(problem.into()).into());
        }
        if cache.policy != KvPolicy::Full {
            let problem = "--placement: GPUs have no context memory: --kv-policy full";
            return Err(Failure::Usage(problem.into()).into());
        }
        let on_a_gpu = |ty| if ty == CacheType::Q8_0 { CacheType::F16 } else { ty };
        let kept = CacheOptions { k: on_a_gpu(cache.k), v: on_a_gpu(cache.v), ..*cache };
        if kept != *cache {
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
            memory: memory.max(0.0),
            submission: card.submission().unwrap_or(SUBMISSION),
        };
        let placements = Placements::of(program, &kept);
        let (best, alone) = (placements.best(&beside), placements.step(0, 0, &beside));
        let n_layers = program.nodes.iter().filter_map(|node| node.layer).max();
        let left = best.processor_bytes as f64;
        let misfit = processor.room().filter(|room| left > *room).map(|room| {
            let (left, room) = (decimal_bytes(left), decimal_bytes(room.max(0.0)));
            format!("does not fit: the card leaves {left} to the processor, which has {room}")
        });
        Ok(Placing {
            placements,
            beside,
            measured: card.submission().is_some(),
            best,
            alone,
            n_layers: n_layers.map_or(0, |last| last + 1),
            tokens: cache.capacity as u64,
            card: card.name.clone(),
            processor: processor.name,
            misfit,
        })
    }

    /// `-ngl all --n-cpu-moe 12`.
    fn options(&self) -> String {
        let layers = match self.best.layers {
            n if n > self.n_layers => "all".to_owned(),
            n => n.to_string(),
        };
        let apart = match self.best.apart {
            0 => String::new(),
            n => format!(" --n-cpu-moe {n}"),
        };
        format!("-ngl {layers}{apart}")
    }

    pub(super) fn json(&self) -> Value {
        let kinds = PlacedKind::ALL.map(|kind| {
            let piece = self.placements.of_kind(kind);
            json!({
                "kind": kind.name(),
                "bytes": piece.resident,
                "step_bytes": piece.work.bytes(),
                "seconds_saved_per_byte": piece.density(&self.beside.processor, &self.beside.card),
            })
        });
        json!({
            "processor": self.processor,
            "pieces": kinds,
            "options": self.options(),
            "n_gpu_layers": self.best.layers,
            "n_cpu_moe": self.best.apart,
            "card_bytes": self.best.card_bytes,
            "submissions": self.best.submissions,
            "submission_seconds": self.beside.submission,
            "step_seconds": self.best.seconds,
            "processor_step_seconds": self.alone.seconds,
        })
    }

    pub(super) fn text(&self) -> String {
        let Placing { best, alone, beside, .. } = self;
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
            let piece = self.placements.of_kind(kind);
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
        let _ = writeln!(
            text,
            "--executor wgpu {}: {} a step, {} tok/s\n{} on the card, {} submission{plural} a step of {submission} each ({known})",
            self.options(),
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
