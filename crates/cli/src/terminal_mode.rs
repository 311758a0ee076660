//! The terminal while a reply runs: what is typed is not shown, and nothing of it is lost.
//!
//! It waits in the terminal, as it was typed: not cut into lines, keys as keys, pastes in their brackets, and the line
//! editor finds it at the next prompt. A terminal that has no room for more lets who types wait. Ctrl-C works as ever.

use std::sync::{Arc, Mutex, PoisonError};

#[cfg(unix)]
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

#[cfg(unix)]
use crate::ui;

/// Terminal settings from before a reply, shared with the handler that ends the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct TerminalMode {
    #[cfg(unix)]
    before: Arc<Mutex<Option<Termios>>>,
}

/// The terminal is quiet as long as this lives.
pub(crate) struct Quiet<'a>(&'a TerminalMode);

impl TerminalMode {
    /// Hides typed input from now on. Has no effect if stdin or stdout is not a terminal.
    pub(crate) fn quiet(&self) -> Quiet<'_> {
        #[cfg(unix)]
        if at_terminal() {
            self.hide(!ui::terminal_is_dumb());
        }
        Quiet(self)
    }

    /// Takes the input typed since [`TerminalMode::quiet`], as text.
    pub(crate) fn take_typed(&self) -> String {
        #[cfg(unix)]
        if at_terminal() && !ui::terminal_is_dumb() {
            return super::typed::text_of(&waiting_keys());
        }
        String::new()
    }

    /// Stops echoing input. With `edits`, the line editor reads single keys afterwards; otherwise the terminal collects
    /// lines.
    #[cfg(unix)]
    fn hide(&self, edits: bool) {
        let stdin = std::io::stdin();
        let Ok(before) = tcgetattr(&stdin) else { return };
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        // what was typed is there after Ctrl-C too
        quiet.local_modes.insert(LocalModes::ISIG | LocalModes::NOFLSH);
        if edits {
            quiet.local_modes.remove(LocalModes::ICANON);
            // Enter must stay different from Ctrl-J
            quiet.input_modes.remove(InputModes::ICRNL);
        }
        if tcsetattr(&stdin, OptionalActions::Now, &quiet).is_ok() {
            *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
            if edits {
                brackets(true);
            }
        }
    }

    /// Go back, if there is something to go back from.
    pub(crate) fn restore(&self) {
        #[cfg(unix)]
        if let Some(before) = self.before.lock().unwrap_or_else(PoisonError::into_inner).take() {
            if !ui::terminal_is_dumb() {
                brackets(false);
            }
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

#[cfg(unix)]
fn at_terminal() -> bool {
    use std::io::IsTerminal as _;
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Reads the keys that wait in a terminal without line buffering; empty if the terminal collects lines.
#[cfg(unix)]
fn waiting_keys() -> Vec<u8> {
    let stdin = std::io::stdin();
    let mut keys = Vec::new();
    let Ok(before) = tcgetattr(&stdin) else { return keys };
    if before.local_modes.contains(LocalModes::ICANON) {
        return keys;
    }
    let mut at_once = before.clone();
    at_once.special_codes[SpecialCodeIndex::VMIN] = 0;
    at_once.special_codes[SpecialCodeIndex::VTIME] = 0;
    if tcsetattr(&stdin, OptionalActions::Now, &at_once).is_ok() {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = rustix::io::read(&stdin, &mut buffer) {
            keys.extend_from_slice(&buffer[..n]);
        }
        let _ = tcsetattr(&stdin, OptionalActions::Now, &before);
    }
    keys
}

/// Ask for pastes in brackets, as the editor does at its prompt.
#[cfg(unix)]
fn brackets(on: bool) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let asked = if on { "\x1b[?2004h" } else { "\x1b[?2004l" };
    let _ = out.write_all(asked.as_bytes()).and_then(|()| out.flush());
}
