//! X1 where nothing is computed: a panic in a handler, in loading, in bringing or on the way to disk ends one request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use program::{
    CacheOptions, KeptNow, KeptPart, KeptPlace, KeptSession, KeptSessions, Model, Outputs, Program,
    Readings, Result, Sequence, SessionId, Step, StepOut, StepStats,
};
use rooflight_server::{ModelAbout, ModelUse, OfferedModel, Offers, PullState, ServedModel};
use serde_json::{Value, json};

use crate::client::{CONTEXT, Served, demo};

const CHAT: &str = "/v1/chat/completions";

/// The function that panics when it is called next, and how many have.
#[derive(Default)]
struct Fault {
    next: Mutex<Option<&'static str>>,
    panics: AtomicUsize,
    /// What was written beside the session that is saved.
    note: Mutex<Option<Vec<u8>>>,
}

impl Fault {
    fn set(&self, function: Option<&'static str>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = function;
    }

    fn count(&self) -> usize {
        self.panics.load(Ordering::SeqCst)
    }

    fn passed(&self, function: &'static str) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if *next == Some(function) {
            *next = None;
            drop(next);
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("{function} is broken");
        }
    }
}

/// A model of which any function may panic.
struct Breakable(Arc<dyn Model>, Arc<Fault>);

/// The functions of [`Breakable`] that a server calls of a model that is loaded.
const FUNCTIONS: &[&str] = &["open", "step", "len", "commit", "truncate", "kept"];

impl Model for Breakable {
    fn program(&self) -> &Arc<Program> {
        self.0.program()
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        self.1.passed("open");
        self.0.open(options)
    }

    fn close(&self, id: SessionId) {
        self.0.close(id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        self.1.passed("step");
        self.0.step(step)
    }

    fn step_while(&self, step: &Step<'_>, go_on: &(dyn Fn() -> bool + Sync)) -> Result<StepOut> {
        self.1.passed("step");
        self.0.step_while(step, go_on)
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        self.1.passed("len");
        self.0.len(id)
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.1.passed("commit");
        self.0.commit(id, len)
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.1.passed("truncate");
        self.0.truncate(id, len)
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        self.0.fork(id, len)
    }

    fn readings(&self, id: SessionId) -> Result<Readings> {
        self.0.readings(id)
    }

    fn kept(&self, place: KeptPlace) -> Option<Box<dyn KeptSessions + '_>> {
        self.1.passed("kept");
        let shelf = || Box::new(Shelf(&*self.0, &self.1)) as Box<dyn KeptSessions + '_>;
        (place == KeptPlace::Saved).then(shelf)
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        self.0.cache_bytes(id)
    }

    fn stats(&self) -> StepStats {
        self.0.stats()
    }
}

/// What is saved there: one session of few tokens.
struct Shelf<'a>(&'a dyn Model, &'a Fault);

const NAME: &str = "there";
const TOKENS: [u32; 3] = [1, 2, 3];

impl KeptSessions for Shelf<'_> {
    fn names(&self) -> Vec<String> {
        self.1.passed("names");
        self.1.note.lock().unwrap().iter().map(|_| NAME.to_owned()).collect()
    }

    fn about(&self, _: &str, _: &CacheOptions) -> Result<KeptSession> {
        self.1.passed("about");
        let note = self.1.note.lock().unwrap().clone().unwrap_or_default();
        Ok(KeptSession { tokens: TOKENS.to_vec(), note, ..KeptSession::default() })
    }

    fn part(&self, _: &str, _: &CacheOptions, _: usize) -> Result<KeptPart> {
        self.1.passed("part");
        Ok(KeptPart::default())
    }

    fn keep(&self, _: &str, _: SessionId, note: &[u8]) -> Result<KeptNow> {
        self.1.passed("keep");
        *self.1.note.lock().unwrap() = Some(note.to_vec());
        Ok(KeptNow { positions: TOKENS.len(), ..KeptNow::default() })
    }

    fn restore(
        &self,
        _: &str,
        session: SessionId,
        tokens: &[u32],
        _: &dyn Fn() -> bool,
    ) -> Result<KeptPart> {
        self.1.passed("restore");
        let outputs = Outputs::NONE;
        let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
        self.0.step(&Step { sequences: &[sequence] })?.single()?;
        self.0.commit(session, tokens.len())?;
        Ok(KeptPart { positions: tokens.len(), ..KeptPart::default() })
    }

    fn discard(&self, _: &str) -> Result<()> {
        self.1.passed("discard");
        Ok(())
    }
}

fn chat(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 6 })
}

