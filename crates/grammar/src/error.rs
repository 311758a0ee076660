//! What is wrong with a form.

/// Result of this crate.
pub type Result<T, E = GrammarError> = std::result::Result<T, E>;

/// A form that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// It cannot be read.
    #[error("{what}: {problem}")]
    Malformed {
        /// `JSON schema`, `regular expression`, `grammar`.
        what: &'static str,
        /// Why, in one line.
        problem: String,
    },
    /// It is larger than anything that is compiled.
    #[error("{what}: {measure}: at most {limit}, found {found}")]
    TooLarge {
        /// As in `Malformed`.
        what: &'static str,
        /// What was measured.
        measure: &'static str,
        /// The most there may be.
        limit: u64,
        /// What there is.
        found: String,
    },
    /// No reply has it.
    #[error("{what}: nothing satisfies it: {problem}")]
    Unsatisfiable {
        /// As in `Malformed`.
        what: &'static str,
        /// Why, in one line.
        problem: String,
    },
    /// Compiling it takes more memory or time than there is for it.
    #[error("{what}: it takes too much memory or time to compile; make it smaller")]
    TooCostly {
        /// As in `Malformed`.
        what: &'static str,
    },
    /// As many forms are compiled as may be, and none ended in time.
    #[error("other forms are being compiled: try again in a second")]
    Busy,
    /// Its request was cancelled.
    #[error("the form is not compiled: its request was cancelled")]
    Cancelled,
    /// The model's vocabulary cannot write it.
    #[error("the vocabulary has no token that ends a reply, which a form needs")]
    NoEnd,
}

/// The first line of a message from elsewhere, short and fit to print.
pub(crate) fn first_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines.next().unwrap_or("it failed").to_owned();
    // what is wrong with an expression comes below a picture of it
    let below = lines.find_map(|line| line.strip_prefix("error: "));
    if let Some(below) = below.filter(|_| line.ends_with(':')) {
        line = format!("{line} {below}");
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let clean: String = line.chars().map(plain).take(240).collect();
    clean.trim_end_matches('.').to_owned()
}
