//! Context memory: what queries read of a long past, whoever chooses, and that nothing but the tokens decides it.

use std::sync::Arc;

use program::{
    BlockAnchor, BlockSharing, CacheOptions, CacheType, Certificate, ContextMemory, Error,
    Executor, FarPositions, GivenBlocks, KvPolicy, Model, Op, Outputs, Program, Sequence,
    SessionId, Smoothing, Step, StepOut,
};
use quant::GgmlType;

use crate::made::{EXACT, all_logits, feed};
use crate::{Made, Random, assert_close, assert_same_bits, tiny_config, tiny_model};

/// Few positions of everything.
pub(super) const SMALL: ContextMemory = ContextMemory {
    n_init: 64,
    n_local: 128,
    block: 64,
    n_blocks: 2,
    anchor: BlockAnchor::Bounds,
    n_representatives: 4,
    sharing: BlockSharing::Layer,
    positions: FarPositions::Fixed,
    dense_layers: 0,
    certificate: None,
    n_supers: 0,
    token_step: 1,
    layer_step: 1,
    smoothing: None,
    given: None,
};

/// Settings that differ in everything.
pub(super) const SETTINGS: [ContextMemory; 26] = [
    SMALL,
    ContextMemory {
        anchor: BlockAnchor::Mean,
        sharing: BlockSharing::KvHead,
        positions: FarPositions::Exact,
        ..SMALL
    },
    ContextMemory { anchor: BlockAnchor::Greatest, n_init: 0, n_blocks: 1, ..SMALL },
    ContextMemory { n_blocks: 0, ..SMALL },
    ContextMemory { anchor: BlockAnchor::Fixed, n_init: 0, n_representatives: 5, ..SMALL },
    ContextMemory {
        block: 128,
        n_init: 0,
        n_blocks: 1,
        anchor: BlockAnchor::Fixed,
        n_representatives: 1,
        sharing: BlockSharing::KvHead,
        positions: FarPositions::Exact,
        token_step: 8,
        ..SMALL
    },
    ContextMemory { n_blocks: 0, positions: FarPositions::Exact, n_init: 128, ..SMALL },
    ContextMemory {
        block: 128,
        n_init: 128,
        n_blocks: 1,
        sharing: BlockSharing::KvHead,
        dense_layers: 1,
        ..SMALL
    },
    ContextMemory { n_local: 64, n_blocks: 3, positions: FarPositions::Exact, ..SMALL },
    ContextMemory {
        n_init: 0,
        n_local: 64,
        n_blocks: 1,
        sharing: BlockSharing::KvHead,
        positions: FarPositions::Exact,
        certificate: Certificate::new(1.0),
        ..SMALL
    },
    ContextMemory { n_blocks: 0, n_local: 64, certificate: Certificate::new(1.0), ..SMALL },
    ContextMemory { anchor: BlockAnchor::Products, n_blocks: 1, ..SMALL },
    ContextMemory {
        n_init: 0,
        n_local: 64,
        anchor: BlockAnchor::Products,
        n_representatives: 1,
        sharing: BlockSharing::KvHead,
        positions: FarPositions::Exact,
        ..SMALL
    },
    ContextMemory {
        anchor: BlockAnchor::Mass,
        n_blocks: 1,
        positions: FarPositions::Exact,
        ..SMALL
    },
    ContextMemory {
        block: 128,
        n_init: 0,
        n_local: 128,
        n_blocks: 1,
        anchor: BlockAnchor::Mass,
        n_representatives: 2,
        sharing: BlockSharing::KvHead,
        ..SMALL
    },
    ContextMemory { anchor: BlockAnchor::All, ..SMALL },
    ContextMemory {
        anchor: BlockAnchor::All,
        n_init: 0,
        sharing: BlockSharing::KvHead,
        positions: FarPositions::Exact,
        ..SMALL
    },
    ContextMemory { token_step: 8, layer_step: 2, ..SMALL },
    ContextMemory {
        anchor: BlockAnchor::Mass,
        n_blocks: 1,
        sharing: BlockSharing::KvHead,
        positions: FarPositions::Exact,
        token_step: 4,
        ..SMALL
    },
    ContextMemory { anchor: BlockAnchor::All, n_blocks: 1, token_step: 2, layer_step: 3, ..SMALL },
    ContextMemory {
        block: 128,
        n_init: 0,
        n_blocks: 1,
        anchor: BlockAnchor::Mean,
        sharing: BlockSharing::KvHead,
        positions: FarPositions::Exact,
        token_step: 64,
        layer_step: 2,
        ..SMALL
    },
    ContextMemory { anchor: BlockAnchor::Products, n_blocks: 1, token_step: 16, ..SMALL },
    ContextMemory { sharing: BlockSharing::KvHead, n_blocks: 1, layer_step: 2, ..SMALL },
    ContextMemory { smoothing: Smoothing::new(0.25), ..SMALL },
    ContextMemory {
        anchor: BlockAnchor::Mass,
        n_blocks: 1,
        positions: FarPositions::Exact,
        smoothing: Smoothing::new(0.05),
        token_step: 4,
        layer_step: 2,
        ..SMALL
    },
    ContextMemory {
        block: 128,
        n_init: 0,
        n_blocks: 1,
        anchor: BlockAnchor::Mean,
        sharing: BlockSharing::KvHead,
        smoothing: Smoothing::new(0.5),
        ..SMALL
    },
];

