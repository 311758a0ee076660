//! What a line that starts with `/` does. The words are listed once, in [`COMMANDS`]: help, completion and tests read it.

use std::io::Write;
use std::path::PathBuf;

use engine::{FullContext, Reasoning};

use super::{Chat, saved};
use crate::input::TextSource;
use crate::printable::Printable;
use crate::{counts, executing, memory, sampling, ui, units};

/// Every command with what it takes, and what it does; the first column is completed.
pub(super) const COMMANDS: &[(&str, &str)] = &[
    ("/help", "this list; /? too"),
    ("/bye", "leave; exit, quit and Ctrl-D too"),
    ("/clear", "forget the conversation"),
    ("/regen", "another reply to the last message"),
    ("/save FILE", "write messages as JSON; /save! replaces"),
    ("/load FILE", "go on from messages in a file"),
    ("/read FILE", "put its text before your next message"),
    ("/system TEXT", "show or set the system message, - for none"),
    ("/set parameter NAME VALUE", "temperature, top_k, seed, predict,"),
    ("", "num_ctx, and what else"),
    ("", "/show parameters lists"),
    ("/set system TEXT", "set the system message"),
    ("/set think on|off|auto", "whether a model that can think does"),
    ("/set context-full stop|drop-oldest", "what a full context does: an error, or"),
    ("", "the oldest turns are forgotten"),
    ("/set verbose on|off", "rates after each reply"),
    ("/set wordwrap on|off", "break lines between words"),
    ("/set history on|off", "keep what you type for the arrow keys"),
    ("/show info|template|parameters|system", ""),
];

const KEYS: &str = "\
//TEXT                             a message that begins with a slash
\"\"\"                                starts and ends a message of several lines
Alt-Enter, Ctrl-J, \\ before Enter  a new line within a message
Tab                                completes commands
Ctrl-C                             stops a reply
";

/// Names that `/set parameter` knows beside those of the sampler.
const OWN_PARAMETERS: [&str; 2] = ["predict", "num_ctx"];

