//! `rooflight-lab article`.

use testing::Sandbox;

/// The binary in a folder of its own.
fn place() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_rooflight-lab"))
}

#[test]
fn tables_on_stdout() {
    let place = place();
    let text = place.ok(&["article"]);
    for want in [
        "## 5.1.5 Steps, with GQA",
        "58.64ms",
        "113 \\ 481",
        "printed 0.125M, correct 0.15625M",
        "## 3.1-head Share of the output head",
        "147:1 f32; 590:1 FP8",
        "## 4.3-queries Queries of a prompt of 512: kept, or computed again",
        "15.45GB",
    ] {
        assert!(text.contains(want), "{want} in {text}");
    }
    assert!(place.ok(&["article", "--decimal-units"]).contains("14.08ms"));
}

#[test]
fn files_in_a_folder() {
    let place = place();
    let folder = place.path("new/folder");
    assert_eq!(place.ok(&["article", "--out", folder.to_str().unwrap()]), "");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    let ending = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count();
    assert_eq!((ending(".csv"), ending(".md"), ending(".svg"), names.len()), (15, 1, 8, 24));
    let text = std::fs::read_to_string(folder.join("article.md")).unwrap();
    for picture in names.iter().filter(|name| name.ends_with(".svg")) {
        assert!(text.contains(&format!("({picture})")), "{picture}");
    }
    let turns = std::fs::read_to_string(folder.join("4.3.csv")).unwrap();
    assert!(turns.starts_with("model,w16kv16 rough first,w16kv16 rough second,"), "{turns}");
    // A file where the folder should be.
    place.write("taken", "");
    let taken = place.path("taken");
    let (code, told) = place.fails(&["article", "-o", taken.to_str().unwrap()]);
    assert!(code == 1 && told.contains("making the folder"), "{told}");
}

/// All of them or none, and none replaced unasked.
#[test]
fn files_that_exist_are_replaced_by_force_only() {
    let place = place();
    std::fs::create_dir(place.path("art")).unwrap();
    place.write("art/5.1.csv", "precious");
    place.write("art/4.3.csv", "precious");
    let (code, told) = place.fails(&["article", "--out", "art"]);
    assert!(code == 1 && told.contains("--force"), "{told}");
    assert_eq!(std::fs::read_dir(place.path("art")).unwrap().count(), 2, "all of them or none");
    place.ok(&["article", "--out", "art", "--force"]);
    assert_ne!(place.read("art/4.3.csv"), b"precious");
}
