//! `complete`: a text continued as it is.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use anyhow::Context as _;
use engine::{Request, Turn};

use crate::args::{self, PromptArgs};
use crate::completion;
use crate::exit::Failure;
use crate::input::{TextSource, filled};
use crate::interrupt::Interrupt;
use crate::load;
use crate::reply::{ReplyPrinter, tell_cut, tell_end};
use crate::session::{Opened, SessionArgs, failed};

/// Continue a text, without a chat template
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight complete model.gguf 'Once upon a time'\n  \
                        rooflight complete -m model.gguf -f story.txt -n 200 --temp 0\n\n\
                        Names of special tokens in the text become those tokens.")]
pub(super) struct Complete {
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    session: SessionArgs,
}

impl Complete {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let prompt = self.prompt.resolve(args::variable())?;
        let Some(path) = prompt.model else {
            return Err(Failure::Usage("no model: rooflight complete MODEL PROMPT".into()).into());
        };
        let interrupt = Interrupt::install();
        let mut gguf = load::open(&path)?;
        self.session.prepare(&mut gguf)?;
        let prompt = match prompt.prompt {
            Some(prompt) => prompt,
            None => piped()?,
        };
        let prompt = filled(prompt.read()?)?;
        let tokenizer = Arc::new(load::tokenizer(&gguf)?);
        load::warn_lost(&tokenizer, &prompt)?;
        let tokens = tokenizer.encode_prompt(&prompt).context("encoding the prompt")?;
        let settings = self.session.settings(gguf.metadata(), &tokenizer)?;
        let known = load::open_writer(&gguf)?;

        let Opened { mut session, limits, trained, drafters, executor, .. } =
            self.session.open(gguf, known, &tokenizer, &interrupt)?;
        let mut sampler = settings.new_sampler(&*tokenizer, false, &|form| form)?;
        let request = Request {
            prompt: &tokens,
            max_tokens: settings.max_tokens,
            stop: &settings.stop,
            ignore_eog: settings.ignore_eog,
            split_thoughts: false,
            cancel: interrupt.flag(),
        };
        let mut printer = ReplyPrinter::new(out, interrupt.flag(), false)
            .whole(self.session.json)
            .quiet(self.session.quiet())
            .laid_out(!self.session.json && !self.session.nowordwrap, false);
        interrupt.begin();
        let mut turn = Turn::new(&mut session, &mut sampler, &*tokenizer, &request);
        if let Some(drafters) = drafters {
            turn = turn.drafted(drafters);
        }
        let reply = turn.alone(&mut |event| printer.event(event));
        let interrupted = interrupt.end();
        printer.finish()?;
        let reply = reply.map_err(|error| failed(error, trained))?;
        tell_end(&reply, &session, limits.as_ref(), settings.statistics);
        tell_cut(&reply, &session);
        let whole = settings.check_whole(&reply, false, &*tokenizer);
        if self.session.json {
            let logprobs =
                settings.logprobs.map(|_| server::logprobs_json(&reply.logprobs, &*tokenizer));
            completion::print(
                &reply.into(),
                logprobs,
                (&session, &executor, limits.as_ref()),
                out,
            )?;
        }
        if interrupted {
            return Err(Failure::Interrupted.into());
        }
        Ok(whole?)
    }
}

fn piped() -> Result<TextSource, Failure> {
    if std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "no prompt: give one as an argument, by -p, -f or on stdin".into(),
        ));
    }
    Ok(TextSource::Stdin)
}
