//! What a model says of whole texts, for all APIs: their tokens, vectors of a wanted length, ranks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::response::Response;
use engine::{Normalization, RerankPrompt};
use serde_json::{Value, json};

use super::pending::CancelOnDrop;
use super::written;
use crate::Serving;
use crate::body::{Claim, Converted, Footprint, JsonBody};
use crate::error::{ApiError, Result};
use crate::record::Asker;
use crate::request::PromptText;
use crate::worker::ReplyPlaces;

/// Texts of one request at most.
const MOST_TEXTS: usize = 2048;
/// Bytes of a number of a vector and its JSON, about.
const NUMBER: usize = 24;

/// Texts whose vectors are wanted.
pub(super) struct Wanted {
    pub(super) texts: Vec<PromptText>,
    /// Numbers of each vector, if it is to be cut.
    pub(super) dimensions: Option<usize>,
    /// Whether vectors are written as base64.
    pub(super) packed: bool,
}

impl Footprint for Wanted {
    fn footprint(&self) -> u64 {
        self.texts.footprint()
    }
}

/// Vectors of texts, and the tokens they had.
pub(super) struct Vectors {
    vectors: Vec<Vec<f32>>,
    tokens: usize,
    /// Memory for them and their JSON.
    claim: Claim,
}

impl Vectors {
    /// The response that `write` makes of them, on a thread of its own.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) async fn written(
        self,
        write: impl FnOnce(&[Vec<f32>], usize) -> Result<Vec<u8>> + Send + 'static,
    ) -> Result<Response> {
        let Vectors { vectors, tokens, claim: Claim { reservation, intake } } = self;
        let numbers: usize = vectors.iter().map(Vec::len).sum();
        let json = move || write(&vectors, tokens);
        let json = intake.encoding((numbers * NUMBER) as u64, json).await?;
        Ok(written::whole(json, reservation))
    }
}

/// Texts that are to be ranked by how well they answer a question.
pub(super) struct Reranked {
    pub(super) query: String,
    pub(super) texts: Vec<String>,
}

/// How well texts answer a question.
pub(super) struct Ranks {
    pub(super) scores: Vec<f32>,
    /// The texts.
    pub(super) texts: Vec<String>,
    /// Tokens that were read.
    pub(super) tokens: usize,
}

impl Serving {
    /// Vectors of length one of these texts, cut to `dimensions` before if that is given.
    ///
    /// # Errors
    /// A model that makes none, a text that does not fit, a full queue, no memory.
    pub(super) async fn embed(
        self: &Arc<Serving>,
        wanted: Converted<Wanted>,
        asker: &Asker,
    ) -> Result<Vectors> {
        asker.record.asked(&self.model.name);
        self.used_by(asker.client);
        let (reading, worker) = self.reading()?;
        if reading.ranks {
            return Err(ApiError::invalid("this model ranks texts and embeds none: /v1/rerank"));
        }
        let place = worker.reserve(asker.client)?;
        let Converted { value: Wanted { texts, dimensions, .. }, claim } = wanted;
        let app = Arc::clone(self);
        let encode = move |text: PromptText| match text {
            PromptText::Tokens(tokens) => Ok(tokens),
            PromptText::Plain(text) => {
                let tokenizer = app.model.format.tokenizer();
                Ok(tokenizer.encode_whole(&text).map_err(engine::Error::from)?)
            }
            PromptText::Infill(_) => Err(ApiError::invalid("a text with a hole has no vector")),
        };
        let longest = texts.iter().map(Footprint::footprint).max().unwrap_or(0);
        let bytes = texts.footprint();
        let (encoded, mut claim) = self.encode(texts, (longest, bytes), claim, encode).await?;
        let tokens = encoded.iter().map(Vec::len).sum();
        let rows = self.read(encoded, place).await?;
        asker.record.read(tokens);
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
        let vectors: Vec<Vec<f32>> = rows.into_iter().map(vector).collect::<Result<_>>()?;
        let numbers: usize = vectors.iter().map(Vec::len).sum();
        claim.reservation.set((numbers * NUMBER) as u64)?;
        Ok(Vectors { vectors, tokens, claim })
    }

