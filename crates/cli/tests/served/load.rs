//! A server under load: every reply is what the same request gets alone, whoever leaves, sends nonsense or reads slowly beside
//! it. `cargo xtask load` runs it for longer, and holds it to times that a machine with other work cannot promise.

mod asked;
mod overhead;
mod slow;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use testing::Dice;

use self::asked::{Asked, asked, nonsense};
use crate::common::{self, Place};
use crate::hostile::{self, Hostile};
use crate::serving::{self, Connection, Serving};

/// A number that the environment may say otherwise.
fn variable(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Whether nothing else runs on this machine, so that times can be promised.
pub(crate) fn times_are_held() -> bool {
    variable("ROOFLIGHT_REQUIRE_TIMES", 0) > 0
}

/// What the clients saw.
#[derive(Default)]
struct Seen {
    /// Answers of any kind, cut ones too.
    requests: AtomicUsize,
    compared: AtomicUsize,
    left: AtomicUsize,
    refused: AtomicUsize,
    hostile: AtomicUsize,
    busy: AtomicUsize,
    tokens: AtomicUsize,
    wrong: Mutex<Vec<String>>,
    over: AtomicBool,
}

impl Seen {
    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A client: it sends one request after another. Of twenty, one is invalid, one hostile, and of three it leaves the answer.
struct Client<'a> {
    serving: &'a Serving,
    all: &'a [(Asked, String)],
    hostile: &'a [Hostile],
    seen: &'a Seen,
    dice: Dice,
    /// Reads a piece, and rests.
    slow: bool,
    connection: Option<Connection>,
}

impl Client<'_> {
    fn run(mut self) {
        while !self.seen.is_over() {
            match self.dice.below(20) {
                0 => self.says_nonsense(),
                1 => self.sends_hostile(),
                2..5 => self.leaves(),
                _ => self.asks(),
            }
            self.seen.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is answered on this connection, and the connection.
    fn answered(
        &self,
        mut connection: Connection,
        asked: &Asked,
    ) -> std::io::Result<(serving::Answer, Connection)> {
        connection.send("POST", asked.path, "", &asked.body.to_string());
        let answer = match self.slow {
            true => slowly(&mut connection),
            false => connection.answer(),
        };
        Ok((answer?, connection))
    }

    fn asks(&mut self) {
        let (asked, alone) = &self.all[self.dice.below(self.all.len())];
        // half of them come back on the connection that they have; one that was idle for long may be closed meanwhile
        let kept = self.connection.take().filter(|_| self.dice.below(2) == 0);
        let kept = kept.and_then(|kept| self.answered(kept, asked).ok());
        let answered = kept.map_or_else(|| self.answered(self.serving.connect(), asked), Ok);
        let (answer, connection) = match answered {
            Ok(answered) => answered,
            Err(error) => return self.seen.wrong(format!("{}: {error}", asked.body)),
        };
        match answer.status {
            200 => {
                let (said, tokens) = asked.said(&answer.body);
                if said != *alone {
                    let told = format!("{}: {said:?}, alone {alone:?}", asked.body);
                    self.seen.wrong(told);
                }
                self.seen.tokens.fetch_add(tokens, Ordering::Relaxed);
                self.seen.compared.fetch_add(1, Ordering::Relaxed);
                self.connection = Some(connection);
            }
            503 if answer.head.contains("\r\nretry-after: ") => {
                self.seen.busy.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => self.seen.wrong(format!("{}: {answer:?}", asked.body)),
        }
    }

    fn leaves(&mut self) {
        let (asked, _) = &self.all[self.dice.below(self.all.len())];
        let mut connection = self.serving.connect();
        connection.send("POST", asked.path, "", &asked.body.to_string());
        // at once, when the answer begins, in its midst
        match self.dice.below(4) {
            0 => {}
            1 => std::thread::sleep(Duration::from_millis(3)),
            2 => drop(connection.head()),
            _ => {
                // an answer that comes whole has no pieces to wait for
                let in_pieces =
                    |(_, head): (_, String)| head.contains("transfer-encoding: chunked");
                let begun = connection.head().is_ok_and(in_pieces);
                let _ = begun.then(|| (0..3).try_for_each(|_| connection.piece().map(drop)));
            }
        }
        self.seen.left.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends what once ended a server. It is refused, or answered where that is right.
    fn sends_hostile(&mut self) {
        let request = &self.hostile[self.dice.below(self.hostile.len())];
        let mut connection = self.serving.connect();
        connection.send("POST", request.path, "", &request.body);
        match connection.answer() {
            Ok(answer) if [200, 400, 413, 422, 503].contains(&answer.status) => {
                self.seen.hostile.fetch_add(1, Ordering::Relaxed);
            }
            other => self.seen.wrong(format!("{}: {other:?}", request.name)),
        }
    }

    fn says_nonsense(&mut self) {
        let all = nonsense();
        let (path, headers, body, status) = &all[self.dice.below(all.len())];
        let mut connection = self.serving.connect();
        connection.send("POST", path, headers, body);
        match connection.answer() {
            Ok(answer) if answer.status == *status => {
                self.seen.refused.fetch_add(1, Ordering::Relaxed);
            }
            other => self.seen.wrong(format!("{path} {headers} {body}: {other:?}")),
        }
    }
}

/// An answer, of which a piece is read now and then.
fn slowly(connection: &mut Connection) -> std::io::Result<serving::Answer> {
    let (status, head) = connection.head()?;
    let mut body = Vec::new();
    if head.contains("\r\ntransfer-encoding: chunked") {
        loop {
            std::thread::sleep(Duration::from_millis(4));
            let piece = connection.piece()?;
            if piece.is_empty() {
                break;
            }
            body.extend(piece);
        }
    } else {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.resize(length.and_then(|length| length.parse().ok()).unwrap_or(0), 0);
        std::io::Read::read_exact(&mut connection.0, &mut body)?;
    }
    Ok(serving::Answer { status, head, body: common::text(&body) })
}

/// Requests `/health` every 20 ms until `is_over`, at least once. Returns the times in milliseconds, sorted.
///
/// # Errors
/// The server is gone, or answers with another status than 200.
pub(crate) fn health_times(serving: &Serving, is_over: &AtomicBool) -> std::io::Result<Vec<f64>> {
    let mut times = Vec::new();
    loop {
        let start = Instant::now();
        let mut connection = serving.try_connect()?;
        connection.send("GET", "/health", "", "");
        let answer = connection.answer()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        if answer.status != 200 {
            return Err(std::io::Error::other(format!("{answer:?}")));
        }
        if is_over.load(Ordering::Relaxed) {
            times.sort_by(f64::total_cmp);
            return Ok(times);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Memory of the process when so many requests were made.
fn memory(serving: &Serving, seen: &Seen) -> BTreeMap<usize, u64> {
    let mut known = BTreeMap::new();
    while !seen.is_over() {
        let n = seen.requests.load(Ordering::Relaxed);
        let mark = [1_000, 10_000, 100_000, 1_000_000].into_iter().rfind(|mark| *mark <= n);
        if let Some(mark) = mark {
            known.entry(mark).or_insert_with(|| serving.own_memory());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    known
}

/// How alike equal streams are served that run at once: 1 if all come at one rate (Jain's index).
fn fairness(serving: &Serving, streams: usize) -> f64 {
    let rate = |i: usize| {
        let body = json!({
            "prompt": format!("Tale number {i}: there was once a"),
            "max_tokens": 400, "ignore_eos": true, "temperature": 0, "stream": true,
        });
        let mut connection = serving.connect();
        connection.send("POST", "/v1/completions", "", &body.to_string());
        assert_eq!(connection.head().unwrap().0, 200);
        let mut times = Vec::new();
        while !connection.piece().unwrap().is_empty() {
            times.push(Instant::now());
        }
        (times[0], times[times.len() - 1])
    };
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..streams).map(|i| scope.spawn(move || rate(i))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let rates: Vec<f64> =
        times.iter().map(|(first, last)| 1.0 / (*last - *first).as_secs_f64()).collect();
    let (sum, squares) =
        (rates.iter().sum::<f64>(), rates.iter().map(|rate| rate * rate).sum::<f64>());
    sum * sum / (streams as f64 * squares)
}

pub(crate) fn percentile(sorted: &[f64], part: f64) -> f64 {
    sorted
        .get(((sorted.len() as f64 * part) as usize).min(sorted.len().max(1) - 1))
        .copied()
        .unwrap_or(0.0)
}

#[test]
fn every_reply_under_load_is_what_it_is_alone() {
    let (clients, seconds) =
        (variable("ROOFLIGHT_LOAD_CLIENTS", 32), variable("ROOFLIGHT_LOAD_SECONDS", 4));
    let place = Place::new();
    let threads = variable("ROOFLIGHT_LOAD_THREADS", 1).to_string();
    let serving = Serving::start(&place, &["-t", &threads, "--log-file", "log.txt", "--log-jsonl"]);
    let alone = |asked: Asked| {
        let answer = serving.post(asked.path, &asked.body);
        assert_eq!(answer.status, 200, "{}: {answer:?}", asked.body);
        let (said, _) = asked.said(&answer.body);
        assert!(!said.is_empty(), "{}: {answer:?}", asked.body);
        (asked, said)
    };
    let all: Vec<(Asked, String)> = asked().into_iter().map(alone).collect();
    let hostile = hostile::small();
    let fair = fairness(&serving, 4);
    let seen = Seen::default();
    let started = Instant::now();
    let (times, memory) = std::thread::scope(|scope| {
        let times = scope.spawn(|| health_times(&serving, &seen.over));
        let memory = scope.spawn(|| memory(&serving, &seen));
        for i in 0..clients {
            let dice = Dice::new(i as u64 + 1);
            let (serving, all, hostile, seen) = (&serving, &*all, &*hostile, &seen);
            let slow = i % 8 == 7;
            let client = Client { serving, all, hostile, seen, dice, slow, connection: None };
            scope.spawn(|| client.run());
        }
        while started.elapsed() < Duration::from_secs(seconds as u64) && !seen.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        seen.over.store(true, Ordering::Relaxed);
        (times.join().unwrap().unwrap(), memory.join().unwrap())
    });
    let took = started.elapsed().as_secs_f64();
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
    let wrong = seen.wrong.lock().unwrap();
    eprintln!(
        "load: {clients} clients, {took:.0} s: {} requests, {} replies compared, {} wrong, {} left, {} refused, {} hostile, {} busy; {:.0} \
         tokens/s; fairness {fair:.4}; /health p50 {p50:.2} ms, p99 {p99:.2} ms",
        count(&seen.requests),
        count(&seen.compared),
        wrong.len(),
        count(&seen.left),
        count(&seen.refused),
        count(&seen.hostile),
        count(&seen.busy),
        count(&seen.tokens) as f64 / took,
    );
    for (n, bytes) in &memory {
        eprintln!(
            "load: after {n} requests {:.2} MiB of its own",
            *bytes as f64 / f64::from(1 << 20)
        );
    }
    assert!(wrong.is_empty(), "{} wrong: {}", wrong.len(), wrong[0]);
    assert!(count(&seen.compared) > clients && count(&seen.left) > 0 && count(&seen.refused) > 0);
    assert!(count(&seen.hostile) > 0, "hostile requests were sent");
    // nobody is served any more
    let start = Instant::now();
    while serving.metric("num_requests_running") + serving.metric("num_requests_waiting") > 0.0 {
        assert!(start.elapsed() < Duration::from_secs(20), "replies go on for nobody");
        std::thread::sleep(Duration::from_millis(10));
    }
    if times_are_held() {
        assert!(fair >= 0.98, "fairness {fair}");
        assert!(p99 < 10.0, "/health p99 {p99} ms");
    }
    // hostile requests are served meanwhile; what leaks grows with the number of requests
    for (from, to, most) in [(1_000, 10_000, 96 << 20), (10_000, 100_000, 16 << 20)] {
        if let (Some(first), Some(last)) = (memory.get(&from), memory.get(&to)) {
            let grown = last.saturating_sub(*first);
            assert!(grown <= most, "{grown} bytes more after {to} requests than after {from}");
        }
    }
    serving.ended();
    let log = common::text(&place.read("log.txt"));
    let lines = log.lines().filter(|line| line.contains("\"request\"")).count();
    assert!(lines >= count(&seen.compared), "{lines} lines of the log");
}
