//! Functionary 3.1: JSON in a tag that names the function.

use crate::{CallFamily, CallSyntax, Calls, Marked};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "functionary",
    marks: &[&["<function=", "</function>", "example_function_name"]],
    syntaxes: &[CallSyntax {
        opens: &["<function="],
        calls: Calls::Marked(Marked { named: ">", closes: &["</function>"], ..Marked::PLAIN }),
        ..CallSyntax::PLAIN
    }],
    examples: &["<function=get_weather>{\"city\": \"Zürich\", \"days\": 2}</function>"],
    ..CallFamily::PLAIN
};
