//! What came of questions about texts that were made: a table, JSON, a heat map.

use std::io::Write;
use std::time::Duration;

use engine::{Language, RecallCell, Tally};
use gguf::escape;
use plot::{Figure, HeatMap, Picture, grouped};
use program::{CacheOptions, SpillCounts};
use serde_json::{Value, json};

use super::file::percent;
use crate::missed::MeanMissed;
use crate::{storage, units};

/// What all cells have in common.
pub(super) struct Settings {
    pub(super) model: String,
    pub(super) seed: u64,
    /// Of each cell.
    pub(super) questions: usize,
    pub(super) cache: CacheOptions,
    /// Tokens of a prompt per pass.
    pub(super) chunk: usize,
    /// Tokens that the model was made for.
    pub(super) trained: usize,
    /// Whether the blocks where answers stand were read whatever was chosen.
    pub(super) given: bool,
}

/// What came of the questions of one kind about texts of one length.
pub(super) struct Cell {
    pub(super) cell: RecallCell,
    /// Of their sessions.
    pub(super) missed: MeanMissed,
    /// Beside the disk, of all together.
    pub(super) spilled: SpillCounts,
}

/// Settings, and a cell for each length and kind.
pub(super) struct Results {
    pub(super) settings: Settings,
    pub(super) cells: Vec<Cell>,
}

/// `4,096`.
fn tokens(n: usize) -> String {
    grouped(n as f64, 0)
}

/// As JSON: counts, share and its 95 % interval.
pub(super) fn score(score: Tally) -> Value {
    let (low, high) = score.interval();
    json!({"asked": score.asked, "right": score.right, "share": score.share(), "low": low, "high": high})
}

impl Settings {
    fn line(&self) -> String {
        format!(
            "{}, made for {} tokens; keys {}, values {}; reads {}; chunks of {}; seed {}",
            escape(&self.model, 60),
            tokens(self.trained),
            self.cache.k.name(),
            self.cache.v.name(),
            self.cache.policy,
            self.chunk,
            self.seed
        ) + if self.given { "; blocks of answers given" } else { "" }
    }
}

