//! The numbers behind a [`Rope`]: how fast each pair turns, and how much cos and sin are scaled.

use crate::{Rope, RopeScaling};

impl Rope {
    /// Radians per position of each pair, `[dims / 2]`, scaling and `factors` applied.
    ///
    /// `factors` are the values of [`Rope::factors`], `[dims / 2]`; missing entries count as 1.
    ///
    /// Source: arXiv:2104.09864, section 3.4; YaRN: arXiv:2309.00071, section 3.2, with the ramp over the pair index and
    /// its ends rounded outwards, as published models are run.
    pub fn frequencies(&self, factors: Option<&[f32]>) -> Vec<f64> {
        let dims = self.dims as f64;
        let frequency = |i: usize| {
            let divisor = factors.and_then(|f| f.get(i)).map_or(1.0, |&f| f64::from(f));
            let trained = f64::from(self.theta).powf(-2.0 * i as f64 / dims) / divisor;
            match self.scaling {
                RopeScaling::None | RopeScaling::Long { .. } => trained,
                RopeScaling::First { pairs } if i >= pairs as usize => 0.0,
                RopeScaling::First { .. } => trained,
                RopeScaling::Linear { factor } => trained / f64::from(factor),
                RopeScaling::Yarn {
                    factor,
                    original_context,
                    beta_fast,
                    beta_slow,
                    extrapolation,
                    attention_factor: _,
                } => {
                    // The pair index whose wave turns `rotations` times within the trained context.
                    let pair = |rotations: f32| {
                        let turns = f64::from(original_context)
                            / (f64::from(rotations) * std::f64::consts::TAU);
                        dims * turns.ln() / (2.0 * f64::from(self.theta).ln())
                    };
                    let low = pair(beta_fast).floor().max(0.0);
                    let high = pair(beta_slow).ceil().min(dims - 1.0);
                    let interpolated = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    let kept = (1.0 - interpolated) * f64::from(extrapolation);
                    trained / f64::from(factor) * (1.0 - kept) + trained * kept
                }
            }
        };
        (0..self.dims / 2).map(frequency).collect()
    }

    /// Factor on cos and sin: 1 but for LongRoPE and YaRN.
    pub fn magnitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::None | RopeScaling::First { .. } | RopeScaling::Linear { .. } => 1.0,
            RopeScaling::Long { attention_factor } | RopeScaling::Yarn { attention_factor, .. } => {
                attention_factor
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RopePairs;

    fn rope(scaling: RopeScaling) -> Rope {
        Rope { pairs: RopePairs::HalfSplit, dims: 64, theta: 1e4, scaling, factors: None }
    }

    #[test]
    fn linear_divides_every_frequency_and_factors_divide_theirs() {
        let plain = rope(RopeScaling::None).frequencies(None);
        assert_eq!((plain.len(), plain[0]), (32, 1.0));
        assert!((plain[16] - 1e-2).abs() < 1e-12);
        let linear = rope(RopeScaling::Linear { factor: 4.0 }).frequencies(None);
        assert!(plain.iter().zip(&linear).all(|(p, l)| (p / 4.0 - l).abs() < 1e-15));
        let first = rope(RopeScaling::First { pairs: 24 }).frequencies(None);
        assert_eq!((&first[..24], &first[24..]), (&plain[..24], &[0.0; 8][..]));
        let with_factors = rope(RopeScaling::None).frequencies(Some(&[2.0; 32]));
        assert!(plain.iter().zip(&with_factors).all(|(p, f)| (p / 2.0 - f).abs() < 1e-15));
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            original_context: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.5,
            extrapolation: 1.0,
        };
        let (plain, yarn) =
            (rope(RopeScaling::None).frequencies(None), rope(scaling).frequencies(None));
        // 4096 / (32 * 2 pi) = 20.37 turns: pair 10.48; 4096 / (2 pi) = 651.9: pair 22.5.
        for i in 0..=10 {
            assert_eq!(plain[i], yarn[i], "pair {i} is kept");
        }
        assert!(yarn[16] < plain[16] && yarn[16] > plain[16] / 4.0);
        for i in 23..32 {
            assert!((yarn[i] - plain[i] / 4.0).abs() < 1e-15, "pair {i} is interpolated");
        }
        assert_eq!(rope(scaling).magnitude(), 1.5);
        // without extrapolation, YaRN is linear scaling
        let RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } = scaling
        else {
            panic!("it is YaRN");
        };
        let linear = RopeScaling::Yarn {
            factor,
            original_context,
            beta_fast,
            beta_slow,
            attention_factor: 1.0,
            extrapolation: 0.0,
        };
        let linear = rope(linear).frequencies(None);
        assert!(plain.iter().zip(&linear).all(|(p, l)| (p / 4.0 - l).abs() < 1e-15));
    }
}
