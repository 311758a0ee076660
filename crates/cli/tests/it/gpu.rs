//! `--executor wgpu` and `auto`: what a GPU runs says what the processor says, what it does not run is told in a line.
//! Where there is no GPU, Mesa's lavapipe plays one.

#![cfg(target_os = "linux")]

mod placed;

use std::sync::LazyLock;

use conformance::golden;
use executors::{ExecutorKind, ExecutorOptions};
use serde_json::Value;

use crate::common::{Place, text};
use crate::pty::{PROMPT, Pty};

/// The device that must be there: a part of its name, or `any`.
static WANTED: LazyLock<Option<String>> = LazyLock::new(|| {
    std::env::var("ROOFLIGHT_REQUIRE_DEVICE").ok().filter(|name| !name.is_empty())
});

/// A part of the name of the one that is tested, where it is named.
fn named() -> Option<&'static str> {
    WANTED.as_deref().filter(|name| *name != "any")
}

/// The options that choose it.
fn wgpu() -> Vec<&'static str> {
    let adapter = named().into_iter().flat_map(|name| ["--adapter", name]);
    ["--executor", "wgpu"].into_iter().chain(adapter).collect()
}

/// The adapter of this machine, by its name; told as skipped where there is none.
fn adapter() -> Option<String> {
    let wanted = WANTED.as_ref();
    let options = ExecutorOptions {
        kind: ExecutorKind::Wgpu,
        adapter: named().map(str::to_owned),
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
        let told = |executor: &[&str]| {
            let args = ["run", "bundled.gguf", "-p", prompt, "-n", "12", "--temp", "0", "--json"];
            let object = place.ok(&[&args[..], executor].concat());
            serde_json::from_str::<Value>(&object).expect("an object")
        };
        let [cpu, gpu] = [told(&[]), told(&wgpu())];
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
    let gpu = wgpu();
    let args = ["complete", "demo.gguf", "the", "-n", "2", "--verbose", "-ctk", "q8_0"];
    let output = place.run(&[&args[..], &gpu].concat());
    let told = text(&output.stderr);
    assert!(output.status.success() && told.contains(&format!("wgpu: {adapter}")), "{told}");
    assert!(told.contains(" f16/f16 ") && told.contains("keeps f16"), "{told}");
    let args = ["bench", "demo.gguf", "-p", "8", "-n", "2", "-d", "16", "-r", "1", "-o", "json"];
    let args = [&args[..], &["-ctk", "q8_0", "-ctv", "q8_0"]].concat();
    let rows = place.ok(&[&args[..], &gpu].concat());
    let rows: Value = serde_json::from_str(&rows).expect("rows");
    for row in rows.as_array().expect("an array") {
        assert_eq!((&row["backends"], &row["gpu_info"]), (&"wgpu".into(), &adapter.clone().into()));
        assert_eq!([&row["type_k"], &row["type_v"]], ["f16"; 2], "as it is kept");
        let rate = |key: &str| row[key].as_f64().is_some_and(|rate| rate > 0.0);
        assert!(rate("avg_ts") && rate("limit_ts") && row["expected_ts"].is_null(), "{row}");
        assert!(row["share"].is_null(), "too little work to judge: {row}");
    }
}

/// Where the time of a step went, by the device's own clock.
#[test]
fn bench_explains_a_step_on_a_gpu() {
    let Some(_) = adapter() else { return };
    let place = place();
    let args =
        ["bench", "bundled.gguf", "-p", "0", "-n", "4", "-r", "1", "--explain", "-o", "json"];
    let output = place.run(&[&args[..], &wgpu()].concat());
    let (rows, told) = (text(&output.stdout), text(&output.stderr));
    let rows: Value = serde_json::from_str(&rows).expect("rows");
    let groups = rows[0]["explain"]["groups"].as_array().expect("parts");
    let measured = |name: &str| {
        let group = groups.iter().find(|group| group["name"] == name).expect("a part");
        group["measured_seconds"].as_f64().expect("seconds")
    };
    let parts = ["weights", "attention", "head", "norms"].map(measured);
    if told.contains("writes no timestamps") {
        return assert_eq!(parts, [0.0; 4]);
    }
    assert!(parts.iter().all(|seconds| *seconds > 0.0), "{rows}");
    let all = rows[0]["explain"]["measured_seconds"].as_f64().expect("seconds");
    assert!(parts.iter().sum::<f64>() < all && measured("unaccounted") > 0.0, "{rows}");
}

/// What a GPU can do at most, and what its kernels reach, is measured once and kept, and planned with.
#[test]
fn a_gpu_has_limits() {
    let Some(adapter) = adapter() else { return };
    // drivers in software take most of a minute
    if !testing::full("commands on a GPU: its ceilings and its tuning") {
        return;
    }
    let place = Place::new();
    // of kernels one type: all of them take lavapipe minutes
    let machine = [&["machine", "--types", "Q4_0"][..], &wgpu()].concat();
    let output = place.run(&[&machine[..], &["-ngl", "2", "-ot", "exps=cpu"]].concat());
    let (figures, told) = (text(&output.stdout), text(&output.stderr));
    let idle =
        ["-ngl has no effect: all of a GPU", "--override-tensor has no effect: all of a GPU"];
    assert!(idle.iter().all(|what| told.contains(what)), "{told}");
    let lines = ["GB/s", "GFLOP/s f32", "dispatch ", "submission "];
    assert!(lines.iter().all(|line| figures.contains(line)), "{figures}");
    assert!(figures.contains(&adapter) && !figures.contains("thread"), "{figures}");
    let timed = !told.contains("kernels are not measured");
    assert_eq!(timed, figures.contains(" us beside its phases"), "{figures}");
    let shapes = figures.lines().filter(|line| line.starts_with("shape  Q4_0 ")).count();
    assert_eq!(shapes, 3, "for one row, for four and for tiles: {figures}");
    let tuned = place.path(".cache/rooflight/tuned.json");
    let kept = std::fs::metadata(&tuned).expect("shapes are kept").modified().expect("a time");
    let json = place.ok(&[&machine[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).expect("an object");
    assert_eq!(std::fs::metadata(&tuned).and_then(|file| file.modified()).ok(), Some(kept));
    let of = |key: &str| -> Vec<u64> {
        let shapes = json["kernel_shapes"].as_array().expect("shapes");
        shapes.iter().filter_map(|shape| shape[key].as_u64()).collect()
    };
    assert_eq!(of("at_once"), [1, 4, 32], "{json}");
    assert!(of("rows").iter().all(|n| [2, 4, 8].contains(n)) && of("teams").len() == 3, "{json}");
    let shapes = json["kernel_shapes"].as_array().expect("shapes");
    let known = |shape: &Value| ["f32", "f16", "int8"].iter().any(|name| shape["product"] == *name);
    assert!(shapes.iter().all(known), "{json}");
    let seconds = &json["rates"]["linear"][0]["seconds_per_weight"][0];
    assert_eq!(timed, seconds.as_f64().is_some_and(|seconds| seconds > 0.0), "{json}");
    assert!(json["submission_nanoseconds"].as_u64().is_some_and(|time| time > 0), "{json}");
    let bytes = json["read"].as_array().and_then(|read| read.last()?["bytes_per_second"].as_f64());
    let bytes = bytes.expect("reading was measured");
    let plan = ["plan", "qwen2.5-0.5b", "--json", "-c", "512"];
    let planned = place.ok(&[&plan[..], &wgpu()].concat());
    let planned: Value = serde_json::from_str(&planned).expect("an object");
    assert!(planned["machine"].to_string().contains(&adapter), "{planned}");
    assert!((planned["machine"]["bytes_per_second"].as_f64().expect("bytes") - bytes).abs() < 1.0);
    let output = place.run(&[&["plan", "qwen3-30b-a3b", "-c", "512"][..], &wgpu()].concat());
    let (told, plan) = (text(&output.stderr), text(&output.stdout));
    assert!(plan.contains(&adapter), "{plan}\n{told}");
    let other = place.run(&[&["plan", "qwen2.5-0.5b", "--device", "4090"][..], &wgpu()].concat());
    assert!(text(&other.stderr).contains("--executor has no effect"));
}

/// What was measured to be fastest is multiplied, and numbers as they are where that is asked for.
#[test]
fn products_are_those_that_are_kept_or_asked_for() {
    let Some(_) = adapter() else { return };
    // drivers in software take most of a minute
    if !testing::full("commands on a GPU: its products") {
        return;
    }
    let place = place();
    let logits = |name: &str, more: &[&str]| {
        let args = ["logits", "bundled.gguf", "--tokens", "1 2 3 4 5", "-o", name];
        place.ok(&[&args[..], more, &wgpu()].concat());
        std::fs::read(place.path(name)).expect("logits")
    };
    let exact = logits("before", &[]);
    place.ok(&[&["machine", "--types", "Q8_0"][..], &wgpu()].concat());
    let tuned = place.path(".cache/rooflight/tuned.json");
    let text = std::fs::read_to_string(&tuned).expect("shapes are kept");
    let mut kept: Value = serde_json::from_str(&text).expect("an object");
    let shapes = kept["adapters"][0]["shapes"].as_array_mut().expect("shapes");
    shapes.iter_mut().for_each(|shape| shape["product"] = "int8".into());
    std::fs::write(&tuned, kept.to_string()).expect("a file");
    assert!(logits("kept", &[]) != exact, "they are rounded");
    assert!(logits("asked", &["--gpu-products", "f32"]) == exact, "nothing is rounded");
}

/// The report says what was tested and that nothing differs.
#[test]
fn a_gpu_tests_itself() {
    let Some(adapter) = adapter() else { return };
    // drivers in software take most of a minute
    if !testing::full("commands on a GPU: its self-test") {
        return;
    }
    let report = Place::new().ok(&[&["selftest", "--quick", "-t", "1"][..], &wgpu()].concat());
    assert!(report.contains(&format!("- tested: wgpu: {adapter}\n- driver: ")), "{report}");
    let checks = report.lines().find(|line| line.starts_with("| operations and dense models |"));
    let checks = checks.expect("a line of a table");
    let n = conformance::MEANING.iter().filter(|check| check.name.starts_with("op/")).count();
    assert!(checks.contains(&format!("| {n} | 0 | 0 | 0 |")), "{report}");
    assert!(
        report.contains("Beside 1 thread,") && report.contains("of 5 greedy replies"),
        "{report}"
    );
    assert!(report.contains(", 0 elsewhere."), "{report}");
}

#[test]
fn a_conversation_on_a_gpu() {
    let Some(_) = adapter() else { return };
    let place = place();
    let args = ["run", "bundled.gguf", "--temp", "0", "-c", "2048"];
    let mut pty = Pty::start(&place, &[&args[..], &wgpu()].concat(), 80);
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
    pty.wait_for("interrupted");
    pty.wait_for(PROMPT);
    let shown = pty.line("/show info");
    let held = shown.split_once("conversation ").and_then(|(_, rest)| {
        rest.split_whitespace().next()?.replace(',', "").parse::<usize>().ok()
    });
    assert!(held.is_some_and(|held| held > 20), "{shown}");
    pty.send("/bye\r");
    assert_eq!(pty.end(), Some(0));
}

/// Returns the first error line. It says what is refused, because drivers write nothing to the terminal, even without a desktop.
fn refusal(told: &str) -> &str {
    told.lines().find(|line| line.starts_with("error: ")).unwrap_or_default()
}

/// Each of these runs on the processor, and with `auto` it does.
#[test]
fn what_a_gpu_does_not_run() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    let greedy = ["--tokens", "1 2 3", "--greedy", "1"];
    let disk = ["--kv-memory", "1G", "--kv-disk", "d"];
    for (args, what) in [
        ([&["logits", "demo.gguf"][..], &greedy, &["--kv-policy", "window"]].concat(), "memory"),
        ([&["logits", "demo.gguf"][..], &greedy, &disk].concat(), "--kv-disk"),
        (vec!["complete", "demo.gguf", "the", "-n", "2", "--spec", "lookup"], "--spec"),
    ] {
        let (code, told) = place.fails(&[&args[..], &wgpu()].concat());
        let line = refusal(&told);
        assert!(code == 2 && line.contains(what), "{args:?}: {told}");
        assert!(line.contains(&adapter) && line.contains("--executor cpu"), "{args:?}: {told}");
        let auto = place.run(&[&args[..], &["--executor", "auto"]].concat());
        let told = text(&auto.stderr);
        assert!(auto.status.success() && told.contains("the processor runs it"), "{told}");
    }
    // what nobody asked for is left off
    let texts = ["complete", "demo.gguf", "the", "-n", "4", "--temp", "0", "--json"];
    let reply = place.ok(&[&texts[..], &wgpu()].concat());
    let reply: Value = serde_json::from_str(&reply).expect("an object");
    assert_eq!(reply["usage"]["completion_tokens"], 4);
}

/// The ids that a model goes on with, and what is told beside.
fn greedy(place: &Place, model: &str, more: &[&str]) -> (String, String) {
    let args = ["logits", model, "--tokens", "1 2 3 4 5", "--greedy", "12", "-t", "1"];
    let output = place.run(&[&args[..], &["-ctk", "f32", "-ctv", "f32"], more].concat());
    let told = text(&output.stderr);
    assert!(output.status.success(), "{model} {more:?}: {told}");
    (text(&output.stdout), told)
}

/// However many layers a GPU has, the ids are the processor's.
#[test]
fn any_number_of_layers() {
    let Some(_) = adapter() else { return };
    let place = Place::new();
    place.write("qwen3.gguf", golden::model("qwen3"));
    let (want, _) = greedy(&place, "qwen3.gguf", &[]);
    for (layers, seen) in [
        ("0", None),
        ("1", Some("(output)")),
        ("2", Some("output)")),
        ("3", None),
        ("all", None),
        ("auto", None),
    ] {
        let args = [&wgpu()[..], &["-ngl", layers, "--verbose"]].concat();
        let (found, told) = greedy(&place, "qwen3.gguf", &args);
        assert_eq!(found, want, "-ngl {layers}: {told}");
        let divided = told.contains("1 crossing, 1 submission a step");
        assert_eq!(divided, seen.is_some(), "-ngl {layers}: {told}");
        assert!(told.contains(seen.unwrap_or_default()), "-ngl {layers}: {told}");
        // who computes with it has a use for -t
        let idle = told.contains("-t has no effect");
        assert_eq!(idle, !divided && layers != "0", "-ngl {layers}: {told}");
    }
    let args = ["logits", "qwen3.gguf", "--tokens", "1", "--greedy", "1", "-ngl", "most"];
    let (code, told) = place.fails(&[&args[..], &wgpu()].concat());
    assert!(code == 2 && told.contains("a number, all or auto"), "{told}");
}

/// Experts and latents are the GPU's with all their layers, and the processor has nothing to do.
#[test]
fn experts_and_latents_run_on_the_gpu() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    for name in ["qwen3moe", "deepseek2"] {
        let file = format!("{name}.gguf");
        place.write(&file, golden::model(name));
        let (want, _) = greedy(&place, &file, &[]);
        let (found, told) = greedy(&place, &file, &[&wgpu()[..], &["--verbose"]].concat());
        assert_eq!(found, want, "{name}: {told}");
        assert!(!told.contains("the processor runs layer"), "{name}: {told}");
        assert!(told.contains(&format!("wgpu: {adapter}")), "{name}: {told}");
    }
    let (_, told) =
        greedy(&place, "deepseek2.gguf", &[&wgpu()[..], &["--mla", "expanded"]].concat());
    assert!(told.contains("--mla has no effect: a GPU computes"), "{told}");
}

/// What recurs is the GPU's as other layers are.
#[test]
fn what_recurs_is_run_whole() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    for name in ["lfm2", "mamba2", "rwkv7", "qwen35"] {
        let file = format!("{name}.gguf");
        place.write(&file, golden::model(name));
        let (want, _) = greedy(&place, &file, &[]);
        let (found, told) = greedy(&place, &file, &[&wgpu()[..], &["--verbose"]].concat());
        assert_eq!(found, want, "{name}: {told}");
        assert!(told.contains(&format!("wgpu: {adapter}")), "{name}: {told}");
        assert!(!told.contains("the processor runs"), "{name}: {told}");
    }
    let bench = ["bench", "lfm2.gguf", "-p", "8", "-n", "2", "-d", "16", "-r", "1", "-o", "json"];
    let rows = place.ok(&[&bench[..], &["-t", "1"], &wgpu()].concat());
    let rows: Value = serde_json::from_str(&rows).expect("rows");
    for row in rows.as_array().expect("an array") {
        assert_eq!(row["backends"], "wgpu", "{row}");
    }
}

