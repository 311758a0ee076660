//! The tables as markdown and CSV.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, presets};
use planner::article::{ArticleTable, Erratum, errata};
use planner::formula::Units;

/// All tables, what the article prints wrong below each, and the pictures by name and title.
pub(super) fn markdown(tables: &[ArticleTable], units: Units, pictures: &[(&str, &str)]) -> String {
    let mut out = String::from("# The roofline article, computed again\n\n");
    let counted = match units {
        Units::Article => {
            "Units are the article's: M = 2^20, B = 2^30, also in 1008 GB/s, 82.58 TFLOP/s and 24 GB."
        }
        Units::Decimal => {
            "Units are decimal: M = 10^6, B = 10^9, also in 1008 GB/s, 82.58 TFLOP/s and 24 GB. The article counts in powers of \
             two: its cells differ from these."
        }
    };
    put(&mut out, format_args!("Qwen1.5 on an RTX 4090. {counted}\n"));
    for table in tables {
        section(&mut out, table, units);
    }
    put(&mut out, format_args!("\n## Beside the tables\n\n"));
    for remark in errata::REMARKS {
        let (section, printed, correct) = (remark.section, remark.printed, remark.correct);
        put(&mut out, format_args!("- {section}: {printed}. Correct: {correct}.\n"));
    }
    if !pictures.is_empty() {
        put(&mut out, format_args!("\n## Pictures\n"));
    }
    for (name, title) in pictures {
        put(&mut out, format_args!("\n![{title}]({name}.svg)\n"));
    }
    out
}

/// Writing to a `String` cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn section(out: &mut String, table: &ArticleTable, units: Units) {
    put(out, format_args!("\n## {} {}\n\n{}\n\n", table.section, table.title, table.note));
    let mut grid = comfy_table::Table::new();
    grid.load_style(presets::ASCII_MARKDOWN);
    let names = std::iter::once(table.of).chain(table.columns.iter().map(String::as_str));
    grid.set_header(names);
    let mut wrong: Vec<(&Erratum, String)> = Vec::new();
    for (name, values) in &table.rows {
        let mut row = vec![Cell::new(name)];
        for (column, value) in values.iter().enumerate() {
            let mut text = value.to_string();
            // In other units no cell is as printed.
            if let Some(erratum) = table.erratum(name, column).filter(|_| units == Units::Article) {
                wrong.push((erratum, text.clone()));
                text = format!("{text} [{}]", wrong.len());
            }
            row.push(Cell::new(text).set_alignment(CellAlignment::Right));
        }
        grid.add_row(row);
    }
    put(out, format_args!("{grid}\n"));
    for (i, (erratum, correct)) in wrong.iter().enumerate() {
        let (printed, why) = (erratum.printed, erratum.why);
        let number = i + 1;
        put(
            out,
            format_args!(
                "\n[{number}] {}: printed {printed}, correct {correct}. {why}\n",
                erratum.model
            ),
        );
    }
}

/// A line of names, then one per row; numbers in full, inflections in two columns.
pub(super) fn csv(table: &ArticleTable) -> String {
    let mut names = vec![table.of.to_owned()];
    let first = table.rows.first().map_or(&[][..], |(_, values)| values);
    for (name, value) in table.columns.iter().zip(first) {
        if value.fields().len() == 2 {
            names.extend(["first", "second"].map(|turn| format!("{name} {turn}")));
        } else {
            names.push(name.clone());
        }
    }
    let mut out = names.join(",") + "\n";
    for (name, values) in &table.rows {
        let fields = values.iter().flat_map(|value| value.fields());
        let row: Vec<String> = std::iter::once((*name).to_owned()).chain(fields).collect();
        out.push_str(&row.join(","));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use planner::article::{beside, tables};

    use super::*;

    #[test]
    fn errata_are_marked() {
        let text = markdown(&tables(Units::Article), Units::Article, &[("a", "Title")]);
        for want in [
            "## 5.1.4 Inflections of the prefill, with GQA",
            "113 \\ 481",
            "0.15625M [1]",
            "[1] 110B: printed 0.125M, correct 0.15625M. 80 layers",
            "![Title](a.svg)",
        ] {
            assert!(text.contains(want), "{want} in {text}");
        }
        assert_eq!(text.matches(": printed ").count(), errata::CELLS.len());
        let decimal = markdown(&tables(Units::Decimal), Units::Decimal, &[]);
        assert!(!decimal.contains(": printed ") && decimal.contains("14.08ms"));
    }

    #[test]
    fn every_row_has_as_many_fields_as_names() {
        for table in tables(Units::Article).into_iter().chain(beside(Units::Article)) {
            let text = csv(&table);
            let fields: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
            assert_eq!(fields.len(), table.rows.len() + 1);
            assert!(fields.iter().all(|n| *n == fields[0]), "{}: {text}", table.section);
        }
    }
}
