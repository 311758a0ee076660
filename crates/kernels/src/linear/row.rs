//! Weights read back from their panels: a tied embedding table is kept once, as the output head's panels.

use super::float::Plain;
use super::format::PanelFormat;
use super::naive::GroupScales;
use super::{PANEL_ROWS, pack};

/// Dequantizes weight row `lane` of a panel of `F`.
pub(super) fn quantized<F: PanelFormat>(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (block, out) in panel.chunks_exact(F::BLOCK_BYTES).zip(out.chunks_exact_mut(F::BLOCK)) {
        let (header, groups) = block.split_at(F::SCALES.header());
        let groups = groups.chunks_exact(F::GROUP_BYTES).zip(out.as_chunks_mut::<32>().0);
        for (g, (group, out)) in groups.enumerate() {
            let codes = pack::codes::<F>(group);
            let scales = GroupScales::read::<F>(header, g);
            for (k, out) in out.iter_mut().enumerate() {
                let value = i32::from(codes[k / 4][4 * lane + k % 4]) - F::ZERO;
                *out = scales.weight(lane, k / 16, value);
            }
        }
    }
}

/// Weight row `lane` of a panel of `P`.
pub(super) fn plain<P: Plain>(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (weights, out) in panel.chunks_exact(PANEL_ROWS * P::BYTES).zip(out) {
        *out = P::value(&weights[lane * P::BYTES..][..P::BYTES]);
    }
}
