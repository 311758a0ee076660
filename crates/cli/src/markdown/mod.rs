//! Renders Markdown in a terminal while the text arrives.
//!
//! Printed text is never changed afterwards. A line, an emphasis or a link is therefore printed once its kind is certain,
//! and a table once its column widths are known; all other text is printed at once. Without escape sequences, marks
//! within lines are kept, and the structure of lines is still rendered.

mod inline;
mod style;
mod table;

#[cfg(test)]
mod tests;

use crate::wrap::{WordWrap, columns_of};
use inline::Next;
use style::Style;
use table::Table;

/// Maximum length of the start of a line whose kind is undecided, in bytes.
const MAX_START: usize = 256;

/// Maximum length of a table row that is held back before it ends, in bytes.
const MAX_ROW: usize = 4096;

/// Maximum width of a rule, in columns.
const RULE: usize = 40;

/// Renderer of a text for a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Markdown {
    wrap: WordWrap,
    columns: usize,
    /// Whether escape sequences may be used.
    styles: bool,
    /// Style at the end of the printed text.
    style: Style,
    /// Part of the line that is not printed yet.
    line: String,
    state: State,
    /// Base style of the line.
    base: Style,
    /// Last character of the line that was taken from `line`.
    before: Option<char>,
    /// Whether the last character that arrived may end a span.
    was_special: bool,
    /// Prefix of this line: the bars of quotes.
    margin: String,
    fence: Option<Fence>,
    table: Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kind of the line is undecided.
    Start,
    /// A line of text.
    Text,
    /// A line of code.
    Code,
}

/// Opening fence of a block of code.
#[derive(Clone, Debug)]
struct Fence {
    mark: char,
    length: usize,
    quotes: usize,
}

/// Lines that form, or may form, a table.
#[derive(Clone, Debug)]
enum Pending {
    None,
    /// A line that may be the head of a table.
    Head(String),
    Table(Table),
}

/// Kind of a line, decided by its start.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// Undecided: more text is needed.
    Open,
    Text,
    /// Heading of this level, with the length of its indentation and marks in bytes.
    Heading {
        level: usize,
        length: usize,
    },
    /// Quote, with the length of its indentation and mark in bytes.
    Quote(usize),
    /// List item: number of blanks, length of the mark in bytes, and the mark as printed.
    Item {
        indent: usize,
        length: usize,
        mark: String,
    },
    /// Rule: a line of dashes, asterisks or underscores.
    Rule,
    /// Possible row of a table.
    Row,
    /// Opening fence of code in this language.
    Fence {
        mark: char,
        length: usize,
        language: String,
    },
}

impl Markdown {
    /// Creates a renderer for a terminal of `columns` columns. `wraps` breaks lines between words; `styles` allows escape
    /// sequences.
    pub(crate) fn new(columns: usize, wraps: bool, styles: bool) -> Markdown {
        let wrap = WordWrap::without_fences(if wraps { columns } else { usize::MAX });
        Markdown {
            wrap,
            columns: columns.max(1),
            styles,
            style: Style::PLAIN,
            line: String::new(),
            state: State::Start,
            base: Style::PLAIN,
            before: None,
            was_special: false,
            margin: String::new(),
            fence: None,
            table: Pending::None,
        }
    }

