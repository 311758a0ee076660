//! Options that say what a GPU is to have of a model, and what the processor: layers, experts, tensors by name, memory.

use std::str::FromStr as _;

use program::DeviceLayers;
use rooflight::share::{GpuLayers, ShareOptions, TensorRule};

use crate::counts;
use crate::storage::size;

/// A GPU's share of a model.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ShareArgs {
    /// Layers on the GPU (-ngl): 12, all, auto
    ///
    /// Of --executor wgpu or cuda, counted from the end; the output counts as one. Auto: all it runs and has room for
    /// [default: auto]
    #[arg(long, value_name = "N", alias = "gpu-layers", allow_hyphen_values = true, value_parser = GpuLayers::from_str)]
    n_gpu_layers: Option<GpuLayers>,
    /// Experts of all layers on the processor, the rest of these layers on the GPU of --executor wgpu or cuda (-cmoe)
    #[arg(long, conflicts_with = "n_cpu_moe")]
    cpu_moe: bool,
    /// The same for the first N layers (-ncmoe)
    #[arg(long, value_name = "N", value_parser = counts::any)]
    n_cpu_moe: Option<usize>,
    /// Tensors whose names an expression is found in on the processor or the GPU of --executor wgpu or cuda (-ot), the first that is
    /// found counts: exps=cpu, 'blk\.[0-9]\.=cpu'. Layers go whole, but for their experts; so do the embedding and the output
    #[arg(long, value_name = "REGEX=cpu|gpu", value_delimiter = ',', value_parser = TensorRule::from_str)]
    override_tensor: Vec<TensorRule>,
    /// Most memory of the GPU of --executor wgpu or cuda to use: 8GB; what has no room there is the processor's, by what saves most time.
    /// By default what the system says is free, or what is published of the card, where either is known
    #[arg(long, value_name = "SIZE", value_parser = size)]
    gpu_memory: Option<u64>,
}

impl ShareArgs {
    /// Converts these options to those of the library.
    pub(crate) fn options(&self) -> ShareOptions {
        let mut options = ShareOptions::default();
        options.layers = self.n_gpu_layers;
        options.apart = if self.cpu_moe { usize::MAX } else { self.n_cpu_moe.unwrap_or(0) };
        options.rules.clone_from(&self.override_tensor);
        options.memory = self.gpu_memory;
        options
    }

    /// What to say of options about experts, if there are such and `why` they mean nothing.
    pub(crate) fn idle_experts(&self, why: &str) -> Option<String> {
        let name = if self.cpu_moe { "--cpu-moe" } else { "--n-cpu-moe" };
        (self.options().apart > 0).then(|| format!("{name} has no effect: {why}"))
    }

    /// One warning for each option that was given, where no model is placed.
    pub(crate) fn idle(&self, why: &str) -> Vec<String> {
        let options = [
            (self.n_gpu_layers.is_some(), "-ngl"),
            (self.cpu_moe, "--cpu-moe"),
            (self.n_cpu_moe.is_some(), "--n-cpu-moe"),
            (!self.override_tensor.is_empty(), "--override-tensor"),
            (self.gpu_memory.is_some(), "--gpu-memory"),
        ];
        let given = options.into_iter().filter(|(given, _)| *given);
        given.map(|(_, name)| format!("{name} has no effect: {why}")).collect()
    }

    /// One warning for each option that has no effect where `no_gpu` is asked for.
    pub(crate) fn warnings(&self, no_gpu: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        let given = self.n_gpu_layers.map(GpuLayers::layers);
        if no_gpu {
            if given.is_some_and(|layers| layers != DeviceLayers::Last(0)) {
                let linked = cfg!(any(feature = "cuda", feature = "wgpu"));
                let told = match linked {
                    true => "--executor wgpu or cuda has layers on a GPU",
                    false => {
                        "this build has no GPU support; cargo build --release --features wgpu has"
                    }
                };
                warnings.push(format!("CPU only: -ngl has no effect: {told}"));
            }
            let why = "all layers are on the processor";
            warnings.extend(self.idle_experts(why));
            if !self.override_tensor.is_empty() {
                warnings.push(format!("--override-tensor has no effect: {why}"));
            }
        }
        if self.gpu_memory.is_some() && (no_gpu || self.options().asked().share) {
            let why = if no_gpu { "no GPU computes" } else { "it is said what the GPU has" };
            warnings.push(format!("--gpu-memory has no effect: {why}"));
        }
        warnings
    }
}
