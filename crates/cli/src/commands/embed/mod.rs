//! `embed`: what a model says of whole texts: vectors, or how well they answer a question.

mod output;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context as _;
use engine::{DEFAULT_CHUNK, Normalization, TextReader};
use gguf::Gguf;
use models::{LoadedModel, Pooling};
use program::HiddenRows;
use tokenizer::Tokenizer;

use crate::args::{self, CacheArgs, ThreadArgs, VerboseArgs};
use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::input::TextSource;
use crate::interrupt::Interrupt;
use crate::load::{self, LoadOptions};
use crate::{ui, units};
use output::Said;

/// Turn texts into vectors, or rank them by a question
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight embed -m bge-small.gguf 'A text' 'Another one'\n  \
                        rooflight embed -m bge-small.gguf --json -f lines.txt\n  \
                        rooflight embed -m qwen3-reranker.gguf --query 'Who wrote it?' -f passages.txt\n\n\
                        Without texts, stdin is read, a text in each line. A line of numbers comes out for each text, in \
                        their order; with --query score, number (from 0) and text, the best first: what a model that ranks says, or the \
                        cosine of the vectors of one that embeds.")]
pub(super) struct Embed {
    /// GGUF file; any part of a sharded model
    #[arg(value_name = "MODEL")]
    first: Option<OsString>,
    /// The texts; - for stdin, a text in each line
    #[arg(value_name = "TEXT")]
    texts: Vec<OsString>,
    /// The model, instead of the first argument [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// A text, behind those that are arguments
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<OsString>,
    /// Read texts from a file, one in each line; - for stdin
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<PathBuf>,
    /// Rank the texts by how well they answer or match this
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    query: Option<String>,
    /// Pooling: none, mean, cls, last, rank [default: the file's]
    #[arg(long, value_name = "TYPE", value_parser = pooling)]
    pooling: Option<Pooling>,
    /// Norm of the vectors: -1 for none, 2 Euclidean
    ///
    /// 0: maximum scaled to 32760, 1: sum, P: P-norm [default: 2]
    #[arg(long, alias = "embd-normalize", value_name = "N", allow_hyphen_values = true, value_parser = normalization)]
    normalize: Option<Normalization>,
    /// Print one JSON object, as OpenAI's API returns it
    ///
    /// With --query as Jina's does
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    verbose: VerboseArgs,
}

/// Returns the cosine of the angle between two vectors of the same length; 0 if one of them is zero.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { (dot(a, b) / lengths) as f32 } else { 0.0 }
}

impl Embed {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let (model, source) = self.resolve(args::variable())?;
        let gguf = load::open(&model)?;
        let loaded = load::reader(load::known(&gguf, self.pooling)?)?;
        let ranks = loaded.config.text.as_ref().is_some_and(|text| text.pooling == Pooling::Rank);
        self.check(ranks)?;
        let texts = source.read()?;
        let tokenizer = load::tokenizer(&gguf)?;
        let mut tokens = self.encode(&gguf, &tokenizer, &loaded, &texts)?;
        let compared = self.query.as_ref().filter(|_| !ranks);
        if let Some(query) = compared {
            tokens.insert(0, tokenizer.encode_whole(query).context("encoding the query")?);
        }
        check_lengths(&loaded, &tokens, compared.is_some())?;
        let name = loaded.config.name.clone();
        let n_tokens = tokens.iter().map(Vec::len).sum();

