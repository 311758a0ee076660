//! Latent attention as plain attention: every head's keys and values are made in full, and those are cached.

use super::attention::KvWidths;
use super::ops::{Heads, Rotation, dot};

/// The weights of [`crate::LatentUp`].
pub(super) enum Up<'a> {
    Split { k_b: &'a [f32], v_b: &'a [f32] },
    Joint { kv_b: &'a [f32] },
}

/// The operands of one node.
pub(super) struct Latent<'a> {
    /// q_nope, q_pe, c, k_pe.
    pub(super) inputs: [Heads<'a>; 4],
    pub(super) rotation: Option<Rotation>,
    pub(super) up: Up<'a>,
    pub(super) value_dim: usize,
}

impl Latent<'_> {
    /// What is cached: expanded keys and values.
    pub(super) fn expanded(&self) -> KvWidths {
        let [q_nope, q_pe, ..] = &self.inputs;
        KvWidths {
            n_kv_heads: q_nope.groups,
            key_dim: q_nope.dim + q_pe.dim,
            value_dim: self.value_dim,
        }
    }

    fn turn(&self, row: &mut [f32], dim: usize, position: usize) {
        if let Some(rotation) = &self.rotation {
            rotation.turn(row, dim, position);
        }
    }

    /// Row `i` as queries: `[H, dn + dr]`.
    pub(super) fn query(&self, i: usize, position: usize) -> Vec<f32> {
        let [q_nope, q_pe, ..] = &self.inputs;
        let mut turned = q_pe.x[q_pe.row(i)].to_vec();
        self.turn(&mut turned, q_pe.dim, position);
        let nope = q_nope.x[q_nope.row(i)].chunks_exact(q_nope.dim);
        nope.zip(turned.chunks_exact(q_pe.dim)).flat_map(|(nope, pe)| [nope, pe].concat()).collect()
    }

    /// Row `i` as keys `[H, dn + dr]` and values `[H, dv]`.
    pub(super) fn key_value(&self, i: usize, position: usize) -> (Vec<f32>, Vec<f32>) {
        let [q_nope, _, c, k_pe] = &self.inputs;
        let (heads, key_dim) = (q_nope.groups, q_nope.dim);
        let mut turned = k_pe.x[k_pe.row(i)].to_vec();
        self.turn(&mut turned, k_pe.dim, position);
        let c = &c.x[c.row(i)];
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for head in 0..heads {
            let (k, v) = self.up.head(head, c, [key_dim, self.value_dim]);
            keys.extend(k.iter().chain(&turned));
            values.extend(v);
        }
        (keys, values)
    }
}

impl Up<'_> {
    /// Key (without its rotated part) and value that one head makes of `c`.
    fn head(
        &self,
        head: usize,
        c: &[f32],
        [key_dim, value_dim]: [usize; 2],
    ) -> (Vec<f32>, Vec<f32>) {
        let rank = c.len();
        let product = |rows: &[f32]| -> Vec<f32> {
            rows.chunks_exact(rank).map(|row| dot(row, c) as f32).collect()
        };
        match self {
            Up::Split { k_b, v_b } => {
                let k_b = &k_b[head * rank * key_dim..][..rank * key_dim];
                let mut key = vec![0.0; key_dim];
                for (&c, row) in c.iter().zip(k_b.chunks_exact(key_dim)) {
                    for (sum, &w) in key.iter_mut().zip(row) {
                        *sum += f64::from(w) * f64::from(c);
                    }
                }
                let v_b = &v_b[head * value_dim * rank..][..value_dim * rank];
                (key.iter().map(|&x| x as f32).collect(), product(v_b))
            }
            Up::Joint { kv_b } => {
                let both = key_dim + value_dim;
                let rows = &kv_b[head * both * rank..][..both * rank];
                let (k, v) = rows.split_at(key_dim * rank);
                (product(k), product(v))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rope, RopePairs, RopeScaling};

    #[test]
    fn both_kinds_of_weights_make_the_same_keys_and_values() {
        // 2 heads, keys of 2, values of 1, latents of 3.
        let w = |head: usize, row: usize, i: usize| (100 * head + 10 * row + i) as f32;
        let mut kv_b = Vec::new();
        let (mut k_b, mut v_b) = (Vec::new(), Vec::new());
        for head in 0..2 {
            (0..3).for_each(|row| kv_b.extend((0..3).map(|i| w(head, row, i))));
            (0..3).for_each(|i| k_b.extend((0..2).map(|row| w(head, row, i))));
            v_b.extend((0..3).map(|i| w(head, 2, i)));
        }
        let c = [1.0, 10.0, -1.0];
        for head in 0..2 {
            let joint = Up::Joint { kv_b: &kv_b }.head(head, &c, [2, 1]);
            assert_eq!(joint, Up::Split { k_b: &k_b, v_b: &v_b }.head(head, &c, [2, 1]));
            let row = |row| w(head, row, 0) + 10.0 * w(head, row, 1) - w(head, row, 2);
            assert_eq!(joint, (vec![row(0), row(1)], vec![row(2)]));
        }
    }

    #[test]
    fn heads_share_one_rotated_part_of_the_key() {
        let rope = Rope {
            pairs: RopePairs::Interleaved,
            dims: 2,
            theta: 1e4,
            scaling: RopeScaling::None,
            factors: None,
        };
        let heads = |x, groups, dim| Heads { x, groups, dim };
        let latent = Latent {
            inputs: [
                heads(&[5.0, 6.0], 2, 1),
                heads(&[1.0, 0.0, 0.0, 1.0], 2, 2),
                heads(&[2.0], 1, 1),
                heads(&[1.0, 0.0], 1, 2),
            ],
            rotation: Some(Rotation::new(&rope, None)),
            up: Up::Joint { kv_b: &[1.0, 2.0, 3.0, 4.0] },
            value_dim: 1,
        };
        let (sin, cos) = (3f64.sin() as f32, 3f64.cos() as f32);
        assert_eq!(latent.query(0, 3), [5.0, cos, sin, 6.0, -sin, cos]);
        let (k, v) = latent.key_value(0, 3);
        assert_eq!(k, [2.0, cos, sin, 6.0, cos, sin]);
        assert_eq!(v, [4.0, 8.0]);
        assert_eq!(latent.expanded(), KvWidths { n_kv_heads: 2, key_dim: 3, value_dim: 1 });
    }
}
