//! [`PartSource`]: where the bytes of a file come from. Parts of it are asked for over several connections, and asked for again
//! for as long as that may help; what came of a part before its connection broke off is kept.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ureq::http::StatusCode;

use crate::journal::range_of;
use crate::transport::{Follow, HubAnswer, Transport, failed, protocol, wait_asked_for};
use crate::{HubError, Result};

/// The first pause between two tries, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Who asks to be left alone for longer is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// How often an address that is refused is asked for anew, without a byte from any.
const ADDRESSES: u32 = 3;

/// A file on a hub.
pub(crate) struct PartSource {
    transport: Arc<Transport>,
    /// Its address at the hub, which sends those who ask to where the bytes are.
    url: String,
    /// Its bytes.
    bytes: u64,
    /// Nothing is wanted any more.
    stop: AtomicBool,
    /// Bytes that came.
    came: AtomicU64,
    shared: Mutex<Shared>,
}

/// What all connections know.
struct Shared {
    /// Where the bytes are, for as long as that address is good.
    address: Option<String>,
    /// Nobody asks before.
    not_before: Instant,
    /// Since when it goes wrong, without a byte between.
    since: Option<Instant>,
    /// For how long of that a server asked to be left alone.
    asked: Duration,
    /// What went wrong last.
    trouble: Option<String>,
}

/// Why a try came to nothing.
enum Trouble {
    /// It may be over later; the server may say when.
    Passing(HubError, Option<Duration>),
    /// The address is not good any more.
    Stale(HubError),
    /// It will be the same again.
    Lasting(HubError),
}

impl PartSource {
    /// A file of so many bytes, which the hub has at `url`.
    pub(crate) fn new(transport: Arc<Transport>, url: String, bytes: u64) -> PartSource {
        let (not_before, asked) = (Instant::now(), Duration::ZERO);
        let shared = Shared { address: None, not_before, since: None, asked, trouble: None };
        let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
        PartSource { transport, url, bytes, stop, came, shared: Mutex::new(shared) }
    }

    /// Have all connections end as soon as they notice.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Bytes that came.
    pub(crate) fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// What went wrong since something came last.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// A part, tried for as long as it may help.
    ///
    /// # Errors
    /// What will not be over, or was not for as long as is waited; [`HubError::Cancelled`].
    pub(crate) fn part(&self, part: usize) -> Result<Vec<u8>> {
        let (start, end) = range_of(part, self.bytes);
        let mut bytes = Vec::with_capacity((end - start) as usize);
        let (mut tried, mut stale) = (0, 0);
        loop {
            self.wait()?;
            let had = bytes.len();
            let Err(trouble) = self.more(&mut bytes, start, end) else { return Ok(bytes) };
            if bytes.len() > had {
                (tried, stale) = (0, 0);
            }
            match trouble {
                Trouble::Lasting(error) => return Err(error),
                Trouble::Stale(error) => {
                    stale += 1;
                    if stale > ADDRESSES {
                        return Err(error);
                    }
                }
                Trouble::Passing(error, asked) => {
                    let pause = (FIRST_PAUSE * (1 << tried.min(6))).min(LONGEST_PAUSE);
                    tried += 1;
                    self.later(Instant::now(), error, (asked, pause))?;
                }
            }
        }
    }

