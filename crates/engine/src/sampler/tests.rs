use program::{CandidateRows, LogitRows};

use super::*;
use crate::TokenMask;

fn sampler(change: impl FnOnce(&mut SamplerOptions)) -> Sampler {
    let mut options = SamplerOptions { seed: Some(7), ..SamplerOptions::default() };
    change(&mut options);
    Sampler::new(options).unwrap()
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let mut sampler = sampler(|o| o.temperature = 0.0);
    assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], &[]).unwrap(), 1);
    assert_eq!(sampler.sample(&[-0.0, 0.0], &[]).unwrap(), 0);
    assert_eq!(sampler.sample(&[f32::MIN], &[]).unwrap(), 0);
}

#[test]
fn numbers_that_are_none_are_named() {
    let mut sampler = sampler(|_| ());
    let message = |logits: &[f32]| {
        Sampler::sample(&mut Sampler::new(SamplerOptions::default()).unwrap(), logits, &[5])
            .unwrap_err()
            .to_string()
    };
    assert!(message(&[0.0, f32::NAN]).starts_with("non-finite logit NaN for token 1 after 1"));
    assert!(message(&[f32::NEG_INFINITY, 0.0]).starts_with("non-finite logit -inf for token 0"));
    assert!(matches!(sampler.sample(&[], &[]), Err(Error::Logits { .. })));
    assert!(sampler.sample(&[f32::MAX, f32::MIN], &[]).is_ok());
}

/// Options of which choices go by few tokens, and how many; or by any.
#[test]
fn what_choices_go_by_is_told() {
    type Change = fn(&mut SamplerOptions);
    let greedy: Change = |o| o.temperature = 0.0;
    let cases: [(Change, Option<usize>); 9] = [
        (|_| (), Some(41)),
        (greedy, Some(1)),
        (|o| (o.temperature, o.dynatemp_range) = (0.0, 1.0), Some(41)),
        (|o| o.top_k = 0, None),
        (|o| o.repeat_penalty = 1.1, None),
        (|o| (o.temperature, o.repeat_penalty) = (0.0, 1.1), None),
        (|o| o.logit_bias = vec![(3, 1.0)], None),
        (|o| o.mirostat = 2, None),
        (|o| o.samplers = SamplerOrder::from_letters("kei").unwrap(), None),
    ];
    for (i, (change, want)) in cases.into_iter().enumerate() {
        assert_eq!(sampler(change).needs(), want, "case {i}");
    }
    assert_eq!(sampler(|_| ()).with_logprobs(0).needs(), None);
    let form = Growing::default();
    assert_eq!(sampler(greedy).with_opened_constraint(Box::new(form.clone())).needs(), None);
    assert_eq!(sampler(greedy).with_constraint(Box::new(form)).unwrap().needs(), None);
}

proptest::proptest! {
    /// The likeliest alone give what the whole row gives.
    #[test]
    fn few_tokens_are_enough(
        numbers in proptest::collection::vec(-40i32..40, 1..200), top_k in 1i32..60, seed: u64,
        greedy: bool, order in proptest::sample::select(vec!["kypmxt", "kt", "kesdt", "k"]),
    ) {
        use proptest::prelude::*;
        let logits: Vec<f32> = numbers.iter().map(|x| *x as f32 * 0.1).collect();
        let mut sampler = sampler(|o| {
            (o.top_k, o.seed) = (top_k, Some(seed));
            (o.xtc_probability, o.repeat_penalty) = (0.5, 1.3);
            o.temperature = if greedy { 0.0 } else { 0.8 };
            o.samplers = SamplerOrder::from_letters(order).unwrap();
        });
        let Some(k) = sampler.needs() else { return Ok(()) };
        let LogitRows { logits, vocab_size, peaks } = LogitRows::new(logits.clone(), logits.len());
        let likeliest = CandidateRows::of(&logits, vocab_size, &peaks, k).unwrap();
        for position in 0..8 {
            let before = vec![3; position];
            let want = sampler.sample(&logits, &before).unwrap();
            prop_assert_eq!(sampler.sample_likeliest(&likeliest.candidates, &before).unwrap(), want);
        }
    }
}

