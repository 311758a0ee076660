//! What goes to stderr: warnings, notes, bars. Colours only where the terminal wants them; bars only on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const BOLD_RED: &str = "\x1b[1;31m";
const BOLD_YELLOW: &str = "\x1b[1;33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Write to stderr. A closed stderr must not end the program, so failures are dropped.
fn write(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// The line of a failed command.
pub fn error(message: &str) {
    write(&format!("{BOLD_RED}error:{RESET} {message}\n"));
}

/// What to do about it.
pub fn hint(message: &str) {
    write(&format!("{DIM}hint:{RESET} {message}\n"));
}

/// Something that does not stop the command.
pub fn warn(message: &str) {
    write(&format!("{BOLD_YELLOW}warning:{RESET} {message}\n"));
}

/// A line of information.
pub fn note(message: impl Display) {
    write(&format!("{DIM}{message}{RESET}\n"));
}

/// Dimmed text as it comes, without a line break: thoughts.
pub fn dim(text: &str) {
    write(&format!("{DIM}{text}{RESET}"));
}

/// Whether people read stderr as it comes.
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Columns of the terminal that stdout is, if it is one.
pub fn stdout_columns() -> Option<usize> {
    let out = std::io::stdout();
    out.is_terminal().then(|| columns(&out)).flatten()
}

/// Columns of the terminal that stderr is, if it is one.
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

/// A bar over `total` bytes, hidden where stderr is no terminal.
pub fn bytes_bar(label: &'static str, total: u64) -> ProgressBar {
    bar(label, total, "{prefix} {bar:40} {decimal_bytes}/{decimal_total_bytes} {msg}")
}

/// A bar over `total` pieces of work, hidden where stderr is no terminal.
pub fn count_bar(label: &'static str, total: u64) -> ProgressBar {
    bar(label, total, "{prefix} {bar:40} {pos}/{len} {msg}  {eta} left")
}

fn bar(label: &'static str, total: u64, template: &str) -> ProgressBar {
    let target = if stderr_is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template(template).expect("the templates of this module are valid");
    ProgressBar::with_draw_target(Some(total), target).with_style(style).with_prefix(label)
}

/// `prompt 3120/8000 tok - 410 t/s` on a terminal, from one second on, erased by [`PromptLine::clear`].
pub struct PromptLine {
    start: Instant,
    /// Characters that stand on the line.
    width: usize,
    terminal: bool,
}

impl PromptLine {
    const DELAY: Duration = Duration::from_secs(1);

    /// Starts the clock.
    pub fn start() -> Self {
        Self { start: Instant::now(), width: 0, terminal: stderr_is_terminal() }
    }

    /// Show how far the prompt has come.
    pub fn update(&mut self, done: usize, total: usize) {
        let elapsed = self.start.elapsed();
        if !self.terminal || elapsed < Self::DELAY || done >= total {
            return;
        }
        let text =
            format!("prompt {done}/{total} tok - {:.0} t/s", crate::units::rate(done, elapsed));
        self.clear();
        self.width = text.len();
        write(&format!("{DIM}{text}{RESET}"));
    }

    /// Erase the line, if it was shown. With blanks: where colours are off, so are escape sequences.
    pub fn clear(&mut self) {
        let width = std::mem::take(&mut self.width);
        if width > 0 {
            write(&format!("\r{:width$}\r", ""));
        }
    }
}
