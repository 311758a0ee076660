//! The chat loop: reads a line, does what a command says or has the model reply.
//!
//! The terminal is behind [`LineReader`], so that the loop is tested without one. Commands are in `command.rs`.

mod command;
mod mode;
mod saved;
mod terminal;

use std::io::Write;
use std::path::PathBuf;

use engine::{Conversation, FullContext, Generated, ReplyOptions, Sampler, StopReason};
use executors::GpuFacts;
use program::CacheOptions;

pub(crate) use mode::TerminalMode;
pub(crate) use terminal::Terminal;

use crate::completion;
use crate::exit::Failure;
use crate::hints::Spot;
use crate::interrupt::Interrupt;
use crate::limits::Limits;
use crate::reply::{self, ReplyPrinter};
use crate::sampling::Settings;
use crate::session::failed;
use crate::ui;
use command::Next;
use server::logprobs_json;

/// What came from the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A line without its break.
    Line(String),
    /// Lines between `"""` and `"""`: never a command.
    Block(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// Where lines come from.
pub(crate) trait LineReader {
    /// The next line, after showing `prompt`.
    ///
    /// # Errors
    /// If the terminal fails.
    fn read(&mut self, prompt: &str) -> anyhow::Result<Input>;

    /// Keep an entry for the arrow keys.
    fn remember(&mut self, entry: &str);
}

/// A conversation at a terminal.
pub(crate) struct Chat {
    /// What was said, and the cache.
    pub(crate) conversation: Conversation,
    /// How replies are made; `/set` changes it.
    pub(crate) settings: Settings,
    /// Ctrl-C.
    pub(crate) interrupt: Interrupt,
    /// The system message.
    pub(crate) system: Option<String>,
    /// What is in the model's file, for `/show info`.
    pub(crate) info: String,
    /// The chat template, for `/show template`.
    pub(crate) template: Option<String>,
    /// What this machine allows, for the footer.
    pub(crate) limits: Option<Limits>,
    /// Tokens the model was made for.
    pub(crate) trained: usize,
    /// Contexts up to so many tokens are rotated otherwise than longer ones: none becomes the other.
    pub(crate) short_context: Option<usize>,
    /// The cache that the conversation has.
    pub(crate) cache: CacheOptions,
    /// What runs the model, in a line.
    pub(crate) executor: String,
    /// The GPU among that, if one does.
    pub(crate) gpu: Option<GpuFacts>,
    /// Whether what is typed is kept for the arrow keys.
    pub(crate) history: bool,
    /// The file that this conversation was saved in last.
    pub(crate) saved: Option<PathBuf>,
    /// Text of files that goes before the next message.
    pub(crate) read: String,
}

const PROMPT: &str = ">>> ";
const PROMPT_MORE: &str = "... ";
const FENCE: &str = "\"\"\"";

/// What is generated: the answer to a message, or the last answer anew.
enum Turn {
    Say(String),
    /// What tools answered to the calls of the last reply.
    Results(Vec<String>),
    Again,
}

/// How a reply is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// In a conversation.
    Talk,
    /// As it comes, for whoever reads stdout.
    Once,
    /// As one object, when it is there.
    Whole,
}

impl Chat {
    /// Talk until the user leaves.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] on the second Ctrl-C at a prompt; a terminal that fails.
    pub(crate) fn run(
        &mut self,
        reader: &mut dyn LineReader,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let mut interrupted = false;
        loop {
            let input = read_message(reader, PROMPT, self.history)?;
            if input == Input::Interrupted {
                if interrupted {
                    return Err(Failure::Interrupted.into());
                }
                interrupted = true;
                ui::note("Ctrl-C again or /bye leaves");
                continue;
            }
            interrupted = false;
            let (message, next, plain): (_, _, fn(String) -> String) = match input {
                Input::Line(line) => {
                    let next = self.obey(&line, out)?;
                    (line, next, unslashed)
                }
                Input::Block(text) => (text, None, std::convert::identity),
                Input::End | Input::Interrupted => return Ok(()),
            };
            if message.trim().is_empty() {
                continue;
            }
            let turn = match next {
                None => Turn::Say(std::mem::take(&mut self.read) + &plain(message)),
                Some(Next::Read) => continue,
                Some(Next::Regenerate) => Turn::Again,
                Some(Next::Leave) => return Ok(()),
            };
            if !self.turn(turn, reader, out)? {
                return Ok(());
            }
        }
    }

