//! Replies of a form: what leaves no choice goes into one pass, and nothing else changes by it.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex};

use engine::{
    Constraint, DraftMode, Drafters, Error, Generated, Request, Result, Sampler, SamplerOptions,
    StopReason, Suffixes, TokenMask, Turn,
};

use crate::common::{END, END_THINK, THINK, Toy, ToyFormat};

static GO: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static FORMAT: ToyFormat = ToyFormat { trims: false, drops_thoughts: false, opens_thought: false };

/// Places of a text: one token there, or any letter. Then the end.
#[derive(Clone)]
struct Gaps {
    places: Arc<Vec<Option<u32>>>,
    at: usize,
    /// Whether it says what is forced.
    tells: bool,
}

impl Constraint for Gaps {
    fn mask(&mut self) -> Result<TokenMask> {
        let may = |token: u32| match self.places.get(self.at) {
            Some(Some(only)) => token == *only,
            Some(None) => (97..123).contains(&token),
            None => token == END,
        };
        let word = |i: u32| (0..32).map(|bit| u32::from(may(32 * i + bit)) << bit).sum();
        Ok(TokenMask::from_bits((0..9).map(word).collect()))
    }

    fn forced(&mut self) -> Vec<u32> {
        let rest = self.places.get(self.at..).unwrap_or_default();
        if self.tells { rest.iter().map_while(|place| *place).collect() } else { Vec::new() }
    }

    fn keep(&mut self, token: u32) -> Result<()> {
        if !self.mask()?.has(token) {
            return Err(Error::Constraint { problem: format!("{token} may not come") });
        }
        self.at += 1;
        Ok(())
    }

    fn take_back(&mut self, n: usize) -> Result<()> {
        self.at -= n;
        Ok(())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

/// Ten tokens that are given, two letters, and so on.
fn gaps(n: u32, tells: bool) -> Gaps {
    let place = |i: u32| if i % 12 < 10 { Some(48 + i % 12) } else { None };
    Gaps { places: Arc::new((0..n).map(place).collect()), at: 0, tells }
}

fn reply(toy: &Arc<Toy>, form: Gaps, seed: u64, drafters: Option<&mut Drafters>) -> Generated {
    let options = SamplerOptions { seed: Some(seed), temperature: 1.5, ..Default::default() };
    let sampler = Sampler::new(options).unwrap().with_constraint(Box::new(form)).unwrap();
    let prompt: Vec<u32> = (0..30).collect();
    let request = Request {
        prompt: &prompt,
        max_tokens: Some(200),
        stop: &[],
        ignore_eog: false,
        split_thoughts: false,
        cancel: &GO,
    };
    let mut turn = Turn::new(toy.session(400, 0), sampler, &FORMAT, &request);
    if let Some(drafters) = drafters {
        turn = turn.drafted(drafters);
    }
    turn.alone(&mut |_| ()).unwrap()
}

#[test]
fn what_leaves_no_choice_is_one_pass() {
    let toy = Toy::new();
    let steps = || toy.state.lock().unwrap().stats.steps;
    for seed in 0..3 {
        let start = steps();
        let plain = reply(&toy, gaps(60, false), seed, None);
        let one_by_one = steps() - start;
        let forced = reply(&toy, gaps(60, true), seed, None);
        let together = steps() - start - one_by_one;
        assert_eq!((&forced.tokens, &forced.stop), (&plain.tokens, &plain.stop));
        assert_eq!(plain.stop, StopReason::EndOfGeneration(END));
        assert_eq!(plain.tokens.len(), 60);
        // the prompt and each token; or the prompt, each letter with the ten that follow it, and each other letter
        assert_eq!((one_by_one, together), (61, 1 + 5 * 2 + 1), "seed {seed}");
    }
}

/// A model that would rather tell few tokens is given the masks, also those of rows that leave no choice.
#[test]
fn few_tokens_of_a_form_make_the_same_reply() {
    for tells in [false, true] {
        let (all, few) = (Toy::new(), Toy::new());
        few.state.lock().unwrap().most_candidates = 41;
        let want = reply(&all, gaps(60, tells), 3, None);
        let got = reply(&few, gaps(60, tells), 3, None);
        assert_eq!((got.tokens, got.stop), (want.tokens, want.stop), "forced: {tells}");
        let state = few.state.lock().unwrap();
        // a mask that takes its time is not waited for
        assert!(state.asked_for_few > 0, "forced: {tells}");
    }
}

#[test]
fn forms_and_drafts_go_together() {
    let toy = Toy::new();
    let plain = reply(&toy, gaps(80, false), 5, None);
    let suffixes: Arc<Mutex<Suffixes>> = Arc::default();
    for tells in [false, true] {
        let mut drafters = Drafters::new(DraftMode::Auto, &suffixes);
        for _ in 0..2 {
            let drafted = reply(&toy, gaps(80, tells), 5, Some(&mut drafters));
            assert_eq!(drafted.tokens, plain.tokens);
        }
        let mut by_model = Drafters::by_model(toy.session(400, 16));
        let drafted = reply(&toy, gaps(80, tells), 5, Some(&mut by_model));
        assert_eq!(drafted.tokens, plain.tokens);
    }
}

#[test]
fn a_pass_that_is_too_large_is_tried_without_what_is_forced() {
    let toy = Toy::new();
    let plain = reply(&toy, gaps(30, false), 1, None);
    // a prompt fits
    toy.state.lock().unwrap().largest_step = Some(30);
    let fits = reply(&toy, gaps(30, true), 1, None);
    assert_eq!(fits.tokens, plain.tokens);
    let narrow = Toy::new();
    let first = reply(&narrow, gaps(30, true), 1, None);
    assert_eq!(first.tokens, plain.tokens);
    narrow.state.lock().unwrap().largest_step = Some(5);
    let options = SamplerOptions { seed: Some(1), temperature: 1.5, ..Default::default() };
    let form = Box::new(gaps(30, true));
    let sampler = Sampler::new(options).unwrap().with_constraint(form).unwrap();
    let prompt: Vec<u32> = (0..30).collect();
    let request = Request {
        prompt: &prompt,
        max_tokens: None,
        stop: &[],
        ignore_eog: false,
        split_thoughts: false,
        cancel: &GO,
    };
    let turn = Turn::new(narrow.session(400, 5), sampler, &FORMAT, &request);
    assert_eq!(turn.alone(&mut |_| ()).unwrap().tokens, plain.tokens);
}

#[test]
fn a_thought_that_the_prompt_began_has_no_form() {
    let toy = Toy::new();
    let mut prompt: Vec<u32> = (0..30).collect();
    prompt.push(THINK);
    toy.script(31, &[200, 201, 202, END_THINK]);
    for tells in [false, true] {
        let sampler = Sampler::new(SamplerOptions::greedy()).unwrap();
        let sampler = sampler.with_constraint(Box::new(gaps(11, tells))).unwrap();
        let request = Request {
            prompt: &prompt,
            max_tokens: Some(50),
            stop: &[],
            ignore_eog: false,
            split_thoughts: true,
            cancel: &GO,
        };
        let turn = Turn::new(toy.session(400, 0), sampler, &FORMAT, &request);
        let reply = turn.alone(&mut |_| ()).unwrap();
        assert_eq!(reply.stop, StopReason::EndOfGeneration(END));
        assert_eq!(reply.tokens[..4], [200, 201, 202, END_THINK]);
        assert_eq!((reply.tokens.len(), &reply.text[..10]), (15, "0123456789"));
    }
}
