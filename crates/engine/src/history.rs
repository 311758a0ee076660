//! What a conversation's cache stands for: rendered text and the tokens that were really used for it.
//!
//! Encoding a reply's text again may give other ids than the model generated, and the cache would be worth nothing.
//! So the tokens of each piece are kept beside its text, and a new rendering takes over the tokens of every piece it
//! begins with; only what follows is encoded.

use crate::Span;

/// A stretch of the conversation.
#[derive(Clone)]
struct Piece {
    text: Vec<Span>,
    tokens: Vec<u32>,
    reply: bool,
}

/// The pieces in order: prompt, reply, what the template put after it up to the next reply, ...
#[derive(Clone, Default)]
pub(crate) struct History {
    pieces: Vec<Piece>,
}

impl History {
    /// Drop the pieces that `rendered` does not begin with. Returns the tokens of those it begins with, and the rest
    /// of it, which is still to be encoded.
    pub(crate) fn take_over(&mut self, rendered: Vec<Span>) -> (Vec<u32>, Vec<Span>) {
        let mut tokens = Vec::new();
        let mut rest = rendered;
        let mut kept = 0;
        for piece in &self.pieces {
            let Some(after) = piece.stripped_from(&rest) else { break };
            tokens.extend_from_slice(&piece.tokens);
            rest = after;
            kept += 1;
        }
        self.pieces.truncate(kept);
        (tokens, rest)
    }

    /// The template's next piece, up to where the model goes on.
    pub(crate) fn push_prompt(&mut self, text: Vec<Span>, tokens: Vec<u32>) {
        self.pieces.push(Piece { text, tokens, reply: false });
    }

    /// The model's reply.
    pub(crate) fn push_reply(&mut self, text: &str, tokens: Vec<u32>) {
        let text = vec![reply_spans(text)];
        self.pieces.push(Piece { text, tokens, reply: true });
    }

    /// Forget the last piece if it is a reply.
    pub(crate) fn pop_reply(&mut self) {
        self.pieces.pop_if(|piece| piece.reply);
    }

    /// Forget everything.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
    }
}

impl Piece {
    /// What follows this piece in `rendered`; `None` if it does not begin with it.
    fn stripped_from(&self, rendered: &[Span]) -> Option<Vec<Span>> {
        if let Some(rest) = strip(rendered, &self.text) {
            return Some(rest);
        }
        let text = self.text.first().filter(|_| self.reply)?.text.as_str();
        // Templates trim replies and put white space before them; what the model generated stays in the cache.
        let mut trimmed = rendered.to_vec();
        if let Some(first) = trimmed.first_mut().filter(|s| !s.special) {
            first.text = first.text.trim_start().to_owned();
        }
        let texts = [text, text.trim_end(), text.trim_start(), text.trim()];
        [rendered, &trimmed].into_iter().find_map(|rendered| {
            texts.into_iter().find_map(|text| strip(rendered, &[reply_spans(text)]))
        })
    }
}

fn reply_spans(text: &str) -> Span {
    Span { text: text.to_owned(), special: false }
}

/// What follows `prefix` in `rendered`; `None` if it does not begin with it. Where spans are cut does not matter,
/// but the same characters as text and as the template's words are different: only the latter may be control tokens.
fn strip(rendered: &[Span], prefix: &[Span]) -> Option<Vec<Span>> {
    let mut spans = rendered.iter().filter(|s| !s.text.is_empty());
    let mut rest: Option<(&str, bool)> = None;
    for wanted in prefix {
        let mut want = wanted.text.as_str();
        while !want.is_empty() {
            let (text, special) = match rest.take() {
                Some(left) => left,
                None => spans.next().map(|s| (s.text.as_str(), s.special))?,
            };
            if special != wanted.special {
                return None;
            }
            let n = want.len().min(text.len());
            if text.as_bytes()[..n] != want.as_bytes()[..n] {
                return None;
            }
            want = &want[n..];
            rest = Some((&text[n..], special)).filter(|(text, _)| !text.is_empty());
        }
    }
    let left = rest.map(|(text, special)| Span { text: text.to_owned(), special });
    Some(left.into_iter().chain(spans.cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::{History, strip};
    use crate::Span;

    /// `*` starts a span of the template's, `.` one of text.
    fn spans(spec: &str) -> Vec<Span> {
        spec.split_inclusive(';')
            .map(|s| Span {
                text: s[1..].trim_end_matches(';').to_owned(),
                special: s.starts_with('*'),
            })
            .collect()
    }

    #[test]
    fn prefixes_are_stripped_across_cuts() {
        let check = |rendered: &str, prefix: &str, rest: Option<&str>| {
            assert_eq!(
                strip(&spans(rendered), &spans(prefix)),
                rest.map(spans),
                "{rendered} - {prefix}"
            );
        };
        check("*ab;.cd;*e", "*a;*b;.c", Some(".d;*e"));
        check("*a;*b;.cd", "*ab", Some(".cd"));
        check("*ab;.cd", "*abc", None);
        check("*ab;.cd", "*ab;*cd", None);
        check("*ab", "*abc", None);
        check(".\u{20AC}", ".\u{20AD}", None);
        assert_eq!(strip(&spans("*ab;.cd"), &spans("*ab;.cd")), Some(vec![]));
    }

    #[test]
    fn pieces_are_taken_over_while_they_match() {
        let mut history = History::default();
        history.push_prompt(spans("*<u>;.hi;*<a>"), vec![1, 2, 3]);
        history.push_reply(" yo \n", vec![4, 5]);
        let (tokens, rest) = history.take_over(spans("*<u>;.hi;*<a>;.yo;*<u>;.more;*<a>"));
        assert_eq!((tokens, rest), (vec![1, 2, 3, 4, 5], spans("*<u>;.more;*<a>")));
        let (tokens, rest) = history.take_over(spans("*<u>;.hi;*<a>;.  yo;*<u>"));
        assert_eq!((tokens, rest), (vec![1, 2, 3, 4, 5], spans("*<u>")));
        let (tokens, rest) = history.take_over(spans("*<u>;.hi;*<a>;.no;*<u>"));
        assert_eq!((tokens, rest), (vec![1, 2, 3], spans(".no;*<u>")));
        let (tokens, _) = history.take_over(spans("*<u>;.hi;*<a>;.yo;*<u>"));
        assert_eq!(tokens, [1, 2, 3], "the reply was dropped before");
        let (tokens, rest) = history.take_over(spans("*<s>"));
        assert_eq!((tokens, rest), (vec![], spans("*<s>")));
    }
}
