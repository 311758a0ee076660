//! `/v1/embeddings` and `/v1/rerank`.

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::Ready;
use crate::api::texts::{inputs, not_too_many, read_usage};
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};
use crate::record::Asker;

pub(super) const EMBEDDINGS: Fields = &[
    ("model", Field::Honoured),
    ("input", Field::Honoured),
    ("encoding_format", Field::Honoured),
    ("dimensions", Field::Honoured),
    ("user", Field::NoEffect("nothing is kept or billed here")),
];

pub(super) async fn embeddings(
    Ready(models): Ready,
    asker: Asker,
    body: JsonBody,
) -> Result<Json<Value>> {
    check(body.fields(), EMBEDDINGS, |_| false)?;
    let packed = match body.text("encoding_format")? {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(ApiError::field("encoding_format", "expected float or base64")),
    };
    let dimensions = body.count("dimensions", 1, usize::MAX)?;
    let texts = inputs(&body, "input")?;
    let app = models.serving(body.text("model")?).await?;
    let said = app.embed(texts, dimensions, &asker.record).await?;
    let embedding = |(index, vector): (usize, &Vec<f32>)| {
        let vector = match packed {
            true => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                json!(STANDARD.encode(bytes))
            }
            false => json!(vector),
        };
        json!({ "object": "embedding", "index": index, "embedding": vector })
    };
    Ok(Json(json!({
        "object": "list",
        "data": said.vectors.iter().enumerate().map(embedding).collect::<Vec<_>>(),
        "model": app.model.name,
        "usage": read_usage(said.tokens),
    })))
}

pub(super) const RERANK: Fields = &[
    ("model", Field::Honoured),
    ("query", Field::Honoured),
    ("documents", Field::Honoured),
    ("top_n", Field::Honoured),
    ("return_documents", Field::Honoured),
];

pub(super) async fn rerank(
    Ready(models): Ready,
    asker: Asker,
    body: JsonBody,
) -> Result<Json<Value>> {
    check(body.fields(), RERANK, |_| false)?;
    let query = body.text("query")?.filter(|text| !text.is_empty());
    let query = query.ok_or_else(|| ApiError::field("query", "expected a text"))?.to_owned();
    let text = |value: &Value| value.as_str().or_else(|| value["text"].as_str()).map(str::to_owned);
    let list = body.list("documents")?.filter(|list| !list.is_empty());
    let texts: Option<Vec<String>> = list.and_then(|list| list.iter().map(text).collect());
    let texts = texts.ok_or_else(|| ApiError::field("documents", "expected a list of texts"))?;
    not_too_many("documents", texts.len())?;
    let most = body.count("top_n", 1, usize::MAX)?.unwrap_or(texts.len());
    let with_text = body.flag("return_documents")?.unwrap_or(false);
    let app = models.serving(body.text("model")?).await?;
    let (scores, tokens) = app.rank(query, texts.clone(), &asker.record).await?;
    let mut order: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    // of equals the earlier one
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let result = |(index, score): &(usize, f32)| {
        let mut result = json!({ "index": index, "relevance_score": score });
        if with_text {
            result["document"] = json!({ "text": texts[*index] });
        }
        result
    };
    Ok(Json(json!({
        "object": "list",
        "model": app.model.name,
        "results": order.iter().take(most).map(result).collect::<Vec<_>>(),
        "usage": read_usage(tokens),
    })))
}
