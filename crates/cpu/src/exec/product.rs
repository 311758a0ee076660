//! Products of a matrix's panels with activations: where kernels get them from, and how much they read.

use std::cell::Cell;

use kernels::linear::Activations;

use crate::tune::TunedKernel;

/// Memory of a worker's kernels for products, and the count of what they read.
pub(super) struct Products<'a> {
    memory: &'a mut [u8],
    /// Bytes of matrices.
    read: &'a Cell<u64>,
}

impl<'a> Products<'a> {
    pub(super) fn new(memory: &'a mut [u8], read: &'a Cell<u64>) -> Products<'a> {
        Products { memory, read }
    }

    /// The same for as long as `self` is borrowed.
    pub(super) fn reborrow(&mut self) -> Products<'_> {
        Products { memory: &mut *self.memory, read: self.read }
    }

    /// See [`TunedKernel::run`]. All panels of a step go through here.
    pub(super) fn run(
        &mut self,
        kernel: TunedKernel,
        panels: &[u8],
        x: &Activations<'_>,
        arranged: &[i32],
        out: &mut [f32],
    ) {
        self.read.set(self.read.get() + panels.len() as u64);
        kernel.run(panels, x, arranged, out, self.memory);
    }
}
