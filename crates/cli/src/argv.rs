//! The command line before clap sees it: words of other programs, and `help`.
//!
//! clap would read `-ngl 99` as `-n gl`. A word that the command does not have and [`peers`] knows is replaced, left out
//! with a warning, or refused with a reason; every other argument passes unchanged, so that what nobody knows is a usage
//! error and never ignored.

use std::ffi::{OsStr, OsString};

use crate::elsewhere;
use crate::exit::Failure;
use crate::peers::{self, PeerFlag};

/// What is to be parsed.
#[derive(Debug, Default)]
pub(crate) struct Rewritten {
    /// The arguments, the program's name first.
    pub(crate) args: Vec<OsString>,
    /// A word for each flag that was left out.
    pub(crate) warnings: Vec<String>,
}

/// The arguments with every known word replaced; what follows `--` is left alone.
///
/// # Errors
/// [`Failure::Usage`] for a word that is refused.
pub(crate) fn rewrite(
    args: impl IntoIterator<Item = OsString>,
    root: &clap::Command,
) -> Result<Rewritten, Failure> {
    let args = help_first(args.into_iter().collect());
    let command = args.get(1).and_then(|name| root.find_subcommand(name));
    let mut out = Rewritten::default();
    let mut args = args.into_iter().peekable();
    let as_json = command.and_then(JsonFlag::of);
    while let Some(arg) = args.next() {
        if arg == "--" {
            out.args.push(arg);
            out.args.extend(args);
            break;
        }
        if let Some(flag) = &as_json
            && let Some(words) = flag.words(&arg, args.peek().map(OsString::as_os_str))
        {
            args.by_ref().take(words - 1).for_each(drop);
            out.args.extend(flag.own().iter().map(OsString::from));
            continue;
        }
        let Some((name, value, becomes)) = known(&arg, command) else {
            out.args.push(arg);
            continue;
        };
        let target = match becomes {
            PeerFlag::Named(long) | PeerFlag::Switch(long, _) => Some(long),
            _ => None,
        };
        if let (Some(target), Some(command)) = (target, command)
            && !has(command, target)
            && let Some(why) = refusal(root, command, target)
        {
            let problem = format!("{name} is not supported by {}: {why}", command.get_name());
            return Err(Failure::Usage(problem));
        }
        match becomes {
            PeerFlag::Named(long) => out.args.push(match value {
                Some(value) => format!("{long}={value}").into(),
                None => long.into(),
            }),
            PeerFlag::Switch(long, alone) => {
                let value = match value {
                    None => alone,
                    Some("true") => "on",
                    Some("false") => "off",
                    Some(other) => other,
                };
                out.args.push(format!("{long}={value}").into());
            }
            PeerFlag::Ignored(why) => out.warnings.push(format!("{name} has no effect: {why}")),
            PeerFlag::IgnoredValue(why) => {
                if value.is_none() {
                    args.next();
                }
                out.warnings.push(format!("{name} has no effect: {why}"));
            }
            PeerFlag::IgnoredSwitch(why) => {
                if value.is_none() {
                    args.next_if(|next| SWITCHES.iter().any(|switch| next == switch));
                }
                out.warnings.push(format!("{name} has no effect: {why}"));
            }
            PeerFlag::Refused(why) => {
                return Err(Failure::Usage(format!("{name} is not supported: {why}")));
            }
        }
    }
    Ok(out)
}

/// Values that a switch can take.
const SWITCHES: [&str; 3] = ["on", "off", "auto"];

/// How a command selects JSON output: by `--json`, or by a format of `--output`. A command that has one of the two accepts
/// both spellings.
enum JsonFlag {
    /// By `--json`; the command has no `-o` for a file.
    Flag,
    /// By `--output json`.
    Format,
}

impl JsonFlag {
    fn of(command: &clap::Command) -> Option<JsonFlag> {
        let find = |long| command.get_arguments().find(|arg| arg.get_long() == Some(long));
        match (find("json"), find("output")) {
            (Some(_), None) => Some(JsonFlag::Flag),
            (None, Some(output)) => {
                let values = output.get_possible_values();
                let has_json = values.iter().any(|value| value.get_name() == "json");
                has_json.then_some(JsonFlag::Format)
            }
            _ => None,
        }
    }

