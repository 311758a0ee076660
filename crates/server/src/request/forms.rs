//! Form that a reply must have, from the fields of OpenAI's, llama.cpp's and vLLM's APIs.

use grammar::FormSource;
use serde_json::{Value, json};

use super::nested::check_format;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Takes, brief, is_empty};

/// Maximum number of texts of a choice.
const MOST_CHOICES: usize = 1024;

/// The form that a reply must have, and where the request asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyForm {
    /// The form.
    pub source: FormSource,
    /// Path of the field that asks for it: `response_format`.
    pub field: String,
    /// Whether the request is refused if a part of the form cannot be enforced.
    pub strict: bool,
}

impl ReplyForm {
    /// Creates the form that a field of this object asks for. It is strict if the server is.
    pub(crate) fn of(body: &JsonBody, name: &str, source: FormSource) -> ReplyForm {
        ReplyForm { source, field: body.path_of(name), strict: body.is_strict() }
    }

    /// Returns the form with what a format says in its field `strict`. `path`: path of the format.
    ///
    /// # Errors
    /// A value other than true or false.
    pub(crate) fn with_strictness(self, path: &str, format: &Value) -> Result<ReplyForm> {
        let nested = format.get("json_schema").filter(|schema| schema.is_object());
        let (object, path) = match nested {
            Some(schema) => (schema, format!("{path}.json_schema.strict")),
            None => (format, format!("{path}.strict")),
        };
        match object.get("strict") {
            None | Some(Value::Null) => Ok(self),
            Some(Value::Bool(strict)) => Ok(ReplyForm { strict: self.strict || *strict, ..self }),
            Some(found) => {
                let problem = format!("expected true or false, found {}", brief(found));
                Err(ApiError::field(&path, problem))
            }
        }
    }
}

