//! Mixtures of experts: routers, their experts, whole models and sessions.

use program::{
    Act, Executor, ExpertBiases, ExpertWeights, Gate, Gating, GroupScore, Groups, Recorder, Result,
    Router, ValueId,
};
use quant::GgmlType;

use super::acts::all_gates;
use super::ops::{VOCAB, check, input, types, weight};
use super::{models, sessions};
use crate::made::{EXACT, all_logits, program};
use crate::{Family, Made, MemoryWeights, Random, assert_close, bound, tiny_config};

/// A gate of one column, as that of Qwen2-MoE's shared expert, and of one for each group, as on heads.
pub(super) fn row_gate(executor: &dyn Executor) {
    for (groups, dim) in [(1, 37), (3, 33), (8, 16), (5, 1)] {
        check(executor, 1e-11, &format!("a gate for each of {groups} groups of {dim}"), |r| {
            let gate =
                r.embed(weight(r, "token_embd.gate.weight", GgmlType::F32, VOCAB, groups))?;
            let up = r.view("groups", input(r, groups * dim)?, groups)?;
            let out = r.gated_act("gated", Act::Softplus, gate, up)?;
            r.view("joined", out, 1)
        });
    }
    for cols in [1, 37, 256] {
        for act in [Act::Sigmoid, Act::Silu] {
            check(executor, 1e-12, &format!("{act:?} of one column, times {cols}"), |r| {
                let gate = r.embed(weight(r, "token_embd.gate.weight", GgmlType::F32, VOCAB, 1))?;
                r.gated_act("gated", act, gate, input(r, cols)?)
            });
        }
        check(executor, 1e-12, &format!("Sigmoid of {cols}"), |r| {
            let x = input(r, cols)?;
            r.gated_act("gated", Act::Sigmoid, r.scale("large", x, 40.0)?, x)
        });
    }
}

/// Routers as published models have them, and the smallest: number of experts, router, whether it has a bias.
fn routers() -> Vec<(usize, Router, bool)> {
    let softmax = |n_used| Router {
        n_used,
        gating: Gating::Softmax,
        bias: None,
        groups: None,
        normalize: false,
        scale: 1.0,
        factors: None,
        per_chunk: 1,
    };
    let normal = |n_used| Router { normalize: true, ..softmax(n_used) };
    let sigmoid = |n_used| Router { gating: Gating::Sigmoid, ..normal(n_used) };
    let groups = |n_groups, n_used, score| Some(Groups { n_groups, n_used, score });
    let v2 = Router { groups: groups(8, 3, GroupScore::Max), scale: 16.0, ..softmax(6) };
    let v3 = Router { groups: groups(8, 4, GroupScore::TopTwoSum), scale: 2.5, ..sigmoid(8) };
    vec![
        (1, softmax(1), false),
        (5, normal(5), false),
        (60, softmax(4), false),
        (64, softmax(6), true),
        (128, normal(8), false),
        (160, v2, false),
        (256, v3.clone(), true),
        (256, v3, false),
        (33, sigmoid(3), true),
        (24, Router { per_chunk: 3, ..normal(6) }, false),
    ]
}

fn routed(r: &Recorder, n_experts: usize, router: &Router, biased: bool) -> Result<ValueId> {
    let scores = r.embed(weight(r, "token_embd.scores.weight", GgmlType::F32, VOCAB, n_experts))?;
    let bias = biased.then(|| weight(r, "scores.bias", GgmlType::F32, 1, n_experts));
    // where there is no bias and weights are normalized, there are factors
    let factors = (!biased && router.normalize)
        .then(|| weight(r, "scores.factors", GgmlType::F32, 1, n_experts));
    r.route("routes", scores, Router { bias, factors, ..router.clone() })
}

pub(super) fn route(executor: &dyn Executor) {
    for (n_experts, router, biased) in routers() {
        let what = format!("route among {n_experts}, bias {biased}, {router:?}");
        check(executor, 1e-11, &what, |r| routed(r, n_experts, &router, biased));
    }
}

