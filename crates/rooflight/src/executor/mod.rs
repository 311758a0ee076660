//! Chooses the executor of a model, and the part of it that a GPU computes.

mod choice;
mod choices;
mod choose;
mod placing;
mod timing;
mod to_run;

pub use choice::ExecutorChoice;
pub use choose::{kept, not_started, promises_cuts, start};
pub use placing::{Counter, PlacedStart, Placing, SUBMISSION, card_memory, on_a_gpu, room};
pub use to_run::{GpuProducts, ToRun};
