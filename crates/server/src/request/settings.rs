//! How a reply is made, read from fields that have one name in all APIs.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{EarlyEnd, SamplerOptions, SamplerOrder, SamplerSetting};
use grammar::FormSource;
use serde_json::{Value, json};

use crate::body::JsonBody;
use crate::error::{ApiError, Result};
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
    /// It does not end by itself.
    pub ignore_eog: bool,
    /// Where it ends early.
    pub early: EarlyEnd,
    /// What it must be.
    pub form: Option<FormSource>,
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
        let (max_tokens, stop, early) = Default::default();
        ReplySettings { sampler, max_tokens, stop, ignore_eog: false, early, form: None }
    }

    /// As the fields of `body` say; most tokens stand in one of `length`.
    ///
    /// # Errors
    /// A field that cannot be obeyed.
    pub(crate) fn read(
        body: &JsonBody,
        length: &[&str],
        defaults: &SamplerOptions,
    ) -> Result<ReplySettings> {
        let mut sampler = defaults.clone();
        for name in body.fields().keys() {
            let Some(setting) = setting(name) else { continue };
            if let Some(value) = body.number(name)? {
                let wrong = |problem| ApiError::field(name, problem);
                setting.set(&mut sampler, value).map_err(wrong)?;
            }
        }
        if let Some(seed) = body.integer("seed")? {
            // below 0: any
            sampler.seed = u64::try_from(seed).ok();
        }
        sampler.logit_bias = bias(body)?;
        if let Some(order) = order(body)? {
            sampler.samplers = order;
        }
        sampler.check()?;
        one_length(body, length)?;
        let mut max_tokens = None;
        for name in length {
            // below 0: as many as it likes
            if body.integer(name)?.is_none_or(|n| n >= 0) {
                // llama.cpp's clients have a prompt read ahead so
                let least = usize::from(*name != "n_predict");
                max_tokens = max_tokens.or(body.count(name, least, usize::MAX)?);
            }
        }
        Ok(ReplySettings {
            sampler,
            max_tokens,
            stop: stops(body, "stop")?,
            ignore_eog: body.flag("ignore_eos")?.unwrap_or(false),
            early: early(body)?,
            form: form(body)?,
        })
    }
}

/// That fields which say the same thing say the same.
///
/// # Errors
/// Two lengths, of which one would be lost.
pub(crate) fn one_length(body: &JsonBody, names: &[&str]) -> Result<()> {
    let mut given = names.iter().filter_map(|name| Some((name, body.get(name)?)));
    let Some((first, length)) = given.next() else { return Ok(()) };
    match given.find(|(_, other)| *other != length) {
        Some((name, other)) => {
            let problem = format!("{} is not {first}, which is {}", brief(other), brief(length));
            Err(ApiError::field(name, problem))
        }
        None => Ok(()),
    }
}

/// llama.cpp's `samplers`: names in a list, or letters.
fn order(body: &JsonBody) -> Result<Option<SamplerOrder>> {
    const NAME: &str = "samplers";
    let wrong = |error: engine::Error| match error {
        engine::Error::Setting { expected, found, .. } => {
            ApiError::field(NAME, format!("expected {expected}, found {}", brief_text(&found)))
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
                ApiError::field(NAME, format!("expected names or letters, found {}", brief(value)))
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

/// `{"15043": -1}`, as OpenAI writes it, or llama.cpp's `[[15043, -1]]`. An id may be spelt in many ways (`"07"`): its biases are added
/// here, once, so that no list is longer than the vocabulary.
fn bias(body: &JsonBody) -> Result<Vec<(u32, f32)>> {
    const NAME: &str = "logit_bias";
    let Some(value) = body.get(NAME) else { return Ok(Vec::new()) };
    let wrong = || {
        let found = brief(value);
        ApiError::field(NAME, format!("expected numbers by token id, found {found}"))
    };
    let by_name = |(id, bias): (&String, &Value)| Some((id.parse().ok()?, bias.as_f64()?));
    let pair = |pair: &Value| match pair.as_array()?.as_slice() {
        [id, bias] => Some((u32::try_from(id.as_u64()?).ok()?, bias.as_f64()?)),
        _ => None,
    };
    let entries: Box<dyn ExactSizeIterator<Item = Option<(u32, f64)>>> = match value {
        Value::Object(entries) => Box::new(entries.iter().map(by_name)),
        Value::Array(pairs) => Box::new(pairs.iter().map(pair)),
        _ => return Err(wrong()),
    };
    if entries.len() > MOST_BIASES {
        return Err(ApiError::field(NAME, format!("more than {MOST_BIASES} entries")));
    }
    let mut biases = BTreeMap::<u32, f32>::new();
    for entry in entries {
        let (id, bias) = entry.ok_or_else(wrong)?;
        let sum = biases.entry(id).or_insert(0.0);
        *sum += bias as f32;
        if !sum.is_finite() {
            return Err(wrong());
        }
    }
    Ok(biases.into_iter().collect())
}

/// Texts that end a reply, in the field of this name.
///
/// # Errors
/// Others than texts, too many or too long ones.
pub(crate) fn stops(body: &JsonBody, name: &str) -> Result<Vec<String>> {
    let expected = || {
        let problem = format!("expected a text or up to {MOST_STOPS}, of {STOP_BYTES} bytes each");
        ApiError::field(name, problem)
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

/// OpenAI's `response_format`, llama.cpp's `json_schema` and `grammar`.
fn form(body: &JsonBody) -> Result<Option<FormSource>> {
    let schema = |schema: &Value| Some(FormSource::JsonSchema(schema.to_string()));
    let grammar = body.text("grammar")?.filter(|text| !text.is_empty());
    let asked = [
        grammar.map(|text| FormSource::Grammar(text.to_owned())),
        body.get("json_schema").and_then(schema),
        response_format(body)?,
    ];
    let mut asked = asked.into_iter().flatten();
    match (asked.next(), asked.next()) {
        (_, Some(_)) => Err(ApiError::invalid(
            "a reply has one form: give one of response_format, json_schema, grammar",
        )),
        (form, None) => Ok(form),
    }
}

fn response_format(body: &JsonBody) -> Result<Option<FormSource>> {
    const NAME: &str = "response_format";
    let Some(format) = body.get(NAME) else { return Ok(None) };
    let schema = format.pointer("/json_schema/schema").or_else(|| format.get("schema"));
    match (format.get("type").and_then(Value::as_str), schema) {
        (Some("text"), _) => Ok(None),
        (Some("json_object"), None) => {
            Ok(Some(FormSource::JsonSchema(json!({ "type": "object" }).to_string())))
        }
        (Some("json_object" | "json_schema"), Some(schema)) => {
            Ok(Some(FormSource::JsonSchema(schema.to_string())))
        }
        (Some("json_schema"), None) => Err(ApiError::field(NAME, "expected json_schema.schema")),
        _ => Err(ApiError::field(NAME, "expected type text, json_object or json_schema")),
    }
}

#[cfg(test)]
mod tests {
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
    }
}
