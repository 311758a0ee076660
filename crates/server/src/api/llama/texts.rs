//! `/tokenize`, `/detokenize` and `/apply-template`: between texts and tokens, without computing.

use std::sync::Arc;

use axum::response::Response;
use engine::{ChatFormat, Message, ModelFormat, Reasoning, Vocabulary};
use serde_json::json;

use crate::Ready;
use crate::api::pending::CancelOnDrop;
use crate::api::written;
use crate::body::{Claim, Converted, Footprint, JsonBody, RequestBody};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes};
use crate::models::ModelField;
use crate::request::messages;

/// The field that names a model.
const MODEL: ModelField = |body| body.text("model");

const TOKENIZE: Fields = &[
    ("model", Field::Honoured),
    ("content", Field::Honoured),
    ("add_special", Field::Honoured),
    ("parse_special", Field::Honoured),
    ("with_pieces", Field::Honoured),
];
pub(super) const TOKENIZED: Takes = Takes::Fields(TOKENIZE);

/// A text that is to be encoded.
struct Tokenized {
    text: String,
    /// Whether the token comes first that the vocabulary begins texts with.
    begins: bool,
    /// Whether names of control tokens become these.
    parses: bool,
    /// Whether the response has the text of each token.
    pieces: bool,
}

impl Footprint for Tokenized {
    fn footprint(&self) -> u64 {
        self.text.footprint()
    }
}

pub(super) async fn tokenize(Ready(models): Ready, body: RequestBody) -> Result<Response> {
    let read = |body: &JsonBody| {
        let text = body.text("content")?;
        let text = text.ok_or_else(|| ApiError::field("content", "expected a text"))?.to_owned();
        let flag = |name| body.flag(name).map(|flag| flag.unwrap_or(false));
        let (begins, parses) = (flag("add_special")?, flag("parse_special")?);
        Ok(Tokenized { text, begins, parses, pieces: flag("with_pieces")? })
    };
    let read = move |body: &JsonBody, _: &_, _: &_| read(body);
    let (app, asked) = models.serving_for(body, TOKENIZED, MODEL, read).await?;
    let Converted { value: asked, claim: Claim { mut reservation, intake } } = asked;
    let _place = intake.text_place()?;
    let bytes = asked.text.len() as u64;
    reservation.grow(app.encoding_memory(bytes))?;
    let encode = move || {
        let Tokenized { text, begins, parses, pieces } = asked;
        let tokenizer = app.model.format.tokenizer();
        let encoded =
            if parses { tokenizer.encode_special(&text) } else { tokenizer.encode(&text) };
        let mut tokens = encoded.map_err(engine::Error::from)?;
        if let Some(bos) = tokenizer.bos().filter(|_| begins && tokenizer.adds_bos()) {
            tokens.insert(0, bos);
        }
        drop(text);
        reservation.set(size_of_val(&*tokens) as u64)?;
        Ok((tokens, pieces, Arc::clone(&app.model.format), reservation))
    };
    let (tokens, pieces, format, reservation) = intake.encoding(bytes, encode).await?;
    let mut list = TokenList { tokens: tokens.into_iter(), pieces, format, begun: false };
    Ok(written::in_chunks(move |out| list.write(out), reservation))
}

/// `{"tokens": [...]}`, written token by token.
struct TokenList {
    tokens: std::vec::IntoIter<u32>,
    /// Whether the text of each token is written, too.
    pieces: bool,
    format: Arc<ModelFormat>,
    begun: bool,
}

impl TokenList {
    /// Append the next token; whether there is more to write.
    fn write(&mut self, out: &mut Vec<u8>) -> bool {
        let begins = !std::mem::replace(&mut self.begun, true);
        if begins {
            out.extend_from_slice(b"{\"tokens\":[");
        }
        let Some(id) = self.tokens.next() else {
            out.extend_from_slice(b"]}");
            return false;
        };
        if !begins {
            out.push(b',');
        }
        let text = match self.pieces {
            false => id.to_string(),
            true => {
                let bytes = Vocabulary::bytes(&*self.format, id).into_owned();
                let piece =
                    String::from_utf8(bytes).map_or_else(|e| json!(e.into_bytes()), |s| json!(s));
                json!({ "id": id, "piece": piece }).to_string()
            }
        };
        out.extend_from_slice(text.as_bytes());
        true
    }
}

