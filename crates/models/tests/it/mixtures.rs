//! What files of latent attention and of experts may say, and what is said about those that may not.

use gguf::OwnedValue;
use models::{Experts, Latent, LoadedModel};
use program::{
    Act, CacheKind, Gate, Gating, GroupScore, Groups, LatentUp, Op, RopeScaling, Router,
};

use crate::common::File;

fn load(architecture: &str, change: impl FnOnce(&mut File)) -> Result<LoadedModel, String> {
    let mut file = File::new(architecture);
    change(&mut file);
    file.load()
}

/// Change a valid deepseek2 file.
fn deepseek(change: impl FnOnce(&mut File)) -> LoadedModel {
    load("deepseek2", change).unwrap_or_else(|e| panic!("a good file is refused: {e}"))
}

/// Spoil a valid deepseek2 file and compare the message.
fn refused(spoil: impl FnOnce(&mut File), expect: &str) {
    let message = load("deepseek2", spoil).map(|_| ()).expect_err("a spoilt file is refused");
    assert_eq!(message, expect);
}

fn set(key: &str, value: impl Into<OwnedValue>) -> impl FnOnce(&mut File) {
    let (key, value) = (format!("deepseek2.{key}"), value.into());
    move |file| file.set(&key, value)
}

fn experts(model: &LoadedModel) -> &Experts {
    model.config.layers[1].experts.as_ref().expect("it has experts")
}

fn latent(model: &LoadedModel) -> &Latent {
    model.config.first_layer().latent.as_ref().expect("its attention is latent")
}

fn routers(model: &LoadedModel) -> Vec<Router> {
    let router = |op: &Op| if let Op::Route(router) = op { Some(router.clone()) } else { None };
    model.program.nodes.iter().filter_map(|node| router(&node.op)).collect()
}

fn ups(model: &LoadedModel) -> Vec<LatentUp> {
    let up = |op: &Op| if let Op::LatentAttention(at) = op { Some(at.up) } else { None };
    model.program.nodes.iter().filter_map(|node| up(&node.op)).collect()
}

/// `attn_kv_b`, and the widths of keys and values where those of the cache stood.
fn legacy(file: &mut File) {
    for (key, value) in [("key_length", 16u32), ("value_length", 8), ("head_count_kv", 4)] {
        file.set(&format!("deepseek2.attention.{key}"), value);
    }
    file.unset("deepseek2.attention.key_length_mla");
    file.unset("deepseek2.attention.value_length_mla");
    for i in 0..2 {
        file.drop(&format!("blk.{i}.attn_k_b.weight"));
        file.drop(&format!("blk.{i}.attn_v_b.weight"));
        file.tensor(&format!("blk.{i}.attn_kv_b.weight"), &[32, 4 * (12 + 8)]);
    }
}

#[test]
fn latent_attention_of_both_ages_of_files() {
    let new = deepseek(|_| ());
    let c = new.config.first_layer();
    assert_eq!((c.head_dim, c.value_dim, c.n_kv_heads), (16, 8, 1));
    assert_eq!(c.rope.as_ref().expect("it rotates").dims, 4);
    let want = Latent {
        kv_lora_rank: 32,
        q_lora_rank: None,
        nope_dim: 12,
        joint: false,
        key_norm: false,
        sinks: false,
    };
    assert_eq!(latent(&new), &want);
    assert!((c.score.scale - 0.25).abs() < 1e-7);
    assert_eq!(new.program.caches[1].kind, CacheKind::Latent { rank: 32, rope_dim: 4 });
    assert!(matches!(ups(&new)[..], [LatentUp::Split { .. }, LatentUp::Split { .. }]));

    let old = deepseek(legacy);
    assert_eq!(latent(&old), &Latent { joint: true, ..want });
    let c = old.config.first_layer();
    assert_eq!((c.head_dim, c.value_dim, c.n_kv_heads), (16, 8, 1));
    assert_eq!(old.program.caches, new.program.caches);
    assert!(matches!(ups(&old)[..], [LatentUp::Joint { .. }, LatentUp::Joint { .. }]));
}

