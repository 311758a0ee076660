//! Options for the prompt of a conversation, as OpenAI's API and other servers define them: amount of thinking, continuation of the
//! last message, variables of the template.

use engine::{Effort, Message, PromptEnd, Reasoning, TemplateVariables};
use serde_json::{Map, Value};

use super::ChatOptions;
use crate::api::think;
use crate::body::{JsonBody, map_bytes};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Takes, brief};

const EFFORT: &str = "reasoning_effort";
const KWARGS: &str = "chat_template_kwargs";
const CONTINUE: &str = "continue_final_message";
const GENERATION: &str = "add_generation_prompt";

/// Template variables that hold the conversation itself, or text from the vocabulary.
const OWN: [&str; 6] = ["messages", "tools", "bos_token", "eos_token", GENERATION, CONTINUE];

/// Fields of OpenRouter's `reasoning`.
const REASONING: Takes = Takes::Fields(&[
    ("effort", Field::Honoured),
    ("enabled", Field::Honoured),
    ("exclude", Field::Ignored("thoughts are told apart from the reply")),
    ("max_tokens", Field::Honoured),
    ("summary", Field::NoEffect("thoughts are told as they are")),
]);

/// Fields of DeepSeek's and Anthropic's `thinking`.
const THINKING: Takes = Takes::Fields(&[
    ("type", Field::Honoured),
    ("budget_tokens", Field::Honoured),
    ("display", Field::NoEffect("thoughts are told as they are")),
]);

/// Reads how the prompt of these messages is built.
///
/// # Errors
/// A field that cannot be obeyed.
pub(crate) fn chat_options(body: &JsonBody, messages: &[Message]) -> Result<ChatOptions> {
    let kwargs = body.nested(KWARGS)?;
    let reasoning = reasoning(body, &kwargs)?;
    let end = end(body, messages)?;
    let variables = variables(kwargs.fields())?;
    Ok(ChatOptions { reasoning, end, variables })
}

/// Reads the amount of thinking from OpenAI's field, or from those of other servers.
fn reasoning(body: &JsonBody, kwargs: &JsonBody) -> Result<Reasoning> {
    let on = |flag: Option<bool>| match flag {
        None => Reasoning::Auto,
        Some(true) => Reasoning::On,
        Some(false) => Reasoning::Off,
    };
    let all = [
        (EFFORT, effort_of(body, EFFORT)?),
        ("reasoning", openrouter_reasoning(body)?),
        ("thinking", thinking(body)?),
        ("think", think(body)?),
        ("enable_thinking", on(body.flag("enable_thinking")?)),
        ("chat_template_kwargs.reasoning_effort", effort_of(kwargs, EFFORT)?),
        ("chat_template_kwargs.enable_thinking", on(kwargs.flag("enable_thinking")?)),
        ("chat_template_kwargs.thinking", on(kwargs.flag("thinking")?)),
    ];
    let mut said: Option<FieldReasoning> = None;
    for (name, reasoning) in all {
        said = match (said, reasoning) {
            (said, Reasoning::Auto) => said,
            (None, _) => Some((name, reasoning)),
            (Some(before), _) => Some(both(body, before, (name, reasoning))?),
        };
    }
    Ok(said.map_or(Reasoning::Auto, |(_, reasoning)| reasoning))
}