pub(super) fn with(memory: ContextMemory, cache: CacheType) -> CacheOptions {
    let policy = KvPolicy::Memory(memory);
    CacheOptions { policy, ..CacheOptions::new(cache, cache, 1024) }
}

fn exact(memory: ContextMemory) -> CacheOptions {
    with(memory, CacheType::F32)
}

pub(super) fn tiny(architecture: &str, ty: GgmlType) -> Arc<Program> {
    tiny_model(&tiny_config(architecture, 64, false), ty)
}

pub(super) fn tokens(n: usize, seed: u64) -> Vec<u32> {
    Random::new(seed).tokens(n, 97)
}

/// Every setting yields what the interpreter does; layers with windows, and with shared experts, are as they were.
pub(super) fn meaning(executor: &dyn Executor) {
    for (architecture, n) in [("qwen2", 560), ("qwen3", 400), ("gemma3", 400), ("qwen3moe", 350)] {
        let made = Made::new(executor, &tiny(architecture, GgmlType::F32), 6);
        let tokens = tokens(n, 41);
        let given = GivenBlocks::new([3, 1, 2000]);
        let given = ContextMemory { given, n_blocks: 3, ..SMALL };
        for (i, memory) in SETTINGS.into_iter().chain([given]).enumerate() {
            if architecture != "qwen2" && i % 3 != 0 {
                continue;
            }
            let want = all_logits(&*made.oracle, &exact(memory), &tokens, n);
            let found = all_logits(&*made.tested, &exact(memory), &tokens, 100);
            assert_close(&found, &want, 1e-9, &format!("{architecture}, {memory}"));
        }
    }
}

/// Caches that round choose by what they keep: a choice may differ, so little is asked of a few rows.
pub(super) fn rounded(executor: &dyn Executor) {
    let made = Made::new(executor, &tiny("qwen2", GgmlType::F32), 6);
    let tokens = tokens(500, 42);
    let read_all = ContextMemory { n_blocks: 100, ..SMALL };
    let want = all_logits(&*made.oracle, &exact(read_all), &tokens, 500);
    for (cache, bound) in [(CacheType::F16, 1e-5), (CacheType::Q8_0, 1e-3)] {
        let found = all_logits(&*made.tested, &with(read_all, cache), &tokens, 77);
        assert_close(&found, &want, bound, &format!("a memory in {}", cache.name()));
    }
}