#[test]
fn queries_are_told_by_their_tensors() {
    let narrow = |file: &mut File| {
        file.set("deepseek2.attention.q_lora_rank", 20u32);
        for i in 0..2 {
            file.drop(&format!("blk.{i}.attn_q.weight"));
            file.tensor(&format!("blk.{i}.attn_q_a.weight"), &[64, 20]);
            file.tensor(&format!("blk.{i}.attn_q_a_norm.weight"), &[20]);
            file.tensor(&format!("blk.{i}.attn_q_b.weight"), &[20, 64]);
        }
    };
    assert_eq!(latent(&deepseek(narrow)).q_lora_rank, Some(20));
    // V2-Lite may say a rank as well; the tensor decides.
    assert_eq!(latent(&deepseek(set("attention.q_lora_rank", 20u32))).q_lora_rank, None);
    refused(|f| f.drop("blk.0.attn_q.weight"), "key `deepseek2.attention.q_lora_rank` is missing");
    refused(
        |f| {
            narrow(f);
            f.drop("blk.1.attn_q_b.weight");
        },
        "missing tensor `blk.1.attn_q_b.weight`",
    );
}

#[test]
fn widths_of_latent_attention() {
    for key in ["attention.kv_lora_rank", "rope.dimension_count"] {
        let key = format!("deepseek2.{key}");
        refused(|f| f.unset(&key), &format!("key `{key}` is missing"));
    }
    refused(
        set("attention.kv_lora_rank", 0u32),
        "key `deepseek2.attention.kv_lora_rank`: expected 1..=65536, found 0",
    );
    refused(
        set("attention.kv_lora_rank", 31u32),
        "tensor `blk.0.attn_kv_a_mqa.weight`: expected [64, 35], file has [64, 36]",
    );
    refused(
        set("rope.dimension_count", 16u32),
        "key `deepseek2.rope.dimension_count`: expected less than the head size 16, found 16",
    );
    refused(
        |f| {
            f.unset("deepseek2.attention.key_length_mla");
            f.unset("deepseek2.attention.key_length");
        },
        "key `deepseek2.attention.key_length` is missing",
    );
    refused(
        |f| f.tensor("blk.0.attn_k_b.weight", &[32, 12, 4]),
        "tensor `blk.0.attn_k_b.weight`: expected [12, 32, 4], file has [32, 12, 4]",
    );
    refused(|f| f.drop("blk.1.attn_v_b.weight"), "missing tensor `blk.1.attn_v_b.weight`");
}

fn yarn(multiplier: Option<f32>) -> LoadedModel {
    deepseek(|f| {
        f.set("deepseek2.rope.scaling.type", "yarn");
        f.set("deepseek2.rope.scaling.factor", 40f32);
        f.set("deepseek2.rope.scaling.original_context_length", 128u32);
        if let Some(x) = multiplier {
            f.set("deepseek2.rope.scaling.yarn_log_multiplier", x);
        }
    })
}

fn attention_factor(model: &LoadedModel) -> f32 {
    match model.config.first_layer().rope.as_ref().expect("it rotates").scaling {
        RopeScaling::Yarn { attention_factor, .. } => attention_factor,
        other => panic!("{other:?} is not YaRN"),
    }
}

#[test]
fn yarn_scales_the_scores_and_not_the_rotation() {
    for (multiplier, mscale) in [(0.0707, 1.260_80), (0.1, 1.368_89)] {
        let model = yarn(Some(multiplier));
        assert!((attention_factor(&model) - 1.0).abs() < 1e-6);
        let (scale, want) = (model.config.first_layer().score.scale, mscale * mscale / 4.0);
        assert!((scale - want).abs() < 1e-4, "{scale}");
        assert!(model.notes.is_empty());
    }
    for missing in [None, Some(0.0)] {
        let model = yarn(missing);
        assert!((attention_factor(&model) - 1.368_89).abs() < 1e-4);
        let want = 1.368_89 * 1.368_89 / 4.0;
        assert!((model.config.first_layer().score.scale - want).abs() < 1e-4);
        assert_eq!(
            model.notes,
            [
                "key `deepseek2.rope.scaling.yarn_log_multiplier` is missing: attention is scaled as llama.cpp does then, \
              not as the model was published"
            ]
        );
    }
    refused(
        set("rope.scaling.yarn_log_multiplier", f32::NAN),
        "key `deepseek2.rope.scaling.yarn_log_multiplier`: expected a finite number > 0, found NaN",
    );
}

