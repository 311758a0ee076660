//! Sessions: what was fed, not how, decides the logits. All comparisons here are to the bit, within the executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use program::{CacheOptions, CacheType, Error, Executor, Model, Outputs, Program, Sequence, Step};
use quant::GgmlType;

use crate::made::{EXACT, all_logits, feed};
use crate::{Made, Random, assert_same_bits, tiny_config, tiny_model};

/// Long enough to cross the positions that caches hold in one block.
const LONG: usize = 300;

fn model(executor: &dyn Executor, ty: GgmlType) -> Box<dyn Model> {
    Made::new(executor, &tiny_model(&tiny_config("qwen2", 64, false), ty), 4).tested
}

/// What is loaded to check sessions.
pub(super) struct Subject<'a> {
    /// For messages.
    pub(super) name: &'a str,
    /// Types of weights in which chunks are compared.
    pub(super) types: &'a [GgmlType],
    /// Its program, of a vocabulary of 97, with weights of a type.
    pub(super) program: &'a dyn Fn(GgmlType) -> Arc<Program>,
}

impl Subject<'_> {
    fn load(&self, executor: &dyn Executor, ty: GgmlType) -> Box<dyn Model> {
        Made::new(executor, &(self.program)(ty), 4).tested
    }
}

/// Check sessions of an architecture.
fn of(architecture: &str, check: impl Fn(&Subject<'_>)) {
    let program = |ty| tiny_model(&tiny_config(architecture, 64, false), ty);
    let types = &[GgmlType::F32, GgmlType::F16, GgmlType::Q8_0, GgmlType::Q4_0];
    check(&Subject { name: architecture, types, program: &program });
}

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    Random::new(seed).tokens(n, 97)
}

fn last_row(logits: &[f32]) -> &[f32] {
    &logits[logits.len() - 97..]
}

pub(super) fn outputs(executor: &dyn Executor) {
    let model = model(executor, GgmlType::F32);
    let (first, second) = (tokens(20, 1), tokens(5, 2));
    let want = all_logits(&*model, &EXACT, &[first.clone(), second.clone()].concat(), 25);
    let session = model.open(&EXACT).expect("a session opens");
    assert!(feed(&*model, session, &first, Outputs::NONE).is_empty(), "Outputs::NONE yields rows");
    let found = feed(&*model, session, &second, Outputs::LAST);
    assert_same_bits(&found, last_row(&want), "Outputs::LAST after Outputs::NONE");
    assert_eq!(
        model.len(session).expect("it is open"),
        25,
        "length after Outputs::NONE and Outputs::LAST"
    );
}

pub(super) fn chunks(executor: &dyn Executor) {
    chunks_of(executor, "qwen2");
}

pub(super) fn chunks_of(executor: &dyn Executor, architecture: &str) {
    of(architecture, |subject| chunks_in(executor, subject));
}

pub(super) fn chunks_in(executor: &dyn Executor, subject: &Subject<'_>) {
    for &ty in subject.types {
        let model = subject.load(executor, ty);
        let tokens = tokens(LONG, 3);
        for cache in CacheType::ALL {
            let options = CacheOptions::new(cache, cache, LONG);
            let want = all_logits(&*model, &options, &tokens, LONG);
            for chunk in [1, 7, 64] {
                let found = all_logits(&*model, &options, &tokens, chunk);
                assert_same_bits(
                    &found,
                    &want,
                    &format!("{} of {ty}, {} cache, chunks of {chunk}", subject.name, cache.name()),
                );
            }
        }
    }
}

/// A step that is stopped leaves its sessions as they were; one that is not is a step.
pub(super) fn cancelled(executor: &dyn Executor) {
    let model = model(executor, GgmlType::Q8_0);
    let (first, second) = (tokens(40, 15), tokens(LONG - 40, 16));
    let all = [&first[..], &second].concat();
    let want = all_logits(&*model, &EXACT, &all, LONG);
    let mut stopped = 0;
    for polls in [0, 1, 2, 5, 1000] {
        let session = model.open(&EXACT).expect("a session opens");
        let found = feed(&*model, session, &first, Outputs::ALL);
        assert_same_bits(&found, &want[..40 * 97], "before a step that is stopped");
        let asked = AtomicUsize::new(0);
        let go_on = || asked.fetch_add(1, Ordering::Relaxed) < polls;
        let sequence =
            Sequence { session, tokens: &second, outputs: Outputs::NONE, prompt: None, rows: &[] };
        match model.step_while(&Step { sequences: &[sequence] }, &go_on) {
            Err(Error::Cancelled) => {
                stopped += 1;
                assert_eq!(model.len(session).expect("it is open"), 40, "length after a stop");
            }
            out => {
                let out = out.expect("a step runs").single();
                out.expect("its sequence runs");
                model.truncate(session, 40).expect("it holds more");
            }
        }
        let found = feed(&*model, session, &second, Outputs::ALL);
        assert_same_bits(&found, &want[40 * 97..], &format!("after a stop at question {polls}"));
        model.close(session);
    }
    assert!(stopped > 0, "a step that nobody wants ran");
}