/// Indexers, and attention by what they chose: all layers are the GPU's.
#[test]
fn indexers_run_whole() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    for name in ["dots3note", "minimax-m3"] {
        let file = format!("{name}.gguf");
        place.write(&file, golden::model(name));
        let (want, _) = greedy(&place, &file, &[]);
        let (found, told) = greedy(&place, &file, &[&wgpu()[..], &["--verbose"]].concat());
        assert_eq!(found, want, "{name}: {told}");
        assert!(told.contains(&format!("wgpu: {adapter}")), "{name}: {told}");
        assert!(!told.contains("the processor runs"), "{name}: {told}");
    }
}

/// Experts apart: the rest of their layers is the GPU's.
#[test]
fn experts_on_the_processor() {
    let Some(_) = adapter() else { return };
    let place = Place::new();
    for name in ["qwen3moe", "llama"] {
        place.write(&format!("{name}.gguf"), golden::model(name));
    }
    let (want, _) = greedy(&place, "qwen3moe.gguf", &[]);
    for option in [&["-cmoe"][..], &["-ncmoe", "99"], &["-ncmoe", "1"]] {
        let args = [&wgpu()[..], option, &["--verbose"]].concat();
        let (found, told) = greedy(&place, "qwen3moe.gguf", &args);
        assert_eq!(found, want, "{option:?}: {told}");
        assert!(told.contains("experts of layer"), "{option:?}: {told}");
        assert!(!told.contains("the processor runs layer"), "{option:?}: {told}");
        let (_, told) = greedy(&place, "llama.gguf", &[&wgpu()[..], option].concat());
        assert!(told.contains("has no effect: the model has no experts"), "{told}");
    }
}

