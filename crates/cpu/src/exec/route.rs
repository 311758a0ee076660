//! Which experts a row uses: as `program::Router` says, in the numbers of the interpreter.
//!
//! Exponentials and sums are f64, as there, so that equal scores are routed equally.

use program::{Gating, GroupScore, Groups, LEAST_WEIGHT_SUM, Router};

/// Memory for one row, kept by each worker.
#[derive(Default)]
pub(crate) struct RouteScratch {
    exponentials: Vec<f64>,
    /// The weights of all experts.
    p: Vec<f32>,
    /// What they are chosen by.
    s: Vec<f32>,
    group_scores: Vec<f32>,
    /// Keys and indices of the best so far.
    best: Vec<(i32, usize)>,
}

/// Route one row: the ids of the chosen experts, then their weights, into `out`, `[2 * n_used]`.
pub(crate) fn route(
    scores: &[f32],
    router: &Router,
    [bias, factors]: [Option<&[f32]>; 2],
    out: &mut [f32],
    scratch: &mut RouteScratch,
) {
    let RouteScratch { exponentials, p, s, group_scores, best } = scratch;
    probabilities(scores, router.gating, exponentials, p);
    s.clear();
    match bias {
        Some(bias) => s.extend(p.iter().zip(bias).map(|(p, bias)| p + bias)),
        None => s.extend_from_slice(p),
    }
    if let Some(groups) = &router.groups {
        keep_best_groups(s, groups, group_scores, best);
    }
    choose(s, router.n_used, best);
    let shared = router.per_chunk > 1;
    if shared {
        best.iter_mut().for_each(|(_, id)| *id /= router.per_chunk);
    }
    let sum: f64 = best.iter().map(|(_, id)| f64::from(p[*id])).sum();
    let divisor = if router.normalize { sum.max(f64::from(LEAST_WEIGHT_SUM)) } else { 1.0 };
    let (ids, weights) = out.split_at_mut(router.n_used);
    let places = ids.iter_mut().zip(weights.iter_mut());
    for ((place, weight), (_, id)) in places.zip(best.iter()) {
        *place = *id as f32;
        let factor = factors.map_or(1.0, |factors| f64::from(factors[*id]));
        *weight = (f64::from(p[*id]) / divisor * f64::from(router.scale) * factor) as f32;
    }
    if shared {
        make_distinct(ids, weights);
    }
}

/// Of equal ids one stays, with the sum of their weights; the lowest others follow, with weights of 0.
fn make_distinct(ids: &mut [f32], weights: &mut [f32]) {
    let mut n = 0;
    for i in 0..ids.len() {
        let (id, weight) = (ids[i], weights[i]);
        match ids[..n].iter().position(|other| *other == id) {
            Some(first) => weights[first] += weight,
            None => {
                (ids[n], weights[n]) = (id, weight);
                n += 1;
            }
        }
    }
    for id in (0..ids.len()).map(|id| id as f32) {
        if n < ids.len() && !ids[..n].contains(&id) {
            (ids[n], weights[n]) = (id, 0.0);
            n += 1;
        }
    }
}

fn probabilities(scores: &[f32], gating: Gating, exponentials: &mut Vec<f64>, p: &mut Vec<f32>) {
    p.clear();
    match gating {
        Gating::Sigmoid => {
            p.extend(scores.iter().map(|&x| (1.0 / (1.0 + (-f64::from(x)).exp())) as f32));
        }
        Gating::Softmax => {
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            exponentials.clear();
            exponentials.extend(scores.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()));
            let sum: f64 = exponentials.iter().sum();
            p.extend(exponentials.iter().map(|e| (e / sum) as f32));
        }
    }
}

/// The experts of all other groups get a score below any.
fn keep_best_groups(
    s: &mut [f32],
    groups: &Groups,
    scores: &mut Vec<f32>,
    best: &mut Vec<(i32, usize)>,
) {
    let len = s.len() / groups.n_groups;
    scores.clear();
    for group in s.chunks_exact(len) {
        choose(group, 2, best);
        scores.push(match (groups.score, &best[..]) {
            (GroupScore::TopTwoSum, [(_, first), (_, second)]) => group[*first] + group[*second],
            (GroupScore::Max, [(_, first), ..]) => group[*first],
            other => unreachable!("`lower` and the recorder let no {other:?} pass"),
        });
    }
    choose(scores, groups.n_used, best);
    for (i, group) in s.chunks_exact_mut(len).enumerate() {
        if !best.iter().any(|(_, kept)| *kept == i) {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

/// The `n` highest, the highest first; of equal ones the lower index. NaN counts as highest, so that it shows.
fn choose(x: &[f32], n: usize, best: &mut Vec<(i32, usize)>) {
    best.clear();
    for (i, x) in x.iter().enumerate() {
        let key = key(*x);
        if best.len() == n {
            if best.last().is_some_and(|(least, _)| key <= *least) {
                continue;
            }
            best.pop();
        }
        let at = best.iter().rposition(|(other, _)| *other >= key).map_or(0, |at| at + 1);
        best.insert(at, (key, i));
    }
}

/// An integer that orders as numbers do.
fn key(x: f32) -> i32 {
    let bits = if x.is_nan() { f32::INFINITY } else { x }.to_bits().cast_signed();
    bits ^ (bits >> 31 & i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(x: &[f32], n: usize) -> Vec<usize> {
        let mut best = Vec::new();
        choose(x, n, &mut best);
        best.iter().map(|(_, i)| *i).collect()
    }

    #[test]
    fn the_best_come_in_order_and_ties_by_index() {
        assert_eq!(chosen(&[1.0, 3.0, 2.0, 3.0, -1.0], 3), [1, 3, 2]);
        assert_eq!(chosen(&[0.5; 5], 2), [0, 1]);
        assert_eq!(chosen(&[-1.0, -2.0, f32::NEG_INFINITY, -0.5], 4), [3, 0, 1, 2]);
        assert_eq!(chosen(&[1.0, f32::NAN, f32::INFINITY], 2), [1, 2]);
        assert_eq!(chosen(&[1.0], 2), [0]);
    }
}
