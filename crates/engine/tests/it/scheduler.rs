//! Turns side by side, and drafts: the texts are what they are alone and without drafts.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use engine::{
    Draft, DraftMode, Drafter, Drafters, Error, Event, Generated, Request, Result, Sampler,
    SamplerOptions, Scheduler, SchedulerOptions, Session, StopReason, Suffixes, Turn, TurnId,
    Watch, Watched,
};
use program::{Model, Step, StepOut};
use proptest::prelude::*;

use crate::common;
use crate::common::{END, Toy, ToyFormat, spell};

static GO: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static FORMAT: ToyFormat = ToyFormat { trims: false, drops_thoughts: false, opens_thought: false };

fn request<'a>(prompt: &'a [u32], max: usize) -> Request<'a> {
    Request {
        prompt,
        max_tokens: Some(max),
        stop: &[],
        ignore_eog: true,
        split_thoughts: false,
        cancel: &GO,
    }
}

fn sampler(seed: Option<u64>) -> Sampler {
    Sampler::new(match seed {
        Some(seed) => {
            SamplerOptions { seed: Some(seed), temperature: 1.5, ..SamplerOptions::default() }
        }
        None => SamplerOptions::greedy(),
    })
    .unwrap()
}

/// What can be compared of a reply: all but times.
fn text(reply: &Generated) -> (Vec<u32>, String, StopReason) {
    (reply.tokens.clone(), reply.raw.clone(), reply.stop.clone())
}

fn alone(toy: &Arc<Toy>, prompt: &[u32], max: usize, seed: Option<u64>) -> Generated {
    let turn = Turn::new(toy.session(400, 16), sampler(seed), &FORMAT, &request(prompt, max));
    turn.alone(&mut |_| ()).unwrap()
}

/// Run until nothing is left; what came of each turn, and the order in which they ended.
fn drain(scheduler: &mut Scheduler<'_>) -> HashMap<TurnId, Result<Generated>> {
    let mut done = HashMap::new();
    while !scheduler.is_empty() {
        for (id, turn) in scheduler.step(&mut |_, _| ()) {
            done.insert(id, turn.finish());
        }
    }
    done
}

fn scheduler<'a>(toy: &Arc<Toy>, running: usize) -> Scheduler<'a> {
    let model: Arc<dyn Model> = toy.clone();
    Scheduler::new(model, SchedulerOptions { running, waiting: 64, rows: 32 })
}

/// Guesses what it was told, right and wrong.
struct Told {
    text: Vec<u32>,
    at: usize,
    /// Every so many tokens the guess is wrong.
    wrong: usize,
}

