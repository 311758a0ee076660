//! What a line that starts with `/` does.

use std::io::Write;

use engine::Reasoning;

use super::Chat;
use crate::printable::Printable;
use crate::sampling;
use crate::ui;

const HELP: &str = "\
/help, /?                     this list
/bye, /exit                   leave (Ctrl-D too)
/clear                        forget the conversation
/regen                        another reply to the last message
/system [TEXT]                show or set the system message; /system - removes it
/set parameter NAME VALUE     temperature, top_k, top_p, min_p, repeat_penalty, seed, predict, ...
/set system TEXT              set the system message
/set think on|off|auto        whether a model that can think does
/set verbose on|off           times after each reply
/show info|template|parameters|system
\"\"\"                           starts and ends a message of several lines
Ctrl-C                        stops a reply
";

/// How the loop goes on after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read the next line.
    Read,
    /// Reply to the last message again.
    Regenerate,
    /// End the chat.
    Leave,
}

impl Chat {
    /// Do what `line` says if it is a command; `None` if it is a message to the model.
    pub(super) fn obey(&mut self, line: &str, out: &mut dyn Write) -> anyhow::Result<Option<Next>> {
        let line = line.trim();
        if !line.starts_with('/') || line.contains('\n') {
            return Ok(None);
        }
        let (word, rest) = split(line);
        let problem = match word {
            "/bye" | "/exit" => return Ok(Some(Next::Leave)),
            "/regen" => return Ok(Some(Next::Regenerate)),
            "/help" | "/?" => {
                out.write_all(HELP.as_bytes())?;
                Ok(())
            }
            "/clear" => self.conversation.clear().map_err(|error| error.to_string()),
            "/system" if rest.is_empty() => {
                self.show_system(out)?;
                Ok(())
            }
            "/system" => {
                self.set_system(rest);
                Ok(())
            }
            "/set" => self.set(rest),
            "/show" => self.show(rest, out)?,
            _ => Err(format!("there is no command {word}: /help lists them")),
        };
        if let Err(problem) = problem {
            ui::error(&gguf::escape(problem, 400));
        }
        Ok(Some(Next::Read))
    }

    fn set(&mut self, rest: &str) -> Result<(), String> {
        let (what, value) = split(rest);
        match (what, value) {
            ("parameter", value) => {
                let (name, value) = split(value);
                if name == "predict" {
                    let n: i64 = value.parse().map_err(|_| format!("expected a number, found `{value}`"))?;
                    self.settings.max_tokens = usize::try_from(n).ok();
                    return Ok(());
                }
                sampling::set(&mut self.settings.sampler, name, value)
            }
            ("system", text) if !text.is_empty() => {
                self.set_system(text);
                Ok(())
            }
            ("think", "on" | "") => self.think(Reasoning::On),
            ("think", "off") | ("nothink", "") => self.think(Reasoning::Off),
            ("think", "auto") => self.think(Reasoning::Auto),
            ("verbose", "on" | "") => self.verbose(true),
            ("verbose", "off") | ("quiet", "") => self.verbose(false),
            _ => Err("expected /set parameter NAME VALUE, /set system TEXT, /set think on|off|auto or /set verbose on|off".into()),
        }
    }

    fn think(&mut self, reasoning: Reasoning) -> Result<(), String> {
        self.settings.reasoning = reasoning;
        if let Some(warning) = sampling::thinks_anyway(reasoning, self.template.as_deref()) {
            ui::warn(warning);
        }
        Ok(())
    }

    fn verbose(&mut self, on: bool) -> Result<(), String> {
        self.settings.verbose = on;
        Ok(())
    }

    fn set_system(&mut self, text: &str) {
        self.system = Some(text.trim_matches('"').to_owned()).filter(|text| text != "-");
        self.conversation.set_system(self.system.clone());
    }

    fn show_system(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.system.as_deref().unwrap_or("no system message"))
    }

    fn show(&self, rest: &str, out: &mut dyn Write) -> std::io::Result<Result<(), String>> {
        match rest {
            "info" | "" => {
                let session = self.conversation.session();
                writeln!(
                    out,
                    "{}\ncontext {} of {} tokens",
                    self.info,
                    session.len(),
                    session.capacity()
                )?;
            }
            "template" => {
                let text = self.template.as_deref().unwrap_or("the file has none: ChatML is used");
                writeln!(out, "{}", Printable::default().push(text))?;
            }
            "parameters" => {
                let predict =
                    self.settings.max_tokens.map_or_else(|| "-1".to_owned(), |n| n.to_string());
                writeln!(
                    out,
                    "{}predict            {predict}",
                    sampling::list(&self.settings.sampler)
                )?;
            }
            "system" => self.show_system(out)?,
            _ => {
                return Ok(Err(
                    "expected /show info, /show template, /show parameters or /show system".into(),
                ));
            }
        }
        Ok(Ok(()))
    }
}

/// The first word, and what follows it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace)
        .map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}