impl Results {
    pub(super) fn print(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}\n", self.settings.line())?;
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        table.set_header([
            "kind",
            "length",
            "asked",
            "right",
            "share",
            "95 % interval",
            "prompt",
            "first token",
            "step",
        ]);
        let time = |time: Option<Duration>| {
            time.map_or_else(|| "-".to_owned(), |time| units::short_seconds(time.as_secs_f64()))
        };
        for Cell { cell, .. } in &self.cells {
            let (low, high) = cell.score.interval();
            table.add_row([
                cell.kind.name(),
                tokens(cell.length),
                cell.score.asked.to_string(),
                cell.score.right.to_string(),
                percent(cell.score.share()),
                format!("{} to {}", percent(low), percent(high)),
                grouped(cell.prompt_tokens(), 0),
                time(cell.first_token()),
                time(cell.step()),
            ]);
        }
        writeln!(out, "{table}")?;
        for Cell { cell, missed, spilled } in &self.cells {
            let name = format!("{} {}", cell.kind.name(), tokens(cell.length));
            if let Some((missed, found)) = missed.means() {
                let (missed, found) = (percent(missed), percent(found));
                writeln!(
                    out,
                    "{name} missed {missed} of attention, read {found} of the blocks with most of it"
                )?;
            }
            if let Some(disk) = storage::footer(spilled) {
                writeln!(out, "{name} {disk}")?;
            }
            let Some(depths) = cell.depths() else { continue };
            let shares = depths.iter().map(|score| match score.asked {
                0 => "  -".to_owned(),
                _ => format!("{:3.0}", score.share() * 100.0),
            });
            let shares = shares.collect::<Vec<_>>().join(" ");
            writeln!(out, "{name} by depth, tenths, %: {shares}")?;
        }
        Ok(())
    }

    pub(super) fn print_json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let Settings { model, seed, questions, cache, chunk, trained, given } = &self.settings;
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let cell = |Cell { cell, missed, spilled }: &Cell| {
            let mut value = score(cell.score);
            let means = missed.means();
            value["kv_missed"] = means.map(|(missed, _)| missed).into();
            value["kv_best_blocks_read"] = means.map(|(_, found)| found).into();
            value["kv_disk"] = storage::to_json(spilled);
            value["kind"] = cell.kind.name().into();
            value["length"] = cell.length.into();
            value["by_language"] = Language::ALL
                .iter()
                .map(|l| (l.name().to_owned(), score(cell.language(*l))))
                .collect();
            if let Some(depths) = cell.depths() {
                value["by_depth"] = depths.iter().map(|depth| score(*depth)).collect();
            }
            value["prompt_tokens"] = cell.prompt_tokens().into();
            value["whole_prompts"] = cell.whole_prompts().into();
            value["first_token_seconds"] = seconds(cell.first_token()).into();
            value["step_seconds"] = seconds(cell.step()).into();
            value
        };
        let all = json!({
            "model": model,
            "context_length": trained,
            "seed": seed,
            "questions": questions,
            "type_k": cache.k.name(),
            "type_v": cache.v.name(),
            "kv_policy": cache.policy.to_string(),
            "given": given,
            "chunk": chunk,
            "cells": self.cells.iter().map(cell).collect::<Vec<_>>(),
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        Ok(())
    }

    /// A heat map of each kind that has depths, and one of all others.
    pub(super) fn picture(&self) -> Picture {
        let mut figure = Figure::new("Recall by depth and length")
            .subtitle(self.settings.line())
            .note(self.doubt());
        let (mut kinds, mut lengths) = (Vec::new(), Vec::new());
        for Cell { cell, .. } in &self.cells {
            if !kinds.contains(&cell.kind) {
                kinds.push(cell.kind);
            }
            if !lengths.contains(&cell.length) {
                lengths.push(cell.length);
            }
        }
        let found = |kind, length: &usize| {
            let mut cells = self.cells.iter().map(|cell| &cell.cell);
            cells.find(|cell| cell.kind == kind && cell.length == *length)
        };
        let share = |score: Option<Tally>| {
            score.filter(|score| score.asked > 0).map_or(f64::NAN, |score| score.share())
        };
        let map = |title: String| {
            HeatMap::new(title).columns("length in tokens", lengths.iter().map(|n| tokens(*n)))
        };
        for kind in kinds.iter().filter(|kind| kind.has_depth()) {
            let mut map = map(kind.name()).rows("depth of the answer");
            for tenth in 0..10 {
                let depth = |length| found(*kind, length)?.depths().map(|depths| depths[tenth]);
                let shares = lengths.iter().map(|length| share(depth(length)));
                map = map.row(format!("{}\u{2013}{} %", 10 * tenth, 10 * tenth + 10), shares);
            }
            let all =
                lengths.iter().map(|length| share(found(*kind, length).map(|cell| cell.score)));
            figure = figure.panel(map.row("all", all));
        }
        let others: Vec<_> = kinds.iter().filter(|kind| !kind.has_depth()).collect();
        if !others.is_empty() {
            let mut map = map("all over the text".into()).rows("kind");
            for kind in others {
                let score = |length| found(*kind, length).map(|cell| cell.score);
                map = map.row(kind.name(), lengths.iter().map(|length| share(score(length))));
            }
            figure = figure.panel(map);
        }
        figure.picture()
    }

    /// How wide the intervals are.
    fn doubt(&self) -> String {
        let n = self.settings.questions as u64;
        let (low, high) = Tally { asked: n, right: n / 2 }.interval();
        format!(
            "Cells are shares of right answers in %; {n} questions of each kind and length: of half of them right, the 95 % \
             interval is {:.0} to {:.0} %.",
            low * 100.0,
            high * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{RecallKind, Stats};
    use program::CacheType;

    fn results() -> Results {
        let cache = CacheOptions::new(CacheType::F16, CacheType::Q8_0, 4096);
        let settings = Settings {
            model: "some <model>".into(),
            seed: 7,
            questions: 10,
            cache,
            chunk: 512,
            trained: 1024,
            given: false,
        };
        let mut cells = Vec::new();
        for (length, kind) in
            [1024, 4096].into_iter().flat_map(|n| [(n, RecallKind::PassKey), (n, RecallKind::Sum)])
        {
            let mut cell = RecallCell::new(kind, length);
            for place in kind.places(10) {
                let right = length == 1024 || place.tenth == Some(9);
                let stats = Stats { prompt_tokens: length - 48, ..Stats::default() };
                cell.add(&place, right, &stats);
            }
            let (missed, spilled) = (MeanMissed::default(), SpillCounts::default());
            cells.push(Cell { cell, missed, spilled });
        }
        Results { settings, cells }
    }

    #[test]
    fn a_table_has_a_row_for_each_cell_and_its_settings() {
        let mut out = Vec::new();
        results().print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for want in [
            "keys f16, values q8_0; reads full; chunks of 512; seed 7",
            "| passkey | 4,096  | 10    | 1     | 10.0 %",
            "| sum     | 1,024  | 10    | 10    | 100.0 %",
            "passkey 4,096 by depth, tenths, %:   0   0   0   0   0   0   0   0   0 100",
        ] {
            assert!(text.contains(want), "{want} in {text}");
        }
    }

    #[test]
    fn json_has_an_object_for_each_cell() {
        let mut out = Vec::new();
        results().print_json(&mut out).unwrap();
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((json["seed"].as_u64(), json["type_v"].as_str()), (Some(7), Some("q8_0")));
        assert_eq!(json["kv_policy"], "full");
        let cells = json["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 4);
        assert_eq!(
            (cells[2]["kind"].as_str(), cells[2]["right"].as_u64()),
            (Some("passkey"), Some(1))
        );
        assert_eq!(cells[2]["by_depth"][9]["right"], 1);
        assert_eq!(cells[2]["by_language"]["zh"]["asked"], 5);
        assert_eq!(
            (cells[3]["length"].as_u64(), &cells[3]["by_depth"]),
            (Some(4096), &Value::Null)
        );
        assert!(cells[0]["first_token_seconds"].is_null() && cells[0]["prompt_tokens"] == 976.0);
    }

    #[test]
    fn the_picture_has_depths_and_kinds_without() {
        let svg = results().picture().svg();
        for want in [
            ">passkey<",
            ">sum<",
            ">4,096<",
            ">0\u{2013}10 %<",
            ">100<",
            "90\u{2013}100 %: 1,024 100 %, 4,096 100 %.",
        ] {
            assert!(svg.contains(want), "{want} in {svg}");
        }
        assert!(svg.contains("some &lt;model&gt;"));
    }
}
