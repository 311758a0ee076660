//! A hub on this machine for models by name: one repository of made-up files, and mischief.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// What it does wrong with the bytes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// Nothing.
    None,
    /// Every so many answers break off in the middle.
    Drops(usize),
    /// It knows no ranges.
    NoRanges,
    /// Another range than was asked for.
    OtherRange,
    /// A byte is another one.
    Flips,
    /// Its answers end early, and say that they are whole.
    Short,
    /// More bytes come than were announced.
    Long,
    /// Answers are packed.
    Packs,
    /// It is busy so many times, and asks to wait for a second.
    Busy(usize),
    /// Nobody answers for so long since it does that.
    Away(Duration),
    /// An address is good for so many requests, and then refused with this status.
    Expires(usize, u16),
    /// In the middle of an answer nothing comes any more.
    Stalls,
    /// It says that there is nothing there.
    Unsatisfiable,
    /// The file that comes is another one of the same size.
    Changes,
    /// It redirects for ever.
    Circles,
}

/// A hub, and beside it a server that has the bytes. Gone when dropped.
pub struct FakeHub {
    /// Where the hub listens.
    pub address: String,
    state: Arc<HubState>,
}

/// What it has, does and saw.
pub struct HubState {
    /// By name.
    pub files: Mutex<HashMap<String, Vec<u8>>>,
    /// What it does wrong.
    pub mischief: Mutex<Mischief>,
    /// Requests for bytes since it does that.
    pub asked: AtomicUsize,
    /// Requests to the hub for where the bytes of a file are.
    pub resolved: AtomicUsize,
    /// Requests to each address that was told.
    used: Mutex<HashMap<String, usize>>,
    /// Since when it does that.
    since: Mutex<Instant>,
    /// Bytes of files that were sent.
    pub sent: AtomicU64,
    /// Pause before each 64 KiB.
    pub pause: Mutex<Duration>,
    /// What requests for bytes said of who asks, on the other server.
    pub leaked: AtomicBool,
    /// The token that the hub wants, if it wants one.
    pub token: Mutex<Option<String>>,
    /// Where bytes are.
    other: Mutex<String>,
    stopped: AtomicBool,
}

/// The commit of its repository.
pub const HUB_COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Its repository.
pub const HUB_REPOSITORY: &str = "org/Model-GGUF";

/// Bytes that are no others'.
pub fn made_up(seed: u64, n: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(n).collect()
}

/// As 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FakeHub {
    /// With these files.
    pub fn new(files: &[(&str, Vec<u8>)]) -> FakeHub {
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone()));
        let state = Arc::new(HubState {
            files: Mutex::new(files.collect()),
            mischief: Mutex::new(Mischief::None),
            asked: AtomicUsize::new(0),
            resolved: AtomicUsize::new(0),
            used: Mutex::default(),
            since: Mutex::new(Instant::now()),
            sent: AtomicU64::new(0),
            pause: Mutex::default(),
            leaked: AtomicBool::new(false),
            token: Mutex::default(),
            other: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        // the hub, and the server that has the bytes
        let address = serve(&state, true);
        *state.other.lock().unwrap() = serve(&state, false);
        FakeHub { address, state }
    }

    /// What it has, does and saw.
    pub fn state(&self) -> &HubState {
        &self.state
    }

    /// Have it do this from now on.
    pub fn does(&self, mischief: Mischief) {
        *self.state.mischief.lock().unwrap() = mischief;
        *self.state.since.lock().unwrap() = Instant::now();
        self.state.asked.store(0, Ordering::Relaxed);
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
    }
}

fn serve(state: &Arc<HubState>, is_hub: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        while !state.stopped.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let state = Arc::clone(&state);
                    stream.set_nonblocking(false).unwrap();
                    // a client that goes away is nobody's concern
                    std::thread::spawn(move || drop(answer(&state, stream, is_hub)));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    });
    address
}

