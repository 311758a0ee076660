//! What `rooflight serve` is as a process: what it logs, how it ends, who reaches it, and what clients that leave cost it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{self, Place};
use crate::serving::{self, Connection, Serving};

const CHAT: &str = "/v1/chat/completions";
const TEXTS: &str = "/v1/completions";

/// Whether nothing else runs on this machine, so that times can be promised.
fn times_are_held() -> bool {
    std::env::var("ROOFLIGHT_REQUIRE_TIMES").is_ok_and(|held| held != "0")
}

/// A reply that goes on for long: the executor that everything is compared with takes its time.
const SLOW: [&str; 5] = ["demo.gguf", "--executor", "interpreter", "-c", "12000"];

fn endless(text: &str) -> Value {
    json!({ "prompt": text, "max_tokens": 11000, "ignore_eos": true, "temperature": 0, "stream": true })
}

/// Whether programs that this one starts ignore SIGHUP, as under nohup.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & 1 != 0)
}

/// A reply that has begun.
fn begun(serving: &Serving, body: &Value) -> Connection {
    let mut connection = serving.connect();
    connection.send("POST", TEXTS, "", &body.to_string());
    assert_eq!(connection.head().unwrap().0, 200);
    assert!(!connection.piece().unwrap().is_empty());
    connection
}

/// What is left of a stream: its objects, and whether it said that it is over.
fn rest(connection: &mut Connection) -> (Vec<Value>, bool) {
    let mut text = Vec::new();
    while let Ok(piece) = connection.piece() {
        if piece.is_empty() {
            break;
        }
        text.extend(piece);
    }
    let answer = serving::Answer { status: 200, head: String::new(), body: common::text(&text) };
    answer.events()
}

fn until(what: &str, mut is: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}

/// How much of one core all threads of a server take together in this time.
fn share_of_a_core(serving: &Serving, time: Duration) -> f64 {
    let spent = || -> u64 {
        let of = |(_, id): (String, u64)| {
            serving.process(&format!("task/{id}/schedstat")).split(' ').next()?.parse::<u64>().ok()
        };
        serving.threads().into_iter().filter_map(of).sum()
    };
    let (start, before) = (Instant::now(), spent());
    std::thread::sleep(time);
    spent().saturating_sub(before) as f64 / start.elapsed().as_nanos() as f64
}