/// Of equal experts and groups the lower is chosen.
pub(super) fn route_ties(executor: &dyn Executor) {
    for (n_experts, router, biased) in routers() {
        let program = program(|r| routed(r, n_experts, &router, biased));
        let mut weights = MemoryWeights::random(&program, 3);
        for spec in &program.weights {
            weights.set(spec, &vec![0.25; spec.rows * spec.cols]);
        }
        let made = Made::with(executor, &program, &weights);
        let routes = all_logits(&*made.tested, &EXACT, &[0, 1], 2);
        let lowest: Vec<f32> = (0..router.n_used).map(|i| i as f32).collect();
        for row in routes.chunks_exact(2 * router.n_used) {
            assert_eq!(row[..router.n_used], lowest, "equal experts, {router:?}");
        }
        assert_close(
            &routes,
            &all_logits(&*made.oracle, &EXACT, &[0, 1], 2),
            1e-11,
            "equal experts",
        );
    }
}

/// How experts stand in the file and where routes weigh them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    /// Gate and up are one weight.
    Joint,
    /// Routes weigh products with gate and up.
    Weighed,
}

/// Experts of a width and type, and rows for them: `[n_experts, n_used, hidden, width]`.
fn mixture(
    r: &Recorder,
    ty: GgmlType,
    shape: [usize; 4],
    router: &Router,
    form: Form,
    act: impl Into<Gate>,
) -> Result<ValueId> {
    let [n_experts, _, hidden, width] = shape;
    let x = input(r, hidden)?;
    let routes = routed(r, n_experts * router.per_chunk, router, true)?;
    let act = act.into();
    // such models have biases
    let biased = matches!(act, Gate::SwigluOai { .. });
    let bias = |name: &str, len| weight(r, &format!("{name}.bias"), GgmlType::F32, n_experts, len);
    let biases = biased.then(|| ExpertBiases {
        gate: bias("gate_exps", width),
        up: bias("up_exps", width),
        down: bias("down_exps", hidden),
    });
    let [gate, up] = match form {
        _ if matches!(act, Gate::Alone(_)) => {
            [weight(r, "up_exps.weight", ty, n_experts * width, hidden); 2]
        }
        Form::Joint => [weight(r, "gate_up_exps.weight", ty, n_experts * 2 * width, hidden); 2],
        Form::Plain | Form::Weighed => ["gate_exps.weight", "up_exps.weight"]
            .map(|name| weight(r, name, ty, n_experts * width, hidden)),
    };
    let weights = ExpertWeights {
        gate,
        up,
        down: weight(r, "down_exps.weight", ty, n_experts * hidden, width),
        biases,
        n_experts,
        weighs_inputs: form == Form::Weighed,
    };
    r.experts("experts", weights, act, x, routes)
}

fn shapes(ty: GgmlType) -> Vec<[usize; 4]> {
    let block = ty.block_len();
    match block {
        1 => vec![[1, 1, 5, 3], [7, 2, 37, 50], [4, 4, 64, 33], [16, 3, 17, 96]],
        256 => vec![[3, 2, 256, 256], [5, 2, 256, 768]],
        _ => vec![[1, 1, block, block], [5, 2, 3 * block, block], [9, 4, block, 3 * block]],
    }
}

fn top(n_used: usize) -> Router {
    let gating = Gating::Sigmoid;
    Router {
        n_used,
        gating,
        bias: None,
        groups: None,
        normalize: true,
        scale: 2.5,
        factors: None,
        per_chunk: 1,
    }
}

pub(super) fn experts(executor: &dyn Executor) {
    for ty in types() {
        for shape in shapes(ty) {
            let router = top(shape[1]);
            let what = format!("experts of {ty}, {shape:?}");
            for form in [Form::Plain, Form::Joint, Form::Weighed] {
                check(executor, bound(ty), &format!("{what}, {form:?}"), |r| {
                    // an activation of what is weighed makes more of errors
                    let scale = if form == Form::Weighed { 0.5 } else { router.scale };
                    mixture(r, ty, shape, &Router { scale, ..router.clone() }, form, Act::Silu)
                });
            }
        }
    }
}

/// Gate, up and down of different types.
pub(super) fn types_apart(executor: &dyn Executor) {
    let [n_experts, n_used, hidden, width] = [5, 2, 256, 64];
    for [gate, up, down] in [
        [GgmlType::F32, GgmlType::F16, GgmlType::F32],
        [GgmlType::Q4K, GgmlType::Q6K, GgmlType::Q8_0],
        [GgmlType::Q8_0, GgmlType::Q8_0, GgmlType::F16],
    ] {
        let worst = [gate, up, down].map(bound).into_iter().fold(0.0, f64::max);
        check(executor, worst, &format!("experts of {gate}, {up} and {down}"), |r| {
            let x = input(r, hidden)?;
            let routes = routed(r, n_experts, &top(n_used), true)?;
            let weights = ExpertWeights {
                gate: weight(r, "gate_exps.weight", gate, n_experts * width, hidden),
                up: weight(r, "up_exps.weight", up, n_experts * width, hidden),
                down: weight(r, "down_exps.weight", down, n_experts * hidden, width),
                biases: None,
                n_experts,
                weighs_inputs: false,
            };
            r.experts("experts", weights, Act::Silu, x, routes)
        });
    }
}