        let start = Instant::now();
        let mut rows = self.read(gguf, loaded, &tokens)?;
        if self.verbose.verbose {
            let rate = units::rate(n_tokens, start.elapsed());
            let texts = units::counted(texts.len(), "text");
            ui::note(format_args!("{n_tokens} tokens, {texts}, {rate:.1} tokens/s"));
        }
        let name = name.unwrap_or_else(|| crate::output::shown(&model));
        let said = Said { model: &name, n_tokens, texts: &texts };
        if ranks {
            let scores = rows.iter().map(|rows| engine::relevance(&rows.hidden)).collect();
            return said.ranks(scores, self.json, out);
        }
        if compared.is_some() {
            let query = rows.remove(0).hidden;
            let scores = rows.iter().map(|rows| cosine(&query, &rows.hidden)).collect();
            return said.ranks(scores, self.json, out);
        }
        let by = self.normalize.unwrap_or(Normalization::Norm(2));
        for rows in &mut rows {
            let width = rows.hidden_size.max(1);
            rows.hidden.chunks_exact_mut(width).for_each(|vector| by.apply(vector));
        }
        said.vectors(&rows, self.pooling_of_rows(&rows), self.json, out)
    }

    /// The model's path, and where the texts are from.
    fn resolve(&self, variable: Option<OsString>) -> Result<(PathBuf, Texts), Failure> {
        let none = || Failure::Usage("no model: rooflight embed -m MODEL TEXT...".into());
        let mut texts = self.texts.clone();
        let first = self.first.clone();
        let (model, text) = match (&self.model, first, variable) {
            (Some(model), text, _) => (model.clone(), text),
            (None, Some(first), Some(model)) if !args::looks_like_a_file(&first) => {
                (model.into(), Some(first))
            }
            (None, Some(model), _) => (model.into(), None),
            (None, None, variable) => (variable.ok_or_else(none)?.into(), None),
        };
        texts.splice(0..0, text);
        texts.extend(self.prompt.clone());
        match &self.file {
            Some(_) if !texts.is_empty() => {
                Err(Failure::Usage("texts are given twice: as arguments and by -f".into()))
            }
            Some(file) => Ok((model, Texts::Lines(TextSource::of_path(file.clone())))),
            None if texts.is_empty() || texts == ["-"] => {
                Ok((model, Texts::Lines(TextSource::Stdin)))
            }
            None => Ok((model, Texts::Given(texts))),
        }
    }

    /// Refuse options that the model has no use for.
    fn check(&self, ranks: bool) -> Result<(), Failure> {
        let wrong = match (ranks, &self.query) {
            (true, None) => "this model ranks texts: --query 'TEXT' says what they are to answer",
            (false, Some(_)) if self.pooling == Some(Pooling::None) => {
                "--query compares texts, and --pooling none has a vector for each token"
            }
            (false, Some(_)) if self.normalize.is_some() => {
                "--normalize is about vectors that are printed; --query prints how near they are"
            }
            (true, _) if self.normalize.is_some() => {
                "--normalize is about vectors; this model ranks"
            }
            _ => return Ok(()),
        };
        Err(Failure::Usage(wrong.into()))
    }

    fn encode(
        &self,
        gguf: &Gguf,
        tokenizer: &Tokenizer,
        loaded: &LoadedModel,
        texts: &[String],
    ) -> anyhow::Result<Vec<Vec<u32>>> {
        let template =
            gguf.metadata().str(engine::RERANK_TEMPLATE).context("reading the rerank template")?;
        let ranks = loaded.config.text.as_ref().is_some_and(|text| text.pooling == Pooling::Rank);
        if self.query.is_some() && ranks && loaded.config.n_token_types.is_some_and(|n| n > 1) {
            ui::warn(
                "the model tells questions from answers by token types: all are read as the first type here",
            );
        }
        let mut given = self.query.iter().chain(texts);
        given.try_for_each(|text| load::warn_lost(tokenizer, text))?;
        let prompt = self.query.as_ref().filter(|_| ranks);
        let prompt = prompt.map(|query| engine::RerankPrompt::new(tokenizer, template, query));
        let prompt = prompt.transpose().context("encoding the query")?;
        let encode = |text: &String| match &prompt {
            None => tokenizer.encode_whole(text).map_err(engine::Error::from),
            Some(prompt) => prompt.with(tokenizer, text),
        };
        texts.iter().map(|text| encode(text).context("encoding the texts")).collect()
    }

    /// Load the model and have it read the texts.
    fn read(
        &self,
        gguf: Gguf,
        loaded: LoadedModel,
        tokens: &[Vec<u32>],
    ) -> anyhow::Result<Vec<HiddenRows>> {
        let longest = tokens.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let whole = loaded.config.reads_at_once();
        let chunk = self.cache.chunk.unwrap_or(DEFAULT_CHUNK);
        let options = LoadOptions {
            chunk: Some(if whole { chunk.max(longest) } else { chunk }),
            ..self.cache.load_options(&self.threads, self.verbose)
        };
        let rows = loaded.config.text_rows().context("the model says nothing of texts")?;
        let cache = self.cache.options(longest, loaded.config.context_length);
        let interrupt = Interrupt::install();
        let loaded = load::ready(&gguf, loaded, &self.executor, &options, &cache)?;
        // from here on the weights are the executor's; the file's pages may go
        drop(gguf);
        let mut reader = TextReader::new(Arc::clone(&loaded.model), cache, rows, chunk)?;
        interrupt.begin();
        let bar = ui::count_bar("texts", tokens.len() as u64);
        let rows = reader.read(tokens, &mut |done| {
            bar.set_position(done as u64);
            !interrupt.flag().load(Ordering::Relaxed)
        });
        bar.finish_and_clear();
        interrupt.end();
        Ok(rows?.ok_or(Failure::Interrupted)?)
    }

    /// Whether each text has a vector for each of its tokens.
    fn pooling_of_rows(&self, rows: &[HiddenRows]) -> output::Vectors {
        if self.pooling == Some(Pooling::None) || rows.iter().any(|rows| rows.rows().len() != 1) {
            output::Vectors::OfTokens
        } else {
            output::Vectors::OfTexts
        }
    }
}

