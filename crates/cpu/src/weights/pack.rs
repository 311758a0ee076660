//! Reading weights from the file into panels.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use kernels::linear::PANEL_ROWS;
use program::{Error, Program, Progress, Result, WeightId, WeightSource, WeightSpec};

use super::packed::{PackedJob, PackedMatrix};
use super::unusable;
use crate::geometry::UNIT_PANELS;
use crate::memory::Buffer;
use crate::pool::Team;

/// File bytes packed between two reports of progress.
const SLAB_BYTES: usize = 16 << 20;

/// The loading of weights under way.
pub(crate) struct Packing<'a> {
    pub(super) program: &'a Program,
    pub(super) source: &'a dyn WeightSource,
    pub(super) pool: &'a Team,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Packing<'a> {
    /// Of the program's weights.
    pub(crate) fn new(
        program: &'a Program,
        source: &'a dyn WeightSource,
        pool: &'a Team,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Packing<'a> {
        let total = program.weights.iter().map(WeightSpec::bytes).sum();
        Packing { program, source, pool, done: 0, total, progress }
    }

    /// Count `bytes` as done, and tell.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        (self.progress)(Progress { done: self.done.min(self.total), total: self.total });
    }

    /// Tell that all is done.
    pub(crate) fn finish(&mut self) {
        self.advance(self.total);
    }

    /// A vector as f32.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if it is missing or of a type that has no numbers.
    pub(crate) fn vector(&self, id: WeightId) -> Result<Vec<f32>> {
        let spec = self.program.weight(id);
        let format = quant::format(spec.ty).ok_or_else(|| unusable(spec))?;
        let mut vector = vec![0.0; spec.rows * spec.cols];
        format.dequantize(&self.source.bytes(spec)?, &mut vector);
        Ok(vector)
    }

    /// Pack the matrices of a job into the arena, a slab of units at a time.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if one is missing or cannot be read.
    pub(crate) fn pack(&mut self, packed: &PackedJob, arena: &mut Buffer) -> Result<()> {
        let spec = |matrix: &PackedMatrix| self.program.weight(matrix.weight);
        let specs: Vec<&WeightSpec> = packed.matrices.iter().map(spec).collect();
        let row_bytes: Vec<usize> =
            specs.iter().map(|s| s.bytes() as usize / s.rows.max(1)).collect();
        let unit_bytes = row_bytes.iter().sum::<usize>() * UNIT_PANELS * PANEL_ROWS;
        let slab = (SLAB_BYTES / unit_bytes.max(1)).max(self.pool.n());
        let out = arena.shared_as();
        let reader = RowReader::new(self.source);
        let per_copy = packed.n_panels().div_ceil(UNIT_PANELS);
        let n_units = packed.n_copies * per_copy;
        for first in (0..n_units).step_by(slab) {
            let units = first..(first + slab).min(n_units);
            self.pool.deal(units.len(), &|unit| {
                let unit = units.start + unit;
                let (copy, unit) = (unit / per_copy, unit % per_copy);
                let panels = unit * UNIT_PANELS..((unit + 1) * UNIT_PANELS).min(packed.n_panels());
                for (m, matrix) in packed.matrices.iter().enumerate() {
                    // SAFETY: units are dealt once each, and their byte ranges do not overlap.
                    let out = unsafe { out.slice_mut(packed.bytes_of(copy, panels.clone(), m)) };
                    let first = matrix.first + copy * matrix.apart;
                    let of_matrix = |panel: usize| (panel * PANEL_ROWS).min(matrix.rows);
                    let rows = first + of_matrix(panels.start)..first + of_matrix(panels.end);
                    reader.read(specs[m], rows, row_bytes[m], |bytes| {
                        pack_panels(matrix, FileRows { bytes, row_bytes: row_bytes[m] }, out);
                    });
                }
            });
            reader.check()?;
            let mut done = 0;
            for (row_bytes, matrix) in row_bytes.iter().zip(&packed.matrices) {
                let row = |unit: usize| {
                    let within = (unit % per_copy * UNIT_PANELS * PANEL_ROWS).min(matrix.rows);
                    unit / per_copy * matrix.apart + within
                };
                let rows = row(units.start)..row(units.end);
                done += rows.len() * row_bytes / (matrix.apart / matrix.rows.max(1)).max(1);
            }
            self.advance(done as u64);
        }
        Ok(())
    }

    /// Copy a tensor as it is, a slab at a time.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if it is missing or cannot be read, [`program::Error::Memory`].
    pub(super) fn copy(&mut self, spec: &WeightSpec) -> Result<Buffer> {
        let len = spec.bytes() as usize;
        let mut copy = Buffer::new(len, "the embedding table")?;
        let row_bytes = len / spec.rows.max(1);
        let out = copy.shared_as::<u8>();
        for first in (0..spec.rows).step_by((SLAB_BYTES / row_bytes.max(1)).max(1)) {
            let rows = first..(first + (SLAB_BYTES / row_bytes.max(1)).max(1)).min(spec.rows);
            let range = rows.start * row_bytes..rows.end * row_bytes;
            // SAFETY: this thread is the only one with access.
            let out = unsafe { out.slice_mut(range.clone()) };
            self.source.read(spec, range.start, out)?;
            self.advance((rows.len() * row_bytes) as u64);
        }
        Ok(copy)
    }
}

/// Reads rows on several threads, in buffers that are used again. The first failure is kept until [`RowReader::check`].
pub(super) struct RowReader<'a> {
    source: &'a dyn WeightSource,
    buffers: Mutex<Vec<Vec<u8>>>,
    failure: Mutex<Option<Error>>,
}

impl<'a> RowReader<'a> {
    pub(super) fn new(source: &'a dyn WeightSource) -> RowReader<'a> {
        RowReader { source, buffers: Mutex::default(), failure: Mutex::default() }
    }

    /// Reads rows of `row_bytes` bytes each, and calls `use_rows` with them unless reading failed.
    pub(super) fn read(
        &self,
        spec: &WeightSpec,
        rows: Range<usize>,
        row_bytes: usize,
        use_rows: impl FnOnce(&[u8]),
    ) {
        let pooled = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = pooled.unwrap_or_default();
        let len = rows.len() * row_bytes;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        match self.source.read(spec, rows.start * row_bytes, &mut buffer[..len]) {
            Ok(()) => use_rows(&buffer[..len]),
            Err(problem) => {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(problem);
            }
        }
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// Returns the first failure.
    pub(super) fn check(&self) -> Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }
}

/// Rows of some panels as the file has them.
#[derive(Clone, Copy)]
struct FileRows<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
}

fn pack_panels(matrix: &PackedMatrix, rows: FileRows<'_>, out: &mut [u8]) {
    let FileRows { bytes, row_bytes } = rows;
    let panels = bytes.chunks((PANEL_ROWS * row_bytes).max(1));
    for (rows, out) in panels.zip(out.chunks_exact_mut(matrix.panel_bytes)) {
        let mut slices: [&[u8]; PANEL_ROWS] = [&[]; PANEL_ROWS];
        let n = rows.len() / row_bytes.max(1);
        for (slice, row) in slices.iter_mut().zip(rows.chunks_exact(row_bytes.max(1))) {
            *slice = row;
        }
        matrix.kernel.pack(&slices[..n], matrix.cols, out);
    }
}
