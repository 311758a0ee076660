//! Conversations on disk: found by their tokens, by whom they are, where that pays, and under one name for as long as they go on.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

mod common;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Toy, ToyDisk, cache, logits_after};
use engine::{KeptAs, KeptConversations, Owner, Session, TellKept, restore_saved, save};
use program::Model;

const OWNER: Owner = [1; 16];

/// A toy with a disk, and what is told of it.
struct Kept {
    toy: Arc<Toy>,
    conversations: KeptConversations,
    told: Arc<Mutex<Vec<String>>>,
}

fn open(disk: ToyDisk) -> Kept {
    let toy = Toy::new();
    toy.state.lock().unwrap().disk = Some(disk);
    let told = Arc::<Mutex<Vec<String>>>::default();
    let lines = Arc::clone(&told);
    let tell: Arc<TellKept> = Arc::new(move |line: &str| lines.lock().unwrap().push(line.into()));
    let model: Arc<dyn Model> = toy.clone();
    let conversations = KeptConversations::open(&model, cache(1000), 64, &tell).unwrap();
    Kept { toy, conversations, told }
}

impl Kept {
    fn disk(&self) -> ToyDisk {
        self.toy.state.lock().unwrap().disk.clone().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut ToyDisk)) {
        change(self.toy.state.lock().unwrap().disk.as_mut().unwrap());
    }

    /// What becomes of it when the process ends and another one begins.
    fn again(&self) -> Kept {
        open(self.disk())
    }

    fn session(&self, tokens: &[u32]) -> Session {
        let mut session = self.toy.session(1000, 64);
        session.feed(tokens, &AtomicBool::new(false), &mut |_| ()).unwrap();
        session
    }

    fn keep(&self, tokens: &[u32], before: Option<&KeptAs>) -> Option<KeptAs> {
        self.conversations.keep(&self.session(tokens), OWNER, before).unwrap()
    }

    fn restore(&self, prompt: &[u32], have: usize) -> Option<(Session, KeptAs)> {
        self.conversations.restore((OWNER, 0), prompt, have, &AtomicBool::new(false))
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

fn text(n: u32) -> Vec<u32> {
    (0..n).map(|i| i * 7 % 251).collect()
}

fn and(tokens: &[u32], more: &[u32]) -> Vec<u32> {
    [tokens, more].concat()
}

#[test]
fn a_conversation_is_found_by_its_tokens() {
    let kept = open(ToyDisk::default());
    kept.keep(&text(300), None).unwrap();
    let mut other = text(300);
    other[200] = 9;
    kept.keep(&and(&other, &[1; 200]), None).unwrap();
    assert_eq!(kept.disk().kept.len(), 2);
    let kept = kept.again();
    let prompt = and(&text(300), &[5, 6, 7]);
    assert_eq!(kept.conversations.promised(OWNER, &prompt), 288);
    let (mut session, _) = kept.restore(&prompt, 0).unwrap();
    assert_eq!(session.tokens(), text(300));
    let fed = session.feed(&prompt, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!((fed.cached, fed.computed), (300, 3));
    assert_eq!(&fed.logits.unwrap()[..], logits_after(&prompt));
    // of the other one what both share
    let prompt = and(&other[..250], &[3; 50]);
    assert_eq!(kept.restore(&prompt, 0).unwrap().0.tokens(), &other[..250]);
    // the last token of a prompt is computed
    assert_eq!(kept.restore(&text(300), 0).unwrap().0.len(), 299);
    // nobody else's
    assert_eq!(kept.conversations.promised([2; 16], &prompt), 0);
    let found = kept.conversations.restore(([2; 16], 0), &prompt, 0, &AtomicBool::new(false));
    assert!(found.is_none());
    let cancelled = kept.conversations.restore((OWNER, 0), &prompt, 0, &AtomicBool::new(true));
    assert!(cancelled.is_none());
    assert_eq!(kept.told(), [""; 0]);
}

#[test]
fn what_is_short_or_in_memory_is_not_read() {
    let kept = open(ToyDisk::default());
    assert!(kept.keep(&text(63), None).is_none(), "too short");
    kept.keep(&text(300), None).unwrap();
    let prompt = text(310);
    assert!(kept.restore(&prompt, 236).is_some());
    assert!(kept.restore(&prompt, 237).is_none(), "63 tokens more are not worth it");
}

/// The disk's time against that of computing, as it was measured here, or by the one before.
#[test]
fn what_takes_longer_to_read_than_to_compute_is_computed() {
    let kept = open(ToyDisk { seconds_each: 1e-3, ..ToyDisk::default() });
    let prompt = text(310);
    let first = kept.keep(&text(300), None).unwrap();
    assert!(kept.restore(&prompt, 0).is_some(), "nobody knows how long computing takes");
    kept.conversations.measured(1000, Duration::from_millis(1010));
    assert!(kept.restore(&prompt, 0).is_some(), "a little less");
    // all 300 are read, and 200 gained
    assert!(kept.restore(&prompt, 100).is_none());
    kept.conversations.measured(31, Duration::ZERO);
    assert!(kept.restore(&prompt, 0).is_some(), "so few tokens tell nothing");
    kept.conversations.measured(1000, Duration::from_millis(10));
    assert!(kept.restore(&prompt, 0).is_none(), "computing got faster");
    kept.change(|disk| disk.seconds_each = 1e-4);
    assert!(kept.restore(&prompt, 0).is_some(), "30 ms, which nobody notices");
    kept.change(|disk| disk.seconds_each = 1e-3);
    // it is written down for the next process
    kept.keep(&text(400), Some(&first)).unwrap();
    let kept = kept.again();
    assert!(kept.restore(&text(410), 0).is_none());
    kept.change(|disk| disk.seconds_each = 1e-6);
    let (_, again) = kept.restore(&text(410), 0).unwrap();
    // and by one that measured nothing itself for the one after it
    kept.keep(&text(430), Some(&again)).unwrap();
    kept.change(|disk| disk.seconds_each = 1e-3);
    assert!(kept.again().restore(&text(440), 0).is_none());
}

#[test]
fn a_conversation_that_goes_on_keeps_its_name() {
    let kept = open(ToyDisk::default());
    let first = kept.keep(&text(300), None).unwrap();
    assert_eq!(kept.keep(&text(300), Some(&first)), Some(first.clone()), "nothing new");
    // the next prompt may write its end in another way
    let mut edited = text(290);
    edited.extend([1; 60]);
    let second = kept.keep(&edited, Some(&first)).unwrap();
    assert_eq!(kept.disk().kept.len(), 1);
    // who goes on from what is not there any more is another one
    let third = kept.keep(&text(310), Some(&first)).unwrap();
    assert_eq!(kept.disk().kept.len(), 2);
    assert_ne!(second, third);
    // and so is one that was cut far back
    kept.keep(&and(&text(200), &[2; 90]), Some(&third)).unwrap();
    assert_eq!(kept.disk().kept.len(), 3);
    let (_, found) = kept.restore(&text(320), 0).unwrap();
    kept.keep(&text(330), Some(&found)).unwrap();
    assert_eq!(kept.disk().kept.len(), 3);
    kept.conversations.forget(&found);
    assert_eq!(kept.disk().kept.len(), 3, "that one is there no more");
    let (_, found) = kept.restore(&text(340), 0).unwrap();
    kept.conversations.forget(&found);
    assert_eq!(kept.disk().kept.len(), 2);
    assert_eq!(kept.conversations.promised(OWNER, &text(340)), 288, "what the cut one has");
}

#[test]
fn what_had_to_go_is_not_looked_for() {
    let kept = open(ToyDisk { room: Some(2), ..ToyDisk::default() });
    let texts: Vec<Vec<u32>> = (0..3).map(|i| and(&[i; 64], &text(100))).collect();
    texts.iter().for_each(|tokens| drop(kept.keep(tokens, None).unwrap()));
    assert_eq!(kept.conversations.promised(OWNER, &texts[0]), 0);
    assert!(kept.restore(&texts[2], 0).is_some());
    // behind its back
    kept.change(|disk| {
        disk.kept.clear();
        disk.used.clear();
    });
    assert!(kept.restore(&texts[2], 0).is_none());
    assert_eq!(kept.told(), [""; 0], "that it is gone is no news");
    assert_eq!(kept.conversations.promised(OWNER, &texts[2]), 0);
}

#[test]
fn what_is_of_no_use_is_told_once() {
    let kept = open(ToyDisk::default());
    kept.keep(&text(300), None).unwrap();
    let why = "made for model \"a\", not \"b\"";
    kept.change(|disk| disk.differs = Some(why.into()));
    let kept = kept.again();
    for _ in 0..2 {
        assert_eq!(kept.conversations.promised(OWNER, &text(310)), 0);
        assert!(kept.restore(&text(310), 0).is_none());
    }
    let told = kept.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].ends_with(why) && told[0].starts_with("a conversation on disk is computed again: ")
    );
    assert_eq!(kept.disk().kept.len(), 1, "it is left for whom it was made");
    // what nobody asks for is not told
    let kept = kept.again();
    assert_eq!(kept.conversations.promised(OWNER, &[3; 300]), 0);
    assert_eq!(kept.told(), [""; 0]);
}

