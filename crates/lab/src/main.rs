//! The binary `rooflight-lab`: what measures the engine and checks its theory. It runs no model for anybody.

#![forbid(unsafe_code)]

mod article;
mod bench_mla;
mod memory;
mod policies;
mod prediction;
mod product;
mod roofline;
mod subject;
mod traffic;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use console::{args, exit, output, ui};

/// What measures Rooflight and checks its theory
#[derive(clap::Parser, Debug)]
#[command(
    name = "rooflight-lab",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    args_override_self = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  rooflight-lab article --out folder\n  rooflight-lab bench-mla --shape v2-lite --json\n  \
                  rooflight-lab traffic model.gguf\n  rooflight-lab memory model.gguf\n  rooflight-lab prediction model.gguf\n\n\
                  From the repository: cargo run --release -p rooflight-lab -- article"
)]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Article(article::Article),
    BenchMla(bench_mla::BenchMla),
    Traffic(traffic::Traffic),
    Memory(memory::Memory),
    Roofline(roofline::Roofline),
    Prediction(prediction::Prediction),
    Policies(policies::Policies),
}

/// Longest error message, in characters.
const MAX_MESSAGE: usize = 400;

fn main() -> ExitCode {
    let matches = command().get_matches();
    let lab = Lab::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut out = output::Stdout::new();
    let done = run(lab, &mut out).and_then(|()| Ok(out.flush()?));
    ExitCode::from(done.map_or_else(|error| report(&error), |()| exit::code::OK))
}

fn run(lab: Lab, out: &mut dyn Write) -> anyhow::Result<()> {
    match lab.command {
        Command::Article(c) => c.run(out),
        Command::BenchMla(c) => c.run(out),
        Command::Traffic(c) => c.run(out),
        Command::Memory(c) => c.run(out),
        Command::Roofline(c) => c.run(out),
        Command::Prediction(c) => c.run(out),
        Command::Policies(c) => c.run(out),
    }
}

/// Print one line with the chain of causes; the exit code.
fn report(error: &anyhow::Error) -> u8 {
    let of_cause = |cause| exit::of_cause(cause).or_else(|| of_model(cause));
    let code = error.chain().find_map(of_cause).unwrap_or(exit::code::FAILURE);
    if code != exit::code::OK {
        ui::error(&gguf::escape(format!("{error:#}"), MAX_MESSAGE));
        error.chain().find_map(exit::hint).iter().for_each(|hint| ui::hint(hint));
    }
    code
}

/// The exit code of what is wrong with a model.
fn of_model(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let malformed = cause.is::<gguf::Error>() || cause.is::<models::Error>();
    let missing = cause.is::<subject::NoModel>();
    missing.then_some(exit::code::NOT_FOUND).or(malformed.then_some(exit::code::USAGE))
}

/// The whole command line, each long flag with its environment variable.
fn command() -> clap::Command {
    Lab::command().mut_subcommands(|command| command.mut_args(args::with_variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help_and_an_example_of_its_own() {
        let root = command();
        root.clone().debug_assert();
        for command in root.get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no help");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains(&format!("rooflight-lab {name}")), "{name} has no example");
            assert!(command.get_arguments().all(|arg| arg.get_help().is_some()), "{name}");
        }
    }
}
