//! What a model says of whole texts, for all APIs: their tokens, vectors of a wanted length, ranks.

use std::sync::Arc;

use engine::Normalization;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::pending::{CancelOnDrop, blocking};
use crate::Serving;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::record::RequestRecord;
use crate::request::PromptText;

/// Texts of one request at most.
const MOST_TEXTS: usize = 2048;

/// Vectors of texts, and the tokens they had.
pub(super) struct Vectors {
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) tokens: usize,
}

impl Serving {
    /// Vectors of length one of these texts, cut to `dimensions` before if that is given.
    ///
    /// # Errors
    /// A model that makes none, a text that does not fit, a full queue.
    pub(super) async fn embed(
        self: &Arc<Serving>,
        texts: Vec<PromptText>,
        dimensions: Option<usize>,
        record: &RequestRecord,
    ) -> Result<Vectors> {
        record.asked(&self.model.name);
        let (reading, worker) = self.reading()?;
        if reading.ranks {
            return Err(ApiError::invalid("this model ranks texts and embeds none: /v1/rerank"));
        }
        let place = worker.reserve()?;
        let app = Arc::clone(self);
        let encode = move || {
            let tokenizer = app.model.format.tokenizer();
            let tokens = |text: PromptText| {
                let tokens = match text {
                    PromptText::Tokens(tokens) => tokens,
                    PromptText::Plain(text) => {
                        tokenizer.encode_whole(&text).map_err(engine::Error::from)?
                    }
                    PromptText::Infill(_) => {
                        return Err(ApiError::invalid("a text with a hole has no vector"));
                    }
                };
                // the first text that is too long ends the request before the next is encoded
                app.preparation.check_length(&tokens)?;
                Ok(tokens)
            };
            texts.into_iter().map(tokens).collect::<Result<Vec<_>>>()
        };
        let encoded = blocking(encode).await?;
        let tokens = encoded.iter().map(Vec::len).sum();
        let rows = self.read(encoded, place).await?;
        record.read(tokens);
        let vector = |mut vector: Vec<f32>| {
            if let Some(n) = dimensions {
                if n > vector.len() {
                    let problem = format!("expected at most {}, found {n}", vector.len());
                    return Err(ApiError::field("dimensions", problem));
                }
                vector.truncate(n);
            }
            Normalization::Norm(2).apply(&mut vector);
            Ok(vector)
        };
        let vectors = rows.into_iter().map(vector).collect::<Result<_>>()?;
        Ok(Vectors { vectors, tokens })
    }

    /// How well each text answers a question, and the tokens that were read.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub(super) async fn rank(
        self: &Arc<Serving>,
        query: String,
        texts: Vec<String>,
        record: &RequestRecord,
    ) -> Result<(Vec<f32>, usize)> {
        record.asked(&self.model.name);
        let (reading, worker) = self.reading()?;
        if !reading.ranks {
            return Err(ApiError::invalid(
                "this model embeds texts and ranks none: /v1/embeddings",
            ));
        }
        let place = worker.reserve()?;
        let (app, template) = (Arc::clone(self), reading.template.clone());
        let encode = move || {
            let tokenizer = app.model.format.tokenizer();
            let pair = |text: &String| {
                let template = template.as_deref();
                let tokens = engine::rerank_tokens(tokenizer, template, &query, text)?;
                app.preparation.check_length(&tokens)?;
                Ok(tokens)
            };
            texts.iter().map(pair).collect::<Result<Vec<_>>>()
        };
        let encoded = blocking(encode).await?;
        let tokens = encoded.iter().map(Vec::len).sum();
        let rows = self.read(encoded, place).await?;
        record.read(tokens);
        Ok((rows.iter().map(|scores| engine::relevance(scores)).collect(), tokens))
    }

    /// What the model says of each text, a row.
    async fn read(
        &self,
        texts: Vec<Vec<u32>>,
        place: OwnedSemaphorePermit,
    ) -> Result<Vec<Vec<f32>>> {
        let n = self.model.format.tokenizer().vocab_size();
        if let Some(id) = texts.iter().flatten().find(|id| **id as usize >= n) {
            let problem = format!("the model has no token {id}, but {n}");
            return Err(ApiError::field("input", problem));
        }
        let (_, worker) = self.reading()?;
        let cancel = CancelOnDrop::default();
        let rows = worker.read(texts, place, cancel.flag()).await?;
        let one = |rows: program::HiddenRows| {
            let n = rows.rows().len();
            let silent = || {
                let told = "this model's file does not say how the rows of a text become one";
                ApiError::invalid(told)
            };
            (n == 1).then_some(rows.hidden).ok_or_else(silent)
        };
        rows.into_iter().map(one).collect()
    }
}

/// Texts or tokens in this field, one or several.
///
/// # Errors
/// Anything else, or more of them than may be.
pub(super) fn inputs(body: &JsonBody, name: &str) -> Result<Vec<PromptText>> {
    let read = body.get(name).and_then(super::openai::texts).filter(|texts| !texts.is_empty());
    let expected = || ApiError::field(name, "expected a text, token ids, or a list of these");
    let texts = read.ok_or_else(expected)?;
    not_too_many(name, texts.len()).map(|()| texts)
}

/// That `n` texts in this field are no more than may be.
///
/// # Errors
/// More of them.
pub(super) fn not_too_many(name: &str, n: usize) -> Result<()> {
    match n > MOST_TEXTS {
        true => Err(ApiError::field(name, format!("more than {MOST_TEXTS} texts"))),
        false => Ok(()),
    }
}

/// `usage` of texts that were read.
pub(super) fn read_usage(tokens: usize) -> Value {
    json!({ "prompt_tokens": tokens, "total_tokens": tokens })
}
