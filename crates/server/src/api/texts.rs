//! What a model says of whole texts, for all APIs: their tokens, vectors of a wanted length, ranks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::response::Response;
use engine::{Normalization, Notes, RerankPrompt};
use serde_json::{Value, json};
use tokenizer::Tokenizer;

use super::pending::CancelOnDrop;
use super::written;
use crate::Serving;
use crate::body::{Claim, Converted, Footprint, JsonBody};
use crate::error::{ApiError, Result};
use crate::reader::ReaderWorker;
use crate::record::Asker;
use crate::request::{PromptText, check_tokens};
use crate::serving::ReadingPurpose;
use crate::worker::ReplyPlaces;

/// Texts of one request at most.
const MOST_TEXTS: usize = 2048;
/// Bytes of a number of a vector and its JSON, about.
const NUMBER: usize = 24;

/// Texts whose vectors are wanted.
pub(super) struct Wanted {
    pub(super) texts: Vec<PromptText>,
    /// Name of the field that has the texts.
    pub(super) field: &'static str,
    /// Whether texts that are longer than the context are cut at their end, with a warning. Otherwise they are refused.
    pub(super) cuts: bool,
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
    /// Warnings about the request.
    notes: Notes,
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
        write: impl FnOnce(&[Vec<f32>], usize, &[String]) -> Result<Vec<u8>> + Send + 'static,
    ) -> Result<Response> {
        let Vectors { vectors, tokens, notes, claim: Claim { reservation, intake } } = self;
        let numbers: usize = vectors.iter().map(Vec::len).sum();
        let json = move || write(&vectors, tokens, &notes.lines());
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
    /// Warnings about the request.
    pub(super) notes: Notes,
}

/// Tokens of a text.
struct EncodedText {
    tokens: Vec<u32>,
    /// Number of tokens before the text was cut; `None` if it was not.
    cut_from: Option<usize>,
}

/// Cuts a text to its first `most` tokens. If the model ends all texts with an end token, that replaces the last one.
fn cut(tokenizer: &Tokenizer, mut tokens: Vec<u32>, most: usize) -> EncodedText {
    let had = tokens.len();
    if had <= most {
        return EncodedText { tokens, cut_from: None };
    }
    let end = tokens.last().copied().filter(|last| Some(*last) == tokenizer.end());
    tokens.truncate(most);
    if let (Some(end), Some(last)) = (end, tokens.last_mut()) {
        *last = end;
    }
    EncodedText { tokens, cut_from: Some(had) }
}

impl Serving {
    /// Vectors of length one of these texts, cut to `dimensions` before if that is given.
    ///
    /// # Errors
    /// A model without embeddings, a text that does not fit and may not be cut, a full queue, too little memory.
    pub(super) async fn embed(
        self: &Arc<Serving>,
        wanted: Converted<Wanted>,
        asker: &Asker,
    ) -> Result<Vectors> {
        asker.record.asked(&self.model.name);
        self.used_by(asker.client);
        let (_, worker) = self.reading(ReadingPurpose::Vectors)?;
        let place = worker.reserve(asker.client)?;
        let Converted { value, mut claim, mut notes } = wanted;
        let Wanted { texts, field, cuts, dimensions, .. } = value;
        if texts.is_empty() {
            claim.reservation.set(0)?;
            return Ok(Vectors { vectors: Vec::new(), tokens: 0, notes, claim });
        }
        let app = Arc::clone(self);
        let encode = move |text: PromptText| {
            let tokenizer = app.model.format.tokenizer();
            let tokens = match text {
                PromptText::Tokens(tokens) => tokens,
                PromptText::Plain(text) => {
                    tokenizer.encode_whole(&text).map_err(engine::Error::from)?
                }
                PromptText::Infill(_) => {
                    return Err(ApiError::invalid("a text with a hole has no vector"));
                }
            };
            let most = if cuts { app.model.cache.capacity } else { usize::MAX };
            Ok(cut(tokenizer, tokens, most))
        };
        let longest = texts.iter().map(Footprint::footprint).max().unwrap_or(0);
        let bytes = texts.footprint();
        let lengths = (longest, bytes);
        let (encoded, told, mut claim) =
            self.encode((field, texts), lengths, claim, encode).await?;
        notes.join("", &told);
        let tokens = encoded.iter().map(Vec::len).sum();
        let rows = self.read(worker, encoded, place).await?;
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
        Ok(Vectors { vectors, tokens, notes, claim })
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
        let (reading, worker) = self.reading(ReadingPurpose::Ranks)?;
        let place = worker.reserve(asker.client)?;
        let Converted { value: Reranked { query, texts }, mut claim, notes } = ranked;
        let texts = Arc::new(texts);
        let (app, template, all) = (Arc::clone(self), reading.template.clone(), Arc::clone(&texts));
        let bytes = query.len() as u64;
        claim.reservation.grow(self.encoding_memory(bytes))?;
        let intake = Arc::clone(&claim.intake);
        let begin = move || {
            let tokenizer = app.model.format.tokenizer();
            let prompt = RerankPrompt::new(tokenizer, template.as_deref(), &query)?;
            let length = app.preparation.check_length_of(prompt.query_tokens());
            length.map_err(|error| error.at("query"))?;
            Ok((app, prompt))
        };
        let (app, prompt) = intake.encoding(bytes, begin).await?;
        let encode = move |text: usize| {
            let tokens = prompt.with(app.model.format.tokenizer(), &all[text])?;
            Ok(EncodedText { tokens, cut_from: None })
        };
        let longest = bytes + texts.iter().map(|text| text.len() as u64).max().unwrap_or(0);
        let lengths = (longest, texts.footprint());
        let numbers = (0..texts.len()).collect();
        let (encoded, _, claim) =
            self.encode(("documents", numbers), lengths, claim, encode).await?;
        let tokens = encoded.iter().map(Vec::len).sum();
        let rows = self.read(worker, encoded, place).await?;
        asker.record.read(tokens);
        drop(claim);
        let scores = rows.iter().map(|scores| engine::relevance(scores)).collect();
        let texts = Arc::try_unwrap(texts).unwrap_or_else(|texts| texts.to_vec());
        Ok(Ranks { scores, texts, tokens, notes })
    }