pub(super) fn rollback(executor: &dyn Executor) {
    rollback_of(executor, "qwen2");
}

pub(super) fn rollback_of(executor: &dyn Executor, architecture: &str) {
    of(architecture, |subject| rollback_in(executor, subject));
}

pub(super) fn rollback_in(executor: &dyn Executor, subject: &Subject<'_>) {
    let model = subject.load(executor, GgmlType::Q8_0);
    let (first, second) = (tokens(LONG, 5), tokens(20, 6));
    for cache in CacheType::ALL {
        let options = CacheOptions::new(cache, cache, 512);
        let session = model.open(&options).expect("a session opens");
        for keep in [LONG, 290, 257, 256, 255, 40, 1, 0] {
            let len = model.len(session).expect("it is open");
            if len < LONG {
                feed(&*model, session, &first[len..], Outputs::NONE);
            }
            let reached = model.truncate(session, keep).expect("it holds more");
            assert_eq!(reached, keep, "length that truncate reached");
            assert_eq!(model.len(session).expect("it is open"), keep, "length after truncate");
            let found = feed(&*model, session, &second, Outputs::ALL);
            let want = all_logits(&*model, &options, &[&first[..keep], &second].concat(), 512);
            let what = format!("{} cache, {LONG} positions truncated to {keep}", cache.name());
            assert_same_bits(&found, &want[keep * 97..], &what);
            model.truncate(session, keep).expect("it holds more");
        }
        model.close(session);
    }
}

pub(super) fn fork(executor: &dyn Executor) {
    fork_of(executor, "qwen2");
}

pub(super) fn fork_of(executor: &dyn Executor, architecture: &str) {
    of(architecture, |subject| fork_in(executor, subject));
}

pub(super) fn fork_in(executor: &dyn Executor, subject: &Subject<'_>) {
    let model = subject.load(executor, GgmlType::Q8_0);
    let (prompt, a, b) = (tokens(LONG, 7), tokens(12, 8), tokens(12, 9));
    for cache in CacheType::ALL {
        let options = CacheOptions::new(cache, cache, 512);
        for shared in [LONG, 256, 100, 0] {
            let parent = model.open(&options).expect("a session opens");
            feed(&*model, parent, &prompt, Outputs::NONE);
            let child = model.fork(parent, shared).expect("the parent holds more");
            assert_eq!(model.len(child).expect("it is open"), shared, "length of a fork");
            let want = |start: &[u32], more: &[u32]| {
                let logits = all_logits(&*model, &options, &[start, more].concat(), 512);
                logits[start.len() * 97..].to_vec()
            };
            let what = |who: &str| format!("{} cache, {who} of a fork at {shared}", cache.name());
            // They go on in turns, so that shared storage would show.
            let found = feed(&*model, child, &a, Outputs::ALL);
            assert_same_bits(&found, &want(&prompt[..shared], &a), &what("child"));
            let found = feed(&*model, parent, &b, Outputs::ALL);
            assert_same_bits(&found, &want(&prompt, &b), &what("parent"));
            model.close(parent);
            let found = feed(&*model, child, &b, Outputs::ALL);
            let start = [&prompt[..shared], &a].concat();
            assert_same_bits(&found, &want(&start, &b), &what("child after its parent closed"));
            model.close(child);
        }
    }
}

pub(super) fn commit(executor: &dyn Executor) {
    let model = model(executor, GgmlType::F32);
    let tokens = tokens(LONG, 10);
    let want = all_logits(&*model, &EXACT, &tokens, LONG);
    let session = model.open(&EXACT).expect("a session opens");
    let mut found = Vec::new();
    for chunk in tokens.chunks(37) {
        found.extend(feed(&*model, session, chunk, Outputs::ALL));
        // Rows that are never committed are dropped again.
        let len = model.len(session).expect("it is open");
        feed(&*model, session, &[1, 2, 3], Outputs::NONE);
        model.commit(session, len).expect("it holds that many");
        assert_eq!(model.len(session).expect("it is open"), len + 3, "commit changes the length");
        model.truncate(session, len).expect("it holds that many");
    }
    assert_same_bits(&found, &want, "committed chunk by chunk");
}

