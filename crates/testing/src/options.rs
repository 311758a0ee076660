//! What options do, as tables that are tried: with one value this is seen, with another that.
//!
//! A table is text. `[run complete] demo.gguf -n 4` begins the rows of some commands, run with these words; a row is
//!
//! ```text
//! option | words beside it | value | other value | where | seen with the value | seen with the other
//! ```
//!
//! - The option is `--ctx-size`, an argument `<MODEL>`, or an option by its variable, `ROOFLIGHT_CTX_SIZE`.
//! - A value is `-` for none, `+` for an option that stands alone. Words with blanks stand in `'` `'`.
//! - Where is `stdout`, a line of it (`line 1`), `stderr`, a `terminal` of 40 columns that stdout is, `exit` (the codes), a pointer into JSON on stdout (`/usage/prompt_tokens`), or a file
//!   (`file out.svg`). Of text and files the part that is named is seen, and not with the other value. `none`: there is no
//!   such value or file. Nothing on both sides: whatever there is, it differs, and comes out alike when tried again.
//!
//! `serve` runs until it says `serving`, and is asked to end then.
//!
//! Commands must succeed, but where an `exit` is looked at or what is seen on stderr begins with `error:`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::Sandbox;

/// Commands are tried so many at once.
const AT_ONCE: usize = 2;

/// Rows about the options of a program.
#[derive(Clone, Debug, Default)]
pub struct OptionTable {
    rows: Vec<OptionRow>,
}

/// One row for one command.
#[derive(Clone, Debug)]
struct OptionRow {
    /// File and line.
    place: String,
    command: String,
    option: String,
    trials: [Trial; 2],
    seen_in: Seen,
    seen: [String; 2],
}

/// A command line: what is set in the environment, and words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Trial {
    variable: Option<(String, String)>,
    words: Vec<String>,
    /// File that is looked at.
    file: Option<String>,
    /// Whether stdout is a terminal.
    terminal: bool,
    /// Of the same line tried again.
    time: usize,
}

/// Where something is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Stdout,
    /// A line of it, from 0 on.
    Line(usize),
    Stderr,
    Terminal,
    Exit,
    Json(String),
    File,
}

/// What came of a command line.
struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
    file: Option<Vec<u8>>,
}

impl OptionTable {
    /// Read tables: the name of each and its text.
    ///
    /// # Panics
    /// If a line is no row.
    pub fn read(texts: &[(&str, &str)]) -> OptionTable {
        let mut rows = Vec::new();
        for (name, text) in texts {
            let mut section = (Vec::new(), Vec::new());
            for (line, number) in text.lines().zip(1..) {
                let place = format!("{name}:{number}");
                if let Some((commands, base)) =
                    line.strip_prefix('[').and_then(|l| l.split_once(']'))
                {
                    section = (words(commands), words(base));
                } else if !line.trim().is_empty() && !line.starts_with('#') {
                    rows.extend(
                        section.0.iter().map(|command| row(&place, command, &section.1, line)),
                    );
                }
            }
        }
        OptionTable { rows }
    }

    /// Leave out rows, with a word why.
    pub fn without(mut self, why: &str, left_out: impl Fn(&str) -> bool) -> OptionTable {
        self.rows.retain(|row| {
            let leave = left_out(&row.option);
            if leave {
                crate::skipped(&format!("{} {}: {why}", row.command, row.option));
            }
            !leave
        });
        self
    }

    /// Options without a row, and rows about options that are not there. `options`: every command with what it takes.
    pub fn gaps(&self, options: &[(String, Vec<String>)]) -> Vec<String> {
        let with_rows: BTreeSet<_> =
            self.rows.iter().map(|row| (row.command.as_str(), long(&row.option))).collect();
        let there: BTreeSet<_> = options
            .iter()
            .flat_map(|(command, names)| names.iter().map(|name| (command.as_str(), name.clone())))
            .collect();
        let missing = there.difference(&with_rows).map(|(c, o)| format!("{c} {o} has no row"));
        let strange = with_rows.difference(&there).map(|(c, o)| format!("{c} has no {o}"));
        missing.chain(strange).collect()
    }

    /// Try every row, each command line in a place of its own. Returns the rows that are not so.
    ///
    /// # Panics
    /// If a command cannot be started.
    pub fn wrong(&self, place: &(dyn Fn() -> Sandbox + Sync)) -> Vec<String> {
        let trials: BTreeSet<&Trial> = self.rows.iter().flat_map(OptionRow::needed).collect();
        let again = self.rows.iter().filter_map(OptionRow::again);
        let all: Vec<Trial> =
            trials.into_iter().cloned().chain(again).collect::<BTreeSet<_>>().into_iter().collect();
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(trial) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let outcome = trial.run(&place());
                        outcomes
                            .lock()
                            .expect("no thread panics while it holds this")
                            .insert(trial, outcome);
                    }
                });
            }
        });
        let outcomes = outcomes.into_inner().expect("no thread panicked");
        self.rows.iter().filter_map(|row| row.problem(&outcomes)).collect()
    }
}

