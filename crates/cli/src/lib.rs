//! All of the binary `rooflight`: commands, terminals, environment variables, JSON. No other crate knows those.
//!
//! `commands/` has one file per command. It is a library so that tests can ask for its [`options`] and
//! a fuzz target can call it.

#![forbid(unsafe_code)]

mod access;
mod amounts;
mod args;
mod argv;
mod calling;
mod chat;
mod chat_templates;
mod checking;
mod commands;
mod completion;
mod drafting;
mod elsewhere;
mod executor_args;
mod exit;
mod forms;
mod help;
mod hints;
mod idle;
mod input;
mod interrupt;
mod keeping;
mod limits;
mod listening;
mod load;
mod log_lines;
mod logging;
mod markdown;
mod missed;
mod model_details;
mod names;
mod peers;
mod policy;
mod printable;
mod process;
mod reasoning;
mod reply;
mod rope;
mod sampling;
mod session;
mod sharing;
mod start;
mod statistics;
mod storage;
mod terminal_mode;
#[cfg(any(unix, test))]
mod typed;
mod usage;
mod whole;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use console::{ceilings, counts, curve, output, picture, runtime, ui, units, wrap};
use rooflight::{executor, guessing, naming, predictions, similar, tuned};

use crate::exit::{Failure, code};
use crate::hints::Spot;

/// Longest error message, in characters.
const MAX_MESSAGE: usize = 400;

/// Bytes of the stack on which commands run.
const STACK: usize = 8 << 20;

/// Do what the command line of this process says; its exit code.
///
/// Commands run on a thread of their own: the stack of the first one is as small as `ulimit -s` says.
pub fn main() -> ExitCode {
    executors::before_threads();
    process::survive_file_limits();
    if std::env::args_os().nth(1).is_some_and(|word| word == checking::COMMAND) {
        return checking::run(&std::env::args_os().skip(2).collect::<Vec<_>>());
    }
    let thread = std::thread::Builder::new().name("rooflight".into()).stack_size(STACK);
    match thread.spawn(run_command) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        // a system that refuses a thread may have a stack that is large enough
        Err(_) => run_command(),
    }
}

fn run_command() -> ExitCode {
    let mut out = output::Stdout::new();
    let mut root = commands::command();
    let typed = std::env::args_os().nth(1).and_then(|word| word.into_string().ok());
    let command = typed.as_deref().and_then(|name| root.find_subcommand(name));
    let spot = command.map_or(Spot::Nowhere, |command| Spot::Command(command.get_name().into()));
    let result = run(&mut out, typed.as_deref(), &mut root).and_then(|()| Ok(out.flush()?));
    ExitCode::from(match result {
        Ok(()) => code::OK,
        Err(error) => report(&error, &spot),
    })
}

/// Every command with the options it takes, `--ctx-size`, and its arguments, `<MODEL>`; hidden ones too.
pub fn options() -> Vec<(String, Vec<String>)> {
    let options = |command: &clap::Command| {
        let own = command.get_arguments().filter(|arg| arg.get_long() != Some(help::HELP_ALL));
        let named = own.map(|arg| match arg.get_long() {
            Some(long) => format!("--{long}"),
            None => format!("<{}>", arg.get_value_names().map_or("", |names| &names[0])),
        });
        (command.get_name().to_owned(), named.collect())
    };
    commands::command().get_subcommands().map(options).collect()
}

/// What a fuzz target calls: a plan for the `config.json` in `data`, with the arguments of its first line.
///
/// # Errors
/// What is told where there is no plan.
#[cfg(fuzzing)]
pub fn plan_config(folder: &std::path::Path, data: &[u8]) -> Result<(), String> {
    commands::plan_config(folder, data)
}

fn run(out: &mut dyn Write, typed: Option<&str>, root: &mut clap::Command) -> anyhow::Result<()> {
    if let Some(name) = typed.filter(|name| ["article", "bench-mla"].contains(name)) {
        return Err(Failure::Moved(name.to_owned()).into());
    }
    let words = argv::rewrite(std::env::args_os(), root)?;
    let given = words.args.clone();
    match commands::Cli::parse_args(root, words.args) {
        Ok(cli) => {
            words.warnings.iter().for_each(|warning| ui::warn(warning));
            cli.run(out)
        }
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => {
                let command = given.get(1).and_then(|word| word.to_str());
                Ok(help::print(root, command, &given)?)
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Ok(out.write_all(start::screen().as_bytes())?)
            }
            _ => match usage::of(&error, typed, root) {
                Some(wrong) => Err(Failure::CommandLine(wrong).into()),
                None => error.exit(),
            },
        },
    }
}

/// Print one line with the chain of causes and one with what to do; the exit code.
fn report(error: &anyhow::Error, spot: &Spot) -> u8 {
    let code = exit::code_of(error);
    if code != code::OK && code != code::INTERRUPTED {
        ui::error(&gguf::escape(format!("{error:#}"), MAX_MESSAGE));
        if let Some(hint) = hints::of(error, spot) {
            ui::hint(&hint);
        }
    }
    code
}
