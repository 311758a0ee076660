//! Calls in a reply while it grows, as a family's description says: text -> what opens calls -> calls -> what closes them.
//!
//! Each step depends only on the text so far, so events do not depend on how the text is cut into pieces. A reply never contains the
//! same call both as markup and as a call:
//! - An opening mark that turns out to begin no call is emitted as text, up to the place that shows it; reading continues there.
//! - A call that was already reported and turns out to be invalid is skipped up to its closing mark.
//! - If the reply is cut, text that could still have become a call is dropped.
//!
//! Time and memory are proportional to the length of the text.

mod call;
mod input;
mod objects;
mod parameters;
mod whole;

use std::sync::Arc;

use engine::{CallIds, CallParser, Event, ReplyEnd, ToolCallDelta};

use crate::family::{CallFamily, CallSyntax, Calls, Marked, MarkedArguments};
use crate::list::{Tool, ToolList};
use call::Call;
use input::{Input, Match, held_for, matches};

/// Longest calls behind one opening, in bytes; a piece that came whole may exceed it.
const CALL: usize = 1 << 20;
/// Most white space that is held back because a call may follow it.
const SPACE: usize = 64;

/// Finds the calls of one reply. Names that are no tool's are no calls.
pub struct CallReader {
    family: &'static CallFamily,
    input: Input,
    state: State,
    calls: Told,
}

