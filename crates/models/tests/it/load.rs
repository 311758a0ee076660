//! What a model file may say, and what is said about one that may not.

use gguf::{Gguf, OwnedValue};
use models::{ARCHITECTURES, GgufWeights};
use program::{Mask, NormKind, Op, RopeScaling, WeightSource, WeightSpec};
use proptest::prelude::*;
use quant::GgmlType;

use crate::common::File;

/// Architectures whose files are made by [`File`].
const KNOWN: [&str; 8] =
    ["deepseek2", "gemma2", "gemma3", "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe"];

/// Spoil a valid qwen2 file and compare the message.
fn refused(spoil: impl FnOnce(&mut File), expect: &str) {
    let mut file = File::new("qwen2");
    spoil(&mut file);
    assert_eq!(file.load().map(|_| ()).expect_err("a spoilt file is refused"), expect);
}

fn accepted(change: impl FnOnce(&mut File)) -> models::LoadedModel {
    let mut file = File::new("qwen2");
    change(&mut file);
    file.load().unwrap_or_else(|e| panic!("a good file is refused: {e}"))
}

#[test]
fn every_kind_loads() {
    for name in KNOWN {
        let model = File::new(name).load().unwrap();
        assert_eq!(model.config.architecture, name);
        assert_eq!((model.config.vocab_size, model.program.vocab_size()), (320, 320));
        assert!(model.config.tied_embeddings && model.notes.is_empty());
        assert_eq!(model.program.caches.len(), 2);
        let names: Vec<_> = model.program.values.iter().map(|v| v.name.as_str()).collect();
        assert!(names.contains(&"blk.1.attn_q") && names.contains(&"output"), "{names:?}");
    }
}

#[test]
fn the_page_of_models_lists_every_architecture() {
    let page = include_str!("../../../../docs/models.md");
    for a in ARCHITECTURES {
        assert!(page.contains(&format!("`{}`", a.name)), "docs/models.md lacks `{}`", a.name);
    }
}

#[test]
fn layers() {
    let blocks = |n: u32| move |f: &mut File| f.set("qwen2.block_count", n);
    let range = |found| format!("key `qwen2.block_count`: expected 1..=512, found {found}");
    refused(blocks(0), &range("0"));
    refused(blocks(513), &range("513"));
    refused(blocks(u32::MAX), &range("4294967295"));
    refused(blocks(3), "missing tensor `blk.2.attn_norm.weight`");
    refused(|f| f.set("qwen2.block_count", "two"), &range("\"two\""));
    refused(|f| f.unset("qwen2.block_count"), "key `qwen2.block_count` is missing");
    assert_eq!(accepted(blocks(1)).config.layers.len(), 1);
}

/// Positions are as many as their table has rows, whatever the key says.
#[test]
fn learned_positions() {
    let load = |change: &dyn Fn(&mut File)| {
        let mut file = File::new("starcoder");
        file.set("starcoder.attention.layer_norm_epsilon", 1e-5f32);
        file.tensor("position_embd.weight", &[64, 512]);
        for i in 0..2 {
            let qkv = format!("blk.{i}.attn_qkv.weight");
            for name in ["q", "k", "v"] {
                file.drop(&format!("blk.{i}.attn_{name}.weight"));
            }
            file.tensor(&qkv, &[64, 128]);
        }
        change(&mut file);
        file.load()
    };
    let model = load(&|_| ()).unwrap();
    assert_eq!((model.config.n_positions, model.config.context_length), (Some(512), 512));
    assert_eq!((model.program.n_positions(), model.program.n_tokens()), (Some(512), Some(320)));
    assert!(model.config.layers.iter().all(|layer| layer.rope.is_none()));
    let short = load(&|f| f.tensor("position_embd.weight", &[64, 100])).unwrap();
    assert_eq!((short.config.n_positions, short.config.context_length), (Some(100), 100));
    assert!(short.notes.contains(
        &"key `starcoder.context_length` is 512: the model has 100 positions".to_owned()
    ));
    let refused = |change: &dyn Fn(&mut File)| load(change).map(|_| ()).unwrap_err();
    let missing = refused(&|f| f.drop("position_embd.weight"));
    assert_eq!(missing, "missing tensor `position_embd.weight`");
    let wide = refused(&|f| f.tensor("position_embd.weight", &[65, 512]));
    assert_eq!(wide, "tensor `position_embd.weight`: expected [64, 512], file has [65, 512]");
}

