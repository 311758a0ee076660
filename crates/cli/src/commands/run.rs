//! `run`: a conversation, or one answer. The loop is in `chat/`, printing in `reply.rs`.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chats::ChatStore;
use engine::{ChatFormat as _, ModelFormat, Reasoning};
use gguf::Gguf;
use models::LoadedModel;

use crate::args::{self, PromptArgs};
use crate::calling::ToolArgs;
use crate::chat::{self, Chat, Left, NewChat, Recorder, Stored, Terminal};
use crate::chat_templates::TemplateArgs;
use crate::exit::{Failure, code, code_of};
use crate::hints::Spot;
use crate::input::{TextSource, filled};
use crate::interrupt::Interrupt;
use crate::sampling::Settings;
use crate::session::SessionArgs;
use crate::{load, names, naming, reasoning, ui, units};

/// Name of the bundled demo model in stored conversations.
const DEMO: &str = "demo";

/// Talk to a model, or have it answer one prompt
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight run\n  rooflight run model.gguf\n  rooflight run model.gguf 'Why is the sky blue?'\n  \
                        git diff | rooflight run model.gguf 'Explain this change.'\n  rooflight run model.gguf -f question.txt --json | jq .text\n  \
                        rooflight run model.gguf 'Will it rain in Oslo?' --tools tools.json\n\n\
                        Without a prompt this is a conversation; /help in it lists its commands. Conversations are stored in \
                        ~/.local/state/rooflight/chats, and --continue resumes the last one; --no-chats stores nothing. What is typed \
                        is kept in ~/.local/state/rooflight/history for the arrow keys; /set history off keeps none. Without a model \
                        the bundled demo model answers: rooflight run -p 'Tell me a story.'"
)]
pub(super) struct Run {
    #[command(flatten)]
    prompt: PromptArgs,
    /// The system message (-sys)
    #[arg(long, value_name = "TEXT", alias = "system", allow_hyphen_values = true)]
    system_prompt: Option<String>,
    /// Read the system message from a file (-sysf); - for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "system_prompt")]
    system_prompt_file: Option<PathBuf>,
    #[command(flatten)]
    template: TemplateArgs,
    /// Reasoning: on, off, auto, low, medium, high, or a budget in tokens
    ///
    /// Levels that the chat template does not know are replaced by the nearest one; minimal, xhigh and max are levels, too
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = reasoning::values(), hide_possible_values = true)]
    reasoning: Reasoning,
    /// Do not print the model's thoughts
    #[arg(long)]
    hidethinking: bool,
    /// Resume the last conversation, with its model unless another is given
    #[arg(short = 'C', long = "continue")]
    resume: bool,
    /// Store no conversation and read none
    #[arg(long, conflicts_with = "resume")]
    no_chats: bool,
    /// Print Markdown as the model writes it; it is rendered only on a terminal
    #[arg(long, alias = "plain")]
    no_markdown: bool,
    #[command(flatten)]
    tools: ToolArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// A model whose file is open but whose weights are not loaded.
struct Prepared {
    /// Path or name that was given; `None` for the bundled demo model.
    given: Option<PathBuf>,
    gguf: Gguf,
    /// Configuration and programs of the model, read from the file.
    known: LoadedModel,
    format: ModelFormat,
    template: Option<String>,
    settings: Settings,
    /// Description of the file's contents, shown in a conversation on request.
    info: String,
}

impl Run {
    pub(crate) fn run(mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(file) = self.system_prompt_file.take() {
            let text = TextSource::of_path(file).read().context("reading the system message")?;
            self.system_prompt = Some(text.trim_end_matches(['\n', '\r']).to_owned());
        }
        let interrupt = Interrupt::install();
        let stored = if self.resume { Some(self.last_chat()?) } else { None };
        let named = stored.as_ref().and_then(|stored| stored.model.clone()).map(OsString::from);
        let prompt = self.prompt.clone().resolve(named.or_else(args::variable))?;
        let given = prompt.model.filter(|name| name != Path::new(DEMO) || name.exists());
        let gguf = self.open(given.as_deref(), &interrupt)?;
        let message = message(prompt.prompt)?;
        if self.session.json && message.is_none() {
            let problem = "--json prints one reply: give a prompt";
            return Err(Failure::Usage(problem.into()).into());
        }
        let talks = message.is_none();
        let prepared = self.prepare(given, gguf, talks)?;
        if prepared.given.is_none() {
            self.tell_demo(&prepared.settings);
        }
        let mut chat = self.load(prepared, &interrupt, talks)?;
        chat.conversation.set_system(self.system_prompt.clone());
        chat.system.clone_from(&self.system_prompt);
        match stored {
            Some(stored) => self.resume(&mut chat, stored),
            // a single answer is stored only if it continues a conversation
            None => chat.recorder = self.store().filter(|_| talks).map(Recorder::new),
        }
        if let Some(recorder) = &mut chat.recorder {
            recorder.set_model(chat.model.1.clone());
        }
        let Some(message) = message else { return self.talk(chat, out) };
        chat.answer(message, self.session.json, out)
    }

