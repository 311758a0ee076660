//! [`ScanRate`]: how fast what recurs is, measured.

use program::{CacheKind, Op, Program, ScanDims, ScanKind, ScanRule};

use crate::rates::{apart, rate_of};

/// A recurrence of one layer, as far as its speed depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanShape {
    /// What rows do.
    pub rule: ScanRule,
    /// Heads and widths.
    pub dims: ScanDims,
    /// Each row of a head's matrix decays at its own rate, where the rule leaves that open.
    pub by_row: bool,
}

impl ScanShape {
    /// That of a node, if it is a recurrence.
    pub(crate) fn of(program: &Program, node: usize) -> Option<ScanShape> {
        let node = &program.nodes[node];
        let Op::Scan(scan) = &node.op else { return None };
        let rates = match scan.kind {
            ScanKind::Delta { .. } | ScanKind::Linear { .. } => Some(node.inputs[3]),
            _ => None,
        };
        let by_row = rates.is_some_and(|id| program.value(id).shape.cols() > scan.dims.n_heads);
        let shares = scan.dims.n_heads > scan.dims.n_key_heads;
        let dims = ScanDims { by_turns: scan.dims.by_turns && shares, ..scan.dims };
        Some(ScanShape { rule: scan.kind.rule(), dims, by_row })
    }

    /// Bytes of its state.
    pub fn state_bytes(&self) -> u64 {
        CacheKind::State { elements: self.dims.kept_elements(), row: 0 }.state_bytes()
    }

    /// How far another shape is from this one, if its speed can be scaled to it at all.
    fn distance(&self, other: &ScanShape) -> Option<f64> {
        let widths = apart(self.dims.key_dim, other.dims.key_dim)
            + apart(self.dims.value_dim, other.dims.value_dim)
            + f64::from(u8::from(self.by_row != other.by_row));
        let all = apart(self.dims.elements(), other.dims.elements()) / 4.0;
        (self.rule == other.rule).then_some(widths + all)
    }
}

/// A recurrence of one layer, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanRate {
    /// The shape.
    pub shape: ScanShape,
    /// A step, the mean over those from one that writes a state to the next.
    pub step: f64,
    /// A prompt, for each token.
    pub token: f64,
}

impl ScanRate {
    /// Seconds of a pass of `tokens`.
    pub fn seconds(&self, tokens: u64) -> f64 {
        match tokens {
            0 => 0.0,
            1 => self.step,
            // few tokens read the state as well
            n => self.step.max(self.token * n as f64),
        }
    }

    /// Bytes of the state per second in a step.
    pub fn bytes_per_second(&self) -> f64 {
        self.shape.state_bytes() as f64 / self.step
    }

    /// The same kernel with other numbers of heads.
    fn scaled_to(&self, shape: &ScanShape) -> ScanRate {
        let by = shape.dims.elements() as f64 / self.shape.dims.elements().max(1) as f64;
        ScanRate { shape: *shape, step: self.step * by, token: self.token * by }
    }
}

/// The rate of this shape among these: as measured, or scaled from the nearest shape of its rule.
pub(crate) fn nearest(rates: &[ScanRate], shape: &ScanShape) -> Option<ScanRate> {
    rate_of(rates, shape, |rate| &rate.shape, ScanShape::distance, ScanRate::scaled_to)
}

/// Shapes from which others are scaled, the most usual rule first: those of Qwen3.5-0.8B, Mamba-2, Ling 3, MiniMax-01, Falcon
/// Mamba, RWKV 6 and 7.
pub(crate) fn usual() -> Vec<ScanShape> {
    let shape = |rule, [n_heads, n_key_heads, key_dim, value_dim]: [usize; 4], by_row| {
        let dims = ScanDims { n_heads, n_key_heads, key_dim, value_dim, by_turns: false };
        ScanShape { rule, dims, by_row }
    };
    vec![
        shape(ScanRule::Delta, [16, 16, 128, 128], false),
        shape(ScanRule::Ssd, [64, 1, 128, 64], false),
        shape(ScanRule::Linear, [16, 16, 128, 128], true),
        shape(ScanRule::Lightning, [16, 16, 128, 128], false),
        shape(ScanRule::Selective, [1, 1, 16, 8192], false),
        shape(ScanRule::Wkv6, [32, 32, 64, 64], false),
        shape(ScanRule::Wkv7, [32, 32, 64, 64], false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_scaled_within_a_rule() {
        let [delta, ssd, ..] = usual()[..] else { panic!("two rules") };
        let rates = [delta, ssd].map(|shape| ScanRate { shape, step: 2.0, token: 1.0 });
        assert_eq!(nearest(&rates, &delta), Some(rates[0]));
        let dims = ScanDims { n_heads: 32, ..delta.dims };
        let twice = nearest(&rates, &ScanShape { dims, ..delta }).unwrap();
        assert_eq!(
            (twice.step, twice.token, twice.seconds(1), twice.seconds(3)),
            (4.0, 2.0, 4.0, 6.0)
        );
        assert_eq!(twice.seconds(0), 0.0);
        assert_eq!(rates[0].bytes_per_second(), (16 * 128 * 128 * 4) as f64 / 2.0);
        let other = usual()[2];
        assert_eq!(nearest(&rates, &other), None);
        // what was measured is taken before what is as near
        let alike = ScanShape { dims: ScanDims { n_key_heads: 8, ..delta.dims }, ..delta };
        let both = [ScanRate { shape: alike, step: 9.0, token: 9.0 }, rates[0]];
        assert_eq!(nearest(&both, &delta), Some(rates[0]));
    }
}
