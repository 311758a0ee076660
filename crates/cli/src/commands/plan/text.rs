//! A plan for people: the most wanted facts come first. On a terminal, lines break between words, and columns that do not fit
//! continue in a second table below.

use std::io::{self, Write};

use planner::plan::Timed;
use planner::{Resource, WhatIf};
use program::KvPolicy;

use super::miss;
use crate::output::shown;
use crate::predictions::ErrorBar;
use crate::units::{counted, figures, scaled, short_seconds, thousands, three_figures};
use crate::wrap::hanging;
use rooflight::plan::Plan;

/// Everything; with `verbose`, every table in full.
pub(super) fn report(
    r: &Plan<'_>,
    verbose: bool,
    columns: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = Vec::new();
    whole(r, verbose, columns, &mut text)?;
    match columns {
        None => out.write_all(&text),
        Some(columns) => {
            let text = String::from_utf8_lossy(&text);
            out.write_all(hanging(&text, columns, indent).as_bytes())
        }
    }
}

/// Column at which facts start, after their names.
const NAMES: usize = 12;

/// Returns the indentation of continuation lines.
fn indent(line: &str) -> usize {
    let is_fact = line.is_char_boundary(NAMES) && line[..NAMES].ends_with("  ");
    if is_fact { NAMES } else { 2 }
}

fn whole(
    r: &Plan<'_>,
    verbose: bool,
    columns: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{}\n", r.verdict())?;
    head(r, out)?;
    if let Some((goals, answer)) = &r.goals {
        writeln!(out)?;
        goal(r, goals, answer, out)?;
    }
    writeln!(out)?;
    facts(r, out)?;
    if let Some(placing) = &r.placing {
        write!(out, "\n{}", super::placement::text(placing))?;
    }
    let known = |bar: Option<ErrorBar>| match (expected(r), bar) {
        (false, _) => ", at the limit".to_owned(),
        (true, None) => String::new(),
        (true, Some(bar)) => {
            let runs = counted(bar.runs, "run");
            format!(", expected ± {:.0} % by {runs}", (100.0 * bar.part).ceil())
        }
    };
    let [of_prompts, of_steps] = r.error_bars.map(known);
    let writes = r.subject.config.text.is_none();
    if !r.runs() {
        return if writes { what_if(r, columns, out) } else { Ok(()) };
    }
    writeln!(out, "\n{}{of_prompts}", if writes { "first token" } else { "a text" })?;
    write!(out, "{}", prompts(r, verbose, columns))?;
    turns(r, out)?;
    if !writes {
        return Ok(());
    }
    writeln!(out, "\nsteps{of_steps}")?;
    write!(out, "{}", if verbose { all_steps(r, columns) } else { steps(r, columns) })?;
    let w = r.forecast.tokens_per_extra_second;
    let w = match w.is_finite() {
        true => format!("W = {} tokens per extra ms", figures(w / 1000.0)),
        false => "W without end: windows bound the cache".to_owned(),
    };
    let (weights, bounded) = (r.forecast.first_step_seconds, r.forecast.bounded_seconds);
    let b = short_seconds(weights + bounded);
    let of = if bounded > 0.0 { "weights, bounded reads" } else { "weights" };
    writeln!(out, "latency = B + depth / W: B = {b} ({of}), {w}")?;
    what_if(r, columns, out)
}

/// Other types of weights and cache.
fn what_if(r: &Plan<'_>, columns: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let limits = match r.what_if.first().and_then(|row| row.empty.expected) {
        Some(_) => "",
        None => ", at the limit",
    };
    writeln!(out, "\nwhat if{limits}")?;
    write!(out, "{}", what_ifs(r, columns))
}

