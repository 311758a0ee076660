//! Mixtures of experts as algebra: how many experts a pass reads.

/// Experts that `rows` rows use at least once, if each uses `n_used` of `n_experts` and all are as likely:
/// `E (1 - (1 - k/E)^rows)`. Real routes are less even: what is expected, no bound; one row uses `n_used`. The bounds are
/// `n_used`, if all rows choose alike, and [`most_experts`].
pub fn distinct_experts(n_experts: u64, n_used: u64, rows: u64) -> f64 {
    let (all, used) = (n_experts as f64, n_used.min(n_experts) as f64);
    if n_experts == 0 { 0.0 } else { all * (1.0 - (1.0 - used / all).powf(rows as f64)) }
}

/// Experts that `rows` rows use if each chooses others, until there are no more.
pub fn most_experts(n_experts: u64, n_used: u64, rows: u64) -> u64 {
    n_used.saturating_mul(rows).min(n_experts)
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
        assert_eq!([0, 1, 2, 512].map(|rows| most_experts(64, 6, rows)), [0, 6, 12, 64]);
    }
}