proptest::proptest! {
    /// What is asked for gives what the whole row gives, whatever changes logits and whatever a form leaves.
    #[test]
    fn what_is_asked_is_enough(
        numbers in proptest::collection::vec(-12i32..12, 40..64), top_k in 1i32..20, seed: u64,
        greedy: bool, formed: bool, changes in 0usize..8, bias in -3.0f32..3.0,
        text in proptest::collection::vec(0u32..8, 0..24), banned in proptest::collection::btree_set(0u32..40, 0..4),
    ) {
        use proptest::prelude::*;
        let logits: Vec<f32> = numbers.iter().map(|x| *x as f32 * 0.25).collect();
        let mut options = SamplerOptions { seed: Some(seed), top_k, ..SamplerOptions::default() };
        options.temperature = if greedy { 0.0 } else { 0.8 };
        options.xtc_probability = if greedy { 0.0 } else { 0.5 };
        if changes & 1 != 0 {
            (options.repeat_penalty, options.frequency_penalty) = (1.3, 0.5);
        }
        if changes & 2 != 0 {
            options.logit_bias = vec![(3, bias), (30, 2.0 * bias), (3, 0.5)];
        }
        if changes & 4 != 0 {
            (options.dry_multiplier, options.dry_sequence_breakers) = (0.8, Vec::new());
        }
        let make = || {
            let sampler = Sampler::new(options.clone()).unwrap();
            if formed { sampler.with_constraint(Box::<Growing>::default()).unwrap() } else { sampler }
        };
        let (mut whole, mut asking) = (make(), make());
        let banned: Vec<u32> = banned.into_iter().collect();
        let mut before = text;
        for _ in 0..6 {
            // a mask may take its time
            let asked = std::iter::repeat_with(|| asking.ask((&before, &[]), &banned, logits.len(), true));
            let asked = asked.take(1000).flatten().next().expect("few are enough");
            let mut scores = Scores::from(LogitRows::new(logits.clone(), logits.len()));
            let row = asked.among().of(&scores, asked.k);
            scores.ban(&banned);
            let want = whole.sample_scores(&scores, &before).map_err(|error| error.to_string());
            let got = asking.sample_asked(row, &asked, &before).map_err(|error| error.to_string());
            prop_assert_eq!(&got, &want);
            let Ok(token) = want else { break };
            before.push(token);
        }
    }
}

/// What goes by any logit asks for nothing; nor does what may begin before the choice.
#[test]
fn what_goes_by_any_token_asks_for_nothing() {
    let k = |mut sampler: Sampler, sure: bool| {
        sampler.ask((&[1, 2, 1], &[]), &[], 50, sure).map(|asked| asked.k)
    };
    assert_eq!(k(sampler(|o| o.presence_penalty = 1.0), true), Some(43));
    assert_eq!(k(sampler(|o| o.logit_bias = vec![(49, 1.0)]), true), Some(42));
    assert_eq!(
        k(sampler(|o| o.logit_bias = vec![(50, 1.0)]), true),
        None,
        "it is told as an error"
    );
    assert_eq!(k(sampler(|o| o.top_k = 0), true), None);
    assert_eq!(k(sampler(|o| o.top_n_sigma = 1.0), true), None);
    assert_eq!(k(sampler(|_| ()).with_logprobs(0), true), None);
    let opened = || sampler(|_| ()).with_opened_constraint(Box::<Growing>::default());
    assert_eq!((k(opened(), true), k(opened(), false)), (Some(41), None));
}

#[test]
fn the_draw_depends_on_seed_attempt_and_position_only() {
    let logits: Vec<f32> = (0..100).map(|i| (i % 17) as f32 * 0.1).collect();
    let choose = |seed, attempt, position: usize| {
        let mut sampler = sampler(|o| o.seed = Some(seed));
        sampler.set_attempt(attempt);
        // Earlier draws leave no trace.
        sampler.sample(&logits, &[1]).unwrap();
        sampler.sample(&logits, &vec![0; position]).unwrap()
    };
    assert_eq!(choose(1, 0, 9), choose(1, 0, 9));
    let texts = |seed, attempt| (0..20).map(|p| choose(seed, attempt, p)).collect::<Vec<_>>();
    assert_ne!(texts(1, 0), texts(2, 0));
    assert_ne!(texts(1, 0), texts(1, 1));
    assert_ne!(Sampler::new(SamplerOptions::default()).unwrap().seed(), sampler(|_| ()).seed());
}

#[test]
fn draws_follow_the_probabilities() {
    let mut sampler = sampler(|o| {
        o.temperature = 0.5;
        o.top_k = 0;
        o.top_p = 1.0;
        o.min_p = 0.0;
    });
    // exp(logit / 0.5) is 1 : 2 : 4.
    let logits = [0.0, 0.5 * 2f32.ln(), 0.5 * 4f32.ln()];
    let mut counts = [0u32; 3];
    let before = vec![0; 7000];
    for position in 0..7000 {
        counts[sampler.sample(&logits, &before[..position]).unwrap() as usize] += 1;
    }
    for (count, expected) in counts.iter().zip([1000u32, 2000, 4000]) {
        assert!(count.abs_diff(expected) < 150, "{counts:?}");
    }
}

