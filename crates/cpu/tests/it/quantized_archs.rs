//! Every architecture in quantized types, beside the same weights dequantized: what kernels round, no more.
//!
//! The models are the golden ones with wider rows, as types of 256 weights a block want them.

use std::collections::BTreeSet;
use std::sync::Arc;

use conformance::{MemoryWeights, golden, nmse};
use cpu::{Cpu, Options};
use gguf::{Gguf, OwnedValue};
use models::Outline;
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheType, Executor, Op, OutputKind, Outputs, Program, Prompt, RowsOut, Sequence,
    Step, StepOut, Wanted,
};
use quant::GgmlType;

/// NMSE of the logits of rows that were routed alike.
const BOUND: f64 = 1e-3;
/// Models of random weights that make more of the rounding of their inputs: few gates survive a cut, no norm stands before
/// the halves of a block, or nothing is normed between large sums.
const AMPLIFY: [(&str, f64); 6] = [
    ("gemma3n", 6e-2),
    ("exaone4", 5e-3),
    ("baichuan", 2e-3),
    ("baichuan-13b", 2e-3),
    ("command-r-plus", 2e-3),
    ("llama4", 2e-3),
];
/// Tensors of layers that recur.
const RECUR: [&str; 4] = ["ssm_", "shortconv", "time_mix", "lightning"];
const WIDE: u32 = 256;
const ROWS: usize = 8;

/// Keys whose numbers are lengths of rows.
const WIDTHS: [&str; 8] = [
    "embedding_length",
    "feed_forward_length",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "embedding_length_per_layer_input",
    "attention.q_lora_rank",
    "attention.kv_lora_rank",
    "attention.value_length_mla",
];

/// Widths of heads, so that those of a row are whole blocks together.
const HEADS: [&str; 4] = [
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
];

fn wider(value: &OwnedValue, width: u32) -> OwnedValue {
    match value {
        // 0 says that there is none
        OwnedValue::U32(n) => OwnedValue::U32(if *n == 0 { 0 } else { width }),
        OwnedValue::Array(ty, items) => {
            OwnedValue::Array(*ty, items.iter().map(|item| wider(item, width)).collect())
        }
        OwnedValue::I32(n) => OwnedValue::I32(if *n == 0 { 0 } else { width as i32 }),
        other => other.clone(),
    }
}

/// The golden model again, wider, its matrices of this type where their rows are whole blocks of it.
fn wide(gguf: &Gguf, ty: GgmlType) -> Arc<Program> {
    let metadata = gguf.metadata();
    let architecture = metadata.get("general.architecture").expect("a model").to_string();
    let architecture = architecture.trim_matches('"').to_owned();
    let mut outline = Outline::new(&architecture, 512);
    let prefix = format!("{architecture}.");
    let latent = metadata.get(&format!("{prefix}attention.kv_lora_rank")).is_some();
    let rotated = metadata.u64(&format!("{prefix}rope.dimension_count")).ok().flatten();
    for (key, value) in metadata.iter() {
        let key = std::str::from_utf8(key.as_ref()).expect("a key");
        // Apertus' are not prefixed
        let bare = Some(key).filter(|key| key.starts_with("xielu."));
        let Some(key) = key.strip_prefix(&prefix).or(bare) else { continue };
        let value = OwnedValue::from(value);
        // of a latent key one part turns and is not as wide as the other
        let whole = WIDE + rotated.unwrap_or(0) as u32;
        let value = match key {
            key if WIDTHS.contains(&key) => wider(&value, WIDE),
            "attention.key_length" | "attention.key_length_mla" if latent => wider(&value, whole),
            "attention.value_length" if latent => wider(&value, WIDE),
            key if HEADS.contains(&key) => wider(&value, WIDE / 2),
            _ => value,
        };
        outline.set(key, value);
    }
    let names: BTreeSet<&str> = gguf.tensors().iter().map(|t| t.name.as_str()).collect();
    for name in &names {
        outline.tensor(name);
    }
    let config = outline.config().unwrap_or_else(|e| panic!("{architecture}: {e}"));
    let choose = |name: &str, dims: &[u64]| {
        let plain = dims.len() < 2
            || ["gate_inp", "altup", "position", "conv"].iter().any(|part| name.contains(part));
        let fits = |ty: GgmlType| dims[0].is_multiple_of(ty.block_len() as u64);
        let all = [ty, GgmlType::Q8_0];
        let chosen = all.into_iter().find(|ty| !plain && fits(*ty)).unwrap_or(GgmlType::F32);
        names.contains(name).then_some(chosen)
    };
    let loaded = models::from_config(&config, &choose);
    loaded.unwrap_or_else(|e| panic!("{architecture}: {e}")).program
}

/// The same, handing out the experts of every row by layer, then the logits.
fn handing_out(program: &Program) -> Arc<Program> {
    let nodes = program.nodes.iter().filter(|node| matches!(node.op, Op::Route(_)));
    let logits = program.logits().expect("a model that writes");
    let values = nodes.map(|node| node.output).chain([logits]);
    let outputs = values.map(|id| (OutputKind::Rows, id)).collect();
    Arc::new(Program { outputs, ..program.clone() })
}

