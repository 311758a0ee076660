//! Block formats from outside.

mod bits;
mod codebooks;
mod fixtures;
mod mxfp4;
mod properties;
mod types;
