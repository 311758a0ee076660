//! Counted costs of latent attention and of experts equal the closed forms.

use models::{ModelConfig, Outline};
use planner::formula::{Head, triangle};
use planner::moe::most_experts;
use planner::{Cost, CostKind, CostOptions, Executed, LinearRate, Load, MlaRate, MlaShape, Rates};
use program::{CacheType, MlaDims, MlaForm, Program};
use quant::GgmlType;

/// Widths of DeepSeek-V2-Lite, fewer layers, heads and tokens.
fn v2_lite() -> ModelConfig {
    let mut outline = Outline::new("deepseek2", 1000);
    for (key, count) in [
        ("block_count", 3u32),
        ("embedding_length", 512),
        ("feed_forward_length", 1280),
        ("context_length", 4096),
        ("attention.head_count", 4),
        ("attention.kv_lora_rank", 512),
        ("attention.key_length", 192),
        ("attention.value_length", 128),
        ("rope.dimension_count", 64),
        ("expert_count", 64),
        ("expert_used_count", 6),
        ("expert_feed_forward_length", 256),
        ("expert_shared_count", 2),
        ("leading_dense_block_count", 1),
    ] {
        outline.set(key, count);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6f32);
    outline.tensor("output.weight").tensor("blk.0.attn_q.weight");
    outline.config().expect("a valid outline")
}

const LATENT: MlaDims =
    MlaDims { n_heads: 4, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };

fn program(c: &ModelConfig, matrix: GgmlType) -> Program {
    let ty = |name: &str, dims: &[u64]| match dims.len() {
        1 if name.ends_with(".bias") || name.starts_with("rope_f") => None,
        1 => Some(GgmlType::F32),
        _ => Some(matrix),
    };
    Program::clone(&models::from_config(c, &ty).expect("whole blocks").program)
}

const RECORDED: CostOptions = CostOptions {
    policy: program::KvPolicy::Full,
    k: CacheType::F16,
    v: CacheType::F16,
    query_tile: 1,
    narrow: false,
    processor_cache: u64::MAX,
};

/// Weights in matrices that every token multiplies with once, but for those within attention: projections, the dense
/// layer, shared layers and routers, the head.
fn dense_weights(c: &ModelConfig) -> u64 {
    let h = c.hidden_size;
    let attention = h * 4 * 192 + h * (512 + 64) + 4 * 128 * h;
    let all =
        c.layers.len() * attention + 3 * h * c.first_layer().intermediate_size + c.vocab_size * h;
    (all + 2 * (3 * h * 512 + h * 64)) as u64
}

fn expert_weights(c: &ModelConfig) -> u64 {
    (3 * c.hidden_size * 256) as u64
}

#[test]
fn a_step_reads_the_experts_it_uses() {
    let c = v2_lite();
    let program = program(&c, GgmlType::F16);
    let cost = Cost::of(&program, &RECORDED);
    let step = cost.step(0);
    assert_eq!(step.total().weight_bytes, program.weight_bytes_per_token());
    let matrices = step.of_kind(CostKind::Linear).weights + step.of_kind(CostKind::Head).weights;
    assert_eq!(matrices, dense_weights(&c) + 2 * 6 * expert_weights(&c));
    assert_eq!(step.of_kind(CostKind::Attention).weights, 3 * LATENT.up_weights());
    let resident: u64 = cost.weight_types().iter().map(|ty| ty.weights).sum();
    let norms = (c.layers.len() * (2 * 512 + 512) + 512) as u64;
    let tables = dense_weights(&c) + (c.vocab_size * c.hidden_size) as u64;
    let experts = 2 * 64 * expert_weights(&c);
    assert_eq!(resident, tables + experts + 3 * LATENT.up_weights() + norms);
}

#[test]
fn multiply_adds_are_the_closed_form() {
    let c = v2_lite();
    for ty in [GgmlType::F16, GgmlType::Q8_0] {
        let cost = Cost::of(&program(&c, ty), &RECORDED);
        let per_token = dense_weights(&c) + 2 * 6 * expert_weights(&c);
        for n in [1, 2, 77, 500] {
            let step = cost.step(n - 1).total();
            let attention = 3 * LATENT.macs(MlaForm::Elided, n - 1, 1);
            assert_eq!(step.macs(), per_token + attention, "step {n}");
            assert_eq!(LATENT.macs(MlaForm::Elided, n - 1, 1), 4 * (512 * 256 + n * 1088));
            if n > 1 {
                let prompt = cost.prefill(n, Head::EveryToken).total();
                let attention = 3 * (n * LATENT.up_weights() + triangle(n) * 4 * 320);
                assert_eq!(prompt.macs(), n * per_token + attention, "prompt of {n}");
            }
        }
        let step = cost.step(99);
        let blocks = ty.block_len() > 1;
        assert_eq!(step.of_kind(CostKind::Linear).int8_macs > 0, blocks);
        assert_eq!(step.of_kind(CostKind::Linear).f16_macs > 0, !blocks);
    }
}

