//! What a template does with tools, found by trying: templates write calls in the words of their family, some want
//! arguments as a map and some as text, some know no calls at all.

use std::sync::Arc;

use super::{ChatTemplate, Message, RenderOptions, ToolCall, ToolDeclarations};
use crate::Span;

/// What a template does with tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolStyle {
    /// It tells the model of tools.
    pub declares: bool,
    /// It writes what an assistant called.
    pub writes_calls: bool,
    /// It writes what a tool answered.
    pub writes_results: bool,
    pub(super) fits: CallForm,
}

/// How a template is given calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallForm {
    /// Arguments are a map, else the text of one.
    pub(super) map: bool,
    /// Where nothing is said beside a call the content is nothing, else an empty text.
    pub(super) nothing: bool,
}

const FORMS: [CallForm; 4] = [
    CallForm { map: true, nothing: true },
    CallForm { map: true, nothing: false },
    CallForm { map: false, nothing: true },
    CallForm { map: false, nothing: false },
];

/// What nothing else says.
const NAME: &str = "probed_tool";
const KEY: &str = "probed_key";
const VALUE: &str = "probed value";
const RESULT: &str = "probed result";

impl ToolStyle {
    /// What a template knows nothing of.
    const NONE: ToolStyle =
        ToolStyle { declares: false, writes_calls: false, writes_results: false, fits: FORMS[1] };

    /// Try a template.
    pub(super) fn of(template: &ChatTemplate) -> ToolStyle {
        let call = ToolCall {
            id: "call00000".into(),
            name: NAME.into(),
            arguments: format!("{{\"{KEY}\": \"{VALUE}\"}}"),
        };
        let messages = [
            Message::new("user", "?"),
            Message { tool_calls: vec![call.clone()], ..Message::new("assistant", "") },
            Message::result(&call, RESULT),
        ];
        let declared = format!(
            "[{{\"type\": \"function\", \"function\": {{\"name\": \"{NAME}\", \"description\": \"?\", \"parameters\": \
             {{\"type\": \"object\", \"properties\": {{}}}}}}}}]"
        );
        let tools = ToolDeclarations::from_json(&declared).ok();
        let prompt = |messages: &[Message], tools: Option<&ToolDeclarations>, style: ToolStyle| {
            let options =
                RenderOptions { tools, add_generation_prompt: true, ..Default::default() };
            let spans = template.render_styled(messages, &options, &Arc::default(), &style);
            spans.ok().map(|spans| joined(&spans))
        };
        let declares = prompt(&messages[..1], tools.as_ref(), ToolStyle::NONE);
        let declares = declares.is_some_and(|text| text.contains(NAME));
        let all = |fits| ToolStyle { declares, writes_calls: true, writes_results: true, fits };
        let tools = tools.as_ref().filter(|_| declares);
        // a tool's message may be refused where calls are not
        for (n, results) in [(3, true), (2, false)] {
            for fits in FORMS {
                let text = prompt(&messages[..n], tools, all(fits)).filter(|text| is_call(text));
                // some go another way without tools
                let text = text.filter(|_| prompt(&messages[..n], None, all(fits)).is_some());
                if let Some(text) = text {
                    let writes_results = results && text.contains(RESULT);
                    return ToolStyle { writes_results, ..all(fits) };
                }
            }
        }
        ToolStyle { declares, ..ToolStyle::NONE }
    }
}

/// Whether a prompt holds the call, and neither Python's words for what it was given nor JSON within JSON.
fn is_call(text: &str) -> bool {
    let odd = [format!("'{KEY}'"), format!("\\\"{KEY}\\\""), "None".to_owned()];
    [NAME, KEY, VALUE].iter().all(|word| text.contains(word))
        && !odd.iter().any(|word| text.contains(word))
}

fn joined(spans: &[Span]) -> String {
    spans.iter().map(|span| span.text.as_str()).collect()
}
