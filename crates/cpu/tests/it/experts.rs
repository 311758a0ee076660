//! Mixtures of experts on the CPU and in the interpreter: same results, and the same bits however rows are cut, by
//! whatever instruction set.

use std::sync::Arc;

use conformance::{MemoryWeights, assert_close, assert_same_bits, bound};
use cpu::{Cpu, Options};
use kernels::Isa;
use program::interpreter::Interpreter;
use program::{
    Act, CacheOptions, CacheType, Executor, ExpertWeights, Gating, GroupScore, Groups, Model,
    OutputKind, Outputs, Program, Recorder, Result, Router, Sequence, Step, StepOut, ValueId,
    WeightSpec,
};
use quant::GgmlType;

const VOCAB: usize = 97;

/// A layer as published models have it.
#[derive(Clone)]
struct Layer {
    ty: GgmlType,
    down_ty: GgmlType,
    hidden: usize,
    width: usize,
    n_experts: usize,
    router: Router,
    biased: bool,
    shared: Shared,
}

/// What stands beside the experts.
#[derive(Clone, Copy, PartialEq)]
enum Shared {
    None,
    Plain,
    /// Times the sigmoid of a gate.
    Weighed,
}

fn router(n_used: usize) -> Router {
    let gating = Gating::Sigmoid;
    Router {
        n_used,
        gating,
        bias: None,
        groups: None,
        normalize: true,
        scale: 1.5,
        factors: None,
        per_chunk: 1,
    }
}

fn layer(ty: GgmlType, [hidden, width, n_experts, n_used]: [usize; 4]) -> Layer {
    let (router, shared) = (router(n_used), Shared::None);
    Layer { ty, down_ty: ty, hidden, width, n_experts, router, biased: true, shared }
}

fn record(r: &Recorder, layer: &Layer) -> Result<ValueId> {
    let Layer { ty, down_ty, hidden, width, n_experts, .. } = *layer;
    let weight = |name: &str, ty, rows, cols| {
        r.weight(WeightSpec { name: format!("{name}.weight"), ty, rows, cols, start: 0 })
    };
    let x = r.embed(weight("token_embd", GgmlType::F32, VOCAB, hidden))?;
    let h = r.rms_norm("norm", x, weight("norm", GgmlType::F32, 1, hidden), 1e-6)?;
    let scores = r.linear("scores", h, weight("scores", GgmlType::F32, n_experts, hidden))?;
    let spec = || WeightSpec {
        name: "probs.bias".into(),
        ty: GgmlType::F32,
        rows: 1,
        cols: n_experts,
        start: 0,
    };
    let bias = layer.biased.then(|| r.weight(spec()));
    let routes = r.route("routes", scores, Router { bias, ..layer.router.clone() })?;
    let weights = ExpertWeights {
        gate: weight("gate_exps", ty, n_experts * width, hidden),
        up: weight("up_exps", ty, n_experts * width, hidden),
        down: weight("down_exps", down_ty, n_experts * hidden, width),
        biases: None,
        n_experts,
        weighs_inputs: false,
    };
    let mut y = r.experts("experts", weights, Act::Silu, h, routes)?;
    if layer.shared != Shared::None {
        let gate = r.linear("gate", h, weight("gate", ty, width, hidden))?;
        let up = r.linear("up", h, weight("up", ty, width, hidden))?;
        let act = r.gated_act("act", Act::Silu, gate, up)?;
        let mut shared = r.linear("down", act, weight("down", down_ty, hidden, width))?;
        if layer.shared == Shared::Weighed {
            let gate = r.linear("shared", h, weight("shared", GgmlType::F32, 1, hidden))?;
            shared = r.gated_act("weighed", Act::Sigmoid, gate, shared)?;
        }
        y = r.add("sum", y, shared)?;
    }
    let x = r.add("residual", x, y)?;
    r.select_rows("rows", x)
}

fn program(layer: &Layer) -> Program {
    let recorder = Recorder::new();
    let rows = record(&recorder, layer).expect("shapes fit");
    recorder.finish(&[(OutputKind::Logits, rows)])
}

/// A layer with weights, whose router prefers experts by `bias`.
fn made(layer: &Layer, bias: Option<&[f32]>) -> (Arc<Program>, MemoryWeights) {
    let program = program(layer);
    let mut weights = MemoryWeights::random(&program, 3);
    if let Some(bias) = bias {
        let spec = program.weights.iter().find(|w| w.name == "probs.bias");
        weights.set(spec.expect("the router has a bias"), bias);
    }
    (Arc::new(program), weights)
}

