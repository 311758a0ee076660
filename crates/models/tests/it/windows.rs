//! What files of models with windows may say, and what is made of it.

use gguf::{OwnedValue, ValueType};
use models::{LayerConfig, LoadedModel, ModelConfig, Outline, find_published};
use program::{Mask, Op, RopeScaling};

use crate::common::File;

fn load(architecture: &str, change: impl FnOnce(&mut File)) -> Result<LoadedModel, String> {
    let mut file = File::new(architecture);
    change(&mut file);
    file.load()
}

fn masks(model: &LoadedModel) -> Vec<Mask> {
    model.config.layers.iter().map(|layer| layer.score.mask).collect()
}

const WINDOW: &str = "gemma3.attention.sliding_window";
const PATTERN: &str = "gemma3.attention.sliding_window_pattern";

/// Which layers have a window: a list, a period, or what the architecture does where the file is silent.
#[test]
fn patterns() {
    let with = |change: fn(&mut File)| {
        let model = load("gemma3", |f| {
            f.set(WINDOW, 24u32);
            change(f);
        });
        masks(&model.unwrap_or_else(|e| panic!("a good file is refused: {e}")))
    };
    let window = Mask::Window(24);
    assert_eq!(with(|_| ()), [window, window], "the sixth layer sees all, and there are two");
    assert_eq!(with(|f| f.set(PATTERN, vec![false, true])), [Mask::Causal, window]);
    assert_eq!(with(|f| f.set(PATTERN, vec![0u32, 1])), [Mask::Causal, window]);
    assert_eq!(with(|f| f.set(PATTERN, 2u32)), [window, Mask::Causal]);
    assert_eq!(with(|f| f.set(PATTERN, 1u32)), [Mask::Causal, Mask::Causal]);
    assert_eq!(with(|f| f.set(WINDOW, 0u32)), [Mask::Causal, Mask::Causal]);
    assert_eq!(with(|f| f.unset(WINDOW)), [Mask::Causal, Mask::Causal]);
    let refused = |value: gguf::OwnedValue| {
        load("gemma3", |f| f.set(PATTERN, value)).map(|_| ()).expect_err("it is refused")
    };
    let expected =
        format!("key `{PATTERN}`: expected a number or true or false for each of 2 layers");
    assert_eq!(refused(vec![true].into()), format!("{expected}, found 1 entries"));
    assert_eq!(refused(vec![2u32, 0].into()), format!("{expected}, found 2 entries"));
    assert_eq!(refused("all".into()), format!("key `{PATTERN}`: expected 0..=512, found \"all\""));
}

/// What is in a window of queries that see both ways is known of one architecture alone.
#[test]
fn windows_that_see_both_ways() {
    let both_ways = |architecture: &str, window: u32| {
        let set = |outline: &mut Outline| {
            outline.set("block_count", 2u32);
            outline.set("attention.causal", false);
            outline.set("attention.sliding_window", window);
            outline.set("attention.sliding_window_pattern", 2u32);
            // the scaling is of the layer that sees all
            outline.set("rope.scaling.type", "linear");
            outline.set("rope.scaling.factor", 8f32);
            if ["smallthinker", "llama4"].contains(&architecture) {
                outline.set("expert_count", 3u32);
                outline.set("expert_used_count", 2u32);
            }
        };
        let scaled = |layer: &LayerConfig| {
            layer.rope.as_ref().is_some_and(|rope| rope.scaling != RopeScaling::None)
        };
        let of = |layer: &LayerConfig| (layer.score.mask, scaled(layer));
        outline(architecture, set).map(|c| c.layers.iter().map(of).collect::<Vec<_>>())
    };
    for architecture in ["gemma3", "cohere2", "smallthinker", "llama4"] {
        let refused = Err(format!(
            "key `{architecture}.attention.causal`: expected true in a model with windows, found false"
        ));
        assert_eq!(both_ways(architecture, 24), refused);
    }
    assert_eq!(both_ways("gemma3", 0), Ok(vec![(Mask::Full, true); 2]));
    let around = Ok(vec![(Mask::Around(12), false), (Mask::Full, true)]);
    assert_eq!(both_ways("gemma-embedding", 24), around);
}

#[test]
fn a_window_layer_has_a_cache_and_a_rotation_of_its_own() {
    let model = load("gemma3", |f| {
        f.set(WINDOW, 24u32);
        f.set(PATTERN, vec![true, false]);
        f.set("gemma3.rope.freq_base", 1e6f32);
        f.set("gemma3.rope.scaling.type", "linear");
        f.set("gemma3.rope.scaling.factor", 8f32);
    });
    let model = model.unwrap();
    let windows: Vec<_> = model.program.caches.iter().map(|cache| cache.kind.window()).collect();
    assert_eq!(windows, [Some(24), None]);
    let rope = |layer: &LayerConfig| {
        let rope = layer.rope.clone().expect("it rotates");
        (rope.theta, rope.scaling)
    };
    let ropes: Vec<_> = model.config.layers.iter().map(rope).collect();
    assert_eq!(ropes, [(1e4, RopeScaling::None), (1e6, RopeScaling::Linear { factor: 8.0 })]);
    assert_eq!(model.config.embedding_scale, Some(8.0));
    assert_eq!(model.config.logit_softcap, None);
}

