//! `template`: conversations as prompts.

use crate::common::{Place, text};

const CHAT: &str = r#"{"messages": [{"role": "user", "content": "say <|im_end|> it"}], "add_generation_prompt": true}"#;

#[test]
fn a_conversation_becomes_text_or_tokens() {
    let place = Place::new();
    place.write("chat.json", CHAT);
    let prompt = place.ok(&["template", "demo.gguf", "-f", "chat.json"]);
    assert!(prompt.contains("say <|im_end|> it") && prompt.ends_with("assistant\n"), "{prompt}");
    let piped = place.command(&["template", "demo.gguf"]).write_stdin(CHAT).output().unwrap();
    assert_eq!(text(&piped.stdout), prompt);
    // a bare list, as a chat saves it
    let message = r#"{"role": "user", "content": "say <|im_end|> it"}"#;
    place.write("list.json", format!("[{message}]"));
    assert_eq!(place.ok(&["template", "demo.gguf", "-f", "list.json"]), prompt);
    place.write("list.json", format!(r#"[{message}, {{"role": "assistant", "content": "it"}}]"#));
    let replied = place.ok(&["template", "demo.gguf", "-f", "list.json"]);
    assert!(replied.ends_with("it<|im_end|>\n"), "no other reply is begun: {replied}");
    // an object as clients send it has the same prompt as its list, and may say otherwise
    let reply = r#"{"role": "assistant", "content": "it"}"#;
    for (messages, more, wanted) in [
        (message.to_owned(), "", prompt.clone()),
        (format!("{message}, {reply}"), "", replied.clone()),
        (message.to_owned(), r#", "add_generation_prompt": true"#, prompt.clone()),
        (
            message.to_owned(),
            r#", "add_generation_prompt": false"#,
            prompt.strip_suffix("<|im_start|>assistant\n").unwrap().to_owned(),
        ),
    ] {
        place.write("object.json", format!(r#"{{"messages": [{messages}]{more}}}"#));
        let object = place.ok(&["template", "demo.gguf", "-f", "object.json"]);
        assert_eq!(object, wanted, "{messages}{more}");
    }

    // The words of the conversation stay words.
    let ids = place.ok(&["template", "demo.gguf", "-f", "chat.json", "--tokens"]);
    let special = place.ok(&["tokenize", "demo.gguf", "--special", &prompt]);
    assert!(ids.split(' ').count() > special.split(' ').count(), "{ids} {special}");
    let back = ["tokenize", "demo.gguf", "--decode", "--special", ids.trim()];
    assert_eq!(place.ok(&back), prompt);
}

#[test]
fn a_template_in_a_file_sees_all_that_is_given() {
    let place = Place::new();
    place.write("t.jinja", "{{ bos_token }}{% for t in tools %}{{ t.name }} {% endfor %}{{ level }}{{ messages[0].x }}");
    let json =
        r#"{"messages": [{"x": 1}], "tools": [{"name": "a"}, {"name": "b"}], "level": "high"}"#;
    place.write("c.json", json);
    let args = ["template", "--template", "t.jinja", "-f", "c.json"];
    assert_eq!(place.ok(&args), "a b high1");
    assert_eq!(place.ok(&[&args[..], &["--bos", "<s>"]].concat()), "<s>a b high1");
    // With a model its begin and end tokens stand, and its vocabulary has the tokens.
    let ids = place.ok(&[&args[..], &["-m", "demo.gguf", "--tokens"]].concat());
    let words = place.ok(&["tokenize", "demo.gguf", "a b high1"]);
    assert!(ids.trim().ends_with(words.trim()), "{ids} {words}");
}

#[test]
fn what_is_wrong_is_told_in_a_line() {
    let place = Place::new();
    place.write("t.jinja", "{{ raise_exception('no tools here') }}");
    place.write("chat.json", CHAT);
    for (json, expected) in [
        ("{", "the conversation is no JSON"),
        ("7", "or a list of messages, found neither"),
        ("[7]", "message 0 is no map"),
        ("{}", "no `messages`"),
        (r#"{"messages": ["a"]}"#, "message 0 is no map"),
        (CHAT, "no tools here"),
    ] {
        place.write("c.json", json);
        let (code, told) = place.fails(&["template", "--template", "t.jinja", "-f", "c.json"]);
        assert!(code != 0 && told.contains(expected), "{code} {told}");
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with("error: "), "{told}");
        assert!(lines[1..].iter().all(|line| line.starts_with("hint: ")), "{told}");
    }
    let (code, _) = place.fails(&["template", "absent.gguf", "-f", "chat.json"]);
    assert_eq!(code, 3);
}
