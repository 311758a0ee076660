//! `tokenize`: text to ids and back.

use std::io::{IsTerminal, Write};

use serde_json::json;
use tokenizer::Tokenizer;

use crate::args::{self, PromptArgs};
use crate::exit::Failure;
use crate::input::TextSource;
use crate::load;
use crate::printable::Printable;

/// Print the token ids of a text, or the text of token ids
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight tokenize model.gguf 'Hello, world'\n  \
                        rooflight tokenize model.gguf < text.txt\n  \
                        rooflight tokenize model.gguf --decode '9707 11 1879'\n\n\
                        Without a text, stdin is read.")]
pub(super) struct Tokenize {
    #[command(flatten)]
    text: PromptArgs,
    /// Put the beginning-of-sequence token first
    #[arg(long, conflicts_with = "decode")]
    bos: bool,
    /// Read the names of special tokens in the text as those tokens; with --decode, print them
    #[arg(long)]
    special: bool,
    /// The reverse: from ids, in place of the text, to text
    #[arg(long)]
    decode: bool,
    /// Print one JSON object: tokens, or with --decode the text as content
    #[arg(long)]
    json: bool,
}

impl Tokenize {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let given = self.text.resolve(args::variable())?;
        let none = || Failure::Usage("no model: rooflight tokenize MODEL TEXT".into());
        let gguf = load::open(&given.model.ok_or_else(none)?)?;
        let tokenizer = load::tokenizer(&gguf)?;
        let text = given.prompt.unwrap_or(TextSource::Stdin).read()?;
        if self.decode {
            return decode(&tokenizer, &parse_ids(&text)?, (self.special, self.json), out);
        }
        load::warn_lost(&tokenizer, &text)?;
        let mut ids = Vec::new();
        if self.bos {
            ids.push(
                tokenizer.bos().ok_or_else(|| {
                    Failure::Usage("--bos: the vocabulary has no such token".into())
                })?,
            );
        }
        ids.extend(if self.special {
            tokenizer.encode_special(&text)?
        } else {
            tokenizer.encode(&text)?
        });
        Ok(print_ids(&ids, self.json, out)?)
    }
}

/// Bytes of tokens as they are, without the space that encoding put first; on a terminal, without what would control it.
fn decode(
    tokenizer: &Tokenizer,
    ids: &[u32],
    (special, json): (bool, bool),
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    for &id in ids {
        if id as usize >= tokenizer.vocab_size() {
            return Err(Failure::Usage(format!(
                "token {id} is outside the vocabulary of {}",
                tokenizer.vocab_size()
            ))
            .into());
        }
        match tokenizer.token_text(id) {
            Some(text) if special && tokenizer.is_control(id) => {
                bytes.extend_from_slice(text.as_bytes())
            }
            _ => bytes.extend_from_slice(tokenizer.bytes(id).as_ref()),
        }
    }
    if tokenizer.adds_space() && bytes.first() == Some(&b' ') {
        bytes.remove(0);
    }
    if json {
        writeln!(out, "{}", json!({ "content": String::from_utf8_lossy(&bytes) }))?;
    } else if std::io::stdout().is_terminal() {
        writeln!(out, "{}", Printable::default().push(&String::from_utf8_lossy(&bytes)))?;
    } else {
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Ids separated by spaces, line breaks or commas.
pub(super) fn parse_ids(text: &str) -> Result<Vec<u32>, Failure> {
    text.split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .map(|word| {
            let shown = gguf::escape(word, 40);
            word.parse().map_err(|_| Failure::Usage(format!("expected token ids, found `{shown}`")))
        })
        .collect()
}

/// Prints ids separated by spaces, or as the `tokens` of a JSON object.
///
/// # Errors
/// If writing fails.
pub(super) fn print_ids(ids: &[u32], json: bool, out: &mut dyn Write) -> std::io::Result<()> {
    if json {
        return writeln!(out, "{}", json!({ "tokens": ids }));
    }
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    writeln!(out, "{}", ids.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed() {
        assert_eq!(parse_ids(" 1 2,3\n4 ").unwrap(), [1, 2, 3, 4]);
        assert_eq!(parse_ids("").unwrap(), [] as [u32; 0]);
        assert!(parse_ids("1 -2").unwrap_err().to_string().contains("`-2`"));
    }
}
