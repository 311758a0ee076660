//! `/v1/embeddings` and `/v1/rerank`.

use axum::Json;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Ready;
use crate::api::texts::{Reranked, Wanted, inputs, not_too_many_texts, read_usage};
use crate::api::{warned, written};
use crate::body::{Converted, Footprint, JsonBody, RequestBody};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes};
use crate::models::ModelField;
use crate::record::Asker;

const EMBEDDINGS: Fields = &[
    ("model", Field::Honoured),
    ("input", Field::Honoured),
    ("encoding_format", Field::Honoured),
    ("dimensions", Field::Honoured),
    ("user", Field::NoEffect("nothing is kept or billed here")),
    ("metadata", Field::NoEffect("nothing is kept or billed here")),
];
pub(super) const EMBEDDED: Takes = Takes::Fields(EMBEDDINGS);

/// The field that names a model.
const MODEL: ModelField = |body| body.text("model");

/// A vector in a response.
#[derive(Serialize)]
struct Embedding<'v> {
    object: &'static str,
    index: usize,
    embedding: Numbers<'v>,
}

impl Embedding<'_> {
    fn new(index: usize, vector: &[f32], packed: bool) -> Embedding<'_> {
        let embedding = match packed {
            true => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Numbers::Base64(STANDARD.encode(bytes))
            }
            false => Numbers::Floats(vector),
        };
        Embedding { object: "embedding", index, embedding }
    }
}

/// Numbers as a list, or as base64 of their bytes in little-endian order.
#[derive(Serialize)]
#[serde(untagged)]
enum Numbers<'v> {
    Floats(&'v [f32]),
    Base64(String),
}

/// The response of `/v1/embeddings`.
#[derive(Serialize)]
struct Embeddings<'v> {
    object: &'static str,
    data: Vec<Embedding<'v>>,
    model: &'v str,
    usage: Value,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'v [String],
}

pub(super) async fn embeddings(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, _: &_, _: &_| {
        let packed = match body.text("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(ApiError::field("encoding_format", "expected float or base64")),
        };
        let dimensions = body.count("dimensions", 1, usize::MAX)?;
        let field = "input";
        Ok(Wanted { texts: inputs(body, field)?, field, cuts: false, dimensions, packed })
    };
    let (app, wanted) = models.serving_for(body, EMBEDDED, MODEL, read).await?;
    let packed = wanted.value.packed;
    let said = app.embed(wanted, &asker).await?;
    let write = move |vectors: &[Vec<f32>], tokens: usize, warnings: &[String]| {
        let all = vectors.iter().enumerate();
        let data = all.map(|(index, vector)| Embedding::new(index, vector, packed)).collect();
        let (model, usage) = (&*app.model.name, read_usage(tokens));
        written::json_text(&Embeddings { object: "list", data, model, usage, warnings })
    };
    said.written(write).await
}

const RERANK: Fields = &[
    ("model", Field::Honoured),
    ("query", Field::Honoured),
    ("documents", Field::Honoured),
    ("top_n", Field::Honoured),
    ("return_documents", Field::Honoured),
];
pub(super) const RERANKED: Takes = Takes::Fields(RERANK);

/// Fields of a document that is an object.
const DOCUMENT: Takes = Takes::Fields(&[("text", Field::Honoured)]);

/// A request for ranks, and what its response tells.
struct RerankRequest {
    ranked: Reranked,
    most: usize,
    with_text: bool,
}

impl Footprint for RerankRequest {
    fn footprint(&self) -> u64 {
        self.ranked.query.footprint() + self.ranked.texts.footprint()
    }
}

impl RerankRequest {
    fn read(body: &JsonBody) -> Result<RerankRequest> {
        const NAME: &str = "documents";
        let query = body.text("query")?.filter(|text| !text.is_empty());
        let query = query.ok_or_else(|| ApiError::field("query", "expected a text"))?.to_owned();
        let list = body.list(NAME)?.map_or(&[][..], Vec::as_slice);
        not_too_many_texts(NAME, list.len())?;
        for (i, document) in list.iter().enumerate() {
            if let Some(fields) = document.as_object() {
                DOCUMENT.check_member(body, &format!("{NAME}[{i}]."), fields)?;
            }
        }
        let text =
            |value: &Value| value.as_str().or_else(|| value["text"].as_str()).map(str::to_owned);
        let texts: Option<Vec<String>> = list.iter().map(text).collect();
        let texts = texts.filter(|texts| !texts.is_empty());
        let texts = texts.ok_or_else(|| ApiError::field(NAME, "expected a list of texts"))?;
        let most = body.count("top_n", 1, usize::MAX)?.unwrap_or(texts.len());
        let with_text = body.flag("return_documents")?.unwrap_or(false);
        Ok(RerankRequest { ranked: Reranked { query, texts }, most, with_text })
    }
}

pub(super) async fn rerank(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Json<Value>> {
    let read = |body: &JsonBody, _: &_, _: &_| RerankRequest::read(body);
    let (app, request) = models.serving_for(body, RERANKED, MODEL, read).await?;
    let Converted { value: RerankRequest { ranked, most, with_text }, claim, notes } = request;
    let said = app.rank(Converted { value: ranked, claim, notes }, &asker).await?;
    let mut order: Vec<(usize, f32)> = said.scores.into_iter().enumerate().collect();
    // of equals the earlier one
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let result = |(index, score): &(usize, f32)| {
        let mut result = json!({ "index": index, "relevance_score": score });
        if with_text {
            result["document"] = json!({ "text": said.texts[*index] });
        }
        result
    };
    let mut ranked = json!({
        "object": "list",
        "model": app.model.name,
        "results": order.iter().take(most).map(result).collect::<Vec<_>>(),
        "usage": read_usage(said.tokens),
    });
    warned(&mut ranked, &said.notes);
    Ok(Json(ranked))
}
