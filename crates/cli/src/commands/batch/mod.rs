//! `batch`: many requests from a file, several side by side; the results stand in their order, and a run that was cut goes
//! on where it was. Lines are read in `request.rs`, results written in `results.rs`.

mod request;
mod results;

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use engine::{
    Completion, DraftMode, Drafters, ModelFormat, Request, Scheduler, SchedulerOptions, Session,
    Suffixes, Turn, TurnId,
};
use gguf::{Gguf, ValueType};
use program::CacheOptions;
use serde_json::Value;
use server::{ApiError, Preparation, PreparedReply, ReplyLimits, ReplySource};
use twox_hash::XxHash3_64;

use crate::args::{self, RunArgs};
use crate::chat_templates::TemplateArgs;
use crate::exit::Failure;
use crate::input::TextSource;
use crate::interrupt::Interrupt;
use crate::limits::Limits;
use crate::load::{self, LoadOptions, Loaded};
use crate::output::{OutputArgs, check_input, shown};
use crate::{checking, counts, executor, sampling, ui, units};
use request::{BatchRequest, LineKey, Refusal};
use results::Results;

/// Answer many requests from a file
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight batch -m model.gguf questions.jsonl -o answers.jsonl\n  \
                  echo '{\"prompt\": \"Why is the sky blue?\", \"max_tokens\": 50}' |\n    \
                  rooflight batch -m model.gguf - -o sky.jsonl\n\n\
                  A line is one of OpenAI's batches (custom_id, url, body) or an object with a prompt, or messages, and settings \
                  beside it. Results come in the order of the lines; what a killed run left is kept, and the same command goes on behind it. A result knows its request \
                  and model: a line that was corrected is answered again, and its result replaced. A file with results of another model, or \
                  mostly of other requests, is refused, and --force begins anew. A custom_id that an earlier line has is refused. \
                  Exit code 1 if lines were refused: their results say why."
)]
pub(super) struct Batch {
    /// The requests, one JSON object a line; - for stdin
    #[arg(value_name = "REQUESTS")]
    requests: PathBuf,
    /// Results, one line each; continued if it exists
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    replace: OutputArgs,
    /// A GGUF file; any part of a sharded model [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Requests side by side (-np)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parallel)]
    parallel: usize,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    running: RunArgs,
}

fn parallel(text: &str) -> Result<usize, String> {
    counts::within(text, 1, 256)
}

/// What runs, and what came of it so far.
struct Running<'a> {
    scheduler: Scheduler<'a>,
    /// The line of each turn.
    lines: BTreeMap<TurnId, BatchLine<'a>>,
    /// Results that wait for those before them, by their place.
    ready: BTreeMap<usize, Value>,
    tally: Tally,
}

/// A line that is being answered.
struct BatchLine<'a> {
    /// Its place among those that were to be answered, from 0.
    place: usize,
    /// Its number in the file, from 0.
    number: usize,
    /// What it asks.
    request: &'a BatchRequest,
    /// What its result is to say beside the reply.
    notes: Vec<String>,
}

/// Tokens and times of all replies.
#[derive(Default)]
struct Tally {
    prompt: usize,
    written: usize,
    /// The least time that this machine could take for them.
    limit: f64,
}

