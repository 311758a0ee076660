//! A session holds what it says it holds, computes only what is new, and equals a cold run.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Error, Fed, Prefill, Scores, Session};
use program::LogitRows;
use proptest::prelude::*;

use crate::common::{Toy, VOCAB, logits_after};

static GO: AtomicBool = AtomicBool::new(false);

fn scores_after(tokens: &[u32]) -> Scores {
    LogitRows::new(logits_after(tokens), VOCAB).into()
}

fn feed(session: &mut Session, tokens: &[u32]) -> Fed {
    session.feed(tokens, &GO, &mut |_| ()).unwrap()
}

#[test]
fn only_what_follows_the_common_prefix_is_computed() {
    let toy = Toy::new();
    let mut session = toy.session(100, 4);
    let check = |session: &mut Session, tokens: &[u32], cached, computed| {
        let want = Fed { cached, computed, logits: Some(scores_after(tokens)) };
        assert_eq!(feed(session, tokens), want, "{tokens:?}");
        assert_eq!(session.tokens(), tokens);
        assert_eq!(toy.take_rows(), computed as u64);
    };
    check(&mut session, &[1, 2, 3, 4, 5, 6], 0, 6);
    check(&mut session, &[1, 2, 3, 4, 5, 6, 7], 6, 1);
    check(&mut session, &[1, 2, 3, 4, 5, 6, 7], 6, 1);
    check(&mut session, &[1, 2, 3], 2, 1);
    check(&mut session, &[1, 9, 3], 1, 2);
    check(&mut session, &[5], 0, 1);
}

/// What the model could not keep is computed again, and nothing else.
#[test]
fn a_shorter_cache_than_asked_for_is_filled_up() {
    let toy = Toy::new();
    toy.state.lock().unwrap().reached = Some(4);
    let mut session = toy.session(100, 4);
    feed(&mut session, &[1, 2, 3, 4, 5, 6, 7]);
    toy.take_rows();
    let tokens = [1, 2, 3, 4, 5, 9];
    let want = Fed { cached: 4, computed: 2, logits: Some(scores_after(&tokens)) };
    assert_eq!(feed(&mut session, &tokens), want);
    assert_eq!((session.tokens(), toy.take_rows()), (&tokens[..], 2));
    let mut fork = session.fork(5).unwrap();
    assert_eq!(fork.tokens(), [1, 2, 3, 4]);
    assert_eq!(fork.step(8).unwrap()[..], logits_after(&[1, 2, 3, 4, 8]));
    assert_eq!(session.truncate(3).unwrap(), 0);
    assert!(session.is_empty());
    assert_eq!(session.truncate(3).unwrap(), 0);
}

