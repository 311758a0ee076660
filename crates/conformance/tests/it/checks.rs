//! The lists of checks.

use conformance::{
    EVERY_CUT, EXPERTS, LATENT, MEANING, PARTS, RECURRENT, SAME_BITS, SELECTION, WINDOWS,
};

#[test]
fn names_are_unique() {
    let all =
        [MEANING, SAME_BITS, WINDOWS, EXPERTS, LATENT, RECURRENT, SELECTION, PARTS, EVERY_CUT]
            .concat();
    let names: std::collections::HashSet<_> = all.iter().map(|c| c.name).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn meaning_relies_on_no_promise() {
    assert!(MEANING.iter().all(|check| check.relies_on.is_empty()));
    assert!(SAME_BITS.iter().all(|check| !check.relies_on.is_empty()));
}