#[test]
fn bytes_are_the_closed_form() {
    let c = v2_lite();
    let cost = Cost::of(&program(&c, GgmlType::F16), &RECORDED);
    assert_eq!(cost.cache_bytes_per_token(), 3 * 2 * (512 + 64));
    for n in [2, 40, 4000] {
        let work = cost.prefill(n, Head::LastToken);
        // of each of two layers six experts at least, and all that so many rows can tell apart at most
        let experts = |each: u64| 2 * each * 2 * expert_weights(&c);
        let dense = 2 * (dense_weights(&c) - (c.vocab_size * c.hidden_size) as u64);
        let found = work.of_kind(CostKind::Linear);
        assert_eq!(found.weight_bytes, dense + experts(6), "{n}");
        assert_eq!(found.most_weight_bytes, dense + experts(most_experts(64, 6, n)), "{n}");
        assert_eq!(work.total().cache_write_bytes, n * cost.cache_bytes_per_token());
        assert_eq!(work.total().cache_read_bytes, n * cost.cache_bytes_per_token());
        assert_eq!(cost.step(n).total().cache_read_bytes, (n + 1) * cost.cache_bytes_per_token());
    }
    let q8 = CostOptions { k: CacheType::Q8_0, ..RECORDED };
    let q8 = Cost::of(&program(&c, GgmlType::F16), &q8);
    assert_eq!(q8.cache_bytes_per_token(), 3 * (512 * 34 / 32 + 64 * 2));
}

/// Of the last layer only latents are needed for every token.
#[test]
fn narrowing_drops_what_no_output_needs() {
    let c = v2_lite();
    let program = program(&c, GgmlType::F16);
    let narrow = Cost::of(&program, &CostOptions { narrow: true, ..RECORDED });
    let recorded = Cost::of(&program, &RECORDED);
    assert_eq!(narrow.step(50).total(), recorded.step(50).total());
    let none = narrow.pass(&planner::Load { past: 0, tokens: 40, outputs: 0 });
    let last = none.of_layer(Some(2));
    assert_eq!(last.macs(), 40 * 512 * (512 + 64));
    assert_eq!(last.cache_write_bytes, 40 * 2 * (512 + 64));
    let one = narrow.prefill(40, Head::LastToken).of_layer(Some(2));
    let attention = LATENT.macs(MlaForm::Elided, 39, 1);
    let row = 512 * (4 * 192) + 4 * 128 * 512 + 3 * 512 * 512 + 512 * 64 + 6 * expert_weights(&c);
    assert_eq!(one.macs(), last.macs() + attention + row);
}

#[test]
fn weights_of_experts_are_active_or_idle() {
    let c = v2_lite();
    let program = program(&c, GgmlType::F16);
    let cost = Cost::of(&program, &RECORDED);
    let p = cost.parameters();
    let held: u64 = program.weights.iter().map(|w| (w.rows * w.cols) as u64).sum();
    assert_eq!((p.total(), p.resident()), (held, held));
    assert_eq!(p.idle, 2 * 58 * expert_weights(&c));
    assert_eq!(p.active(), held - p.idle - p.embedding);
    assert!(!p.tied_embeddings());
    let tied = ModelConfig { tied_embeddings: true, ..c };
    let cost = Cost::of(&self::program(&tied, GgmlType::F16), &RECORDED);
    let p = cost.parameters();
    assert!(p.tied_embeddings());
    assert_eq!(p.resident(), held - p.embedding);
}

#[test]
fn without_tiles_every_query_reads_the_latents() {
    let program = program(&v2_lite(), GgmlType::F16);
    let options = CostOptions { query_tile: 64, ..RECORDED };
    let cost = Cost::of(&program, &options);
    let load = Load { past: 5000, tokens: 64, outputs: 1 };
    let read = |cost: &Cost| cost.pass(&load).total().cache_read_bytes;
    assert_eq!(read(&cost.untiled()), 3 * 2 * 576 * (64 * 5000 + triangle(64)));
    assert!(read(&cost.untiled()) > 60 * read(&cost));
}