/// Where texts are from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Texts {
    Given(Vec<OsString>),
    /// One in each line.
    Lines(TextSource),
}

impl Texts {
    fn read(self) -> anyhow::Result<Vec<String>> {
        let texts: Vec<String> = match self {
            Texts::Given(texts) => {
                let each = texts.into_iter().map(|text| TextSource::Argument(text).read());
                each.collect::<anyhow::Result<_>>()?
            }
            Texts::Lines(source) => source.read()?.lines().map(str::to_owned).collect(),
        };
        if texts.is_empty() {
            return Err(Failure::Usage("no texts: one in each line is wanted".into()).into());
        }
        Ok(texts)
    }
}

/// Refuse texts that the model cannot read as a whole.
/// `with_query`: whether the first text is the query.
fn check_lengths(
    loaded: &LoadedModel,
    tokens: &[Vec<u32>],
    with_query: bool,
) -> anyhow::Result<()> {
    let capacity = loaded.config.context_length;
    for (i, tokens) in tokens.iter().enumerate() {
        let which = || match (with_query, i) {
            (true, 0) => "the query".to_owned(),
            _ => format!("text {}", i + 1 - usize::from(with_query)),
        };
        if tokens.is_empty() {
            return Err(Failure::Usage("the text is empty".into())).with_context(which);
        }
        if tokens.len() > capacity {
            let wanted = tokens.len();
            let long = rooflight::Error::TooLong { wanted, capacity, trained: capacity };
            return Err(long).with_context(which);
        }
    }
    Ok(())
}

/// Returns the pooling of this name.
pub(super) fn pooling(name: &str) -> Result<Pooling, String> {
    Pooling::ALL.into_iter().find(|pooling| pooling.name() == name).ok_or_else(|| {
        let names = Pooling::ALL.map(Pooling::name).join(", ");
        format!("expected one of {names}")
    })
}

fn normalization(text: &str) -> Result<Normalization, String> {
    let n = text.trim().parse().ok().and_then(Normalization::numbered);
    n.ok_or_else(|| "expected -1, 0 or the P of a norm".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(words: &[&str], variable: Option<&str>) -> Result<(PathBuf, Texts), String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            embed: Embed,
        }
        let line = <Line as clap::Parser>::try_parse_from([&["embed"], words].concat());
        let line = line.map_err(|e| e.to_string())?;
        line.embed.resolve(variable.map(Into::into)).map_err(|e| e.to_string())
    }

    #[test]
    fn models_are_told_from_texts() {
        let given = |model: &str, texts: &[&str]| {
            Ok((model.into(), Texts::Given(texts.iter().map(Into::into).collect())))
        };
        assert_eq!(resolved(&["m.gguf", "a", "b"], None), given("m.gguf", &["a", "b"]));
        assert_eq!(resolved(&["-m", "m.gguf", "a", "b"], None), given("m.gguf", &["a", "b"]));
        assert_eq!(resolved(&["a", "b"], Some("v.gguf")), given("v.gguf", &["a", "b"]));
        assert_eq!(resolved(&["m.gguf", "b"], Some("v.gguf")), given("m.gguf", &["b"]));
        assert_eq!(resolved(&["m.gguf", "-p", "-b"], None), given("m.gguf", &["-b"]));
        let lines = |model: &str, from| Ok((model.into(), Texts::Lines(from)));
        assert_eq!(resolved(&["m.gguf"], None), lines("m.gguf", TextSource::Stdin));
        assert_eq!(resolved(&["m.gguf", "-"], None), lines("m.gguf", TextSource::Stdin));
        let file = TextSource::File("x".into());
        assert_eq!(resolved(&["m.gguf", "-f", "x"], None), lines("m.gguf", file));
        assert!(resolved(&[], None).unwrap_err().contains("no model"));
        assert!(resolved(&["m.gguf", "a", "-f", "x"], None).unwrap_err().contains("twice"));
    }

    #[test]
    fn names_and_numbers_of_options() {
        assert_eq!(pooling("cls"), Ok(Pooling::Cls));
        assert!(pooling("max").unwrap_err().contains("none, mean, cls, last, rank"));
        assert_eq!(normalization("-1"), Ok(Normalization::None));
        assert_eq!(normalization("2"), Ok(Normalization::Norm(2)));
        assert!(normalization("-2").is_err() && normalization("x").is_err());
    }
}
