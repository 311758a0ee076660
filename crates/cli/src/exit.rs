//! Exit codes, and the failures that only the command line knows.

use std::path::PathBuf;

use console::exit;
pub(crate) use console::exit::code;

use crate::usage::UsageError;

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
    /// There is no such model.
    #[error("{}: no such model file", crate::output::shown(path))]
    NotFound {
        /// As given.
        path: PathBuf,
    },
    /// A model that could be brought here, and is not.
    #[error("{name} is not on this machine")]
    NotHere {
        /// As given, escaped.
        name: String,
    },
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
    /// There is neither such a file nor such a published model.
    #[error("no file and no published model is called `{name}`")]
    UnknownModel {
        /// As given, escaped.
        name: String,
        /// Published names that are near.
        near: Vec<String>,
    },
    /// Bits that should be equal are not, or were not compared.
    #[error("{0}")]
    Differs(String),
    /// A text that is longer than its context.
    #[error("the text has {wanted} tokens, of which the context holds {capacity}")]
    TooLong {
        /// Tokens of the text.
        wanted: usize,
        /// Tokens of the context.
        capacity: usize,
        /// Tokens the model was made for.
        trained: usize,
    },
    /// A file that says what cannot be.
    #[error("{0}")]
    Malformed(String),
    /// What was asked of a plan cannot be had.
    #[error("the goals cannot be met: {0}")]
    Goals(String),
    /// What is planned is larger than the memory it is planned for: the plan is made all the same.
    #[error("{0}")]
    NoRoom(String),
    /// Memory would run out.
    #[error("needs {need} of memory, {available} are available")]
    DoesNotFit {
        /// Weights, cache and workspace, in words.
        need: String,
        /// Free memory, in words.
        available: String,
        /// Bytes that are missing.
        missing: u64,
        /// What to change.
        advice: String,
    },
    /// The caches of one session are larger than all may be.
    #[error("the cache needs {need} of memory, --kv-memory allows {bound}")]
    Bound {
        /// Bytes and tokens, in words.
        need: String,
        /// Bytes, in words.
        bound: String,
        /// What to change.
        advice: String,
    },
    /// A reply that was cut before the end of its form or of a call.
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
        Failure::Usage(_) | Failure::CommandLine(_) | Failure::Moved(_) | Failure::Malformed(_) => {
            code::USAGE
        }
        Failure::NotFound { .. }
        | Failure::NotHere { .. }
        | Failure::NotPulled { .. }
        | Failure::UnknownModel { .. } => code::NOT_FOUND,
        Failure::Goals(_)
        | Failure::NoRoom(_)
        | Failure::Differs(_)
        | Failure::Unfinished(_)
        | Failure::Taken { .. }
        | Failure::TooLong { .. } => code::FAILURE,
        Failure::DoesNotFit { .. } | Failure::Bound { .. } => code::DOES_NOT_FIT,
        Failure::Interrupted => code::INTERRUPTED,
    });
    failure
        .or_else(|| exit::of_cause(cause))
        .or_else(|| cause.downcast_ref().map(of_gguf))
        .or_else(|| cause.downcast_ref().map(of_models))
        .or_else(|| cause.downcast_ref().map(of_tokenizer))
        .or_else(|| crate::names::code_of(cause))
        .or_else(|| cause.downcast_ref().map(of_grammar))
        .or_else(|| cause.downcast_ref().map(of_tools))
        .or_else(|| cause.downcast_ref().and_then(of_engine))
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
            (Failure::NotFound { path: "x".into() }.into(), 3),
            (anyhow::Error::from(memory()).context("loading"), 4),
            (engine::Error::from(memory()).into(), 4),
            (program::Error::NonFinite { position: 0 }.into(), 1),
            (Failure::UnknownModel { name: "x".into(), near: Vec::new() }.into(), 3),
            (Failure::Malformed("x".into()).into(), 2),
            (Failure::Goals("x".into()).into(), 1),
            (OutputError::Exists { path: "x".into() }.into(), 1),
            (Failure::Interrupted.into(), 130),
            (anyhow::anyhow!("anything"), 1),
        ] {
            assert_eq!(code_of(&error), want, "{error:#}");
        }
    }
}