/// Blocks at the end that guess further tokens may have tensors that no other block has, or not those of others.
#[test]
fn blocks_that_guess_are_left_out() {
    let model = accepted(|f| {
        f.set("qwen2.nextn_predict_layers", 1u32);
        f.drop("blk.1.attn_q.weight");
        f.tensor("blk.1.nextn.eh_proj.weight", &[128, 64]);
    });
    assert_eq!((model.config.layers.len(), model.program.caches.len()), (1, 1));
    assert_eq!(
        model.notes,
        ["the last 1 of 2 blocks guess tokens after the next one: they are left out"]
    );
    refused(
        |f| f.set("qwen2.nextn_predict_layers", 2u32),
        "key `qwen2.nextn_predict_layers`: expected 0..=1, found 2",
    );
}

#[test]
fn heads() {
    const N: &str = "qwen2.attention.head_count";
    const KV: &str = "qwen2.attention.head_count_kv";
    let range = |key, found| format!("key `{key}`: expected 1..=65536, found {found}");
    refused(|f| f.set(N, 0u32), &range(N, "0"));
    refused(|f| f.set(N, -4i32), &range(N, "-4"));
    refused(|f| f.set(KV, 0u32), &range(KV, "0"));
    refused(
        |f| f.set("qwen2.attention.key_length", 1u32 << 31),
        &range("qwen2.attention.key_length", "2147483648"),
    );
    refused(
        |f| f.set(KV, 8u32),
        &format!("key `{KV}`: expected a divisor of head_count 4, found 8"),
    );
    refused(
        |f| f.set(KV, 3u32),
        &format!("key `{KV}`: expected a divisor of head_count 4, found 3"),
    );
    refused(
        |f| {
            f.set(N, 5u32);
            f.set(KV, 5u32);
        },
        &format!("key `{N}`: expected a divisor of embedding_length 64, found 5"),
    );
    refused(
        |f| f.set(N, vec![4u32, 4, 4]),
        &format!("key `{N}`: expected a number or one per layer (2), found 3 entries"),
    );
    refused(
        |f| f.set(N, vec![4u32, 3]),
        &format!("key `{KV}`: expected a divisor of head_count 3, found 2"),
    );
    refused(
        |f| f.set(N, vec![4u32, 2]),
        "tensor `blk.1.attn_q.bias`: expected [32], file has [64]",
    );
    refused(
        |f| f.set("qwen2.attention.key_length", 32u32),
        "tensor `blk.0.attn_q.bias`: expected [128], file has [64]",
    );
    assert_eq!(accepted(|f| f.set(N, vec![4i64, 4])).config.first_layer().n_heads, 4);
    assert_eq!(File::new("llama").load().unwrap().config.first_layer().head_dim, 16);
}

/// Heads and widths of each layer are its own where the file gives a list.
#[test]
fn layers_of_their_own() {
    let model = accepted(|f| {
        f.set("qwen2.attention.head_count", vec![4u32, 2]);
        f.set("qwen2.attention.head_count_kv", vec![2u32, 1]);
        f.set("qwen2.feed_forward_length", vec![96u32, 32]);
        for (name, dims) in [
            ("attn_q.weight", &[64, 32][..]),
            ("attn_q.bias", &[32]),
            ("attn_k.weight", &[64, 16]),
            ("attn_k.bias", &[16]),
            ("attn_v.weight", &[64, 16]),
            ("attn_v.bias", &[16]),
            ("attn_output.weight", &[32, 64]),
            ("ffn_gate.weight", &[64, 32]),
            ("ffn_up.weight", &[64, 32]),
            ("ffn_down.weight", &[32, 64]),
        ] {
            f.tensor(&format!("blk.1.{name}"), dims);
        }
    });
    let shape =
        |l: &models::LayerConfig| [l.n_heads, l.n_kv_heads, l.head_dim, l.intermediate_size];
    let shapes: Vec<_> = model.config.layers.iter().map(shape).collect();
    assert_eq!(shapes, [[4, 2, 16, 96], [2, 1, 16, 32]]);
    let caches: Vec<_> = model.program.caches.iter().map(|c| c.kind.elements()).collect();
    assert_eq!(caches, [2 * 32, 32]);
}