    /// Note that nobody asks for a while: as long as the server asked for, and at least as long as the pause is.
    ///
    /// # Errors
    /// `error`, if that went on for as long as is waited.
    fn later(
        &self,
        now: Instant,
        error: HubError,
        (asked, pause): (Option<Duration>, Duration),
    ) -> Result<()> {
        let mut shared = self.lock();
        let outage = self.transport.patience.outage;
        let since = *shared.since.get_or_insert(now);
        // who does as it is asked to is not late; but nobody is put off for ever
        let asked_for = shared.asked.min(LONGEST_WAIT);
        if now.saturating_duration_since(since).saturating_sub(asked_for) >= outage {
            let tried = format!(", for {} s now", outage.as_secs());
            return Err(error.beside(&tried));
        }
        if let Some(asked) = asked.filter(|asked| *asked > LONGEST_WAIT) {
            let asks = format!(", and asks to wait for {} s", asked.as_secs());
            return Err(error.beside(&asks));
        }
        // several connections may be told the same
        let waits = shared.not_before.max(now);
        if let Some(asked) = asked {
            shared.asked += (now + asked).saturating_duration_since(waits);
        }
        // who says "at once" is not asked sooner than who says nothing
        shared.not_before = waits.max(now + asked.unwrap_or(pause).max(pause));
        shared.trouble = Some(error.to_string());
        Ok(())
    }

