//! Exit codes and the lines on stderr that go with them.
#![allow(clippy::unwrap_used, reason = "tests")]

use program::{CacheOptions, CacheType};

use crate::common::{Place, text};

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

/// Before anything is computed, with the least that works; that much then works, and a byte less of what counts does not.
#[test]
fn a_bound_that_is_too_small_is_4_and_names_the_least_that_works() {
    let place = Place::new();
    let complete = ["complete", "demo.gguf", "the end", "--temp", "0", "-n", "4", "-c", "512"];
    for policy in [&[][..], &["--kv-policy", "infllm", "--kv-local", "64", "--kv-init", "0"]] {
        let plain = [&complete[..], policy].concat();
        let run = |size: &str| place.run(&[&plain[..], &["--kv-memory", size]].concat());
        let refused = run("1kB");
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{told}");
        check_lines(&told);
        let least = told.split_once("--kv-memory allows 1.00 kB").and_then(|(_, hint)| {
            hint.split_once("--kv-memory ")?.1.split_once(" is the least that works")
        });
        let (least, _) = least.unwrap_or_else(|| panic!("{told}"));
        let within = text(&run(least).stdout);
        assert_eq!(within, place.ok(&plain), "the same text within {least}");
        let number: u64 = least.trim_end_matches(char::is_alphabetic).parse().unwrap();
        let less = format!("{}{}", number - 1, least.trim_start_matches(char::is_numeric));
        assert_eq!(run(&less).status.code(), Some(4), "{less}");
    }
    for bad in ["2", "-1G", "much"] {
        let (code, told) = place.fails(&[&complete[..], &["--kv-memory", bad]].concat());
        assert_eq!(code, 2, "{told}");
    }
    let interpreted = ["--executor", "interpreter", "--kv-memory", "1G"];
    assert_eq!(place.fails(&[&complete[..], &interpreted].concat()).0, 2);
    let plan = ["plan", "qwen2.5-0.5b", "--device", "4090", "-c", "1m", "--kv-policy", "infllm"];
    let planned = place.run(&[&plan[..], &["--kv-memory", "2G"]].concat());
    let told = text(&planned.stderr);
    assert!(told.contains("is the least that works, -c "), "{told}");
    assert_eq!(planned.status.code(), Some(1));
}

/// States run with the least that is named, which is less than all that is kept to go back; a folder changes nothing, also
/// not the least, and it is said so.
#[test]
fn states_work_with_the_least_and_a_folder_has_no_effect() {
    let place = Place::new();
    let file = conformance::golden::model("mamba2");
    let gguf = gguf::Gguf::from_bytes(file.clone()).unwrap();
    let program = models::load(&gguf).unwrap().program;
    let all = program.cache_bytes(1, &CacheOptions::new(CacheType::F16, CacheType::F16, 1));
    place.write("mamba2.gguf", file);
    let ids: Vec<String> = (0..1500).map(|i| (i * 7 % 500).to_string()).collect();
    let ids = ids.join(" ");
    let plain = ["logits", "mamba2.gguf", "--tokens", &ids, "--greedy", "40", "--chunk", "100"];
    let want = place.ok(&plain);
    let mut named = Vec::new();
    for folder in [&[][..], &["--kv-disk", "d"]] {
        let with = |size| [&plain[..], &["--kv-memory", size], folder].concat();
        let (code, told) = place.fails(&with("1kB"));
        let least = told.split_once("--kv-memory allows 1.00 kB").and_then(|(_, hint)| {
            hint.split_once("--kv-memory ")?.1.split_once(" is the least that works")
        });
        let (least, rest) = least.unwrap_or_else(|| panic!("{told}"));
        assert!(code == 4 && rest.trim().is_empty(), "nothing else would help: {told}");
        let (number, unit) = least.split_at(least.find(char::is_alphabetic).unwrap());
        let unit = if unit == "kB" { 1000 } else { 1 };
        let bytes = number.parse::<u64>().unwrap() * unit;
        assert!(bytes < all, "{least} of {all}");
        let output = place.run(&with(least));
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(stdout, want, "within {least}: {stderr}");
        assert_eq!(stderr.contains("--kv-disk has no effect"), !folder.is_empty(), "{stderr}");
        named.push(least.to_owned());
    }
    assert_eq!(named[0], named[1]);
}

