//! Conversations at a terminal: messages that are edited, and what Ctrl-C stops.

#![cfg(target_os = "linux")]

use crate::chat::{chat_with, place, said};
use crate::pty::{PROMPT, Pty};

/// Starts a conversation with short replies and these environment variables.
fn chat(place: &crate::common::Place, variables: &[(&str, &str)]) -> Pty {
    chat_with(place, "2", &[], variables)
}

/// Types keys, and waits for the reply and the next prompt.
fn answered(pty: &mut Pty, keys: &str) {
    pty.send(keys);
    pty.wait_for("context ");
    pty.wait_for(PROMPT);
}

#[test]
fn ctrl_c_in_an_editor_is_for_the_editor() {
    let place = place();
    let script =
        "trap 'echo caught' INT\necho starts\nwhile [ ! -e go ]; do :; done\necho new >> \"$1\"\n";
    place.write("editor.sh", script);
    let mut pty = chat(&place, &[("VISUAL", "sh editor.sh")]);
    answered(&mut pty, "one\x1b\rtwo\r");
    pty.send("/edit\r");
    pty.wait_for("starts");
    pty.send("\x03");
    pty.wait_for("caught");
    place.write("go", "");
    pty.wait_for("new");
    answered(&mut pty, "\r");
    assert_eq!(said(&place, &mut pty), ["one\ntwo\nnew"]);
    pty.send("/bye\r");
    assert_eq!(pty.end(), Some(0));
}

/// A message that ends in a backslash is the same after an edit that changes nothing.
#[test]
fn an_edit_that_changes_nothing_changes_nothing() {
    let place = place();
    let mut pty = chat(&place, &[]);
    answered(&mut pty, "\"\"\"ends in \\\"\"\"\r");
    for _ in 0..2 {
        pty.send("/edit\r");
        pty.wait_for("\n");
        pty.wait_for("ends in");
        answered(&mut pty, "\r");
        assert_eq!(said(&place, &mut pty), ["ends in \\"]);
        std::fs::remove_file(place.path("said.json")).expect("it was saved");
    }
}

/// On a terminal that cannot edit lines, Enter sends the edited message.
#[test]
fn an_edited_message_is_not_lost_on_a_dumb_terminal() {
    let place = place();
    place.write("editor.sh", "echo edited > \"$1\"\n");
    let mut pty = chat(&place, &[("TERM", "dumb"), ("EDITOR", "sh editor.sh")]);
    answered(&mut pty, "one\n");
    pty.send("/edit\n");
    pty.wait_for("not sent: edited");
    pty.wait_for("Enter sends it");
    pty.wait_for(PROMPT);
    answered(&mut pty, "\n");
    assert_eq!(said(&place, &mut pty), ["edited"]);
}

/// A history that cannot be written causes a warning, once.
#[test]
fn a_history_that_cannot_be_saved_is_told_once() {
    let place = place();
    let mut pty = chat(&place, &[("XDG_STATE_HOME", "/dev/null")]);
    let mut told = String::new();
    for keys in ["one\r", "two\r"] {
        pty.send(keys);
        told += &pty.wait_for("context ");
        told += &pty.wait_for(PROMPT);
    }
    assert_eq!(told.matches("what you type is not saved: ").count(), 1, "{told}");
    assert_eq!(told.matches("this conversation is not stored: ").count(), 1, "{told}");
}

/// Ctrl-C ends a program at any point and resets the text style of the terminal.
#[test]
fn ctrl_c_ends_styles() {
    let place = place();
    // the prompt is read from the terminal: there is no reply that Ctrl-C would stop
    let mut pty = Pty::start(&place, &["run", "demo.gguf", "-f", "/dev/tty"], 80);
    pty.wait_for_handler();
    pty.send("\x03");
    pty.wait_for("^C");
    pty.wait_for("\x1b[0m");
    assert_eq!(pty.end(), Some(130));
}

#[test]
fn ctrl_c_stops_a_download_and_not_the_conversation() {
    use std::time::Duration;

    let place = place();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/data/tiny-quant.q4_0.gguf");
    let hub = testing::FakeHub::new(&[("tiny-Q4_0.gguf", std::fs::read(file).expect("a model"))]);
    *hub.state().pause.lock().expect("no thread panics with it") = Duration::from_millis(150);
    let mut pty = chat(&place, &[("HF_ENDPOINT", &hub.address)]);
    answered(&mut pty, "hello\r");
    pty.send(&format!("/model {}\r", testing::HUB_REPOSITORY));
    pty.wait_for("pulling");
    pty.send("\x03");
    let told = pty.wait_for(PROMPT);
    assert!(told.contains("stopped: what came is kept") && !told.contains("error:"), "{told}");
    assert!(pty.line("/model").contains("demo (random weights)"));
    answered(&mut pty, "still here\r");
    assert_eq!(said(&place, &mut pty), ["hello", "still here"]);
}
