//! Several models: each by its name, there when it is asked for, gone when nobody asks or another needs its room.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{Watch, Watched};
use program::{Step, StepOut};
use rooflight_server::{LoadFailure, ModelAbout, ModelUse, OfferedModel};
use serde_json::{Value, json};

use crate::client::{CONTEXT, Served, demo, post};

const CHAT: &str = "/v1/chat/completions";

/// What was loaded, and is now.
#[derive(Default)]
struct Shelf {
    loads: Mutex<Vec<String>>,
    there: AtomicUsize,
    /// How many memory has room for; 0: as many as there are.
    room: AtomicUsize,
    /// One of them goes, or went, which takes so many milliseconds.
    going: AtomicBool,
    pause: AtomicU64,
}

/// Counts a model for as long as anybody has it.
struct Held(Arc<Shelf>);

impl Watch for Held {
    fn stepped(&self, _: &Step<'_>, _: &[usize], _: &mut StepOut) {}
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.going.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(self.0.pause.load(Ordering::SeqCst)));
        self.0.there.fetch_sub(1, Ordering::SeqCst);
    }
}

fn offer(name: &'static str, shelf: &Arc<Shelf>) -> OfferedModel {
    let shelf = Arc::clone(shelf);
    let about = ModelAbout {
        name: name.into(),
        aliases: Vec::new(),
        created: 7,
        family: "qwen2".into(),
        bytes: 9,
        context: CONTEXT,
        does: ModelUse::Writes,
        details: Arc::default(),
    };
    let load = move || {
        let room = shelf.room.load(Ordering::SeqCst);
        if name == "broken" {
            return Err(LoadFailure::Failed("it is no model".into()));
        }
        if name == "huge" {
            let problem = "needs 90 GB of memory, 1 GB is available".into();
            return Err(LoadFailure::NoMemory { problem, missing: 89 });
        }
        // each takes nine
        let there = shelf.there.load(Ordering::SeqCst);
        if room > 0 && there >= room {
            let problem = "needs 9 GB of memory, 1 GB is available".into();
            let missing = 9 * (there - room + 1) as u64;
            return Err(LoadFailure::NoMemory { problem, missing });
        }
        shelf.there.fetch_add(1, Ordering::SeqCst);
        shelf.loads.lock().unwrap().push(name.to_owned());
        let held = Held(Arc::clone(&shelf));
        Ok(demo(name, |model| Arc::new(Watched::new(model, held))))
    };
    OfferedModel { about, load: Box::new(load) }
}

fn body(model: &str) -> Value {
    let said = [json!({ "role": "user", "content": "hello there" })];
    json!({ "model": model, "messages": said, "max_tokens": 6 })
}