    /// Returns the words that the command itself understands.
    fn own(&self) -> &'static [&'static str] {
        match self {
            JsonFlag::Flag => &["--json"],
            JsonFlag::Format => &["--output", "json"],
        }
    }

    /// Returns the number of words, from `arg` on, that are the other spelling of JSON output; `None` if they are not.
    fn words(&self, arg: &OsStr, next: Option<&OsStr>) -> Option<usize> {
        let arg = arg.to_str()?;
        match self {
            JsonFlag::Flag if ["-o", "--output"].contains(&arg) => {
                next.filter(|next| *next == "json").map(|_| 2)
            }
            JsonFlag::Flag => ["-ojson", "-o=json", "--output=json"].contains(&arg).then_some(1),
            JsonFlag::Format => (arg == "--json").then_some(1),
        }
    }
}

/// Rewrites `help run` to `run --help`, `help` to `--help`, and `version` to `--version`.
fn help_first(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|word| word == "version") {
        args[1] = "--version".into();
    }
    if args.get(1).is_some_and(|word| word == "help") {
        args.remove(1);
        args.truncate(2);
        args.push("--help".into());
    }
    args
}

/// Name, value and fate of an argument, `-fa=on` included, that the command has not itself.
fn known<'a>(
    arg: &'a OsStr,
    command: Option<&clap::Command>,
) -> Option<(&'a str, Option<&'a str>, PeerFlag)> {
    let text = arg.to_str()?;
    let (name, value) =
        text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let becomes = peers::flag(name)?;
    (!command.is_some_and(|command| has(command, name))).then_some((name, value, becomes))
}

/// Returns why a command does not accept `flag`, or which commands do; `None` if neither is known.
fn refusal(root: &clap::Command, command: &clap::Command, flag: &str) -> Option<String> {
    match peers::flag(flag) {
        Some(PeerFlag::Refused(why)) => Some(why.to_owned()),
        _ => elsewhere::advice(root, command, flag),
    }
}

