//! Exit codes and the lines on stderr that go with them.

mod common;

use common::{Place, text};

/// One `error:` line, and at most one `hint:` line.
fn check_lines(told: &str) {
    let lines: Vec<&str> = told.lines().collect();
    let errors = lines.iter().filter(|line| line.starts_with("error: ")).count();
    let hints = lines.iter().filter(|line| line.starts_with("hint: ")).count();
    assert!(errors == 1 && hints <= 1 && lines.len() == errors + hints, "{told}");
    assert!(lines.iter().all(|line| line.chars().count() <= 420), "{told}");
}

#[test]
fn a_missing_model_is_3() {
    let place = Place::new();
    for args in [
        &["run", "absent.gguf", "hi"][..],
        &["run", "hello there"],
        &["show", "absent.gguf"],
        &["bench", "-m", "absent.gguf"],
        &["tokenize", "-m", "absent.gguf", "hi"],
    ] {
        let (code, told) = place.fails(args);
        assert_eq!(code, 3, "{args:?}: {told}");
        check_lines(&told);
    }
}

#[test]
fn a_malformed_model_is_2() {
    let place = Place::new();
    let whole = place.read("demo.gguf");
    place.write("text.gguf", "<html>not here</html>");
    place.write("empty.gguf", "");
    place.write("header.gguf", &whole[..100]);
    place.write("half.gguf", &whole[..whole.len() / 2]);
    let mut renamed = whole.clone();
    let at = whole.windows(5).position(|w| w == b"qwen2").expect("the architecture is in the file");
    renamed[at..at + 5].copy_from_slice(b"q\x1b[2J");
    place.write("escape.gguf", renamed);
    for name in ["text.gguf", "empty.gguf", "header.gguf", "half.gguf", "escape.gguf"] {
        for command in [&["run", name, "hi"][..], &["complete", name, "hi"], &["bench", "-m", name]]
        {
            let (code, told) = place.fails(command);
            assert_eq!(code, 2, "{command:?}: {told}");
            assert!(!told.contains('\x1b'), "{told:?}");
            check_lines(&told);
        }
    }
    let (code, _) = place.fails(&["run", ".", "hi"]);
    assert_eq!(code, 2);
}

#[test]
fn what_does_not_fit_is_4_and_says_what_to_change() {
    let place = Place::new();
    let many = usize::MAX.to_string();
    let (code, _) = place.fails(&["logits", "-m", "demo.gguf", "--tokens", "1", "--greedy", &many]);
    assert_eq!(code, 4);
    let (code, told) = place.fails(&["run", "demo.gguf", "hi", "-c", "60000000000"]);
    assert!(code == 4 && told.contains("-c 2048: the model was made for no more"), "{told}");
    check_lines(
        &told.lines().filter(|line| !line.starts_with("warning")).collect::<Vec<_>>().join("\n"),
    );
}

#[test]
fn wrong_command_lines_are_2() {
    let place = Place::new();
    for args in [
        &["run", "demo.gguf", "hi", "--nonsense"][..],
        &["run", "demo.gguf", "hi", "-xyz"],
        &["run", "demo.gguf", "hi", "-hf", "org/repo"],
        &["run", "demo.gguf", "hi", "-ctk", "q3"],
        &["run", "demo.gguf", "hi", "-t", "0"],
        &["run", "demo.gguf", "hi", "--top-p", "7"],
        &["run", "demo.gguf", "hi", "-n", "-5"],
        &["run", "-m", "demo.gguf", "hi", "-p", "again"],
        &["run", "-m", "demo.gguf", "hi", "again"],
        &["complete", "demo.gguf"],
        &["logits", "-m", "demo.gguf", "--tokens", "1 2"],
        &["logits", "-m", "demo.gguf", "--tokens", "1 x", "--greedy", "1"],
        &["tokenize", "-m", "demo.gguf", "--decode", "99999"],
        &["tokenize", "demo.gguf", "--decode", "--bos", "1"],
        &["bench", "demo.gguf", "-p", "0", "-n", "0"],
        &["bench"],
        &["perplexity", "-f", "text.txt"],
        &["logits", "-m", "demo.gguf", "--tokens", "99999", "--greedy", "1"],
        &["run", "", "hi"],
        &["bench", "-m", "demo.gguf", "-p", "4-1-2"],
        &["bench", "-m", "demo.gguf", "-o", "xml"],
        &["bench", "-m", "demo.gguf", "-t", "0"],
        &["bench", "-m", "demo.gguf", "-t", "1,1000000"],
        &["completions", "no-shell"],
        &["man", "no-command"],
        &["frobnicate"],
        &[],
    ] {
        let (code, told) = place.fails(args);
        assert_eq!(code, 2, "{args:?}: {told}");
    }
}

#[test]
fn flags_without_effect_are_told() {
    let place = Place::new();
    let told = |extra: &[&str]| {
        let output = place.run(&[&["complete", "demo.gguf", "the", "-n", "2"], extra].concat());
        assert_eq!(output.status.code(), Some(0), "{extra:?}");
        text(&output.stderr)
    };
    assert!(told(&["-ngl", "99"]).contains("CPU only"));
    assert!(told(&["-fa", "off"]).contains("-fa"));
    assert!(told(&["-tb", "4"]).contains("-tb"));
    for silent in
        [&["-ngl", "0"][..], &["-fa", "on"], &["-fa=auto"], &["-ctk", "q8_0", "-ctv", "f32"]]
    {
        assert_eq!(told(silent), "", "{silent:?}");
    }
}

#[test]
fn help_has_examples_and_goes_to_stdout() {
    let place = Place::new();
    let all = place.ok(&["--help"]);
    assert!(all.contains("Examples:") && all.contains("ROOFLIGHT_CTX_SIZE"));
    let commands = all
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let help = place.ok(&[name, "--help"]);
        assert!(
            help.contains("Example") && help.contains(&format!("rooflight {name}")),
            "{name}: {help}"
        );
        assert!(!help.contains('\x1b'), "{name}");
    }
    assert!(place.ok(&["--version"]).starts_with("rooflight "));
}