impl Drafter for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn begin(&mut self, tokens: &[u32], _: &Sampler) {
        self.at = tokens.len();
    }

    fn push(&mut self, tokens: &[u32]) {
        self.at += tokens.len();
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        let end = self.text.len().min(self.at + max);
        let guess = |i: usize| if i.is_multiple_of(self.wrong) { 7 } else { self.text[i] };
        Ok(Draft { tokens: (self.at.min(end)..end).map(guess).collect(), class: 0 })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whoever is beside it, however many run at once, whatever was guessed: every turn's text is its own.
    #[test]
    fn a_turn_alone_and_beside_others_is_the_same(
        turns in prop::collection::vec((1usize..60, 1usize..40, prop::option::of(0u64..3), 0usize..5), 1..10),
        running in 1usize..16,
    ) {
        let (toy, other) = (Toy::new(), Toy::new());
        let prompts: Vec<Vec<u32>> = turns.iter().enumerate()
            .map(|(i, (n, ..))| (0..*n as u32).map(|t| (t * 7 + i as u32) % 250).collect())
            .collect();
        let suffixes: Arc<Mutex<Suffixes>> = Arc::default();
        let mut scheduler = scheduler(&toy, running);
        let mut want = HashMap::new();
        for ((_, max, seed, drafts), prompt) in turns.iter().zip(&prompts) {
            let plain = alone(&toy, prompt, *max, *seed);
            let turn = Turn::new(toy.session(400, 16), sampler(*seed), &FORMAT, &request(prompt, *max));
            let turn = match drafts {
                0 => turn,
                1 => turn.drafted(Drafters::new(DraftMode::Auto, &suffixes)),
                2 => {
                    let guesser = if max % 2 == 0 { &toy } else { &other };
                    turn.drafted(Drafters::by_model(guesser.session(90, 8)).whatever_it_costs())
                }
                _ => {
                    let text = [prompt.clone(), plain.tokens.clone()].concat();
                    let told = Told { text, at: 0, wrong: 3 * drafts };
                    turn.drafted(Drafters::of(vec![Box::new(told)]).whatever_it_costs())
                }
            };
            want.insert(scheduler.join(turn).unwrap(), text(&plain));
        }
        let found = drain(&mut scheduler);
        prop_assert_eq!(found.len(), want.len());
        for (id, reply) in found {
            prop_assert_eq!(&text(&reply.unwrap()), &want[&id]);
        }
        drop(scheduler);
        prop_assert_eq!(toy.state.lock().unwrap().sessions.len(), 0);
        prop_assert_eq!(other.state.lock().unwrap().sessions.len(), 0);
    }

    /// A draft that runs over the end of a reply, a stop string, the context or the tokens asked for changes nothing.
    #[test]
    fn drafts_end_where_the_text_ends(end in 1usize..30, capacity in 14usize..60, max in 1usize..40, stop in 0usize..3) {
        let prompt: Vec<u32> = (0..12).collect();
        let script: Vec<u32> = [spell(&"abcdefgh".repeat(4))[..end].to_vec(), vec![END]].concat();
        let stops = ["", "cd", "hab"].map(str::to_owned);
        let run = |drafted: bool| {
            let toy = Toy::new();
            toy.script(prompt.len(), &script);
            let request = Request {
                stop: &stops[stop..=stop],
                ignore_eog: false,
                ..request(&prompt, max)
            };
            let mut session = toy.session(capacity, 0);
            let mut sampler = sampler(None);
            let mut turn = Turn::new(&mut session, &mut sampler, &FORMAT, &request);
            if drafted {
                let text = [prompt.clone(), script.clone(), vec![1; 20]].concat();
                let told = Told { text, at: 0, wrong: 1000 };
                turn = turn.drafted(Drafters::of(vec![Box::new(told)]).whatever_it_costs());
            }
            let reply = turn.alone(&mut |_| ()).unwrap();
            (text(&reply), reply.kept_tokens, session.tokens().to_vec())
        };
        prop_assert_eq!(run(true), run(false));
    }
}

#[test]
fn a_draft_that_holds_saves_passes() {
    let toy = Toy::new();
    let prompt: Vec<u32> = (0..20).collect();
    let plain = alone(&toy, &prompt, 100, None);
    let steps = |toy: &Toy| toy.state.lock().unwrap().stats.steps;
    let before = steps(&toy);
    let text = [prompt.clone(), plain.tokens.clone()].concat();
    let drafters =
        Drafters::of(vec![Box::new(Told { text, at: 0, wrong: 1000 })]).whatever_it_costs();
    let turn = Turn::new(toy.session(400, 0), sampler(None), &FORMAT, &request(&prompt, 100));
    let reply = turn.drafted(drafters).alone(&mut |_| ()).unwrap();
    assert_eq!(reply.tokens, plain.tokens);
    let stats = reply.stats.drafts;
    assert_eq!(reply.stats.steps.len(), 99);
    let passes = steps(&toy) - before;
    assert_eq!(passes as usize, 1 + (99 - stats.kept), "{stats:?}");
    assert!(stats.kept <= stats.drafted && stats.passes > 0, "{stats:?}");
}

