//! What the CPU says it supports is what it loads: every op, every variant of it, every type of its weights.

use std::sync::Arc;

use cpu::{Cpu, Options};
use program::{
    Act, Attention, CacheKind, CacheSpec, ConvWeights, Error, Executor, ExpertWeights, Gate,
    Gating, GramHead, Grams, IndexScore, Indexer, LatentAttention, LatentUp, LinearWeight, Lookup,
    Mask, Op, OutputKind, Program, Recorder, Result, Rope, RopePairs, RopeScaling, Router, Rows,
    ScanKind, Score, Temperature, UnitScore, ValueId, WeightId, WeightSource, WeightSpec,
    read_memory,
};
use quant::GgmlType;

/// Columns: whole blocks of every type.
const COLS: usize = 256;

/// Sets one field of a plain score.
type ScoreChange = fn(&mut Score);

/// Every weight is zero.
struct Zeros(Vec<u8>);

impl WeightSource for Zeros {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        read_memory(&self.0[..spec.bytes() as usize], spec, first, out)
    }
}

/// What makes a value of rows of `COLS` with weights of a type.
type Record = Box<dyn Fn(&Recorder, GgmlType, ValueId) -> Result<ValueId>>;

fn weight(r: &Recorder, name: &str, ty: GgmlType, rows: usize, cols: usize) -> WeightId {
    r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 })
}

fn matrix(r: &Recorder, name: &str, x: ValueId, rows: usize) -> Result<ValueId> {
    r.linear(name, x, weight(r, name, GgmlType::F32, rows, COLS))
}

fn rope(r: &Recorder, ty: GgmlType, dims: usize) -> Rope {
    let factors = (dims == 2 * COLS).then(|| weight(r, "factors", ty, 1, COLS));
    let (pairs, scaling) = (RopePairs::HalfSplit, RopeScaling::None);
    Rope { pairs, dims, theta: 1e4, scaling, factors }
}

/// Attention with `n_heads` of `key_dim`.
fn attention(
    r: &Recorder,
    ty: GgmlType,
    x: ValueId,
    (n_heads, key_dim): (usize, usize),
    change: &dyn Fn(&mut Score),
) -> Result<ValueId> {
    let mut score = Score::causal(0.1);
    change(&mut score);
    let window = match score.mask {
        Mask::Window(n) => Some(n as usize),
        _ => None,
    };
    let kind = CacheKind::Heads { n_kv_heads: n_heads, key_dim, value_dim: 32, window };
    let cache = r.cache(CacheSpec { layer: 0, kind });
    let q = r.view("q", matrix(r, "wq", x, n_heads * key_dim)?, n_heads)?;
    let k = r.view("k", matrix(r, "wk", x, n_heads * key_dim)?, n_heads)?;
    let v = r.view("v", matrix(r, "wv", x, n_heads * 32)?, n_heads)?;
    let at = Attention { score, ..Attention::causal(cache, Some(rope(r, ty, key_dim)), 0.1) };
    let a = r.attention("attn", at, &[q, k, v])?;
    r.linear("out", a, weight(r, "wo", GgmlType::F32, COLS, n_heads * 32))
}

fn latent(r: &Recorder, ty: GgmlType, x: ValueId, joint: bool, plain: bool) -> Result<ValueId> {
    let (heads, dn, dr, dv, rank) = (2, COLS, 2 * COLS, COLS, COLS);
    let kind = CacheKind::Latent { rank, rope_dim: dr };
    let cache = r.cache(CacheSpec { layer: 0, kind });
    let q = r.view("q_heads", matrix(r, "wq", x, heads * (dn + dr))?, heads)?;
    let kv = matrix(r, "wkv", x, rank + dr)?;
    let inputs = [
        r.slice("q_nope", q, 0, dn)?,
        r.slice("q_pe", q, dn, dr)?,
        r.slice("c", kv, 0, rank)?,
        r.slice("k_pe", kv, rank, dr)?,
    ];
    let up = if joint {
        LatentUp::Joint { kv_b: weight(r, "kv_b", ty, heads * (dn + dv), rank) }
    } else {
        let k_b = weight(r, "k_b", ty, heads * rank, dn);
        LatentUp::Split { k_b, v_b: weight(r, "v_b", ty, heads * dv, rank) }
    };
    let at = LatentAttention::causal(cache, (!plain).then(|| rope(r, ty, dr)), up, 0.1);
    let a = r.latent_attention("attn", at, inputs)?;
    r.linear("out", a, weight(r, "wo", GgmlType::F32, COLS, heads * dv))
}

