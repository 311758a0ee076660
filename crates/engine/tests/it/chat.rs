//! A conversation computes only what is new, whatever the template does with its replies.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use engine::{
    ChatFormat, Conversation, Error, Event, FullContext, Generated, Message, PromptOptions,
    Reasoning, ReplyOptions, Sampler, SamplerOptions, StopReason,
};

use crate::common;
use crate::common::{END, END_THINK, START, THINK, Toy, ToyFormat, spell};

static GO: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

fn options(max: usize) -> ReplyOptions<'static> {
    ReplyOptions {
        max_tokens: Some(max),
        stop: &[],
        ignore_eog: false,
        reasoning: Reasoning::Auto,
        full: FullContext::Stop,
        cancel: &GO,
    }
}

struct Chat {
    toy: Arc<Toy>,
    format: ToyFormat,
    conversation: Conversation,
    sampler: Sampler,
}

impl Chat {
    fn new(format: ToyFormat, capacity: usize) -> Chat {
        let toy = Toy::new();
        let conversation = Conversation::new(toy.session(capacity, 0), Arc::new(format));
        let sampler =
            Sampler::new(SamplerOptions { seed: Some(3), ..SamplerOptions::default() }).unwrap();
        Chat { toy, format, conversation, sampler }
    }

    /// Tokens of the conversation's next prompt on a cold start, if `user` is said next.
    fn cold_prompt(&self, user: &str) -> Vec<u32> {
        let mut messages = self.conversation.messages().to_vec();
        messages.push(Message::new("user", user));
        let spans = self.format.render(&messages, &PromptOptions::default(), &GO).unwrap();
        self.format.encode(&spans, true).unwrap()
    }

    /// Says `user`; the model answers `reply`, given that the prompt is so long.
    fn say(&mut self, user: &str, prompt_len: usize, reply: &[u32]) -> Generated {
        self.toy.script(prompt_len, reply);
        self.conversation.say(user, &mut self.sampler, &options(reply.len()), &mut |_| ()).unwrap()
    }
}

fn text(text: &str) -> Vec<u32> {
    [spell(text), vec![END]].concat()
}

#[test]
fn the_second_turn_computes_the_new_part_only() {
    let mut chat = Chat::new(ToyFormat::default(), 4000);
    let long = "x".repeat(1900);
    let first = chat.cold_prompt(&long);
    // The model spells `the` with three tokens, `encode` with two: encoding again would lose the cache.
    let reply = chat.say(&long, first.len(), &text("the end"));
    assert_eq!(reply.text, "the end");
    assert_eq!(reply.stats.cached_tokens, 0);
    assert!(chat.cold_prompt("and?").len() < first.len() + spell("the end").len() + 40);

    let held = [first, spell("the end")].concat();
    let after = "<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n";
    let span = engine::Span { text: after.to_owned(), special: true };
    let prompt = [held.clone(), chat.format.encode(&[span], false).unwrap()].concat();
    let reply = chat.say("and?", prompt.len(), &text("hm"));
    // The reply's last token was computed with the end token's choice; all of the first turn is cached.
    assert_eq!((reply.stats.prompt_tokens, reply.stats.cached_tokens), (prompt.len(), held.len()));
    assert!(reply.stats.prompt_tokens - reply.stats.cached_tokens < 100);
    let session = chat.conversation.session();
    assert_eq!(session.tokens(), [prompt, spell("hm")].concat());

    // The same tokens on a cold session give the same logits.
    let tokens = session.tokens().to_vec();
    let cold = chat.toy.session(4000, 7).feed(&tokens, &GO, &mut |_| ()).unwrap().logits;
    let warm = session.fork(tokens.len()).unwrap().feed(&tokens, &GO, &mut |_| ()).unwrap().logits;
    assert_eq!(cold, warm);
}

#[test]
fn templates_that_trim_keep_the_cache() {
    let mut chat = Chat::new(ToyFormat { trims: true, ..ToyFormat::default() }, 1000);
    let first = chat.cold_prompt("hi");
    chat.say("hi", first.len(), &text(" he y \n"));
    let held = chat.conversation.session().len();
    let reply = chat.say("go on", 1000, &[65]);
    assert_eq!(reply.stats.cached_tokens, held);
}

#[test]
fn templates_that_drop_thoughts_keep_the_cache_up_to_them() {
    let format = ToyFormat { drops_thoughts: true, ..ToyFormat::default() };
    let mut chat = Chat::new(format, 1000);
    let first = chat.cold_prompt("hi");
    let thinking = [vec![THINK], spell("hm"), vec![END_THINK], text("\nyes")].concat();
    let reply = chat.say("hi", first.len(), &thinking);
    assert_eq!((reply.text.as_str(), reply.raw.as_str()), ("yes", "<think>hm</think>\nyes"));
    let cold = chat.cold_prompt("go on");
    let reply = chat.say("go on", cold.len(), &text("ok"));
    assert_eq!((reply.stats.prompt_tokens, reply.stats.cached_tokens), (cold.len(), first.len()));
    assert_eq!(chat.conversation.session().tokens(), [cold, spell("ok")].concat());

    let mut chat = Chat::new(ToyFormat { opens_thought: true, ..format }, 1000);
    let first = chat.cold_prompt("hi");
    let reply =
        chat.say("hi", first.len(), &[spell("hm"), vec![END_THINK], text("\nyes")].concat());
    assert_eq!(reply.text, "yes");
    let cold = chat.cold_prompt("go on");
    let reply = chat.say("go on", cold.len(), &text("\n"));
    assert_eq!(reply.stats.prompt_tokens, cold.len());
    assert!(chat.conversation.session().tokens().starts_with(&cold));
}

