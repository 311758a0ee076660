//! A layer with a window keeps what its window needs, counted.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use conformance::{Made, Random, tiny_config, tiny_model};
use cpu::{Cpu, Options};
use models::find_outline;
use program::{
    CacheKind, CacheOptions, CacheType, Executor, MemoryOptions, Outputs, Sequence, Step, StepOut,
};
use quant::GgmlType;

/// Positions of a block.
const POSITIONS: usize = 128;
/// Bytes of one block of one layer: 2 heads, keys and values of 16 in f16.
const BLOCK: u64 = POSITIONS as u64 * 2 * 2 * 16 * 2;

/// Of two layers the first sees 24 positions: it holds one block, or two where the window or the chunk crosses into the
/// next one, however long the context is.
#[test]
fn a_window_bounds_the_cache() {
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let program = tiny_model(&tiny_config("gemma3", 64, false), GgmlType::Q8_0);
    assert_eq!(
        program.caches.iter().map(|c| c.kind.window()).collect::<Vec<_>>(),
        [Some(24), None]
    );
    let model = Made::new(&cpu, &program, 3).tested;
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 2048);
    let session = model.open(&cache).unwrap();
    let tokens = Random::new(1).tokens(2048, 97);
    let mut most = 0;
    for chunk in tokens.chunks(100) {
        let sequence =
            Sequence { session, tokens: chunk, outputs: Outputs::NONE, prompt: None, rows: &[] };
        model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single).unwrap();
        most = most.max(model.cache_bytes(session).unwrap());
        let len = model.len(session).unwrap();
        model.commit(session, len).unwrap();
        let full = len.div_ceil(POSITIONS) as u64;
        let held = model.cache_bytes(session).unwrap() / BLOCK - full;
        assert!(held <= 2, "{held} blocks of the window at {len} positions");
    }
    assert_eq!(model.cache_bytes(session).unwrap(), (2048 / POSITIONS as u64 + 1) * BLOCK);
    let options = MemoryOptions { cache, sessions: 1, chunk: 100 };
    let foretold = cpu.memory(&program, &options).unwrap().cache;
    assert!(most <= foretold && foretold <= most + BLOCK, "{foretold} foretold, {most} taken");

    // rows within the window can still be cut, earlier ones have to be computed again
    assert_eq!(model.truncate(session, 2048).unwrap(), 2048);
    assert_eq!(model.truncate(session, 1950).unwrap(), 1950);
    assert_eq!(model.truncate(session, 1700).unwrap(), 0);
    assert_eq!((model.len(session).unwrap(), model.cache_bytes(session).unwrap()), (0, 0));
}

/// Gemma 3 at 32,768 tokens: the caches are those of the published models, all else is made small. What the session holds
/// and all that its pool takes from the system, free blocks included, are what was foretold, within 3 %.
#[test]
fn gemma_3_holds_what_its_windows_need() {
    const LEN: usize = 32_768;
    const CHUNK: usize = 64;
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    for name in ["gemma-3-1b", "gemma-3-4b"] {
        let mut outline = find_outline(name).unwrap();
        outline.set("embedding_length", 64_u32).set("feed_forward_length", 64_u32).vocab_size(97);
        let config = outline.config().unwrap();
        let program = tiny_model(&config, GgmlType::Q8_0);
        let model = Made::new(&cpu, &program, 3).tested;
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, LEN);
        let options = MemoryOptions { cache, sessions: 1, chunk: CHUNK };
        let foretold = cpu.memory(&program, &options).unwrap().cache as f64;
        let session = model.open(&cache).unwrap();
        model.make_up(session, LEN - 3 * CHUNK).unwrap();
        let mut most = 0;
        for tokens in Random::new(1).tokens(3 * CHUNK, 97).chunks(CHUNK) {
            let sequence =
                Sequence { session, tokens, outputs: Outputs::NONE, prompt: None, rows: &[] };
            model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single).unwrap();
            most = most.max(model.cache_bytes(session).unwrap());
            model.commit(session, model.len(session).unwrap()).unwrap();
        }
        assert_eq!(model.len(session).unwrap(), LEN);
        let taken = model.stats().spilled.memory;
        eprintln!("{name}: {foretold} bytes foretold, {most} held, {taken} taken");
        for bytes in [most, taken] {
            let ratio = bytes as f64 / foretold;
            assert!((0.97..=1.0).contains(&ratio), "{name}: {bytes} of {foretold} bytes");
        }
        let position = |kind: &CacheKind| kind.position_bytes(cache.k, cache.v) * LEN as u64;
        let full: u64 = program.caches.iter().map(|cache| position(&cache.kind)).sum();
        assert!(taken * 4 < full, "{name}: {full} bytes without windows");
    }
}
