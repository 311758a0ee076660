//! Distance between two results.

/// Returns `mean((found - want)^2) / mean(want^2)`; NaN if anything is not finite.
///
/// # Panics
/// If the lengths differ.
pub fn nmse(found: &[f32], want: &[f32]) -> f64 {
    assert_eq!(found.len(), want.len(), "number of values");
    let (mut error, mut size) = (0.0, 0.0);
    for (&a, &b) in found.iter().zip(want) {
        if !a.is_finite() || !b.is_finite() {
            return f64::NAN;
        }
        error += (f64::from(a) - f64::from(b)).powi(2);
        size += f64::from(b).powi(2);
    }
    if error == 0.0 { 0.0 } else { error / size }
}
