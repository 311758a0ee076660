//! Values of a golden model's tensors: which distribution each is drawn from, by its name.

use sha2::{Digest, Sha256};

use super::generator::Generator;

/// A tensor whose values are wanted.
pub(super) struct Drawn<'a> {
    /// The model's name.
    pub(super) model: &'a str,
    /// The tensor's name.
    pub(super) key: &'a str,
    /// Its lengths, a row's first.
    pub(super) dims: &'a [u64],
    /// Of the whole model.
    pub(super) seed: u64,
    /// The scale of the embedding, if it is not the usual one.
    pub(super) embedding: Option<f64>,
    /// Whether the embedding is the output matrix too.
    pub(super) tied: bool,
}

impl Drawn<'_> {
    /// All values; matrices' are rounded to five significant bits.
    pub(super) fn values(&self) -> Vec<f32> {
        let digest = Sha256::digest(format!("{}/{}", self.model, self.key));
        let name = digest[..6].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let mut from = Numbers {
            generator: Generator::new(&[self.seed, name]),
            n: self.dims.iter().product::<u64>() as usize,
        };
        let mut values = self.special(&mut from).unwrap_or_else(|| self.usual(&mut from));
        if self.dims.len() > 1 {
            values.iter_mut().for_each(|x| *x = five_bits(*x));
        }
        values
    }

    /// Values of the few models that need others.
    fn special(&self, from: &mut Numbers) -> Option<Vec<f32>> {
        let key = self.key;
        let qk_norm = key.contains("attn_q_norm") || key.contains("attn_k_norm");
        match self.model {
            "bloom" if key.contains("token_embd_norm.weight") => Some(from.around(0.2)),
            "bloom"
                if ["output_norm", "ffn_down", "attn_output", "token_embd_norm"]
                    .iter()
                    .any(|name| key.contains(&format!("{name}.bias"))) =>
            {
                Some(from.normal(0.02))
            }
            "bloom" if key.contains("ffn_down.weight") => {
                let cols = self.dims[0] as usize;
                let mut rows = from.normal((cols as f64).powf(-0.5) as f32);
                for row in rows.chunks_exact_mut(cols) {
                    let mean = sum(row) / cols as f32;
                    row.iter_mut().for_each(|x| *x -= mean);
                }
                Some(rows)
            }
            "gemma3n"
                if key.contains("altup_predict_coef") || key.contains("altup_correct_coef") =>
            {
                Some(from.normal(0.15))
            }
            "gemma4" | "gemma4-moe" if key.contains("rope_freqs") => {
                let kept = self.dims[0] / 4;
                Some((0..self.dims[0]).map(|i| if i < kept { 1.0 } else { 1e30 }).collect())
            }
            "gemma3n" | "gemma4" | "gemma4-moe" if qk_norm => Some(from.around(0.6)),
            "bailingmoe3" if key.ends_with("ssm_a") => Some(from.decays(1.0)),
            _ => None,
        }
    }

    /// The first rule that fits the name.
    fn usual(&self, from: &mut Numbers) -> Vec<f32> {
        let (key, last) = (self.key, self.key.rsplit('.').next().unwrap_or(self.key));
        let has = |part: &str| key.contains(part);
        let inverse_root = |n: u64| (n as f64).powf(-0.5);
        if has("ssm_a") && !has("norm") {
            from.decays(-1.0)
        } else if has("ssm_d") && !has("dt") {
            from.near_one()
        } else if key.ends_with("ssm_dt.bias") {
            from.uniform(-3.0, 0.5)
        } else if has("sinks") {
            from.normal(1.0)
        } else if has("rope_freqs") || has("rope_factors") {
            self.frequency_factors()
        } else if last == "bias" {
            from.normal(0.1)
        } else if has("layer_output_scale") {
            from.uniform(0.6, 1.2)
        } else if has("hc_") && has("base") {
            from.normal(0.5)
        } else if has("hc_") && has("scale") {
            from.uniform(0.3, 1.0)
        } else if matches!(last, "scale" | "scales" | "input_scale") {
            from.uniform(0.7, 1.3)
        } else if has("norm") && last == "weight" && !has("inp") {
            from.near_one()
        } else if has("altup_correct_scale") {
            from.uniform(0.5, 1.2)
        } else if key == "token_embd.weight" {
            let usual = if self.tied { inverse_root(self.dims[0]) } else { 1.0 };
            from.normal(self.embedding.unwrap_or(usual) as f32)
        } else if key == "position_embd.weight" {
            from.normal(0.5)
        } else if has("attn_k_b") {
            from.normal(inverse_root(self.dims[1]) as f32)
        } else if let Some(values) = self.of_time_mix(from) {
            values
        } else if self.dims.len() == 1 {
            from.normal(0.3)
        } else {
            from.normal(inverse_root(self.dims[0]) as f32)
        }
    }

    fn of_time_mix(&self, from: &mut Numbers) -> Option<Vec<f32>> {
        let has = |part: &str| self.key.contains(part);
        if has("time_mix_lerp") || has("channel_mix_lerp") {
            Some(from.uniform(0.1, 0.9))
        } else if self.key.ends_with("time_mix_decay.weight") {
            Some(from.uniform(-4.0, 0.5))
        } else if has("time_mix_first") {
            Some(from.normal(0.5))
        } else if has("time_mix_w0") {
            Some(from.uniform(-4.0, 1.0))
        } else if has("time_mix_k_k") || has("time_mix_k_a") {
            Some(from.uniform(0.6, 1.1))
        } else {
            None
        }
    }

    /// 1 for a fourth, then rising evenly.
    fn frequency_factors(&self) -> Vec<f32> {
        let n = self.dims[0] as usize;
        let (ones, most) = (n / 4, if self.key.contains("short") { 4.0 } else { 8.0 });
        let rising = n - ones;
        let step = (most - 1.0) / (rising as f64 - 1.0);
        let factor = |i: usize| match i.checked_sub(ones) {
            None => 1.0,
            Some(i) if i > 0 && i == rising - 1 => most as f32,
            Some(i) => (i as f64 * step + 1.0) as f32,
        };
        (0..n).map(factor).collect()
    }
}

