//! Thoughts of reasoning models: `<think> ... </think>` before the answer, or as their family marks them, told apart
//! while they stream.

use std::borrow::Cow;

use super::bytes_or_spelling;
use super::stop::held_for;
use crate::Vocabulary;

/// What opens a thought and what closes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tags {
    open: &'static str,
    close: &'static str,
}

const fn tags(open: &'static str, close: &'static str) -> Tags {
    Tags { open, close }
}

/// The tags of all families. The first are written as text too; the parts of the others are control tokens, which a
/// reply holds only before its answer.
static TAGS: &[Tags] = &[
    tags("<think>", "</think>"),
    // gpt-oss: a message in its channel for thoughts.
    tags("<|channel|>analysis<|message|>", "<|end|>"),
    // Gemma 4
    tags("<|channel>thought", "<channel|>"),
    // Mistral
    tags("[THINK]", "[/THINK]"),
    // Seed-OSS
    tags("<seed:think>", "</seed:think>"),
    // Command
    tags("<|START_THINKING|>", "<|END_THINKING|>"),
    // Apertus
    tags("<|inner_prefix|>", "<|inner_suffix|>"),
];

/// Returns whether a chat template lets the model think before it answers. Such a template has a switch for thinking in its source,
/// or the tags of a family.
pub fn template_thinks(source: &str) -> bool {
    let names = |tags: &Tags| source.contains(tags.open) || source.contains(tags.close);
    // gpt-oss builds its tags from parts, and ends every message with the same tag
    let channels = source.contains("<|channel|>");
    channels
        || source.contains("enable_thinking")
        || TAGS.iter().filter(|tags| tags.close != "<|end|>").any(names)
}

/// What stands before a thought or an answer and belongs to neither.
const BETWEEN: &[&str] = &[
    "<|start|>assistant",
    "<|channel|>final<|message|>",
    "<|channel|>commentary<|message|>",
    "<|START_RESPONSE|>",
];

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
    /// Bytes that stand before the answer, thoughts and tags, as far as they are known.
    before: usize,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Before the first character that is no white space: a thought may open.
    Start,
    /// In a thought, before its first character that is no white space.
    ThoughtStart(&'static Tags),
    Thought(&'static Tags),
    Text,
}

impl Splitter {
    /// `opened`: the tags whose opening one the prompt ends with.
    pub(super) fn new(opened: Option<&'static Tags>) -> Self {
        let place = opened.map_or(Place::Start, Place::ThoughtStart);
        Splitter { place, held: String::new(), had_thoughts: opened.is_some(), before: 0 }
    }

    /// Whether the answer has begun.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.place, Place::Text)
    }

    /// Whether a thought has begun and not ended.
    pub(super) fn is_in_thought(&self) -> bool {
        matches!(self.place, Place::ThoughtStart(_) | Place::Thought(_))
    }

    /// Bytes of what was pushed that stand before the answer.
    pub(super) fn before_answer(&self) -> usize {
        self.before
    }

    /// Let go of the start of what is held: it stands before the answer.
    fn pass(&mut self, bytes: usize) {
        self.before += bytes;
        self.held.drain(..bytes);
    }

    /// Add text and emit what is certain.
    pub(super) fn push(&mut self, text: &str, emit: &mut dyn FnMut(ReplyKind, &str)) {
        self.held.push_str(text);
        while self.advance(emit) {}
    }

    /// The reply has ended: emit the rest.
    pub(super) fn finish(&mut self, emit: &mut dyn FnMut(ReplyKind, &str)) {
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Start if self.had_thoughts => emit(ReplyKind::Text, held.trim_start()),
            Place::Start | Place::Text => emit(ReplyKind::Text, &held),
            Place::ThoughtStart(_) | Place::Thought(_) => emit(ReplyKind::Thought, held.trim_end()),
        }
    }

    /// Go to the next place if what is held decides it.
    fn advance(&mut self, emit: &mut dyn FnMut(ReplyKind, &str)) -> bool {
        match self.place {
            Place::Start => {
                let word = self.held.trim_start();
                let space = self.held.len() - word.len();
                if let Some(tags) = TAGS.iter().find(|tags| word.starts_with(tags.open)) {
                    self.pass(space + tags.open.len());
                    self.had_thoughts = true;
                    self.place = Place::ThoughtStart(tags);
                } else if let Some(mark) = BETWEEN.iter().find(|mark| word.starts_with(**mark)) {
                    self.pass(space + mark.len());
                    self.had_thoughts = true;
                } else if opening().any(|mark| mark.starts_with(word)) {
                    return false;
                } else {
                    if self.had_thoughts {
                        self.pass(space);
                    }
                    self.place = Place::Text;
                }
                true
            }
            Place::ThoughtStart(tags) => {
                let space = self.held.len() - self.held.trim_start().len();
                self.pass(space);
                if self.held.is_empty() {
                    return false;
                }
                self.place = Place::Thought(tags);
                true
            }
            Place::Thought(tags) => {
                if let Some(at) = self.held.find(tags.close) {
                    emit(ReplyKind::Thought, self.held[..at].trim_end());
                    self.pass(at + tags.close.len());
                    self.place = Place::Start;
                    return true;
                }
                let before_tag = self.held.len() - held_for(&self.held, tags.close);
                let certain = self.held[..before_tag].trim_end().len();
                emit(ReplyKind::Thought, &self.held[..certain]);
                self.pass(certain);
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

/// All that may stand before an answer.
fn opening() -> impl Iterator<Item = &'static str> {
    TAGS.iter().map(|tags| tags.open).chain(BETWEEN.iter().copied())
}

/// Returns the tags that open a thought, each with its closing tag, and, with `None`, the marks between thoughts and an answer.
pub(crate) fn openings() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let between = BETWEEN.iter().filter(|mark| !mark.contains("commentary"));
    TAGS.iter().map(|tags| (tags.open, Some(tags.close))).chain(between.map(|mark| (*mark, None)))
}

/// State of thoughts at the end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptTail {
    /// The prompt ends with no tag of thoughts.
    Open,
    /// The prompt ends with an opening tag.
    ThoughtOpened,
    /// The prompt ends with a closing tag: thoughts are over, or there are none.
    ThoughtClosed,
}

