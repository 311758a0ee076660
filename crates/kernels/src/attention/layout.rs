//! Where the elements of a cached head lie, and how they are written.
//!
//! A block is [`BLOCK`] positions; each key-value head has one region of keys and one of values in it. Both are cut
//! into tiles of [`TILE`] positions. In a tile of keys the position is the lane, in a tile of values the element is:
//!
//! | type | tile of keys                                      | tile of values                                      |
//! |------|---------------------------------------------------|-----------------------------------------------------|
//! | f32  | `[key_dim][TILE]`                                 | `[TILE][stride]`                                    |
//! | f16  | `[key_dim][TILE]`                                 | `[TILE][stride]`                                    |
//! | q8_0 | f16 scales `[key_dim / 32][TILE]`, i8 codes as f32 | f16 scales `[TILE][stride / 32]`, i8 codes as f32   |
//!
//! Quotients are rounded up; `stride` is `value_dim` rounded up to 16, the elements between are never written. All
//! numbers are little-endian.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::math::{LANES, ROUND};

/// Positions in a block.
pub const BLOCK: usize = 128;
/// Positions in a tile.
pub const TILE: usize = LANES;
/// Elements that share a scale in [`ElemType::Q8_0`].
pub(crate) const GROUP: usize = 32;

/// How a cached number is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElemType {
    /// 4 bytes.
    F32,
    /// 2 bytes, rounded to nearest, ties to even.
    F16,
    /// 32 neighbours of one key or value share `d = max|x| / 127` as f16; each is an i8 multiple of it.
    Q8_0,
}

impl ElemType {
    /// Every type.
    pub const ALL: [ElemType; 3] = [ElemType::F32, ElemType::F16, ElemType::Q8_0];
}

/// Shape of one key-value head of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadShape {
    /// Width of a key; at least 1.
    pub key_dim: usize,
    /// Width of a value; at least 1.
    pub value_dim: usize,
    /// How keys are kept.
    pub k: ElemType,
    /// How values are kept.
    pub v: ElemType,
}

impl HeadShape {
    /// Bytes of a head's keys in one block; a multiple of 64.
    pub fn key_bytes(&self) -> usize {
        self.key_tile_bytes() * (BLOCK / TILE)
    }

    /// Bytes of a head's values in one block; a multiple of 64.
    pub fn value_bytes(&self) -> usize {
        self.value_tile_bytes() * (BLOCK / TILE)
    }

    /// Length of a value row in the cache and in [`Partials`](super::Partials): `value_dim` rounded up to 16.
    pub fn value_stride(&self) -> usize {
        self.value_dim.next_multiple_of(LANES)
    }

    /// Bytes of one tile of keys.
    pub(crate) fn key_tile_bytes(&self) -> usize {
        match self.k {
            ElemType::F32 => self.key_dim * TILE * 4,
            ElemType::F16 => self.key_dim * TILE * 2,
            ElemType::Q8_0 => self.key_scale_bytes() + self.key_dim * TILE,
        }
    }

    /// Bytes of one tile of values.
    pub(crate) fn value_tile_bytes(&self) -> usize {
        match self.v {
            ElemType::F32 => self.value_stride() * TILE * 4,
            ElemType::F16 => self.value_stride() * TILE * 2,
            ElemType::Q8_0 => self.value_scale_bytes() + self.value_stride() * TILE,
        }
    }

    /// Bytes of scales before the codes of a tile of keys.
    pub(crate) fn key_scale_bytes(&self) -> usize {
        self.key_dim.div_ceil(GROUP) * TILE * 2
    }

    /// Bytes of scales before the codes of a tile of values.
    pub(crate) fn value_scale_bytes(&self) -> usize {
        self.value_stride().div_ceil(GROUP) * TILE * 2
    }

    /// Write the key of one position.
    ///
    /// - `region`: a head's keys in one block, [`key_bytes`](Self::key_bytes) long
    /// - `position`: within the block
    /// - `key`: `[key_dim]`, rotated
    ///
    /// # Panics
    /// If a length differs or `position >= BLOCK`.
    pub fn store_key(&self, region: &mut [u8], position: usize, key: &[f32]) {
        assert_eq!(
            (region.len(), key.len()),
            (self.key_bytes(), self.key_dim),
            "region and key of this head"
        );
        assert!(position < BLOCK, "position {position} within a block");
        let lane = position % TILE;
        let tile = &mut region[position / TILE * self.key_tile_bytes()..][..self.key_tile_bytes()];
        match self.k {
            ElemType::F32 => {
                for (row, x) in tile.as_chunks_mut::<{ TILE * 4 }>().0.iter_mut().zip(key) {
                    row[lane * 4..][..4].copy_from_slice(&x.to_le_bytes());
                }
            }
            ElemType::F16 => {
                let rows = tile.as_chunks_mut::<{ TILE * 2 }>().0;
                for (rows, group) in rows.chunks_mut(GROUP).zip(key.chunks(GROUP)) {
                    for (row, x) in rows.iter_mut().zip(halves(group)) {
                        row[lane * 2..][..2].copy_from_slice(&x.to_le_bytes());
                    }
                }
            }
            ElemType::Q8_0 => {
                let (scales, codes) = tile.split_at_mut(self.key_scale_bytes());
                let (scales, codes) =
                    (scales.as_chunks_mut::<{ TILE * 2 }>().0, codes.as_chunks_mut::<TILE>().0);
                for ((scale, codes), group) in
                    scales.iter_mut().zip(codes.chunks_mut(GROUP)).zip(key.chunks(GROUP))
                {
                    let (d, inverse) = group_scale(group);
                    scale[lane * 2..][..2].copy_from_slice(&d.to_le_bytes());
                    for (row, x) in codes.iter_mut().zip(group) {
                        row[lane] = code(*x, inverse).cast_unsigned();
                    }
                }
            }
        }
    }