/// A memory that leaves nothing out at exact positions is full attention, and so is any before it leaves something out.
pub(super) fn all_is_full(executor: &dyn Executor) {
    for architecture in ["qwen2", "gemma3"] {
        let made = Made::new(executor, &tiny(architecture, GgmlType::Q8_0), 7);
        let tokens = tokens(600, 43);
        for cache in CacheType::ALL {
            let full = CacheOptions::new(cache, cache, 1024);
            let want = all_logits(&*made.tested, &full, &tokens, 600);
            for (block, n_init, n_local) in [(64, 64, 128), (128, 0, 128), (64, 0, 64)] {
                for anchor in BlockAnchor::ALL {
                    let positions = FarPositions::Exact;
                    let sharing = BlockSharing::KvHead;
                    let all = ContextMemory {
                        block,
                        n_init,
                        n_local,
                        n_blocks: if n_init == 0 { 1 << 30 } else { 16 },
                        anchor,
                        sharing,
                        positions,
                        ..SMALL
                    };
                    let found = all_logits(&*made.tested, &with(all, cache), &tokens, 90);
                    let what = format!("{architecture}, {} cache, {all}", cache.name());
                    assert_same_bits(&found, &want, &what);
                }
            }
            let nothing = Certificate::new(0.0);
            for (positions, n_blocks) in [(FarPositions::Exact, 1), (FarPositions::Exact, 0)] {
                let sure = ContextMemory { positions, n_blocks, certificate: nothing, ..SMALL };
                let found = all_logits(&*made.tested, &with(sure, cache), &tokens, 90);
                let what = format!("{architecture}, {} cache, {sure}", cache.name());
                assert_same_bits(&found, &want, &what);
            }
            let near = SMALL.n_local as usize;
            let found = all_logits(&*made.tested, &with(SMALL, cache), &tokens[..near], 50);
            assert_same_bits(&found, &want[..near * 97], "while all is near");
        }
    }
}

/// At a fixed distance what is far has no order: with one layer, that of its tokens changes nothing.
pub(super) fn far_has_no_order(executor: &dyn Executor) {
    let mut program = tiny("qwen2", GgmlType::F32);
    let last_layer = |op: &Op| matches!(op, Op::Attention(at) if at.cache.0 == 1);
    // the second layer reads what the first made of neighbours: leave the first its token alone
    let program = Arc::make_mut(&mut program);
    for node in &mut program.nodes {
        if let Op::Attention(at) = &mut node.op
            && at.cache.0 == 0
        {
            at.score.mask = program::Mask::Window(1);
        }
    }
    assert!(program.nodes.iter().any(|node| last_layer(&node.op)), "two layers");
    let made = Made::new(executor, &Arc::new(program.clone()), 8);
    let memory = ContextMemory { n_init: 0, n_blocks: 100, ..SMALL };
    let (mut tokens, n) = (tokens(400, 44), 400);
    let last = |tokens: &[u32], options: &CacheOptions| {
        let session = made.tested.open(options).expect("a session opens");
        feed(&*made.tested, session, tokens, Outputs::LAST)
    };
    let want = last(&tokens, &exact(memory));
    let in_order = last(&tokens, &EXACT);
    tokens[..n - 128].reverse();
    let found = last(&tokens, &exact(memory));
    assert_close(&found, &want, 1e-10, "far tokens reversed");
    let difference = crate::nmse(&last(&tokens, &EXACT), &in_order);
    assert!(difference > 1e-6, "full attention sees the order: {difference}");
}

/// The logits of every row follow from the tokens: however they are cut, beside others, and over any history.
pub(super) fn cuts(executor: &dyn Executor) {
    for (i, memory) in SETTINGS.into_iter().enumerate() {
        let (ty, cache) = (
            [GgmlType::F32, GgmlType::Q8_0, GgmlType::Q4_0][i % 3],
            CacheType::ALL[i % CacheType::ALL.len()],
        );
        let model = Made::new(executor, &tiny("qwen2", ty), 4).tested;
        let (tokens, options) = (tokens(420, 45), with(memory, cache));
        let want = all_logits(&*model, &options, &tokens, 420);
        let full = CacheOptions { policy: KvPolicy::Full, ..options };
        let full = feed(&*model, model.open(&full).expect("a session"), &tokens, Outputs::LAST);
        // of a certificate's bounds, which are loose here, another check sees that they leave something out
        let leaves = memory.certificate.is_some() || !want.ends_with(&full);
        assert!(leaves, "{memory} leaves something out");
        for chunk in [1, 7, 64, 129] {
            let found = all_logits(&*model, &options, &tokens, chunk);
            assert_same_bits(&found, &want, &format!("chunks of {chunk}, {memory}"));
        }
        beside(&*model, &options, &tokens, &want);
    }
}

