//! `/api/pull`: models that are brought here, told as they come, and served then.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{Watch, Watched};
use program::{Step, StepOut};
use rooflight_server::{
    ModelAbout, ModelUse, OfferedModel, Offers, PullFailure, PullState, PullStep,
};
use serde_json::{Value, json};

use crate::client::{CONTEXT, Served, demo, post};

const PULL: &str = "/api/pull";
const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn offer(name: &str) -> OfferedModel {
    let name = name.to_owned();
    let about = ModelAbout {
        name: name.clone(),
        aliases: Vec::new(),
        created: 7,
        family: "qwen2".into(),
        bytes: 9,
        context: CONTEXT,
        does: ModelUse::Writes,
        details: Arc::default(),
    };
    OfferedModel { about, load: Box::new(move || Ok(demo(&name, |model| model))) }
}

/// What becomes of the endless one.
#[derive(Default)]
struct Endless {
    comes: AtomicBool,
    stopped: AtomicBool,
}

/// What brings models.
fn bring(
    name: &str,
    tell: &mut dyn FnMut(PullState<'_>) -> bool,
    endless: &Endless,
) -> Result<OfferedModel, PullFailure> {
    let mut told = |stage, done| tell(PullState { stage, digest: DIGEST, done, total: 1000 });
    match name {
        "org/one:Q8_0" => {
            for done in [0, 500, 1000] {
                told(PullStep::Comes, done);
            }
            told(PullStep::Checked, 1000);
            Ok(offer(name))
        }
        "org/endless" | "org/far" => {
            endless.comes.store(true, Ordering::SeqCst);
            let far = name == "org/far";
            while told(if far { PullStep::Looked } else { PullStep::Comes }, 3) {
                std::thread::sleep(Duration::from_millis(5));
            }
            endless.stopped.store(true, Ordering::SeqCst);
            Err(PullFailure::Failed("stopped".into()))
        }
        "org/broken" => {
            told(PullStep::Comes, 3);
            Err(PullFailure::Failed("the digest is another one".into()))
        }
        "org/none" => Err(PullFailure::NotFound("org/none is not on the hub".into())),
        "org/offline" => Err(PullFailure::Refused("HF_HUB_OFFLINE forbids to ask".into())),
        other => Err(PullFailure::Name(format!("`{other}` names no model"))),
    }
}

fn served() -> (Served, Arc<Endless>) {
    let endless = Arc::<Endless>::default();
    let seen = Arc::clone(&endless);
    let pull = move |name: &str, _: u64, tell: &mut dyn FnMut(PullState<'_>) -> bool| {
        bring(name, tell, &seen)
    };
    let offers = Offers { models: vec![offer("demo")], keep: None, pull: Some(Box::new(pull)) };
    (Served::offering(offers), endless)
}

#[test]
fn a_model_comes_and_is_served() {
    let (served, _) = served();
    let name = "org/one:Q8_0";
    let ask =
        json!({ "model": name, "prompt": "hi", "stream": false, "options": { "num_predict": 3 } });
    assert_eq!(served.post("/api/generate", &ask).status, 404);
    let pulled = served.post(PULL, &json!({ "model": name, "insecure": false }));
    assert_eq!((pulled.status, pulled.header("content-type")), (200, Some("application/x-ndjson")));
    let lines: Vec<Value> =
        pulled.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({ "status": "pulling manifest" }));
    let counts = |done: u64| {
        json!({
            "status": "pulling 0123456789ab", "digest": format!("sha256:{DIGEST}"), "total": 1000, "completed": done,
        })
    };
    assert!(lines.contains(&counts(0)) && lines.contains(&counts(1000)), "{lines:?}");
    assert_eq!(lines[lines.len() - 2], json!({ "status": "verifying sha256 digest" }));
    assert_eq!(lines[lines.len() - 1], json!({ "status": "success" }));
    // from now on it is there by that name, beside what was
    assert_eq!(served.post("/api/generate", &ask).json()["model"], name);
    assert_eq!(served.get("/v1/models").json()["data"][1]["id"], name);
    assert_eq!(served.get("/api/tags").json()["models"].as_array().unwrap().len(), 2);
    // again, at once; it is not there twice
    let again = served.post(PULL, &json!({ "name": format!("{name}:latest"), "stream": false }));
    assert_eq!((again.status, again.json()), (200, json!({ "status": "success" })));
    assert_eq!(served.get("/api/tags").json()["models"].as_array().unwrap().len(), 2);
}

/// A name whose file is another one each time it is pulled, of so many bytes, and what was loaded of it.
#[derive(Default)]
struct Changing {
    bytes: AtomicU64,
    loaded: Mutex<Vec<u64>>,
    held: AtomicU64,
    is_slow: AtomicBool,
}

/// Each step takes a while, so that a long reply is still being made when others ask.
struct Slow;

