//! The binary `rooflight`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rooflight_cli::main()
}
