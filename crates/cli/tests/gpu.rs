//! `--executor wgpu` and `auto`: what a GPU runs says what the processor says, what it does not run is told in a line.
//! Where there is no GPU, Mesa's lavapipe plays one.

#![cfg(target_os = "linux")]

mod common;
#[path = "common/pty.rs"]
mod pty;

use common::{Place, text};
use conformance::Family;
use conformance::golden::{GoldenFile, archs};
use executors::{ExecutorKind, ExecutorOptions};
use pty::{PROMPT, Pty};
use serde_json::Value;

/// The adapter of this machine, by its name; told as skipped where there is none.
fn adapter() -> Option<String> {
    let wanted = std::env::var("ROOFLIGHT_REQUIRE_DEVICE").ok().filter(|name| !name.is_empty());
    let options = ExecutorOptions {
        kind: ExecutorKind::Wgpu,
        adapter: wanted.clone().filter(|name| name != "any"),
        ..ExecutorOptions::default()
    };
    match options.start_with(&program::CacheStorage::default()) {
        Ok(started) => {
            let adapter = started.gpu.expect("a GPU has a name").adapter;
            testing::covered(&format!("--executor wgpu on {adapter}"));
            Some(adapter)
        }
        Err(why) => {
            assert!(wanted.is_none(), "a device is required, but: {why}");
            testing::skipped(&format!("--executor wgpu: {why}"));
            None
        }
    }
}

/// A place with the bundled model, which has learned something: its likeliest tokens are no near ties.
fn place() -> Place {
    let place = Place::new();
    place.ok(&["demo-model", "bundled.gguf"]);
    place
}

const PROMPTS: [&str; 10] = [
    "What color is the sky?",
    "My name is Tom. What is my name?",
    "Hello!",
    "\u{4f60}\u{597d}",
    "What do you like?",
    "Tell me a story.",
    "How are you?",
    "Who are you?",
    "What is your name?",
    "Good night.",
];

/// Where greedy texts part, the logits of both tokens must be as near as the two executors are: see `crates/wgpu`. Here
/// two of ten texts may.
#[test]
fn a_gpu_writes_what_the_processor_writes() {
    let Some(adapter) = adapter() else { return };
    let place = place();
    let mut parted = Vec::new();
    for prompt in PROMPTS {
        let told = |executor: &str| {
            let args = ["run", "bundled.gguf", "-p", prompt, "-n", "12", "--temp", "0", "--json"];
            let object = place.ok(&[&args[..], &["--executor", executor]].concat());
            serde_json::from_str::<Value>(&object).expect("an object")
        };
        let [cpu, gpu] = ["cpu", "wgpu"].map(told);
        let named = gpu["executor"].as_str().expect("a line");
        assert!(named.starts_with("wgpu: ") && named.contains(&adapter), "{named}");
        assert!(cpu["executor"].as_str().is_some_and(|line| line.contains("thread")));
        if cpu["text"] != gpu["text"] {
            parted.push(prompt);
        }
    }
    assert!(parted.len() <= 2, "{parted:?}");
}

#[test]
fn the_banner_and_bench_name_the_adapter() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    let gpu = ["--executor", "wgpu"];
    let args = ["complete", "demo.gguf", "the", "-n", "2", "--verbose"];
    let output = place.run(&[&args[..], &gpu].concat());
    let told = text(&output.stderr);
    assert!(output.status.success() && told.contains(&format!("wgpu: {adapter}")), "{told}");
    let args = ["bench", "demo.gguf", "-p", "8", "-n", "2", "-d", "16", "-r", "1", "-o", "json"];
    let rows = place.ok(&[&args[..], &gpu].concat());
    let rows: Value = serde_json::from_str(&rows).expect("rows");
    for row in rows.as_array().expect("an array") {
        assert_eq!((&row["backends"], &row["gpu_info"]), (&"wgpu".into(), &adapter.clone().into()));
        assert!(row["avg_ts"].as_f64().is_some_and(|rate| rate > 0.0) && row["share"].is_null());
    }
}

#[test]
fn a_conversation_on_a_gpu() {
    let Some(_) = adapter() else { return };
    let place = place();
    let args = ["run", "bundled.gguf", "--executor", "wgpu", "--temp", "0", "-c", "2048"];
    let mut pty = Pty::start(&place, &args, 80);
    let banner = pty.wait_for(PROMPT);
    assert!(banner.contains("wgpu: "), "{banner}");
    let said = pty.line("What color is the sky?");
    assert!(said.contains("blue"), "{said}");
    let again = pty.line("/regen");
    assert!(again.contains("blue"), "{again}");
    // Ctrl-C ends a reply and not the conversation, which still knows what was said
    pty.line("/set predict 2000");
    pty.send("/set ignore-eos on\r");
    pty.wait_for(PROMPT);
    pty.send("Tell me a story.\r");
    pty.wait_for("\n");
    pty.wait_for(" ");
    pty.send("\x03");
    pty.wait_for(PROMPT);
    pty.send("/bye\r");
    assert_eq!(pty.end(), Some(0));
}