fn head(r: &Plan<'_>, out: &mut dyn Write) -> io::Result<()> {
    let config = &r.subject.config;
    let layer = config.first_layer();
    writeln!(
        out,
        "{}, {} weights, {} cache: {}, {} layers, {} heads of {}, {} KV heads",
        r.subject.name,
        r.weights,
        r.cache,
        config.architecture,
        config.layers.len(),
        layer.n_heads,
        layer.head_dim,
        layer.n_kv_heads
    )?;
    writeln!(
        out,
        "on {} ({}{}): {}/s; {}",
        r.target.name,
        r.target.source,
        if r.target.busy { " while other programs ran" } else { "" },
        r.size(r.machine.bandwidth),
        rates(r)
    )?;
    if r.article() {
        return Ok(());
    }
    let balance = r.machine.balance().map(|(kind, flop)| (kind, format!("{flop:.1}")));
    writeln!(out, "FLOP for each byte that memory yields: {}", by_kind(&balance))
}

/// `f32 82.6, f16 330, bf16 165, int8 661 TFLOP/s`.
fn rates(r: &Plan<'_>) -> String {
    if r.article() {
        return article_rate(r.machine.f32_macs);
    }
    let rates = r.machine.rates();
    let least = rates.iter().map(|(_, macs)| 2.0 * macs).fold(f64::INFINITY, f64::min);
    let (scale, prefix) = match least {
        x if x >= 1e12 => (1e12, "T"),
        x if x >= 1e9 => (1e9, "G"),
        _ => (1.0, ""),
    };
    format!(
        "{} {prefix}FLOP/s",
        by_kind(&rates.map(|(kind, macs)| (kind, figures(2.0 * macs / scale))))
    )
}

/// Kinds of number with the same figure together, the widest first.
fn by_kind(figures: &[(Resource, String); 4]) -> String {
    let mut parts: Vec<(String, &str)> = Vec::new();
    for (kind, figure) in figures.iter().rev() {
        match parts.iter_mut().find(|(_, same)| same == figure) {
            Some((names, _)) => *names = format!("{names}, {}", kind.name()),
            None => parts.push((kind.name().to_owned(), figure)),
        }
    }
    let parts = parts.into_iter().map(|(names, figure)| format!("{names} {figure}"));
    parts.collect::<Vec<_>>().join("; ")
}

fn goal(
    r: &Plan<'_>,
    goals: &planner::goal::Goals,
    answer: &planner::goal::Answer,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut wanted = Vec::new();
    if let Some(time) = goals.first_token {
        let prompt = thousands(goals.prompt);
        wanted.push(format!("first token of {prompt} within {}", short_seconds(time)));
    }
    if let Some(rate) = goals.tokens_per_second {
        wanted.push(format!("{} tok/s", three_figures(rate)));
    }
    wanted.push(format!("{} tokens of context", thousands(goals.context)));
    if let Some(memory) = goals.memory {
        wanted.push(format!("in {}", r.size(memory.max(0.0))));
    }
    writeln!(out, "goals       {}", wanted.join(", "))?;
    let verdict = if answer.met() { "met by" } else { "nearest" };
    let limits = if answer.expected { "" } else { " (limits)" };
    writeln!(
        out,
        "{verdict:<12}{} weights with {} cache: first token {}, {} tok/s{limits}, {}",
        r.weights,
        r.cache,
        short_seconds(answer.first_token),
        three_figures(answer.tokens_per_second),
        r.size(answer.memory)
    )?;
    for missed in &answer.misses {
        writeln!(out, "missed      {}", miss(missed))?;
    }
    Ok(())
}