/// With rates of one second: a layer's attention is counted in the form that its prompt takes.
#[test]
fn latent_attention_is_expected_once_it_is_measured() {
    let executed =
        Executed::of(&program(&v2_lite(), GgmlType::Q8_0), CacheType::F16, CacheType::F16);
    let shape = MlaShape { dims: LATENT, k: CacheType::F16 };
    let wanted = executed.wanted();
    assert_eq!((wanted.latent, wanted.attention), (vec![shape], vec![]));
    assert_eq!(executed.step(10, &Rates::default()), None);
    let rate = MlaRate { shape, step: 8.0, position: 0.5, elided: 2.0, compressed: 1.0 };
    let linear = |ty| LinearRate { ty, points: vec![(1, 0.0)], phase: 0.0 };
    let linear = vec![linear(GgmlType::Q8_0), linear(GgmlType::F32)];
    let rates = Rates { linear, latent: vec![rate], ..Rates::default() };
    let step = executed.step(10, &rates).expect("all was measured");
    assert_eq!(step.attention, 3.0 * (8.0 + 0.5 * 11.0));
    // long prompts are expanded whatever the chunk, short ones are not
    let macs = |form, past, n| LATENT.macs(form, past, n) as f64;
    let long = executed.prefill(0..600, 300, &rates).expect("all was measured");
    let expanded = macs(MlaForm::Compressed, 0, 300) + macs(MlaForm::Compressed, 300, 300);
    assert_eq!(long.attention, 3.0 * expanded);
    let short = executed.prefill(4000..4004, 300, &rates).expect("all was measured");
    assert_eq!(short.attention, 3.0 * 2.0 * macs(MlaForm::Elided, 4000, 4));
}

/// A published model in 8 bits.
fn published(name: &str) -> Program {
    let c = models::find_published(name).expect("a published model");
    let q8_0 = models::Mixture::from_name("Q8_0").expect("a file type");
    let ty = |name: &str, dims: &[u64]| q8_0.tensor_type(&c, name, dims);
    Program::clone(&models::from_config(&c, &ty).expect("whole blocks").program)
}

/// Of DeepSeek-V3.2: beyond 2,048 positions a step reads so many latents, wherever it is, and keys of 128 numbers of all
/// positions, which meet 64 queries.
#[test]
fn of_a_deep_past_few_latents_are_read_and_all_keys_of_indexers() {
    let [plain, chooses] = ["DeepSeek-V3", "DeepSeek-V3.2"].map(published);
    let [plain, chooses] = [plain, chooses].map(|program| Cost::of(&program, &RECORDED));
    assert_eq!(plain.cache_bytes_per_token(), 61 * 2 * (512 + 64));
    assert_eq!(chooses.cache_bytes_per_token(), 61 * 2 * (512 + 64 + 128));
    let at = |cost: &Cost, depth| cost.step(depth).of_kind(CostKind::Attention);
    let [near, few, deep] = [1000, 4000, 128_000].map(|depth| at(&chooses, depth));
    let more = 128_000 - 4000;
    assert_eq!(deep.cache_read_bytes - few.cache_read_bytes, 61 * 2 * 128 * more);
    assert_eq!(deep.f16_macs - few.f16_macs, 61 * 64 * 128 * more);
    assert_eq!(few.cache_read_bytes, 61 * 2 * (576 * 2048 + 128 * 4001));
    // where all positions would be chosen nothing is scored
    assert_eq!(near.cache_read_bytes, at(&plain, 1000).cache_read_bytes);
    assert_eq!(near.f16_macs, at(&plain, 1000).f16_macs);
    let all = at(&plain, 128_000).cache_read_bytes;
    assert!(deep.cache_read_bytes < all / 4, "{deep:?} {all}");
}

/// Of each token: all but the embedding and the experts it does not use. Makers' figures count the embedding, too: 2.7,
/// 3.3, 22, 2.7, 21 and 37 billion.
#[test]
fn active_weights_of_published_mixtures() {
    for (name, want) in [
        ("Qwen1.5-MoE-A2.7B", 2_378_008_576),
        ("Qwen3-30B-A3B", 3_041_867_776),
        ("Qwen3-235B-A22B", 21_568_433_664),
        ("DeepSeek-V2-Lite", 2_451_435_008),
        ("DeepSeek-V2", 20_851_512_320),
        ("DeepSeek-V3", 36_625_618_432),
        ("DeepSeek-V3.2", 37_477_143_296),
    ] {
        let program = published(name);
        let cost = Cost::of(&program, &RECORDED);
        assert_eq!(cost.parameters().active(), want, "{name}");
        let held: u64 = program.weights.iter().map(|w| (w.rows * w.cols) as u64).sum();
        assert_eq!(cost.parameters().resident(), held, "{name}");
    }
}
