//! What is here: listed, found by its names, and taken away without what others use.

use std::path::Path;

use hub::{Hub, HubError, HubOptions};

use crate::fake::{FakeHub, REPOSITORY, content, hub, name, options, silent};

/// The names of all that is here.
fn here(place: &Hub) -> Vec<String> {
    place.cached().unwrap().files.iter().map(|file| file.name().to_owned()).collect()
}

/// A model's folder of the cache with a file in it, of this commit.
fn put(cache: &Path, commit: &str, file: &str, text: &str) {
    let root = cache.join("models--org--Model-GGUF");
    let path = root.join("snapshots").join(commit).join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::create_dir_all(root.join("refs")).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A name with a revision means that one, and nothing else that is here.
#[test]
fn a_revision_is_of_its_commit() {
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&FakeHub::new(&[]), folder.path());
    let (old, new) = ("a".repeat(40), "b".repeat(40));
    put(folder.path(), &new, "m-Q4_K_M.gguf", "new");
    put(folder.path(), &old, "m-Q4_K_M.gguf", "old");
    put(folder.path(), &old, "m-Q8_0.gguf", "old and large");
    let refs = folder.path().join("models--org--Model-GGUF/refs");
    std::fs::write(refs.join("main"), &new).unwrap();
    std::fs::write(refs.join("v1"), &old).unwrap();
    let found = |text: &str| {
        let found = place.find_cached(&name(text)).unwrap();
        found.map(|file| std::fs::read_to_string(file.path).unwrap())
    };
    let is = |text: &str| Some(text.to_owned());
    assert_eq!(found("org/Model-GGUF"), is("new"), "that of the branch, though another came later");
    assert_eq!(found("org/Model-GGUF@v1"), is("old"));
    assert_eq!(found(&format!("org/Model-GGUF@{old}")), is("old"));
    assert_eq!(found("org/Model-GGUF@aaaaaaaa:Q8_0"), is("old and large"));
    assert_eq!(found("org/Model-GGUF@v2"), None, "what is here is of other revisions");
    assert_eq!(found(&format!("org/Model-GGUF@{new}:Q8_0")), None);
    assert_eq!(found("org/Model-GGUF:Q8_0"), is("old and large"), "no revision was asked for");
}

/// Two files of one type are two models, each with a name that is its own.
#[test]
fn files_of_one_type_do_not_hide_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&FakeHub::new(&[]), folder.path());
    for file in ["base-Q4_0.gguf", "chat-Q4_0.gguf", "chat-Q8_0.gguf"] {
        put(folder.path(), &"a".repeat(40), file, file);
    }
    let names =
        ["org/Model-GGUF/base-Q4_0.gguf", "org/Model-GGUF/chat-Q4_0.gguf", "org/Model-GGUF:Q8_0"];
    assert_eq!(here(&place), names);
    for (name, file) in names.iter().zip(["base-Q4_0.gguf", "chat-Q4_0.gguf", "chat-Q8_0.gguf"]) {
        let found = place.find_by_short_name(name).unwrap().unwrap();
        assert_eq!(found.file, file);
    }
    let several = place.find_by_short_name("model:q4_0").unwrap_err().to_string();
    assert!(several.contains(names[0]) && several.contains(names[1]), "{several}");
}

/// What is wrong with one folder is told, and does not hide what is in others.
#[test]
fn a_folder_that_cannot_be_read_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&FakeHub::new(&[]), folder.path());
    put(folder.path(), &"a".repeat(40), "m-Q4_0.gguf", "x");
    let broken = folder.path().join("models--a--broken");
    std::os::unix::fs::symlink(&broken, &broken).unwrap();
    let all = place.cached().unwrap();
    assert_eq!(all.files.len(), 1);
    assert!(all.unread[0].to_string().contains("models--a--broken"), "{:?}", all.unread);
    assert!(place.find_by_short_name("model").unwrap().is_some());
}

#[test]
fn who_prints_options_does_not_tell_the_token() {
    let fake = FakeHub::new(&[]);
    let options = options(&fake, Path::new("x"));
    let with = HubOptions { token: Some("hf_secret".into()), ..options.clone() };
    let printed = format!("{with:?} {with:#?}");
    assert!(!printed.contains("hf_secret"), "{printed}");
    assert_ne!(printed, format!("{options:?} {options:#?}"), "that there is one is told");
}

#[test]
fn models_are_listed_found_and_removed() {
    let fake = FakeHub::new(&[
        ("Model-7B-Q4_K_M.gguf", content(1, 2000)),
        ("Model-7B-Q8_0.gguf", content(2, 3000)),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let place = hub(&fake, folder.path());
    assert_eq!(here(&place), [""; 0], "there is no folder yet");
    for quant in ["Q4_K_M", "Q8_0"] {
        let model = place.find(&name(&format!("{REPOSITORY}:{quant}"))).unwrap();
        place.pull(&model, &mut silent).unwrap();
    }
    assert_eq!(here(&place), ["org/Model-GGUF:Q4_K_M", "org/Model-GGUF:Q8_0"]);
    let found = |text: &str| {
        let found = place.find_cached(&name(text)).unwrap();
        found.map(|file| file.name().to_owned())
    };
    assert_eq!(found("org/model-gguf").as_deref(), Some("org/Model-GGUF:Q4_K_M"));
    assert_eq!(found("org/Model-GGUF:q8_0").as_deref(), Some("org/Model-GGUF:Q8_0"));
    assert_eq!(found("org/Model-GGUF:Q2_K"), None);
    let short = |text: &str| {
        place.find_by_short_name(text).map(|found| found.map(|file| file.name().to_owned()))
    };
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
    for left in place.cached().unwrap().files {
        place.remove(&left).unwrap();
    }
    assert_eq!(here(&place), [""; 0]);
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
    assert!(removed && here(&place).len() == 1);
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
    assert_eq!(here(&place), [""; 0]);
}