/// The log's objects.
fn log(place: &Place, file: &str) -> Vec<Value> {
    let text = common::text(&place.read(file));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// R1: neither what is asked, nor what is answered, nor who asks, however much is logged; and what of it does not matter is.
#[test]
fn r1_what_is_said_is_not_logged() {
    let place = Place::new();
    place.write("keys.txt", "canary-key-1\n");
    #[cfg(unix)]
    std::fs::set_permissions(
        place.path("keys.txt"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let args = [
        "demo.gguf",
        "--api-key-file",
        "keys.txt",
        "--log-jsonl",
        "--log-file",
        "log.txt",
        "--log-level",
        "trace",
    ];
    // the variable asks for more than there is
    let serving = Serving::with(&place, &args, &[("RUST_LOG", "trace,rooflight_said=trace")]);
    let key = "Authorization: Bearer canary-key-1\r\nX-Request-Id: canary-id\r\n";
    let ask = |path: &str, headers: &str, body: &Value| {
        let mut connection = serving.connect();
        connection.send("POST", path, headers, &body.to_string());
        connection.answer().unwrap()
    };
    let tool = json!({ "type": "function", "function": { "name": "canary_tool", "parameters": { "type": "object" } } });
    let said = json!([{ "role": "user", "content": "canary-said" }]);
    let good = json!({ "prompt": "canary-prompt", "max_tokens": 8, "stop": "canary-stop" });
    let answered = ask(TEXTS, key, &good);
    assert_eq!(answered.status, 200);
    let with_tool = json!({ "messages": said, "max_tokens": 4, "tools": [tool], "stream": true });
    assert_eq!(ask(CHAT, key, &with_tool).status, 200);
    assert_eq!(
        ask(TEXTS, key, &json!({ "prompt": "canary-prompt", "canary-field": 1, "n": 0 })).status,
        400
    );
    assert_eq!(ask(TEXTS, "Authorization: Bearer canary-key-2\r\n", &good).status, 401);
    assert_eq!(ask("/canary/path?canary=query", key, &good).status, 404);
    assert_eq!(ask(TEXTS, key, &json!({ "model": "canary-model", "prompt": "x" })).status, 404);
    let printed = serving.ended();
    assert!(!printed.contains("canary"), "{printed}");
    let is_told = printed.contains("other users can read the keys: chmod 600");
    assert!(is_told || cfg!(not(unix)), "{printed}");
    let text = common::text(&place.read("log.txt"));
    // the log contains the path of a request, but not its query
    let path = "/canary/path";
    let without_path = text.replace(path, "");
    assert!(text.contains(path) && !without_path.contains("canary"), "{without_path}");
    let lines = log(&place, "log.txt");
    let requests: Vec<&Value> = lines.iter().filter(|line| line["message"] == "request").collect();
    let statuses: Vec<u64> = requests.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 400, 401, 404, 404]);
    let first = requests[0];
    let (method, asked) = (&first["method"], &first["path"]);
    assert_eq!((method, asked), (&json!("POST"), &json!("/v1/completions")));
    assert_eq!(
        (&first["model"], &first["key"], &first["ended"]),
        (&json!("demo"), &json!(1), &json!("ok"))
    );
    let usage = &answered.json()["usage"];
    assert_eq!(
        (&first["tokens"], &first["prompt_tokens"]),
        (&usage["completion_tokens"], &usage["prompt_tokens"])
    );
    assert!(first["total_ms"].as_f64().unwrap() >= first["first_ms"].as_f64().unwrap(), "{first}");
    assert_eq!(
        (&requests[3]["error"], &requests[4]["path"], &requests[4]["route"]),
        (&json!("authentication_error"), &json!(path), &Value::Null)
    );
    // its client can name it
    let id = answered
        .head
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "))
        .unwrap()
        .to_owned();
    assert_eq!(first["id"], id);
}

/// Whoever asks for it has it, and is told so.
#[test]
fn what_is_said_is_logged_where_that_is_asked_for() {
    let place = Place::new();
    let args = ["demo.gguf", "--log-prompts", "--log-jsonl", "--log-file", "log.txt"];
    let serving = Serving::start(&place, &args);
    let answer =
        serving.post(TEXTS, &json!({ "prompt": "the end of\u{1b}]0;x\u{7} it", "max_tokens": 6 }));
    let text = answer.json()["choices"][0]["text"].clone();
    serving.ended();
    let lines = log(&place, "log.txt");
    let of = |message: &str| lines.iter().find(|line| line["message"] == message).unwrap();
    assert!(of("prompt")["prompt"].as_str().unwrap().contains("the end of"));
    assert_eq!((&of("reply")["text"], &of("reply")["id"]), (&text, &of("prompt")["id"]));
    // R2: nothing reaches a terminal as it was said
    assert!(!place.read("log.txt").contains(&0x1b));
    let plain = Serving::start(&place, &["demo.gguf", "--log-prompts"]);
    plain.post(TEXTS, &json!({ "prompt": "\u{1b}]0;title\u{7}", "max_tokens": 2 }));
    let printed = plain.ended();
    assert!(printed.contains("title") && !printed.contains('\u{1b}'), "{printed:?}");
}

/// F13: whoever is asked to end takes nobody any more, lets replies end, and cuts those that do not, who are told so.
#[test]
fn f13_a_server_that_is_asked_to_end_lets_replies_end() {
    let place = Place::new();
    for (signal, drain, cut) in [
        (Signal::TERM, "60s", false),
        (Signal::TERM, "200ms", true),
        (Signal::HUP, "0", true),
        (Signal::INT, "0", true),
    ] {
        if signal == Signal::HUP && ignores_hangups() {
            testing::skipped("a server that is asked to end by SIGHUP: it is ignored here");
            continue;
        }
        let args = [&SLOW[..], &["-np", "1", "--drain", drain]].concat();
        let mut serving = Serving::start(&place, &args);
        let mut body = endless("the end");
        if !cut {
            body["max_tokens"] = json!(2000);
        }
        let mut running = begun(&serving, &body);
        // it waits for a place
        let mut waiting = serving.connect();
        waiting.send("POST", TEXTS, "", &json!({ "prompt": "x", "max_tokens": 2 }).to_string());
        until("it waits", || serving.metric("num_requests_waiting") > 0.0);
        serving.signal(signal);
        let asked = Instant::now();
        let (events, done) = rest(&mut running);
        assert!(done, "{signal:?} {drain}: the stream broke off");
        let last = events.last().unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], "length");
        let warned = last["warnings"][0].as_str().is_some_and(|text| text.contains("ended"));
        assert_eq!(warned, cut, "{last}");
        match waiting.answer() {
            Ok(answer) if cut => assert_eq!(answer.status, 503, "{answer:?}"),
            answer => assert_eq!(answer.unwrap().status, 200),
        }
        assert!(serving.child.wait().unwrap().success(), "{signal:?} {drain}");
        if cut {
            let most = Duration::from_secs(if times_are_held() { 3 } else { 20 });
            assert!(asked.elapsed() < most, "{:?}", asked.elapsed());
        }
        assert!(std::net::TcpStream::connect(format!("127.0.0.1:{}", serving.port)).is_err());
        let printed = serving.printed();
        assert!(printed.contains("shutting down: finishing open requests"), "{printed}");
        assert_eq!(printed.contains("cut: server shut down"), cut, "{printed}");
    }
}

