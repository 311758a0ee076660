//! Tests of the kernels, as an executor calls them.

mod attention;
mod fused;
mod latent;
mod linear;
mod linear_row;
mod math;
mod quads;
mod rows;
mod scan;
mod slots;
mod support;
