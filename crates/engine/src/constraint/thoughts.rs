//! [`ThoughtMarks`]: allows thoughts before a reply that has a form. Without it, a model that opens its thoughts itself could not
//! think, because the form would apply from its first token.
//!
//! States: start -> thought -> start -> form. At a start, the form or the opening tag of a thought may begin, token by token. Within
//! a thought, every token is allowed that does not end the reply. The state before each token is kept, so that any number of tokens
//! can be taken back.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Constraint, TokenMask};
use crate::text::{PromptTail, bytes_or_spelling, openings};
use crate::{ChatFormat, Error, Result, Span, Vocabulary};

/// Maximum number of line-break tokens between a thought and the form.
const SPACES: usize = 1;

/// Tags around a model's thoughts, as tokens of its vocabulary.
#[derive(Clone, Debug)]
pub struct ThoughtMarks(Arc<Known>);

/// Token tables for a model's thoughts.
#[derive(Debug)]
struct Known {
    /// Token sequences that open a thought, each with its closing tag. `None`: the sequence separates thoughts from the reply.
    opens: Vec<(Vec<u32>, Option<&'static str>)>,
    /// Tokens that consist of one or two line breaks.
    spaces: Vec<u32>,
    /// All tokens except those that end a reply.
    free: TokenMask,
    vocab_size: usize,
    /// Bytes of the tokens that may be part of a closing tag.
    closing: HashMap<u32, Box<[u8]>>,
}

impl ThoughtMarks {
    /// Returns the marks of a model, or `None` if its template has no thoughts.
    pub fn of(format: &dyn ChatFormat) -> Option<ThoughtMarks> {
        let sequence = |text: &str| {
            let spans = [Span { text: text.to_owned(), special: true }];
            format.encode(&spans, false).ok().filter(|tokens| !tokens.is_empty())
        };
        let opens: Vec<_> = openings()
            .filter(|(text, _)| format.mentions(text))
            .filter_map(|(text, close)| Some((sequence(text)?, close)))
            .collect();
        let closes: Vec<&str> = opens.iter().filter_map(|(_, close)| *close).collect();
        if closes.is_empty() {
            return None;
        }
        let vocab_size = format.vocab_size();
        let all = 0..u32::try_from(vocab_size).ok()?;
        let is_space = |token: &u32| matches!(&*format.bytes(*token), b"\n" | b"\n\n");
        let part = |token: u32| {
            let bytes = bytes_or_spelling(format, token);
            let is_part = closes.iter().any(|close| may_be_part(close.as_bytes(), &bytes));
            is_part.then(|| (token, bytes.into_owned().into_boxed_slice()))
        };
        Some(ThoughtMarks(Arc::new(Known {
            spaces: all.clone().filter(is_space).collect(),
            free: TokenMask::of(all.clone().filter(|token| !format.is_eog(*token)), vocab_size),
            vocab_size,
            closing: all.filter_map(part).collect(),
            opens,
        })))
    }

    /// Returns a constraint for optional thoughts followed by this form, or the form alone if the prompt has closed the thoughts.
    pub fn before(
        &self,
        form: Box<dyn Constraint>,
        vocabulary: &dyn Vocabulary,
        prompt: &[u32],
    ) -> Box<dyn Constraint> {
        let tail = PromptTail::of(vocabulary, prompt);
        if tail == PromptTail::ThoughtClosed {
            return form;
        }
        Box::new(ThoughtsFirst {
            known: Arc::clone(&self.0),
            begin: form.fork(),
            form,
            place: Place::start(tail == PromptTail::ThoughtOpened),
            states: Vec::new(),
            began: 0,
        })
    }
}

/// Returns whether a token with these bytes may be part of a closing tag, or may contain one.
fn may_be_part(close: &[u8], bytes: &[u8]) -> bool {
    let ends = |n: usize| bytes.starts_with(&close[close.len() - n..]);
    bytes.contains(&close[0])
        || close.windows(bytes.len().max(1)).any(|part| part == bytes)
        || (1..=bytes.len().min(close.len())).any(ends)
}

/// State of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The form or a thought may begin.
    Start {
        /// Number of line-break tokens since the last thought; `None` if there was no thought.
        behind: Option<usize>,
        /// Tokens so far of a possible opening tag.
        opening: Vec<u32>,
        /// Whether the same tokens may also be the start of the form.
        in_form: bool,
    },
    Thought {
        close: &'static str,
        /// Last bytes of the thought, which may be the start of the closing tag.
        tail: Vec<u8>,
    },
    Form,
}

impl Place {
    fn start(behind: bool) -> Place {
        Place::Start { behind: behind.then_some(0), opening: Vec::new(), in_form: true }
    }
}

/// Constraint for optional thoughts followed by a form.
struct ThoughtsFirst {
    known: Arc<Known>,
    /// The form before its first token.
    begin: Box<dyn Constraint>,
    /// The form after the tokens from position `began` on.
    form: Box<dyn Constraint>,
    place: Place,
    /// Values of `place` and `began` before each token.
    states: Vec<(Place, usize)>,
    /// Number of tokens before the first token of `form`.
    began: usize,
}

