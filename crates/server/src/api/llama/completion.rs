//! `/completion` and `/infill` of llama.cpp's server: texts that are continued as they are, and holes that are filled.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::response::Response;
use engine::{Completion, FinishReason, SamplerOptions, TokenLogprobs};
use serde_json::{Value, json};

use crate::Ready;
use crate::api::openai::prompts;
use crate::api::running::{RunningTimings, with_scores};
use crate::api::stream::{Chunks, Frames, stream};
use crate::api::written;
use crate::body::{Converted, Footprint, JsonBody, RequestBody};
use crate::error::{ApiError, ErrorShape, Result};
use crate::fields::{Field, Fields, Takes};
use crate::models::{ModelField, Models};
use crate::offers::ModelAbout;
use crate::record::Asker;
use crate::request::{
    Asked, Hole, LLAMA_RANGES, Length, NamedText, PromptText, ReplySettings, Said,
};
use crate::updates::Update;
use crate::wire::{ReplySource, WithField, cached_tokens, progress_json, score_list_bytes};

/// Fields of both.
macro_rules! common_fields {
    ($($more:expr),* $(,)?) => {
        &[
            ("model", Field::Honoured),
            ("n_predict", Field::Honoured),
            ("max_tokens", Field::Honoured),
            ("stream", Field::Honoured),
            ("stop", Field::Honoured),
            ("stop_token_ids", Field::Honoured),
            ("dry_sequence_breakers", Field::Honoured),
            ("seed", Field::Honoured),
            ("grammar", Field::Honoured),
            ("json_schema", Field::Honoured),
            ("ignore_eos", Field::Honoured),
            ("logit_bias", Field::Honoured),
            ("n_probs", Field::Honoured),
            ("return_tokens", Field::Honoured),
            ("cache_prompt", Field::Fixed(&["true"])),
            ("id_slot", Field::Ignored(crate::api::SLOT_BY_CONTENT)),
            ("n_keep", Field::NoEffect(crate::api::FORGETS)),
            ("n_discard", Field::NoEffect(crate::api::FORGETS)),
            ("post_sampling_probs", Field::Fixed(&["false"])),
            ("return_progress", Field::Honoured),
            ("samplers", Field::Honoured),
            ("timings_per_token", Field::Honoured),
            ("t_max_predict_ms", Field::Honoured),
            ("t_max_prompt_ms", Field::NoEffect("a prompt is read to its end, there too")),
            ("n_indent", Field::Honoured),
            ("n_cmpl", Field::Only(&["1"])),
            ("n_cache_reuse", Field::NoEffect("only what has the same bits is taken from the cache")),
            ("lora", Field::Only(&["[]"])),
            ("response_fields", Field::Honoured),
            $($more),*
        ]
    };
}

const COMPLETION_FIELDS: Fields = common_fields![("prompt", Field::Honoured)];
pub(super) const COMPLETION: Takes = Takes::Settings(COMPLETION_FIELDS);

const INFILL_FIELDS: Fields = common_fields![
    ("input_prefix", Field::Honoured),
    ("input_suffix", Field::Honoured),
    ("input_extra", Field::Honoured),
    ("prompt", Field::Honoured),
];
pub(super) const INFILL: Takes = Takes::Settings(INFILL_FIELDS);

/// The field with the scores of tokens.
const SCORES: &str = "completion_probabilities";

/// Other texts of a hole.
const MOST_OTHERS: usize = 4096;

/// Fields that say how long a reply may be.
const LENGTHS: &[Length] = &[("n_predict", 0), ("max_tokens", 0)];

pub(super) async fn completion(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let prompt = |body: &JsonBody| {
        let prompts = prompts(body)?;
        if prompts.len() > 1 && body.flag("stream")?.unwrap_or(false) {
            let problem = "a list of prompts is not streamed here: /v1/completions streams it";
            return Err(ApiError::field("stream", problem));
        }
        Ok(prompts)
    };
    answer(&models, &asker, body, COMPLETION, prompt).await
}

pub(super) async fn infill(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let prompt = |body: &JsonBody| {
        let text = |name| body.text(name).map(|text| text.map(str::to_owned));
        let side = |name| text(name)?.ok_or_else(|| ApiError::field(name, "expected a text"));
        let hole = Hole {
            before: side("input_prefix")?,
            behind: side("input_suffix")?,
            begun: text("prompt")?.unwrap_or_default(),
            others: others(body)?,
            cuts: true,
        };
        Ok(vec![PromptText::Infill(Box::new(hole))])
    };
    answer(&models, &asker, body, INFILL, prompt).await
}

