//! The list of tools: OpenAI's form of it, or bare functions, read and checked.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{Result, ToolError};

/// Most tools of a list.
const TOOLS: usize = 512;
/// Longest list, in bytes.
const BYTES: usize = 4 << 20;
/// Longest name, in characters.
const NAME: usize = 64;

/// A tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name: letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// The schema of its arguments: always one of an object.
    pub parameters: Map<String, Value>,
    /// Its arguments must be held to the schema, or it is refused.
    pub strict: bool,
    /// Index in the list of the request.
    index: usize,
    /// Path of the schema in what the list was read from: `tools[0].function.parameters`.
    pub place: String,
}

/// Tools with different names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolList {
    tools: Vec<Tool>,
    places: HashMap<String, usize>,
    declared: Vec<Value>,
}

impl ToolList {
    /// Read a list: items are `{"type": "function", "function": {"name", "description", "parameters"}}`, or the function
    /// alone.
    ///
    /// # Errors
    /// [`ToolError`] names what is wrong and where.
    pub fn read(text: &str) -> Result<ToolList> {
        check("bytes", BYTES, text.len())?;
        let value = serde_json::from_str(text)
            .map_err(|error| ToolError::Json { problem: error.to_string() })?;
        ToolList::from_json(value)
    }

    /// The same, of JSON that was read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_json(value: Value) -> Result<ToolList> {
        let Value::Array(items) = value else {
            return Err(malformed("tools", "a list of tools", &value));
        };
        ToolList::from_items(items.into_iter().enumerate().collect())
    }

    /// The same, of tools that each have their index in the list of a request, for errors.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_items(items: Vec<(usize, Value)>) -> Result<ToolList> {
        check("tools", TOOLS, items.len())?;
        let mut list = ToolList::default();
        items.into_iter().try_for_each(|(index, item)| list.add(index, item))?;
        Ok(list)
    }

    /// Adds the tool of this index.
    fn add(&mut self, index: usize, item: Value) -> Result<()> {
        let tool = format!("tools[{index}]");
        let Value::Object(mut outer) = item else {
            return Err(malformed(&tool, "an object", &item));
        };
        let is_nested = outer.get("function").is_some_and(Value::is_object);
        let place = |part: &str| match is_nested {
            true => format!("{tool}.function.{part}"),
            false => format!("{tool}.{part}"),
        };
        let function = match outer.get("type") {
            Some(Value::String(kind)) if kind == "function" => {
                match outer.shift_remove("function") {
                    Some(Value::Object(function)) => function,
                    // the form of OpenAI's newer API
                    None if outer.contains_key("name") => outer,
                    found => {
                        let found = found.unwrap_or_default();
                        return Err(malformed(&format!("{tool}.function"), "an object", &found));
                    }
                }
            }
            None | Some(Value::Null) if outer.contains_key("name") => outer,
            // some clients omit the type, because there is only one
            None | Some(Value::Null) if outer.get("function").is_some_and(Value::is_object) => {
                match outer.shift_remove("function") {
                    Some(Value::Object(function)) => function,
                    _ => Map::new(),
                }
            }
            found => {
                let found = found.cloned().unwrap_or_default();
                return Err(malformed(&format!("{tool}.type"), "\"function\"", &found));
            }
        };
        let name = match function.get("name") {
            Some(Value::String(name)) if is_name(name) => name.clone(),
            found => {
                let expected = "1 to 64 letters, digits, _, - and .";
                let found = found.cloned().unwrap_or_default();
                return Err(malformed(&place("name"), expected, &found));
            }
        };
        if let Some(
            found @ (Value::Array(_) | Value::Object(_) | Value::Number(_) | Value::Bool(_)),
        ) = function.get("description")
        {
            return Err(malformed(&place("description"), "a text", found));
        }
        let names = ["parameters", "input_schema"];
        let given = names.into_iter().find_map(|name| Some((name, function.get(name)?)));
        let (name_of_schema, given) = given.unwrap_or(("parameters", &Value::Null));
        let schema_place = place(name_of_schema);
        let parameters = match given {
            Value::Null => Map::new(),
            Value::Object(schema) => schema.clone(),
            found => return Err(malformed(&schema_place, "a JSON schema of an object", found)),
        };
        let kind = parameters.get("type");
        if let Some(found) = kind.filter(|kind| *kind != "object") {
            return Err(malformed(&format!("{schema_place}.type"), "\"object\"", found));
        }
        if let Some(&first) = self.places.get(&name) {
            let first = self.tools[first].index;
            return Err(ToolError::Twice { place: place("name"), name, first });
        }
        let strict = match function.get("strict") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(strict)) => *strict,
            Some(found) => return Err(malformed(&place("strict"), "true or false", found)),
        };
        self.declare(&name, &function, &parameters);
        self.places.insert(name.clone(), self.tools.len());
        self.tools.push(Tool { name, parameters, strict, index, place: schema_place });
        Ok(())
    }

    /// What templates are told: they read a description and properties without asking whether there are any.
    fn declare(
        &mut self,
        name: &str,
        function: &Map<String, Value>,
        parameters: &Map<String, Value>,
    ) {
        let mut schema = parameters.clone();
        schema.entry("type").or_insert_with(|| "object".into());
        schema.entry("properties").or_insert_with(|| json!({}));
        let description = function.get("description").and_then(Value::as_str).unwrap_or_default();
        let mut declared =
            json!({ "name": name, "description": description, "parameters": schema });
        for (key, value) in function {
            if !["name", "description", "parameters", "input_schema", "type"].contains(&&**key) {
                declared[key] = value.clone();
            }
        }
        self.declared.push(json!({ "type": "function", "function": declared }));
    }

    /// The tools, in their order.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.places.get(name).map(|&at| &self.tools[at])
    }

    /// Each in OpenAI's form.
    pub(crate) fn declared(&self) -> &[Value] {
        &self.declared
    }

    /// The list in OpenAI's form, as JSON.
    pub fn to_json(&self) -> String {
        Value::Array(self.declared.clone()).to_string()
    }
}