#[test]
fn f13_asked_twice_it_ends_at_once() {
    let place = Place::new();
    let mut serving = Serving::start(&place, &[&SLOW[..], &["--drain", "60s"]].concat());
    let _running = begun(&serving, &endless("the end"));
    serving.signal(Signal::TERM);
    until("it takes nobody", || {
        std::net::TcpStream::connect(format!("127.0.0.1:{}", serving.port)).is_err()
    });
    serving.signal(Signal::TERM);
    assert_eq!(serving.child.wait().unwrap().code(), Some(130));
}

/// `nohup` is obeyed: who ignores that its terminal is gone stays.
#[cfg(target_os = "linux")]
#[test]
fn f13_a_hangup_that_is_ignored_stays_so() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_rooflight");
    let line = format!("trap '' HUP; exec {program} serve demo.gguf --port 0 2>err.txt");
    let mut child = std::process::Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.path("."))
        .spawn()
        .unwrap();
    let told = || std::fs::read_to_string(place.path("err.txt")).unwrap_or_default();
    until("it serves", || told().contains("serving "));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

/// R1: nothing of the process is left behind where it dies, and no other process of its user looks into it.
#[cfg(target_os = "linux")]
#[test]
fn r1_who_dies_leaves_no_image() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    let place = Place::new();
    // as much as may be, for what is started from here
    let mut limit = getrlimit(Resource::Core);
    limit.current = limit.maximum;
    setrlimit(Resource::Core, limit).unwrap();
    let mut command = std::process::Command::new("sleep");
    let mut other = command.arg("60").current_dir(place.path(".")).spawn().unwrap();
    let core_limit = |id: u32| {
        let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    let other_limit = core_limit(other.id());
    rustix::process::kill_process(rustix::process::Pid::from_child(&other), Signal::ABORT).unwrap();
    let makes_images = other.wait().unwrap().core_dumped();

    // as another user if this one is root: root owns the /proc files of a process that cannot be dumped
    let folder = place.path(".");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    let program = place.path("rooflight");
    std::fs::copy(env!("CARGO_BIN_EXE_rooflight"), &program).unwrap();
    let user = if rustix::process::getuid().is_root() {
        65534
    } else {
        rustix::process::getuid().as_raw()
    };
    let mut command = std::process::Command::new(&program);
    command.args(["serve", "demo.gguf", "--port", "0"]).current_dir(&folder).env_clear().uid(user);
    let err = std::fs::File::create(place.path("err.txt")).unwrap();
    let mut child = command.stderr(err).spawn().unwrap();
    let told = || std::fs::read_to_string(place.path("err.txt")).unwrap_or_default();
    until("it serves", || told().contains("serving "));
    assert_eq!(core_limit(child.id()), "0", "a child of this process may have {other_limit}");
    let owner = |id: u32| std::fs::metadata(format!("/proc/{id}/environ")).unwrap().uid();
    let mut plain = std::process::Command::new("sleep").arg("60").uid(user).spawn().unwrap();
    until("it runs its own program", || owner(plain.id()) == user);
    assert_eq!(owner(child.id()), 0, "the process can be looked into");
    plain.kill().unwrap();
    plain.wait().unwrap();

    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::ABORT).unwrap();
    let status = child.wait().unwrap();
    assert!(status.signal().is_some(), "{status:?}");
    assert!(!status.core_dumped(), "{status:?}, where images are made: {makes_images}");
}

