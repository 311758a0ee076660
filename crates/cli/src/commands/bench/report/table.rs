//! The table of a report, fitted to the width of the terminal.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::Row;
use crate::limits::Unjudged;
use crate::units;
use crate::wrap::hanging;

/// Returns the explanation of columns whose names do not describe them.
pub(super) fn legend(rows: &[Row]) -> String {
    let explained = [
        (Column::Speed, "t/s: tokens a second as measured"),
        (Column::Expected, "expected: from the speed of our kernels alone"),
        (Column::PerToken, "per token: bytes read at least"),
        (Column::OfLimit, "of limit: share of what this machine allows, and what binds"),
    ];
    let shown = explained.into_iter().filter(|(column, _)| column.is_known(rows));
    shown.map(|(_, text)| text).collect::<Vec<_>>().join("; ")
}

/// Returns one line for each reason why tests are not compared with the limit: `pp8, tg2 are not compared with the limit: ...`
pub(super) fn reasons(rows: &[Row]) -> Vec<String> {
    let mut found: Vec<(Unjudged, Vec<&str>)> = Vec::new();
    for row in rows {
        let Some(why) = row.unjudged else { continue };
        match found.iter_mut().find(|(other, _)| *other == why) {
            Some((_, tests)) if tests.contains(&&*row.test) => {}
            Some((_, tests)) => tests.push(&row.test),
            None => found.push((why, vec![&row.test])),
        }
    }
    let line = |(why, tests): (Unjudged, Vec<&str>)| {
        let verb = if tests.len() == 1 { "is" } else { "are" };
        format!("{} {verb} not compared with the limit: {}", tests.join(", "), why.message())
    };
    found.into_iter().map(line).collect()
}

/// Columns of the table, in display order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Model,
    Size,
    Params,
    Backend,
    Threads,
    Chunk,
    Test,
    Speed,
    Expected,
    PerToken,
    OfLimit,
}

impl Column {
    const ALL: [Column; 11] = [
        Column::Model,
        Column::Size,
        Column::Params,
        Column::Backend,
        Column::Threads,
        Column::Chunk,
        Column::Test,
        Column::Speed,
        Column::Expected,
        Column::PerToken,
        Column::OfLimit,
    ];

    /// Columns that are dropped on a narrow terminal, in this order. Some become headings: see [`tables`].
    const SPARE: [Column; 9] = [
        Column::Params,
        Column::Size,
        Column::Backend,
        Column::Threads,
        Column::PerToken,
        Column::Expected,
        Column::Model,
        Column::Chunk,
        Column::OfLimit,
    ];

    fn name(self) -> &'static str {
        match self {
            Column::Model => "model",
            Column::Size => "size",
            Column::Params => "params",
            Column::Backend => "backend",
            Column::Threads => "threads",
            Column::Chunk => "chunk",
            Column::Test => "test",
            Column::Speed => "t/s",
            Column::Expected => "expected",
            Column::PerToken => "per token",
            Column::OfLimit => "of limit",
        }
    }

    /// Returns whether a row has something to show in this column.
    fn is_known(self, rows: &[Row]) -> bool {
        match self {
            Column::Expected | Column::OfLimit => rows.iter().any(|row| self.text(row) != "-"),
            _ => true,
        }
    }

    fn text(self, row: &Row) -> String {
        let s = &row.setting;
        match self {
            Column::Model => s.model_type.clone(),
            Column::Size => units::bytes(s.model_size),
            Column::Params => units::count(s.model_n_params),
            Column::Backend => s.backends.to_owned(),
            Column::Threads => s.n_threads.to_string(),
            Column::Chunk => s.n_ubatch.to_string(),
            Column::Test => row.test.clone(),
            Column::Speed => format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts),
            Column::Expected => match row.expected_ts {
                Some(ts) if row.unjudged.is_none_or(|why| !why.is_of_work()) => format!("{ts:.2}"),
                _ => "-".into(),
            },
            Column::PerToken => units::bytes(row.bytes_per_token),
            Column::OfLimit => match (row.share, row.bound_by) {
                (Some(share), Some(bound)) => format!("{:.0} % {bound}", 100.0 * share),
                _ => "-".into(),
            },
        }
    }

    fn cell(self, row: &Row) -> Cell {
        let cell = Cell::new(self.text(row));
        match self {
            Column::Model | Column::Backend => cell,
            _ => cell.set_alignment(CellAlignment::Right),
        }
    }
}

/// Returns rows as a table of at most `most` terminal columns. A dropped model column, and dropped threads or chunks that
/// differ between rows, become headings above groups of rows, each with its own table. Chunks are shown only if they differ,
/// expected speeds and shares only if there are any.
pub(super) fn tables(rows: &[Row], most: Option<usize>) -> String {
    let differs =
        |column: Column| rows.windows(2).any(|pair| column.text(&pair[0]) != column.text(&pair[1]));
    let mut shown = Column::ALL.to_vec();
    shown.retain(|column| *column != Column::Chunk || differs(Column::Chunk));
    shown.retain(|column| column.is_known(rows));
    let mut spare = Column::SPARE.iter();
    loop {
        let heads = |column: &Column| {
            let tells = matches!(column, Column::Model | Column::Threads | Column::Chunk);
            !shown.contains(column) && tells && (*column == Column::Model || differs(*column))
        };
        let heads: Vec<Column> = Column::ALL.into_iter().filter(heads).collect();
        let head = |row: &Row| -> Vec<String> {
            let text = |column: &Column| match column {
                Column::Model => column.text(row),
                _ => format!("{} {}", column.name(), column.text(row)),
            };
            heads.iter().map(text).collect()
        };
        let groups = rows.chunk_by(|a, b| head(a) == head(b));
        let text = groups.map(|group| {
            let title = head(&group[0]).join(", ");
            let title = hanging(&title, most.unwrap_or(usize::MAX), |_| 2);
            format!("{title}{}", table(group, &shown))
        });
        let text = text.collect::<Vec<_>>().join("\n\n");
        let fits = most.is_none_or(|most| text.lines().all(|line| line.chars().count() <= most));
        match spare.next() {
            Some(column) if !fits => shown.retain(|shown| shown != column),
            _ => return text,
        }
    }
}

