//! A server of its own for a test, what the system says of its process, and requests as bytes on a socket.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Place, text};

/// The program that serves.
fn program() -> PathBuf {
    let other = std::env::var_os("ROOFLIGHT_SERVED_BINARY");
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_rooflight").into()).into()
}

/// A server; gone when dropped.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) port: String,
    /// What it prints since it listens, to stderr and to stdout.
    printed: Vec<JoinHandle<String>>,
}

impl Serving {
    /// Of the bundled model, unless the arguments name another.
    pub(crate) fn start(place: &Place, args: &[&str]) -> Serving {
        Serving::with(place, args, &[])
    }

    /// With these variables, too. `ROOFLIGHT_SERVED_BINARY` is another build of the program.
    pub(crate) fn with(place: &Place, args: &[&str], variables: &[(&str, &str)]) -> Serving {
        Serving::by(&program(), place, args, variables)
    }

    /// With no more than this many bytes of memory of its own (`RLIMIT_DATA`).
    pub(crate) fn within(place: &Place, args: &[&str], bytes: u64) -> Serving {
        let mut command = Command::new("sh");
        let limit = format!("ulimit -d {}; exec \"$0\" \"$@\"", bytes >> 10);
        command.args(["-c", &limit]).arg(program());
        Serving::run(command, place, args, &[])
    }

    /// By this program.
    pub(crate) fn by(
        program: &Path,
        place: &Place,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Serving {
        Serving::run(Command::new(program), place, args, variables)
    }

    /// By this command, to which `serve` and its arguments are added.
    fn run(
        mut command: Command,
        place: &Place,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Serving {
        command.args(["serve", "--port", "0"]).args(args).current_dir(place.path("."));
        command.env_clear().env("HOME", place.path(".")).envs(variables.iter().copied());
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut before = String::new();
        // what it keeps is told first
        let port = loop {
            let line = lines.next().expect("it listens");
            match line.strip_prefix("listening on http://127.0.0.1:") {
                Some(port) => break port.to_owned(),
                None => before += &format!("\n{line}"),
            }
        };
        while !before.contains("\nserving ") {
            before += &format!("\n{}", lines.next().expect("it serves"));
        }
        // it must not stop for what it says later
        let stderr = std::thread::spawn(move || {
            let after: String = lines.map(|line| line + "\n").collect();
            format!("{before}\n{after}")
        });
        let mut stdout = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || {
            let mut all = Vec::new();
            stdout.read_to_end(&mut all).unwrap();
            text(&all)
        });
        Serving { child, port, printed: vec![stderr, stdout] }
    }

    /// Ask it to end as the system does.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The same, and wait for all that it printed.
    pub(crate) fn ended(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
        self.printed()
    }

    /// All that it printed, once it has ended.
    pub(crate) fn printed(&mut self) -> String {
        self.printed.drain(..).map(|thread| thread.join().unwrap()).collect()
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> Connection {
        self.try_connect().unwrap()
    }

    /// The same; an error where the server is gone.
    pub(crate) fn try_connect(&self) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(format!("127.0.0.1:{}", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// What the object is answered with.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        let mut connection = self.connect();
        connection.send("POST", path, "", &body.to_string());
        connection.answer().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        let mut connection = self.connect();
        connection.send("GET", path, "", "");
        connection.answer().unwrap()
    }

    /// A value of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find(|line| line.starts_with(&format!("rooflight:{name}{{")));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// A file that the system keeps of its process; empty where there are none.
    pub(crate) fn process(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default()
    }

    /// Bytes of memory that are its own, those in swap too.
    pub(crate) fn own_memory(&self) -> u64 {
        let status = self.process("status");
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        (kib("RssAnon:") + kib("VmSwap:")) << 10
    }

    /// Threads, by their names.
    pub(crate) fn threads(&self) -> Vec<(String, u64)> {
        threads_of(self.child.id())
    }

    /// Returns the id of the thread that computes. A thread that was started just now may not have its name yet.
    pub(crate) fn engine(&self) -> u64 {
        let engine = |(name, _): &(String, u64)| name == "rooflight-engin";
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some((_, id)) = self.threads().into_iter().find(engine) {
                return id;
            }
            assert!(Instant::now() < end, "no thread computes: {:?}", self.threads());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Open files; `None` where the system does not tell.
    pub(crate) fn files(&self) -> Option<usize> {
        Some(std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).ok()?.count())
    }
}

/// Names and ids of the threads of a process; none where the system does not tell.
pub(crate) fn threads_of(process: u32) -> Vec<(String, u64)> {
    let folder = format!("/proc/{process}/task");
    let ids = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    let name = |id| std::fs::read_to_string(format!("{folder}/{id}/comm")).unwrap_or_default();
    ids.map(|id| (name(id).trim().to_owned(), id)).collect()
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection, on which one request follows another.
pub(crate) struct Connection(pub(crate) BufReader<TcpStream>);

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Length in bytes below which a body is sent together with its head.
const COPIED: usize = 64 << 10;

impl Connection {
    /// Send a request with these lines among its headers.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let length = body.len();
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        // copying many megabytes takes the client longer than the server
        let (first, rest) = body.split_at(if length < COPIED { length } else { 0 });
        text.push_str(first);
        self.write(&text);
        self.write(rest);
    }

    /// Send these bytes. A connection that is closed is seen when it is read.
    pub(crate) fn write(&mut self, text: &str) {
        let _ = self.0.get_mut().write_all(text.as_bytes());
    }

    /// The head of an answer, its lines in small letters.
    pub(crate) fn head(&mut self) -> std::io::Result<(u16, String)> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.unwrap_or(0), head.to_lowercase()))
    }

    /// The next piece of a body that comes in pieces; empty at its end.
    pub(crate) fn piece(&mut self) -> std::io::Result<Vec<u8>> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let wrong = |_| std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let length = usize::from_str_radix(line.trim(), 16).map_err(wrong)?;
        let mut piece = vec![0; length + 2];
        self.0.read_exact(&mut piece)?;
        piece.truncate(length);
        Ok(piece)
    }

    /// A whole answer.
    pub(crate) fn answer(&mut self) -> std::io::Result<Answer> {
        let (status, head) = self.head()?;
        let header = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        let mut body = Vec::new();
        if header("transfer-encoding:").is_some() {
            loop {
                let piece = self.piece()?;
                if piece.is_empty() {
                    break;
                }
                body.extend(piece);
            }
        } else {
            let length = header("content-length:").and_then(|length| length.parse().ok());
            body.resize(length.unwrap_or(0), 0);
            self.0.read_exact(&mut body)?;
        }
        Ok(Answer { status, head, body: text(&body) })
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The objects of a stream, and whether it said that it is over.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let (done, events): (Vec<&str>, Vec<&str>) = data.partition(|line| *line == "[DONE]");
        (
            events.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect(),
            !done.is_empty(),
        )
    }
}
