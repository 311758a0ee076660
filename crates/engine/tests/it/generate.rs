//! The loop: what it generates, why it ends, what it reports.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use engine::{
    Completion, EarlyEnd, Error, Event, FinishReason, Generated, Request, Sampler, SamplerOptions,
    Session, StopReason, Turn, generate,
};
use proptest::prelude::*;

use crate::common::{END, END_THINK, HE, THINK, Toy, ToyFormat, VOCAB, logits_over, spell};

static GO: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

const PROMPT: [u32; 3] = [10, 11, 12];

fn request<'a>(cancel: &'a Arc<AtomicBool>, max: usize) -> Request<'a> {
    Request {
        prompt: &PROMPT,
        max_tokens: Some(max),
        stop: &[],
        ignore_eog: false,
        split_thoughts: false,
        cancel,
    }
}

fn seeded(seed: u64) -> Sampler {
    Sampler::new(SamplerOptions { seed: Some(seed), ..SamplerOptions::default() }).unwrap()
}

fn greedy() -> Sampler {
    Sampler::new(SamplerOptions::greedy()).unwrap()
}

/// Generates after [`PROMPT`] what `script` says; returns the reply and what was streamed as text and as thoughts.
fn scripted<'a>(
    script: &[u32],
    change: impl FnOnce(&mut Request<'a>),
) -> (Generated, String, String) {
    let toy = Toy::new();
    toy.script(PROMPT.len(), script);
    let mut request = request(&GO, script.len());
    change(&mut request);
    let (mut text, mut thought) = (String::new(), String::new());
    let reply = generate(
        &mut toy.session(64, 0),
        &mut greedy(),
        &ToyFormat::default(),
        &request,
        &mut |e| match e {
            Event::Text(piece) => text.push_str(piece),
            Event::Thought(piece) => thought.push_str(piece),
            Event::Prefill(_) => assert!(text.is_empty()),
            Event::Usage(_) | Event::End(_) => {}
            Event::Dropped(_) | Event::ToolCall(_) | Event::Chosen(_) | Event::PromptScored(_) => {
                unreachable!("{e:?}")
            }
        },
    )
    .unwrap();
    assert_eq!(reply.text, text, "streamed and returned text differ");
    (reply, text, thought)
}

fn script(text: &str, end: &[u32]) -> Vec<u32> {
    [spell(text), end.to_vec()].concat()
}

#[test]
fn a_reply_ends_where_the_model_ends_it() {
    let (reply, text, _) = scripted(&script("yes", &[END, 65]), |_| ());
    assert_eq!(text, "yes");
    assert_eq!(reply.stop, StopReason::EndOfGeneration(END));
    assert_eq!(reply.tokens, spell("yes"));
    assert_eq!((reply.kept_tokens, reply.kept_bytes), (3, 3));
    assert_eq!((reply.stats.prompt_tokens, reply.stats.cached_tokens), (3, 0));
    assert_eq!(reply.stats.steps.len(), 3);
    assert!(reply.stats.first_token.unwrap() >= reply.stats.prefill);
    assert!(reply.stats.prefill_rate() > 0.0 && reply.stats.step_rate() > 0.0);

    // The end, by far the likeliest, is not chosen: something else stands in its place.
    let (reply, text, _) = scripted(&script("yes", &[END, 65]), |r| r.ignore_eog = true);
    assert!(text.starts_with("yes") && text.ends_with('A'), "{text:?}");
    assert_eq!((reply.tokens.len(), reply.stop), (5, StopReason::MaxTokens));
    assert!(!reply.tokens.contains(&END));
    let (reply, text, _) = scripted(&[END], |_| ());
    assert_eq!((text.as_str(), reply.tokens.len()), ("", 0));
    let (reply, ..) = scripted(&spell("yes"), |r| r.max_tokens = Some(0));
    assert_eq!(
        (reply.tokens.len(), reply.stop, reply.stats.first_token),
        (0, StopReason::MaxTokens, None)
    );
}

