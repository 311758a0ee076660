//! How long the masks of a vocabulary take: `cargo run --release -p rooflight-grammar --example masks -- VOCABULARY.gguf`.
//!
//! Texts that satisfy some forms are walked token by token, each of them as the vocabulary encodes it.

#![expect(clippy::print_stdout, reason = "it is what the example is for")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grammar::{CompileBudget, Form, FormSource, TokenTrie};
use tokenizer::Tokenizer;

const PERSON: &str = r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"type":"string"}},"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"enum":["Paris","London","Berlin"]},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","city"],"additionalProperties":false}},"required":["name","age","tags","address"],"additionalProperties":false}"#;
const PERSON_TEXT: &str = r#"{"name": "Ada Lovelace, née Byron", "age": 36, "tags": ["mathematician", "writer of the first program that was meant for a machine"], "address": {"street": "12 St James's Square", "city": "London", "zip": "10117"}}"#;
const ANY: &str = r#"{"type":"object"}"#;
const ANY_TEXT: &str = r#"{"k": [1, 2.5e3, true, null, {"nested": "text with \"quotes\" and \u00e9", "deep": [[[]]]}], "z": "another fairly long string that goes on and on"}"#;
const NUMBERS: &str = r#"[0-9]{1,3}(,[0-9]{3})*(\.[0-9]+)? (apples|pears|oranges)"#;
const NUMBERS_TEXT: &str = "123,456,789.25 oranges";
const PROSE: &str = r"([A-Z][a-z]*( [a-z]+)*\. ?)+";
const PROSE_TEXT: &str =
    "The quick brown fox jumps over the lazy dog. It was not amused. Nobody asked the dog.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("expected a GGUF file")?);
    let file = gguf::Gguf::open(&path)?;
    let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata())?);
    let start = Instant::now();
    let tokens = TokenTrie::new(Arc::clone(&tokenizer))?;
    println!("{} tokens, trie {:?}", tokenizer.vocab_size(), start.elapsed());
    let mut all = Vec::new();
    for (source, text) in [
        (FormSource::JsonSchema(PERSON.into()), PERSON_TEXT),
        (FormSource::JsonSchema(ANY.into()), ANY_TEXT),
        (FormSource::Regex(NUMBERS.into()), NUMBERS_TEXT),
        (FormSource::Regex(PROSE.into()), PROSE_TEXT),
    ] {
        let start = Instant::now();
        let form = Form::compile(&source, &tokens, &CompileBudget::default())?;
        let compiled = start.elapsed();
        let mut times = Vec::new();
        for _ in 0..5 {
            let mut state = form.begin();
            for token in tokenizer.encode(text)? {
                let start = Instant::now();
                state.forced();
                let mask = state.mask()?;
                // the tokens of a text as a whole need not be those of its parts
                if !mask.has(token) || state.keep(token).is_err() {
                    break;
                }
                times.push(start.elapsed());
            }
        }
        println!("compiled {compiled:?}, {}", quantiles(&mut times));
        all.extend(times);
    }
    println!("all: {}", quantiles(&mut all));
    Ok(())
}

fn quantiles(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!("{} masks: p50 {:?}, p99 {:?}, most {:?}", times.len(), at(0.5), at(0.99), at(1.0))
}