#[test]
fn widths_and_floats() {
    refused(
        |f| f.set("qwen2.embedding_length", 0u32),
        "key `qwen2.embedding_length`: expected 1..=1048576, found 0",
    );
    refused(
        |f| f.set("qwen2.embedding_length", 32u32),
        "tensor `token_embd.weight`: expected [32, 320], file has [64, 320]",
    );
    refused(
        |f| f.set("qwen2.feed_forward_length", 97u32),
        "tensor `blk.0.ffn_gate.weight`: expected [64, 97], file has [64, 96]",
    );
    for dims in [15u32, 0, 18] {
        refused(
            |f| f.set("qwen2.rope.dimension_count", dims),
            &format!(
                "key `qwen2.rope.dimension_count`: expected an even number <= head size 16, found {dims}"
            ),
        );
    }
    for base in [f32::NAN, 0.0, -1.0, f32::INFINITY] {
        refused(
            |f| f.set("qwen2.rope.freq_base", base),
            &format!("key `qwen2.rope.freq_base`: expected a finite number > 0, found {base}"),
        );
    }
    const EPS: &str = "qwen2.attention.layer_norm_rms_epsilon";
    refused(
        |f| f.set(EPS, f32::NAN),
        &format!("key `{EPS}`: expected a finite number > 0, found NaN"),
    );
    refused(|f| f.unset(EPS), &format!("key `{EPS}` is missing"));
    refused(
        |f| f.set("qwen2.expert_count", 8u32),
        "key `qwen2.expert_count`: expected 0 in a dense architecture, found 8",
    );
}

#[test]
fn contexts_are_clamped_with_a_note() {
    let context = |n: u32| accepted(move |f| f.set("qwen2.context_length", n));
    assert_eq!(context(0).config.context_length, 4096);
    assert_eq!(context(0).notes, ["key `qwen2.context_length` is 0: taken as 4096"]);
    assert_eq!(context(u32::MAX).config.context_length, 1 << 24);
    assert!(context(131_072).notes.is_empty());
}

#[test]
fn vocabularies() {
    refused(
        |f| f.set("tokenizer.ggml.tokens", vec!["x"; 384]),
        "384 tokens in `tokenizer.ggml.tokens`, but `token_embd.weight` has 320 rows",
    );
    assert_eq!(accepted(|f| f.set("tokenizer.ggml.tokens", vec!["x"; 300])).config.vocab_size, 320);
    assert_eq!(accepted(|f| f.unset("tokenizer.ggml.tokens")).config.vocab_size, 320);
    let untied = accepted(|f| f.tensor("output.weight", &[64, 320]));
    assert!(!untied.config.tied_embeddings);
    refused(
        |f| f.tensor("output.weight", &[64, 319]),
        "tensor `output.weight`: expected [64, 320], file has [64, 319]",
    );
}

#[test]
fn architectures() {
    let name = |name: &str| {
        let mut file = File::new("qwen2");
        file.set("general.architecture", name);
        file.load().map(|_| ()).unwrap_err()
    };
    assert_eq!(
        name("mamba\u{1b}[2J\n"),
        r#"unsupported architecture "mamba\u{1b}[2J\n" (docs/models.md lists those that run)"#
    );
    assert!(name(&"x".repeat(1 << 20)).len() < 400);
    refused(
        |f| f.set("general.architecture", 7u32),
        "key `general.architecture`: expected a string, found 7",
    );
}

