//! What tests of all crates share. Nothing here is part of the product.
//!
//! Some tests need what not every machine has: an instruction set, or files beside the repository. They ask here, so that
//! one place reads what is demanded and one place keeps what was covered:
//!
//! - `ROOFLIGHT_REQUIRE_ISA=avx2,avx512`: tests fail where a set is missing, instead of leaving it out;
//! - `ROOFLIGHT_REQUIRE_GOLDEN=1`: likewise for golden cases;
//! - `ROOFLIGHT_FULL=1`: tests run what takes too long for every change, as `cargo xtask full` has them do;
//! - `ROOFLIGHT_COVERAGE=FILE`: what was covered and what was skipped is added to the file, a line each.

mod coverage;
mod fake_hub;
mod fuzzing;
mod options;
mod sandbox;

use std::path::{Path, PathBuf};

pub use coverage::{cases, covered, full, golden_skipped, isas, skipped};
pub use fake_hub::{FakeHub, HUB_COMMIT, HUB_REPOSITORY, HubState, Mischief, made_up, sha256};
pub use fuzzing::{Dice, mutations, seeds};
pub use options::OptionTable;
pub use sandbox::{Sandbox, device_variables, text};

/// The folder `shared` beside the repository or beside a folder above it, recognized by its `golden`.
///
/// # Errors
/// That there is none, for [`skipped`] or [`golden_skipped`].
pub fn shared() -> Result<PathBuf, String> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found =
        above.map(|folder| folder.join("shared")).find(|shared| shared.join("golden").is_dir());
    found.ok_or_else(|| "shared folder not found".into())
}