#[test]
fn regenerating_gives_another_reply_from_the_same_cache() {
    let mut chat = Chat::new(ToyFormat::default(), 1000);
    let options = ReplyOptions { ignore_eog: true, ..options(12) };
    assert!(matches!(
        chat.conversation.regenerate(&mut chat.sampler, &options, &mut |_| ()),
        Err(Error::NoReply)
    ));
    let first = chat.conversation.say("hi", &mut chat.sampler, &options, &mut |_| ()).unwrap();
    let mut regenerate =
        || chat.conversation.regenerate(&mut chat.sampler, &options, &mut |_| ()).unwrap();
    let (second, third) = (regenerate(), regenerate());
    assert_eq!(second.stats.prompt_tokens, first.stats.prompt_tokens);
    assert_eq!(second.stats.cached_tokens, first.stats.prompt_tokens - 1);
    assert_ne!(first.tokens, second.tokens);
    assert_ne!(second.tokens, third.tokens);
    let messages = chat.conversation.messages();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[1].content, third.raw);
    // A cancelled attempt leaves the reply that was.
    let cancel = Arc::new(AtomicBool::new(true));
    let cancelled = ReplyOptions { cancel: &cancel, ..options };
    let reply = chat.conversation.regenerate(&mut chat.sampler, &cancelled, &mut |_| ()).unwrap();
    assert_eq!(reply.stop, StopReason::Cancelled);
    assert_eq!(chat.conversation.messages()[1].content, third.raw);
}

#[test]
fn an_empty_reply_of_control_tokens_is_not_kept_by_regenerating() {
    let mut chat = Chat::new(ToyFormat::default(), 1000);
    let first = chat.cold_prompt("hi");
    chat.say("hi", first.len(), &[START, START, END]);
    let reply = chat.conversation.regenerate(&mut chat.sampler, &options(1), &mut |_| ()).unwrap();
    assert_eq!(reply.stats.prompt_tokens, first.len());
}

#[test]
fn a_cancelled_reply_stays_and_the_chat_goes_on() {
    let mut chat = Chat::new(ToyFormat::default(), 1000);
    let first = chat.cold_prompt("hi");
    chat.toy.script(first.len(), &text("abcdef"));
    let cancel = Arc::new(AtomicBool::new(false));
    let cancelled = ReplyOptions { cancel: &cancel, ..options(6) };
    let mut stop_at_c = |e: Event<'_>| cancel.store(e == Event::Text("c"), Ordering::Relaxed);
    let reply = chat.conversation.say("hi", &mut chat.sampler, &cancelled, &mut stop_at_c).unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("abc", StopReason::Cancelled));
    assert_eq!(chat.conversation.messages()[1].content, "abc");
    let reply = chat.say("go on", 1000, &[65]);
    // `c` was chosen but not computed when the flag was read.
    assert_eq!(reply.stats.cached_tokens, first.len() + 2);

    // Nothing generated: the message is taken back.
    let messages = chat.conversation.messages().to_vec();
    cancel.store(true, Ordering::Relaxed);
    let reply = chat.conversation.say("no", &mut chat.sampler, &cancelled, &mut |_| ()).unwrap();
    assert_eq!((reply.stop, reply.tokens.len()), (StopReason::Cancelled, 0));
    assert_eq!(chat.conversation.messages(), messages);
}

#[test]
fn a_message_that_does_not_fit_changes_nothing() {
    let mut chat = Chat::new(ToyFormat::default(), 120);
    let first = chat.cold_prompt("hi");
    chat.say("hi", first.len(), &text("ok"));
    let held = chat.conversation.session().tokens().to_vec();
    let long = "x".repeat(200);
    let error =
        chat.conversation.say(long, &mut chat.sampler, &options(5), &mut |_| ()).unwrap_err();
    assert!(matches!(error, Error::ContextFull { capacity: 120, .. }), "{error}");
    assert_eq!(chat.conversation.messages().len(), 2);
    assert_eq!(chat.conversation.session().tokens(), held);
    let reply = chat.say("a", 1000, &[65]);
    assert_eq!(reply.stats.cached_tokens, held.len());
}