#[test]
fn drafts_are_as_long_as_they_may_be() {
    let toy = Toy::new();
    let prompt: Vec<u32> = (0..20).collect();
    let plain = alone(&toy, &prompt, 50, None);
    let text = [prompt.clone(), plain.tokens.clone()].concat();
    let drafted = |most| {
        let told = Told { text: text.clone(), at: 0, wrong: 1000 };
        let drafters = Drafters::of(vec![Box::new(told)]).at_most(most).whatever_it_costs();
        let turn = Turn::new(toy.session(400, 0), sampler(None), &FORMAT, &request(&prompt, 50));
        turn.drafted(drafters).alone(&mut |_| ()).unwrap().stats.drafts
    };
    assert_eq!(drafted(0).drafted, 0);
    let one = drafted(1);
    assert!(one.passes > 0 && one.drafted == one.passes, "{one:?}");
}

/// A model that drafts for itself is always right, one that says something else never.
#[test]
fn a_model_drafts_for_another() {
    let (toy, other) = (Toy::new(), Toy::new());
    let prompt: Vec<u32> = (0..40).collect();
    other.script(0, &[9; 300]);
    for seed in [None, Some(4)] {
        let plain = alone(&toy, &prompt, 120, seed);
        for (guesser, right) in [(&toy, true), (&other, false)] {
            let drafters = Drafters::by_model(guesser.session(400, 16)).whatever_it_costs();
            let turn =
                Turn::new(toy.session(400, 0), sampler(seed), &FORMAT, &request(&prompt, 120));
            let reply = turn.drafted(drafters).alone(&mut |_| ()).unwrap();
            assert_eq!(reply.tokens, plain.tokens);
            let stats = reply.stats.drafts;
            if right {
                // but behind where it would end the text, which goes on
                assert!(stats.kept * 4 >= stats.drafted * 3 && stats.kept > 50, "{stats:?}");
            } else {
                assert!(stats.drafted > 50 && stats.kept <= stats.drafted / 10, "{stats:?}");
            }
        }
    }
}

/// N equal turns have come equally far after any step, but for the one whose turn it is.
#[test]
fn equal_turns_are_served_alike() {
    let toy = Toy::new();
    let prompts: Vec<Vec<u32>> =
        (0..8).map(|i| (0..200).map(|t| (t + i) % 250).collect()).collect();
    let mut scheduler = scheduler(&toy, 8);
    for prompt in &prompts {
        let turn = Turn::new(toy.session(400, 0), sampler(None), &FORMAT, &request(prompt, 50));
        scheduler.join(turn).unwrap();
    }
    let mut served: HashMap<TurnId, usize> = HashMap::new();
    while !scheduler.is_empty() {
        scheduler.step(&mut |id, event| match event {
            Event::Prefill(p) => *served.entry(id).or_default() = p.done,
            Event::Text(_) | Event::Thought(_) => *served.entry(id).or_default() += 1,
            Event::Usage(_) | Event::End(_) => {}
            other => unreachable!("no conversation, no tools, no scores: {other:?}"),
        });
        let (least, most) = (served.values().min().unwrap(), served.values().max().unwrap());
        assert!(most - least <= 4 + most / 10, "{served:?}");
    }
}

#[test]
fn turns_join_and_leave_between_steps() {
    let toy = Toy::new();
    let (long, short): (Vec<u32>, Vec<u32>) = ((0..100).collect(), (5..9).collect());
    let want = [alone(&toy, &long, 60, Some(1)), alone(&toy, &short, 5, None)];
    let mut scheduler = scheduler(&toy, 4);
    let turn = Turn::new(toy.session(400, 0), sampler(Some(1)), &FORMAT, &request(&long, 60));
    let first = scheduler.join(turn).unwrap();
    for _ in 0..20 {
        assert!(scheduler.step(&mut |_, _| ()).is_empty());
    }
    let cancel = Arc::new(AtomicBool::new(false));
    let leaver = Request { cancel: &cancel, ..request(&short, 50) };
    let turn = Turn::new(toy.session(400, 0), sampler(None), &FORMAT, &leaver);
    let leaves = scheduler.join(turn).unwrap();
    let turn = Turn::new(toy.session(400, 0), sampler(None), &FORMAT, &request(&short, 5));
    let second = scheduler.join(turn).unwrap();
    scheduler.step(&mut |_, _| ());
    cancel.store(true, Ordering::SeqCst);
    let mut found = drain(&mut scheduler);
    assert_eq!(found.remove(&leaves).unwrap().unwrap().stop, StopReason::Cancelled);
    assert_eq!(text(&found.remove(&first).unwrap().unwrap()), text(&want[0]));
    assert_eq!(text(&found.remove(&second).unwrap().unwrap()), text(&want[1]));
}

