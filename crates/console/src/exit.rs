//! Exit codes, and the codes of failures that any command may have.

use std::error::Error;

use crate::output::OutputError;

/// Exit codes that scripts may rely on. 1 is any failure not listed here. Usage errors reported by clap are also 2.
pub mod code {
    /// Success.
    pub const OK: u8 = 0;
    /// Any other failure.
    pub const FAILURE: u8 = 1;
    /// Invalid command line, or malformed model file.
    pub const USAGE: u8 = 2;
    /// No model at the given path.
    pub const NOT_FOUND: u8 = 3;
    /// The model and its cache do not fit in memory.
    pub const DOES_NOT_FIT: u8 = 4;
    /// Interrupted by Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
}

/// Returns the exit code of an error, or `None` if it has no special code.
pub fn of_cause(cause: &(dyn Error + 'static)) -> Option<u8> {
    let of_io = || cause.downcast_ref().and_then(of_io);
    let of_json = || cause.downcast_ref().and_then(of_json);
    let of_output = || cause.downcast_ref().map(of_output);
    let of_program = || cause.downcast_ref().and_then(of_program);
    of_io().or_else(of_json).or_else(of_output).or_else(of_program)
}

/// Returns a hint for the user, or `None` if there is none for this error.
pub fn hint(cause: &(dyn Error + 'static)) -> Option<String> {
    let exists = matches!(cause.downcast_ref(), Some(OutputError::Exists { .. }));
    exists.then(|| "give another name, or --force to replace it".into())
}

/// Returns success if the reader has closed the pipe, as `head` does.
fn of_io(error: &std::io::Error) -> Option<u8> {
    (error.kind() == std::io::ErrorKind::BrokenPipe).then_some(code::OK)
}

/// Returns success if the reader of JSON has closed the pipe. These errors do not have the I/O error as their source.
fn of_json(error: &serde_json::Error) -> Option<u8> {
    (error.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe)).then_some(code::OK)
}

fn of_output(error: &OutputError) -> u8 {
    match error {
        OutputError::Exists { .. } => code::FAILURE,
        OutputError::Folder { .. } | OutputError::Input { .. } => code::USAGE,
    }
}

/// Returns the exit code of an executor's error, or `None` if it has no special code.
pub fn of_program(error: &program::Error) -> Option<u8> {
    match error {
        program::Error::Disk { .. } => Some(code::FAILURE),
        program::Error::Memory { .. } | program::Error::CacheBudget { .. } => {
            Some(code::DOES_NOT_FIT)
        }
        program::Error::Weight { .. } | program::Error::Token { .. } => Some(code::USAGE),
        _ => None,
    }
}
