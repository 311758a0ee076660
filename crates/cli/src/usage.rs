//! clap's errors in our words: one line of what is wrong and one of what to do, about the command that was typed.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::UsageError;
use crate::similar::nearest;
use crate::{elsewhere, peers};

/// What clap's error says; `None` for what is to be printed as clap does: help and version.
///
/// `command`: the first word after the program's name, whether it is a command or not.
pub(crate) fn of(
    error: &clap::Error,
    command: Option<&str>,
    root: &clap::Command,
) -> Option<UsageError> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let known = command.and_then(|name| root.find_subcommand(name));
    let help = known.map_or_else(
        || "rooflight --help lists the commands".to_owned(),
        |known| format!("see rooflight {} --help", known.get_name()),
    );
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (message, hint) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = context(ContextKind::InvalidSubcommand).or(command).unwrap_or_default();
            return Some(no_command(name, root));
        }
        ErrorKind::UnknownArgument => {
            let argument = context(ContextKind::InvalidArg).unwrap_or_default();
            if known.is_none() {
                return Some(UsageError {
                    message: format!("unexpected argument `{}`", shown(argument)),
                    hint: "the command comes first: rooflight run -m MODEL.gguf -p 'PROMPT'".into(),
                });
            }
            let flag = argument.split(['=', ' ']).next().unwrap_or(argument);
            let message = format!("unexpected argument `{}`", shown(flag));
            let elsewhere = known.and_then(|known| elsewhere::advice(root, known, flag));
            let near = near_option(known, flag).map(|near| format!("did you mean --{near}?"));
            let hint = match (elsewhere, near) {
                (Some(advice), _) => format!("{advice}; {help}"),
                (None, Some(near)) => format!("{near} {help}"),
                (None, None) => help,
            };
            (message, hint)
        }
        ErrorKind::ArgumentConflict => {
            let message = first_paragraph(&error.to_string());
            let own = ["--spec", "--turns"].into_iter().find(|flag| message.contains(flag));
            let hint = own.filter(|_| known.is_some_and(|known| known.get_name() == "bench"));
            let told = |flag| {
                format!(
                    "{flag} has texts of its own; -r, -t, --chunk, -ctk, -ctv and --kv-* go with it. {help}"
                )
            };
            (message, hint.map_or_else(|| help.clone(), told))
        }
        _ => (first_paragraph(&error.to_string()), help),
    };
    Some(UsageError { message, hint })
}

/// A first word that is no command: a file, another program's command, or a slip.
fn no_command(name: &str, root: &clap::Command) -> UsageError {
    let message = format!("there is no command `{}`", shown(name));
    let path = Path::new(name);
    let model = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
    let commands = root.get_subcommands().filter(|command| !command.is_hide_set());
    let names = commands.flat_map(clap::Command::get_name_and_visible_aliases);
    let near = nearest(name, names);
    let hint = if let Some(what) = peers::command(name) {
        what.to_owned()
    } else if model || path.is_file() {
        format!("the command comes first: rooflight run {}", shown(name))
    } else if let Some(near) = near {
        format!("did you mean {near}? rooflight --help lists the commands")
    } else if name.contains(char::is_whitespace) {
        "rooflight run -p 'PROMPT' asks the bundled demo, rooflight run MODEL.gguf 'PROMPT' a model"
            .into()
    } else {
        "rooflight --help lists the commands".into()
    };
    UsageError { message, hint }
}

/// Returns the long option nearest to a mistyped flag, among the options that help shows.
fn near_option<'a>(command: Option<&'a clap::Command>, flag: &str) -> Option<&'a str> {
    let arguments = command?.get_arguments().filter(|arg| !arg.is_hide_set());
    nearest(flag.strip_prefix("--")?, arguments.filter_map(clap::Arg::get_long))
}

/// What clap says before usage and tips, as one line.
fn first_paragraph(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.trim().is_empty());
    let text = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    in_words(text.strip_prefix("error: ").unwrap_or(&text))
}

/// What Rust's own parsers say, as one would.
fn in_words(text: &str) -> String {
    let said = [
        ("invalid digit found in string", "expected a whole number"),
        ("cannot parse integer from empty string", "expected a whole number"),
        ("number too large to fit in target type", "the number is too large"),
        ("number too small to fit in target type", "the number is too small"),
        ("invalid float literal", "expected a number"),
        ("cannot parse float from empty string", "expected a number"),
        ("invalid IP address syntax", "expected an address, such as 127.0.0.1 or localhost"),
    ];
    said.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn shown(text: &str) -> String {
    gguf::escape(text, 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_parsers_say_is_said_in_words() {
        for (line, wanted) in [
            ("rooflight serve --port abc", "expected a whole number"),
            ("rooflight serve --host nowhere", "such as 127.0.0.1 or localhost"),
            ("rooflight run --temp banana", "expected a number"),
        ] {
            assert!(told(line).message.ends_with(wanted), "{:?}", told(line));
        }
    }

    fn told(line: &str) -> UsageError {
        let root = crate::commands::command();
        let args: Vec<_> = line.split(' ').collect();
        let error = root.clone().try_get_matches_from(&args).unwrap_err();
        of(&error, args.get(1).copied(), &root).unwrap()
    }

    #[test]
    fn hints_are_about_the_command_typed() {
        for (line, message, hint) in [
            (
                "rooflight show x --nonsense",
                "unexpected argument `--nonsense`",
                "see rooflight show --help",
            ),
            ("rooflight run x --top-q 3", "unexpected argument `--top-q`", "did you mean --top"),
            ("rooflight serve x -n 9", "unexpected argument `-n`", "max_tokens, stop"),
            ("rooflight serve x --draft-max 3", "unexpected argument", "run has the option; see"),
            ("rooflight show x --temp 1", "unexpected argument `--temp`", "run, complete"),
            ("rooflight run x --ml 3", "unexpected argument `--ml`", "rooflight run --help"),
            (
                "rooflight bench x -r zero",
                "invalid value 'zero' for '--repetitions <N>': expected a number",
                "rooflight bench --help",
            ),
            ("rooflight list \u{e4}n", "unexpected argument `\u{e4}n`", "see rooflight list"),
            ("rooflight server", "there is no command `server`", "rooflight serve MODEL.gguf"),
            (
                "rooflight model.gguf",
                "there is no command `model.gguf`",
                "rooflight run model.gguf",
            ),
            ("rooflight -m x", "unexpected argument `-m`", "the command comes first"),
            ("rooflight tokenise x", "there is no command `tokenise`", "did you mean tokenize?"),
            ("rooflight frobnicate", "there is no command `frobnicate`", "--help lists"),
        ] {
            let told = told(line);
            assert!(told.message.starts_with(message), "{line}: {told:?}");
            assert!(told.hint.contains(hint), "{line}: {told:?}");
            assert!(!told.hint.contains("as a value"), "{told:?}");
        }
    }

    /// Words that are more than two edits away are not suggested.
    #[test]
    fn only_near_words_are_suggested() {
        for line in ["update", "hello", "nope", "logs", "run x --no-such", "run x --jsno-schemata"]
        {
            let told = told(&format!("rooflight {line}"));
            assert!(!told.hint.contains("did you mean"), "{line}: {told:?}");
        }
        for (line, near) in
            [("lits", "list?"), ("sreve", "serve?"), ("run x --ctx-szie 3", "--ctx-size?")]
        {
            let told = told(&format!("rooflight {line}"));
            assert!(told.hint.contains(&format!("did you mean {near}")), "{line}: {told:?}");
        }
    }
}