/// Latent attention over what an indexer chose.
fn indexer(r: &Recorder, ty: GgmlType, x: ValueId) -> Result<ValueId> {
    let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Keys { dim: 2 * COLS } });
    let at = Indexer {
        cache,
        rope: Some(rope(r, ty, 2 * COLS)),
        rope_start: 0,
        keys_back: 0,
        score: IndexScore::PerHead,
        unit: 1,
        unit_score: UnitScore::Greatest,
        n_units: 5,
        n_last: 0,
    };
    let k = matrix(r, "index_k", x, 2 * COLS)?;
    r.indexer("chosen", at, &[matrix(r, "index_q", x, 2 * COLS)?, k])
}

fn router(gating: Gating, bias: Option<WeightId>) -> Router {
    Router {
        n_used: 2,
        gating,
        bias,
        groups: None,
        normalize: true,
        scale: 1.0,
        factors: None,
        per_chunk: 1,
    }
}

fn experts(r: &Recorder, ty: GgmlType, x: ValueId, act: Gate) -> Result<ValueId> {
    let n_experts = 3;
    let scores = matrix(r, "scores", x, n_experts)?;
    let routes = r.route("routes", scores, router(Gating::Softmax, None))?;
    let [gate, up] = ["gate", "up"].map(|name| weight(r, name, ty, n_experts * COLS, COLS));
    let down = weight(r, "down", ty, n_experts * COLS, COLS);
    let weights = ExpertWeights { gate, up, down, biases: None, n_experts, weighs_inputs: false };
    r.experts("experts", weights, act, x, routes)
}

fn acts() -> Vec<Act> {
    use Act::{Exp, Gelu, GeluErf, Identity, Relu, Relu2, Sigmoid, Silu, Softcap, Softplus, Tanh};
    vec![Silu, Sigmoid, Gelu, GeluErf, Relu, Relu2, Softplus, Tanh, Exp, Identity, Softcap(30.0)]
}

/// What recurs.
fn recurrent(add: &mut dyn FnMut(String, Record)) {
    add(
        "causal_conv".into(),
        Box::new(|r, ty, x| {
            // taps of a channel are a whole block
            let taps = weight(r, "taps", ty, COLS, COLS);
            let bias = Some(weight(r, "bias", ty, 1, COLS));
            r.causal_conv("conv", x, ConvWeights { taps, bias }, Some(Act::Silu))
        }),
    );
    add(
        "ssd_scan".into(),
        Box::new(|r, ty, x| {
            let heads = r.view("heads", x, COLS)?;
            let [a, d] = ["a", "d"].map(|name| weight(r, name, ty, 1, COLS));
            r.scan("scan", ScanKind::Ssd { a, d }, false, &[heads, heads, heads, x])
        }),
    );
    add(
        "delta_net".into(),
        Box::new(|r, _, x| {
            let (heads, beta) = (r.view("heads", x, 4)?, matrix(r, "beta", x, 4)?);
            let kind = ScanKind::Delta { eps: 1e-6 };
            r.scan("scan", kind, false, &[heads, heads, heads, beta, beta])
        }),
    );
}

fn grams(r: &Recorder, ty: GgmlType) -> Result<ValueId> {
    let id = r.ids("ids")?;
    let heads = vec![GramHead { start: 0, n_rows: 7 }];
    let grams = Grams { multipliers: vec![1, 3], heads, end: 0 };
    let ids = r.concat("both", &[id, r.row_before("before", id)?])?;
    r.grams("grams", ids, weight(r, "rows", ty, 7, COLS), grams)
}

