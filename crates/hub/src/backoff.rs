//! [`Backoff`]: when a server that failed is asked again, and when it is given up.

use std::time::{Duration, Instant};

/// Who asks to be left alone for longer is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// When a server may be asked, after tries that came to nothing.
pub struct Backoff {
    /// Nobody asks before.
    not_before: Instant,
    /// Since when it goes wrong, without a byte between.
    since: Option<Instant>,
    /// For how long of that the server asked to be left alone.
    asked: Duration,
    /// For how long it may go wrong.
    outage: Duration,
}

impl Backoff {
    /// Of a server that may be asked from `now` on, and is given up after an outage of this length.
    pub fn new(now: Instant, outage: Duration) -> Backoff {
        Backoff { not_before: now, since: None, asked: Duration::ZERO, outage }
    }

    /// When the server may be asked again.
    pub fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Notes that a try failed at `now`: nobody asks for as long as the server `asked` for, and at least for the pause.
    ///
    /// # Errors
    /// Why the server is given up, as the end of a sentence that says what failed.
    pub fn postpone(
        &mut self,
        now: Instant,
        asked: Option<Duration>,
        pause: Duration,
    ) -> Result<(), String> {
        let since = *self.since.get_or_insert(now);
        // who does as it is asked to is not late; but nobody is put off for ever
        let asked_for = self.asked.min(LONGEST_WAIT);
        if now.saturating_duration_since(since).saturating_sub(asked_for) >= self.outage {
            return Err(format!(", for {} s now", self.outage.as_secs()));
        }
        if let Some(asked) = asked.filter(|asked| *asked > LONGEST_WAIT) {
            return Err(format!(", and asks to wait for {} s", asked.as_secs()));
        }
        // several connections may be told the same
        let waits = self.not_before.max(now);
        if let Some(asked) = asked {
            self.asked += (now + asked).saturating_duration_since(waits);
        }
        // who says "at once" is not asked sooner than who says nothing
        self.not_before = waits.max(now + asked.unwrap_or(pause).max(pause));
        Ok(())
    }

    /// Notes that bytes came: the outage is over.
    pub fn reset(&mut self) {
        (self.since, self.asked) = (None, Duration::ZERO);
    }
}
