//! What the quantizers without a search share. Results agree with the reference tools to the bit, so the order of
//! operations matters here.

/// The weight of largest magnitude, with its sign; the first of several.
pub(crate) fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |extreme: f32, &x| if x.abs() > extreme.abs() { x } else { extreme })
}

/// The least and the largest weight.
pub(super) fn range(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)))
}

/// `1 / d`, and 0 for 0.
pub(super) fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The code 0, 1 or 2 of a ternary weight; halves round away from zero.
pub(super) fn ternary(x: f32, inverse: f32) -> u8 {
    ((x * inverse).round().clamp(-1.0, 1.0) + 1.0) as u8
}
