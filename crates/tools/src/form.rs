//! The form of replies that call tools, as a family writes calls: names are those of tools, arguments as their schemas say.
//!
//! JSON arguments are held to the whole schema. Where parameters stand one by one, declared ones come in their order,
//! those that are required must come, texts are free and what is JSON is held to its own schema.

use std::sync::Arc;

use grammar::{FormPart, FormText, GrammarError, PartBudget};
use serde_json::{Map, Value, json};

use crate::family::{
    CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, MoreKeys, ValueMark,
};
use crate::list::Tool;

/// Most parameters of a tool that are held to an order.
const PARAMETERS: usize = 64;
/// Values within each other that are written out.
const DEPTH: usize = 6;

/// A tool in a form. `free`: its arguments are any.
#[derive(Clone, Copy)]
pub(crate) struct HeldTool<'t> {
    pub(crate) tool: &'t Tool,
    pub(crate) free: bool,
    /// What the form may still grow to.
    pub(crate) budget: &'t PartBudget,
}

/// Returns the form of calls in this syntax, from their opening mark to the end of the reply. `tools`: each tool, and whether its
/// arguments may be any JSON object.
///
/// # Errors
/// [`GrammarError::TooLarge`] where the schemas make too many parts, or too long ones.
pub(crate) fn parts(
    family: &CallFamily,
    syntax: &CallSyntax,
    tools: &[(&Tool, bool)],
    several: bool,
) -> Result<Vec<FormPart>, GrammarError> {
    let budget = PartBudget::default();
    let each = tools.iter().map(|(tool, free)| HeldTool { tool, free: *free, budget: &budget });
    // one rule for all places of calls
    let call = shared(one_of(each.map(|held| call(syntax, &held)).collect()));
    budget.check()?;
    Ok(blocks(syntax, call, several && !family.single))
}

