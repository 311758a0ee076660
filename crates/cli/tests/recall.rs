//! `recall`, on a model of noise: what is counted, and what bad input is told.

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
