//! [`ThoughtMarks`]: thoughts before a reply that has a form. Without this a model that opens its thoughts itself could not think:
//! the form would hold from its first token on.
//!
//! start -> thought -> start -> the form. At a start the form may begin, or what opens a thought, token by token; within a thought
//! every token may come that does not end the reply. The states of all tokens are kept, so that any number is taken back.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Constraint, TokenMask};
use crate::text::{PromptTail, bytes_or_spelling, openings};
use crate::{ChatFormat, Error, Result, Span, Vocabulary};

/// Tokens of line breaks between a thought and the form.
const SPACES: usize = 1;

/// How a model marks its thoughts, in its own tokens.
#[derive(Clone, Debug)]
pub struct ThoughtMarks(Arc<Known>);

/// What is known of a model's thoughts.
#[derive(Debug)]
struct Known {
    /// Tokens that open a thought, and what closes it; `None`: they stand between thoughts and the reply.
    opens: Vec<(Vec<u32>, Option<&'static str>)>,
    /// Tokens of white space.
    spaces: Vec<u32>,
    /// All tokens but those that end a reply.
    free: TokenMask,
    vocab_size: usize,
    /// Bytes of the tokens that may be a part of what closes a thought.
    closing: HashMap<u32, Box<[u8]>>,
}

impl ThoughtMarks {
    /// Those of a model; `None` where its template knows no thoughts.
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

    /// This form behind thoughts, unless the prompt has closed them already.
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

/// Whether a token of these bytes may be a part of what closes a thought, or hold it.
fn may_be_part(close: &[u8], bytes: &[u8]) -> bool {
    let ends = |n: usize| bytes.starts_with(&close[close.len() - n..]);
    bytes.contains(&close[0])
        || close.windows(bytes.len().max(1)).any(|part| part == bytes)
        || (1..=bytes.len().min(close.len())).any(ends)
}

/// Where a reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// The form may begin, or a thought.
    Start {
        /// Behind a thought, and so many tokens of white space.
        behind: Option<usize>,
        /// Tokens of what may open a thought.
        opening: Vec<u32>,
        /// Whether they may be of the form, too.
        in_form: bool,
    },
    Thought {
        close: &'static str,
        /// The end of its text.
        tail: Vec<u8>,
    },
    Form,
}

impl Place {
    fn start(behind: bool) -> Place {
        Place::Start { behind: behind.then_some(0), opening: Vec::new(), in_form: true }
    }
}

/// A form behind thoughts.
struct ThoughtsFirst {
    known: Arc<Known>,
    /// The form, of which nothing has come.
    begin: Box<dyn Constraint>,
    /// The form that some of the text may be of.
    form: Box<dyn Constraint>,
    place: Place,
    /// The place before each token, and of `began` then.
    states: Vec<(Place, usize)>,
    /// How many tokens came before `form` began.
    began: usize,
}

fn may_not_come() -> Error {
    Error::Constraint { problem: "neither a thought nor the form goes on so".to_owned() }
}

impl ThoughtsFirst {
    /// Tokens that go on with what may open a thought, and what each completes.
    fn next_openings<'k>(
        known: &'k Known,
        opening: &'k [u32],
    ) -> impl Iterator<Item = (u32, Option<Option<&'static str>>)> + 'k {
        known.opens.iter().filter_map(move |(tokens, close)| {
            let rest = tokens.strip_prefix(opening)?;
            Some((*rest.first()?, (rest.len() == 1).then_some(*close)))
        })
    }

    /// The place after a token at a start, and whether the form takes the token.
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
            // unless nothing of it has come
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
            // what it had then of this form are tokens that may open a thought, too
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

    /// A token a byte, and names of control tokens behind them.
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

    /// Whatever is taken back, what may come next is as it was.
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
        // the form begins where the thought that the prompt opened ends
        let behind = next(&mut *form(&[1, THINK, u32::from(b'\n')]));
        assert_eq!(behind, [u32::from(b'\n'), OPEN, THINK, BREAK]);
    }
}
