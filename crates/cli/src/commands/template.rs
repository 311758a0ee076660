//! `template`: what a conversation becomes before a model reads it.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use engine::{ChatFormat as _, ModelFormat};
use serde_json::{Map, Value, json};
use tokenizer::{ChatTemplate, Tokenizer};

use super::tokenize::print_ids;
use crate::args::ModelArgs;
use crate::exit::Failure;
use crate::input::TextSource;
use crate::load;
use crate::printable::Printable;

/// Print what a conversation becomes by a chat template
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight template model.gguf -f conversation.json\n  \
                  rooflight template --template chat.jinja -f conversation.json --now 2026-11-22\n  \
                  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' |\n    \
                  rooflight template model.gguf --tokens\n\n\
                  The conversation is a JSON object with all that the template is given: messages, tools,\n\
                  add_generation_prompt, and switches of its own such as enable_thinking; or a list of messages,\n\
                  as /save in a chat writes it. The beginning of a reply is added unless the last message is one;\n\
                  add_generation_prompt true or false says otherwise. Without -f, stdin is read.\n\
                  What transformers refuses is refused here too.")]
pub(super) struct Template {
    #[command(flatten)]
    model: ModelArgs,
    /// The template, instead of the model's
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// The conversation; - for stdin
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print token ids instead of text, the begin token first if the model wants it
    #[arg(long)]
    tokens: bool,
    /// Print one JSON object: prompt, or tokens
    #[arg(long)]
    json: bool,
    /// What the template writes as begin token, instead of the model's
    #[arg(long, value_name = "TEXT")]
    bos: Option<String>,
    /// What the template writes as end token, instead of the model's
    #[arg(long, value_name = "TEXT")]
    eos: Option<String>,
    /// The time the template is told: 2026-11-22, 2026-11-22T12:00:00, or seconds since 1970; in UTC
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    now: Option<i64>,
}

impl Template {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let tokenizer = match self.model.given() {
            Some(path) => {
                let gguf = load::open(&path)?;
                Some((load::tokenizer(&gguf)?, gguf))
            }
            None => None,
        };
        if self.tokens && tokenizer.is_none() {
            let none = "--tokens: without a model there is no vocabulary to take them from";
            return Err(Failure::Usage(none.into()).into());
        }
        let mut template = match (self.template, &tokenizer) {
            (Some(file), _) => {
                let source = TextSource::of_path(file).read()?;
                let vocabulary = tokenizer.as_ref().map(|(tokenizer, _)| tokenizer);
                of_source(&source, vocabulary)?
            }
            (None, Some((tokenizer, gguf))) => load::template(gguf, tokenizer)?,
            (None, None) => {
                let none = "no template: rooflight template MODEL, or --template FILE";
                return Err(Failure::Usage(none.into()).into());
            }
        };
        self.bos.into_iter().for_each(|text| template.set_bos(text));
        self.eos.into_iter().for_each(|text| template.set_eos(text));
        self.now.into_iter().for_each(|seconds| template.set_time(seconds));
        let arguments = arguments(self.file.map_or(TextSource::Stdin, TextSource::of_path))?;
        let spans = template.render_json(&arguments, &Arc::default())?;
        if let Some((tokenizer, _)) = tokenizer.filter(|_| self.tokens) {
            let text: String = spans.iter().map(|span| span.text.as_str()).collect();
            load::warn_lost(&tokenizer, &text)?;
            let ids = ModelFormat::new(Arc::new(tokenizer), template).encode(&spans, true)?;
            return Ok(print_ids(&ids, self.json, out)?);
        }
        let text: String = spans.into_iter().map(|span| span.text).collect();
        if self.json {
            writeln!(out, "{}", json!({ "prompt": text }))?;
        } else if std::io::stdout().is_terminal() {
            writeln!(out, "{}", Printable::default().push(&text))?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        Ok(())
    }
}

fn of_source(source: &str, tokenizer: Option<&Tokenizer>) -> anyhow::Result<ChatTemplate> {
    Ok(match tokenizer {
        Some(tokenizer) => ChatTemplate::new(source, tokenizer)?,
        None => ChatTemplate::from_source(source)?,
    })
}

/// The arguments of a rendering.
fn arguments(source: TextSource) -> anyhow::Result<Map<String, Value>> {
    let text = source.read().context("reading the conversation")?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(arguments)) => Ok(with_prompt(arguments)),
        // a list of messages, as a chat saves it
        Ok(Value::Array(messages)) => {
            Ok(with_prompt(Map::from_iter([("messages".to_owned(), Value::Array(messages))])))
        }
        Ok(_) => Err(rooflight::Error::Malformed(
            "the conversation: expected a JSON object such as {\"messages\": [..]} or a list of messages, found neither"
                .into(),
        )
        .into()),
        Err(error) => Err(rooflight::Error::Malformed(format!("the conversation is no JSON: {error}")).into()),
    }
}

/// Requests a reply where the conversation does not say whether to, unless its last message is a reply.
fn with_prompt(mut arguments: Map<String, Value>) -> Map<String, Value> {
    let messages = arguments.get("messages").and_then(Value::as_array);
    let last = messages.and_then(|messages| messages.last()?.get("role"));
    let replied = last.is_some_and(|role| role == "assistant");
    arguments.entry("add_generation_prompt").or_insert_with(|| (!replied).into());
    arguments
}

/// Seconds since 1970 of a time in UTC.
fn seconds(text: &str) -> Result<i64, String> {
    let wrong = || "expected 2026-11-22, 2026-11-22T12:00:00 or seconds since 1970".to_owned();
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let parts = |text: &str, mark: char| -> Option<[i64; 3]> {
        let numbers: Option<Vec<i64>> = text
            .split(mark)
            .map(|part| part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit())))
            .collect();
        numbers?.try_into().ok()
    };
    let time = time.strip_suffix('Z').unwrap_or(time);
    let [year, month, day] = parts(date, '-').ok_or_else(wrong)?;
    let [hour, minute, second] = parts(time, ':').ok_or_else(wrong)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = usize::try_from(month - 1).ok().and_then(|month| days.get(month));
    let valid = (1970..=9999).contains(&year)
        && length.is_some_and(|length| (1..=*length).contains(&day))
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second);
    if !valid {
        return Err(wrong());
    }
    let before: i64 = days.iter().take(usize::try_from(month - 1).unwrap_or(0)).sum();
    let past = year - 1;
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let days = (year - 1970) * 365 + leaps(past) - leaps(1969) + before + day - 1;
    Ok(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("1795348800", 1_795_348_800),
            ("2026-11-22T12:00:00", 1_795_348_800),
            ("2026-11-22 12:00:00Z", 1_795_348_800),
            ("1970-01-01", 0),
            ("2000-02-29T23:59:59", 951_868_799),
            ("2024-12-31", 1_735_603_200),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "x",
            "2026-13-01",
            "2026-02-29",
            "2026-11-22T24:00:00",
            "2026-11",
            "-1-1-1",
            "2026-+1-01",
        ] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