#[test]
fn what_is_damaged_is_told_and_goes() {
    let kept = open(ToyDisk::default());
    kept.keep(&text(300), None).unwrap();
    kept.change(|disk| disk.is_damaged = true);
    assert!(kept.restore(&text(310), 0).is_none());
    let told = kept.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("computed again") && told[0].contains("checksum"), "{told:?}");
    assert_eq!(kept.disk().kept.len(), 0);
    assert_eq!(kept.toy.state.lock().unwrap().sessions.len(), 0, "nothing is left of it");
    assert!(kept.restore(&text(310), 0).is_none());
    // another's note
    let strange = ToyDisk {
        kept: [("x".to_owned(), (text(300), b"what?".to_vec()))].into(),
        used: vec!["x".into()],
        ..ToyDisk::default()
    };
    let kept = open(strange);
    assert_eq!(kept.conversations.promised(OWNER, &text(310)), 0);
    assert_eq!(kept.disk().kept.len(), 1);
}

/// Too many open files, no memory, a later version: computed, told once, and there when that has gone by.
#[test]
fn what_cannot_be_read_now_stays() {
    let kept = open(ToyDisk::default());
    kept.keep(&text(300), None).unwrap();
    kept.change(|disk| disk.is_out_of_reach = true);
    for _ in 0..2 {
        assert!(kept.restore(&text(310), 0).is_none());
    }
    let told = kept.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("computed again") && told[0].contains("open files"), "{told:?}");
    kept.change(|disk| disk.is_out_of_reach = false);
    assert_eq!(kept.restore(&text(310), 0).unwrap().0.len(), 300);
    // and so when a server starts meanwhile
    kept.change(|disk| disk.is_out_of_reach = true);
    let kept = kept.again();
    assert_eq!(kept.told().len(), 1);
    kept.change(|disk| disk.is_out_of_reach = false);
    assert_eq!(kept.again().restore(&text(310), 0).unwrap().0.len(), 300);
}

