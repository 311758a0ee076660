//! DeepSeek up to V3.1: control tokens around a name and JSON; R1 and V3 put the JSON in a block of code.

use crate::{CallFamily, CallSyntax, Calls, Marked};

pub(super) static V3_1: CallFamily = CallFamily {
    name: "deepseek-v3.1",
    marks: &[&[
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>'",
    ]],
    syntaxes: &[CallSyntax {
        calls: Calls::Marked(Marked {
            prefix: "",
            named: "<｜tool▁sep｜>",
            closes: &["<｜tool▁call▁end｜>"],
            ..CALL
        }),
        ..CALLS
    }],
    examples: &[
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zürich\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ],
    ..CallFamily::PLAIN
};

pub(super) static R1: CallFamily = CallFamily {
    name: "deepseek-r1",
    marks: &[
        &["<｜tool▁calls▁begin｜>"],
        &["<｜tool▁call▁begin｜>"],
        &["<｜tool▁outputs▁begin｜>"],
    ],
    syntaxes: &[CallSyntax { calls: Calls::Marked(CALL), between: Some("\n"), ..CALLS }],
    examples: &[
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Zürich\", \"days\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zürich\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ],
    ..CallFamily::PLAIN
};

const CALLS: CallSyntax = CallSyntax {
    opens: &["<｜tool▁calls▁begin｜>"],
    between: Some(""),
    close: "<｜tool▁calls▁end｜>",
    ..CallSyntax::PLAIN
};

const CALL: Marked = Marked {
    open: "<｜tool▁call▁begin｜>",
    prefix: "function<｜tool▁sep｜>",
    named: "\n```json\n",
    closes: &["\n```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"],
    ..Marked::PLAIN
};
