//! What is told of sessions on disk.

use kv::internals::{SessionImage, StatesImage, TableImage, TableKinds};
use kv::{StateSpec, TableSpec};
use proptest::prelude::*;

fn image() -> impl Strategy<Value = SessionImage> {
    let table = (0usize..9, 0usize..9).prop_map(|(first, blocks)| TableImage { first, blocks });
    let tables = proptest::collection::vec(table, 0..4);
    let snapshots = proptest::collection::vec((0usize..100, any::<u8>()), 0..4);
    let tokens = proptest::collection::vec(any::<u32>(), 0..40);
    let note = proptest::collection::vec(any::<u8>(), 0..9);
    let states = (snapshots, 0usize..100, any::<bool>());
    (tokens, tables, states, note).prop_map(|(tokens, tables, states, note)| {
        let (snapshots, rows_from, has_rings) = states;
        let states = StatesImage { snapshots, rows_from, has_rings };
        SessionImage { tokens, tables, states, note }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

    /// What is written is read; what is cut short, or goes on, is none.
    #[test]
    fn images_mean_themselves(image in image(), at in any::<prop::sample::Index>()) {
        let mut bytes = image.to_bytes();
        prop_assert_eq!(SessionImage::from_bytes(&bytes), Some(image));
        prop_assert_eq!(SessionImage::from_bytes(&bytes[..at.index(bytes.len())]), None);
        bytes.push(0);
        prop_assert_eq!(SessionImage::from_bytes(&bytes), None);
    }

    /// Any bytes are read as an image that says the same, or as none; no number makes it ask for records that are not
    /// there.
    #[test]
    fn strange_images_are_refused_or_fit(
        mut bytes in image().prop_map(|image| image.to_bytes()),
        harm in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        records in 0usize..40,
    ) {
        for (at, byte) in harm {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Some(image) = SessionImage::from_bytes(&bytes) else { return Ok(()) };
        prop_assert_eq!(image.to_bytes(), bytes);
        let windowed = TableSpec { window: Some(6), ..TableSpec::all(4, 64) };
        let specs = [TableSpec::all(4, 64), windowed];
        let states = [StateSpec::of(8, 4)];
        for states in [&states[..], &[]] {
            let kinds = TableKinds { specs: &specs, states };
            if image.fits(kinds, records) {
                for len in 0..=image.tokens.len() {
                    let reached = image.reached(kinds, len);
                    prop_assert!(reached <= len);
                    let wanted = image.wanted(kinds, reached);
                    prop_assert!(wanted.iter().all(|one| one.record < records));
                    prop_assert!(wanted.is_sorted_by(|a, b| a.record < b.record));
                }
                prop_assert_eq!(image.wanted(kinds, image.tokens.len()).len(), records);
            }
        }
    }
}