/// A model that would rather tell few tokens is asked for few where these are enough, and the reply is the same.
#[test]
fn few_tokens_make_the_same_reply() {
    type Make = fn() -> Sampler;
    let free: Make = || {
        let options = SamplerOptions { seed: Some(5), top_k: 0, ..SamplerOptions::default() };
        Sampler::new(options).unwrap()
    };
    let changed: Make = || {
        let logit_bias = vec![(65, 9.0), (66, 9.0), (70, -1.0)];
        let options = SamplerOptions { seed: Some(5), logit_bias, ..SamplerOptions::default() };
        let penalties = SamplerOptions { repeat_last_n: 2, repeat_penalty: 1.5, ..options };
        Sampler::new(penalties).unwrap()
    };
    // how many are enough, where few are
    let cases: [(Make, bool, Option<usize>); 7] = [
        (greedy, false, Some(1)),
        (|| seeded(5), false, Some(41)),
        (greedy, true, Some(2)),
        (|| seeded(5), true, Some(42)),
        (changed, false, Some(41 + 3 + 2)),
        (free, false, None),
        (|| greedy().with_logprobs(2), false, None),
    ];
    for (i, (sampler, ignore_eog, enough)) in cases.into_iter().enumerate() {
        let reply = |most: usize| {
            let toy = Toy::new();
            toy.state.lock().unwrap().most_candidates = most;
            let request = Request { ignore_eog, ..request(&GO, 20) };
            let (mut session, mut sampler) = (toy.session(64, 2), sampler());
            let format = ToyFormat::default();
            let reply =
                generate(&mut session, &mut sampler, &format, &request, &mut |_| ()).unwrap();
            let asked = toy.state.lock().unwrap().asked_for_few;
            (reply.tokens, asked)
        };
        let (want, asked) = reply(0);
        assert!(!want.is_empty() && asked == 0, "case {i}");
        let (tokens, asked) = reply(enough.unwrap_or(200));
        assert_eq!((tokens, asked > 0), (want.clone(), enough.is_some()), "case {i}");
        // tokens of the last rows may be changed by bias, too, and then fewer are enough
        let (tokens, fewer) = reply(enough.map_or(0, |enough| enough - 1));
        assert_eq!((tokens, fewer < asked || enough.is_none()), (want, true), "case {i}, of less");
    }
}

#[test]
fn a_reply_ends_early_where_it_is_to() {
    let ended = |text: &str, early: EarlyEnd, stop: &[String]| {
        let toy = Toy::new();
        let script = spell(text);
        toy.script(PROMPT.len(), &script);
        let request = Request { stop, ..request(&GO, script.len()) };
        let format = ToyFormat::default();
        let turn = Turn::new(toy.session(64, 0), greedy(), &format, &request);
        let mut told = String::new();
        let mut tell = |event: Event<'_>| {
            if let Event::Text(piece) = event {
                told.push_str(piece);
                if piece == "~" {
                    std::thread::sleep(Duration::from_millis(1200));
                }
            }
        };
        let reply = turn.ending(early).alone(&mut tell).unwrap();
        assert_eq!(reply.text, told);
        (reply.stop.clone(), reply.reason(), reply.text, reply.kept_tokens)
    };
    let indented = EarlyEnd { indent: 2, time: None };
    let length = FinishReason::Length;
    let want = |stop, text: &str, kept| (stop, length, text.to_owned(), kept);
    // its first line goes on with what stands before it; of the last one nothing but its indent is left
    let got = ended("a;\n  b;\n }\nc", indented, &[]);
    assert_eq!(got, want(StopReason::Outdented, "a;\n  b;\n ", 9));
    let stops = ["}".to_owned(), "b;\n ".to_owned()];
    let got = ended("a;\n  b;\n }\nc", indented, &stops[..1]);
    let stop = StopReason::StopString("}".into());
    assert_eq!(
        got,
        (stop, FinishReason::Stop, "a;\n  b;\n ".to_owned(), 9),
        "of both at one place"
    );
    let got = ended("a;\n  b;\n }\nc", indented, &stops);
    assert_eq!((got.0, &*got.2), (StopReason::StopString("b;\n ".into()), "a;\n  "));
    assert_eq!(ended("a;\n  b;", indented, &[]).0, StopReason::MaxTokens);
    // no time at all is enough for one line, and no line is left half
    let timed = EarlyEnd { indent: 0, time: Some(Duration::ZERO) };
    assert_eq!(ended("ab\ncd", timed, &[]), want(StopReason::Time, "ab\n", 3));
    let late = EarlyEnd { time: Some(Duration::from_secs(1)), ..timed };
    assert_eq!(ended("a\nb~cd\nef", late, &[]), want(StopReason::Time, "a\nb~cd\n", 7));
    let timed = EarlyEnd { time: Some(Duration::from_secs(3600)), ..timed };
    assert_eq!(ended("ab\ncd", timed, &[]).0, StopReason::MaxTokens);
}