    /// Wait until somebody may be asked.
    fn wait(&self) -> Result<()> {
        const STEP: Duration = Duration::from_millis(50);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(HubError::Cancelled);
            }
            let left = self.lock().not_before.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STEP));
        }
    }

    /// What is missing of a part, tried once; what comes stays in `bytes`.
    fn more(&self, bytes: &mut Vec<u8>, start: u64, end: u64) -> Result<(), Trouble> {
        let kept = self.lock().address.clone();
        let start = start + bytes.len() as u64;
        let url = kept.as_deref().unwrap_or(&self.url);
        let forget = || {
            if let Some(kept) = &kept {
                self.lock().address.take_if(|address| address == kept);
            }
        };
        let answer = self.transport.get(url, Some((start, end)), Follow::All);
        let mut answer = answer.map_err(|error| match error {
            error @ HubError::Transport { .. } => {
                forget();
                Trouble::Passing(error, None)
            }
            error => Trouble::Lasting(error),
        })?;
        // the hub is asked once, and not again for each part: it counts who asks
        if kept.is_none() && answer.url != self.url && answer.status.is_success() {
            self.lock().address = Some(answer.url.clone());
        }
        let checked = self.check(&answer, start, end);
        if let Err(Trouble::Stale(_)) = &checked {
            forget();
        }
        checked?;
        let broken = |error: &dyn std::fmt::Display, url: &str| {
            Err(Trouble::Passing(failed(url, error), None))
        };
        let reader = &mut answer.body.as_reader();
        let mut left = (end - start) as usize;
        let mut buffer = [0; 64 << 10];
        while left > 0 {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Trouble::Lasting(HubError::Cancelled));
            }
            let n = match reader.read(&mut buffer) {
                Ok(0) => return broken(&"the connection broke off", &answer.url),
                Ok(n) => n,
                Err(error) => return broken(&error, &answer.url),
            };
            if n > left {
                let range = format!("{} bytes", end - start);
                let error = protocol(&self.url, range, "more of them");
                return Err(Trouble::Lasting(error));
            }
            bytes.extend_from_slice(&buffer[..n]);
            left -= n;
            self.came.fetch_add(n as u64, Ordering::Relaxed);
            let mut shared = self.lock();
            (shared.since, shared.asked, shared.trouble) = (None, Duration::ZERO, None);
        }
        Ok(())
    }

    /// That an answer is the range that was asked for, or all of a file that was.
    fn check(&self, answer: &HubAnswer, start: u64, end: u64) -> Result<(), Trouble> {
        let total = self.bytes;
        let wrong = |expected: String, found: &str| {
            Err(Trouble::Lasting(protocol(&answer.url, expected, found)))
        };
        if let Some(coding) = answer.header("content-encoding").filter(|c| *c != "identity") {
            return wrong("the file as it is".into(), &format!("Content-Encoding: {coding}"));
        }
        let refused = || failed(&answer.url, &format!("the server answers {}", answer.status));
        match answer.status {
            StatusCode::PARTIAL_CONTENT => {
                let expected = format!("bytes {start}-{}/{total}", end - 1);
                match answer.header("content-range") {
                    Some(range) if range == expected => {}
                    other => {
                        let found = other.unwrap_or("no Content-Range");
                        return wrong(format!("Content-Range: {expected}"), found);
                    }
                }
                match answer.header("content-length").map(str::parse::<u64>) {
                    Some(Ok(found)) if found > end - start => {
                        wrong(format!("{} bytes", end - start), "more of them")
                    }
                    _ => Ok(()),
                }
            }
            // it knows of no ranges: to pass over what comes before would be to read the file once for each part
            StatusCode::OK if start > 0 || end < total => {
                wrong("a part of the file".into(), "all of it: this server knows no ranges")
            }
            StatusCode::OK => match answer.header("content-length").map(str::parse::<u64>) {
                Some(Ok(found)) if found != total => {
                    wrong(format!("{total} bytes"), &format!("{found} bytes"))
                }
                _ => Ok(()),
            },
            status if passes(status) => Err(Trouble::Passing(refused(), wait_asked_for(answer))),
            // an address that was signed for a while is asked for anew; some stores call one that is over a wrong request
            StatusCode::BAD_REQUEST
            | StatusCode::FORBIDDEN
            | StatusCode::UNAUTHORIZED
            | StatusCode::NOT_FOUND
            | StatusCode::GONE
                if answer.url != self.url =>
            {
                Err(Trouble::Stale(refused()))
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(Trouble::Lasting(refused())),
            status => wrong("a part of the file".into(), &status.to_string()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // what is there is whole, whatever happened beside it
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server that answers so may answer otherwise later.
pub(crate) fn passes(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HubOptions, HubPatience};

    const SECOND: Duration = Duration::from_secs(1);

    fn source(patience: HubPatience) -> PartSource {
        let (cache, endpoint) = (std::path::PathBuf::new(), "http://localhost".to_owned());
        let options = HubOptions { cache, endpoint, token: None, offline: false, patience };
        PartSource::new(Arc::new(Transport::new(&options)), "http://localhost/x".into(), 10)
    }

    /// Whether it is tried again, so many seconds after `start`, when the server asked for so many.
    fn goes_on(source: &PartSource, start: Instant, at: u32, asked: Option<u32>) -> bool {
        let pause = LONGEST_PAUSE;
        let error = failed("http://localhost/x", &"busy");
        let waits = (asked.map(|seconds| seconds * SECOND), pause);
        source.later(start + at * SECOND, error, waits).is_ok()
    }

    #[test]
    fn what_a_server_asks_for_is_no_outage() {
        let patience = HubPatience::default();
        assert_eq!(patience.outage, 600 * SECOND);
        let start = Instant::now();
        let busy = source(patience);
        // all connections are told so
        for i in 0..4 {
            assert!(goes_on(&busy, start, i, Some(900 - i)));
        }
        assert!(busy.lock().not_before >= start + 900 * SECOND);
        assert!(goes_on(&busy, start, 900, None), "it was left alone for as long as it asked");
        assert!(goes_on(&busy, start, 1499, None));
        assert!(!goes_on(&busy, start, 1500, None), "ten minutes of its own");
        // however long nothing was tried, as while the process was stopped, trouble begins with the first one
        let stopped = source(patience);
        assert!(goes_on(&stopped, start, 10_000, None) && goes_on(&stopped, start, 10_599, None));
        assert!(!goes_on(&stopped, start, 10_600, None));
        // one that puts off for ever is given up
        let never = source(patience);
        let mut at = 0;
        while goes_on(&never, start, at, Some(60)) {
            at += 60;
        }
        assert!((3600..5000).contains(&at), "{at}");
        assert!(!goes_on(&source(patience), start, 0, Some(3601)), "too long at once");
        // nor does one that asks for no wait at all get more requests than one that says nothing
        let hasty = source(patience);
        assert!(goes_on(&hasty, start, 0, Some(0)));
        assert!(hasty.lock().not_before >= start + LONGEST_PAUSE);
    }
}