    /// A reply, and those to the results of the tools it calls. Whether the chat goes on: what is wrong with a reply does
    /// not end it; a terminal that fails does.
    fn turn(
        &mut self,
        turn: Turn,
        reader: &mut dyn LineReader,
        out: &mut dyn Write,
    ) -> anyhow::Result<bool> {
        let mut turn = turn;
        loop {
            self.one_reply(turn, out)?;
            let calls = self.conversation.open_calls();
            if calls.is_empty() {
                return Ok(true);
            }
            let mut results = Vec::new();
            for call in calls {
                match read_message(reader, &format!("{} => ", call.name), self.history)? {
                    Input::Line(text) | Input::Block(text) => results.push(text),
                    Input::Interrupted => {
                        ui::note("no result is given");
                        return Ok(true);
                    }
                    Input::End => return Ok(false),
                }
            }
            turn = Turn::Results(results);
        }
    }

    fn one_reply(&mut self, turn: Turn, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut sampler = self.sampler(&turn)?;
        let quiet = self.interrupt.terminal().clone();
        let quiet = quiet.quiet();
        let reply = self.reply(turn, &mut sampler, Shown::Talk, out)?;
        drop(quiet);
        match reply {
            Ok(reply) => {
                self.tell_end(&reply);
                self.tell_room(&reply);
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                ui::error(&gguf::escape(format!("{error:#}"), 400));
                if let Some(hint) = crate::hints::of(&error, &Spot::Chat) {
                    ui::hint(&hint);
                }
            }
        }
        Ok(())
    }

    fn tell_end(&self, reply: &Generated) {
        let session = self.conversation.session();
        reply::tell_end(reply, session, self.limits.as_ref(), self.settings.verbose);
    }

    /// Say that the context is full, or soon will be, and the ways out.
    fn tell_room(&self, reply: &Generated) {
        let session = self.conversation.session();
        let (len, capacity) = (session.len(), session.capacity());
        if reply.stop == StopReason::ContextFull {
            ui::warn(&format!(
                "the context of {capacity} tokens is full, the reply ends here: {WAYS_OUT}"
            ));
            return;
        }
        let left = capacity - len;
        // another turn as long as this one would not fit
        let grown = reply.stats.computed_tokens + reply.tokens.len();
        let nearly = len as f64 >= NEARLY_FULL * capacity as f64 || left < grown;
        if self.settings.full == FullContext::Stop && nearly {
            ui::warn(&format!("{left} of {capacity} tokens of context are left: {WAYS_OUT}"));
        }
    }

    /// Answer one message, for a run without a chat; with `json` as one object.
    ///
    /// # Errors
    /// Whatever stopped the reply; [`Failure::Interrupted`] after Ctrl-C.
    pub(crate) fn answer(
        mut self,
        message: String,
        json: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let turn = Turn::Say(message);
        let mut sampler = self.sampler(&turn)?;
        let shown = if json { Shown::Whole } else { Shown::Once };
        let reply = self.reply(turn, &mut sampler, shown, out)?;
        let reply = reply.map_err(|error| failed(error, self.trained))?;
        self.tell_end(&reply);
        reply::tell_cut(&reply, self.conversation.session());
        self.settings.tell_unfinished(&reply);
        if json {
            let format = self.conversation.format();
            let logprobs = self.settings.logprobs;
            let logprobs = logprobs.map(|_| logprobs_json(&reply.logprobs, format));
            let ran = (self.conversation.session(), &*self.executor);
            completion::print(&reply.into(), logprobs, ran, out)?;
        }
        if self.interrupt.end() { Err(Failure::Interrupted.into()) } else { Ok(()) }
    }

