//! `licenses`: what is linked is named, and its terms are there.

use std::process::{Command, Stdio};

use crate::common::{Place, text};

#[test]
fn linked_packages_are_named_with_their_terms() {
    let place = Place::new();
    let page = place.ok(&["licenses"]);
    let lock = include_str!("../../../../Cargo.lock");
    for name in ["ring", "rustls", "serde", "tokenizers", "webpki-roots", "wgpu"] {
        let (_, entry) = lock.split_once(&format!("name = \"{name}\"\nversion = \"")).unwrap();
        let version = entry.split('"').next().unwrap();
        assert!(page.contains(&format!("\n{name} {version}  ")), "{name} {version}");
    }
    let count = |what: &str| page.matches(what).count();
    assert_eq!(count("TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"), 1);
    assert_eq!(count("Community Data License Agreement - Permissive - Version 2.0"), 1);
    assert_eq!(count("UNICODE LICENSE V3"), 1);
    for file in
        [include_str!("../../../../LICENSE-MIT"), include_str!("../../../../LICENSE-APACHE")]
    {
        for line in file.lines().filter(|line| line.trim_start().starts_with("Copyright (c)")) {
            assert!(page.contains(line.trim()), "{line}");
        }
    }
    // procedural macros and tools of tests are not linked
    for name in ["serde_derive", "syn", "criterion", "proptest", "rooflight-cpu"] {
        assert!(!page.contains(&format!("\n{name} ")), "{name}");
    }
}

#[test]
fn licences_are_plain_text_of_100_columns() {
    let place = Place::new();
    let page = place.ok(&["licenses"]);
    assert!(page.len() < 150_000, "{} bytes in every program", page.len());
    assert!(!page.contains(|c: char| c.is_control() && c != '\n'));
    for line in page.lines().filter(|line| line.chars().count() > 100) {
        assert!(!line.contains(' '), "it can be broken at a blank: {line}");
    }
}

#[test]
fn licences_end_quietly_when_the_reader_leaves() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
    let output = command.arg("licenses").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}