/// H7: a socket that only its owner reaches, gone when the server is.
#[cfg(unix)]
#[test]
fn h7_a_socket_is_its_owners_alone() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let socket = place.path("socket");
    // whoever may enter the folder may not use the socket all the same
    std::fs::set_permissions(place.path("."), PermissionsExt::from_mode(0o755)).unwrap();
    let program = env!("CARGO_BIN_EXE_rooflight");
    let mut command = std::process::Command::new(program);
    command.args(["serve", "demo.gguf", "--socket", "socket"]).current_dir(place.path("."));
    command.env_clear().env("HOME", place.path("."));
    let err = std::fs::File::create(place.path("err.txt")).unwrap();
    let mut child = command.stderr(err).spawn().unwrap();
    let told = || std::fs::read_to_string(place.path("err.txt")).unwrap_or_default();
    until("it serves", || told().contains("serving "));
    assert!(told().starts_with("listening on unix:socket\n"), "{}", told());
    let ask = |head: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream
            .write_all(
                format!("GET /v1/models HTTP/1.1\r\n{head}Connection: close\r\n\r\n").as_bytes(),
            )
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("Host: localhost\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"demo\""), "{answer}");
    assert!(ask("Host: localhost\r\nOrigin: https://evil.com\r\n").starts_with("HTTP/1.1 403"));
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    if rustix::process::getuid().is_root() {
        let connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let python = |as_user: Option<u32>| {
            let mut command = std::process::Command::new("python3");
            command.args(["-c", connect]).arg(&socket).stderr(std::process::Stdio::piped());
            as_user.map(|user| command.uid(user).gid(user));
            command.output().map(|output| (output.status.success(), common::text(&output.stderr)))
        };
        match (python(None), python(Some(65_534))) {
            (Ok((true, _)), Ok((false, refused))) => {
                assert!(refused.contains("PermissionError"), "{refused}");
                testing::covered("a socket that another user asks for");
            }
            other => testing::skipped(&format!("a socket that another user asks for: {other:?}")),
        }
    } else {
        testing::skipped("a socket that another user asks for: only root may be another");
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(socket.symlink_metadata().is_err(), "it is removed");
}

