//! Block formats of GGUF weights: layout, reference quantize and dequantize.
//!
//! Safe code, no I/O. Every quantized format has one file in [`formats`] with its block struct, whose [`Block`]
//! accessors (`code`, `scale_code`, `d`, ...) define the meaning of every bit: kernels pack blocks into their own
//! layouts through them. [`format()`] gives any weight type as a trait object over bytes.
//! Read `block.rs` first, then `formats/q4_0.rs` and `formats/q4_k.rs`.
#![forbid(unsafe_code)]

pub mod bits;
mod block;
pub mod codebooks;
pub mod formats;
mod search;
mod types;

pub use block::{Block, MAX_LEN, Values, blocks};
pub use formats::{FORMATS, Format, format};
pub use types::GgmlType;

const _: () =
    assert!(cfg!(target_endian = "little"), "block structs are read as they lie in the file");