    /// How well each text answers a question, and the tokens that were read.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub(super) async fn rank(
        self: &Arc<Serving>,
        ranked: Converted<Reranked>,
        asker: &Asker,
    ) -> Result<Ranks> {
        asker.record.asked(&self.model.name);
        self.used_by(asker.client);
        let (reading, worker) = self.reading()?;
        if !reading.ranks {
            return Err(ApiError::invalid(
                "this model embeds texts and ranks none: /v1/embeddings",
            ));
        }
        let place = worker.reserve(asker.client)?;
        let Converted { value: Reranked { query, texts }, mut claim } = ranked;
        let texts = Arc::new(texts);
        let (app, template, all) = (Arc::clone(self), reading.template.clone(), Arc::clone(&texts));
        let bytes = query.len() as u64;
        claim.reservation.grow(self.encoding_memory(bytes))?;
        let intake = Arc::clone(&claim.intake);
        let begin = move || {
            let tokenizer = app.model.format.tokenizer();
            let prompt = RerankPrompt::new(tokenizer, template.as_deref(), &query)?;
            app.preparation.check_length_of(prompt.query_tokens())?;
            Ok((app, prompt))
        };
        let (app, prompt) = intake.encoding(bytes, begin).await?;
        let encode = move |text: usize| Ok(prompt.with(app.model.format.tokenizer(), &all[text])?);
        let longest = bytes + texts.iter().map(|text| text.len() as u64).max().unwrap_or(0);
        let lengths = (longest, texts.footprint());
        let (encoded, claim) =
            self.encode((0..texts.len()).collect(), lengths, claim, encode).await?;
        let tokens = encoded.iter().map(Vec::len).sum();
        let rows = self.read(encoded, place).await?;
        asker.record.read(tokens);
        drop(claim);
        let scores = rows.iter().map(|scores| engine::relevance(scores)).collect();
        let texts = Arc::try_unwrap(texts).unwrap_or_else(|texts| texts.to_vec());
        Ok(Ranks { scores, texts, tokens })
    }

    /// The tokens of each text by `encode`, on a thread of its own. The first text that is too long ends the request before the next
    /// is encoded, and so does a client that leaves. `longest`, `bytes`: of one text, and of all.
    async fn encode<T: Send + 'static>(
        self: &Arc<Serving>,
        texts: Vec<T>,
        (longest, bytes): (u64, u64),
        claim: Claim,
        encode: impl Fn(T) -> Result<Vec<u32>> + Send + 'static,
    ) -> Result<(Vec<Vec<u32>>, Claim)> {
        let Claim { mut reservation, intake } = claim;
        reservation.grow(self.encoding_memory(longest))?;
        let cancel = CancelOnDrop::default();
        let (app, flag) = (Arc::clone(self), Arc::clone(cancel.flag()));
        let work = move || {
            let mut encoded = Vec::with_capacity(texts.len());
            for text in texts {
                if flag.load(Ordering::Relaxed) {
                    return Err(ApiError::internal("the client has left"));
                }
                let tokens = encode(text)?;
                app.preparation.check_length(&tokens)?;
                reservation.grow(size_of_val(&*tokens) as u64)?;
                encoded.push(tokens);
            }
            Ok((encoded, reservation))
        };
        let (encoded, reservation) = intake.encoding(bytes, work).await?;
        Ok((encoded, Claim { reservation, intake }))
    }

    /// What the model says of each text, a row.
    async fn read(&self, texts: Vec<Vec<u32>>, place: ReplyPlaces) -> Result<Vec<Vec<f32>>> {
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
    let texts = super::openai::texts_of(body, name).filter(|texts| !texts.is_empty());
    let expected = || ApiError::field(name, "expected a text, token ids, or a list of these");
    let texts = texts.ok_or_else(expected)?;
    not_too_many_texts(name, texts.len()).map(|()| texts)
}

/// That `n` texts in this field are no more than may be.
///
/// # Errors
/// More of them.
pub(super) fn not_too_many_texts(name: &str, n: usize) -> Result<()> {
    match n > MOST_TEXTS {
        true => Err(ApiError::field(name, format!("more than {MOST_TEXTS} texts"))),
        false => Ok(()),
    }
}

/// `usage` of texts that were read.
pub(super) fn read_usage(tokens: usize) -> Value {
    json!({ "prompt_tokens": tokens, "total_tokens": tokens })
}
