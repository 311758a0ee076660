//! Forms: compiled once, within bounds of work and time, then given to any number of replies.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use engine::Constraint;
use llguidance::Matcher;
use llguidance::api::TopLevelGrammar;
use tokenizer::Tokenizer;

use crate::error::first_line;
use crate::state::FormState;
use crate::{FormPart, GrammarError, Result, TokenTrie, gbnf, limits, parts, paths, schema};

/// How long a form may take to compile. Bounds of work end nearly all sooner.
const COMPILE: Duration = Duration::from_millis(500);
/// Bytes of the compiler's stack: several times what the longest allowed path takes, about 8 KiB for each reference of a schema.
/// The system provides the memory as it is used.
const STACK: usize = 64 << 20;

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
            FormSource::Regex(_) => "regular expression",
            FormSource::Grammar(_) => gbnf::WHAT,
            FormSource::Parts(_) => parts::WHAT,
        }
    }

    /// As what is compiled, once it is found small enough.
    fn read(&self, tokens: &TokenTrie) -> Result<TopLevelGrammar> {
        let what = self.what();
        match self {
            FormSource::JsonSchema(text) => {
                Ok(TopLevelGrammar::from_json_schema(schema::read(text)?))
            }
            FormSource::Regex(text) => {
                limits::check_text(what, text)?;
                Ok(TopLevelGrammar::from_regex(text))
            }
            FormSource::Grammar(text) => {
                limits::check_text(what, text)?;
                let rules = text.lines().filter(|line| line.contains(':')).count() as u64;
                limits::check(what, "rules", rules, limits::RULES)?;
                if gbnf::is_gbnf(text) {
                    return Ok(TopLevelGrammar::from_lark(gbnf::to_lark(text)?));
                }
                paths::of_lark(text).check(what)?;
                Ok(TopLevelGrammar::from_lark(text.clone()))
            }
            FormSource::Parts(all) => {
                let lark = parts::lark(all, &tokens.tokenizer)?;
                paths::of_lark(&lark).check(what)?;
                Ok(TopLevelGrammar::from_lark(lark))
            }
        }
    }
}

/// What a reply must be.
pub struct Form {
    start: Matcher,
    tokenizer: Arc<Tokenizer>,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form").finish_non_exhaustive()
    }
}

impl Form {
    /// Compile a form for a model's tokens. It lets at least one first token through.
    ///
    /// # Errors
    /// [`GrammarError`]: what cannot be read, is too large, or what nothing satisfies.
    pub fn compile(source: &FormSource, tokens: &TokenTrie) -> Result<Form> {
        let what = source.what();
        let grammar = source.read(tokens)?;
        let factory = Arc::clone(&tokens.factory);
        let (done, result) = channel();
        let compile = move || {
            let mut start = Matcher::new(factory.create_parser(grammar));
            let first = match start.get_error() {
                Some(error) => Err(error),
                None => start.compute_mask_or_eos().map(|_| ()).map_err(|error| error.to_string()),
            };
            // nobody waits for what takes too long
            let _ = done.send(first.map(|()| start));
        };
        let failed = |problem: String| GrammarError::Malformed { what, problem };
        std::thread::Builder::new()
            .name("compile".into())
            .stack_size(STACK)
            .spawn(compile)
            .map_err(|error| failed(error.to_string()))?;
        match result.recv_timeout(COMPILE) {
            Ok(Ok(start)) => Ok(Form { start, tokenizer: Arc::clone(&tokens.tokenizer) }),
            Ok(Err(error)) => Err(refused(what, &error)),
            Err(_) => Err(failed(format!("it takes longer than {COMPILE:?} to compile"))),
        }
    }

    /// The form of one reply, of which nothing has come.
    pub fn begin(&self) -> Box<dyn Constraint> {
        Box::new(FormState::new(self.start.deep_clone(), Arc::clone(&self.tokenizer)))
    }
}

/// The refusal of the compiler.
fn refused(what: &'static str, error: &str) -> GrammarError {
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
