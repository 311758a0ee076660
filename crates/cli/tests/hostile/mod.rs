//! Requests that try to end a server: each is refused or answered soon, `/health` is answered meanwhile, and afterwards the
//! server has the threads and the memory it had before. The server may have 1 GiB of memory.
//!
//! Times and large bodies are for `cargo xtask load --hostile`, which runs nothing beside.

mod requests;
mod watch;

use std::time::{Duration, Instant};

use serde_json::json;

pub(crate) use self::requests::{Hostile, small};
use self::watch::Watch;
use crate::common::Place;
use crate::load::times_are_held;
use crate::serving::{Answer, Serving};

/// Memory that the server may take, in bytes.
const MEMORY: u64 = 1 << 30;
/// Bytes of memory that may stay after a request.
const MEMORY_KEPT: u64 = 64 << 20;
/// Time after which memory and threads are as before.
const SETTLING: Duration = Duration::from_secs(12);

/// Whether this run sends the requests of full size.
fn is_full() -> bool {
    times_are_held() || testing::full("hostile requests of full size")
}

/// Returns `full` if this run sends requests of full size, else `short`.
fn size(full: usize, short: usize) -> usize {
    if is_full() { full } else { short }
}

/// A server and what it had before the first request of a test.
struct Victim {
    serving: Serving,
    memory: u64,
    threads: usize,
}

impl Victim {
    fn start(place: &Place, args: &[&str]) -> Victim {
        let serving = Serving::within(place, &[args, &["-t", "1"]].concat(), MEMORY);
        // what a server makes once is made
        let body = json!({ "prompt": "a tale", "max_tokens": 4, "input": "x", "query": "a", "documents": ["b"] });
        for path in ["/v1/completions", "/v1/rerank"] {
            serving.post(path, &body);
        }
        let form = json!({
            "messages": [{ "role": "user", "content": "x" }], "max_tokens": 4, "json_schema": { "type": "integer" },
        });
        serving.post("/v1/chat/completions", &form);
        let (memory, threads) = (serving.own_memory(), serving.threads().len());
        Victim { serving, memory, threads }
    }

    /// Sends a request `copies` times at once, and checks times and that the server goes on.
    fn answers(&self, request: &Hostile, copies: usize) -> Vec<Answer> {
        let send = || {
            let start = Instant::now();
            let mut connection = self.serving.try_connect()?;
            connection.send("POST", request.path, "", &request.body);
            let answer = connection.answer()?;
            Ok((answer, start.elapsed()))
        };
        let (answers, watch) = Watch::during(&self.serving, || {
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..copies).map(|_| scope.spawn(send)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect::<std::io::Result<Vec<_>>>()
            })
        });
        let answers = answers.unwrap_or_else(|error| panic!("{}: {error}", request.name));
        let slowest = answers.iter().map(|(_, took)| *took).max().unwrap_or_default();
        let (name, p99) = (&request.name, watch.health_p99());
        eprintln!(
            "hostile: {name}, {} bytes x {copies}: {:?}, {:.2} s, /health p99 {p99:.1} ms, at most {} MiB",
            request.body.len(),
            answers.iter().map(|(answer, _)| answer.status).collect::<Vec<_>>(),
            slowest.as_secs_f64(),
            watch.peak >> 20,
        );
        // a test machine may be busy with other tests
        let (most, most_health) = if times_are_held() { (2.0, 50.0) } else { (20.0, 2_000.0) };
        assert!(slowest.as_secs_f64() <= most * copies as f64, "{name}: {slowest:?}");
        assert!(p99 <= most_health, "{name}: /health p99 {p99} ms");
        answers.into_iter().map(|(answer, _)| answer).collect()
    }

    /// Sends a request that must be refused, with one line in JSON.
    fn refuses(&self, request: &Hostile) {
        for answer in self.answers(request, 1) {
            assert!((400..500).contains(&answer.status), "{}: {answer:?}", request.name);
            assert!(answer.body.len() < 1_000, "{}: {answer:?}", request.name);
            assert!(answer.json()["error"].is_object() || answer.json()["error"].is_string());
        }
    }

    /// Sends a request that must be refused, or answered where it can be.
    fn refuses_or_answers(&self, request: &Hostile, copies: usize) {
        for answer in self.answers(request, copies) {
            let is_fine = answer.status == 200 || (400..500).contains(&answer.status);
            assert!(is_fine, "{}: {} {:.300}", request.name, answer.head, answer.body);
        }
    }

    /// Checks that nothing is left of what was asked, and that the server still replies.
    fn settles(self) {
        let start = Instant::now();
        loop {
            let (memory, threads) = (self.serving.own_memory(), self.serving.threads());
            let compiles = threads.iter().filter(|(name, _)| name == "compile").count();
            let is_back = memory <= self.memory + MEMORY_KEPT;
            // idle threads of the runtime end after 10 s
            let are_gone = !is_full() || threads.len() <= self.threads + 2;
            if compiles == 0 && is_back && are_gone {
                break;
            }
            assert!(
                start.elapsed() < SETTLING,
                "{compiles} compilations, {} -> {memory} bytes, {} -> {} threads",
                self.memory,
                self.threads,
                threads.len()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        let answer = self.serving.get("/health");
        assert_eq!(answer.status, 200, "{answer:?}");
        self.serving.ended();
    }
}

#[test]
fn chains_of_references_end_no_server() {
    let victim = Victim::start(&Place::new(), &[]);
    victim.refuses(&requests::ref_chain());
    victim.settles();
}

#[test]
fn deep_forms_end_no_server() {
    let victim = Victim::start(&Place::new(), &[]);
    requests::deep_forms().iter().for_each(|form| victim.refuses_or_answers(form, 1));
    victim.settles();
}

#[test]
fn deep_schemas_end_no_server_by_any_field() {
    let victim = Victim::start(&Place::new(), &[]);
    requests::deep_tools().iter().for_each(|tools| victim.refuses_or_answers(tools, 1));
    victim.settles();
}

#[test]
fn multiples_leave_no_compilation() {
    let victim = Victim::start(&Place::new(), &[]);
    requests::multiple_of().iter().for_each(|form| victim.refuses(form));
    victim.settles();
}

/// With the client there, and with a client that leaves at once.
#[test]
fn tools_that_compile_slowly_leave_no_compilation() {
    let victim = Victim::start(&Place::new(), &[]);
    let request = requests::tools_compile(size(64, 12));
    for _ in 0..4 {
        let mut connection = victim.serving.connect();
        connection.send("POST", request.path, "", &request.body);
        std::thread::sleep(Duration::from_millis(100));
    }
    victim.refuses_or_answers(&request, 1);
    victim.settles();
}

#[test]
fn forms_of_braces_grow_with_their_schema() {
    let place = Place::new();
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}\
                    {% if tools %}{{ tools | tojson }}<|tool_call>{% endif %}";
    let write = |writer: &mut gguf::Writer| {
        writer.set("tokenizer.chat_template", template);
    };
    place.write("braces.gguf", conformance::demo_gguf_with(write));
    let victim = Victim::start(&place, &["braces.gguf"]);
    for (properties, depth) in [(20, 3), (60, 3), (40, 6)] {
        victim.refuses_or_answers(&requests::tool_braces(properties, depth), 1);
    }
    victim.settles();
}