/// A field, and the amount of thinking that it asks for.
type FieldReasoning = (&'static str, Reasoning);

/// Combines the values of two fields: one may turn thinking on while the other sets the amount. If one turns thinking off, it wins, and a
/// budget wins over an effort; a warning names the other field.
///
/// # Errors
/// Two fields with different amounts; fields of which one is ignored, if the server is strict.
fn both(body: &JsonBody, one: FieldReasoning, other: FieldReasoning) -> Result<FieldReasoning> {
    let rank = |(_, reasoning): &FieldReasoning| match reasoning {
        Reasoning::Auto => 0,
        Reasoning::On => 1,
        Reasoning::Effort(_) => 2,
        Reasoning::Budget(_) => 3,
        Reasoning::Off => 4,
    };
    let (winner, loser) = if rank(&other) > rank(&one) { (other, one) } else { (one, other) };
    let does = match (winner.1, loser.1) {
        (amount, same) if amount == same => return Ok(winner),
        (Reasoning::Effort(_) | Reasoning::Budget(_), Reasoning::On) => return Ok(winner),
        (Reasoning::Off, _) => "turns thinking off",
        (Reasoning::Budget(_), Reasoning::Effort(_)) => "sets a budget",
        _ => return Err(ApiError::field(other.0, format!("it contradicts {}", one.0))),
    };
    let note = format!("ignored: {} {does}", winner.0);
    body.ignored(loser.0, &note, &format!("it contradicts {}", winner.0))?;
    Ok(winner)
}

fn effort_of(body: &JsonBody, name: &str) -> Result<Reasoning> {
    let wrong = |problem: String| body.wrong(name, problem);
    effort(body.text(name)?).map_err(wrong)
}

fn budget_of(body: &JsonBody, name: &str) -> Result<Option<Reasoning>> {
    let tokens = body.count(name, 1, u32::MAX as usize)?;
    Ok(tokens.map(|tokens| Reasoning::Budget(u32::try_from(tokens).unwrap_or(u32::MAX))))
}

/// Reads OpenRouter's object `reasoning`.
fn openrouter_reasoning(body: &JsonBody) -> Result<Reasoning> {
    let reasoning = body.nested("reasoning")?.checked(REASONING)?;
    let budget = budget_of(&reasoning, "max_tokens")?;
    match (reasoning.flag("enabled")?, effort_of(&reasoning, "effort")?, budget) {
        (Some(false), effort, budget) => {
            let ignored = |name: &str| {
                let note = "ignored: reasoning.enabled turns thinking off";
                reasoning.ignored(name, note, "it contradicts reasoning.enabled")
            };
            if matches!(effort, Reasoning::Effort(_)) {
                ignored("effort")?;
            }
            if budget.is_some() {
                ignored("max_tokens")?;
            }
            Ok(Reasoning::Off)
        }
        (_, Reasoning::Auto, Some(budget)) => Ok(budget),
        (Some(true), Reasoning::Auto, None) => Ok(Reasoning::On),
        (_, effort, _) => Ok(effort),
    }
}

/// Reads `thinking`: true, false, or an object with a type.
///
/// # Errors
/// If the field has another value.
pub(crate) fn thinking(body: &JsonBody) -> Result<Reasoning> {
    const NAME: &str = "thinking";
    match body.get(NAME) {
        Some(Value::Bool(true)) => return Ok(Reasoning::On),
        Some(Value::Bool(false)) => return Ok(Reasoning::Off),
        _ => {}
    }
    let thinking = body.nested(NAME)?.checked(THINKING)?;
    let budget = budget_of(&thinking, "budget_tokens")?;
    match thinking.text("type")? {
        None | Some("auto") => Ok(budget.unwrap_or(Reasoning::Auto)),
        Some("enabled") => Ok(budget.unwrap_or(Reasoning::On)),
        Some("adaptive") => Ok(Reasoning::On),
        Some("disabled") => Ok(Reasoning::Off),
        Some(_) => Err(ApiError::field(NAME, "expected type enabled, adaptive, auto or disabled")),
    }
}

/// Maximum number of template variables in a request.
const MOST_VARIABLES: usize = 64;
/// Maximum number of bytes of memory that their values take.
const MOST_VARIABLE_BYTES: u64 = 1 << 20;

/// Returns the variables that the server neither reads nor sets itself.
fn variables(kwargs: &Map<String, Value>) -> Result<TemplateVariables> {
    const READ: [&str; 3] = ["enable_thinking", "thinking", EFFORT];
    if let Some(name) = kwargs.keys().find(|name| OWN.contains(&name.as_str())) {
        let problem = format!("{name} follows from the request");
        return Err(ApiError::field(KWARGS, problem));
    }
    if kwargs.len() > MOST_VARIABLES || map_bytes(kwargs) > MOST_VARIABLE_BYTES {
        let problem = format!(
            "expected up to {MOST_VARIABLES} variables of {MOST_VARIABLE_BYTES} bytes together"
        );
        return Err(ApiError::field(KWARGS, problem));
    }
    let others = kwargs.iter().filter(|(name, _)| !READ.contains(&name.as_str()));
    let others: Map<String, Value> =
        others.map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(TemplateVariables::from_map(others))
}

/// Reads where the prompt ends: within a last message of the assistant, unless the request says otherwise.
fn end(body: &JsonBody, messages: &[Message]) -> Result<PromptEnd> {
    let begun = ChatOptions::default().going_on(messages).end == PromptEnd::LastMessage;
    match (body.flag(CONTINUE)?, body.flag(GENERATION)?) {
        (Some(true), Some(true)) => {
            Err(ApiError::field(CONTINUE, format!("not with {GENERATION}: true")))
        }
        (Some(true), _) if !begun => {
            Err(ApiError::field(CONTINUE, "the last message is not the assistant's"))
        }
        (Some(true), _) => Ok(PromptEnd::LastMessage),
        (Some(false), Some(false)) => Ok(PromptEnd::Nothing),
        (_, Some(true)) | (Some(false), None) => Ok(PromptEnd::NextMessage),
        (None, Some(false)) if begun => Ok(PromptEnd::LastMessage),
        (None, Some(false)) => Ok(PromptEnd::Nothing),
        (None, None) if begun => {
            body.note(GOES_ON);
            Ok(PromptEnd::LastMessage)
        }
        (None, None) => Ok(PromptEnd::NextMessage),
    }
}

/// Warning that the reply continues the last message, where a client of OpenAI's API might expect a new one.
const GOES_ON: &str = "messages: the last one is the assistant's: the reply goes on with it \
                                  (add_generation_prompt: true begins a new one)";

/// Returns the amount of thinking that a word stands for.
///
/// # Errors
/// An unknown word; the error lists the known ones.
pub(crate) fn effort(word: Option<&str>) -> Result<Reasoning, String> {
    match word {
        None => Ok(Reasoning::Auto),
        Some("none") => Ok(Reasoning::Off),
        Some(word) => Effort::of_name(word).map(Reasoning::Effort).ok_or_else(|| {
            let names = Effort::ALL.map(Effort::name).join(", ");
            format!("expected none, {names}, found {}", brief(&word.into()))
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value, last: &str) -> std::result::Result<(ChatOptions, Vec<String>), String> {
        let messages = [Message::new("user", "x"), Message::new(last, "y")];
        let body = JsonBody::from(body);
        let options = chat_options(&body, &messages).map_err(|error| error.message)?;
        Ok((options, body.notes()))
    }

    fn reasoning(body: Value) -> std::result::Result<Reasoning, String> {
        read(body, "user").map(|(options, _)| options.reasoning)
    }

    #[test]
    fn how_much_to_think_is_said_in_one_way() {
        let kwargs = |thinks: bool| json!({ "enable_thinking": thinks });
        assert_eq!(reasoning(json!({})), Ok(Reasoning::Auto));
        assert_eq!(reasoning(json!({ KWARGS: {} })), Ok(Reasoning::Auto));
        let many = |n: usize| (0..n).map(|i| (format!("a{i}"), json!(0))).collect::<Map<_, _>>();
        assert_eq!(reasoning(json!({ KWARGS: many(MOST_VARIABLES) })), Ok(Reasoning::Auto));
        let refused = reasoning(json!({ KWARGS: many(MOST_VARIABLES + 1) })).unwrap_err();
        assert!(refused.contains("expected up to 64 variables"), "{refused}");
        let large = json!({ KWARGS: { "x": vec![0; 20_000] } });
        assert!(reasoning(large).unwrap_err().contains("1048576 bytes"));
        assert_eq!(reasoning(json!({ KWARGS: kwargs(false) })), Ok(Reasoning::Off));
        assert_eq!(reasoning(json!({ KWARGS: { "thinking": true } })), Ok(Reasoning::On));
        for effort in Effort::ALL {
            let level = Ok(Reasoning::Effort(effort));
            assert_eq!(reasoning(json!({ EFFORT: effort.name() })), level);
            assert_eq!(reasoning(json!({ KWARGS: { EFFORT: effort.name() } })), level);
            let both = json!({ EFFORT: effort.name(), KWARGS: kwargs(true) });
            assert_eq!(reasoning(both), level);
        }
        assert!(
            reasoning(json!({ EFFORT: "some" })).unwrap_err().contains("expected none, minimal")
        );
        let both =
            |effort: &str, thinks| reasoning(json!({ EFFORT: effort, KWARGS: kwargs(thinks) }));
        assert_eq!(both("none", false), Ok(Reasoning::Off));
        for thinks in [true, false] {
            let want = Ok(if thinks { Reasoning::On } else { Reasoning::Off });
            let kind = if thinks { "enabled" } else { "disabled" };
            for body in [
                json!({ "enable_thinking": thinks }),
                json!({ "think": thinks }),
                json!({ "thinking": thinks }),
                json!({ "thinking": { "type": kind } }),
                json!({ "reasoning": { "enabled": thinks } }),
            ] {
                assert_eq!(reasoning(body.clone()), want, "{body}");
            }
        }
        let budget = Ok(Reasoning::Budget(900));
        let thinking = json!({ "type": "enabled", "budget_tokens": 900 });
        assert_eq!(reasoning(json!({ "thinking": thinking, "think": true })), budget);
        assert_eq!(reasoning(json!({ "reasoning": { "max_tokens": 900 } })), budget);
        let low = Ok(Reasoning::Effort(Effort::Low));
        assert_eq!(reasoning(json!({ "reasoning": { "effort": "low" } })), low);
        assert_eq!(reasoning(json!({ "think": "low", "enable_thinking": true })), low);
        let wrong = reasoning(json!({ "reasoning": { "effort": "some" } })).unwrap_err();
        assert!(wrong.starts_with("reasoning.effort: expected none"), "{wrong}");
        assert!(reasoning(json!({ "thinking": { "type": "some" } })).is_err());
        let two = json!({ EFFORT: "low", KWARGS: { EFFORT: "high" } });
        let told = "chat_template_kwargs.reasoning_effort: it contradicts reasoning_effort";
        assert_eq!(reasoning(two).unwrap_err(), told);
        let two = json!({ "thinking": { "budget_tokens": 9 }, "reasoning": { "max_tokens": 8 } });
        assert!(reasoning(two).unwrap_err().contains("contradicts"));
    }

    /// Of two fields that contradict each other, the one that turns thinking off wins, and a budget wins over an effort: the other one is
    /// named in a warning, and is an error on a strict server.
    #[test]
    fn a_switch_that_turns_thinking_off_wins() {
        let off = "chat_template_kwargs.enable_thinking";
        let switch = json!({ "enable_thinking": false });
        for (body, amount, ignored, winner) in [
            (json!({ EFFORT: "high", KWARGS: switch }), Reasoning::Off, EFFORT, off),
            (
                json!({ KWARGS: { "enable_thinking": false, EFFORT: "low" } }),
                Reasoning::Off,
                "chat_template_kwargs.reasoning_effort",
                off,
            ),
            (json!({ EFFORT: "none", "think": true }), Reasoning::Off, "think", EFFORT),
            (
                json!({ "think": true, "enable_thinking": false }),
                Reasoning::Off,
                "think",
                "enable_thinking",
            ),
            (
                json!({ "thinking": { "type": "enabled", "budget_tokens": 9 }, "think": false }),
                Reasoning::Off,
                "thinking",
                "think",
            ),
            (
                json!({ "reasoning": { "enabled": false, "effort": "high" } }),
                Reasoning::Off,
                "reasoning.effort",
                "reasoning.enabled",
            ),
            (
                json!({ EFFORT: "high", "thinking": { "type": "enabled", "budget_tokens": 9 } }),
                Reasoning::Budget(9),
                EFFORT,
                "thinking",
            ),
        ] {
            let (options, notes) = read(body.clone(), "user").unwrap();
            assert_eq!(options.reasoning, amount, "{body}");
            let does =
                if amount == Reasoning::Off { "turns thinking off" } else { "sets a budget" };
            assert_eq!(notes, [format!("{ignored}: ignored: {winner} {does}")], "{body}");
            let strict = JsonBody::from(body).strict();
            let error = chat_options(&strict, &[Message::new("user", "x")]).unwrap_err();
            assert_eq!(error.message, format!("{ignored}: it contradicts {winner}"));
        }
    }

    #[test]
    fn variables_of_the_template_are_handed_on_and_the_conversation_is_none() {
        let (options, _) =
            read(json!({ KWARGS: { "date_string": "1 May", "n": 3 } }), "user").unwrap();
        assert_eq!(options.variables.names().collect::<Vec<_>>(), ["date_string", "n"]);
        for name in OWN {
            let error = read(json!({ KWARGS: { name: "x" } }), "user").unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_last_message_of_the_assistant_goes_on_unless_the_request_says_otherwise() {
        let end = |body: Value, last: &str| {
            read(body, last).map(|(options, notes)| (options.end, notes.len()))
        };
        let (next, within, nothing) =
            (PromptEnd::NextMessage, PromptEnd::LastMessage, PromptEnd::Nothing);
        assert_eq!(end(json!({}), "assistant"), Ok((within, 1)));
        assert_eq!(end(json!({ CONTINUE: true }), "assistant"), Ok((within, 0)));
        assert_eq!(end(json!({ GENERATION: false }), "assistant"), Ok((within, 0)));
        assert_eq!(end(json!({ GENERATION: true }), "assistant"), Ok((next, 0)));
        assert_eq!(end(json!({ CONTINUE: false }), "assistant"), Ok((next, 0)));
        assert_eq!(
            end(json!({ CONTINUE: false, GENERATION: false }), "assistant"),
            Ok((nothing, 0))
        );
        assert_eq!(end(json!({}), "user"), Ok((next, 0)));
        assert_eq!(end(json!({ GENERATION: false }), "user"), Ok((nothing, 0)));
        assert!(end(json!({ CONTINUE: true }), "user").unwrap_err().starts_with(CONTINUE));
        assert!(end(json!({ CONTINUE: true, GENERATION: true }), "assistant").is_err());
    }
}
