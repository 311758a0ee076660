//! Markdown in a terminal, as it streams in.
//!
//! What has been printed stays: a line's kind, an emphasis, a link is shown when it is certain, and a table when its
//! widths are. Everything else is shown at once. Where escape sequences are off, marks within lines stay as they are and
//! the structure of lines is shown all the same.

mod inline;
mod style;
mod table;

#[cfg(test)]
mod tests;

use crate::wrap::{WordWrap, columns_of};
use inline::Next;
use style::Style;
use table::Table;

/// Longest start of a line that waits for what it is, in bytes.
const MAX_START: usize = 256;

/// Longest row of a table that is held back before it ends, in bytes.
const MAX_ROW: usize = 4096;

/// Most columns of a rule.
const RULE: usize = 40;

/// Renders a text for a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Markdown {
    wrap: WordWrap,
    columns: usize,
    /// Whether escape sequences may be used.
    styles: bool,
    /// The style at the end of what was shown.
    style: Style,
    /// What of the line is not shown yet.
    line: String,
    state: State,
    /// The style of the line.
    base: Style,
    /// The last character of the line that was taken from `line`.
    before: Option<char>,
    /// Whether the last character that came may end a span.
    was_special: bool,
    /// What stands before the text of this line: bars of quotes.
    margin: String,
    fence: Option<Fence>,
    table: Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What the line is, is open.
    Start,
    /// A line of text.
    Text,
    /// A line of code.
    Code,
}

/// What began a block of code.
#[derive(Clone, Debug)]
struct Fence {
    mark: char,
    length: usize,
    quotes: usize,
}

/// Lines that are, or may become, a table.
#[derive(Clone, Debug)]
enum Pending {
    None,
    /// A line that may be a head.
    Head(String),
    Table(Table),
}

/// What a line is by its start.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// More of it must come.
    Open,
    Text,
    /// Of so many marks.
    Heading(usize),
    /// A mark of quotes, of so many bytes.
    Quote(usize),
    /// So many blanks, then a mark of so many bytes, as it is shown.
    Item {
        indent: usize,
        length: usize,
        mark: String,
    },
    /// A line of dashes or the like.
    Rule,
    /// A row of a table, perhaps.
    Row,
    /// The start of code in this language.
    Fence {
        mark: char,
        length: usize,
        language: String,
    },
}

impl Markdown {
    /// For a terminal of so many columns; `wraps` if lines are to be broken between words; with escape sequences if it
    /// has `styles`.
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

    /// What of the text so far can be shown.
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

    /// What was held back. The terminal's style is the usual one then.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_line(false, &mut out);
        self.end_table(&mut out);
        out += &self.wrap.finish();
        out
    }

    fn go_on(&mut self, c: char, out: &mut String) {
        // nothing is decided within a word
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

    /// The end of a line, or of the text.
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

    /// Look at the start of a line, all of it if it is `whole`. Lines that are held back or shown otherwise leave the
    /// state as it is, and are no lines any more.
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
                Kind::Heading(n) => {
                    self.base = if n == 1 { Style::BOLD | Style::UNDERLINE } else { Style::BOLD };
                    // without styles its marks tell that it is one
                    if self.styles {
                        self.line.drain(..=n);
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

    /// A row that is whole is added to its table, or may be the head of one.
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

    /// Show what was held back of a table, or of what was none.
    fn end_table(&mut self, out: &mut String) {
        match std::mem::replace(&mut self.table, Pending::None) {
            Pending::None => {}
            Pending::Head(head) => self.plain_line(&head, out),
            Pending::Table(mut table) => *out += &table.show(self.columns, true, self.styles),
        }
    }

    /// A whole line of text that came before the one that comes.
    fn plain_line(&mut self, line: &str, out: &mut String) {
        let coming = std::mem::replace(&mut self.line, line.to_owned());
        let before = self.before.take();
        self.text(true, out);
        self.set(Style::PLAIN, out);
        *out += &self.wrap.push("\n");
        (self.line, self.before) = (coming, before);
    }

    /// A line within code: its end, or code as it is.
    fn start_in_code(&mut self, fence: &Fence, whole: bool, out: &mut String) {
        let mut text = self.line.as_str();
        for _ in 0..fence.quotes {
            let inner = text.trim_start_matches(' ');
            match inner.strip_prefix('>') {
                Some(inner) => text = inner.strip_prefix(' ').unwrap_or(inner),
                // a mark of quotes may come
                None if inner.is_empty() && !whole => return,
                // code ends with the quote that it is in
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

    /// A line that begins or ends code: `── rust ────`.
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

    /// Show what is certain of a line of text.
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

/// What a line is, of which this is the start, or all if it is `whole`.
fn kind(line: &str, whole: bool) -> Kind {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let open = if whole || line.len() > MAX_START { Kind::Text } else { Kind::Open };
    let Some(first) = text.chars().next() else { return open };
    let rest_is = |allowed: &dyn Fn(char) -> bool| text.chars().all(allowed);
    let run = text.chars().take_while(|c| *c == first).count();
    match first {
        '#' if run > 6 => Kind::Text,
        '#' if text[run..].starts_with(' ') => Kind::Heading(run + indent),
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

/// An item of a list, if a blank follows its mark.
fn item(text: &str, indent: usize, mark: usize, shown: String) -> Kind {
    match text[mark..].starts_with(' ') {
        true => Kind::Item { indent, length: mark + 1, mark: shown },
        false => Kind::Text,
    }
}
