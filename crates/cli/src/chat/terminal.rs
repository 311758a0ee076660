//! Lines from a terminal, with editing and a history kept in the user's state folder.

use std::path::PathBuf;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, CompletionType, Config, Context, Editor, EventHandler, Helper, KeyCode, KeyEvent,
    Modifiers,
};

use super::{Input, LineReader, command};

/// A line editor.
pub(crate) struct Terminal {
    editor: Editor<Commands, DefaultHistory>,
    history: Option<PathBuf>,
}

/// What Tab completes: commands, and files where a command wants one.
#[derive(Default)]
struct Commands {
    files: FilenameCompleter,
}

impl Completer for Commands {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..at];
        if ["/save ", "/save! ", "/load ", "/read "]
            .iter()
            .any(|command| before.starts_with(command))
        {
            return self.files.complete(line, at, context);
        }
        let pair = |text: String| Pair { display: text.trim_end().to_owned(), replacement: text };
        let found = match before.starts_with('/') {
            true => command::completions(before).into_iter().map(pair).collect(),
            false => Vec::new(),
        };
        Ok((0, found))
    }
}

impl Hinter for Commands {
    type Hint = String;
}

impl Highlighter for Commands {}
impl Validator for Commands {}
impl Helper for Commands {}

impl Terminal {
    /// The terminal of this process, with the history of earlier chats if it can be read.
    ///
    /// # Errors
    /// If there is no terminal.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let config =
            Config::builder().max_history_size(1000)?.completion_type(CompletionType::List).build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Commands::default()));
        let new_line = || EventHandler::Simple(Cmd::Newline);
        for key in [
            KeyEvent(KeyCode::Enter, Modifiers::ALT),
            KeyEvent(KeyCode::Char('\r'), Modifiers::ALT),
            KeyEvent(KeyCode::Char('J'), Modifiers::CTRL),
        ] {
            editor.bind_sequence(key, new_line());
        }
        let history = history_file(|name| std::env::var_os(name).map(PathBuf::from));
        if let Some(path) = &history {
            // The first chat has none to read.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }
}
impl LineReader for Terminal {
    fn read(&mut self, prompt: &str) -> anyhow::Result<Input> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Input::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(error.into()),
        }
    }

    fn remember(&mut self, entry: &str) {
        let added = self.editor.add_history_entry(entry).unwrap_or(false);
        let Some(path) = self.history.as_ref().filter(|_| added) else { return };
        // A history that cannot be written is one that lasts as long as the chat.
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        if folder.is_err() || self.editor.append_history(path).is_err() {
            self.history = None;
        }
    }
}

/// `$XDG_STATE_HOME/rooflight/history`, by default in `~/.local/state`.
fn history_file(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let state = variable("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("rooflight").join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_in_the_state_folder() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            let path =
                history_file(|name| if name == "HOME" { home } else { xdg }.map(PathBuf::from));
            path.map(|path| path.display().to_string())
        };
        assert_eq!(with(Some("/s"), Some("/h")).as_deref(), Some("/s/rooflight/history"));
        assert_eq!(
            with(Some("relative"), Some("/h")).as_deref(),
            Some("/h/.local/state/rooflight/history")
        );
        assert_eq!(with(None, None), None);
    }
}