fn may_not_come() -> Error {
    Error::Constraint { problem: "neither a thought nor the form goes on so".to_owned() }
}

impl ThoughtsFirst {
    /// Returns the tokens that continue a possible opening tag. A token that completes the tag comes with the closing tag.
    fn next_openings<'k>(
        known: &'k Known,
        opening: &'k [u32],
    ) -> impl Iterator<Item = (u32, Option<Option<&'static str>>)> + 'k {
        known.opens.iter().filter_map(move |(tokens, close)| {
            let rest = tokens.strip_prefix(opening)?;
            Some((*rest.first()?, (rest.len() == 1).then_some(*close)))
        })
    }

    /// Returns the state after a token at a start, and whether the form accepts the token.
    fn after_start(
        &mut self,
        token: u32,
        (behind, opening, in_form): (Option<usize>, &[u32], bool),
    ) -> Result<(Place, bool)> {
        let in_form = in_form && self.form.mask()?.has(token);
        let opens: Vec<_> = ThoughtsFirst::next_openings(&self.known, opening)
            .filter(|(next, _)| *next == token)
            .collect();
        let completes = opens.iter().find_map(|(_, completes)| *completes);
        Ok(match completes {
            Some(Some(close)) => (Place::Thought { close, tail: Vec::new() }, false),
            Some(None) => (Place::start(true), false),
            None if !opens.is_empty() => {
                let opening = [opening, &[token]].concat();
                (Place::Start { behind, opening, in_form }, in_form)
            }
            None if in_form => (Place::Form, true),
            None => {
                match behind.filter(|_| opening.is_empty() && self.known.spaces.contains(&token)) {
                    Some(n) if n < SPACES => {
                        let opening = Vec::new();
                        (Place::Start { behind: Some(n + 1), opening, in_form: true }, false)
                    }
                    _ => return Err(may_not_come()),
                }
            }
        })
    }
}

impl Constraint for ThoughtsFirst {
    fn mask(&mut self) -> Result<TokenMask> {
        match &self.place {
            Place::Form => self.form.mask(),
            Place::Thought { .. } => Ok(self.known.free.clone()),
            Place::Start { behind, opening, in_form } => {
                let known = Arc::clone(&self.known);
                let mut more: Vec<u32> =
                    ThoughtsFirst::next_openings(&known, opening).map(|(token, _)| token).collect();
                if behind.is_some_and(|n| n < SPACES) && opening.is_empty() {
                    more.extend(&known.spaces);
                }
                let more = TokenMask::of(more.into_iter(), known.vocab_size);
                Ok(if *in_form { self.form.mask()?.union(&more) } else { more })
            }
        }
    }

    fn forced(&mut self) -> Vec<u32> {
        if self.place == Place::Form { self.form.forced() } else { Vec::new() }
    }

    fn keep(&mut self, token: u32) -> Result<()> {
        let before = (self.place.clone(), self.began);
        let (place, of_form) = match &before.0 {
            Place::Form => (Place::Form, true),
            Place::Thought { close, tail } => {
                let mut tail = match self.known.closing.get(&token) {
                    Some(bytes) => [tail, &bytes[..]].concat(),
                    None => Vec::new(),
                };
                let is_closed = tail.windows(close.len()).any(|part| part == close.as_bytes());
                tail.drain(..tail.len().saturating_sub(close.len() - 1));
                match is_closed {
                    true => (Place::start(true), false),
                    false => (Place::Thought { close, tail }, false),
                }
            }
            Place::Start { behind, opening, in_form } => {
                self.after_start(token, (*behind, opening, *in_form))?
            }
        };
        if of_form {
            self.form.keep(token)?;
        }
        self.states.push(before);
        self.place = place;
        if !of_form {
            // restart the form if it has received tokens
            if self.states.len() - 1 > self.began {
                self.form = self.begin.fork();
            }
            self.began = self.states.len();
        }
        Ok(())
    }

    fn take_back(&mut self, n: usize) -> Result<()> {
        let Some(len) = self.states.len().checked_sub(n) else { return Err(may_not_come()) };
        if n == 0 {
            return Ok(());
        }
        let kept = self.states.len() - self.began;
        let (place, began) = self.states[len].clone();
        if began == self.began {
            self.form.take_back(n.min(kept))?;
        } else {
            // at that time the form had received only tokens that may also open a thought
            self.form = self.begin.fork();
            if let Place::Start { opening, in_form: true, .. } = &place {
                opening.iter().try_for_each(|token| self.form.keep(*token))?;
            }
        }
        (self.place, self.began) = (place, began);
        self.states.truncate(len);
        Ok(())
    }