impl Batch {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let interrupt = Interrupt::install();
        let given = self.model.clone().or_else(|| args::variable().map(PathBuf::from));
        let path = given.ok_or_else(|| {
            Failure::Usage("no model: rooflight batch -m MODEL REQUESTS -o RESULTS".into())
        })?;
        check_input(&self.output, &[&self.requests, &path])?;
        let text = TextSource::of_path(self.requests.clone()).read()?;
        let mut gguf = load::open(&path)?;
        self.running.rope.apply(&mut gguf)?;
        self.template.apply(&mut gguf)?;
        let defaults = sampling::recommended(gguf.metadata());
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let requests: Vec<Result<BatchRequest, Refusal>> =
            lines.iter().map(|line| request::parse(line, &defaults)).collect();
        let requests = request::with_own_ids(requests);
        if requests.is_empty() {
            return Err(Failure::Usage("there are no requests".into()).into());
        }
        let answered_by = identity(&gguf)?;
        let key = |(request, line): (&Result<BatchRequest, Refusal>, &&str)| {
            let id = match request {
                Ok(request) => request.id.clone(),
                Err(refusal) => refusal.id.clone(),
            };
            LineKey::new(id, line, &answered_by)
        };
        let mut results = self.results(requests.iter().zip(&lines).map(key).collect())?;
        if results.answered() == requests.len() {
            ui::note(format_args!("all {} requests have results already", requests.len()));
            return ended(&results);
        }
        let format = Arc::new(load::chat_format(&gguf)?);
        let options =
            LoadOptions { interrupt: Some(interrupt.clone()), ..self.running.load_options() };
        let (loaded, cache) =
            self.running.load_known(&gguf, load::open_writer(&gguf)?, &options)?;
        drop(gguf);
        let limits = Limits::of(&loaded, &cache).map(Arc::new);
        let batch = Running::new(
            &loaded,
            self.running.cache.storage.side_by_side(self.parallel, &loaded, &cache),
        );
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let vocab_size = loaded.model.program().vocab_size();
        let work = Work {
            requests: &requests,
            format: &format,
            preparation: Preparation::new(Arc::clone(&format), vocab_size, cache.capacity)
                .with_form_checker(checking::form_checker()),
            source: ReplySource {
                load: Duration::ZERO,
                model: name,
                format: Arc::clone(&format),
                limits: limits.clone().map(|limits| limits as Arc<dyn ReplyLimits>),
                capacity: cache.capacity,
            },
            loaded: &loaded,
            cache,
            draft_memory: self.running.cache.storage.draft_memory(),
        };
        let started = Instant::now();
        let done = results.answered();
        let finished = work.all(batch, &mut results, limits.as_deref(), &interrupt)?;
        finished.tell(results.answered() - done, started.elapsed(), out)?;
        if interrupt.end() {
            return Err(Failure::Interrupted.into());
        }
        ended(&results)
    }

    /// The file of results, gone on with or begun anew.
    fn results(&self, keys: Vec<LineKey>) -> anyhow::Result<Results> {
        let path: &Path = &self.output;
        if self.replace.force && path.is_file() {
            std::fs::remove_file(path).with_context(|| format!("removing {}", shown(path)))?;
        }
        let n = keys.len();
        let opened =
            Results::open(path, keys).with_context(|| format!("opening {}", shown(path)))?;
        let results =
            opened.map_err(|problem| Failure::Usage(format!("{}: {problem}", shown(path))))?;
        let changed = results.changed();
        if results.answered() + changed.len() > 0 {
            let told = told_changed(changed);
            ui::note(format_args!(
                "{} of {n} requests have results already{told}",
                results.answered()
            ));
        }
        Ok(results)
    }
}

/// Most lines that are named in a note.
const NAMED: usize = 5;

/// Returns the note about lines that have changed since they were answered: `; line 2 has changed and is answered again`.
fn told_changed(changed: &[usize]) -> String {
    let numbers: Vec<String> = changed.iter().map(|number| (number + 1).to_string()).collect();
    match &numbers[..] {
        [] => String::new(),
        [one] => format!("; line {one} has changed and is answered again"),
        [first @ .., last] if first.len() < NAMED => {
            format!("; lines {} and {last} have changed and are answered again", first.join(", "))
        }
        all => format!("; {} lines have changed and are answered again", all.len()),
    }
}

/// What tells a model from others, wherever its file is: its template and whatever else is said of it, but for lists; how each of
/// its tensors is called, made, and begins.
fn identity(gguf: &Gguf) -> gguf::Result<String> {
    let mut hash = XxHash3_64::with_seed(0);
    for (key, value) in gguf.metadata().iter().filter(|(_, value)| value.ty() != ValueType::Array) {
        hash.write(format!("{key}={value:?}\n").as_bytes());
    }
    for tensor in gguf.tensors() {
        let mut begin = [0; 64];
        let begin = &mut begin[..tensor.byte_len().min(64)];
        gguf.read(tensor, 0, begin)?;
        hash.write(tensor.name.as_bytes());
        hash.write_u32(tensor.type_number());
        hash.write_usize(tensor.byte_len());
        hash.write(begin);
    }
    Ok(format!("{:016x}", hash.finish()))
}