#[test]
fn long_queries_are_refused_before_documents_are_encoded() {
    let place = Place::new();
    let ranks = |known: &conformance::golden::TextModel| known.name.contains("rank");
    let known = conformance::golden::texts().into_iter().find(ranks).unwrap();
    place.write("rank.gguf", &known.file);
    let victim = Victim::start(&place, &["rank.gguf"]);
    victim.refuses(&requests::rerank_query(size(7 << 20, 1 << 20)));
    victim.settles();
}

#[test]
fn many_tool_results_hold_nobody_up() {
    let victim = Victim::start(&Place::new(), &[]);
    victim.refuses_or_answers(&requests::tool_results(size(80_000, 20_000)), 2);
    victim.settles();
}

#[test]
fn long_texts_are_tokenized_within_the_memory() {
    let victim = Victim::start(&Place::new(), &[]);
    victim.refuses_or_answers(&requests::tokenize_pieces(size(7 << 20, 1 << 20)), 2);
    victim.settles();
}

#[test]
fn fields_without_meaning_take_no_memory() {
    let victim = Victim::start(&Place::new(), &[]);
    victim.refuses_or_answers(&requests::json_small_objects(size(8_000_000, 2 << 20)), 5);
    victim.settles();
}

#[test]
fn many_biases_slow_nobody_down() {
    let victim = Victim::start(&Place::new(), &[]);
    let body = json!({ "prompt": "a tale", "n_predict": 300, "ignore_eos": true });
    let speed = || {
        let answer = victim.serving.post("/completion", &body);
        answer.json()["timings"]["predicted_per_second"].as_f64().unwrap()
    };
    let alone = speed();
    let mut connection = victim.serving.connect();
    let request = requests::logit_bias(size(7 << 20, 1 << 20));
    connection.send("POST", request.path, "", &request.body);
    let (status, _) = connection.head().unwrap();
    assert!(status == 200 || (400..500).contains(&status), "{status}");
    let beside = speed();
    eprintln!("hostile: biases: {status}; another reply {alone:.0} -> {beside:.0} tokens/s");
    // two replies share the time; a map made anew for each token left a fourteenth
    assert!(!times_are_held() || beside > alone / 4.0, "{alone} -> {beside}");
    drop(connection);
    victim.settles();
}
