//! Planning: what a model needs on a machine, before its weights are there.

pub mod hf;
