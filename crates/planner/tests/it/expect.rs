//! Expected times from made-up rates: every term is counted as an executor runs it.

use models::{ModelConfig, Outline};
use planner::{
    AttentionRate, AttentionShape, Executed, Expected, LinearRate, Load, Overheads, Rates,
    ScanRate, ScanShape,
};
use program::{CacheType, ScanDims, ScanRule};
use quant::GgmlType;

const LAYERS: usize = 3;
const HIDDEN: usize = 512;
const INNER: usize = 1280;
const VOCAB: usize = 1000;
/// Six query heads of 128, and two key-value heads.
const Q: usize = 768;
const KV: usize = 256;

fn config(architecture: &str, tied_embeddings: bool) -> ModelConfig {
    let mut outline = Outline::new(architecture, VOCAB);
    let mut set = |keys: &[(&str, usize)]| {
        for (key, count) in keys {
            outline.set(key, *count as u32);
        }
    };
    set(&[
        ("block_count", LAYERS),
        ("embedding_length", HIDDEN),
        ("feed_forward_length", INNER),
        ("attention.head_count", 6),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 128),
        ("context_length", 4096),
    ]);
    if architecture == "qwen3moe" {
        set(&[
            ("expert_count", EXPERTS),
            ("expert_used_count", USED),
            ("expert_feed_forward_length", WIDTH),
        ]);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6f32);
    if !tied_embeddings {
        outline.tensor("output.weight");
    }
    outline.config().expect("a valid outline")
}

/// Matrices in Q8_0, but the table, which may also be the head, in Q4_0.
fn executed(architecture: &str, tied: bool) -> Executed {
    let ty = |name: &str, dims: &[u64]| match dims.len() {
        1 if name.starts_with("rope_freqs") => None,
        1 if name.ends_with(".bias") && architecture != "qwen2" => None,
        1 => Some(GgmlType::F32),
        _ if name.starts_with("token_embd") => Some(GgmlType::Q4_0),
        _ => Some(GgmlType::Q8_0),
    };
    let config = config(architecture, tied);
    let program = models::from_config(&config, &ty).expect("whole blocks");
    Executed::of(&program.program, CacheType::F16, CacheType::F16)
}

const SHAPE: AttentionShape = AttentionShape {
    n_heads: 6,
    n_kv_heads: 2,
    key_dim: 128,
    value_dim: 128,
    k: CacheType::F16,
    v: CacheType::F16,
};

/// A weight of Q8_0 takes 1 second a pass, or 1/8 a row from 8 rows on; one of Q4_0 half of that.
fn rates() -> Rates {
    let linear = |ty, factor: f64| LinearRate {
        ty,
        points: vec![(1, factor), (8, factor), (64, 8.0 * factor), (512, 64.0 * factor)],
        phase: 10.0,
    };
    let attention =
        AttentionRate { shape: SHAPE, step: 100.0, position: 0.5, token: 4.0, pair: 0.25 };
    Rates {
        linear: vec![linear(GgmlType::Q8_0, 1.0), linear(GgmlType::Q4_0, 0.5)],
        attention: vec![attention],
        latent: Vec::new(),
        scans: Vec::new(),
        overheads: Overheads { step: 1000.0, logit: 2.0, element: 0.125 },
    }
}

fn per_layer() -> f64 {
    (HIDDEN * (2 * Q + 2 * KV) + 3 * HIDDEN * INNER) as f64
}

#[test]
fn a_step_is_its_matrices_its_attention_and_what_they_cost_beside() {
    let step = executed("llama", false).step(30, &rates()).expect("everything was measured");
    let layers = LAYERS as f64;
    let want = Expected {
        linear: layers * per_layer(),
        attention: layers * (100.0 + 0.5 * 31.0),
        states: 0.0,
        head: (VOCAB * HIDDEN) as f64,
        rest: 0.0,
        // the embedding, four phases of matrices a layer, the head
        phases: 10.0 * (1.0 + 4.0 * layers + 1.0),
        step: 1000.0 + 2.0 * VOCAB as f64,
    };
    assert_eq!(step, want);
    let sum = want.linear + want.attention + want.head + want.phases + want.step;
    assert_eq!(step.total(), sum);

    // a tied head has the table's type
    let tied = executed("llama", true).step(30, &rates()).expect("everything was measured");
    assert_eq!(tied.head, 0.5 * (VOCAB * HIDDEN) as f64);
    assert_eq!(tied.linear, want.linear);

    // norms of queries and keys stand alone, in one phase
    let normed = executed("qwen3", false).step(30, &rates()).expect("everything was measured");
    assert_eq!(normed.rest, layers * 0.125 * (Q + KV) as f64);
    assert_eq!(normed.phases, want.phases + 10.0 * layers);
}

/// Of a layer with experts: 4 of 16, 64 wide.
const EXPERTS: usize = 16;
const USED: usize = 4;
const WIDTH: usize = 64;

#[test]
fn experts_are_read_once_each_for_the_rows_they_share() {
    let executed = executed("qwen3moe", false);
    let layers = LAYERS as f64;
    let others = (HIDDEN * (2 * Q + 2 * KV + EXPERTS)) as f64;
    let one = (3 * HIDDEN * WIDTH) as f64;
    let step = executed.step(30, &rates()).expect("everything was measured");
    assert!((step.linear - layers * (others + USED as f64 * one)).abs() < 1e-3);
    // norms before router and experts are taken in; those of queries and keys stand alone
    assert_eq!(step.rest, layers * 0.125 * (Q + KV) as f64);
    // as with norms of queries and keys, and two phases of experts and one of the router in place of two
    assert_eq!(step.phases, 10.0 * (1.0 + 6.0 * layers + 1.0));

    // 512 rows use every expert, 128 each: 16 seconds a weight, where a row alone takes one
    let load = Load { past: 0, tokens: 512, outputs: 512 };
    let pass = executed.pass(&load, &rates()).expect("everything was measured");
    let all = layers * (64.0 * others + EXPERTS as f64 * 16.0 * one);
    assert!((pass.linear / all - 1.0).abs() < 1e-6);
    // an expert's rows are few in a chunk of 64, but at these rates 8 are enough
    assert_eq!(executed.chunk(&rates()), Some(64));
}

