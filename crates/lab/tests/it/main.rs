//! The binary that measures, as it is typed.

mod article;
mod bench_mla;
mod memory;
mod options;
mod sweeps;
mod traffic;