/// Where a window has passed, committed rows may be gone: what truncate and fork reach is held, and the rest, fed again,
/// has the bits it had. Rows that are not committed can always be dropped.
pub(super) fn committed_of(executor: &dyn Executor, architecture: &str) {
    of(architecture, |subject| committed_in(executor, subject));
}

pub(super) fn committed_in(executor: &dyn Executor, subject: &Subject<'_>) {
    let (name, model) = (subject.name, subject.load(executor, subject.types[0]));
    let (start, more) = (tokens(2 * LONG, 16), tokens(12, 17));
    let (k, v) = (CacheType::F16, CacheType::F16);
    let options = CacheOptions::new(k, v, 1024);
    let bytes = |session| model.cache_bytes(session).expect("it is open");
    let whole = model.open(&options).expect("a session opens");
    feed(&*model, whole, &start, Outputs::NONE);
    for keep in [2 * LONG, 2 * LONG - 10, LONG, 257, 30, 0] {
        let session = model.open(&options).expect("a session opens");
        for chunk in start.chunks(50) {
            feed(&*model, session, chunk, Outputs::NONE);
            let len = model.len(session).expect("it is open");
            model.commit(session, len).expect("it holds that many");
        }
        assert!(bytes(session) <= bytes(whole), "{name}: bytes after commits");
        feed(&*model, session, &more, Outputs::NONE);
        let reached = model.truncate(session, start.len()).expect("it holds more");
        assert_eq!(reached, start.len(), "{name}: what was committed, tentative rows cut");
        let fork = model.fork(session, keep).expect("it holds more");
        let held = bytes(session);
        let reached = model.truncate(session, keep).expect("it holds more");
        assert!(reached <= keep, "{reached} reached of {keep}");
        assert!(reached == keep || held < bytes(whole), "{name}: rows gone, memory kept");
        let want = all_logits(&*model, &options, &[&start[..keep], &more].concat(), 1024);
        for (who, session) in [("session", session), ("fork", fork)] {
            let what = format!("{name}: {who} cut to {keep} after commits, {reached} reached");
            assert_eq!(model.len(session).expect("it is open"), reached, "{what}");
            if reached < keep {
                feed(&*model, session, &start[reached..keep], Outputs::NONE);
            }
            assert_same_bits(
                &feed(&*model, session, &more, Outputs::ALL),
                &want[keep * 97..],
                &what,
            );
            model.close(session);
        }
    }
}

pub(super) fn reuse(executor: &dyn Executor) {
    reuse_of(executor, "qwen2");
}

pub(super) fn reuse_of(executor: &dyn Executor, architecture: &str) {
    of(architecture, |subject| reuse_in(executor, subject));
}

/// What a session takes over of another one has the bits it would have computed, and neither disturbs the other.
pub(super) fn reuse_in(executor: &dyn Executor, subject: &Subject<'_>) {
    let model = subject.load(executor, GgmlType::Q8_0);
    let (prompt, a, b) = (tokens(2 * LONG, 13), tokens(12, 14), tokens(12, 15));
    for cache in CacheType::ALL {
        let options = CacheOptions::new(cache, cache, 1024);
        let want = |start: &[u32], more: &[u32]| {
            let logits = all_logits(&*model, &options, &[start, more].concat(), 1024);
            logits[start.len() * 97..].to_vec()
        };
        let first = model.open(&options).expect("a session opens");
        feed(&*model, first, &prompt, Outputs::NONE);
        let v = CacheType::ALL[usize::from(cache == CacheType::F32)];
        let other = model.open(&CacheOptions::new(cache, v, 1024)).expect("a session opens");
        model.commit(first, prompt.len()).expect("it holds that many");
        let strange = model.reuse(other, &prompt).expect("it is open");
        assert_eq!(strange, 0, "positions gained from a cache of other types");
        for (held, common) in [(0, 2 * LONG), (0, LONG), (0, 20), (40, LONG), (LONG, 2 * LONG)] {
            let session = model.open(&options).expect("a session opens");
            if held > 0 {
                feed(&*model, session, &prompt[..held], Outputs::NONE);
            }
            let wanted = [&prompt[..common], &a].concat();
            let gained = model.reuse(session, &wanted).expect("it is open");
            let len = held + gained;
            assert!(len <= common, "{len} positions gained of {common} equal tokens");
            assert_eq!(model.len(session).expect("it is open"), len, "length after reuse");
            let what = format!("{} cache, {held} held, {gained} of {common} gained", cache.name());
            let rows = model.stats().rows;
            let found = feed(&*model, session, &wanted[len..], Outputs::ALL);
            assert_eq!(model.stats().rows - rows, (wanted.len() - len) as u64, "rows computed");
            assert_same_bits(&found, &want(&wanted[..len], &wanted[len..]), &what);
            // what it writes over is its own
            let kept = model.truncate(session, len - len / 3).expect("it holds more");
            let found = feed(&*model, session, &b, Outputs::ALL);
            assert_same_bits(&found, &want(&prompt[..kept], &b), &format!("{what}, then cut"));
            model.close(session);
        }
        let found = feed(&*model, first, &b, Outputs::ALL);
        assert_same_bits(&found, &want(&prompt, &b), "the session whose positions were taken over");
        model.close(first);
        model.close(other);
    }
}

