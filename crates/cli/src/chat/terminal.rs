//! Lines from a terminal, with editing and a history kept in the user's state folder.

use std::borrow::Cow;
use std::io::Write as _;
use std::path::PathBuf;

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{
    Cmd, ColorMode, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event,
    EventContext, EventHandler, Helper, KeyCode, KeyEvent, Modifiers, RepeatCount,
};

use super::help;
use super::input::{Input, LineReader};
use crate::ui;

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
        if ["/save ", "/save! ", "/load ", "/read ", "/model "]
            .iter()
            .any(|command| before.starts_with(command))
        {
            return self.files.complete(line, at, context);
        }
        let pair = |text: String| Pair { display: text.trim_end().to_owned(), replacement: text };
        let found = match before.starts_with('/') {
            true => help::completions(before).into_iter().map(pair).collect(),
            false => Vec::new(),
        };
        Ok((0, found))
    }
}

impl Hinter for Commands {
    type Hint = String;
}

/// Shows typed input in bold, to tell it from replies. The prompt turns bold on and [`Terminal::read`] turns it off, so
/// that a key need not redraw the line.
impl Highlighter for Commands {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(format!("{BOLD}{prompt}"))
    }
}

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// Handler of Ctrl-Z: turns bold off before the shell gets the terminal.
struct Suspend;

impl ConditionalEventHandler for Suspend {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        end_bold();
        None
    }
}

fn end_bold() {
    if ui::stdout_has_styles() {
        print(PLAIN);
    }
}

/// Prints to the terminal. Errors are ignored, since a terminal that is gone needs no output.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Validator for Commands {}
impl Helper for Commands {}

impl Terminal {
    /// The terminal of this process, with the history of earlier chats if it can be read.
    ///
    /// # Errors
    /// If there is no terminal.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let mut editor = new_editor(DefaultHistory::with_config(&config()?))?;
        let state = crate::runtime().settings().state_folder.as_ref();
        let history = state.map(|state| state.join("history"));
        if let Some(path) = &history {
            // The first chat has none to read.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }
}

fn config() -> rustyline::Result<Config> {
    let colors = if ui::stdout_has_styles() { ColorMode::Enabled } else { ColorMode::Disabled };
    let config = Config::builder().max_history_size(1000)?;
    Ok(config.completion_type(CompletionType::List).color_mode(colors).build())
}

fn new_editor(history: DefaultHistory) -> rustyline::Result<Editor<Commands, DefaultHistory>> {
    let mut editor = Editor::with_history(config()?, history)?;
    editor.set_helper(Some(Commands::default()));
    let new_line = || EventHandler::Simple(Cmd::Newline);
    for key in [
        KeyEvent(KeyCode::Enter, Modifiers::ALT),
        KeyEvent(KeyCode::Char('\r'), Modifiers::ALT),
        KeyEvent(KeyCode::Char('J'), Modifiers::CTRL),
    ] {
        editor.bind_sequence(key, new_line());
    }
    let suspend = EventHandler::Conditional(Box::new(Suspend));
    editor.bind_sequence(KeyEvent(KeyCode::Char('Z'), Modifiers::CTRL), suspend);
    Ok(editor)
}

impl LineReader for Terminal {
    fn read(&mut self, prompt: &str, draft: Option<&str>) -> anyhow::Result<Input> {
        if ui::terminal_is_dumb() {
            return self.read_unedited(prompt, draft);
        }
        let read = self.editor.readline_with_initial(prompt, (draft.unwrap_or_default(), ""));
        end_bold();
        input(read)
    }

    fn forget_typed(&mut self) -> anyhow::Result<()> {
        let history = std::mem::take(self.editor.history_mut());
        self.editor = new_editor(history)?;
        Ok(())
    }

    fn remember(&mut self, entry: &str) {
        let added = self.editor.add_history_entry(entry).unwrap_or(false);
        let Some(path) = self.history.as_ref().filter(|_| added) else { return };
        // if the history cannot be written, it is kept in memory until the chat ends
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let saved = folder.map_err(ReadlineError::from);
        if let Err(why) = saved.and_then(|()| self.editor.append_history(path)) {
            let path = crate::output::shown(path);
            ui::warn(&format!("what you type is not saved: could not write {path}: {why}"));
            self.history = None;
        }
    }
}

impl Terminal {
    /// Reads a line from a terminal without an editor. A draft is printed, and an empty line accepts it. A line that was
    /// typed ahead was not echoed, so it is printed here.
    fn read_unedited(&mut self, prompt: &str, draft: Option<&str>) -> anyhow::Result<Input> {
        let draft = draft.filter(|draft| !draft.is_empty());
        if let Some(draft) = draft {
            let draft = crate::printable::Printable::default().push(draft);
            ui::note(format_args!("not sent: {draft}"));
            ui::note("Enter sends it, another line replaces it");
        }
        let unseen = lines_wait();
        let read = input(self.editor.readline(prompt))?;
        match (read, draft) {
            (Input::Line(line), Some(draft)) if line.is_empty() => {
                Ok(Input::Line(draft.to_owned()))
            }
            (read, _) => Ok(Self::shown(read, unseen)),
        }
    }

    /// Prints what the terminal did not echo: a line that was typed ahead, or the end of the line.
    fn shown(read: Input, unseen: bool) -> Input {
        match &read {
            Input::Line(line) if unseen => print(&format!("{line}\n")),
            Input::End => print("\n"),
            _ => {}
        }
        read
    }
}

fn input(read: rustyline::Result<String>) -> anyhow::Result<Input> {
    match read {
        Ok(line) => Ok(Input::Line(line)),
        Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
        Err(ReadlineError::Eof) => Ok(Input::End),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the terminal holds lines that have not been read.
#[cfg(unix)]
fn lines_wait() -> bool {
    rustix::io::ioctl_fionread(std::io::stdin()).is_ok_and(|bytes| bytes > 0)
}

#[cfg(not(unix))]
fn lines_wait() -> bool {
    false
}
