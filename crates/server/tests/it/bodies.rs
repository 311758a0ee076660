//! What bodies of requests may take: memory, threads and shares of what there is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::{Watch, Watched};
use program::{Step, StepOut};
use rooflight_server::{Access, ServedModel, Server, ServerLimits};
use serde_json::{Value, json};

use crate::client::{Answer, Served, demo, head, post};

const CHAT: &str = "/v1/chat/completions";

/// A server with this much memory for bodies.
fn within(body_memory: u64, keys: &[&str]) -> Served {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let limits = ServerLimits { body_memory, ..ServerLimits::default() };
    let access = Access::new(&keys, Some(Vec::new()));
    let server = Server::start_within(limits, listener, access).unwrap();
    server.provide(demo("demo", |model| model)).unwrap();
    Served::of(server)
}

fn chat(content: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": content }], "max_tokens": 2 })
}

/// Bytes that bodies take now.
fn used(served: &Served) -> u64 {
    let text = served.get("/metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix("rooflight:request_memory_bytes "));
    line.unwrap().parse().unwrap()
}

/// Until bodies take nothing.
fn until_released(served: &Served) {
    let start = Instant::now();
    while used(served) > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} bytes are kept", used(served));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A request whose body lacks its last byte.
fn unfinished(length: usize, more: &str) -> Vec<u8> {
    let headers = format!("{more}Content-Type: application/json\r\nContent-Length: {length}\r\n");
    let mut request = head("POST", CHAT, &headers).into_bytes();
    request.resize(request.len() + length - 1, b' ');
    request
}

#[test]
fn l1_memory_for_bodies_is_bounded_and_returned() {
    let served = within(4 << 20, &[]);
    assert_eq!(used(&served), 0);
    // one body is too large for a quarter of it
    let large = served.post(CHAT, &chat(&"x".repeat(2 << 20)));
    assert_eq!(
        (large.status, &large.json()["error"]["type"]),
        (413, &json!("invalid_request_error"))
    );
    // and so is one that grows too large when it is parsed
    let mut small = chat("hi");
    small["messages"][0]["content"] = json!(vec![json!({ "a": 0 }); 20_000]);
    let parsed = served.post("/v1/messages", &small);
    assert_eq!((parsed.status, &parsed.json()["type"]), (413, &json!("error")), "{parsed:?}");
    // several are: each holds its bytes while they come
    let held: Vec<TcpStream> = (0..2).map(|_| served.open(&unfinished(1_000_000, ""))).collect();
    let start = Instant::now();
    while used(&served) < 2_000_000 {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", used(&served));
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = served.post(CHAT, &chat(&"x".repeat(200_000)));
    assert_eq!(
        (refused.status, &refused.json()["error"]["type"]),
        (503, &json!("unavailable_error"))
    );
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let refused = served.post("/api/chat", &chat(&"x".repeat(200_000)));
    assert_eq!((refused.status, refused.json()["error"].is_string()), (503, true));
    assert_eq!(served.get("/health").status, 200);
    drop(held);
    until_released(&served);
    assert_eq!(served.post(CHAT, &chat("hi")).status, 200);
    until_released(&served);
}

/// Whatever becomes of a request, what it took is returned.
#[test]
fn l1_nothing_is_kept_of_any_request() {
    let served = within(64 << 20, &[]);
    let long = "word ".repeat(40_000);
    let bodies = [
        (CHAT, chat("hi"), 200),
        (CHAT, chat(&long), 400),
        ("/v1/completions", json!({ "prompt": (0..5_000).collect::<Vec<u32>>() }), 400),
        (
            "/v1/responses",
            json!({ "input": "hi", "max_output_tokens": 2, "metadata": { "a": "b" } }),
            200,
        ),
        (
            "/v1/messages/count_tokens",
            json!({ "messages": [{ "role": "user", "content": long }] }),
            200,
        ),
        ("/tokenize", json!({ "content": long, "with_pieces": true }), 200),
        ("/detokenize", json!({ "tokens": vec![5; 50_000] }), 200),
        ("/apply-template", chat(&long), 200),
        ("/apply-template", json!({ "messages": [{ "role": "user", "content": long }] }), 200),
        (
            "/api/generate",
            json!({ "model": "demo", "prompt": "hi", "options": { "num_predict": 2 } }),
            200,
        ),
        ("/v1/embeddings", json!({ "input": long }), 400),
    ];
    for (path, body, status) in bodies {
        let answer = served.post(path, &body);
        assert_eq!(answer.status, status, "{path}: {answer:.300?}");
        until_released(&served);
    }
    // nor of those that leave
    let mut endless = chat("go on");
    (endless["max_tokens"], endless["ignore_eos"], endless["stream"]) =
        (json!(800), json!(true), json!(true));
    let mut stream = served.open(&post(CHAT, &endless));
    stream.read_exact(&mut [0; 200]).unwrap();
    assert!(used(&served) > 0, "its prompt is there");
    drop(stream);
    drop(served.open(&unfinished(1_000_000, "")));
    until_released(&served);
}

/// What the body was parsed to is gone while its reply is made.
#[test]
fn l1_a_parsed_body_is_gone_when_its_reply_begins() {
    let served = within(256 << 20, &[]);
    let mut body = chat("go on");
    (body["max_tokens"], body["ignore_eos"], body["stream"]) =
        (json!(800), json!(true), json!(true));
    // what is skipped, and what is read and not needed for the reply
    body["metadata"] = json!(vec![json!({ "a": 0 }); 50_000]);
    body["stop"] = json!(vec![""; 60]);
    body["logit_bias"] = json!(null);
    let mut stream = served.open(&post(CHAT, &body));
    stream.read_exact(&mut [0; 200]).unwrap();
    let during = used(&served);
    assert!((1..10_000).contains(&during), "{during} bytes while a reply is made");
    drop(stream);
    until_released(&served);
}

/// A client takes half of the memory at most: others are served beside it.
#[test]
fn l1_no_client_takes_all_memory() {
    let served = within(4 << 20, &["one", "two"]);
    let key = |key: &str| format!("Authorization: Bearer {key}\r\n");
    let held: Vec<TcpStream> =
        (0..2).map(|_| served.open(&unfinished(1_000_000, &key("one")))).collect();
    let ask = |name: &str| -> Answer {
        let body = chat(&"x".repeat(20_000)).to_string();
        let headers = key(name)
            + &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        served.send((head("POST", CHAT, &headers) + &body).as_bytes())
    };
    let start = Instant::now();
    while ask("one").status != 503 {
        assert!(start.elapsed() < Duration::from_secs(20), "it is never refused");
    }
    // it is read, and too long for the model
    assert_eq!(ask("two").status, 400);
    drop(held);
}

/// `/health`, and the worst of a hundred times.
fn worst_health(served: &Served, busy: &AtomicBool) -> (Duration, usize) {
    let mut times = Vec::new();
    while busy.load(Ordering::SeqCst) || times.len() < 20 {
        let start = Instant::now();
        assert_eq!(served.get("/health").status, 200);
        times.push(start.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    times.sort();
    (times[times.len() * 99 / 100], times.len())
}

/// Q3: `/health` does not wait for bodies that are parsed, converted or encoded.
#[test]
fn q3_health_waits_for_no_body() {
    let served = Arc::new(within(1 << 30, &[]));
    let small = r#"{"a":0},"#.repeat(1_000_000);
    let metadata = format!(
        r#"{{"messages": [{{"role": "user", "content": "hi"}}], "n": 99, "metadata": [{small}0]}}"#
    );
    let parts = r#"{"type":"text","text":"x"},"#.repeat(150_000);
    let parts = format!(r#"{{"messages": [{{"role": "user", "content": [{parts}{{}}]}}]}}"#);
    let text = "a word and ".repeat(700_000);
    let text = json!({ "content": text, "with_pieces": true }).to_string();
    let calls = json!({ "tokens": vec![3; 2_000_000] }).to_string();
    let all = [(CHAT, metadata), (CHAT, parts), ("/tokenize", text), ("/detokenize", calls)];
    let busy = Arc::new(AtomicBool::new(true));
    let threads: Vec<_> = all
        .into_iter()
        .map(|(path, body)| {
            let (served, busy) = (Arc::clone(&served), Arc::clone(&busy));
            std::thread::spawn(move || {
                let headers =
                    format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
                let request = head("POST", path, &headers) + &body;
                while busy.load(Ordering::SeqCst) {
                    let mut stream = served.open(request.as_bytes());
                    // the answer is read and dropped
                    let mut taken = [0; 1 << 16];
                    while stream.read(&mut taken).is_ok_and(|n| n > 0) {}
                }
            })
        })
        .collect();
    let watch = {
        let (served, busy) = (Arc::clone(&served), Arc::clone(&busy));
        std::thread::spawn(move || worst_health(&served, &busy))
    };
    std::thread::sleep(Duration::from_secs(3));
    busy.store(false, Ordering::SeqCst);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (worst, n) = watch.join().unwrap();
    // read on the threads of connections a body alone takes longer; other tests run beside this one
    assert!(n > 20 && worst < Duration::from_millis(250), "{worst:?} of {n}");
}

/// Long answers are those of short ones, token by token.
#[test]
fn long_lists_of_tokens_are_written_in_chunks() {
    let served = Served::new();
    let text = "Grüße, 世界! ".repeat(8_000);
    for pieces in [false, true] {
        let body = json!({ "content": text, "with_pieces": pieces });
        let answer = served.post("/tokenize", &body);
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"), "it has several parts");
        let answer = answer.json();
        let tokens = answer["tokens"].as_array().unwrap();
        let ids: Vec<u32> = tokens
            .iter()
            .map(|token| if pieces { &token["id"] } else { token }.as_u64().unwrap() as u32)
            .collect();
        assert_eq!(ids, served.format.tokenizer().encode(&text).unwrap());
        if pieces {
            let bytes = |token: &Value| -> Vec<u8> {
                match &token["piece"] {
                    Value::String(text) => text.clone().into_bytes(),
                    bytes => bytes
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|b| b.as_u64().unwrap() as u8)
                        .collect(),
                }
            };
            assert_eq!(tokens.iter().flat_map(bytes).collect::<Vec<u8>>(), text.as_bytes());
        }
        let back = served.post("/detokenize", &json!({ "tokens": ids }));
        assert_eq!(back.json()["content"], text);
    }
    // bytes that are no text become what they become as a whole
    let tokenizer = served.format.tokenizer();
    let n = u32::try_from(tokenizer.vocab_size()).unwrap();
    let tokens: Vec<u32> = (0..4_000).map(|i| i * 37 % n).collect();
    let answer = served.post("/detokenize", &json!({ "tokens": tokens })).json();
    let spelled = |id: &u32| match tokenizer.token_text(*id) {
        Some(name) if tokenizer.is_control(*id) => name.as_bytes().to_vec(),
        _ => tokenizer.bytes(*id).to_vec(),
    };
    let bytes: Vec<u8> = tokens.iter().flat_map(spelled).collect();
    assert_eq!(answer["content"], String::from_utf8_lossy(&bytes).into_owned());
}

/// A list that is too long is named before anything is made of it.
#[test]
fn lists_are_bounded() {
    let served = Served::new();
    let message = json!({ "role": "user", "content": "x" });
    let parts =
        json!({ "role": "user", "content": vec![json!({ "type": "text", "text": "" }); 131_073] });
    let calls = vec![json!({ "id": "a", "function": { "name": "f" } }); 131_073];
    let calls = json!([{ "role": "assistant", "content": "", "tool_calls": calls }]);
    let biases: Vec<Value> = (0..300_001).map(|id| json!([id % 100, 1])).collect();
    for (path, field, value) in [
        (CHAT, "messages", json!(vec![message.clone(); 65_537])),
        ("/v1/messages", "messages", json!(vec![message.clone(); 65_537])),
        ("/v1/responses", "input", json!(vec![message; 65_537])),
        (CHAT, "messages", json!([parts])),
        (CHAT, "messages", calls),
        (CHAT, "logit_bias", json!(biases)),
        (CHAT, "stop", json!(vec![""; 65])),
        (CHAT, "tools", json!(vec![json!({ "name": "f" }); 513])),
        ("/v1/messages", "tools", json!(vec![json!({ "name": "f" }); 513])),
        (
            CHAT,
            "tools",
            json!([{ "name": "f", "parameters": { "enum": vec![json!({ "a": 0 }); 80_000] } }]),
        ),
        ("/infill", "input_extra", json!(vec![json!({ "text": "" }); 4_097])),
        ("/v1/embeddings", "input", json!(vec![""; 2_049])),
        ("/v1/rerank", "documents", json!(vec![""; 2_049])),
    ] {
        let mut body = match path {
            "/v1/messages" | CHAT => {
                json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 2 })
            }
            "/infill" => json!({ "input_prefix": "a", "input_suffix": "b" }),
            "/v1/rerank" => json!({ "query": "x" }),
            _ => json!({}),
        };
        body[field] = value;
        let answer = served.post(path, &body);
        assert_eq!(answer.status, 400, "{path} {field}: {answer:.300?}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(&format!("{field}: ")), "{path} {field}: {message}");
        assert!(message.contains("more than") || field == "stop", "{message}");
    }
}

/// Takes its time for each step.
struct Slow(Duration);

impl Watch for Slow {
    fn stepped(&self, _: &Step<'_>, _: &[usize], _: &mut StepOut) {
        std::thread::sleep(self.0);
    }
}

/// A model with two slots that a reply gives up soon. `step`: what a step takes at least.
fn impatient(step: Duration, waiting: usize, keys: &[&str]) -> Served {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(listener, Access::new(&keys, Some(Vec::new()))).unwrap();
    let model = demo("demo", |model| Arc::new(Watched::new(model, Slow(step))));
    let slot_patience = Duration::from_millis(300);
    server.provide(ServedModel { waiting, slot_patience, ..model }).unwrap();
    Served::of(server)
}

fn with_key(key: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let headers = format!(
        "Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    (head("POST", CHAT, &headers) + &body).into_bytes()
}

fn endless(text: &str) -> Value {
    json!({
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": 800,
        "ignore_eos": true,
        "stream": true,
        "logprobs": true,
        "top_logprobs": 20,
    })
}

/// A connection that takes little, so that the system holds little for it.
fn narrow(served: &Served, request: &[u8]) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(served.address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.write_all(request).unwrap();
    stream
}

fn said(answer: &Answer) -> String {
    let (events, done) = answer.events();
    assert!(done, "{answer:.500?}");
    events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect()
}

/// L3: replies that are not read give up their slots to waiting ones, and are the same when they are read at last.
#[test]
fn l3_a_slow_reader_gives_up_its_slot() {
    let served = impatient(Duration::ZERO, 4, &[]);
    let alone: Vec<String> =
        ["one", "two"].map(|text| said(&served.send(&post(CHAT, &endless(text))))).into();
    let mut slow: Vec<TcpStream> =
        ["one", "two"].map(|text| narrow(&served, &post(CHAT, &endless(text)))).into();
    let start = Instant::now();
    let busy = || {
        let slots = served.get("/slots").json();
        slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count()
    };
    while busy() < 2 {
        assert!(start.elapsed() < Duration::from_secs(20), "they never begin");
    }
    for text in ["three", "four"] {
        let third = served.post(CHAT, &chat(text));
        assert_eq!(third.status, 200, "{third:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    let whole: Vec<String> = slow
        .iter_mut()
        .map(|stream| {
            let mut bytes = Vec::new();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.read_to_end(&mut bytes).unwrap();
            said(&Answer::read(&bytes))
        })
        .collect();
    assert_eq!(whole, alone);
}

/// A key that has all slots gives up one for another key, though its clients read.
#[test]
fn q2_no_client_keeps_all_slots() {
    let served = impatient(Duration::from_millis(10), 4, &["one", "two"]);
    let mut long = endless("a");
    long["max_tokens"] = json!(400);
    let alone = said(&served.send(&with_key("one", &long)));
    let ended = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ask = || {
            let ended = Arc::clone(&ended);
            let (served, long) = (&served, &long);
            scope.spawn(move || {
                let answer = served.send(&with_key("one", long));
                ended.store(true, Ordering::SeqCst);
                said(&answer)
            })
        };
        let both = [ask(), ask()];
        let start = Instant::now();
        let running = || {
            let text = served
                .send(head("GET", "/metrics", "Authorization: Bearer two\r\n").as_bytes())
                .body;
            text.lines().any(|line| {
                line.starts_with("rooflight:requests_processing{") && line.ends_with(" 2")
            })
        };
        while !running() {
            assert!(start.elapsed() < Duration::from_secs(20), "they never run");
        }
        let mut other = chat("b");
        other["max_tokens"] = json!(1);
        let answer = served.send(&with_key("two", &other));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!ended.load(Ordering::SeqCst), "it waited for a reply to end");
        for reply in both {
            assert_eq!(reply.join().unwrap(), alone, "what was paused goes on as it was");
        }
    });
}

/// A place that becomes free is for the key that was refused, and not for the one that has all others.
#[test]
fn q1_no_client_keeps_the_whole_queue() {
    let served = impatient(Duration::from_millis(10), 2, &["one", "two"]);
    let asks = || served.open(&with_key("one", &endless("a")));
    let mut all: Vec<TcpStream> = (0..4).map(|_| asks()).collect();
    // replies that run or wait
    let there = || -> f64 {
        let answer =
            served.send(head("GET", "/metrics", "Authorization: Bearer two\r\n").as_bytes());
        let value = |name: &str| -> f64 {
            let line = answer.body.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        value("rooflight:requests_processing{") + value("rooflight:requests_deferred{")
    };
    let until = |n: f64| {
        let start = Instant::now();
        while there() != n {
            assert!(start.elapsed() < Duration::from_secs(20), "{} are there", there());
        }
    };
    until(4.0);
    let ask = |key: &str| served.send(&with_key(key, &chat("hi"))).status;
    assert_eq!([ask("one"), ask("two")], [503, 503], "all places are taken");
    drop(all.pop());
    until(3.0);
    let start = Instant::now();
    loop {
        assert_eq!(ask("one"), 503, "it has its share");
        if ask("two") == 200 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the place is never free");
    }
}

/// `keep_alive: 0` of one client does not unload what another uses.
#[test]
fn no_client_unloads_a_model_that_another_uses() {
    let keys = ["one".to_owned(), "two".to_owned()];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(listener, Access::new(&keys, Some(Vec::new()))).unwrap();
    let load = || Ok(demo("demo", |model| model));
    let about = rooflight_server::ModelAbout {
        name: "demo".into(),
        aliases: Vec::new(),
        created: 7,
        family: "qwen2".into(),
        bytes: 9,
        context: 1000,
        does: rooflight_server::ModelUse::Writes,
        details: Arc::default(),
    };
    let models = vec![rooflight_server::OfferedModel { about, load: Box::new(load) }];
    let offers = rooflight_server::Offers { models, keep: None, pull: None };
    server.offer(offers, load().unwrap()).unwrap();
    let served = Served::of(server);
    let ask = |key: &str, more: &Value| {
        let mut body = json!({ "model": "demo", "prompt": "hi", "options": { "num_predict": 2 }, "stream": false });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = body.to_string();
        let headers = format!(
            "Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        served.send((head("POST", "/api/generate", &headers) + &body).as_bytes()).json()
    };
    let stays = || {
        std::thread::sleep(Duration::from_millis(200));
        let answer =
            served.send(head("GET", "/api/ps", "Authorization: Bearer one\r\n").as_bytes());
        !answer.json()["models"].as_array().unwrap().is_empty()
    };
    let goes = json!({ "prompt": "", "keep_alive": 0 });
    assert_eq!(ask("one", &json!({}))["done"], true);
    assert_eq!(ask("one", &goes)["done_reason"], "unload");
    assert!(!stays(), "it is its own");
    ask("one", &json!({}));
    ask("two", &json!({}));
    assert_eq!(ask("two", &goes)["done_reason"], "load");
    assert!(stays());
    assert_eq!(ask("two", &json!({ "keep_alive": 0 }))["done"], true);
    assert!(stays());
}

/// P3: `/slots` and `/metrics` show every key how much is done, and nothing of what is said or by whom.
#[test]
fn p3_counts_tell_nothing_of_what_is_said() {
    let served = within(1 << 30, &["key-one", "key-two"]);
    assert_eq!(served.send(&with_key("key-one", &chat("a secret word"))).status, 200);
    let look = |path: &str| {
        served.send(head("GET", path, "Authorization: Bearer key-two\r\n").as_bytes()).body
    };
    let slots: Value = serde_json::from_str(&look("/slots")).unwrap();
    for slot in slots.as_array().unwrap() {
        let names: Vec<&String> = slot.as_object().unwrap().keys().collect();
        assert_eq!(names, ["id", "n_ctx", "is_processing"]);
    }
    for line in look("/metrics").lines().filter(|line| !line.starts_with('#')) {
        let (name, number) = line.rsplit_once(' ').unwrap();
        assert!(number.parse::<f64>().is_ok(), "{line}");
        let labels = name.split_once('{').map_or("", |(_, labels)| labels);
        let known = labels.split(',').all(|one| {
            one.is_empty() || one.starts_with("model_name=\"demo\"") || one.starts_with("le=\"")
        });
        assert!(known && name.starts_with("rooflight:"), "{line}");
    }
}
