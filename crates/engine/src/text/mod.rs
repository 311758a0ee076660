//! From tokens to the text of a reply: bytes -> characters -> stop strings -> thoughts and answer -> text and calls.

mod indent;
mod reasoning;
mod stop;
mod utf8;

use std::borrow::Cow;

pub use reasoning::template_thinks;
pub(crate) use reasoning::{PromptTail, Tags, openings, opens_thought};

use tokenizer::ToolCall;

use crate::{CallParser, CollectedCalls, Event, ReplyEnd, Vocabulary};
use indent::Indent;
use reasoning::{ReplyKind, Splitter, as_message};
use stop::{Scan, Stops};
use utf8::Utf8;

/// The text of a reply while it grows.
pub(crate) struct ReplyText {
    utf8: Utf8,
    stops: Stops,
    indent: Indent,
    splitter: Option<Splitter>,
    /// All characters so far.
    raw: String,
    /// Bytes of `raw` that cannot belong to a stop string and went on.
    passed: usize,
    /// What becomes of the answer.
    answer: Answer,
    /// For each token the length of `raw` after it; `None` if it ended within a character.
    ends: Vec<Option<usize>>,
    /// Whether it ended within its text.
    stopped: bool,
    /// Whether the last token ended a line.
    ended_line: bool,
}

/// Why a text ends within what was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextEnd {
    /// Before this stop string.
    Stop(String),
    /// Before what stands too far left.
    Outdented,
}

/// The answer, and who finds calls in it.
#[derive(Default)]
struct Answer {
    parser: Option<Box<dyn CallParser>>,
    told: Told,
}

/// What was told of a reply.
#[derive(Default)]
struct Told {
    text: String,
    thoughts: String,
    calls: CollectedCalls,
}

