//! Text that came and was not looked at, and what it may become.

/// Text at whose start something is taken off.
#[derive(Default)]
pub(super) struct Input {
    text: String,
    at: usize,
}

impl Input {
    pub(super) fn push(&mut self, text: &str) {
        // what was taken off goes when it is most of it
        if self.at > self.text.len() / 2 {
            self.text.drain(..self.at);
            self.at = 0;
        }
        self.text.push_str(text);
    }

    pub(super) fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn skip_space(&mut self) {
        let rest = self.rest();
        self.skip(rest.len() - rest.trim_start().len());
    }
}

/// Whether a text begins with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Yes,
    /// As far as it came.
    Maybe,
    No,
}

pub(super) fn matches(text: &str, mark: &str) -> Match {
    if text.starts_with(mark) {
        Match::Yes
    } else if mark.starts_with(text) {
        Match::Maybe
    } else {
        Match::No
    }
}

/// Length of the longest end of `text` that is a beginning of `mark`, but not all of it.
pub(super) fn held_for(text: &str, mark: &str) -> usize {
    let longest = text.len().min(mark.len().saturating_sub(1));
    let (text, mark) = (text.as_bytes(), mark.as_bytes());
    (1..=longest).rev().find(|&n| text[text.len() - n..] == mark[..n]).unwrap_or(0)
}
