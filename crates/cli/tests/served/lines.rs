//! Output for users of `rooflight serve`: a line for each request, and the output of `ps` about the server.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{self, Place};
use crate::serving::Serving;

const TEXTS: &str = "/v1/completions";

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Each request is printed as one line. If a request loaded a model, its reply and its line report the load time, like the
/// log.
#[test]
fn a_request_is_a_line_that_can_be_scanned() {
    let place = Place::new();
    for name in ["one.gguf", "two.gguf"] {
        place.write(name, conformance::demo_gguf());
    }
    let serving = Serving::start(&place, &["one.gguf", "two.gguf"]);
    let ask = |model: &str| {
        let options = json!({ "num_predict": 3 });
        let body = json!({ "model": model, "prompt": "x", "stream": false, "options": options });
        let asked = Instant::now();
        let answer = serving.post("/api/generate", &body).json();
        let [load, total] = ["load_duration", "total_duration"]
            .map(|name| Duration::from_nanos(answer[name].as_u64().unwrap()));
        assert!(load <= total && total <= asked.elapsed(), "{answer}");
        load
    };
    assert_eq!(ask("one"), Duration::ZERO);
    assert!(ask("two") > Duration::ZERO, "it was loaded for this request");
    assert_eq!(ask("two"), Duration::ZERO);
    assert_eq!(serving.get("/v1/chat/completion").status, 404);
    let printed = serving.ended();
    let of =
        |path: &str| -> Vec<&str> { printed.lines().filter(|line| line.contains(path)).collect() };
    let replies = of(" POST /api/generate ");
    assert_eq!(replies.len(), 3, "{printed}");
    for (line, model) in replies.iter().zip(["one", "two", "two"]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [time, status, took, method, path, named] = words[..6] else { panic!("{line}") };
        assert!(time.ends_with('Z') && took.ends_with('s'), "{line}");
        assert_eq!((status, method, path, named), ("200", "POST", "/api/generate", model));
        assert!(line.contains(" in ") && line.contains(" out "), "{line}");
        // without the date, which is not printed on a terminal
        assert!(line.len() - "2026-11-27T".len() < 100, "{line}");
    }
    let loads: Vec<bool> = replies.iter().map(|line| line.contains(" load ")).collect();
    assert_eq!(loads, [false, true, false], "{printed}");
    assert!(printed.contains("INFO loaded model=\"two\" seconds="), "{printed}");
    let [wrong] = of(" GET /v1/chat/completion ")[..] else { panic!("{printed}") };
    assert!(wrong.contains("not_found_error req_"), "{wrong}");
    assert!(printed.contains("loaded on demand: two"), "{printed}");
}

/// `ps` can query any address that `serve` listens on, and reports plainly what is wrong.
#[test]
fn ps_asks_ports_and_sockets() {
    let place = Place::new();
    place.write("keys.txt", "secret\n");
    let serving = Serving::start(&place, &["demo.gguf", "--api-key", "other,secret"]);
    let url = format!("http://127.0.0.1:{}", serving.port);
    let ps = |args: &[&str]| {
        let output = place.run(&[&["ps"], args].concat());
        (output.status.code(), common::text(&output.stdout) + &common::text(&output.stderr))
    };
    let (code, told) = ps(&["--url", &url, "--api-key-file", "keys.txt", "--json"]);
    let models: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &models[0]["name"]), (Some(0), &json!("demo")), "{told}");
    let (code, told) = ps(&["--url", &url]);
    assert!(
        code == Some(1) && told.contains("wants a key") && told.contains("ROOFLIGHT_API_KEY"),
        "{told}"
    );
    let (_, told) = ps(&["--url", &url, "--api-key", "wrong"]);
    assert!(told.contains("wants another key"), "{told}");
    let printed = serving.ended();
    assert!(printed.contains("--api-key: other users can read the key"), "{printed}");
    assert!(!printed.contains("secret"), "{printed}");
    let (code, told) = ps(&["--url", &url]);
    assert!(code == Some(1) && told.contains(&format!("error: no server runs at {url}")), "{told}");
    assert!(told.contains("rooflight serve MODEL"), "{told}");
    // a key in the variable is not in the process list, and `ps` accepts a socket as `serve` prints it
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rooflight"));
    command.args(["serve", "demo.gguf", "--socket", "s.sock"]).current_dir(place.path("."));
    command.env_clear().env("HOME", place.path(".")).env("ROOFLIGHT_API_KEY", "one");
    let err = std::fs::File::create(place.path("err.txt")).unwrap();
    let mut child = command.stderr(err).spawn().unwrap();
    let told = || std::fs::read_to_string(place.path("err.txt")).unwrap_or_default();
    until("it serves", || told().contains("serving demo, "));
    assert!(told().contains("with a key") && !told().contains("process list"), "{}", told());
    let (code, listed) = ps(&["--url", "unix:s.sock", "--api-key", "one"]);
    assert!(code == Some(0) && listed.contains("demo"), "{listed}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let (_, gone) = ps(&["--url", "unix:s.sock"]);
    assert!(gone.contains("no server runs at unix:s.sock"), "{gone}");
}

/// The log level comes from the option, otherwise from the variable, otherwise it shows requests.
#[test]
fn how_much_is_logged_is_said_by_option_and_variable() {
    let place = Place::new();
    let printed = |args: &[&str], variables: &[(&str, &str)]| {
        let args = [&["demo.gguf"], args].concat();
        let serving = Serving::with(&place, &args, variables);
        assert_eq!(serving.get("/health").status, 200);
        assert_eq!(serving.post(TEXTS, &json!({ "prompt": "x", "n": 0 })).status, 400);
        serving.ended()
    };
    let usual = printed(&[], &[]);
    let refused = "POST /v1/completions invalid_request_error req_";
    assert!(usual.contains(refused) && !usual.contains("GET /health"), "{usual}");
    assert!(printed(&[], &[("RUST_LOG", "rooflight=debug")]).contains("GET /health"));
    assert!(printed(&["-v"], &[]).contains("GET /health"));
    let errors = printed(&[], &[("RUST_LOG", "error")]);
    assert!(!errors.contains("/v1/completions"), "{errors}");
    assert!(printed(&["--log-level", "info"], &[("RUST_LOG", "off")]).contains(refused));
    assert!(printed(&[], &[("RUST_LOG", "a=b=c")]).contains("warning: RUST_LOG"));
}
