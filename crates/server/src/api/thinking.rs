//! Ollama's field `think`.

use engine::Reasoning;
use serde_json::Value;

use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::request::effort;

/// Returns whether the model is to think, and how much.
///
/// # Errors
/// A value other than true, false or a level.
pub(crate) fn think(body: &JsonBody) -> Result<Reasoning> {
    match body.get("think") {
        None => Ok(Reasoning::Auto),
        Some(Value::Bool(true)) => Ok(Reasoning::On),
        Some(Value::Bool(false)) => Ok(Reasoning::Off),
        Some(Value::String(none)) if none.is_empty() => Ok(Reasoning::Auto),
        Some(Value::String(level)) => {
            effort(Some(level)).map_err(|problem| ApiError::field("think", problem))
        }
        Some(_) => Err(ApiError::field("think", "expected true, false or a level")),
    }
}
