//! `/tokenize`, `/detokenize` and `/apply-template`: between texts and tokens, without computing.

use std::sync::Arc;

use axum::response::Response;
use engine::{ModelFormat, Notes, Vocabulary};
use serde_json::json;

use crate::Ready;
use crate::api::pending::CancelOnDrop;
use crate::api::{OpenAiEndpoint, OpenAiRequest, warned, written};
use crate::body::{Claim, Converted, Footprint, JsonBody, RequestBody, token_id_of};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes};
use crate::models::ModelField;
use crate::record::Asker;
use crate::request::{Asked, check_tokens};
use crate::wire::token_bytes;

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
    /// Whether names of control tokens are encoded as these tokens, as in the prompts of `/completion`.
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
        let flag = |name, usual| body.flag(name).map(|flag| flag.unwrap_or(usual));
        let (begins, parses) = (flag("add_special", false)?, flag("parse_special", true)?);
        Ok(Tokenized { text, begins, parses, pieces: flag("with_pieces", false)? })
    };
    let read = move |body: &JsonBody, _: &_, _: &_| read(body);
    let (app, asked) = models.serving_for(body, TOKENIZED, MODEL, read).await?;
    let Converted { value: asked, claim: Claim { mut reservation, intake }, notes } = asked;
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
    let end = ending("]", &notes);
    let mut list = TokenList { tokens: tokens.into_iter(), pieces, format, begun: false, end };
    Ok(written::in_chunks(move |out| list.write(out), reservation))
}

/// `{"tokens": [...]}`, written token by token.
struct TokenList {
    tokens: std::vec::IntoIter<u32>,
    /// Whether the text of each token is written, too.
    pieces: bool,
    format: Arc<ModelFormat>,
    begun: bool,
    /// End of the response, written after the last token.
    end: String,
}

/// Returns the end of an object whose last value ends with `value`, including the request's `warnings` if there are any.
fn ending(value: &str, notes: &Notes) -> String {
    match notes.is_empty() {
        true => format!("{value}}}"),
        false => format!("{value},\"warnings\":{}}}", json!(notes.lines())),
    }
}

impl TokenList {
    /// Append the next token; whether there is more to write.
    fn write(&mut self, out: &mut Vec<u8>) -> bool {
        let begins = !std::mem::replace(&mut self.begun, true);
        if begins {
            out.extend_from_slice(b"{\"tokens\":[");
        }
        let Some(id) = self.tokens.next() else {
            out.extend_from_slice(self.end.as_bytes());
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
        let tokens = body.list(NAME)?.ok_or_else(expected)?;
        tokens.iter().map(token_id_of).collect::<Option<Vec<u32>>>().ok_or_else(expected)
    };
    let (app, asked) = models.serving_for(body, DETOKENIZED, MODEL, read).await?;
    let Converted { value: tokens, claim: Claim { reservation, intake }, notes } = asked;
    let _place = intake.text_place()?;
    let format = Arc::clone(&app.model.format);
    check_tokens("tokens", &tokens, format.tokenizer().vocab_size())?;
    let (rest, end) = (Vec::new(), ending("\"", &notes));
    let mut text = TokenText { tokens: tokens.into_iter(), format, rest, begun: false, end };
    Ok(written::in_chunks(move |out| text.write(out), reservation))
}

/// `{"content": "..."}`, written token by token. Control tokens are written by name, so that encoding the text gives the same tokens
/// again. Bytes that are not UTF-8 become replacement characters.
struct TokenText {
    tokens: std::vec::IntoIter<u32>,
    format: Arc<ModelFormat>,
    /// The beginning of a character whose other bytes have not come yet.
    rest: Vec<u8>,
    begun: bool,
    /// End of the response, written after the last token.
    end: String,
}

impl TokenText {
    /// Append the text of the next token; whether there is more to write.
    fn write(&mut self, out: &mut Vec<u8>) -> bool {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(b"{\"content\":\"");
        }
        let next = self.tokens.next();
        if let Some(id) = next {
            self.rest.extend_from_slice(&token_bytes(id, &*self.format));
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
            out.extend_from_slice(self.end.as_bytes());
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

/// `/apply-template`: takes the body of a chat request, and returns the prompt that the chat would have.
pub(super) async fn apply_template(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, _: &_, sampler: &_| {
        OpenAiRequest::read(OpenAiEndpoint::Chat, body, sampler).map(|request| request.asked)
    };
    let (app, asked) = models.serving_for(body, OpenAiEndpoint::Chat.takes(), MODEL, read).await?;
    let mut asked = asked;
    let mut notes = std::mem::take(&mut asked.notes);
    let _place = asked.claim.intake.text_place()?;
    let cancel = CancelOnDrop::default();
    let (serving, flag, key) = (Arc::clone(&app), Arc::clone(cancel.flag()), asker.key);
    let render = move |asked: &Asked| {
        let (prompt, told) = serving.preparation.rendered(asked, key.scope(), &flag)?;
        notes.join("", &told);
        let mut response = json!({ "prompt": prompt });
        warned(&mut response, &notes);
        written::json_text(&response)
    };
    let (json, reservation) = app.encoded(asked, render, |json| json.capacity() as u64).await?;
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
