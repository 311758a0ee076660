//! Rewrites conversations that a template rejects or loses a part of, in the way that the model's family documents: a system message
//! moves into the first user message, consecutive messages of one role are joined, and call ids get the family's format. Trial
//! renderings show what a template accepts; they are made only for features that a conversation has.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::OnceLock;

use super::ids::{is_short_id, short_id};
use super::{ChatTemplate, Message, RenderOptions, ToolCall};

const SYSTEM: &str = "system";
const USER: &str = "user";
const ASSISTANT: &str = "assistant";
const TOOL: &str = "tool";

/// Features that a template accepts, cached once they are tested.
#[derive(Default)]
pub(super) struct Orders {
    taken: [OnceLock<bool>; N_ORDERS],
    ids: OnceLock<IdForm>,
}

/// Feature of a conversation that not all templates accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// A system message at the beginning.
    System,
    /// Several system messages at the beginning.
    Systems,
    /// A system message later in the conversation.
    LateSystem,
    /// A user message directly after another one.
    Users,
    /// An assistant message directly after another one.
    Assistants,
    /// An assistant message before any user message.
    AssistantFirst,
    /// Several calls in one message.
    Calls,
    /// A user message directly after the result of a call.
    UserBehindResult,
    /// A result without a call.
    LoneResult,
}

const N_ORDERS: usize = 9;

/// Format that the ids of calls must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdForm {
    Any,
    /// Nine letters and digits: Mistral.
    Nine,
    /// `functions.NAME:N`: Kimi. `N` counts all calls of the conversation, or restarts at 0 in each message.
    Counted {
        anew: bool,
    },
}

/// Texts in the messages of trial renderings.
const TEXTS: [&str; 3] = ["probed first text", "probed second text", "probed third text"];
const LONG_ID: &str = "call_abc123DEF456";

fn call(id: &str, value: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "probed_tool".to_owned(),
        arguments: format!("{{\"probed_key\": \"{value}\"}}"),
    }
}

fn calling(calls: Vec<ToolCall>) -> Message {
    Message { tool_calls: calls, ..Message::new(ASSISTANT, "") }
}

impl Order {
    /// Returns a conversation with this feature, and the number of [`TEXTS`] in it.
    fn example(self) -> (Vec<Message>, usize) {
        let [a, b, c] = TEXTS;
        let first = || call("abcde0001", a);
        let user = |text| Message::new(USER, text);
        match self {
            Order::System => (vec![Message::new(SYSTEM, a), user(b)], 2),
            Order::Systems => (vec![Message::new(SYSTEM, a), Message::new(SYSTEM, b), user(c)], 3),
            Order::LateSystem => {
                let said = Message::new(ASSISTANT, "?");
                (vec![user(a), said, Message::new(SYSTEM, b), user(c)], 3)
            }
            Order::Users => (vec![user(a), user(b)], 2),
            Order::Assistants => (
                vec![user(a), Message::new(ASSISTANT, b), Message::new(ASSISTANT, c), user("?")],
                3,
            ),
            Order::AssistantFirst => (vec![Message::new(ASSISTANT, a), user(b)], 2),
            Order::Calls => {
                let calls = vec![first(), call("abcde0002", b)];
                let results = calls.clone();
                let results = results.iter().map(|call| Message::result(call, c));
                let begin = [user("?"), calling(calls)];
                (begin.into_iter().chain(results).collect(), 3)
            }
            Order::UserBehindResult => {
                let result = Message::result(&first(), b);
                (vec![user("?"), calling(vec![first()]), result, user(c)], 3)
            }
            Order::LoneResult => (vec![user(a), Message::result(&first(), b)], 2),
        }
    }
}

/// A conversation in a form that a template accepts, and one line for each change.
pub type FittedMessages<'m> = (Cow<'m, [Message]>, Vec<String>);

