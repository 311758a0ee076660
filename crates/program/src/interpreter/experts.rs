//! Mixtures of experts: choosing them, and their weighted sum.

use super::ops::{gated_act, linear};
use crate::{Gate, Gating, GroupScore, Groups, LEAST_WEIGHT_SUM, Router};

/// Ids of the chosen experts, then their weights: `[2 * n_used]`.
pub(super) fn route(
    scores: &[f32],
    router: &Router,
    bias: Option<&[f32]>,
    factors: Option<&[f32]>,
) -> Vec<f32> {
    let p = probabilities(scores, router.gating);
    let mut s = p.clone();
    if let Some(bias) = bias {
        s.iter_mut().zip(bias).for_each(|(s, bias)| *s += bias);
    }
    if let Some(groups) = &router.groups {
        keep_best_groups(&mut s, groups);
    }
    let mut ids = best(&s, router.n_used);
    ids.iter_mut().for_each(|id| *id /= router.per_chunk);
    let mut weights: Vec<f64> = ids.iter().map(|&id| f64::from(p[id])).collect();
    if router.normalize {
        let sum = weights.iter().sum::<f64>().max(f64::from(LEAST_WEIGHT_SUM));
        weights.iter_mut().for_each(|w| *w /= sum);
    }
    let factor = |id: usize| factors.map_or(1.0, |factors| f64::from(factors[id]));
    let weights = weights.iter().zip(&ids);
    let weights = weights.map(|(w, id)| (w * f64::from(router.scale) * factor(*id)) as f32);
    let routes = distinct(ids.iter().copied().zip(weights), scores.len() / router.per_chunk);
    let routes = &routes[..ids.len()];
    routes.iter().map(|(id, _)| *id as f32).chain(routes.iter().map(|(_, w)| *w)).collect()
}

/// Each of `n` ids, those of `routes` first, with the sum of its weights.
fn distinct(routes: impl Iterator<Item = (usize, f32)>, n: usize) -> Vec<(usize, f32)> {
    let mut sums: Vec<(usize, f32)> = Vec::new();
    for (id, weight) in routes.chain((0..n).map(|id| (id, 0.0))) {
        match sums.iter_mut().find(|(other, _)| *other == id) {
            Some((_, sum)) => *sum += weight,
            None => sums.push((id, weight)),
        }
    }
    sums
}

fn probabilities(scores: &[f32], gating: Gating) -> Vec<f32> {
    match gating {
        Gating::Softmax => {
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp = |&x: &f32| (f64::from(x) - f64::from(max)).exp();
            let sum: f64 = scores.iter().map(exp).sum();
            scores.iter().map(|x| (exp(x) / sum) as f32).collect()
        }
        Gating::Sigmoid => {
            scores.iter().map(|&x| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32).collect()
        }
    }
}

