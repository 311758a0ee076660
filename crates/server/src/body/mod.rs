//! Bodies of requests: JSON of bounded size and depth, in which each name stands once; and what is read of them.

mod unique;

use axum::body::Body;
use axum::extract::FromRequest;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};

use crate::error::{ApiError, Result};
use crate::fields::brief;
use unique::{PROMPT, Unique};

/// Most bytes of a body.
pub(crate) const MOST_BYTES: usize = 8 << 20;
/// A body that has not come by then is not waited for.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

/// The fields of a body.
#[derive(Debug, Default)]
pub struct JsonBody {
    fields: Map<String, Value>,
    /// All of `prompt`, where that is a long list of token ids: the field has but the first ones.
    prompt: Option<Vec<u32>>,
}

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, _: &S) -> Result<JsonBody> {
        let (parts, body) = request.into_parts();
        if !may_be_json(&parts.headers) {
            let error = ApiError::invalid("expected Content-Type: application/json");
            return Err(error.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let read = tokio::time::timeout(DEADLINE, Limited::new(body, MOST_BYTES).collect());
        let collected = read.await.map_err(|_| {
            ApiError::invalid("the body did not come in time")
                .with_status(StatusCode::REQUEST_TIMEOUT)
        })?;
        let bytes = collected.map_err(|error| match error.is::<LengthLimitError>() {
            true => ApiError::invalid(format!("the body has more than {MOST_BYTES} bytes"))
                .with_status(StatusCode::PAYLOAD_TOO_LARGE),
            false => ApiError::invalid(format!("the body could not be read: {error}")),
        })?;
        JsonBody::parse(&bytes.to_bytes())
    }
}

/// The same where nothing needs to be said: no body is one without fields.
#[derive(Debug)]
pub(crate) struct AnyBody(pub(crate) JsonBody);

impl<S: Sync> FromRequest<S> for AnyBody {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, state: &S) -> Result<AnyBody> {
        let is_empty = axum::body::HttpBody::size_hint(request.body()).exact() == Some(0);
        if is_empty && !request.headers().contains_key(header::CONTENT_TYPE) {
            return Ok(AnyBody(JsonBody::default()));
        }
        JsonBody::from_request(request, state).await.map(AnyBody)
    }
}

/// Whether a body is said to be JSON, or is what `curl -d` sends unless told otherwise, as examples of Ollama's have it. That a
/// web page's form says the same is no harm: whatever comes from a page is refused before.
fn may_be_json(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = text.and_then(|text| text.split(';').next()).map(str::trim);
    let known = ["application/json", "application/x-www-form-urlencoded"];
    kind.is_some_and(|kind| known.iter().any(|known| kind.eq_ignore_ascii_case(known)))
}

impl JsonBody {
    /// Read the text of an object.
    ///
    /// # Errors
    /// What is none, or has a name twice.
    pub fn parse(bytes: &[u8]) -> Result<JsonBody> {
        let Unique { value, prompt } = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::invalid(format!("the body is no JSON: {error}")))?;
        match value {
            Value::Object(fields) => Ok(JsonBody { fields, prompt }),
            other => Err(ApiError::invalid(format!("expected an object, found {}", brief(&other)))),
        }
    }

    /// The fields of an object among these, none if it is not there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn nested(&self, name: &str) -> Result<JsonBody> {
        let map = self.typed(name, "an object", Value::as_object)?;
        Ok(JsonBody { fields: map.cloned().unwrap_or_default(), prompt: None })
    }

    /// All ids of a `prompt` that is a long list of them; its field has but the first ones.
    pub(crate) fn prompt_ids(&self) -> Option<&[u32]> {
        self.prompt.as_deref()
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Take a field out, as if it were not there.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.forget_prompt(name);
        self.fields.shift_remove(name)
    }

    /// Put a field in place of what it was.
    pub fn set(&mut self, name: &str, value: Value) {
        self.forget_prompt(name);
        self.fields.insert(name.to_owned(), value);
    }

    fn forget_prompt(&mut self, name: &str) {
        if name == PROMPT {
            self.prompt = None;
        }
    }

    /// A field's value; null is as good as nothing.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A text, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        self.typed(name, "a text", Value::as_str)
    }

    /// True or false, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// A number, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>> {
        self.typed(name, "a number", Value::as_f64)
    }

    /// An integer, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        self.typed(name, "an integer", Value::as_i64)
    }

    /// A count of at least `least` and at most `most`, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub(crate) fn count(&self, name: &str, least: usize, most: usize) -> Result<Option<usize>> {
        let expected = match most {
            usize::MAX => format!("a number, {least} or more"),
            _ => format!("a number from {least} to {most}"),
        };
        let read = |value: &Value| {
            let n = usize::try_from(value.as_u64()?).ok()?;
            (least..=most).contains(&n).then_some(n)
        };
        self.typed(name, &expected, read)
    }

    /// A list, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn list(&self, name: &str) -> Result<Option<&Vec<Value>>> {
        self.typed(name, "a list", Value::as_array)
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let found =
            || ApiError::field(name, format!("expected {expected}, found {}", brief(value)));
        read(value).ok_or_else(found).map(Some)
    }
}

#[cfg(test)]
impl From<Value> for JsonBody {
    fn from(value: Value) -> JsonBody {
        JsonBody::parse(value.to_string().as_bytes()).unwrap()
    }
}
