//! A hub that does not do what it must: what comes of it is the file or an error, never another file.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hub::{HubError, HubOptions, HubPatience, PullStage};

use crate::fake::{FakeHub, Mischief, REPOSITORY, content, hub, name, options, silent};

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
    for mischief in [
        Mischief::Drops(2),
        Mischief::Drops(3),
        Mischief::Busy(2),
        Mischief::Short,
        Mischief::Expires(2, 403),
        Mischief::Expires(2, 400),
    ] {
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
fn who_never_answers_is_given_up() {
    let bytes = content(14, 1000);
    for mischief in [Mischief::Busy(1000), Mischief::Away(Duration::from_secs(60))] {
        let start = Instant::now();
        let (result, ..) = pulled(mischief, &bytes);
        let error = result.unwrap_err();
        assert!(matches!(error, HubError::Transport { .. }), "{error}");
        assert!(error.to_string().contains("for 3 s"), "it says for how long: {error}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

/// A router that starts anew, a hub that is away: a download goes on when that is over.
#[test]
fn an_outage_is_waited_for() {
    let bytes = content(15, 3 * PART);
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let patience = HubPatience::default();
    assert!(patience.outage >= Duration::from_secs(300), "some minutes: {patience:?}");
    let place = hub::Hub::new(HubOptions { patience, ..options(&fake, folder.path()) });
    let model = place.find(&name(REPOSITORY)).unwrap();
    // This outlasts several pauses between attempts. In `cargo xtask full` it also outlasts the time limit of a connection.
    let away = if testing::full("hub: an outage of 17 s") { 17 } else { 6 };
    fake.does(Mischief::Away(Duration::from_secs(away)));
    let mut told = Vec::new();
    let path = place.pull(&model, &mut |progress| {
        if progress.stage == PullStage::Retries {
            told.push(progress.trouble.unwrap().to_owned());
        }
        true
    });
    assert_eq!(std::fs::read(path.unwrap()).unwrap(), bytes);
    assert!(!told.is_empty(), "who waits is told why");
}

#[test]
fn who_asks_to_be_left_alone_is() {
    let bytes = content(16, 1000);
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes)]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let model = place.find(&name(REPOSITORY)).unwrap();
    fake.does(Mischief::Busy(1));
    let start = Instant::now();
    place.pull(&model, &mut silent).unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1), "Retry-After: 1");
    assert_eq!(fake.state().asked.load(Ordering::Relaxed), 2);
}

/// A hub counts who asks it: it is asked where a file is once, and again when that address is not good any more.
#[test]
fn the_hub_is_asked_once_for_all_parts() {
    let bytes = content(17, 12 * PART);
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let model = place.find(&name(REPOSITORY)).unwrap();
    let before = fake.state().resolved.load(Ordering::Relaxed);
    let path = place.pull(&model, &mut silent).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), bytes);
    let resolved = fake.state().resolved.load(Ordering::Relaxed) - before;
    assert!(resolved <= 4, "{resolved} times for 12 parts, over four connections");
}

#[test]
fn who_stops_does_not_wait_for_a_server_that_hangs() {
    let bytes = content(18, 3 * PART);
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let model = place.find(&name(REPOSITORY)).unwrap();
    fake.does(Mischief::Stalls);
    let start = Instant::now();
    let stopped = place.pull(&model, &mut |_| start.elapsed() < Duration::from_millis(500));
    assert!(matches!(stopped, Err(HubError::Cancelled)), "{stopped:?}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    fake.does(Mischief::None);
    assert_eq!(std::fs::read(place.pull(&model, &mut silent).unwrap()).unwrap(), bytes);
}

/// A link may be slow for as long as it likes; only one on which nothing comes is given up.
#[test]
fn a_slow_link_is_not_a_broken_one() {
    let bytes = content(19, 28 * (64 << 10));
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let second = Duration::from_secs(1);
    let patience = HubPatience { silence: 5 * second, outage: 10 * second };
    let place = hub::Hub::new(HubOptions { patience, ..options(&fake, folder.path()) });
    let model = place.find(&name(REPOSITORY)).unwrap();
    *fake.state().pause.lock().unwrap() = Duration::from_millis(200);
    let start = Instant::now();
    assert_eq!(std::fs::read(place.pull(&model, &mut silent).unwrap()).unwrap(), bytes);
    assert!(start.elapsed() > 5 * second, "one answer of more than five seconds");
    assert_eq!(fake.state().asked.load(Ordering::Relaxed), 1, "and no other");
}
