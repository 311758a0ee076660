//! The form of replies that call tools, as a family writes calls: names are those of tools, arguments as their schemas say.
//!
//! JSON arguments are held to the whole schema. Where parameters stand one by one, declared ones come in their order,
//! those that are required must come, texts are free and what is JSON is held to its own schema.

use std::sync::Arc;

use grammar::FormPart;
use serde_json::{Map, Value, json};

use crate::family::{
    CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, ValueMark,
};
use crate::list::Tool;

/// Most parameters of a tool that are held to an order.
const PARAMETERS: usize = 64;
/// Values within each other that are written out.
const DEPTH: usize = 6;

/// A tool in a form. `free`: its arguments are any.
pub(crate) struct HeldTool<'t> {
    pub(crate) tool: &'t Tool,
    pub(crate) free: bool,
}

/// Calls from what opens them to the end of the reply.
pub(crate) fn parts(family: &CallFamily, tools: &[HeldTool<'_>], several: bool) -> Vec<FormPart> {
    let syntax = &family.syntaxes[0];
    let several = several && !family.single;
    let call = || one_of(tools.iter().map(|held| call(syntax, held)).collect());
    let calls = match (syntax.between, several) {
        (Some(between), true) => {
            all([call(), FormPart::Repeat(Box::new(all([text(between), call()])))])
        }
        _ => call(),
    };
    let (first, last) = match &syntax.calls {
        Calls::Objects { list, .. } => *list,
        Calls::Keyed | Calls::Python => ("[", "]"),
        Calls::Marked(_) => ("", ""),
    };
    let calls = all([text(first), calls, text(last)]);
    let calls = match (&syntax.calls, several) {
        (Calls::Python, true) => {
            let more = FormPart::Repeat(Box::new(all([text(", "), call()])));
            all([text(first), call(), more, text(last)])
        }
        _ => calls,
    };
    let block = || {
        let marked = all([
            opening(syntax),
            gap(syntax.gap),
            calls.clone(),
            gap(syntax.gap),
            text(syntax.close),
        ]);
        match syntax.starts.iter().any(|start| matches!(*start, "{" | "[")) {
            true => one_of(vec![marked, calls.clone()]),
            false => marked,
        }
    };
    let again = several && syntax.between.is_none() && !matches!(syntax.calls, Calls::Python);
    match again {
        true => vec![block(), FormPart::Repeat(Box::new(all([gap("\n"), block()])))],
        false => vec![block()],
    }
}

/// What opens calls.
fn opening(syntax: &CallSyntax) -> FormPart {
    let opens = syntax.opens.iter().map(|open| text(open)).collect();
    match &syntax.calls {
        // what opens may be the beginning of a call, without anything around it
        Calls::Marked(marked) if syntax.opens.contains(&marked.open) => text(syntax.opens[0]),
        _ => one_of(opens),
    }
}

fn call(syntax: &CallSyntax, held: &HeldTool<'_>) -> FormPart {
    let name = held.tool.name.as_str();
    let schema = || FormPart::Json(arguments(held).to_string());
    match &syntax.calls {
        Calls::Objects { open, arguments, .. } => {
            let head = format!("{name}\", \"{arguments}\": ");
            all([numbered(open), FormPart::Text(head), schema(), text("}")])
        }
        Calls::Keyed => all([FormPart::Text(format!("{{\"{name}\": ")), schema(), text("}")]),
        Calls::Python => {
            let value = |_: &str, schema: &Value| python(schema);
            let pairs = pairs(held, ", ", |key| FormPart::Text(format!("{key}=")), &value);
            all([FormPart::Text(format!("{name}(")), pairs, text(")")])
        }
        Calls::Marked(marked) => marked_call(marked, held),
    }
}

fn marked_call(marked: &Marked, held: &HeldTool<'_>) -> FormPart {
    let head = format!("{}{}{}", marked.open, marked.prefix, held.tool.name);
    let arguments = match &marked.arguments {
        MarkedArguments::Json => FormPart::Json(arguments(held).to_string()),
        MarkedArguments::Parameters(parameters) => {
            all([text(parameters.first), parameters_part(parameters, held)])
        }
        MarkedArguments::Braces { quote } => {
            let value = |_: &str, schema: &Value| braces(schema, held.tool, quote, 0);
            let pairs = pairs(held, ",", |key| FormPart::Text(format!("{key}:")), &value);
            all([text("{"), pairs, text("}")])
        }
        MarkedArguments::Elements { mark } => elements(held, mark),
    };
    let close = marked.closes.first().copied().unwrap_or_default();
    all([FormPart::Text(head), numbered(marked.named), arguments, text(close)])
}

/// A text in which `#` is a number.
fn numbered(marked: &str) -> FormPart {
    match marked.split_once('#') {
        Some((before, after)) => {
            all([text(before), FormPart::Regex("[0-9]{1,3}".to_owned()), text(after)])
        }
        None => text(marked),
    }
}

/// The schema of a tool's arguments. What it does not declare may not be there unless it says so.
fn arguments(held: &HeldTool<'_>) -> Value {
    if held.free {
        return json!({ "type": "object" });
    }
    let mut schema = held.tool.parameters.clone();
    if schema.is_empty() {
        schema.insert("properties".to_owned(), json!({}));
    }
    schema.insert("type".to_owned(), "object".into());
    let composed = ["anyOf", "oneOf", "allOf", "$ref", "patternProperties"];
    if schema.contains_key("properties") && !composed.iter().any(|key| schema.contains_key(*key)) {
        schema.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    Value::Object(schema)
}

/// The declared parameters; `None` where the schema does not say which there are.
fn declared<'t>(held: &HeldTool<'t>) -> Option<Vec<(&'t str, &'t Value, bool)>> {
    let schema = &held.tool.parameters;
    if schema.is_empty() {
        return Some(Vec::new());
    }
    let properties = schema.get("properties")?.as_object()?;
    let all = properties.iter().map(|(key, inner)| (key.as_str(), inner, requires(schema, key)));
    (!held.free && properties.len() <= PARAMETERS).then(|| all.collect())
}

/// Whether a schema of an object requires a key.
fn requires(schema: &Map<String, Value>, key: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|all| all.iter().any(|name| name == key))
}

