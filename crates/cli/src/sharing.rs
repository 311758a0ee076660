//! Options that say what a GPU is to have of a model, and what the processor: layers, experts, tensors by name, memory.

use std::collections::BTreeSet;

use program::{DeviceLayers, DeviceShare, Program, WeightSides};
use regex::Regex;

use crate::exit::Failure;
use crate::placing::AskedShare;
use crate::storage::size;
use console::counts;

/// A GPU's share of a model.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ShareArgs {
    /// Layers on the GPU (-ngl): 12, all, auto
    ///
    /// Of --executor wgpu or cuda, counted from the end; the output counts as one. Auto: all it runs and has room for
    /// [default: auto]
    #[arg(long, value_name = "N", alias = "gpu-layers", allow_hyphen_values = true, value_parser = gpu_layers)]
    n_gpu_layers: Option<GpuLayers>,
    /// Experts of all layers on the processor, the rest of these layers on the GPU of --executor wgpu or cuda (-cmoe)
    #[arg(long, conflicts_with = "n_cpu_moe")]
    cpu_moe: bool,
    /// The same for the first N layers (-ncmoe)
    #[arg(long, value_name = "N", value_parser = counts::any)]
    n_cpu_moe: Option<usize>,
    /// Tensors whose names an expression is found in on the processor or the GPU of --executor wgpu or cuda (-ot), the first that is
    /// found counts: exps=cpu, 'blk\.[0-9]\.=cpu'. Layers go whole, but for their experts; so do the embedding and the output
    #[arg(long, value_name = "REGEX=cpu|gpu", value_delimiter = ',', value_parser = tensor_rule)]
    override_tensor: Vec<TensorRule>,
    /// Most memory of the GPU of --executor wgpu or cuda to use: 8GB; what has no room there is the processor's, by what saves most time.
    /// By default what the system says is free, or what is published of the card, where either is known
    #[arg(long, value_name = "SIZE", value_parser = size)]
    gpu_memory: Option<u64>,
}

impl ShareArgs {
    /// What of `program` the GPU is to have.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an expression that is found in no tensor's name, and for tensors that belong together and would
    /// not be.
    pub(crate) fn of(&self, program: &Program) -> Result<DeviceShare, Failure> {
        let usage = |problem: String| Failure::Usage(format!("-ot {problem}"));
        let named = sides(&self.override_tensor, program).map_err(usage)?;
        let layers = self.n_gpu_layers.unwrap_or_default().layers();
        let share = DeviceShare { layers, apart: self.apart(), named };
        match share.torn(program) {
            Some(torn) => Err(usage(torn)),
            None => Ok(share),
        }
    }

    /// What is said of it, as far as it decides what is left to say.
    pub(crate) fn asked(&self) -> AskedShare {
        let layers = self.n_gpu_layers.is_some_and(|layers| layers != GpuLayers::Auto);
        let share = layers || self.apart() > 0 || !self.override_tensor.is_empty();
        let rules = self.override_tensor.iter().map(|rule| rule.text.as_str());
        let tensors = rules.collect::<Vec<_>>().join(",");
        AskedShare { share, memory: self.gpu_memory, tensors }
    }

    /// Of so many layers experts are to be apart from the rest.
    fn apart(&self) -> usize {
        if self.cpu_moe { usize::MAX } else { self.n_cpu_moe.unwrap_or(0) }
    }

    /// What to say of options about experts, if there are such and `why` they mean nothing.
    pub(crate) fn idle_experts(&self, why: &str) -> Option<String> {
        let name = if self.cpu_moe { "--cpu-moe" } else { "--n-cpu-moe" };
        (self.apart() > 0).then(|| format!("{name} has no effect: {why}"))
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
        if self.gpu_memory.is_some() && (no_gpu || self.asked().share) {
            let why = if no_gpu { "no GPU computes" } else { "it is said what the GPU has" };
            warnings.push(format!("--gpu-memory has no effect: {why}"));
        }
        warnings
    }
}

/// Layers on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GpuLayers {
    /// All, or those that it has room for.
    #[default]
    Auto,
    /// These, whatever room there is.
    These(DeviceLayers),
}

impl GpuLayers {
    /// Those of a GPU with room for all.
    fn layers(self) -> DeviceLayers {
        match self {
            GpuLayers::Auto => DeviceLayers::All,
            GpuLayers::These(layers) => layers,
        }
    }
}

/// So many, or words; below 0 is llama.cpp's number for these.
fn gpu_layers(text: &str) -> Result<GpuLayers, String> {
    match text {
        "all" => return Ok(GpuLayers::These(DeviceLayers::All)),
        "auto" => return Ok(GpuLayers::Auto),
        _ => {}
    }
    let n: i64 = text.parse().map_err(|_| "expected a number, all or auto")?;
    let layers = usize::try_from(n).map_or(DeviceLayers::All, DeviceLayers::Last);
    Ok(GpuLayers::These(layers))
}

