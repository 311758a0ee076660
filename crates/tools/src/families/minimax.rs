//! MiniMax: M2 writes functions and parameters as tags, M3 parameters as elements in which values are elements in turn.
//! M1 is in `lists.rs`.

use crate::{CallFamily, CallParameters, CallSyntax, Calls, Marked, MarkedArguments, ValueMark};

pub(super) static M2: CallFamily = CallFamily {
    name: "minimax-m2",
    marks: &[&["<minimax:tool_call>"]],
    syntaxes: &[CallSyntax {
        opens: &["<minimax:tool_call>"],
        gap: "\n",
        calls: Calls::Marked(Marked {
            open: "<invoke name=\"",
            named: "\">",
            arguments: MarkedArguments::Parameters(CallParameters {
                first: "\n",
                open: "<parameter name=\"",
                named: "\">",
                gap: "",
                values: &[ValueMark { text: "", is_text: None }],
                close: "</parameter>",
                lines: false,
                after: "\n",
            }),
            closes: &["</invoke>"],
            ..Marked::PLAIN
        }),
        between: Some("\n"),
        close: "</minimax:tool_call>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Zürich</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n</minimax:tool_call>",
    ],
    ..CallFamily::PLAIN
};

pub(super) static M3: CallFamily = CallFamily {
    name: "minimax-m3",
    marks: &[&["]<]minimax[>["]],
    syntaxes: &[CallSyntax {
        opens: &["]<]minimax[>[<tool_call>"],
        gap: "\n",
        calls: Calls::Marked(Marked {
            open: "]<]minimax[>[<invoke name=\"",
            named: "\">",
            arguments: MarkedArguments::Elements { mark: "]<]minimax[>[" },
            closes: &["]<]minimax[>[</invoke>"],
            ..Marked::PLAIN
        }),
        between: Some("\n"),
        close: "]<]minimax[>[</tool_call>",
        ..CallSyntax::PLAIN
    }],
    examples: &[
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>Zürich]<]minimax[>[</city>]<]minimax[>[<days>2]<]minimax[>[</days>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ],
    ..CallFamily::PLAIN
};