/// What the program hands out, value by value.
fn run(executor: &dyn Executor, program: &Arc<Program>, weights: &MemoryWeights) -> Vec<Vec<f32>> {
    let model = executor.load(Arc::clone(program), weights, &mut |_| ()).expect("it loads");
    let cache = CacheOptions::new(CacheType::F32, CacheType::F32, ROWS);
    let session = model.open(&cache).expect("it opens");
    let tokens: Vec<u32> = (0..ROWS).map(|i| (i * 89 % 511) as u32).collect();
    let prompt = Some(Prompt { start: 0, len: ROWS });
    let outputs = Outputs { what: Wanted::Rows, ..Outputs::ALL };
    let sequence = Sequence { session, tokens: &tokens, outputs, prompt, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    match out.expect("it steps") {
        RowsOut::Rows(rows) => rows,
        other => panic!("rows were wanted: {other:?}"),
    }
}

/// Whether both chose the same experts in every layer for a row and those before it, which it attends to.
fn routed_alike(a: &[Vec<f32>], b: &[Vec<f32>], row: usize) -> bool {
    let ids = |data: &[f32], row: usize| {
        let cols = data.len() / ROWS;
        let ids = data[row * cols..][..cols / 2].iter().map(|id| *id as u32);
        ids.collect::<BTreeSet<u32>>()
    };
    a.iter().zip(b).all(|(a, b)| (0..=row).all(|row| ids(a, row) == ids(b, row)))
}

/// 4 bits: of gpt-oss as it is published, too.
const FEW_BITS: [(Option<&str>, GgmlType); 2] =
    [(None, GgmlType::Q4K), (Some("gpt-oss"), GgmlType::Mxfp4)];

#[test]
fn weights_of_4_bits_are_as_their_dequantized_ones() {
    check(&FEW_BITS, 0);
}

#[test]
fn weights_of_4_bits_are_as_their_dequantized_ones_in_other_models() {
    check(&FEW_BITS, 1);
}

#[test]
fn weights_of_8_bits_are_as_their_dequantized_ones() {
    for half in 0..2 {
        check(&[(None, GgmlType::Q8_0)], half);
    }
}

/// Types, of one model or of all; every second model, from this one on. In the gate a third of these, and every model that has
/// a type of its own.
fn check(types: &[(Option<&str>, GgmlType)], half: usize) {
    let full = testing::full("cpu: every architecture in quantized types");
    let cpu = Cpu::new(&Options { threads: Some(2), ..Options::default() });
    let (mut far, mut unlike, mut tried) = (Vec::new(), Vec::new(), 0);
    for (i, (name, bytes)) in golden::models().into_iter().enumerate().skip(half).step_by(2) {
        if !full && i % 6 != half && types.iter().all(|(of, _)| *of != Some(&*name)) {
            continue;
        }
        let gguf = Gguf::from_bytes(bytes).expect("a golden model");
        if gguf.tensor("position_embd.weight").is_some() {
            continue; // as many positions as the file's table has rows
        }
        if gguf.tensors().iter().any(|t| RECUR.iter().any(|part| t.name.contains(part))) {
            continue; // their states are as wide as other keys say, which do not follow these
        }
        let of = types.iter().filter(|(of, _)| of.is_none_or(|of| of == name));
        for ty in of.map(|(_, ty)| *ty) {
            let program = handing_out(&wide(&gguf, ty));
            let weights = MemoryWeights::random(&program, 11);
            let [mut want, mut found] =
                [&Interpreter as &dyn Executor, &cpu].map(|e| run(e, &program, &weights));
            let [want_logits, found_logits] =
                [&mut want, &mut found].map(|rows| rows.pop().expect("logits come last"));
            let alike: Vec<bool> = (0..ROWS).map(|row| routed_alike(&want, &found, row)).collect();
            let logits = |all: &[f32]| -> Vec<f32> {
                let rows = all.chunks_exact(512).zip(&alike).filter(|(_, alike)| **alike);
                rows.flat_map(|(row, _)| row).copied().collect()
            };
            let n = alike.iter().filter(|alike| **alike).count();
            let nmse = nmse(&logits(&found_logits), &logits(&want_logits));
            let share = n as f64 / ROWS as f64;
            eprintln!("{name} {ty}: NMSE {nmse:.1e}, {:.0} % of rows alike", 100.0 * share);
            let (_, bound) = AMPLIFY.iter().find(|(of, _)| *of == name).unwrap_or(&("", BOUND));
            if n > 0 && (nmse.is_nan() || nmse > *bound) {
                far.push(format!("{name} {ty}: {nmse:.1e}"));
            }
            if n == 0 {
                unlike.push(format!("{name} {ty}"));
            }
            tried += 1;
        }
    }
    assert!(far.is_empty(), "too far: {far:?}");
    // of random experts the first choice may already be a close one
    let most = if full { (tried - 1) / 20 } else { 1 };
    assert!(unlike.len() <= most, "no row is routed alike: {unlike:?} of {tried}");
}
