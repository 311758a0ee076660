//! Tools whose schemas cannot be enforced as a whole.
#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::collections::BTreeSet;
use std::sync::Arc;

use grammar::{CompileBudget, TokenTrie};
use serde_json::{Value, json};
use tokenizer::ChatTemplate;
use tools::{CallFamily, Result, ToolChoice, ToolList, ToolOptions, ToolUse};

use crate::forms::{options, vocabulary};

fn made(list: &Value, family: &str, options: ToolOptions) -> Result<ToolUse> {
    let list = Arc::new(ToolList::from_json(list.clone()).unwrap());
    let trie = TokenTrie::new(vocabulary(&BTreeSet::new())).unwrap();
    let marks: String = CallFamily::of_name(family).unwrap().marks[0].concat();
    let template = format!("{{# {marks} #}}{{{{ tools | tojson }}}}");
    let template = ChatTemplate::from_source(&template).unwrap();
    ToolUse::new(&list, options, &template, Some(&trie), &CompileBudget::default())
}

/// Keywords that are not enforced cause a warning, and an error that names them and the schema where the tool is strict, or all are.
/// That holds for every family, whether it writes arguments as JSON or one by one.
#[test]
fn keywords_that_are_not_enforced_are_told_and_refused_for_strict_tools() {
    let integer = |more: Value| {
        let mut schema = json!({ "type": "integer" });
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let overlap = json!([{ "type": "integer", "minimum": 1 }, { "type": "integer", "maximum": 9 }]);
    for (of_all, of_one, told) in [
        (json!({ "not": { "required": ["a"] } }), json!({}), "not is not enforced"),
        (json!({}), json!({ "uniqueItems": true }), "uniqueItems is not enforced"),
        (json!({}), json!({ "oneOf": overlap }), "oneOf is enforced as anyOf"),
    ] {
        let mut schema = json!({ "type": "object", "properties": { "a": integer(of_one) } });
        schema.as_object_mut().unwrap().extend(of_all.as_object().unwrap().clone());
        let list = |strict: bool| {
            let fine = json!({ "name": "fine", "strict": true });
            let odd = json!({ "name": "odd", "parameters": schema, "strict": strict });
            json!([fine, { "type": "function", "function": odd }])
        };
        for family in ["hermes", "qwen-coder", "gemma", "lfm"] {
            let options = || options(ToolChoice::Auto, true);
            let notes = made(&list(false), family, options()).unwrap().notes().lines();
            assert_eq!(notes, [format!("tools: {told}")], "{family}");
            for (list, strict) in [(list(true), false), (list(false), true)] {
                let options = ToolOptions { strict, ..options() };
                let error = made(&list, family, options).unwrap_err();
                assert_eq!(error.place(), "tools[1].function.parameters", "{family}: {error}");
                assert!(error.to_string().ends_with(told), "{family}: {error}");
            }
        }
    }
}
