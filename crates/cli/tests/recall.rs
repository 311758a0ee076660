//! `recall`: what the bundled model finds, what is counted, and what bad input is told.

mod common;

use common::Place;

#[test]
fn questions_are_counted_by_kind_and_depth() {
    let place = Place::new();
    place.write("items.jsonl", concat!(
        r#"{"kind":"passkey","messages":[{"role":"user","content":"say 7"}],"answer":"never this","depth":0.25}"#, "\n\n",
        r#"{"kind":"name","lang":"en","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}],"answer":"nor this"}"#, "\n"
    ));
    let json: serde_json::Value = serde_json::from_str(&place.ok(&[
        "recall",
        "-m",
        "demo.gguf",
        "-f",
        "items.jsonl",
        "-n",
        "4",
        "--json",
    ]))
    .unwrap();
    assert_eq!((json["all"]["asked"].as_u64(), json["all"]["right"].as_u64()), (Some(2), Some(0)));
    assert_eq!(json["kinds"]["passkey"]["by_depth"][2]["asked"], 1);
    assert!(json["kinds"]["name"]["by_depth"].is_null());
    let text = place.ok(&["recall", "-m", "demo.gguf", "-f", "items.jsonl", "-n", "4"]);
    assert!(text.contains("passkey by depth") && text.contains("| all"), "{text}");
}

#[test]
fn a_malformed_question_names_its_line() {
    let place = Place::new();
    place.write("items.jsonl", "{\"kind\":\"k\",\"messages\":[],\"answer\":\"a\"}\n{\"kind\":1}\n");
    let (code, told) = place.fails(&["recall", "-m", "demo.gguf", "-f", "items.jsonl"]);
    assert_eq!(code, 2);
    assert!(told.contains("items.jsonl line 2"), "{told}");
    place.write("items.jsonl", "\n");
    let (code, told) = place.fails(&["recall", "-m", "demo.gguf", "-f", "items.jsonl"]);
    assert!(code == 2 && told.contains("no questions"), "{told}");
}

/// A part of the held-out questions; `training/README.md` has the figures for all.
#[test]
fn the_bundled_model_finds_what_its_context_says() {
    let place = Place::new();
    let all = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/heldout/recall.jsonl");
    let all = std::fs::read_to_string(all).unwrap();
    let some: Vec<&str> = all.lines().step_by(9).collect();
    place.write("some.jsonl", some.join("\n"));
    place.ok(&["demo-model", "bundled.gguf"]);
    let json = place.ok(&["recall", "-f", "some.jsonl", "--json"]);
    assert_eq!(place.ok(&["recall", "-m", "bundled.gguf", "-f", "some.jsonl", "--json"]), json);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for kind in ["passkey", "keyvalue", "two_needles", "arithmetic", "name"] {
        let share = json["kinds"][kind]["share"].as_f64().unwrap();
        assert!(share >= 0.6, "{kind}: {share}");
    }
}
