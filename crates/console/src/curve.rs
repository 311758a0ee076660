//! Computes points for the lines of charts.

/// Returns about 100 integers from `first` (at least 1) to `last`, in geometric progression.
pub fn factors(first: u64, last: u64) -> Vec<u64> {
    let first = first.max(1);
    let ratio = last.max(first) as f64 / first as f64;
    let at = |i: u32| (first as f64 * ratio.powf(f64::from(i) / 120.0)).round() as u64;
    let mut all: Vec<u64> = (0..=120).map(at).collect();
    all.dedup();
    all
}

/// Returns about 50 integers from 0 to `last`, in equal steps.
pub fn steps(last: u64) -> Vec<u64> {
    let mut all: Vec<u64> =
        (0..=48).map(|i| (last as f64 * f64::from(i) / 48.0).round() as u64).collect();
    all.dedup();
    all
}

/// Evaluates `f` at these positions.
pub fn points(at: &[u64], f: &dyn Fn(u64) -> f64) -> Vec<(f64, f64)> {
    at.iter().map(|n| (*n as f64, f(*n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_ascend_from_end_to_end() {
        for all in [factors(1, 50_000), factors(0, 1), steps(7), steps(65_536), steps(0)] {
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
        }
        assert_eq!(factors(1, 50_000).last(), Some(&50_000));
        assert_eq!(steps(65_536).last(), Some(&65_536));
        assert_eq!(steps(7), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
