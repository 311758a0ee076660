//! [`ToRun`]: a model that an executor is chosen for.

use std::sync::Arc;

use gguf::Gguf;
use program::{CacheOptions, CacheStorage, Program};

use crate::Runtime;
use crate::share::AskedShare;

/// A model that is to run, as far as it decides what can run it.
pub struct ToRun<'a> {
    /// What stores measurements, and receives notices.
    pub runtime: &'a Runtime,
    /// The file.
    pub gguf: &'a Gguf,
    /// What it computes.
    pub program: &'a Arc<Program>,
    /// The cache of a session.
    pub cache: &'a CacheOptions,
    /// Most tokens of a step.
    pub chunk: usize,
    /// Where caches lie.
    pub storage: &'a CacheStorage,
    /// What was asked for that needs the same bits for any cut of a text.
    pub same_bits: Option<&'static str>,
    /// What is said of a GPU's share of it.
    pub asked: AskedShare,
    /// What it is to multiply.
    pub products: GpuProducts,
}

/// What a GPU multiplies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuProducts {
    /// The fastest of the types that are exact enough.
    #[default]
    Auto,
    /// Numbers of 32 bits, without rounding them first.
    F32,
}
