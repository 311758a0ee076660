//! Files of models that become shorter while they are loaded: an error of that load, and no signal.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Place, text};
use crate::serving::Serving;

/// The model that the product brings along: loading it takes some time.
const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/rooflight-demo-5m-q8_0.gguf");

fn cut(place: &Place, file: &str, bytes: u64) {
    OpenOptions::new().write(true).open(place.path(file)).unwrap().set_len(bytes).unwrap();
}

/// Checks that a message has exactly one error line, that this line names the cause, and that nothing panicked.
#[track_caller]
fn check_message(message: &str) {
    let lines: Vec<&str> = message.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("truncated"), "{message}");
    assert!(!message.contains("panicked"), "{message}");
}

/// Cut at any moment, a model is loaded, or refused as a file that is malformed.
#[test]
fn a_file_that_is_cut_while_it_loads_is_malformed() {
    let place = Place::new();
    let model = std::fs::read(MODEL).unwrap();
    let args = ["complete", "model.gguf", "x", "-n", "1", "-t", "1"];
    let run = |delay: Duration| {
        place.write("model.gguf", &model);
        let start = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
        command.args(args).current_dir(place.path(".")).env_clear().env("HOME", place.path("."));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(delay.saturating_sub(start.elapsed()));
        cut(&place, "model.gguf", 200_000);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.signal(), None, "after {delay:?}: {ended:?}");
        (ended.status.code().unwrap(), text(&ended.stderr))
    };
    let start = Instant::now();
    let (code, message) = run(Duration::from_secs(1));
    assert_eq!(code, 0, "{message}");
    let most = start.elapsed();
    let (mut refused, mut loaded, mut meanwhile) = (0, 0, 0);
    for round in 0..200 {
        // moments from the start to the end of a run, in any order
        let delay = most.mul_f64(f64::from(round * 37 % 100) / 400.0);
        let (code, message) = run(delay);
        match code {
            0 => loaded += 1,
            2 => {
                check_message(&message);
                refused += 1;
                meanwhile += usize::from(message.contains("while it was read"));
            }
            _ => panic!("exit code {code} after {delay:?}: {message}"),
        }
        if round >= 40 && meanwhile > 1 && loaded > 1 {
            break;
        }
    }
    eprintln!("{refused} refused, {meanwhile} of them while they were read, {loaded} loaded");
    assert!(meanwhile > 0, "none of {refused} was cut while it was read");
}

/// A model whose file is cut before or during its load fails that request only: the other model is still served.
#[test]
fn a_model_that_cannot_be_loaded_leaves_the_others() {
    let place = Place::new();
    let model = std::fs::read(MODEL).unwrap();
    place.write("a.gguf", &model);
    place.write("b.gguf", &model);
    let serving = Serving::start(&place, &["a.gguf", "b.gguf", "-t", "1", "-c", "512"]);
    let ask = |name: &str| {
        let said = json!([{ "role": "user", "content": "hi" }]);
        let body = json!({ "model": name, "messages": said, "max_tokens": 4, "temperature": 0 });
        serving.post("/v1/chat/completions", &body)
    };
    let usual = ask("a").json()["choices"].clone();
    let mut refused = 0;
    for round in 0..24_u64 {
        place.write("b.gguf", &model);
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask("b"));
            std::thread::sleep(Duration::from_millis(round * 3));
            cut(&place, "b.gguf", if round % 2 == 0 { 200_000 } else { 3_000_000 });
            asked.join().unwrap()
        });
        if answer.status == 200 {
            // once it is loaded nothing reads its file
            assert_eq!(ask("b").json()["choices"], usual);
            assert_eq!(
                serving.post("/api/generate", &json!({ "model": "b", "keep_alive": 0 })).status,
                200
            );
        } else {
            assert_eq!(answer.status, 500, "{answer:?}");
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("truncated") && !message.contains('\n'), "{message}");
            refused += 1;
        }
        assert_eq!(ask("a").json()["choices"], usual, "round {round}");
    }
    eprintln!("{refused} of 24 loads were refused");
    assert!(refused > 0, "no load was refused");
    place.write("b.gguf", &model);
    assert_eq!(ask("b").json()["choices"], usual);
    serving.ended();
}

/// A limit of file sizes is an error of what is written, and a small stack is enough.
#[test]
fn limits_of_the_system_end_in_errors() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_rooflight");
    let run = |limits: &str, args: &[&str]| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{limits} && exec \"$0\" \"$@\"")).arg(program).args(args);
        command.current_dir(place.path(".")).env_clear().env("HOME", place.path("."));
        let ended = command.output().unwrap();
        assert_eq!(ended.status.signal(), None, "{limits} {args:?}: {ended:?}");
        (ended.status.code().unwrap(), text(&ended.stderr))
    };
    let requests: String = (0..40)
        .map(|i| {
            let body = json!({ "messages": [{ "role": "user", "content": format!("number {i}") }], "max_tokens": 8 });
            let request = json!({ "custom_id": format!("r{i}"), "method": "POST", "url": "/v1/chat/completions", "body": body });
            format!("{request}\n")
        })
        .collect();
    place.write("requests.jsonl", requests);
    // blocks of 512 bytes, or of 1024
    let batch = ["batch", "requests.jsonl", "-m", "demo.gguf", "-o", "out.jsonl", "-t", "1"];
    let (code, message) = run("ulimit -f 4", &batch);
    assert!(code != 0 && message.contains("error: "), "{code}: {message}");
    assert!(message.contains("writing"), "{message}");
    let complete = ["complete", "demo.gguf", "once", "-n", "4", "-t", "1"];
    let (code, message) = run("ulimit -s 64", &complete);
    assert_eq!(code, 0, "{message}");
    let schema =
        ["complete", "demo.gguf", "once", "-n", "4", "-t", "1", "--json-schema", "{\"const\": []}"];
    let (code, message) = run("ulimit -s 64", &schema);
    assert_eq!(code, 0, "{message}");
}