/// The text of a finished reply; the fields are those of [`crate::Generated`].
pub(crate) struct FinishedText {
    pub(crate) text: String,
    pub(crate) thoughts: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) cut_call: Option<ToolCall>,
    pub(crate) message: String,
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
            indent: Indent::default(),
            splitter: thoughts.map(Splitter::new),
            raw: String::new(),
            passed: 0,
            answer: Answer::default(),
            ends: Vec::new(),
            stopped: false,
            ended_line: false,
        }
    }

    /// Have calls found in the answer.
    pub(crate) fn set_parser(&mut self, parser: Box<dyn CallParser>) {
        self.answer.parser = Some(parser);
    }

    /// Have it end at a line that begins with fewer spaces and tabs than this.
    pub(crate) fn set_indent(&mut self, indent: usize) {
        self.indent = Indent::new(indent);
    }

    /// Whether the last token ended a line.
    pub(crate) fn ended_line(&self) -> bool {
        self.ended_line
    }

    /// Whether it has calls so far.
    pub(crate) fn has_calls(&self) -> bool {
        self.answer.told.calls.any()
    }

    /// All that has come of its calls, from what opens them; `None` where there are none, or their end is half a
    /// character.
    pub(crate) fn open_calls(&self) -> Option<String> {
        let open = self.answer.parser.as_ref()?.open()?;
        self.utf8.is_whole().then(|| format!("{open}{}", &self.raw[self.passed..]))
    }

    /// Whether a thought has begun and not ended.
    pub(crate) fn is_in_thought(&self) -> bool {
        self.splitter.as_ref().is_some_and(Splitter::is_in_thought)
    }

    /// Add a token and emit what is certain. Why the reply ends before the end of it, if it does.
    pub(crate) fn push(
        &mut self,
        vocabulary: &dyn Vocabulary,
        token: u32,
        emit: &mut dyn FnMut(Event<'_>),
    ) -> Option<TextEnd> {
        let bytes = match (self.call_mark(vocabulary, token), &self.splitter) {
            (Some(mark), _) => Cow::Owned(mark.into_bytes()),
            (None, Some(splitter)) => {
                reasoning::tag_or_bytes(vocabulary, token, splitter.is_in_text())
            }
            (None, None) => vocabulary.bytes(token),
        };
        let before = self.raw.len();
        self.utf8.push(&bytes, &mut self.raw);
        self.ended_line = self.raw[before..].contains('\n');
        self.ends.push(self.utf8.is_whole().then_some(self.raw.len()));
        let (certain, found) = match self.stops.scan(&self.raw[self.passed..]) {
            Scan::Held(bytes) => (self.raw.len() - bytes, None),
            Scan::Found { at, stop } => (self.passed + at, Some(TextEnd::Stop(stop.to_owned()))),
        };
        let (certain, found) = match self.indent.scan(&self.raw) {
            Some(at) if found.is_none() || at < certain => (at, Some(TextEnd::Outdented)),
            _ => (certain, found),
        };
        self.pass(certain, emit);
        if found.is_some() {
            self.raw.truncate(certain);
            self.stopped = true;
        }
        found
    }

    /// Emits the text that was held back, at the end of the reply. An incomplete character at the end is dropped.
    pub(crate) fn flush(&mut self, end: ReplyEnd, emit: &mut dyn FnMut(Event<'_>)) {
        self.pass(self.raw.len(), emit);
        if let Some(splitter) = &mut self.splitter {
            splitter.finish(&mut |kind, text| self.answer.deliver(kind, text, emit));
        }
        self.answer.finish(end, emit);
    }

    /// The name of a control token that is part of how calls are written.
    fn call_mark(&self, vocabulary: &dyn Vocabulary, token: u32) -> Option<String> {
        let parser = self.answer.parser.as_ref().filter(|_| !self.is_in_thought())?;
        if !vocabulary.bytes(token).is_empty() {
            return None;
        }
        let spelling = vocabulary.spelling(token)?;
        parser.reads(&spelling).then(|| spelling.into_owned())
    }

    /// What came of it, flushed.
    pub(crate) fn finish(mut self) -> FinishedText {
        // a reply that was not flushed before was abandoned
        self.flush(ReplyEnd::Cut, &mut |_| ());
        let (kept_tokens, kept_bytes) = if self.stopped {
            let fits = |end: &Option<usize>| end.is_some_and(|end| end <= self.raw.len());
            let kept = self.ends.iter().rposition(fits).map_or(0, |last| last + 1);
            (kept, self.ends[..kept].last().copied().flatten().unwrap_or(0))
        } else {
            (self.ends.len(), self.raw.len())
        };
        let Told { text, thoughts, calls } = self.answer.told;
        let (calls, cut_call) = calls.finish();
        let before = self.splitter.as_ref().map_or(0, Splitter::before_answer);
        let message = match calls.is_empty() {
            true => as_message(&self.raw, &text).to_owned(),
            false => as_message(&self.raw, "").get(..before).unwrap_or("").to_owned() + &text,
        };
        FinishedText {
            text,
            thoughts,
            calls,
            cut_call,
            message,
            raw: self.raw,
            kept_tokens,
            kept_bytes,
        }
    }

    /// Send `raw` up to `end` on.
    fn pass(&mut self, end: usize, emit: &mut dyn FnMut(Event<'_>)) {
        let fresh = &self.raw[self.passed..end];
        let answer = &mut self.answer;
        match &mut self.splitter {
            Some(splitter) => {
                splitter.push(fresh, &mut |kind, piece| answer.deliver(kind, piece, emit))
            }
            None => answer.deliver(ReplyKind::Text, fresh, emit),
        }
        self.passed = end;
    }
}

impl Answer {
    /// Tell a piece unless it is empty, as what it is.
    fn deliver(&mut self, kind: ReplyKind, piece: &str, emit: &mut dyn FnMut(Event<'_>)) {
        let told = &mut self.told;
        match (kind, &mut self.parser) {
            _ if piece.is_empty() => {}
            (ReplyKind::Thought, _) => told.tell(Event::Thought(piece), emit),
            (ReplyKind::Text, None) => told.tell(Event::Text(piece), emit),
            (ReplyKind::Text, Some(parser)) => {
                parser.push(piece, &mut |event| told.tell(event, emit));
            }
        }
    }

    /// Ends the answer, and emits the rest of its calls.
    fn finish(&mut self, end: ReplyEnd, emit: &mut dyn FnMut(Event<'_>)) {
        if let Some(parser) = &mut self.parser {
            parser.finish(end, &mut |event| self.told.tell(event, emit));
        }
    }
}

impl Told {
    /// Keep an event and pass it on.
    fn tell(&mut self, event: Event<'_>, emit: &mut dyn FnMut(Event<'_>)) {
        match event {
            Event::Text(piece) => self.text.push_str(piece),
            Event::Thought(piece) => self.thoughts.push_str(piece),
            Event::ToolCall(delta) => drop(self.calls.add(&delta)),
            _ => {}
        }
        emit(event);
    }
}

/// A token's bytes, or its spelling if it is a control token.
pub(crate) fn bytes_or_spelling(vocabulary: &dyn Vocabulary, token: u32) -> Cow<'_, [u8]> {
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
