//! The GPU executor by CUDA: on a card where `ROOFLIGHT_REQUIRE_CUDA` has a part of its name, else on the software device,
//! which interprets the PTX and finds what a card would show only sometimes: accesses out of bounds, reads of what nobody
//! wrote, races between threads.

#[path = "../gpu/among.rs"]
mod among;
#[path = "../gpu/bundled.rs"]
mod bundled;
#[path = "../gpu/counts.rs"]
mod counts;
mod graphs;
#[path = "../gpu/hybrid.rs"]
mod hybrid;
#[path = "../gpu/placements.rs"]
mod placements;
#[path = "../gpu/recurrent.rs"]
mod recurrent;
#[path = "../gpu/sessions.rs"]
mod sessions;
#[path = "../gpu/suite.rs"]
mod suite;
#[path = "../gpu/taken_back.rs"]
mod taken_back;
mod tiles;
#[path = "../gpu/weights.rs"]
mod weights;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::PathBuf;
use std::sync::OnceLock;

use gpu::{GpuExecutor, GpuOptions, Interface};
use program::Executor;

/// The software device, which cargo builds beside this test.
fn software() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    test.with_file_name(format!("{DLL_PREFIX}cuda_software{DLL_SUFFIX}"))
}

/// How the device of these tests is opened.
fn options() -> GpuOptions {
    let card = std::env::var("ROOFLIGHT_REQUIRE_CUDA").ok().filter(|name| !name.is_empty());
    let driver = card.is_none().then(software);
    GpuOptions { interface: Interface::Cuda, adapter: card, driver, ..GpuOptions::default() }
}

/// A device of one's own.
#[expect(clippy::unnecessary_wraps, reason = "by wgpu there may be none")]
fn open() -> Option<GpuExecutor> {
    let device = GpuExecutor::open(&options()).expect("the software device opens");
    testing::covered(&format!("GPU executor on {}", device.describe()));
    Some(device)
}

/// The device of all tests here.
fn device() -> Option<&'static GpuExecutor> {
    static DEVICE: OnceLock<Option<GpuExecutor>> = OnceLock::new();
    DEVICE.get_or_init(open).as_ref()
}

/// Whether tests that take long run here: in `cargo xtask full`, and on a card.
fn is_tested(what: &str) -> bool {
    options().driver.is_none() || testing::full(&format!("cuda: {what}"))
}
