//! Plain weights (F32, F16, BF16): panels of `[column][16 rows]` in the file's type, f32 activations.
//!
//! Each lane is `acc = fma(w, x, acc)` over ascending columns.

use half::{bf16, f16};
use quant::GgmlType;

use super::formats::names;
use super::{ActFormat, Body, Job, LinearKernel, PANEL_ROWS, Scratch, pack};
use crate::{Isa, Level};

/// A plain weight type.
pub(super) trait Plain: 'static {
    const TY: GgmlType;
    const NAMES: [&'static str; 3];
    /// Bytes of an element.
    const BYTES: usize;

    /// The value of one element.
    fn value(bytes: &[u8]) -> f32;
}

pub(super) struct F32;
impl Plain for F32 {
    const TY: GgmlType = GgmlType::F32;
    const NAMES: [&'static str; 3] = names!("f32");
    const BYTES: usize = 4;
    fn value(b: &[u8]) -> f32 {
        f32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }
}

pub(super) struct F16;
impl Plain for F16 {
    const TY: GgmlType = GgmlType::F16;
    const NAMES: [&'static str; 3] = names!("f16");
    const BYTES: usize = 2;
    fn value(b: &[u8]) -> f32 {
        f16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

pub(super) struct Bf16;
impl Plain for Bf16 {
    const TY: GgmlType = GgmlType::Bf16;
    const NAMES: [&'static str; 3] = names!("bf16");
    const BYTES: usize = 2;
    fn value(b: &[u8]) -> f32 {
        bf16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

/// The kernel of plain type `P` for one instruction set.
pub(super) const fn kernel<P: Plain>(
    which: usize,
    isa: Isa,
    scratch: Scratch,
    body: Body,
) -> LinearKernel {
    LinearKernel {
        name: P::NAMES[which],
        ty: P::TY,
        isa,
        level: if which == 0 { Level::Naive } else { Level::Full },
        act_format: ActFormat::F32,
        block: (1, PANEL_ROWS * P::BYTES),
        pack: if P::BYTES == 2 { pack::plain::<2> } else { pack::plain::<4> },
        scratch,
        body,
    }
}

/// Multiplies panels of `P`, in plain loops.
pub(super) fn naive<P: Plain>(job: &mut Job<'_, '_>) {
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
                let x = x.x[c * x.stride + k];
                for (acc, w) in acc.iter_mut().zip(w) {
                    *acc = w.mul_add(x, *acc);
                }
            }
        }
    }
}
