//! Lowering of indexers, and of what attention reads by their choice.

use kernels::attention::BLOCK;
use program::{Error, Indexer, Node, Result, Selection, UnitScore, ValueId};

use super::Lowering;
use crate::exec::MOST_INDEX_HEADS;
use crate::plan::{Cached, Chosen, IndexerPhase};

impl Lowering<'_> {
    /// The phase of an indexer, whose cache is noted.
    pub(super) fn indexer(&mut self, node: &Node, at: &Indexer) -> Result<IndexerPhase> {
        let rope = at.rope.as_ref().map(|rope| self.rope(rope));
        let key_rope = at.rope.as_ref().map(|rope| self.rope_back(rope, at.keys_back));
        let operands: Vec<_> = node.inputs.iter().map(|id| self.operand(*id)).collect();
        let (q, weights, k) = match operands[..] {
            [q, weights, k] => (q, Some(weights), k),
            [q, k] => (q, None, k),
            _ => unreachable!("the recorder gave an indexer its inputs"),
        };
        let (at, out) = (at.clone(), self.operand(node.output));
        let phase = IndexerPhase { at, rope, key_rope, q, weights, k, out };
        if phase.n_heads() > MOST_INDEX_HEADS {
            return Err(Error::Unsupported(format!(
                "an indexer of {} heads (1..{MOST_INDEX_HEADS})",
                phase.n_heads()
            )));
        }
        if let UnitScore::OfPool(len) = phase.at.unit_score
            && !BLOCK.is_multiple_of(len as usize)
        {
            let what = format!("an indexer of pools of {len} positions (divisors of {BLOCK})");
            return Err(Error::Unsupported(what));
        }
        self.caches[phase.at.cache.0 as usize] = Some(Cached::Keys { dim: phase.dim() });
        Ok(phase)
    }

    /// What an op reads by the choice that is its last input, if it selects.
    pub(super) fn chosen(&self, select: Option<Selection>, inputs: &[ValueId]) -> Option<Chosen> {
        let (select, units) = select.zip(inputs.last())?;
        Some(Chosen { select, units: self.operand(*units) })
    }
}
