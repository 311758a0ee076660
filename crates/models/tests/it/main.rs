//! Files become programs: architectures, mixtures, windows, published shapes.

#[path = "../common/mod.rs"]
mod common;

mod load;
mod mixtures;
mod plans;
mod sparse;
mod texts;
mod windows;
