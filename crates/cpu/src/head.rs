//! Whether a step looks for its greatest logit in two stages: as long as that reads less.

use crate::weights::PackedJob;

/// Steps for which the head is read at once after the two stages first did not pay; twice as many each further time.
const PAUSE: u32 = 16;
/// Most of them.
const LONGEST_PAUSE: u32 = 1024;
/// Part of what leaving rows out would save at most that must be saved: panels here and there are read more slowly.
const WORTH: f64 = 0.25;

/// How the two stages have fared.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    /// Steps left without them.
    left: u32,
    /// Steps without them after the next failure.
    pause: u32,
}

impl Stages {
    /// Whether the next step, which could, is to use them.
    pub(crate) fn use_now(&mut self) -> bool {
        let now = self.left == 0;
        self.left = self.left.saturating_sub(1);
        now
    }

    /// They were used, and `n_whole` panels of `head` were computed in full. Returns by how many bytes what was read is
    /// less than the matrix in the file.
    pub(crate) fn used(&mut self, head: &PackedJob, n_whole: usize) -> u64 {
        let [coarse, fine] = [0, 1].map(|m| head.matrices[m].panel_bytes as f64);
        let (panels, whole) = (head.n_panels() as f64, n_whole as f64);
        let most = fine * panels;
        self.judge(most - (coarse + fine) * whole >= WORTH * most);
        let read = coarse * panels + (coarse + fine) * whole;
        (head.file_bytes() as f64 - read).max(0.0) as u64
    }

    fn judge(&mut self, paid: bool) {
        if paid {
            self.pause = 0;
        } else {
            self.pause = (2 * self.pause).clamp(PAUSE, LONGEST_PAUSE);
            self.left = self.pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_followed_by_longer_and_longer_pauses() {
        let mut stages = Stages::default();
        let mut pause = |paid| {
            assert!(stages.use_now());
            stages.judge(paid);
            (0..).take_while(|_| stages.left > 0 && !stages.use_now()).count()
        };
        assert_eq!([true, true].map(&mut pause), [0, 0]);
        assert_eq!([false; 8].map(&mut pause), [16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert_eq!([true, false].map(&mut pause), [0, 16]);
    }
}
