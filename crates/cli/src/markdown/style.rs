//! Text styles: sets of attributes, and the escape sequences that turn them on.

use std::ops::BitOr;

/// A set of text attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style(u8);

/// A piece of text in one style.
pub(super) type Span = (Style, String);

impl Style {
    pub(super) const PLAIN: Style = Style(0);
    pub(super) const BOLD: Style = Style(1);
    pub(super) const ITALIC: Style = Style(2);
    pub(super) const STRIKE: Style = Style(4);
    pub(super) const UNDERLINE: Style = Style(8);
    pub(super) const CODE: Style = Style(16);
    pub(super) const DIM: Style = Style(32);

    /// Returns the escape sequence that changes the style `before` to this one.
    pub(super) fn sequence_from(self, before: Style) -> String {
        if self == before {
            return String::new();
        }
        let reset = if before == Style::PLAIN { "" } else { "\x1b[0m" };
        let codes = [
            (Style::BOLD, "1"),
            (Style::DIM, "2"),
            (Style::ITALIC, "3"),
            (Style::UNDERLINE, "4"),
            (Style::STRIKE, "9"),
            (Style::CODE, "36"),
        ];
        let on = codes.iter().filter(|(style, _)| self.0 & style.0 != 0).map(|(_, code)| *code);
        let on = on.collect::<Vec<_>>().join(";");
        if on.is_empty() { reset.to_owned() } else { format!("{reset}\x1b[{on}m") }
    }
}

impl BitOr for Style {
    type Output = Style;

    fn bitor(self, other: Style) -> Style {
        Style(self.0 | other.0)
    }
}
