//! Ctrl-C: the first one stops a reply or a download, any other one ends the program with exit code 130.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::terminal_mode::TerminalMode;
use console::exit::code;

/// What the signal handler and the main thread share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    replying: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
    /// Another program has the terminal: Ctrl-C is for that program alone.
    aside: Arc<AtomicBool>,
    /// What to put right before the program ends.
    terminal: TerminalMode,
}

impl Interrupt {
    /// Install the handler. Where that fails, Ctrl-C ends the program as the system does it.
    pub(crate) fn install() -> Self {
        let interrupt = Self::default();
        let shared = interrupt.clone();
        let installed = ctrlc::set_handler(move || {
            if shared.ends_program() {
                shared.terminal.restore();
                // the output may have ended within a text style
                crate::ui::reset_styles();
                std::process::exit(code::INTERRUPTED.into());
            }
        });
        if let Err(error) = installed {
            crate::ui::warn(&format!("Ctrl-C will not keep the conversation: {error}"));
        }
        interrupt
    }

    /// Handles a Ctrl-C and returns whether it ends the program.
    fn ends_program(&self) -> bool {
        !self.aside.load(Ordering::SeqCst) && !self.stop_reply()
    }

    /// Ignores Ctrl-C until the guard is dropped, because another program has the terminal.
    pub(crate) fn set_aside(&self) -> Aside {
        self.aside.store(true, Ordering::SeqCst);
        Aside(Arc::clone(&self.aside))
    }

    /// Note a Ctrl-C; false if there is no reply left to stop.
    fn stop_reply(&self) -> bool {
        self.replying.load(Ordering::SeqCst) && !self.cancelled.swap(true, Ordering::SeqCst)
    }

    /// A reply starts: until [`Interrupt::end`] the first Ctrl-C only raises the flag.
    pub(crate) fn begin(&self) {
        self.cancelled.store(false, Ordering::SeqCst);
        self.replying.store(true, Ordering::SeqCst);
    }

    /// The reply is over; whether Ctrl-C stopped it.
    pub(crate) fn end(&self) -> bool {
        self.replying.store(false, Ordering::SeqCst);
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Whether Ctrl-C came during the reply.
    pub(crate) fn is_raised(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// The terminal's settings, put right before Ctrl-C ends the program.
    pub(crate) fn terminal(&self) -> &TerminalMode {
        &self.terminal
    }

    /// Raised by Ctrl-C during a reply.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.cancelled
    }
}

/// Guard that ignores Ctrl-C until it is dropped.
pub(crate) struct Aside(Arc<AtomicBool>);

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stops_the_reply_and_the_second_does_not() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.stop_reply());
        interrupt.begin();
        assert!(interrupt.stop_reply() && interrupt.flag().load(Ordering::SeqCst));
        assert!(!interrupt.stop_reply());
        assert!(interrupt.end());
        interrupt.begin();
        assert!(!interrupt.end());
        // another program's Ctrl-C neither ends this one nor stops its next reply
        let aside = interrupt.set_aside();
        assert!(!interrupt.ends_program() && !interrupt.is_raised());
        drop(aside);
        assert!(interrupt.ends_program());
    }
}
