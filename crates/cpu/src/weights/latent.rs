//! The matrices of latent attention: small ones, one per head, each packed alone.
//!
//! Bringing queries to latents and making keys of latents are products with the same numbers along the other axis. A
//! file has one of the two; the other is made of it: plain numbers keep their type, quantized ones are read, turned and
//! quantized to Q8_0.

use std::ops::Range;

use kernels::linear::PANEL_ROWS;
use program::{LatentUp, Program, Result, WeightId, WeightSpec};
use quant::GgmlType;

use super::pack::RowReader;
use super::{Packing, unusable};
use crate::memory::Buffer;
use crate::mla::{MlaChoice, MlaDims};
use crate::plan::LatentInputs;
use crate::tune::{TunedKernel, Tuning};

/// A matrix for each head, in panels.
pub(crate) struct HeadMatrix {
    pub(crate) kernel: TunedKernel,
    /// Rows of one head.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    panel_bytes: usize,
    start: usize,
    ty: GgmlType,
    origin: Origin,
}

/// Where a head's numbers come from.
#[derive(Clone, Copy)]
struct Origin {
    weight: WeightId,
    /// File rows of one head.
    head_rows: usize,
    /// The rows taken of those.
    first: usize,
    n: usize,
    /// Whether the matrix is what these rows are as columns.
    turned: bool,
}

impl HeadMatrix {
    /// Panels of one head.
    pub(crate) fn n_panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    /// Bytes of all panels of one head.
    fn head_bytes(&self) -> usize {
        self.n_panels() * self.panel_bytes
    }

    /// Bytes of some panels of a head within the arena.
    pub(crate) fn bytes(&self, head: usize, panels: Range<usize>) -> Range<usize> {
        let start = self.start + head * self.head_bytes();
        start + panels.start * self.panel_bytes..start + panels.end * self.panel_bytes
    }
}

/// The matrices of one layer.
pub(crate) struct PackedLatent {
    /// `[rank, nope_dim]`: queries to latents.
    pub(crate) absorb: Option<HeadMatrix>,
    /// `[nope_dim, rank]`: latents to keys.
    pub(crate) expand: Option<HeadMatrix>,
    /// `[value_dim, rank]`: latents to values.
    pub(crate) value: HeadMatrix,
    n_heads: usize,
}

impl PackedLatent {
    /// Choose kernels and places for what `choice` may need, from `end` of the arena on, which moves behind them.
    ///
    /// # Errors
    /// [`Error::Weight`] if no kernel takes the type of one.
    pub(crate) fn place(
        program: &Program,
        inputs: &LatentInputs,
        choice: MlaChoice,
        tuning: &Tuning,
        end: &mut usize,
    ) -> Result<PackedLatent> {
        let LatentInputs { up, dims, .. } = inputs;
        let [absorb, expand, value] = origins(*up, dims);
        let mut place = |origin: Origin| -> Result<HeadMatrix> {
            let matrix = matrix(program.weight(origin.weight), origin, *end, tuning)?;
            // each starts on a cache line; panels need no more
            *end = (*end + matrix.head_bytes() * dims.n_heads).next_multiple_of(64);
            Ok(matrix)
        };
        let absorb = choice.absorbs().then(|| place(absorb)).transpose()?;
        let expand = choice.expands().then(|| place(expand)).transpose()?;
        let value = place(value)?;
        Ok(PackedLatent { absorb, expand, value, n_heads: dims.n_heads })
    }

    /// Read and pack the matrices.
    ///
    /// # Errors
    /// [`Error::Weight`] if one is missing or cannot be read.
    pub(crate) fn pack(&self, packing: &mut Packing<'_>, arena: &mut Buffer) -> Result<()> {
        for matrix in self.all() {
            pack(packing.program.weight(matrix.origin.weight), self, matrix, packing, arena)?;
        }
        for weight in self.weights() {
            packing.advance(packing.program.weight(weight).bytes());
        }
        Ok(())
    }

