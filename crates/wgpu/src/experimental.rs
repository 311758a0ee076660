//! The only `unsafe` of this crate: what wgpu calls experimental has to be acknowledged so.

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