#[test]
fn stop_strings_end_a_reply_before_them() {
    let stops = ["User:".to_owned(), "the".to_owned()];
    let within = ["eB".to_owned()];
    let (reply, text, _) = scripted(&spell("hi Us\nUser: x"), |r| r.stop = &stops);
    assert_eq!((text.as_str(), reply.raw.as_str()), ("hi Us\n", "hi Us\n"));
    assert_eq!(reply.stop, StopReason::StopString("User:".into()));
    assert_eq!((reply.kept_tokens, reply.kept_bytes), (6, 6));
    // The stop string begins within a token: `t` is a token of its own, `he` is one.
    let (reply, text, _) = scripted(&[HE, 116, HE, 65], |r| r.stop = &stops);
    assert_eq!((text.as_str(), reply.kept_tokens), ("he", 1));
    let (reply, text, _) = scripted(&[65, HE, 66], |r| r.stop = &within);
    assert_eq!((text.as_str(), reply.kept_tokens, reply.kept_bytes), ("Ah", 1, 1));
    // What was held back comes when the reply ends otherwise.
    let (_, text, _) = scripted(&script("hi Use", &[END]), |r| r.stop = &stops);
    assert_eq!(text, "hi Use");
}

#[test]
fn half_characters_are_never_shown() {
    let euro = "\u{20AC}";
    let tokens = spell(&format!("a{euro}"));
    let (reply, text, _) = scripted(&tokens, |r| r.max_tokens = Some(3));
    assert_eq!(text, "a");
    assert_eq!((reply.tokens.len(), reply.kept_tokens, reply.kept_bytes), (3, 3, 1));
    let (_, text, _) = scripted(&tokens, |_| ());
    assert_eq!(text, "a\u{20AC}");
    let (reply, text, _) = scripted(&[0xE2, 65, 66], |_| ());
    assert_eq!((text.as_str(), reply.kept_tokens), ("\u{FFFD}AB", 3));
}

#[test]
fn thoughts_are_told_apart() {
    let tagged = script("", &[THINK, 10, 104, 109, 10, END_THINK, 10, 10, 111, 107, END]);
    let (reply, text, thought) = scripted(&tagged, |r| r.split_thoughts = true);
    assert_eq!((text.as_str(), thought.as_str()), ("ok", "hm"));
    assert_eq!(reply.raw, "<think>\nhm\n</think>\n\nok");
    let (_, text, thought) = scripted(&tagged, |_| ());
    assert_eq!((text.as_str(), thought.as_str()), ("\nhm\n\n\nok", ""));
    let spelled = spell("<think>hm</think>ok");
    let (_, text, thought) = scripted(&spelled, |r| r.split_thoughts = true);
    assert_eq!((text.as_str(), thought.as_str()), ("ok", "hm"));
    let (_, text, thought) = scripted(&script("hm", &[END_THINK, 111, 107]), |r| {
        r.prompt = &[10, 11, THINK];
        r.split_thoughts = true;
    });
    assert_eq!((text.as_str(), thought.as_str()), ("ok", "hm"), "opened by the prompt");
}

#[test]
fn a_full_context_stops_clearly() {
    let toy = Toy::new();
    let cancel = Arc::new(AtomicBool::new(false));
    let mut session = toy.session(6, 0);
    let request = Request { ignore_eog: true, ..request(&cancel, 100) };
    let reply = generate(&mut session, &mut greedy(), &ToyFormat::default(), &request, &mut |_| ())
        .unwrap();
    assert_eq!(reply.stop, StopReason::ContextFull);
    // Three are in the cache, the fourth needs no place: nothing is computed after it.
    assert_eq!((reply.tokens.len(), session.len()), (4, 6));
    let long = [0; 7];
    let request = Request { prompt: &long, ..request };
    let error = generate(&mut session, &mut greedy(), &ToyFormat::default(), &request, &mut |_| ());
    assert!(matches!(error, Err(Error::ContextFull { wanted: 7, capacity: 6 })));
    assert_eq!(session.len(), 6);
}

