//! [`LineReader`]: where the lines of a chat come from.

/// Input at the prompt of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A line without its break.
    Line(String),
    /// Lines between `"""` and `"""`, which are never a command.
    Block(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// Reads lines for a chat.
pub(crate) trait LineReader {
    /// Shows `prompt`, with `draft` as editable text, and reads the next line.
    ///
    /// # Errors
    /// If the terminal fails.
    fn read(&mut self, prompt: &str, draft: Option<&str>) -> anyhow::Result<Input>;

    /// Drops input that was typed ahead and has already been read.
    ///
    /// # Errors
    /// If the terminal fails.
    fn forget_typed(&mut self) -> anyhow::Result<()>;

    /// Adds an entry to the history, which the arrow keys browse.
    fn remember(&mut self, entry: &str);
}
