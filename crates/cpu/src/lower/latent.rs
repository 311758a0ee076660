//! Latent attention: takes in the slices of its inputs and the norm of the latents.

use program::{Error, LatentAttention, Node, Norm, Op, Result, ValueId};

use super::Lowering;
use crate::mla::MlaDims;
use crate::plan::{
    AttentionPhase, Cached, ExpandPhase, HeadColumns, LatentInputs, LatentPhase, NewRows, Operand,
    Phase,
};

/// Which of the op's inputs is the latent.
const LATENT: usize = 2;

impl Lowering<'_> {
    /// The phases of the latent attention at `index`.
    pub(super) fn latent(&mut self, index: usize) -> Result<()> {
        let program = self.program;
        let node = &program.nodes[index];
        let Op::LatentAttention(LatentAttention { cache, rope, up, score, select }) = &node.op
        else {
            unreachable!("the caller found a latent attention");
        };
        let chosen = self.chosen(*select, &node.inputs);
        let (norm, c) = match self.norm_of_latent(node) {
            Some((norm, c)) => (Some(norm), c),
            None => (None, node.inputs[LATENT]),
        };
        let out = self.operand(node.output);
        let dims = MlaDims::of(program, node);
        let (n_heads, rank) = (dims.n_heads, dims.rank);
        let inputs = LatentInputs {
            cache: *cache,
            rope: rope.as_ref().map(|rope| self.rope(rope)),
            up: *up,
            dims,
            q_nope: self.part(node.inputs[0]),
            q_pe: self.part(node.inputs[1]),
            c: self.part(c),
            norm,
            k_pe: self.part(node.inputs[3]),
        };
        let place = cache.0 as usize;
        if !self.form.is_expanded() {
            self.caches[place] = Some(Cached::Latent { rank, rope_dim: dims.rope_dim });
            let phase = LatentPhase { inputs, score: score.clone(), chosen, out };
            if chosen.is_some() && !phase.elides() {
                return Err(Error::Unsupported(
                    "latent attention that selects what it reads, by other scores than products"
                        .into(),
                ));
            }
            self.phases.push(Phase::Latent(phase));
            return Ok(());
        }
        if chosen.is_some() {
            return Err(Error::Unsupported(
                "latent attention that selects what it reads, where keys and values of all heads are cached".into(),
            ));
        }
        let (keys, values) = (n_heads * dims.key_dim(), out.cols);
        let [rows, q, k, v] = [rank + dims.rope_dim, keys, keys, values].map(|cols| Operand {
            value: self.fresh(),
            rows: out.rows,
            cols,
        });
        self.phases.push(Phase::Expand(ExpandPhase { inputs, rows, q, k, v }));
        let (cache, score, new) = (*cache, score.clone(), Some(NewRows { k, v }));
        let attention =
            AttentionPhase { cache, rope: None, norm: None, score, group: 1, q, new, chosen, out };
        self.caches[place] = Some(Cached::Heads {
            n_kv_heads: n_heads,
            key_dim: dims.key_dim(),
            value_dim: dims.value_dim,
            window: None,
            tile_rows: attention.tile_rows(),
            n_heads,
        });
        self.phases.push(Phase::Attention(attention));
        Ok(())
    }

    /// A value that the program does not have.
    fn fresh(&mut self) -> ValueId {
        self.n_values += 1;
        ValueId(self.n_values as u32 - 1)
    }

    /// The norm that makes the op's latent, if nothing else reads it, and what it norms.
    fn norm_of_latent(&self, node: &Node) -> Option<(Norm, ValueId)> {
        let writer = self.writer(node.inputs[LATENT])?;
        match writer.op {
            Op::Norm(norm) if self.is_norm_of_latent(writer) => Some((norm, writer.inputs[0])),
            _ => None,
        }
    }

    /// Whether only latent attention reads this norm, and as the latent.
    pub(super) fn is_norm_of_latent(&self, node: &Node) -> bool {
        let shape = self.program.value(node.output).shape;
        let latent = |reader: &Node| {
            let here = |i: usize| self.uses.root(reader.inputs[i]) == node.output;
            matches!(reader.op, Op::LatentAttention(_)) && (0..4).all(|i| here(i) == (i == LATENT))
        };
        shape.groups == 1
            && matches!(node.op, Op::Norm(_))
            && self.uses.feeds_only(node.output, |reader| latent(&self.program.nodes[reader]))
    }

    /// Whether only latent attention reads this slice, directly or through the norm it takes in: then it reads the
    /// slice's input instead.
    pub(super) fn is_slice_of_latent(&self, node: &Node) -> bool {
        let shape = self.program.value(node.output).shape;
        let taken = |reader: &Node| match reader.op {
            Op::LatentAttention(_) => reader.inputs.iter().all(|&id| {
                self.uses.root(id) != node.output || self.program.value(id).shape == shape
            }),
            Op::Norm(_) => {
                self.program.value(reader.inputs[0]).shape == shape
                    && self.is_norm_of_latent(reader)
            }
            _ => false,
        };
        matches!(node.op, Op::Slice { .. })
            && self.uses.feeds_only(node.output, |reader| taken(&self.program.nodes[reader]))
    }

    /// Where an input is: in what it is a slice of, if the slice is taken in.
    fn part(&self, id: ValueId) -> HeadColumns {
        match self.writer(id) {
            Some(node @ Node { op: Op::Slice { start, .. }, .. })
                if self.is_slice_of_latent(node) =>
            {
                let step = self.program.value(node.inputs[0]).shape.dim;
                HeadColumns { operand: self.operand(node.inputs[0]), start: *start, step }
            }
            _ => {
                let step = self.program.value(id).shape.dim;
                HeadColumns { operand: self.operand(id), start: 0, step }
            }
        }
    }
}
