//! Models whose attention has windows on some layers, end to end.

use program::{Executor, Mask};
use quant::GgmlType;

use super::{models, sessions};
use crate::{Family, tiny_config};

/// Windows within a block of the cache, of one block, and over several; one position, and more than there are.
pub(super) fn models(executor: &dyn Executor) {
    for architecture in Family::Windows.architectures() {
        for tied in [false, true] {
            models::check(executor, &tiny_config(architecture, 64, tied), GgmlType::F32, 1e-9);
        }
        for window in [1, 7, 32, 33, 500] {
            let mut config = tiny_config(architecture, 64, true);
            config.layers[0].score.mask = Mask::Window(window);
            models::check(executor, &config, GgmlType::F32, 1e-9);
        }
        for (ty, bound) in [(GgmlType::F16, 1e-5), (GgmlType::Q8_0, 1e-3), (GgmlType::Q4_0, 1e-3)] {
            models::check(executor, &tiny_config(architecture, 64, false), ty, bound);
        }
    }
}

pub(super) fn sessions(executor: &dyn Executor) {
    for architecture in Family::Windows.architectures() {
        sessions::chunks_of(executor, architecture);
        sessions::rollback_of(executor, architecture);
        sessions::fork_of(executor, architecture);
        sessions::together_of(executor, architecture);
    }
}
