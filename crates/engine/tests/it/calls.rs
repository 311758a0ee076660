//! Tool calls in replies and in conversations: what is told of them, what they become as messages, and forms that begin
//! with them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::{
    CallIds, CallParser, Constraint, Conversation, Event, FinishReason, FullContext, PromptOptions,
    Reasoning, ReplyEnd, ReplyOptions, Request, Result, Sampler, SamplerOptions, StopReason,
    TokenMask, ToolCallDelta, ToolDeclarations, Toolbox, Turn,
};

use crate::common::{BOS, END, START, Toy, ToyFormat, spell};

/// What begins a call: a control token.
const MARK: &str = "<|im_start|>";

/// A call is a mark, then `name arguments;`.
#[derive(Default)]
struct Toys {
    held: String,
    open: Option<String>,
    calls: usize,
}

impl CallParser for Toys {
    fn reads(&self, spelling: &str) -> bool {
        spelling == MARK
    }

    fn push(&mut self, text: &str, emit: &mut dyn FnMut(Event<'_>)) {
        self.held.push_str(text);
        if let Some(open) = &mut self.open {
            open.push_str(text);
        }
        while let Some(at) = self.held.find(MARK) {
            if at > 0 {
                emit(Event::Text(&self.held[..at]));
            }
            if self.open.is_none() {
                self.open = Some(self.held[at..].to_owned());
            }
            let Some(end) = self.held.find(';') else {
                self.held.drain(..at);
                return;
            };
            let call = &self.held[at + MARK.len()..end];
            let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
            let index = self.calls;
            emit(Event::ToolCall(ToolCallDelta::Begins { index, id: "id", name }));
            emit(Event::ToolCall(ToolCallDelta::Arguments { index, text: arguments }));
            let told = match name {
                "none" => ToolCallDelta::Fails { index },
                _ => ToolCallDelta::Ends { index },
            };
            self.calls += usize::from(name != "none");
            emit(Event::ToolCall(told));
            self.held.drain(..=end);
        }
        if !self.held.is_empty() {
            emit(Event::Text(&self.held));
        }
        self.held.clear();
    }

    fn finish(&mut self, _: ReplyEnd, emit: &mut dyn FnMut(Event<'_>)) {
        if !self.held.is_empty() {
            emit(Event::Text(&self.held));
        }
    }

    fn open(&self) -> Option<String> {
        self.open.clone()
    }
}

#[derive(Debug)]
struct Box1;

impl Toolbox for Box1 {
    fn declared(&self) -> Option<&ToolDeclarations> {
        None
    }

    fn instructions(&self) -> Option<&str> {
        Some("Call.")
    }

    fn parser(&self, _: CallIds) -> Option<Box<dyn CallParser>> {
        Some(Box::new(Toys::default()))
    }
}

fn go() -> Arc<AtomicBool> {
    Arc::default()
}

fn greedy() -> Sampler {
    Sampler::new(SamplerOptions::greedy()).unwrap()
}

/// `*` is the control token that begins a call.
fn script(text: &str) -> Vec<u32> {
    let token = |c: char| if c == '*' { START } else { u32::from(c as u8) };
    text.chars().map(token).chain([END]).collect()
}

fn reply(text: &str, sampler: &mut Sampler) -> (engine::Generated, Vec<String>) {
    let toy = Toy::new();
    let prompt = [BOS, 1, 2];
    toy.script(prompt.len(), &script(text));
    let cancel = go();
    let request = Request {
        prompt: &prompt,
        max_tokens: Some(100),
        stop: &[],
        ignore_eog: false,
        split_thoughts: true,
        cancel: &cancel,
    };
    let mut session = toy.session(200, 0);
    let mut told: Vec<String> = Vec::new();
    let turn = Turn::new(&mut session, sampler, &ToyFormat::default(), &request)
        .with_calls(Box::new(Toys::default()))
        .alone(&mut |event| match event {
            Event::Prefill(_) => {}
            Event::Usage(usage) => {
                told.push(format!("Usage {} {}", usage.prompt_tokens, usage.completion_tokens))
            }
            other => told.push(format!("{other:?}")),
        });
    (turn.unwrap(), told)
}

#[test]
fn calls_are_told_with_usage_and_end() {
    let (reply, told) = reply("<think>h*m</think>a*f {};*none x;*g 1;", &mut greedy());
    assert_eq!(told[told.len() - 2..], ["Usage 3 38".to_owned(), "End(ToolCalls)".to_owned()]);
    let begins = told.iter().filter(|event| event.contains("Begins")).count();
    assert_eq!(begins, 3, "{told:?}");
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("f", "{}"), ("g", "1")]);
    assert_eq!((reply.text.as_str(), reply.thoughts.as_str()), ("a", "hm"));
    assert_eq!(reply.reason(), FinishReason::ToolCalls);
    assert!(matches!(reply.stop, StopReason::EndOfGeneration(END)));
    // as a message it is its thoughts and its text, and the calls beside them
    let message = reply.as_message();
    assert_eq!(message.content, "<think>hm</think>a");
    assert_eq!(message.tool_calls, reply.calls);
    assert_eq!(
        message.written.as_deref(),
        Some(&*"<think>hm</think>a*f {};*none x;*g 1;".replace('*', MARK))
    );
    let (plain, told) = self::reply("ab", &mut greedy());
    assert_eq!(told.last().unwrap(), "End(Stop)");
    assert_eq!((plain.reason(), plain.as_message().written), (FinishReason::Stop, None));
}

