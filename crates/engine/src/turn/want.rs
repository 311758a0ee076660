//! [`Want`]: the rows that a turn requests for the next step.

/// Rows that a turn requests for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// No rows: the turn is over or paused.
    Nothing,
    /// This number of prompt rows, or fewer at a time.
    Prompt(usize),
    /// This number of reply rows, all in one step.
    Steps(usize),
}

impl Want {
    /// Returns the number of rows that are always part of the next step.
    pub(crate) fn written(self) -> usize {
        if let Want::Steps(n) = self { n } else { 0 }
    }
}