/// One session's rows beside those of others, of the same policy and of another.
pub(super) fn beside(model: &dyn Model, options: &CacheOptions, all: &[u32], want: &[f32]) {
    let full = CacheOptions { policy: KvPolicy::Full, ..*options };
    let open = |options| model.open(options).expect("a session opens");
    let sessions = [open(options), open(options), open(&full)];
    let other = tokens(all.len(), 46);
    let mut found = Vec::new();
    for (a, b) in all.chunks(70).zip(other.chunks(70)) {
        let sequence = |session, tokens| Sequence {
            session,
            tokens,
            outputs: Outputs::ALL,
            prompt: None,
            rows: &[],
        };
        let sequences =
            [sequence(sessions[1], b), sequence(sessions[0], a), sequence(sessions[2], b)];
        let step = model.step(&Step { sequences: &sequences }).and_then(StepOut::all);
        let mut out = step.expect("a step").into_iter();
        out.next();
        found.extend(out.next().expect("three sequences").into_logits().logits);
    }
    assert_same_bits(&found, want, "beside other sessions");
}

/// Random histories of appends, truncations, forks, commits and reuse end in the bits of a fresh run.
pub(super) fn histories(executor: &dyn Executor) {
    let n = std::env::var("ROOFLIGHT_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for (i, memory) in SETTINGS.into_iter().enumerate() {
        let model = Made::new(executor, &tiny("qwen2", GgmlType::F32), 4).tested;
        for seed in 0..n {
            let random = Random::new(97 * seed + i as u64);
            history(&*model, &with(memory, CacheType::F16), &[], random);
        }
    }
}

/// One that begins with a text, and goes back into its last tokens at most, or to its start.
pub(super) fn history(model: &dyn Model, options: &CacheOptions, text: &[u32], mut random: Random) {
    let open = || model.open(options).expect("a session opens");
    let begun = open();
    for tokens in text.chunks(150) {
        feed(model, begun, tokens, Outputs::NONE);
    }
    let mut held: Vec<(SessionId, Vec<u32>)> = vec![(begun, text.to_vec())];
    for _ in 0..14 {
        let i = random.below(held.len());
        let (session, tokens) = &mut held[i];
        let session = *session;
        let least = text.len().saturating_sub(200).min(tokens.len());
        let some =
            |random: &mut Random, tokens: &[u32]| least + random.below(tokens.len() + 1 - least);
        match random.below(8) {
            0..4 => {
                let most = text.len() + 500;
                let n = [1, 5, 64, 130][random.below(4)].min(most - tokens.len().min(most - 1));
                let more = random.tokens(n, 97);
                feed(model, session, &more, Outputs::NONE);
                tokens.extend(more);
            }
            4 => {
                let len = some(&mut random, tokens);
                let reached = model.truncate(session, len).expect("it holds more");
                tokens.truncate(reached);
            }
            5 => model.commit(session, some(&mut random, tokens)).expect("it holds more"),
            6 => {
                let len = some(&mut random, tokens);
                let fork = model.fork(session, len).expect("it holds more");
                let reached = model.len(fork).expect("it is open");
                let tokens = tokens[..reached].to_vec();
                held.push((fork, tokens));
            }
            _ => {
                let tokens = tokens.clone();
                let fresh = open();
                let gained = model.reuse(fresh, &tokens).expect("it is open");
                held.push((fresh, tokens[..gained].to_vec()));
            }
        }
    }
    let more = random.tokens(9, 97);
    for (session, tokens) in held {
        let found = feed(model, session, &more, Outputs::ALL);
        let fresh = open();
        for tokens in tokens.chunks(if text.is_empty() { 500 } else { 150 }) {
            feed(model, fresh, tokens, Outputs::NONE);
        }
        let want = feed(model, fresh, &more, Outputs::ALL);
        assert_same_bits(&found, &want, &format!("after a history, {}", options.policy));
        model.close(session);
        model.close(fresh);
    }
}

