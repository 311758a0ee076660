//! Options of the commands that generate text, and the step from a model file to a session.

use std::sync::Arc;

use engine::{Drafters, Session};
use executors::GpuFacts;
use gguf::{Gguf, Metadata};
use models::LoadedModel;
use program::CacheOptions;
use tokenizer::Tokenizer;

use crate::args::RunArgs;
use crate::drafting::DraftArgs;
use crate::forms::FormArgs;
use crate::interrupt::Interrupt;
use crate::limits::Limits;
use crate::load::LoadOptions;
use crate::sampling::{LengthArgs, SamplerArgs, Settings};
use crate::statistics::Statistics;
use crate::ui;

/// How one session runs its model and chooses tokens.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    running: RunArgs,
    /// Print one JSON object when the reply is done
    ///
    /// Text, tokens, reason, usage, timings, executor, context
    #[arg(long)]
    pub(crate) json: bool,
    /// With --json: how likely each token was, and the N likeliest ones there, at most 20
    #[arg(long, value_name = "N", requires = "json", value_parser = clap::value_parser!(u8).range(0..=20))]
    logprobs: Option<u8>,
    /// Leave it to the terminal where to break lines
    #[arg(long)]
    pub(crate) nowordwrap: bool,
    /// Print no statistics, header or notes; only warnings and errors
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    #[command(flatten)]
    length: LengthArgs,
    #[command(flatten)]
    sampler: SamplerArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    drafts: DraftArgs,
}

/// A session with nothing in it yet.
pub(crate) struct Opened {
    /// The session.
    pub(crate) session: Session,
    /// What this machine allows, where the footer will say so.
    pub(crate) limits: Option<Limits>,
    /// Tokens the model was made for.
    pub(crate) trained: usize,
    /// Contexts up to so many tokens are rotated otherwise than longer ones.
    pub(crate) short_context: Option<usize>,
    /// The session's cache.
    pub(crate) cache: CacheOptions,
    /// What guesses its tokens ahead.
    pub(crate) drafters: Option<Drafters>,
    /// What runs the model, in a line.
    pub(crate) executor: String,
    /// The GPU among that, if one does.
    pub(crate) gpu: Option<GpuFacts>,
}

/// The failure of one reply to a model that was made for `trained` tokens.
pub(crate) fn failed(error: engine::Error, trained: usize) -> anyhow::Error {
    match error {
        engine::Error::ContextFull { wanted, capacity } => {
            rooflight::Error::TooLong { wanted, capacity, trained }.into()
        }
        error => error.into(),
    }
}

impl SessionArgs {
    /// How replies are made with a model that has this metadata and this tokenizer.
    ///
    /// # Errors
    /// A flag out of range, or a form that cannot be had.
    pub(crate) fn settings(
        &self,
        metadata: &Metadata,
        tokenizer: &Arc<Tokenizer>,
    ) -> anyhow::Result<Settings> {
        let sampler = self.sampler.options(metadata)?;
        let statistics = match (self.running.verbose.verbose, self.quiet) {
            (true, _) => Statistics::Full,
            (false, true) => Statistics::Off,
            (false, false) => Statistics::Line,
        };
        let settings = Settings::new(sampler, self.length.clone(), statistics);
        Ok(Settings {
            wrap: !self.nowordwrap,
            logprobs: self.logprobs.map(usize::from),
            form: self.form.form(tokenizer)?,
            ..settings
        })
    }

    /// Prints a note if stderr is a terminal and `-q` is not given.
    pub(crate) fn note(&self, message: impl std::fmt::Display) {
        if !self.quiet && ui::is_interactive() {
            ui::note(message);
        }
    }

    /// Whether `-q` turns notes off.
    pub(crate) fn quiet(&self) -> bool {
        self.quiet
    }

    /// Applies options that override the metadata of a model's file.
    ///
    /// # Errors
    /// The errors of [`RopeArgs::apply`](crate::rope::RopeArgs::apply).
    pub(crate) fn prepare(&self, gguf: &mut Gguf) -> anyhow::Result<()> {
        self.running.rope.apply(gguf)
    }

    /// Whether the length of replies was asked for.
    pub(crate) fn has_length(&self) -> bool {
        self.length.given()
    }

    /// Loads the model and opens a session. `known` is the model as read from its file; `tokenizer` must be the model's. Ctrl-C
    /// skips measuring the machine.
    ///
    /// # Errors
    /// If the model does not fit in memory.
    pub(crate) fn open(
        &self,
        gguf: Gguf,
        known: LoadedModel,
        tokenizer: &Tokenizer,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Opened> {
        let drafts = self.drafts.plan(tokenizer)?;
        let options = self.running.load_options();
        let options = LoadOptions {
            same_bits: drafts.needs(),
            guesses: drafts.by_own_guesses(),
            ceilings: options.ceilings && !self.quiet,
            quiet: self.quiet,
            interrupt: Some(interrupt.clone()),
            ..options
        };
        let (loaded, cache) = self.running.load_known(&gguf, known, &options)?;
        // From here on the weights are the executor's; the file's pages may go.
        drop(gguf);
        let drafters = drafts.load(&loaded, &options, cache)?;
        let session = Session::new(Arc::clone(&loaded.model), cache, loaded.chunk)?;
        let limits = Limits::of(&loaded, &cache);
        let (trained, executor) = (loaded.config.context_length, loaded.executor.describe());
        let (short_context, gpu) = (loaded.config.short_context, loaded.gpu);
        Ok(Opened { session, limits, trained, short_context, cache, drafters, executor, gpu })
    }
}
