//! Recording of attention.

use super::Recorder;
use crate::{
    Attention, CacheId, CacheKind, Mask, Op, Result, Rows, Score, Shape, ValueId, WeightId,
};

impl Recorder {
    /// Rotate, append, attend: `[Tokens, n_heads * value_dim]`. The inputs are q, k and v, or q alone for a layer that
    /// reads what an earlier one appended, and what an indexer chose where few positions are read.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if heads and widths do not fit the cache, if not exactly one layer
    /// appends to it, that one first, if the score's parameters are no sound numbers, or the last input is no such choice.
    pub fn attention(&self, name: &str, at: Attention, inputs: &[ValueId]) -> Result<ValueId> {
        let kind = self.state.borrow().program.cache(at.cache).kind;
        let CacheKind::Heads { n_kv_heads, key_dim, value_dim, window } = kind else {
            return Err(self.operand(name, "a cache of heads".into(), format!("{kind:?}")));
        };
        let of_heads = self.but_selection(name, at.select, inputs, n_kv_heads)?;
        let shapes: Vec<Shape> = of_heads.iter().map(|&id| self.shape(id)).collect();
        let heads = |shape: &Shape, dim: usize| {
            (shape.groups, shape.dim, shape.rows) == (n_kv_heads, dim, Rows::Tokens)
        };
        let inputs_fit = match (&shapes[..], at.appends) {
            ([_, k, v], true) => heads(k, key_dim) && heads(v, value_dim),
            ([_], false) => true,
            _ => false,
        };
        let query_fits = shapes.first().is_some_and(|q| {
            q.dim == key_dim && q.rows == Rows::Tokens && q.groups.is_multiple_of(n_kv_heads.max(1))
        });
        let rope = |dims: usize| dims <= key_dim && dims.is_multiple_of(2);
        if !(inputs_fit && query_fits && at.rope.as_ref().is_none_or(|r| rope(r.dims))) {
            let inputs = if at.appends { "q, k and v" } else { "q alone" };
            let expected = format!("{inputs} that fit a cache of {n_kv_heads} x {key_dim}");
            return Err(self.operand(name, expected, format!("{shapes:?}")));
        }
        if self.appended(at.cache) == at.appends {
            let expected = if at.appends { "a new cache" } else { "a cache with rows" };
            let found = if at.appends { "one that is appended to" } else { "an empty one" };
            return Err(self.operand(name, expected.into(), found.into()));
        }
        let seen = match at.score.mask {
            Mask::Window(n) | Mask::Chunk(n) => n as usize,
            Mask::Causal | Mask::Full | Mask::Around(_) => usize::MAX,
        };
        if let Some(kept) = window.filter(|&kept| kept < seen) {
            let expected = format!("a mask within the {kept} positions that are kept");
            return Err(self.operand(name, expected, format!("{:?}", at.score.mask)));
        }
        if let Some(norm) = at.norm {
            let vector = |id: Option<WeightId>| {
                id.is_none_or(|id| (self.spec(id).rows, self.spec(id).cols) == (1, key_dim))
            };
            let sound = norm.eps.is_finite() && norm.eps > 0.0;
            if !(vector(norm.q) && vector(norm.k) && sound) {
                let expected = format!("norms of {key_dim}, eps finite and > 0");
                return Err(self.operand(name, expected, format!("{norm:?}")));
            }
        }
        let q = shapes[0];
        self.check_score(name, &at.score, q.groups)?;
        let shape = Shape { rows: q.rows, groups: 1, dim: q.groups * value_dim };
        self.push(name, Op::Attention(at), inputs, shape)
    }

    /// Whether a recorded layer appends to this cache.
    fn appended(&self, cache: CacheId) -> bool {
        self.state.borrow().appended.contains(&cache)
    }

