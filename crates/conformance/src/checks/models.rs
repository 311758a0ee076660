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
    let rope = config.first_layer().rope.as_ref();
    let scaling = rope.map_or(RopeScaling::None, |rope| rope.scaling);
    let what =
        format!("{} of {ty}, width {}, {scaling:?}", config.architecture, config.hidden_size);
    let found = all_logits(&*made.tested, &EXACT, &tokens, tokens.len());
    let want = all_logits(&*made.oracle, &EXACT, &tokens, tokens.len());
    if let (Ok(found), Ok(want)) = (trace(&*made.tested, &tokens), trace(&*made.oracle, &tokens)) {
        let difference = first_difference(&found, &want, bound);
        assert_eq!(difference, None, "{what}: the first value that differs, and its NMSE");
    }
    assert_close(&found, &want, bound, &what);
}

pub(super) fn plain(executor: &dyn Executor) {
    for architecture in Family::Dense.architectures().iter().copied() {
        for tied in [false, true] {
            check(executor, &tiny_config(architecture, 64, tied), GgmlType::F32, 1e-9);
        }
        // A head width of its own, fewer rotated dims, more value than key, one key-value head.
        let mut odd = tiny_config(architecture, 96, false);
        odd.vocab_size = 131;
        for l in &mut odd.layers {
            (l.n_heads, l.n_kv_heads, l.head_dim, l.value_dim) = (5, 1, 22, 26);
            l.intermediate_size = 101;
            l.rope.as_mut().expect("all rotate").dims = 14;
        }
        check(executor, &odd, GgmlType::F32, 1e-9);
    }
}

pub(super) fn half(executor: &dyn Executor) {
    for architecture in Family::Dense.architectures().iter().copied() {
        for ty in [GgmlType::F16, GgmlType::Bf16] {
            check(executor, &tiny_config(architecture, 64, false), ty, 1e-5);
        }
    }
}

pub(super) fn quantized(executor: &dyn Executor) {
    for ty in GgmlType::all().filter(|&ty| ty.block_len() > 1 && quant::format(ty).is_some()) {
        // Blocks of 256 make wide models, whose quantization takes most of this check's time.
        let wide = ty.block_len() > 32;
        for architecture in
            Family::Dense.architectures().iter().copied().filter(|&a| !wide || a == "qwen2")
        {
            let width = ty.block_len().max(64);
            let mut config = tiny_config(architecture, width, ty == GgmlType::Q8_0);
            if wide {
                config.layers.truncate(1);
                config.layers[0].intermediate_size = width;
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
        extrapolation: 1.0,
    };
    for architecture in Family::Dense.architectures().iter().copied() {
        for scaling in [RopeScaling::Linear { factor: 4.0 }, yarn] {
            let mut config = tiny_config(architecture, 64, false);
            for layer in &mut config.layers {
                layer.rope.as_mut().expect("all rotate").scaling = scaling;
            }
            check(executor, &config, GgmlType::F32, 1e-9);
        }
    }
}