/// Behind the mark a name is a run of `z`.
#[derive(Clone, Default)]
struct OnlyZ(Vec<u32>, bool);

impl Constraint for OnlyZ {
    fn mask(&mut self) -> Result<TokenMask> {
        let mut words = vec![0; 9];
        let tokens: &[u32] = match self.0.as_slice() {
            [.., b] if *b == u32::from(b';') => &[END],
            [a, b, ..] if a == b => &[u32::from(b' '), u32::from(b';')],
            _ => &[u32::from(b'z')],
        };
        tokens.iter().for_each(|token| words[*token as usize / 32] |= 1 << (token % 32));
        Ok(TokenMask::from_bits(words))
    }

    fn forced(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn keep(&mut self, token: u32) -> Result<()> {
        self.0.push(token);
        Ok(())
    }

    fn take_back(&mut self, n: usize) -> Result<()> {
        self.0.truncate(self.0.len() - n);
        Ok(())
    }

    fn take_text(&mut self, text: &str) -> Result<()> {
        match (text, self.1) {
            (MARK, false) => Ok(()),
            _ => Err(engine::Error::Constraint { problem: text.into() }),
        }
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

#[test]
fn a_form_begins_with_the_first_call() {
    let mut sampler = greedy().with_opened_constraint(Box::new(OnlyZ::default()));
    let (held, _) = reply("ab*f {};", &mut sampler);
    assert!(!sampler.waits_to_open());
    assert_eq!(held.text, "ab");
    assert!(held.raw.starts_with("ab<|im_start|>zz"), "{}", held.raw);
    assert!(held.raw.ends_with(';'));
    // where nothing opens it nothing is held, nor where it cannot begin so
    let mut sampler = greedy().with_opened_constraint(Box::new(OnlyZ::default()));
    assert_eq!(reply("abf {};", &mut sampler).0.text, "abf {};");
    assert!(sampler.waits_to_open());
    let mut sampler = greedy().with_opened_constraint(Box::new(OnlyZ(Vec::new(), true)));
    assert_eq!(reply("ab*f {};", &mut sampler).0.calls.len(), 1);
}

#[test]
fn a_conversation_takes_results_of_its_calls() {
    let toy = Toy::new();
    let format = Arc::new(ToyFormat::default());
    let mut chat = Conversation::new(toy.session(4096, 0), format);
    chat.set_tools(Some(Arc::new(Box1)));
    let cancel = go();
    let options = ReplyOptions {
        max_tokens: Some(40),
        stop: &[],
        ignore_eog: false,
        reasoning: Reasoning::Auto,
        full: FullContext::Stop,
        cancel: &cancel,
    };
    let length = |chat: &Conversation| {
        let messages = engine::with_instructions(chat.messages(), "Call.");
        let spans = chat.format().render(&messages, &PromptOptions::default(), &go()).unwrap();
        chat.format().encode(&spans, true).unwrap().len()
    };
    let error = chat.give_results(vec![], &mut greedy(), &options, &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "results of tools: expected 0, one for each call, found 0");
    let first = {
        let mut next = Conversation::new(toy.session(64, 0), Arc::new(ToyFormat::default()));
        next.set_messages(vec![engine::Message::new("user", "Hi")]);
        length(&next)
    };
    toy.script(first, &script("a*f {};*g 2;"));
    let reply = chat.say("Hi", &mut greedy(), &options, &mut |_| ()).unwrap();
    assert_eq!(reply.calls.len(), 2);
    let names: Vec<_> = chat.open_calls().iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["f", "g"]);
    let error = chat.give_results(vec!["x".into()], &mut greedy(), &options, &mut |_| ());
    assert!(error.unwrap_err().to_string().contains("expected 2"));
    assert_eq!(chat.open_calls().len(), 2, "nothing was taken");
    toy.script(first + spell("a*f {};*g 2;").len(), &script("done"));
    let results = vec!["one".to_owned(), "two".to_owned()];
    chat.give_results(results, &mut greedy(), &options, &mut |_| ()).unwrap();
    let said: Vec<_> =
        chat.messages().iter().map(|m| (m.role.as_str(), m.content.as_str())).collect();
    assert_eq!(said[..4], [("user", "Hi"), ("assistant", "a"), ("tool", "one"), ("tool", "two")]);
    assert_eq!(chat.messages()[3].name.as_deref(), Some("g"));
    assert!(chat.open_calls().is_empty());
}
