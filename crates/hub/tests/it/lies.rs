//! A hub that does not do what it must: what comes of it is the file or an error, never another file.

use std::sync::atomic::Ordering;

use hub::HubError;

use crate::fake::{FakeHub, Mischief, REPOSITORY, content, hub, name, silent};

const PART: usize = 2 << 20;

/// Pull with a hub that does this; the folder stays for the next one.
fn pulled(
    mischief: Mischief,
    bytes: &[u8],
) -> (Result<Vec<u8>, HubError>, FakeHub, tempfile::TempDir) {
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.to_vec())]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let model = place.find(&name(REPOSITORY)).unwrap();
    fake.does(mischief);
    let result = place.pull(&model, &mut silent).map(|path| std::fs::read(path).unwrap());
    if result.is_err() {
        let root = folder.path().join("models--org--Model-GGUF");
        assert!(!root.join("snapshots").exists(), "{mischief:?}: a name without a file");
    }
    // a hub that has come to its senses gives the file all the same
    fake.does(Mischief::None);
    let path = place.pull(&model, &mut silent).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), bytes, "{mischief:?}");
    (result, fake, folder)
}

#[test]
fn what_breaks_off_is_tried_again() {
    let bytes = content(11, 3 * PART + 77);
    for mischief in [Mischief::Drops(2), Mischief::Drops(3), Mischief::Busy(2)] {
        let (result, ..) = pulled(mischief, &bytes);
        assert_eq!(result.unwrap(), bytes, "{mischief:?}");
    }
}

#[test]
fn who_knows_no_ranges_sends_all() {
    let small = content(12, 77_000);
    let (result, ..) = pulled(Mischief::NoRanges, &small);
    assert_eq!(result.unwrap(), small);
    // of a file in parts each would be read with all before it
    let bytes = content(12, 2 * PART);
    let (result, fake, _) = pulled(Mischief::NoRanges, &bytes);
    assert!(result.unwrap_err().to_string().contains("knows no ranges"));
    let sent = fake.state().sent.load(Ordering::Relaxed);
    assert!(sent < 6 * bytes.len() as u64, "{sent}");
}

#[test]
fn who_lies_is_not_believed() {
    let bytes = content(13, PART + 77);
    for (mischief, said) in [
        (Mischief::OtherRange, "Content-Range"),
        (Mischief::Packs, "Content-Encoding: gzip"),
        (Mischief::Unsatisfiable, "416"),
        (Mischief::Flips, "digest"),
        (Mischief::Changes, "digest"),
        (Mischief::Long, "bytes"),
        (Mischief::Circles, "redirects"),
    ] {
        let (result, ..) = pulled(mischief, &bytes);
        let error = result.unwrap_err().to_string();
        assert!(error.contains(said), "{mischief:?}: {error}");
        assert!(!error.contains("signature"), "{error}");
    }
}

#[test]
fn who_always_breaks_off_is_given_up() {
    let bytes = content(14, 1000);
    let (result, ..) = pulled(Mischief::Short, &bytes);
    assert!(matches!(result, Err(HubError::Transport { .. })), "{result:?}");
}