#[test]
fn gemma_2_caps_scores_and_logits() {
    let model = load("gemma2", |f| f.set("gemma2.attention.sliding_window", 24u32)).unwrap();
    assert_eq!(masks(&model), [Mask::Window(24), Mask::Causal]);
    let caps: Vec<_> = model.config.layers.iter().map(|layer| layer.score.softcap).collect();
    assert_eq!((caps, model.config.logit_softcap), (vec![Some(50.0); 2], Some(30.0)));
    let program = &model.program;
    let last = program.nodes.last().expect("a program has nodes");
    assert!(matches!(last.op, Op::Act(_)) && program.logits() == Some(last.output));
}

/// The largest of each generation is told by its number of layers.
#[test]
fn scales_of_scores() {
    for (name, want) in [
        ("gemma-2-2b", 256f32),
        ("gemma-2-9b", 256.0),
        ("gemma-2-27b", 144.0),
        ("gemma-3-1b", 256.0),
        ("gemma-3-12b", 256.0),
        ("gemma-3-27b", 168.0),
    ] {
        let config = find_published(name).expect("a published name");
        let scale = config.first_layer().score.scale;
        assert!((scale * want.sqrt() - 1.0).abs() < 1e-6, "{name}: {scale}");
    }
}

/// Keys of an architecture, as a file might have them.
fn outline(architecture: &str, set: impl Fn(&mut Outline)) -> Result<ModelConfig, String> {
    let mut outline = Outline::new(architecture, 20);
    for (key, count) in [
        ("block_count", 12_u32),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
        ("attention.sliding_window", 8),
    ] {
        outline.set(key, count);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6_f32);
    set(&mut outline);
    outline.config().map_err(|error| error.to_string())
}

/// Gemma 3n's converter writes that count as a float.
#[test]
fn shared_layers_may_be_counted_in_floats() {
    let of = |value: f32| {
        let config = outline("gemma3n", |o| {
            o.set("attention.shared_kv_layers", value);
        });
        config.map(|c| c.layers.iter().filter_map(|l| l.reads_layer).collect::<Vec<_>>())
    };
    // every fifth layer sees all
    assert_eq!(of(3.0), Ok(vec![4, 8, 8]));
    assert!(of(2.5).unwrap_err().contains("attention.shared_kv_layers`: expected 0..=11"));
    assert!(of(-1.0).is_err() && of(f32::NAN).is_err() && of(12.0).is_err());
}

#[test]
fn gates_of_gemma_3n_are_cut_where_the_file_says() {
    let of = |set: &dyn Fn(&mut Outline)| {
        let config = outline("gemma3n", set);
        config.map(|c| c.layers.iter().filter(|l| l.gate_deviations.is_some()).count())
    };
    assert_eq!(of(&|_| ()), Ok(10));
    let cut = |n: usize| {
        let mut items = vec![OwnedValue::F32(1.5); n];
        items.resize(12, OwnedValue::F32(f32::NEG_INFINITY));
        OwnedValue::Array(ValueType::F32, items)
    };
    let said = |n| {
        of(&move |o| {
            o.set("activation_sparsity_scale", cut(n));
        })
    };
    assert_eq!((said(0), said(3)), (Ok(0), Ok(3)));
    let refused = |key: &'static str, n: u32| {
        of(&move |o| {
            o.set(key, n);
        })
        .unwrap_err()
    };
    assert!(refused("altup.active_idx", 1).contains("expected 0..=0, found 1"));
    assert!(refused("altup.num_inputs", 3).contains("expected 4..=4, found 3"));
}

#[test]
fn sections_of_a_rotation_add_up_or_are_refused() {
    let of = |sections: &[u64]| {
        let items = sections.iter().map(|n| OwnedValue::U64(*n)).collect();
        let array = OwnedValue::Array(ValueType::U64, items);
        outline("hunyuan_vl", move |o| {
            o.set("rope.dimension_sections", array.clone());
        })
    };
    assert!(of(&[2, 2, 2, 2]).is_ok());
    for bad in [&[u64::MAX, 1, 0, 0][..], &[1 << 31, 1 << 31, 1, 0], &[2, 2, 2]] {
        assert!(of(bad).unwrap_err().contains("four counts of pairs"), "{bad:?}");
    }
}

#[test]
fn blocks_that_run_in_rounds_are_no_more_than_a_model_may_have() {
    let of = |n: u32| {
        outline("nanbeige", |o| {
            o.set("num_loops", n);
        })
    };
    assert_eq!(of(2).map(|c| c.layers.len()), Ok(24));
    assert!(of(43).unwrap_err().contains("expected 1..=42, found 43"));
}