#[test]
fn tensors() {
    refused(|f| f.drop("output_norm.weight"), "missing tensor `output_norm.weight`");
    refused(|f| f.drop("blk.1.attn_k.bias"), "missing tensor `blk.1.attn_k.bias`");
    refused(
        |f| f.typed("blk.0.ffn_up.weight", GgmlType::I32, &[64, 96]),
        "tensor `blk.0.ffn_up.weight`: type I32 is not supported for a matrix",
    );
    refused(
        |f| f.tensor("blk.0.ffn_down.weight", &[64, 96]),
        "tensor `blk.0.ffn_down.weight`: expected [96, 64], file has [64, 96]",
    );
    // What no op reads does no harm; vectors of other float types and trailing ones neither.
    let odd = accepted(|f| {
        f.tensor("blk.0.attn_q.scale", &[1]);
        f.typed("some.counts", GgmlType::I32, &[3, 5]);
        f.typed("output_norm.weight", GgmlType::F16, &[64, 1]);
    });
    assert_eq!(odd.program.weights.len(), File::new("qwen2").tensors.len());
}

#[test]
fn llama_biases_and_factors_are_optional() {
    let mut file = File::new("llama");
    let biases = |file: &File| {
        let program = file.load().unwrap().program;
        program.nodes.iter().filter(|n| matches!(n.op, Op::Linear { bias: Some(_), .. })).count()
    };
    assert_eq!(biases(&file), 0);
    file.tensor("blk.1.attn_output.bias", &[64]);
    assert_eq!(biases(&file), 1);
    file.tensor("rope_freqs.weight", &[8]);
    let program = file.load().unwrap().program;
    let factors = program.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(program::Attention { rope: Some(rope), .. }) => rope.factors,
        _ => None,
    });
    assert_eq!(factors.count(), 2);
    file.tensor("rope_freqs.weight", &[16]);
    assert_eq!(
        file.load().map(|_| ()).unwrap_err(),
        "tensor `rope_freqs.weight`: expected [8], file has [16]"
    );
}

#[test]
fn rope_scaling() {
    let scaling = |keys: &[(&str, OwnedValue)]| {
        let mut file = File::new("llama");
        keys.iter().for_each(|(key, value)| file.set(&format!("llama.{key}"), value.clone()));
        file.load().map(|m| m.config.first_layer().rope.clone().expect("it rotates").scaling)
    };
    let kind = |name: &str| ("rope.scaling.type", name.into());
    let factor = |x: f32| ("rope.scaling.factor", x.into());
    assert_eq!(scaling(&[]).unwrap(), RopeScaling::None);
    assert_eq!(scaling(&[kind("none"), factor(4.0)]).unwrap(), RopeScaling::None);
    assert_eq!(
        scaling(&[kind("linear"), factor(4.0)]).unwrap(),
        RopeScaling::Linear { factor: 4.0 }
    );
    assert_eq!(
        scaling(&[("rope.scale_linear", 2f32.into())]).unwrap(),
        RopeScaling::Linear { factor: 2.0 }
    );
    assert_eq!(scaling(&[kind("linear"), factor(0.0)]).unwrap(), RopeScaling::None);
    let original = ("rope.scaling.original_context_length", 128u32.into());
    let RopeScaling::Yarn {
        factor: f,
        original_context,
        beta_fast,
        beta_slow,
        attention_factor,
        extrapolation,
    } = scaling(&[kind("yarn"), factor(4.0), original]).unwrap()
    else {
        panic!("not YaRN");
    };
    assert_eq!((f, original_context, beta_fast, beta_slow), (4.0, 128, 32.0, 1.0));
    assert!((attention_factor - 1.138_629_4).abs() < 1e-6);
    assert_eq!(extrapolation, 1.0);
    let ext = ("rope.scaling.yarn_ext_factor", 0f32.into());
    let attn = ("rope.scaling.attn_factor", 0.5f32.into());
    assert!(matches!(
        scaling(&[kind("yarn"), factor(4.0), ext, attn]).unwrap(),
        RopeScaling::Yarn { extrapolation: 0.0, attention_factor: 0.5, .. }
    ));
    assert_eq!(
        scaling(&[kind("dynamic")]).unwrap_err(),
        "key `llama.rope.scaling.type`: expected none, linear, yarn or longrope, found \"dynamic\""
    );
    assert_eq!(
        scaling(&[kind("longrope")]).unwrap_err(),
        "missing tensor `rope_factors_long.weight`"
    );
    assert_eq!(
        scaling(&[kind("yarn"), factor(f32::NAN)]).unwrap_err(),
        "key `llama.rope.scaling.factor`: expected a finite number > 0, found NaN"
    );
}

