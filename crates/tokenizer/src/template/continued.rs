//! Prompts that end inside their last message, so that the reply continues its text.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{ChatTemplate, Message, RenderOptions};
use crate::{Result, Span};

/// Marker after the text of the last message while it is rendered. A template may trim white space at the end of a message, but not
/// before this marker. The private-use characters are unlikely to occur in any text.
const END: &str = "\u{F0007}\u{F0DAB}\u{F0007}";

impl ChatTemplate {
    /// Renders the prompt that ends after the text of the last message. If the template loses that text, it renders only the messages
    /// before it, up to the beginning of an answer, and the text is appended.
    pub(super) fn continued(
        &self,
        messages: &[Message],
        options: &RenderOptions<'_>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>> {
        let Some((last, before)) = messages.split_last() else {
            return self.measure(messages, options, cancel).0;
        };
        let mut marked = messages.to_vec();
        if !last.content.contains(END)
            && let Some(message) = marked.last_mut()
        {
            message.content += END;
            let options = RenderOptions { add_generation_prompt: false, ..*options };
            let rendered = self.measure(&marked, &options, cancel).0;
            if let Ok(Some(spans)) = rendered.map(up_to_end) {
                return Ok(spans);
            }
        }
        let options = RenderOptions { add_generation_prompt: true, ..*options };
        let mut spans = self.measure(before, &options, cancel).0?;
        spans.push(Span { text: last.content.clone(), special: false });
        Ok(spans)
    }
}

/// Returns the spans before the last [`END`], or `None` if there is no [`END`].
fn up_to_end(mut spans: Vec<Span>) -> Option<Vec<Span>> {
    let end = |span: &Span| if span.special { None } else { span.text.rfind(END) };
    let (at, end) = (0..spans.len()).rev().find_map(|at| Some((at, end(&spans[at])?)))?;
    spans.truncate(at + 1);
    spans[at].text.truncate(end);
    Some(spans)
}
