//! Files from strangers up to the first token: the fuzz target's seeds, and changes to them.

mod harness;

use std::cell::RefCell;
use std::collections::BTreeMap;

use conformance::{MemoryWeights, golden};
use gguf::{Gguf, OwnedValue, ValueType, Writer};
use harness::first_token;
use models::Outline;
use program::WeightSource;
use quant::GgmlType;
use testing::{Dice, mutations, seeds};

/// Changes to each seed.
const MUTATIONS: u64 = 60;

/// And to each golden model, which is larger.
const GOLDEN_MUTATIONS: u64 = 3;

/// A model of one or two layers, some KB. `set` adds what an architecture wants.
fn tiny(architecture: &str, ty: GgmlType, set: impl Fn(&mut Outline)) -> Vec<u8> {
    let mut outline = Outline::new(architecture, 20);
    for (key, value) in [
        ("block_count", 2_u32),
        ("context_length", 64),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
    ] {
        outline.set(key, value);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6_f32);
    set(&mut outline);
    let tensors = RefCell::new(BTreeMap::<String, Vec<u64>>::new());
    let choose = |name: &str, dims: &[u64]| {
        if name.starts_with("rope") || name == "output.weight" || dims.is_empty() {
            return None;
        }
        // A table that is the head as well is asked for twice.
        tensors.borrow_mut().insert(name.to_owned(), dims.to_vec());
        let plain = dims.len() == 1 || name.contains("gate_inp");
        Some(if plain { GgmlType::F32 } else { ty })
    };
    let config = outline.config().expect("keys made for the architecture");
    let program = models::from_config(&config, &choose).expect("the architecture").program;
    let weights = MemoryWeights::random(&program, 1);
    let mut writer = Writer::new();
    for (key, value) in outline.keys() {
        writer.set(key, value.clone());
    }
    for (name, dims) in tensors.into_inner() {
        // a tensor may hold several weights
        let mut specs: Vec<_> = program.weights.iter().filter(|spec| spec.name == name).collect();
        specs.sort_by_key(|spec| spec.start);
        let Some(ty) = specs.first().map(|spec| spec.ty) else { continue };
        let bytes = specs.iter().flat_map(|spec| weights.bytes(spec).expect("made"));
        writer.tensor(name, ty, &dims, bytes.collect::<Vec<u8>>());
    }
    writer.to_bytes().expect("it can be written")
}

/// The corpus, by name.
fn made() -> Vec<(&'static str, Vec<u8>)> {
    let experts = |outline: &mut Outline| {
        for (key, n) in [("count", 3_u32), ("used_count", 2), ("feed_forward_length", 32)] {
            outline.set(&format!("expert_{key}"), n);
        }
    };
    vec![
        ("dense", tiny("qwen2", GgmlType::Q4_0, |_| ())),
        (
            "halves",
            tiny("llama", GgmlType::F16, |outline| {
                outline.set("block_count", 1_u32);
            }),
        ),
        (
            "windows",
            tiny("gemma2", GgmlType::Q8_0, |outline| {
                outline.set("attention.sliding_window", 2_u32);
                outline.set("attn_logit_softcapping", 5_f32);
                outline.set("attention.key_length", 16_u32);
            }),
        ),
        ("experts", tiny("qwen3moe", GgmlType::Q4_0, experts)),
        ("joint", tiny("phi3", GgmlType::Q4_0, |_| ())),
        ("layer_norms", tiny("falcon", GgmlType::F16, |_| ())),
        (
            "sinks",
            tiny("gpt-oss", GgmlType::Mxfp4, |outline| {
                experts(outline);
                outline.set("attention.sliding_window", 2_u32);
            }),
        ),
        (
            "latent",
            tiny("deepseek2", GgmlType::Q8_0, |outline| {
                experts(outline);
                for (key, value) in [
                    ("expert_shared_count", 1_u32),
                    ("leading_dense_block_count", 1),
                    ("attention.q_lora_rank", 32),
                    ("attention.kv_lora_rank", 32),
                    ("attention.key_length", 48),
                    ("attention.value_length", 32),
                    ("rope.dimension_count", 16),
                ] {
                    outline.set(key, value);
                }
            }),
        ),
    ]
}

/// To write the files anew after a change to `made`: `ROOFLIGHT_BLESS=1 cargo test -p rooflight-cpu --test first_token`.
#[test]
fn the_corpus_comes_to_its_first_token() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/first_token");
    for (name, bytes) in made() {
        let path = std::path::Path::new(folder).join(name);
        if std::env::var_os("ROOFLIGHT_BLESS").is_some() {
            std::fs::write(&path, &bytes).expect("the corpus can be written");
        }
        assert!(std::fs::read(&path).expect("a seed") == bytes, "{name} is another file");
        assert_eq!(first_token(&bytes), Ok(()), "{name}");
    }
}

/// Numbers that bounds stand at.
const NUMBERS: [u64; 14] =
    [0, 1, 2, 3, 5, 16, 31, 33, 64, 255, 65_536, 1 << 31, u32::MAX as u64, u64::MAX];