impl PromptTail {
    /// Returns the state at the end of this prompt.
    pub(crate) fn of(vocabulary: &dyn Vocabulary, prompt: &[u32]) -> PromptTail {
        let bytes = tail_bytes(vocabulary, prompt);
        let end = bytes.trim_ascii_end();
        let ends = |mark: &str| end.ends_with(mark.as_bytes());
        match TAGS.iter().find(|tags| ends(tags.open) || ends(tags.close)) {
            Some(tags) if ends(tags.open) => PromptTail::ThoughtOpened,
            Some(_) => PromptTail::ThoughtClosed,
            None => PromptTail::Open,
        }
    }
}

/// Returns the bytes of the last tokens of a prompt.
fn tail_bytes(vocabulary: &dyn Vocabulary, prompt: &[u32]) -> Vec<u8> {
    let tail = &prompt[prompt.len().saturating_sub(TAIL)..];
    tail.iter().flat_map(|&token| bytes_or_spelling(vocabulary, token).into_owned()).collect()
}

/// The tags whose opening one the prompt ends with, as the templates of some models do.
pub(crate) fn opens_thought(vocabulary: &dyn Vocabulary, prompt: &[u32]) -> Option<&'static Tags> {
    let bytes = tail_bytes(vocabulary, prompt);
    let end = bytes.trim_ascii_end();
    TAGS.iter().find(|tags| end.ends_with(tags.open.as_bytes()))
}

/// A token's bytes; those of a part of a tag also if it is a control token. `in_text`: the answer has begun, and only the
/// tags that are written as text too are part of it.
pub(super) fn tag_or_bytes(
    vocabulary: &dyn Vocabulary,
    token: u32,
    in_text: bool,
) -> Cow<'_, [u8]> {
    let bytes = bytes_or_spelling(vocabulary, token);
    let is_plain = || [TAGS[0].open, TAGS[0].close].iter().any(|tag| *bytes == *tag.as_bytes());
    let is_part = || {
        let spelling = std::str::from_utf8(&bytes).unwrap_or_default();
        let closing = TAGS.iter().map(|tags| tags.close);
        !spelling.is_empty() && opening().chain(closing).any(|tag| tag.contains(spelling))
    };
    if is_plain() || (!in_text && is_part()) { bytes } else { vocabulary.bytes(token) }
}

