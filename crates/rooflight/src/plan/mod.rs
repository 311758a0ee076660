//! Plans what a model takes on a machine and how fast it can be there, before its weights are downloaded.
//!
//! A [`Subject`] is the model, a [`Target`] the machine. [`Plan::of`] compares types of weights and cache ([`Weights`],
//! [`Cache`]) and answers with a [`Plan`].

mod choice;
mod fit;
pub mod hf;
mod placement;
mod report;
mod subject;
mod target;
mod weights;

pub use fit::Bound;
pub use placement::PlannedPlacement;
pub use report::{CacheRow, FilePlan, Plan, PlanGoals, PlanRequest};
pub use subject::Subject;
pub use target::{MEASURED, Target, TargetRequest};
pub use weights::{Cache, Weights};
