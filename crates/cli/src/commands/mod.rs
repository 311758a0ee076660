//! The commands: one file each, and the list of them. Help, completions, manual pages and tests iterate this list.

mod batch;
mod bench;
mod complete;
mod completions;
mod demo_model;
mod embed;
mod kernels;
mod licenses;
mod logits;
mod machine;
mod man;
mod perplexity;
mod plan;
#[cfg(feature = "hub")]
mod pull;
mod recall;
mod run;
mod selftest;
mod serve;
mod show;
mod template;
mod tokenize;
mod trace;
mod verify;

use std::ffi::OsString;
use std::io::Write;

use clap::{CommandFactory, FromArgMatches};

use crate::help;

#[cfg(fuzzing)]
pub(crate) use self::plan::plan_config;

/// Run large language models on your own machine, as fast as the machine allows
#[derive(clap::Parser, Debug)]
#[command(
    name = "rooflight",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    args_override_self = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  rooflight run model.gguf\n  rooflight run model.gguf 'Why is the sky blue?'\n  \
                  rooflight bench -m model.gguf\n\n\
                  Every long option can be set in the environment: --ctx-size by ROOFLIGHT_CTX_SIZE. Options win."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Run(run::Run),
    Serve(serve::Serve),
    Complete(complete::Complete),
    Embed(embed::Embed),
    Show(show::Show),
    Plan(plan::Plan),
    Bench(bench::Bench),
    Batch(batch::Batch),
    Tokenize(tokenize::Tokenize),
    Template(template::Template),
    Logits(logits::Logits),
    Trace(trace::Trace),
    Perplexity(perplexity::Perplexity),
    Recall(recall::Recall),
    Verify(verify::Verify),
    Kernels(kernels::Kernels),
    Machine(machine::Machine),
    Selftest(selftest::Selftest),
    #[cfg(feature = "hub")]
    Pull(pull::Pull),
    #[cfg(feature = "hub")]
    List(pull::List),
    #[cfg(feature = "hub")]
    Rm(pull::Rm),
    #[cfg(feature = "hub")]
    Ps(pull::Ps),
    Completions(completions::Completions),
    Man(man::Man),
    Licenses(licenses::Licenses),
    DemoModel(demo_model::DemoModel),
}

impl Cli {
    /// The command in `args`, the program's name first; `root` is what [`command`] made.
    ///
    /// # Errors
    /// clap's, which knows how to print itself: help and version are among them.
    pub(crate) fn parse_args(
        root: &mut clap::Command,
        args: Vec<OsString>,
    ) -> clap::error::Result<Cli> {
        Cli::from_arg_matches_mut(&mut root.try_get_matches_from_mut(args)?)
    }

    /// Run the command; its result goes to `out`.
    ///
    /// # Errors
    /// Whatever stopped it.
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self.command {
            Command::Run(c) => c.run(out),
            Command::Serve(c) => c.run(out),
            Command::Complete(c) => c.run(out),
            Command::Embed(c) => c.run(out),
            Command::Show(c) => c.run(out),
            Command::Plan(c) => c.run(out),
            Command::Bench(c) => c.run(out),
            Command::Batch(c) => c.run(out),
            Command::Tokenize(c) => c.run(out),
            Command::Template(c) => c.run(out),
            Command::Logits(c) => c.run(out),
            Command::Trace(c) => c.run(out),
            Command::Perplexity(c) => c.run(out),
            Command::Recall(c) => c.run(out),
            Command::Verify(c) => c.run(out),
            Command::Kernels(c) => c.run(out),
            Command::Machine(c) => c.run(out),
            Command::Selftest(c) => c.run(out),
            #[cfg(feature = "hub")]
            Command::Pull(c) => c.run(out),
            #[cfg(feature = "hub")]
            Command::List(c) => c.run(out),
            #[cfg(feature = "hub")]
            Command::Rm(c) => c.run(out),
            #[cfg(feature = "hub")]
            Command::Ps(c) => c.run(out),
            Command::Completions(c) => c.run(out),
            Command::Man(c) => c.run(out),
            Command::Licenses(c) => c.run(out),
            Command::DemoModel(c) => c.run(out),
        }
    }
}

/// The whole command line as clap knows it, each long flag with its environment variable.
pub(crate) fn command() -> clap::Command {
    let root = Cli::command();
    let names: Vec<String> = root.get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let with_help = |command: clap::Command| command.mut_args(with_variable).arg(help::help_all());
    names
        .into_iter()
        .fold(root, |root, name| root.mut_subcommand(name, with_help))
        .arg(help::help_all())
}

fn with_variable(arg: clap::Arg) -> clap::Arg {
    // Where the model may also be a positional argument, the command reads its variable itself: an argument wins.
    if arg.get_long() == Some("model") && !arg.is_required_set() {
        return arg;
    }
    console::args::with_variable(arg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_help_and_an_example() {
        for command in command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no help");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.starts_with("Example"), "{name} has no example");
            assert!(
                after.contains(&format!("rooflight {name}")),
                "{name}: the example shows another command"
            );
            let examples = after.lines().take_while(|line| !line.is_empty());
            for line in examples {
                assert!(
                    line.chars().count() <= 80,
                    "{name}: cannot be copied once wrapped: {line}"
                );
            }
        }
    }

    #[test]
    fn every_argument_has_help_and_long_flags_have_a_variable() {
        for command in command().get_subcommands() {
            for arg in command
                .get_arguments()
                .filter(|a| !matches!(a.get_id().as_str(), "help" | "version" | help::HELP_ALL))
            {
                let place = format!("{} {}", command.get_name(), arg.get_id());
                assert!(arg.get_help().is_some(), "{place} has no help");
                let Some(long) = arg.get_long().filter(|long| *long != "model") else { continue };
                let variable = arg.get_env().unwrap_or_else(|| panic!("{place} has no variable"));
                assert_eq!(
                    variable.to_str(),
                    Some(&*format!("ROOFLIGHT_{}", long.to_uppercase().replace('-', "_")))
                );
            }
        }
    }
}