    /// Encodes each text of a field with `encode`, on a separate thread. Returns their tokens, and a warning for each text that was
    /// cut. The first text that is too long ends the request before the next one is encoded, with an error that names the text; a
    /// client that disconnects ends it, too. `longest`, `bytes`: bytes of the longest text, and of all texts.
    async fn encode<T: Send + 'static>(
        self: &Arc<Serving>,
        (field, texts): (&'static str, Vec<T>),
        (longest, bytes): (u64, u64),
        claim: Claim,
        encode: impl Fn(T) -> Result<EncodedText> + Send + 'static,
    ) -> Result<(Vec<Vec<u32>>, Notes, Claim)> {
        let Claim { mut reservation, intake } = claim;
        reservation.grow(self.encoding_memory(longest))?;
        let cancel = CancelOnDrop::default();
        let (app, flag) = (Arc::clone(self), Arc::clone(cancel.flag()));
        let work = move || {
            let (mut encoded, mut notes) = (Vec::with_capacity(texts.len()), Notes::default());
            let only = texts.len() == 1;
            for (i, text) in texts.into_iter().enumerate() {
                let place = || if only { field.to_owned() } else { format!("{field}[{i}]") };
                if flag.load(Ordering::Relaxed) {
                    return Err(ApiError::internal("the client has left"));
                }
                let EncodedText { tokens, cut_from } = encode(text)?;
                if let Some(had) = cut_from {
                    let left = tokens.len();
                    notes.add(|| {
                        format!(
                            "{}: cut from {had} to {left} tokens, which the context holds",
                            place()
                        )
                    });
                }
                app.preparation.check_length(&tokens).map_err(|error| error.at(&place()))?;
                reservation.grow(size_of_val(&*tokens) as u64)?;
                encoded.push(tokens);
            }
            Ok((encoded, notes, reservation))
        };
        let (encoded, notes, reservation) = intake.encoding(bytes, work).await?;
        Ok((encoded, notes, Claim { reservation, intake }))
    }

    /// What the model says of each text, a row.
    async fn read(
        &self,
        worker: &ReaderWorker,
        texts: Vec<Vec<u32>>,
        place: ReplyPlaces,
    ) -> Result<Vec<Vec<f32>>> {
        let n = self.model.format.tokenizer().vocab_size();
        check_tokens("input", texts.iter().flatten(), n)?;
        let cancel = CancelOnDrop::default();
        let rows = worker.read(texts, place, cancel.flag()).await?;
        let one = |rows: program::HiddenRows| {
            let n = rows.rows().len();
            let silent = || {
                let told = "no pooling type in this model's file: serve it with --pooling mean, cls or last";
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
