//! How a reply is made, read from fields that have one name in all APIs.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{EarlyEnd, SamplerOptions, SamplerOrder, SamplerSetting};
use serde_json::Value;

use super::forms::{ReplyForm, form};
use crate::body::{JsonBody, integer_of, token_id_of};
use crate::error::Result;
use crate::fields::{brief, brief_text};

/// Texts that may end a reply, and bytes of each.
const MOST_STOPS: usize = 16;
const STOP_BYTES: usize = 256;

/// How replies are made.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplySettings {
    /// How tokens are chosen.
    pub sampler: SamplerOptions,
    /// Most tokens; `None`: to its own end or that of the context.
    pub max_tokens: Option<usize>,
    /// Texts that end it.
    pub stop: Vec<String>,
    /// Tokens that end it, in addition to the model's own end tokens.
    pub stop_tokens: Vec<u32>,
    /// It does not end by itself.
    pub ignore_eog: bool,
    /// Where it ends early.
    pub early: EarlyEnd,
    /// What it must be.
    pub form: Option<ReplyForm>,
}

/// Whether a field is one of a sampler's settings.
pub(crate) fn is_setting(name: &str) -> bool {
    setting(name).is_some()
}

fn setting(name: &str) -> Option<&'static SamplerSetting> {
    let name = match name {
        "repetition_penalty" => "repeat_penalty",
        "typical_p" => "typical",
        "mirostat_tau" => "mirostat_ent",
        "mirostat_eta" => "mirostat_lr",
        "dynatemp_exponent" => "dynatemp_exp",
        name => name,
    };
    // flags have hyphens, fields do not
    if name.contains('-') { None } else { SamplerSetting::find(name) }
}

impl ReplySettings {
    /// As the model has them, to any length.
    pub fn of(sampler: &SamplerOptions) -> ReplySettings {
        let sampler = sampler.clone();
        let (max_tokens, stop, stop_tokens, early) = Default::default();
        let ignore_eog = false;
        ReplySettings { sampler, max_tokens, stop, stop_tokens, ignore_eog, early, form: None }
    }

    /// Reads the settings in `body`; one of the fields in `lengths` may limit the number of tokens. `ranges`: ranges of the API.
    ///
    /// # Errors
    /// A field that cannot be obeyed.
    pub(crate) fn read(
        body: &JsonBody,
        lengths: &[Length],
        ranges: SettingRanges,
        defaults: &SamplerOptions,
    ) -> Result<ReplySettings> {
        let mut sampler = defaults.clone();
        for name in body.fields().keys() {
            let Some(setting) = setting(name) else { continue };
            if let Some(value) = body.number(name)? {
                let wrong = |problem| body.wrong(name, problem);
                check_range(ranges, name, value).map_err(wrong)?;
                setting.set(&mut sampler, value).map_err(wrong)?;
            }
        }
        if let Some(seed) = body.integer("seed")? {
            // below 0: any
            sampler.seed = u64::try_from(seed).ok();
        }
        sampler.logit_bias = bias(body)?;
        if let Some(breakers) = breakers(body)? {
            sampler.dry_sequence_breakers = breakers;
        }
        if let Some(order) = order(body)? {
            sampler.samplers = order;
        }
        sampler.check()?;
        let max_tokens = length(body, lengths)?;
        Ok(ReplySettings {
            sampler,
            max_tokens,
            stop: stops(body, "stop")?,
            stop_tokens: stop_tokens(body)?,
            ignore_eog: body.flag("ignore_eos")?.unwrap_or(false),
            early: early(body)?,
            form: form(body)?,
        })
    }
}

/// Settings that an API restricts more than samplers do: name, minimum, maximum.
pub(crate) type SettingRanges = &'static [(&'static str, f64, f64)];

/// Ranges that OpenAI documents.
pub(crate) const OPENAI_RANGES: SettingRanges =
    &[("temperature", 0.0, 2.0), ("presence_penalty", -2.0, 2.0), ("frequency_penalty", -2.0, 2.0)];