#[test]
fn stop_strings_are_not_part_of_the_history() {
    let mut chat = Chat::new(ToyFormat::default(), 1000);
    let first = chat.cold_prompt("hi");
    chat.toy.script(first.len(), &spell("ok\nUser: bla"));
    let stop = ["User:".to_owned()];
    let with_stop = ReplyOptions { stop: &stop, ..options(50) };
    chat.conversation.say("hi", &mut chat.sampler, &with_stop, &mut |_| ()).unwrap();
    assert_eq!(chat.conversation.messages()[1].content, "ok\n");
    let cold = chat.cold_prompt("more");
    let reply = chat.say("more", cold.len(), &text("no"));
    assert_eq!(reply.stats.cached_tokens, first.len() + 3);
    assert_eq!(chat.conversation.session().tokens(), [cold, spell("no")].concat());
}

#[test]
fn system_message_and_clear() {
    let mut chat = Chat::new(ToyFormat::default(), 1000);
    chat.conversation.set_system(Some("be brief".into()));
    let first = chat.cold_prompt("hi");
    chat.say("hi", first.len(), &text("ok"));
    chat.conversation.set_system(Some("be long".into()));
    let cold = chat.cold_prompt("more");
    let reply = chat.say("more", cold.len(), &text("no"));
    assert_eq!(reply.stats.prompt_tokens, cold.len());
    assert!(chat.conversation.session().tokens().starts_with(&cold));
    chat.conversation.clear().unwrap();
    assert_eq!(chat.conversation.messages(), [Message::new("system", "be long")]);
    assert!(chat.conversation.session().is_empty());
    chat.conversation.set_system(None);
    assert!(chat.conversation.messages().is_empty());
}

fn said(chat: &Chat) -> Vec<&str> {
    chat.conversation.messages().iter().map(|m| m.content.as_str()).collect()
}

/// Only where it is asked for, only from the front, and with room for the reply.
#[test]
fn the_oldest_turns_are_dropped_where_that_is_asked_for() {
    let mut chat = Chat::new(ToyFormat::default(), 250);
    chat.conversation.set_system(Some("s".into()));
    let words = ["a".repeat(60), "b".repeat(60), "c".repeat(60)];
    let mut dropped = Vec::new();
    let mut say = |chat: &mut Chat, text: &str, full| {
        let options = ReplyOptions { full, ..options(3) };
        let on_event = &mut |event: Event<'_>| {
            if let Event::Dropped(n) = event {
                dropped.push(n);
            }
        };
        chat.conversation.say(text, &mut chat.sampler, &options, on_event)
    };
    say(&mut chat, &words[0], FullContext::Stop).unwrap();
    say(&mut chat, &words[1], FullContext::Stop).unwrap();
    let before = said(&chat).join("|");
    let error = say(&mut chat, &words[2], FullContext::Stop).unwrap_err();
    assert!(matches!(error, Error::ContextFull { .. }), "{error}");
    assert_eq!(said(&chat).join("|"), before, "nothing is forgotten unasked");
    say(&mut chat, &words[2], FullContext::DropOldest).unwrap();
    let kept = said(&chat).join("|");
    assert!(kept.starts_with("s|b") && kept.contains(&words[2]), "{kept}");
    // what can never fit is an error, and nothing is lost for it
    let error = say(&mut chat, &"d".repeat(500), FullContext::DropOldest).unwrap_err();
    assert!(matches!(error, Error::ContextFull { .. }), "{error}");
    assert_eq!(said(&chat).join("|"), kept);
    assert_eq!(dropped[0], 2, "a message and its reply");
}

#[test]
fn messages_and_caches_can_be_replaced() {
    let mut chat = Chat::new(ToyFormat::default(), 60);
    let messages = ["user", "assistant"].map(|role| Message::new(role, "x".repeat(30)));
    chat.conversation.set_messages(messages.to_vec());
    let say = |chat: &mut Chat| {
        chat.conversation.say("go on", &mut chat.sampler, &options(2), &mut |_| ())
    };
    assert!(matches!(say(&mut chat), Err(Error::ContextFull { .. })));
    chat.conversation.set_cache(common::cache(1000)).unwrap();
    let reply = say(&mut chat).unwrap();
    assert_eq!((reply.stats.cached_tokens, said(&chat).len()), (0, 4));
    assert_eq!(chat.conversation.session().capacity(), 1000);
}

/// A reply that is not made anew after all is still there, its tokens too: the next turn computes no more than it must.
#[test]
fn a_failed_regeneration_changes_nothing() {
    let mut chat = Chat::new(ToyFormat::default(), 1000);
    let first = chat.cold_prompt("hi");
    // three tokens here, two where `encode` spells
    chat.say("hi", first.len(), &text("the end"));
    let held = chat.conversation.session().len();
    let stopped = Arc::new(AtomicBool::new(true));
    let options = ReplyOptions { cancel: &stopped, ..options(4) };
    let reply = chat.conversation.regenerate(&mut chat.sampler, &options, &mut |_| ()).unwrap();
    assert_eq!(reply.stop, StopReason::Cancelled);
    assert_eq!(said(&chat), ["hi", "the end"]);
    let reply = chat.say("and?", 1000, &[65]);
    assert!(reply.stats.prompt_tokens > held, "the reply counts with the tokens it had");
    assert_eq!(
        chat.conversation.session().tokens()[..held - 1],
        [first, spell("the end")].concat()[..held - 1]
    );
}