#[test]
fn a_cancel_stops_and_keeps() {
    let toy = Toy::new();
    toy.script(3, &spell("abcdef"));
    let cancel = Arc::new(AtomicBool::new(false));
    let mut session = toy.session(64, 0);
    let request = request(&cancel, 6);
    let reply = generate(&mut session, &mut greedy(), &ToyFormat::default(), &request, &mut |e| {
        cancel.store(e == Event::Text("c"), Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("abc", StopReason::Cancelled));
    assert_eq!(session.tokens(), [10, 11, 12, 97, 98]);
    cancel.store(true, Ordering::Relaxed);
    let reply = generate(&mut session, &mut greedy(), &ToyFormat::default(), &request, &mut |_| ())
        .unwrap();
    assert_eq!((reply.tokens.len(), reply.stop), (0, StopReason::Cancelled));
}

/// Tokens that never went through are no speed: 277 % of a limit was shown after Ctrl-C.
#[test]
fn a_cancelled_prompt_counts_as_far_as_it_came() {
    let toy = Toy::new();
    let cancel = Arc::new(AtomicBool::new(false));
    let mut session = toy.session(64, 1);
    let request = request(&cancel, 6);
    let reply = generate(&mut session, &mut greedy(), &ToyFormat::default(), &request, &mut |e| {
        let done = matches!(e, Event::Prefill(prefill) if prefill.done == 2);
        cancel.store(done, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!((reply.stop, session.len()), (StopReason::Cancelled, 2));
    let stats = &reply.stats;
    assert_eq!((stats.prompt_tokens, stats.cached_tokens, stats.computed_tokens), (3, 0, 2));
    let seconds = stats.prefill.as_secs_f64();
    assert!((stats.prefill_rate() * seconds - 2.0).abs() < 1e-6);
}

#[test]
fn non_finite_logits_end_in_an_error() {
    let toy = Toy::new();
    toy.state.lock().unwrap().nan_at = Some(5);
    toy.script(3, &spell("abcdef"));
    let cancel = Arc::new(AtomicBool::new(false));
    let mut session = toy.session(64, 0);
    let request = request(&cancel, 6);
    let error = generate(&mut session, &mut greedy(), &ToyFormat::default(), &request, &mut |_| ())
        .unwrap_err();
    assert!(
        error.to_string().starts_with("non-finite logit NaN for token 3 after 5 tokens"),
        "{error}"
    );
    assert_eq!(session.len(), 5);
}

/// Greedy choice is that of the sampler among all logits, penalties and banned tokens included.
#[test]
fn greedy_choice_is_the_samplers() {
    // half of the tokens were used, so that a penalty changes the text
    let prompt: Vec<u32> = (0..131).collect();
    let toy = Toy::new();
    toy.script(prompt.len() + 2, &[END]);
    let run = |change: fn(&mut SamplerOptions), ignore_eog| {
        let mut options = SamplerOptions::greedy();
        change(&mut options);
        let mut sampler = Sampler::new(options).unwrap();
        let request = Request { prompt: &prompt, ignore_eog, ..request(&GO, 20) };
        let mut session = toy.session(200, 0);
        let reply =
            generate(&mut session, &mut sampler, &ToyFormat::default(), &request, &mut |_| ());
        // what it would be if each token were chosen among all logits
        let (mut tokens, mut wanted) = (prompt.clone(), Vec::new());
        while wanted.len() < reply.as_ref().unwrap().tokens.len() {
            let mut logits = logits_over(VOCAB, &tokens);
            if ignore_eog {
                logits[END as usize] = f32::MIN;
            }
            wanted.push(sampler.sample(&logits, &tokens).unwrap());
            tokens.push(wanted[wanted.len() - 1]);
        }
        assert_eq!(reply.unwrap().tokens, wanted);
        wanted
    };
    let plain = run(|_| (), true);
    assert_eq!((plain.len(), run(|_| (), false).len()), (20, 2));
    assert_ne!(run(|o| (o.repeat_penalty, o.repeat_last_n) = (3.0, -1), true), plain);
}

fn noise(session: &mut Session, sampler: &mut Sampler, prompt: &[u32], max: usize) -> Vec<u32> {
    let cancel = Arc::new(AtomicBool::new(false));
    let request = Request { prompt, ignore_eog: true, ..request(&cancel, max) };
    generate(session, sampler, &ToyFormat::default(), &request, &mut |_| ()).unwrap().tokens
}

proptest! {
    /// The same seed gives the same text for any chunking, any use of the cache and any earlier use of the sampler;
    /// and a reply goes on as it would have if it was cut.
    #[test]
    fn a_seed_is_a_text(seed: u64, chunk in 1usize..8, cut in 1usize..12, earlier in 0usize..4) {
        let prompt: Vec<u32> = (0..9).collect();
        let toy = Toy::new();
        let want = noise(&mut toy.session(64, 0), &mut seeded(seed), &prompt, 12);
        let mut session = toy.session(64, chunk);
        let mut sampler = seeded(seed);
        noise(&mut session, &mut sampler, &prompt[..5], earlier);
        let mut got = noise(&mut session, &mut sampler, &prompt, cut);
        let rest = [prompt.clone(), got.clone()].concat();
        got.extend(noise(&mut session, &mut sampler, &rest, 12 - cut));
        prop_assert_eq!(got, want);
    }

    /// Whatever a model generates, streamed pieces are the text, kept tokens spell what they are said to spell.
    #[test]
    fn any_tokens_are_some_text(tokens in prop::collection::vec(prop_oneof![0u32..262, 97u32..100, Just(0xE2), Just(0x82)], 1..20), split: bool) {
        let stops = ["ab".to_owned(), "c\u{FFFD}".to_owned()];
        let (reply, ..) = scripted(&tokens, |r| {
            r.stop = &stops;
            r.split_thoughts = split;
        });
        prop_assert!(tokens.starts_with(&reply.tokens));
        prop_assert!(!stops.iter().any(|s| reply.raw.contains(s.as_str())));
        let kept = &tokens[..reply.kept_tokens];
        let (spelled, ..) = scripted(kept, |r| {
            r.ignore_eog = true;
            r.split_thoughts = split;
        });
        prop_assert_eq!(spelled.raw.as_str(), &reply.raw[..reply.kept_bytes]);
    }
}

/// As other programs read it: what was cached is no work, and every end has a word.
#[test]
fn a_completion_counts_what_was_computed() {
    let toy = Toy::new();
    let mut session = toy.session(64, 0);
    let complete = |session: &mut Session, request: &Request<'_>| {
        let vocabulary = ToyFormat::default();
        let reply = generate(session, &mut seeded(1), &vocabulary, request, &mut |_| ()).unwrap();
        Completion::from(reply)
    };
    let first = complete(&mut session, &request(&GO, 4));
    assert_eq!((first.timings.prompt_n, first.timings.cache_n), (3, 0));
    assert_eq!(
        (first.usage.prompt_tokens, first.usage.total_tokens()),
        (3, 3 + first.tokens.len())
    );
    assert_eq!(first.timings.predicted_n, first.tokens.len());
    let again = complete(&mut session, &request(&GO, 4));
    assert_eq!(
        (again.timings.prompt_n, again.timings.cache_n),
        (1, 2),
        "the last is always computed"
    );
    assert_eq!(again.usage.cached_tokens, 2);
    for (stop, word) in [
        (StopReason::EndOfGeneration(END), "stop"),
        (StopReason::StopString("x".into()), "stop"),
        (StopReason::MaxTokens, "length"),
        (StopReason::ContextFull, "length"),
        (StopReason::Cancelled, "cancelled"),
    ] {
        assert_eq!(FinishReason::new(&stop, false).name(), word);
        let word = if word == "stop" { "tool_calls" } else { word };
        assert_eq!(FinishReason::new(&stop, true).name(), word);
    }
}
