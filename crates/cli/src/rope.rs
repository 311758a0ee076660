//! Options for rotary positions (RoPE): they override `rope.*` keys of the model's file.

use gguf::{Gguf, OwnedValue};

use crate::exit::Failure;
use crate::ui;

/// Scaling of the rotation for contexts longer than the trained one.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RopeScale {
    /// As trained
    None,
    /// Positions divided by the factor
    Linear,
    /// Low frequencies interpolated, high ones kept (arXiv:2309.00071)
    Yarn,
}

/// Options that override the rotation in the file. Names and meaning as in llama.cpp.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct RopeArgs {
    /// How positions are scaled: none, linear, yarn [default: as the file says, else linear]
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true)]
    rope_scaling: Option<RopeScale>,
    /// Context length as a multiple of the trained one
    #[arg(long, value_name = "X", value_parser = positive, conflicts_with = "rope_freq_scale")]
    rope_scale: Option<f32>,
    /// Base of the frequencies, 0 for the file's; layers with a window keep the file's
    #[arg(long, value_name = "X", value_parser = from_zero)]
    rope_freq_base: Option<f32>,
    /// Factor on the frequencies, 1/X of --rope-scale; 0 for the file's
    #[arg(long, value_name = "X", value_parser = from_zero)]
    rope_freq_scale: Option<f32>,
    /// YaRN: the trained context in tokens, 0 for the file's
    #[arg(long, value_name = "N")]
    yarn_orig_ctx: Option<u32>,
    /// YaRN: share of the high frequencies that is kept: 1 as published, 0 interpolates all; -1 for the file's
    #[arg(long, value_name = "X", value_parser = any, allow_negative_numbers = true)]
    yarn_ext_factor: Option<f32>,
    /// YaRN: factor on the rotated values, times 1 + 0.1 ln of the scale; -1 for the file's
    #[arg(long, value_name = "X", value_parser = any, allow_negative_numbers = true)]
    yarn_attn_factor: Option<f32>,
    /// YaRN: rotations in the trained context below which a frequency is interpolated; -1 for the file's
    #[arg(long, value_name = "X", value_parser = any, allow_negative_numbers = true)]
    yarn_beta_slow: Option<f32>,
    /// YaRN: rotations in the trained context above which a frequency is kept; -1 for the file's
    #[arg(long, value_name = "X", value_parser = any, allow_negative_numbers = true)]
    yarn_beta_fast: Option<f32>,
}

fn any(text: &str) -> Result<f32, String> {
    let number = text.parse::<f32>().ok().filter(|x| x.is_finite());
    number.ok_or_else(|| "expected a number".into())
}

fn from_zero(text: &str) -> Result<f32, String> {
    any(text).ok().filter(|x| *x >= 0.0).ok_or_else(|| "expected a number from 0 on".into())
}

fn positive(text: &str) -> Result<f32, String> {
    any(text).ok().filter(|x| *x > 0.0).ok_or_else(|| "expected a number above 0".into())
}

const TYPE: &str = "rope.scaling.type";
const FACTOR: &str = "rope.scaling.factor";
const BASE: &str = "rope.freq_base";
/// Name of the tensor with frequency factors for long contexts (LongRoPE).
const LONG_FACTORS: &str = "rope_factors_long.weight";
/// Base of layers with sliding-window attention.
const WINDOW_BASE: &str = "rope.freq_base_swa";

impl RopeArgs {
    /// Overrides the metadata of a model's file, and warns about options that have no effect on this model.
    ///
    /// # Errors
    /// [`Failure::Usage`] for YaRN options with another kind of scaling; a file without an architecture.
    pub(crate) fn apply(&self, gguf: &mut Gguf) -> anyhow::Result<()> {
        self.idle(gguf)?.iter().for_each(|warning| ui::warn(warning));
        let keys = self.keys(gguf)?;
        if keys.is_empty() {
            return Ok(());
        }
        let architecture = gguf.metadata().architecture()?.to_owned();
        for (key, value) in keys {
            gguf.override_metadata(&format!("{architecture}.{key}"), value);
        }
        Ok(())
    }

