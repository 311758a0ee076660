//! Mixtures of experts as algebra: how many experts a pass reads.

use program::{Program, WeightId, WeightSpec};

use crate::cost::{Work, n_weights};
use crate::formula::sum;

/// Experts that `rows` rows use at least once, if each uses `n_used` of `n_experts` and all are as likely:
/// `E (1 - (1 - k/E)^rows)`. Real routes are less even, so this is an upper estimate; one row uses `n_used`.
pub fn distinct_experts(n_experts: u64, n_used: u64, rows: u64) -> f64 {
    let (all, used) = (n_experts as f64, n_used.min(n_experts) as f64);
    if n_experts == 0 { 0.0 } else { all * (1.0 - (1.0 - used / all).powf(rows as f64)) }
}

/// One node of experts. Experts are read once a pass, each that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpertsCost {
    pub(crate) n_experts: u64,
    pub(crate) n_used: u64,
    /// Of one expert.
    pub(crate) weights: u64,
    /// Of one expert.
    pub(crate) bytes: u64,
    /// Of one expert for one row, in 8-bit integers and in floating point.
    pub(crate) macs: [u64; 2],
    /// Activations of one expert for one row.
    pub(crate) elements: u64,
}

impl ExpertsCost {
    /// `weights` of gate, up and down; `counts` of experts, all and used.
    pub(crate) fn of(program: &Program, weights: [WeightId; 3], counts: [usize; 2]) -> ExpertsCost {
        let [n_experts, n_used] = counts.map(|n| n as u64);
        let specs = weights.map(|id| program.weight(id));
        let each = |x: u64| x / n_experts.max(1);
        let of = |blocks: bool| -> u64 {
            let ours = specs.iter().filter(|spec| (spec.ty.block_len() > 1) == blocks);
            each(sum(&ours.map(|spec| n_weights(spec)).collect::<Vec<_>>()))
        };
        ExpertsCost {
            n_experts,
            n_used,
            weights: each(sum(&specs.map(n_weights))),
            bytes: each(sum(&specs.map(WeightSpec::bytes))),
            macs: [of(true), of(false)],
            elements: sum(&[specs[2].cols as u64, each(specs[2].rows as u64)]),
        }
    }

    /// Of the experts that one row does not use.
    pub(crate) fn idle_weights(&self) -> u64 {
        self.n_experts.saturating_sub(self.n_used).saturating_mul(self.weights)
    }

    /// Two tasks, each with all experts in it: gate, up and activation; down and the weighted sum.
    pub(crate) fn work(&self, rows: u64) -> Work {
        let distinct = distinct_experts(self.n_experts, self.n_used, rows);
        let read = |each: u64| (distinct * each as f64).round() as u64;
        let done = |each: u64| rows.saturating_mul(self.n_used).saturating_mul(each);
        let [int8, f32] = self.macs;
        Work {
            weights: read(self.weights),
            weight_bytes: read(self.bytes),
            int8_macs: done(int8),
            f32_macs: done(f32),
            elements: done(self.elements),
            barriers: 2 * u64::from(rows > 0),
            ..Work::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_uses_its_own_and_many_use_all() {
        assert_eq!(distinct_experts(64, 6, 0), 0.0);
        assert!((distinct_experts(64, 6, 1) - 6.0).abs() < 1e-9);
        // 64 (1 - (58/64)^2)
        assert!((distinct_experts(64, 6, 2) - 11.4375).abs() < 1e-9);
        assert!((distinct_experts(64, 6, 512) - 64.0).abs() < 1e-6);
        assert_eq!(distinct_experts(4, 4, 1), 4.0);
        assert_eq!(distinct_experts(0, 0, 1), 0.0);
    }
}
