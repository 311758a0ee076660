//! Rules of docs/safety.md, by their numbers there, that no other file proves.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rooflight_server::Access;
use serde_json::{Value, json};

use crate::client::{Served, head, post};

const CHAT: &str = "/v1/chat/completions";

fn body(more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn endless() -> Value {
    body(&json!({ "max_tokens": 800, "ignore_eos": true, "stream": true }))
}

/// A value of `/metrics`.
fn counted(served: &Served, name: &str) -> String {
    let text = served.get("/metrics").body;
    let line = text.lines().find(|line| line.starts_with(&format!("rooflight:{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

/// The attributes and the body of a function of a source file, if there is exactly one of this name.
fn function<'s>(source: &'s str, name: &str) -> Result<(&'s str, &'s str), String> {
    let begin = format!("fn {name}(");
    let mut found = source.match_indices(&begin);
    let (Some((at, _)), None) = (found.next(), found.next()) else {
        return Err(format!("there is not one function {name}"));
    };
    let line = source[..at].rfind('\n').map_or(0, |at| at + 1);
    let indent = &source[line..at];
    // the lines above that belong to it: attributes and comments
    let above: usize = source[..line]
        .lines()
        .rev()
        .take_while(|line| line.trim_start().starts_with(['#', '/']))
        .map(|line| line.len() + 1)
        .sum();
    let end = source[at..].find(&format!("\n{indent}}}\n")).ok_or("a function ends")?;
    Ok((&source[line - above..line], &source[at..at + end]))
}

/// Whether a body checks something: itself, or in a function of the same file that it calls.
fn asserts(source: &str, body: &str) -> bool {
    let itself = |body: &str| {
        let words = [
            "assert!",
            "assert_eq!",
            "assert_ne!",
            "panic!",
            "prop_assert",
            "unwrap_err()",
            "expect_err(",
        ];
        words.iter().any(|word| body.contains(word))
    };
    let called =
        source.match_indices("fn ").filter_map(|(at, _)| source[at + 3..].split(['(', '<']).next());
    let mut called = called.filter(|name| !name.is_empty() && body.contains(&format!("{name}(")));
    itself(body) || called.any(|name| function(source, name).is_ok_and(|(_, body)| itself(body)))
}

/// Every test that the table names is there once, is run, and checks something.
#[test]
fn every_rule_names_tests_that_are_there() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let table = std::fs::read_to_string(format!("{root}docs/safety.md")).unwrap();
    let (mut named, mut faults) = (0, Vec::new());
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let words: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        for (file, test) in words.iter().zip(words.iter().skip(1)) {
            if !file.ends_with(".rs") {
                continue;
            }
            let source = std::fs::read_to_string(format!("{root}{file}"));
            let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
            named += 1;
            let fault = match function(&source, test) {
                Err(problem) => problem,
                Ok((above, _)) if !above.contains("#[test]") => "it is no test".to_owned(),
                Ok((above, _)) if above.contains("#[ignore") => "it is ignored".to_owned(),
                Ok((_, body)) if !asserts(&source, body) => "it checks nothing".to_owned(),
                Ok(_) => continue,
            };
            faults.push(format!("{file} {test}: {fault}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(named > 90, "{named} tests are named");
}

/// What the check above would find.
#[test]
fn tests_that_check_nothing_are_found() {
    let source = "#[test]\nfn good() {\n    assert!(true);\n}\n\n#[test]\n#[ignore]\nfn empty() {\n    let x = 1;\n}\n\n\
                  #[test]\nfn by_helper() {\n    helper(2);\n}\n\nfn helper(x: u8) {\n    assert_eq!(x, 2);\n}\n";
    let body = |name: &str| function(source, name).unwrap();
    assert!(asserts(source, body("good").1) && asserts(source, body("by_helper").1));
    assert!(!asserts(source, body("empty").1) && body("empty").0.contains("#[ignore"));
    assert!(!body("helper").0.contains("#[test]"));
    assert!(function(source, "nothing").is_err());
    assert!(function(&source.repeat(2), "good").is_err(), "there are two");
}

#[test]
fn h2_a_page_costs_nothing() {
    let served = Served::new();
    let said = body(&json!({})).to_string();
    for page in [
        "Origin: https://evil.com\r\nContent-Type: text/plain\r\n",
        "Origin: null\r\nContent-Type: application/json\r\n",
        // a page can send a body without a type
        "Origin: https://evil.com\r\n",
        "Sec-Fetch-Site: cross-site\r\nContent-Encoding: gzip\r\n",
        "Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n",
    ] {
        let headers = format!("{page}Content-Length: {}\r\n", said.len());
        let answer = served.send((head("POST", CHAT, &headers) + &said).as_bytes());
        assert_eq!(answer.status, 403, "{page}");
        // nor is a body waited for
        let waits = format!("{page}Content-Length: 1000\r\n");
        assert_eq!(served.send(head("POST", CHAT, &waits).as_bytes()).status, 403, "{page}");
    }
    assert_eq!(counted(&served, "prompt_tokens_total"), "0");
    assert_eq!(served.post(CHAT, &body(&json!({}))).status, 200);
    assert_ne!(counted(&served, "prompt_tokens_total"), "0");
}

#[test]
fn h3_no_preflight_is_answered() {
    let served = Served::new();
    for path in [CHAT, "/v1/messages", "/api/chat", "/completion", "/health", "/nothing"] {
        for more in ["", "Access-Control-Request-Private-Network: true\r\n"] {
            let headers = format!(
                "Origin: https://evil.com\r\nAccess-Control-Request-Method: POST\r\n\
                 Access-Control-Request-Headers: content-type\r\n{more}"
            );
            let answer = served.send(head("OPTIONS", path, &headers).as_bytes());
            assert_eq!(answer.status, 403, "{path}");
            for leave in ["origin", "methods", "headers", "credentials", "private-network"] {
                assert_eq!(answer.header(&format!("access-control-allow-{leave}")), None, "{path}");
            }
        }
        let plain = served.send(head("OPTIONS", path, "").as_bytes());
        assert!(matches!(plain.status, 404 | 405), "{path}: {plain:?}");
    }
}

#[test]
fn c2_who_leaves_the_queue_touches_nobody() {
    let served = Served::with(1, 4, Access::new(&[], Some(Vec::new())));
    let text = |stream: &str| -> Vec<Value> {
        let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = data.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter_map(|event| event.pointer("/choices/0/delta/content").cloned()).collect()
    };
    // a reply that has begun, and all of it
    let begun = || {
        let mut connection = served.open(&post(CHAT, &endless()));
        let mut first = vec![0; 200];
        connection.read_exact(&mut first).unwrap();
        (connection, first)
    };
    let read = |(mut connection, mut all): (TcpStream, Vec<u8>)| {
        connection.read_to_end(&mut all).unwrap();
        text(&String::from_utf8(all).unwrap())
    };
    let alone = read(begun());
    assert!(alone.len() > 10, "{alone:?}");
    let mut rounds = 0;
    std::thread::scope(|scope| {
        // it has its place before anybody waits for one
        let connection = begun();
        let running = scope.spawn(|| read(connection));
        while !running.is_finished() {
            let mut waiting = body(&json!({}));
            waiting["messages"][0]["content"] = json!(format!("number {rounds}"));
            drop(served.open(&post(CHAT, &waiting)));
            rounds += 1;
        }
        assert_eq!(running.join().unwrap(), alone);
    });
    assert!(rounds > 10, "{rounds} left");
    let start = Instant::now();
    while served.post(CHAT, &body(&json!({}))).status != 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "their places are never free");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `ROOFLIGHT_CYCLES=10000` makes more of it.
#[test]
fn c3_coming_and_leaving_leaves_nothing() {
    let cycles = std::env::var("ROOFLIGHT_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let served = Served::with(2, 4, Access::new(&[], Some(Vec::new())));
    let first = served.post(CHAT, &body(&json!({}))).json();
    for i in 0..cycles {
        let request = post(CHAT, &endless());
        // in the head, in the body, when it was sent, when it is answered
        let cut = [10, request.len() - 5, request.len(), request.len()][i % 4];
        let mut connection = served.open(&request[..cut]);
        if i % 4 == 3 {
            let _ = connection.read(&mut [0; 64]);
        }
    }
    let start = Instant::now();
    loop {
        let again = served.post(CHAT, &body(&json!({})));
        if again.status == 200 {
            assert_eq!(again.json()["choices"], first["choices"]);
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "places were lost");
        std::thread::sleep(Duration::from_millis(10));
    }
    let idle = || {
        served
            .get("/slots")
            .json()
            .as_array()
            .unwrap()
            .iter()
            .all(|slot| slot["is_processing"] == false)
    };
    while !idle() {
        assert!(start.elapsed() < Duration::from_secs(20), "replies go on for nobody");
        std::thread::sleep(Duration::from_millis(10));
    }
    // it is counted when the thread that computes looks again
    while counted(&served, "num_requests_waiting") != "0" {
        assert!(start.elapsed() < Duration::from_secs(20), "somebody waits for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ninety-nine of a hundred are answered soon while replies are computed; `q3_health_waits_for_no_body` is of bodies.
#[test]
fn q3_health_waits_for_no_computing() {
    let served = Served::with(2, 4, Access::new(&[], Some(Vec::new())));
    let running: Vec<_> = (0..2).map(|_| served.open(&post(CHAT, &endless()))).collect();
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(served.get("/health").status, 200);
            start.elapsed()
        })
        .collect();
    times.sort();
    // the computing of both takes seconds; other tests run beside this one
    assert!(times[197] < Duration::from_millis(250), "{:?}", times[197]);
    drop(running);
}

/// Counts those that connect to an address of this machine.
struct Listening {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Listening {
    fn start() -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&connections);
        // it ends with the process
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Listening { port, connections }
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A file whose first reader is seen: a pipe, at which somebody waits to write.
#[cfg(unix)]
struct Pipe {
    dir: tempfile::TempDir,
    was_read: Arc<AtomicBool>,
}

#[cfg(unix)]
impl Pipe {
    fn new() -> Pipe {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let was_read = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&was_read);
        std::thread::spawn(move || {
            // it opens when somebody reads
            drop(std::fs::OpenOptions::new().write(true).open(path).unwrap());
            flag.store(true, Ordering::SeqCst);
        });
        Pipe { dir, was_read }
    }

    fn path(&self) -> String {
        self.dir.path().join("model.gguf").to_str().unwrap().to_owned()
    }

    fn was_read(&self) -> bool {
        self.was_read.load(Ordering::SeqCst)
    }
}

/// All that a request can name is tried with an address at which connections are counted, and with a file that tells when it
/// is read.
#[cfg(unix)]
#[test]
fn p2_no_request_names_a_file_or_an_address() {
    let served = Served::new();
    let (listening, pipe) = (Listening::start(), Pipe::new());
    let (port, path) = (listening.port, pipe.path());
    let named = [
        format!("http://127.0.0.1:{port}/x"),
        format!("https://127.0.0.1:{port}/x"),
        format!("//127.0.0.1:{port}/x"),
        format!("http://localhost:{port}/model.gguf"),
        format!("file://{path}"),
        path.clone(),
        format!("../../../../../../../../..{path}"),
        "http://169.254.169.254/".to_owned(),
        "/etc/passwd".to_owned(),
    ];
    let mut asked = 0;
    for url in &named {
        let mut refused = |path: &str, body: Value, statuses: &[u16]| {
            let answer = served.post(path, &body);
            assert!(statuses.contains(&answer.status), "{path} {body}: {answer:?}");
            asked += 1;
        };
        let content = |part: Value| json!([{ "role": "user", "content": [part] }]);
        let messages = |part: Value| json!({ "messages": content(part), "max_tokens": 2 });
        let image = json!({ "type": "image_url", "image_url": { "url": url } });
        refused(CHAT, messages(image), &[400]);
        let file = json!({ "type": "file", "file": { "file_id": url, "file_data": url } });
        refused(CHAT, messages(file), &[400]);
        let audio =
            json!({ "type": "input_audio", "input_audio": { "data": url, "format": "wav" } });
        refused(CHAT, messages(audio), &[400]);
        for kind in ["image", "document"] {
            let part = json!({ "type": kind, "source": { "type": "url", "url": url } });
            refused("/v1/messages", messages(part), &[400]);
        }
        for part in [
            json!({ "type": "input_image", "image_url": url }),
            json!({ "type": "input_file", "file_url": url }),
        ] {
            refused("/v1/responses", json!({ "input": content(part) }), &[400]);
        }
        let images = json!({ "model": "demo", "prompt": "x", "images": [url] });
        refused("/api/generate", images, &[400]);
        let images = json!({ "role": "user", "content": "x", "images": [url] });
        refused("/api/chat", json!({ "model": "demo", "messages": [images] }), &[400]);
        // as the name of a model
        refused(CHAT, body(&json!({ "model": url })), &[404]);
        refused("/v1/completions", json!({ "model": url, "prompt": "x" }), &[404]);
        refused("/api/generate", json!({ "model": url, "prompt": "x" }), &[404]);
        refused("/api/show", json!({ "model": url }), &[404]);
        refused("/api/pull", json!({ "model": url }), &[400, 403]);
        refused("/v1/embeddings", json!({ "model": url, "input": "x" }), &[404]);
        refused("/tokenize", json!({ "model": url, "content": "x" }), &[404]);
        refused("/slots/0?action=restore", json!({ "filename": url }), &[400, 501]);
        refused("/slots/0?action=save", json!({ "filename": url }), &[400, 501]);
        // within a form
        let schema = json!({ "$ref": url });
        refused(CHAT, body(&json!({ "json_schema": schema })), &[400]);
        let within = json!({ "$schema": url, "type": "object", "properties": { "a": schema } });
        let format =
            json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": within } });
        refused(CHAT, body(&json!({ "response_format": format })), &[400]);
        let function = json!({ "name": "f", "parameters": within });
        let tools = json!([{ "type": "function", "function": function }]);
        refused(CHAT, body(&json!({ "tools": tools, "tool_choice": "required" })), &[200, 400]);
        for grammar in [format!("%import \"{url}\"\nstart: \"a\""), format!("root ::= <{url}>")] {
            refused(CHAT, body(&json!({ "grammar": grammar })), &[400]);
        }
    }
    assert_eq!(asked, named.len() * 23);
    // what was begun in another thread has had its time
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(listening.count(), 0, "the server connected to an address that a request named");
    assert!(!pipe.was_read(), "the server read a file that a request named");

    // both would have been seen
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    drop(std::fs::File::open(&path).unwrap());
    let start = Instant::now();
    while listening.count() != 1 || !pipe.was_read() {
        assert!(start.elapsed() < Duration::from_secs(10), "neither would have been seen");
        std::thread::sleep(Duration::from_millis(1));
    }
}
