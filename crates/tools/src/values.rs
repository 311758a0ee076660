//! Values as families write them, as JSON.

use serde_json::{Map, Value};

/// Values within each other.
const DEPTH: usize = 64;

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A parameter's text as JSON: as its types say, and as a text where it is nothing else. `None`: it may be anything.
pub fn of_text(text: &str, types: Option<&[String]>) -> String {
    let may = |name: &str| types.is_none_or(|types| types.iter().any(|t| t == name));
    let word = text.trim();
    // as Python has them
    let word = match word {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        word => word,
    };
    let fits = match serde_json::from_str::<Value>(word) {
        Ok(Value::Null) => may("null"),
        Ok(Value::Bool(_)) => may("boolean"),
        Ok(Value::Number(_)) => may("number") || may("integer"),
        Ok(Value::Array(_)) => may("array"),
        Ok(Value::Object(_)) => may("object"),
        // a text in quotes where it should have none
        Ok(Value::String(_)) => types.is_some_and(|types| !types.iter().any(|t| t == "string")),
        Err(_) => false,
    };
    if fits { word.to_owned() } else { quoted(text) }
}

/// `(key='text', other=2)` as a JSON object; `None` for anything else.
pub fn of_python(text: &str) -> Option<String> {
    let mut reader = Reader { rest: text, quote: None };
    reader.expect("(")?;
    let map = reader.pairs(")", "=", 0)?;
    (reader.rest.is_empty()).then(|| Value::Object(map).to_string())
}

/// `{key:"text",other:2}` as a JSON object, with texts between these quotes.
pub fn of_braces(text: &str, quote: &str) -> Option<String> {
    let mut reader = Reader { rest: text, quote: Some(quote) };
    let value = reader.value(0)?;
    (reader.rest.is_empty() && value.is_object()).then(|| value.to_string())
}

/// Reads values of Python, of JSON, and of braces.
struct Reader<'t> {
    rest: &'t str,
    /// What texts stand between; `None`: as Python has them.
    quote: Option<&'t str>,
}

impl<'t> Reader<'t> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, mark: &str) -> bool {
        self.space();
        let after = self.rest.strip_prefix(mark);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expect(&mut self, mark: &str) -> Option<()> {
        self.take(mark).then_some(())
    }

    /// Keys and values, up to a closing bracket.
    fn pairs(&mut self, close: &str, is: &str, depth: usize) -> Option<Map<String, Value>> {
        let mut map = Map::new();
        while !self.take(close) {
            if !map.is_empty() {
                self.expect(",")?;
                // a comma may stand behind the last one
                if self.take(close) {
                    break;
                }
            }
            let key = self.key(is)?;
            self.expect(is)?;
            let value = self.value(depth + 1)?;
            if map.insert(key, value).is_some() {
                return None;
            }
        }
        Some(map)
    }

    fn key(&mut self, is: &str) -> Option<String> {
        self.space();
        if let Some(text) = self.text() {
            return text;
        }
        let end = self.rest.find(is)?;
        let key = self.rest[..end].trim();
        let plain = |c: char| !c.is_whitespace() && !"{}[](),'\"".contains(c);
        self.rest = &self.rest[end..];
        (!key.is_empty() && key.chars().all(plain)).then(|| key.to_owned())
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        if depth > DEPTH {
            return None;
        }
        if let Some(text) = self.text() {
            return text.map(Value::from);
        }
        if self.take("{") {
            return self.pairs("}", ":", depth).map(Value::Object);
        }
        for (open, close) in [("[", "]"), ("(", ")")] {
            if self.take(open) {
                return self.items(close, depth).map(Value::Array);
            }
        }
        let end = self.rest.find([',', '}', ']', ')', ' ', '\n']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::Null),
            word => serde_json::from_str(word).ok(),
        }
    }

    fn items(&mut self, close: &str, depth: usize) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        while !self.take(close) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.take(close) {
                    break;
                }
            }
            items.push(self.value(depth + 1)?);
        }
        Some(items)
    }

    /// A text between quotes, if one begins here; inside, `None` for one that does not end.
    fn text(&mut self) -> Option<Option<String>> {
        if let Some(quote) = self.quote {
            let inner = self.rest.strip_prefix(quote)?;
            let text = inner.split_once(quote);
            self.rest = text.map_or("", |(_, after)| after);
            return Some(text.map(|(text, _)| text.to_owned()));
        }
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        self.rest = &self.rest[1..];
        Some(self.escaped(quote))
    }

    /// A text of Python, behind its first quote.
    fn escaped(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[at + 1..];
                return Some(text);
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let (_, escape) = chars.next()?;
            match escape {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                '\\' | '\'' | '"' | '/' => text.push(escape),
                '\n' => {}
                'x' => text.push(number(&mut chars, 2)?),
                'u' => text.push(number(&mut chars, 4)?),
                'U' => text.push(number(&mut chars, 8)?),
                // Python leaves the others as they are
                other => text.extend(['\\', other]),
            }
        }
        None
    }
}

/// The character of so many hexadecimal digits.
fn number(chars: &mut std::str::CharIndices<'_>, digits: usize) -> Option<char> {
    let mut value = 0;
    for _ in 0..digits {
        value = value * 16 + chars.next()?.1.to_digit(16)?;
    }
    char::from_u32(value)
}

/// Elements of XML as a JSON object: their tags follow a mark, values are text or elements in turn, of which those called
/// `item` make a list. `types`: those of the outermost ones.
pub fn of_elements(
    text: &str,
    mark: &str,
    types: &dyn Fn(&str) -> Option<Vec<String>>,
) -> Option<String> {
    let mut rest = text;
    let children = elements(&mut rest, mark, 0)?;
    rest.trim().is_empty().then_some(())?;
    let mut map = Map::new();
    for (key, element) in children {
        let types = types(&key);
        let value = element.into_json(types.as_deref());
        if map.insert(key, value).is_some() {
            return None;
        }
    }
    Some(Value::Object(map).to_string())
}

enum Element {
    Text(String),
    Children(Vec<(String, Element)>),
}

impl Element {
    fn into_json(self, types: Option<&[String]>) -> Value {
        match self {
            Element::Text(text) => {
                let json = of_text(&text, types);
                serde_json::from_str(&json).unwrap_or(Value::String(text))
            }
            Element::Children(children) if children.iter().all(|(key, _)| key == "item") => {
                children.into_iter().map(|(_, element)| element.into_json(None)).collect()
            }
            Element::Children(children) => children
                .into_iter()
                .map(|(key, element)| (key, element.into_json(None)))
                .collect::<Map<_, _>>()
                .into(),
        }
    }
}

/// Elements one after the other.
fn elements(rest: &mut &str, mark: &str, depth: usize) -> Option<Vec<(String, Element)>> {
    let mut all = Vec::new();
    while let Some(tag) = rest.trim_start().strip_prefix(mark).and_then(|tag| tag.strip_prefix('<'))
    {
        if tag.starts_with('/') {
            break;
        }
        if depth > DEPTH {
            return None;
        }
        let (key, after) = tag.split_once('>')?;
        *rest = after;
        let close = format!("{mark}</{key}>");
        let begins = rest.trim_start().strip_prefix(mark).is_some_and(|tag| !tag.starts_with("</"));
        let element = if begins {
            Element::Children(elements(rest, mark, depth + 1)?)
        } else {
            let end = rest.find(mark)?;
            let text = rest[..end].to_owned();
            *rest = &rest[end..];
            Element::Text(text)
        };
        *rest = rest.trim_start().strip_prefix(close.as_str())?;
        all.push((key.to_owned(), element));
    }
    Some(all)
}
