//! Models that say something of a text as a whole.

use models::{ModelConfig, Pooling};
use program::{Mask, Op, OutputKind, OutputRows, Program};

use crate::common::File;

/// A valid `bert`: token types and positions, biases left out.
fn bert() -> File {
    let mut file = File::new("bert");
    file.set("bert.attention.layer_norm_epsilon", 1e-12f32);
    file.set("bert.pooling_type", 1u32);
    file.drop("output_norm.weight");
    for (name, dims) in [
        ("position_embd.weight", &[64, 512][..]),
        ("token_types.weight", &[64, 2]),
        ("token_embd_norm.weight", &[64]),
    ] {
        file.tensor(name, dims);
    }
    for i in 0..2 {
        file.drop(&format!("blk.{i}.attn_norm.weight"));
        file.drop(&format!("blk.{i}.ffn_norm.weight"));
        file.drop(&format!("blk.{i}.ffn_gate.weight"));
        file.tensor(&format!("blk.{i}.attn_output_norm.weight"), &[64]);
        file.tensor(&format!("blk.{i}.layer_output_norm.weight"), &[64]);
    }
    file
}

fn rows(file: &File) -> Option<OutputRows> {
    file.load().unwrap_or_else(|e| panic!("a good file is refused: {e}")).config.text_rows()
}

fn said(program: &Program) -> Vec<(OutputKind, usize)> {
    program.outputs.iter().map(|(kind, id)| (*kind, program.value(*id).shape.cols())).collect()
}

#[test]
fn an_encoder_sees_all_rows_and_yields_no_logits() {
    let model = bert().load().unwrap();
    assert!(model.notes.is_empty(), "{:?}", model.notes);
    assert_eq!(said(&model.program), [(OutputKind::Hidden, 64)]);
    assert!(model.config.layers.iter().all(|layer| layer.score.mask == Mask::Full));
    assert!(model.config.reads_at_once());
    assert!(model.program.nodes.iter().any(|node| node.op == Op::MeanRows));
    assert_eq!((model.program.n_tokens(), model.program.n_positions()), (Some(320), Some(512)));
}

#[test]
fn pooling_decides_on_rows() {
    let with = |pooling: u32| {
        let mut file = bert();
        file.set("bert.pooling_type", pooling);
        file.tensor("cls.output.weight", &[64, 1]);
        rows(&file)
    };
    assert_eq!(with(0), Some(OutputRows::All));
    assert_eq!([1, 2, 3, 4].map(with), {
        use OutputRows::{First, Last};
        [Last, First, Last, First].map(Some)
    });
    let mut decoder = File::new("qwen3");
    assert_eq!(rows(&decoder), None);
    decoder.set("qwen3.pooling_type", 0u32);
    assert_eq!(rows(&decoder), None, "it writes, as others of its kind do");
    decoder.set("qwen3.pooling_type", 4u32);
    decoder.tensor("cls.output.weight", &[64, 2]);
    assert_eq!(rows(&decoder), Some(OutputRows::Last));
    assert_eq!(said(&decoder.load().unwrap().program), [(OutputKind::Hidden, 2)]);
}

#[test]
fn another_pooling_may_be_chosen() {
    let file = File::new("qwen3").open();
    let pooled = |pooling| models::load_pooled(&file, pooling).map_err(|e| e.to_string());
    let model = pooled(Pooling::Last).unwrap();
    assert!(!model.config.reads_at_once() && pooled(Pooling::Mean).unwrap().config.reads_at_once());
    assert_eq!(said(&model.program), [(OutputKind::Hidden, 64)]);
    assert!(pooled(Pooling::Mean).unwrap().program.nodes.iter().any(|n| n.op == Op::MeanRows));
    let refused = pooled(Pooling::Rank).map(|_| ()).unwrap_err();
    assert_eq!(refused, "missing tensor `cls.output.weight`");
}

#[test]
fn what_files_may_not_say() {
    let refused = |spoil: &dyn Fn(&mut File)| {
        let mut file = bert();
        spoil(&mut file);
        file.load().map(|_| ()).expect_err("a spoilt file is refused")
    };
    assert_eq!(
        refused(&|f| f.set("bert.pooling_type", 5u32)),
        "key `bert.pooling_type`: expected 0..=4, found 5"
    );
    assert_eq!(
        refused(&|f| f.set("bert.pooling_type", 4u32)),
        "missing tensor `cls.output.weight`"
    );
    assert_eq!(
        refused(&|f| f.tensor("token_types.weight", &[32, 2])),
        "tensor `token_types.weight`: expected [64, 2], file has [32, 2]"
    );
    assert_eq!(
        refused(&|f| f.tensor("dense_2.weight", &[32, 100])),
        "tensor `dense_2.weight`: expected [64, 100], file has [32, 100]"
    );
    assert_eq!(
        refused(&|f| f.set("bert.attention.causal", "no")),
        "key `bert.attention.causal`: expected true or false, found \"no\""
    );
    assert_eq!(
        refused(&|f| f.tensor("blk.0.attn_norm_2.weight", &[64])),
        "tensor `blk.0.attn_norm_2.weight` is not supported: a second norm behind attention"
    );
    let mut silent = bert();
    silent.unset("bert.pooling_type");
    let model = silent.load().unwrap();
    let note = "key `bert.pooling_type` is missing: a text has a vector for each of its tokens";
    assert_eq!(model.notes, [note]);
}

/// Any architecture may have a file that looks both ways.
#[test]
fn attention_that_is_not_causal_is_read() {
    let mut file = File::new("qwen2");
    let masks = |file: &File| {
        let (config, _) = ModelConfig::from_gguf(&file.open()).unwrap();
        config.layers.iter().map(|layer| layer.score.mask).collect::<Vec<_>>()
    };
    assert_eq!(masks(&file), [Mask::Causal; 2]);
    file.set("qwen2.attention.causal", false);
    assert_eq!(masks(&file), [Mask::Full; 2]);
}