/// With a disk the least is less; the text is the same, the counts are told, and nothing is left in the folder.
#[test]
fn what_has_no_room_in_memory_goes_to_disk() {
    let place = Place::new();
    place.write("long.txt", "the end of it is the end ".repeat(250));
    let plain = [
        &[
            "complete",
            "demo.gguf",
            "-f",
            "long.txt",
            "--temp",
            "0",
            "-n",
            "4",
            "-c",
            "4k",
            "--json",
        ][..],
        &["--kv-policy", "infllm", "--kv-local", "64", "--kv-init", "0", "--kv-blocks", "2"],
        &["--kv-block", "64", "--chunk", "64", "-t", "1"],
    ]
    .concat();
    let want: serde_json::Value = serde_json::from_str(&place.ok(&plain)).unwrap();
    assert!(want["usage"]["prompt_tokens"].as_u64() > Some(1000) && want.get("kv_disk").is_none());
    let (_, told) = place.fails(&[&plain[..], &["--kv-memory", "1kB", "--kv-disk", "d"]].concat());
    let least = told.split_once("hint: --kv-memory ").and_then(|(_, rest)| rest.split_once(" is"));
    let (least, _) = least.unwrap_or_else(|| panic!("{told}"));
    let bounded = [&plain[..], &["--kv-memory", least, "--kv-disk", "d", "-v"]].concat();
    let output = place.run(&bounded);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let found: serde_json::Value = serde_json::from_str(&stdout).expect(&stderr);
    assert_eq!(found["text"], want["text"]);
    assert_eq!(found["kv_missed"], want["kv_missed"]);
    assert!(want["kv_missed"]["readings"].as_u64() > Some(10), "{want}");
    assert!(stderr.contains("of attention, "), "{stderr}");
    for count in ["written", "written_bytes", "in_memory", "memory_bytes"] {
        assert!(found["kv_disk"][count].as_u64() > Some(0), "{count}: {stdout}");
    }
    assert!(stderr.contains("blocks written, ") && stderr.contains("the rest in d"), "{stderr}");
    let left = std::fs::read_dir(place.path("d")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name != ".rooflight-lock").collect();
    assert!(left.is_empty(), "{left:?}");
    let (code, told) = place.fails(&[&plain[..], &["--kv-disk", "d"]].concat());
    assert!(code == 2 && told.contains("--kv-memory"), "{told}");
    let nowhere = ["--kv-memory", "1G", "--kv-disk", "/proc/nowhere"];
    let (code, told) = place.fails(&[&plain[..], &nowhere].concat());
    assert!(code == 1 && told.contains("/proc/nowhere"), "{told}");
}

