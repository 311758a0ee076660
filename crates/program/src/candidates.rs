//! The greatest logits of a row, found without sorting it.

use std::cmp::Ordering;

use crate::PEAK;

/// A token with its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its id.
    pub token: u32,
    /// Its logit.
    pub logit: f32,
}

impl Candidate {
    /// Likelier first; of equals the lower id. A total order of finite logits, so that every way to select agrees.
    pub fn likelier(&self, other: &Candidate) -> Ordering {
        // zeros are equal whatever their sign, as they are to `>`
        let [ours, others] = [self, other].map(|candidate| candidate.logit + 0.0);
        others.total_cmp(&ours).then(self.token.cmp(&other.token))
    }
}

/// The likeliest token of a row, of equals the lowest id. `logits` is finite and not empty; no logit is above its
/// stretch's peak; `peaks` may be empty.
///
/// # Panics
/// If `logits` is empty.
pub fn likeliest(logits: &[f32], peaks: &[f32]) -> Candidate {
    let mut best = Candidate { token: 0, logit: logits[0] };
    for Stretch { logits, peak, first } in stretches(logits, peaks) {
        if peak > best.logit {
            for candidate in numbered(logits, first) {
                best = if candidate.logit > best.logit { candidate } else { best };
            }
        }
    }
    best
}

/// Fill `out` with the `k` likeliest tokens of a row in no order, or with all of them by id if `k` is not less than their
/// number. `logits` and `peaks` as for [`likeliest`].
///
/// One pass that collects whatever beats the `k`-th best found so far, cutting back to `k` whenever twice as many have
/// come together. Most stretches hold nothing of the kind, which one look at their peak tells.
pub fn k_likeliest(logits: &[f32], peaks: &[f32], k: usize, out: &mut Vec<Candidate>) {
    out.clear();
    if k >= logits.len() {
        out.extend(numbered(logits, 0));
        return;
    }
    if k == 0 {
        return;
    }
    let room = 2 * k + PEAK;
    // Later tokens have higher ids, so one that only equals the k-th best loses to it.
    let mut floor = f32::NEG_INFINITY;
    for Stretch { logits, peak, first } in stretches(logits, peaks) {
        if peak <= floor {
            continue;
        }
        out.extend(numbered(logits, first).filter(|c| c.logit > floor));
        if out.len() >= room {
            out.select_nth_unstable_by(k - 1, Candidate::likelier);
            out.truncate(k);
            floor = out[k - 1].logit;
        }
    }
    if out.len() > k {
        out.select_nth_unstable_by(k - 1, Candidate::likelier);
        out.truncate(k);
    }
}

/// Logits that share a peak.
struct Stretch<'a> {
    logits: &'a [f32],
    /// None of the logits is above it.
    peak: f32,
    /// Id of the first token.
    first: u32,
}

fn stretches<'a>(logits: &'a [f32], peaks: &'a [f32]) -> impl Iterator<Item = Stretch<'a>> {
    let firsts = (0u32..).step_by(PEAK);
    logits.chunks(PEAK).zip(firsts).enumerate().map(|(i, (logits, first))| Stretch {
        logits,
        peak: peaks.get(i).copied().unwrap_or_else(|| highest(logits)),
        first,
    })
}

/// The highest of finite logits. Eight lanes, because one running maximum would wait for itself.
fn highest(logits: &[f32]) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let (eights, rest) = logits.as_chunks::<8>();
    let mut lanes = [f32::MIN; 8];
    for eight in eights {
        for (lane, &x) in lanes.iter_mut().zip(eight) {
            *lane = higher(*lane, x);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::MIN, higher)
}

/// Logits with the ids of their tokens, which start at `first`.
fn numbered(logits: &[f32], first: u32) -> impl Iterator<Item = Candidate> {
    logits.iter().zip(first..).map(|(&logit, token)| Candidate { token, logit })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::LogitRows;

    proptest! {
        /// Few distinct values, so that there are ties everywhere.
        #[test]
        fn one_pass_finds_the_best(logits in prop::collection::vec(-9i16..9, 1..2000), k in 0usize..300) {
            // zeros of either sign, by place
            let signed = |(i, x): (usize, i16)| if x == 0 && i % 2 == 0 { -0.0 } else { f32::from(x) };
            let logits: Vec<f32> = logits.into_iter().enumerate().map(signed).collect();
            let made = LogitRows::new(logits.clone(), logits.len());
            let mut want = Vec::new();
            k_likeliest(&logits, &[], usize::MAX, &mut want);
            want.sort_by(Candidate::likelier);
            prop_assert_eq!(likeliest(&logits, &made.peaks), want[0]);
            want.truncate(k);
            for peaks in [&[][..], &made.peaks] {
                let mut out = Vec::new();
                k_likeliest(&logits, peaks, k, &mut out);
                out.sort_by(Candidate::likelier);
                prop_assert_eq!(&out, &want);
            }
        }
    }
}