impl ChatTemplate {
    /// Returns these messages with an order, roles and ids that the template accepts. Changes nothing that it accepts as it is.
    pub fn fitted<'m>(&self, messages: &'m [Message]) -> FittedMessages<'m> {
        let mut fitting = Fitting { template: self, messages: messages.into(), notes: vec![] };
        fitting.ids();
        fitting.lone_results();
        fitting.several_calls();
        fitting.system_messages();
        fitting.assistant_first();
        fitting.behind_results();
        fitting.same_speakers(USER, Order::Users);
        fitting.same_speakers(ASSISTANT, Order::Assistants);
        (fitting.messages, fitting.notes)
    }

    /// Returns whether the template accepts this feature without losing a text.
    fn takes(&self, order: Order) -> bool {
        *self.orders.taken[order as usize].get_or_init(|| {
            let (messages, n) = order.example();
            let prompt = self.tried(&messages);
            prompt.is_some_and(|prompt| TEXTS[..n].iter().all(|text| prompt.contains(text)))
        })
    }

    fn id_form(&self) -> IdForm {
        *self.orders.ids.get_or_init(|| {
            let with = |id: &str| {
                let call = call(id, TEXTS[0]);
                let round = [calling(vec![call.clone()]), Message::result(&call, TEXTS[1])];
                let all = [&[Message::new(USER, "?")][..], &round, &round].concat();
                self.tried(&all)
            };
            match (with(LONG_ID), with("abcde0001")) {
                (None, Some(_)) => IdForm::Nine,
                // the template writes ids, and the ids of this family name the tool
                (Some(text), _) if text.contains(LONG_ID) && self.source.contains(KIMI) => {
                    let anew = text.matches("functions.probed_tool:0").count() > 1;
                    IdForm::Counted { anew }
                }
                _ => IdForm::Any,
            }
        })
    }

    fn tried(&self, messages: &[Message]) -> Option<String> {
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        self.render_text(messages, &options, None)
    }
}

/// Opening tag of a Kimi call. Its id contains the name of the tool.
const KIMI: &str = "<|tool_call_begin|>";

/// A conversation that is being rewritten.
struct Fitting<'t, 'm> {
    template: &'t ChatTemplate,
    messages: Cow<'m, [Message]>,
    notes: Vec<String>,
}

impl Fitting<'_, '_> {
    fn note(&mut self, text: &str) {
        self.notes.push(format!("messages: the model's chat template takes no {text}"));
    }

    fn is(&self, at: usize, role: &str) -> bool {
        self.messages.get(at).is_some_and(|message| message.role == role)
    }

    /// Rewrites call ids in the family's format. A call and its results keep a common id. Adds no note: ids mean nothing to a model.
    fn ids(&mut self) {
        let calls = self.messages.iter().flat_map(|message| &message.tool_calls);
        let results = self.messages.iter().filter_map(|message| message.tool_call_id.as_ref());
        let ids: Vec<&String> = calls.map(|call| &call.id).chain(results).collect();
        if ids.is_empty() {
            return;
        }
        let form = self.template.id_form();
        if form == IdForm::Any || (form == IdForm::Nine && ids.iter().all(|id| is_short_id(id))) {
            return;
        }
        let (mut n, mut known) = (0, HashMap::<String, String>::new());
        for message in self.messages.to_mut() {
            if form == (IdForm::Counted { anew: true }) && !message.tool_calls.is_empty() {
                n = 0;
            }
            for call in &mut message.tool_calls {
                let id = match form {
                    IdForm::Nine if is_short_id(&call.id) => call.id.clone(),
                    IdForm::Nine => short_digest(&call.id),
                    _ => format!("functions.{}:{n}", call.name),
                };
                n += 1;
                known.insert(std::mem::replace(&mut call.id, id.clone()), id);
            }
            if let Some(id) = &mut message.tool_call_id {
                let other = known.get(id.as_str()).cloned();
                let keeps = form != IdForm::Nine || is_short_id(id);
                *id = other.unwrap_or_else(|| if keeps { id.clone() } else { short_digest(id) });
            }
        }
    }

    /// Turns results without a call into user messages.
    fn lone_results(&mut self) {
        let mut within = false;
        let mut lone = Vec::new();
        for (at, message) in self.messages.iter().enumerate() {
            match message.role.as_str() {
                TOOL if !within => lone.push(at),
                TOOL => {}
                _ => within = !message.tool_calls.is_empty(),
            }
        }
        if lone.is_empty() || self.template.takes(Order::LoneResult) {
            return;
        }
        for at in lone {
            let message = &mut self.messages.to_mut()[at];
            let text = format!("<tool_response>\n{}\n</tool_response>", message.content);
            *message = Message::new(USER, text);
        }
        self.note("result of a call without the call: it is given as the user's");
    }

    /// Splits a message with several calls into one message for each call, each followed by its result.
    fn several_calls(&mut self) {
        let several = |message: &Message| message.tool_calls.len() > 1;
        if !self.messages.iter().any(several) || self.template.takes(Order::Calls) {
            return;
        }
        let mut all = Vec::new();
        let mut rest = std::mem::take(self.messages.to_mut()).into_iter().peekable();
        while let Some(mut message) = rest.next() {
            if !several(&message) {
                all.push(message);
                continue;
            }
            let mut results = Vec::new();
            let mut by_id: HashMap<String, VecDeque<usize>> = HashMap::new();
            while let Some(result) = rest.next_if(|message| message.role == TOOL) {
                if let Some(id) = &result.tool_call_id {
                    by_id.entry(id.clone()).or_default().push_back(results.len());
                }
                results.push(Some(result));
            }
            for (i, call) in std::mem::take(&mut message.tool_calls).into_iter().enumerate() {
                let its = by_id.get_mut(&call.id).and_then(VecDeque::pop_front);
                let its = its.and_then(|at| results[at].take());
                let first = if i == 0 { std::mem::take(&mut message) } else { Message::default() };
                let role = ASSISTANT.to_owned();
                all.push(Message { role, tool_calls: vec![call], written: None, ..first });
                all.extend(its);
            }
            all.extend(results.into_iter().flatten());
        }
        self.messages = Cow::Owned(all);
        self.note("several calls in a message: each is given as a message of its own");
    }

