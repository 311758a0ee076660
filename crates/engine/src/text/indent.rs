//! Where a text that goes into an indented block leaves it: at a line that begins too far left.

/// Looks at a text that grows.
#[derive(Debug, Default)]
pub(super) struct Indent {
    /// Spaces and tabs that lines begin with at least; none: nothing is looked at.
    least: usize,
    /// Where the line begins that is looked at; its first is not, for it goes on with what stands before.
    line: Option<usize>,
    /// Where the search for the next line goes on.
    next: usize,
}

impl Indent {
    pub(super) fn new(least: usize) -> Indent {
        Indent { least, ..Indent::default() }
    }

    /// Where the text leaves the block, if it does: behind the spaces and tabs of a line with too few of them. An empty line has
    /// none.
    pub(super) fn scan(&mut self, text: &str) -> Option<usize> {
        if self.least == 0 {
            return None;
        }
        loop {
            if let Some(line) = self.line {
                let begins = text[line..].find(|c| c != ' ' && c != '\t')?;
                if begins < self.least {
                    return Some(line + begins);
                }
                self.line = None;
            }
            match text[self.next..].find('\n') {
                Some(at) => {
                    self.next += at + 1;
                    self.line = Some(self.next);
                }
                None => {
                    self.next = text.len();
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Indent;

    /// Where a text ends, which comes in pieces of so many characters.
    fn end(least: usize, text: &str, pieces: usize) -> Option<usize> {
        let mut indent = Indent::new(least);
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let ends = starts.chunks(pieces).skip(1).map(|piece| piece[0]).chain([text.len()]);
        ends.into_iter().find_map(|end| indent.scan(&text[..end]))
    }

    #[test]
    fn a_line_too_far_left_ends_it() {
        for (least, text, want) in [
            (2, "a\n  b\n\tc", Some(7)),
            (2, "a\n  b\n \tc\n", None),
            (2, "a\n\n  b", Some(2)),
            (2, "a\n ", None),
            (2, "a", None),
            (0, "a\nb", None),
            (1, "\n\u{e9}", Some(1)),
            (4, "  a", None),
        ] {
            for pieces in 1..4 {
                assert_eq!(end(least, text, pieces), want, "{least} {text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[a \n\t\u{20AC}]{0,20}", least in 0usize..4, pieces in 1usize..9) {
            // line by line
            let mut want = None;
            let mut at = 0;
            for (i, line) in text.split('\n').enumerate() {
                let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
                let last = at + line.len() == text.len();
                if i > 0 && blank < least && !(last && blank == line.len()) {
                    want = want.or(Some(at + blank));
                }
                at += line.len() + 1;
            }
            prop_assert_eq!(end(least, &text, pieces), want);
        }
    }
}
