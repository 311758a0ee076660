//! `run`: a conversation, or one answer. The loop is in `chat/`, printing in `reply.rs`.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use anyhow::Context as _;
use engine::{Conversation, Toolbox};

use crate::args::{self, PromptArgs};
use crate::calling::ToolArgs;
use crate::chat::{Chat, Terminal};
use crate::exit::Failure;
use crate::input::{TextSource, filled};
use crate::interrupt::Interrupt;
use crate::load;
use crate::sampling::{Think, thinks_anyway};
use crate::session::{Opened, SessionArgs};
use crate::{bundled, names, ui};

/// Talk to a model, or have it answer one prompt
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight run\n  rooflight run model.gguf\n  rooflight run model.gguf 'Why is the sky blue?'\n  \
                        git diff | rooflight run model.gguf 'Explain this change.'\n  rooflight run model.gguf -f question.txt --json | jq .text\n  \
                        rooflight run model.gguf 'Will it rain in Oslo?' --tools tools.json\n\n\
                        Without a prompt this is a conversation; /help in it lists its commands. What is typed there is kept \
                        in ~/.local/state/rooflight/history for the arrow keys; /set history off keeps none. Without a model the \
                        bundled demo model answers: rooflight run -p 'Tell me a story.'"
)]
pub(super) struct Run {
    #[command(flatten)]
    prompt: PromptArgs,
    /// The system message (-sys)
    #[arg(long, value_name = "TEXT", alias = "system", allow_hyphen_values = true)]
    system_prompt: Option<String>,
    /// Whether a model that can think does
    #[arg(long, value_enum, default_value_t)]
    reasoning: Think,
    /// Do not print the model's thoughts
    #[arg(long)]
    hidethinking: bool,
    #[command(flatten)]
    tools: ToolArgs,
    #[command(flatten)]
    session: SessionArgs,
}

impl Run {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let prompt = self.prompt.resolve(args::variable())?;
        let interrupt = Interrupt::install();
        let demo = prompt.model.is_none();
        let gguf = match &prompt.model {
            Some(path) => load::open(&names::here_or_pulled(path)?)?,
            None => bundled::open()?,
        };
        let message = message(prompt.prompt)?;
        if self.session.json && message.is_none() {
            let problem = "--json prints one reply: give a prompt";
            return Err(Failure::Usage(problem.into()).into());
        }
        let format = load::chat_format(&gguf)?;
        let template =
            gguf.metadata().str("tokenizer.chat_template").ok().flatten().map(str::to_owned);
        let mut settings = self.session.settings(gguf.metadata(), format.tokenizer())?;
        settings.tools = self.tools.tools(&format)?;
        settings.reasoning = self.reasoning.into();
        if let Some(warning) = thinks_anyway(settings.reasoning, template.as_deref()) {
            ui::warn(warning);
        }
        settings.show_thoughts = !self.hidethinking;
        if demo {
            if !self.session.has_length() {
                settings.max_tokens = Some(bundled::REPLY_TOKENS);
            }
            let most =
                settings.max_tokens.map_or_else(|| "any number of".to_owned(), |n| n.to_string());
            ui::note(format_args!(
                "no model given: this is the bundled demo model, very small, English and Chinese; rooflight run MODEL.gguf \
                 talks to a real one. It replies at temperature {}, in at most {most} tokens: --temp and -n change that",
                settings.sampler.temperature
            ));
        }

        let json = self.session.json;
        let info = match message {
            Some(_) => String::new(),
            None => super::show::text(&gguf).context("reading the model")?,
        };
        // what is typed meanwhile waits for the prompt
        let quiet = message.is_none().then(|| interrupt.terminal().quiet());
        let Opened { session, limits, trained, short_context, cache, drafters, executor, gpu } =
            self.session.open(gguf, format.tokenizer())?;
        drop(quiet);
        let mut conversation = Conversation::new(session, Arc::new(format));
        conversation.set_system(self.system_prompt.clone());
        conversation.set_drafters(drafters);
        let tools = settings.tools.clone();
        conversation.set_tools(tools.map(|tools| tools as Arc<dyn Toolbox>));
        let system = self.system_prompt;
        let mut chat = Chat {
            conversation,
            settings,
            interrupt,
            system,
            info,
            template,
            limits,
            trained,
            short_context,
            cache,
            executor,
            gpu,
            history: true,
            saved: None,
            read: String::new(),
        };
        match message {
            Some(message) => chat.answer(message, json, out),
            None => {
                ui::note("/help lists the commands, Ctrl-D leaves");
                chat.run(&mut Terminal::open()?, out)
            }
        }
    }
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
