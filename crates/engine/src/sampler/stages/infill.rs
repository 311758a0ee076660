//! Infill: for what fills a hole in a text, behind samplers that left few tokens. It ends rather than goes on where that is
//! nearly as likely, takes a text and its beginning for one choice, and leaves only what is likely then, each with the logit
//! that it had. The rules and their numbers are those of llama.cpp's sampler of this name.

use program::Candidate;

use super::{Situation, Stage};
use crate::sampler::SamplerOptions;
use crate::sampler::choices::{BANNED, Choices};

pub(super) struct Infill;

/// It ends where that, so many times for each token there is, is likelier than going on.
const END: f64 = 3.0;
/// Tokens that go on stay with at least this probability.
const LIKELY: f64 = 0.2;
/// So many of the likeliest are compared with each other; others do not stay. It comes behind samplers that leave fewer.
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
        let (top, all) = (choices.likeliest().logit, choices.mass());
        let list = choices.sorted().clone();
        // how a mask is held must not show
        let n = list.iter().filter(|c| c.logit > BANNED).count();
        let likely = |c: &Candidate| (c.token, choices.weight(c.logit, top) / all);
        let ends = |(token, _): &(u32, f64)| at.spellings.is_eog(*token);
        let (ends, mut texts): (Vec<_>, Vec<_>) = list.iter().map(likely).partition(ends);
        let end = sum(&ends);
        if texts.is_empty() || end * END * n as f64 > sum(&texts) {
            return choices.sorted().retain(|c| at.spellings.is_eog(c.token));
        }
        texts.truncate(COMPARED);
        merge(&mut texts, &|token| at.spellings.bytes(token));
        texts.retain(|(_, p)| *p >= LIKELY);
        if texts.is_empty() {
            // who does not know how to go on ends, where it may
            let bans = at.options.logit_bias.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
            let banned: Vec<u32> = bans.map(|(token, _)| *token).collect();
            let may = |token: &&u32| choices.is_allowed(**token) && !banned.contains(token);
            let token = at.spellings.eog().iter().find(may);
            let left = token.map(|&token| Candidate { token, logit: 0.0 });
            let list = choices.sorted();
            list.truncate(1);
            list[0] = left.unwrap_or(list[0]);
            return;
        }
        // the likeliest of so many is as likely as that
        let even = (end + sum(&texts)) / (texts.len() + 1) as f64;
        texts.retain(|(_, p)| *p >= even);
        let stays = |token| texts.iter().any(|(text, _)| *text == token);
        choices.sorted().retain(|c| stays(c.token) || at.spellings.is_eog(c.token));
    }
}

fn sum(list: &[(u32, f64)]) -> f64 {
    list.iter().map(|(_, p)| p).sum()
}

/// Of a text and its beginning the likelier one gets the probability of both, of equals the beginning.
fn merge<'a>(list: &mut [(u32, f64)], bytes: &dyn Fn(u32) -> &'a [u8]) {
    /// What is likelier by less is as likely, up to rounding.
    const ROUNDING: f64 = 1e-6;
    for i in 0..list.len() {
        let beginning = bytes(list[i].0);
        if beginning.is_empty() {
            continue;
        }
        for j in 0..list.len() {
            let (a, b) = (list[i].1, list[j].1);
            if i == j || a <= 0.0 || b <= 0.0 || !bytes(list[j].0).starts_with(beginning) {
                continue;
            }
            let (to, from) = if b > a * (1.0 + ROUNDING) { (j, i) } else { (i, j) };
            (list[to].1, list[from].1) = (a + b, 0.0);
        }
    }
}
