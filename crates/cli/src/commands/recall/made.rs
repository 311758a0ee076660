//! Long texts that are made for their questions.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context as _;
use engine::{Message, RecallCell, RecallKind, RecallPlace, RecallTexts, Session, Tally};
use gguf::escape;
use indicatif::ProgressBar;
use program::CacheOptions;

use super::report::{Cell, Results, Settings};
use super::{Asker, Recall, given};
use crate::exit::Failure;
use crate::load::Loaded;
use crate::missed::MeanMissed;
use crate::{executor, load, naming, picture, ui};

/// Questions of a cell unless told otherwise: two of each tenth of the depth, one in each language.
const QUESTIONS: usize = 20;
const SEED: u64 = 1;

impl Recall {
    /// Make texts, ask, and tell what came of it.
    pub(super) fn of_made(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.plot.iter().try_for_each(|path| self.replace.check(path))?;
        let gguf = self.open()?;
        let mut asker = Asker::new(&gguf)?;
        let trained = models::load(&gguf).context("reading the model")?.config.context_length;
        let lengths = self.lengths(trained);
        let kinds = match &self.kinds[..] {
            [] => vec![RecallKind::PassKey],
            asked => once(asked.iter().copied()),
        };
        let policy = self.cache.options(1, trained).policy;
        if self.given {
            given::memory(&policy)?;
        }
        let cells: Vec<(usize, RecallKind)> = lengths
            .iter()
            .flat_map(|length| kinds.iter().map(move |kind| (*length, *kind)))
            .collect();
        asker.interrupt.begin();
        // before a model is loaded for hours
        for (length, kind) in &cells {
            self.check(&asker, *length, *kind, trained)?;
        }
        asker.interrupt.end();
        let most = lengths.iter().copied().max().unwrap_or(1);
        let loaded = self.load(&gguf, &|_| self.cache.options(most, trained))?;
        let cache = self.cache.options(most, trained);
        load::warn_about_context(&loaded.config, most, &cache.policy);
        let settings = Settings {
            model: naming::description(&gguf, &loaded.config),
            seed: self.seed(),
            questions: self.questions(),
            cache: executor::kept(&cache, loaded.gpu.as_ref()),
            given: self.given,
            chunk: loaded.chunk,
            trained,
        };
        drop(gguf);
        asker.interrupt.begin();
        let bar = ui::count_bar("questions", (cells.len() * self.questions()) as u64);
        let mut results = Results { settings, cells: Vec::new() };
        let mut ended = Ok(());
        for (length, kind) in cells {
            let cache = self.cache.options(length, trained);
            let spilled = loaded.model.stats().spilled;
            let asked = RecallCell::new(kind, length);
            let mut cell = Cell { cell: asked, missed: MeanMissed::default(), spilled };
            ended = self.cell(&mut asker, &loaded, cache, &mut cell, &bar);
            cell.spilled = loaded.model.stats().spilled.since(cell.spilled);
            // what took hours is told, whatever ended it
            if ended.is_ok() || cell.cell.score.asked > 0 {
                results.cells.push(cell);
            }
            if ended.is_err() {
                break;
            }
        }
        asker.interrupt.end();
        bar.finish_and_clear();
        if results.cells.is_empty() {
            return ended;
        }
        if let Some(path) = &self.plot {
            picture::write(path, &results.picture(), self.replace)?;
        }
        if self.json { results.print_json(out) } else { results.print(out) }?;
        ended
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }

    fn questions(&self) -> usize {
        self.questions.unwrap_or(QUESTIONS)
    }

    /// As asked for, each once.
    fn lengths(&self, trained: usize) -> Vec<usize> {
        let asked = if self.ctx_size.is_empty() { &[0][..] } else { &self.ctx_size };
        once(asked.iter().map(|n| if *n == 0 { trained } else { *n }))
    }

    /// Tokens that a reply may have.
    fn reply(&self, kind: RecallKind) -> usize {
        self.n_predict.unwrap_or(kind.reply_tokens())
    }

    /// Whether texts of a kind can be as short as this.
    fn check(
        &self,
        asker: &Asker,
        length: usize,
        kind: RecallKind,
        trained: usize,
    ) -> anyhow::Result<()> {
        let measure = |message: &str| tokens(asker, message);
        let texts = RecallTexts::new(self.seed(), &measure);
        let reply = self.reply(kind);
        let places = kind.places(self.questions());
        let prompt = length.saturating_sub(reply);
        let name = || format!("texts of {}", kind.name());
        let least =
            texts.least(kind, prompt, &places).map_err(|error| asker.stopped(error, &name))?;
        if least > prompt || length < reply {
            let (kind, least) = (kind.name(), least + reply);
            let problem =
                format!("-c {length} is too short for {kind}: {least} tokens are the least");
            return Err(Failure::Usage(problem).into());
        }
        if self.given {
            let place = places.first().context("a cell without questions")?;
            let question = texts.question(kind, prompt, place);
            let question = question.map_err(|error| asker.stopped(error, &name))?;
            given::cache(asker, self.cache.options(length, trained), kind, &question)?;
        }
        Ok(())
    }

    /// Ask all questions of a kind about texts of a length; `cell` knows of those that were answered.
    fn cell(
        &self,
        asker: &mut Asker,
        loaded: &Loaded,
        cache: CacheOptions,
        cell: &mut Cell,
        bar: &ProgressBar,
    ) -> anyhow::Result<()> {
        let (kind, length) = (cell.cell.kind, cell.cell.length);
        let reply = self.reply(kind);
        let open = |cache| Session::new(Arc::clone(&loaded.model), cache, loaded.chunk);
        let mut session = open(cache)?;
        for (place, i) in kind.places(self.questions()).into_iter().zip(1..) {
            let score = cell.cell.score;
            bar.set_message(format!(
                "{} {length}: {}/{} right",
                kind.name(),
                score.right,
                score.asked
            ));
            let name = || format!("{} of {length} tokens, question {i}", kind.name());
            let question = {
                let measure = |message: &str| tokens(asker, message);
                let texts = RecallTexts::new(self.seed(), &measure);
                let made = texts.question(kind, length - reply, &place);
                made.map_err(|error| asker.stopped(error, &name))?
            };
            let prompt = asker.prompt(&[Message::new("user", &*question.message)]);
            let prompt = prompt.map_err(|error| asker.stopped(error, &name))?;
            if self.given {
                let cache = given::cache(asker, cache, kind, &question)?;
                // the memory of the one before it goes first
                drop(session);
                session = open(cache)?;
            }
            let said = asker.ask(&mut session, &prompt, reply, &name)?;
            let right = question.answer.right(&said.text);
            if self.verbose.verbose && !right {
                ui::note(format_args!(
                    "{}{}: wanted `{}`, got `{}`",
                    name(),
                    at(&place),
                    question.answer,
                    escape(&said.text, 200)
                ));
            }
            cell.cell.add(&place, right, &said.stats);
            cell.missed.add(&session.readings()?);
            bar.inc(1);
        }
        if self.verbose.verbose {
            let Tally { right, asked } = cell.cell.score;
            ui::note(format_args!("{} of {length} tokens: {right} of {asked} right", kind.name()));
        }
        Ok(())
    }
}

/// Each of them once, in their order.
fn once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// Length of the prompt that a message becomes.
pub(super) fn tokens(asker: &Asker, message: &str) -> engine::Result<usize> {
    Ok(asker.prompt(&[Message::new("user", message)])?.len())
}

/// Where the answer stands, for a note.
fn at(place: &RecallPlace) -> String {
    place.depth().map_or_else(String::new, |depth| format!(" at {:.0} %", depth * 100.0))
}
