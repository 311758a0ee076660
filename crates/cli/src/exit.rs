//! Exit codes, and the failures that only the command line knows.

use console::exit;
pub(crate) use console::exit::code;
use rooflight::Error;

/// What to print for a command line that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsageError {
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: String,
}

/// A failure with an exit code of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The command line cannot be read.
    #[error("{}", _0.message)]
    CommandLine(UsageError),
    /// A command of another program.
    #[error("`{0}` has moved: cargo run --release -p rooflight-lab -- {0}")]
    Moved(String),
    /// A port that somebody listens at.
    #[error("somebody listens at {host}:{port} already")]
    Taken {
        /// The address.
        host: std::net::IpAddr,
        /// The port.
        port: u16,
    },
    /// A model that is to go, and was never brought here.
    #[error("{name}: no such model was pulled")]
    NotPulled {
        /// As given, escaped.
        name: String,
        /// There is a file of this name.
        is_file: bool,
    },
    /// Bits that should be equal are not, or were not compared.
    #[error("{0}")]
    Differs(String),
    /// What was asked of a plan cannot be had.
    #[error("the goals cannot be met: {0}")]
    Goals(String),
    /// A reply that was cut off within its form or within a tool call.
    #[error("{0}")]
    Unfinished(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// The exit code of a failed command: that of the first cause which has one.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of_cause).unwrap_or(code::FAILURE)
}

fn code_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let failure = cause.downcast_ref().map(|failure| match failure {
        Failure::Usage(_) | Failure::CommandLine(_) | Failure::Moved(_) => code::USAGE,
        Failure::NotPulled { .. } => code::NOT_FOUND,
        Failure::Goals(_)
        | Failure::Differs(_)
        | Failure::Unfinished(_)
        | Failure::Taken { .. } => code::FAILURE,
        Failure::Interrupted => code::INTERRUPTED,
    });
    failure
        .or_else(|| cause.downcast_ref().and_then(of_rooflight))
        .or_else(|| exit::of_cause(cause))
        .or_else(|| cause.downcast_ref().map(of_gguf))
        .or_else(|| cause.downcast_ref().map(of_models))
        .or_else(|| cause.downcast_ref().map(of_tokenizer))
        .or_else(|| crate::names::code_of(cause))
        .or_else(|| cause.downcast_ref().map(of_grammar))
        .or_else(|| cause.downcast_ref().map(of_tools))
        .or_else(|| cause.downcast_ref().and_then(of_engine))
}

fn of_rooflight(error: &Error) -> Option<u8> {
    Some(match error {
        Error::Options(_) | Error::Malformed(_) => code::USAGE,
        Error::NotFound { .. } | Error::NotHere { .. } | Error::UnknownModel { .. } => {
            code::NOT_FOUND
        }
        Error::DoesNotFit { .. } | Error::Bound { .. } => code::DOES_NOT_FIT,
        // the source of the error decides
        Error::Load(_) | Error::Engine(_) => return None,
        _ => code::FAILURE,
    })
}

fn of_gguf(error: &gguf::Error) -> u8 {
    match error.kind() {
        gguf::ErrorKind::NotFound => code::NOT_FOUND,
        gguf::ErrorKind::Io => code::FAILURE,
        gguf::ErrorKind::Malformed => code::USAGE,
    }
}

fn of_models(_: &models::Error) -> u8 {
    code::USAGE
}

fn of_tokenizer(error: &tokenizer::Error) -> u8 {
    match error {
        tokenizer::Error::Gguf(error) => of_gguf(error),
        tokenizer::Error::Encode(_) => code::FAILURE,
        _ => code::USAGE,
    }
}

fn of_tools(_: &tools::ToolError) -> u8 {
    code::USAGE
}

fn of_grammar(_: &grammar::GrammarError) -> u8 {
    code::USAGE
}

fn of_engine(error: &engine::Error) -> Option<u8> {
    match error {
        engine::Error::Model(error) => exit::of_program(error),
        engine::Error::Text(error) => Some(of_tokenizer(error)),
        engine::Error::Setting { .. } => Some(code::USAGE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use console::output::OutputError;

    use super::*;

    #[test]
    fn the_first_cause_with_a_code_decides() {
        let io = |kind: std::io::ErrorKind| {
            Err::<(), _>(std::io::Error::from(kind)).context("writing").unwrap_err()
        };
        let json =
            |kind: std::io::ErrorKind| serde_json::Error::io(std::io::Error::from(kind)).into();
        let memory = || program::Error::Memory { what: "a cache", bytes: 1 };
        for (error, want) in [
            (io(std::io::ErrorKind::BrokenPipe), 0),
            (io(std::io::ErrorKind::PermissionDenied), 1),
            (json(std::io::ErrorKind::BrokenPipe), 0),
            (json(std::io::ErrorKind::StorageFull), 1),
            (Failure::Usage("x".into()).into(), 2),
            (gguf::Error::Version { found: 9 }.into(), 2),
            (models::Error::MissingKey { key: "k".into() }.into(), 2),
            (Error::NotFound { path: "x".into() }.into(), 3),
            (anyhow::Error::from(memory()).context("loading"), 4),
            (engine::Error::from(memory()).into(), 4),
            (program::Error::NonFinite { position: 0 }.into(), 1),
            (Error::UnknownModel { name: "x".into(), near: Vec::new() }.into(), 3),
            (Error::Malformed("x".into()).into(), 2),
            (Failure::Goals("x".into()).into(), 1),
            (OutputError::Exists { path: "x".into() }.into(), 1),
            (Failure::Interrupted.into(), 130),
            (anyhow::anyhow!("anything"), 1),
        ] {
            assert_eq!(code_of(&error), want, "{error:#}");
        }
    }
}