/// A conversation whose layers are on both: a reply begun anew is the same, and one that is interrupted leaves what was said.
#[test]
fn a_conversation_on_both() {
    let Some(_) = adapter() else { return };
    let place = place();
    let args = ["run", "bundled.gguf", "--temp", "0", "-c", "2048", "-ngl", "3", "-t", "1"];
    let mut pty = Pty::start(&place, &[&args[..], &wgpu()].concat(), 80);
    let banner = pty.wait_for(PROMPT);
    assert!(banner.contains("wgpu: ") && banner.contains("crossing"), "{banner}");
    let said = pty.line("What color is the sky?");
    assert!(said.contains("blue"), "{said}");
    let again = pty.line("/regen");
    assert!(again.contains("blue"), "{again}");
    pty.send("/bye\r");
    assert_eq!(pty.end(), Some(0));
}

/// A bound on caches is one for both sides.
#[test]
fn a_bound_on_the_caches_of_both() {
    let Some(_) = adapter() else { return };
    let place = place();
    let run = ["run", "bundled.gguf", "Hello!", "-n", "4", "--temp", "0", "-c", "512", "-t", "1"];
    let on_both = [&run[..], &["-ngl", "3"], &wgpu()].concat();
    let (code, told) = place.fails(&[&on_both[..], &["--kv-memory", "1kB"]].concat());
    let least = told.split_once("hint: --kv-memory ").and_then(|(_, rest)| rest.split(' ').next());
    let least = least.expect("the least is told").trim_end_matches(',').to_owned();
    assert!(code == 4, "{told}");
    place.ok(&[&on_both[..], &["--kv-memory", &least]].concat());
}

