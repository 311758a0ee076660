//! The rotation that `rope.*` keys tell of.

use program::{Rope, RopePairs, RopeScaling};

use crate::keys::Keys;
use crate::{Error, Result};

/// The rotation of heads of `head_dim`.
pub(super) fn read(
    keys: &Keys<'_>,
    pairs: RopePairs,
    head_dim: usize,
    context_length: usize,
) -> Result<Rope> {
    let dims = keys.count("rope.dimension_count", 0..=u64::MAX)?.unwrap_or(head_dim);
    if !(2..=head_dim).contains(&dims) || !dims.is_multiple_of(2) {
        let expected = format!("an even number <= head size {head_dim}");
        return Err(Error::key(&keys.name("rope.dimension_count"), expected, dims));
    }
    let theta = keys.positive("rope.freq_base")?.unwrap_or(10_000.0);
    Ok(Rope { pairs, dims, theta, scaling: scaling(keys, context_length)?, factors: None })
}

/// Contexts as long as the model was first trained on rotate by factors of their own, where a file has these beside those
/// for longer ones.
pub(super) fn short_context(keys: &Keys<'_>) -> Result<Option<usize>> {
    let original = keys.count("rope.scaling.original_context_length", 1..=u64::from(u32::MAX))?;
    Ok(original.filter(|_| keys.has(FACTORS) && keys.has("rope_factors_short.weight")))
}

/// Divisors of the rotation's frequencies in long contexts.
const FACTORS: &str = "rope_factors_long.weight";

/// `rope.scaling.*`. For YaRN, cos and sin are scaled by `attn_factor * (1 + 0.1 ln(factor))`, as published models were
/// trained (arXiv:2309.00071, section 3.4).
fn scaling(keys: &Keys<'_>, context_length: usize) -> Result<RopeScaling> {
    let how = match keys.get("rope.scaling.type") {
        None => "linear",
        Some(value) => match value.as_str() {
            Some(how @ ("none" | "linear" | "yarn" | "longrope")) => how,
            _ => {
                return Err(Error::key(
                    &keys.name("rope.scaling.type"),
                    "none, linear, yarn or longrope",
                    value,
                ));
            }
        },
    };
    // Files of 2023 say `rope.scale_linear`; a factor of 0 means none.
    let factor = ["rope.scaling.factor", "rope.scale_linear"]
        .into_iter()
        .find(|key| keys.get(key).is_some());
    let factor = factor.map_or(Ok(None), |key| keys.positive_or_zero(key))?.unwrap_or(1.0);
    let attn_factor = keys.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if how == "yarn" {
        let original =
            keys.count("rope.scaling.original_context_length", 1..=u64::from(u32::MAX))?;
        let original = original.unwrap_or(context_length);
        // a factor of 0 is valid here and does not mean "none"
        const EXT: &str = "rope.scaling.yarn_ext_factor";
        let zero = keys.get(EXT).and_then(|value| value.as_f32()) == Some(0.0);
        let extrapolation = if zero { 0.0 } else { keys.positive(EXT)?.unwrap_or(1.0) };
        // without extrapolation, only the factor in the file applies
        let log = if extrapolation > 0.0 { 0.1 * factor.max(1.0).ln() } else { 0.0 };
        return Ok(RopeScaling::Yarn {
            factor,
            original_context: u32::try_from(original)
                .expect("both are within u32 by the ranges above"),
            beta_fast: keys.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            attention_factor: attn_factor * (1.0 + log),
            extrapolation,
        });
    }
    let has_factors = keys.has(FACTORS);
    if how == "longrope" && !has_factors {
        return Err(Error::MissingTensor { name: FACTORS.into() });
    }
    if has_factors {
        return Ok(RopeScaling::Long { attention_factor: attn_factor });
    }
    if attn_factor != 1.0 {
        if factor != 1.0 {
            return Err(Error::key(
                &keys.name("rope.scaling.attn_factor"),
                format!("1 with scaling {how}"),
                attn_factor,
            ));
        }
        return Ok(RopeScaling::Long { attention_factor: attn_factor });
    }
    Ok(if how == "linear" && factor != 1.0 {
        RopeScaling::Linear { factor }
    } else {
        RopeScaling::None
    })
}