/// The line that says what is refused. Mesa may say before that there is no desktop.
fn refusal(told: &str) -> &str {
    let mut lines = told.lines().filter(|line| line.starts_with("error: "));
    lines.find(|line| !line.contains("XDG_RUNTIME_DIR")).unwrap_or_default()
}

/// Each of these runs on the processor, and with `auto` it does.
#[test]
fn what_a_gpu_does_not_run() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    for (family, name) in [(Family::Experts, "qwen3moe"), (Family::Latent, "deepseek2")] {
        let case = archs(family).into_iter().find(|case| case.name.starts_with(name));
        let Some(GoldenFile::Bytes(bytes)) = case.map(|case| case.model) else {
            panic!("{name}: no such model")
        };
        place.write(&format!("{name}.gguf"), bytes);
    }
    let greedy = ["--tokens", "1 2 3", "--greedy", "1"];
    let disk = ["--kv-memory", "1G", "--kv-disk", "d"];
    for (args, what) in [
        ([&["logits", "qwen3moe.gguf"][..], &greedy].concat(), "`route`"),
        ([&["logits", "deepseek2.gguf"][..], &greedy].concat(), "latent"),
        ([&["logits", "demo.gguf"][..], &greedy, &["--kv-policy", "window"]].concat(), "memory"),
        ([&["logits", "demo.gguf"][..], &greedy, &disk].concat(), "--kv-disk"),
        (vec!["complete", "demo.gguf", "the", "-n", "2", "--spec", "lookup"], "--spec"),
    ] {
        let (code, told) = place.fails(&[&args[..], &["--executor", "wgpu"]].concat());
        let line = refusal(&told);
        assert!(code == 2 && line.contains(what), "{args:?}: {told}");
        assert!(line.contains(&adapter) && line.contains("--executor cpu"), "{args:?}: {told}");
        let auto = place.run(&[&args[..], &["--executor", "auto"]].concat());
        let told = text(&auto.stderr);
        assert!(auto.status.success() && told.contains("the processor runs it"), "{told}");
    }
    // what nobody asked for is left off
    let texts = ["-n", "4", "--temp", "0", "--json", "--executor", "wgpu"];
    let reply = place.ok(&[&["complete", "demo.gguf", "the"][..], &texts].concat());
    let reply: Value = serde_json::from_str(&reply).expect("an object");
    assert_eq!(reply["usage"]["completion_tokens"], 4);
}

/// Whoever names a device wants to know; what was measured is kept.
#[test]
fn auto_measures_once_and_says_what_it_chose() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    let name = adapter.split(' ').next().unwrap_or_default().to_owned();
    let auto = ["--executor", "auto", "--adapter", &name];
    let run = || {
        let args = ["complete", "demo.gguf", "the", "-n", "2", "--verbose"];
        let output = place.run(&[&args[..], &auto].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = text(&output.stderr);
        told.lines().find(|line| line.contains("--executor auto")).map(str::to_owned)
    };
    let first = run().expect("it says what it chose");
    assert!(first.contains(&adapter) && first.contains("took"), "{first}");
    let kept: Value = serde_json::from_slice(&place.read(".cache/rooflight/executors.json"))
        .expect("what was measured");
    let choice = &kept["choices"][0];
    assert_eq!(choice["adapter"], adapter.as_str());
    let [cpu, gpu] = ["cpu_seconds", "gpu_seconds"].map(|key| choice[key].as_f64().expect("s"));
    assert_eq!(first.contains("the processor runs it"), gpu >= cpu, "{first}: {kept}");
    // the same figures: nothing was measured again
    assert_eq!(run().as_deref(), Some(&*first));
}

#[test]
fn a_device_that_is_not_there() {
    let Some(_) = adapter() else { return };
    let place = Place::new();
    let args = ["complete", "demo.gguf", "the", "--executor", "wgpu", "--adapter", "bogus"];
    let (code, told) = place.fails(&args);
    let line = refusal(&told);
    assert!(code == 2 && line.contains("no adapter is called `bogus`"), "{told}");
}
