//! Forms: compiled once, within bounds of work and time, then given to any number of replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use engine::{Constraint, Notes};
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use tokenizer::Tokenizer;

use crate::budget::{CompileBudget, POLL, Place};
use crate::error::first_line;
use crate::runs::RunTokens;
use crate::state::FormState;
use crate::work::Work;
use crate::{
    FormPart, GrammarError, Result, TokenTrie, adapt, gbnf, lark, limits, parts, regex, schema,
};

/// How long a form may take to compile once it has been found small enough.
const COMPILE: Duration = Duration::from_millis(500);
/// Bytes of the compiler's stack: several times what the longest allowed path takes, about 8 KiB for each reference of a schema.
/// The system provides the memory as it is used.
pub(crate) const STACK: usize = 64 << 20;
/// Bytes of a form from which on it is checked in a process of its own first, where there is one for that.
const CHECKED: usize = 4 << 10;

/// Where a form comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormSource {
    /// A JSON schema, as text.
    JsonSchema(String),
    /// A regular expression that a reply matches as a whole.
    Regex(String),
    /// A grammar in llguidance's Lark, or in GBNF.
    Grammar(String),
    /// Parts one after the other, among them texts with control tokens.
    Parts(Vec<FormPart>),
}

impl FormSource {
    /// What it is, for errors.
    fn what(&self) -> &'static str {
        match self {
            FormSource::JsonSchema(_) => schema::WHAT,
            FormSource::Regex(_) => regex::WHAT,
            FormSource::Grammar(_) => gbnf::WHAT,
            FormSource::Parts(_) => parts::WHAT,
        }
    }
}

/// Checks the size of a form, and returns the grammar to compile and whether its compilation is doubtful. Parts need a tokenizer.
/// Constraints that are not enforced are added to `notes`.
///
/// # Errors
/// [`GrammarError`]: what cannot be read, or is too large.
pub(crate) fn read(
    source: &FormSource,
    tokenizer: Option<&Tokenizer>,
    notes: &mut Notes,
) -> Result<(TopLevelGrammar, bool)> {
    let mut work = Work::default();
    let (grammar, n_bytes) = match source {
        FormSource::JsonSchema(text) => {
            (TopLevelGrammar::from_json_schema(schema::read(text, &mut work, notes)?), text.len())
        }
        FormSource::Regex(text) => {
            regex::check(regex::WHAT, text, "", &mut work)?;
            (TopLevelGrammar::from_regex(text), text.len())
        }
        FormSource::Grammar(text) => {
            limits::check(gbnf::WHAT, "bytes", text.len() as u64, limits::BYTES)?;
            let rules = text.lines().filter(|line| line.contains(':')).count() as u64;
            limits::check(gbnf::WHAT, "rules", rules, limits::RULES)?;
            let text = match gbnf::is_gbnf(text) {
                true => gbnf::to_lark(text)?,
                false => text.clone(),
            };
            lark::check(&text, &mut work)?;
            let n_bytes = text.len();
            (TopLevelGrammar::from_lark(text), n_bytes)
        }
        FormSource::Parts(all) => {
            let lark = parts::lark(all, tokenizer, &mut work, notes)?;
            lark::references(&lark::tokens(&lark)?).check(parts::WHAT)?;
            let n_bytes = lark.len();
            (TopLevelGrammar::from_lark(lark), n_bytes)
        }
    };
    Ok((grammar, work.is_doubtful() || n_bytes > CHECKED))
}

/// Compiles a grammar to where a reply begins, and computes the tokens that may come first.
///
/// # Errors
/// What llguidance says.
pub(crate) fn started(
    factory: &ParserFactory,
    grammar: TopLevelGrammar,
) -> std::result::Result<Matcher, String> {
    let mut start = Matcher::new(factory.create_parser(grammar));
    match start.get_error() {
        Some(error) => Err(error),
        None => start.compute_mask_or_eos().map(|_| start).map_err(|error| error.to_string()),
    }
}

/// What a reply must be.
pub struct Form {
    start: Matcher,
    tokenizer: Arc<Tokenizer>,
    /// Tokens that continue runs, if the whole form is JSON.
    runs: Option<Arc<RunTokens>>,
    notes: Notes,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form").finish_non_exhaustive()
    }
}

/// What the thread of a compilation says.
enum Progress {
    /// The form has been read and checked: it is compiled now.
    Compiles,
    /// It has ended.
    Ended(Box<Result<(Matcher, Notes)>>),
}

