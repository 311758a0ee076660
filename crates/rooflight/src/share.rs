//! Divides a model between a GPU and the processor: by layers, experts, tensor names and memory.

use std::collections::BTreeSet;
use std::str::FromStr;

use program::{DeviceLayers, DeviceShare, Program, WeightSides};
use regex::Regex;

use crate::{Error, Result};

/// Part of a model to place on a GPU.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShareOptions {
    /// Layers on the GPU. `None` is the same as [`GpuLayers::Auto`].
    pub layers: Option<GpuLayers>,
    /// Number of layers, counted from the first, whose experts stay on the processor. `usize::MAX` means all layers.
    pub apart: usize,
    /// Rules that place tensors by name. The first rule that matches a name applies.
    pub rules: Vec<TensorRule>,
    /// Maximum GPU memory to use, in bytes. The default is all free memory.
    pub memory: Option<u64>,
}

/// Requested part of a model on a GPU, as far as the automatic placement depends on it.
#[derive(Clone, Debug, Default)]
pub struct AskedShare {
    /// Whether the user has set layers, experts or tensors. Then there is no automatic placement.
    pub share: bool,
    /// Maximum GPU memory to use, in bytes.
    pub memory: Option<u64>,
    /// Rules for tensors, in the format of the command line.
    pub tensors: String,
}

impl ShareOptions {
    /// Returns the part of `program` to place on the GPU.
    ///
    /// # Errors
    /// [`Error::Options`] if a rule matches no tensor, or if the rules separate tensors that belong together.
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

    /// Returns the requested part of the model.
    pub fn asked(&self) -> AskedShare {
        let layers = self.layers.is_some_and(|layers| layers != GpuLayers::Auto);
        let share = layers || self.apart > 0 || !self.rules.is_empty();
        let rules = self.rules.iter().map(|rule| rule.text.as_str());
        let tensors = rules.collect::<Vec<_>>().join(",");
        AskedShare { share, memory: self.memory, tensors }
    }
}

/// Layers on a GPU, counted from the last. The output counts as one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// All layers, or as many as fit in GPU memory.
    #[default]
    Auto,
    /// These layers, even if they do not fit.
    These(DeviceLayers),
}

impl GpuLayers {
    /// Returns the layers to place on a GPU with enough memory for all.
    pub fn layers(self) -> DeviceLayers {
        match self {
            GpuLayers::Auto => DeviceLayers::All,
            GpuLayers::These(layers) => layers,
        }
    }
}

impl FromStr for GpuLayers {
    type Err = String;

    /// Parses a number, `all` or `auto`. Negative numbers mean all, as in llama.cpp.
    fn from_str(text: &str) -> Result<GpuLayers, String> {
        match text {
            "all" => return Ok(GpuLayers::These(DeviceLayers::All)),
            "auto" => return Ok(GpuLayers::Auto),
            _ => {}
        }
        let n: i64 = text.parse().map_err(|_| "expected a number, all or auto")?;
        let layers = usize::try_from(n).map_or(DeviceLayers::All, DeviceLayers::Last);
        Ok(GpuLayers::These(layers))
    }
}

/// Rule that places the tensors whose names match a regular expression.
#[derive(Clone, Debug)]
pub struct TensorRule {
    pattern: Regex,
    on_gpu: bool,
    /// The rule as given on the command line.
    text: String,
}

impl FromStr for TensorRule {
    type Err = String;

    /// Parses `REGEX=cpu` or `REGEX=gpu`.
    fn from_str(text: &str) -> Result<TensorRule, String> {
        let (pattern, place) = text.split_once('=').ok_or("expected REGEX=cpu or REGEX=gpu")?;
        let on_gpu = match &*place.to_ascii_lowercase() {
            "cpu" => false,
            "gpu" => true,
            _ => return Err("after the = stands cpu or gpu".into()),
        };
        let pattern = Regex::new(pattern).map_err(|error| {
            // the first lines of the error point at the position in the expression
            let why = error.to_string();
            let last = why.lines().last().unwrap_or_default();
            format!("`{pattern}` is no regular expression: {}", last.trim_start_matches("error: "))
        })?;
        Ok(TensorRule { pattern, on_gpu, text: text.to_owned() })
    }
}

/// Returns for each tensor with a matching rule whether it is on the GPU. The first matching rule applies.
///
/// Source: `tensor_buft_overrides` in llama.cpp's src/llama-model-loader.cpp, which checks rules in this order.
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
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        for text in ["", "most", "1.5", "12 "] {
            let parsed = text.parse::<GpuLayers>();
            assert!(parsed.is_err_and(|why| why.contains("all or auto")), "{text}");
        }
    }

    #[test]
    fn rules_are_expressions_and_places() {
        let rule = |text: &str| text.parse::<TensorRule>().map(|rule| rule.on_gpu);
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
            let rules: Vec<_> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
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
