//! Recording of indexers and of what reads by their choice.

use super::Recorder;
use crate::{
    CacheKind, IndexScore, Indexer, Op, Result, Rows, Selection, Shape, UnitScore, ValueId,
};

/// Positions and units are counted in f32: exactly up to here.
const MOST_UNITS: u32 = 1 << 24;

impl Recorder {
    /// Rotate q and k, append k, choose: `[Tokens, choices, n_units]`. The inputs are q `[Tokens, heads, dim]`, weights
    /// `[Tokens, heads]` for a score of such, and k `[Tokens, 1, dim]`.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if shapes do not fit each other or the cache, another node appends to that,
    /// or numbers are out of range.
    pub fn indexer(&self, name: &str, at: Indexer, inputs: &[ValueId]) -> Result<ValueId> {
        let kind = self.state.borrow().program.cache(at.cache).kind;
        let CacheKind::Keys { dim } = kind else {
            return Err(self.operand(name, "a cache of keys".into(), format!("{kind:?}")));
        };
        let shapes: Vec<Shape> = inputs.iter().map(|id| self.shape(*id)).collect();
        let choices = match (at.score, &shapes[..]) {
            (IndexScore::Weighted, [q, w, k]) if w.cols() == q.groups => Some((*q, *k, 1)),
            (IndexScore::PerHead, [q, k]) => Some((*q, *k, q.groups)),
            _ => None,
        };
        let all_rows = shapes.iter().all(|shape| shape.rows == Rows::Tokens);
        let fits = |(q, k, _): &(Shape, Shape, usize)| {
            all_rows && (q.dim, k.dim, k.groups) == (dim, dim, 1) && dim > 0
        };
        let Some((q, _, groups)) = choices.filter(fits) else {
            let expected = format!("queries, their weights and keys of {dim}");
            return Err(self.operand(name, expected, format!("{shapes:?}")));
        };
        let rotates = at.rope.as_ref().map_or(0, |rope| rope.dims);
        let within = at.rope_start.checked_add(rotates).is_some_and(|end| end <= dim);
        let scored = match at.unit_score {
            UnitScore::Greatest => at.n_last <= at.n_units,
            UnitScore::Last => at.n_last == 0,
            UnitScore::OfPool(len) => at.n_last == 0 && at.unit == 1 && len > 0,
        };
        let counts = at.unit > 0 && (1..=MOST_UNITS).contains(&at.n_units) && scored;
        if !(within && rotates.is_multiple_of(2) && counts) {
            let expected = format!("a rotation within {dim}, units, and no more last ones");
            return Err(self.operand(name, expected, format!("{at:?}")));
        }
        if self.state.borrow().appended.contains(&at.cache) {
            let found = "one that is appended to".into();
            return Err(self.operand(name, "a new cache".into(), found));
        }
        let shape = Shape { rows: q.rows, groups, dim: at.selection().n_units as usize };
        self.push(name, Op::Indexer(at), inputs, shape)
    }

