//! Weights on the device: matrices packed into planes, vectors in f32.

use std::collections::HashSet;
use std::ops::Range;

use program::{Error, Program, Progress, Result, Rope, WeightId, WeightSource, WeightSpec};

use crate::backend::{Buffer, Usage, Write};
use crate::device::Gpu;
use crate::formats::{DeviceFormat, device_format};
use crate::kernels::MATMAT_TILE;
use crate::pack::Planes;
use crate::plan::{GpuPlan, MatrixSpec, RowOrder, VectorSpec};

/// Bytes of planes that a thread packs at a time.
const PIECE: usize = 8 << 20;

/// Some rows of a matrix: as many as buffers can hold.
pub(crate) struct MatrixPart {
    /// Number of its first row in the matrix.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Low bits, high bits, factors and scales.
    pub(crate) planes: [Buffer; 3],
    /// Where the scales begin in the last plane.
    pub(crate) s_base: usize,
}

/// A matrix on the device.
pub(crate) struct DeviceMatrix {
    pub(crate) format: &'static DeviceFormat,
    pub(crate) parts: Vec<MatrixPart>,
    /// Numbers in a row.
    pub(crate) cols: usize,
}

/// All weights of a plan.
pub(crate) struct DeviceWeights {
    pub(crate) matrices: Vec<DeviceMatrix>,
    /// All vectors, one after another.
    pub(crate) vectors: Buffer,
    /// Where each begins.
    pub(crate) starts: Vec<usize>,
    /// Bytes on the device.
    pub(crate) bytes: u64,
}

/// The rows of each part of a matrix.
fn parts(format: &DeviceFormat, spec: &MatrixSpec, most_bytes: u64) -> Vec<Range<usize>> {
    let words = format.row_words(spec.cols);
    let widest = 4 * words.low.max(words.high).max(words.factors + words.scales);
    let most = (most_bytes / widest.max(1) as u64).max(1) as usize;
    // whole tiles, and whole pairs of rows
    let most = if most > MATMAT_TILE { most / MATMAT_TILE * MATMAT_TILE } else { most };
    let starts = (0..spec.rows).step_by(most);
    starts.map(|first| first..spec.rows.min(first + most)).collect()
}

/// Bytes that a buffer takes.
fn buffer_bytes(words: usize) -> u64 {
    (4 * words as u64).max(16).next_multiple_of(16)
}

fn format_of(spec: &MatrixSpec) -> &'static DeviceFormat {
    device_format(spec.ty).expect("supported types have a form")
}

/// Bytes that the weights of a plan take on a device.
pub(crate) fn weight_bytes(plan: &GpuPlan, program: &Program, most_bytes: u64) -> u64 {
    let matrix = |spec: &MatrixSpec| -> u64 {
        let (format, words) = (format_of(spec), format_of(spec).row_words(spec.cols));
        let part = |rows: Range<usize>| {
            let planes = [words.low, words.high, words.factors + words.scales];
            planes.iter().map(|words| buffer_bytes(words * rows.len())).sum::<u64>()
        };
        parts(format, spec, most_bytes).into_iter().map(part).sum()
    };
    let vectors: usize = plan.vectors.iter().map(|vector| vector_len(vector, program)).sum();
    plan.matrices.iter().map(matrix).sum::<u64>() + buffer_bytes(vectors)
}

fn vector_len(vector: &VectorSpec, program: &Program) -> usize {
    match vector {
        VectorSpec::Weight(id) => program.weight(*id).rows * program.weight(*id).cols,
        VectorSpec::Biases { parts, .. } => parts.iter().map(|(_, rows)| rows).sum(),
        VectorSpec::Numbers(numbers) => numbers.len(),
    }
}

/// A weight in f32.
fn dequantized(source: &dyn WeightSource, spec: &WeightSpec) -> Result<Vec<f32>> {
    let format = quant::format(spec.ty).ok_or_else(|| Error::Weight {
        name: spec.name.clone(),
        problem: format!("type {} is not a weight type", spec.ty),
    })?;
    let mut numbers = vec![0.0; spec.rows * spec.cols];
    format.dequantize(&source.bytes(spec)?, &mut numbers);
    Ok(numbers)
}

/// Radians per position of each pair, and the factor on cosines and sines.
pub(crate) fn rotation(
    source: &dyn WeightSource,
    program: &Program,
    rope: &Rope,
) -> Result<(Vec<f64>, f64)> {
    let factors = rope.factors.map(|id| dequantized(source, program.weight(id))).transpose()?;
    Ok((rope.frequencies(factors.as_deref()), f64::from(rope.magnitude())))
}

/// Brings weights to a device, and tells how far it has come.
pub(crate) struct Loader<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) program: &'a Program,
    pub(crate) source: &'a dyn WeightSource,
    pub(crate) progress: &'a mut dyn FnMut(Progress),
    /// Weights that were told of.
    pub(crate) told: HashSet<WeightId>,
    /// Their bytes.
    pub(crate) done: u64,
}

