//! Advice about options that a command does not have: which commands have them, or what to do instead.

use clap::{Args, Command};

use crate::argv::has;
use crate::calling::ToolArgs;
use crate::drafting::DraftArgs;
use crate::forms::FormArgs;
use crate::sampling::{LengthArgs, SamplerArgs};
use crate::units;

/// Maximum number of commands that are named for an option; further ones are counted.
const NAMED: usize = 3;

/// Function that adds a group of options to a command.
type ArgGroup = fn(Command) -> Command;

/// Options of `run` that are in none of the groups below, and their replacements in `serve`.
const OF_RUN: &[(&[&str], &str)] = &[
    (
        &["--system-prompt", "--system", "--system-prompt-file"],
        "each request has its own system message",
    ),
    (
        &["--reasoning", "--hidethinking"],
        "each request says it: reasoning_effort, or enable_thinking in chat_template_kwargs",
    ),
    (&["--prompt", "-p", "--file", "-f"], "prompts come with requests"),
    (&["--json", "--logprobs"], "each request says it: logprobs; replies are JSON"),
];

/// Returns what to do about an option that `command` does not have; `None` if no command has it.
pub(crate) fn advice(root: &Command, command: &Command, option: &str) -> Option<String> {
    if command.get_name() == "serve"
        && let Some(instead) = of_serve(option)
    {
        return Some(instead.to_owned());
    }
    let commands = root.get_subcommands().filter(|other| !other.is_hide_set());
    let names: Vec<&str> =
        commands.filter(|other| has(other, option)).map(Command::get_name).collect();
    match &names[..] {
        [] => None,
        [name] => Some(format!("rooflight {name} has it")),
        names => Some(format!("these commands have it: {}", units::listed(names, NAMED))),
    }
}

/// Returns the replacement in `serve` for an option about one reply.
fn of_serve(option: &str) -> Option<&'static str> {
    let in_group = |group: ArgGroup| has(&group(Command::new("group")), option);
    let groups: [(ArgGroup, &str); 5] = [
        (
            LengthArgs::augment_args,
            "each request says how long its reply may be: max_tokens, stop, ignore_eos",
        ),
        (
            SamplerArgs::augment_args,
            "each request says how tokens are chosen: temperature, top_p, seed and more; by default as the model recommends",
        ),
        (FormArgs::augment_args, "each request says what its reply must be: response_format"),
        (
            DraftArgs::augment_args,
            "the server drafts by the texts of its requests, without a second model; rooflight run has the option",
        ),
        (ToolArgs::augment_args, "each request has its own tools: tools, tool_choice"),
    ];
    let group = groups.into_iter().find(|(group, _)| in_group(*group)).map(|(_, instead)| instead);
    group.or_else(|| {
        OF_RUN.iter().find(|(options, _)| options.contains(&option)).map(|(_, instead)| *instead)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_commands_are_found() {
        let root = crate::commands::command();
        let told = |command: &str, option: &str| {
            advice(&root, root.find_subcommand(command).expect("a command"), option)
        };
        for (option, part) in [
            ("-n", "max_tokens"),
            ("--predict", "max_tokens"),
            ("--reverse-prompt", "stop"),
            ("--temp", "temperature"),
            ("--seed", "seed"),
            ("--json-schema", "response_format"),
            ("--draft-max", "without a second model"),
            ("--model-draft", "without a second model"),
            ("--tools", "tool_choice"),
            ("--system-prompt", "system message"),
            ("--reasoning", "reasoning_effort"),
        ] {
            assert!(told("serve", option).is_some_and(|told| told.contains(part)), "{option}");
        }
        assert_eq!(told("show", "--strict").as_deref(), Some("rooflight serve has it"));
        let several = told("show", "--ctx-size").expect("many have it");
        assert!(several.starts_with("these commands have it: run, serve, "), "{several}");
        assert!(several.contains(" more"), "{several}");
        assert_eq!(told("serve", "--nonsense"), None);
        // `run` has all options that are listed for it
        let run = root.find_subcommand("run").expect("a command");
        for option in OF_RUN.iter().flat_map(|(options, _)| *options) {
            assert!(has(run, option), "{option}");
        }
    }
}