    /// Adds text and returns the part that can be printed.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if c == '\n' {
                self.end_line(true, &mut out);
            } else {
                self.line.push(c);
                self.go_on(c, &mut out);
            }
        }
        out
    }

    /// Returns the text that was held back, and resets the terminal's style.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_line(false, &mut out);
        self.end_table(&mut out);
        out += &self.wrap.finish();
        out
    }

    fn go_on(&mut self, c: char, out: &mut String) {
        // a decision needs a special character, now or just before
        let decides = inline::is_special(c) || self.was_special;
        self.was_special = inline::is_special(c);
        match self.state {
            State::Start => self.start(false, out),
            State::Text => {
                let held = self.line.len();
                if decides || held == c.len_utf8() || held >= inline::MAX_HELD {
                    self.text(false, out);
                }
            }
            State::Code => self.code(out),
        }
    }

    /// Ends a line, or the text if `breaks` is false.
    fn end_line(&mut self, breaks: bool, out: &mut String) {
        if self.state == State::Start && (breaks || !self.line.is_empty()) {
            self.start(true, out);
        }
        let swallowed = self.state == State::Start;
        match self.state {
            State::Text => self.text(true, out),
            State::Code => self.code(out),
            State::Start => {}
        }
        self.set(Style::PLAIN, out);
        if breaks && !swallowed {
            *out += &self.wrap.push("\n");
        }
        self.wrap.set_indent("");
        self.wrap.set_verbatim(false);
        self.line.clear();
        self.margin.clear();
        (self.state, self.base, self.before, self.was_special) =
            (State::Start, Style::PLAIN, None, false);
    }

    /// Examines the start of a line, all of it if `whole`. The state stays [`State::Start`] for a line that is held back
    /// or printed elsewhere; such a line gets no line break of its own.
    fn start(&mut self, whole: bool, out: &mut String) {
        if let Some(fence) = self.fence.clone() {
            return self.start_in_code(&fence, whole, out);
        }
        loop {
            let kind = match kind(&self.line, whole) {
                Kind::Open => return,
                // deeper quotes would leave no room for their text
                Kind::Quote(_) if 2 * columns_of(&self.margin) >= self.columns.min(RULE) => {
                    Kind::Text
                }
                kind => kind,
            };
            if !matches!(kind, Kind::Row) || !self.margin.is_empty() {
                self.end_table(out);
            }
            match kind {
                Kind::Open => return,
                Kind::Quote(n) => {
                    self.line.drain(..n);
                    self.margin.push_str("\u{2502} ");
                    self.shown(&[(Style::DIM, "\u{2502} ")], out);
                    let margin = self.margin.clone();
                    self.wrap.set_indent(&margin);
                    continue;
                }
                Kind::Row if self.margin.is_empty() => return self.row(whole, out),
                Kind::Heading { level, length } => {
                    self.base =
                        if level == 1 { Style::BOLD | Style::UNDERLINE } else { Style::BOLD };
                    // without styles, the marks show that the line is a heading
                    if self.styles {
                        self.line.drain(..=length);
                    }
                }
                Kind::Item { indent, length, mark } => {
                    self.line.drain(..indent + length);
                    let blanks = " ".repeat(indent.min(self.columns / 2));
                    self.shown(&[(Style::PLAIN, &blanks), (Style::PLAIN, &mark)], out);
                    let below = " ".repeat(blanks.len() + mark.chars().count());
                    let margin = self.margin.clone() + &below;
                    self.wrap.set_indent(&margin);
                }
                Kind::Rule => {
                    let rule = "\u{2500}".repeat(self.rule_columns());
                    self.line.clear();
                    self.shown(&[(Style::DIM, &rule)], out);
                }
                Kind::Fence { mark, length, language } => {
                    let quotes = self.margin.chars().filter(|c| *c == '\u{2502}').count();
                    self.fence = Some(Fence { mark, length, quotes });
                    self.line.clear();
                    self.code_rule(&language, out);
                }
                Kind::Text | Kind::Row => {
                    let blanks = self.line.len() - self.line.trim_start_matches(' ').len();
                    let margin = self.margin.clone() + &" ".repeat(blanks.min(self.columns / 2));
                    self.wrap.set_indent(&margin);
                }
            }
            self.state = State::Text;
            if !whole {
                self.text(false, out);
            }
            return;
        }
    }

    /// Adds a complete row to its table, or keeps it as a possible table head.
    fn row(&mut self, whole: bool, out: &mut String) {
        if !whole {
            return;
        }
        let line = std::mem::take(&mut self.line);
        match std::mem::replace(&mut self.table, Pending::None) {
            Pending::None => self.table = Pending::Head(line),
            Pending::Head(head) => match Table::begin(&head, &line, self.styles) {
                Some(table) => self.table = Pending::Table(table),
                None => {
                    self.plain_line(&head, out);
                    self.table = Pending::Head(line);
                }
            },
            Pending::Table(mut table) => {
                table.add(&line, self.styles);
                *out += &table.show(self.columns, false, self.styles);
                self.table = Pending::Table(table);
            }
        }
    }

    /// Prints the rows of a table that were held back, or a line that turned out not to be a table head.
    fn end_table(&mut self, out: &mut String) {
        match std::mem::replace(&mut self.table, Pending::None) {
            Pending::None => {}
            Pending::Head(head) => self.plain_line(&head, out),
            Pending::Table(mut table) => *out += &table.show(self.columns, true, self.styles),
        }
    }

    /// Prints a complete line of text that precedes the current line.
    fn plain_line(&mut self, line: &str, out: &mut String) {
        let coming = std::mem::replace(&mut self.line, line.to_owned());
        let before = self.before.take();
        self.text(true, out);
        self.set(Style::PLAIN, out);
        *out += &self.wrap.push("\n");
        (self.line, self.before) = (coming, before);
    }

    /// Handles a line within a block of code: the end of the block, or code to print unchanged.
    fn start_in_code(&mut self, fence: &Fence, whole: bool, out: &mut String) {
        let mut text = self.line.as_str();
        for _ in 0..fence.quotes {
            let inner = text.trim_start_matches(' ');
            match inner.strip_prefix('>') {
                Some(inner) => text = inner.strip_prefix(' ').unwrap_or(inner),
                // a quote mark may still arrive
                None if inner.is_empty() && !whole => return,
                // code ends together with the quote that contains it
                None => {
                    self.fence = None;
                    return self.start(whole, out);
                }
            }
        }
        let marks = text.trim_matches(' ');
        let may_end = marks.chars().all(|c| c == fence.mark) && text.len() < MAX_START;
        let ends = may_end && marks.len() >= fence.length;
        if may_end && !whole {
            return;
        }
        let text = text.to_owned();
        self.line.clear();
        self.margin = "\u{2502} ".repeat(fence.quotes);
        let margin = self.margin.clone();
        self.wrap.set_indent(&margin);
        self.shown(&[(Style::DIM, &margin)], out);
        if ends {
            self.fence = None;
            self.state = State::Text;
            return self.code_rule("", out);
        }
        self.state = State::Code;
        self.wrap.set_verbatim(true);
        self.line = text;
        self.code(out);
    }

    fn code(&mut self, out: &mut String) {
        let text = std::mem::take(&mut self.line);
        self.shown(&[(Style::CODE, &text)], out);
    }

    fn rule_columns(&self) -> usize {
        self.columns.saturating_sub(columns_of(&self.margin)).min(RULE)
    }

    /// Prints the line at the start or end of a block of code: `── rust ────`.
    fn code_rule(&mut self, language: &str, out: &mut String) {
        let columns = self.rule_columns();
        let label = match language {
            "" => String::new(),
            language => format!("\u{2500}\u{2500} {language} "),
        };
        let used = label.chars().count();
        let rule = label + &"\u{2500}".repeat(columns.saturating_sub(used));
        self.shown(&[(Style::DIM, &rule)], out);
    }

    /// Prints the part of a line of text that is certain.
    fn text(&mut self, whole: bool, out: &mut String) {
        let line = std::mem::take(&mut self.line);
        if !self.styles {
            *out += &self.wrap.push(&line);
            return;
        }
        let mut rest = line.as_str();
        while !rest.is_empty() {
            let n = match inline::next(rest, self.before, whole) {
                Next::Wait => break,
                Next::Text(n) => {
                    self.shown(&[(self.base, &rest[..n])], out);
                    n
                }
                Next::Spans(n, spans) => {
                    for (style, text) in spans {
                        self.shown(&[(self.base | style, &text)], out);
                    }
                    n
                }
            };
            self.before = rest[..n].chars().next_back();
            rest = &rest[n..];
        }
        rest.clone_into(&mut self.line);
    }

    fn shown(&mut self, spans: &[(Style, &str)], out: &mut String) {
        for (style, text) in spans.iter().filter(|(_, text)| !text.is_empty()) {
            self.set(*style, out);
            *out += &self.wrap.push(text);
        }
    }

    fn set(&mut self, style: Style, out: &mut String) {
        if self.styles {
            *out += &self.wrap.escape(&style.sequence_from(self.style));
            self.style = style;
        }
    }
}

