//! What is wrong with tools.

/// Result of this crate.
pub type Result<T, E = ToolError> = std::result::Result<T, E>;

/// Tools that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The list is no JSON.
    #[error("tools: no JSON: {problem}")]
    Json {
        /// Why, in one line.
        problem: String,
    },
    /// A part of it is not what it must be.
    #[error("{place}: expected {expected}, found {found}")]
    Malformed {
        /// Which part: `tools[1].function.name`.
        place: String,
        /// What it must be.
        expected: &'static str,
        /// What it is, in short.
        found: String,
    },
    /// Two tools with one name.
    #[error("{place}: `{name}` is also the name of tools[{first}]")]
    Twice {
        /// Path of the second name.
        place: String,
        /// The name.
        name: String,
        /// Index of the first tool.
        first: usize,
    },
    /// More than is read.
    #[error("tools: {measure}: at most {limit}, found {found}")]
    TooLarge {
        /// What was measured.
        measure: &'static str,
        /// The most there may be.
        limit: usize,
        /// What there is.
        found: usize,
    },
    /// A template that knows tools, and calls of which nothing is known.
    #[error("the chat template writes calls of tools in a way that is not known here")]
    Template,
    /// There must be a call, and nothing can hold a reply to it.
    #[error("tool choice: no reply can be held to a call: {problem}")]
    Form {
        /// Why, in one line.
        problem: String,
    },
    /// A tool whose arguments must be held to its schema, and cannot be.
    #[error(
        "{place}: the arguments of `{name}` cannot be held to this schema, as strict requires: {problem}"
    )]
    Strict {
        /// Path of the schema.
        place: String,
        /// The tool.
        name: String,
        /// Why, in one line.
        problem: String,
    },
    /// Their forms are not compiled now: others are, or the request was cancelled.
    #[error("tools: {0}")]
    Compiler(grammar::GrammarError),
    /// A tool that is to be called and is not there.
    #[error("tool choice: no tool is called `{name}`: there are {there}")]
    Unknown {
        /// The name.
        name: String,
        /// Those there are.
        there: String,
    },
}

impl ToolError {
    /// Returns the path of the part of a request that is wrong.
    pub fn place(&self) -> &str {
        match self {
            ToolError::Malformed { place, .. }
            | ToolError::Twice { place, .. }
            | ToolError::Strict { place, .. } => place,
            ToolError::Form { .. } | ToolError::Unknown { .. } => "tool_choice",
            ToolError::Json { .. }
            | ToolError::TooLarge { .. }
            | ToolError::Template
            | ToolError::Compiler(_) => "tools",
        }
    }
}
