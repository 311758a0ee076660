//! Works of indexers, and what attention reads of what they chose.

use program::{CacheKind, Error, IndexScore, Indexer, Node, Result, RopePairs, Selection};

use super::{Lowering, MOST_HEAD};
use crate::plan::{ChosenUnits, GpuWork, IndexWork};

impl Lowering<'_> {
    pub(super) fn indexer(&mut self, node: &Node, at: &Indexer) -> Result<()> {
        let CacheKind::Keys { dim } = self.program.cache(at.cache).kind else {
            unreachable!("the recorder gave it a cache of keys")
        };
        if dim > MOST_HEAD {
            return Err(Error::Unsupported(format!(
                "indexers with keys of {dim} numbers on a GPU: at most {MOST_HEAD}"
            )));
        }
        let n_heads = self.program.value(node.inputs[0]).shape.groups;
        let weights = (at.score == IndexScore::Weighted).then(|| self.place(node.inputs[1]));
        let [q, k] = [0, node.inputs.len() - 1].map(|i| self.place(node.inputs[i]));
        let rope = at.rope.as_ref();
        let rotations = rope.map(|rope| {
            let back = self.rotation(rope, at.keys_back);
            [self.rotation(rope, 0), back]
        });
        let out = self.output(node.output);
        self.plan.works.push(GpuWork::Index(Box::new(IndexWork {
            at: at.clone(),
            n_heads,
            dim,
            q,
            k,
            weights,
            rotations,
            interleaved: rope.is_some_and(|rope| rope.pairs == RopePairs::Interleaved),
            rotated: rope.map_or(0, |rope| rope.dims),
            out,
        })));
        Ok(())
    }

    /// What the last input of attention says of the positions that it reads.
    pub(super) fn chosen(&mut self, node: &Node, select: Option<Selection>) -> Option<ChosenUnits> {
        let id = *node.inputs.last()?;
        select.map(|select| ChosenUnits {
            list: self.place(id),
            n_choices: self.program.value(id).shape.groups,
            select,
        })
    }
}
