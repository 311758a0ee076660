//! Checks whether a reply is complete, or was cut off within its form or within a tool call.

use engine::{Generated, StopReason, Vocabulary};
use grammar::Form;

use crate::exit::Failure;
use crate::sampling::Settings;
use crate::ui;

impl Settings {
    /// Checks that a reply was not cut off within its form or within a tool call. A cut call after complete ones causes only a
    /// warning, because the complete ones can be used. `asks`: the reply answers a user message, so a call may be required.
    ///
    /// # Errors
    /// [`Failure::Unfinished`] with a remedy, if the reply was cut off and has no complete call.
    pub(crate) fn check_whole(
        &self,
        reply: &Generated,
        asks: bool,
        vocabulary: &dyn Vocabulary,
    ) -> Result<(), Failure> {
        let ended = matches!(reply.stop, StopReason::EndOfGeneration(_));
        let must = asks && self.tools.as_ref().is_some_and(|tools| tools.must());
        let form = self.form.as_deref().filter(|_| !ended && reply.calls.is_empty());
        let cut = match &reply.cut_call {
            Some(call) => {
                format!("it ended within a call of {}, which is left out", call.name)
            }
            None if must && reply.calls.is_empty() => "it ended before its call".to_owned(),
            None if form.is_some_and(|form| !is_whole(form, &reply.text, vocabulary)) => {
                "it ended before its form did".to_owned()
            }
            None => return Ok(()),
        };
        let remedy = match &reply.stop {
            StopReason::MaxTokens => "; -n allows longer replies",
            StopReason::ContextFull => "; -c gives it more context",
            StopReason::StopString(_) => "; a stop text appeared in it",
            _ => "",
        };
        let problem = format!("the reply is not whole: {cut}{remedy}");
        if reply.calls.is_empty() {
            return Err(Failure::Unfinished(problem));
        }
        ui::warn(&problem);
        Ok(())
    }
}

/// Returns whether a text matches its form completely, even if the form allows it to continue.
fn is_whole(form: &Form, text: &str, vocabulary: &dyn Vocabulary) -> bool {
    let mut form = form.begin();
    let next = form.take_text(text).and_then(|()| form.mask());
    next.is_ok_and(|next| next.tokens().any(|token| vocabulary.is_eog(token)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grammar::{CompileBudget, FormSource, TokenTrie};
    use tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn texts_may_end_where_their_form_does() {
        let gguf = gguf::Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).expect("it has a vocabulary");
        let tokenizer = Arc::new(tokenizer);
        let trie = TokenTrie::new(Arc::clone(&tokenizer)).expect("it can be held to forms");
        let regex = FormSource::Regex("a{3}|b+".into());
        let schema =
            FormSource::JsonSchema(r#"{"type":"array","items":{"type":"integer"}}"#.into());
        for (source, whole, cut) in [
            (&regex, &["aaa", "b", "bb"][..], &["", "a", "aa", "aaaa", "c"][..]),
            (&schema, &["[]", "[1]"], &["", "[", "[1", "[1,", "]"]),
        ] {
            let form =
                Form::compile(source, &trie, &CompileBudget::default()).expect("it compiles");
            for text in whole {
                assert!(is_whole(&form, text, &*tokenizer), "{text}");
            }
            for text in cut {
                assert!(!is_whole(&form, text, &*tokenizer), "{text}");
            }
        }
    }
}
