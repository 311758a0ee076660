//! Which tokens may be drawn: top-k, top-p and min-p without sorting the vocabulary.

use program::{Candidate, k_likeliest};

/// The three filters, applied in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// Keep so many; 0 or less: all.
    pub(super) top_k: i32,
    /// Keep the likeliest that together reach this probability.
    pub(super) top_p: f32,
    /// Keep those at least this fraction as likely as the likeliest.
    pub(super) min_p: f32,
}

impl Selection {
    /// Fill `out` with the tokens to draw from, at least one: likeliest first, or by id if neither top-k nor top-p
    /// leaves any out. `logits` are finite and not empty, no logit is above its stretch's peak; `peaks` may be empty.
    pub(super) fn select(&self, logits: &[f32], peaks: &[f32], out: &mut Vec<Candidate>) {
        let top_k = usize::try_from(self.top_k).ok().filter(|&k| k > 0 && k < logits.len());
        match top_k {
            Some(k) => {
                k_likeliest(logits, peaks, k, out);
                out.sort_unstable_by(Candidate::likelier);
                if self.top_p < 1.0 {
                    let total = mass(out[0].logit, out.iter().map(|c| c.logit));
                    let n = reach(out, self.share_of(total)).unwrap_or(out.len());
                    out.truncate(n);
                }
            }
            None if self.top_p < 1.0 => self.nucleus(logits, peaks, out),
            None => k_likeliest(logits, peaks, logits.len(), out),
        }
        if self.min_p > 0.0 {
            let floor = likeliest(out).logit + self.min_p.ln();
            out.retain(|c| c.logit >= floor);
        }
    }

    /// Top-p over the whole vocabulary: the best few are nearly always enough, so try with few first.
    fn nucleus(&self, logits: &[f32], peaks: &[f32], out: &mut Vec<Candidate>) {
        let total = mass(program::likeliest(logits, peaks).logit, logits.iter().copied());
        let mut k = 256;
        loop {
            k_likeliest(logits, peaks, k, out);
            out.sort_unstable_by(Candidate::likelier);
            match reach(out, self.share_of(total)) {
                Some(n) => return out.truncate(n),
                None if k >= logits.len() => return,
                None => k *= 8,
            }
        }
    }

    fn share_of(&self, total: f64) -> f64 {
        f64::from(self.top_p) * total
    }
}

/// The likeliest candidate. `candidates` is not empty.
pub(super) fn likeliest(candidates: &[Candidate]) -> Candidate {
    *candidates.iter().min_by(|a, b| a.likelier(b)).expect("a selection keeps at least one token")
}

/// Sum of `exp(logit - max)`.
fn mass(max: f32, logits: impl Iterator<Item = f32>) -> f64 {
    logits.map(|logit| f64::from((logit - max).exp())).sum()
}

/// How many of the sorted candidates it takes to reach `share`, at least one; `None` if all of them do not.
fn reach(sorted: &[Candidate], share: f64) -> Option<usize> {
    let mut sum = 0.0;
    sorted
        .iter()
        .position(|c| {
            sum += f64::from((c.logit - sorted[0].logit).exp());
            sum >= share
        })
        .map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use program::LogitRows;
    use proptest::prelude::*;

    use super::*;
    use crate::Scores;

    /// The definition: sort everything, then cut three times.
    fn naive(s: &Selection, logits: &[f32]) -> BTreeSet<u32> {
        let mut all: Vec<Candidate> =
            logits.iter().zip(0u32..).map(|(&logit, token)| Candidate { token, logit }).collect();
        all.sort_by(Candidate::likelier);
        if s.top_k > 0 {
            all.truncate(s.top_k as usize);
        }
        let max = all[0].logit;
        let weight = |c: &Candidate| f64::from((c.logit - max).exp());
        if s.top_p < 1.0 {
            let total: f64 = all.iter().map(weight).sum();
            let mut sum = 0.0;
            let mut n = 0;
            while n < all.len() && (n == 0 || sum < f64::from(s.top_p) * total * (1.0 - 1e-12)) {
                sum += weight(&all[n]);
                n += 1;
            }
            all.truncate(n);
        }
        if s.min_p > 0.0 {
            all.retain(|c| c.logit >= max + s.min_p.ln());
        }
        all.iter().map(|c| c.token).collect()
    }

    fn selected(s: &Selection, logits: &[f32], peaks: &[f32]) -> BTreeSet<u32> {
        let mut out = Vec::new();
        s.select(logits, peaks, &mut out);
        let set: BTreeSet<u32> = out.iter().map(|c| c.token).collect();
        assert_eq!(set.len(), out.len(), "a token twice");
        set
    }

    proptest! {
        #[test]
        fn selections_equal_the_definition(
            // Few distinct values, so that there are ties everywhere.
            logits in prop::collection::vec((-40i32..40).prop_map(|x| x as f32 * 0.1), 1..700),
            top_k in prop_oneof![Just(0), Just(-1), 1i32..60, 600i32..800],
            top_p in prop_oneof![Just(1.0f32), Just(0.0), 0.01f32..0.99],
            min_p in prop_oneof![Just(0.0f32), Just(1.0), 0.001f32..0.9],
            banned in prop::collection::vec(0usize..700, 0..5),
        ) {
            let s = Selection { top_k, top_p, min_p };
            prop_assert_eq!(selected(&s, &logits, &[]), naive(&s, &logits));
            let mut scores = Scores::from(LogitRows::new(logits.clone(), logits.len()));
            prop_assert_eq!(selected(&s, &scores, &scores.peaks), naive(&s, &logits));
            // what is banned leaves peaks behind that nothing reaches
            let banned: Vec<usize> = banned.into_iter().filter(|i| *i < logits.len()).collect();
            scores.ban(&banned);
            prop_assert_eq!(selected(&s, &scores, &scores.peaks), naive(&s, &scores));
            prop_assert_eq!(program::likeliest(&scores, &scores.peaks), program::likeliest(&scores, &[]));
        }
    }

    #[test]
    fn flat_rows_need_many() {
        let logits = vec![0.0; 5000];
        let s = Selection { top_k: 0, top_p: 0.9, min_p: 0.0 };
        assert!(selected(&s, &logits, &[]).len().abs_diff(4500) <= 1);
        assert_eq!(program::likeliest(&logits, &[]).token, 0);
    }
}
