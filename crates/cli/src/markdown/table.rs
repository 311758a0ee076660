//! Tables. Rows are held back until the table ends or grows long, since the widths of columns depend on all rows.

use unicode_width::UnicodeWidthChar as _;

use super::inline;
use super::style::{Span, Style};

/// Numbers of rows and bytes after which a table is printed with the widths known so far.
const MAX_ROWS: usize = 100;
const MAX_BYTES: usize = 16 << 10;

/// Minimum width at which a column is readable.
const MIN_COLUMN: usize = 6;

/// Minimum width of a column while further rows may follow, if there is room.
const SPARE_COLUMN: usize = 12;

/// Width of the gap between two columns.
const GAP: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Align {
    #[default]
    Left,
    Center,
    Right,
}

/// A character with its style and width.
type Glyph = (Style, char, usize);

/// A table, as far as it has arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Cells of the head and of the rows that are not printed yet.
    rows: Vec<Vec<Vec<Span>>>,
    aligns: Vec<Align>,
    bytes: usize,
    /// Layout, set when the first rows are printed.
    shown: Option<Shape>,
}

/// Layout of the rows of a table.
#[derive(Clone, Debug)]
enum Shape {
    /// Cells next to each other, in columns of these widths.
    Columns(Vec<usize>),
    /// Cells below each other, each after its text from the head.
    Stacked(Vec<String>),
}

/// Splits a line into the cells between its bars.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut cells = Vec::new();
    let mut cell = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'|') => cell.extend(chars.next()),
            '|' => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    // a bar at the end of the line begins no cell
    if cells.is_empty() || !cell.trim().is_empty() {
        cells.push(cell);
    }
    cells
}

/// Parses the alignments in the line below a head; `None` if the line has another form.
fn aligns(line: &str) -> Option<Vec<Align>> {
    let align = |cell: String| {
        let cell = cell.trim();
        let (left, right) = (cell.starts_with(':'), cell.len() > 1 && cell.ends_with(':'));
        let dashes = cell.trim_matches(':');
        let valid = !dashes.is_empty() && dashes.bytes().all(|b| b == b'-');
        valid.then_some(match (left, right) {
            (true, true) => Align::Center,
            (false, true) => Align::Right,
            _ => Align::Left,
        })
    };
    cells(line).into_iter().map(align).collect()
}

impl Table {
    /// Creates a table from its first two lines; `None` if they are not the head of a table.
    pub(super) fn begin(head: &str, below: &str, styles: bool) -> Option<Table> {
        let aligns = aligns(below)?;
        let mut table = Table { aligns, ..Table::default() };
        (cells(head).len() == table.aligns.len()).then(|| table.add(head, styles))?;
        Some(table)
    }

    /// Adds a row.
    pub(super) fn add(&mut self, line: &str, styles: bool) {
        self.bytes += line.len();
        let mut row: Vec<_> = cells(line).iter().map(|cell| spans_of(cell, styles)).collect();
        row.resize(self.aligns.len(), Vec::new());
        self.rows.push(row);
    }

    /// Returns the rows that can be printed, for a terminal of `columns` columns; `whole` if no further row follows.
    pub(super) fn show(&mut self, columns: usize, whole: bool, styles: bool) -> String {
        let is_long = self.rows.len() >= MAX_ROWS || self.bytes >= MAX_BYTES;
        if !(whole || is_long || self.shown.is_some()) {
            return String::new();
        }
        let rows = std::mem::take(&mut self.rows);
        let mut out = Output { text: String::new(), styles };
        let mut rows = rows.into_iter();
        if self.shown.is_none() {
            let head = rows.next().unwrap_or_default();
            // rows that have not arrived yet may be wider
            let least = if whole { 1 } else { SPARE_COLUMN };
            let shape = shape(&head, rows.as_slice(), columns, least);
            if let Shape::Columns(widths) = &shape {
                let bold = |(style, text): Span| (style | Style::BOLD, text);
                let head = head.into_iter().map(|cell| cell.into_iter().map(bold).collect());
                out.row(&head.collect::<Vec<_>>(), widths, &self.aligns);
                let lines = widths.iter().map(|width| "\u{2500}".repeat(*width));
                let line = lines.collect::<Vec<_>>().join("\u{2500}\u{253c}\u{2500}");
                out.glyphs(&glyphs(&[(Style::DIM, line)]));
                out.text.push('\n');
            }
            self.shown = Some(shape);
        }
        for row in rows {
            match &self.shown {
                Some(Shape::Columns(widths)) => out.row(&row, widths, &self.aligns),
                Some(Shape::Stacked(head)) => out.stacked(&row, head, columns),
                None => {}
            }
        }
        out.text
    }
}

