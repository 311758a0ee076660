//! What the APIs have in common: how a reply is made, read from fields that have one name in all of them, and the way to
//! the thread that computes and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{
    ChatFormat, Completion, Message, Reasoning, Sampler, SamplerOptions, SamplerSetting, Toolbox,
};
use grammar::{Form, FormSource, GrammarError, TokenTrie};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tools::ToolUse;

use crate::Serving;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::brief;
use crate::worker::{ReplyJob, Update};

/// Texts that may end a reply, and bytes of each.
const MOST_STOPS: usize = 16;
const STOP_BYTES: usize = 256;

/// How replies are made.
pub(crate) struct Asked {
    pub(crate) sampler: SamplerOptions,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stop: Vec<String>,
    pub(crate) ignore_eog: bool,
    /// What the reply must be.
    pub(crate) form: Option<FormSource>,
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

impl Asked {
    /// As the fields of `body` say; most tokens stand in one of `length`.
    ///
    /// # Errors
    /// A field that cannot be obeyed.
    pub(crate) fn read(
        body: &JsonBody,
        length: &[&str],
        defaults: &SamplerOptions,
    ) -> Result<Asked> {
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
        sampler.check()?;
        let mut max_tokens = None;
        for name in length {
            max_tokens = body.count(name, 1, usize::MAX)?.or(max_tokens);
        }
        Ok(Asked {
            sampler,
            max_tokens,
            stop: stops(body, "stop")?,
            ignore_eog: body.flag("ignore_eos")?.unwrap_or(false),
            form: form(body)?,
        })
    }
}

/// `{"15043": -1}`, as OpenAI writes it.
fn bias(body: &JsonBody) -> Result<Vec<(u32, f32)>> {
    const NAME: &str = "logit_bias";
    let wrong = |found: &Value| {
        let found = brief(found);
        ApiError::field(NAME, format!("expected numbers by token id, found {found}"))
    };
    let Some(value) = body.get(NAME) else { return Ok(Vec::new()) };
    let entries = value.as_object().ok_or_else(|| wrong(value))?;
    let entry = |(id, bias): (&String, &Value)| {
        Some((id.parse().ok()?, bias.as_f64().filter(|bias| bias.is_finite())? as f32))
    };
    entries.iter().map(entry).collect::<Option<_>>().ok_or_else(|| wrong(value))
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

/// Raises a flag when whoever waited is gone.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// The flag.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Replies on their way. Dropping them ends them.
pub(crate) struct Pending {
    updates: UnboundedReceiver<(usize, Update)>,
    replies: usize,
    _cancel: CancelOnDrop,
}

/// A reply that is there.
pub(crate) struct Whole {
    pub(crate) completion: Completion,
    /// The text it ended at, if it is one of those that end it.
    pub(crate) stopped: Option<String>,
}

impl Pending {
    /// How many there will be.
    pub(crate) fn replies(&self) -> usize {
        self.replies
    }

    /// What happens next, and to which of the replies; `None` if nobody will tell any more.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        self.updates.recv().await
    }

    /// All `n` of them.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) async fn whole(mut self, n: usize) -> Result<Vec<Whole>> {
        let mut done: Vec<Option<(Completion, Option<String>)>> = vec![None; n];
        while let Some((index, update)) = self.next().await {
            match update {
                Update::Done(completion, stopped) => done[index] = Some((*completion, stopped)),
                Update::Failed(error) => return Err(error),
                Update::Prefill(_) | Update::Text(_) | Update::Thought(_) | Update::Call(_) => {}
            }
        }
        let whole = |done: Option<(Completion, Option<String>)>| {
            let unfinished = || ApiError::internal("the reply was not finished");
            let (completion, stopped) = done.ok_or_else(unfinished)?;
            Ok(Whole { completion, stopped })
        };
        done.into_iter().map(whole).collect()
    }
}

/// A prompt and the reply that is wanted.
pub(crate) struct WantedReplies {
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) asked: Asked,
    /// Whether thoughts are told apart.
    pub(crate) split_thoughts: bool,
    /// What the replies may call.
    pub(crate) calls: Option<WantedCalls>,
}

/// What replies may call.
pub(crate) struct WantedCalls {
    pub(crate) tools: Arc<ToolUse>,
    /// Calls that the conversation has already.
    pub(crate) before: usize,
}

impl Serving {
    /// Have a reply made to each prompt; those after the first are drawn with other seeds. `cancel`: what ends them.
    ///
    /// # Errors
    /// A prompt that does not fit, a form that cannot be had, or a full queue.
    pub(crate) async fn reply(
        self: &Arc<Serving>,
        wanted: WantedReplies,
        cancel: CancelOnDrop,
    ) -> Result<Pending> {
        let capacity = self.model.cache.capacity;
        self.check_tokens(&wanted)?;
        let too_long = wanted.prompts.iter().map(Vec::len).find(|wanted| *wanted > capacity);
        if let Some(wanted) = too_long {
            return Err(engine::Error::ContextFull { wanted, capacity }.into());
        }
        let app = Arc::clone(self);
        blocking(move || app.submit(wanted, cancel)).await
    }