    /// Rewrites system messages that a template rejects. At the beginning, their text moves into the first user message. Later ones
    /// become user messages, which [`Fitting::same_speakers`] joins to the next one if necessary.
    fn system_messages(&mut self) {
        let first = self.messages.iter().take_while(|message| message.role == SYSTEM).count();
        let later = self.messages.iter().skip(first).any(|message| message.role == SYSTEM);
        if first > 1 && !self.template.takes(Order::Systems) {
            let all = self.messages.to_mut();
            let text = all[..first].iter().map(|message| message.content.as_str());
            let text = text.collect::<Vec<_>>().join("\n\n");
            all.drain(1..first);
            all[0].content = text;
            self.note("second system message: it is joined to the first");
        }
        if later && !self.template.takes(Order::LateSystem) {
            let begin = usize::from(self.is(0, SYSTEM));
            for message in &mut self.messages.to_mut()[begin..] {
                if message.role == SYSTEM {
                    message.role = USER.to_owned();
                }
            }
            self.note("system message later on: its text is given as the user's");
        }
        if self.is(0, SYSTEM) && !self.template.takes(Order::System) {
            let all = self.messages.to_mut();
            let text = all.remove(0).content;
            match all.first_mut().filter(|message| message.role == USER) {
                Some(user) => user.content = format!("{text}\n\n{}", user.content),
                None => all.insert(0, Message::new(USER, text)),
            }
            self.note("system message: its text is in the first message of the user");
        }
    }

    /// Inserts an empty user message into a conversation that begins with the assistant.
    fn assistant_first(&mut self) {
        let at = usize::from(self.is(0, SYSTEM));
        if self.is(at, ASSISTANT) && !self.template.takes(Order::AssistantFirst) {
            self.messages.to_mut().insert(at, Message::new(USER, ""));
            self.note(
                "message of the assistant at the beginning: an empty one of the user is before it",
            );
        }
    }

    /// Inserts an empty assistant message between the result of a call and a user message.
    fn behind_results(&mut self) {
        let behind = |pair: &[Message]| pair[0].role == TOOL && pair[1].role == USER;
        let any = self.messages.windows(2).any(behind);
        if !any || self.template.takes(Order::UserBehindResult) {
            return;
        }
        let mut all = Vec::new();
        for message in std::mem::take(self.messages.to_mut()) {
            let after_result = all.last().is_some_and(|last: &Message| last.role == TOOL);
            if after_result && message.role == USER {
                all.push(Message::new(ASSISTANT, ""));
            }
            all.push(message);
        }
        self.messages = Cow::Owned(all);
        self.note("message of the user behind the result of a call: an empty one of the assistant is between");
    }

    /// Joins consecutive messages of one role if the template rejects them.
    fn same_speakers(&mut self, role: &'static str, order: Order) {
        let same = |pair: &[Message]| pair[0].role == role && pair[1].role == role;
        let calls = |pair: &[Message]| !pair[0].tool_calls.is_empty();
        if self.messages.windows(2).any(|pair| same(pair) && !calls(pair))
            && !self.template.takes(order)
        {
            self.join(role);
            self.note(match order {
                Order::Users => "message of the user behind another: they are joined",
                _ => "message of the assistant behind another: they are joined",
            });
        }
    }

    /// Joins consecutive messages of this role.
    fn join(&mut self, role: &str) {
        let mut all: Vec<Message> = Vec::new();
        for message in std::mem::take(self.messages.to_mut()) {
            let last = all.last_mut().filter(|last| {
                last.role == role && message.role == role && last.tool_calls.is_empty()
            });
            match last {
                None => all.push(message),
                Some(last) => {
                    let between = if last.content.is_empty() { "" } else { "\n\n" };
                    let _ = write!(last.content, "{between}{}", message.content);
                    last.tool_calls = message.tool_calls;
                    last.thoughts = message.thoughts;
                    last.written = None;
                }
            }
        }
        self.messages = Cow::Owned(all);
    }
}

/// Returns a short id that is a digest of another id.
fn short_digest(id: &str) -> String {
    // FNV-1a: gives the same digest for the same id on every machine
    let digest = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    short_id(digest)
}