fn records() -> Vec<(String, Record)> {
    let mut all: Vec<(String, Record)> = Vec::new();
    let mut add = |name: String, record: Record| all.push((name, record));
    add("embed".into(), Box::new(|r, ty, _| r.embed(weight(r, "other", ty, 7, COLS))));
    for (name, by, rows) in [("positions", Lookup::Position, 7), ("only", Lookup::Only, 1)] {
        let record = move |r: &Recorder, ty, _| r.lookup(name, weight(r, name, ty, rows, COLS), by);
        add(name.into(), Box::new(record));
    }
    add(
        "rms_norm".into(),
        Box::new(|r, ty, x| r.rms_norm("norm", x, weight(r, "norm", ty, 1, COLS), 1e-6)),
    );
    add(
        "linear".into(),
        Box::new(|r, ty, x| {
            let bias = Some(weight(r, "bias", ty, 1, COLS));
            r.linear("y", x, LinearWeight { weight: weight(r, "w", ty, COLS, COLS), bias })
        }),
    );
    for act in acts() {
        add(format!("{act:?}"), Box::new(move |r, _, x| r.act("act", act, x)));
    }
    let gates = acts().into_iter().map(Gate::Act).chain([
        Gate::SwigluOai { alpha: 1.7, limit: 7.0 },
        Gate::ClampedSwiglu { limit: 7.0, after: true },
        Gate::Situ { gate: 4.0, up: 8.0 },
    ]);
    for gate in gates {
        add(format!("gated {gate:?}"), Box::new(move |r, _, x| r.gated_act("gated", gate, x, x)));
    }
    add("means".into(), Box::new(|r, _, x| r.mean_rows("means", x)));
    add("elementwise".into(), Box::new(|r, _, x| r.add("sum", x, r.scale("scaled", x, 2.0)?)));
    let scores: Vec<(&str, ScoreChange)> = vec![
        ("causal", |_| ()),
        ("window", |score| score.mask = Mask::Window(7)),
        ("chunk", |score| score.mask = Mask::Chunk(8)),
        ("full", |score| score.mask = Mask::Full),
        ("around", |score| score.mask = Mask::Around(7)),
        ("softcap", |score| score.softcap = Some(50.0)),
        ("temperature", |score| {
            score.temperature = Some(Temperature { beta: 0.1, floor: 8192.0, offset: 1.0 });
        }),
        ("alibi", |score| score.alibi = Some(8.0)),
    ];
    for (name, change) in scores {
        let record = move |r: &Recorder, ty, x| attention(r, ty, x, (2, 2 * COLS), &change);
        add(format!("attention {name}"), Box::new(record));
    }
    add(
        "attention with sinks".into(),
        Box::new(|r, ty, x| {
            let sinks = weight(r, "sinks", ty, 1, COLS);
            attention(r, ty, x, (COLS, 2), &|score| score.sinks = Some(sinks))
        }),
    );
    for (joint, plain) in [(false, false), (true, false), (true, true)] {
        let name = format!("latent attention, joint {joint}, without rotation {plain}");
        add(name, Box::new(move |r, ty, x| latent(r, ty, x, joint, plain)));
    }
    for gating in [Gating::Softmax, Gating::Sigmoid] {
        let record = move |r: &Recorder, ty, x| {
            let bias = Some(weight(r, "bias", ty, 1, COLS));
            r.route("routes", matrix(r, "scores", x, COLS)?, router(gating, bias))
        };
        add(format!("route by {gating:?}"), Box::new(record));
    }
    add(
        "multiply".into(),
        Box::new(|r, ty, x| r.multiply("factors", x, weight(r, "factors", ty, 1, COLS))),
    );
    add("concat".into(), Box::new(|r, _, x| r.concat("both", &[x, x])));
    add(
        "mix".into(),
        Box::new(|r, _, x| r.mix("mixed", matrix(r, "by", x, 3)?, matrix(r, "x", x, COLS)?)),
    );
    add("resize".into(), Box::new(|r, _, x| r.resize("resized", x, r.scale("twice", x, 2.0)?)));
    add("sums".into(), Box::new(|r, _, x| r.sum_groups("sums", r.view("groups", x, 8)?)));
    add("excess".into(), Box::new(|r, _, x| r.excess("excess", x, 1.5)));
    add("shift".into(), Box::new(|r, _, x| r.shift("shift", x, 1.5)));
    add("ids".into(), Box::new(|r, _, _| r.ids("ids")));
    add("grams".into(), Box::new(|r, ty, _| grams(r, ty)));
    add("signed_root".into(), Box::new(|r, _, x| r.signed_root("root", x, 1e-6)));
    add("turn".into(), Box::new(|r, _, x| r.turn("turned", r.view("groups", x, 8)?)));
    add("softmax".into(), Box::new(|r, _, x| r.softmax("softmax", r.view("groups", x, 8)?)));
    add(
        "sinkhorn".into(),
        Box::new(|r, _, x| r.sinkhorn("balanced", r.view("square", x, 16)?, 3, 1e-6)),
    );
    add("indexer".into(), Box::new(indexer));
    recurrent(&mut add);
    for act in [Act::Silu, Act::Gelu] {
        let record = move |r: &Recorder, ty, x| experts(r, ty, x, Gate::Act(act));
        add(format!("experts of {act:?}"), Box::new(record));
    }
    all
}