    /// Runs a conversation, during which the user can switch models.
    fn talk(&self, mut chat: Chat, out: &mut dyn Write) -> anyhow::Result<()> {
        self.session.note("/help lists the commands, Ctrl-D leaves");
        let mut terminal = Terminal::open()?;
        loop {
            match chat.run(&mut terminal, out)? {
                Left::End => return Ok(()),
                Left::Model(name) => chat = self.switch(chat, name)?,
            }
        }
    }

    /// Continues the conversation with another model. If that cannot be loaded, prints the error and goes back to the current one.
    fn switch(&self, mut chat: Chat, name: PathBuf) -> anyhow::Result<Chat> {
        let interrupt = chat.interrupt.clone();
        let tell = |error: &anyhow::Error| {
            if code_of(error) == code::INTERRUPTED {
                return ui::note(format_args!("{error:#}"));
            }
            ui::error(&gguf::escape(format!("{error:#}"), 400));
            if let Some(hint) = crate::hints::of(error, &Spot::Chat) {
                ui::hint(&hint);
            }
        };
        let name = Some(name).filter(|name| name != Path::new(DEMO) || name.exists());
        let opened = self.open(name.as_deref(), &interrupt);
        let opened = opened.and_then(|gguf| self.prepare(name, gguf, true));
        let prepared = match opened {
            Ok(prepared) => prepared,
            Err(error) => {
                tell(&error);
                return Ok(chat);
            }
        };
        let before = Some(chat.model.1.clone()).filter(|name| name != DEMO).map(PathBuf::from);
        let kept = chat.take_kept();
        // memory may not be enough for two models at once
        drop(chat);
        let mut chat = match self.load(prepared, &interrupt, true) {
            Ok(chat) => chat,
            Err(error) => {
                tell(&error);
                let gguf = self.open(before.as_deref(), &interrupt)?;
                self.load(self.prepare(before, gguf, true)?, &interrupt, true)?
            }
        };
        chat.keep(kept);
        Ok(chat)
    }

    /// Opens a model, downloads it if needed, and applies options that override its metadata. `None` opens the bundled demo.
    fn open(&self, given: Option<&Path>, interrupt: &Interrupt) -> anyhow::Result<Gguf> {
        let path = given.map(|given| names::here_or_pulled(given, interrupt)).transpose()?;
        let mut gguf = load::open_or_bundled(path.as_deref())?;
        self.session.prepare(&mut gguf)?;
        self.template.apply(&mut gguf)?;
        Ok(gguf)
    }

    /// Performs every check of a model that is possible before its weights are loaded.
    fn prepare(&self, given: Option<PathBuf>, gguf: Gguf, talks: bool) -> anyhow::Result<Prepared> {
        let format = load::chat_format(&gguf)?;
        if let Some(system) = &self.system_prompt {
            load::warn_lost(format.tokenizer(), system)?;
        }
        let template =
            gguf.metadata().str("tokenizer.chat_template").ok().flatten().map(str::to_owned);
        let mut settings = self.session.settings(gguf.metadata(), format.tokenizer())?;
        settings.tools = self.tools.tools(&format)?;
        settings.reasoning = self.reasoning;
        if let Some(note) = format.switch_note(settings.reasoning) {
            ui::warn(note);
        }
        settings.show_thoughts = !self.hidethinking;
        settings.markdown = !self.no_markdown;
        if given.is_none() && !self.session.has_length() {
            settings.max_tokens = Some(demo_model::REPLY_TOKENS);
        }
        let known = load::open_writer(&gguf)?;
        let info = match talks {
            true => super::show::text(&gguf, &known),
            false => String::new(),
        };
        Ok(Prepared { given, gguf, known, format, template, settings, info })
    }

