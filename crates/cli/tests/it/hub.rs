//! Models by name: brought from a hub on this machine, run by that name, and never half there, however often it is killed.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use testing::{FakeHub, HUB_COMMIT, HUB_REPOSITORY, made_up, sha256};

use crate::common::{Place, text};

fn command(place: &Place, hub: &FakeHub, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
    command.args(args).env_clear().env("HOME", place.path(".")).env("HF_ENDPOINT", &hub.address);
    command.stdin(Stdio::null()).current_dir(place.path("."));
    command
}

/// `ps` asks where `serve` listens by the same variable, and says how to name another server.
#[test]
fn ps_says_which_server_it_asked() {
    let place = Place::new();
    for (args, variable, code, parts) in [
        (
            &["ps", "--port", "1"][..],
            None,
            1,
            &["no server runs at http://127.0.0.1:1", "--port N"][..],
        ),
        (
            &["ps"],
            Some(("ROOFLIGHT_PORT", "1")),
            1,
            &["no server runs at http://127.0.0.1:1", "unix:FILE"],
        ),
        (
            &["ps", "--url", "127.0.0.1:1"],
            Some(("ROOFLIGHT_PORT", "2")),
            1,
            &["http://127.0.0.1:1"],
        ),
        (&["ps", "--port", "1"], Some(("OLLAMA_HOST", "x")), 1, &["OLLAMA_HOST is not read"]),
        (&["ps"], Some(("ROOFLIGHT_PORT", "x")), 2, &["ROOFLIGHT_PORT: expected a port"]),
        (&["ps", "--port", "99999"], None, 2, &["expected a port"]),
    ] {
        let mut command = place.command(args);
        if let Some((name, value)) = variable {
            command.env(name, value);
        }
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?} {variable:?}: {told}");
        assert!(parts.iter().all(|part| told.contains(part)), "{args:?} {variable:?}: {told}");
    }
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
    let none = text(&run(&place, &hub, &["list"]).stderr);
    assert!(none.contains("no models in the Hugging Face cache: "), "{none}");
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

/// A server; gone when dropped.
struct Serving {
    child: Child,
    port: String,
}

impl Serving {
    fn start(mut command: Command) -> Serving {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.next().unwrap().rsplit(':').next().unwrap().to_owned();
        assert!(lines.any(|line| line.starts_with("serving ")), "it never serves");
        // it must not stop for what it says later
        std::thread::spawn(move || lines.for_each(drop));
        Serving { child, port }
    }

    fn open(&self, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        );
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream
    }

    /// Its answer to a request.
    fn post(&self, path: &str, body: &str) -> String {
        let mut answer = String::new();
        self.open(path, body).read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server brings what it is asked for in the same way, tells how far it is, and serves it; who may not ask is told so.
#[test]
fn a_server_brings_the_models_that_it_is_asked_for() {
    let place = Place::new();
    let demo = conformance::demo_gguf();
    let hub = FakeHub::new(&[("tiny-F32.gguf", demo.clone())]);
    let serve = ["serve", "demo.gguf", "--port", "0"];
    let name = format!("{HUB_REPOSITORY}:f32");
    let pull = format!("{{\"model\": \"{name}\"}}");
    let mut offline = command(&place, &hub, &serve);
    offline.env("HF_HUB_OFFLINE", "1");
    let offline = Serving::start(offline).post("/api/pull", &pull);
    assert!(offline.starts_with("HTTP/1.1 403") && offline.contains("HF_HUB_OFFLINE"), "{offline}");
    let open = [&serve[..], &["--host", "0.0.0.0", "--insecure-no-auth"]].concat();
    let open = Serving::start(command(&place, &hub, &open)).post("/api/pull", &pull);
    assert!(open.starts_with("HTTP/1.1 403"), "whoever comes by has no key: {open}");
    assert!(!blob_folder(&place).exists());

    let serving = Serving::start(command(&place, &hub, &serve));
    let pulled = serving.post("/api/pull", &pull);
    assert!(pulled.starts_with("HTTP/1.1 200"), "{pulled}");
    let size = demo.len();
    let counts = format!("\"total\":{size},\"completed\":{size}");
    for told in [&*format!("sha256:{}", sha256(&demo)), &counts, "{\"status\":\"success\"}"] {
        assert!(pulled.contains(told), "{told}: {pulled}");
    }
    let ask = format!(
        "{{\"model\": \"{name}\", \"prompt\": \"the\", \"stream\": false, \"options\": {{\"num_predict\": 3}}}}"
    );
    let reply = serving.post("/api/generate", &ask);
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains(&name), "{reply}");
    let listed = run(&place, &hub, &["list"]);
    assert!(text(&listed.stdout).contains("org/Model-GGUF:F32"), "{}", text(&listed.stdout));
    let none = serving.post("/api/pull", "{\"model\": \"org/none\"}");
    assert!(none.starts_with("HTTP/1.1 404"), "{none}");
    let path = place.path("demo.gguf");
    let file = serving.post("/api/pull", &format!("{{\"model\": \"{}\"}}", path.display()));
    assert!(file.starts_with("HTTP/1.1 400"), "a path is no name: {file}");
}

/// Who leaves ends it; what came is kept.
#[test]
fn a_server_brings_nothing_for_who_left() {
    let place = Place::new();
    let bytes = made_up(9, 3 << 20);
    let hub = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    *hub.state().pause.lock().unwrap() = Duration::from_millis(100);
    let serving = Serving::start(command(&place, &hub, &["serve", "demo.gguf", "--port", "0"]));
    let mut asked = serving.open("/api/pull", &format!("{{\"model\": \"{HUB_REPOSITORY}\"}}"));
    let mut told = [0; 250];
    asked.read_exact(&mut told).unwrap();
    assert!(text(&told).contains("pulling"), "{}", text(&told));
    drop(asked);
    // all of it would take half of that
    std::thread::sleep(Duration::from_secs(7));
    assert!(!blob_folder(&place).join("snapshots").exists(), "it came for nobody");
    *hub.state().pause.lock().unwrap() = Duration::ZERO;
    let done = run(&place, &hub, &["pull", HUB_REPOSITORY]);
    assert_eq!(std::fs::read(text(&done.stdout).trim()).unwrap(), bytes);
}