const DETOKENIZE: Fields = &[("model", Field::Honoured), ("tokens", Field::Honoured)];
pub(super) const DETOKENIZED: Takes = Takes::Fields(DETOKENIZE);

pub(super) async fn detokenize(Ready(models): Ready, body: RequestBody) -> Result<Response> {
    let read = |body: &JsonBody, _: &_, _: &_| {
        const NAME: &str = "tokens";
        if let Some(ids) = body.ids(NAME) {
            return Ok(ids.to_vec());
        }
        let expected = || ApiError::field(NAME, "expected token ids");
        let id = |token: &serde_json::Value| u32::try_from(token.as_u64()?).ok();
        let tokens = body.list(NAME)?.ok_or_else(expected)?;
        tokens.iter().map(id).collect::<Option<Vec<u32>>>().ok_or_else(expected)
    };
    let (app, asked) = models.serving_for(body, DETOKENIZED, MODEL, read).await?;
    let Converted { value: tokens, claim: Claim { reservation, intake } } = asked;
    let _place = intake.text_place()?;
    let format = Arc::clone(&app.model.format);
    let mut text = TokenText { tokens: tokens.into_iter(), format, rest: Vec::new(), begun: false };
    Ok(written::in_chunks(move |out| text.write(out), reservation))
}

/// `{"content": "..."}`, written token by token; bytes that are no text become replacement characters.
struct TokenText {
    tokens: std::vec::IntoIter<u32>,
    format: Arc<ModelFormat>,
    /// The beginning of a character whose other bytes have not come yet.
    rest: Vec<u8>,
    begun: bool,
}

impl TokenText {
    /// Append the text of the next token; whether there is more to write.
    fn write(&mut self, out: &mut Vec<u8>) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(b"{\"content\":\"");
        }
        let next = self.tokens.next();
        if let Some(id) = next {
            self.rest.extend_from_slice(&Vocabulary::bytes(&*self.format, id));
        }
        let mut end = 0;
        for chunk in self.rest.utf8_chunks() {
            let (valid, invalid) = (chunk.valid(), chunk.invalid());
            escape(valid, out);
            end += valid.len();
            let is_last = end + invalid.len() == self.rest.len();
            let is_open = is_last && next.is_some() && is_beginning(invalid);
            if is_open || invalid.is_empty() {
                break;
            }
            escape("\u{fffd}", out);
            end += invalid.len();
        }
        self.rest.drain(..end);
        if next.is_none() {
            out.extend_from_slice(b"\"}");
        }
        next.is_some()
    }
}

/// Whether these bytes may become a character if others follow.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Append a text, escaped as in a string of JSON.
fn escape(text: &str, out: &mut Vec<u8>) {
    let quoted = serde_json::Value::from(text).to_string();
    out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
}

const APPLY_TEMPLATE: Fields = &[("model", Field::Honoured), ("messages", Field::Honoured)];
pub(super) const TEMPLATED: Takes = Takes::Fields(APPLY_TEMPLATE);

pub(super) async fn apply_template(Ready(models): Ready, body: RequestBody) -> Result<Response> {
    let read = |body: &JsonBody, _: &_, _: &_| messages(body);
    let (app, asked) = models.serving_for(body, TEMPLATED, MODEL, read).await?;
    let Converted { value: messages, claim: Claim { mut reservation, intake } } = asked;
    let _place = intake.text_place()?;
    let bytes = Vec::<Message>::footprint(&messages);
    reservation.grow(app.encoding_memory(bytes))?;
    let cancel = CancelOnDrop::default();
    let flag = Arc::clone(cancel.flag());
    let render = move || {
        let spans = app.model.format.render(&messages, None, Reasoning::Auto, &flag)?;
        let prompt: String = spans.iter().map(|span| &*span.text).collect();
        let json = written::json_text(&json!({ "prompt": prompt }))?;
        reservation.set(json.capacity() as u64)?;
        Ok((json, reservation))
    };
    let (json, reservation) = intake.encoding(bytes, render).await?;
    Ok(written::whole(json, reservation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_characters_wait_for_the_rest() {
        assert!(is_beginning(b"\xe2\x82") && is_beginning(b"\xf0"));
        assert!(!is_beginning(b"\xff") && !is_beginning(b"") && !is_beginning(b"\xe2x"));
        let mut out = Vec::new();
        escape("a\"\n\u{e9}", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "a\\\"\\n\u{e9}");
    }
}
