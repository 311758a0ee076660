//! Conversations over restarts of the server: found again by their tokens, the same to the bit, and computed again wherever
//! anything differs or is damaged.

mod bounded;
mod crashes;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use testing::{Dice, mutations};

use crate::asking::{ask, cached, next, post, request, said, tokens, told, try_ask};
use crate::common::{Place, text};
use crate::serving::Serving;

/// A place whose model holds long conversations.
struct Folder {
    place: Place,
    model: &'static str,
}

impl Folder {
    fn new() -> Folder {
        Folder { place: Place::new(), model: "demo.gguf" }
    }

    fn start(&self, more: &[&str]) -> Serving {
        let args = [&[self.model, "-c", "4096", "--threads", "1"], more].concat();
        Serving::start(&self.place, &args)
    }

    fn keeping(&self, more: &[&str]) -> Serving {
        self.start(&[&["--cache-disk", "kept"], more].concat())
    }

    /// What becomes of a server that does not serve.
    fn refused(&self, args: &[&str]) -> Output {
        self.place.run(&[&["serve", "--port", "0"], args].concat())
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.place.path("kept/rooflight-kept").join(name)
    }

    fn manifests(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.kept("")).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "manifest")).collect()
    }
}

/// Turn 1 of a conversation of 2,000 tokens, and turn 2 as a server says it that saw neither.
fn conversation(folder: &Folder, seed: u64, args: &[&str]) -> (Vec<u64>, Vec<u64>, Value) {
    let first = tokens(seed, 2000);
    let serving = folder.start(args);
    let second = next(&first, &ask(&serving, &first), 2);
    drop(serving);
    let cold = ask(&folder.start(args), &second);
    assert_eq!(cached(&cold), 0);
    (first, second, said(&cold))
}

/// After a restart turn 2 computes what is new and nothing else, and says what a cold run says, to the bit. The same for
/// windows, latents and states; a model that is unloaded and loaded again finds its conversations, too.
#[test]
fn turn_2_computes_what_is_new() {
    let mut folder = Folder::new();
    let models = ["demo", "gemma3", "deepseek2", "qwen35", "mamba2", "lfm2"];
    for (seed, name) in (100..).zip(models) {
        let file: &'static str = format!("{name}.gguf").leak();
        if name != "demo" {
            folder.place.write(file, conformance::golden::model(name));
        }
        folder.model = file;
        let form: &[&str] = if name == "deepseek2" { &["--mla", "elided"] } else { &[] };
        let (first, second, cold) = conversation(&folder, seed, form);
        let serving = folder.keeping(form);
        let answer = ask(&serving, &first);
        assert_eq!(cached(&answer), 0, "{name}");
        assert_eq!(told(serving), "", "{name}");
        let serving = folder.keeping(form);
        let answer = ask(&serving, &second);
        // what was not computed yet when turn 1 ended is its last token
        let held = second.len() - 21;
        assert_eq!(cached(&answer), held, "{name}: {}", answer["timings"]);
        assert_eq!(said(&answer), cold, "{name}: other bits");
        // a third turn, after another restart
        let third = next(&second, &answer, 3);
        assert_eq!(told(serving), "", "{name}");
        let serving = folder.keeping(form);
        let answer = ask(&serving, &third);
        assert_eq!(cached(&answer), third.len() - 21, "{name}");
        assert_eq!(said(&answer), said(&ask(&folder.start(form), &third)), "{name}: other bits");
        assert_eq!(told(serving), "");
    }
    assert_eq!(folder.manifests().len(), models.len(), "a conversation has one manifest");
}

