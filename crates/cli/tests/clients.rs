//! Programs that people use talk to `rooflight serve`: skipped where python has them not.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::{Place, text};

/// A server of the bundled model; gone when dropped.
struct Serving {
    child: Child,
    port: String,
}

impl Serving {
    fn start(place: &Place, model: &[&str]) -> Serving {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
        command.args(["serve", "--port", "0"]).args(model).current_dir(place.path("."));
        command.env_clear().env("HOME", place.path("."));
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listening = lines.next().unwrap();
        let port = listening.rsplit(':').next().unwrap().to_owned();
        assert!(listening.starts_with("listening on http://127.0.0.1:"), "{listening}");
        assert!(lines.any(|line| line.starts_with("serving ")), "it never serves");
        // what it says later is nobody's concern, and must not stop it
        std::thread::spawn(move || lines.for_each(drop));
        Serving { child, port }
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

#[test]
fn embeddings_are_served() {
    let place = Place::new();
    let known = conformance::golden::texts().into_iter().find(|known| known.name == "bert-mean");
    place.write("mean.gguf", &known.unwrap().file);
    are_served(&[("openai", "openai_embeddings.py")], &["mean.gguf"], &place);
}
