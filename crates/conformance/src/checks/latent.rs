//! Latent attention: the op in both kinds of weights, whole models, sessions, caches.

use ::models::ModelConfig;
use program::{
    CacheKind, CacheOptions, CacheSpec, CacheType, Executor, Gating, GroupScore, Groups,
    LatentAttention, LatentUp, Mask, Recorder, Result, Rope, RopePairs, RopeScaling, ValueId,
};
use quant::GgmlType;

use super::ops::{VOCAB, check, fed_in_pieces, input, weight};
use super::scores::{self, Change};
use super::{experts, models, sessions};
use crate::made::{EXACT, all_logits, program, prompt_logits};
use crate::{Family, Made, Random, assert_close, assert_same_bits, tiny_config, tiny_model};

pub(super) fn slice(executor: &dyn Executor) {
    for (groups, dim, start, len) in
        [(1, 7, 0, 7), (1, 7, 3, 2), (1, 96, 64, 32), (4, 48, 32, 16), (3, 11, 0, 5), (5, 6, 5, 1)]
    {
        let what = format!("slice {start} + {len} of {groups} x {dim}");
        check(executor, 0.0, &what, |r| {
            let x = r.view("groups", input(r, groups * dim)?, groups)?;
            r.slice("slice", x, start, len)
        });
    }
}

/// Heads, widths (`dn`, `dr`, `dv`, `r`), rotation and kind of weights of one case.
struct Case {
    widths: [usize; 5],
    pairs: RopePairs,
    scaling: RopeScaling,
    joint: bool,
    ty: GgmlType,
}

fn cases() -> Vec<Case> {
    use RopePairs::{HalfSplit, Interleaved};
    let yarn = RopeScaling::Yarn {
        factor: 40.0,
        original_context: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 1.0,
        extrapolation: 1.0,
    };
    let case = |widths, pairs, scaling, joint, ty| Case { widths, pairs, scaling, joint, ty };
    let (none, f32) = (RopeScaling::None, GgmlType::F32);
    vec![
        case([1, 8, 2, 8, 16], Interleaved, none, false, f32),
        case([1, 8, 2, 8, 16], Interleaved, none, true, f32),
        case([3, 10, 6, 14, 22], HalfSplit, none, false, f32),
        case([5, 24, 8, 40, 32], Interleaved, yarn, true, f32),
        case([16, 32, 16, 24, 96], Interleaved, yarn, false, f32),
        case([4, 128, 64, 128, 512], Interleaved, yarn, false, f32),
        case([4, 128, 64, 128, 512], Interleaved, yarn, true, GgmlType::F16),
        case([18, 32, 8, 32, 64], Interleaved, none, false, GgmlType::F16),
        case([2, 32, 8, 32, 64], Interleaved, none, true, GgmlType::Q8_0),
        case([2, 32, 8, 32, 64], Interleaved, none, false, GgmlType::Q8_0),
        case([2, 32, 8, 32, 64], Interleaved, none, true, GgmlType::Q4_0),
    ]
}

fn record(r: &Recorder, case: &Case, scale: f32) -> Result<ValueId> {
    record_with(r, case, scale, true, &|_, _, _| ())
}

/// With what a case asks of rotation and scores.
fn record_with(
    r: &Recorder,
    case: &Case,
    scale: f32,
    rotated: bool,
    change: Change<'_>,
) -> Result<ValueId> {
    let [heads, dn, dr, dv, rank] = case.widths;
    let x = input(r, 48)?;
    let wq = weight(r, "q.weight", GgmlType::F32, heads * (dn + dr), 48);
    let q = r.view("q_heads", r.linear("q", x, wq)?, heads)?;
    let kv = r.linear("kv", x, weight(r, "kv.weight", GgmlType::F32, rank + dr, 48))?;
    let inputs = [
        r.slice("q_nope", q, 0, dn)?,
        r.slice("q_pe", q, dn, dr)?,
        r.slice("c", kv, 0, rank)?,
        r.slice("k_pe", kv, rank, dr)?,
    ];
    let up = if case.joint {
        LatentUp::Joint { kv_b: weight(r, "kv_b.weight", case.ty, heads * (dn + dv), rank) }
    } else {
        LatentUp::Split {
            k_b: weight(r, "k_b.weight", case.ty, heads * rank, dn),
            v_b: weight(r, "v_b.weight", case.ty, heads * dv, rank),
        }
    };
    let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Latent { rank, rope_dim: dr } });
    let rope =
        Rope { pairs: case.pairs, dims: dr, theta: 1e4, scaling: case.scaling, factors: None };
    let mut at = LatentAttention::causal(cache, rotated.then_some(rope), up, scale);
    change(r, heads, &mut at.score);
    r.latent_attention("attn", at, inputs)
}

/// Every mask and field of a score, and keys that are not rotated.
pub(super) fn scores(executor: &dyn Executor) {
    let case = &cases()[2];
    let scale = 0.25;
    let compare = |what: &str, rotated: bool, change: Change<'_>| {
        let program = program(|r| record_with(r, case, scale, rotated, change));
        scores::compare(executor, &format!("latent attention, {what}"), &program);
    };
    compare("not rotated", false, &|_, _, _| ());
    for mask in [Mask::Window(1), Mask::Window(100), Mask::Window(300), Mask::Chunk(100)] {
        compare(&format!("{mask:?}"), true, &|_, _, score| score.mask = mask);
    }
    for (name, change) in scores::fields() {
        compare(name, true, change);
    }
}