/// Tensors whose names have something in them, and where they are to lie.
#[derive(Clone, Debug)]
struct TensorRule {
    pattern: Regex,
    on_gpu: bool,
    /// As it was typed.
    text: String,
}

fn tensor_rule(text: &str) -> Result<TensorRule, String> {
    let (pattern, place) = text.split_once('=').ok_or("expected REGEX=cpu or REGEX=gpu")?;
    let on_gpu = match &*place.to_ascii_lowercase() {
        "cpu" => false,
        "gpu" => true,
        _ => return Err("after the = stands cpu or gpu".into()),
    };
    let pattern = Regex::new(pattern).map_err(|error| {
        // the first lines point at where it stands
        let why = error.to_string();
        let last = why.lines().last().unwrap_or_default();
        format!("`{pattern}` is no regular expression: {}", last.trim_start_matches("error: "))
    })?;
    Ok(TensorRule { pattern, on_gpu, text: text.to_owned() })
}

/// By the first rule that is found in a name.
///
/// Source: `tensor_buft_overrides` in llama.cpp's src/llama-model-loader.cpp, which looks for them in this order.
fn sides(rules: &[TensorRule], program: &Program) -> Result<WeightSides, String> {
    let names: BTreeSet<&str> = program.weights.iter().map(|spec| spec.name.as_str()).collect();
    for TensorRule { pattern, text, .. } in rules {
        if !names.iter().any(|name| pattern.is_match(name)) {
            let n = program.weights.len();
            let some = [0, n / 2, n.saturating_sub(1)].map(|i| program.weights.get(i));
            let some = some.into_iter().flatten().map(|spec| spec.name.as_str());
            let some = some.collect::<Vec<_>>().join(", ");
            return Err(format!("{text}: no tensor has such a name; some are {some}"));
        }
    }
    let side = |name: &&str| rules.iter().find(|rule| rule.pattern.is_match(name));
    Ok(names.iter().filter_map(|name| Some(((*name).to_owned(), side(name)?.on_gpu))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_on_a_gpu() {
        let these = GpuLayers::These;
        for (text, want) in [
            ("0", these(DeviceLayers::Last(0))),
            ("12", these(DeviceLayers::Last(12))),
            ("-1", these(DeviceLayers::All)),
            ("all", these(DeviceLayers::All)),
            ("auto", GpuLayers::Auto),
        ] {
            assert_eq!(gpu_layers(text), Ok(want), "{text}");
        }
        for text in ["", "most", "1.5", "12 "] {
            assert!(gpu_layers(text).is_err_and(|why| why.contains("all or auto")), "{text}");
        }
    }

    #[test]
    fn rules_are_expressions_and_places() {
        let rule = |text| tensor_rule(text).map(|rule| rule.on_gpu);
        assert_eq!((rule("exps=CPU"), rule(r"blk\.1[0-9]\.=gpu")), (Ok(false), Ok(true)));
        for (bad, told) in [
            ("exps", "REGEX=cpu"),
            ("exps=CUDA0", "cpu or gpu"),
            ("(=cpu", "`(` is no regular expression: unclosed group"),
        ] {
            assert!(rule(bad).is_err_and(|why| why.contains(told) && why.lines().count() == 1));
        }
    }

    #[test]
    fn the_first_rule_counts_and_each_is_found_somewhere() {
        let config = conformance::tiny_config("qwen3moe", 64, false);
        let program = conformance::tiny_model(&config, quant::GgmlType::F32);
        let of = |rules: &[&str]| {
            let rules: Vec<_> =
                rules.iter().map(|rule| tensor_rule(rule).expect("a rule")).collect();
            sides(&rules, &program)
        };
        let [first, other] =
            [["1.*exps=gpu", "exps=cpu"], ["exps=cpu", "1.*exps=gpu"]].map(|r| of(&r));
        assert_ne!(first, other);
        assert_eq!(other, of(&["exps=cpu"]), "nothing is left to the second");
        let why = of(&["exps=cpu", "expert=gpu"]).expect_err("no tensor is called so");
        let names = why.split_once("some are ").map(|(_, names)| names.split(", "));
        let names: Vec<_> = names.expect("some names").collect();
        assert!(why.starts_with("expert=gpu: no tensor") && names.len() == 3, "{why}");
        let exists = |name: &&str| program.weights.iter().any(|spec| spec.name == **name);
        assert!(names.iter().all(exists), "{why}");
    }
}
