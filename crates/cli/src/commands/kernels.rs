//! `kernels`: what the registry chose on this CPU.

use std::io::Write;

use comfy_table::{Table, presets};
use executors::ExecutorOptions;
use kernels::attention::{ATTEND, DOTS, MASSES, MERGE, PROMISE, SCORE_SUMS, SCORES};
use kernels::latent::LATENT_ATTEND;
use kernels::linear::{QUANTIZE_Q8, linear, linear_kernels};
use kernels::rows::{ACT, ADD, ADD_WEIGHTED, GATED, LAYER_NORM, PEAKS, RMS_NORM, ROTATE};
use kernels::{Isa, Level, Slot};
use serde::Serialize;

use crate::args;

/// Show which kernel was chosen for each op, and why
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight kernels\n  rooflight kernels --isa scalar --json")]
pub(super) struct Kernels {
    /// Choose as for a CPU that has no more than this: scalar, avx2, avx512
    #[arg(long, value_name = "NAME", value_parser = args::isa)]
    isa: Option<Isa>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Kernels {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let cpu = Isa::detect();
        let isa = self.isa.unwrap_or(cpu).and(cpu);
        let choice = Choice { cpu: cpu.name(), used: isa.name(), kernels: rows(isa, cpu) };
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &choice)?;
            writeln!(out)?;
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["op", "type", "kernel", "isa", "level", "rows", "why"]);
        for row in &choice.kernels {
            let rows = row.stream_rows.map_or(String::new(), |rows| rows.to_string());
            table.add_row([row.op, row.ty, row.kernel, row.isa, row.level, &rows, &row.why]);
        }
        writeln!(out, "this CPU: {}, used: {}\n{table}", choice.cpu, choice.used)?;
        writeln!(
            out,
            "rows: so many are multiplied while weights stream past, more in tiles; measured"
        )?;
        Ok(())
    }
}

#[derive(Serialize)]
struct Choice {
    cpu: &'static str,
    used: &'static str,
    kernels: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    op: &'static str,
    #[serde(rename = "type")]
    ty: &'static str,
    kernel: &'static str,
    isa: &'static str,
    level: &'static str,
    /// See [`executors::Cpu::stream_rows`].
    stream_rows: Option<usize>,
    why: String,
}

/// One row per op, and for the linear op one per weight type.
fn rows(isa: Isa, cpu: Isa) -> Vec<Row> {
    let executor = ExecutorOptions { threads: Some(1), isa: Some(isa), ..Default::default() }.cpu();
    let mut rows = vec![
        slot(&RMS_NORM, isa, cpu),
        slot(&LAYER_NORM, isa, cpu),
        slot(&QUANTIZE_Q8, isa, cpu),
        slot(&ROTATE, isa, cpu),
        slot(&ATTEND, isa, cpu),
        slot(&LATENT_ATTEND, isa, cpu),
        slot(&MERGE, isa, cpu),
        slot(&PROMISE, isa, cpu),
        slot(&DOTS, isa, cpu),
        slot(&SCORE_SUMS, isa, cpu),
        slot(&SCORES, isa, cpu),
        slot(&MASSES, isa, cpu),
        slot(&ADD_WEIGHTED, isa, cpu),
        slot(&ACT, isa, cpu),
        slot(&GATED, isa, cpu),
        slot(&ADD, isa, cpu),
        slot(&PEAKS, isa, cpu),
    ];
    rows.extend(quant::GgmlType::all().filter_map(|ty| {
        let chosen = linear(ty, isa)?;
        let best = linear(ty, cpu)?;
        let of_type = || linear_kernels().filter(|k| k.ty() == ty);
        let missed = of_type().find(|k| !cpu.contains(k.isa()) && k.isa().contains(best.isa()));
        let n = of_type().filter(|k| isa.contains(k.isa())).count();
        Some(Row {
            op: "linear",
            ty: ty.name(),
            kernel: chosen.name(),
            isa: chosen.isa().name(),
            level: level(chosen.level()),
            stream_rows: executor.stream_rows(ty),
            why: why(chosen.name(), best.name(), missed.map(|k| k.name()), n),
        })
    }));
    rows
}

fn slot<F>(slot: &Slot<F>, isa: Isa, cpu: Isa) -> Row {
    let chosen = slot.pick(isa);
    Row {
        op: slot.op,
        ty: "F32",
        kernel: chosen.name(),
        isa: chosen.isa().name(),
        level: level(chosen.level()),
        stream_rows: None,
        why: why(chosen.name(), slot.pick(cpu).name(), None, slot.available(isa).count()),
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Naive => "naive",
        Level::Partial => "partial",
        Level::Full => "full",
    }
}

/// `best`: what this CPU would get unrestricted; `missed`: a kernel that wants more than this CPU has; `n`: to choose
/// from.
fn why(chosen: &str, best: &str, missed: Option<&str>, n: usize) -> String {
    match (chosen == best, missed) {
        (false, _) => format!("restricted: {best} would run"),
        (true, Some(missed)) => format!("best of {n}; this CPU lacks what {missed} needs"),
        (true, None) if n == 1 => "the only one for this CPU".into(),
        (true, None) => format!("best of {n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_type_has_a_kernel_and_a_reason() {
        for isa in [Isa::NONE, Isa::detect()] {
            let rows = rows(isa, Isa::detect());
            for ty in quant::FORMATS.iter().map(|format| format.ty()) {
                assert!(rows.iter().any(|row| row.op == "linear" && row.ty == ty.name()), "{ty}");
            }
            assert!(rows.iter().all(|row| !row.why.is_empty()));
        }
        assert_eq!(why("a", "b", None, 1), "restricted: b would run");
    }
}
