//! Commands of the chat: lines that start with `/`. Their names and help texts are in `help.rs`, `/set` is in
//! `settings.rs`.

use std::io::Write;
use std::path::PathBuf;

use super::reading::is_command;
use super::{Chat, edit, help, saved};
use crate::input::TextSource;
use crate::printable::Printable;
use crate::{executor, ui, units};

/// How the loop goes on after a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read the next line.
    Read,
    /// Reply to the last message again.
    Regenerate,
    /// End the chat.
    Leave,
    /// Continue the conversation with this model.
    Model(PathBuf),
}

/// What a command did, in a line, or what is wrong with it.
pub(super) type Done = Result<Option<String>, String>;

impl Chat {
    /// Do what `line` says if it is a command; `None` if it is a message to the model.
    pub(super) fn obey(&mut self, line: &str, out: &mut dyn Write) -> anyhow::Result<Option<Next>> {
        let line = line.trim();
        if !is_command(line) {
            return Ok(None);
        }
        let (word, rest) = split(line);
        let done = match word {
            _ if !rest.is_empty() && help::is_alone(word) => {
                Err(format!("{word} takes no argument, found {rest}; /{line} is a message"))
            }
            "exit" | "quit" | "/bye" | "/exit" | "/quit" => return Ok(Some(Next::Leave)),
            "/regen" => return Ok(Some(Next::Regenerate)),
            "/help" | "/?" => match help::text(rest) {
                Some(text) => {
                    out.write_all(text.as_bytes())?;
                    Ok(None)
                }
                None => Err("expected /help or /help set".into()),
            },
            "/model" if !rest.is_empty() => {
                return Ok(Some(Next::Model(PathBuf::from(rest.trim_matches('"')))));
            }
            "/model" => {
                let (name, given) = &self.model;
                writeln!(out, "{name} ({})", gguf::escape(given, 200))?;
                Ok(None)
            }
            "/undo" => self.undo(),
            "/edit" => self.edit(),
            "/stats" => {
                let report = self.report.as_ref();
                let text = report.map_or("no reply yet\n".into(), |report| report.details());
                out.write_all(text.as_bytes())?;
                Ok(None)
            }
            "/clear" => self.clear(),
            "/save" | "/save!" => self.save(rest, word.ends_with('!')),
            "/load" => self.load(rest),
            "/read" => self.read(rest),
            "/system" if rest.is_empty() => {
                self.show_system(out)?;
                Ok(None)
            }
            "/system" => Ok(Some(self.set_system(rest))),
            "/set" => self.set(rest),
            "/show" => self.show(rest, out)?,
            // a path, not a slip
            _ if word[1..].contains('/') => return Ok(None),
            _ => Err(format!(
                "there is no command {word}: /help lists them, //{} is a message",
                &line[1..]
            )),
        };
        match done {
            Ok(told) => told.iter().for_each(|told| ui::note(gguf::escape(told, 400))),
            Err(problem) => ui::error(&gguf::escape(problem, 400)),
        }
        Ok(Some(Next::Read))
    }

    fn clear(&mut self) -> Done {
        self.conversation.clear().map_err(|error| error.to_string())?;
        self.read.clear();
        (self.edits, self.nearly_full) = (false, false);
        Ok(Some(match self.begin_file() {
            Some(file) => format!("new conversation; the last one stays in {file}"),
            None => "new conversation".into(),
        }))
    }

    /// Starts a new file with the next message. Returns the previous file, if there is one.
    fn begin_file(&mut self) -> Option<String> {
        let recorder = self.recorder.as_mut()?;
        let file = recorder.path().map(crate::output::shown);
        recorder.restart();
        file
    }

    fn undo(&mut self) -> Done {
        let Some(message) = self.conversation.undo() else {
            return Err("there is no message to take back".into());
        };
        self.edits = false;
        self.record();
        Ok(Some(format!("taken back: {}", gguf::escape(message, 60))))
    }

