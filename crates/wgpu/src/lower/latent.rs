//! Attention over latents in its absorbed form: queries are brought to the latents, and what heads find of these becomes
//! values in the end. `program::mla` has the algebra.

use program::{Error, LatentAttention, LatentUp, MlaDims, Node, Result, RopePairs, Rows, WeightId};

use super::{Lowering, MOST_HEAD};
use crate::caches::latent_room;
use crate::formats::CHUNK;
use crate::kernels::{Finish, element};
use crate::plan::{
    AttentionWork, ElementWork, GpuWork, LatentParts, PiecesWork, Place, RowOrder, TurnedWork,
};

impl Lowering<'_> {
    pub(super) fn latent_attention(&mut self, node: &Node, at: &LatentAttention) -> Result<()> {
        let dims = MlaDims::of(self.program, node);
        let room = latent_room(dims.rank);
        if room + dims.rope_dim > MOST_HEAD {
            return Err(Error::Unsupported(format!(
                "latents of {} and {} numbers on a GPU: at most {MOST_HEAD}",
                dims.rank, dims.rope_dim
            )));
        }
        let [q_nope, q_pe] = [(0, dims.nope_dim), (1, dims.rope_dim)].map(|(i, dim)| {
            let root = self.uses.root(node.inputs[i]);
            let slice = self.fusions.in_place(self.uses.writer(root));
            (self.place(root), slice.map_or(dim, |slice| slice.pitch))
        });
        let [c, k_pe] = [2, 3].map(|i| self.place(node.inputs[i]));
        let q = self.new_buffer(Rows::Tokens, dims.n_heads * room);
        self.absorbed(at.up, &dims, q_nope, q);
        let found = self.new_buffer(Rows::Tokens, dims.n_heads * room);
        let rope = at.rope.as_ref();
        let work = AttentionWork {
            cache: at.cache.0 as usize,
            n_heads: dims.n_heads,
            n_kv_heads: 1,
            key_dim: room + dims.rope_dim,
            value_dim: room,
            q,
            latents: Some(LatentParts { q_pe: q_pe.0, pe_pitch: q_pe.1, rank: dims.rank }),
            kv: Some([c, k_pe]),
            rotation: rope.map(|rope| self.rotation(rope, 0)),
            interleaved: rope.is_some_and(|rope| rope.pairs == RopePairs::Interleaved),
            rotated: dims.rope_dim,
            temperature: self.temperature(&at.score),
            norms: [None; 4],
            slopes: self.slopes(&at.score, dims.n_heads),
            sinks: at.score.sinks.map(|id| self.weight_vector(id)),
            score: at.score.clone(),
            chosen: self.chosen(node, at.select),
            out: found,
        };
        self.plan.works.push(GpuWork::Attention(Box::new(work)));
        let (weight, each, skipped) = match at.up {
            LatentUp::Split { v_b, .. } => (v_b, dims.value_dim, 0),
            LatentUp::Joint { kv_b } => (kv_b, dims.nope_dim + dims.value_dim, dims.nope_dim),
        };
        let out = self.output(node.output);
        let rows = [each, skipped, dims.value_dim];
        self.by_head(weight, rows, dims.n_heads, [(found, room), (out, dims.value_dim)]);
        Ok(())
    }

    /// Queries brought to the latents; theirs lie at a pitch from head to head.
    fn absorbed(
        &mut self,
        up: LatentUp,
        dims: &MlaDims,
        (q_nope, q_pitch): (Place, usize),
        q: Place,
    ) {
        let MlaDims { n_heads, rank, nope_dim, value_dim, .. } = *dims;
        let room = latent_room(rank);
        match up {
            LatentUp::Split { k_b, .. } => {
                // the numbers of a head begin where kernels can read, and fill whole chunks
                let fits = nope_dim.is_multiple_of(CHUNK)
                    && [q_nope.offset, q_pitch].iter().all(|n| n.is_multiple_of(4));
                let (x, pitch) = if fits {
                    (q_nope, q_pitch)
                } else {
                    let pitch = nope_dim.next_multiple_of(CHUNK);
                    let spread = self.new_buffer(Rows::Tokens, n_heads * pitch);
                    self.plan.works.push(GpuWork::Elements(ElementWork {
                        value: element::SPREAD,
                        finish: Finish::Plain,
                        a: q_nope,
                        b: None,
                        out: spread,
                        cols: n_heads * pitch,
                        sizes: [nope_dim, pitch, q_pitch],
                        vector: None,
                        factor: 0.0,
                    }));
                    (spread, pitch)
                };
                self.by_head(k_b, [rank, 0, rank], n_heads, [(x, pitch), (q, room)]);
            }
            LatentUp::Joint { kv_b } => {
                let matrix = self.matrix_of(&[kv_b], RowOrder::AsTheyAre);
                self.plan.works.push(GpuWork::Turned(TurnedWork {
                    matrix,
                    each: nope_dim + value_dim,
                    taken: nope_dim,
                    slots: n_heads,
                    x: q_nope,
                    x_pitch: q_pitch,
                    out: q,
                    out_pitch: room,
                }));
            }
        }
    }

    /// Each head's numbers times rows of its own: of `each` in a head those behind the skipped ones, as many as are taken.
    /// Input and output have their numbers from a head to the next one.
    fn by_head(
        &mut self,
        weight: WeightId,
        [each, skipped, taken]: [usize; 3],
        slots: usize,
        [(x, x_pitch), (out, out_pitch)]: [(Place, usize); 2],
    ) {
        let matrix = self.matrix_of(&[weight], RowOrder::AsTheyAre);
        self.plan.works.push(GpuWork::Pieces(PiecesWork {
            matrix,
            each,
            skipped,
            taken,
            slots,
            routes: None,
            bias: None,
            finish: Finish::Plain,
            x,
            x_pitch,
            out,
            out_pitch,
            many: None,
        }));
    }
}
