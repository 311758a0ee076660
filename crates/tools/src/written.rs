//! Text of a call in the syntax of a family: for the example in the system prompt, and to find the syntax that a template writes.

use tokenizer::TrialCall;

use crate::family::{CallParameters, CallSyntax, Calls, Marked, MarkedArguments};

/// An argument of a call.
pub(crate) struct WrittenArgument {
    pub(crate) key: String,
    /// Value for syntaxes in which values are texts between marks.
    pub(crate) text: String,
    /// Value for syntaxes in which values are JSON.
    pub(crate) json: String,
}

/// Text of a call up to the end of its arguments, and the text that closes it.
pub(crate) struct WrittenCall {
    pub(crate) head: String,
    pub(crate) close: String,
}

impl WrittenCall {
    /// Writes a call of the tool with this name, in this syntax.
    pub(crate) fn new(
        syntax: &CallSyntax,
        name: &str,
        arguments: &[WrittenArgument],
    ) -> WrittenCall {
        let opens = syntax.opens.first().copied().unwrap_or_default();
        let (call, mut close) = match &syntax.calls {
            Calls::Objects { open, arguments: key, list, .. } => {
                let open = open.replace('#', "0");
                let call = format!("{}{open}{name}\", \"{key}\": {}", list.0, json(arguments));
                (call, format!("}}{}", list.1))
            }
            Calls::Keyed => (format!("[{{\"{name}\": {}", json(arguments)), "}]".to_owned()),
            Calls::Python => {
                let pair = |a: &WrittenArgument| format!("{}={}", a.key, a.json);
                (format!("[{name}({}", joined(arguments, ", ", pair)), ")]".to_owned())
            }
            Calls::Marked(marked) => {
                let named = marked.named.replace('#', "0").replace('@', TrialCall::ID);
                // the mark that opens all calls may be the one that opens the first call
                let open = if syntax.opens.contains(&marked.open) { "" } else { marked.open };
                let prefix = marked.prefix;
                let close = marked.closes.first().copied().unwrap_or_default();
                let arguments = marked_arguments(marked, arguments);
                (format!("{open}{prefix}{name}{named}{arguments}"), close.to_owned())
            }
        };
        close += syntax.gap;
        close += syntax.close;
        WrittenCall { head: format!("{opens}{}{call}", syntax.gap), close }
    }
}

fn marked_arguments(marked: &Marked, arguments: &[WrittenArgument]) -> String {
    match &marked.arguments {
        MarkedArguments::Json => json(arguments),
        MarkedArguments::Parameters(parameters) => {
            let all = joined(arguments, "", |a| parameter(parameters, a));
            format!("{}{all}", parameters.first)
        }
        MarkedArguments::Braces { quote } => {
            let pair = |a: &WrittenArgument| format!("{}:{quote}{}{quote}", a.key, a.text);
            format!("{{{}}}", joined(arguments, ",", pair))
        }
        MarkedArguments::Elements { mark } => {
            joined(arguments, "", |a| format!("{mark}<{0}>{1}{mark}</{0}>", a.key, a.text))
        }
    }
}

fn parameter(parameters: &CallParameters, argument: &WrittenArgument) -> String {
    let CallParameters { open, named, gap, close, after, .. } = parameters;
    let mark = parameters.values.first().map_or("", |value| value.text);
    let end = if parameters.lines { "\n" } else { "" };
    format!("{open}{}{named}{gap}{mark}{}{end}{close}{after}", argument.key, argument.text)
}

fn json(arguments: &[WrittenArgument]) -> String {
    format!("{{{}}}", joined(arguments, ", ", |a| format!("\"{}\": {}", a.key, a.json)))
}

fn joined(
    arguments: &[WrittenArgument],
    between: &str,
    one: impl Fn(&WrittenArgument) -> String,
) -> String {
    arguments.iter().map(one).collect::<Vec<_>>().join(between)
}