    /// Returns the keys to override, without the architecture's prefix, and their values.
    fn keys(&self, gguf: &Gguf) -> anyhow::Result<Vec<(&'static str, OwnedValue)>> {
        let mut keys: Vec<(&'static str, OwnedValue)> = Vec::new();
        let architecture = || gguf.metadata().architecture();
        if let Some(how) = self.rope_scaling {
            let name = match how {
                RopeScale::None => "none",
                RopeScale::Linear => "linear",
                RopeScale::Yarn => "yarn",
            };
            keys.push((TYPE, OwnedValue::String(name.into())));
        }
        let scale = self.rope_freq_scale.filter(|scale| *scale > 0.0).map(|scale| 1.0 / scale);
        if let Some(factor) = self.rope_scale.or(scale) {
            // with the type "none" in the file, the factor would have no effect
            let none = gguf.metadata().str(&format!("{}.{TYPE}", architecture()?))? == Some("none");
            if self.rope_scaling.is_none() && none {
                keys.push((TYPE, OwnedValue::String("linear".into())));
            }
            keys.push((FACTOR, OwnedValue::F32(factor)));
        }
        if let Some(base) = self.rope_freq_base.filter(|base| *base > 0.0) {
            let architecture = architecture()?;
            let key = |key: &str| format!("{architecture}.{key}");
            let of = |name: &str| gguf.metadata().get(&key(name));
            if of("attention.sliding_window").is_some()
                && of(WINDOW_BASE).is_none()
                && let Some(own) = of(BASE).and_then(|value| value.as_f32())
                && !HAS_OWN_WINDOW_BASE.contains(&architecture)
            {
                keys.push((WINDOW_BASE, OwnedValue::F32(own)));
            }
            keys.push((BASE, OwnedValue::F32(base)));
        }
        let of_yarn = self.of_yarn();
        if let Some((name, ..)) = of_yarn.first()
            && !self.is_yarn(gguf)?
        {
            let problem = format!("{name} is about YaRN: give --rope-scaling yarn too");
            return Err(Failure::Usage(problem).into());
        }
        keys.extend(of_yarn.into_iter().map(|(_, key, value)| (key, value)));
        Ok(keys)
    }

    /// Returns a warning for each scale option that is given for a model with its own frequency factors (LongRoPE). These
    /// factors replace any scale except YaRN's.
    fn idle(&self, gguf: &Gguf) -> anyhow::Result<Vec<String>> {
        if gguf.tensor(LONG_FACTORS).is_none() || self.is_yarn(gguf)? {
            return Ok(Vec::new());
        }
        let given = [
            ("--rope-scaling", self.rope_scaling.is_some()),
            ("--rope-scale", self.rope_scale.is_some()),
            ("--rope-freq-scale", self.rope_freq_scale.is_some_and(|scale| scale > 0.0)),
        ];
        let warning = |flag| {
            format!(
                "{flag} has no effect: the model has factors of its own for long contexts; --rope-scaling yarn replaces them"
            )
        };
        Ok(given.into_iter().filter(|(_, given)| *given).map(|(flag, _)| warning(flag)).collect())
    }

    /// Returns whether the scaling is YaRN: as the option says, otherwise as the file says.
    fn is_yarn(&self, gguf: &Gguf) -> anyhow::Result<bool> {
        if let Some(how) = self.rope_scaling {
            return Ok(how == RopeScale::Yarn);
        }
        let key = format!("{}.{TYPE}", gguf.metadata().architecture()?);
        Ok(gguf.metadata().str(&key)? == Some("yarn"))
    }

    /// Returns the YaRN options that were given: flag, key, value.
    fn of_yarn(&self) -> Vec<(&'static str, &'static str, OwnedValue)> {
        let real = |x: Option<f32>| x.filter(|x| *x >= 0.0).map(OwnedValue::F32);
        let original = self.yarn_orig_ctx.filter(|n| *n > 0).map(OwnedValue::U32);
        let all = [
            ("--yarn-orig-ctx", "rope.scaling.original_context_length", original),
            ("--yarn-ext-factor", "rope.scaling.yarn_ext_factor", real(self.yarn_ext_factor)),
            ("--yarn-attn-factor", "rope.scaling.attn_factor", real(self.yarn_attn_factor)),
            ("--yarn-beta-slow", "rope.scaling.yarn_beta_slow", real(self.yarn_beta_slow)),
            ("--yarn-beta-fast", "rope.scaling.yarn_beta_fast", real(self.yarn_beta_fast)),
        ];
        all.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?))).collect()
    }
}

/// Architectures whose sliding-window layers have a base that is in no metadata key.
const HAS_OWN_WINDOW_BASE: [&str; 3] = ["gemma3", "gemma3n", "gemma4"];

