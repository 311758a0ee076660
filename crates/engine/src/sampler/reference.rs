//! What each sampler means, plainly: f64, whole lists, no care for time. Every stage in the slice is compared with the
//! function of its name here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use program::{Candidate, LogitRows};
use proptest::prelude::*;

use super::breakers::Breakers;
use super::choices::{BANNED, Buffers, Choices};
use super::random::Chance;
use super::spellings::Spellings;
use super::stages::{FIRST, STAGES, Situation, Stage};
use super::{SamplerOptions, choosers};
use crate::{Scores, Vocabulary};

/// Tokens with logits, divided by the temperature.
type Plain = Vec<(u32, f64)>;

/// What a sampler makes of a list. A border between what stays and what goes is moved by `slack`: above 0 more stays.
type Reference = fn(Plain, &Situation<'_>, f64) -> Plain;

const REFERENCES: &[(&str, Reference)] = &[
    ("logit_bias", |list, at, _| {
        let bias = |token| at.options.logit_bias.iter().filter(move |b| b.0 == token);
        let added = |token| bias(token).map(|b| f64::from(b.1)).sum::<f64>();
        list.into_iter().map(|(token, logit)| (token, logit + added(token))).collect()
    }),
    ("penalties", |list, at, _| {
        let o = at.options;
        let window = usize::try_from(o.repeat_last_n).unwrap_or(usize::MAX);
        let used = |token| at.before.iter().rev().take(window).filter(|&&t| t == token).count();
        let penalized = |(token, logit): (u32, f64)| {
            let factor = f64::from(o.repeat_penalty);
            let repeated = if logit <= 0.0 { logit * factor } else { logit / factor };
            let count = used(token) as f64;
            let lowered = count * f64::from(o.frequency_penalty) + f64::from(o.presence_penalty);
            (token, if count > 0.0 { repeated - lowered } else { logit })
        };
        list.into_iter().map(penalized).collect()
    }),
    ("dry", |list, at, _| {
        let o = at.options;
        let window = usize::try_from(o.dry_penalty_last_n).unwrap_or(usize::MAX);
        let window = &at.before[at.before.len() - window.min(at.before.len())..];
        let allowed = o.dry_allowed_length as usize;
        // the longest match of the window's end that `token` came after
        let longest = |token| {
            let places = (1..window.len()).filter(|&at| window[at] == token);
            let equal = |place: usize| {
                let back =
                    (1..=place).take_while(|&i| window[place - i] == window[window.len() - i]);
                back.count()
            };
            places.map(equal).filter(|&n| n >= allowed).max()
        };
        let lowered = |(token, logit): (u32, f64)| match longest(token) {
            Some(n) if window.len() > allowed => {
                let grown = f64::from(o.dry_base).powi((n - allowed) as i32);
                (token, logit - f64::from(o.dry_multiplier) * grown)
            }
            _ => (token, logit),
        };
        list.into_iter().map(lowered).collect()
    }),
    ("top_n_sigma", |list, at, slack| {
        let n = list.len() as f64;
        let mean = list.iter().map(|c| c.1).sum::<f64>() / n;
        let deviation = (list.iter().map(|c| (c.1 - mean).powi(2)).sum::<f64>() / n).sqrt();
        let floor = max(&list) - f64::from(at.options.top_n_sigma) * deviation - slack;
        list.into_iter().filter(|c| c.1 >= floor.min(f64::MAX)).collect()
    }),
    ("top_k", |list, at, _| {
        let list = sorted(list);
        list.into_iter().take(at.options.top_k as usize).collect()
    }),
    ("typ_p", |list, at, slack| {
        let list = sorted(list);
        let p = probabilities(&list);
        let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        let mut order: Vec<usize> = (0..list.len()).collect();
        let strange = |i: &usize| (-p[*i].ln() - entropy).abs();
        order.sort_by(|a, b| strange(a).total_cmp(&strange(b)));
        let (mut sum, mut kept) = (0.0, Vec::new());
        for i in order {
            kept.push(i);
            sum += p[i];
            if sum > f64::from(at.options.typical_p) + slack && kept.len() >= at.options.kept() {
                break;
            }
        }
        // of tokens that f32 finds equally strange any may be the last
        let border = strange(&kept[kept.len() - 1]) + slack;
        let near = |i: &usize| if slack > 0.0 { strange(i) <= border } else { strange(i) < border };
        if slack != 0.0 {
            kept = (0..list.len()).filter(near).collect();
        }
        kept.into_iter().map(|i| list[i]).collect()
    }),
    ("top_p", |list, at, slack| {
        let list = sorted(list);
        let (mut sum, mut n) = (0.0, 0);
        for p in probabilities(&list) {
            sum += p;
            n += 1;
            if sum >= f64::from(at.options.top_p) + slack && n >= at.options.kept() {
                break;
            }
        }
        list.into_iter().take(n).collect()
    }),
    ("min_p", |list, at, slack| {
        let floor = max(&list) + f64::from(at.options.min_p).ln() - slack;
        let likely = sorted(list).into_iter().enumerate();
        likely.filter(|(i, c)| c.1 >= floor || *i < at.options.kept()).map(|(_, c)| c).collect()
    }),
    ("xtc", |list, at, slack| {
        let list = sorted(list);
        if at.chance.exclude() >= f64::from(at.options.xtc_probability) {
            return list;
        }
        let likely = probabilities(&list).into_iter();
        let threshold = f64::from(at.options.xtc_threshold);
        let top = likely.take_while(|p| *p >= threshold * (1.0 + slack)).count();
        let excluded = top.saturating_sub(1);
        let enough = list.len() - excluded >= at.options.kept();
        list.into_iter().skip(if enough { excluded } else { 0 }).collect()
    }),
    ("temperature", |list, at, _| {
        let o = at.options;
        let t = if o.dynatemp_range > 0.0 && list.len() > 1 {
            let p = probabilities(&list);
            let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
            let (t, range) = (f64::from(o.temperature), f64::from(o.dynatemp_range));
            let low = (t - range).max(0.0);
            let doubt = (entropy / (list.len() as f64).ln()).clamp(0.0, 1.0);
            low + (t + range - low) * doubt.powf(f64::from(o.dynatemp_exponent))
        } else if o.dynatemp_range > 0.0 {
            1.0
        } else {
            f64::from(o.temperature)
        };
        match t > 0.0 {
            true => list.into_iter().map(|(token, logit)| (token, logit / t)).collect(),
            false => sorted(list).into_iter().take(1).collect(),
        }
    }),
    ("infill", |list, at, slack| {
        let list = sorted(list);
        let mut p = probabilities(&list);
        let spelled = |i: usize| at.spellings.bytes(list[i].0);
        let (ends, texts): (Vec<usize>, Vec<usize>) =
            (0..list.len()).partition(|&i| at.spellings.is_eog(list[i].0));
        let sum = |of: &[usize], p: &[f64]| of.iter().map(|&i| p[i]).sum::<f64>();
        let kept = |of: Vec<usize>| of.iter().map(|&i| list[i]).collect();
        let end = sum(&ends, &p);
        if 3.0 * end * list.len() as f64 > sum(&texts, &p) * (1.0 + slack) {
            return kept(ends);
        }
        for &i in &texts {
            for &j in &texts {
                let begins = !spelled(i).is_empty() && spelled(j).starts_with(spelled(i));
                if i != j && begins && p[i] > 0.0 && p[j] > 0.0 {
                    let (to, from) = if p[j] > p[i] * 1.000_001 { (j, i) } else { (i, j) };
                    p[to] += p[from];
                    p[from] = 0.0;
                }
            }
        }
        let likely = |floor: f64| move |p: f64| p >= floor * (1.0 - slack);
        let texts: Vec<usize> = texts.into_iter().filter(|&i| likely(0.2)(p[i])).collect();
        if texts.is_empty() {
            // a token that ends a reply, likely or not
            return vec![(at.spellings.eog()[0], 0.0)];
        }
        let even = (end + sum(&texts, &p)) / (texts.len() + 1) as f64;
        let texts = texts.into_iter().filter(|&i| likely(even)(p[i]));
        kept(texts.chain(ends.iter().copied()).collect())
    }),
];

fn max(list: &Plain) -> f64 {
    list.iter().map(|c| c.1).fold(f64::MIN, f64::max)
}

fn sorted(mut list: Plain) -> Plain {
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    list
}

fn probabilities(list: &Plain) -> Vec<f64> {
    let max = max(list);
    let total: f64 = list.iter().map(|c| (c.1 - max).exp()).sum();
    list.iter().map(|c| (c.1 - max).exp() / total).collect()
}

/// What is left of a row after a stage: tokens with logits, not yet divided by the temperature, which follows.
fn left(stage: &dyn Stage, at: &Situation<'_>, mut choices: Choices<'_>) -> (Vec<Candidate>, f32) {
    stage.apply(&mut choices, at);
    let temperature = choices.temperature();
    (choices.list().clone(), temperature)
}

/// The logits that a stage leaves of a row.
pub(super) fn changed(
    stage: &dyn Stage,
    options: &SamplerOptions,
    logits: &[f32],
    before: &[u32],
) -> Vec<(u32, f32)> {
    let chance = Chance { seed: 1, attempt: 0, position: before.len() as u64 };
    let breakers = Breakers::default();
    let spellings = Spellings::default();
    let at = Situation { options, before, chance, breakers: &breakers, spellings: &spellings };
    let mut buffers = Buffers::default();
    let (list, _) = left(stage, &at, Choices::new(logits, &[], &mut buffers));
    list.into_iter().map(|c| (c.token, c.logit)).collect()
}

/// Whether a stage acts with these settings.
pub(super) fn acts(stage: &dyn Stage, options: &SamplerOptions) -> bool {
    stage.acts(options)
}

/// Settings with which all samplers act.
fn any_options() -> impl Strategy<Value = SamplerOptions> {
    let narrow = (
        prop_oneof![1i32..60, 600i32..800],
        prop_oneof![Just(0.0f32), 0.01f32..0.99],
        prop_oneof![Just(1.0f32), 0.001f32..0.9],
        0.1f32..3.0,
        0.01f32..0.99,
        prop_oneof![Just(0i32), 1i32..30, Just(900)],
    );
    let change =
        (0.5f32..2.0, -1.0f32..1.0, -1i32..20, 0.1f32..2.0, 1.0f32..2.0, 0i32..4, -1i32..20);
    let heat = (0.1f32..2.0, prop_oneof![Just(0.0f32), 0.1f32..2.0], 0.2f32..2.0);
    let xtc = (prop_oneof![Just(1.0f32), 0.1f32..0.9], 0.001f32..0.5);
    let bias = prop::collection::vec((0u32..800, -9.0f32..9.0), 1..4);
    (narrow, change, heat, xtc, bias).prop_map(|(narrow, change, heat, xtc, bias)| SamplerOptions {
        top_k: narrow.0,
        top_p: narrow.1,
        min_p: narrow.2,
        top_n_sigma: narrow.3,
        typical_p: narrow.4,
        min_keep: narrow.5,
        repeat_penalty: change.0,
        frequency_penalty: change.1,
        presence_penalty: change.1 * 0.5,
        repeat_last_n: change.2,
        dry_multiplier: change.3,
        dry_base: change.4,
        dry_allowed_length: change.5,
        dry_penalty_last_n: change.6,
        temperature: heat.0,
        dynatemp_range: heat.1,
        dynatemp_exponent: heat.2,
        xtc_probability: xtc.0,
        xtc_threshold: xtc.1,
        logit_bias: bias,
        ..SamplerOptions::default()
    })
}

/// Rows of few distinct logits, so that there are ties everywhere; some of one token.
fn any_row() -> impl Strategy<Value = Vec<f32>> {
    let logit = (-40i32..40).prop_map(|x| x as f32 * 0.1);
    prop_oneof![
        4 => prop::collection::vec(logit.clone(), 1..700),
        1 => prop::collection::vec(logit.clone(), 1..=1),
        1 => prop::collection::vec(logit, 63..=66),
    ]
}

/// Tokens that begin each other; one in eleven ends a reply.
struct Syllables;

impl Vocabulary for Syllables {
    fn vocab_size(&self) -> usize {
        800
    }
    fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
        let texts = ["a", "ab", "abc", "b", "", "ba", "x"];
        Cow::Borrowed(if self.is_eog(token) { "" } else { texts[token as usize % 7] }.as_bytes())
    }
    fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
        (token < 800).then(|| Cow::Owned(token.to_string()))
    }
    fn is_eog(&self, token: u32) -> bool {
        token % 11 == 5
    }
}

