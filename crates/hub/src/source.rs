//! [`PartSource`]: where the bytes of a file come from. Parts of it are asked for over several connections, and asked for again
//! for as long as that may help; what came of a part before its connection broke off is kept.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ureq::http::StatusCode;

use crate::backoff::Backoff;
use crate::journal::range_of;
use crate::transport::{Follow, HubAnswer, Transport, failed, protocol, wait_asked_for};
use crate::{HubError, Result};

/// The first pause between two tries, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
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
    /// The time of the next try.
    backoff: Backoff,
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
        let backoff = Backoff::new(Instant::now(), transport.patience.outage);
        let shared = Shared { address: None, backoff, trouble: None };
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
                    self.later(error, asked, pause)?;
                }
            }
        }
    }

    /// Note that nobody asks for a while: as long as the server asked for, and at least as long as the pause is.
    ///
    /// # Errors
    /// `error`, if that went on for as long as is waited.
    fn later(&self, error: HubError, asked: Option<Duration>, pause: Duration) -> Result<()> {
        let mut shared = self.lock();
        if let Err(why) = shared.backoff.postpone(Instant::now(), asked, pause) {
            return Err(error.beside(&why));
        }
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
            let left = self.lock().backoff.not_before().saturating_duration_since(Instant::now());
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
            shared.backoff.reset();
            shared.trouble = None;
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
