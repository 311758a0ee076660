//! Tiny models of every architecture, end to end.

use program::{Executor, RopeScaling};
use quant::GgmlType;

use crate::made::{EXACT, all_logits};
use crate::{Family, Made, Random, assert_close, first_difference, tiny_config, tiny_model, trace};

pub(super) fn check(
    executor: &dyn Executor,
    config: &models::ModelConfig,
    ty: GgmlType,
    bound: f64,
) {
    let made = Made::new(executor, &tiny_model(config, ty), 21);
    let tokens = Random::new(8).tokens(33, config.vocab_size);
    let what = format!(
        "{} of {ty}, width {}, {:?}",
        config.architecture, config.hidden_size, config.rope_scaling
    );
    let found = all_logits(&*made.tested, &EXACT, &tokens, tokens.len());
    let want = all_logits(&*made.oracle, &EXACT, &tokens, tokens.len());
    if let (Ok(found), Ok(want)) = (trace(&*made.tested, &tokens), trace(&*made.oracle, &tokens)) {
        let difference = first_difference(&found, &want, bound);
        assert_eq!(difference, None, "{what}: the first value that differs, and its NMSE");
    }
    assert_close(&found, &want, bound, &what);
}

pub(super) fn plain(executor: &dyn Executor) {
    for architecture in Family::Dense.architectures() {
        for tied in [false, true] {
            check(executor, &tiny_config(architecture, 64, tied), GgmlType::F32, 1e-9);
        }
        // A head width of its own, fewer rotated dims, more value than key, one key-value head.
        let mut odd = tiny_config(architecture, 96, false);
        (odd.n_heads, odd.n_kv_heads, odd.head_dim, odd.value_dim, odd.rope_dims) =
            (5, 1, 22, 26, 14);
        (odd.intermediate_size, odd.vocab_size) = (101, 131);
        check(executor, &odd, GgmlType::F32, 1e-9);
    }
}

pub(super) fn half(executor: &dyn Executor) {
    for architecture in Family::Dense.architectures() {
        for ty in [GgmlType::F16, GgmlType::Bf16] {
            check(executor, &tiny_config(architecture, 64, false), ty, 1e-5);
        }
    }
}

pub(super) fn quantized(executor: &dyn Executor) {
    for ty in GgmlType::all().filter(|&ty| ty.block_len() > 1 && quant::format(ty).is_some()) {
        // Blocks of 256 make wide models, whose quantization takes most of this check's time.
        let wide = ty.block_len() > 32;
        for architecture in Family::Dense.architectures().filter(|&a| !wide || a == "qwen2") {
            let width = ty.block_len().max(64);
            let mut config = tiny_config(architecture, width, ty == GgmlType::Q8_0);
            if wide {
                (config.n_layers, config.intermediate_size) = (1, width);
            }
            check(executor, &config, ty, 1e-3);
        }
    }
}

pub(super) fn rope_scaling(executor: &dyn Executor) {
    let yarn = RopeScaling::Yarn {
        factor: 8.0,
        original_context: 128,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 1.207_944_2,
    };
    for architecture in Family::Dense.architectures() {
        for scaling in [RopeScaling::Linear { factor: 4.0 }, yarn] {
            let mut config = tiny_config(architecture, 64, false);
            config.rope_scaling = scaling;
            check(executor, &config, GgmlType::F32, 1e-9);
        }
    }
}