#[test]
fn chains_hold_what_acts_in_the_order_asked_for() {
    let names = |change: fn(&mut SamplerOptions)| {
        let chain = sampler(change).chain;
        chain.iter().map(|stage| stage.names()[0]).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(|_| ()), "top_k top_p min_p temperature");
    assert_eq!(names(|o| o.temperature = 0.0), "temperature");
    assert_eq!(
        names(|o| (o.temperature, o.presence_penalty) = (0.0, 1.0)),
        "penalties temperature"
    );
    assert_eq!(
        names(|o| (o.temperature, o.xtc_probability) = (0.0, 1.0)),
        "xtc temperature",
        "what is likeliest can change"
    );
    assert_eq!(
        names(|o| {
            o.samplers = SamplerOrder::from_letters("tmkd").unwrap();
            o.logit_bias = vec![(0, 1.0)];
        }),
        "logit_bias temperature min_p top_k"
    );
    assert_eq!(names(|o| o.mirostat = 2), "temperature");
    assert_eq!(names(|o| o.samplers = SamplerOrder::from_letters("").unwrap()), "");
}

/// `e`, `en`, `end`, `x`, and two tokens that end a reply.
struct Ends;

impl Vocabulary for Ends {
    fn vocab_size(&self) -> usize {
        6
    }
    fn bytes(&self, token: u32) -> std::borrow::Cow<'_, [u8]> {
        std::borrow::Cow::Borrowed(["e", "en", "end", "x", "", ""][token as usize].as_bytes())
    }
    fn spelling(&self, token: u32) -> Option<std::borrow::Cow<'_, str>> {
        (token < 6).then_some(std::borrow::Cow::Borrowed("a token"))
    }
    fn is_eog(&self, token: u32) -> bool {
        token >= 4
    }
}

#[test]
fn what_fills_a_hole_ends_where_that_is_nearly_as_likely() {
    let drawn = |p: [f32; 6], change: fn(&mut SamplerOptions)| {
        let order = |o: &mut SamplerOptions| {
            o.samplers = SamplerOrder::from_names("top_k;infill").unwrap();
            o.top_k = 5;
            change(o);
        };
        let mut sampler = sampler(order).with_vocabulary(&Ends);
        let logits = p.map(|p| p.max(1e-9).ln());
        let mut drawn: Vec<u32> =
            (0..60).map(|n| sampler.sample(&logits, &vec![0; n]).unwrap()).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    };
    // a token that ends it, times three times five, outweighs the others
    assert_eq!(drawn([0.5, 0.0, 0.0, 0.43, 0.07, 0.0], |_| ()), [4]);
    // two of the three spellings alone are too few; all go to the likeliest
    assert_eq!(drawn([0.2, 0.35, 0.2, 0.25, 0.0, 0.0], |_| ()), [1]);
    assert_eq!(drawn([0.3, 0.15, 0.1, 0.45, 0.0, 0.0], |_| ()), [0, 3]);
    // nobody knows how to go on
    let few = [0.19, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(drawn(few.map(|p| p + 0.1), |o| o.logit_bias = vec![(4, -9.0), (5, -9.0)]), [0]);
    let lost: fn(&mut SamplerOptions) = |o| o.logit_bias = vec![(4, -40.0), (5, -40.0)];
    let vague = |o: &mut SamplerOptions| {
        o.samplers = SamplerOrder::from_letters("i").unwrap();
        lost(o);
    };
    let many: Vec<f32> = vec![0.0; 6];
    let mut sampler = sampler(vague).with_vocabulary(&Ends);
    assert_eq!(sampler.sample(&many, &[]).unwrap(), 0, "e, en and end are one choice");
    let mut without = self::sampler(vague);
    assert!(without.sample(&many, &[]).unwrap_err().to_string().contains("vocabulary"));
}

#[test]
fn who_does_not_know_how_to_fill_a_hole_ends_where_it_may() {
    /// Ten letters, and what ends a reply.
    struct Letters;
    impl Vocabulary for Letters {
        fn vocab_size(&self) -> usize {
            12
        }
        fn bytes(&self, token: u32) -> std::borrow::Cow<'_, [u8]> {
            std::borrow::Cow::Owned(if token < 10 { vec![b'a' + token as u8] } else { vec![] })
        }
        fn spelling(&self, token: u32) -> Option<std::borrow::Cow<'_, str>> {
            (token < 12).then_some(std::borrow::Cow::Borrowed("a token"))
        }
        fn is_eog(&self, token: u32) -> bool {
            token >= 10
        }
    }
    let made = |bias: Vec<(u32, f32)>| {
        let order = SamplerOrder::from_letters("ki").unwrap();
        sampler(|o| (o.samplers, o.top_k, o.logit_bias) = (order, 10, bias))
            .with_vocabulary(&Letters)
    };
    let mut logits = vec![0.0; 12];
    logits[10..].fill(-9.0);
    assert_eq!(made(vec![]).sample(&logits, &[]).unwrap(), 10);
    let never = f32::NEG_INFINITY;
    assert_eq!(made(vec![(10, never)]).sample(&logits, &[]).unwrap(), 11);
    assert_eq!(made(vec![(10, never), (11, never)]).sample(&logits, &[]).unwrap(), 0);
    // nor where a form or whoever asked does not let it
    let mut scores = Scores::from(program::LogitRows::new(logits, 12));
    scores.ban(&[10, 11]);
    assert_eq!(made(vec![]).sample_scores(&scores, &[]).unwrap(), 0);
    let mut formed = made(vec![]).with_constraint(Box::new(Growing(vec![11]))).unwrap();
    let free = Scores::from(program::LogitRows::new(vec![0.0; 12], 12));
    assert_eq!(formed.sample_scores(&free, &[]).unwrap(), 11);
}

