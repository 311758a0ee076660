//! Files that commands write: whole or not at all, and none replaced unasked.

use crate::common::{Place, text};

/// Every command that writes a file, with the name it is to have last.
const WRITERS: &[&[&str]] = &[
    &["demo-model", "out.svg"],
    &["plan", "qwen2.5-7b", "--device", "4090", "--plot", "out.svg"],
    &["logits", "-m", "demo.gguf", "--tokens", "1 2 3", "-o", "out.svg"],
    &[
        "bench",
        "-m",
        "demo.gguf",
        "-p",
        "2",
        "-n",
        "0",
        "-r",
        "1",
        "-t",
        "1",
        "--explain",
        "--plot",
        "out.svg",
    ],
];

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(".")).expect("the folder is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).into_string().expect("names are UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn a_file_that_exists_is_refused_before_any_work() {
    let place = Place::new();
    place.write("out.svg", "precious");
    for args in WRITERS {
        let (code, told) = place.fails(args);
        assert!(
            code == 1 && told.contains("out.svg") && told.contains("--force"),
            "{args:?}: {told}"
        );
        assert_eq!(place.read("out.svg"), b"precious", "{args:?}");
    }
    assert_eq!(names(&place), ["demo.gguf", "out.svg"], "nothing was measured, nothing is left");
    for args in &WRITERS[..3] {
        place.ok(&[args, &["--force"][..]].concat());
        assert_ne!(place.read("out.svg"), b"precious", "{args:?}");
    }
}

/// A limit on the size of files stands for a disk that is full.
#[cfg(unix)]
#[test]
fn what_cannot_be_written_whole_leaves_nothing() {
    let place = Place::new();
    place.write("old.svg", "a good picture");
    let ids = "1 ".repeat(200);
    for (blocks, file, args) in [
        (100, "out.gguf", vec!["demo-model", "out.gguf"]),
        (
            1,
            "old.svg",
            vec!["plan", "qwen2.5-7b", "--device", "4090", "--plot", "old.svg", "--force"],
        ),
        (100, "out.f32", vec!["logits", "-m", "demo.gguf", "--tokens", &ids, "-o", "out.f32"]),
    ] {
        let mut command = std::process::Command::new("sh");
        command.current_dir(place.path(".")).env("HOME", place.path("."));
        let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let output = command
            .args(["-c", &limited, env!("CARGO_BIN_EXE_rooflight")])
            .args(&args)
            .output()
            .unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains(&format!("writing {file}")), "{args:?}: {told}");
    }
    assert_eq!(place.read("old.svg"), b"a good picture");
    assert_eq!(names(&place), ["demo.gguf", "old.svg"]);
}

#[test]
fn what_was_written_is_told_and_runs() {
    let place = Place::new();
    let output = place.run(&["demo-model", "bundled.gguf"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).starts_with("bundled.gguf: "), "{}", text(&output.stderr));
    assert!(place.ok(&["show", "bundled.gguf"]).contains("qwen2"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_removes_what_was_begun() {
    use std::process::{Command, Stdio};
    let place = Place::new();
    let ids = "1 ".repeat(60_000);
    place.write("ids", &ids);
    let child = Command::new(env!("CARGO_BIN_EXE_rooflight"))
        .args([
            "logits",
            "-m",
            "demo.gguf",
            "-o",
            "out.f32",
            "--chunk",
            "1",
            "-t",
            "1",
            "--tokens",
            &ids,
        ])
        .current_dir(place.path("."))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let begun = || names(&place).iter().any(|name| name.ends_with(".part"));
    while !begun() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
    assert!(kill.expect("sh runs").success());
    assert_eq!(child.wait_with_output().expect("it ends").status.code(), Some(130));
    assert_eq!(names(&place), ["demo.gguf", "ids"]);
}
