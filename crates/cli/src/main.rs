//! The binary `rooflight`: commands, terminals, environment variables, JSON. No other crate knows those.
//!
//! `commands/` has one file per command; `executors.rs` is the only place that names concrete executors.

#![forbid(unsafe_code)]

mod args;
mod argv;
mod bundled;
mod ceilings;
mod chat;
mod commands;
mod counts;
mod curve;
mod executors;
mod exit;
mod hints;
mod input;
mod interrupt;
mod limits;
mod load;
mod memory;
mod output;
mod picture;
mod predictions;
mod printable;
mod rates;
mod reply;
mod sampling;
mod session;
mod ui;
mod units;

use std::io::Write;
use std::process::ExitCode;

use crate::exit::code;

/// Longest error message, in characters.
const MAX_MESSAGE: usize = 400;

fn main() -> ExitCode {
    let mut out = std::io::stdout();
    let result = run(&mut out).and_then(|()| Ok(out.flush()?));
    ExitCode::from(match result {
        Ok(()) => code::OK,
        Err(error) => report(&error),
    })
}

fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let args = argv::rewrite(std::env::args_os())?;
    match commands::Cli::parse_args(args) {
        Ok(cli) => cli.run(out),
        Err(error) => error.exit(),
    }
}

/// Print one line with the chain of causes and one with what to do; the exit code.
fn report(error: &anyhow::Error) -> u8 {
    let code = exit::code_of(error);
    if code != code::OK && code != code::INTERRUPTED {
        ui::error(&gguf::escape(format!("{error:#}"), MAX_MESSAGE));
        if let Some(hint) = hints::of(error) {
            ui::hint(&hint);
        }
    }
    code
}
