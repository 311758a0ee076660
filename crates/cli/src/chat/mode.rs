//! The terminal while a reply runs: what is typed is not shown, and nothing of it is lost.
//!
//! It waits in the terminal, as it was typed: not cut into lines, keys as keys, pastes in their brackets, and the line
//! editor finds it at the next prompt. A terminal that has no room for more lets who types wait. Ctrl-C works as ever.

use std::sync::{Arc, Mutex, PoisonError};

#[cfg(unix)]
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Settings to go back to, shared with who ends the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct TerminalMode {
    #[cfg(unix)]
    before: Arc<Mutex<Option<Termios>>>,
}

/// The terminal is quiet as long as this lives.
pub(crate) struct Quiet<'a>(&'a TerminalMode);

impl TerminalMode {
    /// Hide what is typed from here on. No effect where stdin is no terminal that can be edited on.
    pub(crate) fn quiet(&self) -> Quiet<'_> {
        #[cfg(unix)]
        if editable() {
            self.hide();
        }
        Quiet(self)
    }

    #[cfg(unix)]
    fn hide(&self) {
        let stdin = std::io::stdin();
        let Ok(before) = tcgetattr(&stdin) else { return };
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        // what was typed is there after Ctrl-C too
        quiet.local_modes.insert(LocalModes::ISIG | LocalModes::NOFLSH);
        // Enter stays Enter, not Ctrl-J
        quiet.input_modes.remove(InputModes::ICRNL);
        if tcsetattr(&stdin, OptionalActions::Now, &quiet).is_ok() {
            *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
            brackets(true);
        }
    }

    /// Go back, if there is something to go back from.
    pub(crate) fn restore(&self) {
        #[cfg(unix)]
        if let Some(before) = self.before.lock().unwrap_or_else(PoisonError::into_inner).take() {
            brackets(false);
            // a terminal that has gone needs nothing
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
        }
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// Whether the line editor edits there: on others it reads lines as the terminal makes them.
#[cfg(unix)]
fn editable() -> bool {
    use std::io::IsTerminal as _;
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !dumb
}

/// Ask for pastes in brackets, as the editor does at its prompt.
#[cfg(unix)]
fn brackets(on: bool) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let asked = if on { "\x1b[?2004h" } else { "\x1b[?2004l" };
    let _ = out.write_all(asked.as_bytes()).and_then(|()| out.flush());
}