/// Other texts that help to fill a hole: `[{"filename": "a", "text": "b"}]`.
fn others(body: &JsonBody) -> Result<Vec<NamedText>> {
    const NAME: &str = "input_extra";
    // llama.vim tells when it saw them, too
    const MEMBERS: [&str; 3] = ["filename", "text", "time"];
    let one = |value: &Value| {
        let members = value.as_object()?;
        let known = members.keys().all(|name| MEMBERS.contains(&name.as_str()));
        let text = members.get("text")?.as_str().filter(|_| known)?.to_owned();
        let name = match members.get("filename") {
            None | Some(Value::Null) => String::new(),
            Some(name) => name.as_str()?.to_owned(),
        };
        Some(NamedText { name, text })
    };
    let list = body.list(NAME)?.map_or(&[][..], Vec::as_slice);
    if list.len() > MOST_OTHERS {
        return Err(ApiError::field(NAME, format!("more than {MOST_OTHERS} texts")));
    }
    let read: Option<Vec<NamedText>> = list.iter().map(one).collect();
    read.ok_or_else(|| ApiError::field(NAME, "expected a list of {filename, text, time}"))
}

/// The parts of a whole reply that are wanted, each under its path; all of it where none is named.
fn only(body: &JsonBody) -> Result<Vec<String>> {
    const NAME: &str = "response_fields";
    const MOST: usize = 64;
    let paths = body.list(NAME)?.map_or(&[][..], Vec::as_slice);
    let text = |path: &Value| path.as_str().map(str::to_owned);
    let texts: Option<Vec<String>> = paths.iter().map(text).collect();
    let texts = texts.filter(|texts| texts.len() <= MOST);
    texts.ok_or_else(|| ApiError::field(NAME, format!("expected up to {MOST} texts")))
}

/// A request, and what its reply tells.
struct LlamaRequest {
    asked: Asked,
    tokens: bool,
    streams: bool,
    progress: bool,
    timings: bool,
    only: Vec<String>,
}

impl Footprint for LlamaRequest {
    fn footprint(&self) -> u64 {
        self.asked.footprint() + self.only.footprint()
    }
}

impl LlamaRequest {
    fn read(
        body: &JsonBody,
        prompt: Vec<PromptText>,
        sampler: &SamplerOptions,
    ) -> Result<LlamaRequest> {
        let logprobs = body.count("n_probs", 0, 20)?.filter(|n| *n > 0);
        let settings = ReplySettings::read(body, LENGTHS, LLAMA_RANGES, sampler)?;
        Ok(LlamaRequest {
            asked: Asked { logprobs, ..Asked::one(Said::Texts(prompt), settings) },
            tokens: body.flag("return_tokens")?.unwrap_or(false),
            streams: body.flag("stream")?.unwrap_or(false),
            progress: body.flag("return_progress")?.unwrap_or(false),
            timings: body.flag("timings_per_token")?.unwrap_or(false),
            only: only(body)?,
        })
    }
}

async fn answer(
    models: &Arc<Models>,
    asker: &Asker,
    body: RequestBody,
    takes: Takes,
    prompt: fn(&JsonBody) -> Result<Vec<PromptText>>,
) -> Result<Response> {
    let read = move |body: &JsonBody, _: &ModelAbout, sampler: &SamplerOptions| {
        LlamaRequest::read(body, prompt(body)?, sampler)
    };
    let name: ModelField = |body| body.text("model");
    let (app, request) = models.serving_for(body, takes, name, read).await?;
    let Converted { value: request, claim, notes } = request;
    let LlamaRequest { asked, tokens, streams, progress, timings, only } = request;
    let (logprobs, intake) = (asked.logprobs, Arc::clone(&claim.intake));
    let reply = LlamaReply {
        source: app.model.source(&asker.record),
        tokens,
        progress,
        only,
        notes: Vec::new(),
        probs: logprobs.is_some(),
        unsent: Vec::new(),
        sent: 0,
        timings: timings.then(RunningTimings::default),
        prompt_tokens: 0,
        slots: Vec::new(),
    };
    // tokens are reported one by one with scores only
    let asked = with_scores(asked, timings || (tokens && streams));
    let mut pending = app.reply(Converted { value: asked, claim, notes }, asker).await?;
    let (prompt_tokens, slots) = (pending.prompt_tokens, pending.slots.clone());
    let notes = pending.notes.clone();
    let reply = LlamaReply { prompt_tokens, slots, notes, ..reply };
    if streams {
        return Ok(stream(pending, reply));
    }
    let mut scores = std::mem::take(&mut pending.scores);
    let whole = pending.whole().await?;
    let n: usize = whole.iter().map(|one| one.logprobs.len()).sum();
    let bytes = logprobs.map_or(0, |top| score_list_bytes(n, top));
    scores.grow(bytes)?;
    let json = move || reply.text(&whole, bytes);
    Ok(written::whole(intake.encoding(bytes, json).await?, scores))
}