#[test]
fn the_queue_is_bounded_and_of_one_model() {
    let (toy, other) = (Toy::new(), Toy::new());
    let prompt = [1, 2, 3];
    let model: Arc<dyn Model> = toy.clone();
    let options = SchedulerOptions { running: 2, waiting: 3, rows: 32 };
    let mut scheduler = Scheduler::new(model, options);
    let turn = |toy: &Arc<Toy>| {
        Turn::new(toy.session(100, 0), sampler(None), &FORMAT, &request(&prompt, 4))
    };
    assert!(matches!(scheduler.join(turn(&other)), Err(Error::OtherModel)));
    for _ in 0..5 {
        scheduler.join(turn(&toy)).unwrap();
    }
    assert!(matches!(scheduler.join(turn(&toy)), Err(Error::Busy { waiting: 3 })));
    assert_eq!(scheduler.len(), (2, 3));
    assert_eq!(drain(&mut scheduler).len(), 5);
    scheduler.join(turn(&toy)).unwrap();
}

/// One turn's failure is its own.
#[test]
fn a_turn_that_fails_leaves_the_others() {
    let toy = Toy::new();
    let (good, bad): (Vec<u32>, Vec<u32>) = ((0..10).collect(), vec![3, 100_000]);
    let want = alone(&toy, &good, 20, None);
    let mut scheduler = scheduler(&toy, 4);
    let join = |scheduler: &mut Scheduler<'static>, prompt: &[u32], capacity| {
        let turn =
            Turn::new(toy.session(capacity, 0), sampler(None), &FORMAT, &request(prompt, 20));
        scheduler.join(turn).unwrap()
    };
    let ids = [
        join(&mut scheduler, &good, 400),
        join(&mut scheduler, &bad, 400),
        join(&mut scheduler, &[], 400),
        join(&mut scheduler, &good, 5),
    ];
    let mut found = drain(&mut scheduler);
    let mut take = |i: usize| found.remove(&ids[i]).unwrap();
    assert_eq!(text(&take(0).unwrap()), text(&want));
    assert!(matches!(take(1), Err(Error::Model(program::Error::Token { .. }))));
    assert!(matches!(take(2), Err(Error::EmptyPrompt)));
    assert!(matches!(take(3), Err(Error::ContextFull { .. })));
}

/// A pass that fails as a whole is run turn by turn.
#[test]
fn steps_that_are_too_wide_are_run_alone() {
    let toy = Toy::new();
    let prompts: [Vec<u32>; 2] = [(0..10).collect(), (20..40).collect()];
    let want = prompts.clone().map(|prompt| text(&alone(&toy, &prompt, 20, None)));
    toy.state.lock().unwrap().widest_step = Some(24);
    let mut scheduler = scheduler(&toy, 4);
    let ids = prompts.each_ref().map(|prompt| {
        let turn = Turn::new(toy.session(400, 0), sampler(None), &FORMAT, &request(prompt, 20));
        scheduler.join(turn).unwrap()
    });
    let mut found = drain(&mut scheduler);
    assert_eq!(ids.map(|id| text(&found.remove(&id).unwrap().unwrap())), want);
}