#[cfg(test)]
mod tests {
    use program::{Op, Rope, RopeScaling};

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        rope: RopeArgs,
    }

    fn args(line: &str) -> RopeArgs {
        let words = std::iter::once("x").chain(line.split_whitespace());
        <Line as clap::Parser>::try_parse_from(words).expect("it can be read").rope
    }

    /// Returns the rotation of the first layer in the recorded program.
    fn recorded(line: &str) -> anyhow::Result<Rope> {
        let mut gguf = Gguf::from_bytes(conformance::demo_gguf())?;
        args(line).apply(&mut gguf)?;
        let program = models::load(&gguf)?.program;
        let rope = program.nodes.iter().find_map(|node| match &node.op {
            Op::Attention(at) => at.rope.clone(),
            _ => None,
        });
        Ok(rope.expect("the demo rotates"))
    }

    #[test]
    fn options_take_effect_in_the_recorded_program() {
        let plain = recorded("").expect("it loads");
        assert_eq!(recorded("--rope-freq-base 0 --yarn-ext-factor -1").expect("the file's"), plain);
        assert_eq!(recorded("--rope-freq-base 50000").expect("it loads").theta, 50_000.0);
        let linear = RopeScaling::Linear { factor: 4.0 };
        for line in
            ["--rope-scale 4", "--rope-freq-scale 0.25", "--rope-scaling linear --rope-scale 4"]
        {
            assert_eq!(recorded(line).expect("it loads").scaling, linear, "{line}");
        }
        let none = recorded("--rope-scaling none --rope-scale 4").expect("it loads");
        assert_eq!(none.scaling, RopeScaling::None);
        let yarn = "--rope-scaling yarn --rope-freq-scale 0.5 --yarn-orig-ctx 256 --yarn-ext-factor 0.5 \
                    --yarn-attn-factor 2 --yarn-beta-slow 2 --yarn-beta-fast 16";
        let RopeScaling::Yarn {
            factor,
            original_context,
            beta_fast,
            beta_slow,
            attention_factor,
            extrapolation,
        } = recorded(yarn).expect("it loads").scaling
        else {
            panic!("it is YaRN");
        };
        assert_eq!((factor, original_context, beta_fast, beta_slow), (2.0, 256, 16.0, 2.0));
        assert_eq!(extrapolation, 0.5);
        assert!((attention_factor - 2.0 * (1.0 + 0.1 * 2_f32.ln())).abs() < 1e-6);
    }

    /// Compares with llama.cpp's formulas `ggml_rope_yarn_corr_dims` and `rope_yarn`, computed here step by step.
    #[test]
    fn frequencies_are_those_of_the_reference() {
        let line = "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 512 --yarn-ext-factor 0.75 \
                    --yarn-beta-slow 1 --yarn-beta-fast 32 --rope-freq-base 20000";
        let rope = recorded(line).expect("it loads");
        let (dims, base) = (rope.dims as f64, 20_000_f64);
        let corr_dim = |rotations: f64| {
            dims * (512.0 / (rotations * 2.0 * std::f64::consts::PI)).ln() / (2.0 * base.ln())
        };
        let start = corr_dim(32.0).floor().max(0.0);
        let end = corr_dim(1.0).ceil().min(dims - 1.0);
        let frequencies = rope.frequencies(None);
        assert_eq!(frequencies.len(), rope.dims / 2);
        for (i, found) in frequencies.iter().enumerate() {
            let extrapolated = base.powf(-2.0 * i as f64 / dims);
            let interpolated = 0.25 * extrapolated;
            let y = (i as f64 - start) / (end - start).max(0.001);
            let mix = (1.0 - y.clamp(0.0, 1.0)) * 0.75;
            let want = interpolated * (1.0 - mix) + extrapolated * mix;
            assert!((found / want - 1.0).abs() < 1e-9, "pair {i}: {found} {want}");
        }
        assert!((f64::from(rope.magnitude()) - (1.0 + 0.1 * 4_f64.ln())).abs() < 1e-6);
    }

    #[test]
    fn a_scale_beside_factors_of_the_model_is_warned_about() {
        let long = Gguf::from_bytes(conformance::golden::model("phi3-longrope")).expect("it opens");
        let demo = Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
        let told =
            |line: &str, gguf: &Gguf| args(line).idle(gguf).expect("it has a type").join("\n");
        for line in [
            "--rope-scaling linear",
            "--rope-scaling none",
            "--rope-scale 4",
            "--rope-freq-scale 0.5",
        ] {
            let flag = line.split(' ').next().expect("a flag");
            let warning = told(line, &long);
            assert!(warning.starts_with(&format!("{flag} has no effect: ")), "{line}: {warning}");
            assert_eq!(told(line, &demo), "", "{line}");
        }
        assert_eq!(told("--rope-scaling linear --rope-scale 4", &long).lines().count(), 2);
        for line in [
            "",
            "--rope-scaling yarn --rope-scale 4",
            "--rope-freq-scale 0",
            "--rope-freq-base 500",
        ] {
            assert_eq!(told(line, &long), "", "{line}");
        }
    }

    #[test]
    fn options_of_yarn_want_yarn() {
        let error = recorded("--yarn-beta-fast 16").expect_err("the demo has no YaRN").to_string();
        assert!(
            error.contains("--yarn-beta-fast") && error.contains("--rope-scaling yarn"),
            "{error}"
        );
        let line = "x --rope-scale 2 --rope-freq-scale 0.5";
        assert!(<Line as clap::Parser>::try_parse_from(line.split(' ')).is_err());
    }
}
