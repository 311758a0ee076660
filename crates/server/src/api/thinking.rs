//! Ollama's `think`.

use engine::Reasoning;
use serde_json::Value;

use crate::body::JsonBody;
use crate::error::{ApiError, Result};

/// Whether the model is to think.
///
/// # Errors
/// Anything else than true, false or a level.
pub(super) fn think(body: &JsonBody) -> Result<Reasoning> {
    match body.get("think") {
        None => Ok(Reasoning::Auto),
        Some(Value::Bool(true)) => Ok(Reasoning::On),
        Some(Value::Bool(false)) => Ok(Reasoning::Off),
        Some(Value::String(level)) if matches!(&**level, "low" | "medium" | "high") => {
            Ok(Reasoning::On)
        }
        Some(Value::String(none)) if none.is_empty() => Ok(Reasoning::Auto),
        Some(_) => Err(ApiError::field("think", "expected true, false, low, medium or high")),
    }
}
