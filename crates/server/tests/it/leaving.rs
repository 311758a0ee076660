//! Clients that leave, and more of them than there is room for.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::{Watch, Watched};
use program::{Step, StepOut};
use rooflight_server::Access;
use serde_json::{Value, json};

use crate::client::{Answer, Served, post};

const CHAT: &str = "/v1/chat/completions";

fn endless(stream: bool) -> Value {
    json!({
        "messages": [{ "role": "user", "content": "go on" }],
        "max_tokens": 800,
        "ignore_eos": true,
        "stream": stream,
    })
}

fn short() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 })
}

/// How long it takes until there is room again.
fn until_there_is_room(served: &Served) -> Duration {
    let start = Instant::now();
    loop {
        let answer = served.post(CHAT, &short());
        match answer.status {
            200 => return start.elapsed(),
            503 => assert!(start.elapsed() < Duration::from_secs(20), "the place is never free"),
            _ => panic!("{answer:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_leaves_makes_room() {
    let served = Served::with(1, 0, Access::new(&[], Some(Vec::new())));
    let start = Instant::now();
    assert_eq!(served.post(CHAT, &endless(false)).status, 200);
    let whole = start.elapsed();
    for stream in [true, false] {
        let mut connection = served.open(&post(CHAT, &endless(stream)));
        // it is being made
        if stream {
            connection.read_exact(&mut [0; 200]).unwrap();
        } else {
            let start = Instant::now();
            while served.get("/slots").json()[0]["is_processing"] == json!(false) {
                assert!(start.elapsed() < Duration::from_secs(20), "it never begins");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let full = served.post(CHAT, &short());
        assert_eq!(full.status, 503, "{full:?}");
        assert!(full.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{full:?}");
        assert_eq!(full.json()["error"]["type"], "unavailable_error");
        assert_eq!(served.get("/health").status, 200);
        drop(connection);
        let took = until_there_is_room(&served);
        assert!(took < whole / 3, "{took:?} of {whole:?}");
        assert_eq!(served.get("/slots").json()[0]["is_processing"], json!(false));
    }
}

/// A full queue says so before it does any work: what is wrong with a request would show only then.
#[test]
fn a_full_queue_is_told_before_any_work() {
    let served = Served::with(1, 0, Access::new(&[], Some(Vec::new())));
    let mut impossible = short();
    impossible["json_schema"] = json!({ "type": "object", "minProperties": 2, "maxProperties": 1 });
    assert_eq!(served.post(CHAT, &impossible).status, 400, "it cannot be compiled");
    let mut running = served.open(&post(CHAT, &endless(true)));
    running.read_exact(&mut [0; 200]).unwrap();
    let full = served.post(CHAT, &impossible);
    assert_eq!(full.status, 503, "{full:?}");
    drop(running);
    until_there_is_room(&served);
    // what was refused holds no place
    assert_eq!(served.post(CHAT, &impossible).status, 400);
    assert_eq!(served.post(CHAT, &short()).status, 200);
}

#[test]
fn who_waits_is_answered_in_turn() {
    let served = Served::with(1, 3, Access::new(&[], Some(Vec::new())));
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| served.post(CHAT, &short()));
        let asked: Vec<_> = (0..4).map(|_| ask()).collect();
        asked.into_iter().map(|thread| thread.join().unwrap().json()).collect()
    });
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    assert!(answers.iter().all(|answer| text(answer) == text(&answers[0])), "{answers:?}");
    assert!(!text(&answers[0]).is_null());
}

/// Counts the passes in which something is computed.
struct Passes(Arc<AtomicUsize>);

impl Watch for Passes {
    fn stepped(&self, _: &Step<'_>, _: &[usize], _: &mut StepOut) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// L3: a reply rests whose client is far behind, others are served meanwhile, and it goes on where it was.
#[test]
fn l3_a_reply_rests_that_nobody_reads() {
    let passes = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&passes);
    let served = Served::of_model(|model| Arc::new(Watched::new(model, Passes(counted))));
    let mut body = endless(true);
    (body["logprobs"], body["top_logprobs"]) = (json!(true), json!(20));
    let said = |answer: &Answer| -> String {
        let (events, done) = answer.events();
        assert!(done);
        let texts = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str());
        texts.collect()
    };
    let alone = said(&served.post(CHAT, &body));
    let whole = passes.swap(0, Ordering::SeqCst);
    // it takes little, so that the system holds little for it
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(served.address).await.unwrap().into_std().unwrap()
    });
    let mut stream = stream;
    stream.set_nonblocking(false).unwrap();
    stream.write_all(&post(CHAT, &body)).unwrap();
    let start = Instant::now();
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = passes.load(Ordering::SeqCst);
        if now > 0 && now == before {
            break;
        }
        before = now;
        assert!(start.elapsed() < Duration::from_secs(25), "it never rests: {now} of {whole}");
    }
    let slots = served.get("/slots").json();
    let busy = slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true);
    assert_eq!(busy.count(), 1, "{slots}");
    assert_eq!(served.post(CHAT, &short()).status, 200, "beside it");
    // it is read at last, and only then goes on
    let rested = passes.load(Ordering::SeqCst);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let all = passes.load(Ordering::SeqCst);
    assert!(all > rested + 10, "{all} passes, {rested} before it was read");
    assert_eq!(said(&Answer::read(&bytes)), alone);
}
