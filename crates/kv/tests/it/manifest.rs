//! Manifests: what they say, and that nothing else is believed.

use kv::ContentKey;
use kv::internals::{Entry, Manifest};
use proptest::prelude::*;
use testing::{Dice, mutations};
use twox_hash::XxHash3_64;

/// Bytes before those that the checksum is of.
const HEAD: usize = 28;

fn manifest() -> impl Strategy<Value = Manifest> {
    let record = (0u64..1 << 40, 0u64..1 << 40, any::<u64>(), any::<u64>());
    let record =
        record.prop_map(|(first, len, checksum, stamp)| Entry { first, len, checksum, stamp });
    let key = [".{0,8}"; ContentKey::PARTS].prop_map(ContentKey::of);
    let note = proptest::collection::vec(any::<u8>(), 0..40);
    (key, note, proptest::collection::vec(record, 0..9)).prop_map(|(key, note, records)| Manifest {
        key,
        note,
        records,
    })
}

/// Make the checksum and the length right, so that what lies behind them is read.
fn seal(bytes: &mut [u8]) {
    if bytes.len() >= HEAD {
        let (len, sum) = (bytes.len() as u64, XxHash3_64::oneshot(&bytes[HEAD..]));
        bytes[12..20].copy_from_slice(&len.to_le_bytes());
        bytes[20..28].copy_from_slice(&sum.to_le_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

    /// A manifest says what it was made of; with any byte changed or cut off it is none.
    #[test]
    fn what_is_written_is_read(manifest in manifest(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = manifest.to_bytes();
        prop_assert_eq!(Manifest::from_bytes(&bytes), Ok(manifest));
        let at = at.index(bytes.len());
        prop_assert!(Manifest::from_bytes(&bytes[..at]).is_err());
        bytes[at] ^= flip;
        prop_assert!(Manifest::from_bytes(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Manifest::from_bytes(&bytes).is_err());
    }

    /// Where checksum and length are right whatever else stands there is refused or means itself.
    #[test]
    fn sealed_mutations_are_refused_or_mean_themselves(manifest in manifest(), seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        for _ in 0..mutations(20) {
            let mut bytes = manifest.to_bytes();
            for _ in 0..1 + dice.below(3) {
                let at = HEAD + dice.below(bytes.len() - HEAD);
                match dice.below(4) {
                    0 => bytes[at] = 0xFF,
                    1 => bytes[at] = dice.bits() as u8,
                    2 => bytes.truncate(at.max(HEAD + 1)),
                    _ => bytes.insert(at, dice.bits() as u8),
                }
            }
            seal(&mut bytes);
            if let Ok(read) = Manifest::from_bytes(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }
}

#[test]
fn faults_name_the_part() {
    let whole = Manifest { key: ContentKey::default(), note: vec![1; 9], records: vec![] };
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.to_bytes();
        change(&mut bytes);
        seal(&mut bytes);
        Manifest::from_bytes(&bytes).unwrap_err()
    };
    let fault = |what, wanted: &str, found: &str| (what, wanted.to_owned(), found.to_owned());
    assert_eq!(with(&|b| b[0] = b'R'), fault("magic", "rooflkvm", "Rooflkvm"));
    assert_eq!(with(&|b| b[8] = 2), fault("version", "1", "2"));
    assert_eq!(with(&|b| b[HEAD + 4] = b'T'), fault("part of the key", "tokens", "Tokens"));
    let end = whole.to_bytes().len();
    let records = with(&|b| b[end - 1] = 0xFF);
    assert_eq!(records, fault("bytes of records", &u64::MAX.to_string(), "0"));
    let note = with(&|b| b[end - 8 - 9 - 1] = 1);
    assert_eq!(note, fault("note", &format!("{} bytes", 9 + (1u64 << 56)), "17"));
    let mut huge = Manifest { records: vec![], ..whole.clone() };
    huge.records.push(Entry { first: 5, len: u64::MAX, checksum: 0, stamp: 0 });
    assert_eq!(Manifest::from_bytes(&huge.to_bytes()).unwrap_err().0, "place of a record");
}