fn until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn models_are_loaded_by_their_names_when_they_are_asked_for() {
    let shelf = Arc::<Shelf>::default();
    let served = Served::several(
        vec![offer("one", &shelf), offer("two", &shelf), offer("broken", &shelf)],
        None,
    );
    let loads = || shelf.loads.lock().unwrap().clone();
    assert_eq!(loads(), ["one"], "the first one is there when the server is");
    let list = served.get("/v1/models").json();
    let told = |of: &str| -> Vec<String> {
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model.pointer(of).unwrap().to_string())
            .collect()
    };
    assert_eq!(told("/id"), ["\"one\"", "\"two\"", "\"broken\""]);
    assert_eq!(told("/status/value"), ["\"loaded\"", "\"unloaded\"", "\"unloaded\""]);
    assert_eq!(served.get("/api/tags").json()["models"].as_array().unwrap().len(), 3);
    let loaded = || {
        let ps = served.get("/api/ps").json();
        let names = ps["models"].as_array().unwrap().iter();
        names.map(|model| model["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(loaded(), ["one"]);
    assert_eq!(served.get("/props?model=two").status, 503, "who only looks loads nothing");
    assert_eq!(served.get("/v1/models/two").json()["status"]["value"], "unloaded");
    assert_eq!(loads(), ["one"]);

    // side by side, each with its own name in its reply
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let ask = |name| {
            let served = &served;
            scope.spawn(move || served.post(CHAT, &body(name)).json())
        };
        let asked: Vec<_> = ["two", "one", "two", "two", ""].map(ask).into();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let names: Vec<&str> = answers.iter().map(|answer| answer["model"].as_str().unwrap()).collect();
    assert_eq!(names, ["two", "one", "two", "two", "one"], "the first where none is named");
    assert!(
        answers.iter().all(|answer| {
            answer["choices"][0]["message"] == answers[0]["choices"][0]["message"]
        })
    );
    assert_eq!(loads(), ["one", "two"], "each once");
    assert_eq!(loaded(), ["one", "two"]);
    let slots = served.get("/slots?model=two").json();
    assert_eq!(slots.as_array().unwrap().len(), 2);
    let metrics = served.get("/metrics").body;
    for (name, n) in [("one", 2), ("two", 3), ("broken", 0)] {
        let line = format!("rooflight:request_success_total{{model_name=\"{name}\"}} {n}");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }

    // in the words of all APIs
    let options = json!({ "num_predict": 3 });
    let text =
        json!({ "model": "two:latest", "prompt": "hi", "stream": false, "options": options });
    assert_eq!(served.post("/api/generate", &text).json()["model"], "two");
    let message = json!({ "model": "two", "max_tokens": 3, "messages": body("")["messages"] });
    assert_eq!(served.post("/v1/messages", &message).json()["model"], "two");
    let text = json!({ "model": "two", "prompt": "hi", "n_predict": 3 });
    assert_eq!(served.post("/completion", &text).json()["model"], "two");
    // llama.cpp's clients name the file
    for name in ["two.gguf", "models/Two.GGUF", "C:\\models\\two.gguf"] {
        assert_eq!(served.post(CHAT, &body(name)).json()["model"], "two", "{name}");
    }
    for path in [CHAT, "/v1/messages", "/completion", "/api/generate", "/tokenize"] {
        let mut other = match path {
            CHAT | "/v1/messages" => body("three"),
            "/tokenize" => json!({ "model": "three", "content": "x" }),
            _ => json!({ "model": "three", "prompt": "x" }),
        };
        let answer = served.post(path, &other);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
        assert!(answer.body.contains("`two`"), "it says what there is: {answer:?}");
        other["model"] = json!("broken");
        let answer = served.post(path, &other);
        assert_eq!(answer.status, 500, "{path}: {answer:?}");
        assert!(answer.body.contains("it is no model"), "{answer:?}");
    }
    assert_eq!(served.get("/health").status, 200);
}

/// Every name of a model selects it, and every list of available models has all names; replies have the first.
#[test]
fn a_model_may_have_several_names() {
    let shelf = Arc::<Shelf>::default();
    let mut two = offer("two", &shelf);
    two.about.aliases = vec!["claude-haiku-4-5".into(), "gpt-4o".into()];
    let served = Served::several(vec![offer("one", &shelf), two], None);
    for (i, name) in ["two", "claude-haiku-4-5", "GPT-4o", "gpt-4o:latest"].iter().enumerate() {
        let answer = served.post(CHAT, &body(name));
        let load = answer.json()["timings"]["load_ms"].clone();
        assert_eq!(load.as_f64().is_some_and(|ms| ms > 0.0), i == 0, "{name}: {load}");
        assert_eq!((answer.status, &answer.json()["model"]), (200, &json!("two")), "{answer:?}");
    }
    assert_eq!(*shelf.loads.lock().unwrap(), ["one", "two"], "it is one model");
    let all = json!(["one", "two", "claude-haiku-4-5", "gpt-4o"]);
    let listed = |path: &str, list: &str, name: &str| -> Value {
        let list = served.get(path).json()[list].clone();
        list.as_array().unwrap().iter().map(|model| model[name].clone()).collect()
    };
    assert_eq!(listed("/v1/models", "data", "id"), all);
    assert_eq!(listed("/api/tags", "models", "model"), all);
    assert_eq!(listed("/api/ps", "models", "model"), json!(["one", "two"]));
    let one = served.get("/v1/models/gpt-4o").json();
    assert_eq!((&one["id"], &one["status"]["value"]), (&json!("gpt-4o"), &json!("loaded")));
    let other = served.post(CHAT, &body("claude-opus"));
    assert!(other.status == 404 && other.body.contains("`claude-haiku-4-5`"), "{other:?}");
}

#[test]
fn a_model_goes_when_nobody_asks_for_it() {
    let shelf = Arc::<Shelf>::default();
    let keep = Duration::from_secs(3);
    let served = Served::several(vec![offer("one", &shelf), offer("two", &shelf)], Some(keep));
    let there = || shelf.there.load(Ordering::SeqCst);
    let first = served.post(CHAT, &body("two")).json();
    assert_eq!(there(), 2);
    // one that is used stays, however long that takes
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !over.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(20) {
                assert_eq!(served.post(CHAT, &body("one")).status, 200);
            }
        });
        until("two is gone", || there() == 1);
        let ps = served.get("/api/ps").json();
        assert_eq!(ps["models"][0]["name"], "one", "{ps}");
        assert_ne!(ps["models"][0]["expires_at"], "9999-12-31T23:59:59Z");
        over.store(true, Ordering::SeqCst);
    });
    until("one is gone", || there() == 0);
    assert_eq!(served.get("/api/ps").json()["models"], json!([]));
    assert_eq!(served.get("/health").status, 200);
    // and comes back
    let again = served.post(CHAT, &body("two")).json();
    assert_eq!(again["choices"][0]["message"], first["choices"][0]["message"]);
    assert_eq!(*shelf.loads.lock().unwrap(), ["one", "two", "two"]);

    // as Ollama's clients ask for it
    let stay = json!({ "model": "one", "keep_alive": -1 });
    assert_eq!(served.post("/api/generate", &stay).json()["done_reason"], "load");
    until("two is gone", || there() == 1);
    std::thread::sleep(keep + Duration::from_secs(1));
    assert_eq!(there(), 1, "one stays");
    let go = json!({ "model": "one", "keep_alive": 0 });
    assert_eq!(served.post("/api/generate", &go).json()["done_reason"], "unload");
    until("one is gone", || there() == 0);
    let mut once = json!({ "model": "two", "prompt": "x", "stream": false, "keep_alive": "0s" });
    once["options"] = json!({ "num_predict": 2 });
    assert_eq!(served.post("/api/generate", &once).status, 200);
    until("two is gone after its reply", || there() == 0);
    once["keep_alive"] = json!("a while");
    assert_eq!(served.post("/api/generate", &once).status, 400);
}