/// Reads OpenAI's `response_format`, llama.cpp's `json_schema` and `grammar`, vLLM's `structured_outputs` and its older `guided_`
/// fields.
///
/// # Errors
/// A value that cannot be read as a form, or several forms.
pub(super) fn form(body: &JsonBody) -> Result<Option<ReplyForm>> {
    const SCHEMA: &str = "json_schema";
    let outputs = body.nested("structured_outputs")?.checked(OUTPUTS)?;
    let schema = body.get(SCHEMA).filter(|schema| **schema != "");
    let schema = schema.map(|schema| FormSource::JsonSchema(schema.to_string()));
    let any = outputs.flag("json_object")?.filter(|wanted| *wanted).map(|_| any_object());
    let asked = [
        grammar(body, "grammar")?,
        schema.map(|source| ReplyForm::of(body, SCHEMA, source)),
        response_format(body)?,
        guided_schema(body, "guided_json")?,
        guided_schema(&outputs, "json")?,
        regex(body, "guided_regex")?,
        regex(&outputs, "regex")?,
        choice(body, "guided_choice")?,
        choice(&outputs, "choice")?,
        grammar(body, "guided_grammar")?,
        grammar(&outputs, "grammar")?,
        any.map(|source| ReplyForm::of(&outputs, "json_object", source)),
    ];
    let mut asked = asked.into_iter().flatten();
    match (asked.next(), asked.next()) {
        (Some(first), Some(second)) => {
            let problem = format!("a reply has one form, and {} asks for one already", first.field);
            Err(ApiError::field(&second.field, problem))
        }
        (form, _) => Ok(form),
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

fn grammar(body: &JsonBody, name: &str) -> Result<Option<ReplyForm>> {
    text_form(body, name, FormSource::Grammar)
}

fn regex(body: &JsonBody, name: &str) -> Result<Option<ReplyForm>> {
    text_form(body, name, FormSource::Regex)
}

fn text_form(
    body: &JsonBody,
    name: &str,
    form: fn(String) -> FormSource,
) -> Result<Option<ReplyForm>> {
    let text = body.text(name)?.filter(|text| !text.is_empty());
    Ok(text.map(|text| ReplyForm::of(body, name, form(text.to_owned()))))
}

/// Reads a schema, or its JSON as a text.
fn guided_schema(body: &JsonBody, name: &str) -> Result<Option<ReplyForm>> {
    let schema = match body.get(name) {
        None => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(schema @ Value::Object(_)) => schema.to_string(),
        Some(_) => return Err(body.wrong(name, "expected a JSON schema")),
    };
    Ok(Some(ReplyForm::of(body, name, FormSource::JsonSchema(schema))))
}

/// Reads a choice: the reply is exactly one of these texts.
fn choice(body: &JsonBody, name: &str) -> Result<Option<ReplyForm>> {
    let Some(list) = body.list(name)?.filter(|list| !list.is_empty()) else { return Ok(None) };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(escaped);
    let texts: Option<Vec<String>> =
        if list.len() > MOST_CHOICES { None } else { list.iter().map(text).collect() };
    let texts = texts.ok_or_else(|| {
        let problem = format!("expected a list of up to {MOST_CHOICES} texts");
        body.wrong(name, problem)
    })?;
    Ok(Some(ReplyForm::of(body, name, FormSource::Regex(texts.join("|")))))
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

fn response_format(body: &JsonBody) -> Result<Option<ReplyForm>> {
    const NAME: &str = "response_format";
    let Some(format) = body.get(NAME).filter(|format| !is_empty(format)) else { return Ok(None) };
    check_format(body, NAME)?;
    let schema = format.pointer("/json_schema/schema").or_else(|| format.get("schema"));
    let schema = schema.filter(|schema| !schema.is_null());
    let source = match (format.get("type").and_then(Value::as_str), schema) {
        (Some("text"), _) => return Ok(None),
        (Some("json_object"), None) => any_object(),
        (Some("json_object" | "json_schema"), Some(schema)) => {
            FormSource::JsonSchema(schema.to_string())
        }
        (Some("json_schema"), None) => {
            return Err(ApiError::field(NAME, "expected json_schema.schema"));
        }
        _ => return Err(ApiError::field(NAME, "expected type text, json_object or json_schema")),
    };
    ReplyForm::of(body, NAME, source).with_strictness(NAME, format).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Option<FormSource>, String> {
        let form = form(&body.into()).map_err(|error| error.message)?;
        Ok(form.map(|form| form.source))
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
        assert!(two.starts_with("guided_regex: a reply has one form, and grammar asks"), "{two}");
        for (wrong, name) in [
            (json!({ "guided_json": 3 }), "guided_json"),
            (json!({ "guided_choice": [3] }), "guided_choice"),
            (json!({ "structured_outputs": { "choice": [""] } }), "structured_outputs.choice"),
        ] {
            let problem = read(wrong).unwrap_err();
            assert!(problem.starts_with(name), "{problem}");
        }
    }

    /// A form says which field asks for it, and whether a part that is not enforced is an error.
    #[test]
    fn forms_have_the_field_that_asks_for_them_and_its_strictness() {
        let schema = json!({ "type": "integer" });
        let format = |strict: Value| json!({ "type": "json_schema", "json_schema": { "schema": schema, "strict": strict } });
        let flat =
            |strict: Value| json!({ "type": "json_object", "schema": schema, "strict": strict });
        for (body, field, strict) in [
            (json!({ "json_schema": schema }), "json_schema", false),
            (json!({ "response_format": format(json!(null)) }), "response_format", false),
            (json!({ "response_format": format(json!(true)) }), "response_format", true),
            (json!({ "response_format": flat(json!(false)) }), "response_format", false),
            (json!({ "response_format": flat(json!(true)) }), "response_format", true),
            (json!({ "structured_outputs": { "json": schema } }), "structured_outputs.json", false),
            (json!({ "structured_outputs": { "regex": "a" } }), "structured_outputs.regex", false),
            (json!({ "guided_grammar": "root ::= \"a\"" }), "guided_grammar", false),
        ] {
            let read = form(&body.clone().into()).unwrap().unwrap();
            assert_eq!((&*read.field, read.strict), (field, strict), "{body}");
            assert!(form(&JsonBody::from(body).strict()).unwrap().unwrap().strict);
        }
        let wrong = json!({ "response_format": format(json!("yes")) });
        let error = form(&wrong.into()).unwrap_err();
        assert_eq!(error.param(), Some("response_format.json_schema.strict"));
        let wrong = form(&json!({ "structured_outputs": { "regex": 3 } }).into()).unwrap_err();
        assert_eq!(wrong.param(), Some("structured_outputs.regex"));
    }
}
