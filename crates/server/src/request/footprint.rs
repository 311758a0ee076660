//! Bytes of memory that converted requests take, and of the texts in them.

use std::sync::Arc;

use engine::{Message, ToolCall};
use grammar::FormSource;
use tools::ToolList;

use super::{Asked, Hole, NamedText, PromptText, ReplySettings, Said};
use crate::body::{Footprint, map_bytes, parsed_bytes};

/// Bytes that the allocator takes beside what it is asked for.
const ALLOCATION: u64 = 16;

fn text(text: &String) -> u64 {
    text.capacity() as u64 + ALLOCATION
}

fn list<T>(list: &Vec<T>, each: impl Fn(&T) -> u64) -> u64 {
    (list.capacity() * size_of::<T>()) as u64 + ALLOCATION + list.iter().map(each).sum::<u64>()
}

impl Footprint for () {
    fn footprint(&self) -> u64 {
        0
    }
}

impl Footprint for String {
    fn footprint(&self) -> u64 {
        text(self)
    }
}

impl Footprint for u32 {
    fn footprint(&self) -> u64 {
        0
    }
}

impl<T: Footprint> Footprint for Vec<T> {
    fn footprint(&self) -> u64 {
        list(self, Footprint::footprint)
    }
}

impl<T: Footprint> Footprint for Option<T> {
    fn footprint(&self) -> u64 {
        self.as_ref().map_or(0, Footprint::footprint)
    }
}

impl<A: Footprint, B: Footprint> Footprint for (A, B) {
    fn footprint(&self) -> u64 {
        self.0.footprint() + self.1.footprint()
    }
}

impl Footprint for Message {
    fn footprint(&self) -> u64 {
        let call = |call: &ToolCall| text(&call.id) + text(&call.name) + text(&call.arguments);
        let more = [&self.tool_call_id, &self.name, &self.thoughts];
        text(&self.role)
            + text(&self.content)
            + list(&self.tool_calls, call)
            + more.into_iter().flatten().map(text).sum::<u64>()
    }
}

impl Footprint for PromptText {
    fn footprint(&self) -> u64 {
        match self {
            PromptText::Plain(plain) => text(plain),
            PromptText::Tokens(tokens) => list(tokens, |_| 0),
            PromptText::Infill(hole) => hole.footprint(),
        }
    }
}

impl Footprint for Hole {
    fn footprint(&self) -> u64 {
        let other = |other: &NamedText| text(&other.name) + text(&other.text);
        size_of::<Hole>() as u64
            + text(&self.before)
            + text(&self.behind)
            + text(&self.begun)
            + list(&self.others, other)
    }
}

impl Footprint for Said {
    fn footprint(&self) -> u64 {
        match self {
            Said::Messages(messages, options) => {
                messages.footprint() + 2 * options.variables.bytes() as u64
            }
            Said::Texts(texts) => texts.footprint(),
        }
    }
}

impl Footprint for ReplySettings {
    fn footprint(&self) -> u64 {
        let form = self.form.as_ref().map_or(0, |form| match &form.source {
            FormSource::JsonSchema(source)
            | FormSource::Grammar(source)
            | FormSource::Regex(source) => text(source),
            FormSource::Parts(_) => 0,
        });
        let texts = list(&self.stop, text) + list(&self.sampler.dry_sequence_breakers, text);
        form + texts + list(&self.stop_tokens, |_| 0) + list(&self.sampler.logit_bias, |_| 0)
    }
}

impl Footprint for Arc<ToolList> {
    fn footprint(&self) -> u64 {
        // a list has each schema twice: one to check calls, one for templates
        let each = self.tools().iter().map(|tool| text(&tool.name) + map_bytes(&tool.parameters));
        2 * each.sum::<u64>()
    }
}

impl Footprint for Asked {
    fn footprint(&self) -> u64 {
        let tools = self.tools.as_ref().map_or(0, |(list, _)| list.footprint());
        self.said.footprint() + self.settings.footprint() + tools
    }
}

/// Bytes from which a form is large: compiling it takes up to about a hundred times as much memory.
const LARGE_FORM: u64 = 16 << 10;

impl Asked {
    /// Bytes of the texts that have to be rendered and encoded.
    pub(crate) fn text_bytes(&self) -> u64 {
        self.said.footprint() + self.tool_bytes()
    }

    /// Whether compiling its form, or that of its tools, takes much memory.
    pub(crate) fn has_large_form(&self) -> bool {
        self.settings.footprint() + self.tool_bytes() >= LARGE_FORM
    }

    /// Bytes of memory that the arguments of earlier calls take while a template renders them as objects: they are parsed, and converted
    /// to the values of templates.
    pub(crate) fn argument_bytes(&self) -> u64 {
        let Said::Messages(messages, _) = &self.said else { return 0 };
        let calls = messages.iter().flat_map(|message| &message.tool_calls);
        2 * calls.map(|call| parsed_bytes(&call.arguments)).sum::<u64>()
    }

    fn tool_bytes(&self) -> u64 {
        self.tools.as_ref().map_or(0, |(list, _)| list.footprint() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ChatOptions;

    #[test]
    fn texts_count_with_their_length_and_their_parts() {
        let long = "x".repeat(10_000);
        let mut message = Message::new("user", &*long);
        let one = Said::Messages(vec![message.clone()], ChatOptions::default()).footprint();
        assert!((10_000..11_000).contains(&one), "{one}");
        let call = ToolCall { id: "a".into(), name: "f".into(), arguments: long.clone() };
        message.tool_calls = vec![call; 2];
        message.thoughts = Some(long.clone());
        let more = Said::Messages(vec![message], ChatOptions::default()).footprint();
        assert!((40_000..42_000).contains(&more), "{more}");
        let texts = vec![
            PromptText::Plain(long.clone()),
            PromptText::Tokens(vec![7; 5_000]),
            Hole::between(long.clone(), long),
        ];
        let texts = Said::Texts(texts).footprint();
        assert!((50_000..52_000).contains(&texts), "{texts}");
    }
}
