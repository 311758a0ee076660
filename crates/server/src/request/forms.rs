//! Form that a reply must have, from the fields of OpenAI's, llama.cpp's and vLLM's APIs.

use grammar::FormSource;
use serde_json::{Value, json};

use super::nested::check_format;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Takes, is_empty};

/// Maximum number of texts of a choice.
const MOST_CHOICES: usize = 1024;

/// Reads OpenAI's `response_format`, llama.cpp's `json_schema` and `grammar`, vLLM's `structured_outputs` and its older `guided_`
/// fields.
///
/// # Errors
/// A value that cannot be read as a form, or several forms.
pub(super) fn form(body: &JsonBody) -> Result<Option<FormSource>> {
    let schema = |schema: &Value| Some(FormSource::JsonSchema(schema.to_string()));
    let outputs = body.nested("structured_outputs")?.checked(OUTPUTS)?;
    let asked = [
        grammar(body, "grammar")?,
        body.get("json_schema").filter(|schema| **schema != "").and_then(schema),
        response_format(body)?,
        guided_schema(body, "guided_json")?,
        guided_schema(&outputs, "json")?,
        regex(body, "guided_regex")?,
        regex(&outputs, "regex")?,
        choice(body, "guided_choice")?,
        choice(&outputs, "choice")?,
        grammar(body, "guided_grammar")?,
        grammar(&outputs, "grammar")?,
        outputs.flag("json_object")?.filter(|wanted| *wanted).map(|_| any_object()),
    ];
    let mut asked = asked.into_iter().flatten();
    match (asked.next(), asked.next()) {
        (_, Some(_)) => Err(ApiError::invalid(
            "a reply has one form: give one of response_format, json_schema, grammar",
        )),
        (form, None) => Ok(form),
    }
}

/// Fields of vLLM's `structured_outputs`.
const OUTPUTS: Takes = Takes::Fields(&[
    ("json", Field::Honoured),
    ("regex", Field::Honoured),
    ("choice", Field::Honoured),
    ("grammar", Field::Honoured),
    ("json_object", Field::Honoured),
]);

/// Returns the form of any JSON object.
pub(crate) fn any_object() -> FormSource {
    FormSource::JsonSchema(json!({ "type": "object" }).to_string())
}

fn grammar(body: &JsonBody, name: &str) -> Result<Option<FormSource>> {
    text_form(body, name, FormSource::Grammar)
}

fn regex(body: &JsonBody, name: &str) -> Result<Option<FormSource>> {
    text_form(body, name, FormSource::Regex)
}

fn text_form(
    body: &JsonBody,
    name: &str,
    form: fn(String) -> FormSource,
) -> Result<Option<FormSource>> {
    let text = body.text(name)?.filter(|text| !text.is_empty());
    Ok(text.map(|text| form(text.to_owned())))
}

/// Reads a schema, or its JSON as a text.
fn guided_schema(body: &JsonBody, name: &str) -> Result<Option<FormSource>> {
    match body.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(FormSource::JsonSchema(text.clone()))),
        Some(schema @ Value::Object(_)) => Ok(Some(FormSource::JsonSchema(schema.to_string()))),
        Some(_) => Err(ApiError::field(&body.path_of(name), "expected a JSON schema")),
    }
}

/// Reads a choice: the reply is exactly one of these texts.
fn choice(body: &JsonBody, name: &str) -> Result<Option<FormSource>> {
    let Some(list) = body.list(name)?.filter(|list| !list.is_empty()) else { return Ok(None) };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(escaped);
    let texts: Option<Vec<String>> =
        if list.len() > MOST_CHOICES { None } else { list.iter().map(text).collect() };
    let texts = texts.ok_or_else(|| {
        let problem = format!("expected a list of up to {MOST_CHOICES} texts");
        ApiError::field(&body.path_of(name), problem)
    })?;
    Ok(Some(FormSource::Regex(texts.join("|"))))
}

/// Characters that have a meaning in regular expressions.
const META: &str = r"\.+*?()|[]{}^$#&-~";

/// Returns a regular expression that matches only this text.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if META.contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn response_format(body: &JsonBody) -> Result<Option<FormSource>> {
    const NAME: &str = "response_format";
    let Some(format) = body.get(NAME).filter(|format| !is_empty(format)) else { return Ok(None) };
    check_format(body, NAME)?;
    let schema = format.pointer("/json_schema/schema").or_else(|| format.get("schema"));
    let schema = schema.filter(|schema| !schema.is_null());
    match (format.get("type").and_then(Value::as_str), schema) {
        (Some("text"), _) => Ok(None),
        (Some("json_object"), None) => Ok(Some(any_object())),
        (Some("json_object" | "json_schema"), Some(schema)) => {
            Ok(Some(FormSource::JsonSchema(schema.to_string())))
        }
        (Some("json_schema"), None) => Err(ApiError::field(NAME, "expected json_schema.schema")),
        _ => Err(ApiError::field(NAME, "expected type text, json_object or json_schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Option<FormSource>, String> {
        form(&body.into()).map_err(|error| error.message)
    }

    #[test]
    fn forms_are_read_in_the_words_of_all_servers() {
        let schema = json!({ "type": "integer" });
        let of_schema = Ok(Some(FormSource::JsonSchema(schema.to_string())));
        let named =
            json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
        for body in [
            json!({ "json_schema": schema }),
            json!({ "response_format": named }),
            json!({ "guided_json": schema }),
            json!({ "guided_json": schema.to_string() }),
            json!({ "structured_outputs": { "json": schema } }),
        ] {
            assert_eq!(read(body.clone()), of_schema, "{body}");
        }
        let regex = |text: &str| Ok(Some(FormSource::Regex(text.into())));
        assert_eq!(read(json!({ "guided_regex": "a+" })), regex("a+"));
        assert_eq!(read(json!({ "structured_outputs": { "regex": "a+" } })), regex("a+"));
        assert_eq!(
            read(json!({ "guided_choice": ["yes", "no (1.5)"] })),
            regex("yes|no \\(1\\.5\\)")
        );
        let grammar = Ok(Some(FormSource::Grammar("root ::= \"a\"".into())));
        assert_eq!(read(json!({ "guided_grammar": "root ::= \"a\"" })), grammar);
        assert_eq!(
            read(json!({ "structured_outputs": { "json_object": true } })),
            Ok(Some(any_object()))
        );
        let empty = json!({ "grammar": "", "guided_json": null, "guided_choice": [], "structured_outputs": {} });
        assert_eq!(read(empty), Ok(None));
        let two = read(json!({ "guided_regex": "a", "grammar": "root ::= \"a\"" })).unwrap_err();
        assert!(two.contains("one form"), "{two}");
        for (wrong, name) in [
            (json!({ "guided_json": 3 }), "guided_json"),
            (json!({ "guided_choice": [3] }), "guided_choice"),
            (json!({ "structured_outputs": { "choice": [""] } }), "structured_outputs.choice"),
        ] {
            let problem = read(wrong).unwrap_err();
            assert!(problem.starts_with(name), "{problem}");
        }
    }
}
