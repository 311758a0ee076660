//! Scores of the tokens of a reply in the shape of OpenAI's chats. Scores of many tokens are serialized without building their values,
//! which take about ten times as much memory as their text.

use engine::{Logprob, TokenLogprobs, Vocabulary};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::token_bytes;

/// Scores of tokens, serialized as a list of `{id, token, bytes, logprob, top_logprobs}`.
#[derive(Clone, Copy)]
pub(crate) struct ScoreList<'a> {
    /// The scores.
    pub(crate) tokens: &'a [TokenLogprobs],
    /// Spells the tokens.
    pub(crate) vocabulary: &'a dyn Vocabulary,
    /// Whether the id of each token is written, as in llama.cpp's API.
    pub(crate) ids: bool,
}

impl ScoreList<'_> {
    /// Returns the list as a value.
    pub(crate) fn value(self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn score(&self, score: &Logprob) -> Score {
        let bytes = token_bytes(score.token, self.vocabulary);
        Score {
            id: self.ids.then_some(score.token),
            token: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
            logprob: f64::from(score.logprob),
            top_logprobs: None,
        }
    }
}

impl Serialize for ScoreList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.tokens.iter().map(|token| {
            let top = token.top.iter().map(|top| self.score(top)).collect();
            Score { top_logprobs: Some(top), ..self.score(&token.chosen) }
        }))
    }
}

/// The score of a token; with those of the likeliest tokens in its place, if it is the one that was chosen.
#[derive(serde::Serialize)]
struct Score {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    token: String,
    bytes: Vec<u8>,
    logprob: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<Score>>,
}

/// An object with another value in one of its fields.
pub(crate) struct WithField<'a, T> {
    /// The object. It has the field, so that its place is known.
    pub(crate) object: &'a Value,
    /// The name of the field.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: T,
}

impl<T: Serialize> Serialize for WithField<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(fields) = self.object else { return self.object.serialize(serializer) };
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (name, value) in fields {
            match name == self.name {
                true => map.serialize_entry(name, &self.value)?,
                false => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// Length of a score in JSON in bytes; most are shorter.
const SCORE_TEXT: usize = 160;

/// Returns the memory in bytes that the text of a [`ScoreList`] takes. `top`: number of alternatives that are scored for each token.
pub(crate) fn score_list_bytes(tokens: usize, top: usize) -> u64 {
    (tokens * (top + 1) * SCORE_TEXT) as u64
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A vocabulary of tokens with ten letters each.
    pub(crate) struct Letters;

    impl Vocabulary for Letters {
        fn vocab_size(&self) -> usize {
            1 << 20
        }
        fn bytes(&self, token: u32) -> std::borrow::Cow<'_, [u8]> {
            format!("token{token:05}").into_bytes().into()
        }
        fn spelling(&self, _: u32) -> Option<std::borrow::Cow<'_, str>> {
            None
        }
        fn is_eog(&self, _: u32) -> bool {
            false
        }
    }

    fn scores(n: u32, top: u32) -> Vec<TokenLogprobs> {
        let score = |token: u32| Logprob { token, logprob: -1.234_567_8 };
        let token = |token: u32| TokenLogprobs {
            chosen: score(token),
            top: (0..top).map(|i| score(token + i)).collect(),
        };
        (0..n).map(token).collect()
    }

    #[test]
    fn scores_have_the_shape_of_a_chat() {
        let tokens = scores(1, 1);
        let list = |ids| ScoreList { tokens: &tokens, vocabulary: &Letters, ids }.value();
        let own = json!({ "token": "token00000", "bytes": b"token00000", "logprob": f64::from(-1.234_567_8_f32) });
        let mut with_top = own.clone();
        with_top["top_logprobs"] = json!([own]);
        assert_eq!(list(false), json!([with_top]));
        let with_ids = list(true);
        assert_eq!(
            (&with_ids[0]["id"], &with_ids[0]["top_logprobs"][0]["id"]),
            (&json!(0), &json!(0))
        );
        let object = json!({ "a": 1, "scores": null, "b": 2 });
        let value = ScoreList { tokens: &[], vocabulary: &Letters, ids: true };
        let text = serde_json::to_string(&WithField { object: &object, name: "scores", value });
        assert_eq!(text.unwrap(), r#"{"a":1,"scores":[],"b":2}"#);
    }

    /// The text of scores takes no more memory than is reserved for it, and far less than their values.
    #[test]
    fn scores_of_replies_take_what_is_reserved() {
        for top in [0, 1, 5, 20] {
            let tokens = scores(2_000, top);
            let list = ScoreList { tokens: &tokens, vocabulary: &Letters, ids: true };
            let (text, value) = (serde_json::to_string(&list).unwrap(), list.value());
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            let share = text.len() as f64 / score_list_bytes(2_000, top as usize) as f64;
            assert!((0.6..=1.0).contains(&share), "{top}: {share}");
            assert!(crate::body::value_bytes(&value) > 5 * text.len() as u64, "{top}");
        }
    }
}