#[test]
fn a_prompt_works_for_one_row_where_one_row_is_wanted() {
    let (model, rates) = (executed("qwen2", false), rates());
    let pass = |past, tokens, outputs| {
        model.pass(&Load { past, tokens, outputs }, &rates).expect("everything was measured")
    };
    let all = pass(0, 64, 64);
    assert_eq!(all.linear, 8.0 * LAYERS as f64 * per_layer());
    assert_eq!(all.head, 8.0 * (VOCAB * HIDDEN) as f64);
    // behind the last layer's attention, three matrices of feed-forward and the output projection
    let behind = (HIDDEN * Q + 3 * HIDDEN * INNER) as f64;
    let one = pass(0, 64, 1);
    assert_eq!(one.linear, all.linear - 7.0 * behind);
    assert_eq!(one.attention, all.attention, "attention sees every token");
    assert_eq!(one.head, (VOCAB * HIDDEN) as f64);
    // without an output these phases do nothing
    let none = pass(0, 64, 0);
    assert_eq!(none.linear, all.linear - 8.0 * behind);
    assert_eq!((none.head, none.phases), (0.0, one.phases - 40.0));

    let whole = model.prefill(0..128, 64, &rates).expect("everything was measured");
    assert_eq!(whole, pass(0, 64, 0).plus(&pass(64, 64, 1)));
    assert_eq!(model.prefill(5..5, 64, &rates), Some(Expected::default()));
    // many chunks are taken together, which changes nothing where time grows in proportion to what is cached
    let passes = planner::cost::chunks(64..20_000, 16);
    let sum: f64 = passes.map(|l| pass(l.past, l.tokens, l.outputs).total()).sum();
    let together = model.prefill(64..20_000, 16, &rates).expect("everything was measured").total();
    assert!((together / sum - 1.0).abs() < 1e-3, "{together} {sum}");
}

/// What recurs takes what was measured of its rule; what that was not, as many numbers of norms.
#[test]
fn states_take_what_was_measured_of_their_form() {
    let config = models::find_published("mamba2-1.3b").expect("it is listed");
    let ty = |_: &str, dims: &[u64]| match dims {
        [_] | [..32, _] => Some(GgmlType::F32),
        _ => Some(GgmlType::Q8_0),
    };
    let program = models::from_config(&config, &ty).unwrap().program;
    let model = Executed::of(&program, CacheType::F16, CacheType::F16);
    let [shape] = model.wanted().scans[..] else { panic!("one shape") };
    let dims = ScanDims { n_heads: 64, n_key_heads: 1, key_dim: 128, value_dim: 64, ..shape.dims };
    assert_eq!(shape, ScanShape { rule: ScanRule::Ssd, dims, by_row: false });
    let mut rates = rates();
    let states = |rates: &Rates, tokens| {
        let load = Load { past: 9, tokens, outputs: 1 };
        model.pass(&load, rates).expect("all else was measured").states
    };
    // three multiply-adds with each number
    let elements = 3.0 * (48 * 64 * 128 * 64 / 16) as f64;
    assert_eq!(states(&rates, 1), 0.125 * elements);
    // twice as many heads were measured
    let dims = ScanDims { n_heads: 128, ..dims };
    rates.scans = vec![ScanRate { shape: ScanShape { dims, ..shape }, step: 4.0, token: 0.5 }];
    assert_eq!(rates.missing(&model.wanted()).scans, [shape]);
    assert_eq!((states(&rates, 1), states(&rates, 512)), (48.0 * 2.0, 48.0 * 0.25 * 512.0));
}

#[test]
fn what_was_not_measured_is_not_expected() {
    let model = executed("llama", true);
    let wanted = model.wanted();
    assert_eq!(wanted.types, [GgmlType::Q8_0, GgmlType::Q4_0]);
    assert_eq!(wanted.attention, [SHAPE]);
    let mut rates = rates();
    rates.linear.pop();
    assert_eq!(model.step(0, &rates), None);
    assert_eq!(rates.missing(&wanted).types, [GgmlType::Q4_0]);
    assert_eq!(Executed::of(&program::Program::default(), SHAPE.k, SHAPE.v).wanted().types, []);
}

#[test]
fn the_chunk_is_the_smallest_as_good_as_the_largest() {
    let model = executed("llama", false);
    let chunk = |at_64: f64, at_256: f64, phase: f64| {
        let points = vec![(1, 1.0), (64, 64.0 * at_64), (256, 256.0 * at_256), (512, 512.0)];
        let linear = vec![LinearRate { ty: GgmlType::Q8_0, points, phase }];
        model.chunk(&Rates { linear, ..Rates::default() })
    };
    assert_eq!(chunk(1.005, 1.0, 0.0), Some(64));
    // what a row of 64 takes longer, every prompt would pay
    assert_eq!(chunk(1.02, 1.0, 0.0), Some(128));
    // 128 lies between: 1.0367 a row
    assert_eq!(chunk(1.1, 1.005, 0.0), Some(256));
    assert_eq!(chunk(1.2, 1.1, 0.0), Some(512));
    // phases are shared by the rows of a chunk
    assert_eq!(chunk(1.0, 1.0, per_layer()), Some(256));
    assert_eq!(model.chunk(&Rates::default()), None);
}