/// Success, unless lines were refused.
fn ended(results: &Results) -> anyhow::Result<()> {
    match results.failed {
        0 => Ok(()),
        n => Err(anyhow::anyhow!(
            "{n} of {} requests failed: their results say why; once corrected, the same command answers only them",
            results.answered()
        )),
    }
}

impl<'a> Running<'a> {
    fn new(loaded: &Loaded, running: usize) -> Running<'a> {
        let options = SchedulerOptions { running, waiting: 0, rows: loaded.chunk };
        Running {
            scheduler: Scheduler::new(Arc::clone(&loaded.model), options),
            lines: BTreeMap::new(),
            ready: BTreeMap::new(),
            tally: Tally::default(),
        }
    }
}

/// Everything that replies are made of.
struct Work<'a> {
    requests: &'a [Result<BatchRequest, Refusal>],
    format: &'a ModelFormat,
    preparation: Preparation,
    source: ReplySource,
    loaded: &'a Loaded,
    cache: CacheOptions,
    /// Most bytes for the texts in which drafts are found.
    draft_memory: u64,
}

impl<'a> Work<'a> {
    /// Answer what has no result yet.
    fn all(
        &self,
        mut batch: Running<'a>,
        results: &mut Results,
        limits: Option<&Limits>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Tally> {
        let missing = results.missing();
        let bar = ui::count_bar("requests", self.requests.len() as u64);
        let answered = results.answered();
        bar.set_position(answered as u64);
        let suffixes = Arc::new(Mutex::new(Suffixes::within(self.draft_memory)));
        let room = batch.scheduler.room();
        // places in `missing`: the next to begin, and the next to be written
        let (mut next, mut written) = (0, 0);
        let started = Instant::now();
        interrupt.begin();
        loop {
            // as many begin as may run; results that wait for an earlier one are bounded by that too
            while let Some(&number) = missing.get(next)
                && batch.scheduler.len().0 < room
                && next - written < 16 * room
                && !interrupt.is_raised()
            {
                match self.requests[number]
                    .as_ref()
                    .map(|request| (request, self.turn(request, &suffixes, interrupt)))
                {
                    Ok((request, Ok((turn, notes)))) => {
                        let id = batch.scheduler.join(turn)?;
                        batch.lines.insert(id, BatchLine { place: next, number, request, notes });
                    }
                    // it was not answered because it was stopped: it is asked again by the next run
                    Ok((_, Err(_))) if interrupt.is_raised() => break,
                    Ok((request, Err(error))) => {
                        let refusal = failed(request, error);
                        batch.ready.insert(next, results::of_refusal(number + 1, &refusal));
                    }
                    Err(refusal) => {
                        batch.ready.insert(next, results::of_refusal(number + 1, refusal));
                    }
                }
                next += 1;
            }
            self.step(&mut batch, limits, room, interrupt);
            while let Some(line) = batch.ready.remove(&written) {
                results.push(missing[written], line).context("writing the results")?;
                written += 1;
                bar.set_position((answered + written) as u64);
            }
            let rate = batch.tally.written as f64 / started.elapsed().as_secs_f64();
            bar.set_message(format!("{rate:.1} t/s"));
            let over = next == missing.len() || interrupt.is_raised();
            if over && batch.scheduler.is_empty() {
                break;
            }
        }
        // of lines that have changed, those that were answered before Ctrl-C
        results.settle().context("writing the results")?;
        bar.finish_and_clear();
        Ok(batch.tally)
    }

    /// One pass, and what ended with it.
    fn step(
        &self,
        batch: &mut Running<'a>,
        limits: Option<&Limits>,
        room: usize,
        interrupt: &Interrupt,
    ) {
        let ended = batch.scheduler.step(&mut |_, _| ());
        for (id, turn) in ended {
            let Some(line) = batch.lines.remove(&id) else { continue };
            let BatchLine { place, number, request, notes } = line;
            let reply = match turn.finish() {
                // it is asked again by the next run
                Ok(reply) if reply.stop == engine::StopReason::Cancelled => continue,
                Ok(reply) => reply,
                Err(_) if interrupt.is_raised() => continue,
                Err(error) => {
                    let refusal = failed(request, error.into());
                    batch.ready.insert(place, results::of_refusal(number + 1, &refusal));
                    continue;
                }
            };
            let stats = &reply.stats;
            batch.tally.prompt += stats.prompt_tokens;
            batch.tally.written += reply.tokens.len();
            if let Some(limits) = limits.filter(|limits| limits.doubt().is_none()) {
                let prompt = limits.prompt(stats.cached_tokens, stats.computed_tokens).limit();
                // a pass reads the weights once for all, and yields several tokens where drafts hold
                let pass = limits.prompt(stats.prompt_tokens, room).limit() / room as f64;
                batch.tally.limit += prompt + pass * stats.passes().n as f64;
            }
            let reply = Completion::from(reply);
            let result = results::of_reply(request, number + 1, &self.source, &reply, &notes);
            batch.ready.insert(place, result);
        }
    }

    /// The turn of a request, and what its result is to say beside the reply.
    fn turn(
        &self,
        request: &BatchRequest,
        suffixes: &Arc<Mutex<Suffixes>>,
        interrupt: &Interrupt,
    ) -> Result<(Turn<'a>, Vec<String>), ApiError> {
        let asked = &request.request.asked;
        let mut prepared = self.preparation.prepare(asked, 0, interrupt.flag())?;
        let reply = prepared.replies.pop().ok_or_else(|| ApiError::invalid("no prompt"))?;
        let PreparedReply { prompt, sampler, parser } = reply;
        let session = Session::new(Arc::clone(&self.loaded.model), self.cache, self.loaded.chunk)?;
        let wanted = Request {
            prompt: &prompt,
            max_tokens: prepared.max_tokens,
            stop: &prepared.stop,
            ignore_eog: prepared.ignore_eog,
            split_thoughts: prepared.split_thoughts,
            cancel: interrupt.flag(),
        };
        let turn = Turn::new(session, sampler, self.format, &wanted)
            .ending(prepared.early)
            .stopping_at(prepared.stop_tokens);
        let turn = match executor::promises_cuts(&*self.loaded.executor) {
            true => turn.drafted(Drafters::new(DraftMode::Auto, suffixes)),
            false => turn,
        };
        let turn = match prepared.prompt_logprobs {
            Some(top) => turn.scoring_prompt(top),
            None => turn,
        };
        let turn = match parser {
            Some(parser) => turn.with_calls(parser),
            None => turn,
        };
        let mut notes = request.notes.clone();
        notes.join("", &prepared.notes);
        Ok((turn, notes.lines()))
    }
}

/// A request that could be read and not be answered.
fn failed(request: &BatchRequest, error: ApiError) -> Refusal {
    let openai = request.shape != request::Shape::Plain;
    Refusal { id: request.id.clone(), error, openai }
}

impl Tally {
    fn tell(&self, replies: usize, took: Duration, out: &mut dyn Write) -> anyhow::Result<()> {
        let seconds = took.as_secs_f64();
        let share = match self.limit > 0.0 {
            true if self.limit <= seconds => {
                format!(" = {:.0} % of limit", 100.0 * self.limit / seconds)
            }
            _ => String::new(),
        };
        writeln!(
            out,
            "{}, {} tokens read, {} written in {seconds:.1} s: {:.1} written a second{share}",
            units::counted(replies, "request"),
            self.prompt,
            self.written,
            self.written as f64 / seconds,
        )?;
        Ok(())
    }
}