/// Ranges that Anthropic documents.
pub(crate) const ANTHROPIC_RANGES: SettingRanges = &[("temperature", 0.0, 1.0)];
/// Ranges of Ollama's API, which documents none: any value that samplers accept, except a negative temperature.
pub(crate) const OLLAMA_RANGES: SettingRanges = &[("temperature", 0.0, f64::INFINITY)];
/// Ranges of llama.cpp's API: any value that samplers accept. With a temperature of 0 or less, the likeliest token is chosen.
pub(crate) const LLAMA_RANGES: SettingRanges = &[];

/// Checks that a setting is within its range, if the API has one for it.
fn check_range(ranges: SettingRanges, name: &str, value: f64) -> Result<(), String> {
    let range = ranges.iter().find(|(known, ..)| *known == name);
    match range {
        Some((_, least, most)) if !(*least..=*most).contains(&value) => {
            Err(match most.is_finite() {
                true => format!("expected {least} to {most}, found {value}"),
                false => format!("expected {least} or more, found {value}"),
            })
        }
        _ => Ok(()),
    }
}

/// Field that limits the number of tokens of a reply, and its minimum. A negative value means no limit.
pub(crate) type Length = (&'static str, usize);

/// Returns the maximum number of tokens of a reply, if a field sets it.
fn length(body: &JsonBody, lengths: &[Length]) -> Result<Option<usize>> {
    one_length(body, lengths)?;
    let mut most = None;
    for (name, least) in lengths {
        if body.integer(name)?.is_none_or(|n| n >= 0) {
            most = most.or(body.count(name, *least, usize::MAX)?);
        }
    }
    Ok(most)
}

/// That fields which say the same thing say the same.
///
/// # Errors
/// Two lengths, of which one would be lost.
fn one_length(body: &JsonBody, lengths: &[Length]) -> Result<()> {
    let mut given = lengths.iter().filter_map(|(name, _)| Some((name, body.get(name)?)));
    let Some((first, length)) = given.next() else { return Ok(()) };
    match given.find(|(_, other)| integer_of(other) != integer_of(length)) {
        Some((name, other)) => {
            let problem = format!("{} is not {first}, which is {}", brief(other), brief(length));
            Err(body.wrong(name, problem))
        }
        None => Ok(()),
    }
}

/// llama.cpp's `samplers`: names in a list, or letters.
fn order(body: &JsonBody) -> Result<Option<SamplerOrder>> {
    const NAME: &str = "samplers";
    let wrong = |error: engine::Error| match error {
        engine::Error::Setting { expected, found, .. } => {
            body.wrong(NAME, format!("expected {expected}, found {}", brief_text(&found)))
        }
        error => error.into(),
    };
    match body.get(NAME) {
        None => Ok(None),
        Some(Value::String(letters)) => {
            SamplerOrder::from_letters(letters).map(Some).map_err(wrong)
        }
        Some(value) => {
            let texts = |list: &Vec<Value>| {
                list.iter().map(|name| name.as_str().map(str::to_owned)).collect()
            };
            let names: Option<Vec<String>> = value.as_array().and_then(texts);
            let names = names.ok_or_else(|| {
                body.wrong(NAME, format!("expected names or letters, found {}", brief(value)))
            })?;
            SamplerOrder::from_list(names.iter().map(String::as_str)).map(Some).map_err(wrong)
        }
    }
}

/// llama.cpp's `n_indent` and `t_max_predict_ms`.
fn early(body: &JsonBody) -> Result<EarlyEnd> {
    // 0 or less: as long as it takes
    let time = body.integer("t_max_predict_ms")?.and_then(|ms| u64::try_from(ms).ok());
    let time = time.filter(|ms| *ms > 0).map(Duration::from_millis);
    Ok(EarlyEnd { indent: body.count("n_indent", 0, usize::MAX)?.unwrap_or(0), time })
}

/// Entries of `logit_bias`: more than the largest vocabulary has tokens.
const MOST_BIASES: usize = 300_000;

/// Reads `{"15043": -1}`, the form of OpenAI's API, or llama.cpp's `[[15043, -1]]`; false in place of a number bans the token. An id
/// can be written in several ways (`"07"`): the biases of one id are added up here, so that no list is longer than the vocabulary.
fn bias(body: &JsonBody) -> Result<Vec<(u32, f32)>> {
    const NAME: &str = "logit_bias";
    let Some(value) = body.get(NAME) else { return Ok(Vec::new()) };
    let wrong = || {
        let found = brief(value);
        body.wrong(NAME, format!("expected numbers by token id, found {found}"))
    };
    let number = |bias: &Value| match bias {
        // banned
        Value::Bool(false) => Some(None),
        bias => bias.as_f64().map(Some),
    };
    let by_name = |(id, bias): (&String, &Value)| Some((id.parse().ok()?, number(bias)?));
    let pair = |pair: &Value| match pair.as_array()?.as_slice() {
        [id, bias] => Some((token_id_of(id)?, number(bias)?)),
        _ => None,
    };
    let entries: Box<dyn ExactSizeIterator<Item = Option<(u32, Option<f64>)>>> = match value {
        Value::Object(entries) => Box::new(entries.iter().map(by_name)),
        Value::Array(pairs) => Box::new(pairs.iter().map(pair)),
        _ => return Err(wrong()),
    };
    if entries.len() > MOST_BIASES {
        return Err(body.wrong(NAME, format!("more than {MOST_BIASES} entries")));
    }
    let mut biases = BTreeMap::<u32, f32>::new();
    let mut banned = Vec::new();
    for entry in entries {
        let (id, bias) = entry.ok_or_else(wrong)?;
        let sum = biases.entry(id).or_insert(0.0);
        match bias {
            Some(bias) => *sum += bias as f32,
            None => banned.push(id),
        }
        if !sum.is_finite() {
            return Err(wrong());
        }
    }
    // low enough that no logit makes the token eligible, but finite when a logit is added
    biases.extend(banned.into_iter().map(|id| (id, f32::MIN / 2.0)));
    Ok(biases.into_iter().collect())
}

/// Reads llama.cpp's `dry_sequence_breakers`: a list of texts, or its JSON.
fn breakers(body: &JsonBody) -> Result<Option<Vec<String>>> {
    const NAME: &str = "dry_sequence_breakers";
    let expected = || {
        let problem = format!("expected a list of up to {MOST_STOPS} texts of {STOP_BYTES} bytes");
        body.wrong(NAME, problem)
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let texts: Vec<String> = match body.get(NAME) {
        None => return Ok(None),
        Some(Value::Array(texts)) if texts.len() <= MOST_STOPS => {
            texts.iter().map(text).collect::<Option<_>>().ok_or_else(expected)?
        }
        // an escaped byte takes up to six bytes
        Some(Value::String(json)) if json.len() > MOST_STOPS * (6 * STOP_BYTES + 16) => {
            return Err(expected());
        }
        Some(Value::String(json)) => serde_json::from_str(json).map_err(|_| expected())?,
        Some(_) => return Err(expected()),
    };
    let fits = texts.len() <= MOST_STOPS && texts.iter().all(|text| text.len() <= STOP_BYTES);
    if fits { Ok(Some(texts)) } else { Err(expected()) }
}

/// Maximum number of entries of `stop_token_ids`.
const MOST_STOP_TOKENS: usize = 128;

/// Reads vLLM's `stop_token_ids`: tokens that end a reply and are not part of it.
fn stop_tokens(body: &JsonBody) -> Result<Vec<u32>> {
    const NAME: &str = "stop_token_ids";
    let expected =
        || body.wrong(NAME, format!("expected a list of up to {MOST_STOP_TOKENS} token ids"));
    let list = body.list(NAME)?.map_or(&[][..], Vec::as_slice);
    let ids: Option<Vec<u32>> =
        if list.len() > MOST_STOP_TOKENS { None } else { list.iter().map(token_id_of).collect() };
    ids.ok_or_else(expected)
}

/// Texts that end a reply, in the field of this name.
///
/// # Errors
/// Others than texts, too many or too long ones.
pub(crate) fn stops(body: &JsonBody, name: &str) -> Result<Vec<String>> {
    let expected = || {
        let problem = format!("expected a text or up to {MOST_STOPS}, of {STOP_BYTES} bytes each");
        body.wrong(name, problem)
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let texts = match body.get(name) {
        None => Some(Vec::new()),
        // empty ones count for nothing, and there may be some
        Some(Value::Array(texts)) if texts.len() > 4 * MOST_STOPS => None,
        Some(Value::Array(texts)) => texts.iter().map(text).collect(),
        Some(one) => text(one).map(|text| vec![text]),
    };
    let mut texts = texts.ok_or_else(expected)?;
    texts.retain(|text| !text.is_empty());
    let fits = texts.len() <= MOST_STOPS && texts.iter().all(|text| text.len() <= STOP_BYTES);
    if fits { Ok(texts) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn biases_of_one_token_are_one() {
        let read = |biases: Value| bias(&JsonBody::from(json!({ "logit_bias": biases })));
        let spellings = json!({ "7": 1.0, "07": 0.5, "3": -2, "0007": 0.25 });
        assert_eq!(read(spellings).ok(), Some(vec![(3, -2.0), (7, 1.75)]));
        assert_eq!(read(json!({})).ok(), Some(Vec::new()));
        assert_eq!(
            read(json!([[7, 1.0], [3, -2], [7, 0.5]])).ok(),
            Some(vec![(3, -2.0), (7, 1.5)])
        );
        let many: Vec<Value> = (0..300_001).map(|i| json!([i % 9, 1])).collect();
        assert!(read(json!(many)).unwrap_err().message.contains("more than"));
        for wrong in [
            json!({ "x": 1 }),
            json!({ "1": "1" }),
            json!([[1, 2, 3]]),
            json!([1]),
            json!(3),
            json!({ "1": 1e300 }),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(read(json!({ "1": 3e38, "01": 3e38 })).is_err(), "their sum is no number");
        let never = f32::MIN / 2.0;
        assert_eq!(read(json!([[7, false], [3, 1]])).ok(), Some(vec![(3, 1.0), (7, never)]));
        assert_eq!(read(json!({ "7": false, "07": 3e38 })).ok(), Some(vec![(7, never)]));
        assert!(read(json!([[7, true]])).is_err());
    }

    #[test]
    fn lengths_may_be_written_with_a_fraction_of_nothing() {
        let read = |body: Value| length(&JsonBody::from(body), &[("a", 1), ("b", 0)]);
        assert_eq!(read(json!({ "a": 5.0 })).ok(), Some(Some(5)));
        assert_eq!(read(json!({ "a": 5.0, "b": 5 })).ok(), Some(Some(5)));
        assert_eq!(read(json!({ "b": 0 })).ok(), Some(Some(0)));
        assert_eq!(read(json!({ "a": -1.0 })).ok(), Some(None));
        for wrong in
            [json!({ "a": 5.5 }), json!({ "a": 0 }), json!({ "a": 1e300 }), json!({ "a": "5" })]
        {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn breakers_and_stop_tokens_are_lists() {
        let read = |value: Value| breakers(&json!({ "dry_sequence_breakers": value }).into());
        let texts = Some(vec!["\n".to_owned(), "*".to_owned()]);
        assert_eq!(read(json!(["\n", "*"])).unwrap(), texts);
        assert_eq!(read(json!("[\"\\n\", \"*\"]")).unwrap(), texts);
        assert_eq!(
            (read(json!([])).unwrap(), read(json!(null)).unwrap()),
            (Some(Vec::new()), None)
        );
        let escaped = format!("[\"{}\"]", "\\u0041".repeat(256));
        assert_eq!(read(json!(escaped)).unwrap(), Some(vec!["A".repeat(256)]));
        // refused before it is parsed
        let padded = format!("[{}]", " ".repeat(30_000));
        for wrong in [
            json!(3),
            json!([3]),
            json!("\n"),
            json!(vec!["x"; 17]),
            json!(["x".repeat(300)]),
            json!(padded),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        let read = |value: Value| stop_tokens(&json!({ "stop_token_ids": value }).into());
        assert_eq!(read(json!([7, 8.0])).unwrap(), [7, 8]);
        for wrong in [json!(7), json!(["7"]), json!([-1]), json!(vec![1; 129])] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