proptest! {
    #[test]
    fn every_stage_is_what_its_reference_says(
        options in any_options(), row in any_row(), before in prop::collection::vec(0u32..6, 0..40), hot in any::<bool>(),
    ) {
        let (breakers, spellings) = (Breakers::default(), Spellings::new(&Syllables));
        let chance = Chance { seed: 3, attempt: 0, position: before.len() as u64 };
        let mut options = options;
        options.merge_biases();
        let at = Situation { options: &options, before: &before, chance, breakers: &breakers, spellings: &spellings };
        let scores = Scores::from(LogitRows::new(row.clone(), row.len()));
        let mut all = vec![FIRST];
        all.extend(STAGES);
        for stage in all {
            let name = stage.names()[0];
            prop_assert!(stage.acts(&options) || ["penalties", "dry"].contains(&name), "{}", name);
            // a temperature that came before counts, whoever comes after
            let heat = if hot { 0.7f32 } else { 1.0 };
            let list: Plain = row.iter().zip(0u32..).map(|(&x, i)| (i, f64::from(x / heat))).collect();
            let reference = REFERENCES.iter().find(|(known, _)| *known == name);
            let reference = reference.unwrap_or_else(|| panic!("{name} has no reference")).1;
            let [tight, want, loose] = [-1e-4, 0.0, 1e-4].map(|slack| {
                let list = if stage.acts(&options) { reference(list.clone(), &at, slack) } else { list.clone() };
                list.into_iter().collect::<BTreeMap<u32, f64>>()
            });
            for (peaks, listed) in [(&[][..], false), (&scores.peaks[..], false), (&[][..], true)] {
                let mut buffers = Buffers::default();
                let mut choices = Choices::new(&row, peaks, &mut buffers);
                if listed {
                    choices.list();
                }
                choices.heat(heat);
                if !stage.acts(&options) {
                    continue;
                }
                let (got, temperature) = left(stage, &at, choices);
                let got: BTreeMap<u32, f64> =
                    got.into_iter().map(|c| (c.token, f64::from(c.logit / temperature))).collect();
                let few = tight.len().min(loose.len());
                let enough = if few == want.len() { got.keys().eq(want.keys()) } else { got.len() >= few };
                prop_assert!(enough, "{}: {:?} for {:?}", name, got, want);
                for (token, logit) in &got {
                    let known = want.get(token).or(loose.get(token)).or(tight.get(token));
                    prop_assert!(known.is_some_and(|x| (x - logit).abs() < 1e-3 * x.abs().max(1.0)),
                        "{}: token {} has {}, not {:?}", name, token, logit, known);
                }
            }
        }
    }

    #[test]
    fn banned_tokens_never_come_back(
        options in any_options(), row in any_row(), before in prop::collection::vec(0u32..6, 0..40),
    ) {
        let mut scores = Scores::from(LogitRows::new(row.clone(), row.len()));
        let banned: Vec<u32> = (0..row.len() as u32 - 1).filter(|i| i % 3 != 0).collect();
        scores.ban(&banned);
        for mirostat in [0, 2] {
            for adaptive_target in [-1.0, 0.3] {
                let options = SamplerOptions { mirostat, adaptive_target, logit_bias: Vec::new(), seed: Some(1), ..options.clone() };
                let options = SamplerOptions { dry_sequence_breakers: Vec::new(), ..options };
                let mut sampler = super::Sampler::new(options).unwrap();
                let token = sampler.sample_scores(&scores, &before).unwrap();
                prop_assert!(row.len() == 1 || scores[token as usize] > BANNED, "{}", token);
            }
        }
    }

    /// Over some steps: what mirostat and adaptive-p draw from follows their papers' formulas.
    #[test]
    fn choosers_follow_their_formulas(row in any_row(), picks in prop::collection::vec(0usize..9, 1..6), tau in 0.5f32..6.0) {
        let mirostat = SamplerOptions { mirostat: 2, mirostat_tau: tau, ..SamplerOptions::default() };
        let adaptive = SamplerOptions { adaptive_target: tau / 6.0, ..SamplerOptions::default() };
        let list: Plain = row.iter().zip(0u32..).map(|(&x, i)| (i, f64::from(x))).collect();
        let p = probabilities(&list);
        let (mut mu, mut past) = (2.0 * f64::from(tau), Vec::new());
        let mut known = [&mirostat, &adaptive].map(|o| choosers::chooser(o).start(o));
        for pick in picks {
            for (i, options) in [&mirostat, &adaptive].into_iter().enumerate() {
                let chooser = choosers::chooser(options);
                let mut buffers = Buffers::default();
                let mut choices = Choices::new(&row, &[], &mut buffers);
                let lessons = chooser.prepare(&mut choices, options, known[i]);
                let got = choices.list().clone();
                prop_assert_eq!(lessons.len(), got.len());
                let pick = pick % got.len();
                if i == 0 {
                    let close = |c: &Candidate| -p[c.token as usize].log2() <= mu + 1e-4;
                    prop_assert!(got.iter().all(|c| close(c) || got.len() == 1));
                    let sure = p.iter().filter(|p| -p.log2() <= mu - 1e-4).count();
                    prop_assert!(got.len() >= sure.max(1));
                    let kept: f64 = got.iter().map(|c| p[c.token as usize]).sum();
                    let own = p[got[pick].token as usize] / kept;
                    mu -= f64::from(options.mirostat_eta) * (-own.log2() - f64::from(tau));
                } else {
                    let target = f64::from(options.adaptive_target);
                    // an average over a past in which the target was met, and what was chosen since
                    let decay = f64::from(options.adaptive_decay);
                    let share = |age: usize| (1.0 - decay) * decay.powi(age as i32);
                    let since: f64 = past.iter().rev().enumerate().map(|(age, p): (usize, &f64)| share(age) * (p - target)).sum();
                    let adapted = (target - since).clamp(0.0, 1.0);
                    for c in &got {
                        let far = ((p[c.token as usize] - adapted) / 0.3).abs();
                        let want = 5.0 - 10.0 * far * far / (1.0 + far);
                        prop_assert!((f64::from(c.logit) - want).abs() < 1e-3, "{} for {}", c.logit, want);
                    }
                    past.push(p[got[pick].token as usize]);
                }
                known[i] = chooser.learn(options, known[i], lessons[pick]);
            }
        }
        prop_assert!((known[0].level - mu).abs() < 1e-3);
    }
}