/// Whether a command has a flag of this name, `-x` or `--long`.
pub(crate) fn has(command: &clap::Command, name: &str) -> bool {
    command.get_arguments().any(|arg| match name.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long)
                || arg.get_all_aliases().unwrap_or_default().contains(&long)
        }
        None => arg.get_short().is_some_and(|short| {
            name.strip_prefix('-').is_some_and(|name| name.chars().eq([short]))
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Rewritten, Failure> {
        rewrite(line.split(' ').map(OsString::from), &crate::commands::command())
    }

    fn rewritten(line: &str) -> String {
        let words = words(line).unwrap().args;
        words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_become_long_flags_and_the_rest_stays() {
        for (line, want) in [
            (
                "rooflight run -m x.gguf -ngl 99 -fa=on -ctk q8_0 -n -1 -x -- -ngl",
                "rooflight run -m x.gguf --n-gpu-layers 99 --flash-attn=on --cache-type-k q8_0 -n -1 -x -- -ngl",
            ),
            // clap would read `-r ea`, and `off` as the prompt.
            ("rooflight run m.gguf -rea off", "rooflight run m.gguf --reasoning off"),
            (
                "rooflight run m.gguf --think --max-tokens=9",
                "rooflight run m.gguf --reasoning=on --predict=9",
            ),
            ("rooflight run m --think=false", "rooflight run m --reasoning=off"),
            ("rooflight run m --think=true", "rooflight run m --reasoning=on"),
            ("rooflight run m --think=high", "rooflight run m --reasoning=high"),
            ("rooflight run m --nothink", "rooflight run m --reasoning=off"),
            ("rooflight run m --reasoning-budget 512", "rooflight run m --reasoning 512"),
            ("rooflight run m --reasoning-budget -1", "rooflight run m --reasoning -1"),
            ("rooflight run m --reasoning-effort=high", "rooflight run m --reasoning=high"),
            ("rooflight serve m --kv-unified-per-slot 4096", "rooflight serve m --ctx-size 4096"),
            ("rooflight serve m --sleep-idle-seconds 60", "rooflight serve m --keepalive 60"),
            ("rooflight help run", "rooflight run --help"),
            ("rooflight help", "rooflight --help"),
            ("rooflight version", "rooflight --version"),
            // what a command has itself stays
            ("rooflight plan m --device 4090", "rooflight plan m --device 4090"),
        ] {
            assert_eq!(rewritten(line), want);
        }
    }

    /// Both spellings of JSON output work with every command; `-o` of a command that writes a file remains a file.
    #[test]
    fn json_has_both_spellings() {
        for (line, want) in [
            ("rooflight show m.gguf -o json", "rooflight show m.gguf --json"),
            ("rooflight list --output=json", "rooflight list --json"),
            ("rooflight run m.gguf -ojson hi", "rooflight run m.gguf --json hi"),
            ("rooflight bench m.gguf --json", "rooflight bench m.gguf --output json"),
            ("rooflight bench m.gguf -o json", "rooflight bench m.gguf -o json"),
            ("rooflight show m.gguf -o yaml", "rooflight show m.gguf -o yaml"),
            ("rooflight run m.gguf -- -o json", "rooflight run m.gguf -- -o json"),
            ("rooflight man -o json", "rooflight man -o json"),
        ] {
            assert_eq!(rewritten(line), want);
        }
        let root = crate::commands::command();
        let plain = ["serve", "batch", "selftest", "completions", "man", "licenses", "demo-model"];
        for command in root.get_subcommands().filter(|command| command.get_name() != "ps") {
            let name = command.get_name();
            let has = JsonFlag::of(command).is_some()
                || command.get_arguments().any(|arg| arg.get_long() == Some("json"));
            assert_eq!(has, !plain.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_switch_takes_its_value_along() {
        let rewritten = words("rooflight run m.gguf --color on -co hi").unwrap();
        assert_eq!(rewritten.args, ["rooflight", "run", "m.gguf", "hi"]);
        assert_eq!(rewritten.warnings.len(), 2);
    }

    /// clap would read `-m d`.
    #[test]
    fn a_model_that_drafts_is_no_model() {
        let rewritten = words("rooflight run m.gguf -md draft.gguf").unwrap();
        assert_eq!(rewritten.args[3..], ["--model-draft", "draft.gguf"]);
    }

    #[test]
    fn flags_without_effect_are_left_out_with_a_word() {
        let rewritten = words("rooflight run m.gguf --jinja --numa isolate --prio=2 hi").unwrap();
        assert_eq!(rewritten.args, ["rooflight", "run", "m.gguf", "hi"]);
        let told = rewritten.warnings.join("\n");
        assert!(["--jinja", "--numa", "--prio"].iter().all(|flag| told.contains(flag)), "{told}");
        for (line, why) in [
            ("rooflight run m hi --reasoning-format none", "thoughts are always separate"),
            ("rooflight run m hi --swa-full", "sliding window"),
            ("rooflight run m hi --fit off", "unless -ngl"),
            ("rooflight run m hi -fit=on", "unless -ngl"),
            ("rooflight run m hi --ctx-checkpoints 3", "taken from the cache"),
            ("rooflight run m hi --timeout 600", "as long as they need"),
            ("rooflight run m hi --no-jinja", "always rendered by Jinja"),
            ("rooflight run m hi --check-tensors", "rooflight trace"),
            ("rooflight run m hi --no-host", "always packed"),
            ("rooflight run m hi --backend-sampling", "likeliest tokens"),
        ] {
            let rewritten = words(line).unwrap();
            assert_eq!(rewritten.args, ["rooflight", "run", "m", "hi"], "{line}");
            assert!(rewritten.warnings.len() == 1 && rewritten.warnings[0].contains(why), "{line}");
        }
    }

    #[test]
    fn refused_words_say_why() {
        let error = words("rooflight run -hff a.gguf").unwrap_err().to_string();
        assert!(error.contains("-hff") && error.contains("-hf org/repo"), "{error}");
        let named = words("rooflight run -hf org/repo hi").unwrap();
        assert_eq!(named.args, ["rooflight", "run", "--model", "org/repo", "hi"]);
        assert!(words("rooflight run m.gguf --lora x").unwrap_err().to_string().contains("merge"));
        for (line, told) in [
            ("rooflight serve -md d.gguf", "-md is not supported by serve: the server drafts"),
            ("rooflight serve --max-tokens 9", "--max-tokens is not supported by serve: each"),
            ("rooflight serve -sys x", "-sys is not supported by serve: each request has"),
            ("rooflight serve --think", "--think is not supported by serve: each request says"),
            (
                "rooflight run m.gguf -np 2",
                "-np is not supported by run: there is one conversation",
            ),
            ("rooflight show m.gguf -ctk f16", "-ctk is not supported by show: these commands"),
            ("rooflight run m --in-prefix x", "--in-prefix is not supported: the chat template"),
            ("rooflight run m --special", "--special is not supported: control tokens are never"),
            ("rooflight run m --log-file x", "--log-file is not supported: messages go to stderr"),
            (
                "rooflight complete m --prompt-cache-all",
                "--prompt-cache-all is not supported: rooflight",
            ),
            ("rooflight pull m --insecure", "--insecure is not supported: a hub without TLS"),
            (
                "rooflight serve --reasoning-budget 9",
                "--reasoning-budget is not supported by serve: each",
            ),
            ("rooflight serve --models-dir x", "--models-dir is not supported: give the folder"),
        ] {
            let error = words(line).unwrap_err().to_string();
            assert!(error.starts_with(told), "{line}: {error}");
        }
    }
}
