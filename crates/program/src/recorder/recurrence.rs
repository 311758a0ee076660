//! Recording of what recurs.

use super::Recorder;
use crate::{
    Act, CacheId, CacheKind, CacheSpec, CausalConv, Op, Result, Rows, Scan, ScanDims, ScanKind,
    Shape, ValueId, WeightId,
};

/// The weights of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvWeights {
    /// `[channels, width]`.
    pub taps: WeightId,
    /// `[channels]`.
    pub bias: Option<WeightId>,
}

/// Most rows from one that a convolution sums over to the next.
const MOST_STEPS: usize = 64;

impl Recorder {
    /// A sum over each row and those before it, channel by channel, of which `act` is taken: the shape of `x`. The rows that
    /// it needs of steps before are kept in a cache of its own.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if a weight has another number of channels, or a sum is over one row only.
    pub fn causal_conv(
        &self,
        name: &str,
        x: ValueId,
        weights: ConvWeights,
        act: Option<Act>,
    ) -> Result<ValueId> {
        self.spaced_conv(name, x, weights, 1, act)
    }

    /// The same of every row so many steps back.
    ///
    /// # Errors
    /// As [`causal_conv`](Self::causal_conv), and if there are no steps or too many.
    pub fn spaced_conv(
        &self,
        name: &str,
        x: ValueId,
        weights: ConvWeights,
        step: usize,
        act: Option<Act>,
    ) -> Result<ValueId> {
        let ConvWeights { taps, bias } = weights;
        let (cols, spec) = (self.shape(x).cols(), self.spec(taps));
        if spec.rows != cols || spec.cols < 2 {
            let expected = format!("taps of {cols} channels, two or more of each");
            return Err(self.operand(name, expected, format!("{} of {}", spec.cols, spec.rows)));
        }
        if let Some(found) = bias.map(|id| self.spec(id)).filter(|found| found.cols != cols) {
            return Err(self.operand(name, format!("a bias of {cols}"), found.cols.to_string()));
        }
        if act.is_some_and(|act| !act.is_sound()) {
            return Err(self.operand(name, "sound parameters".into(), format!("{act:?}")));
        }
        if !(1..=MOST_STEPS).contains(&step) {
            let expected = format!("1 to {MOST_STEPS} rows from one to the next");
            return Err(self.operand(name, expected, step.to_string()));
        }
        self.conv(name, x, Some(weights), [spec.cols, step], act)
    }

    /// Each row's the row before it; zeros before the first: the shape of `x`.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if rows were selected.
    pub fn row_before(&self, name: &str, x: ValueId) -> Result<ValueId> {
        self.conv(name, x, None, [2, 1], None)
    }

    fn conv(
        &self,
        name: &str,
        x: ValueId,
        weights: Option<ConvWeights>,
        [width, step]: [usize; 2],
        act: Option<Act>,
    ) -> Result<ValueId> {
        let shape = self.shape(x);
        self.all_rows(name, &[shape])?;
        let cols = shape.cols();
        let cache = self.state(step * (width - 1) * cols, cols);
        let (taps, bias) = (weights.map(|w| w.taps), weights.and_then(|w| w.bias));
        let conv = CausalConv { cache, taps, bias, width, step, act };
        self.push(name, Op::CausalConv(conv), &[x], shape)
    }

    /// A recurrence: the inputs are those that [`ScanKind`] names, in that order. `by_turns`: how heads share keys, where
    /// they do. Its matrices are kept in a cache of its own: `[Tokens, n_heads * value_dim]`.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if shapes of inputs or weights do not fit.
    pub fn scan(
        &self,
        name: &str,
        kind: ScanKind,
        by_turns: bool,
        inputs: &[ValueId],
    ) -> Result<ValueId> {
        let shapes: Vec<Shape> = inputs.iter().map(|id| self.shape(*id)).collect();
        self.all_rows(name, &shapes)?;
        let dims = match &shapes[..] {
            [q, k, v, ..] if q == k => ScanDims {
                n_heads: v.groups,
                n_key_heads: k.groups,
                key_dim: k.dim,
                value_dim: v.dim,
                by_turns,
            },
            _ => {
                let expected = "queries and keys of one shape, and values".into();
                return Err(self.operand(name, expected, format!("{shapes:?}")));
            }
        };
        let ScanDims { n_heads, n_key_heads, key_dim, value_dim, .. } = dims;
        let keyed = n_heads * key_dim;
        let is = |i: usize, cols: &[usize]| {
            shapes.get(i).is_some_and(|shape| cols.contains(&shape.cols()))
        };
        let own_keys = n_key_heads == n_heads;
        let fits = n_heads.is_multiple_of(n_key_heads.max(1))
            && match kind {
                ScanKind::Delta { .. } => {
                    shapes.len() == 5 && is(3, &[n_heads, keyed]) && is(4, &[n_heads])
                }
                ScanKind::Linear { .. } => shapes.len() == 4 && is(3, &[n_heads, keyed]),
                ScanKind::Lightning { .. } => shapes.len() == 3 && own_keys,
                ScanKind::Ssd { .. } => shapes.len() == 4 && is(3, &[n_heads]),
                ScanKind::Selective { .. } => {
                    shapes.len() == 4 && n_heads == 1 && is(3, &[value_dim])
                }
                ScanKind::Wkv6 { .. } => shapes.len() == 4 && own_keys && is(3, &[keyed]),
                ScanKind::Wkv7 => shapes.len() == 6 && own_keys && (3..6).all(|i| is(i, &[keyed])),
            };
        if !fits {
            let expected = format!("the inputs of `{}`", kind.name());
            return Err(self.operand(name, expected, format!("{shapes:?}")));
        }
        let wanted = match kind {
            ScanKind::Ssd { .. } => [n_heads, n_heads],
            ScanKind::Selective { .. } => [value_dim * key_dim, value_dim],
            ScanKind::Wkv6 { .. } => [keyed; 2],
            ScanKind::Delta { .. }
            | ScanKind::Linear { .. }
            | ScanKind::Lightning { .. }
            | ScanKind::Wkv7 => [0; 2],
        };
        for (id, wanted) in kind.weights().zip(wanted) {
            let spec = self.spec(id);
            if spec.rows * spec.cols != wanted {
                let found = format!("{} of `{}`", spec.rows * spec.cols, spec.name);
                return Err(self.operand(name, format!("{wanted} numbers"), found));
            }
        }
        let sound = match kind {
            ScanKind::Delta { eps } => eps.is_finite() && eps >= 0.0,
            ScanKind::Linear { scale: x } | ScanKind::Lightning { factor: x } => x.is_finite(),
            _ => true,
        };
        if !sound {
            return Err(self.operand(name, "sound parameters".into(), format!("{kind:?}")));
        }
        let row = shapes[1..].iter().map(Shape::cols).sum();
        let cache = self.state(dims.kept_elements(), row);
        let shape = Shape { rows: Rows::Tokens, groups: 1, dim: n_heads * value_dim };
        self.push(name, Op::Scan(Scan { cache, kind, dims }), inputs, shape)
    }