impl Watch for Slow {
    fn stepped(&self, _: &Step<'_>, _: &[usize], _: &mut StepOut) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn changing() -> (Served, Arc<Changing>) {
    let changing = Arc::<Changing>::default();
    let seen = Arc::clone(&changing);
    let pull = move |name: &str, held: u64, _: &mut dyn FnMut(PullState<'_>) -> bool| {
        seen.held.store(held, Ordering::SeqCst);
        let OfferedModel { about, .. } = offer(name);
        let name = name.to_owned();
        let (bytes, seen) = (seen.bytes.load(Ordering::SeqCst), Arc::clone(&seen));
        let load = move || {
            seen.loaded.lock().unwrap().push(bytes);
            let slow = seen.is_slow.load(Ordering::SeqCst);
            Ok(demo(&name, |model| if slow { Arc::new(Watched::new(model, Slow)) } else { model }))
        };
        Ok(OfferedModel { about: ModelAbout { bytes, ..about }, load: Box::new(load) })
    };
    let offers = Offers { models: vec![offer("demo")], keep: None, pull: Some(Box::new(pull)) };
    (Served::offering(offers), changing)
}

/// What was pulled anew is what answers from then on, and however a name is spelled, there is one model of it.
#[test]
fn a_newer_file_takes_the_place_of_the_one_before() {
    let (served, changing) = changing();
    let sizes = || -> Vec<Value> {
        let tags = served.get("/api/tags").json();
        tags["models"].as_array().unwrap().iter().map(|model| model["size"].clone()).collect()
    };
    let ask = |name: &str| {
        let body = json!({ "model": name, "prompt": "hi", "stream": false, "options": { "num_predict": 1 } });
        assert_eq!(served.post("/api/generate", &body).status, 200);
    };
    let pull = |name: &str| served.post(PULL, &json!({ "model": name, "stream": false })).status;
    for (bytes, name) in [(1, "org/name"), (1, "Org/Name"), (2, "org/NAME"), (2, "org/name:latest")]
    {
        changing.bytes.store(bytes, Ordering::SeqCst);
        assert_eq!(pull(name), 200);
        // the one of the beginning, which can go, and then the pulled one too
        let held = changing.held.load(Ordering::SeqCst);
        assert_eq!(held, if changing.loaded.lock().unwrap().is_empty() { 9 } else { 18 });
        assert_eq!(sizes(), [json!(9), json!(bytes)]);
        ask("org/name");
        ask(name);
    }
    assert_eq!(*changing.loaded.lock().unwrap(), [1, 2], "the same file is not loaded again");
}

/// Who uses the one before keeps it to the end.
#[test]
fn who_is_answered_keeps_what_answers() {
    let (served, changing) = changing();
    let name = "org/name";
    let pull = || served.post(PULL, &json!({ "model": name, "stream": false })).status;
    changing.bytes.store(1, Ordering::SeqCst);
    changing.is_slow.store(true, Ordering::SeqCst);
    assert_eq!(pull(), 200);
    let long = json!({ "model": name, "prompt": "hi", "options": { "num_predict": -1 } });
    let mut answer = served.open(&post("/api/generate", &long));
    answer.read_exact(&mut [0; 400]).unwrap();
    changing.bytes.store(2, Ordering::SeqCst);
    assert_eq!(pull(), 200);
    let short =
        json!({ "model": name, "prompt": "hi", "stream": false, "options": { "num_predict": 1 } });
    assert_eq!(served.post("/api/generate", &short).status, 200);
    assert_eq!(*changing.loaded.lock().unwrap(), [1]);
    drop(answer);
    let start = Instant::now();
    while *changing.loaded.lock().unwrap() != [1, 2] {
        assert!(start.elapsed() < Duration::from_secs(20), "the older one answers still");
        assert_eq!(served.post("/api/generate", &short).status, 200);
    }
}

#[test]
fn what_cannot_be_had_is_told() {
    let (served, _) = served();
    for stream in [true, false] {
        for (body, status, problem) in [
            (json!({ "model": "org/none" }), 404, "not on the hub"),
            (json!({ "model": "org/offline" }), 403, "HF_HUB_OFFLINE"),
            (json!({ "model": "/etc/passwd" }), 400, "names no model"),
            (json!({}), 400, "expected the name"),
            (json!({ "model": "org/one:Q8_0", "insecure": true }), 400, "insecure: only false"),
        ] {
            let mut body = body;
            body["stream"] = json!(stream);
            let refused = served.post(PULL, &body);
            assert_eq!(refused.status, status, "{body}: {refused:?}");
            let error = refused.json();
            assert!(error["error"].as_str().unwrap().contains(problem), "{body}: {error}");
        }
    }
    // what goes wrong later is the last line
    let broken = served.post(PULL, &json!({ "model": "org/broken" }));
    let last: Value = serde_json::from_str(broken.body.lines().last().unwrap()).unwrap();
    assert_eq!((broken.status, last), (200, json!({ "error": "the digest is another one" })));
    let broken = served.post(PULL, &json!({ "model": "org/broken", "stream": false }));
    assert_eq!(
        (broken.status, broken.json()),
        (500, json!({ "error": "the digest is another one" }))
    );
    let none = Served::new().post(PULL, &json!({ "model": "org/one:Q8_0" }));
    assert_eq!(none.status, 403, "{none:?}");
}

#[test]
fn who_leaves_ends_what_comes() {
    // one of which nothing is told yet, too
    for (name, stream) in [("org/endless", true), ("org/endless", false), ("org/far", true)] {
        let (served, endless) = served();
        let body = json!({ "model": name, "stream": stream });
        let mut connection = served.open(&post(PULL, &body));
        if stream && name == "org/endless" {
            connection.read_exact(&mut [0; 200]).unwrap();
        } else {
            let start = Instant::now();
            while !endless.comes.load(Ordering::SeqCst) {
                assert!(start.elapsed() < Duration::from_secs(20), "it never comes");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(!endless.stopped.load(Ordering::SeqCst), "it comes");
        drop(connection);
        let start = Instant::now();
        while !endless.stopped.load(Ordering::SeqCst) {
            assert!(start.elapsed() < Duration::from_secs(20), "it comes for nobody");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(served.get("/api/tags").json()["models"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn only_some_come_at_once() {
    let (served, _) = served();
    let body = json!({ "model": "org/endless" });
    let running: Vec<_> = (0..4)
        .map(|_| {
            let mut connection = served.open(&post(PULL, &body));
            connection.read_exact(&mut [0; 200]).unwrap();
            connection
        })
        .collect();
    let full = served.post(PULL, &body);
    assert_eq!((full.status, full.header("retry-after")), (503, Some("1")), "{full:?}");
    drop(running);
}
