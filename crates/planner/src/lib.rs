//! The roofline: what a model must read and compute, and how fast a machine can do that at best.
//!
//! [`cost`] counts the ops of a `Program`; [`formula`] has the closed forms for dense decoders, which the counts must
//! equal; [`predict`] sets a count against a [`Machine`]: measured ceilings, or a row of the table in [`devices`]. No
//! model file, executor or terminal is known here. Bytes, seconds and operations throughout, decimal units.
//! Read next: `cost.rs`, then `predict.rs`.

#![forbid(unsafe_code)]

pub mod cost;
pub mod devices;
mod error;
pub mod formula;
pub mod latent;
pub mod moe;
pub mod predict;

pub use cost::{Cost, CostOptions, Kind, Load, Pass, Work};
pub use error::{Error, Result};
pub use predict::{Machine, Prediction, Resource, first_inflection, longest_context, share};