impl Loader<'_> {
    /// All weights of a plan.
    ///
    /// # Errors
    /// [`Error::Weight`], [`Error::Memory`], [`Error::Device`].
    pub(crate) fn load(mut self, plan: &GpuPlan) -> Result<DeviceWeights> {
        let matrices = plan.matrices.iter().map(|spec| self.matrix(spec));
        let matrices = matrices.collect::<Result<Vec<_>>>()?;
        let (mut numbers, mut starts) = (Vec::new(), Vec::new());
        for vector in &plan.vectors {
            starts.push(numbers.len());
            numbers.extend(self.vector(vector)?);
        }
        let vectors = self.gpu.upload("vectors", bytemuck::cast_slice(&numbers))?;
        let total = self.program.weight_bytes();
        (self.progress)(Progress { done: total, total });
        let planes = matrices.iter().flat_map(|matrix| &matrix.parts).flat_map(|part| &part.planes);
        let bytes = planes.map(Buffer::size).sum::<u64>() + vectors.size();
        Ok(DeviceWeights { matrices, vectors, starts, bytes })
    }

    fn tell(&mut self, id: WeightId) {
        if self.told.insert(id) {
            self.done += self.program.weight(id).bytes();
            let (done, total) = (self.done, self.program.weight_bytes());
            (self.progress)(Progress { done, total });
        }
    }

    fn vector(&mut self, vector: &VectorSpec) -> Result<Vec<f32>> {
        let (parts, in_turn) = match vector {
            VectorSpec::Numbers(numbers) => return Ok(numbers.clone()),
            VectorSpec::Weight(id) => {
                let numbers = dequantized(self.source, self.program.weight(*id))?;
                self.tell(*id);
                return Ok(numbers);
            }
            VectorSpec::Biases { parts, in_turn } => (parts, *in_turn),
        };
        let mut columns = Vec::new();
        for (id, rows) in parts {
            columns.push(match id {
                Some(id) => dequantized(self.source, self.program.weight(*id))?,
                None => vec![0.0; *rows],
            });
            id.iter().for_each(|id| self.tell(*id));
        }
        if !in_turn {
            return Ok(columns.concat());
        }
        let rows = columns.first().map_or(0, Vec::len);
        Ok((0..rows).flat_map(|row| columns.iter().map(move |column| column[row])).collect())
    }

    fn matrix(&mut self, spec: &MatrixSpec) -> Result<DeviceMatrix> {
        let format = format_of(spec);
        let weights: Vec<_> = spec.weights.iter().map(|id| self.program.weight(*id)).collect();
        let row_bytes = spec.ty.row_bytes(spec.cols).expect("the recorder accepted whole blocks");
        let ends: Vec<usize> = (weights.iter())
            .scan(0, |end, weight| {
                *end += weight.rows;
                Some(*end)
            })
            .collect();
        let read_row = |row: usize, out: &mut [u8]| {
            let (weight, row) = match spec.order {
                RowOrder::InTurn => (row % weights.len(), row / weights.len()),
                RowOrder::Halves(each) => {
                    let (stretch, at) = (row / (2 * each), row % (2 * each));
                    (0, stretch * 2 * each + at % 2 * each + at / 2)
                }
                RowOrder::AsTheyAre => {
                    let weight = ends.partition_point(|end| *end <= row);
                    (weight, row - (ends[weight] - weights[weight].rows))
                }
            };
            self.source.read(weights[weight], row * row_bytes, out)
        };
        let mut made = Vec::new();
        for rows in parts(format, spec, self.gpu.most_bytes()) {
            made.push(self.part(format, spec, rows, &read_row)?);
        }
        spec.weights.iter().for_each(|id| self.tell(*id));
        Ok(DeviceMatrix { format, parts: made, cols: spec.cols })
    }

    /// Pack and upload some rows.
    fn part(
        &self,
        format: &'static DeviceFormat,
        spec: &MatrixSpec,
        rows: Range<usize>,
        read_row: &(dyn Fn(usize, &mut [u8]) -> Result<()> + Sync),
    ) -> Result<MatrixPart> {
        let words = format.row_words(spec.cols);
        let n = rows.len();
        let row_bytes = spec.ty.row_bytes(spec.cols).expect("the recorder accepted whole blocks");
        let buffer = |words: usize| self.gpu.buffer("weights", 4 * words as u64, Usage::Storage);
        let planes = [
            buffer(words.low * n)?,
            buffer(words.high * n)?,
            buffer((words.factors + words.scales) * n)?,
        ];
        let s_base = words.factors * n;
        let piece = (PIECE / words.bytes().max(1)).max(1);
        let starts: Vec<usize> = rows.clone().step_by(piece).collect();
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for starts in starts.chunks(threads) {
            let pack = |first: usize| -> Result<Planes> {
                let end = rows.end.min(first + piece);
                let mut planes = Planes::new(words, end - first);
                let mut row = vec![0; row_bytes];
                for i in first..end {
                    read_row(i, &mut row)?;
                    (format.pack)(&row, &mut planes.row(i - first));
                }
                Ok(planes)
            };
            let packed: Vec<Planes> = std::thread::scope(|scope| {
                let work: Vec<_> =
                    starts.iter().map(|&first| scope.spawn(move || pack(first))).collect();
                let done = work.into_iter().map(|work| work.join());
                done.map(|planes| planes.expect("packing does not panic")).collect::<Result<_>>()
            })?;
            let mut writes = Vec::new();
            for (packed, first) in packed.iter().zip(starts) {
                let at = first - rows.start;
                let (factors, scales) = packed.scales.split_at(packed.s_base);
                let parts = [
                    (0, at * words.low, &packed.low[..]),
                    (1, at * words.high, &packed.high[..]),
                    (2, at * words.factors, factors),
                    (2, s_base + at * words.scales, scales),
                ];
                writes.extend(parts.map(|(plane, word, words)| Write {
                    to: &planes[plane],
                    at: 4 * word as u64,
                    bytes: bytemuck::cast_slice(words),
                }));
            }
            self.gpu.write("weights", &writes)?;
        }
        Ok(MatrixPart { first: rows.start, rows: n, planes, s_base })
    }
}
