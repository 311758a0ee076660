//! `recall`: questions whose answers stand in their context. Judging and counting are in `engine`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use engine::{
    ChatFormat, Message, ModelFormat, Reasoning, Recall as Scores, Request, Sampler,
    SamplerOptions, Session, StopReason, Tally, answers, generate,
};
use gguf::{Gguf, escape};
use serde::Deserialize;
use serde_json::json;

use crate::args::{CacheArgs, ContextArgs, ExecutorArgs, ModelArgs, ThreadArgs, VerboseArgs};
use crate::counts;
use crate::exit::Failure;
use crate::input::TextSource;
use crate::interrupt::Interrupt;
use crate::load;
use crate::output::shown;
use crate::ui;

/// Measure whether a model finds what its context says
///
/// Each line of the file is a JSON object: "kind", "messages" (role and content, the question last), "answer", and
/// optionally "depth", 0 to 1: where in the context the answer stands. Replies are greedy; one is right when it
/// contains the answer. Without a model the bundled one is asked.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight recall -f assets/heldout/recall.jsonl\n  \
                  rooflight recall -m model.gguf -f assets/heldout/recall.jsonl --json")]
pub(super) struct Recall {
    #[command(flatten)]
    model: ModelArgs,
    /// The questions, one JSON object a line; - for stdin
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Longest reply, in tokens
    #[arg(short, long, value_name = "N", default_value_t = 48, value_parser = counts::any)]
    n_predict: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    verbose: VerboseArgs,
}

/// One question.
#[derive(Debug, Deserialize)]
struct Item {
    kind: String,
    messages: Vec<Said>,
    answer: String,
    depth: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Said {
    role: String,
    content: String,
}

impl Recall {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let items = read(self.file.clone())?;
        let interrupt = Interrupt::install();
        let gguf = match self.model.clone().given() {
            Some(path) => load::open(&path)?,
            None => crate::bundled::open()?,
        };
        let format = load::chat_format(&gguf)?;
        let mut session = self.open(&gguf)?;
        drop(gguf);
        let mut sampler =
            Sampler::new(SamplerOptions { temperature: 0.0, ..SamplerOptions::default() })?;
        let bar = ui::count_bar("questions", items.len() as u64);
        let mut scores = Scores::default();
        interrupt.begin();
        for (item, line) in items.iter().zip(1..) {
            let prompt = match prompt(&format, item, interrupt.flag()) {
                Err(_) if interrupt.flag().load(Ordering::Relaxed) => {
                    bar.finish_and_clear();
                    return Err(Failure::Interrupted.into());
                }
                prompt => prompt.with_context(|| format!("question {line}"))?,
            };
            let request = Request {
                prompt: &prompt,
                max_tokens: Some(self.n_predict),
                stop: &[],
                ignore_eog: false,
                split_thoughts: true,
                cancel: interrupt.flag(),
            };
            let reply = generate(&mut session, &mut sampler, &format, &request, &mut |_| ())
                .with_context(|| format!("question {line} of {} tokens", prompt.len()))?;
            if reply.stop == StopReason::Cancelled {
                bar.finish_and_clear();
                return Err(Failure::Interrupted.into());
            }
            let right = answers(&reply.text, &item.answer);
            if self.verbose.verbose && !right {
                ui::note(format_args!(
                    "{}, question {line}: wanted `{}`, got `{}`",
                    escape(&item.kind, 40),
                    escape(&item.answer, 100),
                    escape(&reply.text, 200)
                ));
            }
            scores.add(&item.kind, item.depth, right);
            bar.inc(1);
        }
        interrupt.end();
        bar.finish_and_clear();
        if self.json { print_json(&scores, out) } else { print(&scores, out) }
    }

    fn open(&self, gguf: &Gguf) -> anyhow::Result<Session> {
        let options = self.cache.load_options(&self.threads, self.verbose);
        let cache = |config: &models::ModelConfig| {
            let trained = config.context_length;
            self.cache.options(self.context.capacity(trained), trained)
        };
        let loaded = load::model(gguf, &self.executor, options, &cache)?;
        let cache = cache(&loaded.config);
        load::warn_about_context(&loaded.config, cache.capacity, &cache.policy);
        Ok(Session::new(loaded.model, cache, loaded.chunk)?)
    }
}

fn read(path: PathBuf) -> anyhow::Result<Vec<Item>> {
    let name = shown(&path);
    let text = TextSource::of_path(path).read()?;
    let mut items = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let item: Item = serde_json::from_str(text).map_err(|error| {
            Failure::Malformed(format!("{name} line {line}: {}", no_item(&error)))
        })?;
        items.push(item);
    }
    if items.is_empty() {
        return Err(Failure::Malformed(format!("{name} has no questions")).into());
    }
    Ok(items)
}

/// What is wrong with a line, in other words than the parser's.
fn no_item(error: &serde_json::Error) -> String {
    let wanted = r#"expected a JSON object such as {"kind": "name", "messages": [{"role": "user", "content": "..."}], "answer": "..."}"#;
    match error.classify() {
        serde_json::error::Category::Data => {
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            format!("{what}; {wanted}")
        }
        _ => format!("{wanted}, found no JSON at column {}", error.column()),
    }
}

fn prompt(format: &ModelFormat, item: &Item, cancel: &Arc<AtomicBool>) -> anyhow::Result<Vec<u32>> {
    let said = item.messages.iter();
    let messages: Vec<Message> = said.map(|m| Message::new(&*m.role, &*m.content)).collect();
    let rendered = format.render(&messages, Reasoning::Off, cancel)?;
    Ok(format.encode(&rendered, true)?)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn print(scores: &Scores, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["kind", "asked", "right", "share", "95 % interval"]);
    let mut row = |name: &str, score: Tally| {
        let (low, high) = score.interval();
        table.add_row([
            escape(name, 40),
            score.asked.to_string(),
            score.right.to_string(),
            percent(score.share()),
            format!("{} to {}", percent(low), percent(high)),
        ]);
    };
    scores.kinds().for_each(|(kind, score)| row(kind, score));
    row("all", scores.total());
    writeln!(out, "{table}")?;
    for (kind, depths) in scores.kinds().filter_map(|(kind, _)| Some((kind, scores.depths(kind)?)))
    {
        let shares = depths.iter().map(|score| match score.asked {
            0 => "  -".to_owned(),
            _ => format!("{:3.0}", score.share() * 100.0),
        });
        let shares: Vec<String> = shares.collect();
        writeln!(out, "{} by depth, tenths, %: {}", escape(kind, 40), shares.join(" "))?;
    }
    Ok(())
}

fn print_json(scores: &Scores, out: &mut dyn Write) -> anyhow::Result<()> {
    let score = |score: Tally| {
        let (low, high) = score.interval();
        json!({"asked": score.asked, "right": score.right, "share": score.share(), "low": low, "high": high})
    };
    let kinds: serde_json::Map<String, serde_json::Value> = scores
        .kinds()
        .map(|(kind, of_kind)| {
            let mut value = score(of_kind);
            if let Some(depths) = scores.depths(kind) {
                value["by_depth"] = depths.iter().map(|depth| score(*depth)).collect();
            }
            (kind.to_owned(), value)
        })
        .collect();
    let all = json!({"kinds": kinds, "all": score(scores.total())});
    writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    Ok(())
}