#[test]
fn a_bench_tells_what_came_from_disk() {
    let place = Place::new();
    let plain = [
        &["bench", "demo.gguf", "-p", "0", "-n", "8", "-d", "4096", "-r", "2", "-t", "1"][..],
        &["--kv-policy", "infllm", "--kv-local", "64", "--kv-init", "0", "--kv-blocks", "2"],
    ]
    .concat();
    let without = place.ok(&[&plain[..], &["-o", "json"]].concat());
    assert!(!without.contains("kv_disk"), "{without}");
    let (_, told) = place.fails(&[&plain[..], &["--kv-memory", "1kB", "--kv-disk", "d"]].concat());
    let least = told.split_once("hint: --kv-memory ").and_then(|(_, rest)| rest.split_once(" is"));
    let (least, _) = least.unwrap_or_else(|| panic!("{told}"));
    let bounded = [&plain[..], &["--kv-memory", least, "--kv-disk", "d"]].concat();
    let table = place.ok(&bounded);
    assert!(table.contains("tg8 @ d4096: ") && table.contains(" a token from disk, "), "{table}");
    let rows = place.ok(&[&bounded[..], &["-o", "json"]].concat());
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    // filling the context wrote; what is timed reads
    assert!(rows[0]["kv_disk"]["loaded_bytes"].as_u64() > Some(0), "{rows}");
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
        &["run", "demo.gguf", "hi", "--kv-policy", "quest", "--kv-eps", "7"],
        &["run", "demo.gguf", "hi", "--kv-policy=quest", "--kv-eps=0.1", "--kv-anchor=mean"],
        &["run", "demo.gguf", "hi", "-n", "-5"],
        &["run", "-m", "demo.gguf", "hi", "-p", "again"],
        &["run", "-m", "demo.gguf", "hi", "again"],
        &["complete", "demo.gguf"],
        &["logits", "-m", "demo.gguf", "--tokens", "1 2"],
        &["logits", "-m", "demo.gguf", "--tokens", "1 x", "--greedy", "1"],
        &["tokenize", "-m", "demo.gguf", "--decode", "99999"],
        &["tokenize", "demo.gguf", "--decode", "--bos", "1"],
        &["template", "-f", "text.txt"],
        &["template", "--template", "text.txt", "-f", "text.txt", "--tokens"],
        &["template", "demo.gguf", "--now", "soon"],
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
    assert!(all.contains("Usage: ") && all.contains("ROOFLIGHT_CTX_SIZE"));
    let commands = all.lines().filter(|line| line.starts_with("  "));
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

#[test]
fn hints_are_about_the_command_typed() {
    let place = Place::new();
    place.write("a.txt", "no json\n");
    for (args, code, wanted) in [
        (&["show", "absent.gguf"][..], 3, "rooflight show MODEL.gguf"),
        (&["bench", "absent.gguf"], 3, "rooflight bench MODEL.gguf"),
        (&["run", "llama3:8b", "hi"], 3, "pull --names"),
        (&["show", "demo.gguf", "--nonsense"], 2, "see rooflight show --help"),
        (&["logits", "demo.gguf", "--tokens", "1 2"], 2, "see rooflight logits --help"),
        (&["run", "demo.gguf", "hi", "--lora", "x"], 2, "--lora is not supported"),
        (&["run", "demo.gguf", "hi", "--json-schema", "{"], 2, "JSON schema: EOF"),
        (
            &["run", "demo.gguf", "hi", "--json-schema", r##"{"$ref":"#"}"##],
            2,
            "nothing satisfies it",
        ),
        (&["complete", "demo.gguf", "hi", "--regex", "a{20000}"], 2, "repetitions: at most 10000"),
        (
            &["complete", "demo.gguf", "hi", "--grammar", "root ::= b"],
            2,
            "names `b`, which is not there",
        ),
        (&["complete", "demo.gguf", "hi", "--json-schema", "absent.json"], 1, "absent.json"),
        (
            &["complete", "demo.gguf", "hi", "--regex", "a", "--ignore-eos"],
            2,
            "cannot be used with",
        ),
        (&["complete", "demo.gguf", "hi", "--logprobs", "3"], 2, "--json"),
        (&["complete", "demo.gguf", "hi", "--samplers", "top_q"], 2, "found top_q"),
        (&["pull", "qwen"], 2, "names no model"),
        (&["quantize", "a", "b"], 2, "llama-quantize"),
        (&["demo.gguf"], 2, "rooflight run demo.gguf"),
        (&["-m", "x", "-p", "y"], 2, "the command comes first"),
        (&["recall", "-f", "a.txt"], 2, "expected a JSON object"),
    ] {
        let (found, told) = place.fails(args);
        assert!(found == code && told.contains(wanted), "{args:?}: {found} {told}");
        assert!(!told.contains("as a value") && !told.contains("COMMAND"), "{args:?}: {told}");
        check_lines(&told);
    }
    let (_, told) = place.fails(&["show", "/dev/null"]);
    assert!(told.matches("/dev/null").count() == 1 && !told.contains("or write"), "{told}");
    assert_eq!(place.ok(&["help", "run"]), place.ok(&["run", "--help"]));
    assert_eq!(place.ok(&["help"]), place.ok(&["--help"]));
}

#[test]
fn flags_of_other_programs_do_what_they_say() {
    let place = Place::new();
    let base = ["complete", "demo.gguf", "the", "--temp", "0"];
    let want = place.ok(&[&base[..], &["-n", "4"]].concat());
    for (args, told) in [
        (&["--max-tokens", "4"][..], ""),
        (&["--num-predict=4", "--num-ctx", "1k"], ""),
        (&["-n", "4", "--no-mmap", "--numa", "isolate"], "--numa has no effect"),
        (&["-n", "4", "--jinja", "-st", "-kvu"], "-kvu has no effect"),
    ] {
        let output = place.run(&[&base[..], args].concat());
        assert_eq!(text(&output.stdout), want, "{args:?}");
        assert!(text(&output.stderr).contains(told), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr).is_empty(), told.is_empty(), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_stdout_is_named() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_rooflight"))
        .args(["show", "demo.gguf"])
        .current_dir(place.path("."))
        .stdout(full)
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("writing stdout: "), "{told}");
}

#[test]
fn a_text_longer_than_the_model_was_made_for_is_to_be_shortened() {
    let place = Place::new();
    let long = "word ".repeat(3000);
    place.write("long.txt", &long);
    for command in ["run", "complete"] {
        let (code, told) = place.fails(&[command, "demo.gguf", "-f", "long.txt"]);
        assert!(code == 1 && told.contains("made for 2048 tokens"), "{told}");
        assert!(!told.contains("-c gives"), "{told}");
    }
}