/// What heads truly leave out is what the interpreter says, at the same positions, and the same however a text is cut.
pub(super) fn meter(executor: &dyn Executor) {
    let made = Made::new(executor, &tiny("qwen2", GgmlType::F32), 6);
    let tokens = tokens(560, 48);
    let readings = |model: &dyn Model, options: &CacheOptions, chunk: usize| {
        let session = model.open(options).expect("a session opens");
        for tokens in tokens.chunks(chunk) {
            feed(model, session, tokens, Outputs::NONE);
        }
        (session, model.readings(session).expect("it is open"))
    };
    let (mut most, mut partly) = (0.0f32, false);
    for (i, memory) in SETTINGS.into_iter().enumerate() {
        let options = exact(memory);
        let (session, found) = readings(&*made.tested, &options, 560);
        assert!(!memory.chooses(512) || !found.all().is_empty(), "{memory}");
        // the definition takes long
        if i % 4 == 0 {
            let (_, want) = readings(&*made.oracle, &options, 560);
            assert_eq!(found.all().len(), want.all().len(), "{memory}");
            for (a, b) in found.all().iter().zip(want.all()) {
                let place = |r: &program::MeterReading| (r.position, r.cache, r.head);
                assert_eq!(place(a), place(b), "{memory}");
                assert!((a.missed - b.missed).abs() < 1e-4, "{memory}: {a:?}, {b:?}");
                // which of two blocks gets more may follow from rounding
                let blocks = (a.found - b.found).abs() * memory.n_blocks.max(1) as f32;
                assert!(blocks < 1.5, "{memory}: {a:?}, {b:?}");
                most = most.max(a.missed);
                partly |= a.found > 0.0 && a.found < 1.0;
            }
        }
        for chunk in if i % 4 == 0 { &[1, 64, 129][..] } else { &[7] } {
            let chunk = *chunk;
            let (_, cut) = readings(&*made.tested, &options, chunk);
            assert_eq!(cut, found, "chunks of {chunk}, {memory}");
        }
        let of = |session| made.tested.readings(session).expect("it is open");
        let fork = made.tested.fork(session, 530).expect("it holds more");
        let held = made.tested.len(fork).expect("it is open");
        assert!(of(fork).all().iter().all(|reading| (reading.position as usize) < held));
        feed(&*made.tested, fork, &tokens[held..], Outputs::NONE);
        assert_eq!(of(fork), found, "a fork that went on, {memory}");
        let reached = made.tested.truncate(session, 400).expect("it holds more");
        feed(&*made.tested, session, &tokens[reached..], Outputs::NONE);
        assert_eq!(of(session), found, "after a truncation, {memory}");
    }
    assert!(most > 0.01, "something is left out: {most}");
    assert!(partly, "some of the best blocks are read");
}

/// What does not fit is refused when a session opens.
pub(super) fn refused(executor: &dyn Executor) {
    let model = Made::new(executor, &tiny("qwen2", GgmlType::F32), 4).tested;
    for bad in [
        ContextMemory { block: 100, ..SMALL },
        ContextMemory { n_local: 0, ..SMALL },
        ContextMemory { n_init: 1, ..SMALL },
        ContextMemory { anchor: BlockAnchor::Mean, certificate: Certificate::new(0.1), ..SMALL },
    ] {
        let refused = matches!(model.open(&exact(bad)), Err(Error::Unsupported(_)));
        assert!(refused, "{bad:?} is refused");
    }
    let mut leaning = tiny("qwen2", GgmlType::F32);
    for node in &mut Arc::make_mut(&mut leaning).nodes {
        if let Op::Attention(at) = &mut node.op {
            at.score.alibi = Some(8.0);
        }
    }
    let made = Made::new(executor, &leaning, 4);
    let refused = matches!(made.tested.open(&exact(SMALL)), Err(Error::Unsupported(_)));
    assert!(refused, "ALiBi at a fixed distance is refused");
    let positions = FarPositions::Exact;
    let memory = exact(ContextMemory { positions, ..SMALL });
    let tokens = tokens(400, 47);
    let want = all_logits(&*made.oracle, &memory, &tokens, 400);
    let found = all_logits(&*made.tested, &memory, &tokens, 90);
    assert_close(&found, &want, 1e-9, "ALiBi at exact positions");
}