#[test]
fn a_model_goes_when_another_needs_its_memory() {
    let shelf = Arc::<Shelf>::default();
    shelf.room.store(2, Ordering::SeqCst);
    let all = ["one", "two", "three"].map(|name| offer(name, &shelf));
    let served = Served::several(all.into(), None);
    let there = || shelf.there.load(Ordering::SeqCst);
    let ask = |name| served.post(CHAT, &body(name)).status;
    assert_eq!((ask("two"), ask("one")), (200, 200));
    assert_eq!((ask("three"), there()), (200, 2), "two was asked for longest ago");
    let loaded: Vec<Value> = served.get("/api/ps").json()["models"].as_array().unwrap().clone();
    assert_eq!([&loaded[0]["name"], &loaded[1]["name"]], ["one", "three"]);

    // what is in use stays, and who cannot be served is told so: nothing goes where that would not be enough
    shelf.room.store(1, Ordering::SeqCst);
    let mut long = body("one");
    (long["max_tokens"], long["ignore_eos"]) = (json!(900), json!(true));
    long["stream"] = json!(true);
    let mut running = served.open(&post(CHAT, &long));
    running.read_exact(&mut [0; 200]).unwrap();
    let full = served.post(CHAT, &body("two"));
    assert_eq!((full.status, full.header("retry-after")), (503, Some("1")), "{full:?}");
    assert!(full.body.contains("needs 9 GB"), "{full:?}");
    assert_eq!(there(), 2, "one is used, and without three there is no room yet");
    drop(running);
    until("there is room", || ask("two") == 200);
    assert_eq!(there(), 1);
}

#[test]
fn what_never_fits_drives_nobody_out() {
    let shelf = Arc::<Shelf>::default();
    let all = ["one", "two", "huge"].map(|name| offer(name, &shelf));
    let served = Served::several(all.into(), None);
    assert_eq!(served.post(CHAT, &body("two")).status, 200);
    for _ in 0..2 {
        let refused = served.post(CHAT, &body("huge"));
        assert_eq!((refused.status, refused.header("retry-after")), (500, None), "{refused:?}");
        assert_eq!(refused.header("x-should-retry"), Some("false"), "{refused:?}");
        assert!(refused.body.contains("needs 90 GB"), "{refused:?}");
    }
    assert_eq!(shelf.there.load(Ordering::SeqCst), 2, "both are there");
    assert_eq!(*shelf.loads.lock().unwrap(), ["one", "two"]);
}