fn attend(executor: &dyn Executor, case: &Case, scale: f32, bound: f64) {
    let Case { widths, pairs, scaling, joint, ty } = case;
    let what = format!("latent attention {widths:?}, {pairs:?}, {scaling:?}, joint {joint}, {ty}");
    fed_in_pieces(executor, bound, &what, |r| record(r, case, scale));
}

pub(super) fn attention(executor: &dyn Executor) {
    for case in cases() {
        let [_, dn, dr, ..] = case.widths;
        attend(executor, &case, ((dn + dr) as f32).powf(-0.5), crate::bound(case.ty));
    }
}

/// Scores in the tens or hundreds: exponentials must not overflow. Rounding of a score counts in full here.
pub(super) fn attention_peaked(executor: &dyn Executor) {
    for case in cases().iter().filter(|case| case.ty == GgmlType::F32) {
        attend(executor, case, 10.0, 1e-6);
    }
}

/// A prompt that is known to be one: long ones may be computed in another way, but alike however they are cut.
pub(super) fn prompts(executor: &dyn Executor) {
    for case in cases() {
        let Case { widths, pairs, joint, ty, .. } = &case;
        let [_, dn, dr, ..] = *widths;
        let scale = ((dn + dr) as f32).powf(-0.5);
        let made = Made::new(executor, &program(|r| record(r, &case, scale)), 11);
        for n in [3, 170, 600] {
            let what = format!("prompt of {n}, {widths:?}, {pairs:?}, joint {joint}, {ty}");
            let tokens = Random::new(n as u64).tokens(n, VOCAB);
            let found = prompt_logits(&*made.tested, &EXACT, &tokens, n);
            let want = all_logits(&*made.oracle, &EXACT, &tokens, n);
            assert_close(&found, &want, crate::bound(case.ty), &what);
            // a long prompt token by token takes long in forms that expand all of the context in each step
            for chunk in [if n > 200 { 50 } else { 1 }, 64, 250] {
                let cut = prompt_logits(&*made.tested, &EXACT, &tokens, chunk);
                assert_same_bits(&cut, &found, &format!("chunks of {chunk}, {what}"));
            }
        }
    }
}

/// A model as DeepSeek-V3 and one as V2-Lite, both in odd shapes.
fn odd() -> [ModelConfig; 2] {
    let mut v3 = tiny_config("deepseek2", 96, false);
    v3.vocab_size = 131;
    for l in &mut v3.layers {
        (l.n_heads, l.head_dim, l.value_dim, l.intermediate_size) = (5, 16, 14, 101);
        l.score.scale = 0.42;
        l.rope.as_mut().expect("it rotates").dims = 6;
        let latent = l.latent.as_mut().expect("latent attention");
        (latent.kv_lora_rank, latent.q_lora_rank, latent.nope_dim) = (22, Some(18), 10);
        if let Some(experts) = &mut l.experts {
            (experts.n_experts, experts.n_experts_used, experts.intermediate_size) = (12, 3, 29);
            (experts.gating, experts.bias, experts.normalize) =
                (Gating::Sigmoid, Some("exp_probs_b.bias"), true);
            experts.scale = 2.5;
            let score = GroupScore::TopTwoSum;
            experts.groups = Some(Groups { n_groups: 4, n_used: 2, score });
        }
    }
    let mut lite = v3.clone();
    for l in &mut lite.layers {
        let latent = l.latent.as_mut().expect("latent attention");
        (latent.q_lora_rank, latent.joint) = (None, true);
        if let Some(experts) = &mut l.experts {
            (experts.gating, experts.bias, experts.normalize) = (Gating::Softmax, None, false);
            let groups = experts.groups.expect("V3's");
            experts.groups = Some(Groups { score: GroupScore::Max, ..groups });
        }
    }
    [v3, lite]
}

pub(super) fn models(executor: &dyn Executor) {
    for architecture in Family::Latent.architectures().iter().copied() {
        let config = tiny_config(architecture, 64, false);
        models::check(executor, &config, GgmlType::F32, 1e-9);
        experts::lossy(executor, &config);
    }
    for config in odd() {
        models::check(executor, &config, GgmlType::F32, 1e-9);
    }
}

pub(super) fn sessions(executor: &dyn Executor) {
    for architecture in Family::Latent.architectures().iter().copied() {
        sessions::chunks_of(executor, architecture);
        sessions::rollback_of(executor, architecture);
        sessions::fork_of(executor, architecture);
        sessions::reuse_of(executor, architecture);
        sessions::together_of(executor, architecture);
    }
}

/// Caches that round. With all experts used, so that rounding cannot choose others.
pub(super) fn cache(executor: &dyn Executor) {
    let mut config = tiny_config("deepseek2", 64, false);
    experts::use_all(&mut config);
    let made = Made::new(executor, &tiny_model(&config, GgmlType::F32), 6);
    let tokens = Random::new(30).tokens(280, config.vocab_size);
    let want = all_logits(&*made.oracle, &EXACT, &tokens, 280);
    for k in CacheType::ALL {
        let bound = match k {
            CacheType::F32 => 1e-9,
            CacheType::F16 => 1e-5,
            _ => 1e-3,
        };
        // There are no values: their type cannot matter.
        for v in [CacheType::F32, k] {
            let options = CacheOptions::new(k, v, 280);
            let found = all_logits(&*made.tested, &options, &tokens, 100);
            assert_close(&found, &want, bound, &format!("{} latent cache", k.name()));
        }
    }
}
