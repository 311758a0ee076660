//! Files become programs: architectures, mixtures, windows, published shapes.

#[path = "../common/mod.rs"]
mod common;

mod archs;
mod file_types;
mod load;
mod mixtures;
mod plans;
mod published;
mod sparse;
mod texts;
mod windows;
