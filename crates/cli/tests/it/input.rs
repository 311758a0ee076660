//! What users type and pipe: paths, numbers, texts.

use crate::common::{Place, text};

#[test]
fn the_model_comes_first_or_by_flag_in_every_command() {
    let place = Place::new();
    place.write("text.txt", "the thing in the end is what it is and not another thing ".repeat(3));
    place.write(
        "items.jsonl",
        r#"{"kind":"k","messages":[{"role":"user","content":"hi"}],"answer":"a"}"#,
    );
    for args in [
        &["complete", "the", "-n", "3", "--temp", "0"][..],
        &["tokenize", "the thing"],
        &["show"],
        &["logits", "--tokens", "1 2", "--greedy", "3"],
        &["perplexity", "-f", "text.txt", "-c", "16"],
        &["recall", "-f", "items.jsonl", "-n", "2"],
    ] {
        let (command, rest) = args.split_first().unwrap();
        // times differ
        let shown = |out: String| out.split(" tokens scored").next().map(str::to_owned);
        let first = shown(place.ok(&[&[*command, "demo.gguf"], rest].concat()));
        let flag = shown(place.ok(&[&[*command, "-m", "demo.gguf"], rest].concat()));
        assert_eq!(flag, first, "{args:?}");
        let mut command = place.command(args);
        let output = command.env("ROOFLIGHT_MODEL", "demo.gguf").output().unwrap();
        assert_eq!(shown(text(&output.stdout)), first, "{args:?} {}", text(&output.stderr));
    }
}

#[test]
fn bench_measures_every_model_it_is_given() {
    let place = Place::new();
    place.write("b.gguf", place.read("demo.gguf"));
    let rows = |args: &[&str]| {
        let base = [
            "bench",
            "-p",
            "2",
            "-n",
            "0",
            "-r",
            "1",
            "-t",
            "1",
            "-o",
            "json",
            "--executor",
            "interpreter",
        ];
        let rows: serde_json::Value =
            serde_json::from_str(&place.ok(&[&base[..], args].concat())).unwrap();
        let names = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["model_filename"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(rows(&["-m", "demo.gguf", "-m", "b.gguf"]), ["demo.gguf", "b.gguf"]);
    assert_eq!(rows(&["demo.gguf", "b.gguf"]), ["demo.gguf", "b.gguf"]);
    let (code, _) = place.fails(&["bench", "demo.gguf", "absent.gguf"]);
    assert_eq!(code, 3, "before anything is measured");
}

#[cfg(target_os = "linux")]
#[test]
fn paths_are_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new();
    let name = OsStr::from_bytes(b"m\xff.gguf");
    std::fs::copy(place.path("demo.gguf"), place.path(".").join(name)).unwrap();
    let text_name = OsStr::from_bytes(b"t\xff.txt");
    std::fs::write(place.path(".").join(text_name), "the thing ".repeat(30)).unwrap();
    for (command, rest) in [
        ("run", vec![OsStr::new("hi"), OsStr::new("-n"), OsStr::new("2")]),
        ("complete", vec![OsStr::new("hi"), OsStr::new("-n"), OsStr::new("2")]),
        ("show", vec![]),
        ("tokenize", vec![OsStr::new("hi")]),
        ("perplexity", vec![OsStr::new("-c"), OsStr::new("16"), OsStr::new("-f"), text_name]),
        ("plan", vec![OsStr::new("--device"), OsStr::new("4090")]),
    ] {
        let mut first = place.command(&[command]);
        let output = first.arg(name).args(&rest).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}: {}", text(&output.stderr));
        let mut flag = place.command(&[command, "-m"]);
        let output = flag.arg(name).args(&rest).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command} -m: {}", text(&output.stderr));
    }
}

