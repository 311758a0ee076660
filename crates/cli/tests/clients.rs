//! Programs that people use talk to `rooflight serve`: skipped where python has them not.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use common::{Place, text};
use serde_json::{Value, json};

/// A server of the bundled model; gone when dropped.
struct Serving {
    child: Child,
    port: String,
    /// What it prints since it serves, to stderr and to stdout.
    printed: Vec<JoinHandle<String>>,
}

impl Serving {
    fn start(place: &Place, model: &[&str]) -> Serving {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
        command.args(["serve", "--port", "0"]).args(model).current_dir(place.path("."));
        command.env_clear().env("HOME", place.path("."));
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listening = lines.next().unwrap();
        let port = listening.rsplit(':').next().unwrap().to_owned();
        assert!(listening.starts_with("listening on http://127.0.0.1:"), "{listening}");
        assert!(lines.any(|line| line.starts_with("serving ")), "it never serves");
        // it must not stop for what it says later
        let stderr = std::thread::spawn(move || lines.map(|line| line + "\n").collect());
        let mut stdout = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || {
            let mut all = Vec::new();
            stdout.read_to_end(&mut all).unwrap();
            text(&all)
        });
        Serving { child, port, printed: vec![stderr, stdout] }
    }

    /// End it as the system does, and wait for all that it printed.
    fn ended(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.printed.drain(..).map(|thread| thread.join().unwrap()).collect()
    }
}

impl Serving {
    /// What a text with these headers is answered with.
    fn post(&self, body: &str, headers: &str) -> String {
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Packages, each with what it is tried by.
const CLIENTS: [(&str, &str); 7] = [
    ("openai", "openai_chats.py"),
    ("openai", "openai_responses.py"),
    ("anthropic", "anthropic_messages.py"),
    ("ollama", "ollama_chats.py"),
    ("litellm", "openai_wrappers.py"),
    ("langchain_openai", "openai_wrappers.py"),
    ("instructor", "openai_wrappers.py"),
];

fn are_served(clients: &[(&str, &str)], model: &[&str], place: &Place) {
    let python = std::env::var("ROOFLIGHT_CLIENTS_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut serving = None;
    for (package, script) in clients {
        let import = format!("import {package}");
        let has = Command::new(&python).args(["-c", &import]).stderr(Stdio::null()).status();
        if !has.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {python} has no package {package}");
            continue;
        }
        let serving = serving.get_or_insert_with(|| Serving::start(place, model));
        let script = format!("{}/tests/clients/{script}", env!("CARGO_MANIFEST_DIR"));
        let args = [&*script, &*serving.port, package];
        let output = Command::new(&python).args(args).output().unwrap();
        assert!(output.status.success(), "{package}: {}", text(&output.stderr));
        eprint!("{}", text(&output.stdout));
    }
}

#[test]
fn clients_are_served() {
    are_served(&CLIENTS, &[], &Place::new());
}

/// R1: neither what is asked, nor what is answered, nor who asks.
#[test]
fn r1_what_is_said_is_not_printed() {
    let place = Place::new();
    place.write("keys.txt", "canary-key-1\n");
    let serving = Serving::start(&place, &["demo.gguf", "--api-key-file", "keys.txt"]);
    let key = "Authorization: Bearer canary-key-1\r\n";
    let good = r#"{"prompt": "canary-prompt", "max_tokens": 8, "stop": "canary-stop"}"#;
    assert!(serving.post(good, key).starts_with("HTTP/1.1 200"));
    assert!(serving.post(r#"{"prompt": "canary-prompt", "canary-field": 1}"#, key).contains("400"));
    assert!(serving.post(good, "Authorization: Bearer canary-key-2\r\n").contains("401"));
    let printed = serving.ended();
    assert!(!printed.contains("canary"), "{printed}");
}

/// Two files, one of which is loaded when it is asked for; `ps` tells so.
#[test]
fn several_models_are_served_by_their_names() {
    let place = Place::new();
    std::fs::create_dir(place.path("sub")).unwrap();
    for name in ["one.gguf", "two.gguf", "sub/one.gguf"] {
        place.write(name, conformance::demo_gguf());
    }
    let serving = Serving::start(&place, &["one.gguf", "two.gguf", "--keepalive", "1h"]);
    let url = format!("http://127.0.0.1:{}", serving.port);
    let loaded = || text(&place.run(&["ps", "--url", &url]).stdout);
    let first = loaded();
    assert!(first.contains("one") && !first.contains("two"), "{first}");
    let answer = serving.post(r#"{"model": "two", "prompt": "the", "max_tokens": 3}"#, "");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"model\":\"two\""), "{answer}");
    let both = loaded();
    assert!(both.contains("one") && both.contains("two"), "{both}");
    drop(serving);
    // two of one name cannot be told apart
    let twice = place.run(&["serve", "--port", "0", "one.gguf", "sub/one.gguf"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(text(&twice.stderr).contains("two models are called one"), "{}", text(&twice.stderr));
    let names = ["serve", "--port", "0", "one.gguf", "-a", "x", "-a", "y"];
    assert_eq!(place.run(&names).status.code(), Some(2));
}

#[test]
fn embeddings_are_served() {
    let place = Place::new();
    let known = conformance::golden::texts().into_iter().find(|known| known.name == "bert-mean");
    place.write("mean.gguf", &known.unwrap().file);
    are_served(&[("openai", "openai_embeddings.py")], &["mean.gguf"], &place);
}

/// What a server replies to these messages.
fn ask(serving: &Serving, messages: &Value) -> Value {
    let body = json!({"messages": messages, "max_tokens": 20, "temperature": 0}).to_string();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", serving.port)).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        serving.port,
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (from, to) = (answer.find('{').unwrap(), answer.rfind('}').unwrap());
    serde_json::from_str(&answer[from..=to]).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

/// Turns of models that recur, one after another and side by side, are those of a server that sees them for the first time.
#[test]
fn models_that_recur_are_served() {
    let place = Place::new();
    for name in ["qwen35", "rwkv7"] {
        let file = format!("{name}.gguf");
        place.write(&file, conformance::golden::model(name));
        let said = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
        let serving = Serving::start(&place, &[&file]);
        let user = |text: &str| json!({"role": "user", "content": text});
        let first = said(&ask(&serving, &json!([user("hello there")])));
        let turns = ["and then?", "why is that?", "what else?", "hm"].map(|text| {
            json!([user("hello there"), {"role": "assistant", "content": first}, user(text)])
        });
        let warm = ask(&serving, &turns[0]);
        let cached = warm["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert!(cached.is_some_and(|cached| cached > 0), "{name}: {warm}");
        assert_eq!(said(&ask(&serving, &turns[0])), said(&warm), "{name}: a reply begun anew");
        let together: Vec<Value> = std::thread::scope(|scope| {
            let asked = turns.each_ref().map(|turn| scope.spawn(|| said(&ask(&serving, turn))));
            asked.into_iter().map(|reply| reply.join().unwrap()).collect()
        });
        assert_eq!(together[0], said(&warm), "{name}: beside others");
        for (turn, reply) in turns.iter().zip(&together) {
            let cold = Serving::start(&place, &[&file]);
            assert_eq!(&said(&ask(&cold, turn)), reply, "{name}: {turn}");
        }
    }
}