/// `ROOFLIGHT_CTX_SIZE` is `--ctx-size`.
fn long(option: &str) -> String {
    match option.strip_prefix("ROOFLIGHT_") {
        Some(variable) => format!("--{}", variable.to_lowercase().replace('_', "-")),
        None => option.to_owned(),
    }
}

/// Words between blanks; blanks within `'` `'` are part of one.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in text.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// What stands between bars with blanks around them.
fn columns(line: &str) -> Vec<&str> {
    let (mut columns, mut start) = (Vec::new(), 0);
    let blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
    for (at, _) in line.match_indices('|') {
        let (before, after) = (line[..at].chars().next_back(), line[at + 1..].chars().next());
        if blank(before) && blank(after) {
            columns.push(line[start..at].trim());
            start = at + 1;
        }
    }
    columns.push(line[start..].trim());
    columns
}

fn row(place: &str, command: &str, base: &[String], line: &str) -> OptionRow {
    let columns = columns(line);
    let [option, beside, first, second, seen_in, seen_first, seen_second] = columns[..] else {
        panic!("{place}: a row has 7 columns, found {}", columns.len());
    };
    let seen_in = match seen_in {
        "stdout" => Seen::Stdout,
        "stderr" => Seen::Stderr,
        "terminal" => Seen::Terminal,
        "exit" => Seen::Exit,
        pointer if pointer.starts_with('/') => Seen::Json(pointer.to_owned()),
        file if file.starts_with("file ") => Seen::File,
        other => match other.strip_prefix("line ").and_then(|n| n.parse::<usize>().ok()) {
            Some(line @ 1..) => Seen::Line(line - 1),
            _ => panic!("{place}: nothing is seen in `{other}`"),
        },
    };
    let file = columns[4].strip_prefix("file ").map(str::to_owned);
    let trial = |value: &str| {
        let mut line = vec![command.to_owned()];
        line.extend(base.iter().cloned().chain(words(beside)));
        let mut variable = None;
        match (value, option.starts_with("ROOFLIGHT_"), option.starts_with("--")) {
            ("-", ..) => {}
            ("+", false, true) => line.push(option.to_owned()),
            (value, true, _) => variable = Some((option.to_owned(), words(value).concat())),
            (value, _, true) => line.push(format!("{option}={}", words(value).concat())),
            (value, ..) => line.extend(words(value)),
        }
        let terminal = seen_in == Seen::Terminal;
        Trial { variable, words: line, file: file.clone(), terminal, time: 0 }
    };
    let trials = [trial(first), trial(second)];
    assert_ne!(trials[0], trials[1], "{place}: the values are the same");
    let seen = [seen_first.to_owned(), seen_second.to_owned()];
    OptionRow {
        place: place.to_owned(),
        command: command.to_owned(),
        option: option.to_owned(),
        trials,
        seen_in,
        seen,
    }
}

impl Trial {
    fn run(&self, place: &Sandbox) -> Outcome {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let variables = self.variable.as_slice();
        let output = match (words.first(), self.terminal) {
            (Some(&"serve"), _) => place.serve(&words, variables, "serving "),
            (_, true) => output(place.on_terminal(&words), variables),
            (_, false) => output(place.command(&words), variables),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            file: self.file.as_ref().and_then(|file| std::fs::read(place.path(file)).ok()),
        }
    }
}

fn output(mut command: assert_cmd::Command, variables: &[(String, String)]) -> Output {
    command.envs(variables.iter().cloned()).output().expect("the binary starts")
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = self.variable.iter().map(|(name, value)| format!("{name}={value} "));
        write!(f, "{}{}", variable.collect::<String>(), self.words.join(" "))
    }
}

impl OptionRow {
    fn needed(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter()
    }

    /// That what differs does so for the option alone.
    fn again(&self) -> Option<Trial> {
        self.any_difference().then(|| Trial { time: 1, ..self.trials[0].clone() })
    }

    fn any_difference(&self) -> bool {
        self.seen.iter().all(String::is_empty) && self.seen_in != Seen::Exit
    }

    /// What is not as the row says.
    fn problem(&self, outcomes: &BTreeMap<&Trial, Outcome>) -> Option<String> {
        let pair = self.trials.each_ref().map(|trial| &outcomes[trial]);
        let again = self.again().map(|trial| &outcomes[&trial]);
        let what = self.compare(pair, again)?;
        let [first, second] = self.trials.each_ref().map(|trial| {
            let outcome = &outcomes[trial];
            let start = |text: &str| text.chars().take(1500).collect::<String>();
            format!(
                "$ {trial}\n[{}] {}{}",
                outcome.code,
                start(&outcome.stderr),
                start(&outcome.stdout)
            )
        });
        Some(format!("{} {} {}: {what}\n{first}\n{second}", self.place, self.command, self.option))
    }