fn answer(state: &HubState, stream: TcpStream, is_hub: bool) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let path = lines[0].split(' ').nth(1).unwrap_or_default().to_owned();
    let mischief = *state.mischief.lock().unwrap();
    if let Mischief::Away(time) = mischief
        && state.since.lock().unwrap().elapsed() < time
    {
        return Ok(());
    }
    let header = |name: &str| {
        let found = lines.iter().find(|line| line.to_lowercase().starts_with(name));
        found.map(|line| line[name.len()..].trim().to_owned())
    };
    let mut out = Out { stream, state };
    if is_hub {
        let wanted = state.token.lock().unwrap().clone().map(|token| format!("Bearer {token}"));
        if wanted.is_some() && header("authorization:") != wanted {
            return out.plain("401 Unauthorized", "", b"");
        }
        if path == format!("/api/models/{HUB_REPOSITORY}/revision/main") {
            let files = state.files.lock().unwrap();
            let mut names: Vec<&String> = files.keys().collect();
            names.sort();
            let siblings: Vec<String> =
                names.iter().map(|name| format!("{{\"rfilename\": \"{name}\"}}")).collect();
            let body =
                format!("{{\"sha\": \"{HUB_COMMIT}\", \"siblings\": [{}]}}", siblings.join(","));
            return out.plain("200 OK", "Content-Type: application/json\r\n", body.as_bytes());
        }
        let prefix = format!("/{HUB_REPOSITORY}/resolve/{HUB_COMMIT}/");
        let old = format!("/org/old-name/resolve/{HUB_COMMIT}/");
        if let Some(file) = path.strip_prefix(&old) {
            return out.plain(
                "307 Temporary Redirect",
                &format!("Location: {prefix}{file}\r\n"),
                b"",
            );
        }
        let file = path.strip_prefix(&prefix).map(|file| file.replace("%20", " "));
        let known = file.and_then(|file| {
            let files = state.files.lock().unwrap();
            files.get(&file).map(|bytes| (file, bytes.len(), sha256(bytes)))
        });
        let Some((file, bytes, digest)) = known else { return out.plain("404 Not Found", "", b"") };
        let n = state.resolved.fetch_add(1, Ordering::Relaxed) + 1;
        let other = match mischief {
            Mischief::Circles => format!("{prefix}{file}"),
            _ => format!("{}/cdn/{file}?signature={n}", state.other.lock().unwrap()),
        };
        let headers = format!(
            "Location: {}\r\nX-Repo-Commit: {HUB_COMMIT}\r\nX-Linked-Size: {bytes}\r\nX-Linked-Etag: \"{digest}\"\r\n",
            other.replace(' ', "%20")
        );
        return out.plain("302 Found", &headers, b"");
    }
    if header("authorization:").is_some() {
        state.leaked.store(true, Ordering::Relaxed);
    }
    if let Mischief::Expires(uses, status) = mischief {
        let used = {
            let mut all = state.used.lock().unwrap();
            let used = all.entry(path.clone()).or_default();
            *used += 1;
            *used
        };
        if used > uses {
            return out.plain(&format!("{status} Refused"), "", b"expired");
        }
    }
    let file = path.strip_prefix("/cdn/").and_then(|path| path.split('?').next());
    let file = file.map(|file| file.replace("%20", " "));
    let bytes = file.and_then(|file| state.files.lock().unwrap().get(&file).cloned());
    let Some(bytes) = bytes else { return out.plain("404 Not Found", "", b"") };
    let range = header("range:").and_then(|range| {
        let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()? + 1))
    });
    out.bytes(bytes, range)
}

struct Out<'a> {
    stream: TcpStream,
    state: &'a HubState,
}

impl Out<'_> {
    fn plain(&mut self, status: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body)
    }

    fn bytes(&mut self, mut all: Vec<u8>, range: Option<(usize, usize)>) -> std::io::Result<()> {
        let mischief = *self.state.mischief.lock().unwrap();
        let asked = self.state.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let total = all.len();
        let (start, end) = range.unwrap_or((0, total));
        let end = end.min(total);
        let (mut status, mut headers) = ("206 Partial Content", String::new());
        let mut said = (start, end);
        match mischief {
            Mischief::Busy(times) if asked <= times => {
                return self.plain("503 Service Unavailable", "Retry-After: 1\r\n", b"busy");
            }
            Mischief::Unsatisfiable => return self.plain("416 Range Not Satisfiable", "", b""),
            Mischief::OtherRange => said = (start + 1, end),
            Mischief::Flips if end - start > 10 => all[start + 7] ^= 1,
            Mischief::Changes => all = made_up(99, total),
            Mischief::Packs => headers += "Content-Encoding: gzip\r\n",
            _ => {}
        }
        let mut body = &all[start..end];
        if mischief == Mischief::NoRanges {
            (status, body) = ("200 OK", &all);
        } else {
            headers += &format!("Content-Range: bytes {}-{}/{total}\r\n", said.0, said.1 - 1);
        }
        let announced = match mischief {
            Mischief::Short => body.len() - body.len() / 3,
            Mischief::Long => body.len() + 5,
            _ => body.len(),
        };
        let mut sent = body.to_vec();
        sent.resize(announced, 0);
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {announced}\r\nConnection: close\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes())?;
        if let Mischief::Drops(every) = mischief
            && asked.is_multiple_of(every)
        {
            sent.truncate(announced / 2);
        }
        let stalls = mischief == Mischief::Stalls;
        if stalls {
            sent.truncate(announced / 2);
        }
        let pause = *self.state.pause.lock().unwrap();
        for piece in sent.chunks(64 << 10) {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            // counted first: who has the last piece may ask at once how much was sent
            self.state.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.stream.write_all(piece)?;
        }
        let start = Instant::now();
        while stalls
            && !self.state.stopped.load(Ordering::Relaxed)
            && *self.state.mischief.lock().unwrap() == mischief
            && start.elapsed() < Duration::from_secs(90)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
