//! The chat loop: reads a line, does what a command says or has the model reply.
//!
//! The loop reads lines through [`LineReader`], so tests need no terminal; `reading.rs` turns lines into messages. Commands are in
//! `command.rs` and `settings.rs`, their help texts in `help.rs`, and `record.rs` stores the conversation on disk.

mod command;
mod edit;
mod help;
mod input;
mod new;
mod reading;
mod record;
mod saved;
mod settings;
mod terminal;

use std::io::Write;
use std::path::PathBuf;

use chats::ChatStore;
use engine::{Conversation, FullContext, Generated, Message, ReplyOptions, Sampler, StopReason};
use executors::GpuFacts;
use program::CacheOptions;

pub(crate) use new::NewChat;
pub(crate) use reading::typed_form;
pub(crate) use record::{Recorder, Stored, last};
pub(crate) use terminal::Terminal;

use crate::completion;
use crate::exit::Failure;
use crate::hints::{Spot, WAYS_OUT};
use crate::interrupt::Interrupt;
use crate::limits::Limits;
use crate::printable::Printable;
use crate::reply::{self, ReplyPrinter};
use crate::sampling::Settings;
use crate::session::failed;
use crate::statistics::{ReplyReport, Statistics};
use crate::ui;
use command::Next;
use input::{Input, LineReader};
use reading::{read_message, unslashed};
use server::logprobs_json;

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
    /// Name of the model, and its name as given on the command line.
    pub(crate) model: (String, String),
    /// Parameters that `/set` changed; they also apply to the next model.
    pub(crate) parameters: Vec<(String, String)>,
    /// Writer that stores the conversation on disk.
    pub(crate) recorder: Option<Recorder>,
    /// Statistics of the last reply.
    pub(crate) report: Option<ReplyReport>,
    /// Text to put into the next prompt, ready for editing.
    pub(crate) draft: Option<String>,
    /// Editing: the next message replaces the last one.
    pub(crate) edits: bool,
    /// The warning that the context is nearly full has been shown.
    pub(crate) nearly_full: bool,
}

/// Reason why a chat ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The user leaves the chat.
    End,
    /// The user switches to this model.
    Model(PathBuf),
}

const PROMPT: &str = ">>> ";

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

/// State of a conversation that stays when its model changes.
pub(crate) struct Kept {
    messages: Vec<Message>,
    settings: Settings,
    system: Option<String>,
    history: bool,
    saved: Option<PathBuf>,
    read: String,
    parameters: Vec<(String, String)>,
    recorder: Option<Recorder>,
}

/// Returns the store of conversations, if there is a folder for it.
pub(crate) fn store() -> Option<ChatStore> {
    let state = crate::runtime().settings().state_folder.as_ref()?;
    Some(ChatStore::new(state.join("chats")))
}

impl Chat {
    /// Takes the state that a chat with another model continues from.
    pub(crate) fn take_kept(&mut self) -> Kept {
        Kept {
            messages: self.conversation.messages().to_vec(),
            settings: self.settings.clone(),
            system: self.system.take(),
            history: self.history,
            saved: self.saved.take(),
            read: std::mem::take(&mut self.read),
            parameters: std::mem::take(&mut self.parameters),
            recorder: self.recorder.take(),
        }
    }

    /// Continues a conversation with another model. Sampling settings are this model's own, except those that `/set`
    /// changed.
    pub(crate) fn keep(&mut self, kept: Kept) {
        let Kept { messages, settings, system, history, saved, read, parameters, recorder } = kept;
        self.conversation.set_messages(messages);
        self.settings = Settings {
            sampler: self.settings.sampler.clone(),
            form: self.settings.form.clone(),
            tools: self.settings.tools.clone(),
            max_tokens: self.settings.max_tokens,
            ..settings
        };
        for (name, value) in &parameters {
            if let Err(problem) = self.set_parameter(&format!("{name} {value}")) {
                ui::warn(&format!("{name} {value}: {}", gguf::escape(problem, 200)));
            }
        }
        (self.system, self.history, self.saved, self.read) = (system, history, saved, read);
        (self.parameters, self.recorder) = (parameters, recorder);
        if let Some(recorder) = &mut self.recorder {
            recorder.set_model(self.model.1.clone());
        }
    }

