//! Products with the small matrices that each head has of its own.

use std::ops::Range;

use kernels::linear::{ActFormat, Activations, F32Rows, PANEL_ROWS, Q8Rows};

use super::super::product::Products;
use super::super::{Exec, Kernels, q8_stride};
use super::memory::InputScratch;
use crate::tune::TunedKernel;
use crate::weights::HeadMatrix;

/// Most rows of an input.
pub(super) const MAX_ROWS: usize = 256;
/// Panels multiplied at a time.
const PANELS: usize = 4;

/// Floats of the outputs of some panels with up to `n` rows.
pub(super) fn tile_floats(n: usize) -> usize {
    PANELS * PANEL_ROWS * n
}

/// Rows as a kernel reads them.
pub(super) struct HeadInput<'a> {
    kernel: TunedKernel,
    x: Activations<'a>,
    arranged: &'a [i32],
}

impl<'a> HeadInput<'a> {
    /// Quantize and arrange `x`, at most [`MAX_ROWS`] rows, as `kernel` wants it.
    pub(super) fn new(
        kernels: &Kernels,
        kernel: TunedKernel,
        x: F32Rows<'a>,
        scratch: InputScratch<'a>,
    ) -> HeadInput<'a> {
        let InputScratch { codes, scales, sums, arranged } = scratch;
        let (n, cols) = (x.n, x.cols);
        let x = match kernel.act_format() {
            ActFormat::F32 => Activations::F32(x),
            ActFormat::Q8(block) => {
                let stride = q8_stride(cols);
                for row in 0..n {
                    let scales = &mut scales[row * (cols / 32)..(row + 1) * (cols / 32)];
                    let sums = &mut sums[row * (cols / 16)..(row + 1) * (cols / 16)];
                    let codes = &mut codes[row * stride..row * stride + cols];
                    let x = &x.x[row * x.stride..row * x.stride + cols];
                    kernels.quantize_q8.call(x, block, codes, scales, sums);
                }
                Activations::Q8(Q8Rows { codes, scales, sums, n, cols, block, stride, pick: None })
            }
        };
        let mut words = 0;
        if let Some(tiling) = kernel.tiling(n, cols) {
            words = tiling.words();
            let tiles = arranged[..words].chunks_exact_mut(tiling.tile_words);
            for (tile, out) in tiles.enumerate() {
                kernel.arrange(&x, tile, out);
            }
        }
        HeadInput { kernel, x, arranged: &arranged[..words] }
    }

    /// Whether another matrix's kernel reads the same.
    pub(super) fn serves(&self, matrix: &HeadMatrix) -> bool {
        self.kernel == matrix.kernel && self.x.cols() == matrix.cols
    }
}

/// Some panels of one head's matrix.
pub(super) struct HeadProduct<'a> {
    pub(super) matrix: &'a HeadMatrix,
    pub(super) head: usize,
    pub(super) panels: Range<usize>,
}

impl HeadProduct<'_> {
    /// All panels.
    pub(super) fn whole(matrix: &HeadMatrix, head: usize) -> HeadProduct<'_> {
        HeadProduct { matrix, head, panels: 0..matrix.n_panels() }
    }
}

/// Memory of a product.
pub(super) struct ProductScratch<'a> {
    /// Outputs of some panels.
    pub(super) tile: &'a mut [f32],
    pub(super) products: Products<'a>,
}

impl Exec<'_> {
    /// Multiply panels of a head's matrix with an input; `sink` gets each panel's number and outputs `[n][16]`.
    pub(super) fn multiply(
        &self,
        product: HeadProduct<'_>,
        input: &HeadInput<'_>,
        scratch: ProductScratch<'_>,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) {
        let HeadProduct { matrix, head, panels } = product;
        let ProductScratch { tile, mut products } = scratch;
        let n = input.x.n();
        for first in panels.clone().step_by(PANELS) {
            let some = first..(first + PANELS).min(panels.end);
            let bytes = &self.weights.latent.bytes()[matrix.bytes(head, some.clone())];
            let tile = &mut tile[..some.len() * n * PANEL_ROWS];
            products.run(input.kernel, bytes, &input.x, input.arranged, tile);
            for (panel, outputs) in some.zip(tile.chunks_exact(n * PANEL_ROWS)) {
                sink(panel, outputs);
            }
        }
    }
}
