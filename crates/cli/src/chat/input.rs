//! [`LineReader`]: where the lines of a chat come from.

/// What came from the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A line without its break.
    Line(String),
    /// Lines between `"""` and `"""`: never a command.
    Block(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

/// Where lines come from.
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

    /// Keep an entry for the arrow keys.
    fn remember(&mut self, entry: &str);
}
