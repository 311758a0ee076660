//! From tokens to the text of a reply: bytes -> characters -> stop strings -> thoughts and text.

mod reasoning;
mod stop;
mod utf8;

use std::borrow::Cow;

pub(crate) use reasoning::{ReplyKind, Tags, as_message, opens_thought};

use crate::Vocabulary;
use reasoning::Splitter;
use stop::{Scan, Stops};
use utf8::Utf8;

/// The text of a reply while it grows.
pub(crate) struct ReplyText {
    utf8: Utf8,
    stops: Stops,
    splitter: Option<Splitter>,
    /// All characters so far.
    raw: String,
    /// Bytes of `raw` that cannot belong to a stop string and went on.
    passed: usize,
    /// What was emitted as text.
    text: String,
    /// For each token the length of `raw` after it; `None` if it ended within a character.
    ends: Vec<Option<usize>>,
    /// Whether a stop string was found.
    stopped: bool,
}

/// The text of a finished reply; the fields are those of [`crate::Generated`].
pub(crate) struct FinishedText {
    pub(crate) text: String,
    pub(crate) raw: String,
    pub(crate) kept_tokens: usize,
    pub(crate) kept_bytes: usize,
}

impl ReplyText {
    /// An empty reply that ends at any of `stops`. `thoughts`: whether to tell thoughts from text, and then the tags
    /// of a thought that the prompt has opened already.
    pub(crate) fn new(stops: &[String], thoughts: Option<Option<&'static Tags>>) -> Self {
        ReplyText {
            utf8: Utf8::default(),
            stops: Stops::new(stops),
            splitter: thoughts.map(Splitter::new),
            raw: String::new(),
            passed: 0,
            text: String::new(),
            ends: Vec::new(),
            stopped: false,
        }
    }

    /// Whether a thought has begun and not ended.
    pub(crate) fn is_in_thought(&self) -> bool {
        self.splitter.as_ref().is_some_and(Splitter::is_in_thought)
    }

    /// Add a token and emit what is certain. Returns the stop string if one is complete: the reply ends before it.
    pub(crate) fn push(
        &mut self,
        vocabulary: &dyn Vocabulary,
        token: u32,
        emit: &mut dyn FnMut(ReplyKind, &str),
    ) -> Option<String> {
        let bytes = match &self.splitter {
            Some(splitter) => reasoning::tag_or_bytes(vocabulary, token, splitter.is_in_text()),
            None => vocabulary.bytes(token),
        };
        self.utf8.push(&bytes, &mut self.raw);
        self.ends.push(self.utf8.is_whole().then_some(self.raw.len()));
        let (certain, found) = match self.stops.scan(&self.raw[self.passed..]) {
            Scan::Held(bytes) => (self.raw.len() - bytes, None),
            Scan::Found { at, stop } => (self.passed + at, Some(stop.to_owned())),
        };
        self.pass(certain, emit);
        if found.is_some() {
            self.raw.truncate(certain);
            self.stopped = true;
        }
        found
    }

    /// The reply has ended: emit what was held back. Half a character at the end is dropped.
    pub(crate) fn flush(&mut self, emit: &mut dyn FnMut(ReplyKind, &str)) {
        self.pass(self.raw.len(), emit);
        if let Some(splitter) = self.splitter.take() {
            splitter.finish(&mut |kind, text| deliver(&mut self.text, kind, text, emit));
        }
    }

    /// What came of it, flushed.
    pub(crate) fn finish(mut self) -> FinishedText {
        self.flush(&mut |_, _| ());
        let (kept_tokens, kept_bytes) = if self.stopped {
            let fits = |end: &Option<usize>| end.is_some_and(|end| end <= self.raw.len());
            let kept = self.ends.iter().rposition(fits).map_or(0, |last| last + 1);
            (kept, self.ends[..kept].last().copied().flatten().unwrap_or(0))
        } else {
            (self.ends.len(), self.raw.len())
        };
        FinishedText { text: self.text, raw: self.raw, kept_tokens, kept_bytes }
    }

    /// Send `raw` up to `end` on.
    fn pass(&mut self, end: usize, emit: &mut dyn FnMut(ReplyKind, &str)) {
        let fresh = &self.raw[self.passed..end];
        let text = &mut self.text;
        match &mut self.splitter {
            Some(splitter) => {
                splitter.push(fresh, &mut |kind, piece| deliver(text, kind, piece, emit))
            }
            None => deliver(text, ReplyKind::Text, fresh, emit),
        }
        self.passed = end;
    }
}

/// Emit a piece unless it is empty, and keep it if it is text.
fn deliver(text: &mut String, kind: ReplyKind, piece: &str, emit: &mut dyn FnMut(ReplyKind, &str)) {
    if piece.is_empty() {
        return;
    }
    if kind == ReplyKind::Text {
        text.push_str(piece);
    }
    emit(kind, piece);
}

/// A token's bytes, or its spelling if it is a control token.
fn bytes_or_spelling(vocabulary: &dyn Vocabulary, token: u32) -> Cow<'_, [u8]> {
    let bytes = vocabulary.bytes(token);
    if !bytes.is_empty() {
        return bytes;
    }
    match vocabulary.spelling(token) {
        Some(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        Some(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        None => bytes,
    }
}
