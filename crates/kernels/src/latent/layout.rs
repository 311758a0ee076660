//! How a cached row of latent attention lies, and how it is written and read.
//!
//! Rows follow each other without gaps. All numbers are little-endian.
//!
//! | type | row                                                                           |
//! |------|-------------------------------------------------------------------------------|
//! | f32  | `[rank]`, `[rope_dim]`                                                        |
//! | f16  | `[rank]`, `[rope_dim]`                                                        |
//! | q8_0 | i8 codes `[rank]`, f16 scales `[rank / 32]` rounded up, f16 `[rope_dim]`      |
//!
//! The rotated part stays f16 beside quantized latents: its few numbers carry the positions.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::attention::{BLOCK, ElemType, GROUP, HeadShape, code, group_scale, halves};
use crate::math::LANES;

/// Shape of a cached row `[c | k_pe]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LatentShape {
    /// Width of `c`; at least 1.
    pub rank: usize,
    /// Width of `k_pe`; at least 1.
    pub rope_dim: usize,
    /// How the numbers are kept.
    pub elem: ElemType,
}

impl LatentShape {
    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.rank + self.rope_dim
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        match self.elem {
            ElemType::F32 => 4 * self.width(),
            ElemType::F16 => 2 * self.width(),
            ElemType::Q8_0 => self.rope_start() + 2 * self.rope_dim,
        }
    }

    /// Bytes of a block of positions.
    pub fn block_bytes(&self) -> usize {
        BLOCK * self.row_bytes()
    }

    /// `rank` rounded up to 16.
    pub fn stride(&self) -> usize {
        self.rank.next_multiple_of(LANES)
    }

    /// Length of a row as f32, both parts rounded up to 16.
    pub(crate) fn wide(&self) -> usize {
        self.stride() + self.rope_dim.next_multiple_of(LANES)
    }

    /// Where `k_pe` starts in a row.
    pub(crate) fn rope_start(&self) -> usize {
        match self.elem {
            ElemType::F32 => 4 * self.rank,
            ElemType::F16 => 2 * self.rank,
            ElemType::Q8_0 => self.rank + 2 * self.rank.div_ceil(GROUP),
        }
    }

    /// The one head of an attention whose keys are whole rows and whose values are their first `rank` numbers, in f32.
    pub fn head(&self) -> HeadShape {
        let (k, v) = (ElemType::F32, ElemType::F32);
        HeadShape { key_dim: self.width(), value_dim: self.rank, k, v }
    }

    /// Write a row.
    ///
    /// # Panics
    /// If a length differs.
    pub fn store(&self, row: &mut [u8], latent: &[f32], rope: &[f32]) {
        self.check(row, latent.len(), rope.len());
        let (first, second) = row.split_at_mut(self.rope_start());
        match self.elem {
            ElemType::F32 => {
                store_f32(first, latent);
                store_f32(second, rope);
            }
            ElemType::F16 => {
                store_f16(first, latent);
                store_f16(second, rope);
            }
            ElemType::Q8_0 => {
                let (codes, scales) = first.split_at_mut(self.rank);
                let scales = scales.as_chunks_mut::<2>().0;
                for ((scale, codes), group) in
                    scales.iter_mut().zip(codes.chunks_mut(GROUP)).zip(latent.chunks(GROUP))
                {
                    let (d, inverse) = group_scale(group);
                    *scale = d.to_le_bytes();
                    for (out, x) in codes.iter_mut().zip(group) {
                        *out = code(*x, inverse).cast_unsigned();
                    }
                }
                store_f16(second, rope);
            }
        }
    }

    /// Read a row as f32.
    ///
    /// # Panics
    /// If a length differs.
    pub fn load(&self, row: &[u8], latent: &mut [f32], rope: &mut [f32]) {
        self.check(row, latent.len(), rope.len());
        let (first, second) = row.split_at(self.rope_start());
        match self.elem {
            ElemType::F32 => {
                load_f32(first, latent);
                load_f32(second, rope);
            }
            ElemType::F16 => {
                load_f16(first, latent);
                load_f16(second, rope);
            }
            ElemType::Q8_0 => {
                let (codes, scales) = first.split_at(self.rank);
                let scales = scales.as_chunks::<2>().0;
                for ((scale, codes), out) in
                    scales.iter().zip(codes.chunks(GROUP)).zip(latent.chunks_mut(GROUP))
                {
                    let scale = f16::from_le_bytes(*scale).to_f32();
                    for (out, code) in out.iter_mut().zip(codes) {
                        *out = f32::from(code.cast_signed()) * scale;
                    }
                }
                load_f16(second, rope);
            }
        }
    }

    fn check(&self, row: &[u8], latent: usize, rope: usize) {
        assert_eq!(
            (row.len(), latent, rope),
            (self.row_bytes(), self.rank, self.rope_dim),
            "a cached row and its parts"
        );
    }
}

fn store_f32(bytes: &mut [u8], x: &[f32]) {
    for (out, x) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(x) {
        *out = x.to_le_bytes();
    }
}

fn store_f16(bytes: &mut [u8], x: &[f32]) {
    for (bytes, group) in bytes.chunks_mut(2 * GROUP).zip(x.chunks(GROUP)) {
        for (out, x) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(halves(group)) {
            *out = x.to_le_bytes();
        }
    }
}

fn load_f32(bytes: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *out = f32::from_le_bytes(*bytes);
    }
}

fn load_f16(bytes: &[u8], out: &mut [f32]) {
    let mut group = [f16::ZERO; GROUP];
    for (bytes, out) in bytes.chunks(2 * GROUP).zip(out.chunks_mut(GROUP)) {
        for (half, bytes) in group.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*bytes);
        }
        group[..out.len()].convert_to_f32_slice(out);
    }
}