/// Returns the kind of a line from its start, or from all of it if `whole`.
fn kind(line: &str, whole: bool) -> Kind {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let open = if whole || line.len() > MAX_START { Kind::Text } else { Kind::Open };
    let Some(first) = text.chars().next() else { return open };
    let rest_is = |allowed: &dyn Fn(char) -> bool| text.chars().all(allowed);
    let run = text.chars().take_while(|c| *c == first).count();
    match first {
        '#' if run > 6 => Kind::Text,
        '#' if text[run..].starts_with(' ') => Kind::Heading { level: run, length: indent + run },
        '#' if run == text.len() => open,
        '>' => match text[1..].chars().next() {
            None if !whole => Kind::Open,
            Some(' ') => Kind::Quote(indent + 2),
            _ => Kind::Quote(indent + 1),
        },
        '|' if whole || line.len() <= MAX_ROW => Kind::Row,
        '`' | '~' if run >= 3 => {
            let info = text[run..].trim();
            let language = info.split_whitespace().next().unwrap_or_default();
            let language = language.chars().take(20).collect();
            match first == '`' && info.contains('`') {
                true => Kind::Text,
                false if whole => Kind::Fence { mark: first, length: run, language },
                false => open,
            }
        }
        '`' | '~' if run == text.len() => open,
        '-' | '*' | '_' if rest_is(&|c| c == first || c == ' ') => {
            let marks = text.chars().filter(|c| *c == first).count();
            match whole {
                true if marks >= 3 => Kind::Rule,
                true if first != '_' => item(text, indent, 1, "\u{2022} ".into()),
                _ => open,
            }
        }
        '+' if text.len() == 1 => open,
        '-' | '*' | '+' => item(text, indent, 1, "\u{2022} ".into()),
        '0'..='9' => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let dot = text[digits..].starts_with(['.', ')']);
            match text.len() - digits {
                0 | 1 if digits <= 9 && (dot || text.len() == digits) => open,
                _ if digits <= 9 && dot => {
                    item(text, indent, digits + 1, format!("{} ", &text[..=digits]))
                }
                _ => Kind::Text,
            }
        }
        _ => Kind::Text,
    }
}

/// Returns an item of a list if a blank follows its mark, otherwise text.
fn item(text: &str, indent: usize, mark: usize, shown: String) -> Kind {
    match text[mark..].starts_with(' ') {
        true => Kind::Item { indent, length: mark + 1, mark: shown },
        false => Kind::Text,
    }
}