    fn tell_demo(&self, settings: &Settings) {
        let most =
            settings.max_tokens.map_or_else(|| "any number of".to_owned(), |n| n.to_string());
        // scripts get the note too, unless it is turned off
        if self.session.quiet() {
            return;
        }
        ui::note(format_args!(
            "no model given: this is the bundled demo model, very small, English and Chinese; rooflight run MODEL.gguf \
             talks to a real one. It replies at temperature {}, in at most {most} tokens: --temp and -n change that",
            settings.sampler.temperature
        ));
    }

    /// Loads a model and returns a chat without messages.
    fn load(&self, prepared: Prepared, interrupt: &Interrupt, talks: bool) -> anyhow::Result<Chat> {
        let Prepared { given, gguf, known, format, template, settings, info } = prepared;
        let name = given.as_deref().map_or_else(|| DEMO.to_owned(), lasting_name);
        let model = (naming::title(&gguf), name);
        // what is typed meanwhile waits for the prompt
        let quiet = talks.then(|| interrupt.terminal().quiet());
        let opened = self.session.open(gguf, known, format.tokenizer(), interrupt)?;
        drop(quiet);
        let interrupt = interrupt.clone();
        Ok(Chat::new(NewChat { opened, format, settings, interrupt, model, info, template }))
    }

    /// Returns the store of conversations; `None` if storing is turned off or no folder is available.
    fn store(&self) -> Option<ChatStore> {
        chat::store().filter(|_| !self.no_chats)
    }

    fn last_chat(&self) -> anyhow::Result<Stored> {
        let none = || Failure::Usage("--continue: there is no stored conversation yet".into());
        let store = self.store().ok_or_else(none)?;
        Ok(chat::last(store)?.ok_or_else(none)?)
    }

    fn resume(&self, chat: &mut Chat, stored: Stored) {
        let said: Vec<_> = stored.messages.iter().filter(|m| m.role != "system").collect();
        let (n, last) = (said.len(), said.last().map_or("", |message| message.content.trim()));
        let messages = units::counted(n, "message");
        self.session.note(format_args!(
            "continuing the conversation of {}: {messages}, the last: {}",
            gguf::escape(&stored.time, 40),
            gguf::escape(last, 60)
        ));
        chat.conversation.set_messages(stored.messages.clone());
        if self.system_prompt.is_some() {
            chat.conversation.set_system(self.system_prompt.clone());
        } else {
            let first = stored.messages.first().filter(|message| message.role == "system");
            chat.system = first.map(|message| message.content.clone());
        }
        if stored.messages.last().is_some_and(|message| message.role == "user") {
            // a last message without an answer becomes the draft, so that the user can send it again
            chat.draft = chat.conversation.undo().map(|text| chat::typed_form(&text));
        }
        chat.recorder = Some(stored.into_recorder());
    }
}

/// Returns a model name that is valid from any folder.
fn lasting_name(given: &Path) -> String {
    let lasting = given.canonicalize().unwrap_or_else(|_| given.to_owned());
    lasting.to_string_lossy().into_owned()
}

/// What to answer: the prompt, with what is piped in after it; `None` for a conversation.
fn message(prompt: Option<TextSource>) -> anyhow::Result<Option<String>> {
    let talks = std::io::stdin().is_terminal();
    if talks && prompt.is_none() {
        if !std::io::stdout().is_terminal() {
            return Err(
                Failure::Usage("no prompt, and stdout is no terminal to talk at".into()).into()
            );
        }
        return Ok(None);
    }
    // what is asked for by `-` is not read twice
    let piped = match &prompt {
        Some(TextSource::Stdin) => String::new(),
        _ if talks => String::new(),
        _ => TextSource::Stdin.read()?,
    };
    let prompt = prompt.map(TextSource::read).transpose()?;
    let message =
        join(prompt, &piped).ok_or_else(|| Failure::Usage("no prompt: stdin is empty".into()))?;
    Ok(Some(filled(message)?))
}

fn join(prompt: Option<String>, piped: &str) -> Option<String> {
    let piped = piped.trim_end_matches(['\n', '\r']);
    match (prompt, piped.is_empty()) {
        (prompt, true) => prompt,
        (None, false) => Some(piped.to_owned()),
        (Some(prompt), false) => Some(format!("{prompt}\n{piped}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piped_text_follows_the_prompt() {
        assert_eq!(join(Some("Sum up:".into()), "a\nb\n").as_deref(), Some("Sum up:\na\nb"));
        assert_eq!(join(None, "a\n").as_deref(), Some("a"));
        assert_eq!(join(Some("hi".into()), "").as_deref(), Some("hi"));
        assert_eq!(join(None, "\n"), None);
    }
}