    /// Where calls must be, they must be in the answer to a message, not to their results.
    fn sampler(&self, turn: &Turn) -> engine::Result<Sampler> {
        let last = self.conversation.messages().iter().rev().find(|said| said.role != "assistant");
        let asks = match turn {
            Turn::Results(_) => false,
            Turn::Again => last.is_none_or(|said| said.role != "tool"),
            Turn::Say(_) => true,
        };
        self.settings.new_sampler(self.conversation.format(), asks)
    }

    /// Generate, and print. The outer error is of the terminal, the inner one of the reply.
    fn reply(
        &mut self,
        turn: Turn,
        sampler: &mut Sampler,
        shown: Shown,
        out: &mut dyn Write,
    ) -> anyhow::Result<engine::Result<Generated>> {
        let options = ReplyOptions {
            max_tokens: self.settings.max_tokens,
            stop: &self.settings.stop,
            ignore_eog: self.settings.ignore_eog,
            reasoning: self.settings.reasoning,
            full: self.settings.full,
            cancel: self.interrupt.flag(),
        };
        let mut printer =
            ReplyPrinter::new(out, self.interrupt.flag(), self.settings.show_thoughts)
                .whole(shown == Shown::Whole)
                .calls_as_json(shown != Shown::Talk)
                .wrapped(self.settings.wrap && shown != Shown::Whole);
        self.interrupt.begin();
        let mut on_event = |event: engine::Event<'_>| printer.event(event);
        let reply = match turn {
            Turn::Say(message) => self.conversation.say(message, sampler, &options, &mut on_event),
            Turn::Results(results) => {
                self.conversation.give_results(results, sampler, &options, &mut on_event)
            }
            Turn::Again => self.conversation.regenerate(sampler, &options, &mut on_event),
        };
        self.interrupt.end();
        printer.finish()?;
        Ok(reply)
    }
}

/// How full a context is warned about.
const NEARLY_FULL: f64 = 0.9;

/// What to do about a full context.
pub(crate) const WAYS_OUT: &str = "/set context-full drop-oldest forgets the oldest turns, /set parameter num_ctx N gives more, \
     /save FILE keeps the conversation, /clear starts over";

/// A message that begins with two slashes begins with one.
fn unslashed(line: String) -> String {
    match line.trim_start().strip_prefix("//") {
        Some(rest) => format!("/{rest}"),
        None => line,
    }
}

/// A line, lines of which each but the last ends with a backslash, or the lines between `"""` and `"""`. What was begun is
/// a message when the input ends, and none after Ctrl-C.
fn read_message(reader: &mut dyn LineReader, prompt: &str, keep: bool) -> anyhow::Result<Input> {
    let first = match reader.read(prompt)? {
        Input::Line(line) => line,
        other => return Ok(other),
    };
    let Some(start) = first.trim_start().strip_prefix(FENCE) else {
        return read_continued(reader, first, keep);
    };
    let mut text = start.to_owned();
    while !text.trim_end().ends_with(FENCE) {
        match reader.read(PROMPT_MORE)? {
            Input::Line(line) | Input::Block(line) => {
                text.push('\n');
                text.push_str(&line);
            }
            // Leaves the block, not the chat.
            Input::Interrupted => return Ok(Input::Line(String::new())),
            Input::End => break,
        }
    }
    let text = text.trim_end().trim_end_matches(FENCE).trim_matches('\n').to_owned();
    if keep {
        reader.remember(&format!("{FENCE}{text}{FENCE}"));
    }
    Ok(Input::Block(text))
}

fn read_continued(reader: &mut dyn LineReader, first: String, keep: bool) -> anyhow::Result<Input> {
    let mut text = first;
    while let Some(line) = text.strip_suffix('\\') {
        let before = line.to_owned();
        match reader.read(PROMPT_MORE)? {
            Input::Line(more) | Input::Block(more) => text = format!("{before}\n{more}"),
            Input::Interrupted => return Ok(Input::Line(String::new())),
            Input::End => {
                text = before;
                break;
            }
        }
    }
    if keep {
        reader.remember(&text);
    }
    Ok(Input::Line(text))
}

#[cfg(test)]
mod tests;
