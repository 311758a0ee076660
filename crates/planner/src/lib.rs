//! The roofline: what a model must read and compute, and how fast a machine can do that at best.
//!
//! [`cost`] counts the ops of a `Program`; [`formula`] has the closed forms for dense decoders, which the counts must
//! equal; [`predict`] sets a count against a [`Machine`]: measured ceilings, or a row of the table in [`devices`].
//! Beside that limit stands what is to be expected: [`Executed`]
//! adds up [`Rates`] that somebody measured. [`plan`] and [`goal`] put all of it together for a model that need not be there;
//! [`article`] makes the tables of the article that the formulas come from. All of it is theory: nothing is run here, and no
//! model file, executor or terminal is known. Bytes, seconds and operations throughout, decimal units.
//! Read next: `cost.rs`, then `predict.rs`, then `expect.rs`.

#![forbid(unsafe_code)]

pub mod article;
pub mod cost;
pub mod devices;
mod estimate;
mod expect;
pub mod formula;
pub mod goal;
mod latent;
pub mod moe;
mod op;
mod placement;
pub mod plan;
pub mod predict;
mod rates;
mod reads;
mod scans;

pub use cost::{Cost, CostKind, CostOptions, Load, Pass, Work};
pub use estimate::{CountedProgram, Estimate, Turns};
pub use expect::{Executed, Expected};
pub use latent::form as latent_form;
pub use op::OpCost;
pub use placement::{CardBeside, PlacedKind, PlacedPiece, PlacedStep, Placements};
pub use plan::{Forecast, Lengths, ModelVariant, WhatIf, what_if};
pub use predict::{Machine, Prediction, Resource, first_inflection, share};
pub use rates::{
    AttentionRate, AttentionShape, LinearRate, MlaRate, MlaShape, Overheads, Rates, WantedRates,
};
pub use reads::Reads;
pub use scans::{ScanRate, ScanShape};