#[test]
fn experts_of_each_architecture() {
    let plain = Experts {
        n_experts: 8,
        n_experts_used: 2,
        intermediate_size: 24,
        shared_intermediate_size: 48,
        gating: Gating::Softmax,
        bias: None,
        joint: false,
        factors: false,
        biases: models::Bias::Never,
        groups: None,
        normalize: false,
        scale: 1.0,
        weighs_inputs: false,
        act: Gate::Act(Act::Silu),
        shared_act: Gate::Act(Act::Silu),
        chunks: None,
        latent_size: None,
    };
    let v2 = deepseek(|_| ());
    assert_eq!((experts(&v2), &v2.config.layers[0].experts), (&plain, &None));
    let qwen2moe = load("qwen2moe", |_| ()).unwrap();
    assert_eq!(experts(&qwen2moe), &plain);
    let gates = |act| {
        let is = |op: &Op| matches!(op, Op::GatedAct(Gate::Act(a)) if *a == act);
        qwen2moe.program.nodes.iter().filter(|node| is(&node.op)).count()
    };
    assert_eq!((gates(Act::Sigmoid), gates(Act::Silu)), (2, 2));
    let qwen3moe = load("qwen3moe", |_| ()).unwrap();
    let normal = Experts { shared_intermediate_size: 0, normalize: true, ..plain };
    assert_eq!(experts(&qwen3moe), &normal);
    assert_eq!(routers(&qwen3moe), vec![normal.router(None, None); 2]);
}

#[test]
fn dense_layers_come_first() {
    let of = |model: &LoadedModel, op: &str| {
        let nodes = model.program.nodes.iter().filter(|node| node.op.name() == op);
        nodes.map(|node| node.layer).collect::<Vec<_>>()
    };
    let model = deepseek(|_| ());
    assert_eq!(of(&model, "experts"), [Some(1)]);
    assert_eq!(of(&model, "gated_act"), [Some(0), Some(1)]);
    let unshared = deepseek(set("expert_shared_count", 0u32));
    assert_eq!(of(&unshared, "gated_act"), [Some(0)]);
    refused(
        set("leading_dense_block_count", 3u32),
        "key `deepseek2.leading_dense_block_count`: expected 0..=2, found 3",
    );
    refused(set("leading_dense_block_count", 2u32), "missing tensor `blk.1.ffn_gate.weight`");
}

#[test]
fn numbers_of_experts() {
    refused(
        set("expert_count", 4097u32),
        "key `deepseek2.expert_count`: expected 1..=4096, found 4097",
    );
    refused(set("expert_count", 0u32), "key `deepseek2.expert_count`: expected 1..=4096, found 0");
    refused(
        set("expert_used_count", 9u32),
        "key `deepseek2.expert_used_count`: expected 1..=8, found 9",
    );
    refused(
        |f| f.unset("deepseek2.expert_used_count"),
        "key `deepseek2.expert_used_count` is missing",
    );
    refused(
        set("expert_count", 4u32),
        "tensor `blk.1.ffn_gate_inp.weight`: expected [64, 4], file has [64, 8]",
    );
    refused(
        |f| f.tensor("blk.1.ffn_down_exps.weight", &[64, 24, 8]),
        "tensor `blk.1.ffn_down_exps.weight`: expected [24, 64, 8], file has [64, 24, 8]",
    );
    refused(
        |f| {
            f.drop("blk.1.ffn_gate_exps.weight");
            f.tensor("blk.1.ffn_gate_up_exps.weight", &[64, 24, 8]);
        },
        "tensor `blk.1.ffn_gate_up_exps.weight`: expected [64, 48, 8], file has [64, 24, 8]",
    );
    // Early files give one width: that of the shared layer, and of all experts a token uses.
    let early = load("qwen2moe", |f| {
        f.unset("qwen2moe.expert_feed_forward_length");
        f.unset("qwen2moe.expert_shared_feed_forward_length");
        f.set("qwen2moe.feed_forward_length", 48u32);
    });
    let early = early.unwrap();
    assert_eq!(experts(&early).intermediate_size, 24);
    assert_eq!(experts(&early).shared_intermediate_size, 48);
    // Without a shared layer this architecture is another.
    let without = load("qwen2moe", |f| f.set("qwen2moe.expert_shared_feed_forward_length", 0u32));
    assert_eq!(
        without.map(|_| ()).unwrap_err(),
        "tensor `blk.0.ffn_gate_shexp.weight`: expected [64, 0], file has [64, 48]"
    );
}