    /// Puts the last user message into the next prompt for editing. The next message that is sent replaces it. A message of
    /// several lines is opened in the user's editor first; on a dumb terminal, every message is.
    fn edit(&mut self) -> Done {
        let said = self.conversation.messages().iter().rfind(|message| message.role == "user");
        let text = said.ok_or("there is no message to edit")?.content.clone();
        // a dumb terminal cannot edit a line
        let editor = edit::editor().filter(|_| text.contains('\n') || ui::terminal_is_dumb());
        let text = match editor {
            Some(editor) => {
                // Ctrl-C belongs to the editor while it runs
                let _aside = self.interrupt.set_aside();
                edit::edited(&editor, &text).map_err(|error| format!("{error:#}"))?
            }
            None => text,
        };
        self.edits = true;
        self.draft = Some(super::typed_form(&text));
        Ok(None)
    }

    fn save(&mut self, file: &str, replace: bool) -> Done {
        let path = file_of(file, "/save FILE")?;
        let messages = self.conversation.messages();
        // what this conversation has written it may write again
        let own = self.saved.as_ref() == Some(&path);
        saved::save(&path, messages, replace || own).map_err(|error| {
            let exists =
                matches!(error.downcast_ref(), Some(crate::output::OutputError::Exists { .. }));
            let advice = if exists { ": /save! replaces it" } else { "" };
            format!("{error:#}{advice}")
        })?;
        let told = format!(
            "{} in {}",
            units::counted(messages.len(), "message"),
            crate::output::shown(&path)
        );
        self.saved = Some(path);
        Ok(Some(told))
    }

    fn load(&mut self, file: &str) -> Done {
        let path = file_of(file, "/load FILE")?;
        let messages = saved::load(&path).map_err(|error| format!("{error:#}"))?;
        let told = format!(
            "{} from {}",
            units::counted(messages.len(), "message"),
            crate::output::shown(&path)
        );
        let system = messages.first().filter(|m| m.role == "system");
        self.system = system.map(|m| m.content.clone());
        self.conversation.set_messages(messages);
        self.begin_file();
        (self.edits, self.nearly_full) = (false, false);
        Ok(Some(told))
    }

    /// Texts pile up, in the order in which they are read.
    fn read(&mut self, file: &str) -> Done {
        let path = file_of(file, "/read FILE")?;
        let text = TextSource::File(path.clone()).read().map_err(|error| format!("{error:#}"))?;
        let text = text.trim_end();
        if text.is_empty() {
            return Err(format!("{} is empty", crate::output::shown(&path)));
        }
        self.read.push_str(text);
        self.read.push_str("\n\n");
        let (file, size) = (crate::output::shown(&path), units::bytes(text.len() as u64));
        Ok(Some(format!("{file}, {size}, goes before your next message; /clear drops it")))
    }

    fn show_system(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let system = self.system.as_deref().unwrap_or("no system message");
        writeln!(out, "{}", Printable::default().push(system))
    }

    fn show(&self, rest: &str, out: &mut dyn Write) -> std::io::Result<Done> {
        match rest {
            "info" | "" => {
                let session = self.conversation.session();
                let (len, capacity) = (session.len(), session.capacity());
                let kept = executor::kept(&self.cache, self.gpu.as_ref());
                let (k, v) = (kept.k.name(), kept.v.name());
                let bytes = session.model().program().cache_bytes(capacity, &kept);
                let bytes = units::bytes(bytes);
                write!(out, "{}", self.info)?;
                writeln!(out, "conversation    {len} of {capacity} tokens, cache {bytes} {k}/{v}")?;
            }
            "template" => {
                let text = self.template.as_deref().unwrap_or("the file has none: ChatML is used");
                writeln!(out, "{}", Printable::default().push(text))?;
            }
            "parameters" => out.write_all(self.parameters().as_bytes())?,
            "system" => self.show_system(out)?,
            _ => {
                return Ok(Err(
                    "expected /show info, /show template, /show parameters or /show system".into(),
                ));
            }
        }
        Ok(Ok(None))
    }
}

fn file_of(text: &str, usage: &str) -> Result<PathBuf, String> {
    let text = text.trim_matches('"');
    if text.is_empty() { Err(format!("expected {usage}")) } else { Ok(PathBuf::from(text)) }
}

/// The first word, and what follows it.
pub(super) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace)
        .map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}
