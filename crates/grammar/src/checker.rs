//! A second line of defence: doubtful forms are compiled in a process of their own first, which the system ends where it takes too
//! much memory or time. A form that ends that process is refused; the process that serves continues.
//!
//! The other process knows no model. It compiles for a vocabulary of single bytes with as many tokens as the model has. What takes
//! memory and time without bound is in the automata of a form, which do not depend on the vocabulary; the first mask does, and is
//! bounded by llguidance's own limits.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Notes;
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use crate::budget::{CompileBudget, POLL};
use crate::error::first_line;
use crate::form::{self, FormSource};
use crate::vocabulary::limits;
use crate::{GrammarError, Result};

/// How doubtful forms are compiled in a process of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormChecker {
    /// A program and its arguments. It reads a request from standard input, passes it to [`check_request`], and writes the line
    /// that this returns. `--memory BYTES --seconds N` are appended: the limits that it sets for itself.
    pub command: Vec<OsString>,
    /// Most bytes of its address space.
    pub memory: u64,
    /// Longest wall-clock time of a check. Its whole seconds are the limit of processor time.
    pub time: Duration,
}

/// Longest answer of a check, in bytes.
const ANSWER: u64 = 4096;

impl FormChecker {
    /// One gigabyte, and 1.5 seconds.
    pub fn new(command: Vec<OsString>) -> FormChecker {
        FormChecker { command, memory: 1 << 30, time: Duration::from_millis(1500) }
    }

    /// Compiles a form in another process.
    ///
    /// # Errors
    /// [`GrammarError::TooCostly`] where the process was ended or failed, what the compiler refused, [`GrammarError::Cancelled`].
    pub(crate) fn check(
        &self,
        what: &'static str,
        grammar: &TopLevelGrammar,
        n_tokens: u32,
        budget: &CompileBudget,
    ) -> Result<()> {
        let request = json!({ "grammar": grammar, "n_tokens": n_tokens }).to_string();
        let too_costly = GrammarError::TooCostly { what };
        let failed = |error: std::io::Error| GrammarError::Malformed {
            what,
            problem: format!("it cannot be checked: {error}"),
        };
        let end = Instant::now() + self.time.min(budget.left());
        let mut child = Running(self.start().map_err(failed)?);
        let answer = child.ask(request);
        let line = loop {
            match answer.recv_timeout(POLL) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Disconnected) => return Err(too_costly),
                Err(RecvTimeoutError::Timeout) => {
                    budget.check(what)?;
                    if Instant::now() >= end {
                        return Err(too_costly);
                    }
                }
            }
        };
        match serde_json::from_str::<Value>(&line) {
            Ok(Value::Object(answer)) => match answer.get("error").and_then(Value::as_str) {
                Some(error) => Err(form::refused(what, error)),
                None if answer.contains_key("ok") => Ok(()),
                None => Err(too_costly),
            },
            // it was ended before it wrote anything
            _ => Err(too_costly),
        }
    }

    fn start(&self) -> std::io::Result<Child> {
        let (program, arguments) = self.command.split_first().ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "there is no command for it")
        })?;
        Command::new(program)
            .args(arguments)
            .arg("--memory")
            .arg(self.memory.to_string())
            .arg("--seconds")
            .arg(self.time.as_secs().max(1).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    }
}

/// A process that ends with what holds it.
struct Running(Child);

impl Running {
    /// Writes a request and returns what comes as an answer.
    fn ask(&mut self, request: String) -> std::sync::mpsc::Receiver<String> {
        let (sender, answer) = channel();
        let (stdin, stdout) = (self.0.stdin.take(), self.0.stdout.take());
        // it reads all before it writes, so that one thread is enough; it ends when the process does
        let talk = move || {
            if let Some(mut stdin) = stdin
                && stdin.write_all(request.as_bytes()).is_err()
            {
                return;
            }
            let mut line = String::new();
            if let Some(stdout) = stdout
                && stdout.take(ANSWER).read_to_string(&mut line).is_ok()
            {
                let _ = sender.send(line);
            }
        };
        // without a thread nothing is sent, and the check fails
        let _ = std::thread::Builder::new().name("check-form".into()).spawn(talk);
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // fails only where it has ended
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does what a request says, in the process that a [`FormChecker`] starts, and returns the answer in a line of JSON.
///
/// A request is `{"grammar": …, "n_tokens": …}`, as the checker writes it, or `{"kind": "json_schema" | "regex" | "grammar", "text":
/// …, "n_tokens": …}`, whose text is measured first, as that of any form.
pub fn check_request(request: &str) -> String {
    let answer = match checked(request) {
        Ok(()) => json!({ "ok": true }),
        // the compiler shows the lines around an error
        Err(error) => json!({ "error": first_line(&error) }),
    };
    answer.to_string()
}

fn checked(request: &str) -> Result<(), String> {
    let request: Value = serde_json::from_str(request).map_err(|error| error.to_string())?;
    let text = |key: &str| request.get(key).and_then(Value::as_str).map(str::to_owned);
    let n_tokens = request.get("n_tokens").and_then(Value::as_u64).unwrap_or(0);
    let n_tokens = u32::try_from(n_tokens).map_err(|error| error.to_string())?.max(257);
    let grammar = match (text("kind"), text("text")) {
        (None, None) => {
            let grammar = request.get("grammar").cloned().unwrap_or_default();
            serde_json::from_value(grammar).map_err(|error| error.to_string())?
        }
        (Some(kind), Some(text)) => {
            let source = match kind.as_str() {
                "json_schema" => FormSource::JsonSchema(text),
                "regex" => FormSource::Regex(text),
                "grammar" => FormSource::Grammar(text),
                _ => return Err(format!("expected json_schema, regex or grammar, found {kind}")),
            };
            form::read(&source, None, &mut Notes::default()).map_err(|error| error.to_string())?.0
        }
        _ => return Err("expected kind and text".to_owned()),
    };
    let factory = factory(n_tokens).map_err(|error| error.to_string())?;
    let run = move || form::started(&factory, grammar).map(|_| ());
    let thread = std::thread::Builder::new().stack_size(form::STACK).spawn(run);
    let thread = thread.map_err(|error| error.to_string())?;
    thread.join().unwrap_or_else(|_| Err("the compiler failed".to_owned()))
}

/// What compiles for a vocabulary of this size: that of the last call, if it was for the same size. Making its tables takes
/// most of the time that a small form takes.
fn factory(n_tokens: u32) -> anyhow::Result<Arc<ParserFactory>> {
    static LAST: Mutex<Option<(u32, Arc<ParserFactory>)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, factory)) = last.as_ref().filter(|(known, _)| *known == n_tokens) {
        return Ok(Arc::clone(factory));
    }
    let made = new_factory(n_tokens)?;
    *last = Some((n_tokens, Arc::clone(&made)));
    Ok(made)
}

/// Makes what compiles for single bytes and `n_tokens - 256` tokens without text, the last of which ends replies.
fn new_factory(n_tokens: u32) -> anyhow::Result<Arc<ParserFactory>> {
    let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    words.resize(n_tokens as usize, Vec::new());
    // the byte that marks control tokens is no text
    words[usize::from(TokTrie::SPECIAL_TOKEN_MARKER)].clear();
    let trie = TokTrie::from(&TokRxInfo::new(n_tokens, n_tokens - 1), &words);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = llguidance::earley::SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)?;
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(Arc::new(factory))
}