/// Tensors that a block has and no op reads may be what makes another model of it.
#[test]
fn what_is_not_read_is_told() {
    let odd = accepted(|f| {
        f.tensor("blk.0.attn_q.scale", &[1]);
        f.tensor("blk.1.attn_q_norm.weight", &[16]);
    });
    let note = "tensor `blk.0.attn_q.scale` and 1 more of the decoder blocks: not read";
    assert_eq!(odd.notes, [note]);
    let factors = accepted(|f| {
        f.tensor("rope_factors_long.weight", &[8]);
        f.tensor("rope_factors_short.weight", &[8]);
    });
    let rope = factors.config.first_layer().rope.clone().unwrap();
    assert_eq!(rope.scaling, RopeScaling::Long { attention_factor: 1.0 });
    assert!(factors.notes[0].ends_with("which: those for long ones are used"));
}

/// Contexts as long as the model was first trained on have a rotation of their own; a file without it has one for all.
#[test]
fn the_rotation_follows_from_the_context() {
    let file = |names: &[&str]| {
        let mut file = File::new("llama");
        file.set("llama.context_length", 512u32);
        file.set("llama.rope.scaling.original_context_length", 128u32);
        names.iter().for_each(|name| file.tensor(name, &[8]));
        file.open()
    };
    let (long, short) = ("rope_factors_long.weight", "rope_factors_short.weight");
    let read = |gguf: &Gguf, context| {
        let model = models::load(gguf).unwrap().within(gguf, context).unwrap();
        let names = model.program.weights.iter().map(|weight| weight.name.clone());
        let factors: Vec<_> = names.filter(|name| name.starts_with("rope_")).collect();
        (factors, model.config.rotates_short)
    };
    let both = file(&[long, short]);
    assert!(models::load(&both).unwrap().notes[0].contains("longer than 128 tokens"));
    for (context, name, is_short) in [(1, short, true), (128, short, true), (129, long, false)] {
        assert_eq!(
            read(&both, context),
            (vec![name.to_owned()], is_short),
            "a context of {context}"
        );
    }
    assert_eq!(read(&file(&[long]), 64), (vec![long.to_owned()], false));
}

/// Files may have the number of another norm beside that of the one they mean.
#[test]
fn an_architecture_knows_its_norm() {
    let mut file = File::new("nemotron");
    file.set("nemotron.attention.layer_norm_epsilon", 1e-3f32);
    let model = file.load().unwrap();
    assert_eq!((model.config.norm, model.config.norm_eps), (NormKind::Layer, 1e-3));
    assert_eq!(File::new("qwen2").load().unwrap().config.norm, NormKind::Rms);
}

/// Where only layers with a window rotate, there must be such layers.
#[test]
fn windows_may_be_numbers_and_must_be_there() {
    let mut file = File::new("cohere2");
    let missing = "key `cohere2.attention.sliding_window` is missing";
    assert_eq!(file.load().map(|_| ()).unwrap_err(), missing);
    file.set("cohere2.attention.sliding_window", 8u32);
    file.set("cohere2.attention.sliding_window_pattern", vec![1u32, 0]);
    let layers = file.load().unwrap().config.layers;
    assert_eq!(layers[0].score.mask, Mask::Window(8));
    assert_eq!((layers[1].score.mask, &layers[1].rope), (Mask::Causal, &None));
    file.set("cohere2.attention.sliding_window_pattern", vec![2u32, 0]);
    assert!(file.load().map(|_| ()).unwrap_err().contains("sliding_window_pattern"));
}