fn table(rows: &[Row], shown: &[Column]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(shown.iter().map(|column| column.name()));
    for row in rows {
        table.add_row(shown.iter().map(|column| column.cell(row)));
    }
    table
}

#[cfg(test)]
mod tests {
    use gguf::Gguf;
    use planner::{Cost, CostOptions};

    use super::super::{FIXED, Setting, now};
    use super::*;
    use crate::commands::bench::measure::{Fill, Test, Timed};

    fn setting() -> Setting {
        let gguf = Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
        let program = models::load(&gguf).expect("it loads").program;
        Setting {
            build_commit: "x",
            build_number: 0,
            cpu_info: String::new(),
            gpu_info: String::new(),
            backends: "CPU",
            model_filename: "m.gguf".into(),
            model_type: "SmolLM2 135M Instruct Q4_K - Medium".into(),
            model_size: 98_400_000,
            model_n_params: 134_520_000,
            n_batch: 512,
            n_ubatch: 512,
            n_threads: 2,
            type_k: "f16",
            type_v: "f16",
            fixed: FIXED,
            weight_bytes_per_token: 98_400_000,
            kv_policy: "full".into(),
            fill: Fill::default(),
            cost: Cost::of(&program, &CostOptions::default()),
        }
    }

    /// Columns that say nothing about small work are omitted, and a line explains why.
    #[test]
    fn small_work_is_not_compared_and_a_line_says_so() {
        let timed =
            Timed { samples: vec![std::time::Duration::from_millis(4)], ..Timed::default() };
        let row = |n_prompt, n_gen, unjudged: Option<Unjudged>| {
            let test = Test { n_prompt, n_gen, depth: 0, greedy: false };
            let row = Row::new(&setting(), test, now(), &timed, None);
            let share = unjudged.is_none().then_some(0.5);
            Row { expected_ts: Some(77.0), share, bound_by: Some("memory"), unjudged, ..row }
        };
        let small = [row(8, 0, Some(Unjudged::Small)), row(0, 2, Some(Unjudged::Small))];
        let text = tables(&small, None) + &legend(&small);
        assert!(!text.contains("expected") && !text.contains("of limit"), "{text}");
        let told = reasons(&small);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0]
                .starts_with("pp8, tg2 are not compared with the limit: work of less than 50 ms"),
            "{told:?}"
        );
        // next to larger work, these columns have a dash for small work
        let mixed = [row(8, 0, Some(Unjudged::Small)), row(512, 0, None)];
        let text = tables(&mixed, None) + &legend(&mixed);
        assert!(text.contains("50 % memory") && text.matches("77.00").count() == 1, "{text}");
        assert!(text.contains("expected: ") && text.contains("of limit: "), "{text}");
        assert!(reasons(&mixed)[0].starts_with("pp8 is not compared"));
        // the expected speed does not depend on an unreliable limit
        let doubt = [row(512, 0, Some(Unjudged::Doubt(crate::ceilings::Doubt::Busy)))];
        let text = tables(&doubt, None);
        assert!(text.contains("77.00") && !text.contains("of limit"), "{text}");
        assert!(reasons(&doubt)[0].contains("other programs ran"));
    }

    /// Every row keeps its model, test and speed on a terminal of any width, and no line is wider than the terminal.
    #[test]
    fn tables_fit_the_terminal() {
        let setting = setting();
        let timed =
            Timed { samples: vec![std::time::Duration::from_millis(400)], ..Timed::default() };
        let row = |threads: usize, n_gen: usize| {
            let test = Test { n_prompt: 512 - n_gen, n_gen, depth: 0, greedy: false };
            let setting = Setting { n_threads: threads, ..setting.clone() };
            let row = Row::new(&setting, test, now(), &timed, None);
            Row { share: Some(0.83), bound_by: Some("memory"), ..row }
        };
        let rows = [row(1, 0), row(1, 128), row(2, 0)];
        let whole = tables(&rows, None);
        assert!(Column::ALL[..5].iter().all(|column| whole.contains(column.name())), "{whole}");
        assert_eq!(whole.lines().count(), 2 + rows.len());
        for most in [120, 100, 80, 60, 40, 36] {
            let text = tables(&rows, Some(most));
            let wide = text.lines().find(|line| line.chars().count() > most);
            assert_eq!(wide, None, "{most}: {text}");
            for part in ["SmolLM2", "pp512", "t/s", "1280.00"] {
                assert!(text.contains(part), "{most}: {part}: {text}");
            }
            // thread counts differ between rows, so each row's count must be shown
            assert!(text.contains("threads"), "{most}: {text}");
        }
        assert!(tables(&rows, Some(80)).contains("83 % memory"));
    }
}
