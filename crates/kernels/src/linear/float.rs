//! Plain weights (F32, F16, BF16): panels of `[column][16 rows]` in the file's type, f32 activations.
//!
//! Each lane is `acc = fma(w, x, acc)` over ascending columns. The loops over vectors are in `generic/lines.rs`.

use half::{bf16, f16};
use quant::GgmlType;

use super::formats::names;
use super::{ActFormat, Arranging, Body, LEVELS, LinearKernel, PANEL_ROWS, pack};
use crate::Isa;

/// A plain weight type.
pub(super) trait Plain: 'static {
    const TY: GgmlType;
    const NAMES: [&'static str; 4];
    /// Bytes of an element.
    const BYTES: usize;
    /// Whether it is the upper half of an f32.
    const WIDE: bool = false;

    /// The value of one element.
    fn value(bytes: &[u8]) -> f32;
}

pub(super) struct F32;
impl Plain for F32 {
    const TY: GgmlType = GgmlType::F32;
    const NAMES: [&'static str; 4] = names!("f32");
    const BYTES: usize = 4;
    fn value(b: &[u8]) -> f32 {
        f32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }
}

pub(super) struct F16;
impl Plain for F16 {
    const TY: GgmlType = GgmlType::F16;
    const NAMES: [&'static str; 4] = names!("f16");
    const BYTES: usize = 2;
    fn value(b: &[u8]) -> f32 {
        f16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

pub(super) struct Bf16;
impl Plain for Bf16 {
    const TY: GgmlType = GgmlType::Bf16;
    const NAMES: [&'static str; 4] = names!("bf16");
    const BYTES: usize = 2;
    const WIDE: bool = true;
    fn value(b: &[u8]) -> f32 {
        bf16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

/// The kernel of plain type `P` that has name `which`.
pub(super) const fn kernel<P: Plain>(
    which: usize,
    isa: Isa,
    arranging: Arranging,
    body: Body,
) -> LinearKernel {
    LinearKernel {
        name: P::NAMES[which],
        ty: P::TY,
        isa,
        level: LEVELS[which],
        act_format: ActFormat::F32,
        block: super::PanelBlock { columns: 1, bytes: PANEL_ROWS * P::BYTES },
        row: super::row::plain::<P>,
        pack: if P::BYTES == 2 { pack::plain::<2> } else { pack::plain::<4> },
        arranging,
        body,
    }
}
