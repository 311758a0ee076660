//! Qwen3-Coder, and Seed-OSS with another tag around it: a function and its parameters as tags. Values that are no text
//! are JSON, as the tool's schema says.

use crate::{CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, ValueMark};

pub(super) static FAMILY: CallFamily = CallFamily {
    name: "qwen-coder",
    marks: &[&["<tool_call>", "<parameter="]],
    syntaxes: &[CallSyntax {
        // the outer tag is forgotten at times
        opens: &["<tool_call>", "<function="],
        gap: "\n",
        calls: Calls::Marked(Marked {
            arguments: MarkedArguments::Parameters(CallParameters {
                lines: true,
                gap: "\n",
                ..PARAMETERS
            }),
            ..FUNCTION
        }),
        close: "</tool_call>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        "<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    ],
    ..CallFamily::PLAIN
};

pub(super) static SEED: CallFamily = CallFamily {
    name: "seed",
    marks: &[&["<seed:tool_call>"]],
    syntaxes: &[CallSyntax {
        opens: &["<seed:tool_call>"],
        gap: "\n",
        calls: Calls::Marked(FUNCTION),
        close: "</seed:tool_call>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Zürich</parameter>\n<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
    ],
    ..CallFamily::PLAIN
};

const FUNCTION: Marked = Marked {
    open: "<function=",
    named: ">",
    arguments: MarkedArguments::Parameters(PARAMETERS),
    closes: &["</function>"],
    ..Marked::PLAIN
};

const PARAMETERS: CallParameters = CallParameters {
    first: "\n",
    open: "<parameter=",
    named: ">",
    gap: "",
    values: &[ValueMark { text: "", is_text: None }],
    close: "</parameter>",
    lines: false,
    after: "\n",
};