fn facts(r: &Plan<'_>, out: &mut dyn Write) -> io::Result<()> {
    let plan = &r.forecast;
    let p = &plan.parameters;
    let count = |n: u64| r.parameters(n);
    let tied = match p.shared {
        0 => "",
        shared if shared < p.embedding => " (the head's among them)",
        _ => " (the same table)",
    };
    writeln!(
        out,
        "parameters  {}: layers {}, head {}, embedding {}{tied}; {} active per token",
        count(p.resident()),
        count(p.layers.saturating_add(p.idle)),
        count(p.head),
        count(p.embedding),
        count(p.active())
    )?;
    let mut types: Vec<_> = plan.types.iter().collect();
    types.sort_by_key(|ty| std::cmp::Reverse(ty.bytes));
    let types: Vec<_> =
        types.iter().map(|ty| format!("{} {}", ty.name, r.size(ty.bytes as f64))).collect();
    let types = if types.is_empty() { String::new() } else { format!(": {}", types.join(", ")) };
    writeln!(
        out,
        "weights     {}{types}; {} read per token",
        r.size(plan.resident_bytes),
        r.size(plan.step_weight_bytes)
    )?;
    let per_token = r.caches.iter().map(|c| format!("{} {}", r.size(c.bytes_per_token), c.cache));
    writeln!(out, "cache       per token: {}", per_token.collect::<Vec<_>>().join(", "))?;
    let [once, kept] = plan.state_bytes;
    if once > 0.0 {
        let [once, kept] = [r.size(once), r.size(kept)];
        writeln!(out, "states      {once} a session, {kept} with those to go back to")?;
    }
    if let KvPolicy::Memory(memory) = r.policy {
        writeln!(out, "context     read in part: {memory}")?;
        let last = usize::try_from(r.context).unwrap_or(usize::MAX / 2).max(1) - 1;
        let [least, most] = memory.reads(last).map(|positions| thousands(positions as u64));
        if least != most {
            writeln!(
                out,
                "            a step at the end reads {least} to {most} positions: limits count the fewest, expected times the most"
            )?;
        }
    }
    if let Some(needs) = r.needs {
        let [total, weights, cache, work] = [needs.total(), needs.weights, needs.cache, needs.work]
            .map(|bytes| r.size(bytes as f64));
        writeln!(
            out,
            "memory      {total} here: weights {weights}, cache {cache} at {} tokens, workspace {work}",
            thousands(r.context)
        )?;
    }
    if let Some(bound) = &r.bound {
        let (most, cache) = (r.size(bound.most as f64), r.size(bound.cache));
        let tokens = thousands(r.context);
        let told = match &bound.disk {
            Some(folder) if bound.cache > 0.0 => {
                format!(", the rest in {}: at least {cache} at {tokens} tokens", shown(folder))
            }
            Some(folder) => format!(", the rest in {}", shown(folder)),
            None => format!(": at least {cache} at {tokens} tokens"),
        };
        let resident = r.needs.and_then(|needs| bound.resident(&needs));
        let resident = resident.map(|bytes| format!("; {} in memory", r.size(bytes as f64)));
        writeln!(
            out,
            "bound       caches of at most {most}{told}{}",
            resident.unwrap_or_default()
        )?;
    }
    let room = r.target.memory.map_or("memory not known: give --memory".into(), |memory| {
        format!("longest in {}", r.size(memory))
    });
    let longest = r.caches.iter().filter_map(|c| {
        let tokens = match c.longest_context? {
            0 => "weights do not fit".into(),
            n => thousands(n),
        };
        Some(format!("{tokens} ({})", c.cache))
    });
    let mut longest: Vec<_> = longest.collect();
    if !longest.is_empty() && r.caches.iter().all(|c| c.longest_context == Some(0)) {
        longest = vec!["weights do not fit".to_owned()];
    }
    let separator = if longest.is_empty() { "" } else { ": " };
    writeln!(
        out,
        "context     {room}{separator}{}; made for {}",
        longest.join(", "),
        thousands(r.subject.config.context_length as u64)
    )
}

fn prompts(r: &Plan<'_>, verbose: bool, columns: Option<usize>) -> String {
    let what = if r.subject.config.text.is_some() { "text" } else { "prompt" };
    let mut rows = vec![strings(&[what, "read", "compute", "limit"])];
    if expected(r) {
        rows[0].push("expected".into());
    }
    rows[0].extend(strings(&["tok/s", "binds"]));
    if verbose && !r.article() {
        rows[0].push("activations".into());
    }
    for point in &r.forecast.prompts {
        let mut row = times(r, point);
        row.push(figures(point.prompt_rate()));
        row.push(point.limit.binds().name().into());
        if verbose && !r.article() {
            row.push(r.size(point.activation_bytes as f64));
        }
        rows.push(row);
    }
    stacked(&rows, columns)
}

