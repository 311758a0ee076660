//! Warnings about executor options that have no effect on the executor that was chosen for a model.

use executors::{ExecutorKind, ExecutorOptions, MlaChoice};
use program::{CacheKind, CacheOptions, CacheSpec, MlaForm, Program};
use rooflight::load::Loaded;

use crate::executor_args::ExecutorArgs;
use crate::ui;

/// Warns about each option that has no effect on the executor that runs the model.
pub(crate) fn warn(args: &ExecutorArgs, loaded: &Loaded, cache: &CacheOptions) {
    args.warnings(loaded.chosen.kind).iter().for_each(|warning| ui::warn(warning));
    if let Some(gpu) = &loaded.gpu {
        let program = loaded.model.program();
        let told = on_a_gpu(args.kind(), gpu.beside.is_some(), &loaded.chosen, (program, cache));
        told.iter().for_each(|warning| ui::warn(warning));
    }
}

/// Returns a warning for each option that has no effect on a GPU. CPU options have an effect if the CPU was compared with the GPU, or if
/// it runs some layers (`beside`).
fn on_a_gpu(
    asked: ExecutorKind,
    beside: bool,
    chosen: &ExecutorOptions,
    (program, cache): (&Program, &CacheOptions),
) -> Vec<&'static str> {
    let latent = |cache: &CacheSpec| matches!(cache.kind, CacheKind::Latent { .. });
    let own_form = [MlaChoice::Auto, MlaChoice::Always(MlaForm::Elided)].contains(&chosen.mla);
    let other_form = !own_form && program.caches.iter().any(latent);
    let q8_0 = rooflight::executor::on_a_gpu(cache) != *cache;
    let alone = asked.is_gpu() && !beside;
    [
        (alone && chosen.threads.is_some(), "-t has no effect: a GPU computes"),
        (alone && chosen.isa.is_some(), "--isa has no effect: a GPU computes"),
        (other_form && !beside, "--mla has no effect: a GPU computes latent attention elided"),
        (
            other_form && beside,
            "layers on the GPU compute latent attention elided, whatever --mla says",
        ),
        (q8_0 && !beside, "a GPU keeps f16 where a cache of q8_0 is asked for"),
        (q8_0 && beside, "layers on the GPU keep f16 where a cache of q8_0 is asked for"),
    ]
    .into_iter()
    .filter_map(|(given, warning)| given.then_some(warning))
    .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use program::CacheType;

    use super::*;

    fn program(architecture: &str) -> Arc<Program> {
        let config = conformance::tiny_config(architecture, 64, false);
        conformance::tiny_model(&config, quant::GgmlType::F32)
    }

    #[test]
    fn options_of_the_processor_mean_something_where_it_is_compared_with() {
        let chosen = ExecutorOptions { threads: Some(1), ..ExecutorOptions::default() };
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 64);
        let program = program("qwen2");
        let told = |asked, beside| on_a_gpu(asked, beside, &chosen, (&program, &cache));
        assert_eq!(told(ExecutorKind::Auto, false), [""; 0]);
        assert_eq!(told(ExecutorKind::Wgpu, true), [""; 0], "they are the others'");
        assert_eq!(told(ExecutorKind::Wgpu, false), ["-t has no effect: a GPU computes"]);
    }

    #[test]
    fn a_gpu_has_one_form_of_latent_attention() {
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 64);
        let told = |name, mla| {
            let chosen = ExecutorOptions { mla, ..ExecutorOptions::default() };
            let told = on_a_gpu(ExecutorKind::Wgpu, false, &chosen, (&program(name), &cache));
            told.concat().starts_with("--mla has no effect")
        };
        for form in MlaForm::ALL {
            let other = form != MlaForm::Elided;
            assert_eq!(told("deepseek2", MlaChoice::Always(form)), other, "{form:?}");
            assert!(!told("qwen2", MlaChoice::Always(form)), "that is said of no latents");
        }
        assert!(!told("deepseek2", MlaChoice::Auto));
    }
}
