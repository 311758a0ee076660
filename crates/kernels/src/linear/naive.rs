//! The obvious form of panel products: what the words in `format.rs` mean, and what every other kernel equals to the
//! bit.

use half::f16;

use super::float::Plain;
use super::format::{PanelFormat, Scales};
use super::{Job, PANEL_ROWS, pack};

/// One value per weight row.
type Lanes<T> = [T; PANEL_ROWS];

/// Multiplies panels of `P`.
pub(super) fn plain<P: Plain>(job: &mut Job<'_, '_>) {
    let x = job.f32();
    let panels = job.panels.chunks_exact(x.cols * PANEL_ROWS * P::BYTES);
    for (panel, tile) in panels.zip(job.tile.chunks_exact_mut(x.n * PANEL_ROWS)) {
        tile.fill(0.0);
        for (k, weights) in panel.chunks_exact(PANEL_ROWS * P::BYTES).enumerate() {
            let mut w = [0.0; PANEL_ROWS];
            for (w, bytes) in w.iter_mut().zip(weights.chunks_exact(P::BYTES)) {
                *w = P::value(bytes);
            }
            for (c, acc) in tile.as_chunks_mut::<PANEL_ROWS>().0.iter_mut().enumerate() {
                let x = x.row(c)[k];
                for (acc, w) in acc.iter_mut().zip(w) {
                    *acc = w.mul_add(x, *acc);
                }
            }
        }
    }
}

/// Multiplies panels of `F`.
pub(super) fn quantized<F: PanelFormat>(job: &mut Job<'_, '_>) {
    let x = job.q8();
    let panel_bytes = x.cols / F::BLOCK * F::BLOCK_BYTES;
    let tiles = job.tile.chunks_exact_mut(x.n * PANEL_ROWS);
    for (panel, tile) in job.panels.chunks_exact(panel_bytes).zip(tiles) {
        tile.fill(0.0);
        let panel = panel.chunks_exact(F::BLOCK_BYTES);
        for (b, block) in panel.enumerate() {
            let (header, groups) = block.split_at(F::SCALES.header());
            let mut sums = vec![[[0; PANEL_ROWS]; 2]; x.n];
            let mut scales = GroupScales::read::<F>(header, 0);
            for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
                let codes = pack::codes::<F>(group);
                scales = GroupScales::read::<F>(header, g);
                let at = b * F::GROUPS + g;
                for (c, sums) in sums.iter_mut().enumerate() {
                    let row = x.row(c);
                    let (a, of) = (&row.codes[at * 32..][..32], &row.sums[at * 2..][..2]);
                    let halves = [
                        dot(&codes[..4], &a[..16], F::ZERO * of[0]),
                        dot(&codes[4..], &a[16..], F::ZERO * of[1]),
                    ];
                    scales.count(halves, of, sums);
                }
            }
            for (c, (acc, sums)) in
                tile.as_chunks_mut::<PANEL_ROWS>().0.iter_mut().zip(&sums).enumerate()
            {
                scales.add(sums, x.row(c).scales[b * F::GROUPS], acc);
            }
        }
    }
}

/// `sum q * a - zero`, for 16 columns.
fn dot(codes: &[[u8; 64]], a: &[i8], zero: i32) -> Lanes<i32> {
    let mut out = [-zero; PANEL_ROWS];
    for (step, a) in codes.iter().zip(a.as_chunks::<4>().0) {
        for (out, q) in out.iter_mut().zip(step.as_chunks::<4>().0) {
            for (q, a) in q.iter().zip(a) {
                *out += i32::from(*q) * i32::from(*a);
            }
        }
    }
    out
}

/// The scales and minima of 32 columns.
pub(super) struct GroupScales {
    d: Lanes<f32>,
    /// Integer factors of the two halves.
    halves: [Lanes<i32>; 2],
    min: Option<(Lanes<f32>, [Lanes<i32>; 2])>,
}

impl GroupScales {
    pub(super) fn read<F: PanelFormat>(header: &[u8], g: usize) -> GroupScales {
        let half = |at: usize| -> Lanes<f32> {
            std::array::from_fn(|r| {
                f16::from_le_bytes([header[at + 2 * r], header[at + 2 * r + 1]]).to_f32()
            })
        };
        let small = |at: usize| -> Lanes<u8> {
            std::array::from_fn(|r| header[F::SCALES.small() + at * 16 + r])
        };
        let signed = |at: usize| small(at).map(|s| i32::from(s.cast_signed()));
        let one = [[1; PANEL_ROWS]; 2];
        let d = if F::BF16 {
            let bits = |r: usize| u16::from_le_bytes([header[2 * r], header[2 * r + 1]]);
            std::array::from_fn(|r| f32::from_bits(u32::from(bits(r)) << 16))
        } else {
            half(0)
        };
        match F::SCALES {
            Scales::Block | Scales::Super => GroupScales { d, halves: one, min: None },
            Scales::BlockMin => GroupScales { d, halves: one, min: Some((half(32), one)) },
            Scales::Groups => GroupScales { d, halves: [signed(g); 2], min: None },
            Scales::GroupsMin => {
                GroupScales { d, halves: [signed(g); 2], min: Some((half(32), [signed(8 + g); 2])) }
            }
            Scales::Halves => {
                GroupScales { d, halves: [signed(2 * g), signed(2 * g + 1)], min: None }
            }
            Scales::HalvesMin => {
                let low = [2 * g, 2 * g + 1].map(|h| small(h).map(|s| i32::from(s & 15)));
                let high = [2 * g, 2 * g + 1].map(|h| small(h).map(|s| i32::from(s >> 4)));
                GroupScales { d, halves: low, min: Some((half(32), high)) }
            }
        }
    }

    /// The weight of row `r` with the integer `value`, in the 16 columns `half` of the group.
    pub(super) fn weight(&self, r: usize, half: usize, value: i32) -> f32 {
        let w = self.d[r] * self.halves[half][r] as f32 * value as f32;
        match &self.min {
            Some((min, factors)) => w - min[r] * factors[half][r] as f32,
            None => w,
        }
    }

    /// Adds the integers of one group, for one activation row: products and minima.
    fn count(&self, halves: [Lanes<i32>; 2], a: &[i32], sums: &mut [Lanes<i32>; 2]) {
        for r in 0..PANEL_ROWS {
            sums[0][r] += self.halves[0][r] * halves[0][r] + self.halves[1][r] * halves[1][r];
            if let Some((_, factors)) = &self.min {
                sums[1][r] += factors[0][r] * a[0] + factors[1][r] * a[1];
            }
        }
    }

    /// Adds the integers of a block to the sums of an activation row with scale `d`.
    fn add(&self, sums: &[Lanes<i32>; 2], d: f32, acc: &mut Lanes<f32>) {
        for (r, acc) in acc.iter_mut().enumerate() {
            *acc = (self.d[r] * d).mul_add(sums[0][r] as f32, *acc);
            if let Some((min, _)) = &self.min {
                *acc = min[r].mul_add(-(d * sums[1][r] as f32), *acc);
            }
        }
    }
}
