//! Super-blocks of a context memory: queries on a long past look at the blocks of few of them, and nothing but the tokens
//! decides of which.

use program::{
    BlockAnchor, BlockSharing, CacheOptions, CacheType, ContextMemory, Executor, FarPositions,
    KvPolicy, MeterReading, Model, Outputs, Sequence, SessionId, Smoothing, Step, StepOut,
};
use quant::GgmlType;

use super::context::{SMALL, history, tiny, tokens, with};
use crate::made::feed;
use crate::{Made, Random, assert_close, assert_same_bits};

/// One super-block of two or three is looked at, by the last rows of a text of [`LONG`] tokens, or of [`LONGER`].
const FEW: ContextMemory =
    ContextMemory { n_init: 0, n_local: 64, n_blocks: 2, n_supers: 1, ..SMALL };

/// With the lengths of texts whose last rows look at few super-blocks, and those before at all blocks.
pub(super) const SETTINGS: [(ContextMemory, usize); 8] = [
    (FEW, LONG),
    (
        ContextMemory {
            anchor: BlockAnchor::Mean,
            sharing: BlockSharing::KvHead,
            positions: FarPositions::Exact,
            ..FEW
        },
        LONG,
    ),
    (ContextMemory { anchor: BlockAnchor::Products, n_local: 128, ..FEW }, LONG),
    (
        ContextMemory {
            anchor: BlockAnchor::Mass,
            sharing: BlockSharing::KvHead,
            n_local: 128,
            ..FEW
        },
        LONG,
    ),
    (ContextMemory { n_init: 64, n_blocks: 3, ..FEW }, LONGER),
    (ContextMemory { token_step: 8, layer_step: 2, ..FEW }, LONG),
    (ContextMemory { smoothing: Smoothing::new(0.25), ..FEW }, LONG),
    (ContextMemory { smoothing: Smoothing::new(0.5), anchor: BlockAnchor::Mean, ..FEW }, LONG),
];

const LONG: usize = 2250;
const LONGER: usize = 3200;
/// Rows at the end that are looked at.
const LAST: usize = 150;

/// A session that holds all but the last rows of a text.
fn begun(model: &dyn Model, options: &CacheOptions, all: &[u32], chunk: usize) -> SessionId {
    let session = model.open(options).expect("a session opens");
    for tokens in all[..all.len() - LAST].chunks(chunk) {
        feed(model, session, tokens, Outputs::NONE);
    }
    session
}

pub(super) fn with_room(memory: ContextMemory, cache: CacheType) -> CacheOptions {
    CacheOptions { capacity: 4096, ..with(memory, cache) }
}

/// Logits of the last rows, those apart that it holds already.
fn last(model: &dyn Model, session: SessionId, all: &[u32], chunk: usize) -> Vec<f32> {
    let held = model.len(session).expect("it is open");
    let chunks = all[held..].chunks(chunk);
    let logits = chunks.flat_map(|tokens| feed(model, session, tokens, Outputs::ALL));
    logits.collect::<Vec<_>>().split_off((all.len() - LAST).saturating_sub(held) * 97)
}

/// Rows choose what the interpreter does, something else than of all blocks, and the same if no super-block is left out.
pub(super) fn meaning(executor: &dyn Executor) {
    for (memory, n) in SETTINGS {
        assert!(!memory.looks_at_few(n - LAST - 1) && memory.looks_at_few(n - 1), "{memory}");
        let made = Made::new(executor, &tiny("qwen2", GgmlType::F32), 6);
        // in the other text two blocks promise a smoothed row the same, but for rounding
        let all = tokens(n, if memory.smoothing.is_some() { 52 } else { 51 });
        let measured = |model: &dyn Model, memory| {
            let session = begun(model, &with_room(memory, CacheType::F32), &all, 300);
            let logits = last(model, session, &all, 100);
            (logits, model.readings(session).expect("it is open"))
        };
        let of = |model: &dyn Model, memory| measured(model, memory).0;
        let (found, readings) = measured(&*made.tested, memory);
        let (want, expected) = measured(&*made.oracle, memory);
        // which of many keys that get nearly as much stand for a block follows from rounding, with super-blocks and without
        let most = if memory.anchor == BlockAnchor::Mass { 1e-6 } else { 1e-9 };
        assert_close(&found, &want, most, &format!("{memory}"));
        let place = |r: &MeterReading| (r.position, r.cache, r.head);
        assert!(readings.all().iter().map(place).eq(expected.all().iter().map(place)), "{memory}");
        for (a, b) in readings.all().iter().zip(expected.all()) {
            assert!((a.missed - b.missed).abs() < 1e-3, "{memory}: {a:?}, {b:?}");
        }
        let few = |r: &MeterReading| memory.looks_at_few(r.position as usize);
        assert!(readings.all().iter().any(few), "{memory}: a reading of few super-blocks");
        let flat = of(&*made.tested, ContextMemory { n_supers: 0, ..memory });
        assert!(flat != found, "{memory} leaves out what would be chosen");
        let early = 97 * (0..LAST).filter(|i| !memory.looks_at_few(n - LAST + i)).count();
        assert_same_bits(&found[..early], &flat[..early], &format!("before, {memory}"));
        let found = of(&*made.tested, ContextMemory { n_supers: 3, ..memory });
        assert_same_bits(&found, &flat, &format!("all looked at, {memory}"));
    }
}