    fn compare(&self, pair: [&Outcome; 2], again: Option<&Outcome>) -> Option<String> {
        for (outcome, seen) in pair.iter().zip(&self.seen) {
            let fails = self.seen_in == Seen::Stderr && seen.starts_with("error:");
            if self.seen_in != Seen::Exit && (outcome.code != 0) != fails {
                return Some(format!("exit code {}", outcome.code));
            }
            if outcome.stderr.contains("panicked") {
                return Some("a panic".into());
            }
        }
        let [first, second] = pair.map(|outcome| self.look(outcome));
        if self.any_difference() {
            let alike = again.is_some_and(|again| self.look(again) == first);
            return match (first == second, alike) {
                (true, _) => Some("no difference".into()),
                (_, false) => Some("it differs without the option too".into()),
                (false, true) => None,
            };
        }
        let exact = matches!(self.seen_in, Seen::Exit | Seen::Json(_));
        for (i, [here, there]) in [[&first, &second], [&second, &first]].into_iter().enumerate() {
            let wanted = &self.seen[i];
            let is_there = |found: &Option<String>| match (found, exact, wanted.as_str()) {
                (found, _, "none") => found.is_none(),
                (None, ..) => false,
                (Some(found), true, wanted) => found == wanted,
                (Some(found), false, wanted) => found.contains(wanted),
            };
            if wanted.is_empty() {
                continue;
            }
            if !is_there(here) {
                return Some(format!("`{wanted}` is not seen, but {here:?}"));
            }
            if is_there(there) {
                return Some(format!("`{wanted}` is seen with both"));
            }
        }
        None
    }

    fn look(&self, outcome: &Outcome) -> Option<String> {
        match &self.seen_in {
            Seen::Stdout | Seen::Terminal => Some(outcome.stdout.clone()),
            Seen::Line(line) => outcome.stdout.lines().nth(*line).map(str::to_owned),
            Seen::Stderr => Some(outcome.stderr.clone()),
            Seen::Exit => Some(outcome.code.to_string()),
            Seen::Json(pointer) => {
                let json: Option<Value> = serde_json::from_str(&outcome.stdout).ok();
                json.and_then(|json| json.pointer(pointer).map(Value::to_string))
            }
            // every byte counts
            Seen::File => {
                outcome.file.as_ref().map(|bytes| bytes.iter().map(|b| char::from(*b)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# words that are printed
[echo print] -n 'a b'
--loud | x | + | - | stdout | LOUD |
--size | - | 1 | 2 | /size | 1 | 2
ROOFLIGHT_SIZE | | 1 | - | stdout | |
<WORD> | | one | two | file a|b | none |
";

    #[test]
    fn rows_are_read_for_each_command() {
        let table = OptionTable::read(&[("t", TABLE)]);
        assert_eq!(table.rows.len(), 8);
        let line = |i: usize| table.rows[i].trials.each_ref().map(ToString::to_string).join("; ");
        assert_eq!(line(0), "echo -n a b x --loud; echo -n a b x");
        assert_eq!(line(3), "print -n a b - --size=1; print -n a b - --size=2");
        assert_eq!(line(4), "ROOFLIGHT_SIZE=1 echo -n a b; echo -n a b");
        assert!(table.rows[4].again().is_some() && table.rows[0].again().is_none());
        let options = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let there = [
            ("echo".to_owned(), options(&["--loud", "--size", "<WORD>", "--new"])),
            ("print".to_owned(), options(&["--loud", "--size"])),
        ];
        assert_eq!(table.gaps(&there), ["echo --new has no row", "print has no <WORD>"]);
    }

    #[test]
    fn what_is_not_so_is_told() {
        let outcome = |code, stdout: &str| Outcome {
            code,
            stdout: stdout.into(),
            stderr: String::new(),
            file: None,
        };
        let table = OptionTable::read(&[("t", TABLE)]);
        let told = |row: usize, first: &Outcome, second: &Outcome, again: Option<&Outcome>| {
            table.rows[row].compare([first, second], again).unwrap_or_default()
        };
        let (loud, quiet) = (outcome(0, "so LOUD"), outcome(0, "so"));
        assert_eq!(told(0, &loud, &quiet, None), "");
        assert!(told(0, &quiet, &quiet, None).contains("not seen"));
        assert!(told(0, &loud, &loud, None).contains("seen with both"));
        assert!(told(0, &loud, &outcome(1, ""), None).contains("exit code 1"));
        let [one, two] = [r#"{"size":1}"#, r#"{"size":2}"#].map(|json| outcome(0, json));
        assert_eq!(told(2, &one, &two, None), "");
        assert!(told(2, &one, &one, None).contains("seen with both"));
        assert_eq!(told(4, &one, &two, Some(&one)), "");
        assert_eq!(told(4, &one, &one, Some(&one)), "no difference");
        assert!(told(4, &one, &two, Some(&two)).contains("without the option"));
        assert!(told(6, &one, &two, None).contains("seen with both"));
    }
}