#[test]
fn weights_of_a_file() {
    let gguf = File::new("qwen2").open();
    let weights = GgufWeights(&gguf);
    let model = models::load(&gguf).unwrap();
    for spec in &model.program.weights {
        let bytes = weights.bytes(spec).unwrap();
        assert_eq!(bytes.len() as u64, spec.bytes());
        let mut part = vec![0; bytes.len() / 3];
        weights.read(spec, bytes.len() / 2, &mut part).unwrap();
        assert_eq!(part, bytes[bytes.len() / 2..][..part.len()]);
    }
    let spec = |name: &str, ty| WeightSpec { name: name.into(), ty, rows: 320, cols: 64, start: 0 };
    let refused = |spec: WeightSpec| weights.bytes(&spec).unwrap_err().to_string();
    assert_eq!(refused(spec("nothing", GgmlType::F32)), "tensor `nothing`: missing");
    assert_eq!(
        refused(spec("token_embd.weight", GgmlType::Q8_0)),
        "tensor `token_embd.weight`: expected Q8_0 of 320 x 64, file has F32 of [64, 320]"
    );
}

fn any_value() -> impl Strategy<Value = OwnedValue> {
    let number = prop_oneof![any::<u64>(), 0u64..100, Just(1 << 31), Just(u64::MAX)];
    prop_oneof![
        number.clone().prop_map(OwnedValue::U64),
        any::<i32>().prop_map(OwnedValue::I32),
        any::<f32>().prop_map(OwnedValue::F32),
        any::<bool>().prop_map(OwnedValue::Bool),
        ".{0,20}".prop_map(|s| s.as_str().into()),
        proptest::collection::vec(number, 0..4).prop_map(OwnedValue::from),
    ]
}

proptest! {
    /// Whatever one key and one shape say, loading answers, and in one short line.
    #[test]
    fn never_panics(
        architecture in 0..KNOWN.len(),
        key in 0usize..40,
        value in any_value(),
        tensor in any::<prop::sample::Index>(),
        dims in proptest::collection::vec(1u64..200, 1..=4),
    ) {
        const MORE: [&str; 22] = [
            "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
            "rope.scaling.original_context_length", "rope.scaling.attn_factor", "attention.key_length",
            "attention.value_length", "expert_count", "vocab_size", "rope.scaling.yarn_beta_fast",
            "attention.q_lora_rank", "expert_gating_func", "expert_group_count", "expert_group_used_count",
            "expert_weights_norm", "expert_weights_scale", "rope.scaling.yarn_log_multiplier", "expert_shared_count",
            "expert_shared_feed_forward_length", "leading_dense_block_count",
        ];
        let name = KNOWN[architecture];
        let mut file = File::new(name);
        match file.keys.get(key).map(|(key, _)| key.clone()) {
            Some(known) => file.set(&known, value),
            None => file.set(&format!("{name}.{}", MORE[key % MORE.len()]), value),
        }
        if dims.iter().product::<u64>() < 1 << 20 {
            let target = tensor.get(&file.tensors).0.clone();
            file.tensor(&target, &dims);
        }
        if let Err(message) = file.load() {
            prop_assert!(message.len() <= 400 && !message.chars().any(char::is_control), "{}", message);
        }
    }
}

/// Of Qwen3.5: as true and false or as numbers; anything else is refused, and nothing is guessed in its place.
#[test]
fn layers_that_recur_are_named_by_flags() {
    let with = |flags: OwnedValue| {
        let mut outline = models::find_outline("Qwen3.5-0.8B").expect("published");
        outline.set("attention.recurrent_layers", flags);
        outline.config().map_err(|error| error.to_string())
    };
    let named: Vec<bool> = (0..24).map(|i| i % 2 == 0).collect();
    let numbers: Vec<u32> = named.iter().map(|flag| u32::from(*flag)).collect();
    for flags in [named.clone().into(), numbers.into()] {
        let config = with(flags).expect("flags");
        let recurs: Vec<bool> = config.layers.iter().map(|l| l.recurrent.is_some()).collect();
        assert_eq!(recurs, named);
    }
    let refused = |flags: OwnedValue| with(flags).expect_err("no flags");
    assert!(refused(vec![1.0f32; 24].into()).contains("flags"));
    assert!(refused(vec![true; 23].into()).contains("one of 24 flags"));
}