/// Whether times are known that are to be expected.
fn expected(r: &Plan<'_>) -> bool {
    r.forecast.prompts.iter().chain(&r.forecast.steps).any(|point| point.expected.is_some())
}

/// Tokens, read, compute, limit, and what is to be expected.
fn times(r: &Plan<'_>, point: &Timed) -> Vec<String> {
    let limit = &point.limit;
    let mut row = vec![
        thousands(point.tokens),
        match limit.memory_most > 1.005 * limit.memory {
            // the fewest experts, and the most
            true => {
                format!("{} to {}", short_seconds(limit.memory), short_seconds(limit.memory_most))
            }
            false => short_seconds(limit.memory),
        },
        short_seconds(limit.compute()),
        short_seconds(limit.limit()),
    ];
    if expected(r) {
        row.push(point.expected.map_or("-".into(), short_seconds));
    }
    row
}

fn turns(r: &Plan<'_>, out: &mut dyn Write) -> io::Result<()> {
    let length = |n: Option<f64>| n.map_or("none".into(), |n| thousands(n as u64));
    let turns = &r.forecast.turns;
    write!(out, "inflections: {} tokens (arithmetic binds), ", length(turns.first))?;
    writeln!(out, "{} (un-tiled bound: cache binds)", length(turns.second))?;
    let Some(chunk) = r.chunk else { return Ok(()) };
    if r.subject.config.reads_at_once() {
        return writeln!(out, "each text goes through at once");
    }
    let how = match (r.chunk_given, r.chunk_measured) {
        (true, _) => "as asked",
        (false, true) => "measured to be best",
        (false, false) => "the default",
    };
    writeln!(
        out,
        "prompts go through in chunks of {} ({how}); limits read everything once",
        thousands(chunk)
    )
}

/// Depths side by side.
fn steps(r: &Plan<'_>, columns: Option<usize>) -> String {
    let head = ["depth", "limit", "expected", "tok/s"];
    let mut rows: Vec<Vec<String>> = head.iter().map(|name| strings(&[*name])).collect();
    for point in &r.forecast.steps {
        rows[0].push(thousands(point.tokens));
        rows[1].push(short_seconds(point.limit.limit()));
        rows[2].push(point.expected.map_or("-".into(), short_seconds));
        rows[3].push(figures(point.step_rate()));
    }
    if !expected(r) {
        rows.remove(2);
    }
    stacked(&rows, columns)
}

/// One depth a line, with what it consists of.
fn all_steps(r: &Plan<'_>, columns: Option<usize>) -> String {
    let mut rows = vec![strings(&["depth", "read", "compute", "limit"])];
    if expected(r) {
        rows[0].push("expected".into());
    }
    rows[0].extend(strings(&["tok/s", "binds"]));
    for point in &r.forecast.steps {
        let mut row = times(r, point);
        row.push(figures(point.step_rate()));
        row.push(point.limit.binds().name().into());
        rows.push(row);
    }
    stacked(&rows, columns)
}