/// Calls as a syntax has them in a reply, where `call` is any of them.
fn blocks(syntax: &CallSyntax, call: FormPart, several: bool) -> Vec<FormPart> {
    let calls = match (syntax.between, several) {
        (Some(between), true) => {
            let more = FormPart::Repeat(Box::new(all([text(between), call.clone()])));
            all([call.clone(), more])
        }
        _ => call.clone(),
    };
    let (first, last) = match &syntax.calls {
        Calls::Objects { list, .. } => *list,
        Calls::Keyed | Calls::Python => ("[", "]"),
        Calls::Marked(_) => ("", ""),
    };
    let calls = match (&syntax.calls, several) {
        (Calls::Python, true) => {
            let more = FormPart::Repeat(Box::new(all([text(", "), call.clone()])));
            all([text(first), call, more, text(last)])
        }
        _ => all([text(first), calls, text(last)]),
    };
    let marked =
        all([opening(syntax), gap(syntax.gap), calls.clone(), gap(syntax.gap), text(syntax.close)]);
    let block = match syntax.starts.iter().any(|start| matches!(*start, "{" | "[")) {
        true => one_of(vec![marked, calls]),
        false => marked,
    };
    let again = several && syntax.between.is_none() && !matches!(syntax.calls, Calls::Python);
    match again {
        true => {
            vec![block.clone(), FormPart::Repeat(Box::new(all([gap("\n"), block])))]
        }
        false => vec![block],
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
    let name = plain(&held.tool.name);
    let schema = || json_part(&arguments(held), held);
    match &syntax.calls {
        Calls::Objects { open, arguments, more, .. } => {
            let behind = FormPart::Text(format!("\", \"{arguments}\": "));
            let open = match (more, open.strip_prefix('{')) {
                (MoreKeys::Type, Some(rest)) => {
                    let kind = FormPart::Maybe(Box::new(text("\"type\": \"function\", ")));
                    all([text("{"), kind, numbered(rest)])
                }
                _ => numbered(open),
            };
            let id = match more {
                MoreKeys::Id => FormPart::Maybe(Box::new(all([
                    text(", \"id\": \""),
                    FormPart::Regex(ID.to_owned()),
                    text("\""),
                ]))),
                MoreKeys::None | MoreKeys::Type => text(""),
            };
            all([open, name, behind, schema(), id, text("}")])
        }
        Calls::Keyed => all([text("{\""), name, text("\": "), schema(), text("}")]),
        Calls::Python => {
            let value = |_: &str, schema: &Value| python(schema, held);
            let pairs = pairs(held, ", ", |key| all([plain(key), text("=")]), &value);
            all([name, text("("), pairs, text(")")])
        }
        Calls::Marked(marked) => marked_call(marked, held),
    }
}

fn marked_call(marked: &Marked, held: &HeldTool<'_>) -> FormPart {
    let head = FormPart::Text(format!("{}{}", marked.open, marked.prefix));
    let arguments = match &marked.arguments {
        MarkedArguments::Json => json_part(&arguments(held), held),
        MarkedArguments::Parameters(parameters) => {
            all([text(parameters.first), parameters_part(parameters, held)])
        }
        MarkedArguments::Braces { quote } => {
            let value = |_: &str, schema: &Value| braces(schema, held, quote, 0);
            let pairs = pairs(held, ",", |key| all([plain(key), text(":")]), &value);
            all([text("{"), pairs, text("}")])
        }
        MarkedArguments::Elements { mark } => elements(held, mark),
    };
    let close = marked.closes.first().copied().unwrap_or_default();
    all([head, plain(&held.tool.name), named(marked), arguments, text(close)])
}

/// Expression for an id of nine letters and digits.
const ID: &str = "[a-zA-Z0-9]{9}";

/// Returns the form of the text between the name and the arguments.
fn named(marked: &Marked) -> FormPart {
    match marked.named.split_once('@') {
        Some((before, after)) => {
            let id = all([text(before), FormPart::Regex(ID.to_owned())]);
            all([FormPart::Maybe(Box::new(id)), text(after)])
        }
        None => numbered(marked.named),
    }
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

/// JSON of a schema.
fn json_part(schema: &Value, held: &HeldTool<'_>) -> FormPart {
    if held.budget.is_spent() {
        return text("");
    }
    let schema = schema.to_string();
    held.budget.add(1, schema.len());
    FormPart::Json(schema)
}

/// Keys of a tool's schema under which definitions are.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// A parameter's schema, with the definitions that it may refer to.
fn alone(schema: &Value, held: &HeldTool<'_>) -> FormPart {
    if held.budget.is_spent() {
        return text("");
    }
    let root = &held.tool.parameters;
    let mut definitions = reachable(schema, root);
    let mut schema = schema.clone();
    if let Value::Object(schema) = &mut schema {
        for key in DEFINITIONS.into_iter().filter(|key| root.contains_key(*key)) {
            // its own are not what it refers to
            schema.shift_remove(key);
            if let Some(shared) = definitions.shift_remove(key) {
                schema.insert(key.to_owned(), shared);
            }
        }
    }
    json_part(&schema, held)
}

/// The definitions of a tool's schema that a part of it refers to, directly or through others; all where a reference leads elsewhere.
fn reachable(schema: &Value, root: &Map<String, Value>) -> Map<String, Value> {
    let all =
        || DEFINITIONS.into_iter().filter_map(|key| Some((key.to_owned(), root.get(key)?.clone())));
    let mut found = Map::new();
    let mut rest = vec![schema];
    while let Some(value) = rest.pop() {
        let Value::Object(object) = value else {
            rest.extend(value.as_array().into_iter().flatten());
            continue;
        };
        rest.extend(object.values());
        let Some(path) = object.get("$ref").and_then(Value::as_str) else { continue };
        let Some((key, name)) = definition(path) else { return all().collect() };
        let Some(target) = root.get(key).and_then(|all| all.get(&name)) else {
            return all().collect();
        };
        let known = found.entry(key).or_insert_with(|| json!({}));
        if known.get(&name).is_none() {
            known[&name] = target.clone();
            rest.push(target);
        }
    }
    found
}

/// The key and the name of the definition that a reference names, or leads into.
fn definition(path: &str) -> Option<(&'static str, String)> {
    let (key, rest) = path.strip_prefix("#/")?.split_once('/')?;
    let key = DEFINITIONS.into_iter().find(|known| *known == key)?;
    let name = rest.split_once('/').map_or(rest, |(name, _)| name);
    // `%20` is left to those that know all definitions
    (!name.contains('%')).then(|| (key, name.replace("~1", "/").replace("~0", "~")))
}

/// The texts that a schema lists.
fn listed(schema: &Value) -> Option<Vec<&str>> {
    let all = schema.get("enum")?.as_array()?;
    all.iter().map(Value::as_str).collect()
}

/// A text, one of those that its schema lists if it does, and what closes it.
fn text_until(schema: &Value, close: Vec<FormText>, held: &HeldTool<'_>) -> FormPart {
    let Some(words) = listed(schema) else { return FormPart::Until(close) };
    let closed = |word: &str| {
        let size = close.iter().map(|text| match text {
            FormText::Named(text) | FormText::Plain(text) => text.len(),
        });
        held.budget.add(3, word.len() + size.sum::<usize>());
        let close = close.iter().map(|text| match text {
            FormText::Named(text) => FormPart::Text(text.clone()),
            FormText::Plain(text) => FormPart::Plain(text.clone()),
        });
        FormPart::All(std::iter::once(plain(word)).chain(close).collect())
    };
    let may = |_: &&str| !held.budget.is_spent();
    one_of(words.into_iter().take_while(may).map(closed).collect())
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
    let key = |key: &str| all([text(parameters.open), plain(key), text(parameters.named)]);
    let Some(declared) = declared(held) else {
        let any = FormPart::Regex("[A-Za-z0-9_.-]+".to_owned());
        let mark = parameters.values[0].text;
        let one = all([
            text(parameters.open),
            any,
            text(parameters.named),
            gap(parameters.gap),
            text(mark),
            until(parameters.close),
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
                true => text_until(schema, vec![FormText::Named(close)], held),
                false => all([alone(schema, held), FormPart::Text(close)]),
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
fn python(schema: &Value, held: &HeldTool<'_>) -> FormPart {
    let bounds = ["pattern", "format", "minLength", "maxLength", "enum", "const"];
    let free = !bounds.iter().any(|key| schema.get(key).is_some());
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => one_of(vec![text("True"), text("False")]),
        Some("string") if free => one_of(vec![
            alone(schema, held),
            FormPart::Regex(r"'([^'\\\x00-\x1f]|\\['\\nrt])*'".to_owned()),
        ]),
        _ => alone(schema, held),
    }
}

/// A value with texts between quotes of its own.
fn braces(schema: &Value, held: &HeldTool<'_>, quote: &str, depth: usize) -> FormPart {
    if held.budget.is_spent() {
        return text("");
    }
    held.budget.add(4, 0);
    let quoted = |word: &str| {
        held.budget.add(3, word.len());
        all([text(quote), plain(word), text(quote)])
    };
    let any_text = || all([text(quote), until(quote)]);
    let any_value = || {
        let plain = json!({ "type": ["number", "boolean", "null"] });
        one_of(vec![any_text(), FormPart::Json(plain.to_string())])
    };
    let kind = schema.get("type").and_then(Value::as_str);
    let inner = |schema: &Value| braces(schema, held, quote, depth + 1);
    if let Some(texts) = listed(schema) {
        return one_of(texts.into_iter().map(quoted).collect());
    }
    match kind {
        Some("string") => any_text(),
        Some("integer" | "number" | "boolean" | "null") => alone(schema, held),
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
        let (before, behind) = (format!("{mark}</"), ">".to_owned());
        let close = || {
            let name = FormText::Plain(name.to_owned());
            vec![FormText::Named(before.clone()), name, FormText::Named(behind.clone())]
        };
        let value = match is_text(held.tool, name) {
            Some(false) if is_plain(held.tool, name) => {
                all([alone(schema, held), text(&before), plain(name), text(&behind)])
            }
            Some(true) => text_until(schema, close(), held),
            _ => FormPart::Until(close()),
        };
        let part = all([FormPart::Text(format!("{mark}<")), plain(name), text(">"), value]);
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

/// A text from a schema: whatever it says, it names no control token.
fn plain(text: &str) -> FormPart {
    FormPart::Plain(text.to_owned())
}

/// Any text up to a mark, and the mark.
fn until(mark: &str) -> FormPart {
    FormPart::Until(vec![FormText::Named(mark.to_owned())])
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