    /// Write the value of one position; `value` is `[value_dim]`, otherwise as [`store_key`](Self::store_key).
    ///
    /// # Panics
    /// If a length differs or `position >= BLOCK`.
    pub fn store_value(&self, region: &mut [u8], position: usize, value: &[f32]) {
        assert_eq!(
            (region.len(), value.len()),
            (self.value_bytes(), self.value_dim),
            "region and value of this head"
        );
        assert!(position < BLOCK, "position {position} within a block");
        let (row, stride) = (position % TILE, self.value_stride());
        let tile =
            &mut region[position / TILE * self.value_tile_bytes()..][..self.value_tile_bytes()];
        match self.v {
            ElemType::F32 => {
                for (out, x) in
                    tile[row * stride * 4..].as_chunks_mut::<4>().0.iter_mut().zip(value)
                {
                    *out = x.to_le_bytes();
                }
            }
            ElemType::F16 => {
                let row = tile[row * stride * 2..].as_chunks_mut::<2>().0;
                for (out, group) in row.chunks_mut(GROUP).zip(value.chunks(GROUP)) {
                    for (out, x) in out.iter_mut().zip(&halves(group)[..group.len()]) {
                        *out = x.to_le_bytes();
                    }
                }
            }
            ElemType::Q8_0 => {
                let groups = stride.div_ceil(GROUP);
                let (scales, codes) = tile.split_at_mut(self.value_scale_bytes());
                let scales = scales[row * groups * 2..].as_chunks_mut::<2>().0;
                let codes = &mut codes[row * stride..][..stride];
                for ((scale, codes), group) in
                    scales.iter_mut().zip(codes.chunks_mut(GROUP)).zip(value.chunks(GROUP))
                {
                    let (d, inverse) = group_scale(group);
                    *scale = d.to_le_bytes();
                    for (out, x) in codes.iter_mut().zip(group) {
                        *out = code(*x, inverse).cast_unsigned();
                    }
                }
            }
        }
    }

    /// Element `d` of the key at `position`, as f32.
    pub fn key_at(&self, region: &[u8], position: usize, d: usize) -> f32 {
        let tile = &region[position / TILE * self.key_tile_bytes()..];
        let lane = position % TILE;
        match self.k {
            ElemType::F32 => f32_at(tile, d * TILE + lane),
            ElemType::F16 => f16_at(tile, d * TILE + lane),
            ElemType::Q8_0 => {
                let code = tile[self.key_scale_bytes() + d * TILE + lane].cast_signed();
                f32::from(code) * f16_at(tile, d / GROUP * TILE + lane)
            }
        }
    }

    /// Element `e` of the value at `position`, as f32.
    pub fn value_at(&self, region: &[u8], position: usize, e: usize) -> f32 {
        let tile = &region[position / TILE * self.value_tile_bytes()..];
        let (row, stride) = (position % TILE, self.value_stride());
        match self.v {
            ElemType::F32 => f32_at(tile, row * stride + e),
            ElemType::F16 => f16_at(tile, row * stride + e),
            ElemType::Q8_0 => {
                let code = tile[self.value_scale_bytes() + row * stride + e].cast_signed();
                f32::from(code) * f16_at(tile, row * stride.div_ceil(GROUP) + e / GROUP)
            }
        }
    }
}

/// The scale of a group as it is kept, and what its elements are multiplied by. A group with a number that is not
/// finite gets a NaN scale, so that the step that made it fails instead of going on with a zero.
pub(crate) fn group_scale(group: &[f32]) -> (f16, f32) {
    if !group.iter().all(|x| x.is_finite()) {
        return (f16::NAN, 0.0);
    }
    let most = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let inverse = 127.0 / most;
    (f16::from_f32(most / 127.0), if inverse.is_finite() { inverse } else { 0.0 })
}

/// The nearest multiple, ties to even; adding [`ROUND`] is many times faster than calling for the rounding.
pub(crate) fn code(x: f32, inverse: f32) -> i8 {
    (x * inverse + ROUND - ROUND).clamp(-127.0, 127.0) as i8
}

/// At most [`GROUP`] numbers as f16, converted together.
pub(crate) fn halves(group: &[f32]) -> [f16; GROUP] {
    let mut out = [f16::ZERO; GROUP];
    out[..group.len()].convert_from_f32_slice(group);
    out
}

fn f32_at(bytes: &[u8], i: usize) -> f32 {
    f32::from_le_bytes(bytes.as_chunks::<4>().0[i])
}

fn f16_at(bytes: &[u8], i: usize) -> f32 {
    f16::from_le_bytes(bytes.as_chunks::<2>().0[i]).to_f32()
}
