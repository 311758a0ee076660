//! What a pass costs by its rows, measured as passes go by.

/// Rows of the widest pass that is told apart.
const ROWS: usize = 32;
/// How much a new measurement counts against what is known.
const WEIGHT: f64 = 0.2;
/// What a row more costs before anything is known of it, in plain steps: little, so that it is tried once.
const UNKNOWN: f64 = 0.1;

/// Seconds of passes over few rows, relative to a pass over one: the text grows meanwhile, and both grow with it.
#[derive(Clone, Debug)]
pub(crate) struct PassCosts {
    /// Seconds of a pass over one row, or what it would take by the others.
    plain: Option<f64>,
    /// For each number of rows up to [`ROWS`]: times the cost of one; `[0]` and `[1]` are not looked at.
    relative: [Option<f64>; ROWS + 1],
    /// The same with the gaps filled: it is asked for in every step.
    filled: [f64; ROWS + 1],
}

impl Default for PassCosts {
    fn default() -> Self {
        let mut costs =
            PassCosts { plain: None, relative: [None; ROWS + 1], filled: [1.0; ROWS + 1] };
        costs.fill();
        costs
    }
}

impl PassCosts {
    /// A pass over `rows` rows, none of a prompt, took so long.
    pub(crate) fn measured(&mut self, rows: usize, seconds: f64) {
        match rows {
            0 => (),
            1 => self.plain = Some(mixed(self.plain, seconds)),
            _ if rows <= ROWS => match self.plain {
                Some(plain) => {
                    let known = &mut self.relative[rows];
                    *known = Some(mixed(*known, (seconds / plain).max(1.0)));
                    self.fill();
                }
                None => self.plain = Some(seconds / self.times(rows)),
            },
            _ => (),
        }
    }

    /// Seconds of a pass over one row, if any was measured.
    pub(crate) fn plain(&self) -> Option<f64> {
        self.plain
    }

    fn fill(&mut self) {
        for rows in 0..=ROWS {
            self.filled[rows] = self.between(rows);
        }
    }

    /// A pass over `rows` rows in passes over one.
    pub(crate) fn times(&self, rows: usize) -> f64 {
        self.filled.get(rows).copied().unwrap_or_else(|| self.between(rows))
    }

    /// [`times`](Self::times) by what was measured: between its widths along a line, beyond them along the last one, never
    /// less than for fewer rows.
    fn between(&self, rows: usize) -> f64 {
        let known = |n: usize| match n {
            0 | 1 => Some(1.0),
            n => self.relative.get(n).copied().flatten(),
        };
        let rows = rows.max(1);
        if let Some(times) = known(rows) {
            return times;
        }
        let below = (1..rows).rev().find_map(|n| Some((n, known(n)?))).unwrap_or((1, 1.0));
        let above = (rows + 1..=ROWS).find_map(|n| Some((n, known(n)?)));
        let slope = match above {
            Some((n, times)) => (times - below.1) / (n - below.0) as f64,
            None if below.0 > 1 => (below.1 - 1.0) / (below.0 - 1) as f64,
            None => UNKNOWN,
        };
        below.1 + slope.max(0.0) * (rows - below.0) as f64
    }
}

fn mixed(known: Option<f64>, new: f64) -> f64 {
    known.map_or(new, |known| known + WEIGHT * (new - known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_lie_on_lines_between_what_was_measured() {
        let mut costs = PassCosts::default();
        assert_eq!((costs.times(1), costs.plain()), (1.0, None));
        assert!(costs.times(5) > 1.0 && costs.times(5) < 2.0);
        costs.measured(1, 0.01);
        costs.measured(5, 0.02);
        assert!((costs.times(5) - 2.0).abs() < 1e-9);
        assert!((costs.times(3) - 1.5).abs() < 1e-9);
        assert!((costs.times(9) - 3.0).abs() < 1e-9, "beyond: along the same line");
        costs.measured(9, 0.015);
        assert!((costs.times(9) - 1.5).abs() < 1e-9);
        assert!(
            (costs.times(7) - 2.0).abs() < 1e-9,
            "never less than for fewer rows: {}",
            costs.times(7)
        );
    }

    /// A longer text makes all passes dearer; what a row more costs relative to that stays known.
    #[test]
    fn widths_are_relative() {
        let mut costs = PassCosts::default();
        costs.measured(1, 0.01);
        costs.measured(4, 0.015);
        for _ in 0..100 {
            costs.measured(1, 0.03);
        }
        assert!((costs.plain().unwrap_or_default() - 0.03).abs() < 1e-6);
        assert!((costs.times(4) - 1.5).abs() < 1e-9);
    }

    /// Before a plain step was seen, wide ones say what it would take.
    #[test]
    fn a_wide_pass_alone_tells_a_plain_one() {
        let mut costs = PassCosts::default();
        costs.measured(4, 0.013);
        assert!((costs.plain().unwrap_or_default() - 0.01).abs() < 1e-9);
        costs.measured(40, 1.0);
        costs.measured(0, 1.0);
        assert!((costs.plain().unwrap_or_default() - 0.01).abs() < 1e-9);
    }
}