fn keep_best_groups(s: &mut [f32], groups: &Groups) {
    let len = s.len() / groups.n_groups;
    let score = |group: &[f32]| {
        let [first, second] = [0, 1].map(|i| best(group, 2).get(i).map(|&id| group[id]));
        match groups.score {
            GroupScore::Max => first.unwrap_or(f32::NEG_INFINITY),
            GroupScore::TopTwoSum => first.zip(second).map_or(f32::NEG_INFINITY, |(a, b)| a + b),
        }
    };
    let scores: Vec<f32> = s.chunks_exact(len).map(score).collect();
    let kept = best(&scores, groups.n_used);
    for (i, group) in s.chunks_exact_mut(len).enumerate() {
        if !kept.contains(&i) {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

/// Indices of the `n` highest, the highest first; of equal ones the lower index. NaN counts as highest, so that it shows.
fn best(x: &[f32], n: usize) -> Vec<usize> {
    let key = |i: usize| if x[i].is_nan() { f32::INFINITY } else { x[i] };
    let mut ids: Vec<usize> = (0..x.len()).collect();
    ids.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
    ids.truncate(n);
    ids
}

/// The weights of all experts of a layer.
pub(super) struct All<'a> {
    /// `[n, width, hidden]`.
    pub(super) gate: &'a [f32],
    /// `[n, width, hidden]`.
    pub(super) up: &'a [f32],
    /// `[n, hidden, width]`.
    pub(super) down: &'a [f32],
    /// Gate and up are the same, `[n, 2, width, hidden]`.
    pub(super) joint: bool,
    /// Routes weigh the products with gate and up.
    pub(super) weighs_inputs: bool,
    /// `[n, width]`, `[n, width]`, `[n, hidden]`.
    pub(super) biases: Option<[&'a [f32]; 3]>,
    pub(super) n: usize,
}

impl All<'_> {
    /// The weighted sum of the experts that `routes` names, for one row `x`.
    pub(super) fn mix(&self, x: &[f32], routes: &[f32], act: Gate) -> Vec<f32> {
        let (ids, weights) = routes.split_at(routes.len() / 2);
        let mut sum = vec![0.0; x.len()];
        for (&id, &weight) in ids.iter().zip(weights) {
            let one = |all| self.one(all, id as usize);
            let bias = |m: usize| self.biases.map(|biases| one(biases[m]));
            let (gate, up) = match self.joint {
                true => one(self.gate).split_at(one(self.gate).len() / 2),
                false => (one(self.gate), one(self.up)),
            };
            let mut gate = linear(x, gate, x.len(), bias(0));
            let mut up = linear(x, up, x.len(), bias(1));
            let (inner, outer) = if self.weighs_inputs { (weight, 1.0) } else { (1.0, weight) };
            gate.iter_mut().chain(&mut up).for_each(|y| *y *= inner);
            let y = linear(&gated_act(act, &gate, &up), one(self.down), gate.len(), bias(2));
            sum.iter_mut().zip(y).for_each(|(sum, y)| *sum += f64::from(outer) * f64::from(y));
        }
        sum.iter().map(|&x| x as f32).collect()
    }

    fn one<'a>(&self, all: &'a [f32], id: usize) -> &'a [f32] {
        let len = all.len() / self.n;
        &all[id * len..(id + 1) * len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Act;

    const PLAIN: Router = Router {
        n_used: 2,
        gating: Gating::Softmax,
        bias: None,
        groups: None,
        normalize: false,
        scale: 1.0,
        factors: None,
        per_chunk: 1,
    };

    fn close(found: &[f32], want: &[f64]) {
        let close = |(&a, &b): (&f32, &f64)| (f64::from(a) - b).abs() < 1e-6;
        assert!(found.len() == want.len() && found.iter().zip(want).all(close), "{found:?}");
    }

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    #[test]
    fn softmax_over_all_experts_weighs_the_chosen() {
        let scores = [0.0, 2.0, 1.0, -1.0];
        let sum: f64 = scores.iter().map(|&x| f64::from(x).exp()).sum();
        let (first, second) = (2f64.exp() / sum, 1f64.exp() / sum);
        close(&route(&scores, &PLAIN, None, None), &[1.0, 2.0, first, second]);
        let scaled = Router { normalize: true, scale: 2.5, ..PLAIN };
        let both = first + second;
        close(
            &route(&scores, &scaled, None, None),
            &[1.0, 2.0, 2.5 * first / both, 2.5 * second / both],
        );
    }

    #[test]
    fn a_bias_chooses_but_does_not_weigh() {
        let router = Router { gating: Gating::Sigmoid, ..PLAIN };
        let bias = [0.0, 0.0, 0.0, 1.0];
        let routes = route(&[0.0, 2.0, 1.0, -1.0], &router, Some(&bias), None);
        close(&routes, &[3.0, 1.0, sigmoid(-1.0), sigmoid(2.0)]);
    }

    #[test]
    fn factors_weigh_but_do_not_choose() {
        let factors = [1.0, -2.0, 1.0, 9.0];
        let routes = route(&[0.0, 2.0, 1.0, -1.0], &PLAIN, None, Some(&factors));
        let plain = route(&[0.0, 2.0, 1.0, -1.0], &PLAIN, None, None);
        assert_eq!(routes, [1.0, 2.0, -2.0 * plain[2], plain[3]]);
    }

    #[test]
    fn of_equal_experts_the_lower_is_chosen() {
        close(&route(&[1.0; 4], &PLAIN, None, None), &[0.0, 1.0, 0.25, 0.25]);
        let router = Router { n_used: 3, ..PLAIN };
        assert_eq!(route(&[0.0, 1.0, 0.0, 1.0], &router, None, None)[..3], [1.0, 3.0, 0.0]);
    }

    #[test]
    fn tiny_sums_are_not_divided_by() {
        let router = Router { gating: Gating::Sigmoid, normalize: true, ..PLAIN };
        let p = sigmoid(-20.0);
        let want = p / f64::from(LEAST_WEIGHT_SUM);
        close(&route(&[-20.0, -20.0], &router, None, None), &[0.0, 1.0, want, want]);
    }

    #[test]
    fn group_scores_differ_in_what_they_choose() {
        // The first group has the best expert, the second the best two.
        let scores = [3.0, -5.0, 2.0, 2.5];
        let choose = |score| {
            let groups = Some(Groups { n_groups: 2, n_used: 1, score });
            let router = Router { gating: Gating::Sigmoid, groups, ..PLAIN };
            route(&scores, &router, None, None)[..2].to_vec()
        };
        assert_eq!(choose(GroupScore::Max), [0.0, 1.0]);
        assert_eq!(choose(GroupScore::TopTwoSum), [3.0, 2.0]);
    }

    #[test]
    fn nan_is_chosen_and_shows() {
        let router = Router { gating: Gating::Sigmoid, ..PLAIN };
        let routes = route(&[1.0, 2.0, f32::NAN], &router, None, None);
        assert_eq!(routes[..2], [2.0, 1.0]);
        assert!(routes[2].is_nan());
        assert_eq!(route(&[f32::NAN; 3], &PLAIN, None, None)[..2], [0.0, 1.0]);
    }

    #[test]
    fn the_sum_of_experts_by_hand() {
        // Two experts of width 1 on rows of 2; sigmoid(0) is a half.
        let all = All {
            gate: &[0.0, 0.0, 0.0, 0.0],
            up: &[1.0, 2.0, 3.0, 4.0],
            down: &[1.0, -1.0, 10.0, 20.0],
            joint: false,
            weighs_inputs: false,
            biases: None,
            n: 2,
        };
        let mixed = all.mix(&[1.0, 1.0], &[1.0, 0.0, 0.5, 2.0], Act::Sigmoid.into());
        // expert 1: 3.5 * (10, 20), expert 0: 1.5 * (1, -1)
        assert_eq!(mixed, [0.5 * 35.0 + 2.0 * 1.5, 0.5 * 70.0 - 2.0 * 1.5]);
        // expert 1 alone: a gate of 2, relu lets it through, times 7 + 1; then (10, 20) * 16 + (5, 6)
        let biases = Some([&[9.0, 2.0][..], &[9.0, 1.0], &[9.0, 9.0, 5.0, 6.0]]);
        let mixed = All { biases, ..all }.mix(&[1.0, 1.0], &[1.0, 1.0], Act::Relu.into());
        assert_eq!(mixed, [165.0, 326.0]);
    }
}