impl Tool {
    /// The types that a parameter may have, by JSON schema's names; `None` where the schema leaves that open.
    pub fn types(&self, parameter: &str) -> Option<Vec<String>> {
        let properties = self.parameters.get("properties").and_then(Value::as_object)?;
        let mut all = types(properties.get(parameter)?, &self.parameters, 8, &mut SCHEMAS.clone())?;
        let mut seen = std::collections::HashSet::new();
        all.retain(|name| seen.insert(name.clone()));
        Some(all)
    }
}

/// Characters of names.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME && name.chars().all(is_name_char)
}

/// Schemas that are looked at to find the types of one parameter.
const SCHEMAS: usize = 256;

/// `depth`: references and alternatives that are still followed, one after another; `left`: in all.
fn types(
    schema: &Value,
    root: &Map<String, Value>,
    depth: usize,
    left: &mut usize,
) -> Option<Vec<String>> {
    *left = left.checked_sub(1)?;
    let schema = schema.as_object().filter(|_| depth > 0)?;
    if let Some(kind) = schema.get("type") {
        return match kind {
            Value::String(name) => Some(vec![name.clone()]),
            Value::Array(names) => names.iter().map(|n| n.as_str().map(str::to_owned)).collect(),
            _ => None,
        };
    }
    let name = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if let Some(value) = schema.get("const") {
        return Some(vec![name(value).to_owned()]);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().map(|value| name(value).to_owned()).collect());
    }
    if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
        let path = path.strip_prefix("#/")?;
        let (first, rest) = path.split_once('/').map_or((path, ""), |(first, rest)| (first, rest));
        let first = root.get(&first.replace("~1", "/").replace("~0", "~"))?;
        let target = if rest.is_empty() { first } else { first.pointer(&format!("/{rest}"))? };
        return types(target, root, depth - 1, left);
    }
    let branches = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array)?;
    let each: Option<Vec<_>> = branches.iter().map(|b| types(b, root, depth - 1, left)).collect();
    each.map(|lists| lists.concat())
}

fn check(measure: &'static str, limit: usize, found: usize) -> Result<()> {
    if found <= limit { Ok(()) } else { Err(ToolError::TooLarge { measure, limit, found }) }
}

fn malformed(place: &str, expected: &'static str, found: &Value) -> ToolError {
    let found = match found {
        Value::Null => "nothing".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => {
            let plain = |c: char| if c.is_control() { ' ' } else { c };
            other.to_string().chars().map(plain).take(80).collect()
        }
    };
    ToolError::Malformed { place: place.to_owned(), expected, found }
}