#[test]
fn gate_and_up_may_be_one_tensor() {
    let model = deepseek(|f| {
        f.drop("blk.1.ffn_gate_exps.weight");
        f.drop("blk.1.ffn_up_exps.weight");
        f.tensor("blk.1.ffn_gate_up_exps.weight", &[64, 48, 8]);
    });
    let name = |id| &*model.program.weight(id).name;
    let mut ops = model.program.nodes.iter().map(|node| &node.op);
    let both = ops.find_map(|op| match op {
        Op::Experts { gate, up, .. } => Some([name(*gate), name(*up)]),
        _ => None,
    });
    assert_eq!(both, Some(["blk.1.ffn_gate_up_exps.weight"; 2]));
    assert_eq!(routers(&model)[0].factors, None);
}

/// Files of types that we do not have come with such.
#[test]
fn factors_of_experts_are_refused_where_they_are_not_the_architectures() {
    let with = load("deepseek2", |f| f.tensor("blk.1.ffn_up_exps.scale", &[8]));
    let message = with.map(|_| ()).unwrap_err();
    assert_eq!(message, "tensor `blk.1.ffn_up_exps.scale` is not supported: factors on experts");
}

#[test]
fn routers_are_as_the_file_says() {
    let v3 = |f: &mut File| {
        f.set("deepseek2.expert_gating_func", 2u32);
        f.set("deepseek2.expert_weights_norm", true);
        f.set("deepseek2.expert_weights_scale", 2.5f32);
        f.set("deepseek2.expert_group_count", 4u32);
        f.set("deepseek2.expert_group_used_count", 2u32);
        f.tensor("blk.1.exp_probs_b.bias", &[8]);
    };
    let model = deepseek(v3);
    let [Router { n_used, gating, bias, groups, normalize, scale, factors: None, per_chunk: 1 }] =
        routers(&model)[..]
    else {
        panic!("one layer has experts");
    };
    assert_eq!((n_used, gating, normalize, scale), (2, Gating::Sigmoid, true, 2.5));
    let name = &model.program.weight(bias.expect("V3 has a bias")).name;
    assert_eq!(name, "blk.1.exp_probs_b.bias");
    let score = GroupScore::TopTwoSum;
    assert_eq!(groups, Some(Groups { n_groups: 4, n_used: 2, score }));

    // V2: softmax without a bias.
    let v2 = deepseek(|f| {
        v3(f);
        f.set("deepseek2.expert_gating_func", 1u32);
        f.drop("blk.1.exp_probs_b.bias");
    });
    assert_eq!(experts(&v2).groups.map(|groups| groups.score), Some(GroupScore::Max));
    assert_eq!(experts(&deepseek(set("expert_group_count", 1u32))).groups, None);
    assert_eq!(experts(&deepseek(set("expert_weights_scale", 0f32))).scale, 1.0);
}

#[test]
fn routers_that_cannot_be() {
    refused(
        set("expert_gating_func", 4u32),
        "key `deepseek2.expert_gating_func`: expected 1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen), found 4",
    );
    refused(
        set("expert_weights_norm", 1u32),
        "key `deepseek2.expert_weights_norm`: expected true or false, found 1",
    );
    refused(
        set("expert_weights_scale", f32::INFINITY),
        "key `deepseek2.expert_weights_scale`: expected a finite number > 0, found inf",
    );
    refused(
        set("expert_group_count", 3u32),
        "key `deepseek2.expert_group_count`: expected a divisor of expert_count 8, found 3",
    );
    refused(set("expert_group_count", 4u32), "key `deepseek2.expert_group_used_count` is missing");
    refused(
        |f| {
            f.set("deepseek2.expert_group_count", 8u32);
            f.set("deepseek2.expert_group_used_count", 1u32);
        },
        "blk.1.ffn_routes: expected groups of 8 experts that hold 2, \
         found Groups { n_groups: 8, n_used: 1, score: Max }",
    );
    refused(
        |f| f.tensor("blk.1.exp_probs_b.bias", &[7]),
        "tensor `blk.1.exp_probs_b.bias`: expected [8], file has [7]",
    );
}
