//! Recording of latent attention.

use super::Recorder;
use crate::{CacheKind, LatentAttention, LatentUp, Op, Result, Rows, Shape, ValueId};

impl Recorder {
    /// Rotate q_pe and k_pe, append `[c | k_pe]` to the cache, attend: `[Tokens, H * dv]`. The inputs are q_nope
    /// `[Tokens, H, dn]`, q_pe `[Tokens, H, dr]`, c `[Tokens, 1, r]` and k_pe `[Tokens, 1, dr]`, and what an indexer chose
    /// where few positions are read.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if heads and widths do not fit the cache or the
    /// weights, the score's parameters are no sound numbers, or the last input is no such choice.
    pub fn latent_attention(
        &self,
        name: &str,
        at: LatentAttention,
        inputs: impl AsRef<[ValueId]>,
    ) -> Result<ValueId> {
        let inputs = inputs.as_ref();
        let of_heads = self.but_selection(name, at.select, inputs, 1)?;
        let kind = self.state.borrow().program.cache(at.cache).kind;
        let CacheKind::Latent { rank, rope_dim } = kind else {
            return Err(self.operand(name, "a cache of latents".into(), format!("{kind:?}")));
        };
        let shapes: Vec<Shape> = of_heads.iter().map(|id| self.shape(*id)).collect();
        let [q_nope, q_pe, c, k_pe] = shapes[..] else {
            let expected = "q_nope, q_pe, c and k_pe".into();
            return Err(self.operand(name, expected, format!("{shapes:?}")));
        };
        let fits = [q_nope, q_pe, c, k_pe].iter().all(|shape| shape.rows == Rows::Tokens)
            && q_nope.groups == q_pe.groups
            && (c.groups, k_pe.groups) == (1, 1)
            && q_pe.dim == k_pe.dim
            && at.rope.as_ref().is_none_or(|rope| rope.dims == k_pe.dim)
            && k_pe.dim.is_multiple_of(2)
            && (rank, rope_dim) == (c.dim, k_pe.dim);
        if !fits {
            let expected = format!("heads that fit a cache of {rank} + {rope_dim}");
            let found = format!("q_nope {q_nope:?}, q_pe {q_pe:?}, c {c:?}, k_pe {k_pe:?}");
            return Err(self.operand(name, expected, found));
        }
        let Some(value_dim) = self.value_dim(at.up, q_nope, c.dim) else {
            let expected = format!(
                "weights of {} heads, keys of {}, rank {}",
                q_nope.groups, q_nope.dim, c.dim
            );
            let of = |id| (self.spec(id).rows, self.spec(id).cols);
            let found = match at.up {
                LatentUp::Split { k_b, v_b } => format!("{:?} and {:?}", of(k_b), of(v_b)),
                LatentUp::Joint { kv_b } => format!("{:?}", of(kv_b)),
            };
            return Err(self.operand(name, expected, found));
        };
        self.check_score(name, &at.score, q_nope.groups)?;
        let shape = Shape { rows: q_nope.rows, groups: 1, dim: q_nope.groups * value_dim };
        self.push(name, Op::LatentAttention(at), inputs, shape)
    }

    /// Width of one value, if the weights fit heads like these and latents of `rank`.
    fn value_dim(
        &self,
        up: LatentUp,
        Shape { groups: heads, dim, .. }: Shape,
        rank: usize,
    ) -> Option<usize> {
        let rows_per_head = |rows: usize| (rows.is_multiple_of(heads)).then(|| rows / heads);
        let value_dim = match up {
            LatentUp::Split { k_b, v_b } => {
                let (k, v) = (self.spec(k_b), self.spec(v_b));
                let fits = k.rows == heads * rank && k.cols == dim && v.cols == rank;
                rows_per_head(v.rows).filter(|_| fits)?
            }
            LatentUp::Joint { kv_b } => {
                let kv = self.spec(kv_b);
                rows_per_head(kv.rows).filter(|_| kv.cols == rank)?.checked_sub(dim)?
            }
        };
        (value_dim > 0).then_some(value_dim)
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{CacheSpec, Rope, RopePairs, RopeScaling, WeightId, WeightSpec};

    /// 2 heads, keys of 3 + 4, latents of 5 in a cache of `rank` + 4; `up` names its weights with the function it is given.
    fn record(
        rank: usize,
        up: impl Fn(&dyn Fn(usize, usize) -> WeightId) -> LatentUp,
    ) -> Result<Shape> {
        let r = Recorder::new();
        let weight = |rows, cols| {
            let name = format!("w{rows}x{cols}");
            r.weight(WeightSpec { name, ty: GgmlType::F32, rows, cols, start: 0 })
        };
        let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Latent { rank, rope_dim: 4 } });
        let q = r.view("q", r.embed(weight(9, 14))?, 2)?;
        let kv = r.embed(weight(9, 9))?;
        let inputs = [
            r.slice("q_nope", q, 0, 3)?,
            r.slice("q_pe", q, 3, 4)?,
            r.slice("c", kv, 0, 5)?,
            r.slice("k_pe", kv, 5, 4)?,
        ];
        let rope = Rope {
            pairs: RopePairs::Interleaved,
            dims: 4,
            theta: 1e4,
            scaling: RopeScaling::None,
            factors: None,
        };
        let at = LatentAttention::causal(cache, Some(rope), up(&weight), 1.0);
        Ok(r.shape(r.latent_attention("attn", at, inputs)?))
    }

    #[test]
    fn both_kinds_of_weights_give_values_of_their_width() {
        let want = Shape { rows: Rows::Tokens, groups: 1, dim: 2 * 6 };
        let split = record(5, |w| LatentUp::Split { k_b: w(10, 3), v_b: w(12, 5) });
        assert_eq!(split.unwrap(), want);
        assert_eq!(record(5, |w| LatentUp::Joint { kv_b: w(18, 5) }).unwrap(), want);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |shape: Result<Shape>, needle: &str| {
            let message = shape.unwrap_err().to_string();
            assert!(
                message.starts_with("attn: expected ") && message.contains(needle),
                "{message}"
            );
        };
        refused(record(4, |w| LatentUp::Joint { kv_b: w(18, 5) }), "a cache of 4 + 4");
        refused(record(5, |w| LatentUp::Joint { kv_b: w(6, 5) }), "found (6, 5)");
        refused(record(5, |w| LatentUp::Joint { kv_b: w(19, 5) }), "found (19, 5)");
        refused(record(5, |w| LatentUp::Joint { kv_b: w(18, 4) }), "keys of 3, rank 5");
        let split = record(5, |w| LatentUp::Split { k_b: w(6, 5), v_b: w(12, 5) });
        refused(split, "found (6, 5) and (12, 5)");
        refused(record(5, |w| LatentUp::Split { k_b: w(10, 3), v_b: w(13, 5) }), "(13, 5)");
    }
}