/// A number for each op: a new one does not compile until it is thought of here and in `records`.
fn number(op: &Op) -> usize {
    match op {
        Op::Embed { .. } => 0,
        Op::Norm(_) => 1,
        Op::Linear { .. } => 2,
        Op::Attention(_) => 3,
        Op::LatentAttention(_) => 4,
        Op::Act(_) => 5,
        Op::GatedAct(_) => 6,
        Op::Route(_) => 7,
        Op::Experts { .. } => 8,
        Op::Add => 9,
        Op::Scale(_) => 10,
        Op::View => 11,
        Op::Slice { .. } => 12,
        Op::SelectRows => 13,
        Op::Multiply { .. } => 14,
        Op::Concat => 15,
        Op::Mix => 16,
        Op::Resize => 17,
        Op::Excess { .. } => 18,
        Op::MeanRows => 19,
        Op::CausalConv(_) => 20,
        Op::Scan(_) => 21,
        Op::SumGroups => 22,
        Op::Shift(_) => 23,
        Op::Softmax => 24,
        Op::Sinkhorn { .. } => 25,
        Op::Indexer(_) => 26,
        Op::Turn => 27,
        Op::Ids => 28,
        Op::Grams { .. } => 29,
        Op::SignedRoot { .. } => 30,
    }
}

fn program(record: &Record, ty: GgmlType) -> Result<Arc<Program>> {
    let r = Recorder::new();
    let x = r.embed(weight(&r, "token_embd.weight", GgmlType::F32, 7, COLS))?;
    let y = r.view("joined", record(&r, ty, x)?, 1)?;
    let rows = match r.shape(y).rows {
        Rows::Tokens => r.select_rows("rows", y)?,
        Rows::Selected => y,
    };
    Ok(Arc::new(r.finish(&[(OutputKind::Logits, rows)])))
}

#[test]
fn what_is_supported_is_what_loads() {
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let mut seen = [false; 31];
    let (mut loaded, mut refused) = (0, 0);
    for (name, record) in records() {
        for ty in GgmlType::all() {
            let program = match program(&record, ty) {
                Ok(program) => program,
                Err(error) => panic!("{name} with {ty}: {error}"),
            };
            let says = program.nodes.iter().try_for_each(|node| {
                let weights = node.op.facts().weights;
                let types: Vec<_> = weights.iter().map(|used| program.weight(used.id).ty).collect();
                seen[number(&node.op)] = true;
                cpu.supports(&node.op, &types)
            });
            let most = program.weights.iter().map(WeightSpec::bytes).max().unwrap_or(0);
            let zeros = Zeros(vec![0; most as usize]);
            let loads = cpu.load(Arc::clone(&program), &zeros, &mut |_| ());
            match (says, loads) {
                (Ok(()), Ok(_)) => loaded += 1,
                (Err(Error::Unsupported(_)), Err(_)) => refused += 1,
                (says, loads) => panic!("{name} with {ty}: {says:?}, load: {:?}", loads.err()),
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen), "an op that no program has: {seen:?}");
    assert!(loaded > 100 && refused > 0, "{loaded} programs loaded, {refused} refused");
}