/// What the server is asked while something is broken: all that has to do with a model.
fn ask_all(served: &Served, round: &str) -> Vec<(&'static str, u16)> {
    // no slot has anything: what is asked next opens a session
    let erase = |path: &'static str| (path, served.post(path, &json!({})).status);
    let mut answers = vec![
        erase("/slots/0?action=erase"),
        erase("/slots/1?action=erase"),
        (CHAT, served.post(CHAT, &chat(round)).status),
        ("/api/ps", served.get("/api/ps").status),
        ("/props", served.get("/props").status),
        ("/slots", served.get("/slots").status),
        ("/metrics", served.get("/metrics").status),
        ("/v1/models", served.get("/v1/models").status),
        ("/tokenize", served.post("/tokenize", &json!({ "content": "a" })).status),
    ];
    for action in ["save", "restore"] {
        let path = format!("/slots/0?action={action}");
        answers.push((action, served.post(&path, &json!({ "filename": NAME })).status));
    }
    answers
}

/// A panic on any thread fails one request, and the next reply is the usual one.
#[test]
fn x1_a_panic_on_any_thread_ends_one_request() {
    let fault = Arc::<Fault>::default();
    let broken = Arc::clone(&fault);
    let served = Served::of_model(|model| Arc::new(Breakable(model, broken)));
    let usual = served.post(CHAT, &chat("what it always is")).json()["choices"].clone();
    assert!(usual.is_array(), "{usual}");
    let all = ask_all(&served, "nothing is broken");
    eprintln!("nothing broken: {all:?}");
    assert!(all.iter().all(|(_, status)| *status == 200), "{all:?}");
    for function in [FUNCTIONS, &["names", "about", "keep", "restore"]].concat() {
        let before = fault.count();
        fault.set(Some(function));
        let answers = ask_all(&served, function);
        fault.set(None);
        eprintln!("{function}: {answers:?}");
        assert_eq!(fault.count(), before + 1, "{function} is called once");
        let failed = answers.iter().filter(|(_, status)| ![200, 400].contains(status)).count();
        assert_eq!(failed, 1, "{function}: one request fails: {answers:?}");
        let is_told = |(_, status): &(&str, u16)| [200, 400, 500].contains(status);
        assert!(answers.iter().all(is_told), "{function}: {answers:?}");
        let again = served.post(CHAT, &chat("what it always is"));
        assert_eq!((again.status, &again.json()["choices"]), (200, &usual), "{function}");
        assert_eq!(served.get("/health").status, 200, "{function}");
    }
}

fn about(name: &str) -> ModelAbout {
    ModelAbout {
        name: name.into(),
        aliases: Vec::new(),
        created: 7,
        family: "qwen2".into(),
        bytes: 9,
        context: CONTEXT,
        does: ModelUse::Writes,
        details: Arc::default(),
    }
}

fn offer(name: &'static str, fault: &Arc<Fault>) -> OfferedModel {
    let fault = Arc::clone(fault);
    let load = move || -> std::result::Result<ServedModel, rooflight_server::LoadFailure> {
        fault.passed(name);
        Ok(demo(name, |model| model))
    };
    OfferedModel { about: about(name), load: Box::new(load) }
}

/// A model whose loading or bringing panics is not there; others go on, and it can be asked for again.
#[test]
fn x1_a_panic_in_loading_or_bringing_ends_one_request() {
    let fault = Arc::<Fault>::default();
    let (of_pull, brought) = (Arc::clone(&fault), Arc::clone(&fault));
    let pull = move |_: &str, _: u64, _: &mut dyn FnMut(PullState<'_>) -> bool| {
        of_pull.passed("pull");
        Ok(offer("org/one:Q8_0", &brought))
    };
    let models = vec![offer("one", &fault), offer("two", &fault)];
    let served = Served::offering(Offers { models, keep: None, pull: Some(Box::new(pull)) });
    let ask = |model: &str| {
        let mut body = chat("hello");
        body["model"] = json!(model);
        served.post(CHAT, &body)
    };
    let usual = ask("one").json()["choices"].clone();
    for round in 1..=3 {
        fault.set(Some("two"));
        let broken = ask("two");
        assert_eq!((broken.status, fault.count()), (500, 2 * round - 1), "{broken:?}");
        assert_eq!(ask("one").json()["choices"], usual);
        fault.set(Some("pull"));
        let broken = served.post("/api/pull", &json!({ "model": "org/one:Q8_0", "stream": false }));
        assert_eq!((broken.status, fault.count()), (500, 2 * round), "{broken:?}");
    }
    assert_eq!(ask("two").json()["choices"], usual);
    let pulled = served.post("/api/pull", &json!({ "model": "org/one:Q8_0", "stream": false }));
    assert_eq!(pulled.status, 200, "{pulled:?}");
    assert_eq!(ask("org/one:Q8_0").status, 200);
    assert_eq!(ask("one").json()["choices"], usual);
}
