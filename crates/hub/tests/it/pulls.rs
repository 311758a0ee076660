//! What is brought here: whole, by all its names, and no more than is missing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hub::{HubError, HubOptions, PullProgress, PullStage};

use crate::fake::{COMMIT, FakeHub, REPOSITORY, content, hub, name, options, sha256, silent};

const PART: usize = 2 << 20;

#[test]
fn a_model_comes_whole_and_lies_where_other_tools_look() {
    let (usual, other) = (content(1, 2 * PART + 12_345), content(2, 1000));
    let fake = FakeHub::new(&[
        ("model-Q8_0.gguf", other.clone()),
        ("model-Q4_K_M.gguf", usual.clone()),
        ("mmproj-F16.gguf", content(3, 10)),
        ("README.md", content(4, 10)),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let model = place.find(&name(REPOSITORY)).unwrap();
    assert_eq!((model.bytes(), &*model.commit), (usual.len() as u64, COMMIT));
    assert_eq!(place.beginning(&model, &model.files[0], 100).unwrap(), usual[..100]);
    let mut seen = Vec::new();
    let path = place.pull(&model, &mut |progress| {
        seen.push((progress.stage, progress.done));
        assert_eq!(progress.total, usual.len() as u64);
        true
    });
    let path = path.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), usual);
    let root = folder.path().join("models--org--Model-GGUF");
    assert_eq!(path, root.join("snapshots").join(COMMIT).join("model-Q4_K_M.gguf"));
    let blob = format!("../../blobs/{}", sha256(&usual));
    assert_eq!(std::fs::read_link(&path).unwrap().to_str(), Some(&*blob));
    assert_eq!(std::fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(std::fs::read_dir(root.join("blobs")).unwrap().count(), 1, "nothing else stays");
    assert!(seen.iter().any(|(stage, _)| *stage == PullStage::Checked));
    assert!(seen.iter().any(|(_, done)| *done == usual.len() as u64));
    // what is here does not come again
    let sent = fake.state().sent.load(Ordering::Relaxed);
    let mut stages = Vec::new();
    let again = place.pull(&model, &mut |progress| {
        stages.push(progress.stage);
        true
    });
    assert_eq!((again.unwrap(), &*stages), (path, &[PullStage::Here][..]));
    assert_eq!(fake.state().sent.load(Ordering::Relaxed), sent);
    let small = place.find(&name(&format!("{REPOSITORY}:q8_0"))).unwrap();
    assert_eq!(std::fs::read(place.pull(&small, &mut silent).unwrap()).unwrap(), other);
    let wrong = place.find(&name(&format!("{REPOSITORY}:Q2_K"))).unwrap_err();
    assert!(wrong.to_string().contains("Q4_K_M, Q8_0"), "{wrong}");
    assert!(matches!(place.find(&name("org/none")), Err(HubError::NotFound { .. })));
}

#[test]
fn parts_of_a_model_come_together() {
    let parts: Vec<Vec<u8>> = (0..3).map(|i| content(i, 5000 + i as usize)).collect();
    let names: Vec<String> =
        (1..=3).map(|i| format!("Q4_0/big model-Q4_0-{i:05}-of-00003.gguf")).collect();
    let files: Vec<(&str, Vec<u8>)> =
        names.iter().map(String::as_str).zip(parts.iter().cloned()).collect();
    let fake = FakeHub::new(&files);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let model = place.find(&name(&format!("{REPOSITORY}:Q4_0"))).unwrap();
    assert_eq!(model.files.len(), 3);
    let first = place.pull(&model, &mut silent).unwrap();
    for (name, part) in names.iter().zip(&parts) {
        let path = first.with_file_name(name.strip_prefix("Q4_0/").unwrap());
        assert_eq!(std::fs::read(path).unwrap(), *part);
    }
    let cached = place.cached().unwrap().files;
    assert_eq!(cached.len(), 1);
    let all: usize = parts.iter().map(Vec::len).sum();
    assert_eq!((cached[0].bytes, &cached[0].path), (all as u64, &first));
    fake.state().files.lock().unwrap().remove(&names[1]);
    assert!(matches!(place.find(&name(REPOSITORY)), Err(HubError::NoFile { .. })));
}

#[test]
fn who_stops_keeps_what_came() {
    let bytes = content(5, 6 * PART);
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let model = place.find(&name(REPOSITORY)).unwrap();
    *fake.state().pause.lock().unwrap() = Duration::from_millis(1);
    let mut stops = 0;
    let path = loop {
        let least = (stops + 1) * PART as u64;
        let mut found = 0;
        let mut tell = |progress: PullProgress<'_>| {
            match progress.stage {
                PullStage::Found => found = progress.done,
                PullStage::Comes => assert!(progress.done >= found, "it goes on where it was"),
                _ => {}
            }
            progress.done < least || least > 4 * PART as u64
        };
        match place.pull(&model, &mut tell) {
            Ok(path) => break path,
            Err(HubError::Cancelled) => stops += 1,
            Err(error) => panic!("{error}"),
        }
        let snapshots = folder.path().join("models--org--Model-GGUF/snapshots");
        assert!(!snapshots.exists(), "nothing has its name before it is whole");
    };
    assert!(stops >= 3);
    assert_eq!(std::fs::read(path).unwrap(), bytes);
    // each stop loses at most what was on its way on each connection
    let sent = fake.state().sent.load(Ordering::Relaxed);
    let most = bytes.len() as u64 + (stops + 1) * 4 * PART as u64;
    assert!(sent <= most, "{sent} of {most}");
}