/// A value of the same type, or of another.
fn other_value(dice: &mut Dice, value: &OwnedValue) -> OwnedValue {
    let n = NUMBERS[dice.below(NUMBERS.len())];
    match (dice.below(8), value) {
        (0, _) => OwnedValue::U64(n),
        (1, _) => OwnedValue::String(b"yarn".to_vec()),
        (2, _) => {
            let items = (0..dice.below(4)).map(|_| OwnedValue::U32(n as u32)).collect();
            OwnedValue::Array(ValueType::U32, items)
        }
        (_, OwnedValue::F32(x)) => {
            let numbers =
                [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE, 1e30, -x, x * 3.0];
            OwnedValue::F32(numbers[dice.below(numbers.len())])
        }
        (_, OwnedValue::Bool(yes)) => OwnedValue::Bool(!yes),
        (_, OwnedValue::String(_)) => {
            let known = models::ARCHITECTURES;
            OwnedValue::String(known[dice.below(known.len())].name.into())
        }
        _ => OwnedValue::U32(n as u32),
    }
}

/// The file again, with some keys and tensors that are not what they were; `None` if that is no file.
fn rewrite(dice: &mut Dice, gguf: &Gguf) -> Option<Vec<u8>> {
    let mut writer = Writer::new();
    let (n_keys, n_tensors) = (gguf.metadata().iter().count(), gguf.tensors().len());
    // Few changes at a time: most files with many are refused for the first.
    let keys: Vec<usize> = (0..dice.below(3)).map(|_| dice.below(n_keys)).collect();
    let tensors: Vec<usize> = (0..dice.below(3)).map(|_| dice.below(n_tensors)).collect();
    for (i, (key, value)) in gguf.metadata().iter().enumerate() {
        let value = OwnedValue::from(value);
        let key = std::str::from_utf8(key.as_ref()).ok()?;
        match keys.contains(&i) {
            true if dice.below(6) == 0 => {}
            true => drop(writer.set(key, other_value(dice, &value))),
            false => drop(writer.set(key, value)),
        }
    }
    for (i, info) in gguf.tensors().iter().enumerate() {
        let (mut dims, mut ty, name) = (info.dims.clone(), info.ty().ok()?, info.name.as_str());
        let bytes = gguf.bytes(info).ok()?;
        if !tensors.contains(&i) {
            writer.tensor(name, ty, &dims, bytes);
            continue;
        }
        let at = dice.below(dims.len());
        match dice.below(5) {
            0 => continue,
            1 => dims[at] = NUMBERS[1 + dice.below(8)],
            2 => dims.swap(0, at),
            3 => ty = quant::FORMATS[dice.below(quant::FORMATS.len())].ty(),
            _ => {}
        }
        let rows = dims[1..].iter().product::<u64>() as usize;
        let len = ty.row_bytes(dims[0] as usize)? * rows;
        // What the weights are: anything, that is also infinities and NaN.
        let same = len == bytes.len() && dice.below(2) == 0;
        let noise = (0..len).map(|_| dice.bits() as u8).collect();
        writer.tensor(name, ty, &dims, if same { bytes.to_vec() } else { noise });
    }
    writer.to_bytes().ok()
}

/// Some bytes changed, most of them before the weights.
fn scatter(dice: &mut Dice, data: &mut [u8]) {
    for _ in 0..1 + dice.below(4) {
        let end = if dice.below(4) == 0 { data.len() } else { data.len().min(2500) };
        let at = dice.below(end);
        data[at] = [0, 1, 0xFF, data[at] ^ 1 << dice.below(8)][dice.below(4)];
    }
}

/// Change each seed so many times: how many inputs were tried, and how many came to a token.
fn change(seeds: impl IntoIterator<Item = (String, Vec<u8>)>, n: u64) -> (u64, u64) {
    let mut dice = Dice::new(7);
    let (mut tried, mut through) = (0, 0);
    for (name, seed) in seeds {
        let gguf = Gguf::from_bytes(seed.clone()).expect("a seed");
        for i in 0..n {
            let mut data = rewrite(&mut dice, &gguf).unwrap_or_else(|| seed.clone());
            if dice.below(3) == 0 {
                scatter(&mut dice, &mut data);
            }
            match std::panic::catch_unwind(|| first_token(&data)) {
                Ok(ok) => (tried, through) = (tried + 1, through + u64::from(ok.is_ok())),
                Err(_) => {
                    let path = std::env::temp_dir().join(format!("first_token-{name}-{i}.gguf"));
                    let kept = std::fs::write(&path, &data);
                    panic!("change {i} of {name}: {} ({kept:?})", path.display());
                }
            }
        }
    }
    eprintln!("first_token: {tried} inputs, {through} came to a token");
    (tried, through)
}

#[test]
fn what_is_changed_is_refused_or_comes_to_its_first_token() {
    let (tried, through) = change(seeds("first_token"), mutations(MUTATIONS));
    assert!(through * 10 > tried, "{through} of {tried} came to a token");
}

/// The same for a model of every architecture; `ROOFLIGHT_MUTATIONS` makes it more than a few changes.
#[test]
fn golden_models_that_are_changed_are_refused_or_come_to_their_first_token() {
    let models = golden::models();
    let n = models.len() as u64;
    assert!(n >= models::ARCHITECTURES.len() as u64 / 2, "{n} models");
    let (tried, through) = change(models, mutations(GOLDEN_MUTATIONS));
    assert!(through * 10 > tried, "{through} of {tried} came to a token");
}
