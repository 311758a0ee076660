//! A question and a text that is to answer it, as a reranking model reads them: by the template that its file has for that,
//! else with the tokens that its vocabulary puts between two texts.

use tokenizer::{Span, Tokenizer};

use crate::Result;

/// The key of such a template: a text in which `{query}` and `{document}` stand for the two.
pub const RERANK_TEMPLATE: &str = "tokenizer.chat_template.rerank";

/// A question that several texts are to answer. It is encoded once where the vocabulary separates it from a text; in a template it is
/// encoded with each text, as words may reach from one into the other.
pub struct RerankPrompt {
    query: Query,
    query_tokens: usize,
}

enum Query {
    /// The tokens before a text.
    Tokens(Vec<u32>),
    /// The template of the file, and the query.
    Template(String, String),
}

impl RerankPrompt {
    /// Encode a question, by this template if the file has one.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn new(tokenizer: &Tokenizer, template: Option<&str>, query: &str) -> Result<RerankPrompt> {
        Ok(match template {
            None => {
                let tokens = tokenizer.begin_pair(query)?;
                RerankPrompt { query_tokens: tokens.len(), query: Query::Tokens(tokens) }
            }
            Some(template) => {
                let query_tokens = tokenizer.encode(query)?.len();
                let query = Query::Template(template.to_owned(), query.to_owned());
                RerankPrompt { query, query_tokens }
            }
        })
    }

    /// Number of tokens of the question, alone.
    pub fn query_tokens(&self) -> usize {
        self.query_tokens
    }

    /// The tokens of the question and a text that is to answer it.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn with(&self, tokenizer: &Tokenizer, document: &str) -> Result<Vec<u32>> {
        Ok(match &self.query {
            Query::Tokens(tokens) => tokenizer.end_pair(tokens.clone(), document)?,
            Query::Template(template, query) => {
                tokenizer.encode_spans(&fill(template, query, document))?
            }
        })
    }
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