/// C1: who leaves in the queue, in its prompt, in its reply or among drafts makes room at once, and nobody else's text changes.
#[test]
fn c1_who_leaves_makes_room_wherever_it_was() {
    let place = Place::new();
    let serving = Serving::start(&place, &[&SLOW[..], &["-np", "2", "--chunk", "32"]].concat());
    let running = || serving.metric("num_requests_running") as usize;
    let idle = || running() == 0 && serving.metric("num_requests_waiting") == 0.0;
    let story = json!({ "prompt": "a tale", "max_tokens": 500, "ignore_eos": true, "temperature": 0, "stream": true });
    let text = |connection: &mut Connection| {
        let (events, done) = rest(connection);
        assert!(done);
        events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect::<String>()
    };
    let alone = text(&mut begun(&serving, &story));
    assert!(alone.len() > 100, "{alone}");
    let long = "the sea and what it did to those who went there ".repeat(60);
    let mut times = Vec::new();
    for stage in ["queue", "prompt", "reply", "drafts"] {
        until("it is idle", idle);
        let mut beside = begun(&serving, &story);
        let another = (stage == "queue").then(|| begun(&serving, &endless("others")));
        let body = match stage {
            "prompt" => endless(&long),
            "drafts" => {
                endless("again and again and again and again and again and again and again")
            }
            _ => endless("the end"),
        };
        let mut leaves = serving.connect();
        leaves.send("POST", TEXTS, "", &body.to_string());
        match stage {
            "queue" => drop(until("it waits", || serving.metric("num_requests_waiting") > 0.0)),
            "prompt" => drop(until("it is read", || running() == 2)),
            _ => {
                assert_eq!(leaves.head().unwrap().0, 200);
                for _ in 0..if stage == "drafts" { 20 } else { 2 } {
                    assert!(!leaves.piece().unwrap().is_empty());
                }
            }
        }
        drop(leaves);
        let free = match stage {
            "queue" => until("it waits no more", || serving.metric("num_requests_waiting") == 0.0),
            _ => until("its place is free", || running() < 2),
        };
        times.push((stage, free));
        drop(another);
        assert_eq!(text(&mut beside), alone, "{stage}");
    }
    eprintln!("a place is free again after {times:?}");
    let most = Duration::from_millis(if times_are_held() { 250 } else { 5_000 });
    assert!(times.iter().all(|(_, time)| *time <= most), "{times:?}");
    // nothing is computed for nobody
    until("it is idle", idle);
    std::thread::sleep(Duration::from_millis(300));
    let share = share_of_a_core(&serving, Duration::from_millis(500));
    assert!(share < 0.05, "{share} of a core for nobody");
}

