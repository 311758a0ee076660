//! Values as families write them.

use tools::internals::{of_braces, of_elements, of_python, of_text};

#[test]
fn texts_are_what_types_say() {
    let of = |text: &str, types: &str| {
        let types: Vec<String> = types.split(' ').map(str::to_owned).collect();
        of_text(text, Some(&types).filter(|t| t[0] != "any").map(Vec::as_slice))
    };
    for (text, types, json) in [
        ("2", "integer", "2"),
        ("2", "string", "\"2\""),
        ("2", "string null", "\"2\""),
        ("null", "string null", "null"),
        (" True ", "boolean", "true"),
        ("True", "string", "\"True\""),
        ("[1, {\"a\": 2}]", "array", "[1, {\"a\": 2}]"),
        ("[1,", "array", "\"[1,\""),
        ("two", "integer", "\"two\""),
        ("\"x\"", "any", "\"\\\"x\\\"\""),
        ("a\n\"b\"", "any", "\"a\\n\\\"b\\\"\""),
        ("2.5", "any", "2.5"),
    ] {
        assert_eq!(of(text, types), json, "{text} {types}");
    }
}

#[test]
fn python_is_read() {
    for (text, json) in [
        ("()", Some("{}")),
        (
            "(a=1, b='it\\'s \\u00fc', c=[True, None, (1, 2,)], d={'k': -1.5e3},)",
            Some(r#"{"a":1,"b":"it's ü","c":[true,null,[1,2]],"d":{"k":-1500.0}}"#),
        ),
        ("( a = \"x\" )", Some(r#"{"a":"x"}"#)),
        ("(a={\"j\": [false, \"s\"]})", Some(r#"{"a":{"j":[false,"s"]}}"#)),
        ("(1)", None),
        ("(a=1, a=2)", None),
        ("(a=b)", None),
        ("(a='x)", None),
        ("(a=1 b=2)", None),
        ("(a=1)x", None),
    ] {
        assert_eq!(of_python(text).as_deref(), json, "{text}");
    }
    let deep = format!("(a={}{})", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(of_python(&deep), None);
}

#[test]
fn braces_and_elements_are_read() {
    let quote = "<|\"|>";
    let text = "{a:<|\"|>x, {y}<|\"|>,b:[1,true,{c:<|\"|><|\"|>,<|\"|>d e<|\"|>:null}]}";
    assert_eq!(
        of_braces(text, quote).as_deref(),
        Some(r#"{"a":"x, {y}","b":[1,true,{"c":"","d e":null}]}"#)
    );
    assert_eq!(of_braces("{a:x}", quote), None);
    let text = "!<a>x y!</a>\n!<b>!<item>1!</item>!<item>!<k>v!</k>!</item>!</b>!<c>2!</c>";
    let types = |key: &str| (key == "c").then(|| vec!["string".to_owned()]);
    assert_eq!(
        of_elements(text, "!", &types).as_deref(),
        Some(r#"{"a":"x y","b":[1,{"k":"v"}],"c":"2"}"#)
    );
    for wrong in ["!<a>x", "!<a>x!</b>", "x", "!<a>!<b>x!</a>!</b>", "!<a>1!</a>!<a>2!</a>"] {
        assert_eq!(of_elements(wrong, "!", &types), None, "{wrong}");
    }
    let deep = "!<a>".repeat(100_000);
    assert_eq!(of_elements(&deep, "!", &types), None);
}
