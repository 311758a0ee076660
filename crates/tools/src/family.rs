//! How families of models write calls, as descriptions: the parser (`parse/`) and the form of replies are made of them.

use crate::FAMILIES;

/// Models that write calls alike.
#[derive(Debug)]
pub struct CallFamily {
    /// What it is called here.
    pub name: &'static str,
    /// What only templates of the family hold: all texts of one of these lists.
    pub marks: &'static [&'static [&'static str]],
    /// Syntaxes of calls. A reply that must call is constrained to the one that the template writes, or to the first one. The parser
    /// also reads the others.
    pub syntaxes: &'static [CallSyntax],
    /// What is no text where calls are looked for.
    pub drops: &'static [&'static str],
    /// A reply has one call at most.
    pub single: bool,
    /// Replies with calls of a tool `get_weather` with `{"city": "Zürich", "days": 2}`: examples for tests.
    pub examples: &'static [&'static str],
}

/// One way to write calls: what opens them, calls, what closes them.
#[derive(Debug)]
pub struct CallSyntax {
    /// What opens calls wherever it stands; the first is how it is written.
    pub opens: &'static [&'static str],
    /// What opens them where the reply begins.
    pub starts: &'static [&'static str],
    /// What stands between that and the first call where a form is written, white space.
    pub gap: &'static str,
    /// The calls.
    pub calls: Calls,
    /// Between two calls where a form is written; `None`: what opens is written again.
    pub between: Option<&'static str>,
    /// What closes them, after white space; empty: nothing does.
    pub close: &'static str,
}

/// How the calls are written.
#[derive(Debug)]
pub enum Calls {
    /// JSON objects, one or several, or a list of them.
    Objects {
        /// What stands before the name where a form is written; `#` is a number.
        open: &'static str,
        /// The key of the arguments.
        arguments: &'static str,
        /// What stands before and behind them where a form writes a list.
        list: (&'static str, &'static str),
        /// Keys that a model may write before the name or after the arguments.
        more: MoreKeys,
    },
    /// A list of JSON objects with the tool's name as the key of its arguments.
    Keyed,
    /// Names and arguments between marks.
    Marked(Marked),
    /// A list of calls as Python writes them: `[name(key="text", other=2)]`.
    Python,
}

/// Optional keys of a call that is a JSON object, in addition to its name and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreKeys {
    /// No other keys.
    None,
    /// `"type": "function"`, before the name.
    Type,
    /// `"id"`, of nine letters and digits, after the arguments.
    Id,
}

/// A name and arguments between marks.
#[derive(Debug)]
pub struct Marked {
    /// Before each call.
    pub open: &'static str,
    /// Before the name, if it is there.
    pub prefix: &'static str,
    /// Text after the name in a form. `#` is a number; `@` is an id, which is optional together with the text before it.
    pub named: &'static str,
    /// The arguments.
    pub arguments: MarkedArguments,
    /// Behind each call: the first is how it is written.
    pub closes: &'static [&'static str],
    /// Where the model gives the call an id.
    pub id: GivenId,
}

/// The arguments of a marked call.
#[derive(Debug)]
pub enum MarkedArguments {
    /// A JSON object; what stands between the name and it is passed over.
    Json,
    /// Each parameter between marks.
    Parameters(CallParameters),
    /// `{key:value,other:2}` with texts between these quotes.
    Braces {
        /// The quotes.
        quote: &'static str,
    },
    /// Each parameter an element of XML, in which values are elements in turn, all of whose tags follow this mark.
    Elements {
        /// The mark.
        mark: &'static str,
    },
}

/// How parameters are written.
#[derive(Debug)]
pub struct CallParameters {
    /// What stands before the first one where a form is written, white space.
    pub first: &'static str,
    /// Before the key.
    pub open: &'static str,
    /// Behind the key.
    pub named: &'static str,
    /// What stands between that and the value where a form is written, white space.
    pub gap: &'static str,
    /// Before the value: one of these.
    pub values: &'static [ValueMark],
    /// Behind the value.
    pub close: &'static str,
    /// A line break before and behind the value is not part of it.
    pub lines: bool,
    /// What stands behind each parameter where a form is written, white space.
    pub after: &'static str,
}

/// What stands before a value and what it says.
#[derive(Debug)]
pub struct ValueMark {
    /// The mark.
    pub text: &'static str,
    /// Whether the value is text, or else JSON; `None`: the tool's schema says it.
    pub is_text: Option<bool>,
}

/// Where a model gives its calls ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenId {
    /// It gives none.
    None,
    /// All that stands before the arguments is one.
    Head,
    /// Behind this mark, up to the next one.
    Behind(&'static str),
}

impl Calls {
    /// A JSON object with a name and arguments.
    pub(crate) const OBJECTS: Calls = Calls::Objects {
        open: "{\"name\": \"",
        arguments: "arguments",
        list: ("", ""),
        more: MoreKeys::None,
    };

    /// A list of JSON objects with a name and arguments.
    pub(crate) const OBJECT_LIST: Calls = Calls::Objects {
        open: "{\"name\": \"",
        arguments: "arguments",
        list: ("[", "]"),
        more: MoreKeys::None,
    };
}

impl CallSyntax {
    /// For descriptions to differ from.
    pub(crate) const PLAIN: CallSyntax = CallSyntax {
        opens: &[],
        starts: &[],
        gap: "",
        calls: Calls::OBJECTS,
        between: None,
        close: "",
    };
}

impl Marked {
    /// For descriptions to differ from.
    pub(crate) const PLAIN: Marked = Marked {
        open: "",
        prefix: "",
        named: "",
        arguments: MarkedArguments::Json,
        closes: &[],
        id: GivenId::None,
    };
}

impl CallFamily {
    /// For descriptions to differ from.
    pub(crate) const PLAIN: CallFamily = CallFamily {
        name: "",
        marks: &[],
        syntaxes: &[],
        drops: &[],
        single: false,
        examples: &[],
    };

    /// The family of a chat template, by the marks it writes.
    pub fn of_template(source: &str) -> Option<&'static CallFamily> {
        let has = |marks: &&[&str]| marks.iter().all(|mark| source.contains(mark));
        FAMILIES.iter().copied().find(|family| family.marks.iter().any(&has))
    }

    /// The family of this name.
    pub fn of_name(name: &str) -> Option<&'static CallFamily> {
        FAMILIES.iter().copied().find(|family| family.name == name)
    }

    /// Every text in which a control token may stand.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &'static str> {
        let of = |syntax: &'static CallSyntax| {
            let mut texts = [syntax.opens, syntax.starts].concat();
            texts.push(syntax.close);
            if let Calls::Marked(marked) = &syntax.calls {
                texts.extend([marked.open, marked.prefix, marked.named]);
                texts.extend(marked.closes);
                if let GivenId::Behind(mark) = marked.id {
                    texts.push(mark);
                }
                match &marked.arguments {
                    MarkedArguments::Json => {}
                    MarkedArguments::Parameters(p) => {
                        texts.extend([p.open, p.named, p.close]);
                        texts.extend(p.values.iter().map(|value| value.text));
                    }
                    MarkedArguments::Braces { quote } => texts.push(quote),
                    MarkedArguments::Elements { mark } => texts.push(mark),
                }
            }
            texts
        };
        self.syntaxes.iter().flat_map(of).chain(self.drops.iter().copied())
    }
}
