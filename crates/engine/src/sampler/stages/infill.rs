//! Infill: for what fills a hole in a text, behind samplers that left few tokens. It ends rather than goes on where that is
//! nearly as likely, takes a text and its beginning for one choice, and leaves only what is likely then. The rules and their
//! numbers are those of llama.cpp's sampler of this name.

use program::Candidate;

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::Choices;

pub(super) struct Infill;

/// It ends where that, so many times for each token there is, is likelier than going on.
const END: f64 = 3.0;
/// Tokens that go on stay with at least this probability.
const LIKELY: f64 = 0.2;
/// So many of the likeliest are compared with each other. No other one is [`LIKELY`].
const COMPARED: usize = 1024;

impl Stage for Infill {
    fn names(&self) -> &'static [&'static str] {
        &["infill"]
    }

    fn letter(&self) -> char {
        'i'
    }

    fn acts(&self, _: &SamplerOptions) -> bool {
        true
    }

    fn spares_likeliest(&self) -> bool {
        false
    }

    fn apply(&self, choices: &mut Choices<'_>, at: &Situation<'_>) {
        let (top, all, n) = (choices.likeliest().logit, choices.mass(), choices.len());
        let list = choices.sorted().clone();
        let likely = |c: &Candidate| (*c, choices.weight(c.logit, top) / all);
        let ends = |c: &(Candidate, f64)| at.spellings.is_eog(c.0.token);
        let (ends, mut texts): (Vec<_>, Vec<_>) = list.iter().map(likely).partition(ends);
        let end = sum(&ends);
        if end * END * n as f64 > sum(&texts) {
            return keep(choices, &ends);
        }
        texts.truncate(COMPARED);
        let likeliest = texts[0];
        merge(&mut texts, &|c| at.spellings.bytes(c.token));
        texts.retain(|(_, p)| *p >= LIKELY);
        if texts.is_empty() {
            // who does not know how to go on ends, where it may
            let bans = at.options.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
            let banned: Vec<u32> = bans.map(|(token, _)| *token).collect();
            let may = |token: &&u32| choices.is_allowed(**token) && !banned.contains(token);
            let token = at.spellings.eog().iter().find(may);
            let token = token.map_or(likeliest.0, |&token| Candidate { token, logit: 0.0 });
            return keep(choices, &[(token, 1.0)]);
        }
        let all = end + sum(&texts);
        let even = 1.0 / (texts.len() + 1) as f64;
        // the likeliest of so many is as likely as that
        texts.retain(|(_, p)| *p >= even * all);
        texts.extend(ends);
        keep(choices, &texts);
    }
}

fn sum(list: &[(Candidate, f64)]) -> f64 {
    list.iter().map(|(_, p)| p).sum()
}

/// Of a text and its beginning the likelier one gets the probability of both, of equals the beginning.
fn merge<'a>(list: &mut [(Candidate, f64)], bytes: &dyn Fn(&Candidate) -> &'a [u8]) {
    /// What is likelier by less is as likely, up to rounding.
    const ROUNDING: f64 = 1e-6;
    for i in 0..list.len() {
        let beginning = bytes(&list[i].0);
        if beginning.is_empty() {
            continue;
        }
        for j in 0..list.len() {
            let (a, b) = (list[i].1, list[j].1);
            if i == j || a <= 0.0 || b <= 0.0 || !bytes(&list[j].0).starts_with(beginning) {
                continue;
            }
            let (to, from) = if b > a * (1.0 + ROUNDING) { (j, i) } else { (i, j) };
            (list[to].1, list[from].1) = (a + b, 0.0);
        }
    }
}

/// Leave only these, with such probabilities.
fn keep(choices: &mut Choices<'_>, left: &[(Candidate, f64)]) {
    let list = choices.list();
    list.clear();
    list.extend(left.iter().map(|(candidate, _)| *candidate));
    choices.set_logits(left.iter().map(|(_, p)| (p.ln() as f32).max(f32::MIN)));
}
