//! What is here: listed, found by its names, and taken away without what others use.

use hub::HubError;

use crate::fake::{FakeHub, REPOSITORY, content, hub, name, silent};

#[test]
fn models_are_listed_found_and_removed() {
    let fake = FakeHub::new(&[
        ("Model-7B-Q4_K_M.gguf", content(1, 2000)),
        ("Model-7B-Q8_0.gguf", content(2, 3000)),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    assert_eq!(place.cached().unwrap(), [], "there is no folder yet");
    for quant in ["Q4_K_M", "Q8_0"] {
        let model = place.find(&name(&format!("{REPOSITORY}:{quant}"))).unwrap();
        place.pull(&model, &mut silent).unwrap();
    }
    let names: Vec<String> = place.cached().unwrap().iter().map(|file| file.name()).collect();
    assert_eq!(names, ["org/Model-GGUF:Q4_K_M", "org/Model-GGUF:Q8_0"]);
    let found = |text: &str| {
        let found = place.find_cached(&name(text)).unwrap();
        found.map(|file| file.name())
    };
    assert_eq!(found("org/model-gguf").as_deref(), Some("org/Model-GGUF:Q4_K_M"));
    assert_eq!(found("org/Model-GGUF:q8_0").as_deref(), Some("org/Model-GGUF:Q8_0"));
    assert_eq!(found("org/Model-GGUF:Q2_K"), None);
    let short = |text: &str| place.find_by_short_name(text).map(|found| found.map(|f| f.name()));
    assert_eq!(short("model-7b-q8_0").unwrap().as_deref(), Some("org/Model-GGUF:Q8_0"));
    assert_eq!(short("model:q8_0").unwrap().as_deref(), Some("org/Model-GGUF:Q8_0"));
    assert!(matches!(short("model"), Err(HubError::Ambiguous { .. })));
    assert_eq!(short("other").unwrap(), None);

    // an older commit with the same file
    let root = folder.path().join("models--org--Model-GGUF");
    let old = root.join("snapshots/ffff");
    std::fs::create_dir_all(&old).unwrap();
    let now = place.find_cached(&name("org/Model-GGUF")).unwrap().unwrap();
    let target = std::fs::read_link(&now.path).unwrap();
    std::os::unix::fs::symlink(target, old.join("other-name.gguf")).unwrap();
    let removed = place.remove(&now).unwrap();
    assert_eq!((removed.files, removed.bytes), (1, 0), "another commit still has the bytes");
    assert!(std::fs::read(old.join("other-name.gguf")).is_ok());
    for left in place.cached().unwrap() {
        place.remove(&left).unwrap();
    }
    assert_eq!(place.cached().unwrap(), []);
    assert!(!root.exists());
}

/// What another process brings here is not taken from it.
#[test]
fn a_download_stays_where_its_model_is_removed() {
    let fake =
        FakeHub::new(&[("m-Q4_K_M.gguf", content(1, 2000)), ("m-Q8_0.gguf", content(2, 6 << 20))]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    let small = place.find(&name(REPOSITORY)).unwrap();
    place.pull(&small, &mut silent).unwrap();
    let large = place.find(&name(&format!("{REPOSITORY}:Q8_0"))).unwrap();
    let mut removed = false;
    let path = place.pull(&large, &mut |_| {
        if !std::mem::replace(&mut removed, true) {
            let other = hub(&fake, folder.path());
            let there = other.find_cached(&name(REPOSITORY)).unwrap().unwrap();
            other.remove(&there).unwrap();
        }
        true
    });
    assert_eq!(std::fs::read(path.unwrap()).unwrap(), content(2, 6 << 20));
    assert!(removed && place.cached().unwrap().len() == 1);
}

/// A link out of the cache is not followed where things are removed.
#[test]
fn what_lies_elsewhere_stays() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("precious.gguf");
    std::fs::write(&outside, "x").unwrap();
    let cache = folder.path().join("hub");
    let snapshot = cache.join("models--a--b/snapshots/c");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::os::unix::fs::symlink(&outside, snapshot.join("m.gguf")).unwrap();
    let fake = FakeHub::new(&[]);
    let place = hub(&fake, &cache);
    let file = place.find_by_short_name("m").unwrap().unwrap();
    place.remove(&file).unwrap();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "x");
    assert_eq!(place.cached().unwrap(), []);
}
