//! Text of a content: a text, or a list of parts, some of which are text.

use serde_json::Value;

use crate::fields::brief;

/// Returns the text of a content.
///
/// # Errors
/// A value without text, such as null, and parts that a text model cannot take.
pub(crate) fn content_of(content: &Value) -> Result<String, String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => parts.iter().map(part_of).collect(),
        other => Err(format!("expected content: a text or parts of text, found {}", brief(other))),
    }
}

fn part_of(part: &Value) -> Result<String, String> {
    let text = |key: &str| {
        let text = part.get(key).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| {
            format!("a part of type {}: expected {key}: a text", brief(&part["type"]))
        })
    };
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text" | "summary_text") => text("text"),
        Some("refusal") => text("refusal"),
        // templates omit the thoughts of earlier replies
        Some("thinking" | "redacted_thinking" | "reasoning" | "reasoning_text") => {
            Ok(String::new())
        }
        Some(kind) => Err(not_taken(kind, part)),
        None if part.is_string() => Ok(part.as_str().unwrap_or_default().to_owned()),
        None => Err(format!("expected parts with a type, found {}", brief(part))),
    }
}

/// Kinds of parts that only multimodal models can take.
const MEDIA: [(&str, &[&str]); 4] = [
    ("images", &["image_url", "input_image", "image", "image_file"]),
    ("audio", &["input_audio", "audio", "audio_url"]),
    ("video", &["video", "video_url", "input_video"]),
    ("files", &["file", "input_file", "document", "container_upload"]),
];

/// Returns the reason for which a part of this type is refused.
pub(crate) fn not_taken(kind: &str, part: &Value) -> String {
    match MEDIA.iter().find(|(_, kinds)| kinds.contains(&kind)) {
        Some((media, _)) => format!("this model takes no {media}"),
        None => format!("expected parts of text, found {}", brief(part)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn contents_are_texts_and_the_rest_is_named() {
        let parts = json!([{ "type": "text", "text": "a" }, { "type": "refusal", "refusal": "b" },
                           { "type": "output_text", "text": "c" }, "d", { "type": "thinking" }]);
        assert_eq!(content_of(&parts), Ok("abcd".into()));
        assert_eq!(content_of(&json!("x")), Ok("x".into()));
        for (kind, media) in [
            ("image_url", "images"),
            ("input_image", "images"),
            ("input_audio", "audio"),
            ("video_url", "video"),
            ("input_file", "files"),
        ] {
            let problem = content_of(&json!([{ "type": kind }])).unwrap_err();
            assert_eq!(problem, format!("this model takes no {media}"));
        }
        for wrong in [
            json!(null),
            json!(3),
            json!([3]),
            json!([{ "type": "text" }]),
            json!([{ "type": "x" }]),
        ] {
            assert!(content_of(&wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