    /// Runs the loop until the user leaves or asks for another model.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] on the second Ctrl-C at a prompt; a terminal that fails.
    pub(crate) fn run(
        &mut self,
        reader: &mut dyn LineReader,
        out: &mut dyn Write,
    ) -> anyhow::Result<Left> {
        let mut interrupted = false;
        loop {
            // a stored message or a file may contain escape sequences
            let draft = self.draft.take().map(|draft| Printable::default().push(&draft));
            let input = read_message(reader, (PROMPT, draft.as_deref()), self.history)?;
            if input == Input::Interrupted {
                if interrupted {
                    return Err(Failure::Interrupted.into());
                }
                interrupted = true;
                self.edits = false;
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
                Input::End | Input::Interrupted => return Ok(Left::End),
            };
            if message.trim().is_empty() {
                self.edits = false;
                continue;
            }
            let turn = match next {
                None => Turn::Say(std::mem::take(&mut self.read) + &plain(message)),
                Some(Next::Read) => {
                    // any command other than /edit cancels the editing
                    self.edits &= self.draft.is_some();
                    continue;
                }
                Some(Next::Regenerate) => Turn::Again,
                Some(Next::Leave) => return Ok(Left::End),
                Some(Next::Model(name)) => {
                    self.edits = false;
                    return Ok(Left::Model(name));
                }
            };
            if !self.turn(turn, reader, out)? {
                return Ok(Left::End);
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
            if self.interrupt.is_raised() {
                reader.forget_typed()?;
            }
            let calls = self.conversation.open_calls();
            if calls.is_empty() {
                return Ok(true);
            }
            let mut results = Vec::new();
            for call in calls {
                let prompt = format!("{} => ", call.name);
                match read_message(reader, (&prompt, None), self.history)? {
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
        let asks = self.asks(&turn);
        let mut sampler = self.settings.new_chat_sampler(self.conversation.format(), asks)?;
        // messages before the edit, restored if there is no reply
        let replaced = match std::mem::take(&mut self.edits) && matches!(turn, Turn::Say(_)) {
            true => Some(self.conversation.messages().to_vec()),
            false => None,
        };
        if replaced.is_some() {
            self.conversation.undo();
        }
        if let Turn::Say(message) = &turn {
            self.record_message(message);
        }
        if ui::stdout_columns().is_some() {
            writeln!(out)?;
        }
        let terminal = self.interrupt.terminal().clone();
        let quiet = terminal.quiet();
        let reply = self.reply(turn, &mut sampler, Shown::Talk, out)?;
        if self.interrupt.is_raised() {
            self.draft = Some(terminal.take_typed());
        }
        drop(quiet);
        let is_reply = matches!(&reply, Ok(reply) if reply.counts());
        if let Some(replaced) = replaced.filter(|_| !is_reply) {
            self.conversation.set_messages(replaced);
        }
        self.record();
        match reply {
            Ok(reply) => {
                self.tell_end(&reply);
                let format = self.conversation.format();
                // a user who stops a reply knows that it is incomplete
                if reply.stop != StopReason::Cancelled
                    && let Err(cut) = self.settings.check_whole(&reply, asks, format)
                {
                    ui::warn(&cut.to_string());
                }
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

    /// Writes the present conversation to disk.
    fn record(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(self.conversation.messages());
        }
    }

    /// Writes a message to disk before its reply exists.
    fn record_message(&mut self, message: &str) {
        if let Some(recorder) = &mut self.recorder {
            let mut messages = self.conversation.messages().to_vec();
            let open = self.conversation.open_calls();
            messages.extend(open.iter().map(|call| Message::result(call, "")));
            messages.push(Message::new("user", message));
            recorder.write(&messages);
        }
    }

    fn tell_end(&mut self, reply: &Generated) {
        let session = self.conversation.session();
        let statistics = self.settings.statistics;
        self.report = Some(reply::tell_end(reply, session, self.limits.as_ref(), statistics));
    }

    /// Say that the context is full, or soon will be, and the ways out.
    fn tell_room(&mut self, reply: &Generated) {
        let session = self.conversation.session();
        let (len, capacity) = (session.len(), session.capacity());
        if reply.stop == StopReason::ContextFull {
            ui::warn(&format!(
                "the context of {capacity} tokens is full, the reply ends here: {WAYS_OUT}"
            ));
            return;
        }
        let grown = reply.stats.computed_tokens + reply.tokens.len();
        let nearly =
            self.settings.full == FullContext::Stop && is_nearly_full(len, capacity, grown);
        if nearly && !self.nearly_full {
            let left = capacity - len;
            ui::warn(&format!("{left} of {capacity} tokens of context are left: {WAYS_OUT}"));
        }
        self.nearly_full = nearly;
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
        self.record_message(&message);
        let turn = Turn::Say(message);
        let mut sampler = self.settings.new_chat_sampler(self.conversation.format(), true)?;
        let shown = if json { Shown::Whole } else { Shown::Once };
        let reply = self.reply(turn, &mut sampler, shown, out)?;
        self.record();
        let reply = reply.map_err(|error| failed(error, self.trained))?;
        self.tell_end(&reply);
        reply::tell_cut(&reply, self.conversation.session());
        let format = self.conversation.format();
        let whole = self.settings.check_whole(&reply, true, format);
        if json {
            let logprobs = self.settings.logprobs;
            let logprobs = logprobs.map(|_| logprobs_json(&reply.logprobs, format));
            let ran = (self.conversation.session(), &*self.executor, self.limits.as_ref());
            completion::print(&reply.into(), logprobs, ran, out)?;
        }
        if self.interrupt.end() {
            return Err(Failure::Interrupted.into());
        }
        Ok(whole?)
    }

    /// Returns whether a turn answers a user message. Required calls must be in that answer, not in the answer to their results.
    fn asks(&self, turn: &Turn) -> bool {
        let last = self.conversation.messages().iter().rev().find(|said| said.role != "assistant");
        match turn {
            Turn::Results(_) => false,
            Turn::Again => last.is_none_or(|said| said.role != "tool"),
            Turn::Say(_) => true,
        }
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
        let wrap = self.settings.wrap && shown != Shown::Whole;
        // JSON and other constrained forms are not Markdown
        let markdown =
            self.settings.markdown && shown != Shown::Whole && self.settings.form.is_none();
        let before = self.conversation.changes().to_vec();
        let mut printer =
            ReplyPrinter::new(out, self.interrupt.flag(), self.settings.show_thoughts)
                .whole(shown == Shown::Whole)
                .calls_as_json(shown != Shown::Talk)
                .quiet(self.settings.statistics == Statistics::Off)
                .laid_out(wrap, markdown);
        self.interrupt.begin();
        let mut on_event = |event: engine::Event<'_>| printer.event(event);
        let texts = match &turn {
            Turn::Say(message) => std::slice::from_ref(message),
            Turn::Results(results) => results,
            Turn::Again => &[],
        };
        for text in texts {
            if let Some(lost) = self.conversation.format().lost_bytes(text)? {
                ui::warn(&lost.to_string());
            }
        }
        let reply = match turn {
            Turn::Say(message) => self.conversation.say(message, sampler, &options, &mut on_event),
            Turn::Results(results) => {
                self.conversation.give_results(results, sampler, &options, &mut on_event)
            }
            Turn::Again => self.conversation.regenerate(sampler, &options, &mut on_event),
        };
        self.interrupt.end();
        printer.finish()?;
        // a change is reported once, as long as it stays the same
        for change in self.conversation.changes().iter().filter(|change| !before.contains(change)) {
            ui::warn(change);
        }
        Ok(reply)
    }
}

/// Returns whether to warn that a context is nearly full: nine tenths are used, or three quarters are used and a turn as
/// long as the last one does not fit.
fn is_nearly_full(len: usize, capacity: usize, turn: usize) -> bool {
    10 * len >= 9 * capacity || 4 * len >= 3 * capacity && capacity - len < turn
}

#[cfg(test)]
mod tests;