/// However a text is cut, forked, taken back, and whatever is beside it.
pub(super) fn cuts(executor: &dyn Executor) {
    for (i, (memory, n)) in SETTINGS.into_iter().enumerate() {
        let ty = [GgmlType::F32, GgmlType::Q8_0, GgmlType::Q4_0][i % 3];
        let model = Made::new(executor, &tiny("qwen2", ty), 4).tested;
        let all = tokens(n, 52);
        let options = with_room(memory, CacheType::ALL[i % CacheType::ALL.len()]);
        let session = begun(&*model, &options, &all, 300);
        let fork = || model.fork(session, n - LAST).expect("it holds so many");
        let want = last(&*model, fork(), &all, LAST);
        for chunk in [1, 7, 64, 129] {
            let found = last(&*model, fork(), &all, chunk);
            assert_same_bits(&found, &want, &format!("chunks of {chunk}, {memory}"));
        }
        let other = begun(&*model, &options, &all, 77);
        let found = last(&*model, other, &all, 50);
        assert_same_bits(&found, &want, &format!("a start in other chunks, {memory}"));
        for len in [n - 20, n - LAST - 70] {
            model.truncate(other, len).expect("it holds more");
            let found = last(&*model, other, &all, 60);
            let want = &want[want.len() - found.len()..];
            assert_same_bits(&found, want, &format!("truncated to {len}, {memory}"));
        }
        assert_same_bits(
            &beside(&*model, fork(), &options, &all),
            &want,
            &format!("beside, {memory}"),
        );
    }
}

/// The last rows in steps with another session, whose past is short.
fn beside(model: &dyn Model, session: SessionId, options: &CacheOptions, all: &[u32]) -> Vec<f32> {
    let young = model.open(options).expect("a session opens");
    let (ours, others) = (&all[all.len() - LAST..], &all[..LAST]);
    let mut found = Vec::new();
    for (ours, others) in ours.chunks(40).zip(others.chunks(40)) {
        let of = |session, tokens| Sequence {
            session,
            tokens,
            outputs: Outputs::ALL,
            prompt: None,
            rows: &[],
        };
        let sequences = [of(young, others), of(session, ours)];
        let step = model.step(&Step { sequences: &sequences }).and_then(StepOut::all);
        let ours = step.expect("a step").into_iter().nth(1).expect("two sequences");
        found.extend(ours.into_logits().logits);
    }
    found
}

/// Random histories that begin with a long text end in the bits of a fresh run.
pub(super) fn histories(executor: &dyn Executor) {
    // long texts take long: all settings have a history where most of a past is on disk
    for (i, (memory, n)) in SETTINGS.into_iter().enumerate().step_by(3) {
        let model = Made::new(executor, &tiny("qwen2", GgmlType::F32), 4).tested;
        let options = with_room(memory, CacheType::ALL[(i + 1) % CacheType::ALL.len()]);
        history(&*model, &options, &tokens(n, 56), Random::new(211 + i as u64));
    }
}

/// What cannot look at few super-blocks is refused.
pub(super) fn refused(executor: &dyn Executor) {
    let model = Made::new(executor, &tiny("qwen2", GgmlType::F32), 4).tested;
    for bad in [
        ContextMemory { n_blocks: 17, ..FEW },
        ContextMemory { anchor: BlockAnchor::All, ..FEW },
        ContextMemory { certificate: program::Certificate::new(0.1), ..FEW },
    ] {
        let refused = model.open(&with(bad, CacheType::F32));
        let is_refused = matches!(refused, Err(program::Error::Unsupported(_)));
        assert!(is_refused, "{} is refused", KvPolicy::Memory(bad));
    }
}