#[test]
fn counts_are_read_alike_everywhere() {
    let place = Place::new();
    let told = |args: &[&str]| {
        let output =
            place.run(&[&["complete", "demo.gguf", "the", "-n", "1", "-v"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(told(&["-c", "1k"]).contains(" of 1024 tokens"));
    assert!(told(&["-c", "0"]).contains(" of 2048 tokens"));
    assert!(!told(&["-t", "-1"]).contains("warning"), "llama.cpp's default");
    let more = std::thread::available_parallelism().unwrap().get() + 1;
    assert!(told(&["-t", &more.to_string()]).contains("may use"), "more threads than cores");
    assert!(
        place
            .ok(&["plan", "qwen2.5-7b", "--device", "4090", "-c", "0", "--json"])
            .contains("32768")
    );
    for (args, wanted) in [
        (&["run", "demo.gguf", "hi", "-c", "-1"][..], "32k"),
        (&["run", "demo.gguf", "hi", "-c", "4x"], "32k"),
        (&["run", "demo.gguf", "hi", "-t", "-2"], "from 1 to 1024"),
        (&["run", "demo.gguf", "hi", "-n", "-5"], "-1 for no limit"),
        (&["plan", "qwen2.5-7b", "-c", "-1"], "16m"),
        (
            &["logits", "demo.gguf", "--tokens", "-1", "--greedy", "1"],
            "expected token ids, found `-1`",
        ),
        (&["bench", "demo.gguf", "-r", "0"], "from 1"),
        (&["perplexity", "demo.gguf", "-f", "x", "-c", "0"], "from 1"),
    ] {
        let (code, told) = place.fails(args);
        assert!(code == 2 && told.contains(wanted), "{args:?}: {told}");
        assert!(
            !told.contains("as a value") && !told.contains("invalid digit"),
            "{args:?}: {told}"
        );
    }
}

#[test]
fn a_dash_is_stdin_and_a_byte_order_mark_is_no_text() {
    let place = Place::new();
    let want = place.ok(&["tokenize", "demo.gguf", "the thing"]);
    place.write("mark.txt", "\u{feff}the thing");
    assert_eq!(place.ok(&["tokenize", "demo.gguf", "-f", "mark.txt"]), want);
    for args in [
        &["tokenize", "demo.gguf"][..],
        &["tokenize", "demo.gguf", "-"],
        &["tokenize", "demo.gguf", "-f", "-"],
    ] {
        let mut command = place.command(args);
        let output = command.write_stdin("\u{feff}the thing").output().unwrap();
        assert_eq!(text(&output.stdout), want, "{args:?}");
    }
    let greedy = ["-n", "4", "--temp", "0"];
    let want = place.ok(&[&["run", "demo.gguf", "the thing"][..], &greedy].concat());
    for args in [
        &["run", "demo.gguf", "-"][..],
        &["run", "demo.gguf", "-f", "-"],
        &["run", "demo.gguf", "-p", "-"],
    ] {
        let mut command = place.command(&[args, &greedy].concat());
        let output = command.write_stdin("the thing").output().unwrap();
        assert_eq!(text(&output.stdout), want, "{args:?}");
    }
}

/// `-` means stdin for texts; no command reads a model from stdin.
#[test]
fn a_dash_names_no_model() {
    let place = Place::new();
    place.write("requests.jsonl", "{}\n");
    for args in [
        &["run", "-"][..],
        &["run", "-", "hi"],
        &["run", "-m", "-", "hi"],
        &["run", "demo.gguf", "hi", "-md", "-"],
        &["serve", "-", "--port", "0"],
        &["serve", "-m", "-", "--port", "0"],
        &["complete", "-", "hi"],
        &["embed", "-m", "-", "hi"],
        &["show", "-"],
        &["plan", "-"],
        &["bench", "-"],
        &["batch", "requests.jsonl", "-m", "-", "-o", "out.jsonl"],
        &["tokenize", "-", "hi"],
        &["template", "-", "-f", "x"],
        &["logits", "-", "--tokens", "1", "--greedy", "1"],
        &["trace", "-", "--tokens", "1"],
        &["perplexity", "-", "-f", "x"],
        &["recall", "-"],
        &["verify", "-"],
    ] {
        let (code, told) = place.fails(args);
        assert!(code == 2 && told.contains("cannot be read from stdin (-)"), "{args:?}: {told}");
    }
}

#[test]
fn texts_that_are_no_utf8_say_where() {
    let place = Place::new();
    place.write("latin1.txt", b"one\ncaf\xe9\n");
    place.write("utf16.txt", b"\xff\xfeh\0i\0");
    for (name, wanted) in [("latin1.txt", "latin1.txt: line 2, byte 4"), ("utf16.txt", "UTF-16")] {
        for command in [
            &["run", "demo.gguf"][..],
            &["perplexity", "demo.gguf"],
            &["tokenize", "demo.gguf"],
            &["recall"],
        ] {
            let (code, told) = place.fails(&[command, &["-f", name]].concat());
            assert!(code == 2 && told.contains(wanted), "{command:?}: {told}");
        }
    }
    let mut command = place.command(&["run", "demo.gguf", "Explain:"]);
    let output = command.write_stdin(&b"a\xe9"[..]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("stdin: line 1, byte 2"), "{}", text(&output.stderr));
}

#[test]
fn an_empty_prompt_is_one_error_however_it_comes() {
    let place = Place::new();
    place.write("empty.txt", " \n");
    for command in ["run", "complete"] {
        for prompt in [&[""][..], &["-p", ""], &["-f", "empty.txt"], &["   "], &["-"]] {
            let (code, told) = place.fails(&[&[command, "demo.gguf"], prompt].concat());
            assert!(
                code == 2 && told.contains("the prompt is empty"),
                "{command} {prompt:?}: {told}"
            );
        }
    }
}

#[test]
fn options_that_mean_nothing_for_a_model_say_so() {
    let place = Place::new();
    let told = |args: &[&str]| {
        let output = place.run(&[&["complete", "demo.gguf", "the", "-n", "1"], args].concat());
        text(&output.stderr)
    };
    assert!(told(&["--mla", "elided"]).contains("--mla has no effect"));
    assert_eq!(told(&["-ctv", "f32"]), "");
    let planned = |args: &[&str]| {
        text(&place.run(&[&["plan", "qwen2.5-7b", "--device", "4090"], args].concat()).stderr)
    };
    assert!(planned(&["--isa", "scalar"]).contains("--isa has no effect"));
    for command in [&["plan", "qwen2.5-7b", "--device", "4090"][..], &["run", "demo.gguf", "hi"]] {
        let mut command = place.command(command);
        let output = command.env("ROOFLIGHT_ISA", "avx9000").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("scalar, avx2"), "{}", text(&output.stderr));
    }
    // a cache that is asked for is kept, whatever the goals
    let goals = [
        "plan",
        "qwen2.5-7b",
        "--device",
        "4090",
        "--type",
        "Q8_0",
        "-c",
        "32k",
        "--tps",
        "1",
        "--json",
    ];
    let cache = |args: &[&str]| {
        let json: serde_json::Value =
            serde_json::from_str(&place.ok(&[&goals[..], args].concat())).unwrap();
        json["cache"].clone()
    };
    let compared = |args: &[&str]| cache(args)["types"].as_array().unwrap().len();
    assert_eq!((compared(&["-ctk", "f16"]), compared(&[])), (1, 2));
}
