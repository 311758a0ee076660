//! `run` and `complete`: what goes to stdout, what to stderr, and how they end.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::common::{Place, text};

#[test]
fn one_answer_goes_to_stdout_and_nothing_else() {
    let place = Place::new();
    let output = place.run(&["run", "demo.gguf", "hello", "-n", "12", "--seed", "3", "--verbose"]);
    let (reply, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(reply.ends_with('\n') && reply.trim().len() > 3, "{reply:?}");
    for part in [
        "prompt ",
        " tokens, ",
        "first token ",
        " tok/s",
        "context ",
        " of 2048 tokens",
        "eval rate",
        "demo (random weights) ",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    assert!(!told.contains('\x1b') && !reply.contains('\x1b'), "escape sequences in a pipe");
    // Without -v and without a terminal, stderr stays empty.
    let quiet = place.run(&["run", "-m", "demo.gguf", "-p", "hello", "-n", "12", "-s", "3"]);
    assert_eq!((text(&quiet.stdout), text(&quiet.stderr)), (reply, String::new()));
}

#[test]
fn without_a_model_the_bundled_one_answers_sensibly_and_says_so() {
    let place = Place::new();
    for (prompt, answer) in [
        ("What color is the sky?", "blue"),
        ("My name is Tom. What is my name?", "Tom"),
        ("\u{4f60}\u{597d}", "\u{4f60}\u{597d}"),
    ] {
        let output = place.run(&["run", "-p", prompt, "--temp", "0"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let (reply, told) = (text(&output.stdout), text(&output.stderr));
        assert!(reply.contains(answer), "{prompt}: {reply}");
        assert!(told.contains("bundled demo model") && told.lines().count() == 1, "{told}");
        assert!(told.contains("at temperature 0, in at most 256 tokens"), "{told}");
    }
}

#[test]
fn reasoning_on_and_off_warn_once_where_the_template_has_no_switch() {
    let place = Place::new();
    let told = |model: &str, extra: &[&str]| {
        let output = place.run(&[&["run", model, "hello", "-n", "4"], extra].concat());
        assert_eq!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    for (value, parts) in [
        ("on", &["turned on", "has no switch"][..]),
        ("low", &["reasoning effort low", "no levels"]),
        ("700", &["reasoning budget of 700 tokens"]),
    ] {
        let warned = told("demo.gguf", &["--reasoning", value]);
        assert!(parts.iter().all(|part| warned.contains(part)), "{value}: {warned}");
        assert_eq!(warned.lines().count(), 1, "{warned}");
    }
    // this model has no thoughts that could be turned off
    for silent in ["auto", "off"] {
        assert_eq!(told("demo.gguf", &["--reasoning", silent]), "");
    }
    assert_eq!(told("demo.gguf", &["--reasoning-budget", "0"]), "");
    // The same template, with a word of the same length.
    let switch = format!("{:1$}", "enable_thinking", "add_generation_prompt".len());
    let bytes = place.read("demo.gguf");
    let at = bytes
        .windows(switch.len())
        .position(|bytes| bytes == b"add_generation_prompt")
        .expect("the template asks for it");
    let model = [&bytes[..at], switch.as_bytes(), &bytes[at + switch.len()..]].concat();
    place.write("switch.gguf", model);
    assert_eq!(told("switch.gguf", &["--reasoning", "off"]), "");
}

#[test]
fn a_recommendation_out_of_range_is_ignored_and_named() {
    let place = Place::new();
    let string = |text: &[u8]| [&(text.len() as u64).to_le_bytes()[..], text].concat();
    // Two pairs of metadata, a number and a text, in 64 bytes: the tensors stay aligned.
    let pairs = [
        string(b"general.sampling.top_p"),
        6_u32.to_le_bytes().to_vec(),
        7_f32.to_le_bytes().to_vec(),
        string(b"pad"),
        8_u32.to_le_bytes().to_vec(),
        string(b"abc"),
    ]
    .concat();
    assert_eq!(pairs.len(), 64);
    let mut model = place.read("demo.gguf");
    model[16] += 2;
    model.splice(24..24, pairs);
    place.write("odd.gguf", model);
    let ask = |model: &str| place.run(&["run", model, "hello", "-n", "6", "-s", "3"]);
    let (odd, plain) = (ask("odd.gguf"), ask("demo.gguf"));
    assert_eq!((odd.status.code(), text(&odd.stdout)), (Some(0), text(&plain.stdout)));
    let told = text(&odd.stderr);
    assert!(told.contains("general.sampling.top_p") && told.lines().count() == 1, "{told}");
}

#[test]
fn stdin_follows_the_prompt() {
    let place = Place::new();
    let mut piped = place.command(&["run", "demo.gguf", "Sum up:", "-s", "1", "-n", "8"]);
    let piped = piped.write_stdin("some text\n").output().expect("the binary starts");
    let whole = place.ok(&["run", "demo.gguf", "Sum up:\nsome text", "-s", "1", "-n", "8"]);
    assert_eq!(text(&piped.stdout), whole);
    let (code, told) = place.fails(&["run", "demo.gguf"]);
    assert!(code == 2 && told.contains("no prompt"), "{told}");
}

#[test]
fn the_same_seed_gives_the_same_text_for_any_threads_and_chunks() {
    let place = Place::new();
    let prompt = "the thing and the other thing, which is in the end of it";
    let base = ["complete", "demo.gguf", prompt, "-n", "24", "--seed", "7", "--temp", "1.2"];
    let run = |extra: &[&str]| place.ok(&[&base[..], extra].concat());
    let want = run(&[]);
    assert!(want.len() > 10, "{want:?}");
    for extra in [["-t", "1"], ["-t", "2"], ["-ub", "1"], ["-ub", "7"], ["--chunk", "3"]] {
        assert_eq!(run(&extra), want, "{extra:?}");
    }
    assert_ne!(run(&["--repeat-penalty", "1.5"]), want);
    assert_ne!(
        place.ok(&["complete", "demo.gguf", prompt, "-n", "24", "-s", "8", "--temp", "1.2"]),
        want
    );
}

#[test]
fn flags_come_from_the_environment_too() {
    let place = Place::new();
    let want = place.ok(&["complete", "demo.gguf", "the", "--temp", "0", "-n", "9"]);
    let mut command = place.command(&["complete", "the"]);
    command
        .env("ROOFLIGHT_MODEL", "demo.gguf")
        .env("ROOFLIGHT_TEMP", "0")
        .env("ROOFLIGHT_PREDICT", "9");
    assert_eq!(text(&command.output().unwrap().stdout), want);
    let mut command = place.command(&["complete", "demo.gguf", "the", "--temp", "0"]);
    command
        .env("ROOFLIGHT_MODEL", "absent.gguf")
        .env("ROOFLIGHT_TEMP", "5")
        .env("ROOFLIGHT_PREDICT", "9");
    assert_eq!(text(&command.output().unwrap().stdout), want, "arguments win");
    let mut command = place.command(&["complete", "demo.gguf", "the", "--temp", "0", "-n", "9"]);
    command.env("ROOFLIGHT_ISA", "scalar");
    assert_eq!(
        text(&command.output().unwrap().stdout),
        want,
        "every instruction set gives the same text"
    );
}

#[test]
fn stop_texts_and_lengths() {
    let place = Place::new();
    let greedy = |extra: &[&str]| {
        place.ok(&[
            &["complete", "demo.gguf", "the", "--temp", "0", "--ignore-eos", "-n", "16"],
            extra,
        ]
        .concat())
    };
    let whole = greedy(&[]);
    let stop: String = whole.trim_end().chars().skip(4).take(3).collect();
    let cut = greedy(&["-r", &stop]);
    assert!(
        whole.starts_with(cut.trim_end_matches('\n')) && !cut.contains(&stop),
        "{cut:?} {whole:?}"
    );
    assert_eq!(greedy(&["-r", "no such text", "-r", &stop]), cut, "every -r counts");
    assert_eq!(greedy(&["-r", "- no such text"]), whole, "a text may begin with a dash");
    assert_eq!(greedy(&["-n", "0"]), "", "the last -n counts");
}

#[test]
fn a_full_context_stops_the_reply_and_says_so() {
    let place = Place::new();
    let output = place.run(&["complete", "demo.gguf", "the", "-c", "16", "--ignore-eos"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).contains("the context of 16 tokens is full"),
        "{}",
        text(&output.stderr)
    );
    let (code, told) = place.fails(&["complete", "demo.gguf", &"word ".repeat(40), "-c", "16"]);
    assert!(
        code == 1 && told.contains("the context holds 16") && told.contains("-c gives"),
        "{told}"
    );
}

/// A reply that is cut off within its form is printed, and the command fails. A reply that matches its form succeeds at any `-n`.
#[test]
fn a_reply_cut_within_its_form_is_1_and_names_the_remedy() {
    let place = Place::new();
    for command in ["run", "complete"] {
        let base = [command, "demo.gguf", "the", "--temp", "0", "--json"];
        let long = ["--json-schema", r#"{"type":"string","minLength":200}"#, "-n", "6"];
        let output = place.run(&[&base[..], &long].concat());
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let reply: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(reply["reason"], "length", "{reply}");
        let told = "error: the reply is not whole: it ended before its form did; -n allows longer replies\n";
        assert!(stderr.ends_with(told), "{stderr}");
        let full = ["--json-schema", r#"{"type":"string","minLength":200}"#, "-c", "30"];
        let output = place.run(&[&base[..], &full].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("form did; -c gives it more context"), "{stderr}");
        // the longest text of the form takes all tokens of `-n`: it may end there
        let short = place.ok(&[&base[..], &["--regex", "a{3}", "-n", "3"]].concat());
        let short: serde_json::Value = serde_json::from_str(&short).unwrap();
        assert_eq!(short["text"], "aaa");
    }
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let place = Place::new();
    let mut child = start(&place, &["-n", "20000", "-c", "30000"]);
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0]).expect("a first byte comes");
    drop(stdout);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stderr);
    assert!(!told.contains("error") && !told.contains("panicked"), "{told}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_130_and_keeps_what_was_printed() {
    let place = Place::new();
    let mut child = start(&place, &["-n", "200000", "-c", "300000"]);
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0]).expect("a first byte comes");
    let kill = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
    assert!(kill.expect("sh runs").success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the reply is text");
    assert!(rest.ends_with('\n'));
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

/// A long completion, running.
fn start(place: &Place, extra: &[&str]) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_rooflight"))
        .args(["complete", "-m"])
        .arg(place.path("demo.gguf"))
        .args(["-p", "the", "--ignore-eos"])
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

#[test]
fn one_object_holds_the_reply_and_what_it_took() {
    let place = Place::new();
    for (command, prompt) in [("complete", "the thing"), ("run", "hello")] {
        let base = [command, "demo.gguf", prompt, "--temp", "0", "-n", "5", "--ignore-eos"];
        let plain = place.ok(&base);
        let out = place.ok(&[&base[..], &["--json"]].concat());
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(out.lines().count(), 1);
        assert_eq!(json["text"].as_str().unwrap().trim_end(), plain.trim_end(), "{command}");
        assert_eq!(
            (json["tokens"].as_array().unwrap().len(), &json["reason"]),
            (5, &"length".into())
        );
        let (usage, timings) = (&json["usage"], &json["timings"]);
        let number = |value: &serde_json::Value, key: &str| value[key].as_f64().unwrap();
        assert_eq!(number(usage, "completion_tokens"), 5.0);
        assert_eq!(number(usage, "total_tokens"), number(usage, "prompt_tokens") + 5.0);
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
        assert_eq!(timings["prompt_n"], usage["prompt_tokens"], "nothing was cached");
        assert_eq!((&timings["cache_n"], &timings["predicted_n"]), (&0.into(), &5.into()));
        for key in [
            "prompt_ms",
            "prompt_per_token_ms",
            "prompt_per_second",
            "predicted_ms",
            "predicted_per_token_ms",
            "predicted_per_second",
        ] {
            assert!(number(timings, key) > 0.0, "{key}: {timings}");
        }
        let decoded: Vec<String> =
            json["tokens"].as_array().unwrap().iter().map(ToString::to_string).collect();
        let text = place.ok(&["tokenize", "demo.gguf", "--decode", &decoded.join(" ")]);
        assert_eq!(json["text"].as_str().unwrap(), text);
    }
    let (code, told) = place.fails(&["run", "demo.gguf", "--json"]);
    assert!(code == 2 && told.contains("prompt"), "{told}");
}