    /// Refuse a score that cannot be computed.
    pub(super) fn check_score(&self, name: &str, score: &Score, n_heads: usize) -> Result<()> {
        let above_zero = |x: f32| x.is_finite() && x > 0.0;
        let refuse =
            |expected: &str, found: String| Err(self.operand(name, expected.into(), found));
        if !score.scale.is_finite() {
            return refuse("a finite scale", score.scale.to_string());
        }
        if matches!(score.mask, Mask::Window(0) | Mask::Chunk(0)) {
            return refuse("a mask that lets a query see itself", format!("{:?}", score.mask));
        }
        if let Some(softcap) = score.softcap.filter(|&x| !above_zero(x)) {
            return refuse("a softcap finite and > 0", softcap.to_string());
        }
        if let Some(alibi) = score.alibi.filter(|&x| !above_zero(x)) {
            return refuse("an ALiBi exponent finite and > 0", alibi.to_string());
        }
        if let Some(temperature) = score.temperature {
            let sound = temperature.beta.is_finite()
                && above_zero(temperature.floor)
                && temperature.offset.is_finite()
                && temperature.offset >= 0.0;
            if !sound {
                return refuse("a temperature of sound numbers", format!("{temperature:?}"));
            }
        }
        if let Some(sinks) = score.sinks {
            let found = self.spec(sinks).cols;
            if (self.spec(sinks).rows, found) != (1, n_heads) {
                return refuse(&format!("a sink for each of {n_heads} heads"), found.to_string());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{CacheSpec, Temperature, WeightSpec};

    /// 4 query heads over 2 of 6 wide, then a layer of 2 query heads that reads the same cache.
    fn record(change: impl Fn(&Recorder, &mut [Attention; 2])) -> Result<Shape> {
        let r = Recorder::new();
        let rows = |n: usize| {
            let name = format!("w{n}");
            let table =
                r.weight(WeightSpec { name, ty: GgmlType::F32, rows: 9, cols: n * 6, start: 0 });
            r.view("heads", r.embed(table)?, n)
        };
        let (q, kv) = (rows(4)?, rows(2)?);
        let cache = r.cache(CacheSpec {
            layer: 0,
            kind: CacheKind::Heads { n_kv_heads: 2, key_dim: 6, value_dim: 6, window: Some(9) },
        });
        let score = Score { mask: Mask::Window(9), ..Score::causal(1.0) };
        let plain = Attention { score, ..Attention::causal(cache, None, 1.0) };
        let mut at = [plain.clone(), Attention { appends: false, ..plain }];
        change(&r, &mut at);
        let inputs = |at: &Attention, q| if at.appends { vec![q, kv, kv] } else { vec![q] };
        let [first, second] = at;
        let inputs = [inputs(&first, q), inputs(&second, kv)];
        r.attention("first", first, &inputs[0])?;
        Ok(r.shape(r.attention("second", second, &inputs[1])?))
    }

    #[test]
    fn a_layer_may_read_what_another_appended() {
        let want = Shape { rows: Rows::Tokens, groups: 1, dim: 12 };
        assert_eq!(record(|_, _| ()).unwrap(), want);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |change: &dyn Fn(&Recorder, &mut [Attention; 2]), needle: &str| {
            let message = record(change).unwrap_err().to_string();
            assert!(message.contains(needle), "{message}");
        };
        refused(
            &|_, at| at[0].appends = false,
            "first: expected a cache with rows, found an empty",
        );
        refused(&|_, at| at[1].appends = true, "second: expected a new cache");
        refused(&|_, at| at[1].score.scale = f32::NAN, "second: expected a finite scale");
        refused(&|_, at| at[0].score.mask = Mask::Window(0), "found Window(0)");
        refused(&|_, at| at[0].score.mask = Mask::Chunk(0), "found Chunk(0)");
        refused(&|_, at| at[1].score.mask = Mask::Window(10), "the 9 positions that are kept");
        refused(&|_, at| at[0].score.softcap = Some(0.0), "a softcap finite and > 0, found 0");
        refused(&|_, at| at[0].score.alibi = Some(-1.0), "found -1");
        let frozen = Temperature { beta: 0.1, floor: 0.0, offset: 0.0 };
        refused(&|_, at| at[0].score.temperature = Some(frozen), "a temperature of sound numbers");
        let sinks = |r: &Recorder, at: &mut [Attention; 2]| {
            let spec =
                WeightSpec { name: "sinks".into(), ty: GgmlType::F32, rows: 1, cols: 4, start: 0 };
            let sinks = Some(r.weight(spec));
            (at[0].score.sinks, at[1].score.sinks) = (sinks, sinks);
        };
        refused(&sinks, "second: expected a sink for each of 2 heads, found 4");
    }
}
