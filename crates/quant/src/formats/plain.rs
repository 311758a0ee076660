//! Types without blocks: each weight is one number.

use half::{bf16, f16};

use super::Format;
use crate::GgmlType;

/// A number format of single weights.
trait Element: bytemuck::Pod {
    const TY: GgmlType;
    fn to_f32(self) -> f32;
    /// Nearest, ties to even; beyond the range becomes infinite.
    fn from_f32(x: f32) -> Self;
}

impl Element for f32 {
    const TY: GgmlType = GgmlType::F32;
    fn to_f32(self) -> f32 {
        self
    }
    fn from_f32(x: f32) -> Self {
        x
    }
}

impl Element for f16 {
    const TY: GgmlType = GgmlType::F16;
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    fn from_f32(x: f32) -> Self {
        f16::from_f32(x)
    }
}

impl Element for bf16 {
    const TY: GgmlType = GgmlType::Bf16;
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
    fn from_f32(x: f32) -> Self {
        bf16::from_f32(x)
    }
}

struct Plain<E>(std::marker::PhantomData<fn() -> E>);

impl<E: Element> Format for Plain<E> {
    fn ty(&self) -> GgmlType {
        E::TY
    }

    fn dequantize(&self, blocks: &[u8], out: &mut [f32]) {
        assert_eq!(
            blocks.len(),
            out.len() * size_of::<E>(),
            "{}: bytes and weights differ in count",
            E::TY
        );
        for (bytes, w) in blocks.chunks_exact(size_of::<E>()).zip(out) {
            *w = bytemuck::pod_read_unaligned::<E>(bytes).to_f32();
        }
    }

    fn quantize(&self, x: &[f32], out: &mut [u8]) -> bool {
        assert_eq!(
            out.len(),
            x.len() * size_of::<E>(),
            "{}: bytes and weights differ in count",
            E::TY
        );
        for (&w, bytes) in x.iter().zip(out.chunks_exact_mut(size_of::<E>())) {
            bytes.copy_from_slice(bytemuck::bytes_of(&E::from_f32(w)));
        }
        true
    }

    fn can_quantize(&self) -> bool {
        true
    }
}

/// 32-bit floats, little endian.
pub(super) static F32: &dyn Format = &Plain::<f32>(std::marker::PhantomData);
/// IEEE half precision, little endian.
pub(super) static F16: &dyn Format = &Plain::<f16>(std::marker::PhantomData);
/// The upper half of a 32-bit float, little endian.
pub(super) static BF16: &dyn Format = &Plain::<bf16>(std::marker::PhantomData);
