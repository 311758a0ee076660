//! The list of tools.

use serde_json::json;
use tools::ToolList;

#[test]
fn both_forms_are_read() {
    let list = ToolList::read(
        r#"[{"type": "function", "function": {"name": "a", "description": "d", "strict": true,
                 "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}},
                {"name": "b.c-d_1"}, {"type": "function", "name": "e", "parameters": {}}]"#,
    )
    .unwrap();
    let names: Vec<&str> = list.tools().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["a", "b.c-d_1", "e"]);
    assert!(list.get("a").unwrap().parameters.contains_key("properties"));
    assert_eq!(list.get("x"), None);
    assert_eq!(
        list.to_json(),
        r#"[{"type":"function","function":{"name":"a","description":"d","parameters":{"type":"object","properties":{"x":{"type":"integer"}}},"strict":true}},"#.to_owned()
            + r#"{"type":"function","function":{"name":"b.c-d_1","description":"","parameters":{"type":"object","properties":{}}}},"#
            + r#"{"type":"function","function":{"name":"e","description":"","parameters":{"type":"object","properties":{}}}}]"#
    );
}

#[test]
fn what_is_wrong_is_named() {
    let told = |text: &str| ToolList::read(text).unwrap_err().to_string();
    for (text, problem) in [
        ("[", "tools: no JSON: EOF while parsing a list at line 1 column 1"),
        ("{}", "tools: expected a list of tools, found an object"),
        ("[3]", "tools[0]: expected an object, found 3"),
        (
            r#"[{"name": "a"}, {"type": "web_search"}]"#,
            "tools[1].type: expected \"function\", found \"web_search\"",
        ),
        (r#"[{"type": "function"}]"#, "tools[0].function: expected an object, found nothing"),
        (
            r#"[{"name": "a b"}]"#,
            "tools[0].name: expected 1 to 64 letters, digits, _, - and ., found \"a b\"",
        ),
        (
            r#"[{"name": "a", "parameters": []}]"#,
            "tools[0].parameters: expected a JSON schema of an object, found a list",
        ),
        (
            r#"[{"name": "a", "parameters": {"type": "string"}}]"#,
            "tools[0].parameters.type: expected \"object\", found \"string\"",
        ),
        (
            r#"[{"name": "a", "description": {}}]"#,
            "tools[0].description: expected a text, found an object",
        ),
        (
            r#"[{"type": "function", "function": {"name": "a", "strict": 1}}]"#,
            "tools[0].function.strict: expected true or false, found 1",
        ),
        (
            r#"[{"name": "a", "input_schema": 3}]"#,
            "tools[0].input_schema: expected a JSON schema of an object, found 3",
        ),
        (r#"[{"name": "a"}, {"name": "a"}]"#, "tools[1].name: `a` is also the name of tools[0]"),
    ] {
        assert_eq!(told(text), problem);
    }
    let many = format!("[{}0]", "0,".repeat(600));
    assert_eq!(told(&many), "tools: tools: at most 512, found 601");
    let long = " ".repeat((4 << 20) + 1);
    assert_eq!(told(&long), "tools: bytes: at most 4194304, found 4194305");
}

#[test]
fn types_of_parameters_are_found() {
    let list = ToolList::read(
        r##"[{"name": "a", "parameters": {"$defs": {"d": {"enum": [1, "x"]}, "l": {"$ref": "#/$defs/l"}}, "properties": {
                 "s": {"type": "string"}, "b": {"type": ["string", "null"]}, "r": {"$ref": "#/$defs/d"}, "l": {"$ref": "#/$defs/l"},
                 "o": {"anyOf": [{"type": "integer"}, {"const": null}]}, "u": {}, "v": {"anyOf": [{"type": "integer"}, {}]}}}}]"##,
    )
    .unwrap();
    let types = |name: &str| list.tools()[0].types(name).map(|types| types.join(" "));
    for (name, expected) in [
        ("s", Some("string")),
        ("b", Some("string null")),
        ("r", Some("number string")),
        ("l", None),
        ("o", Some("integer null")),
        ("u", None),
        ("v", None),
        ("w", None),
    ] {
        assert_eq!(types(name).as_deref(), expected, "{name}");
    }
}

/// References that double at every step name more types than memory holds.
#[test]
fn types_are_looked_for_within_bounds() {
    let branches = |name: &str| {
        let one = json!({ "$ref": format!("#/$defs/{name}") });
        json!({ "anyOf": vec![one; 200] })
    };
    let parameters = json!({
        "$defs": { "a": branches("b"), "b": branches("c"), "c": branches("d"), "d": { "type": "string" } },
        "properties": { "x": { "$ref": "#/$defs/a" }, "y": { "$ref": "#/$defs/c" } },
    });
    let list = json!([{ "name": "a", "parameters": parameters }]);
    let list = ToolList::from_json(list).unwrap();
    assert_eq!(list.tools()[0].types("x"), None);
    assert_eq!(list.tools()[0].types("y"), None);
    let few = json!([{ "name": "a", "parameters": { "properties": { "x": { "anyOf": vec![json!({ "type": "string" }); 9] } } } }]);
    let list = ToolList::from_json(few).unwrap();
    assert_eq!(list.tools()[0].types("x"), Some(vec!["string".to_owned()]));
}
