//! Attention over latents in its absorbed form: queries are brought to the latents, and what heads find of these becomes
//! values in the end. `program::mla` has the algebra.

use program::{Error, LatentAttention, LatentUp, MlaDims, Node, Result, RopePairs, Rows, WeightId};

use super::{Lowering, MOST_HEAD, index_of};
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
        let [q_nope, q_pe, c, k_pe] = [0, 1, 2, 3].map(|i| self.place(node.inputs[i]));
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
            latents: Some(LatentParts { q_pe, rank: dims.rank }),
            kv: Some([c, k_pe]),
            rotation: rope.map(|rope| index_of(&mut self.plan.rotations, rope)),
            interleaved: rope.is_some_and(|rope| rope.pairs == RopePairs::Interleaved),
            rotated: dims.rope_dim,
            temperature: self.temperature(&at.score),
            norms: [None; 4],
            slopes: self.slopes(&at.score, dims.n_heads),
            sinks: at.score.sinks.map(|id| self.weight_vector(id)),
            score: at.score.clone(),
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

    /// Queries brought to the latents.
    fn absorbed(&mut self, up: LatentUp, dims: &MlaDims, q_nope: Place, q: Place) {
        let MlaDims { n_heads, rank, nope_dim, value_dim, .. } = *dims;
        let room = latent_room(rank);
        match up {
            LatentUp::Split { k_b, .. } => {
                // the numbers of a head begin where kernels can read
                let pitch = nope_dim.next_multiple_of(CHUNK);
                let x = if pitch == nope_dim {
                    q_nope
                } else {
                    let spread = self.new_buffer(Rows::Tokens, n_heads * pitch);
                    self.plan.works.push(GpuWork::Elements(ElementWork {
                        value: element::SPREAD,
                        finish: Finish::Plain,
                        a: q_nope,
                        b: None,
                        out: spread,
                        cols: n_heads * pitch,
                        sizes: [nope_dim, pitch, 0],
                        vector: None,
                        factor: 0.0,
                    }));
                    spread
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
                    x_pitch: nope_dim,
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