impl Form {
    /// Compiles a form for a model's tokens. It allows at least one first token.
    ///
    /// At most two forms are compiled at once in a process. A compilation for which the time of the budget, or half a second of
    /// its own, is not enough is given up: its thread ends at the next step, and has its place until then.
    ///
    /// # Errors
    /// [`GrammarError`]: what cannot be read, is too large, or what nothing satisfies; no place or no time for it.
    pub fn compile(
        source: &FormSource,
        tokens: &TokenTrie,
        budget: &CompileBudget,
    ) -> Result<Form> {
        let what = source.what();
        let place = Place::take(budget, what)?;
        let (sender, progress) = channel();
        let waiter = Waiter { what, budget: budget.clone(), abandoned: Arc::default() };
        let compilation = Compilation {
            what,
            source: source.clone(),
            tokens: tokens.clone(),
            budget: budget.clone(),
            abandoned: Arc::clone(&waiter.abandoned),
        };
        let run = move || {
            let result = compilation.run(&sender);
            // the waiter may have given up
            let _ = sender.send(Progress::Ended(Box::new(result)));
            drop((compilation, sender));
            drop(place);
        };
        let thread =
            std::thread::Builder::new().name("compile".into()).stack_size(STACK).spawn(run);
        thread.map_err(|error| GrammarError::Malformed { what, problem: error.to_string() })?;
        let (start, notes) = waiter.wait(&progress)?;
        let is_json = match source {
            FormSource::JsonSchema(_) => true,
            FormSource::Parts(all) => !parts::has_text(all),
            FormSource::Regex(_) | FormSource::Grammar(_) => false,
        };
        Ok(Form {
            start,
            tokenizer: Arc::clone(&tokens.tokenizer),
            runs: is_json.then(|| Arc::clone(&tokens.runs)),
            notes,
        })
    }

    /// The form of one reply, of which nothing has come.
    pub fn begin(&self) -> Box<dyn Constraint> {
        let runs = self.runs.clone();
        Box::new(FormState::new(self.start.deep_clone(), Arc::clone(&self.tokenizer), runs))
    }

    /// Returns a warning for each constraint of the schemas that is not enforced.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }
}

/// The caller of a compilation. The compilation ends at its next step once this is dropped.
struct Waiter {
    what: &'static str,
    budget: CompileBudget,
    abandoned: Arc<AtomicBool>,
}

impl Waiter {
    fn wait(&self, progress: &Receiver<Progress>) -> Result<(Matcher, Notes)> {
        let mut end: Option<Instant> = None;
        loop {
            match progress.recv_timeout(POLL) {
                Ok(Progress::Ended(result)) => return *result,
                Ok(Progress::Compiles) => end = Some(Instant::now() + COMPILE),
                // it panicked
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(GrammarError::TooCostly { what: self.what });
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.budget.check(self.what)?;
                    if end.is_some_and(|end| Instant::now() >= end) {
                        return Err(GrammarError::TooCostly { what: self.what });
                    }
                }
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// A compilation in its thread.
struct Compilation {
    what: &'static str,
    source: FormSource,
    tokens: TokenTrie,
    budget: CompileBudget,
    abandoned: Arc<AtomicBool>,
}

impl Compilation {
    fn run(&self, progress: &Sender<Progress>) -> Result<(Matcher, Notes)> {
        self.check()?;
        let mut notes = Notes::default();
        let (grammar, is_doubtful) = read(&self.source, Some(&self.tokens.tokenizer), &mut notes)?;
        self.check()?;
        if let Some(checker) = self.tokens.checker.as_ref().filter(|_| is_doubtful) {
            let n_tokens = u32::try_from(self.tokens.tokenizer.vocab_size()).unwrap_or(u32::MAX);
            checker.check(self.what, &grammar, n_tokens, &self.budget)?;
            self.check()?;
        }
        let _ = progress.send(Progress::Compiles);
        let start = started(&self.tokens.factory, grammar);
        let mut start = start.map_err(|error| refused(self.what, &error))?;
        adapt::add_warnings(&start.grammar_warnings(), &mut notes);
        Ok((start, notes))
    }

    /// Whether anybody waits for it.
    fn check(&self) -> Result<()> {
        match self.abandoned.load(Ordering::Relaxed) {
            true => Err(GrammarError::Cancelled),
            false => self.budget.check(self.what),
        }
    }
}

/// The refusal of the compiler.
pub(crate) fn refused(what: &'static str, error: &str) -> GrammarError {
    let problem = first_line(error);
    match problem.to_lowercase() {
        lower if lower.contains("unsatisfiable") => {
            let problem = problem.split_once(": ").map_or(problem.as_str(), |(_, rest)| rest);
            GrammarError::Unsatisfiable { what, problem: problem.to_owned() }
        }
        lower if lower.contains("noextension") || lower.contains("no extension") => {
            let problem = "no token can begin it".to_owned();
            GrammarError::Unsatisfiable { what, problem }
        }
        _ => GrammarError::Malformed { what, problem },
    }
}
