//! A pre-tokenizer whose name is not known, recognized by the model's own `tokenizer.json` where the file holds it.
//!
//! Its steps must be those of one that is known: patterns from a stranger are compared, never run, because some would
//! take time that grows with the square of the text.

use regex_syntax::hir::Hir;
use serde::Deserialize;
use serde_json::Value;

use crate::pre::{self, GPT2, PreTokenizer};
use crate::split::Stage;

/// Where converters put it.
pub(crate) const KEY: &str = "tokenizer.huggingface.json";

/// Most steps of one.
const MAX_STEPS: usize = 16;

/// What is read of a `tokenizer.json`; the rest, the vocabulary above all, is passed over.
#[derive(Deserialize)]
struct Published {
    pre_tokenizer: Option<Value>,
    #[serde(default)]
    model: PublishedModel,
}

#[derive(Deserialize, Default)]
struct PublishedModel {
    #[serde(default)]
    ignore_merges: bool,
}

/// The known pre-tokenizer that does what `json` says, and whether a word that is a token is that token.
///
/// # Errors
/// Why there is none: what was found that is not known.
pub(crate) fn recognize(json: &str) -> Result<(&'static PreTokenizer, bool), String> {
    let published: Published =
        serde_json::from_str(json).map_err(|_| "it is no tokenizer.json".to_owned())?;
    let mut patterns = Vec::new();
    steps(published.pre_tokenizer.as_ref().unwrap_or(&Value::Null), &mut patterns)?;
    let described =
        describe(patterns.iter().map(String::as_str)).ok_or("its patterns cannot be read here")?;
    pre::all()
        .find(|pre| describe(pre.patterns.iter().copied()).is_some_and(|known| known == described))
        .map(|pre| (pre, published.model.ignore_merges))
        .ok_or_else(|| "its patterns are those of none that is known".to_owned())
}

/// Patterns by what they match, however they are written.
fn describe<'p>(patterns: impl Iterator<Item = &'p str>) -> Option<Vec<(Stage, Hir)>> {
    let one = |pattern| {
        let (stage, regex) = Stage::of(pattern);
        Some((stage, regex_syntax::parse(&regex).ok()?))
    };
    patterns.map(one).collect()
}

/// Appends the patterns of a step and of those in it.
fn steps(step: &Value, out: &mut Vec<String>) -> Result<(), String> {
    if out.len() > MAX_STEPS {
        return Err(format!("it has more than {MAX_STEPS} steps"));
    }
    let text = |key: &str| step[key].as_str().unwrap_or_default();
    let is = |key: &str, default: bool| step[key].as_bool().unwrap_or(default);
    match text("type") {
        "Sequence" => {
            let inner = step["pretokenizers"].as_array().map(Vec::as_slice).unwrap_or_default();
            return inner.iter().try_for_each(|step| steps(step, out));
        }
        "Split" => {
            let isolates = match text("behavior") {
                "Isolated" => !is("invert", false),
                // What lies between is dropped; the patterns that are known leave nothing there.
                "Removed" => is("invert", false),
                _ => false,
            };
            if !isolates {
                return Err("it drops or joins what it splits at".to_owned());
            }
            let pattern = &step["pattern"];
            match (pattern["Regex"].as_str(), pattern["String"].as_str()) {
                (Some(regex), _) => out.push(regex.to_owned()),
                (None, Some(text)) => out.push(regex_syntax::escape(text)),
                (None, None) => return Err("it splits at nothing".to_owned()),
            }
        }
        "Digits" if is("individual_digits", false) => out.push(r"\p{N}".to_owned()),
        "Digits" => out.push(r"\p{N}+".to_owned()),
        "Punctuation" => out.push(r"[\p{P}!-/:-@\[-`{-~]".to_owned()),
        "ByteLevel" if is("add_prefix_space", true) => {
            return Err("it puts a space before the text".to_owned());
        }
        "ByteLevel" if is("use_regex", true) => out.push(GPT2.to_owned()),
        "ByteLevel" => {}
        other => return Err(format!("it has a step \"{}\"", gguf::escape(other, 40))),
    }
    Ok(())
}
