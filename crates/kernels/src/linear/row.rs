//! Weights read back from their panels: a tied embedding table is kept once, as the output head's panels.

use std::ops::Range;

use super::float::Plain;
use super::format::Format;
use super::scalar::GroupScales;
use super::{PANEL_ROWS, pack};

/// Dequantizes weight rows `lanes` of a panel of `F`, one after another in `out`.
pub(super) fn quantized<F: Format>(panel: &[u8], lanes: Range<usize>, out: &mut [f32]) {
    let cols = out.len() / lanes.len().max(1);
    for (b, block) in panel.chunks_exact(F::BLOCK_BYTES).enumerate() {
        let (header, groups) = block.split_at(F::SCALES.header());
        for (g, group) in groups.chunks_exact(F::GROUP_BYTES).enumerate() {
            let codes = pack::codes::<F>(group);
            let scales = GroupScales::read::<F>(header, g);
            let first = b * F::BLOCK + 32 * g;
            for (lane, row) in lanes.clone().zip(out.chunks_exact_mut(cols)) {
                for (k, out) in row[first..first + 32].iter_mut().enumerate() {
                    let value = i32::from(codes[k / 4][4 * lane + k % 4]) - F::ZERO;
                    *out = scales.weight(lane, k / 16, value);
                }
            }
        }
    }
}

/// Weight rows `lanes` of a panel of `P`.
pub(super) fn plain<P: Plain>(panel: &[u8], lanes: Range<usize>, out: &mut [f32]) {
    let cols = out.len() / lanes.len().max(1);
    for (k, weights) in panel.chunks_exact(PANEL_ROWS * P::BYTES).enumerate() {
        for (lane, row) in lanes.clone().zip(out.chunks_exact_mut(cols)) {
            row[k] = P::value(&weights[lane * P::BYTES..][..P::BYTES]);
        }
    }
}