/// Of several that are of no use the one is told that would have had most of a prompt, whatever their names.
#[test]
fn the_one_is_told_that_had_most() {
    let kept = open(ToyDisk::default());
    let texts = [100, 300, 200].map(|n| and(&text(n), &[3; 64]));
    texts.iter().for_each(|tokens| drop(kept.keep(tokens, None).unwrap()));
    let disk = kept.disk();
    let most = disk.kept.iter().find(|(_, (tokens, _))| *tokens == texts[1]).unwrap();
    let tokens_of = |name: &str| disk.kept[name].0.len();
    kept.change(|disk| disk.differs = Some("made for model".into()));
    let kept = kept.again();
    assert_eq!(kept.conversations.promised(OWNER, &text(310)), 0);
    let told = kept.told();
    assert!(told.len() == 1 && told[0].contains(most.0), "{told:?}, {}", tokens_of(most.0));
}

#[test]
fn what_is_saved_is_its_owners() {
    let kept = open(ToyDisk::default());
    let model: Arc<dyn Model> = kept.toy.clone();
    let session = kept.session(&text(20));
    assert_eq!(save(&session, "a", OWNER).unwrap().tokens, 20);
    let restore = |name: &str, owner| {
        let with = (&model, cache(1000), 64);
        restore_saved(with, name, owner, &AtomicBool::new(false))
            .map(|(session, _)| session.tokens().to_vec())
            .map_err(|error| error.to_string())
    };
    assert_eq!(restore("a", OWNER), Ok(text(20)));
    assert!(restore("a", [2; 16]).is_err_and(|why| why.contains("no such file")));
    assert!(restore("b", OWNER).is_err_and(|why| why.contains("no such file")));
    assert!(save(&session, "a", [2; 16]).is_err_and(|why| why.to_string().contains("taken")));
    let longer = kept.session(&text(30));
    save(&longer, "a", OWNER).unwrap();
    assert_eq!(restore("a", OWNER), Ok(text(30)));
    // what cannot be gone on from is none
    kept.change(|disk| disk.reached = Some(0));
    assert!(restore("a", OWNER).is_err_and(|why| why.contains("none of its 30 tokens")));
    kept.change(|disk| disk.reached = None);
    // what is there and cannot be read, or is strange, is not written over
    kept.change(|disk| disk.is_out_of_reach = true);
    assert!(save(&session, "a", OWNER).is_err_and(|why| why.to_string().contains("open files")));
    kept.change(|disk| disk.is_out_of_reach = false);
    assert_eq!(restore("a", OWNER), Ok(text(30)));
    kept.change(|disk| {
        disk.kept.insert("b".into(), (text(9), b"what?".to_vec()));
        disk.used.push("b".into());
    });
    assert!(save(&session, "b", OWNER).is_err_and(|why| why.to_string().contains("taken")));
    kept.change(|disk| disk.differs = Some("made for model \"a\", not \"b\"".into()));
    assert!(restore("a", OWNER).is_err_and(|why| why.contains("made for model")));
}