#[test]
fn two_at_once_bring_it_once() {
    let bytes = content(6, 3 * PART);
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    let folder = tempfile::tempdir().unwrap();
    let model = hub(&fake, folder.path()).find(&name(REPOSITORY)).unwrap();
    fake.state().sent.store(0, Ordering::Relaxed);
    *fake.state().pause.lock().unwrap() = Duration::from_millis(1);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let path = hub(&fake, folder.path()).pull(&model, &mut silent).unwrap();
                assert_eq!(std::fs::read(path).unwrap(), bytes);
            });
        }
    });
    assert_eq!(fake.state().sent.load(Ordering::Relaxed), bytes.len() as u64);
    // once it is here, nothing but the branch is written, by all of them at the same moment
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let place = hub(&fake, folder.path());
                for _ in 0..100 {
                    place.pull(&model, &mut silent).unwrap();
                }
            });
        }
    });
    let refs = folder.path().join("models--org--Model-GGUF/refs");
    let names = std::fs::read_dir(&refs).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["main"]);
    assert_eq!(std::fs::read_to_string(refs.join("main")).unwrap(), COMMIT);
}

#[test]
fn the_token_is_the_hubs_alone() {
    let bytes = content(7, 3000);
    let fake = FakeHub::new(&[("m-Q4_K_M.gguf", bytes.clone())]);
    *fake.state().token.lock().unwrap() = Some("hf_secret".into());
    let folder = tempfile::tempdir().unwrap();
    let denied = hub(&fake, folder.path()).find(&name(REPOSITORY)).unwrap_err();
    assert!(denied.to_string().contains("HF_TOKEN"), "{denied}");
    let options = HubOptions { token: Some("hf_secret".into()), ..options(&fake, folder.path()) };
    let place = hub::Hub::new(options.clone());
    let model = place.find(&name(REPOSITORY)).unwrap();
    assert_eq!(std::fs::read(place.pull(&model, &mut silent).unwrap()).unwrap(), bytes);
    assert!(!fake.state().leaked.load(Ordering::Relaxed), "the server of the bytes saw the token");
    let offline = hub::Hub::new(HubOptions { offline: true, ..options });
    assert!(matches!(offline.find(&name(REPOSITORY)), Err(HubError::Offline { .. })));
    assert!(offline.find_cached(&name(REPOSITORY)).unwrap().is_some());
}