/// What a model had in memory when nobody asked for it any more it finds when it is loaded again, without a restart.
#[test]
fn a_model_that_was_unloaded_finds_its_conversations() {
    let folder = Folder::new();
    let (first, second, cold) = conversation(&folder, 1, &[]);
    let serving = folder.keeping(&["--keepalive", "1s"]);
    ask(&serving, &first);
    let since = Instant::now();
    while serving.get("/api/ps").json()["models"] != json!([]) {
        assert!(since.elapsed() < Duration::from_secs(60), "it is never unloaded");
        std::thread::sleep(Duration::from_millis(50));
    }
    // it may be on its way to disk still, which who loads it again waits for
    let answer = ask(&serving, &second);
    assert_eq!(folder.manifests().len(), 1);
    assert_eq!(cached(&answer), second.len() - 21);
    assert_eq!(said(&answer), cold);
    assert_eq!(told(serving), "");
}

/// A conversation that gives its place to others comes back from disk while those are served.
#[test]
fn what_had_no_place_comes_back() {
    let folder = Folder::new();
    let prompts: Vec<Vec<u64>> = (0..5).map(|i| tokens(20 + i, 400)).collect();
    let plain = folder.start(&[]);
    let nexts: Vec<Vec<u64>> = prompts.iter().map(|it| next(it, &ask(&plain, it), 3)).collect();
    let want: Vec<Value> = nexts.iter().map(|next| said(&ask(&plain, next))).collect();
    drop(plain);
    let serving = folder.keeping(&["--parallel", "2"]);
    prompts.iter().for_each(|prompt| drop(ask(&serving, prompt)));
    // all of them at once, in two places: whichever is in memory, the others are on disk, or on their way there
    std::thread::sleep(Duration::from_secs(3));
    let found: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> = nexts.iter().map(|next| scope.spawn(|| ask(&serving, next))).collect();
        asked.into_iter().map(|reply| reply.join().unwrap()).collect()
    });
    for ((answer, want), next) in found.iter().zip(&want).zip(&nexts) {
        assert_eq!(&said(answer), want);
        assert_eq!(cached(answer), next.len() - 21);
    }
    assert_eq!(told(serving), "");
}