/// Where a tensor's `n` values come from.
struct Numbers {
    generator: Generator,
    n: usize,
}

impl Numbers {
    fn each(&mut self, mut draw: impl FnMut(&mut Generator) -> f32) -> Vec<f32> {
        (0..self.n).map(|_| draw(&mut self.generator)).collect()
    }

    fn normal(&mut self, scale: f32) -> Vec<f32> {
        self.each(|numbers| numbers.normal_f32() * scale)
    }

    fn near_one(&mut self) -> Vec<f32> {
        self.each(|numbers| 1.0 + 0.1 * numbers.normal_f32())
    }

    fn around(&mut self, scale: f64) -> Vec<f32> {
        self.each(|numbers| (scale * (1.0 + 0.1 * numbers.normal())) as f32)
    }

    fn uniform(&mut self, low: f64, high: f64) -> Vec<f32> {
        self.each(|numbers| numbers.uniform(low, high) as f32)
    }

    /// Between 0.2 and 4, even in their logarithm, times a sign.
    fn decays(&mut self, sign: f32) -> Vec<f32> {
        let (low, high) = (0.2f64.ln(), 4.0f64.ln());
        self.each(|numbers| sign * numbers.uniform(low, high).exp() as f32)
    }
}

/// numpy's sum of a row: pairs of halves, eight sums in each run of up to 128.
fn sum(row: &[f32]) -> f32 {
    match row.len() {
        0..8 => row.iter().sum(),
        n @ 8..=128 => {
            let (whole, rest) = row.split_at(n / 8 * 8);
            let mut sums = [0.0f32; 8];
            for part in whole.chunks_exact(8) {
                sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
            }
            let [a, b, c, d, e, f, g, h] = sums;
            rest.iter().fold(((a + b) + (c + d)) + ((e + f) + (g + h)), |sum, x| sum + x)
        }
        n => {
            let (left, right) = row.split_at(n / 2 / 8 * 8);
            sum(left) + sum(right)
        }
    }
}

/// Rounded to five significant bits, ties to even.
fn five_bits(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(bits.wrapping_add(0x3_FFFF).wrapping_add(bits >> 19 & 1) & 0xFFF8_0000)
}
