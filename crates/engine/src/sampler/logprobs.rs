//! How likely the model found a token, whatever samplers and bans made of it.

use program::{Candidate, k_likeliest};

use crate::Scores;

/// A token with the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// Its id.
    pub token: u32,
    /// 0 or less.
    pub logprob: f32,
}

/// A chosen token beside the likeliest ones.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The one that was chosen.
    pub chosen: Logprob,
    /// As many as were asked for, likeliest first.
    pub top: Vec<Logprob>,
}

/// Log probabilities of a prompt's tokens, each given the tokens before it.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptLogprobs {
    /// First token. It has no log probability, because no token precedes it.
    pub first: u32,
    /// Log probabilities of the other tokens.
    pub rest: Vec<TokenLogprobs>,
}

impl TokenLogprobs {
    /// Of the tokens of one position, the `n` likeliest and the one that was `chosen`. One pass over the logits.
    ///
    /// # Panics
    /// If `chosen` has no logit.
    pub fn new(scores: &Scores, chosen: u32, n: usize) -> TokenLogprobs {
        let max = program::likeliest(&scores.logits, &scores.peaks).logit;
        let total: f64 = scores.logits.iter().map(|&x| f64::from((x - max).exp())).sum();
        let logprob = |token: u32, logit: f32| Logprob {
            token,
            logprob: (f64::from(logit - max) - total.ln()) as f32,
        };
        let mut top = Vec::new();
        k_likeliest(&scores.logits, &scores.peaks, n, &mut top);
        top.sort_unstable_by(Candidate::likelier);
        top.truncate(n);
        TokenLogprobs {
            chosen: logprob(chosen, scores.logits[chosen as usize]),
            top: top.into_iter().map(|c| logprob(c.token, c.logit)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use program::LogitRows;

    use super::*;

    #[test]
    fn probabilities_add_up_to_one() {
        let logits: Vec<f32> = (0..300).map(|i| (i * 7 % 31) as f32 * 0.3 - 40.0).collect();
        let scores = Scores::from(LogitRows::new(logits.clone(), logits.len()));
        let all = TokenLogprobs::new(&scores, 5, 300);
        let sum: f64 = all.top.iter().map(|l| f64::from(l.logprob).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        assert!(all.top.is_sorted_by(|a, b| a.logprob >= b.logprob));
        let own = all.top.iter().find(|l| l.token == 5).unwrap();
        assert_eq!(*own, all.chosen);
        let few = TokenLogprobs::new(&scores, 5, 3);
        assert_eq!(few.top, all.top[..3]);
        assert!(TokenLogprobs::new(&scores, 5, 0).top.is_empty());
    }
}