    fn take_text(&mut self, text: &str) -> Result<()> {
        self.place = Place::Form;
        self.form.take_text(text)?;
        self.begin = self.form.fork();
        Ok(())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(ThoughtsFirst {
            known: Arc::clone(&self.known),
            begin: self.begin.fork(),
            form: self.form.fork(),
            place: self.place.clone(),
            states: self.states.clone(),
            began: self.began,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::constraint::tests::Word;
    use crate::{Message, PromptOptions};

    /// Vocabulary with one token for each byte, followed by control tokens.
    struct Format;

    const NAMES: [&str; 4] = ["<think>", "</think>", "<|im_end|>", "\n\n"];
    const THINK: u32 = 256;
    const CLOSE: u32 = 257;
    const END: u32 = 258;
    const BREAK: u32 = 259;

    impl Vocabulary for Format {
        fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
            match token {
                0..256 => Cow::Owned(vec![token as u8]),
                BREAK => Cow::Borrowed(b"\n\n"),
                _ => Cow::Borrowed(b""),
            }
        }

        fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
            let name = NAMES.get((token as usize).checked_sub(256)?)?;
            Some(Cow::Borrowed(name))
        }

        fn is_eog(&self, token: u32) -> bool {
            token == END
        }

        fn vocab_size(&self) -> usize {
            260
        }
    }

    impl ChatFormat for Format {
        fn render(
            &self,
            _: &[Message],
            _: &PromptOptions<'_>,
            _: &Arc<std::sync::atomic::AtomicBool>,
        ) -> Result<Vec<Span>> {
            Ok(Vec::new())
        }

        fn encode(&self, spans: &[Span], _: bool) -> Result<Vec<u32>> {
            let of = |text: &str| match NAMES.iter().position(|name| *name == text) {
                Some(at) => vec![256 + at as u32],
                None => text.bytes().map(u32::from).collect(),
            };
            Ok(spans.iter().flat_map(|span| of(&span.text)).collect())
        }

        fn mentions(&self, text: &str) -> bool {
            text == "<think>"
        }
    }

    fn form(prompt: &[u32]) -> Box<dyn Constraint> {
        let marks = ThoughtMarks::of(&Format).unwrap();
        marks.before(Word::boxed(&[OPEN, SHUT]), &Format, prompt)
    }

    fn next(form: &mut dyn Constraint) -> Vec<u32> {
        form.mask().unwrap().tokens().collect()
    }

    const OPEN: u32 = b'{' as u32;
    const SHUT: u32 = b'}' as u32;

    #[test]
    fn a_thought_may_come_before_the_form_and_holds_any_token_but_the_end() {
        let mut form = form(&[1]);
        assert_eq!(next(&mut *form), [OPEN, THINK]);
        assert!(form.forced().is_empty(), "there is a choice");
        form.keep(THINK).unwrap();
        let free = next(&mut *form);
        assert!(free.len() == 259 && !free.contains(&END));
        for token in [OPEN, u32::from(b'<'), u32::from(b'/'), CLOSE] {
            form.keep(token).unwrap();
        }
        assert_eq!(next(&mut *form), [u32::from(b'\n'), OPEN, THINK, BREAK]);
        form.keep(BREAK).unwrap();
        form.keep(OPEN).unwrap();
        assert_eq!((next(&mut *form), form.forced()), (vec![SHUT], vec![SHUT]));
    }

    #[test]
    fn a_close_that_is_spelled_ends_a_thought_and_no_half_of_one_does() {
        let mut form = form(&[1]);
        form.keep(THINK).unwrap();
        for byte in b"a </think </think" {
            form.keep(u32::from(*byte)).unwrap();
            assert!(next(&mut *form).len() == 259);
        }
        form.keep(u32::from(b'>')).unwrap();
        assert!(next(&mut *form).contains(&OPEN) && next(&mut *form).len() == 4);
    }

    /// Taking back any number of tokens restores the earlier mask.
    #[test]
    fn any_number_of_tokens_is_taken_back() {
        let text = [THINK, 65, CLOSE, BREAK, THINK, CLOSE, OPEN, SHUT];
        let mut masks = Vec::new();
        let mut state = form(&[1]);
        for token in text {
            masks.push(next(&mut *state));
            state.keep(token).unwrap();
        }
        masks.push(next(&mut *state));
        for n in 0..=text.len() {
            let mut state = state.fork();
            state.take_back(n).unwrap();
            let at = text.len() - n;
            assert_eq!(next(&mut *state), masks[at], "{n} taken back");
            for (token, mask) in text[at..].iter().zip(&masks[at + 1..]) {
                state.keep(*token).unwrap();
                assert_eq!(&next(&mut *state), mask);
            }
        }
        assert!(state.take_back(text.len() + 1).is_err());
    }

    #[test]
    fn the_prompt_says_whether_thoughts_may_come() {
        assert_eq!(next(&mut *form(&[1, THINK, CLOSE, BREAK])), [OPEN]);
        // the form begins at the end of the thought that the prompt opened
        let behind = next(&mut *form(&[1, THINK, u32::from(b'\n')]));
        assert_eq!(behind, [u32::from(b'\n'), OPEN, THINK, BREAK]);
    }
}