    /// The inputs without the last one, where that is to be a choice: by one indexer for all of `n_kv_heads` or for each.
    pub(super) fn but_selection<'i>(
        &self,
        name: &str,
        select: Option<Selection>,
        inputs: &'i [ValueId],
        n_kv_heads: usize,
    ) -> Result<&'i [ValueId]> {
        let Some(select) = select else { return Ok(inputs) };
        let chosen = inputs.split_last().filter(|(id, _)| {
            let groups = self.shape(**id).groups;
            self.selection(**id) == Some(select) && [1, n_kv_heads].contains(&groups)
        });
        chosen.map(|(_, others)| others).ok_or_else(|| {
            let expected = format!("a choice of {select:?} for 1 or {n_kv_heads} heads");
            let last = inputs.last().map(|id| (self.selection(*id), self.shape(*id)));
            self.operand(name, expected, format!("{last:?}"))
        })
    }

    /// What an indexer chose, if this value is that.
    fn selection(&self, id: ValueId) -> Option<Selection> {
        let program = &self.state.borrow().program;
        let node = program.nodes.iter().rfind(|node| node.output == id)?;
        let Op::Indexer(at) = &node.op else { return None };
        Some(at.selection())
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{Attention, CacheSpec, WeightSpec};

    fn heads(r: &Recorder, groups: usize, dim: usize) -> ValueId {
        let name = format!("w{groups}x{dim}");
        let cols = groups * dim;
        let spec = WeightSpec { name, ty: GgmlType::F32, rows: 9, cols, start: 0 };
        r.view("heads", r.embed(r.weight(spec)).unwrap(), groups).unwrap()
    }

    fn indexer(r: &Recorder, score: IndexScore) -> Indexer {
        let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Keys { dim: 6 } });
        let unit_score = UnitScore::Greatest;
        Indexer {
            cache,
            rope: None,
            rope_start: 0,
            keys_back: 0,
            score,
            unit: 2,
            unit_score,
            n_units: 3,
            n_last: 1,
        }
    }

    #[test]
    fn choices_are_for_rows_or_for_heads() {
        let r = Recorder::new();
        let (q, w, k) = (heads(&r, 4, 6), heads(&r, 1, 4), heads(&r, 1, 6));
        let one = indexer(&r, IndexScore::Weighted);
        let one = r.indexer("one", one, &[q, w, k]).unwrap();
        assert_eq!(r.shape(one), Shape { rows: Rows::Tokens, groups: 1, dim: 3 });
        let each = indexer(&r, IndexScore::PerHead);
        let select = each.selection();
        let each = r.indexer("each", each, &[q, k]).unwrap();
        assert_eq!(r.shape(each), Shape { rows: Rows::Tokens, groups: 4, dim: 3 });
        // both are read by attention of as many key-value heads, and by no other
        let attend = |n_kv_heads: usize, chosen: ValueId| {
            let kind = CacheKind::Heads { n_kv_heads, key_dim: 6, value_dim: 6, window: None };
            let cache = r.cache(CacheSpec { layer: 0, kind });
            let at = Attention { select: Some(select), ..Attention::causal(cache, None, 1.0) };
            let kv = heads(&r, n_kv_heads, 6);
            r.attention("attn", at, &[heads(&r, 4, 6), kv, kv, chosen])
        };
        assert!(attend(4, each).is_ok() && attend(2, one).is_ok());
        let message = attend(2, each).unwrap_err().to_string();
        assert!(message.contains("for 1 or 2 heads"), "{message}");
        let message = attend(4, q).unwrap_err().to_string();
        assert!(message.contains("attn: expected a choice"), "{message}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |change: &dyn Fn(&mut Indexer), needle: &str| {
            let r = Recorder::new();
            let (q, k) = (heads(&r, 4, 6), heads(&r, 1, 6));
            let mut at = indexer(&r, IndexScore::PerHead);
            change(&mut at);
            let message = r.indexer("chosen", at, &[q, k]).unwrap_err().to_string();
            assert!(message.contains(needle), "{message}");
        };
        refused(&|at| at.score = IndexScore::Weighted, "queries, their weights and keys of 6");
        refused(&|at| at.unit = 0, "units");
        refused(&|at| at.n_units = 0, "units");
        refused(&|at| at.n_units = u32::MAX, "units");
        refused(&|at| at.n_last = 4, "no more last ones");
        refused(&|at| at.unit_score = UnitScore::Last, "no more last ones");
        refused(&|at| (at.unit_score, at.n_last) = (UnitScore::OfPool(2), 0), "units");
        refused(&|at| at.rope_start = 7, "a rotation within 6");
        let r = Recorder::new();
        let (q, k) = (heads(&r, 4, 6), heads(&r, 1, 6));
        let at = indexer(&r, IndexScore::PerHead);
        r.indexer("first", at.clone(), &[q, k]).unwrap();
        let message = r.indexer("second", at, &[q, k]).unwrap_err().to_string();
        assert!(message.contains("a new cache"), "{message}");
    }
}