/// A guess that the model cannot compute costs a pass and no more, even where drafts are made whatever they cost.
#[test]
fn a_draft_that_fails_is_not_tried_again_at_once() {
    struct Impossible;
    impl Drafter for Impossible {
        fn name(&self) -> &'static str {
            "impossible"
        }

        fn begin(&mut self, _: &[u32], _: &Sampler) {}

        fn push(&mut self, _: &[u32]) {}

        fn draft(&mut self, max: usize) -> Result<Draft> {
            Ok(Draft { tokens: vec![100_000; max], class: 0 })
        }
    }
    let toy = Toy::new();
    let prompt: Vec<u32> = (0..10).collect();
    let want = text(&alone(&toy, &prompt, 20, None));
    let mut scheduler = scheduler(&toy, 1);
    let turn = Turn::new(toy.session(400, 0), sampler(None), &FORMAT, &request(&prompt, 20));
    let drafters = Drafters::of(vec![Box::new(Impossible)]).whatever_it_costs();
    scheduler.join(turn.drafted(drafters)).unwrap();
    let ended = (0..60).flat_map(|_| scheduler.step(&mut |_, _| ())).next();
    let (_, turn) = ended.expect("two passes a token at most");
    assert_eq!(text(&turn.finish().unwrap()), want);
}

/// Counts rows, and fails if it is to.
#[derive(Default)]
struct Counted {
    rows: Arc<AtomicUsize>,
    fails: bool,
}

impl Watch for Counted {
    fn stepped(&self, step: &Step<'_>, _: &[usize], out: &mut StepOut) {
        let rows: usize = step.sequences.iter().map(|s| s.tokens.len()).sum();
        self.rows.fetch_add(rows, Ordering::Relaxed);
        for out in out.sequences.iter_mut().filter(|_| self.fails) {
            *out = Err(program::Error::Unsupported("it fails".into()));
        }
    }
}

/// Drafters by a toy that is watched so.
fn by_counted(watch: Counted) -> Drafters {
    let model: Arc<dyn Model> = Toy::new();
    let watched: Arc<dyn Model> = Arc::new(Watched::new(model, watch));
    Drafters::by_model(Session::new(watched, common::cache(700), 16).unwrap())
}

/// What the model of a drafter has to read of a prompt it reads while the prompt is read, not when text comes.
#[test]
fn a_drafters_model_reads_the_prompt_along() {
    let toy = Toy::new();
    let prompt: Vec<u32> = (0..100).collect();
    let rows = Arc::new(AtomicUsize::new(0));
    let drafters = by_counted(Counted { rows: Arc::clone(&rows), fails: false });
    let turn = Turn::new(toy.session(400, 16), sampler(None), &FORMAT, &request(&prompt, 50));
    let mut read = Vec::new();
    let told = &mut |event: Event<'_>| {
        if let Event::Prefill(prefill) = event {
            read.push((prefill.done, rows.load(Ordering::Relaxed)));
        }
    };
    turn.drafted(drafters).alone(told).unwrap();
    assert_eq!(read.last(), Some(&(100, 99)));
    assert!(
        read.len() > 5 && read.iter().skip(1).all(|(done, rows)| rows >= &(done - 1)),
        "{read:?}"
    );
}

/// A drafter whose model fails is not asked again for this reply.
#[test]
fn a_drafters_model_that_fails_is_left_alone() {
    let toy = Toy::new();
    let prompt: Vec<u32> = (0..40).collect();
    let want = text(&alone(&toy, &prompt, 60, None));
    let rows = Arc::new(AtomicUsize::new(0));
    let drafters = by_counted(Counted { rows: Arc::clone(&rows), fails: true });
    let turn = Turn::new(toy.session(400, 16), sampler(None), &FORMAT, &request(&prompt, 60));
    let reply = turn.drafted(drafters.whatever_it_costs()).alone(&mut |_| ()).unwrap();
    assert_eq!(text(&reply), want);
    assert_eq!(rows.load(Ordering::Relaxed), 1);
}

/// Is cancelled in the middle of its first pass, and asked again until it minds.
struct Interrupted(Arc<AtomicBool>, AtomicUsize);

impl Watch for Interrupted {
    fn stepped(&self, _: &Step<'_>, _: &[usize], out: &mut StepOut) {
        assert!(self.1.fetch_add(1, Ordering::Relaxed) < 3, "it is run again and again");
        self.0.store(true, Ordering::Relaxed);
        out.sequences.fill(Err(program::Error::Cancelled));
    }
}