/// What a reply is as a message of the conversation: as it was written, but for families whose templates want nothing
/// but the answer there.
pub(crate) fn as_message<'r>(raw: &'r str, text: &'r str) -> &'r str {
    let has_channels = BETWEEN.iter().chain([&TAGS[1].open]).any(|mark| raw.contains(mark));
    if has_channels || raw.trim_start().starts_with(TAGS[2].open) { text } else { raw }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{ReplyKind, Splitter, TAGS, as_message, opens_thought, tag_or_bytes};

    fn split(opened: bool, pieces: &[&str]) -> (String, String) {
        split_by(opened.then_some(0), pieces)
    }

    /// `opened`: the place in the table of tags.
    fn split_by(opened: Option<usize>, pieces: &[&str]) -> (String, String) {
        let (mut thought, mut text) = (String::new(), String::new());
        let mut emit = |kind, piece: &str| match kind {
            ReplyKind::Text => text.push_str(piece),
            ReplyKind::Thought => thought.push_str(piece),
        };
        let mut splitter = Splitter::new(opened.map(|at| &TAGS[at]));
        for piece in pieces {
            splitter.push(piece, &mut emit);
        }
        splitter.finish(&mut emit);
        assert!(splitter.before_answer() <= pieces.concat().len());
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
    fn templates_that_let_a_model_think_are_known() {
        for thinks in [
            "{% if enable_thinking is defined %}",
            "content.split('</think>')[-1]",
            "'<|start|>assistant<|channel|>analysis'",
            "[THINK]{{ thought }}[/THINK]",
        ] {
            assert!(super::template_thinks(thinks), "{thinks}");
        }
        for plain in ["", "<|assistant|>{{ content }}<|end|>", "{{ bos_token }}<|im_start|>"] {
            assert!(!super::template_thinks(plain), "{plain}");
        }
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

    #[test]
    fn channels_of_gpt_oss() {
        let reply = "<|channel|>analysis<|message|>Easy: 4 < 5.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.";
        check(false, reply, "Easy: 4 < 5.", "It is 4.");
        check(false, "<|channel|>final<|message|>Hi", "", "Hi");
        let twice = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\
                     <|start|>assistant<|channel|>commentary<|message|>I look.";
        check(false, twice, "ab", "I look.");
        assert_eq!(as_message(reply, "It is 4."), "It is 4.");
    }

    #[test]
    fn tags_of_each_family() {
        for (i, tags) in TAGS.iter().enumerate() {
            let reply = format!("{}\nhm\n{}\n\nYes.", tags.open, tags.close);
            check(false, &reply, "hm", "Yes.");
            let rest = reply.strip_prefix(tags.open).unwrap();
            assert_eq!(split_by(Some(i), &[rest]), ("hm".to_owned(), "Yes.".to_owned()));
        }
        check(false, "[THIN", "", "[THIN");
        check(false, "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b", "a", "b");
        assert_eq!(as_message("<think>a</think>b", "b"), "<think>a</think>b");
    }

    /// Control tokens by their ids.
    struct Controls;

    const CONTROLS: &[&str] = &["<|channel|>", "<|end|>", "<|im_start|>", "</think>"];

    impl crate::Vocabulary for Controls {
        fn vocab_size(&self) -> usize {
            3
        }

        fn bytes(&self, _: u32) -> Cow<'_, [u8]> {
            Cow::Borrowed(b"")
        }

        fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
            CONTROLS.get(token as usize).map(|text| Cow::Borrowed(*text))
        }

        fn is_eog(&self, _: u32) -> bool {
            false
        }
    }

    #[test]
    fn parts_of_tags_are_seen_before_the_answer_only() {
        let seen = |token, in_text| tag_or_bytes(&Controls, token, in_text).into_owned();
        assert_eq!(seen(0, false), b"<|channel|>");
        assert_eq!(seen(1, false), b"<|end|>");
        assert_eq!(seen(2, false), b"");
        assert_eq!(seen(9, false), b"");
        assert_eq!((seen(0, true), seen(3, true)), (vec![], b"</think>".to_vec()));
        assert_eq!(opens_thought(&Controls, &[3, 2]), None);
    }
}
