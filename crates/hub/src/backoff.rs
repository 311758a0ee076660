//! [`Backoff`]: when to try a server again that failed, and when to give up.

use std::time::{Duration, Instant};

/// The longest `Retry-After` that is honoured. A server that asks for more is given up.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The time of the next try, and how long a server has failed.
pub struct Backoff {
    /// The earliest time of the next try.
    not_before: Instant,
    /// The first failure since the last byte came.
    since: Option<Instant>,
    /// The part of that time for which the server asked clients to wait.
    asked: Duration,
    /// The longest outage that is waited for.
    outage: Duration,
}

impl Backoff {
    /// A server that has not failed: it may be tried from `now` on. An outage of this length ends the tries.
    pub fn new(now: Instant, outage: Duration) -> Backoff {
        Backoff { not_before: now, since: None, asked: Duration::ZERO, outage }
    }

    /// Returns the earliest time of the next try.
    pub fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Records that a try failed at `now`. The next one waits for `pause`, or for the longer time that the server `asked` for.
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
        // time that the server asked for is no outage, up to a limit
        let asked_for = self.asked.min(LONGEST_WAIT);
        if now.saturating_duration_since(since).saturating_sub(asked_for) >= self.outage {
            return Err(format!(", for {} s now", self.outage.as_secs()));
        }
        if let Some(asked) = asked.filter(|asked| *asked > LONGEST_WAIT) {
            return Err(format!(", and asks to wait for {} s", asked.as_secs()));
        }
        // several connections may get the same answer: the time counts once
        let waits = self.not_before.max(now);
        if let Some(asked) = asked {
            self.asked += (now + asked).saturating_duration_since(waits);
        }
        // `Retry-After: 0` makes no try come sooner than no header does
        self.not_before = waits.max(now + asked.unwrap_or(pause).max(pause));
        Ok(())
    }

    /// Records that bytes came: the outage is over.
    pub fn reset(&mut self) {
        (self.since, self.asked) = (None, Duration::ZERO);
    }
}
