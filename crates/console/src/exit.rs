//! Exit codes, and which failures that any command may meet have one.

use std::error::Error;

use crate::output::OutputError;

/// What a script may rely on. 1 is any failure not listed here; clap's own usage errors are 2 as well.
pub mod code {
    /// Done.
    pub const OK: u8 = 0;
    /// Any other failure.
    pub const FAILURE: u8 = 1;
    /// A wrong command line, or a malformed model file.
    pub const USAGE: u8 = 2;
    /// No model at this path.
    pub const NOT_FOUND: u8 = 3;
    /// The model and its cache do not fit in memory.
    pub const DOES_NOT_FIT: u8 = 4;
    /// Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
}

/// The exit code of a cause that has one.
pub fn of_cause(cause: &(dyn Error + 'static)) -> Option<u8> {
    let of_io = || cause.downcast_ref().and_then(of_io);
    let of_json = || cause.downcast_ref().and_then(of_json);
    let of_output = || cause.downcast_ref().map(of_output);
    let of_program = || cause.downcast_ref().and_then(of_program);
    of_io().or_else(of_json).or_else(of_output).or_else(of_program)
}

/// What to do about it, if that is known here.
pub fn hint(cause: &(dyn Error + 'static)) -> Option<String> {
    let exists = matches!(cause.downcast_ref(), Some(OutputError::Exists { .. }));
    exists.then(|| "give another name, or --force to replace it".into())
}

/// The reader of a pipe has left, as `head` does: no failure.
fn of_io(error: &std::io::Error) -> Option<u8> {
    (error.kind() == std::io::ErrorKind::BrokenPipe).then_some(code::OK)
}

/// JSON goes to the same pipes, and its error does not name the I/O error as its cause.
fn of_json(error: &serde_json::Error) -> Option<u8> {
    (error.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe)).then_some(code::OK)
}

fn of_output(error: &OutputError) -> u8 {
    match error {
        OutputError::Exists { .. } => code::FAILURE,
        OutputError::Folder { .. } | OutputError::Input { .. } => code::USAGE,
    }
}

/// The exit code of an executor's failure.
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
