//! Plans what a model needs on a machine before its weights are downloaded.

pub mod hf;