/// Experts that others share, several of which a row may choose.
pub(super) fn experts_shared(executor: &dyn Executor) {
    for (ty, shape) in [
        (GgmlType::F32, [3, 3, 37, 50]),
        (GgmlType::F32, [1, 1, 16, 8]),
        (GgmlType::F32, [4, 4, 512, 768]),
        (GgmlType::Q8_0, [4, 4, 96, 64]),
    ] {
        let router = Router { per_chunk: 3, ..top(shape[1]) };
        check(executor, bound(ty), &format!("shared experts of {ty}, {shape:?}"), |r| {
            mixture(r, ty, shape, &router, Form::Plain, Act::Silu)
        });
    }
}

/// Every activation of gate and up.
pub(super) fn gates(executor: &dyn Executor) {
    let alone = [Act::Relu2, Act::Silu].map(Gate::Alone);
    for gate in all_gates().chain(alone) {
        let (shape, router) = ([7, 2, 37, 50], top(2));
        check(executor, 1e-9, &format!("experts with {gate:?}"), |r| {
            mixture(r, GgmlType::F32, shape, &router, Form::Plain, gate)
        });
    }
}

/// One expert takes all rows, another none.
pub(super) fn experts_uneven(executor: &dyn Executor) {
    for (ty, shape) in [
        (GgmlType::F32, [6, 2, 96, 64]),
        (GgmlType::F16, [6, 2, 96, 64]),
        (GgmlType::Q8_0, [6, 2, 96, 64]),
        (GgmlType::Q4_0, [6, 2, 96, 64]),
        (GgmlType::Q4K, [6, 2, 256, 512]),
    ] {
        let program = program(|r| mixture(r, ty, shape, &top(2), Form::Plain, Act::Silu));
        let mut weights = MemoryWeights::random(&program, 17);
        let bias = program.weights.iter().find(|w| w.name == "scores.bias");
        weights.set(bias.expect("the router has a bias"), &[0.0, 0.0, 0.0, 0.0, 9.0, -9.0]);
        let made = Made::with(executor, &program, &weights);
        for n in [1, 5, 67, 300] {
            let tokens = Random::new(n as u64).tokens(n, VOCAB);
            let found = all_logits(&*made.tested, &EXACT, &tokens, n);
            let want = all_logits(&*made.oracle, &EXACT, &tokens, n);
            assert_close(&found, &want, bound(ty), &format!("uneven experts of {ty}, {n} rows"));
        }
    }
}

/// With all experts used, so that rounding cannot choose others, where types round.
pub(super) fn models(executor: &dyn Executor) {
    for architecture in Family::Experts.architectures().iter().copied() {
        let config = tiny_config(architecture, 64, false);
        models::check(executor, &config, GgmlType::F32, 1e-9);
        lossy(executor, &config);
    }
}

/// A model whose tokens use all experts, in types that round.
pub(super) fn lossy(executor: &dyn Executor, config: &::models::ModelConfig) {
    let mut config = config.clone();
    use_all(&mut config);
    for (ty, bound) in [
        (GgmlType::F16, 1e-5),
        (GgmlType::Bf16, 1e-5),
        (GgmlType::Q8_0, 1e-3),
        (GgmlType::Q4_0, 1e-3),
        (GgmlType::Q5_1, 1e-3),
    ] {
        models::check(executor, &config, ty, bound);
    }
}

/// Each token uses all experts.
pub(super) fn use_all(config: &mut ::models::ModelConfig) {
    for experts in config.layers.iter_mut().filter_map(|layer| layer.experts.as_mut()) {
        experts.n_experts_used = experts.n_experts;
    }
}

pub(super) fn sessions(executor: &dyn Executor) {
    for architecture in Family::Experts.architectures().iter().copied() {
        sessions::chunks_of(executor, architecture);
        sessions::together_of(executor, architecture);
    }
}
