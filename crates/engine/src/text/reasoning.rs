//! Thoughts of reasoning models: `<think> ... </think>` before the answer, told apart while they stream.

use std::borrow::Cow;

use super::bytes_or_spelling;
use super::stop::held_for;
use crate::Vocabulary;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// How far back an opening tag at the end of a prompt is looked for, in tokens.
const TAIL: usize = 16;

/// What a piece of a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// The answer.
    Text,
    /// What the model thinks before it.
    Thought,
}

/// Splits a reply into thoughts and text. Thoughts stand before the answer only, so a tag within the answer is text.
/// The tags and the white space around thoughts are dropped.
#[derive(Debug)]
pub(super) struct Splitter {
    place: Place,
    /// What could still be part of a tag, or white space before one.
    held: String,
    had_thoughts: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Before the first character that is no white space: a thought may open.
    Start,
    /// In a thought, before its first character that is no white space.
    ThoughtStart,
    Thought,
    Text,
}

impl Splitter {
    /// `opened`: the prompt ends with an opening tag.
    pub(super) fn new(opened: bool) -> Self {
        let place = if opened { Place::ThoughtStart } else { Place::Start };
        Splitter { place, held: String::new(), had_thoughts: opened }
    }

    /// Add text and emit what is certain.
    pub(super) fn push(&mut self, text: &str, emit: &mut dyn FnMut(ReplyKind, &str)) {
        self.held.push_str(text);
        while self.advance(emit) {}
    }

    /// The reply has ended: emit the rest.
    pub(super) fn finish(self, emit: &mut dyn FnMut(ReplyKind, &str)) {
        match self.place {
            Place::Start if self.had_thoughts => emit(ReplyKind::Text, self.held.trim_start()),
            Place::Start | Place::Text => emit(ReplyKind::Text, &self.held),
            Place::ThoughtStart | Place::Thought => emit(ReplyKind::Thought, self.held.trim_end()),
        }
    }

    /// Go to the next place if what is held decides it.
    fn advance(&mut self, emit: &mut dyn FnMut(ReplyKind, &str)) -> bool {
        match self.place {
            Place::Start => {
                let word = self.held.trim_start();
                let space = self.held.len() - word.len();
                if word.starts_with(OPEN) {
                    self.held.drain(..space + OPEN.len());
                    self.had_thoughts = true;
                    self.place = Place::ThoughtStart;
                } else if OPEN.starts_with(word) {
                    return false;
                } else {
                    if self.had_thoughts {
                        self.held.drain(..space);
                    }
                    self.place = Place::Text;
                }
                true
            }
            Place::ThoughtStart => {
                let space = self.held.len() - self.held.trim_start().len();
                self.held.drain(..space);
                if self.held.is_empty() {
                    return false;
                }
                self.place = Place::Thought;
                true
            }
            Place::Thought => {
                if let Some(at) = self.held.find(CLOSE) {
                    emit(ReplyKind::Thought, self.held[..at].trim_end());
                    self.held.drain(..at + CLOSE.len());
                    self.place = Place::Start;
                    return true;
                }
                let before_tag = self.held.len() - held_for(&self.held, CLOSE);
                let certain = self.held[..before_tag].trim_end().len();
                emit(ReplyKind::Thought, &self.held[..certain]);
                self.held.drain(..certain);
                false
            }
            Place::Text => {
                emit(ReplyKind::Text, &self.held);
                self.held.clear();
                false
            }
        }
    }
}

/// Whether the prompt ends with an opening tag, as the templates of some models do.
pub(crate) fn opens_thought(vocabulary: &dyn Vocabulary, prompt: &[u32]) -> bool {
    let tail = &prompt[prompt.len().saturating_sub(TAIL)..];
    let bytes: Vec<u8> =
        tail.iter().flat_map(|&token| bytes_or_spelling(vocabulary, token).into_owned()).collect();
    bytes.trim_ascii_end().ends_with(OPEN.as_bytes())
}

/// A token's bytes; those of a tag also if it is a control token.
pub(super) fn tag_or_bytes(vocabulary: &dyn Vocabulary, token: u32) -> Cow<'_, [u8]> {
    let bytes = bytes_or_spelling(vocabulary, token);
    if *bytes == *OPEN.as_bytes() || *bytes == *CLOSE.as_bytes() {
        bytes
    } else {
        vocabulary.bytes(token)
    }
}

#[cfg(test)]
mod tests {
    use super::{ReplyKind, Splitter};

    fn split(opened: bool, pieces: &[&str]) -> (String, String) {
        let (mut thought, mut text) = (String::new(), String::new());
        let mut emit = |kind, piece: &str| match kind {
            ReplyKind::Text => text.push_str(piece),
            ReplyKind::Thought => thought.push_str(piece),
        };
        let mut splitter = Splitter::new(opened);
        for piece in pieces {
            splitter.push(piece, &mut emit);
        }
        splitter.finish(&mut emit);
        (thought, text)
    }

    /// Checks the whole, every split in two and every single character.
    fn check(opened: bool, reply: &str, thought: &str, text: &str) {
        let want = (thought.to_owned(), text.to_owned());
        assert_eq!(split(opened, &[reply]), want, "{reply:?} whole");
        for (cut, _) in reply.char_indices() {
            assert_eq!(
                split(opened, &[&reply[..cut], &reply[cut..]]),
                want,
                "{reply:?} split at {cut}"
            );
        }
        let single: Vec<String> = reply.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(split(opened, &single), want, "{reply:?} by characters");
    }

    #[test]
    fn thoughts_and_text() {
        check(false, "<think>\nhm, a < b\n\nso\n</think>\n\nYes.\n", "hm, a < b\n\nso", "Yes.\n");
        check(true, "\nhm </thin no\n</think>\n\nYes.", "hm </thin no", "Yes.");
        check(false, "<think>\n\n</think>\n\nYes.", "", "Yes.");
        check(false, "\n <think>a</think> <think>b</think> c", "ab", "c");
    }

    #[test]
    fn without_thoughts_nothing_is_lost() {
        check(
            false,
            "\n Hello <think> is a tag </think> ",
            "",
            "\n Hello <think> is a tag </think> ",
        );
        check(false, "<thinking>", "", "<thinking>");
        check(false, "  <thi", "", "  <thi");
        check(false, " \n", "", " \n");
        check(false, "", "", "");
    }

    #[test]
    fn thoughts_that_do_not_end() {
        check(false, "<think> on and on </th", "on and on </th", "");
        check(true, "on and on \n", "on and on", "");
        check(true, "\u{20AC}</think>", "\u{20AC}", "");
    }
}