fn load(
    executor: &dyn Executor,
    (program, weights): &(Arc<Program>, MemoryWeights),
) -> Box<dyn Model> {
    executor.load(Arc::clone(program), weights, &mut |_| {}).expect("weights fit")
}

/// What all of `n` rows become, fed `chunk` at a time.
fn rows(model: &dyn Model, n: usize, chunk: usize) -> Vec<f32> {
    let (k, v) = (CacheType::F32, CacheType::F32);
    let session = model.open(&CacheOptions::new(k, v, 4096)).expect("opens");
    let tokens: Vec<u32> = (0..n).map(|i| ((i * 41 + 7) % VOCAB) as u32).collect();
    let mut all = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        all.extend(out.expect("steps").into_logits().logits);
    }
    model.close(session);
    all
}

fn cpu(threads: usize, isa: Option<Isa>) -> Cpu {
    Cpu::new(&Options { threads: Some(threads), isa, ..Options::default() })
}

#[test]
fn any_number_of_rows() {
    for (ty, down_ty) in [
        (GgmlType::F32, GgmlType::F32),
        (GgmlType::F16, GgmlType::Q8_0),
        (GgmlType::Q4_0, GgmlType::F16),
        (GgmlType::Q5_1, GgmlType::Q8_0),
    ] {
        for (n_experts, n_used, shared) in
            [(4, 1, Shared::None), (11, 3, Shared::Plain), (40, 8, Shared::Weighed)]
        {
            let shape = [64, 96, n_experts, n_used];
            let layer = Layer { down_ty, shared, ..layer(ty, shape) };
            let made = made(&layer, None);
            let (want, got) = (load(&Interpreter, &made), load(&cpu(2, None), &made));
            for n in [1, 2, 4, 5, 9, 21, 33, 70] {
                let what = format!("{ty}, {down_ty}, {n_used} of {n_experts}, {n} rows");
                let bound = bound(ty).max(bound(down_ty));
                assert_close(&rows(&*got, n, n), &rows(&*want, n, n), bound, &what);
            }
        }
    }
}

#[test]
fn widths_that_fill_no_panel() {
    for [hidden, width] in [[17, 5], [50, 33], [33, 100]] {
        for shared in [Shared::None, Shared::Plain, Shared::Weighed] {
            let layer = Layer { shared, ..layer(GgmlType::F32, [hidden, width, 7, 3]) };
            let made = made(&layer, None);
            let (want, got) = (load(&Interpreter, &made), load(&cpu(3, None), &made));
            for n in [1, 4, 5, 67] {
                let what = format!("{hidden} and {width}, {n} rows");
                assert_close(&rows(&*got, n, n), &rows(&*want, n, n), 1e-10, &what);
            }
        }
    }
}

/// Routers of Qwen2-MoE, Qwen3-MoE, DeepSeek-V2 and -V3.
#[test]
fn routers_of_published_models() {
    let softmax = Router { gating: Gating::Softmax, ..router(6) };
    let groups =
        |score, n_used| Router { groups: Some(Groups { n_groups: 4, n_used, score }), ..router(6) };
    let routers = [
        (Router { normalize: false, scale: 1.0, ..softmax.clone() }, false),
        (softmax.clone(), false),
        (Router { gating: Gating::Softmax, scale: 16.0, ..groups(GroupScore::Max, 2) }, false),
        (groups(GroupScore::TopTwoSum, 3), true),
    ];
    for (router, biased) in routers {
        let layer = Layer { router, biased, ..layer(GgmlType::F32, [64, 32, 32, 6]) };
        let made = made(&layer, None);
        let (want, got) = (load(&Interpreter, &made), load(&cpu(2, None), &made));
        for n in [1, 3, 40] {
            assert_close(&rows(&*got, n, n), &rows(&*want, n, n), 1e-10, &format!("{n} rows"));
        }
    }
}

/// Preferences by which every row uses expert 1, half of the experts are never used, or all are used alike.
fn preferences(n_experts: usize) -> [Vec<f32>; 3] {
    let by = |f: &dyn Fn(usize) -> f32| (0..n_experts).map(f).collect();
    [by(&|e| if e == 1 { 9.0 } else { 0.0 }), by(&|e| (e % 2) as f32 * 9.0), by(&|_| 0.0)]
}

