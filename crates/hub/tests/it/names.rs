//! Names of models, and which file each means.

use hub::internals::pick;
use hub::{ModelName, RemoteFile, SHORT_NAMES};

fn name(text: &str) -> Option<String> {
    ModelName::parse(text).unwrap().map(|name| name.to_string())
}

#[test]
fn names_are_told_from_paths() {
    for (text, want) in [
        ("org/repo", Some("org/repo")),
        ("org/repo:q8_0", Some("org/repo:q8_0")),
        ("hf.co/org/repo:Q4_K_M", Some("org/repo:Q4_K_M")),
        ("https://huggingface.co/org/repo", Some("org/repo")),
        ("org/repo@abc123:Q4_0", Some("org/repo@abc123:Q4_0")),
        ("model.gguf", None),
        ("./org/repo", None),
        ("../x/y", None),
        ("/abs/path", None),
        ("a/b/c.gguf", None),
        ("org/re po", None),
        ("org/..", None),
        ("-x/y", None),
        ("org/a--b", None),
        ("", None),
    ] {
        assert_eq!(name(text).as_deref(), want, "{text}");
    }
    for wrong in ["hf.co/org", "hf.co/org/../x", "hf.co/org/a/b", "hf.co/org/x:"] {
        assert!(ModelName::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn short_names_are_those_of_the_table() {
    let seven = name("qwen2.5:7b").unwrap();
    assert!(seven.starts_with("Qwen/Qwen2.5-7B"), "{seven}");
    assert_eq!(name("Qwen2.5:7B-Instruct-q8_0").unwrap(), format!("{seven}:Q8_0"));
    assert_eq!(name("qwen2.5"), name("qwen2.5:latest"));
    assert!(name("qwen2.5").is_some());
    assert_eq!(name("qwen2.5:9000b"), None);
    assert_eq!(name("nothing"), None);
}

#[test]
fn files_are_chosen_by_type_whatever_the_case() {
    let files = [
        "m-q4_0.gguf",
        "m-Q4_K_S.gguf",
        "m.Q4_K_M.gguf",
        "Q8_0/m-Q8_0-00001-of-00002.gguf",
        "m-UD-Q2_K_XL.gguf",
    ];
    assert_eq!(pick(&files, None), Some(2));
    assert_eq!(pick(&files[..1], None), Some(0));
    assert_eq!(pick(&files, Some("Q4_0")), Some(0));
    assert_eq!(pick(&files, Some("q8_0")), Some(3));
    assert_eq!(pick(&files, Some("q4_k")), None, "none is called so");
    assert_eq!(pick(&files, Some("ud-q2_k_xl")), Some(4));
    assert_eq!(pick(&[], None), None);
    let of = |path: &str| {
        let file = RemoteFile { path: path.to_owned(), bytes: 1, digest: String::new() };
        file.quant().unwrap_or_default()
    };
    assert_eq!(files.map(of), ["Q4_0", "Q4_K_S", "Q4_K_M", "Q8_0", "Q2_K_XL"]);
    assert_eq!(["qwen2.gguf", "m-bf16.gguf", "x"].map(of), ["", "BF16", ""]);
}

#[test]
fn every_name_is_one_and_names_a_repository() {
    for (i, (family, size, repository)) in SHORT_NAMES.iter().enumerate() {
        let twice = SHORT_NAMES[..i].iter().any(|row| (row.0, row.1) == (*family, *size));
        assert!(!twice, "{family}:{size}");
        let parsed = ModelName::parse(repository).unwrap().unwrap();
        assert_eq!(parsed.repository, *repository);
        let named = ModelName::parse(&format!("{family}:{size}")).unwrap().unwrap();
        assert_eq!((&*named.repository, named.quant), (*repository, None), "{family}:{size}");
    }
}
