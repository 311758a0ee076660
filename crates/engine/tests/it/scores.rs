//! Log probabilities of prompts, tokens that end replies, and numbers of thought tokens.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::{
    Completion, Event, Generated, PromptLogprobs, Request, Sampler, SamplerOptions, Session,
    StopReason, Turn,
};

use crate::common::{END, END_THINK, THINK, Toy, ToyFormat, logits_after, spell};

fn turn<'a>(session: &'a mut Session, prompt: &[u32], max: usize, thoughts: bool) -> Turn<'a> {
    static FORMAT: std::sync::LazyLock<ToyFormat> = std::sync::LazyLock::new(ToyFormat::default);
    let go = Arc::<AtomicBool>::default();
    let request = Request {
        prompt,
        max_tokens: Some(max),
        stop: &[],
        ignore_eog: false,
        split_thoughts: thoughts,
        cancel: &go,
    };
    let sampler = Sampler::new(SamplerOptions::greedy()).expect("greedy options are valid");
    Turn::new(session, sampler, &*FORMAT, &request)
}

/// Returns the natural logarithm of the probability of `token` after the tokens `before`.
fn logprob(before: &[u32], token: u32) -> f64 {
    let logits = logits_after(before);
    let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
    f64::from(logits[token as usize]) - sum.ln()
}

fn check(scores: &PromptLogprobs, prompt: &[u32], top: usize) {
    assert_eq!((scores.first, scores.rest.len()), (prompt[0], prompt.len() - 1));
    for (i, token) in scores.rest.iter().enumerate() {
        assert_eq!(token.chosen.token, prompt[i + 1]);
        let want = logprob(&prompt[..=i], prompt[i + 1]);
        assert!((f64::from(token.chosen.logprob) - want).abs() < 1e-4, "token {}", i + 1);
        assert_eq!(token.top.len(), top);
        assert!(token.top.is_sorted_by(|a, b| a.logprob >= b.logprob));
    }
}

/// For every prompt length and chunk size: no step yields more than 64 rows of logits, the whole prompt is computed even if the cache
/// holds it, and the reply is the same as without scores.
#[test]
fn prompts_are_scored_in_few_rows_at_a_time() {
    for (n, chunk) in [(1, 512), (2, 512), (63, 512), (64, 512), (65, 512), (200, 512), (200, 7)] {
        let prompt: Vec<u32> = (0..n).map(|i| i * 7 % 200).collect();
        let toy = Toy::new();
        toy.state.lock().unwrap().largest_step = Some(64);
        let mut session = toy.session(256, chunk);
        let mut told = None;
        let mut ask = |session: &mut Session, top: Option<usize>, max: usize| -> Generated {
            let turn = turn(session, &prompt, max, false);
            let turn = top.into_iter().fold(turn, |turn, top| turn.scoring_prompt(top));
            turn.alone(&mut |event| {
                if let Event::PromptScored(scores) = event {
                    told = Some(scores.clone());
                }
            })
            .unwrap()
        };
        let scored = ask(&mut session, Some(3), 4);
        let again = ask(&mut session, Some(3), 0);
        assert_eq!((again.stats.cached_tokens, again.tokens.len()), (0, 0));
        assert_eq!(again.stop, StopReason::MaxTokens);
        toy.state.lock().unwrap().largest_step = None;
        let plain = ask(&mut session, None, 4);
        assert_eq!(plain.tokens, scored.tokens);
        assert_eq!(plain.stats.prompt_logprobs, None);
        let [scored, again] =
            [scored, again].map(|reply| Completion::from(reply).prompt_logprobs.unwrap());
        assert_eq!((&scored, told.as_ref()), (&again, Some(&scored)));
        check(&scored, &prompt, 3);
    }
}

/// A turn that was paused before its prompt was read scores the whole prompt in another session.
#[test]
fn a_paused_turn_scores_its_whole_prompt() {
    let prompt: Vec<u32> = (0..100).collect();
    let toy = Toy::new();
    let (mut one, mut other) = (toy.session(256, 0), toy.session(256, 0));
    let turn = turn(&mut one, &prompt, 2, false).scoring_prompt(0);
    let mut scheduler = engine::Scheduler::new(toy.clone(), engine::SchedulerOptions::default());
    let id = scheduler.join(turn).unwrap();
    scheduler.step(&mut |_, _| ());
    let (_, paused) = scheduler.leave(id).unwrap().pause();
    let reply = paused.resume(&mut other).alone(&mut |_| ()).unwrap();
    check(&reply.stats.prompt_logprobs.unwrap(), &prompt, 0);
}

#[test]
fn a_reply_ends_before_a_token_that_is_to_end_it() {
    let toy = Toy::new();
    let prompt = [1, 2, 3];
    toy.script(prompt.len(), &[spell("yes, no"), vec![END]].concat());
    let reply = |stop: &[u32]| {
        let mut session = toy.session(64, 0);
        turn(&mut session, &prompt, 20, false)
            .stopping_at(stop.to_vec())
            .alone(&mut |_| ())
            .unwrap()
    };
    let comma = spell(",")[0];
    let ended = reply(&[comma, 7]);
    assert_eq!((&*ended.text, ended.stop), ("yes", StopReason::EndOfGeneration(comma)));
    let whole = reply(&[7]);
    assert_eq!((&*whole.text, whole.stop), ("yes, no", StopReason::EndOfGeneration(END)));
}

/// Thought tokens are counted with their closing tag, whether the prompt or the reply opened the thought.
#[test]
fn thoughts_are_counted() {
    let toy = Toy::new();
    let count = |opened: bool, thoughts: bool| {
        let prompt: &[u32] = if opened { &[1, 2, THINK] } else { &[1, 2, 3] };
        let opens = if opened { vec![] } else { vec![THINK] };
        let said = [opens, spell("hm"), vec![END_THINK], spell("ok"), vec![END]].concat();
        toy.script(prompt.len(), &said);
        let mut session = toy.session(64, 0);
        let reply = turn(&mut session, prompt, 20, thoughts).alone(&mut |_| ()).unwrap();
        (reply.tokens.len(), reply.usage().reasoning_tokens)
    };
    assert_eq!(count(true, true), (5, Some(3)));
    assert_eq!(count(false, true), (6, Some(4)));
    assert_eq!(count(false, false), (6, None), "they are not told apart");
}
