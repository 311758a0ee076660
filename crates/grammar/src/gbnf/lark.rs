//! Writing Lark.

use std::collections::HashSet;

use super::{Expr, ROOT, Rules};

/// The rules as Lark: terminals `T3` where they are `regular`, else rules `r3`.
pub(super) fn write(rules: &Rules, regular: &HashSet<&str>) -> String {
    let writer = Writer { rules, regular };
    let mut out = format!("start: {}\n", writer.name(ROOT));
    for (name, expr) in &rules.list {
        out.push_str(&format!("{}: {}\n", writer.name(name), writer.alternatives(expr)));
    }
    out
}

struct Writer<'r> {
    rules: &'r Rules,
    regular: &'r HashSet<&'r str>,
}

impl Writer<'_> {
    fn name(&self, name: &str) -> String {
        let letter = if self.regular.contains(name) { 'T' } else { 'r' };
        format!("{letter}{}", self.rules.places[name])
    }

    fn alternatives(&self, expr: &Expr) -> String {
        let Expr::Alt(parts) = expr else { return self.sequence(expr) };
        // nothing is no alternative in Lark
        let some: Vec<&Expr> = parts.iter().filter(|part| !is_empty(part)).collect();
        let text = some.iter().map(|part| self.sequence(part)).collect::<Vec<_>>().join(" | ");
        match (some.len() < parts.len(), some.is_empty()) {
            (_, true) => "\"\"".to_owned(),
            (true, false) => format!("({text})?"),
            (false, false) => text,
        }
    }

    fn sequence(&self, expr: &Expr) -> String {
        let Expr::Seq(parts) = expr else { return self.one(expr) };
        let some = parts.iter().filter(|part| !is_empty(part));
        let text = some.map(|part| self.one(part)).collect::<Vec<_>>().join(" ");
        if text.is_empty() { "\"\"".to_owned() } else { text }
    }

    fn one(&self, expr: &Expr) -> String {
        match expr {
            Expr::Literal(text) => quoted(text),
            Expr::Class { negated, ranges } => class(*negated, ranges),
            Expr::Rule(name) => self.name(name),
            Expr::Seq(_) | Expr::Alt(_) => format!("({})", self.alternatives(expr)),
            Expr::Repeat(inner, least, most) => {
                let one = match **inner {
                    Expr::Repeat(..) => format!("({})", self.one(inner)),
                    _ => self.one(inner),
                };
                match (least, most) {
                    (0, None) => format!("{one}*"),
                    (1, None) => format!("{one}+"),
                    (0, Some(1)) => format!("{one}?"),
                    (least, None) => format!("{one}{{{least},}}"),
                    (least, Some(most)) if least == most => format!("{one}{{{least}}}"),
                    (least, Some(most)) => format!("{one}{{{least},{most}}}"),
                }
            }
        }
    }
}

fn is_empty(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(text) => text.is_empty(),
        Expr::Seq(parts) | Expr::Alt(parts) => parts.iter().all(is_empty),
        Expr::Repeat(inner, _, most) => *most == Some(0) || is_empty(inner),
        Expr::Class { .. } | Expr::Rule(_) => false,
    }
}

/// As a JSON string, which Lark reads.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn class(negated: bool, ranges: &[(char, char)]) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '_' || c == ' ' {
        true => c.to_string(),
        false => format!("\\x{{{:x}}}", u32::from(c)),
    };
    let range = |&(first, last): &(char, char)| match first == last {
        true => plain(first),
        false => format!("{}-{}", plain(first), plain(last)),
    };
    let inside: String = ranges.iter().map(range).collect();
    match (negated, ranges.is_empty()) {
        (true, true) => "/[\\x{0}-\\x{10ffff}]/".to_owned(),
        (true, false) => format!("/[^{inside}]/"),
        (false, _) => format!("/[{inside}]/"),
    }
}
