//! How results are compared.

use std::collections::HashMap;

pub use program::nmse;
use program::{Executor, Model, Outputs, Sequence, Step, Trace, ValueId, Variation};
use quant::GgmlType;

use crate::made::EXACT;

/// How far one multiplication with a weight of this type may be from the interpreter's, as NMSE. Executors may read
/// activations as 8-bit blocks for quantized weights (about 3e-5 in blocks of 32, 6e-5 in blocks of 256) and as half floats for half-float weights.
pub fn bound(ty: GgmlType) -> f64 {
    match ty {
        GgmlType::F32 => 1e-9,
        GgmlType::F16 | GgmlType::Bf16 => 1e-6,
        _ => 5e-4,
    }
}

/// Panic unless the NMSE is within `bound`.
///
/// # Panics
/// If it is not.
pub fn assert_close(found: &[f32], want: &[f32], bound: f64, what: &str) {
    let nmse = nmse(found, want);
    assert!(nmse <= bound, "{what}: NMSE {nmse:.3e}, allowed {bound:.0e}");
}

/// Panic unless logits of the same tokens in other steps are alike: to the bit if the executor promises so.
pub(crate) fn assert_alike(executor: &dyn Executor, found: &[f32], want: &[f32], what: &str) {
    if executor.promises().cover(&[Variation::Again, Variation::Cuts]) {
        assert_same_bits(found, want, what);
    } else {
        assert_close(found, want, 1e-6, what);
    }
}

/// Panic unless both are the same to the bit.
///
/// # Panics
/// If they are not.
pub fn assert_same_bits(found: &[f32], want: &[f32], what: &str) {
    assert_eq!(found.len(), want.len(), "{what}: number of values");
    if let Some(i) = (0..found.len()).find(|&i| found[i].to_bits() != want[i].to_bits()) {
        let nmse = nmse(found, want);
        panic!(
            "{what}: value {i} of {} is {}, not {}; NMSE {nmse:.3e}",
            found.len(),
            found[i],
            want[i]
        );
    }
}

/// Every value of the program for `tokens` in a new session.
///
/// # Errors
/// Those of the step; [`program::Error::Unsupported`] from an executor that keeps no values.
pub fn trace(model: &dyn Model, tokens: &[u32]) -> program::Result<Trace> {
    let wanted: Vec<ValueId> = (0..model.program().values.len() as u32).map(ValueId).collect();
    let session = model.open(&EXACT)?;
    let trace = model.trace(
        &Step {
            sequences: &[Sequence {
                session,
                tokens,
                outputs: Outputs::ALL,
                prompt: None,
                rows: &[],
            }],
        },
        &wanted,
    );
    model.close(session);
    trace
}

/// The first value, in the order of `found`, that differs from the value of the same name in `want` by more than
/// `bound`, with its NMSE. Values that only one of them has are passed over: executors may fuse them away.
pub fn first_difference(found: &Trace, want: &Trace, bound: f64) -> Option<(String, f64)> {
    let want: HashMap<&str, &[f32]> =
        want.values.iter().map(|v| (v.name.as_str(), v.data.as_slice())).collect();
    found.values.iter().find_map(|value| {
        let other = want.get(value.name.as_str())?;
        let nmse =
            if other.len() == value.data.len() { nmse(&value.data, other) } else { f64::INFINITY };
        (nmse.is_nan() || nmse > bound).then(|| (value.name.clone(), nmse))
    })
}
