//! Times of one thing: as little as the machine allows, as expected, as measured; and their sums over depths.

use serde_json::Value;

use crate::product::number;

/// Seconds: as little as the machine allows, as expected of our kernels, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) limit: f64,
    pub(super) expected: f64,
    pub(super) measured: f64,
}

impl Times {
    /// Of a row of `rooflight bench`, for `tokens` tokens.
    pub(super) fn of(row: &Value, tokens: f64) -> anyhow::Result<Times> {
        let time = |key| Ok::<_, anyhow::Error>(tokens / number(row, key)?);
        Ok(Times {
            limit: time("limit_ts")?,
            expected: time("expected_ts")?,
            measured: time("avg_ts")?,
        })
    }

    pub(super) fn each(self, other: Times, f: impl Fn(f64, f64) -> f64) -> Times {
        Times {
            limit: f(self.limit, other.limit),
            expected: f(self.expected, other.expected),
            measured: f(self.measured, other.measured),
        }
    }
}

/// The line that fits samples best: its value at depth 0 and its slope.
fn fit(samples: &[(f64, Times)]) -> (Times, Times) {
    let n = samples.len().max(1) as f64;
    let sum = |f: &dyn Fn(&(f64, Times)) -> Times| {
        samples.iter().fold(Times::default(), |sum, sample| sum.each(f(sample), |a, b| a + b))
    };
    let scaled = |times: Times, by: f64| times.each(times, |y, _| y * by);
    let middle = samples.iter().map(|(x, _)| x).sum::<f64>() / n;
    let mean = scaled(sum(&|(_, y)| *y), 1.0 / n);
    let spread: f64 = samples.iter().map(|(x, _)| (x - middle).powi(2)).sum();
    let slope = match samples.len() {
        0 | 1 => Times::default(),
        _ => scaled(sum(&|(x, y)| scaled(*y, x - middle)), 1.0 / spread),
    };
    (mean.each(slope, |mean, slope| mean - slope * middle), slope)
}

/// The time of all steps at depths `from..to`: the area under the lines between samples, and outside of them under the
/// line that fits all of them best.
pub(super) fn integrate(samples: &[(f64, Times)], from: f64, to: f64) -> Times {
    let (zero, slope) = fit(samples);
    let line = |x: f64| zero.each(slope, |zero, slope| zero + slope * x);
    let area = |(x0, y0): (f64, Times), (x1, y1): (f64, Times)| {
        y0.each(y1, |y0, y1| (y0 + y1) / 2.0 * (x1 - x0))
    };
    // the part of a piece from `a` to `b` that lies within the bounds
    let within = |a: (f64, Times), b: (f64, Times)| {
        let (left, right) = (a.0.max(from), b.0.min(to));
        if left >= right {
            return Times::default();
        }
        let at = |x: f64| a.1.each(b.1, |ya, yb| ya + (yb - ya) * (x - a.0) / (b.0 - a.0));
        area((left, at(left)), (right, at(right)))
    };
    let ends = samples.first().zip(samples.last()).map(|(first, last)| (first.0, last.0));
    let (first, last) = ends.unwrap_or((from, from));
    let outer = [(from, to.min(first)), (from.max(last), to)];
    let outer = outer.into_iter().filter(|(left, right)| left < right);
    let outer = outer.map(|(left, right)| area((left, line(left)), (right, line(right))));
    let inner = samples.windows(2).map(|pair| within(pair[0], pair[1]));
    outer.chain(inner).fold(Times::default(), |sum, piece| sum.each(piece, |a, b| a + b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(depth: f64) -> Times {
        Times { limit: 1.0 + depth, expected: 2.0 * depth, measured: 3.0 }
    }

    #[test]
    fn trapezoids_are_exact_on_lines_and_go_on_beyond_them() {
        let samples: Vec<_> = [10.0, 20.0, 40.0].map(|depth| (depth, line(depth))).into();
        for (from, to) in [(10.0, 40.0), (12.0, 15.0), (0.0, 100.0), (50.0, 60.0)] {
            let sum = integrate(&samples, from, to);
            let width = to - from;
            let middle = line((from + to) / 2.0);
            let want = middle.each(Times::default(), |y, _| y * width);
            let near = sum.each(want, |a, b| (a - b).abs());
            assert!(near.limit < 1e-9 && near.expected < 1e-9 && near.measured < 1e-9, "{sum:?}");
        }
        assert_eq!(integrate(&samples[..1], 0.0, 2.0).measured, 6.0);
        // what one sample is off by does not turn the line
        let mut off = samples.clone();
        off[2].1.measured = 2.9;
        let beyond = integrate(&off, 1000.0, 1001.0).measured;
        assert!(beyond > -1.0 && beyond < 3.0, "{beyond}");
        assert_eq!(integrate(&[], 0.0, 2.0), Times::default());
    }
}
