//! Models by name: brought from a hub on this machine, run by that name, and never half there, however often it is killed.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Place, text};
use testing::{FakeHub, HUB_COMMIT, HUB_REPOSITORY, made_up};

fn command(place: &Place, hub: &FakeHub, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
    command.args(args).env_clear().env("HOME", place.path(".")).env("HF_ENDPOINT", &hub.address);
    command.stdin(Stdio::null()).current_dir(place.path("."));
    command
}

fn run(place: &Place, hub: &FakeHub, args: &[&str]) -> Output {
    command(place, hub, args).output().unwrap()
}

fn blob_folder(place: &Place) -> PathBuf {
    place.path(".cache/huggingface/hub/models--org--Model-GGUF")
}

#[test]
fn a_model_is_pulled_listed_run_and_removed_by_its_name() {
    let place = Place::new();
    let demo = conformance::demo_gguf();
    let hub = FakeHub::new(&[("tiny-F32.gguf", demo.clone())]);
    let name = format!("{HUB_REPOSITORY}:f32");
    let planned = run(&place, &hub, &["plan", &name, "--memory", "16GB"]);
    assert_eq!(planned.status.code(), Some(0), "{}", text(&planned.stderr));
    assert!(!blob_folder(&place).exists(), "a plan brings nothing");
    let missing = run(&place, &hub, &["show", &name]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(text(&missing.stderr).contains("rooflight pull"), "{}", text(&missing.stderr));

    let pulled = run(&place, &hub, &["pull", &name]);
    assert_eq!(pulled.status.code(), Some(0), "{}", text(&pulled.stderr));
    let path = text(&pulled.stdout).trim().to_owned();
    assert_eq!(std::fs::read(&path).unwrap(), demo);
    assert!(path.ends_with(&format!("snapshots/{HUB_COMMIT}/tiny-F32.gguf")), "{path}");
    let told = text(&pulled.stderr);
    assert!(told.contains("tiny-F32.gguf") && told.contains("tok/s"), "{told}");

    let list = run(&place, &hub, &["list"]);
    assert!(text(&list.stdout).contains("org/Model-GGUF:F32"), "{}", text(&list.stdout));
    let by_path = run(&place, &hub, &["complete", &path, "-p", "the", "-n", "4", "--temp", "0"]);
    // whole, by the name of its file, and by that of its repository
    for short in [&*name, "tiny-f32", "model", "hf.co/org/Model-GGUF"] {
        let by_name =
            run(&place, &hub, &["complete", short, "-p", "the", "-n", "4", "--temp", "0"]);
        assert_eq!(by_name.status.code(), Some(0), "{short}: {}", text(&by_name.stderr));
        assert_eq!(by_name.stdout, by_path.stdout, "{short}");
    }
    let mut offline = command(&place, &hub, &["show", &name]);
    let offline =
        offline.env("HF_HUB_OFFLINE", "1").env("HF_ENDPOINT", "http://127.0.0.1:9").output();
    assert_eq!(offline.unwrap().status.code(), Some(0), "what is here needs no hub");
    let removed = run(&place, &hub, &["rm", "org/Model-GGUF:F32"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    assert!(!blob_folder(&place).exists());
    assert_eq!(run(&place, &hub, &["rm", "org/Model-GGUF:F32"]).status.code(), Some(3));
    assert_eq!(run(&place, &hub, &["pull", "org/none"]).status.code(), Some(3));

    // a command that runs models brings what is not here
    let ran = run(&place, &hub, &["run", &name, "hello", "-n", "2"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(Path::new(&path).exists());
}

/// Kills at random points: what has its name is whole, and each try goes on where the last one was killed.
#[test]
fn kills_leave_no_wrong_file() {
    let kills =
        std::env::var("ROOFLIGHT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_u64);
    let place = Place::new();
    let bytes = made_up(5, 20 << 20);
    let hub = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    *hub.state().pause.lock().unwrap() = Duration::from_micros(300);
    let mut killed = 0;
    let mut rounds = 0;
    while killed < kills {
        let mut child = command(&place, &hub, &["pull", HUB_REPOSITORY])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis((killed * 37 + 11) % 160));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        killed += u64::from(ended.is_none());
        rounds += 1;
        let path = blob_folder(&place).join("snapshots").join(HUB_COMMIT).join("m-Q4_K_M.gguf");
        if path.exists() {
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "after {killed} kills");
            std::fs::remove_dir_all(blob_folder(&place)).unwrap();
        }
        assert!(rounds < 20 * kills + 100, "it never runs long enough to be killed");
    }
    let done = run(&place, &hub, &["pull", HUB_REPOSITORY]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(std::fs::read(text(&done.stdout).trim()).unwrap(), bytes);
    let blobs = std::fs::read_dir(blob_folder(&place).join("blobs")).unwrap();
    assert_eq!(blobs.count(), 1, "nothing else stays");
    eprintln!("{killed} kills in {rounds} tries: no wrong file");
}

/// Hugging Face's own library finds what was brought here.
#[test]
fn other_tools_read_the_same_cache() {
    let python = std::env::var("ROOFLIGHT_CLIENTS_PYTHON").unwrap_or_else(|_| "python3".into());
    let import = ["-c", "import huggingface_hub"];
    let has = Command::new(&python).args(import).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {python} has no package huggingface_hub");
        return;
    }
    let place = Place::new();
    let hub = FakeHub::new(&[("m-Q4_K_M.gguf", made_up(6, 100_000))]);
    assert_eq!(run(&place, &hub, &["pull", HUB_REPOSITORY]).status.code(), Some(0));
    let script = format!("{}/tests/clients/hub_cache.py", env!("CARGO_MANIFEST_DIR"));
    let cache = place.path(".cache/huggingface/hub");
    let output = Command::new(&python)
        .args([script.as_ref(), cache.as_os_str()])
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    eprint!("{}", text(&output.stdout));
}