    /// The tokens of a conversation, ready for the next reply.
    ///
    /// # Errors
    /// A template that refuses it.
    pub(crate) async fn prompt(
        &self,
        messages: Vec<Message>,
        calls: Option<&WantedCalls>,
        reasoning: Reasoning,
        cancel: &CancelOnDrop,
    ) -> Result<Vec<u32>> {
        let (flag, format) = (Arc::clone(cancel.flag()), Arc::clone(&self.model.format));
        let tools = calls.map(|calls| Arc::clone(&calls.tools));
        let render = move || {
            let instructions = tools.as_ref().and_then(|tools| tools.instructions());
            let messages = match instructions {
                Some(instructions) => engine::with_instructions(&messages, instructions),
                None => messages,
            };
            let declared = tools.as_ref().and_then(|tools| tools.declared());
            let spans = format.render(&messages, declared, reasoning, &flag)?;
            Ok(format.encode(&spans, true)?)
        };
        blocking(render).await
    }

    /// That all tokens of a request are the model's, and that it may end as it must.
    fn check_tokens(&self, wanted: &WantedReplies) -> Result<()> {
        let n = self.model.model.program().vocab_size();
        let unknown = |id: &&u32| **id as usize >= n;
        if let Some(id) = wanted.prompts.iter().flatten().find(unknown) {
            return Err(ApiError::field("prompt", format!("the model has no token {id}, but {n}")));
        }
        if let Some((id, _)) = wanted.asked.sampler.logit_bias.iter().find(|(id, _)| unknown(&id)) {
            let problem = format!("the model has no token {id}, but {n}");
            return Err(ApiError::field("logit_bias", problem));
        }
        let must_end = wanted.asked.form.is_some()
            || wanted.calls.as_ref().is_some_and(|calls| calls.tools.must());
        if must_end && wanted.asked.ignore_eog {
            let problem = "a reply that has a form ends when it has it";
            return Err(ApiError::field("ignore_eos", problem));
        }
        Ok(())
    }

    fn submit(&self, wanted: WantedReplies, cancel: CancelOnDrop) -> Result<Pending> {
        let WantedReplies { prompts, asked, split_thoughts, calls } = wanted;
        if asked.form.is_some() && calls.is_some() {
            let problem = "a reply has one form: tools, or response_format, json_schema, grammar";
            return Err(ApiError::invalid(problem));
        }
        let form = asked.form.as_ref().map(|form| self.form(form)).transpose()?;
        let (sender, updates) = unbounded_channel();
        let job = |(index, prompt): (usize, Vec<u32>)| {
            let seed = asked.sampler.seed.map(|seed| seed.wrapping_add(index as u64));
            let options = SamplerOptions { seed, ..asked.sampler.clone() };
            let sampler = Sampler::new(options)?.with_vocabulary(&*self.model.format);
            let sampler = match &form {
                Some(form) => sampler.with_constraint(form.begin())?,
                None => sampler,
            };
            let sampler = match &calls {
                Some(calls) => calls.tools.constrain(sampler, true)?,
                None => sampler,
            };
            let parser = calls.as_ref().and_then(|calls| calls.tools.parser(calls.before));
            Ok(ReplyJob {
                prompt,
                sampler,
                max_tokens: asked.max_tokens,
                stop: asked.stop.clone(),
                ignore_eog: asked.ignore_eog,
                split_thoughts,
                cancel: Arc::clone(cancel.flag()),
                updates: sender.clone(),
                index,
                parser,
            })
        };
        let jobs = prompts.into_iter().enumerate().map(job).collect::<Result<Vec<_>>>()?;
        let replies = jobs.len();
        self.worker.submit(jobs)?;
        Ok(Pending { updates, replies, _cancel: cancel })
    }

    fn form(&self, source: &FormSource) -> Result<Form> {
        Ok(self.with_trie(|trie| Form::compile(source, trie))??)
    }

    /// What `with` makes of the model's tokens.
    ///
    /// # Errors
    /// A vocabulary in which no reply can end.
    pub(crate) fn with_trie<T>(&self, with: impl FnOnce(&TokenTrie) -> T) -> Result<T> {
        let mut trie = self.trie.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if trie.is_none() {
            let tokenizer = Arc::clone(self.model.format.tokenizer());
            *trie = Some(TokenTrie::new(tokenizer)?);
        }
        // what is made of it may take its time, for which nobody waits
        let tokens = trie.clone().expect("it was just made");
        drop(trie);
        Ok(with(&tokens))
    }
}

impl From<GrammarError> for ApiError {
    fn from(error: GrammarError) -> ApiError {
        ApiError::invalid(error.to_string())
    }
}

/// Do what takes time where nobody else waits for it.
///
/// # Errors
/// Those of `work`; that it did not come to its end.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("the request failed")))
}
