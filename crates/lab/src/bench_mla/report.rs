//! Cells as markdown tables, JSON and a picture.

use std::io::Write;
use std::time::Duration;

use comfy_table::{Cell as Field, CellAlignment, Table, presets};
use cpu::MlaForm;
use plot::{Axis, Figure, Lines, Picture, Series, Unit, grouped, si};
use program::{CacheType, Ceilings};
use quant::GgmlType;
use serde_json::{Value, json};

use super::cell::{Cell, Least, Shape};
use super::peak::Peak;
use console::units::{decimal_bytes, short_seconds, thousands, three_figures};

/// All that was measured.
pub(super) struct Report {
    /// The processor.
    pub(super) machine: String,
    pub(super) threads: usize,
    pub(super) ty: GgmlType,
    pub(super) cache: CacheType,
    pub(super) ceilings: Ceilings,
    pub(super) cells: Vec<Cell>,
    /// Bytes in which `peaks` are found.
    pub(super) room: u64,
    pub(super) peaks: Vec<Peak>,
}

const COLUMNS: [&str; 10] = [
    "context",
    "form",
    "attention",
    "x compressed",
    "limit",
    "share",
    "GFLOP",
    "read",
    "cache",
    "work memory",
];

impl Report {
    /// One table for each shape and number of queries, and below it what was left out.
    pub(super) fn tables(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}", self.subtitle())?;
        for (shape, queries) in self.groups() {
            writeln!(out, "\n{}\n", title(shape, queries))?;
            let mut table = Table::new();
            table.load_style(presets::ASCII_MARKDOWN).set_header(COLUMNS);
            let (mut left_out, mut rows) = (Vec::new(), 0);
            for cell in self.group(shape, queries) {
                let form = cell.load.form.name();
                let context = thousands(cell.load.context as u64);
                match self.fields(cell) {
                    Some(fields) => {
                        table.add_row(fields.into_iter().enumerate().map(|(i, text)| {
                            let right =
                                if i == 1 { CellAlignment::Left } else { CellAlignment::Right };
                            Field::new(text).set_alignment(right)
                        }));
                        rows += 1;
                    }
                    None => {
                        let why = cell.result.as_ref().err().map_or("", String::as_str);
                        left_out.push(format!("- left out: {form} at {context}: {why}"));
                    }
                }
            }
            if rows > 0 {
                writeln!(out, "{table}")?;
            }
            if rows > 0 && !left_out.is_empty() {
                writeln!(out)?;
            }
            for line in left_out {
                writeln!(out, "{line}")?;
            }
            self.peak_table(shape, queries, out)?;
        }
        Ok(())
    }

    /// How far each form gets in so much memory.
    fn peak_table(&self, shape: Shape, queries: usize, out: &mut dyn Write) -> anyhow::Result<()> {
        let of = |peak: &&Peak| (peak.row.shape, peak.row.queries) == (shape, queries);
        let peaks = self.peaks.iter().filter(of);
        let most = decimal_bytes(self.room as f64);
        writeln!(out, "\nLongest context in {most} of cache and work memory, one layer:\n")?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["form", "longest context", "cache", "work memory"]);
        let right = |text: String| Field::new(text).set_alignment(CellAlignment::Right);
        for Peak { row, longest, needs } in peaks {
            let [cache, work] = [needs.cache, needs.work].map(|n| right(decimal_bytes(n as f64)));
            let longest = right(thousands(*longest as u64));
            table.add_row([Field::new(row.form.name()), longest, cache, work]);
        }
        Ok(writeln!(out, "{table}")?)
    }

    /// Machine, settings and every cell: seconds, bytes, FLOP.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(super) fn json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let machine = self.ceilings.compute(self.threads);
        let report = json!({
            "machine": {
                "name": self.machine,
                "n_threads": self.threads,
                "bytes_per_second": self.ceilings.memory_bandwidth(self.threads),
                "f32_macs_per_second": machine.map(|c| c.f32_macs_per_second),
                "int8_macs_per_second": machine.map(|c| c.int8_macs_per_second),
            },
            "type": self.ty.name(),
            "cache_type": self.cache.name(),
            "memory_bytes": self.room,
            "longest": self.peaks.iter().map(json_peak).collect::<Vec<_>>(),
            "cells": self.cells.iter().map(|cell| self.json_cell(cell)).collect::<Vec<_>>(),
        });
        serde_json::to_writer_pretty(&mut *out, &report)?;
        Ok(writeln!(out)?)
    }

    fn json_cell(&self, cell: &Cell) -> Value {
        let load = &cell.load;
        let mut value = json!({
            "shape": load.shape.key(),
            "n_heads": load.shape.n_heads(),
            "form": load.form.name(),
            "context": load.context,
            "queries": load.queries,
            "flop": load.flop(),
        });
        let more = match &cell.result {
            Err(why) => json!({"left_out": why}),
            Ok(measure) => {
                let least = self.least(cell);
                let seconds = |times: &[Duration]| {
                    times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>()
                };
                json!({
                    "attention_seconds": cell.attention(),
                    "attention_samples": seconds(&measure.attention),
                    "layer_seconds": cell.layer(),
                    "layer_samples": seconds(&measure.layer),
                    "limit_seconds": least.seconds,
                    "bound_by": least.by.map(|by| by.name()),
                    "share": cell.attention().and_then(|s| planner::share(least.seconds, s)),
                    "read_bytes": load.bytes(),
                    "cache_bytes": measure.cache_bytes,
                    "work_bytes": measure.work_bytes,
                })
            }
        };
        if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
            value.extend(more);
        }
        value
    }

    /// Time by context, a panel for each shape and number of queries: measured, and dashed the limit.
    pub(super) fn picture(&self) -> Picture {
        let mut figure = Figure::new("Forms of latent attention: time of one layer's attention")
            .subtitle(self.subtitle())
            .note("Dots are measured. Dashed, \"limit\": the form's own, by its FLOP and bytes and the machine's ceilings.");
        for (shape, queries) in self.groups() {
            let mut chart = Lines::new(title(shape, queries))
                .size(760.0, 260.0)
                .x(Axis::log2("context", Unit::Plain("tokens")))
                .y(Axis::log("time", Unit::Si("s")));
            for (colour, form) in MlaForm::ALL.into_iter().enumerate() {
                let points = |of: &dyn Fn(&Cell) -> Option<f64>| -> Vec<(f64, f64)> {
                    let cells = self.group(shape, queries).filter(|cell| cell.load.form == form);
                    cells.filter_map(|cell| Some((cell.load.context as f64, of(cell)?))).collect()
                };
                let measured = points(&Cell::attention);
                if measured.is_empty() {
                    continue;
                }
                let limit = points(&|cell| {
                    cell.result.as_ref().ok()?;
                    Some(self.least(cell).seconds)
                });
                chart = chart
                    .series(
                        Series::new(format!("{}, measured", form.name()), measured)
                            .dots()
                            .colour(colour),
                    )
                    .series(
                        Series::new(format!("{}, limit", form.name()), limit)
                            .dashed()
                            .colour(colour),
                    );
            }
            figure = figure.panel(chart);
        }
        figure.picture()
    }

    /// Of what, on what.
    fn subtitle(&self) -> String {
        let rates = self.ceilings.compute(self.threads).map(|c| {
            format!(
                ", {}, {} f32, {} int8",
                si(self.ceilings.memory_bandwidth(self.threads).unwrap_or(0.0), "B/s"),
                si(2.0 * c.f32_macs_per_second, "FLOP/s"),
                si(2.0 * c.int8_macs_per_second, "OP/s")
            )
        });
        let plural = if self.threads == 1 { "" } else { "s" };
        format!(
            "{}, {} thread{plural}{}; matrices {}, cache {}",
            self.machine,
            self.threads,
            rates.unwrap_or_default(),
            self.ty,
            self.cache.name()
        )
    }

    /// Shapes with numbers of queries, each once, in the order measured.
    fn groups(&self) -> Vec<(Shape, usize)> {
        let mut groups = Vec::new();
        for cell in &self.cells {
            let group = (cell.load.shape, cell.load.queries);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// Its cells by context, then by form.
    fn group(&self, shape: Shape, queries: usize) -> impl Iterator<Item = &Cell> {
        let of = move |cell: &&Cell| (cell.load.shape, cell.load.queries) == (shape, queries);
        let mut cells: Vec<_> = self.cells.iter().filter(of).collect();
        cells.sort_by_key(|cell| cell.load.context);
        cells.into_iter()
    }

    fn least(&self, cell: &Cell) -> Least {
        Least::new(&cell.load, &self.ceilings, self.threads)
    }

    fn fields(&self, cell: &Cell) -> Option<Vec<String>> {
        let measure = cell.result.as_ref().ok()?;
        let attention = cell.attention()?;
        let least = self.least(cell);
        let same = |other: &&Cell| {
            other.load.form == MlaForm::Compressed && other.load.context == cell.load.context
        };
        let compressed = self.group(cell.load.shape, cell.load.queries).find(same);
        let faster = compressed.and_then(Cell::attention).map(|time| time / attention);
        let share = planner::share(least.seconds, attention);
        let limit = least.by.map(|by| format!("{} ({})", short_seconds(least.seconds), by.name()));
        Some(vec![
            thousands(cell.load.context as u64),
            cell.load.form.name().to_owned(),
            short_seconds(attention),
            faster.map(three_figures).unwrap_or_default(),
            limit.unwrap_or_default(),
            share.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default(),
            three_figures(cell.load.flop() as f64 / 1e9),
            decimal_bytes(cell.load.bytes() as f64),
            decimal_bytes(measure.cache_bytes as f64),
            decimal_bytes(measure.work_bytes as f64),
        ])
    }
}

fn json_peak(peak: &Peak) -> Value {
    json!({
        "shape": peak.row.shape.key(),
        "form": peak.row.form.name(),
        "queries": peak.row.queries,
        "context": peak.longest,
        "cache_bytes": peak.needs.cache,
        "work_bytes": peak.needs.work,
    })
}

fn title(shape: Shape, queries: usize) -> String {
    let plural = if queries == 1 { "" } else { "s" };
    format!("{}: {} new token{plural}", shape.name(), grouped(queries as f64, 0))
}

#[cfg(test)]
mod tests {
    use program::MemoryNeeds;

    use super::super::cell::tests::{ceilings, load};
    use super::super::layer::MlaMeasure;
    use super::*;

    fn report() -> Report {
        let measured = |form, milliseconds| {
            let load = load(form, 1);
            let time = vec![Duration::from_millis(milliseconds)];
            let result = Ok(MlaMeasure {
                layer: time.clone(),
                attention: time,
                cache_bytes: load.cache_bytes(),
                work_bytes: 1_000_000,
            });
            Cell { load, result }
        };
        let left_out =
            Cell { load: load(MlaForm::Expanded, 16), result: Err("needs 9 GiB".into()) };
        Report {
            machine: "a CPU".into(),
            threads: 2,
            ty: GgmlType::Q8_0,
            cache: CacheType::F16,
            ceilings: ceilings(),
            cells: vec![measured(MlaForm::Compressed, 340), measured(MlaForm::Elided, 5), left_out],
            room: 1_000_000_000,
            peaks: vec![Peak {
                row: load(MlaForm::Elided, 1).row(),
                longest: 800_000,
                needs: MemoryNeeds {
                    weights: 0,
                    cache: 900_000_000,
                    work: 2_000_000,
                    ..MemoryNeeds::default()
                },
            }],
        }
    }

    #[test]
    fn tables_compare_the_forms() {
        let mut out = Vec::new();
        report().tables(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for want in [
            "a CPU, 2 threads, 10 GB/s, 100 GFLOP/s f32, 400 GOP/s int8; matrices Q8_0, cache f16",
            "DeepSeek-V2: 1 new token\n",
            "|   5.00 ms |         68.0 |  2.87 ms (f32) |  57 % |",
            "DeepSeek-V2: 16 new tokens\n",
            "- left out: expanded at 1,000: needs 9 GiB",
            "Longest context in 1.00 GB of cache and work memory, one layer:",
            "|         800,000 | 900 MB |     2.00 MB |",
        ] {
            assert!(text.contains(want), "{want}\n{text}");
        }
    }

    #[test]
    fn json_has_every_cell() {
        let mut out = Vec::new();
        report().json(&mut out).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        let cells = value["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 3);
        assert_eq!(cells[1]["attention_seconds"], 0.005);
        assert_eq!(cells[1]["bound_by"], "f32");
        assert!(cells[1]["share"].as_f64().unwrap() > 0.5);
        assert_eq!(cells[2]["left_out"], "needs 9 GiB");
        assert_eq!(value["machine"]["bytes_per_second"], 1e10);
    }

    #[test]
    fn the_picture_names_the_forms() {
        let svg = report().picture().svg();
        for want in [">compressed, measured<", ">elided, limit<", ">DeepSeek-V2: 1 new token<"] {
            assert!(svg.contains(want), "{want}");
        }
        assert!(!svg.contains(">expanded"));
    }
}