#[test]
fn threads_chunks_and_instruction_sets_change_no_bit() {
    for (ty, down_ty) in [(GgmlType::Q8_0, GgmlType::Q8_0), (GgmlType::F32, GgmlType::Q4_0)] {
        let layer = Layer { down_ty, shared: Shared::Weighed, ..layer(ty, [64, 96, 12, 3]) };
        for bias in preferences(12) {
            let made = made(&layer, Some(&bias));
            let run = |threads, chunk, isa| rows(&*load(&cpu(threads, isa), &made), 300, chunk);
            let whole = run(1, 300, None);
            let cuts = [(2, 300), (3, 64), (5, 7), (2, 1)];
            for (threads, chunk) in cuts {
                let what = format!("{ty}, {threads} threads, chunks of {chunk}");
                assert_same_bits(&run(threads, chunk, None), &whole, &what);
            }
            for (name, isa) in Isa::NAMES {
                assert_same_bits(&run(2, 300, Some(*isa)), &whole, &format!("{ty}, {name}"));
            }
        }
    }
}

/// Every weight type, beside itself: many rows, few rows and single ones.
#[test]
fn chunks_change_no_bit_of_any_type() {
    for ty in GgmlType::all().filter(|ty| quant::format(*ty).is_some()) {
        let layer = layer(ty, [256, 256, 3, 2]);
        let made = made(&layer, None);
        let run = |threads, chunk| rows(&*load(&cpu(threads, None), &made), 20, chunk);
        let whole = run(2, 20);
        for (threads, chunk) in [(3, 6), (1, 1)] {
            assert_same_bits(&run(threads, chunk), &whole, &format!("{ty}, chunks of {chunk}"));
        }
    }
}

/// What a row becomes does not depend on where the rows beside it go.
#[test]
fn rows_do_not_see_each_other() {
    let layer = layer(GgmlType::Q8_0, [64, 64, 6, 2]);
    let model = load(&cpu(2, None), &made(&layer, None));
    let alone = rows(&*model, 60, 1);
    for chunk in [2, 11, 29, 60] {
        assert_same_bits(&rows(&*model, 60, chunk), &alone, &format!("chunks of {chunk}"));
    }
}

/// A step reads the experts it uses.
#[test]
fn a_step_counts_the_experts_it_reads() {
    let layer = Layer { biased: false, ..layer(GgmlType::F32, [64, 32, 8, 2]) };
    let model = load(&cpu(1, None), &made(&layer, None));
    let (router, expert) = (4 * 64 * 16, 4 * 3 * 64 * 32);
    assert_eq!(model.stats().weight_bytes_per_step, router + 2 * expert);
    assert!(model.stats().weight_memory > 8 * expert);
}

/// A router with what the shared expert's inputs need, the experts, the rest of the shared expert: whatever follows a matrix is done where its outputs are.
#[test]
fn a_layer_is_few_phases() {
    for (shared, want) in [
        (Shared::None, &["embed", "rows", "linear", "experts"][..]),
        (Shared::Plain, &["embed", "rows", "linear", "experts", "linear"]),
        (Shared::Weighed, &["embed", "rows", "linear", "experts", "linear"]),
    ] {
        let layer = Layer { shared, ..layer(GgmlType::Q8_0, [64, 64, 6, 2]) };
        let model = load(&cpu(2, None), &made(&layer, None));
        rows(&*model, 1, 1);
        let kinds: Vec<_> = model.phases().iter().map(|phase| phase.kind).collect();
        assert_eq!(kinds, want);
    }
}

/// Routes that something else reads too are computed before the experts.
#[test]
fn routes_may_be_read_beside_the_experts() {
    let recorder = Recorder::new();
    let weight = |name: &str, rows, cols| {
        recorder.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
    };
    let record = || -> Result<ValueId> {
        let r = &recorder;
        let x = r.embed(weight("token_embd.weight", VOCAB, 4))?;
        let scores = r.linear("scores", x, weight("scores", 6, 4))?;
        let routes = r.route("routes", scores, router(2))?;
        let [gate, up] = ["gate", "up"].map(|name| weight(name, 6 * 3, 4));
        let down = weight("down", 6 * 4, 3);
        let weights =
            ExpertWeights { gate, up, down, biases: None, n_experts: 6, weighs_inputs: false };
        let y = r.experts("experts", weights, Act::Silu, x, routes)?;
        r.select_rows("rows", r.add("sum", y, routes)?)
    };
    let rows_out = record().expect("shapes fit");
    let program = Arc::new(recorder.finish(&[(OutputKind::Logits, rows_out)]));
    let weights = MemoryWeights::random(&program, 5);
    let load = |executor: &dyn Executor| {
        executor.load(Arc::clone(&program), &weights, &mut |_| {}).expect("weights fit")
    };
    let (want, got) = (load(&Interpreter), load(&cpu(2, None)));
    for n in [1, 5, 60] {
        assert_close(&rows(&*got, n, n), &rows(&*want, n, n), 1e-10, &format!("{n} rows"));
    }
}