/// One that goes has its memory to the end: who needs that waits, and is not refused.
#[test]
fn who_needs_the_memory_of_one_that_goes_waits_for_it() {
    let shelf = Arc::<Shelf>::default();
    shelf.room.store(1, Ordering::SeqCst);
    shelf.pause.store(1000, Ordering::SeqCst);
    let all = ["one", "two"].map(|name| offer(name, &shelf));
    let served = Served::several(all.into(), Some(Duration::from_millis(100)));
    until("one goes", || shelf.going.load(Ordering::SeqCst));
    let answer = served.post(CHAT, &body("two"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(*shelf.loads.lock().unwrap(), ["one", "two"]);
}

/// A request that is wrong has nothing loaded for it, and changes nothing of how long a model stays.
#[test]
fn what_is_refused_loads_nothing() {
    let shelf = Arc::<Shelf>::default();
    let served = Served::several(vec![offer("one", &shelf), offer("two", &shelf)], None);
    let said = json!([{ "role": "user", "content": "hello there" }]);
    for (path, mut body) in [
        (CHAT, json!({ "messages": said, "temperature": "hot" })),
        (CHAT, json!({ "messages": "hi" })),
        ("/v1/completions", json!({ "prompt": 3 })),
        ("/v1/responses", json!({ "input": "x", "temperature": "hot" })),
        ("/v1/responses", json!({ "input": [] })),
        ("/v1/messages", json!({ "messages": said })),
        ("/v1/messages/count_tokens", json!({ "messages": [] })),
        ("/v1/embeddings", json!({ "input": 3 })),
        ("/v1/embeddings", json!({ "input": vec!["x"; 2049] })),
        ("/v1/rerank", json!({ "query": "x", "documents": [] })),
        ("/completion", json!({ "prompt": "x", "n_probs": 99 })),
        ("/infill", json!({ "input_prefix": "x", "temperature": "hot" })),
        ("/tokenize", json!({ "content": 3 })),
        ("/detokenize", json!({ "tokens": [-1] })),
        ("/apply-template", json!({ "messages": [] })),
        ("/api/chat", json!({ "messages": said, "options": { "num_ctx": -1 } })),
        ("/api/chat", json!({ "messages": said, "stream": 3 })),
        ("/api/generate", json!({ "prompt": "x", "format": "yaml" })),
        ("/api/generate", json!({ "options": { "temperature": "hot" } })),
        ("/api/embed", json!({ "input": 3 })),
        ("/api/embeddings", json!({ "prompt": 3 })),
    ] {
        body["model"] = json!("two");
        let refused = served.post(path, &body);
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        assert_eq!(*shelf.loads.lock().unwrap(), ["one"], "{path}: {refused:?}");
    }
    for mut body in [
        json!({ "prompt": "x", "options": { "temperature": "hot" } }),
        json!({ "prompt": "hi ".repeat(CONTEXT) }),
        json!({ "options": { "top_p": 7 } }),
    ] {
        (body["model"], body["keep_alive"]) = (json!("one"), json!(0));
        assert_eq!(served.post("/api/generate", &body).status, 400, "{body}");
    }
    let ps = served.get("/api/ps").json();
    assert_eq!(ps["models"][0]["expires_at"], "9999-12-31T23:59:59Z", "it stays: {ps}");
}

/// F15: models come and go, and nothing of them stays.
#[test]
fn coming_and_going_leaves_nothing() {
    let shelf = Arc::<Shelf>::default();
    shelf.room.store(1, Ordering::SeqCst);
    let served = Served::several(vec![offer("one", &shelf), offer("two", &shelf)], None);
    for name in ["one", "two"].iter().cycle().take(40) {
        assert_eq!(served.post(CHAT, &body(name)).status, 200);
        assert_eq!(shelf.there.load(Ordering::SeqCst), 1);
    }
    assert_eq!(shelf.loads.lock().unwrap().len(), 40);
}