pub(super) fn replay(executor: &dyn Executor) {
    let model = model(executor, GgmlType::Q4_0);
    let (ours, others) = (tokens(50, 11), tokens(50, 12));
    let want = all_logits(&*model, &EXACT, &ours, 50);
    assert_same_bits(&all_logits(&*model, &EXACT, &ours, 50), &want, "the same prompt again");
    let (a, b) = (model.open(&EXACT).expect("opens"), model.open(&EXACT).expect("opens"));
    assert_ne!(a, b, "ids of two open sessions");
    let mut found = Vec::new();
    for (ours, others) in ours.chunks(9).zip(others.chunks(9)) {
        found.extend(feed(&*model, a, ours, Outputs::ALL));
        feed(&*model, b, others, Outputs::NONE);
    }
    let alone = all_logits(&*model, &EXACT, &ours, 9);
    assert_same_bits(&found, &alone, "with another session's steps between");
    let again =
        Made::new(executor, &tiny_model(&tiny_config("qwen2", 64, false), GgmlType::Q4_0), 4)
            .tested;
    assert_same_bits(&all_logits(&*again, &EXACT, &ours, 50), &want, "loaded again");
    assert!(model.stats().steps > 0 && model.stats().rows >= 200, "counters: {:?}", model.stats());
}

pub(super) fn together(executor: &dyn Executor) {
    together_of(executor, "qwen2");
}

pub(super) fn together_of(executor: &dyn Executor, architecture: &str) {
    of(architecture, |subject| together_in(executor, subject));
}

pub(super) fn together_in(executor: &dyn Executor, subject: &Subject<'_>) {
    for ty in [GgmlType::F32, GgmlType::Q8_0] {
        let model = subject.load(executor, ty);
        let prompts = [tokens(30, 13), tokens(3, 14), tokens(270, 15), tokens(1, 16)];
        let outputs = [Outputs::ALL, Outputs::LAST, Outputs::NONE, Outputs::LAST];
        let sessions = prompts.each_ref().map(|prompt| {
            let session = model.open(&EXACT).expect("a session opens");
            feed(&*model, session, &prompt[..prompt.len() / 2 + 1], Outputs::NONE);
            session
        });
        let more = [tokens(5, 17), tokens(1, 18), tokens(8, 19), tokens(2, 20)];
        let sequences: Vec<Sequence<'_>> = (0..4)
            .map(|i| Sequence {
                session: sessions[i],
                tokens: &more[i],
                outputs: outputs[i],
                prompt: None,
                rows: &[],
            })
            .collect();
        let out = model.step(&Step { sequences: &sequences }).expect("four sequences in one step");
        assert_eq!(out.sequences.len(), 4, "results");
        for (i, rows) in out.sequences.into_iter().enumerate() {
            let rows = rows.expect("it can run").into_logits();
            let start = &prompts[i][..prompts[i].len() / 2 + 1];
            let alone = all_logits(&*model, &EXACT, &[start, &more[i]].concat(), 512);
            let wanted = outputs[i].count(more[i].len());
            let want = &alone[alone.len() - wanted * 97..];
            assert_same_bits(&rows.logits, want, &format!("{ty}: sequence {i} of a step of four"));
            assert_eq!(
                model.len(sessions[i]).expect("it is open"),
                start.len() + more[i].len(),
                "length"
            );
        }
    }
}