/// A parameter's schema, with what it may refer to.
fn alone(schema: &Value, tool: &Tool) -> FormPart {
    let mut schema = schema.clone();
    if let Value::Object(schema) = &mut schema {
        for key in ["$defs", "definitions"] {
            if let Some(shared) = tool.parameters.get(key) {
                schema.insert(key.to_owned(), shared.clone());
            }
        }
    }
    FormPart::Json(schema.to_string())
}

/// The texts that a schema lists.
fn listed(schema: &Value) -> Option<Vec<&str>> {
    let all = schema.get("enum")?.as_array()?;
    all.iter().map(Value::as_str).collect()
}

/// A text, one of those that its schema lists if it does, and what closes it.
fn text_until(schema: &Value, close: &str) -> FormPart {
    match listed(schema) {
        Some(words) => {
            let closed = |word: &str| FormPart::Text(format!("{word}{close}"));
            one_of(words.into_iter().map(closed).collect())
        }
        None => FormPart::Until(close.to_owned()),
    }
}

/// Whether a value is a text, or JSON; `None` where it may be both.
fn is_text(tool: &Tool, key: &str) -> Option<bool> {
    let types = tool.types(key)?;
    let texts = types.iter().filter(|name| *name == "string").count();
    match texts {
        0 => Some(false),
        n if n == types.len() => Some(true),
        _ => None,
    }
}

/// Parameters between marks.
fn parameters_part(parameters: &CallParameters, held: &HeldTool<'_>) -> FormPart {
    let key = |key: &str| FormPart::Text(format!("{}{key}{}", parameters.open, parameters.named));
    let Some(declared) = declared(held) else {
        let any = FormPart::Regex("[A-Za-z0-9_.-]+".to_owned());
        let mark = parameters.values[0].text;
        let one = all([
            text(parameters.open),
            any,
            text(parameters.named),
            gap(parameters.gap),
            text(mark),
            FormPart::Until(parameters.close.to_owned()),
            text(parameters.after),
        ]);
        return FormPart::Repeat(Box::new(one));
    };
    let one = |(name, schema, required): (&str, &Value, bool)| {
        let says = |mark: &&ValueMark, text| mark.is_text.is_none_or(|is_text| is_text == text);
        let value = |is_text: bool| {
            let mark = parameters.values.iter().find(|mark| says(mark, is_text));
            let mark = mark.map_or("", |mark| mark.text);
            let close = match parameters.lines {
                true => format!("\n{}", parameters.close),
                false => parameters.close.to_owned(),
            };
            let value = match is_text {
                true => text_until(schema, &close),
                false => all([alone(schema, held.tool), FormPart::Text(close)]),
            };
            all([text(mark), value])
        };
        let value = match is_text(held.tool, name) {
            Some(is_text) => value(is_text),
            // the mark says which it is, or it is read as either
            None if parameters.values.len() > 1 => one_of(vec![value(true), value(false)]),
            None => value(true),
        };
        let part = all([key(name), text(parameters.gap), value, text(parameters.after)]);
        if required { part } else { FormPart::Maybe(Box::new(part)) }
    };
    FormPart::All(declared.into_iter().map(one).collect())
}

/// Keys and values with something between them, in the order of the keys where that is how they are written.
fn pairs(
    held: &HeldTool<'_>,
    between: &str,
    key: impl Fn(&str) -> FormPart,
    value: &dyn Fn(&str, &Value) -> FormPart,
) -> FormPart {
    let declared = declared(held).unwrap_or_default();
    let each: Vec<(FormPart, bool)> = declared
        .into_iter()
        .map(|(name, schema, required)| (all([key(name), value(name, schema)]), required))
        .collect();
    separated(each, between)
}