/// Returns a cell as styled spans; without `styles`, as text that keeps its marks.
fn spans_of(cell: &str, styles: bool) -> Vec<Span> {
    let cell = cell.trim().replace("<br>", " ").replace("<br/>", " ");
    match styles {
        true => inline::spans(&cell, Style::PLAIN),
        false => vec![(Style::PLAIN, cell)],
    }
}

fn glyphs(cell: &[Span]) -> Vec<Glyph> {
    let of = |(style, text): &Span| {
        let style = *style;
        text.chars().map(move |c| (style, c, c.width().unwrap_or(0))).collect::<Vec<_>>()
    };
    cell.iter().flat_map(of).collect()
}

fn width(glyphs: &[Glyph]) -> usize {
    glyphs.iter().map(|(_, _, width)| width).sum()
}

/// Chooses the layout: natural widths if they fit, otherwise the widest columns narrowed, otherwise cells below each
/// other.
fn shape(head: &[Vec<Span>], rows: &[Vec<Vec<Span>>], columns: usize, spare: usize) -> Shape {
    let n = head.len();
    let widest = |at: usize| {
        let all = std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
        all.map(|row| row.get(at).map_or(0, |cell| width(&glyphs(cell)))).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..n).map(|at| widest(at).max(1)).collect();
    let room = columns.saturating_sub(GAP * n.saturating_sub(1));
    let least: usize = widths.iter().map(|width| (*width).min(MIN_COLUMN)).sum();
    if least > room {
        let text = |cell: &Vec<Span>| cell.iter().map(|(_, text)| text.as_str()).collect();
        return Shape::Stacked(head.iter().map(text).collect());
    }
    if widths.iter().map(|width| (*width).max(spare)).fold(0, usize::saturating_add) <= room {
        widths.iter_mut().for_each(|width| *width = (*width).max(spare));
    }
    // largest limit of the column widths with which all columns fit
    let total =
        |most: usize| widths.iter().map(|width| (*width).min(most)).fold(0, usize::saturating_add);
    if total(usize::MAX) > room {
        let (mut low, mut high) = (MIN_COLUMN, room);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if total(middle) <= room { low = middle } else { high = middle - 1 }
        }
        widths.iter_mut().for_each(|width| *width = (*width).min(low));
    }
    Shape::Columns(widths)
}

/// Breaks a cell into lines for its column: between words, and within words that are too long.
fn lines(cell: &[Span], columns: usize) -> Vec<Vec<Glyph>> {
    let mut lines = Vec::new();
    let mut rest = glyphs(cell);
    loop {
        let mut used = 0;
        let n = rest.iter().position(|(_, _, width)| {
            used += width;
            used > columns
        });
        let Some(n) = n else {
            lines.push(rest);
            return lines;
        };
        let blank = |(_, c, _): &Glyph| *c == ' ';
        // a wide character is printed even where the column is narrower
        let n = n.max(1);
        let end = if blank(&rest[n.min(rest.len() - 1)]) {
            Some(n)
        } else {
            rest[..n].iter().rposition(blank)
        };
        let end = end.filter(|end| *end > 0).unwrap_or(n);
        let after = rest.split_off(end);
        let skip = after.iter().take_while(|glyph| blank(glyph)).count();
        lines.push(rest);
        rest = after[skip..].to_vec();
        if rest.is_empty() {
            return lines;
        }
    }
}

struct Output {
    text: String,
    styles: bool,
}

