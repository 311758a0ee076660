//! Options that select the executor of a model.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use console::args::IsaArgs;
use console::counts::{self, ThreadCount};
use executors::{ExecutorKind, ExecutorOptions, MlaChoice};
use rooflight::executor::{ExecutorChoice, GpuProducts};

use crate::sharing::ShareArgs;

/// Options of the executor.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ExecutorArgs {
    /// Executor of the model: cpu, wgpu, cuda, auto
    ///
    /// Wgpu and cuda are GPUs and need a build with that feature; auto picks the fastest measured one that fits the model
    /// [default: auto if GPUs are built in and the machine has one, else cpu]
    #[arg(long, value_name = "NAME", value_enum, hide_possible_values = true)]
    pub(crate) executor: Option<ExecutorKind>,
    /// The GPU of --executor wgpu or cuda, by a part of its name; by default a card, else what is built in
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// Number type of products on the GPU of --executor wgpu or cuda: auto (f32, f16 or int8, the fastest measured), f32 (no rounding)
    /// [default: auto]
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = gpu_products(),
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) gpu_products: GpuProducts,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    #[command(flatten)]
    pub(crate) isa: IsaArgs,
    /// How DeepSeek's latent attention is computed: auto, expanded, compressed, absorbed, elided [default: auto]
    #[arg(long, value_name = "FORM", value_parser = mla)]
    pub(crate) mla: Option<MlaChoice>,
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
}

/// Parses the number type of products on a GPU.
fn gpu_products() -> impl TypedValueParser<Value = GpuProducts> {
    PossibleValuesParser::new(["auto", "f32"]).map(|name| match &*name {
        "f32" => GpuProducts::F32,
        _ => GpuProducts::Auto,
    })
}

impl ExecutorArgs {
    /// Returns the kind of executor.
    pub(crate) fn kind(&self) -> ExecutorKind {
        self.choice(None).kind()
    }

    /// Converts these options to those of the library.
    pub(crate) fn choice(&self, threads: Option<usize>) -> ExecutorChoice {
        let mut choice = ExecutorChoice::default();
        choice.kind = self.executor;
        choice.threads = threads;
        choice.isa = self.isa.isa;
        choice.mla = self.mla;
        choice.adapter.clone_from(&self.adapter);
        choice.products = self.gpu_products;
        choice.share = self.share.options();
        choice
    }

    /// Returns the options of the executor to start, with the whole model on the GPU if one is used.
    pub(crate) fn options(&self, threads: Option<usize>) -> ExecutorOptions {
        self.choice(threads).options()
    }

    /// Returns whether the options select a GPU.
    fn asks_for_gpu(&self) -> bool {
        self.choice(None).asks_for_gpu()
    }

    /// Returns a warning about options for experts, for a model without experts.
    pub(crate) fn without_experts(&self) -> Option<String> {
        self.share.idle_experts("the model has no experts").filter(|_| self.asks_for_gpu())
    }

    /// Returns a warning for each given flag that has no effect with this kind of executor.
    pub(crate) fn warnings(&self, kind: ExecutorKind) -> Vec<String> {
        let mut warnings = self.peers.warnings();
        warnings.extend(self.share.warnings(!self.asks_for_gpu()));
        if self.gpu_products != GpuProducts::Auto && !self.asks_for_gpu() {
            warnings.push("--gpu-products has no effect: no GPU computes".into());
        }
        // with `auto`, the adapter was measured even if the processor was chosen
        let chosen = self.kind() == ExecutorKind::Auto && kind == ExecutorKind::Cpu;
        if self.adapter.is_some() && !kind.is_gpu() && !chosen {
            warnings.push("--adapter has no effect: no GPU computes".into());
        }
        warnings
    }

    /// Returns a warning for each given flag that has no effect when a GPU is only measured.
    pub(crate) fn warnings_without_model(&self) -> Vec<String> {
        let mut warnings = self.peers.warnings();
        warnings.extend(self.share.idle("all of a GPU is measured, and no model placed on it"));
        if self.gpu_products != GpuProducts::Auto {
            warnings.push("--gpu-products has no effect: all that a GPU has is measured".into());
        }
        warnings
    }
}

/// Flags of llama.cpp that have no effect here. They are accepted with a warning, so that command lines of llama.cpp work.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PeerArgs {
    /// Attention is always the tiled kind
    #[arg(long, value_name = "on|off|auto", num_args = 0..=1, default_missing_value = "on", hide = true,
          value_parser = ["on", "off", "auto", "0", "1"])]
    flash_attn: Option<String>,
    /// Threads for prompts
    #[arg(long, value_name = "N", hide = true, value_parser = counts::threads)]
    threads_batch: Option<ThreadCount>,
    /// Tokens per logical batch
    #[arg(short, long, value_name = "N", hide = true, value_parser = counts::tokens)]
    batch_size: Option<usize>,
}

impl PeerArgs {
    /// Returns a warning for each given flag.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.flash_attn.as_deref().is_some_and(|mode| matches!(mode, "off" | "0")) {
            warnings.push("-fa off has no effect: attention never stores its scores".into());
        }
        if self.threads_batch.is_some() {
            warnings.push("-tb has no effect: -t sets the threads of prompts and steps".into());
        }
        if self.batch_size.is_some() {
            warnings.push("-b has no effect: a prompt goes through in chunks of -ub tokens".into());
        }
        warnings
    }
}

/// Parses a form of latent attention.
fn mla(name: &str) -> Result<MlaChoice, String> {
    let names = || MlaChoice::all().map(MlaChoice::name).collect::<Vec<_>>().join(", ");
    MlaChoice::parse(name).ok_or_else(|| format!("expected one of {}", names()))
}
