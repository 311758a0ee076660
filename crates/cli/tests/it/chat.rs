//! Conversations at a terminal, as they are typed.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use conformance::golden;

use crate::common::Place;
use crate::machine;
use crate::pty::{PROMPT, Pty};

/// Where the machine need not be measured.
pub(crate) fn place() -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path(".cache/rooflight")).expect("a folder can be made");
    place.write(".cache/rooflight/machine.json", machine::measured(&place.read("demo.gguf")));
    place
}

/// A conversation whose replies have so many tokens.
fn chat(place: &Place, tokens: &str, more: &[&str]) -> Pty {
    chat_with(place, tokens, more, &[])
}

/// Starts a conversation whose replies have this number of tokens, with these environment variables.
pub(crate) fn chat_with(
    place: &Place,
    tokens: &str,
    more: &[&str],
    variables: &[(&str, &str)],
) -> Pty {
    let base = ["run", "demo.gguf", "-t", "1", "-s", "1", "--ignore-eos", "-n", tokens];
    let mut pty = Pty::start_with(place, &[&base[..], more].concat(), 80, variables);
    pty.wait_for(PROMPT);
    pty
}

/// What the user said, as `/save` writes it.
pub(crate) fn said(place: &Place, pty: &mut Pty) -> Vec<String> {
    pty.line("/save said.json");
    let messages: serde_json::Value =
        serde_json::from_slice(&place.read("said.json")).expect("JSON");
    let messages = messages.as_array().expect("an array").iter();
    let of_user = messages.filter(|m| m["role"] == "user");
    of_user.map(|m| m["content"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn what_is_typed_during_a_reply_is_kept_and_not_shown_in_it() {
    let place = place();
    let mut pty = chat(&place, "1500", &["-c", "8192"]);
    pty.send("hello\r");
    pty.wait_for("\n");
    // the reply runs: its first bytes are there
    pty.wait_for(" ");
    pty.send("one\rtwo words\r\x1b[200~pasted\nlines\x1b[201~");
    let reply = pty.wait_for(PROMPT);
    assert!(!reply.contains("two words") && !reply.contains("pasted"), "{reply}");
    pty.wait_for("two words");
    pty.wait_for("lines");
    pty.line("");
    assert_eq!(said(&place, &mut pty), ["hello", "one", "two words", "pasted\nlines"]);
    pty.send("/bye\r");
    assert_eq!(pty.end(), Some(0));
    assert!(pty.echoes());
}

#[test]
fn new_lines_within_a_message() {
    let place = place();
    let mut pty = chat(&place, "2", &[]);
    for keys in [
        "alt\x1b\renter",
        "ctrl\nj",
        "back\\\rslash",
        "\"\"\"quoted\rtext\"\"\"",
        // the input ends within quotes: what was typed is a message
        "\"\"\"not\rlost\r\x04",
    ] {
        pty.send(keys);
        if !keys.ends_with('\x04') {
            pty.send("\r");
        }
        pty.wait_for("context ");
        pty.wait_for(PROMPT);
    }
    let want = ["alt\nenter", "ctrl\nj", "back\nslash", "quoted\ntext", "not\nlost"];
    assert_eq!(said(&place, &mut pty), want);
    pty.send("\x04");
    assert_eq!(pty.end(), Some(0));
}

#[test]
fn commands_are_completed_confirmed_and_messages_may_look_like_them() {
    let place = place();
    let mut pty = chat(&place, "2", &[]);
    let info = pty.line("/sho\tinf\t");
    for part in ["0 of 2048 tokens", "hidden size", "gpt2, pre qwen2", "cache per token"] {
        assert!(info.contains(part), "as much as `rooflight show` tells, {part}: {info}");
    }
    for (line, told) in [
        ("/set parameter temperature 0.5", "temperature 0.5"),
        ("/set parameter num_ctx 4k", "num_ctx 4096, beyond the 2048"),
        ("/set temp", "it is 0.5"),
        ("/set parameter temperature", "/set parameter temperature and"),
        ("/set context-full drop-oldest", "drop-oldest"),
        ("/set verbose off", "stats on"),
        ("/set stop \"User:\" \"\\n\"", "2 stop texts"),
        ("/set parameter stop -", "no stop text"),
        ("/set markdown off", "markdown off"),
        ("/undo", "no message to take back"),
        ("/model", "demo (random weights)"),
        ("/set nohistory", "history off"),
        ("/set think on", "cannot be turned on"),
        ("/system Be brief.", "is set"),
        ("/load absent.json", "absent.json"),
        ("/read absent.txt", "absent.txt"),
        ("/nonsense", "there is no command /nonsense"),
    ] {
        let shown = pty.line(line);
        assert!(shown.contains(told), "{line}: {shown}");
    }
    let parameters = pty.line("/show parameters");
    for line in [
        "temperature        0.5",
        "num_ctx            4096",
        "context-full       drop-oldest",
        "history            off",
        "markdown           off",
    ] {
        assert!(parameters.contains(line), "{line}: {parameters}");
    }
    pty.line("/etc/passwd is what?");
    place.write("notes.txt", "a note\n");
    assert!(pty.line("/read notes.txt").contains("notes.txt, 6 B, goes before"));
    pty.line("//regen is a word");
    assert_eq!(said(&place, &mut pty), ["/etc/passwd is what?", "a note\n\n/regen is a word"]);
    assert!(pty.line("/save said.json").contains("5 messages"), "its own file is written again");
    place.write("theirs.json", "[]");
    assert!(pty.line("/save theirs.json").contains("/save! replaces it"));
    pty.line("/clear");
    assert!(pty.line("/load said.json").contains("5 messages"));
    assert_eq!(plain(&pty.line("/system")).lines().next().map(str::trim), Some("Be brief."));
    pty.send("exit\r");
    assert_eq!(pty.end(), Some(0));
}

/// Returns the text without escape sequences.
fn plain(shown: &str) -> String {
    let mut rest = shown.chars();
    let mut plain = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => drop(rest.by_ref().find(char::is_ascii_alphabetic)),
            c => plain.push(c),
        }
    }
    plain
}

#[test]
fn words_and_one_line_of_statistics_fit_the_terminal() {
    let place = place();
    for columns in [40, 60, 80] {
        let args = ["run", "demo.gguf", "-t", "1", "-s", "1", "--ignore-eos", "-n", "400"];
        let mut pty = Pty::start(&place, &args, columns);
        let header = plain(&pty.wait_for(PROMPT));
        let words = header.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("demo (random weights) ") && words.contains("F32, "), "{header}");
        assert!(words.contains("context 2048, CPU with 1 thread, "), "{header}");
        pty.send("hello\r");
        pty.wait_for("\r\n");
        let reply = plain(&pty.wait_for(PROMPT));
        assert!(reply.starts_with("\r\n"), "an empty line before the reply: {reply:?}");
        // a progress bar overwrites its own line
        let header = header.split("\r\n").map(|line| line.rsplit('\r').next().unwrap_or(line));
        for line in header.chain(reply.split("\r\n")) {
            assert!(line.trim_end().chars().count() <= usize::from(columns), "{line:?}");
        }
        let statistics: Vec<&str> =
            reply.lines().filter(|line| line.contains("context ")).collect();
        assert_eq!(statistics.len(), 1, "{reply}");
        assert!(statistics[0].trim_end().ends_with("of 2048, stopped at -n"), "{reply}");
        assert!(!reply.contains("first token"), "{reply}");
        let told = pty.line("/stats");
        for part in ["first token ", "reply ", "ended ", "eval rate:"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

#[test]
fn statistics_and_notes_can_be_turned_off() {
    let place = place();
    let mut pty = Pty::start(&place, &["run", "demo.gguf", "-t", "1", "-n", "12", "-q"], 80);
    let header = pty.wait_for(PROMPT);
    let mut shown = plain(&header) + &plain(&pty.line("hello"));
    assert!(pty.line("/stats").contains("first token"), "they are there for who asks");
    drop(pty);
    let mut pty = chat(&place, "12", &[]);
    let with = plain(&pty.line("hello"));
    assert!(with.contains("of 2048, stopped at -n"), "{with}");
    pty.line("/set stats off");
    shown += &plain(&pty.line("hello"));
    for part in ["random", "/help", "context", "tok/s", "limit"] {
        assert!(!shown.contains(part), "{part}: {shown}");
    }
    // where stdout is a pipe, nothing but the reply is printed
    let line = format!("{} run demo.gguf hello -t 1 -n 12 | cat", env!("CARGO_BIN_EXE_rooflight"));
    let mut pty = Pty::start_program(&place, &["sh", "-c", &format!("{line}; echo end")], 80, &[]);
    let shown = plain(&pty.wait_for("end"));
    for part in ["random", "context", "tok/s", "limit"] {
        assert!(!shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_context_that_fills_up_is_told_before_and_the_ways_out_are_named() {
    let place = place();
    let mut pty = chat(&place, "2", &["-c", "300"]);
    let mut shown = pty.line("hello");
    // a turn takes less than a tenth
    for _ in 0..20 {
        shown += &pty.line("and then?");
    }
    let warned = shown.find("of 300 tokens of context are left").expect("a warning");
    let full = shown.find("the context is full").or(shown.find("tokens is full"));
    assert!(full.is_some_and(|full| warned < full), "{shown}");
    assert_eq!(shown.matches("of context are left").count(), 1, "said once: {shown}");
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for way in ["/set context-full drop-oldest", "/set parameter num_ctx", "/save FILE", "/clear"] {
        assert!(shown.contains(way), "{way}: {shown}");
    }
    pty.line("/set context-full drop-oldest");
    let shown = pty.line("and now?");
    assert!(shown.contains("messages are forgotten") && shown.contains("context "), "{shown}");
}

#[test]
fn ctrl_c_stops_the_reply_and_leaves_the_terminal_as_it_was() {
    let place = place();
    let mut pty = chat(&place, "100000", &["-c", "120000"]);
    pty.send("hello\r");
    pty.wait_for("\n");
    pty.wait_for(" ");
    assert!(!pty.echoes());
    pty.send("kept\x03");
    pty.wait_for("interrupted");
    pty.wait_for("kept");
    pty.send("\x15\x03");
    pty.wait_for("leaves");
    pty.wait_for(PROMPT);
    pty.send("\x03");
    assert_eq!(pty.end(), Some(130));
    assert!(pty.echoes());
}

#[test]
fn lines_typed_before_ctrl_c_are_in_the_prompt_and_not_sent() {
    let place = place();
    let mut pty = chat(&place, "100000", &["-c", "120000"]);
    pty.send("hello\r");
    pty.wait_for("\n");
    pty.wait_for(" ");
    pty.send("not\rsent\r\x03");
    pty.wait_for("interrupted");
    pty.wait_for("sent");
    // no reply is running: Ctrl-C applies to the prompt
    pty.send("\x03");
    pty.wait_for("leaves");
    pty.wait_for(PROMPT);
    assert_eq!(said(&place, &mut pty), ["hello"]);
}

#[test]
fn a_conversation_is_resumed_and_only_what_was_said_is_stored() {
    let place = place();
    let chats = || {
        let Ok(folder) = std::fs::read_dir(place.path(".local/state/rooflight/chats")) else {
            return Vec::new();
        };
        let mut chats: Vec<_> = folder.map(|entry| entry.expect("readable").path()).collect();
        chats.sort();
        chats
    };
    let (code, told) = place.fails(&["run", "-C", "-p", "hello"]);
    assert!(code == 2 && told.contains("no stored conversation"), "{told}");
    let mut pty = chat(&place, "4", &["--no-chats"]);
    pty.line("secret");
    drop(pty);
    let mut pty = chat(&place, "4", &[]);
    pty.line("/system Be brief.");
    assert!(chats().is_empty(), "{:?}", chats());
    pty.line("hello");
    pty.line("and this");
    pty.line("/undo");
    pty.send("/bye\r");
    assert_eq!(pty.end(), Some(0));
    assert_eq!(chats().len(), 1);
    // the stored conversation names the model
    let mut pty = Pty::start(&place, &["run", "--continue", "-t", "1", "-n", "4"], 80);
    let header = plain(&pty.wait_for(PROMPT));
    let header = header.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        header.contains("continuing the conversation of") && header.contains("2 messages"),
        "{header}"
    );
    pty.line("more");
    assert_eq!(said(&place, &mut pty), ["hello", "more"]);
    assert_eq!(plain(&pty.line("/system")).lines().next().map(str::trim), Some("Be brief."));
    // the file is in use: the chat continues in a copy, and `/clear` starts another conversation
    let mut other = Pty::start(&place, &["run", "-C", "-t", "1", "-n", "4"], 80);
    other.wait_for("a copy");
    other.wait_for(PROMPT);
    other.line("other");
    assert_eq!(chats().len(), 2);
    other.line("/clear");
    assert_eq!(chats().len(), 2);
    other.line("new");
    assert_eq!(chats().len(), 3);
    assert_eq!(said(&place, &mut pty), ["hello", "more"]);
    drop((pty, other));
    // a single answer also continues the last conversation
    let with = place.ok(&["run", "demo.gguf", "-C", "-p", "x", "-t", "1", "-n", "2", "--json"]);
    let alone = place.ok(&["run", "demo.gguf", "-p", "x", "-t", "1", "-n", "2", "--json"]);
    let tokens = |json: &str| {
        let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        json["usage"]["prompt_tokens"].as_u64().expect("a number")
    };
    assert!(tokens(&with) > tokens(&alone), "{with} {alone}");
    assert_eq!(chats().len(), 3);
}

#[test]
fn a_model_without_a_template_is_called_a_base_model() {
    let place = place();
    let mut file = place.read("demo.gguf");
    let key = b"tokenizer.chat_template";
    let at = file.windows(key.len()).position(|bytes| bytes == key).expect("it has a template");
    file[at + key.len() - 1] = b'x';
    place.write("base.gguf", file);
    let told = place.run(&["run", "base.gguf", "hello", "-n", "2", "-q"]);
    let told = crate::common::text(&told.stderr);
    assert!(
        told.contains("looks like a base model") && told.contains("rooflight complete"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "a warning, also where notes are off: {told}");
}

/// The stored file is that of a process killed during a reply, while it wrote a line.
#[test]
fn a_message_without_a_reply_is_in_the_prompt_and_a_half_line_is_told() {
    let place = place();
    let folder = ".local/state/rooflight/chats";
    std::fs::create_dir_all(place.path(folder)).expect("a folder can be made");
    let line = |id: &str, parent: &str, role: &str, text: &str| {
        format!(
            r#"{{"id":"{id}","parent":{parent},"role":"{role}","content":"{text}","model":"demo.gguf"}}"#
        )
    };
    let said_before = [
        line("1", "null", "user", "first"),
        line("2", "\"1\"", "assistant", "reply"),
        line("3", "\"2\"", "user", "unanswered"),
        r#"{"id":"4","parent":"3","role":"assis"#.to_owned(),
    ];
    place.write(&format!("{folder}/old.jsonl"), said_before.join("\n"));
    let mut pty = Pty::start(&place, &["run", "-C", "-t", "1", "-n", "4"], 80);
    let shown = plain(&pty.wait_for("unanswered\x1b"));
    assert!(shown.contains("1 line of the stored conversation cannot be read"), "{shown}");
    assert!(shown.contains("3 messages"), "{shown}");
    pty.wait_for("unanswered");
    pty.line("!");
    assert_eq!(said(&place, &mut pty), ["first", "unanswered!"]);
}

#[test]
fn another_model_continues_the_conversation() {
    let place = place();
    place.write("llama.gguf", golden::model("llama"));
    let mut pty = chat(&place, "4", &["-q"]);
    pty.line("hello");
    assert!(pty.line("/model absent.gguf").contains("absent.gguf"));
    place.write("broken.gguf", "GGUF");
    assert!(pty.line("/model broken.gguf").contains("error:"));
    pty.line("still here");
    pty.line("/model llama.gguf");
    assert!(pty.line("/model").contains("llama.gguf"));
    pty.line("and now");
    assert_eq!(said(&place, &mut pty), ["hello", "still here", "and now"]);
}

#[test]
fn markdown_is_rendered_on_a_terminal_that_can() {
    let place = place();
    let args = ["run", "demo.gguf", "hello", "-t", "1", "-s", "1", "--ignore-eos", "-n", "60"];
    let tick = place.ok(&["tokenize", "demo.gguf", "`"]);
    let word = place.ok(&["tokenize", "demo.gguf", "a"]);
    let bias = [tick, word].map(|id| format!("{}+100", id.trim()));
    let args = [&args[..], &["-l", &bias[0], "-l", &bias[1]]].concat();
    let shown = |more: &[&str], variables: &[(&str, &str)]| {
        let mut pty = Pty::start_with(&place, &[&args[..], more].concat(), 80, variables);
        pty.wait_for("stopped at -n").replace("\r\n", "\n")
    };
    let code = "\x1b[36m";
    let rendered = shown(&[], &[]);
    assert!(rendered.contains(code) && plain(&rendered).contains('a'), "{rendered}");
    let raw = shown(&["--no-markdown"], &[]);
    assert!(raw.contains('`') && !raw.contains(code), "{raw}");
    for variables in [&[("TERM", "dumb")][..], &[("NO_COLOR", "1")]] {
        let shown = shown(&[], variables);
        let styled = ["\x1b[36m", "\x1b[2m", "\x1b[1m"].iter().any(|code| shown.contains(code));
        assert!(shown.contains('`') && !styled, "{variables:?}: {shown}");
    }
    assert!(!place.ok(&args).contains('\x1b'), "a pipe gets what the model writes");
}

/// Regression: a prompt without a line break at the end, and lines typed ahead that were shown twice.
#[test]
fn a_dumb_terminal_shows_each_line_once() {
    let place = place();
    let args = ["run", "demo.gguf", "-t", "1", "-s", "1", "--ignore-eos", "-q"];
    let args = [&args[..], &["-n", "6000", "-c", "8192"]].concat();
    let mut pty = Pty::start_with(&place, &args, 80, &[("TERM", "dumb")]);
    pty.wait_for(PROMPT);
    pty.send("first\n");
    pty.wait_for("\n");
    let end = Instant::now() + Duration::from_secs(30);
    while pty.echoes() {
        assert!(Instant::now() < end, "nothing is hidden during the reply");
        std::thread::sleep(Duration::from_millis(1));
    }
    pty.send("second one\n/show system\n");
    let mut shown = pty.wait_for("no system message");
    shown += &pty.wait_for(PROMPT);
    assert_eq!(shown.matches("second one").count(), 1, "{shown}");
    assert_eq!(shown.matches("/show system").count(), 1, "{shown}");
    assert!(shown.contains(&format!("{PROMPT}second one\r\n")), "{shown}");
    pty.send("\x04");
    assert_eq!(pty.end(), Some(0));
    pty.wait_for("\r\n");
}

/// A conversation of one model as `/save` writes it.
fn saved(place: &Place, pty: &mut Pty) -> serde_json::Value {
    pty.line("/save! said.json");
    serde_json::from_slice(&place.read("said.json")).expect("JSON")
}

/// Models that recur go back like all others: what is begun anew, stopped or edited comes to the conversation that a person
/// has who says the same at once.
#[test]
fn models_that_recur_regenerate_stop_and_go_on_with_what_was_edited() {
    let place = place();
    for name in ["rwkv7", "qwen35", "mamba2"] {
        let file = format!("{name}.gguf");
        place.write(&file, golden::model(name));
        let base = ["run", &file, "-t", "1", "--temp", "0", "--ignore-eos", "-n", "20"];
        let chat = || {
            let mut pty = Pty::start(&place, &[&base[..], &["-c", "200000"]].concat(), 80);
            pty.wait_for(PROMPT);
            pty
        };
        let mut plain = chat();
        plain.line("hello");
        let first = saved(&place, &mut plain);
        plain.line("how are you today?");
        plain.line("and then?");
        let want = saved(&place, &mut plain);
        assert_eq!(want.as_array().map(Vec::len), Some(6), "{name}: {want}");
        drop(plain);

        let mut other = chat();
        other.line("hello");
        other.line("/regen");
        assert_eq!(saved(&place, &mut other), first, "{name}: a reply begun anew");
        other.line("/set parameter predict 100000");
        other.send("how are you today?\r");
        other.wait_for("\n");
        other.wait_for(" ");
        other.send("\x03");
        other.wait_for("interrupted");
        other.wait_for(PROMPT);
        other.line("/set parameter predict 20");
        other.line("/regen");
        other.line("and then?");
        assert_eq!(saved(&place, &mut other), want, "{name}: after a reply that was stopped");
        // the last question asked otherwise; a text need not have the tokens that a reply had
        let mut edited = want.clone();
        edited.as_array_mut().expect("an array").truncate(4);
        place.write("edited.json", serde_json::to_vec(&edited).expect("JSON"));
        for question in ["why?", "and then?"] {
            let mut plain = chat();
            for pty in [&mut other, &mut plain] {
                pty.line("/load edited.json");
                pty.line(question);
            }
            let [found, want] = [&mut other, &mut plain].map(|pty| saved(&place, pty));
            assert_eq!(found, want, "{name}: {question}");
        }
        other.send("/bye\r");
        assert_eq!(other.end(), Some(0));
    }
}
