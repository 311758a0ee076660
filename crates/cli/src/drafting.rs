//! Options of drafts: what guesses tokens ahead, and the smaller model that may.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use console::counts;
use engine::{DraftMode, Drafters, Session, Suffixes};
use gguf::Gguf;
use program::CacheOptions;
use tokenizer::Tokenizer;

use crate::executor;
use crate::exit::Failure;
use crate::guessing;
use crate::load::{self, LoadOptions, Loaded};
use crate::output::shown;

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
    /// Blocks of the model's own file that guess (multi-token prediction)
    Mtp,
    /// All that look texts up
    Auto,
}

/// Tokens guessed ahead, several of which one pass checks. The text stays what it is without.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct DraftArgs {
    /// Guess tokens ahead where it pays: off, lookup (in this text), suffix (in all texts of this run), draft (by -md), mtp (by blocks of the file made for it), auto: lookup and suffix [default: auto]
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
enum Source {
    Nobody,
    Texts(DraftMode),
    Model(SecondModel),
    Own,
}

/// What guesses, as was asked for; a second model is not loaded yet.
pub(crate) struct DraftPlan {
    source: Source,
    most: Option<usize>,
    /// Whether they were asked for.
    asked: bool,
}

/// A second model, which knows the same tokens as the first.
pub(crate) struct SecondModel(Gguf);

impl DraftArgs {
    /// What guesses for a model whose tokenizer is `own`.
    ///
    /// # Errors
    /// Options that contradict each other; a second model that cannot be read or has another vocabulary.
    pub(crate) fn plan(&self, own: &Tokenizer) -> anyhow::Result<DraftPlan> {
        let source = match (self.mode()?, &self.model_draft) {
            (SpecMode::Off, _) => Source::Nobody,
            (SpecMode::Lookup, _) => Source::Texts(DraftMode::Lookup),
            (SpecMode::Suffix, _) => Source::Texts(DraftMode::Suffix),
            (SpecMode::Mtp, _) => Source::Own,
            (SpecMode::Draft, Some(path)) => Source::Model(SecondModel::open(path, own)?),
            (SpecMode::Auto | SpecMode::Draft, _) => Source::Texts(DraftMode::Auto),
        };
        let asked = self.spec.is_some() || self.model_draft.is_some() || self.draft_max.is_some();
        let asked = asked && !matches!(source, Source::Nobody);
        Ok(DraftPlan { source, most: self.draft_max, asked })
    }

    fn mode(&self) -> Result<SpecMode, Failure> {
        let refuse = |problem: &str| Err(Failure::Usage(problem.into()));
        match (self.spec, &self.model_draft) {
            (None | Some(SpecMode::Draft), Some(_)) => Ok(SpecMode::Draft),
            (Some(SpecMode::Draft), None) => {
                refuse("--spec draft: give the model that drafts by -md FILE")
            }
            (Some(_), Some(_)) => refuse("-md goes with --spec draft, not with another mode"),
            (spec, None) => Ok(spec.unwrap_or(SpecMode::Auto)),
        }
    }
}

impl DraftPlan {
    /// What needs the same bits for any cut of a text, if it was asked for: a text must stay what it is without drafts.
    pub(crate) fn needs(&self) -> Option<&'static str> {
        self.asked.then_some("drafts (--spec)")
    }

    /// Whether blocks of the model's own file are to guess.
    pub(crate) fn by_own_guesses(&self) -> bool {
        matches!(self.source, Source::Own)
    }

    /// The drafters for `first`; a second model gets a cache like `cache`.
    ///
    /// # Errors
    /// A second model that cannot be loaded.
    pub(crate) fn load(
        self,
        first: &Loaded,
        options: &LoadOptions,
        cache: CacheOptions,
    ) -> anyhow::Result<Option<Drafters>> {
        let drafters = match self.source {
            Source::Nobody => return Ok(None),
            _ if !executor::promises_cuts(&*first.executor) => return Ok(None),
            Source::Texts(mode) => {
                let suffixes = Suffixes::within(options.storage.draft_memory());
                Drafters::new(mode, &Arc::new(Mutex::new(suffixes)))
            }
            Source::Model(second) => Drafters::by_model(second.session(first, options, cache)?),
            Source::Own => {
                let guesses = first.guesses.clone().context("a model loaded with its guesses")?;
                let cache = guessing::cache(cache);
                Drafters::by_own_guesses(Session::new(guesses, cache, first.chunk)?)
            }
        };
        Ok(Some(match self.most {
            Some(n) => drafters.at_most(n),
            None => drafters,
        }))
    }
}

impl SecondModel {
    /// The model at `path`, to draft for one whose tokenizer is `own`.
    ///
    /// # Errors
    /// If it cannot be read or has another vocabulary.
    pub(crate) fn open(path: &Path, own: &Tokenizer) -> anyhow::Result<SecondModel> {
        let gguf = load::open(path)?;
        if let Some(difference) = difference(own, &load::tokenizer(&gguf)?) {
            let problem = format!("-md {}: {difference}", shown(path));
            return Err(Failure::Usage(problem).into());
        }
        Ok(SecondModel(gguf))
    }

    /// A session of it, on the threads of `first`.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub(crate) fn session(
        &self,
        first: &Loaded,
        options: &LoadOptions,
        cache: CacheOptions,
    ) -> anyhow::Result<Session> {
        let cache = CacheOptions { policy: program::KvPolicy::Full, ..cache };
        let loaded = load::beside(first, &self.0, options, cache)?;
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
            match args.mode() {
                Ok(mode) => format!("{mode:?}"),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(told(Some(SpecMode::Off), None), "Off");
        assert_eq!(told(Some(SpecMode::Lookup), None), "Lookup");
        assert_eq!(told(None, None), "Auto");
        assert_eq!(told(None, Some("x.gguf")), "Draft");
        assert!(told(Some(SpecMode::Draft), None).contains("-md"));
        assert!(told(Some(SpecMode::Auto), Some("x.gguf")).contains("--spec draft"));
        assert_eq!(most("15"), Ok(15));
        assert!(most("0").is_err() && most("16").is_err() && most("x").is_err());
    }
}
