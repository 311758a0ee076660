//! Recall: does a model find and repeat what its context says? Questions with one right answer, counted by kind, by the
//! length of the text and by the depth at which the answer stands in it.
//!
//! Questions come from a file, or with texts that are made here ([`RecallTexts`]): `kinds.rs` says what is asked and
//! where, `needles.rs`, `lists.rs` and `controls.rs` make the texts, `texts.rs` gives them their length, `answers.rs`
//! judges, `tally.rs` and `cell.rs` count. The phrases are those that the bundled model was trained on; names and numbers are of the
//! tenth that it never saw.

mod answers;
mod cell;
mod controls;
mod digest;
mod draft;
mod draw;
mod filler;
mod kinds;
mod lexicon;
mod lists;
mod needles;
mod tally;
mod texts;

pub use answers::{RecallAnswer, answers};
pub use cell::RecallCell;
pub use kinds::{Language, RecallKind, RecallPlace};
pub use tally::{Recall, Tally};
pub use texts::{PromptLength, RecallQuestion, RecallTexts};