/// What all parts of a reply say, and what was told so far.
struct LlamaReply {
    source: ReplySource,
    /// Whether ids are told.
    tokens: bool,
    /// Whether the prompt's progress is told.
    progress: bool,
    /// What whoever asked should know.
    notes: Vec<String>,
    /// Paths of what is told of a whole reply; none: all.
    only: Vec<String>,
    /// Whether scores are told.
    probs: bool,
    /// Tokens of a stream, and their scores, whose text is still to come.
    unsent: Vec<TokenLogprobs>,
    /// Number of tokens that a stream has told.
    sent: usize,
    /// Times so far, if each piece includes them.
    timings: Option<RunningTimings>,
    /// Tokens of the first prompt.
    prompt_tokens: usize,
    /// Slot of the reply to each prompt.
    slots: Vec<Arc<AtomicI64>>,
}

impl LlamaReply {
    /// Returns a piece of the reply to the prompt of this index.
    fn piece(&self, index: usize, content: &str) -> Value {
        let slot = self.slots.get(index).map_or(-1, |slot| slot.load(Ordering::Relaxed));
        let mut piece = json!({
            "index": index,
            "content": content,
            "tokens": [],
            "stop": false,
            "id_slot": slot,
            "tokens_evaluated": self.prompt_tokens,
        });
        if let Some(timings) = &self.timings {
            piece["timings"] = timings.json();
        }
        piece
    }

    /// Returns the JSON of whole replies, which takes `bytes` bytes for scores. These are serialized without building their values.
    ///
    /// # Errors
    /// If there is no reply.
    fn text(&self, replies: &[Completion], bytes: u64) -> Result<Vec<u8>> {
        let ended = |(index, one): (usize, &Completion)| {
            self.ended(index, one, (&one.text, &one.tokens, Value::Null))
        };
        let objects: Vec<Value> = replies.iter().enumerate().map(ended).collect();
        let scored = objects.iter().zip(replies).map(|(object, one)| {
            let value = self.source.scores(&one.logprobs);
            WithField { object, name: SCORES, value }
        });
        let all: Vec<_> = scored.collect();
        // like llama.cpp: a list of one prompt gets a single result, not a list
        match &all[..] {
            [] => Err(ApiError::internal("there is no reply")),
            [one] => written::json_text_of(one, bytes),
            all => written::json_text_of(&all, bytes),
        }
    }

    /// Returns the last piece of a reply: its end, and the content, tokens and scores that were not told before.
    fn ended(
        &self,
        index: usize,
        reply: &Completion,
        (content, tokens, scores): (&str, &[u32], Value),
    ) -> Value {
        let mut object = self.piece(index, content);
        let stop_type = match (reply.reason, &reply.stopped_at) {
            (FinishReason::Length, _) => "limit",
            (_, Some(_)) => "word",
            (FinishReason::Cancelled, _) => "none",
            _ => "eos",
        };
        if self.tokens {
            object["tokens"] = json!(tokens);
        }
        if self.probs {
            object[SCORES] = scores;
        }
        object["stop"] = json!(true);
        object["model"] = json!(self.source.model);
        object["tokens_predicted"] = json!(reply.usage.completion_tokens);
        object["tokens_evaluated"] = json!(reply.usage.prompt_tokens);
        object["tokens_cached"] = json!(cached_tokens(reply));
        object["truncated"] = json!(false);
        object["stop_type"] = json!(stop_type);
        object["stopping_word"] = json!(reply.stopped_at.as_deref().unwrap_or(""));
        self.source.account(&mut object, reply, &self.notes);
        if self.only.is_empty() {
            return object;
        }
        let part = |path: &String| {
            let found = path.split('/').try_fold(&object, |at, name| at.get(name))?;
            Some((path.clone(), found.clone()))
        };
        Value::Object(self.only.iter().filter_map(part).collect())
    }
}

impl Chunks for LlamaReply {
    const FRAMES: Frames = Frames::PlainEvents;
    const ERRORS: ErrorShape = ErrorShape::OpenAi;

    fn update(&mut self, index: usize, update: Update) -> Result<Vec<Value>> {
        if let Some(timings) = &mut self.timings {
            timings.note(&update);
        }
        Ok(match update {
            Update::Text(text) | Update::Thought(text) => {
                let mut piece = self.piece(index, &text);
                let told = std::mem::take(&mut self.unsent);
                self.sent += told.len();
                if self.tokens {
                    piece["tokens"] = told.iter().map(|token| token.chosen.token).collect();
                }
                if self.probs {
                    piece[SCORES] = self.source.scores(&told).value();
                }
                vec![piece]
            }
            Update::Chosen(scores) => {
                if self.tokens || self.probs {
                    self.unsent.push(*scores);
                }
                Vec::new()
            }
            Update::Prefill(prefill) if self.progress => {
                let mut piece = self.piece(index, "");
                piece["prompt_progress"] = progress_json(&prefill);
                vec![piece]
            }
            Update::Prefill(_) | Update::PromptScored(_) | Update::Call(_) => Vec::new(),
            Update::Done(reply) => {
                let tokens = reply.tokens.get(self.sent..).unwrap_or_default();
                let scores = self.source.scores(&std::mem::take(&mut self.unsent)).value();
                vec![self.ended(index, &reply, ("", tokens, scores))]
            }
            Update::Failed(error) => return Err(error),
        })
    }
}
