//! Chains beside llama.cpp's own, on stored logits: `tests/data/samplers.txt`, which `samplers.py` beside it makes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::choices::{Buffers, Choices};
use super::random::Chance;
use super::spellings::Spellings;
use super::stages::Situation;
use super::{Sampler, SamplerOptions, SamplerOrder, SamplerSetting};
use crate::Vocabulary;

const DATA: &str = include_str!("../../tests/data/samplers.txt");
/// What llama.cpp sums in f32.
const ROUNDING: f64 = 2e-4;
/// Probabilities below this were not written.
const TINY: f64 = 1e-7;

/// Token 7 is spelled `<7>`, so that texts can be said in tokens.
struct Numbered;

impl Vocabulary for Numbered {
    fn vocab_size(&self) -> usize {
        200
    }
    fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
        Cow::Owned(format!("<{token}>").into_bytes())
    }
    fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
        (token < 200).then(|| Cow::Owned(format!("<{token}>")))
    }
    fn is_eog(&self, _: u32) -> bool {
        false
    }
}

/// `key=value` words as options.
fn options(words: &[&str]) -> SamplerOptions {
    let mut options = SamplerOptions { dry_sequence_breakers: Vec::new(), ..Default::default() };
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        match key {
            "samplers" => options.samplers = SamplerOrder::from_letters(value).unwrap(),
            "bias" => {
                let pairs = value.split(',').map(|pair| pair.split_once(':').unwrap());
                let bias =
                    pairs.map(|(token, bias)| (token.parse().unwrap(), bias.parse().unwrap()));
                options.logit_bias = bias.collect();
            }
            "breakers" => {
                let text = |tokens: &str| tokens.split('+').map(|t| format!("<{t}>")).collect();
                options.dry_sequence_breakers = value.split(',').map(text).collect();
            }
            _ => {
                let setting = SamplerSetting::find(key).unwrap_or_else(|| panic!("{key}"));
                setting.set(&mut options, value.parse().unwrap()).unwrap();
            }
        }
    }
    options
}

/// What a sampler would draw from, and what it learns when `chosen` is.
fn left(
    sampler: &mut Sampler,
    row: &[f32],
    before: &[u32],
    chosen: Option<u32>,
) -> BTreeMap<u32, f64> {
    let known = sampler.known(before);
    let chance = Chance { seed: 1, attempt: 0, position: before.len() as u64 };
    let breakers = sampler.breakers.as_ref().unwrap();
    let spellings = Spellings::default();
    let at =
        Situation { options: &sampler.options, before, chance, breakers, spellings: &spellings };
    let mut buffers = Buffers::default();
    let mut choices = Choices::new(row, &[], &mut buffers);
    sampler.chain.iter().for_each(|stage| stage.apply(&mut choices, &at));
    let lessons = sampler.chooser.prepare(&mut choices, &sampler.options, known);
    let (max, total) = (choices.likeliest().logit, choices.mass());
    let list = choices.list().clone();
    let probabilities = list.iter().map(|c| (c.token, choices.weight(c.logit, max) / total));
    let probabilities: BTreeMap<u32, f64> = probabilities.collect();
    if let Some(token) = chosen {
        let at = list.iter().position(|c| c.token == token).expect("llama.cpp chose it");
        let known = sampler.chooser.learn(&sampler.options, known, lessons[at]);
        sampler.chosen.push(super::Chosen { position: before.len(), token, known, logprobs: None });
    }
    probabilities
}

#[test]
fn chains_leave_what_llama_cpp_leaves() {
    let (mut rows, mut befores) = (HashMap::new(), HashMap::new());
    let (mut case, mut cases, mut choices) = (None, 0, 0);
    let mut lines = DATA.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "row" => {
                let logits: Vec<f32> = words[2..].iter().map(|x| x.parse().unwrap()).collect();
                rows.insert(words[1], logits);
            }
            "before" => {
                let tokens: Vec<u32> = words[2..].iter().map(|x| x.parse().unwrap()).collect();
                befores.insert(words[1], tokens);
            }
            "case" => {
                let sampler =
                    Sampler::new(options(&words[3..])).unwrap().with_vocabulary(&Numbered);
                case = Some((line, sampler, rows[words[1]].clone(), befores[words[2]].clone()));
                cases += 1;
            }
            "left" => {
                let (name, sampler, row, before) = case.as_mut().unwrap();
                let next = lines.next_if(|line| line.starts_with("chosen"));
                let chosen = next.map(|line| line["chosen ".len()..].parse().unwrap());
                let got = left(sampler, row, before, chosen);
                let want: BTreeMap<u32, f64> = words[1..]
                    .iter()
                    .map(|word| word.split_once(':').unwrap())
                    .map(|(token, p)| (token.parse().unwrap(), p.parse().unwrap()))
                    .collect();
                for (token, p) in &want {
                    let ours = got.get(token).copied().unwrap_or(0.0);
                    assert!(
                        (ours - p).abs() <= ROUNDING * p.max(1e-3),
                        "{name}: token {token} has {ours}, there {p}"
                    );
                }
                let more =
                    got.iter().find(|(token, p)| **p > 2.0 * TINY && !want.contains_key(token));
                assert_eq!(more, None, "{name}");
                before.extend(chosen);
                choices += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert!(cases >= 240 && choices > cases, "{cases} cases, {choices} choices");
}
