//! `--kv-memory` holds: what a server's process takes beside its model stays within the bound, and a twentieth of it, whatever
//! sessions say.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use planner::{Cost, CostOptions};
use program::{CacheType, ContextMemory, KvPolicy};

use crate::asking::{post, request, tokens};
use crate::common::Place;
use crate::serving::Serving;

/// Tokens that are computed: `ROOFLIGHT_TOKENS`, else so many.
fn wanted(usual: usize) -> usize {
    match std::env::var("ROOFLIGHT_TOKENS") {
        Ok(n) => n.parse().expect("ROOFLIGHT_TOKENS: a number"),
        Err(_) => usual,
    }
}

/// What several conversations with a server came to.
#[derive(Debug)]
struct Resident {
    /// Tokens that were computed.
    computed: usize,
    /// Those of them that a conversation had said before.
    again: usize,
    /// Tokens of the longest conversation.
    longest: usize,
    /// Most bytes of anonymous memory, resident or swapped out, that the process had beside what it had with its model loaded
    /// and one prompt computed, but for the caches of that one.
    most: u64,
}

/// What is over when this is dropped, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Resident {
    /// Ask a server, one conversation after another and `step` tokens more each time, until so many tokens are computed.
    fn measure(
        serving: &Serving,
        (n, step, longest): (usize, usize, usize),
        wanted: usize,
    ) -> Self {
        // as long as makes it choose, so that there is what steps need
        let first = tokens(999, 2048);
        ask(serving, &first);
        let gguf = gguf::Gguf::from_bytes(std::fs::read(MODEL).unwrap()).unwrap();
        let program = models::load(&gguf).unwrap().program;
        let policy = KvPolicy::Memory(ContextMemory::suited(1024));
        let (k, v) = (CacheType::F32, CacheType::F32);
        let cost = Cost::of(&program, &CostOptions { k, v, policy, ..CostOptions::default() });
        // caches come in blocks: they are no more than this
        let caches = cost.cache_bytes(first.len() as u64 + 256);
        let base = serving.own_memory().saturating_sub(caches);
        let (most, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut found = Resident { computed: 0, again: 0, longest: 0, most: 0 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    most.fetch_max(serving.own_memory(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let _ends = Ends(&is_over);
            let (mut texts, mut seed) = (vec![Vec::new(); n], 1000);
            'all: loop {
                for text in &mut texts {
                    if text.len() + step + 10 > longest {
                        text.clear();
                    }
                    seed += 1;
                    text.extend(tokens(seed, step));
                    let (computed, reply) = ask(serving, text);
                    found.computed += computed;
                    // the last token of a reply was never read
                    found.again += computed.saturating_sub(step + 1);
                    text.extend(reply);
                    found.longest = found.longest.max(text.len());
                    if found.computed >= wanted {
                        break 'all;
                    }
                }
            }
        });
        found.most = most.into_inner().saturating_sub(base);
        found
    }
}

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../demo-model/assets/rooflight-demo-5m-q8_0.gguf");

/// Have a server go on from a prompt; how many tokens of it it computed, and what it said.
fn ask(serving: &Serving, prompt: &[u64]) -> (usize, Vec<u64>) {
    let (status, answer) = post(serving, "/completion", &request(prompt));
    assert_eq!(status, 200, "{answer}");
    let reply = answer["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap());
    (answer["timings"]["prompt_n"].as_u64().unwrap() as usize, reply.collect())
}

/// Conversations that go on in turns, whose far blocks lie on disk, and short ones without a disk, which let go of each other.
#[test]
fn memory_stays_within_its_bound() {
    let place = Place::new();
    // what they say together is several times what has room
    let long = wanted(30_000);
    let on_disk = ["--kv-memory", "48MB", "--kv-disk", "spill"];
    let cases = [
        ("on disk", &on_disk[..], 48_000_000, (3, 2000, 60_000)),
        ("in memory", &["--kv-memory", "80MB"], 80_000_000, (3, 2000, 8000)),
    ];
    for (what, storage, bound, conversations) in cases {
        let context = conversations.2.to_string();
        let options = ["-c", &context, "--parallel", "4", "-t", "2", "--kv-policy", "infllm"];
        let types = ["-ctk", "f32", "-ctv", "f32"];
        // what threads that read requests have freed is kept for each of them elsewise
        let variables = [("MALLOC_ARENA_MAX", "1")];
        let args = [&options[..], &types, storage].concat();
        let serving = Serving::with(&place, &args, &variables);
        let found = Resident::measure(&serving, conversations, long);
        let share = found.most as f64 / bound as f64;
        testing::covered(&format!("{what}: {found:?}, {:.3} of {bound} bytes", share));
        assert!(serving.ended().lines().all(|line| !line.contains("panic")), "{what}");
        if std::path::Path::new("/proc/self/status").exists() {
            assert!(share <= 1.05, "{what}: {found:?} of {bound} bytes");
            assert!(share >= 0.5, "{what}: it was not filled: {found:?} of {bound} bytes");
        }
        // without a disk one context has room, and each turn takes it
        assert_eq!(found.again == 0, storage.contains(&"--kv-disk"), "{what}: {found:?}");
    }
}