#[test]
fn what_was_learned_belongs_to_the_tokens_that_were_kept() {
    let logits: Vec<f32> = (0..50).map(|i| (i % 13) as f32 * 0.4).collect();
    let text =
        |change: fn(&mut SamplerOptions), tokens: &mut Vec<u32>, sampler: Option<Sampler>| {
            let mut sampler = sampler.unwrap_or_else(|| self::sampler(change));
            while tokens.len() < 40 {
                let token = sampler.sample(&logits, tokens).unwrap();
                tokens.push(token);
            }
            sampler
        };
    let changes: [fn(&mut SamplerOptions); 2] = [
        |o| (o.mirostat, o.mirostat_tau, o.mirostat_eta) = (2, 2.0, 0.5),
        |o| (o.adaptive_target, o.top_k) = (0.02, 0),
    ];
    for change in changes {
        let mut tokens = vec![1, 2, 3];
        let after = text(change, &mut tokens, None);
        // what was tried beyond a place and taken back leaves no trace
        for back in [3, 4, 20, 39] {
            let mut again = tokens[..back].to_vec();
            text(change, &mut again, Some(after.clone()));
            assert_eq!(again, tokens, "from {back}");
        }
        // tokens that nobody chose teach nothing, and nothing is forgotten over them
        let mut sampler = after.clone();
        let mut longer = tokens.clone();
        longer.extend([7, 7, 7]);
        assert_eq!(sampler.known(&longer), sampler.known(&tokens));
        assert_eq!(sampler.known(&[99; 60]), sampler.chooser.start(&sampler.options));
        // it does matter
        let known = after.chosen.iter().map(|chosen| chosen.known.level);
        assert!(known.clone().any(|level| level != after.chosen[0].known.level));
    }
}

#[test]
fn settings_that_cannot_be_used_are_told() {
    let mut missing = sampler(|o| o.logit_bias = vec![(3, 1.0)]);
    let told = missing.sample(&[0.0; 3], &[]).unwrap_err().to_string();
    assert_eq!(
        told,
        "logit-bias: expected ids of the vocabulary's tokens, found 3, where there are 3"
    );
    let mut unread = sampler(|o| o.dry_multiplier = 1.0);
    assert!(unread.sample(&[0.0; 3], &[]).unwrap_err().to_string().contains("vocabulary"));
    let mut without = sampler(|o| (o.dry_multiplier, o.dry_sequence_breakers) = (1.0, Vec::new()));
    assert!(without.sample(&[0.0; 3], &[]).is_ok());
}

#[test]
fn a_bias_bans_and_forces() {
    let mut sampler =
        sampler(|o| o.logit_bias = vec![(1, f32::NEG_INFINITY), (2, f32::NEG_INFINITY)]);
    assert!((0..50).all(|n| sampler.sample(&[0.0, 9.0, 9.0], &vec![0; n]).unwrap() == 0));
    let mut sampler = self::sampler(|o| o.logit_bias = vec![(2, 100.0)]);
    assert!((0..50).all(|n| sampler.sample(&[0.0, 9.0, 9.0], &vec![0; n]).unwrap() == 2));
}

