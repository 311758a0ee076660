use std::time::Duration;

use program::{
    CacheOptions, CacheType, Ceilings, ComputeCeiling, Executor as _, Outputs, PhaseTime,
    ReadCeiling, Sequence, Step,
};

use super::*;
use crate::ceilings::KnownCeilings;

fn explain(test: Test, speed: f64) -> Explanation {
    let gguf = gguf::Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
    let program = models::load(&gguf).expect("it loads").program;
    let ceilings = Ceilings {
        read: vec![ReadCeiling { threads: 2, working_set: 1 << 30, bytes_per_second: speed }],
        compute: vec![ComputeCeiling {
            threads: 2,
            f32_macs_per_second: speed,
            int8_macs_per_second: speed,
        }],
        barrier: Duration::from_nanos(100),
        submission: Duration::ZERO,
    };
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 512);
    let known = KnownCeilings { ceilings, doubt: None };
    let limits = Limits::new(&program, &cache, 64, &known, 2).expect("measured");
    let head = head(&program)[0].to_owned();
    let phase = |name: &str, kind, micros| PhaseTime {
        name: name.to_owned(),
        kind,
        elapsed: Duration::from_micros(micros),
        weight_bytes: 0,
    };
    let phases = vec![
        phase("token_embd.weight", "embed", 1),
        phase("blk.0.attn_q.weight", "linear", 40_000),
        phase("blk.0.attn", "attention", 8_000),
        phase("blk.0.scan", "scan", 700),
        phase("blk.0.conv", "conv", 300),
        phase("", "rows", 2),
        phase(&head, "linear", 20_000),
    ];
    let timing = Timing {
        wall: Duration::from_millis(70),
        sampling: Duration::from_micros(if test.n_gen > 0 { 500 } else { 0 }),
        phases,
    };
    Explanation::new(&program, test, &timing, &limits)
}

fn group<'a>(explanation: &'a Explanation, name: &str) -> &'a Group {
    explanation.groups.iter().find(|group| group.name == name).expect("every part is there")
}

#[test]
fn parts_and_overlap_add_up_to_the_gap() {
    for test in [
        Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false },
        Test { n_prompt: 130, n_gen: 0, depth: 64, greedy: false },
        Test { n_prompt: 10, n_gen: 2, depth: 7, greedy: false },
    ] {
        for speed in [1e9, 1e12] {
            let explained = explain(test, speed);
            let sampling = if test.n_gen > 0 { 0.0005 } else { 0.0 };
            let gaps: f64 = explained.groups.iter().map(|group| group.gap_seconds).sum();
            let gap = 0.07 + sampling - explained.limit_seconds;
            assert!((gaps + explained.overlap_seconds - gap).abs() < 1e-9, "{explained:?}");
            assert!(explained.overlap_seconds >= -1e-12, "{explained:?}");
            assert!((explained.measured_seconds - 0.07 - sampling).abs() < 1e-12);
            let sorted = explained.groups.windows(2);
            assert!(sorted.into_iter().all(|g| g[0].gap_seconds >= g[1].gap_seconds));
        }
    }
}

#[test]
fn each_phase_is_counted_where_it_belongs() {
    let explained = explain(Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false }, 1e12);
    let measured = |name| group(&explained, name).measured_seconds;
    let near = |seconds: f64, want: f64| assert!((seconds - want).abs() < 1e-6, "{seconds}");
    near(measured("weights"), 0.04);
    near(measured("attention"), 0.008);
    near(measured("head"), 0.02);
    near(measured("states"), 0.001);
    near(measured("unaccounted"), 0.07 - 0.069_003);
    near(measured("sampling"), 0.0005);
    assert_eq!(explained.groups[0].name, "weights", "the largest gap comes first");
    let text = explained.text(None);
    for part in ["ms a token", "weights take 57 % of the time", "-> ", "####", "1 phases a "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_picture_names_every_part() {
    let explained = explain(Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false }, 1e12);
    let svg = picture("a model", &[&explained, &explained]).svg();
    for part in ["tg4", "a model", "weights", "attention", "measured", "limit: "] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn more_than_the_limit_is_said_and_no_share() {
    let explained = explain(Test { n_prompt: 130, n_gen: 0, depth: 0, greedy: false }, 1e6);
    assert_eq!((explained.share, explained.judged), (None, Some(Share::Above)));
    assert!(explained.remedies[0].contains("machine --refresh"), "{:?}", explained.remedies);
    assert!(group(&explained, "weights").gap_seconds < 0.0);
    let text = explained.text(None);
    assert!(text.contains("faster than the limit") && !text.contains("weights  100 %"), "{text}");
    for share in text.lines().filter_map(|line| line.split_once(" %")?.0.rsplit(' ').next()) {
        assert!(share.parse::<f64>().is_ok_and(|share| share <= 100.0), "{text}");
    }
    // and no part is judged that takes no time: 12,991 % of a head
    let small = Group { measured_seconds: 1e-9, ..group(&explained, "head").clone() };
    assert_eq!(small.share(explained.measured_seconds), None);
}

/// The demo's weights are in blocks of 32: that these unpack faster is no advice.
#[test]
fn advice_is_about_the_types_at_hand() {
    let mut explained = explain(Test { n_prompt: 130, n_gen: 0, depth: 0, greedy: false }, 1e12);
    let kind = explained.weights[0];
    assert_eq!((kind.bits, kind.ty), (32.0, "F32"));
    let step = Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false };
    let read = explained.remedy(group(&explained, "weights"), step);
    assert!(read.starts_with("F32 has 32.0 bits a weight: a type of fewer"), "{read}");
    let few = WeightKind { bits: 2.6, ty: "Q2_K", large_blocks: true };
    assert!(few.fewer_bits().contains("a smaller model"), "a type is no advice any more");
    let weights = group(&explained, "weights").clone();
    let int8 = Group { bound_by: Some("int8"), ..weights };
    let test = Test { n_prompt: 512, n_gen: 0, depth: 0, greedy: false };
    assert!(!kind.large_blocks);
    assert!(explained.remedy(&int8, test).contains("more cores"));
    explained.weights[0] = WeightKind { large_blocks: true, ty: "Q4_K", ..kind };
    assert!(explained.remedy(&int8, test).starts_with("Q4_K is in blocks of 256"));
    let barriers = explained.remedy(group(&explained, "barriers"), test);
    assert!(barriers.contains("each of 7 phases"), "{barriers}");
}

/// Of every architecture, shared experts before the head or not.
#[test]
fn the_time_of_a_head_is_its_own() {
    let families = conformance::Family::ALL.into_iter();
    for name in families.flat_map(|family| family.architectures()) {
        let program = conformance::tiny_model(
            &conformance::tiny_config(name, 64, false),
            quant::GgmlType::F32,
        );
        let weights = conformance::MemoryWeights::random(&program, 1);
        let cpu = executors::ExecutorOptions { threads: Some(1), ..Default::default() }.cpu();
        let model = cpu.load(std::sync::Arc::clone(&program), &weights, &mut |_| ()).unwrap();
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 8);
        let session = model.open(&cache).unwrap();
        let sequence =
            Sequence { session, tokens: &[1, 2], outputs: Outputs::LAST, prompt: None, rows: &[] };
        model.step(&Step { sequences: &[sequence] }).unwrap().single().unwrap();
        let head = head(&program);
        let phases = model.phases();
        let of_head = phases.iter().filter(|p| kind_of(&head, &p.name, p.kind) == CostKind::Head);
        assert_eq!(of_head.count(), 1, "{name}: {phases:?} {head:?}");
    }
}