/// Who is cancelled while the drafter's model reads the prompt along ends then.
#[test]
fn a_cancelled_turn_does_not_wait_for_its_drafters_model() {
    let (toy, cancel) = (Toy::new(), Arc::new(AtomicBool::new(false)));
    let prompt: Vec<u32> = (0..100).collect();
    let watch = Interrupted(Arc::clone(&cancel), AtomicUsize::new(0));
    let watched: Arc<dyn Model> = Arc::new(Watched::new(Toy::new(), watch));
    let session = Session::new(watched, common::cache(700), 16).unwrap();
    let request = Request { cancel: &cancel, ..request(&prompt, 50) };
    let turn = Turn::new(toy.session(400, 16), sampler(None), &FORMAT, &request);
    let reply = turn.drafted(Drafters::by_model(session)).alone(&mut |_| ()).unwrap();
    assert_eq!(reply.stop, StopReason::Cancelled);
}

/// A conversation that goes on where the target's model has read all before: the drafter's reads the end of that alone.
#[test]
fn a_drafters_model_left_behind_reads_the_end() {
    let toy = Toy::new();
    let long: Vec<u32> = (0..600).map(|i| i % 250).collect();
    let mut session = toy.session(700, 64);
    let mut plain = toy.session(700, 64);
    session.feed(&long, &GO, &mut |_| ()).unwrap();
    plain.feed(&long, &GO, &mut |_| ()).unwrap();
    let prompt: Vec<u32> = long.iter().copied().chain(100..110).collect();
    let rows = Arc::new(AtomicUsize::new(0));
    let drafters = by_counted(Counted { rows: Arc::clone(&rows), fails: false });
    let want = Turn::new(&mut plain, sampler(Some(7)), &FORMAT, &request(&prompt, 40));
    let want = text(&want.alone(&mut |_| ()).unwrap());
    let turn = Turn::new(&mut session, sampler(Some(7)), &FORMAT, &request(&prompt, 40));
    let reply = turn.drafted(drafters.whatever_it_costs()).alone(&mut |_| ()).unwrap();
    assert_eq!(text(&reply), want);
    // 256 of what was read before, the prompt's own ten, and guesses
    let rows = rows.load(Ordering::Relaxed);
    assert!((266..256 + 40 * 17).contains(&rows), "{rows}");
    assert!(reply.stats.drafts.drafted > 0);
}

/// A turn that rests takes no part in passes, keeps its text, and goes on as if nothing was; being cancelled ends it all the
/// same.
#[test]
fn who_rests_is_left_out_and_goes_on_as_if_nothing_was() {
    let toy = Toy::new();
    let (first, second) = ([1, 2, 3], [4, 5, 6, 7]);
    let wanted = [&first[..], &second].map(|prompt| text(&alone(&toy, prompt, 40, Some(3))));
    let mut scheduler = scheduler(&toy, 4);
    let turn = |prompt: &[u32], cancel: &Arc<AtomicBool>| {
        let request = Request { cancel, ..request(prompt, 40) };
        Turn::new(toy.session(400, 16), sampler(Some(3)), &FORMAT, &request)
    };
    let stop = Arc::<AtomicBool>::default();
    let ids = [&first[..], &second].map(|prompt| scheduler.join(turn(prompt, &GO)).unwrap());
    let cancelled = scheduler.join(turn(&first, &stop)).unwrap();
    for _ in 0..5 {
        assert!(scheduler.step(&mut |_, _| ()).is_empty());
    }
    scheduler.hold(ids[0], true);
    scheduler.hold(cancelled, true);
    let mut done = HashMap::new();
    while !done.contains_key(&ids[1]) {
        for (id, turn) in scheduler.step(&mut |id, _| assert_eq!(id, ids[1], "it rests")) {
            done.insert(id, turn.finish());
        }
    }
    // nothing is left to compute
    for _ in 0..3 {
        assert!(scheduler.step(&mut |_, _| panic!("all rest")).is_empty());
    }
    stop.store(true, Ordering::Relaxed);
    done.extend(scheduler.step(&mut |_, _| ()).into_iter().map(|(id, turn)| (id, turn.finish())));
    assert_eq!(done[&cancelled].as_ref().unwrap().stop, StopReason::Cancelled);
    scheduler.hold(ids[0], false);
    done.extend(drain(&mut scheduler));
    assert_eq!(ids.map(|id| text(done[&id].as_ref().unwrap())), wanted);
}

