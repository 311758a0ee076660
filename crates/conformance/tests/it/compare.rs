//! How results are compared.

use conformance::nmse;

#[test]
fn nmse_of_equal_zero_and_broken_values() {
    assert_eq!(nmse(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
    assert_eq!(nmse(&[1.0], &[0.0]), f64::INFINITY);
    assert_eq!(nmse(&[1.0, 3.0], &[1.0, 2.0]), 0.2);
    assert!(nmse(&[f32::NAN], &[1.0]).is_nan());
}
