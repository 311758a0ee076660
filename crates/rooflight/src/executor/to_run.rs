//! [`ToRun`]: a model for which an executor is chosen.

use std::sync::Arc;

use gguf::Gguf;
use program::{CacheOptions, CacheStorage, Program};

use crate::Runtime;
use crate::share::AskedShare;

/// A model for which an executor is chosen, with everything that the choice depends on.
pub struct ToRun<'a> {
    /// Runtime that stores measurements and receives notices.
    pub runtime: &'a Runtime,
    /// GGUF file of the model.
    pub gguf: &'a Gguf,
    /// Program of the model.
    pub program: &'a Arc<Program>,
    /// Cache options of one session.
    pub cache: &'a CacheOptions,
    /// Maximum number of tokens per step.
    pub chunk: usize,
    /// Where caches are stored, and the limit on their memory.
    pub storage: &'a CacheStorage,
    /// Name of a feature that needs bit-identical results however a text is divided into steps, if there is one.
    pub same_bits: Option<&'static str>,
    /// Part of the model that the user requested for the GPU.
    pub asked: AskedShare,
    /// Number type of GPU matrix products.
    pub products: GpuProducts,
}

/// Number type of GPU matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuProducts {
    /// The fastest type whose error is acceptable.
    #[default]
    Auto,
    /// f32, without rounding the inputs first.
    F32,
}
