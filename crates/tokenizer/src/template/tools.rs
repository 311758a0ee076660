//! What a template does with tools, found by trying: templates write calls in the words of their family, some want
//! arguments as a map and some as text, some know no calls at all.

use super::{ChatTemplate, Message, RenderOptions, ToolCall, ToolDeclarations};

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

/// Tool call in trial renderings. No template contains its strings.
#[derive(Clone, Copy, Debug)]
pub struct TrialCall;

impl TrialCall {
    /// Id of the call.
    pub const ID: &str = "call00000";
    /// Name of the tool.
    pub const NAME: &str = "probed_tool";
    /// Name of the only argument.
    pub const KEY: &str = "probed_key";
    /// Value of the argument, a string.
    pub const VALUE: &str = "probed value";

    fn call() -> ToolCall {
        ToolCall {
            id: TrialCall::ID.into(),
            name: NAME.into(),
            arguments: format!("{{\"{KEY}\": \"{VALUE}\"}}"),
        }
    }

    /// Returns the prompt of a conversation that ends with the call, or an empty text if the template rejects it.
    pub(super) fn prompt(template: &ChatTemplate) -> String {
        let messages = [Message::new("user", "?"), calling(TrialCall::call())];
        template.render_text(&messages, &RenderOptions::default(), None).unwrap_or_default()
    }
}

/// What nothing else says.
const NAME: &str = TrialCall::NAME;
const KEY: &str = TrialCall::KEY;
const VALUE: &str = TrialCall::VALUE;
const RESULT: &str = "probed result";

fn calling(call: ToolCall) -> Message {
    Message { tool_calls: vec![call], ..Message::new("assistant", "") }
}

impl ToolStyle {
    /// What a template knows nothing of.
    const NONE: ToolStyle =
        ToolStyle { declares: false, writes_calls: false, writes_results: false, fits: FORMS[1] };

    /// Try a template.
    pub(super) fn of(template: &ChatTemplate) -> ToolStyle {
        let call = TrialCall::call();
        let result = Message::result(&call, RESULT);
        let messages = [Message::new("user", "?"), calling(call), result];
        let declared = format!(
            "[{{\"type\": \"function\", \"function\": {{\"name\": \"{NAME}\", \"description\": \"?\", \"parameters\": \
             {{\"type\": \"object\", \"properties\": {{}}}}}}}}]"
        );
        let tools = ToolDeclarations::from_json(&declared).ok();
        let prompt = |messages: &[Message], tools: Option<&ToolDeclarations>, style: ToolStyle| {
            let options =
                RenderOptions { tools, add_generation_prompt: true, ..Default::default() };
            template.render_text(messages, &options, Some(&style))
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
