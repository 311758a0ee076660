//! The only `unsafe` code of this crate: acknowledges experimental features of wgpu, and sets an environment variable that drivers read.

/// What has to be said where such features are asked for.
pub(crate) fn of(features: wgpu::Features) -> wgpu::ExperimentalFeatures {
    if !features.intersects(wgpu::Features::all_experimental_mask()) {
        return wgpu::ExperimentalFeatures::disabled();
    }
    // SAFETY: nothing is asked of a caller but to know that wgpu may still have faults in them. What is used are matrices of
    // subgroups, by `kernels/tiles/matrices.wgsl` alone: all that it loads and stores by them lies in arrays of workgroup
    // memory, at places that no data decides, and on a device where a matrix comes out wrong they are not taken (`tuning.rs`).
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// Environment variable that disables Mesa's Vulkan layer that sorts devices by the preferences of the desktop.
/// Source: `disable_environment` in VkLayer_MESA_device_select.json of Mesa.
const NO_DEVICE_LAYER: &str = "NODEVICE_SELECT";

/// Disables Mesa's Vulkan layer that sorts devices, unless its environment variable is already set. Without a desktop, the layer prints an
/// error to the terminal, and this crate sorts devices anyway. Does nothing if another thread is running.
pub(crate) fn disable_device_layer() {
    let is_alone = || std::fs::read_dir("/proc/self/task").is_ok_and(|all| all.count() == 1);
    if std::env::var_os(NO_DEVICE_LAYER).is_none() && is_alone() {
        // SAFETY: no other thread may read the environment at the same time. `is_alone` has found that this thread is the only
        // one of the process, and it starts none here.
        unsafe { std::env::set_var(NO_DEVICE_LAYER, "1") }
    }
}