/// The completions of a line so far, each the line with one more word.
pub(super) fn completions(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let fixed = COMMANDS.iter().filter(|(command, _)| !command.is_empty());
    let mut all: Vec<String> = Vec::new();
    for (command, _) in fixed {
        let (head, last) = command.rsplit_once(' ').unwrap_or(("", command));
        if last.contains('|') {
            all.extend(last.split('|').map(|choice| format!("{head} {choice}")));
        } else if last.chars().all(char::is_uppercase) {
            let head = head.strip_suffix(" NAME").unwrap_or(head);
            all.push(format!("{head} "));
        } else {
            all.push((*command).to_owned());
        }
    }
    let names = sampling::names().into_iter().chain(OWN_PARAMETERS.map(str::to_owned));
    all.extend(names.map(|name| format!("/set parameter {name} ")));
    for candidate in all.iter().filter(|candidate| candidate.starts_with(line)) {
        // up to the end of the word that is being typed
        let rest = &candidate[line.len()..];
        let end = rest.find(' ').map_or(candidate.len(), |at| line.len() + at + 1);
        let word = candidate[..end].to_owned();
        if word != line && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}

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

/// What a command did, in a line, or what is wrong with it.
type Done = Result<Option<String>, String>;

impl Chat {
    /// Do what `line` says if it is a command; `None` if it is a message to the model.
    pub(super) fn obey(&mut self, line: &str, out: &mut dyn Write) -> anyhow::Result<Option<Next>> {
        let line = line.trim();
        if matches!(line, "exit" | "quit") {
            return Ok(Some(Next::Leave));
        }
        if !line.starts_with('/') || line.starts_with("//") || line.contains('\n') {
            return Ok(None);
        }
        let (word, rest) = split(line);
        let done = match word {
            "/bye" | "/exit" | "/quit" => return Ok(Some(Next::Leave)),
            "/regen" => return Ok(Some(Next::Regenerate)),
            "/help" | "/?" => {
                out.write_all(help().as_bytes())?;
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
        Ok(Some("the conversation is forgotten".into()))
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
        let told = format!("{} messages in {}", messages.len(), crate::output::shown(&path));
        self.saved = Some(path);
        Ok(Some(told))
    }

    fn load(&mut self, file: &str) -> Done {
        let path = file_of(file, "/load FILE")?;
        let messages = saved::load(&path).map_err(|error| format!("{error:#}"))?;
        let told = format!("{} messages from {}", messages.len(), crate::output::shown(&path));
        let system = messages.first().filter(|m| m.role == "system");
        self.system = system.map(|m| m.content.clone());
        self.conversation.set_messages(messages);
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

    fn set(&mut self, rest: &str) -> Done {
        let (what, value) = split(rest);
        let settings = &mut self.settings;
        let (name, on) = match (what, value) {
            ("parameter", value) => return self.set_parameter(value),
            ("system", text) if !text.is_empty() => return Ok(Some(self.set_system(text))),
            ("think", "on" | "") => return Ok(Some(self.think(Reasoning::On, "on"))),
            ("think", "off") | ("nothink", "") => {
                return Ok(Some(self.think(Reasoning::Off, "off")));
            }
            ("think", "auto") => return Ok(Some(self.think(Reasoning::Auto, "auto"))),
            ("context-full", "stop") => {
                settings.full = FullContext::Stop;
                return Ok(Some("context-full stop: nothing is forgotten".into()));
            }
            ("context-full", "drop-oldest") => {
                settings.full = FullContext::DropOldest;
                return Ok(Some(
                    "context-full drop-oldest: the oldest turns make room, and replies say so"
                        .into(),
                ));
            }
            ("verbose", "on" | "") => (&mut settings.verbose, true),
            ("verbose", "off") | ("quiet", "") => (&mut settings.verbose, false),
            ("wordwrap", "on" | "") => (&mut settings.wrap, true),
            ("wordwrap", "off") | ("nowordwrap", "") => (&mut settings.wrap, false),
            ("history", "on" | "") => (&mut self.history, true),
            ("history", "off") | ("nohistory", "") => (&mut self.history, false),
            (name, _)
                if completions("/set parameter ").contains(&format!("/set parameter {name} ")) =>
            {
                return Err(format!("settings of replies are parameters: /set parameter {rest}"));
            }
            _ => {
                return Err("expected /set parameter NAME VALUE, /set system TEXT, /set think on|off|auto, \
                            /set context-full stop|drop-oldest, or /set verbose, wordwrap or history with on|off"
                    .into());
            }
        };
        *name = on;
        let what = what.strip_prefix("no").unwrap_or(what).replace("quiet", "verbose");
        Ok(Some(format!("{what} {}", switch(on))))
    }

    fn set_parameter(&mut self, rest: &str) -> Done {
        let (name, value) = split(rest);
        if name.is_empty() || value.is_empty() {
            return Err(
                "expected /set parameter NAME VALUE; /show parameters lists the names".into()
            );
        }
        match name {
            "predict" | "num_predict" => {
                self.settings.max_tokens = counts::predict(value)?.0;
                Ok(Some(format!("predict {value}")))
            }
            "num_ctx" | "ctx_size" => self.resize(counts::context(value)?),
            _ => {
                sampling::set(&mut self.settings.sampler, name, value)?;
                Ok(Some(format!("{name} {value}")))
            }
        }
    }

    /// Another length of context; 0 for the model's own.
    fn resize(&mut self, positions: usize) -> Done {
        let capacity = if positions == 0 { self.trained } else { positions };
        if let Some(most) = self.short_context
            && (capacity <= most) != (self.cache.capacity <= most)
        {
            return Err(format!(
                "this model reads contexts of up to {most} tokens otherwise than longer ones: start with -c {capacity}"
            ));
        }
        let cache = program::CacheOptions { capacity, ..self.cache };
        let kept = executing::kept(&cache, self.gpu.as_ref());
        let bytes = self.conversation.session().model().program().cache_bytes(capacity, &kept);
        if let Some(free) = memory::free(self.gpu.as_ref())
            .filter(|free| bytes.saturating_add(memory::PASS) > *free)
        {
            let [wanted, free] = [bytes, free].map(units::bytes);
            return Err(format!(
                "a context of {capacity} tokens takes {wanted} of memory, of which {free} are free"
            ));
        }
        self.conversation.set_cache(cache).map_err(|error| error.to_string())?;
        self.cache = cache;
        let beyond = match capacity > self.trained {
            true => format!(", beyond the {} this model was made for", self.trained),
            false => String::new(),
        };
        Ok(Some(format!(
            "num_ctx {capacity}{beyond}: with the next message the conversation is read again"
        )))
    }

    fn think(&mut self, reasoning: Reasoning, word: &str) -> String {
        self.settings.reasoning = reasoning;
        match sampling::thinks_anyway(reasoning, self.template.as_deref()) {
            Some(warning) => warning.to_owned(),
            None => format!("think {word}"),
        }
    }

    fn set_system(&mut self, text: &str) -> String {
        self.system = Some(text.trim_matches('"').to_owned()).filter(|text| text != "-");
        self.conversation.set_system(self.system.clone());
        let set = if self.system.is_some() { "is set" } else { "is removed" };
        format!("the system message {set}: it counts from the next message on")
    }

    fn show_system(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.system.as_deref().unwrap_or("no system message"))
    }

    fn show(&self, rest: &str, out: &mut dyn Write) -> std::io::Result<Done> {
        match rest {
            "info" | "" => {
                let session = self.conversation.session();
                let (len, capacity) = (session.len(), session.capacity());
                let kept = executing::kept(&self.cache, self.gpu.as_ref());
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

    fn parameters(&self) -> String {
        let settings = &self.settings;
        let predict = settings.max_tokens.map_or_else(|| "-1".to_owned(), |n| n.to_string());
        let think = match settings.reasoning {
            Reasoning::On => "on",
            Reasoning::Off => "off",
            Reasoning::Auto => "auto",
        };
        let full = match settings.full {
            FullContext::Stop => "stop",
            FullContext::DropOldest => "drop-oldest",
        };
        let own = [
            ("predict", predict),
            ("num_ctx", self.conversation.session().capacity().to_string()),
            ("think", think.into()),
            ("context-full", full.into()),
            ("verbose", switch(settings.verbose).into()),
            ("wordwrap", switch(settings.wrap).into()),
            ("history", switch(self.history).into()),
        ];
        let own = own.map(|(name, value)| format!("{name:18} {value}\n"));
        let stop =
            settings.stop.iter().map(|text| format!("{:18} {}\n", "stop", gguf::escape(text, 60)));
        sampling::list(&settings.sampler) + &own.concat() + &stop.collect::<String>()
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn help() -> String {
    let lines = COMMANDS
        .iter()
        .map(|(command, what)| format!("{command:34} {what}").trim_end().to_owned() + "\n");
    lines.collect::<String>() + KEYS
}

fn file_of(text: &str, usage: &str) -> Result<PathBuf, String> {
    let text = text.trim_matches('"');
    if text.is_empty() { Err(format!("expected {usage}")) } else { Ok(PathBuf::from(text)) }
}

/// The first word, and what follows it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace)
        .map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}
