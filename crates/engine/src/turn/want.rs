//! [`Want`]: the rows that a turn wants next.

/// The rows that a turn wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// None: it is over, or rests.
    Nothing,
    /// So many of its prompt, or fewer at a time.
    Prompt(usize),
    /// So many, all at once.
    Steps(usize),
}

impl Want {
    /// Rows that go into the next pass in any case.
    pub(crate) fn written(self) -> usize {
        if let Want::Steps(n) = self { n } else { 0 }
    }
}