impl Output {
    fn glyphs(&mut self, line: &[Glyph]) {
        let mut now = Style::PLAIN;
        for (style, c, _) in line {
            self.set(&mut now, *style);
            self.text.push(*c);
        }
        self.set(&mut now, Style::PLAIN);
    }

    fn set(&mut self, now: &mut Style, style: Style) {
        if self.styles {
            self.text.push_str(&style.sequence_from(*now));
            *now = style;
        }
    }

    /// Prints a row, with as many lines as its tallest cell.
    fn row(&mut self, row: &[Vec<Span>], widths: &[usize], aligns: &[Align]) {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, n)| lines(cell, *n)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            for (column, cell) in cells.iter().enumerate() {
                let line = cell.get(at).map_or(&[][..], Vec::as_slice);
                let free = widths[column].saturating_sub(width(line));
                let before = match aligns[column] {
                    Align::Left => 0,
                    Align::Center => free / 2,
                    Align::Right => free,
                };
                if column > 0 {
                    self.glyphs(&glyphs(&[(Style::DIM, " \u{2502} ".into())]));
                }
                self.text.push_str(&" ".repeat(before));
                self.glyphs(line);
                if column + 1 < cells.len() {
                    self.text.push_str(&" ".repeat(free - before));
                }
            }
            self.text.push('\n');
        }
    }

    /// Prints a row as lines of `head: cell`, followed by an empty line.
    fn stacked(&mut self, row: &[Vec<Span>], head: &[String], columns: usize) {
        for (cell, head) in row.iter().zip(head) {
            let mut spans = vec![(Style::BOLD, format!("{head}: "))];
            spans.extend(cell.iter().cloned());
            for line in lines(&spans, columns) {
                self.glyphs(&line);
                self.text.push('\n');
            }
        }
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::columns_of;

    fn shown(table: &str, columns: usize) -> String {
        let lines: Vec<&str> = table.lines().collect();
        let mut table = Table::begin(lines[0], lines[1], false).unwrap();
        lines[2..].iter().for_each(|line| table.add(line, false));
        table.show(columns, true, false)
    }

    const CITIES: &str = "| City | People | Note |\n|:-----|------:|:----:|\n| Bern | 134,000 | a |\n| Z\u{fc}rich | 443,037 | a \\| b |";

    #[test]
    fn columns_are_aligned() {
        let want = "City   \u{2502}  People \u{2502} Note\n\
                    \u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{253c}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{253c}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\n\
                    Bern   \u{2502} 134,000 \u{2502}   a\n\
                    Z\u{fc}rich \u{2502} 443,037 \u{2502} a | b\n";
        assert_eq!(shown(CITIES, 80).replace('\u{2500}', "-"), want.replace('\u{2500}', "-"));
        assert!(Table::begin("| a | b |", "|---|", false).is_none());
        assert!(Table::begin("| a |", "| b |", false).is_none());
    }

    #[test]
    fn a_table_stays_within_the_terminal_and_loses_nothing() {
        let words = |text: &str| {
            let mut all: Vec<char> = text.chars().filter(|c| c.is_alphanumeric()).collect();
            all.sort_unstable();
            all
        };
        let long = "| Name | What it is |\n|---|---|\n| \u{4f60}\u{597d}\u{4f60}\u{597d} | a very long description of it, with Donaudampfschifffahrtsgesellschaft in it |\n| x |\n";
        for columns in 1..100 {
            let told = shown(long, columns);
            let limit = columns.max(2);
            assert!(told.lines().all(|line| columns_of(line) <= limit), "{columns}:\n{told}");
            if columns >= 15 {
                assert_eq!(words(&told), words(&long.replace("---", "")), "{columns}:\n{told}");
            }
        }
    }

    #[test]
    fn a_long_table_is_shown_before_it_ends() {
        let mut table = Table::begin("|a|b|", "|-|-|", false).unwrap();
        let mut shown = String::new();
        for n in 0..3 * MAX_ROWS {
            table.add(&format!("|{n}|x|"), false);
            shown += &table.show(80, false, false);
        }
        assert_eq!(shown.lines().count(), 3 * MAX_ROWS + 2);
    }
}
