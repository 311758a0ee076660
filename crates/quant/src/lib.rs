//! Block formats of GGUF weights: layout, reference quantize and dequantize.
//!
//! Safe code, no I/O. Kernels pack these blocks into their own layouts; the meaning of every bit is defined here.

mod types;

pub use types::GgmlType;
