//! `--placement`: what of a model a card should have, and the options that place it so.

use std::fmt::Write as _;

use planner::PlacedKind;
use rooflight::executor::Placing;
use rooflight::plan::PlannedPlacement;
use serde_json::{Value, json};

use crate::units::{decimal_bytes, short_seconds, thousands, three_figures};

/// The placement as JSON: bytes, seconds.
pub(super) fn json(p: &PlannedPlacement) -> Value {
    let Placing { placements, beside, best, .. } = &p.placed;
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
        "processor": p.processor,
        "pieces": kinds,
        "options": p.placed.options(),
        "n_gpu_layers": best.layers,
        "n_cpu_moe": best.apart,
        "card_bytes": best.card_bytes,
        "submissions": best.submissions,
        "submissions_waited_for": best.waits,
        "submission_seconds": beside.submission,
        "step_seconds": best.seconds,
        "processor_step_seconds": p.alone.seconds,
    })
}

/// The placement for people.
pub(super) fn text(p: &PlannedPlacement) -> String {
    let Placing { placements, best, beside, .. } = &p.placed;
    let alone = p.alone;
    let mut text = format!(
        "placement, steps at depth {}, at the limit\n{}\nbeside {}\n{:<10}{:>10}{:>14}{:>22}\n",
        thousands(p.tokens),
        p.card,
        p.processor,
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
    let known = if p.measured { "measured" } else { "assumed" };
    let plural = if best.submissions == 1 { "" } else { "s" };
    let waits = match best.waits {
        all if all == best.submissions => String::new(),
        some => format!(", {some} waited for,"),
    };
    let _ = writeln!(
        text,
        "--executor wgpu {}: {} a step, {} tok/s\n{} on the card, {} submission{plural} a step{waits} of {submission} each ({known})",
        p.placed.options(),
        short_seconds(best.seconds),
        rate(best.seconds),
        decimal_bytes(best.card_bytes as f64),
        best.submissions
    );
    text
}

fn rate(seconds: f64) -> String {
    three_figures(1.0 / seconds)
}
