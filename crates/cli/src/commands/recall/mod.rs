//! `recall`: questions whose answers stand in their context: from a file (`file.rs`), or with long texts that are made for
//! them (`made.rs`, `report.rs`). Making, judging and counting are in `engine`.

mod file;
mod given;
mod made;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use engine::{
    ChatFormat, Generated, Message, ModelFormat, PromptOptions, Reasoning, RecallKind, Request,
    Sampler, SamplerOptions, Session, StopReason, generate,
};
use gguf::Gguf;
use program::CacheOptions;

use crate::args::{CacheArgs, ModelArgs, ThreadArgs, VerboseArgs};
use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::load::{self, Loaded};
use crate::output::OutputArgs;
use crate::{counts, picture};

/// Measure whether a model finds what its context says
///
/// Without a file, texts of the lengths that -c names are made, the same for the same seed, English and Chinese in turn:
/// prompt and longest reply fill the length. Kinds: passkey, a key of five digits in one sentence; number, one of ten
/// digits; keyvalue, one value of a list; needles, four codes (needles:N, N of them) in order; tracing, variables that
/// have a value by way of others; and what needs the whole text: count of marked lines, sum of numbers, last value of each
/// key. Results are by kind and length, and by depth, the share of the text before the answer.
///
/// Each line of a file is a JSON object: "kind", "messages" (role and content, the question last), "answer", and
/// optionally "depth", 0 to 1: where in the context the answer stands.
///
/// Replies are greedy; one is right when it contains the answer, of count and sum when its last number is the answer.
/// Without a model the bundled one is asked.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight recall -m model.gguf -c 4k,16k --questions 40 --plot recall.svg\n  \
                  rooflight recall -c 1k --kinds passkey,keyvalue,needles:2 --json\n  \
                  rooflight recall -m model.gguf -f assets/heldout/recall.jsonl"
)]
pub(super) struct Recall {
    #[command(flatten)]
    model: ModelArgs,
    /// The questions, one JSON object a line; - for stdin
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Lengths of the texts in tokens: 4096 or 4k
    ///
    /// 0 for the model's own [default: 0]; with -f, the context
    #[arg(short, long, value_name = "N,...", value_delimiter = ',', value_parser = counts::context)]
    ctx_size: Vec<usize>,
    /// What is asked of the texts [default: passkey]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = kind, conflicts_with = "file")]
    kinds: Vec<RecallKind>,
    /// Questions of each kind and length [default: 20]
    #[arg(long, value_name = "N", value_parser = counts::tokens, conflicts_with = "file")]
    questions: Option<usize>,
    /// Other texts for another seed [default: 1]
    #[arg(short, long, value_name = "SEED", conflicts_with = "file")]
    seed: Option<u64>,
    /// Longest reply, in tokens; by default 48, or as many as the kind needs
    #[arg(short, long, value_name = "N", value_parser = counts::any)]
    n_predict: Option<usize>,
    /// Read the blocks where the answer stands, whatever is chosen: what a perfect choice would find
    #[arg(long, requires = "kv_policy", conflicts_with = "file")]
    given: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw the shares by depth and length into a file, .svg
    #[arg(long, value_name = "FILE", value_parser = picture::path, conflicts_with = "file")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    replace: OutputArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    verbose: VerboseArgs,
}

/// A kind by its name.
fn kind(name: &str) -> Result<RecallKind, String> {
    let names = || RecallKind::ALL.map(RecallKind::name).join(", ");
    RecallKind::parse(name)
        .ok_or_else(|| format!("expected some of {}, needles:2 to needles:16", names()))
}

impl Recall {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        match &self.file {
            Some(path) => self.of_file(path.clone(), out),
            None => self.of_made(out),
        }
    }

    fn open(&self) -> anyhow::Result<Gguf> {
        load::open_or_bundled(self.model.clone().given().as_deref())
    }

    fn load(
        &self,
        gguf: &Gguf,
        cache: &dyn Fn(&models::ModelConfig) -> CacheOptions,
    ) -> anyhow::Result<Loaded> {
        let options = self.cache.load_options(&self.threads, self.verbose);
        load::model(gguf, &self.executor, &options, cache)
    }
}

/// Who asks: greedily, until Ctrl-C.
struct Asker {
    format: ModelFormat,
    sampler: Sampler,
    interrupt: Interrupt,
}

impl Asker {
    fn new(gguf: &Gguf) -> anyhow::Result<Asker> {
        let greedy = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
        Ok(Asker {
            interrupt: Interrupt::install(),
            format: load::chat_format(gguf)?,
            sampler: Sampler::new(greedy)?,
        })
    }

    /// Messages as the model reads them.
    fn prompt(&self, messages: &[Message]) -> engine::Result<Vec<u32>> {
        let options = PromptOptions { reasoning: Reasoning::Off, ..PromptOptions::default() };
        let rendered = self.format.render(messages, &options, self.interrupt.flag())?;
        self.format.encode(&rendered, true)
    }

    /// What failed at what is named, or that Ctrl-C stopped it.
    fn stopped(&self, error: engine::Error, name: &dyn Fn() -> String) -> anyhow::Error {
        match self.interrupt.flag().load(Ordering::Relaxed) {
            true => Failure::Interrupted.into(),
            false => anyhow::Error::from(error).context(name()),
        }
    }

    /// The reply to a prompt; `name`: of the question.
    fn ask(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        max_tokens: usize,
        name: &dyn Fn() -> String,
    ) -> anyhow::Result<Generated> {
        let request = Request {
            prompt,
            max_tokens: Some(max_tokens),
            stop: &[],
            ignore_eog: false,
            split_thoughts: true,
            cancel: self.interrupt.flag(),
        };
        let reply = generate(session, &mut self.sampler, &self.format, &request, &mut |_| ())
            .with_context(|| format!("{} of {} tokens", name(), prompt.len()))?;
        match reply.stop {
            StopReason::Cancelled => Err(Failure::Interrupted.into()),
            _ => Ok(reply),
        }
    }
}
