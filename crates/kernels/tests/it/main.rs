//! Tests of the kernels, as an executor calls them.

mod attention;
mod latent;
mod linear;
mod linear_row;
mod rows;
mod scan;
mod slots;
mod support;
