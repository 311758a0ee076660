//! A question and a text that is to answer it, as a reranking model reads them: by the template that its file has for that,
//! else with the tokens that its vocabulary puts between two texts.

use tokenizer::{Span, Tokenizer};

use crate::Result;

/// The key of such a template: a text in which `{query}` and `{document}` stand for the two.
pub const RERANK_TEMPLATE: &str = "tokenizer.chat_template.rerank";

/// The tokens of a question and a text, by this template if the file has one.
///
/// # Errors
/// A text that cannot be encoded; a vocabulary that puts nothing between two texts.
pub fn rerank_tokens(
    tokenizer: &Tokenizer,
    template: Option<&str>,
    query: &str,
    document: &str,
) -> Result<Vec<u32>> {
    Ok(match template {
        None => tokenizer.encode_pair(query, document)?,
        Some(template) => tokenizer.encode_spans(&fill(template, query, document))?,
    })
}

/// Control tokens are those of the template alone.
fn fill(template: &str, query: &str, document: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut rest = template;
    let names = [("{query}", query), ("{document}", document)];
    while let Some((at, name, text)) = (names.iter())
        .filter_map(|(name, text)| Some((rest.find(name)?, name, text)))
        .min_by_key(|(at, ..)| *at)
    {
        spans.push(Span { text: rest[..at].to_owned(), special: true });
        spans.push(Span { text: (*text).to_owned(), special: false });
        rest = &rest[at + name.len()..];
    }
    spans.push(Span { text: rest.to_owned(), special: true });
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_and_users_words_stay_words() {
        let spans = fill("<s>Q: {query} D: {document}</s>", "who {document}?", "<s> {query}");
        let all: Vec<_> = spans.iter().map(|span| (&*span.text, span.special)).collect();
        let want = [
            ("<s>Q: ", true),
            ("who {document}?", false),
            (" D: ", true),
            ("<s> {query}", false),
            ("</s>", true),
        ];
        assert_eq!(all, want);
        assert_eq!(fill("no place", "q", "d").len(), 1);
    }
}
