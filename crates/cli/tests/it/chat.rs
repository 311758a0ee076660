//! Conversations at a terminal, as they are typed.

#![cfg(target_os = "linux")]

use conformance::golden;

use crate::common::Place;
use crate::machine;
use crate::pty::{PROMPT, Pty};

/// Where the machine need not be measured.
fn place() -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path(".cache/rooflight")).expect("a folder can be made");
    place.write(".cache/rooflight/machine.json", machine::measured(&place.read("demo.gguf")));
    place
}

/// A conversation whose replies have so many tokens.
fn chat(place: &Place, tokens: &str, more: &[&str]) -> Pty {
    let base = ["run", "demo.gguf", "-t", "1", "-s", "1", "--ignore-eos", "-n", tokens];
    let mut pty = Pty::start(place, &[&base[..], more].concat(), 80);
    pty.wait_for(PROMPT);
    pty
}

/// What the user said, as `/save` writes it.
fn said(place: &Place, pty: &mut Pty) -> Vec<String> {
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
    for _ in 0..2 {
        pty.wait_for(PROMPT);
    }
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
        pty.wait_for("ctx ");
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
        ("/set parameter temperature", "NAME VALUE"),
        ("/set context-full drop-oldest", "drop-oldest"),
        ("/set verbose off", "verbose off"),
        ("/set nohistory", "history off"),
        ("/set think on", "enable_thinking"),
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
    assert_eq!(pty.line("/system").lines().next().map(str::trim), Some("Be brief."));
    pty.send("exit\r");
    assert_eq!(pty.end(), Some(0));
}

#[test]
fn words_and_the_footer_fit_the_terminal() {
    let place = place();
    let mut pty = chat(&place, "400", &[]);
    pty.send("hello\r");
    pty.wait_for("\r\n");
    pty.wait_for("\r\n");
    let reply = pty.wait_for("length");
    for line in reply.split("\r\n") {
        let shown = line.replace("\x1b[2m", "").replace("\x1b[0m", "").replace("\x1b[?2004l", "");
        assert!(shown.trim_end().chars().count() <= 80, "{shown:?}");
    }
    assert!(reply.contains("first token") && reply.contains("ctx "), "{reply}");
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
    for way in ["/set context-full drop-oldest", "/set parameter num_ctx", "/save FILE", "/clear"] {
        assert!(shown.contains(way), "{way}: {shown}");
    }
    pty.line("/set context-full drop-oldest");
    let shown = pty.line("and now?");
    assert!(shown.contains("messages are forgotten") && shown.contains("ctx "), "{shown}");
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