#[test]
fn logprobs_are_kept_of_what_is_kept() {
    let mut sampler = sampler(|_| ()).with_logprobs(2);
    let logits = [1.0, 5.0, 4.0, -3.0];
    let mut tokens = vec![0, 0];
    for _ in 0..4 {
        tokens.push(sampler.sample(&logits, &tokens).unwrap());
    }
    let kept: Vec<_> = sampler.logprobs(2..6).cloned().collect();
    assert!(kept.iter().map(|l| l.chosen.token).eq(tokens[2..].iter().copied()));
    assert!(kept.iter().all(|l| l.top.len() == 2 && l.top[0].token == 1 && l.top[1].token == 2));
    sampler.sample(&logits, &tokens[..4]).unwrap();
    assert_eq!(sampler.logprobs(2..6).count(), 3);
    assert_eq!(sampler.logprobs(0..3).collect::<Vec<_>>(), [&kept[0]]);
}

#[test]
fn the_text_of_a_seed_is_what_it_was() {
    let logits: Vec<f32> = (0..200).map(|i| ((i * 37) % 101) as f32 * 0.06).collect();
    let mut sampler = sampler(|o| o.seed = Some(42));
    let text: Vec<u32> = (0..24).map(|n| sampler.sample(&logits, &vec![0; n]).unwrap()).collect();
    let want = [
        191, 161, 191, 177, 60, 27, 188, 16, 169, 35, 19, 5, 57, 30, 161, 38, 169, 49, 8, 79, 188,
        46, 27, 60,
    ];
    assert_eq!(text, want);
}

/// A token may come if its number is not less than the last one's.
#[derive(Clone, Default)]
struct Growing(Vec<u32>);

impl Constraint for Growing {
    fn mask(&mut self) -> Result<TokenMask> {
        let last = self.0.last().copied().unwrap_or(0);
        Ok(TokenMask::from_bits(vec![(u64::MAX << last) as u32, (u64::MAX << last >> 32) as u32]))
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
    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

#[test]
fn a_constraint_is_kept_over_what_is_taken_back() {
    let logits: Vec<f32> = (0..60).map(|i| 6.0 - i as f32 * 0.1).collect();
    let constrained = |change: fn(&mut SamplerOptions)| {
        sampler(change).with_constraint(Box::<Growing>::default()).unwrap()
    };
    let changes: [fn(&mut SamplerOptions); 3] =
        [|o| o.temperature = 0.0, |o| o.temperature = 2.0, |o| (o.top_k, o.mirostat) = (0, 2)];
    for change in changes {
        let text = |sampler: &mut Sampler, mut tokens: Vec<u32>| {
            while tokens.len() < 12 {
                tokens.push(sampler.sample(&logits, &tokens).unwrap());
            }
            tokens
        };
        // what stands before the first choice is not of the text
        let start = vec![50, 3];
        let mut sampler = constrained(change);
        let whole = text(&mut sampler, start.clone());
        assert!(whole[2..].is_sorted(), "{whole:?}");
        for back in [2, 5, 11] {
            assert_eq!(text(&mut sampler.clone(), whole[..back].to_vec()), whole);
            sampler.foresee(&whole[..back], &[], &whole[back..]).unwrap();
            assert_eq!(text(&mut sampler, whole[..back].to_vec()), whole);
        }
    }
}

#[test]
fn what_is_allowed_and_banned_is_an_error() {
    let mut scores = Scores::from(program::LogitRows::new(vec![0.0; 4], 4));
    scores.ban(&[2, 3]);
    let mut sampler = sampler(|_| ()).with_constraint(Box::new(Growing(vec![2]))).unwrap();
    let problem = sampler.sample_scores(&scores, &[]).unwrap_err().to_string();
    assert!(problem.ends_with("banned"), "{problem}");
}

/// Biases of one token are added once, however often it is named; a choice among thousands of them needs no look-up per step.
#[test]
fn biases_are_sorted_and_merged_once() {
    let made = |n: u32| {
        let biases = (0..n).rev().flat_map(|id| [(id, 1.0), (id, 0.5)]).collect();
        sampler(|o| (o.temperature, o.logit_bias) = (0.0, biases))
    };
    let mut many = made(2_000);
    let biases = &many.options.logit_bias;
    assert_eq!((biases.len(), biases[0], biases[1999]), (2_000, (0, 1.5), (1999, 1.5)));
    assert!(made(20).ask((&[], &[]), &[], 4_000, true).is_some(), "few are asked for");
    assert!(many.ask((&[], &[]), &[], 4_000, true).is_none(), "the whole row is read");
    let mut scores = vec![0.0; 4_000];
    scores[3_000] = 1.0;
    assert_eq!(many.sample(&scores, &[]).unwrap(), 0, "the first of those with 1.5");
}