/// Whoever names a device wants to know; what was measured is kept, whatever it was measured for, and the processor's options
/// are not said to mean nothing.
#[test]
fn auto_measures_once_and_says_what_it_chose() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    let name = adapter.split(' ').next().unwrap_or_default().to_owned();
    let auto = ["--executor", "auto", "--adapter", &name, "-t", "1"];
    let run = |args: &[&str]| {
        let output = place.run(&[args, &auto].concat());
        let told = text(&output.stderr);
        assert!(output.status.success() && !told.contains("has no effect"), "{told}");
        told.lines().find(|line| line.contains("--executor auto")).map(str::to_owned)
    };
    let choices = || -> Vec<Value> {
        let kept: Value = serde_json::from_slice(&place.read(".cache/rooflight/executors.json"))
            .expect("what was measured");
        kept["choices"].as_array().expect("a list").clone()
    };
    let short = ["logits", "demo.gguf", "--tokens", "1 2 3", "--greedy", "1", "--chunk", "2"];
    let first = run(&short).expect("it says what it chose");
    assert!(first.contains(&adapter) && first.contains("took"), "{first}");
    if first.contains("beside other programs") {
        assert!(!place.path(".cache/rooflight/executors.json").exists());
        return testing::skipped("what --executor auto keeps: other programs run");
    }
    let [choice] = &choices()[..] else { panic!("one was measured") };
    assert_eq!(choice["adapter"], adapter.as_str());
    let [cpu, gpu] = ["cpu_seconds", "gpu_seconds"].map(|key| choice[key].as_f64().expect("s"));
    assert_eq!(first.contains("the processor runs it"), gpu >= cpu, "{first}: {choice}");
    // the same figures, of another context: nothing was measured again
    let complete = ["complete", "demo.gguf", "the", "-n", "2"];
    assert_eq!(run(&complete).as_deref(), Some(&*first));
    // what computes something else is not taken, however fast it is
    assert!(choice["error"].as_f64().is_some_and(|error| error < 1e-3), "{choice}");
    let file = place.path(".cache/rooflight/executors.json");
    let before = std::fs::read_to_string(&file).expect("what was measured");
    let mut wrong: Value = serde_json::from_str(&before).expect("an object");
    wrong["choices"][0]["error"] = 0.5.into();
    wrong["choices"][0]["gpu_seconds"] = 1e-9.into();
    std::fs::write(&file, wrong.to_string()).expect("a file");
    let refused = run(&complete).expect("it says what it chose");
    assert!(
        refused.contains("computes something else") && refused.contains("the processor runs it")
    );
    std::fs::write(&file, before).expect("a file");
    // another type of cache is another question, and so is what the GPU multiplies
    for another in [["-ctk", "f32"], ["--gpu-products", "f32"]] {
        let n = choices().len();
        let other = run(&[&complete[..], &another].concat()).expect("it says what it chose");
        let new = usize::from(!other.contains("beside other programs"));
        assert_eq!(choices().len(), n + new, "{another:?}: {other}");
    }
}

/// Nothing is loaded to be measured that has no room; what is wrong with the request is told as that.
#[test]
fn auto_does_not_measure_what_has_no_room() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    let name = adapter.split(' ').next().unwrap_or_default().to_owned();
    let auto = ["--executor", "auto", "--adapter", &name];
    let large = ["run", "demo.gguf", "hi", "-c", "60000000000"];
    let bounded = ["run", "demo.gguf", "hi", "--kv-memory", "1kB"];
    for args in [&large[..], &bounded] {
        let (code, told) = place.fails(&[args, &auto].concat());
        assert!(code == 4 && told.contains("has no room for it"), "{told}");
        assert!(!place.path(".cache/rooflight/executors.json").exists(), "{told}");
    }
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