/// C3: coming and leaving leaves no file, thread, place or memory behind. `ROOFLIGHT_CYCLES=10000` makes more of it.
#[test]
fn c3_coming_and_leaving_leaves_nothing_in_the_process() {
    let cycles: usize =
        std::env::var("ROOFLIGHT_CYCLES").ok().map_or(1_500, |n| n.parse().unwrap());
    let place = Place::new();
    let serving = Serving::start(&place, &["-t", "1"]);
    let body = json!({ "messages": [{ "role": "user", "content": "Tell me a story." }], "max_tokens": 60, "temperature": 0, "stream": true });
    let alone = serving.post(CHAT, &body).events().0.len();
    // what takes long: a prompt of some thousand tokens, and a form
    let said = "A long tale of the sea, and of those who went there. ".repeat(120);
    let long = json!({ "messages": [{ "role": "user", "content": said }], "max_tokens": 200, "ignore_eos": true, "stream": true });
    let items = json!({ "type": "array", "items": { "enum": (0..300).collect::<Vec<u32>>() }, "minItems": 40 });
    let schema = json!({ "type": "object", "properties": { "a": items, "b": items }, "required": ["a", "b"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    let form = json!({ "messages": [{ "role": "user", "content": "Numbers." }], "max_tokens": 400, "response_format": format, "stream": true });
    let leave = |i: usize| {
        let text = body.to_string();
        let mut connection = serving.connect();
        match i % 7 {
            5 => {
                connection.send("POST", CHAT, "", &long.to_string());
                // some are still read, some compute
                std::thread::sleep(Duration::from_millis((i / 7 % 8) as u64));
            }
            6 => {
                connection.send("POST", CHAT, "", &form.to_string());
                if i.is_multiple_of(2) {
                    let _ = connection.head();
                }
            }
            // in the head, in the body
            0 => connection.write(&format!("POST {CHAT} HTTP/1.1\r\nHost: loc")),
            1 => connection.write(&format!(
                "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: 10000\r\n\r\n{text}"
            )),
            i => {
                connection.send("POST", CHAT, "", &text);
                if i > 2 {
                    let _ = connection.head();
                    let _ = (i > 3).then(|| connection.piece());
                }
            }
        }
    };
    let settled = || {
        until("it is idle", || {
            serving.metric("num_requests_running") + serving.metric("num_requests_waiting") == 0.0
        });
        // threads that wait for work go after a while
        until("its threads are gone", || {
            serving.threads().iter().filter(|(name, _)| name == "rooflight-http").count() <= 2
        });
    };
    (0..500).for_each(leave);
    settled();
    let before = (serving.own_memory(), serving.files(), serving.threads().len());
    (0..cycles).for_each(leave);
    settled();
    until("its connections are closed", || serving.files() <= before.1);
    let after = (serving.own_memory(), serving.files(), serving.threads().len());
    eprintln!("{cycles} cycles: memory, files, threads {before:?} before, {after:?} after");
    assert!(after.2 <= before.2, "{after:?} {before:?}");
    assert!(after.0.saturating_sub(before.0) < 4 << 20, "{after:?} {before:?}");
    // no thread goes on computing
    let share = share_of_a_core(&serving, Duration::from_millis(500));
    assert!(share < 0.05, "{share} of a core after all clients left");
    // what they asked for can be had
    let whole = serving.post(CHAT, &form);
    assert_eq!(whole.status, 200, "{whole:?}");
    let again = serving.post(CHAT, &body);
    assert_eq!((again.status, again.events().0.len()), (200, alone));
    serving.ended();
}

/// L2: many who say slowly what they want keep nobody out, and are gone in time.
#[test]
fn l2_slow_clients_keep_nobody_out() {
    use std::io::Write;
    let (clients, seconds) = if times_are_held() { (500, 40) } else { (400, 2) };
    let place = Place::new();
    let serving = Serving::start(&place, &["demo.gguf", "-t", "1"]);
    let files = serving.files();
    let address = format!("127.0.0.1:{}", serving.port);
    // half of them are in their heads, half in their bodies
    let slow: Vec<_> = (0..clients)
        .map(|i| {
            let mut stream = std::net::TcpStream::connect(&address).unwrap();
            let begins = if i % 2 == 0 {
                format!("POST {CHAT} HTTP/1.1\r\nHost: loc")
            } else {
                format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{")
            };
            stream.write_all(begins.as_bytes()).unwrap();
            stream
        })
        .collect();
    let start = Instant::now();
    let mut times = Vec::new();
    let mut slow: Vec<std::net::TcpStream> = slow;
    while start.elapsed() < Duration::from_secs(seconds) {
        // a byte a second of each
        slow.retain_mut(|stream| stream.write_all(b"a").is_ok());
        for _ in 0..20 {
            let asked = Instant::now();
            assert_eq!(serving.get("/health").status, 200);
            times.push(asked.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    eprintln!("{clients} slow clients: /health p50 {:?}, p99 {p99:?}", times[times.len() / 2]);
    let most = Duration::from_millis(if times_are_held() { 100 } else { 4_000 });
    assert!(p99 < most, "{p99:?}");
    if times_are_held() {
        until("all are gone", || serving.files() <= files);
    }
}

/// A server that may open 64 files answers although 128 clients hold connections and send nothing: it takes fewer connections than
/// it may open files.
#[test]
fn few_files_are_enough() {
    use std::io::Write;
    let place = Place::new();
    let program = place.path("few-files");
    let script =
        format!("#!/bin/sh\nulimit -n 64\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_rooflight"));
    place.write("few-files", script);
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&program, runs).unwrap();
    let serving = Serving::by(&program, &place, &["demo.gguf", "-t", "1"], &[]);
    let address = format!("127.0.0.1:{}", serving.port);
    let silent = |_| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: loc").unwrap();
        stream
    };
    let silent: Vec<_> = (0..128).map(silent).collect();
    for _ in 0..10 {
        let start = Instant::now();
        assert_eq!(serving.get("/health").status, 200);
        // a head may take 5 s: a client that waited for one of these to end waits for longer than this
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
    drop(silent);
}