#[test]
fn an_equal_prefix_of_another_session_is_not_computed_again() {
    let toy = Toy::new();
    toy.state.lock().unwrap().shared = Some(4);
    let (mut first, mut second) = (toy.session(100, 4), toy.session(100, 4));
    feed(&mut first, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    toy.take_rows();
    let mut check = |tokens: &[u32], cached| {
        let computed = tokens.len() - cached;
        let want = Fed { cached, computed, logits: Some(scores_after(tokens)) };
        assert_eq!(feed(&mut second, tokens), want, "{tokens:?}");
        assert_eq!((second.tokens(), toy.take_rows()), (tokens, computed as u64));
    };
    check(&[1, 2, 3, 4, 5, 6, 8], 4);
    check(&[1, 2, 3, 4, 5, 6, 7, 8, 8], 8);
    // the last token is always computed
    check(&[1, 2, 3, 4, 5, 6, 7, 8], 7);
    check(&[2, 2, 3, 4], 0);
}

#[test]
fn a_full_context_is_refused_before_anything_is_lost() {
    let toy = Toy::new();
    let mut session = toy.session(4, 0);
    feed(&mut session, &[1, 2, 3]);
    let error = session.feed(&[9, 9, 9, 9, 9], &GO, &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the context is full: 5 tokens wanted, 4 fit");
    assert_eq!(session.tokens(), [1, 2, 3]);
    session.step(4).unwrap();
    assert!(matches!(session.step(5), Err(Error::ContextFull { wanted: 5, capacity: 4 })));
    assert_eq!(session.tokens(), [1, 2, 3, 4]);
    assert!(matches!(session.feed(&[], &GO, &mut |_| ()), Err(Error::EmptyPrompt)));
    assert_eq!(feed(&mut session, &[1, 2, 3, 5]).logits.unwrap()[..], logits_after(&[1, 2, 3, 5]));
}

#[test]
fn a_cancel_keeps_what_was_computed() {
    let toy = Toy::new();
    let mut session = toy.session(100, 3);
    let prompt: Vec<u32> = (0..10).collect();
    let cancel = AtomicBool::new(false);
    let mut seen = Vec::new();
    let fed = session
        .feed(&prompt, &cancel, &mut |p| {
            seen.push(p.done);
            cancel.store(p.done >= 6, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(fed, Fed { cached: 0, computed: 6, logits: None });
    assert_eq!(seen, [0, 3, 6]);
    assert_eq!(session.tokens(), &prompt[..6]);
    let mut last = None;
    let fed = session.feed(&prompt, &GO, &mut |p| last = Some(p)).unwrap();
    assert_eq!(fed, Fed { cached: 6, computed: 4, logits: Some(scores_after(&prompt)) });
    assert_eq!(last, Some(Prefill { cached: 6, done: 4, total: 4 }));
}

#[test]
fn a_failed_step_leaves_the_session_usable() {
    let toy = Toy::new();
    let mut session = toy.session(100, 4);
    let error = session.feed(&[1, 2, 3, 4, 5, VOCAB as u32], &GO, &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), format!("token {VOCAB} is outside the vocabulary of {VOCAB}"));
    assert_eq!(session.tokens(), [1, 2, 3, 4]);
    assert_eq!(feed(&mut session, &[1, 2, 3, 4, 5]).cached, 4);
}

#[test]
fn sessions_end_with_their_value() {
    let toy = Toy::new();
    let mut session = toy.session(100, 0);
    feed(&mut session, &[1, 2, 3]);
    let mut fork = session.fork(2).unwrap();
    assert_eq!(fork.tokens(), [1, 2]);
    assert_eq!(fork.step(7).unwrap()[..], logits_after(&[1, 2, 7]));
    assert_eq!(session.step(8).unwrap()[..], logits_after(&[1, 2, 3, 8]));
    assert!(session.fork(9).is_err());
    assert_eq!(session.cache_bytes().unwrap(), 16);
    session.clear().unwrap();
    assert!(session.is_empty());
    drop(session);
    assert_eq!(toy.state.lock().unwrap().sessions.len(), 1);
    drop(fork);
    assert!(toy.state.lock().unwrap().sessions.is_empty());
}

#[derive(Clone, Debug)]
enum Edit {
    Feed(Vec<u32>),
    Extend(Vec<u32>),
    Step(u32),
    Truncate(usize),
    Fork(usize),
    CancelledFeed(Vec<u32>),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    // Two tokens only, so that prefixes are often shared.
    let tokens = || prop::collection::vec(0u32..2, 1..12);
    let edit = prop_oneof![
        tokens().prop_map(Edit::Feed),
        tokens().prop_map(Edit::Extend),
        (0u32..2).prop_map(Edit::Step),
        (0usize..16).prop_map(Edit::Truncate),
        (0usize..16).prop_map(Edit::Fork),
        tokens().prop_map(Edit::CancelledFeed),
    ];
    prop::collection::vec(edit, 1..20)
}

proptest! {
    /// Whatever was done before, the logits are those of a cold run on the same tokens.
    #[test]
    fn any_history_equals_a_cold_run(
        edits in edits(),
        chunk in 1usize..6,
        reached in proptest::option::of(2usize..6),
        shared in proptest::option::of(2usize..6),
    ) {
        let toy = Toy::new();
        (toy.state.lock().unwrap().reached, toy.state.lock().unwrap().shared) = (reached, shared);
        let mut others = Vec::new();
        let mut session = toy.session(24, chunk);
        for edit in edits {
            let before = session.tokens().to_vec();
            let (wanted, result) = match edit {
                Edit::Feed(tokens) => (tokens.clone(), session.feed(&tokens, &GO, &mut |_| ()).map(|f| f.logits)),
                Edit::Extend(more) => {
                    let tokens = [before.clone(), more].concat();
                    (tokens.clone(), session.feed(&tokens, &GO, &mut |_| ()).map(|f| f.logits))
                }
                Edit::Step(token) => {
                    ([before.clone(), vec![token]].concat(), session.step(token).map(Some))
                }
                Edit::Truncate(len) => {
                    let kept = session.truncate(len).unwrap();
                    let cut = len - if len < before.len() { len % reached.unwrap_or(1) } else { 0 };
                    prop_assert_eq!(kept, cut.min(before.len()));
                    prop_assert_eq!(session.tokens(), &before[..kept]);
                    continue;
                }
                Edit::Fork(len) => {
                    let len = len.min(before.len());
                    let fork = session.fork(len).unwrap();
                    others.push(std::mem::replace(&mut session, fork));
                    prop_assert_eq!(session.tokens(), &before[..len - len % reached.unwrap_or(1)]);
                    continue;
                }
                Edit::CancelledFeed(tokens) => {
                    let cancel = AtomicBool::new(false);
                    let fed = session.feed(&tokens, &cancel, &mut |_| cancel.store(true, Ordering::Relaxed)).unwrap();
                    prop_assert!(fed.logits.is_none() && tokens.starts_with(session.tokens()));
                    continue;
                }
            };
            match result {
                Ok(logits) => {
                    prop_assert_eq!(&logits.unwrap()[..], logits_after(&wanted));
                    prop_assert_eq!(session.tokens(), wanted.as_slice());
                }
                Err(Error::ContextFull { .. }) => {
                    prop_assert!(wanted.len() > 24);
                    prop_assert_eq!(session.tokens(), before.as_slice());
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
