//! File rows to panels. The layout is described in [`format`](super::format).

use super::PANEL_ROWS;
use super::format::{PanelFormat, Scales};
use quant::Block;

/// Packs up to 16 file rows of `cols` weights into one panel; absent rows get scale 0.
pub(crate) fn quantized<F: PanelFormat>(rows: &[&[u8]], cols: usize, out: &mut [u8]) {
    if rows.len() < PANEL_ROWS {
        out.fill(0);
    }
    let mut codes = [0u8; 256];
    let codes = &mut codes[..F::BLOCK];
    for (b, panel) in out.chunks_exact_mut(F::BLOCK_BYTES).enumerate().take(cols / F::BLOCK) {
        let (header, groups) = panel.split_at_mut(F::SCALES.header());
        for (r, row) in rows.iter().enumerate() {
            let size = size_of::<F::Block>();
            let block = F::Block::read(&row[b * size..][..size]);
            put_header::<F>(r, &block, header);
            F::codes(&block, codes);
            let codes = codes.as_chunks::<32>().0.iter();
            for (codes, group) in codes.zip(groups.chunks_exact_mut(F::GROUP_BYTES)) {
                put_codes::<F>(r, codes, group);
            }
        }
    }
}

#[inline]
fn put_header<F: PanelFormat>(r: usize, block: &F::Block, header: &mut [u8]) {
    header[2 * r..][..2].copy_from_slice(&F::d(block).to_le_bytes());
    if F::SCALES.min() {
        header[32 + 2 * r..][..2].copy_from_slice(&F::min(block).to_le_bytes());
    }
    let small = &mut header[F::SCALES.small()..];
    match F::SCALES {
        Scales::Block | Scales::BlockMin | Scales::Super => {}
        Scales::Groups => {
            for g in 0..8 {
                small[g * 16 + r] = block.scale_code(g).cast_unsigned();
            }
        }
        Scales::GroupsMin => {
            for g in 0..8 {
                small[g * 16 + r] = block.scale_code(g).cast_unsigned();
                small[128 + g * 16 + r] = block.min_code(g);
            }
        }
        Scales::Halves => {
            for g in 0..16 {
                small[g * 16 + r] = block.scale_code(g).cast_unsigned();
            }
        }
        Scales::HalvesMin => {
            for g in 0..16 {
                small[g * 16 + r] =
                    block.scale_code(g).cast_unsigned() & 15 | block.min_code(g) << 4;
            }
        }
    }
}

/// Writes 32 codes of row `r`: four codes at a time, as the bytes of one u32.
#[inline]
fn put_codes<F: PanelFormat>(r: usize, codes: &[u8; 32], group: &mut [u8]) {
    let (low, high) = group.split_at_mut(64 * F::LOW);
    put_plane(codes, 0, F::LOW, r, low);
    if F::HIGH > 0 {
        put_plane(codes, F::LOW, F::HIGH, r, high);
    }
}

#[inline(always)]
fn put_plane(codes: &[u8; 32], from: usize, bits: usize, r: usize, plane: &mut [u8]) {
    let mask = u32::from_ne_bytes([(((1u32 << bits) - 1) & 0xff) as u8; 4]);
    let steps = 8 / bits;
    let quads = codes.as_chunks::<4>().0;
    for (line, quads) in plane.as_chunks_mut::<64>().0.iter_mut().zip(quads.chunks_exact(steps)) {
        let mut v = 0u32;
        for (j, quad) in quads.iter().enumerate() {
            v |= (u32::from_le_bytes(*quad) >> from & mask) << (bits * j);
        }
        line[4 * r..][..4].copy_from_slice(&v.to_le_bytes());
    }
}

/// Packs up to 16 rows of `BYTES`-byte elements as `[column][16 rows]`; absent rows become zeros.
pub(crate) fn plain<const BYTES: usize>(rows: &[&[u8]], cols: usize, out: &mut [u8]) {
    if rows.len() < PANEL_ROWS {
        out.fill(0);
    }
    let out = &mut out.as_chunks_mut::<BYTES>().0[..cols * PANEL_ROWS];
    // 64 columns at a time: the part of the panel they fill stays in the cache while the rows take turns.
    for (part, lines) in out.chunks_mut(64 * PANEL_ROWS).enumerate() {
        for (r, row) in rows.iter().enumerate() {
            let row = &row.as_chunks::<BYTES>().0[part * 64..];
            for (line, element) in lines.as_chunks_mut::<PANEL_ROWS>().0.iter_mut().zip(row) {
                line[r] = *element;
            }
        }
    }
}

/// The unsigned codes of one group of 32 columns: `[step][row][4 columns]`.
pub(crate) fn codes<F: PanelFormat>(group: &[u8]) -> [[u8; 64]; 8] {
    let plane = |bytes: &[u8], bits: usize, j: usize, i: usize| {
        let steps = 8 / bits;
        u32::from(bytes[j / steps * 64 + i]) >> (bits * (j % steps)) & ((1 << bits) - 1)
    };
    let (low, high) = group.split_at(64 * F::LOW);
    std::array::from_fn(|j| {
        std::array::from_fn(|i| {
            let mut code = plane(low, F::LOW, j, i);
            if F::HIGH > 0 {
                code |= plane(high, F::HIGH, j, i) << F::LOW;
            }
            F::LUT.map_or(code as u8, |lut| lut[code as usize])
        })
    })
}