/// A turn that is paused after any step and resumes in the same session, in a shorter one or in an empty one writes the same reply as
/// without the pause, also with drafts and beside another turn.
#[test]
fn a_paused_turn_goes_on_in_any_session() {
    let toy = Toy::new();
    let (first, second) = ([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9], [4, 5, 6, 7]);
    let wanted = text(&alone(&toy, &first, 40, Some(3)));
    for steps in [0, 1, 2, 3, 10, 30] {
        for kept in [usize::MAX, 20, 5, 0] {
            let mut scheduler = scheduler(&toy, 4);
            let turn = |prompt: &[u32], n| {
                Turn::new(toy.session(400, 4), sampler(Some(n)), &FORMAT, &request(prompt, 40))
            };
            let suffixes = Arc::new(Mutex::new(Suffixes::default()));
            let drafted = turn(&first, 3).drafted(Drafters::new(DraftMode::Auto, &suffixes));
            let id = scheduler.join(drafted).unwrap();
            let other = scheduler.join(turn(&second, 5)).unwrap();
            let mut told = String::new();
            let hear = |of, event: Event<'_>, told: &mut String| {
                if let (true, Event::Text(text)) = (of == id, event) {
                    told.push_str(text);
                }
            };
            for _ in 0..steps {
                assert!(scheduler.step(&mut |of, event| hear(of, event, &mut told)).is_empty());
            }
            let (session, paused) = scheduler.leave(id).unwrap().pause();
            assert!(scheduler.leave(id).is_none());
            let mut session = session.into_owned().unwrap();
            assert!(paused.text().starts_with(session.tokens()) || session.is_empty());
            session.truncate(kept).unwrap();
            scheduler.step(&mut |of, _| assert_eq!(of, other, "it is paused"));
            let id = scheduler.join(paused.resume(session)).unwrap();
            let mut done = HashMap::new();
            while !scheduler.is_empty() {
                let ended = scheduler.step(&mut |of, event| {
                    if let (true, Event::Text(text)) = (of == id, event) {
                        told.push_str(text);
                    }
                });
                done.extend(ended.into_iter().map(|(id, turn)| (id, turn.finish())));
            }
            let reply = done[&id].as_ref().unwrap();
            assert_eq!(text(reply), wanted, "after {steps} steps, {kept} tokens kept");
            assert_eq!(told, reply.text, "nothing is told twice or lost");
            assert_eq!(done[&other].as_ref().unwrap().tokens.len(), 40);
        }
    }
}

/// A paused turn that is cancelled has what was written.
#[test]
fn a_paused_turn_that_is_cancelled_keeps_its_text() {
    let toy = Toy::new();
    let mut scheduler = scheduler(&toy, 1);
    let cancel = Arc::<AtomicBool>::default();
    let request = Request { cancel: &cancel, ..request(&[1, 2, 3], 40) };
    let turn = Turn::new(toy.session(400, 16), sampler(None), &FORMAT, &request);
    let id = scheduler.join(turn).unwrap();
    for _ in 0..5 {
        scheduler.step(&mut |_, _| ());
    }
    let (_, paused) = scheduler.leave(id).unwrap().pause();
    assert!(!paused.is_cancelled());
    cancel.store(true, Ordering::Relaxed);
    assert!(paused.is_cancelled());
    let reply = paused.finish().unwrap();
    assert_eq!((reply.tokens.len(), reply.stop), (5, StopReason::Cancelled));
}