/// Weights down, caches across.
fn what_ifs(r: &Plan<'_>, columns: Option<usize>) -> String {
    let mut caches: Vec<&str> = Vec::new();
    let mut weights: Vec<&str> = Vec::new();
    for row in &r.what_if {
        if !caches.contains(&&*row.cache) {
            caches.push(&row.cache);
        }
        if !weights.contains(&&*row.weights) {
            weights.push(&row.weights);
        }
    }
    let mut rows = vec![strings(&["weights", "size", "tok/s"])];
    for cache in &caches {
        rows[0].push(format!("{cache}: longest"));
        rows[0].push(format!("tok/s at {}", thousands(r.context)));
    }
    for name in weights {
        let of_name = || r.what_if.iter().filter(|row| row.weights == name);
        let Some(first) = of_name().next() else { continue };
        let rate = |row: &WhatIf, timed: &Timed, context: u64| match row.longest_context {
            Some(longest) if longest < context.max(1) => "-".to_owned(),
            _ => figures(timed.step_rate()),
        };
        let mut row =
            vec![name.to_owned(), r.size(first.resident_bytes), rate(first, &first.empty, 1)];
        for cache in &caches {
            let Some(found) = of_name().find(|row| row.cache == *cache) else { continue };
            row.push(longest(found));
            row.push(rate(found, &found.full, r.context));
        }
        rows.push(row);
    }
    stacked(&rows, columns)
}

fn longest(row: &WhatIf) -> String {
    match row.longest_context {
        None => "-".into(),
        Some(0) => "does not fit".into(),
        Some(n) => thousands(n),
    }
}

/// Multiply-adds per second of the article, in FLOP, of which each is two.
fn article_rate(macs: f64) -> String {
    format!("{}FLOP/s f32", scaled(2.0 * macs, 1024.0, ["", "Ki", "Mi", "Gi", "Ti"]))
}

fn strings(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Rows under each other, the first column to the left, the others to the right.
pub(super) fn aligned(rows: &[Vec<String>], indent: usize) -> String {
    let n = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = " ".repeat(indent);
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if i == 0 {
                line.push_str(&format!("{cell:<width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Lays out a table within `most` terminal columns: those that do not fit follow in further tables below, each with the first.
fn stacked(rows: &[Vec<String>], most: Option<usize>) -> String {
    let n = rows.iter().map(Vec::len).max().unwrap_or(0);
    let part = |columns: std::ops::Range<usize>| -> Vec<Vec<String>> {
        let cells = |row: &Vec<String>| {
            let first = row.first().cloned();
            let others = row.get(columns.start..columns.end.min(row.len())).unwrap_or_default();
            first.into_iter().chain(others.iter().cloned()).collect()
        };
        rows.iter().map(cells).collect()
    };
    let fits =
        |text: &str| most.is_none_or(|most| text.lines().all(|line| line.chars().count() <= most));
    let mut out = String::new();
    let mut start = 1;
    while start < n || start == 1 {
        // take as many columns as fit, but at least one
        let ends = (start + 1..=n).rev();
        let fitting = ends.map(|end| (end, aligned(&part(start..end), 0)));
        let found =
            fitting.clone().find(|(_, text)| fits(text)).or_else(|| fitting.clone().next_back());
        let (end, text) = found.unwrap_or_else(|| (n.max(2), aligned(rows, 0)));
        if start > 1 {
            out.push('\n');
        }
        out.push_str(&text);
        start = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [strings(&["a", "bb", "c"]), strings(&["long", "1"])];
        assert_eq!(aligned(&rows, 1), " a     bb  c\n long   1\n");
        assert_eq!(aligned(&[], 2), "");
    }

    #[test]
    fn wide_tables_go_on_below() {
        let rows = [strings(&["type", "size", "tok/s"]), strings(&["Q4_0", "12 GB", "9"])];
        assert_eq!(stacked(&rows, None), aligned(&rows, 0));
        assert_eq!(stacked(&rows, Some(18)), aligned(&rows, 0));
        assert_eq!(
            stacked(&rows, Some(17)),
            "type   size\nQ4_0  12 GB\n\ntype  tok/s\nQ4_0      9\n"
        );
        // a single column is shown at any width
        assert_eq!(stacked(&rows, Some(3)), stacked(&rows, Some(11)));
        assert_eq!(stacked(&[], Some(9)), "");
        assert_eq!(stacked(&[strings(&["a"])], Some(9)), "a\n");
    }
}
