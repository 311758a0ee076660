//! The GPU executor by wgpu on whatever device there is; where there is no card, software does: Mesa's lavapipe. The same
//! tests by CUDA are `tests/cuda`.

mod among;
mod bundled;
mod counts;
mod hybrid;
mod placements;
mod recurrent;
mod sessions;
mod suite;
mod taken_back;
mod weights;

use std::sync::OnceLock;

use gpu::{GpuExecutor, GpuOptions};
use program::Executor;

/// Part of the required adapter's name, or `any` where some adapter is required.
fn required() -> Option<String> {
    std::env::var("ROOFLIGHT_REQUIRE_DEVICE").ok().filter(|name| !name.is_empty())
}

/// How the device of these tests is opened.
fn options() -> GpuOptions {
    GpuOptions { adapter: required().filter(|name| name != "any"), ..GpuOptions::default() }
}

fn open() -> Option<GpuExecutor> {
    match GpuExecutor::open(&options()) {
        Ok(device) => {
            testing::covered(&format!("GPU executor on {}", device.describe()));
            Some(device)
        }
        Err(why) => {
            assert!(required().is_none(), "a device is required, but: {why}");
            testing::skipped(&format!("wgpu: {why}"));
            None
        }
    }
}

/// The device of all tests here; told as skipped where there is none.
fn device() -> Option<&'static GpuExecutor> {
    static DEVICE: OnceLock<Option<GpuExecutor>> = OnceLock::new();
    DEVICE.get_or_init(open).as_ref()
}

/// Whether tests that take long run here: by wgpu always.
fn is_tested(_what: &str) -> bool {
    true
}