enum State {
    /// Nothing but white space has come.
    Start,
    Text,
    /// Behind what opens calls, or behind a call.
    Between(&'static CallSyntax),
    Within(&'static CallSyntax, Box<Call>),
    /// Inside a call that was reported and is invalid, before its closing mark. Nothing here is text.
    Skip(&'static CallSyntax),
}

/// Calls that were told, and the text they were written in.
struct Told {
    tools: Arc<ToolList>,
    ids: CallIds,
    /// Calls that are whole.
    whole: usize,
    /// Those of them behind what opened last.
    here: usize,
    /// Whether one has begun and not ended.
    begun: bool,
    /// White space before what opens calls.
    space: String,
    /// Everything from what opened last.
    source: String,
    /// Of that, what belongs to calls that are whole, with what closes them.
    good: usize,
    /// Whether a text opened them: what stands there must be calls.
    opened: bool,
}

/// What came of one look at the text.
enum Step {
    /// More text is needed.
    Wait,
    Go(State),
    /// It is no call.
    Fail,
}

impl CallReader {
    /// Creates a reader for a reply of a model of this family that may call these tools. Calls get `ids` if the model writes none.
    pub fn new(family: &'static CallFamily, tools: Arc<ToolList>, ids: CallIds) -> CallReader {
        CallReader {
            family,
            input: Input::default(),
            state: State::Start,
            calls: Told {
                tools,
                ids,
                whole: 0,
                here: 0,
                begun: false,
                space: String::new(),
                source: String::new(),
                good: 0,
                opened: false,
            },
        }
    }

    /// Go as far as what came decides.
    fn advance(&mut self, emit: &mut dyn FnMut(Event<'_>)) {
        loop {
            let step = match &mut self.state {
                State::Start => self.start(),
                State::Text => self.text(emit),
                State::Between(syntax) => {
                    let syntax = *syntax;
                    self.between(syntax)
                }
                State::Skip(syntax) => {
                    let close = syntax.close;
                    self.skip(close)
                }
                State::Within(syntax, call) => {
                    let syntax = *syntax;
                    match call.advance(&mut self.input, &mut self.calls, emit) {
                        _ if self.calls.source.len() > CALL => Step::Fail,
                        call::Progress::Wait => Step::Wait,
                        call::Progress::Ended => Step::Go(State::Between(syntax)),
                        call::Progress::Bad => Step::Fail,
                    }
                }
            };
            match step {
                Step::Wait => return,
                Step::Go(state) => self.state = state,
                Step::Fail => self.fail(emit),
            }
        }
    }

    /// Rejects pending text that is not a call, or not a further call. It is emitted, unless a call in it was already reported.
    fn fail(&mut self, emit: &mut dyn FnMut(Event<'_>)) {
        let syntax = match self.state {
            State::Between(syntax) | State::Within(syntax, _) => Some(syntax),
            State::Start | State::Text | State::Skip(_) => None,
        };
        self.state = match (self.calls.give_back(emit), syntax) {
            (true, Some(syntax)) => State::Skip(syntax),
            _ => State::Text,
        };
    }

    /// Skips an invalid call up to its closing mark. Without such a mark, the rest of the reply belongs to the call.
    fn skip(&mut self, close: &str) -> Step {
        let rest = self.input.rest();
        match rest.find(close).filter(|_| !close.is_empty()) {
            Some(at) => {
                self.input.skip(at + close.len());
                self.calls.here += 1;
                Step::Go(State::Text)
            }
            None => {
                let held = held_for(rest, close);
                self.input.skip(rest.len() - held);
                Step::Wait
            }
        }
    }

    /// What may open calls where a reply begins.
    fn start(&mut self) -> Step {
        let rest = self.input.rest();
        let word = rest.trim_start();
        let space = rest.len() - word.len();
        if rest[..space].chars().count() > SPACE {
            return Step::Go(State::Text);
        }
        if word.is_empty() {
            return Step::Wait;
        }
        let mut wait = false;
        for syntax in self.family.syntaxes {
            for start in syntax.starts {
                match (matches(word, start), bracket(syntax, word)) {
                    (Match::Yes, Match::Yes) => {
                        self.calls.open(&mut self.input, space, 0, false);
                        let taken = start.len() * usize::from(!matches!(*start, "{" | "["));
                        self.calls.take(&mut self.input, taken);
                        return Step::Go(State::Between(syntax));
                    }
                    (Match::No, _) | (_, Match::No) => {}
                    _ => wait = true,
                }
            }
        }
        if wait { Step::Wait } else { Step::Go(State::Text) }
    }

    /// Text, up to what opens calls.
    fn text(&mut self, emit: &mut dyn FnMut(Event<'_>)) -> Step {
        if self.calls.whole > 0 && self.calls.here > 0 {
            self.input.skip_space();
        }
        let rest = self.input.rest();
        let opens = |syntax: &'static CallSyntax| {
            syntax.opens.iter().map(move |open| (*open, Some(syntax)))
        };
        let drops = self.family.drops.iter().map(|drop| (*drop, None));
        let all = || self.family.syntaxes.iter().flat_map(opens).chain(drops.clone());
        let found = all().filter_map(|(mark, syntax)| Some((rest.find(mark)?, mark, syntax)));
        // of two at one place the longer
        let found = found.min_by_key(|(at, mark, _)| (*at, std::cmp::Reverse(mark.len())));
        // one that may still become a longer one, or an earlier one
        let held = all().map(|(mark, _)| held_for(rest, mark)).max().unwrap_or(0);
        let found = found.filter(|(at, ..)| *at < rest.len() - held);
        let certain = found.map_or(rest.len() - held, |(at, ..)| at);
        let before = rest[..certain].trim_end();
        let told = match found {
            Some((.., None)) => certain,
            _ => before.len() + told_space(&rest[before.len()..certain]),
        };
        if told > 0 {
            self.calls.here = 0;
            emit(Event::Text(&rest[..told]));
        }
        let space = certain - told;
        match found {
            None => {
                self.input.skip(told);
                Step::Wait
            }
            Some((_, mark, None)) => {
                self.input.skip(told + mark.len());
                Step::Go(State::Text)
            }
            Some((_, mark, Some(syntax))) => {
                self.input.skip(told);
                self.calls.open(&mut self.input, space, mark.len(), true);
                // what opens may be the beginning of a call itself
                if let Calls::Marked(Marked { open, .. }) = &syntax.calls
                    && mark == *open
                {
                    let call = Call::named(syntax);
                    return Step::Go(State::Within(syntax, Box::new(call)));
                }
                Step::Go(State::Between(syntax))
            }
        }
    }

    /// A call, or what closes them.
    fn between(&mut self, syntax: &'static CallSyntax) -> Step {
        let calls = &mut self.calls;
        let none = calls.here == 0;
        calls.take_space(&mut self.input);
        let rest = self.input.rest();
        let Some(first) = rest.chars().next() else { return Step::Wait };
        // what closes calls, and then what closes them all
        let mut wait = false;
        if !none {
            let closes = match &syntax.calls {
                Calls::Marked(marked) => marked.closes,
                _ => &[],
            };
            for close in closes.iter().chain([&syntax.close]).filter(|close| !close.is_empty()) {
                match matches(rest, close.trim_start()) {
                    Match::Yes => {
                        calls.take(&mut self.input, close.trim_start().len());
                        calls.good = calls.source.len();
                        let all = *close == syntax.close;
                        return Step::Go(if all { State::Text } else { State::Between(syntax) });
                    }
                    Match::Maybe => wait = true,
                    Match::No => {}
                }
            }
        }
        let within = |call| Step::Go(State::Within(syntax, Box::new(call)));
        match &syntax.calls {
            Calls::Python if first == '[' && none => {
                calls.take(&mut self.input, 1);
                within(Call::python())
            }
            Calls::Python if first == ',' && !none => {
                calls.take(&mut self.input, 1);
                within(Call::python())
            }
            Calls::Python if first == ']' && !none => {
                calls.take(&mut self.input, 1);
                calls.good = calls.source.len();
                Step::Go(State::Between(syntax))
            }
            Calls::Python => fail_or(wait),
            Calls::Marked(marked) => {
                let json = matches!(marked.arguments, MarkedArguments::Json);
                match matches(rest, marked.open) {
                    Match::Yes if !marked.open.is_empty() => {
                        calls.take(&mut self.input, marked.open.len());
                        within(Call::named(syntax))
                    }
                    Match::Maybe => Step::Wait,
                    // some versions of a family write objects
                    _ if json && (first == '{' || first == '[' || !none) => {
                        self.object(syntax, first, wait)
                    }
                    Match::Yes if none => within(Call::named(syntax)),
                    _ => fail_or(wait),
                }
            }
            Calls::Objects { .. } | Calls::Keyed => self.object(syntax, first, wait),
        }
    }

    /// A JSON object that is a call, or a bracket of the list they may stand in.
    fn object(&mut self, syntax: &'static CallSyntax, first: char, wait: bool) -> Step {
        let calls = &mut self.calls;
        let none = calls.here == 0;
        match first {
            '{' => {
                let keyed = matches!(syntax.calls, Calls::Keyed);
                Step::Go(State::Within(syntax, Box::new(Call::object(keyed, !calls.opened))))
            }
            '[' if none && !calls.source.ends_with('[') => {
                calls.take(&mut self.input, 1);
                Step::Go(State::Between(syntax))
            }
            ',' | ';' if !none => {
                calls.take(&mut self.input, 1);
                Step::Go(State::Between(syntax))
            }
            ']' if !none => {
                calls.take(&mut self.input, 1);
                calls.good = calls.source.len();
                Step::Go(State::Between(syntax))
            }
            _ => fail_or(wait),
        }
    }
}

/// Of white space before a mark that may come, what is told as text all the same: all but the last [`SPACE`] of it, and
/// that in steps, so that it does not matter in which pieces it came.
fn told_space(space: &str) -> usize {
    let step = SPACE + 1;
    let told = space.chars().count() / step * step;
    space.chars().take(told).map(char::len_utf8).sum()
}

/// Unless what came may still become something else.
fn fail_or(wait: bool) -> Step {
    if wait { Step::Wait } else { Step::Fail }
}

/// Whether what a reply begins with can be calls, as far as its brackets say.
fn bracket(syntax: &CallSyntax, word: &str) -> Match {
    let Some(inside) = word.strip_prefix('[') else { return Match::Yes };
    match (inside.trim_start().chars().next(), &syntax.calls) {
        (None, _) => Match::Maybe,
        (Some(c), Calls::Python) if c.is_ascii_alphabetic() || c == '_' => Match::Yes,
        (Some('{'), Calls::Objects { .. }) => Match::Yes,
        _ => Match::No,
    }
}

impl CallParser for CallReader {
    fn reads(&self, spelling: &str) -> bool {
        !spelling.is_empty() && self.family.texts().any(|text| text.contains(spelling))
    }

    fn push(&mut self, text: &str, emit: &mut dyn FnMut(Event<'_>)) {
        self.input.push(text);
        self.advance(emit);
    }

    fn finish(&mut self, end: ReplyEnd, emit: &mut dyn FnMut(Event<'_>)) {
        let within = matches!(self.state, State::Between(_) | State::Within(..));
        let drops = match self.state {
            State::Skip(_) => true,
            State::Between(_) | State::Within(..) => end != ReplyEnd::Model,
            State::Start | State::Text => false,
        };
        let told = match drops {
            true => self.calls.drop_open(emit),
            false => self.calls.give_back(emit),
        };
        let mut rest = self.input.rest();
        if end == ReplyEnd::Cut && !within {
            // drop the beginning of an opening mark
            let all = self.family.syntaxes.iter().flat_map(|syntax| syntax.opens);
            let all = all.chain(self.family.drops);
            let held = all.map(|mark| held_for(rest, mark)).max().unwrap_or(0);
            let starts = self.family.syntaxes.iter().flat_map(|syntax| syntax.starts);
            let word = rest.trim_start();
            let may = |start: &&str| !word.is_empty() && start.starts_with(word);
            let starts = matches!(self.state, State::Start) && starts.clone().any(may);
            rest = if starts { "" } else { &rest[..rest.len() - held] };
        }
        let framing = self.calls.here > 0 && rest.trim().is_empty();
        if !drops && !told && !framing && !rest.is_empty() {
            emit(Event::Text(rest));
        }
        self.input = Input::default();
        self.state = State::Text;
    }

    fn open(&self) -> Option<String> {
        let calls = &self.calls;
        let there = match self.state {
            State::Start | State::Text | State::Skip(_) => false,
            State::Between(_) | State::Within(..) => calls.opened || calls.begun || calls.here > 0,
        };
        there.then(|| format!("{}{}", calls.source, self.input.rest()))
    }
}

impl Told {
    /// Something opened calls: so much white space, and a text of so many bytes.
    fn open(&mut self, input: &mut Input, space: usize, mark: usize, opened: bool) {
        self.space.clear();
        self.space.push_str(&input.rest()[..space]);
        input.skip(space);
        self.source.clear();
        (self.good, self.here, self.opened) = (0, 0, opened);
        self.take(input, mark);
    }

    /// So many bytes belong to a call.
    fn take(&mut self, input: &mut Input, bytes: usize) {
        self.source.push_str(&input.rest()[..bytes]);
        input.skip(bytes);
    }

    fn take_space(&mut self, input: &mut Input) {
        let rest = input.rest();
        self.take(input, rest.len() - rest.trim_start().len());
    }

    /// A call of this tool begins, if there is one.
    fn begin(&mut self, name: &str, id: Option<&str>, emit: &mut dyn FnMut(Event<'_>)) -> bool {
        if self.tools.get(name).is_none() || self.begun {
            return false;
        }
        self.begun = true;
        let id = self.ids.next_id(id);
        emit(Event::ToolCall(ToolCallDelta::Begins { index: self.whole, id: &id, name }));
        true
    }

    /// More of its arguments.
    fn arguments(&self, text: &str, emit: &mut dyn FnMut(Event<'_>)) {
        if !text.is_empty() {
            emit(Event::ToolCall(ToolCallDelta::Arguments { index: self.whole, text }));
        }
    }

    /// It is whole.
    fn end(&mut self, emit: &mut dyn FnMut(Event<'_>)) {
        emit(Event::ToolCall(ToolCallDelta::Ends { index: self.whole }));
        (self.begun, self.good) = (false, self.source.len());
        self.whole += 1;
        self.here += 1;
        self.space.clear();
    }

    fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name)
    }

    /// Emits pending text that belongs to no call, or drops it if a call in it was reported. Returns whether one was reported.
    fn give_back(&mut self, emit: &mut dyn FnMut(Event<'_>)) -> bool {
        if self.begun {
            return self.drop_open(emit);
        }
        let text = std::mem::take(&mut self.space) + &self.source[self.good..];
        if !text.trim().is_empty() || (self.here == 0 && !text.is_empty()) {
            self.here = 0;
            emit(Event::Text(&text));
        }
        self.source.clear();
        self.good = 0;
        false
    }

    /// Drops pending text that belongs to no complete call. Returns whether a call in it was reported.
    fn drop_open(&mut self, emit: &mut dyn FnMut(Event<'_>)) -> bool {
        let begun = std::mem::take(&mut self.begun);
        if begun {
            emit(Event::ToolCall(ToolCallDelta::Fails { index: self.whole }));
        }
        self.space.clear();
        self.source.clear();
        self.good = 0;
        begun
    }
}