    /// A state of the layer at hand.
    fn state(&self, elements: usize, row: usize) -> CacheId {
        let layer = self.state.borrow().layer.unwrap_or(0);
        self.cache(CacheSpec { layer, kind: CacheKind::State { elements, row } })
    }

    fn all_rows(&self, name: &str, shapes: &[Shape]) -> Result<()> {
        match shapes.iter().find(|shape| shape.rows != Rows::Tokens) {
            None => Ok(()),
            Some(found) => Err(self.operand(name, "all rows".into(), format!("{found:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::WeightSpec;

    fn weight(r: &Recorder, name: &str, rows: usize, cols: usize) -> WeightId {
        r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
    }

    /// `groups` of `dim` for each token.
    fn heads(r: &Recorder, name: &str, groups: usize, dim: usize) -> ValueId {
        r.view(name, r.embed(weight(r, name, 9, groups * dim)).unwrap(), groups).unwrap()
    }

    #[test]
    fn a_scan_keeps_its_matrices_and_what_rows_give() {
        let r = Recorder::new();
        let (q, k) = (heads(&r, "q", 2, 3), heads(&r, "k", 2, 3));
        let (v, g) = (heads(&r, "v", 4, 5), heads(&r, "g", 1, 4));
        let y = r.scan("y", ScanKind::Delta { eps: 1e-6 }, true, &[q, k, v, g, g]).unwrap();
        assert_eq!(r.shape(y), Shape { rows: Rows::Tokens, groups: 1, dim: 20 });
        let x = heads(&r, "x", 1, 8);
        let taps = ConvWeights { taps: weight(&r, "taps", 8, 4), bias: None };
        r.causal_conv("conv", x, taps, Some(Act::Silu)).unwrap();
        r.row_before("before", x).unwrap();
        let kinds: Vec<_> = r.finish(&[]).caches.into_iter().map(|cache| cache.kind).collect();
        let state = |elements, row| CacheKind::State { elements, row };
        assert_eq!(kinds, [state(4 * 3 * 16, 6 + 20 + 8), state(24, 8), state(8, 8)]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let r = Recorder::new();
        let (q, v) = (heads(&r, "q", 2, 3), heads(&r, "v", 4, 5));
        let g = heads(&r, "g", 1, 3);
        let refused = |result: Result<ValueId>, needle: &str| {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(needle), "{message}");
        };
        let linear = ScanKind::Linear { scale: 1.0 };
        refused(r.scan("y", linear, false, &[q, q, v, g]), "the inputs of `linear_attention`");
        refused(r.scan("y", linear, false, &[q, v, v, g]), "queries and keys of one shape");
        refused(r.scan("y", ScanKind::Wkv7, false, &[q, q, v, g, g, g]), "the inputs of `wkv7`");
        let scale = ScanKind::Linear { scale: f32::NAN };
        let gates = heads(&r, "gates", 4, 1);
        refused(r.scan("y", scale, false, &[q, q, v, gates]), "sound parameters");
        let [a, d] = ["a", "d"].map(|name| weight(&r, name, 1, 3));
        refused(r.scan("y", ScanKind::Ssd { a, d }, false, &[q, q, v, gates]), "4 numbers");
        let taps = ConvWeights { taps: weight(&r, "taps", 5, 4), bias: None };
        refused(r.causal_conv("c", q, taps, None), "taps of 6 channels");
        let taps = ConvWeights { taps: weight(&r, "fitting taps", 6, 4), bias: None };
        refused(r.spaced_conv("c", q, taps, 0, None), "1 to 64 rows");
        let rows = r.select_rows("rows", q).unwrap();
        refused(r.row_before("before", rows), "all rows");
    }
}
