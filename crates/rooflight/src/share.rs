//! What a GPU computes of a model, and what the processor: layers, experts, tensors by name, memory.

use std::collections::BTreeSet;

use program::{DeviceLayers, DeviceShare, Program, WeightSides};
use regex::Regex;

use crate::{Error, Result};

/// What a GPU is to have of a model.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShareOptions {
    /// Layers on the GPU. `None` is as [`GpuLayers::Auto`].
    pub layers: Option<GpuLayers>,
    /// Number of first layers whose experts are on the processor. `usize::MAX` means all layers.
    pub apart: usize,
    /// Places of tensors by name. The first rule that matches a name counts.
    pub rules: Vec<TensorRule>,
    /// Maximum memory of the GPU to use, in bytes. By default all that is free.
    pub memory: Option<u64>,
}

/// What was asked of a GPU's share of a model, as far as that decides what is left to choose.
#[derive(Clone, Debug, Default)]
pub struct AskedShare {
    /// Whether the user has said what the GPU is to have.
    pub share: bool,
    /// Maximum bytes of its memory to use.
    pub memory: Option<u64>,
    /// Rules of tensors, as the command line has them.
    pub tensors: String,
}

impl ShareOptions {
    /// Returns what of `program` the GPU is to have.
    ///
    /// # Errors
    /// [`Error::Options`] for a rule that matches no tensor, and for tensors that belong together and would be separated.
    pub fn of(&self, program: &Program) -> Result<DeviceShare> {
        let usage = |problem: String| Error::Options(format!("-ot {problem}"));
        let named = sides(&self.rules, program).map_err(usage)?;
        let layers = self.layers.unwrap_or_default().layers();
        let share = DeviceShare { layers, apart: self.apart, named };
        match share.torn(program) {
            Some(torn) => Err(usage(torn)),
            None => Ok(share),
        }
    }

    /// Returns what was asked for.
    pub fn asked(&self) -> AskedShare {
        let layers = self.layers.is_some_and(|layers| layers != GpuLayers::Auto);
        let share = layers || self.apart > 0 || !self.rules.is_empty();
        let rules = self.rules.iter().map(|rule| rule.text.as_str());
        let tensors = rules.collect::<Vec<_>>().join(",");
        AskedShare { share, memory: self.memory, tensors }
    }
}

/// Layers on a GPU, counted from the end; the output counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// All layers, or those that it has room for.
    #[default]
    Auto,
    /// These layers, whatever room there is.
    These(DeviceLayers),
}

impl GpuLayers {
    /// Returns the layers of a GPU with room for all.
    pub fn layers(self) -> DeviceLayers {
        match self {
            GpuLayers::Auto => DeviceLayers::All,
            GpuLayers::These(layers) => layers,
        }
    }
}

impl std::str::FromStr for GpuLayers {
    type Err = String;

    /// Parses a number, `all` or `auto`. Negative numbers mean all, as in llama.cpp.
    fn from_str(text: &str) -> Result<GpuLayers, String> {
        gpu_layers(text)
    }
}

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

/// Tensors whose names match an expression, and where they are to be.
#[derive(Clone, Debug)]
pub struct TensorRule {
    pattern: Regex,
    on_gpu: bool,
    /// As it was typed.
    text: String,
}

impl std::str::FromStr for TensorRule {
    type Err = String;

    /// Parses `REGEX=cpu` or `REGEX=gpu`.
    fn from_str(text: &str) -> Result<TensorRule, String> {
        tensor_rule(text)
    }
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

/// Returns the places of tensors, by the first rule that matches each name.
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
