//! Writes to stderr: errors, warnings, notes and progress bars. Colours are used only if the terminal supports them, and bars
//! only on a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::wrap::wrapped;

const BOLD_RED: &str = "\x1b[1;31m";
const BOLD_YELLOW: &str = "\x1b[1;33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Writes to stderr. Failures are ignored: a closed stderr must not end the program.
fn write(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Prints the error of a failed command.
pub fn error(message: &str) {
    write(&labelled("error:", BOLD_RED, message, stderr_columns()));
}

/// Prints advice after an error.
pub fn hint(message: &str) {
    write(&labelled("hint:", DIM, message, stderr_columns()));
}

/// Prints a warning about something that does not stop the command.
pub fn warn(message: &str) {
    write(&labelled("warning:", BOLD_YELLOW, message, stderr_columns()));
}

/// Prints a line of information.
pub fn note(message: impl Display) {
    let message = broken(&message.to_string(), stderr_columns());
    write(&format!("{DIM}{message}{RESET}\n"));
}

/// Formats a message after a label in its own style. Breaks lines between words at the width of the terminal.
fn labelled(label: &str, style: &str, message: &str, columns: Option<usize>) -> String {
    let line = broken(&format!("{label} {message}"), columns);
    match line.strip_prefix(label) {
        Some(rest) => format!("{style}{label}{RESET}{rest}\n"),
        None => line + "\n",
    }
}

/// Breaks a message between words if it goes to a terminal of `columns` columns. Otherwise, the message stays one line.
fn broken(message: &str, columns: Option<usize>) -> String {
    columns.map_or_else(|| message.to_owned(), |columns| wrapped(message, columns))
}

/// Prints dimmed text as it arrives, without a line break. Used for reasoning.
pub fn dim(text: &str) {
    write(&format!("{DIM}{text}{RESET}"));
}

/// Resets the styles of stdout and stderr, so that none stays active.
pub fn reset_styles() {
    write(RESET);
    if stdout_has_styles() {
        let mut out = std::io::stdout().lock();
        // ignore errors: the terminal may be closed
        let _ = out.write_all(RESET.as_bytes()).and_then(|()| out.flush());
    }
}

/// Returns whether stderr is a terminal.
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Returns whether both stderr and stdout are terminals, so that a user follows the command. Otherwise results go to a program,
/// and stderr receives only errors, warnings and requested output.
pub fn is_interactive() -> bool {
    stderr_is_terminal() && std::io::stdout().is_terminal()
}

/// Returns whether the terminal can neither move its cursor nor use escape sequences.
pub fn terminal_is_dumb() -> bool {
    let term = std::env::var_os("TERM");
    term.is_none_or(|term| term.is_empty() || term.eq_ignore_ascii_case("dumb"))
}

/// Returns whether stdout accepts escape sequences for styles: it is a terminal that is not dumb, and `NO_COLOR` is not set.
pub fn stdout_has_styles() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// Returns the number of columns if stdout is a terminal.
pub fn stdout_columns() -> Option<usize> {
    let out = std::io::stdout();
    out.is_terminal().then(|| columns(&out)).flatten()
}

/// Returns the number of columns if stderr is a terminal.
pub fn stderr_columns() -> Option<usize> {
    let out = std::io::stderr();
    out.is_terminal().then(|| columns(&out)).flatten()
}

#[cfg(unix)]
fn columns(terminal: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(not(unix))]
fn columns<T>(_: &T) -> Option<usize> {
    None
}

/// Creates a progress bar of `total` bytes, hidden if stderr is not a terminal.
pub fn bytes_bar(label: &'static str, total: u64) -> ProgressBar {
    bar(label, total, "{prefix} {bar:40} {decimal_bytes}/{decimal_total_bytes} {msg}")
}

/// Creates a progress bar of `total` pieces of work, hidden if stderr is not a terminal.
pub fn count_bar(label: &'static str, total: u64) -> ProgressBar {
    bar(label, total, "{prefix} {bar:40} {pos}/{len} {msg}  {eta} left")
}

/// Creates the progress bar of the measurement at first use, which takes at most `limit`. `can_skip` tells whether Ctrl-C skips
/// it. The bar redraws itself regularly, since the pieces of work are long.
pub fn first_use_bar(limit: Duration, can_skip: bool) -> ProgressBar {
    let bar = bar(first_use_label(limit, can_skip), 100, "{prefix} {bar:20}");
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Returns what is said of the measurement at first use.
pub(crate) fn first_use_label(limit: Duration, can_skip: bool) -> String {
    let skip = if can_skip { " (Ctrl-C skips)" } else { "" };
    format!("measuring this machine once, at most {} s{skip}", limit.as_secs())
}

fn bar(label: impl Into<Cow<'static, str>>, total: u64, template: &str) -> ProgressBar {
    let target = if stderr_is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template(template).expect("the templates of this module are valid");
    ProgressBar::with_draw_target(Some(total), target).with_style(style).with_prefix(label)
}

/// Progress of a prompt: `reading the prompt: 39 % of 8000 tokens, 410 tok/s`. Appears on a terminal after one second.
/// [`PromptLine::clear`] erases it.
pub struct PromptLine {
    start: Instant,
    /// Number of characters on the line.
    width: usize,
    terminal: bool,
}

impl PromptLine {
    const DELAY: Duration = Duration::from_secs(1);

    /// Starts the clock.
    pub fn start() -> Self {
        let terminal = is_interactive() && !terminal_is_dumb();
        Self { start: Instant::now(), width: 0, terminal }
    }

    /// Creates a line that is never shown.
    pub fn hidden() -> Self {
        Self { terminal: false, ..Self::start() }
    }

    /// Shows how many of the prompt's tokens have been computed.
    pub fn update(&mut self, done: usize, total: usize) {
        let elapsed = self.start.elapsed();
        if !self.terminal || elapsed < Self::DELAY || done >= total {
            return;
        }
        let text = prompt_progress(done, total, elapsed);
        self.clear();
        self.width = text.len();
        write(&format!("{DIM}{text}{RESET}"));
    }

    /// Erases the line, if it is shown. Uses blanks, because escape sequences may be off.
    pub fn clear(&mut self) {
        let width = std::mem::take(&mut self.width);
        if width > 0 {
            write(&format!("\r{:width$}\r", ""));
        }
    }
}

fn prompt_progress(done: usize, total: usize, elapsed: Duration) -> String {
    let percent = 100 * done / total.max(1);
    let rate = crate::units::rate(done, elapsed);
    format!("reading the prompt: {percent} % of {total} tokens, {rate:.0} tok/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_break_between_words_on_terminals_only() {
        let message = "the file has no chat template";
        let told = |columns| labelled("warning:", "<", message, columns);
        assert_eq!(told(None), format!("<warning:{RESET} {message}\n"));
        let narrow = told(Some(20));
        assert_eq!(narrow, format!("<warning:{RESET} the file \nhas no chat template\n"));
        for columns in 1..50 {
            let told = told(Some(columns)).replace(['\n'], " ");
            let words: Vec<&str> = told.split_whitespace().skip(1).collect();
            assert_eq!(words.join(" "), message, "{columns}");
        }
    }

    #[test]
    fn a_measurement_says_how_long_it_takes_at_most() {
        let label = first_use_label(Duration::from_secs(30), true);
        assert_eq!(label, "measuring this machine once, at most 30 s (Ctrl-C skips)");
        let label = first_use_label(Duration::from_secs(5), false);
        assert_eq!(label, "measuring this machine once, at most 5 s");
    }

    #[test]
    fn the_share_of_a_prompt_is_told() {
        let told = prompt_progress(3120, 8000, Duration::from_secs(2));
        assert_eq!(told, "reading the prompt: 39 % of 8000 tokens, 1560 tok/s");
    }
}