/// F5, F11: a flipped byte, a file cut short or gone: told in a line, and computed again.
#[test]
fn damaged_conversations_are_computed_again() {
    let folder = Folder::new();
    let (first, second, cold) = conversation(&folder, 1, &[]);
    let records = folder.kept("records");
    let damage: [(&str, &dyn Fn()); 5] = [
        ("a flipped byte", &|| {
            let file = std::fs::File::options().read(true).write(true).open(&records).unwrap();
            // in the second page of each record is its block
            let mut byte = [0];
            file.read_exact_at(&mut byte, 4096 + 77).unwrap();
            file.write_all_at(&[byte[0] ^ 8], 4096 + 77).unwrap();
        }),
        ("cut short", &|| {
            let file = std::fs::File::options().write(true).open(&records).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
        ("gone", &|| std::fs::remove_file(&records).unwrap()),
        ("a flipped byte in the manifest", &|| {
            for manifest in folder.manifests() {
                let mut bytes = std::fs::read(&manifest).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&manifest, &bytes).unwrap();
            }
        }),
        ("a manifest cut short", &|| {
            for manifest in folder.manifests() {
                let bytes = std::fs::read(&manifest).unwrap();
                std::fs::write(&manifest, &bytes[..bytes.len() / 3]).unwrap();
            }
        }),
    ];
    for (what, damage) in damage {
        let serving = folder.keeping(&[]);
        ask(&serving, &first);
        serving.ended();
        damage();
        let serving = folder.keeping(&[]);
        let answer = ask(&serving, &second);
        assert_eq!(cached(&answer), 0, "{what}");
        assert_eq!(said(&answer), cold, "{what}: other bits");
        let told = told(serving);
        let line = "a conversation on disk is computed again: ";
        assert_eq!(told.matches(line).count(), 1, "{what}: {told}");
        assert!(!told.contains("rooflight-kept"), "{what}: {told}");
        std::fs::remove_dir_all(folder.place.path("kept")).unwrap();
    }
    // the whole folder, while the server runs: it goes on without
    let serving = folder.keeping(&[]);
    ask(&serving, &first);
    std::fs::remove_dir_all(folder.place.path("kept")).unwrap();
    assert_eq!(said(&ask(&serving, &second)), cold);
    let told = told(serving);
    assert!(told.contains("is not kept on disk"), "{told}");
}

/// Whatever bits depend on: another type of cache, instruction set, policy, model or build computes again, says so, and leaves
/// the conversation for whom it was made.
#[test]
fn other_means_compute_again() {
    let folder = Folder::new();
    let (first, second, cold) = conversation(&folder, 1, &[]);
    // one weight, a little
    let mut other = conformance::demo_gguf();
    let last = other.len() - 9;
    other[last] ^= 1;
    folder.place.write("other.gguf", other);
    // another build, of which only its file tells that it is one
    let usual = Path::new(env!("CARGO_BIN_EXE_rooflight"));
    let build = folder.place.path("another-build");
    std::fs::copy(usual, &build).unwrap();
    std::fs::File::options().append(true).open(&build).unwrap().write_all(&[0]).unwrap();
    let mut cases = vec![
        ("kernels", vec![]),
        ("cache types", vec!["-ctk", "f32"]),
        ("policy", vec!["--kv-policy", "window"]),
        ("model", vec!["-m", "other.gguf"]),
    ];
    match kernels::Isa::detect() == kernels::Isa::NONE {
        true => eprintln!("skipped: needs avx2"),
        false => cases.push(("instruction set", vec!["--isa", "scalar"])),
    }
    for (part, args) in cases {
        let serving = folder.keeping(&[]);
        ask(&serving, &first);
        serving.ended();
        let model: &[&str] = if part == "model" { &[] } else { &["demo.gguf"] };
        let program = if part == "kernels" { &*build } else { usual };
        let options = ["-c", "4096", "--threads", "1", "--cache-disk", "kept"];
        let args = [model, &options, &args].concat();
        let serving = Serving::by(program, &folder.place, &args, &[]);
        let answer = ask(&serving, &second);
        assert_eq!(cached(&answer), 0, "{part}");
        assert_eq!(said(&ask(&serving, &second)), said(&answer), "{part}");
        let told = told(serving);
        let line = format!(": made for {part} ");
        assert_eq!(told.matches(&line).count(), 1, "{part}: {told}");
        assert_eq!(told.lines().count(), 1, "{part}: {told}");
        // its own is there still
        let serving = folder.keeping(&[]);
        let answer = ask(&serving, &second);
        assert_eq!(cached(&answer), second.len() - 21, "{part}");
        assert_eq!(said(&answer), cold, "{part}");
        serving.ended();
        std::fs::remove_dir_all(folder.place.path("kept")).unwrap();
    }
}

/// F4: killed at any moment, while conversations go to disk: the next server says what a cold one says, and finds no more than
/// was computed.
#[test]
fn kills_leave_nothing_wrong() {
    let folder = Folder::new();
    let prompts: Vec<Vec<u64>> = (0..6).map(|i| tokens(10 + i, 300 + 100 * i as usize)).collect();
    let plain = folder.start(&[]);
    let want: Vec<Value> = prompts.iter().map(|prompt| said(&ask(&plain, prompt))).collect();
    drop(plain);
    let mut dice = Dice::new(5);
    let (mut found, kills) = (0, mutations(40));
    for _ in 0..kills {
        // one place, so that each conversation pushes the one before it out, which goes to disk
        let serving = folder.keeping(&["--parallel", "1", "--cache-disk-size", "900kB"]);
        let until = Duration::from_micros(dice.bits() % 400_000);
        std::thread::scope(|scope| {
            let (serving, prompts, want) = (&serving, &prompts, &want);
            let first = dice.below(prompts.len());
            let asked = scope.spawn(move || {
                let mut found = 0;
                for i in (0..prompts.len()).map(|i| (first + i) % prompts.len()) {
                    let answer = try_ask(serving, "/completion", &request(&prompts[i]), "");
                    let Some((200, answer)) = answer else { break };
                    assert_eq!(said(&answer), want[i], "other bits of {i}");
                    found += usize::from(cached(&answer) > 0);
                }
                found
            });
            std::thread::sleep(until);
            serving.signal(Signal::KILL);
            found += asked.join().unwrap();
        });
        drop(serving);
    }
    assert!(found > 0, "nothing was ever found on disk");
    // what killed ones left is not in the way, and within the bound
    let serving = folder.keeping(&["--parallel", "1", "--cache-disk-size", "900kB"]);
    for (prompt, want) in prompts.iter().zip(&want) {
        assert_eq!(&said(&ask(&serving, prompt)), want);
    }
    assert_eq!(told(serving), "");
    let bytes = folder.kept("records").metadata().unwrap().len();
    assert!(bytes <= 900_000, "{bytes}");
    let beside: Vec<_> = std::fs::read_dir(folder.place.path("kept")).unwrap().collect();
    assert_eq!(beside.len(), 2, "{beside:?}");
    testing::covered(&format!("{kills} kills, {found} conversations found after one"));
}

/// A disk that fails for a while: what rests meanwhile is tried again, and is there when it works again.
#[test]
fn what_could_not_be_written_is_tried_again() {
    let folder = Folder::new();
    let serving = folder.keeping(&[]);
    let (usual, away) = (folder.place.path("kept"), folder.place.path("away"));
    std::fs::rename(&usual, &away).unwrap();
    ask(&serving, &tokens(1, 300));
    // it settles, and is tried once
    std::thread::sleep(Duration::from_millis(3500));
    std::fs::rename(&away, &usual).unwrap();
    assert_eq!(folder.manifests().len(), 0);
    let since = Instant::now();
    while folder.manifests().is_empty() {
        assert!(since.elapsed() < Duration::from_secs(60), "it is never tried again");
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = told(serving);
    assert_eq!(told.matches("is not kept on disk").count(), 1, "{told}");
}

/// Where a smaller bound is given than before, it is told how many had to go.
#[test]
fn what_goes_for_a_smaller_bound_is_told() {
    let folder = Folder::new();
    let serving = folder.keeping(&[]);
    (1..4).for_each(|seed| drop(ask(&serving, &tokens(seed, 400))));
    serving.ended();
    assert_eq!(folder.manifests().len(), 3);
    let bytes = folder.kept("records").metadata().unwrap().len();
    let bound = format!("{}kB", bytes / 2 / 1000);
    let lines = folder.keeping(&["--cache-disk-size", &bound]).ended();
    let line = "2 of the conversations were let go of, those used longest ago";
    assert_eq!(lines.matches(line).count(), 1, "{lines}");
    assert_eq!(folder.manifests().len(), 1);
}

/// `verify --cache-disk` restores, and leaves what a user has there.
#[test]
fn verify_restores_and_leaves_what_is_there() {
    let folder = Folder::new();
    folder.place.write("small.gguf", conformance::golden::model("qwen2"));
    let serving = folder.keeping(&[]);
    ask(&serving, &tokens(1, 400));
    serving.ended();
    let manifest = std::fs::read(&folder.manifests()[0]).unwrap();
    let args = ["verify", "small.gguf", "--quick", "--cache-disk", "kept", "--json"];
    let done = folder.place.run(&args);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    let runs = found["all"].as_array().unwrap().iter().filter(|run| run["tokens"] == "restored");
    let restored: Vec<u64> = runs.map(|run| run["restored"].as_u64().unwrap()).collect();
    assert_eq!(restored.len(), 8);
    assert!(restored.iter().all(|n| *n > 0), "{restored:?}");
    assert_eq!(found["same"], found["runs"]);
    let left: Vec<Vec<u8>> =
        folder.manifests().iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(left, [manifest]);
}

/// F14: a second server on one folder is refused in a line; the first goes on.
#[test]
fn a_folder_has_one_server() {
    let folder = Folder::new();
    let serving = folder.keeping(&["--slot-save-path", "slots"]);
    for args in [["--cache-disk", "kept"], ["--slot-save-path", "slots"]] {
        let second = folder.refused(&[&["demo.gguf"], &args[..]].concat());
        let told = text(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{told}");
        assert!(told.contains(args[0]) && told.contains("held by process"), "{told}");
        assert_eq!(second.stdout, b"");
    }
    let both = ["demo.gguf", "--cache-disk", "one", "--slot-save-path", "one"];
    let second = folder.refused(&both);
    assert_eq!(second.status.code(), Some(2), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("give two folders"));
    let reference = ["demo.gguf", "--executor", "interpreter", "--cache-disk", "three"];
    let second = folder.refused(&reference);
    assert_eq!(second.status.code(), Some(2), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("--executor cpu does"), "{}", text(&second.stderr));
    ask(&serving, &tokens(1, 100));
    serving.ended();
}

/// P3: what one key said is found by that key alone, also after a restart.
#[test]
fn keys_share_nothing_over_restarts() {
    let folder = Folder::new();
    folder.place.write("keys.txt", "one\ntwo\n");
    let args = ["--api-key-file", "keys.txt", "--slot-save-path", "slots"];
    let prompt = tokens(1, 500);
    let with = |key: &str| format!("Authorization: Bearer {key}\r\n");
    let ask = |serving: &Serving, key: &str| {
        let answer = try_ask(serving, "/completion", &request(&prompt), &with(key));
        cached(&answer.unwrap().1)
    };
    let slot = |serving: &Serving, key: &str, action: &str| {
        let path = format!("/slots/0?action={action}");
        try_ask(serving, &path, &json!({"filename": "mine"}), &with(key)).unwrap()
    };
    let serving = folder.keeping(&args);
    assert_eq!(ask(&serving, "one"), 0);
    assert_eq!(slot(&serving, "two", "save").0, 400, "another's slot");
    assert_eq!(slot(&serving, "two", "erase").1["n_erased"], 0);
    assert_eq!(slot(&serving, "one", "save").0, 200);
    serving.ended();
    // the other way round in the file
    folder.place.write("keys.txt", "two\none\n");
    let serving = folder.keeping(&args);
    assert_eq!(ask(&serving, "two"), 0);
    assert_eq!(slot(&serving, "two", "restore").0, 400, "another's file");
    assert_eq!(slot(&serving, "two", "save").0, 400, "another's name");
    assert_eq!(ask(&serving, "one"), prompt.len() - 1);
    serving.ended();
}

/// llama.cpp's slots: saved, had back after a restart, forgotten.
#[test]
fn slots_are_saved_and_had_back() {
    let folder = Folder::new();
    let (first, second, cold) = conversation(&folder, 1, &[]);
    let save = |filename: &str| json!({ "filename": filename });
    let serving = folder.start(&["--slot-save-path", "slots"]);
    let slot = post;
    let (status, empty) = slot(&serving, "/slots/0?action=save", &save("a.bin"));
    let told = empty["error"]["message"].as_str().unwrap();
    assert!(status == 400 && told.starts_with("slot 0 has nothing: no conversation"), "{empty}");
    let answer = ask(&serving, &first);
    assert_eq!(answer["id_slot"], 0);
    let (status, saved) = slot(&serving, "/slots/0?action=save", &save("a.bin"));
    assert_eq!(status, 200, "{saved}");
    assert_eq!(saved["id_slot"], 0);
    assert_eq!(saved["filename"], "a.bin");
    assert_eq!(saved["n_saved"], first.len() + 5);
    assert_eq!(saved["n_saved"], answer["tokens_cached"], "what llama.cpp means by it");
    assert!(saved["n_written"].as_u64().unwrap() > 100_000);
    assert!(saved["timings"]["save_ms"].as_f64().unwrap() >= 0.0);
    let (_, erased) = slot(&serving, "/slots/0?action=erase", &json!({}));
    assert_eq!(erased, json!({"id_slot": 0, "n_erased": first.len() + 5}));
    assert_eq!(cached(&ask(&serving, &first)), 0, "it is forgotten");
    serving.ended();

    let serving = folder.start(&["--slot-save-path", "slots"]);
    let (status, back) = slot(&serving, "/slots/3?action=restore", &save("a.bin"));
    assert_eq!(status, 200, "{back}");
    assert_eq!((&back["id_slot"], &back["n_restored"]), (&json!(3), &json!(first.len() + 5)));
    assert_eq!(back["n_read"], saved["n_written"]);
    let answer = ask(&serving, &second);
    assert_eq!((cached(&answer), &answer["id_slot"]), (second.len() - 21, &json!(3)));
    assert_eq!(said(&answer), cold, "other bits");
    // P1: a name leads nowhere else, and nothing else is a slot or an action
    let long = "x".repeat(65);
    for name in [
        "../x",
        "..",
        "",
        ".x",
        "a/b",
        "/etc/x",
        "..%2f",
        "a\u{0}b",
        "a b",
        "ａ",
        "\u{ff0e}\u{ff0e}",
        &long,
    ] {
        for action in ["save", "restore"] {
            let path = format!("/slots/3?action={action}");
            let (status, told) = slot(&serving, &path, &save(name));
            assert_eq!((status, &told["error"]["param"]), (400, &json!("filename")), "{name:?}");
        }
    }
    for (path, body) in [
        ("/slots/4?action=save", save("b")),
        ("/slots/-1?action=save", save("b")),
        ("/slots/x?action=save", save("b")),
        ("/slots/3?action=nothing", save("b")),
        ("/slots/3", save("b")),
        ("/slots/3?action=save", json!({})),
        ("/slots/3?action=restore", save("never-saved")),
    ] {
        let (status, told) = slot(&serving, path, &body);
        assert_eq!(status, 400, "{path}: {told}");
        assert!(told["error"]["message"].as_str().unwrap().lines().count() == 1, "{told}");
    }
    // what rests in the slot did not go for it
    assert_eq!(cached(&ask(&serving, &second)), second.len() - 1);
    // what the disk refuses is nobody's mistake
    let (usual, away) = (folder.place.path("slots"), folder.place.path("away"));
    std::fs::rename(&usual, &away).unwrap();
    let (status, told) = slot(&serving, "/slots/3?action=save", &save("c"));
    assert_eq!(status, 500, "{told}");
    std::fs::rename(&away, &usual).unwrap();
    serving.ended();

    // damage is told, and what the slot had goes with the attempt alone
    let records = folder.place.path("slots/rooflight-kept/records");
    let mut bytes = std::fs::read(&records).unwrap();
    bytes.iter_mut().skip(4096).step_by(8192).for_each(|byte| *byte ^= 1);
    std::fs::write(&records, &bytes).unwrap();
    let serving = folder.start(&["--slot-save-path", "slots"]);
    let (status, told) = slot(&serving, "/slots/0?action=restore", &save("a.bin"));
    assert_eq!(status, 400);
    assert!(told["error"]["message"].as_str().unwrap().contains("checksum"), "{told}");
    assert_eq!(said(&ask(&serving, &second)), cold);
    serving.ended();
    // other means
    let serving = folder.start(&["--slot-save-path", "slots", "-ctk", "f32"]);
    let (status, told) = slot(&serving, "/slots/0?action=restore", &save("a.bin"));
    assert_eq!(status, 400);
    assert!(told["error"]["message"].as_str().unwrap().contains("made for cache types"), "{told}");
    serving.ended();
    // off unless it is asked for
    let serving = folder.start(&[]);
    for action in ["save", "restore", "erase"] {
        let (status, told) = slot(&serving, &format!("/slots/0?action={action}"), &save("a"));
        assert_eq!((status, &told["error"]["type"]), (501, &json!("not_supported_error")));
        assert!(told["error"]["message"].as_str().unwrap().contains("--slot-save-path"), "{told}");
    }
}