/// Parts in order, of which only the required ones must be there, with a text between each two that are.
///
/// What may follow a part is a rule of its own for each position, so that the form grows with the number of parts and not with
/// its square: `after[i]` is `(between part[i])? after[i + 1]`, and the whole is `part[i] after[i + 1]` for each `i` that may come
/// first.
fn separated(each: Vec<(FormPart, bool)>, between: &str) -> FormPart {
    let mut after = text("");
    let mut whole = vec![text("")];
    for (part, required) in each.into_iter().rev() {
        let part = shared(part);
        if required {
            whole.clear();
        }
        whole.push(all([part.clone(), after.clone()]));
        let next = all([text(between), part]);
        let next = if required { next } else { FormPart::Maybe(Box::new(next)) };
        after = shared(all([next, after]));
    }
    one_of(whole)
}

/// A value as Python has it: JSON, but for truth, and texts may stand between single quotes.
fn python(schema: &Value) -> FormPart {
    let bounds = ["pattern", "format", "minLength", "maxLength", "enum", "const"];
    let free = !bounds.iter().any(|key| schema.get(key).is_some());
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => one_of(vec![text("True"), text("False")]),
        Some("string") if free => one_of(vec![
            FormPart::Json(schema.to_string()),
            FormPart::Regex(r"'([^'\\\x00-\x1f]|\\['\\nrt])*'".to_owned()),
        ]),
        _ => FormPart::Json(schema.to_string()),
    }
}

/// A value with texts between quotes of its own.
fn braces(schema: &Value, tool: &Tool, quote: &str, depth: usize) -> FormPart {
    let quoted = |word: &str| FormPart::Text(format!("{quote}{word}{quote}"));
    let any_text = || all([text(quote), FormPart::Until(quote.to_owned())]);
    let any_value = || {
        let plain = json!({ "type": ["number", "boolean", "null"] });
        one_of(vec![any_text(), FormPart::Json(plain.to_string())])
    };
    let kind = schema.get("type").and_then(Value::as_str);
    let inner = |schema: &Value| braces(schema, tool, quote, depth + 1);
    if let Some(texts) = listed(schema) {
        return one_of(texts.into_iter().map(quoted).collect());
    }
    match kind {
        Some("string") => any_text(),
        Some("integer" | "number" | "boolean" | "null") => alone(schema, tool),
        Some("array") if depth < DEPTH => {
            let item = inner(schema.get("items").unwrap_or(&Value::Null));
            all([text("["), any_number(item), text("]")])
        }
        Some("object") if depth < DEPTH => {
            let none = Map::new();
            let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
            if properties.len() > PARAMETERS {
                let pair = all([any_text(), text(":"), any_value()]);
                return all([text("{"), any_number(pair), text("}")]);
            }
            let each: Vec<_> = properties
                .iter()
                .map(|(key, value)| {
                    let required = schema.as_object().is_some_and(|schema| requires(schema, key));
                    (all([quoted(key), text(":"), inner(value)]), required)
                })
                .collect();
            all([text("{"), separated(each, ","), text("}")])
        }
        _ => any_value(),
    }
}

/// This part any number of times, with commas between.
fn any_number(part: FormPart) -> FormPart {
    let part = shared(part);
    let more = FormPart::Repeat(Box::new(all([text(","), part.clone()])));
    FormPart::Maybe(Box::new(all([part, more])))
}

/// Parameters as elements.
fn elements(held: &HeldTool<'_>, mark: &str) -> FormPart {
    let Some(declared) = declared(held) else { return text("") };
    let one = |(name, schema, required): (&str, &Value, bool)| {
        let close = format!("{mark}</{name}>");
        let value = match is_text(held.tool, name) {
            Some(false) if is_plain(held.tool, name) => {
                all([alone(schema, held.tool), FormPart::Text(close)])
            }
            Some(true) => text_until(schema, &close),
            _ => FormPart::Until(close),
        };
        let part = all([FormPart::Text(format!("{mark}<{name}>")), value]);
        if required { part } else { FormPart::Maybe(Box::new(part)) }
    };
    FormPart::All(declared.into_iter().map(one).collect())
}

/// Whether a parameter is a number, or true or false.
fn is_plain(tool: &Tool, key: &str) -> bool {
    let types = tool.types(key).unwrap_or_default();
    types.iter().all(|name| ["integer", "number", "boolean"].contains(&name.as_str()))
}

fn text(text: &str) -> FormPart {
    FormPart::Text(text.to_owned())
}

/// A part that stands in several places.
fn shared(part: FormPart) -> FormPart {
    FormPart::Shared(Arc::new(part))
}

/// White space that a model may leave out.
fn gap(space: &str) -> FormPart {
    if space.is_empty() { text("") } else { one_of(vec![text(space), text("")]) }
}

fn all<const N: usize>(parts: [FormPart; N]) -> FormPart {
    FormPart::All(parts.into())
}

fn one_of(mut parts: Vec<FormPart>) -> FormPart {
    if parts.len() == 1 { parts.remove(0) } else { FormPart::OneOf(parts) }
}
