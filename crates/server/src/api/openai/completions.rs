//! `/v1/completions`: texts that are continued as they are.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::reply::{OpenAiReply, ReplyShape};
use super::{MOST_CHOICES, check_model, common_fields};
use crate::Ready;
use crate::api::asked::{Asked, CancelOnDrop, WantedReplies, blocking, is_setting};
use crate::api::stream::stream;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};

const FIELDS: Fields = common_fields![
    ("prompt", Field::Honoured),
    ("n_predict", Field::Honoured),
    ("best_of", Field::Only("1")),
    ("echo", Field::Only("false")),
    ("suffix", Field::Only("\"\"")),
    ("logprobs", Field::Only("null")),
];

/// Tokens of a text that does not say how many it wants: OpenAI's own.
const MAX_TOKENS: usize = 16;

pub(super) async fn completions(Ready(app): Ready, body: JsonBody) -> Result<Response> {
    check(body.fields(), FIELDS, is_setting)?;
    check_model(&app, &body)?;
    let mut asked = Asked::read(&body, &["n_predict", "max_tokens"], &app.model.sampler)?;
    asked.max_tokens = asked.max_tokens.or(Some(MAX_TOKENS));
    let n = body.count("n", 1, MOST_CHOICES)?.unwrap_or(1);
    let streams = body.flag("stream")?.unwrap_or(false);
    let texts = prompts(&body)?;
    let choices = n * texts.len();
    if choices > MOST_CHOICES {
        let problem = format!("{choices} replies are more than {MOST_CHOICES}");
        return Err(ApiError::field("prompt", problem));
    }
    let reply = OpenAiReply::new(&app, ReplyShape::Text, &body, n, choices)?;
    let model = Arc::clone(&app.model);
    let encode = move || {
        let tokenizer = model.format.tokenizer();
        let tokens = |text: Text| match text {
            Text::Tokens(tokens) => Ok(tokens),
            Text::Plain(text) => Ok(tokenizer.encode_prompt(&text).map_err(engine::Error::from)?),
        };
        let prompts = texts.into_iter().map(tokens).collect::<Result<Vec<_>>>()?;
        Ok(prompts.into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, n)).collect())
    };
    let prompts = blocking(encode).await?;
    let wanted = WantedReplies { prompts, asked, split_thoughts: false, calls: None };
    let pending = app.reply(wanted, CancelOnDrop::default()).await?;
    match streams {
        true => Ok(stream(pending, reply)),
        false => Ok(Json(reply.whole(&pending.whole(choices).await?)).into_response()),
    }
}

/// A text to be continued.
#[derive(Debug, PartialEq)]
enum Text {
    Plain(String),
    Tokens(Vec<u32>),
}

/// A text, tokens, or several of either.
fn prompts(body: &JsonBody) -> Result<Vec<Text>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(Text::Plain(text.clone())),
        Value::Array(tokens) if !tokens.is_empty() => {
            let token = |value: &Value| u32::try_from(value.as_u64()?).ok();
            tokens.iter().map(token).collect::<Option<_>>().map(Text::Tokens)
        }
        _ => None,
    };
    let value = body.get("prompt").unwrap_or(&Value::Null);
    let several = |values: &Vec<Value>| values.iter().map(one).collect::<Option<Vec<_>>>();
    let read = one(value).map(|text| vec![text]).or_else(|| several(value.as_array()?));
    let read = read.filter(|texts| !texts.is_empty());
    read.ok_or_else(|| ApiError::field("prompt", "expected a text, token ids, or a list of these"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_are_texts_and_tokens_one_or_several() {
        let read = |prompt| prompts(&JsonBody::from(json!({ "prompt": prompt })));
        let plain = |text: &str| Text::Plain(text.into());
        assert_eq!(read(json!("a")).unwrap(), [plain("a")]);
        assert_eq!(read(json!(["a", "b"])).unwrap(), [plain("a"), plain("b")]);
        assert_eq!(read(json!([1, 2])).unwrap(), [Text::Tokens(vec![1, 2])]);
        assert_eq!(
            read(json!([[1], [2]])).unwrap(),
            [Text::Tokens(vec![1]), Text::Tokens(vec![2])]
        );
        for wrong in [json!(null), json!(3), json!([]), json!([1, "a"]), json!([-1]), json!([[]])] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
