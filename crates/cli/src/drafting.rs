//! Options of drafts: what guesses tokens ahead, and the smaller model that may.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use console::counts;
use engine::{DraftMode, Drafters, Session, Suffixes};
use gguf::Gguf;
use program::CacheOptions;
use tokenizer::Tokenizer;

use crate::args::ExecutorArgs;
use crate::exit::Failure;
use crate::load::{self, LoadOptions};
use crate::output::shown;
use crate::storage::StorageArgs;

/// What guesses tokens ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SpecMode {
    /// Nothing
    Off,
    /// What followed the last few tokens earlier in the text
    Lookup,
    /// What followed the longest end of the text in any text of this run
    Suffix,
    /// A smaller model: -md
    Draft,
    /// All that need no second file
    Auto,
}

/// Tokens guessed ahead, several of which one pass checks. The text stays what it is without.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Drafts")]
pub(crate) struct DraftArgs {
    /// Guess tokens ahead where it pays: off, lookup (in this text), suffix (in all texts of this run), draft (by -md), auto [default: auto]
    #[arg(long, value_name = "MODE", value_enum, hide_possible_values = true)]
    spec: Option<SpecMode>,
    /// A smaller model with the same vocabulary, which guesses (-md)
    #[arg(long, value_name = "FILE", alias = "draft-model")]
    model_draft: Option<PathBuf>,
    /// Most tokens to guess for one pass, 1 to 15
    #[arg(long, value_name = "N", aliases = ["draft", "draft-n"], value_parser = most)]
    draft_max: Option<usize>,
}

fn most(text: &str) -> Result<usize, String> {
    counts::tokens(text).ok().filter(|n| (1..=15).contains(n)).ok_or("expected 1 to 15".into())
}

/// Who drafts.
#[derive(Debug, PartialEq, Eq)]
enum Source<'a> {
    Nobody,
    Texts(DraftMode),
    Model(&'a Path),
}

/// How a second model is loaded beside the one it drafts for.
pub(crate) struct SecondModel<'a> {
    /// The file of that one, and its tokenizer.
    pub(crate) target: (&'a Gguf, &'a Tokenizer),
    pub(crate) executor: &'a ExecutorArgs,
    pub(crate) options: LoadOptions,
}

impl DraftArgs {
    /// The drafters for a model; the one of `-md` gets a cache like that which `cache` says for the model's settings.
    ///
    /// # Errors
    /// Options that contradict each other; a second model that cannot be loaded or has another vocabulary.
    pub(crate) fn drafters(
        &self,
        second: &SecondModel<'_>,
        cache: &dyn Fn(&models::ModelConfig) -> CacheOptions,
    ) -> anyhow::Result<Option<Drafters>> {
        let drafters = match self.source()? {
            Source::Nobody => return Ok(None),
            Source::Texts(mode) => Drafters::new(mode, &Arc::<Mutex<Suffixes>>::default()),
            Source::Model(path) => Drafters::by_model(second.session(path, cache)?),
        };
        Ok(Some(self.limited(drafters)))
    }

    fn source(&self) -> Result<Source<'_>, Failure> {
        let refuse = |problem: &str| Err(Failure::Usage(problem.into()));
        match (self.spec, &self.model_draft) {
            (None | Some(SpecMode::Draft), Some(path)) => Ok(Source::Model(path)),
            (Some(SpecMode::Draft), None) => {
                refuse("--spec draft: give the model that drafts by -md FILE")
            }
            (Some(_), Some(_)) => refuse("-md goes with --spec draft, not with another mode"),
            (Some(SpecMode::Off), None) => Ok(Source::Nobody),
            (Some(SpecMode::Lookup), None) => Ok(Source::Texts(DraftMode::Lookup)),
            (Some(SpecMode::Suffix), None) => Ok(Source::Texts(DraftMode::Suffix)),
            (None | Some(SpecMode::Auto), None) => Ok(Source::Texts(DraftMode::Auto)),
        }
    }

    fn limited(&self, drafters: Drafters) -> Drafters {
        match self.draft_max {
            Some(n) => drafters.at_most(n),
            None => drafters,
        }
    }
}

impl SecondModel<'_> {
    /// A session of the model at `path`.
    ///
    /// # Errors
    /// If it cannot be loaded or has another vocabulary.
    pub(crate) fn session(
        &self,
        path: &Path,
        cache: &dyn Fn(&models::ModelConfig) -> CacheOptions,
    ) -> anyhow::Result<Session> {
        let gguf = load::open(path)?;
        let (target, own) = self.target;
        if let Some(difference) = difference(own, &load::tokenizer(&gguf)?) {
            let problem = format!("-md {}: {difference}", shown(path));
            return Err(Failure::Usage(problem).into());
        }
        let config = models::load(target).context("reading the model")?.config;
        let cache = CacheOptions { policy: program::KvPolicy::Full, ..cache(&config) };
        // the bound is on the caches of the model that is asked, not of the one that guesses
        let storage = StorageArgs::default();
        let options =
            LoadOptions { ceilings: false, values: false, storage, ..self.options.clone() };
        let loaded = load::model(&gguf, self.executor, &options, &|_| cache)?;
        Ok(Session::new(loaded.model, cache, loaded.chunk)?)
    }
}

/// The first thing in which two vocabularies differ.
fn difference(own: &Tokenizer, other: &Tokenizer) -> Option<String> {
    let (n, m) = (own.vocab_size(), other.vocab_size());
    let text = |tokenizer: &Tokenizer, id| tokenizer.token_text(id).map(str::to_owned);
    for id in 0..n.min(m) as u32 {
        let (a, b) = (text(own, id), text(other, id));
        if a != b {
            let told = |t: Option<String>| gguf::escape(t.unwrap_or_default(), 40);
            let (a, b) = (told(a), told(b));
            return Some(format!("token {id} is `{b}` there and `{a}` here: it cannot draft"));
        }
        if own.is_eog(id) != other.is_eog(id) {
            return Some(format!("token {id} ends replies of one of the two: it cannot draft"));
        }
    }
    // models of one family pad their tables differently
    (n != m && n.abs_diff(m) > PADDING)
        .then(|| format!("it knows {m} tokens, this model {n}: it cannot draft"))
}

/// Rows by which tables of one vocabulary may differ.
const PADDING: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_a_second_model_agree() {
        let told = |spec, md: Option<&str>| {
            let args = DraftArgs { spec, model_draft: md.map(Into::into), draft_max: None };
            match args.source() {
                Ok(source) => format!("{source:?}"),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(told(Some(SpecMode::Off), None), "Nobody");
        assert_eq!(told(Some(SpecMode::Lookup), None), "Texts(Lookup)");
        assert_eq!(told(None, None), "Texts(Auto)");
        assert_eq!(told(None, Some("x.gguf")), "Model(\"x.gguf\")");
        assert!(told(Some(SpecMode::Draft), None).contains("-md"));
        assert!(told(Some(SpecMode::Auto), Some("x.gguf")).contains("--spec draft"));
        assert_eq!(most("15"), Ok(15));
        assert!(most("0").is_err() && most("16").is_err() && most("x").is_err());
    }
}