    /// The tensors they come from, each once.
    fn weights(&self) -> Vec<WeightId> {
        let mut ids: Vec<WeightId> = self.all().map(|matrix| matrix.origin.weight).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Its matrices.
    pub(crate) fn all(&self) -> impl Iterator<Item = &HeadMatrix> {
        self.absorb.iter().chain(&self.expand).chain(std::iter::once(&self.value))
    }

    /// Bytes a step of few tokens reads.
    pub(crate) fn bytes_per_step(&self) -> usize {
        let keys = self.absorb.as_ref().or(self.expand.as_ref());
        let bytes = |matrix: &HeadMatrix| matrix.head_bytes() * self.n_heads;
        keys.map_or(0, bytes) + bytes(&self.value)
    }
}

/// Where the three matrices come from: queries to latents, latents to keys, latents to values.
fn origins(up: LatentUp, dims: &MlaDims) -> [Origin; 3] {
    let (rank, nope, value) = (dims.rank, dims.nope_dim, dims.value_dim);
    match up {
        LatentUp::Split { k_b, v_b } => {
            let keys = Origin { weight: k_b, head_rows: rank, first: 0, n: rank, turned: false };
            let values =
                Origin { weight: v_b, head_rows: value, first: 0, n: value, turned: false };
            [keys, Origin { turned: true, ..keys }, values]
        }
        LatentUp::Joint { kv_b } => {
            let head_rows = nope + value;
            let keys = Origin { weight: kv_b, head_rows, first: 0, n: nope, turned: false };
            let values = Origin { first: nope, n: value, ..keys };
            [Origin { turned: true, ..keys }, keys, values]
        }
    }
}

fn matrix(spec: &WeightSpec, origin: Origin, start: usize, tuning: &Tuning) -> Result<HeadMatrix> {
    let (rows, cols) = if origin.turned { (spec.cols, origin.n) } else { (origin.n, spec.cols) };
    let ty = match spec.ty {
        ty if !origin.turned || ty.block_len() == 1 => ty,
        _ if cols.is_multiple_of(GgmlType::Q8_0.block_len()) => GgmlType::Q8_0,
        _ => GgmlType::F16,
    };
    quant::format(spec.ty).ok_or_else(|| unusable(spec))?;
    let kernel = tuning.linear(ty).ok_or_else(|| unusable(spec))?;
    let panel_bytes = kernel.panel_bytes(cols);
    Ok(HeadMatrix { kernel, rows, cols, panel_bytes, start, ty, origin })
}

/// Pack one matrix of all heads.
fn pack(
    spec: &WeightSpec,
    layer: &PackedLatent,
    matrix: &HeadMatrix,
    packing: &mut Packing<'_>,
    arena: &mut Buffer,
) -> Result<()> {
    let row_bytes = spec.bytes() as usize / spec.rows.max(1);
    let reader = RowReader::new(packing.source);
    let out = arena.shared_as();
    let Origin { head_rows, first, n, turned, .. } = matrix.origin;
    packing.pool.deal(layer.n_heads, &|head| {
        let rows = head * head_rows + first..head * head_rows + first + n;
        // SAFETY: heads are dealt once each, and their byte ranges do not overlap.
        let out = unsafe { out.slice_mut(matrix.bytes(head, 0..matrix.n_panels())) };
        reader.read(spec, rows, row_bytes, |bytes| {
            if turned {
                pack_rows(matrix, &turn(matrix, spec, bytes), out);
            } else {
                pack_rows(matrix, bytes, out);
            }
        });
    });
    reader.check()
}

/// The rows of one head along the other axis, in the matrix's type.
fn turn(matrix: &HeadMatrix, spec: &WeightSpec, bytes: &[u8]) -> Vec<u8> {
    let known = "`matrix` checked the types";
    let mut values = vec![0.0; matrix.rows * matrix.cols];
    quant::format(spec.ty).expect(known).dequantize(bytes, &mut values);
    let mut turned = vec![0.0; values.len()];
    for (column, values) in values.chunks_exact(matrix.rows).enumerate() {
        for (row, value) in turned.chunks_exact_mut(matrix.cols).zip(values) {
            row[column] = *value;
        }
    }
    let len = matrix.ty.row_bytes(matrix.cols).expect("`matrix` chose a type of whole blocks");
    let mut out = vec![0; len * matrix.rows];
    let quantized = quant::format(matrix.ty).expect(known).quantize(&turned, &mut out);
    assert!(quantized, "{} has a quantizer", matrix.ty);
    out
}

fn pack_rows(matrix: &HeadMatrix, bytes: &[u8], out: &mut [u8]) {
    let row_bytes = bytes.len() / matrix.rows;
    for (panel, out) in out.chunks_exact_mut(matrix.panel_bytes).enumerate() {
        let rows = panel * PANEL_ROWS..((panel + 1) * PANEL_ROWS).min(matrix.rows);
        let mut slices: [&[u8]; PANEL_ROWS] = [&[]; PANEL_ROWS];
        let n = rows.len();
        for (slice, row) in slices.iter_mut().zip(rows) {
            *slice = &bytes[row * row_bytes..(row + 1) * row_bytes];
        }
        matrix.kernel.pack(&slices[..n], matrix.cols, out);
    }
}
