//! Weights as the executor keeps them: matrices in panels, in the order they are read; vectors and tables beside them.

mod latent;

use std::collections::HashMap;
use std::ops::Range;

use kernels::linear::{ActFormat, PANEL_ROWS};
use program::{Error, Program, Progress, Reading, Result, WeightId, WeightSource, WeightSpec};

use crate::geometry::{LOCAL_ROWS, UNIT_PANELS};
use crate::memory::Buffer;
use crate::mla::MlaChoice;
use crate::plan::{Job, Phase, Plan, Stream};
use crate::pool::{Pool, Shares};
use crate::tune::{TunedKernel, Tuning};

pub(crate) use latent::{HeadMatrix, LatentWeights};

/// File bytes packed between two releases of file pages and two reports of progress.
const SLAB_BYTES: usize = 16 << 20;

/// One matrix inside a job's stream.
#[derive(Clone, Copy)]
pub(crate) struct PackedMatrix {
    pub(crate) kernel: TunedKernel,
    /// Rows of one copy.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) panel_bytes: usize,
}

/// A job's weights: units of [`UNIT_PANELS`] panels; in a gated job, a unit of the gate, then one of the up matrix.
/// Experts are copies of a job: each has its own units.
pub(crate) struct PackedJob {
    pub(crate) matrices: Vec<PackedMatrix>,
    start: usize,
    n_panels: usize,
    n_copies: usize,
    /// Copies that one row reads.
    n_used: usize,
}

impl PackedJob {
    /// Panels of each matrix.
    pub(crate) fn n_panels(&self) -> usize {
        self.n_panels
    }

    /// Bytes of panels `panels` of matrix `m` within the arena. The panels belong to one unit.
    pub(crate) fn bytes(&self, panels: Range<usize>, m: usize) -> Range<usize> {
        self.bytes_of(0, panels, m)
    }

    /// [`bytes`](Self::bytes) of copy `copy`.
    pub(crate) fn bytes_of(&self, copy: usize, panels: Range<usize>, m: usize) -> Range<usize> {
        let unit = panels.start / UNIT_PANELS * UNIT_PANELS;
        debug_assert!(panels.end <= unit + UNIT_PANELS, "panels of one unit");
        let in_unit = (self.n_panels - unit).min(UNIT_PANELS);
        let before: usize = self.matrices.iter().map(|x| x.panel_bytes * unit).sum();
        let beside: usize = self.matrices[..m].iter().map(|x| x.panel_bytes * in_unit).sum();
        let size = self.matrices[m].panel_bytes;
        let start = self.start + copy * self.copy_len();
        let start = start + before + beside + (panels.start - unit) * size;
        start..start + size * panels.len()
    }

    /// Bytes a step of one row reads.
    pub(crate) fn bytes_per_step(&self) -> u64 {
        (self.n_used * self.copy_len()) as u64
    }

    fn len(&self) -> usize {
        self.n_copies * self.copy_len()
    }

    fn copy_len(&self) -> usize {
        self.matrices.iter().map(|x| x.panel_bytes * self.n_panels).sum()
    }

    /// Which activations its kernels read.
    pub(crate) fn reads(&self, format: ActFormat) -> bool {
        self.matrices.iter().any(|m| m.kernel.act_format() == format)
    }
}

/// Where the rows of an embedding table come from.
enum Table {
    /// The table is also a matrix: rows are read back from its panels.
    Packed { phase: usize, job: usize },
    /// File bytes.
    Raw(Buffer),
}

/// All weights of a plan.
pub(crate) struct Weights {
    arena: Buffer,
    latent: LatentWeights,
    /// By phase (empty for phases without matrices), then by job.
    jobs: Vec<Vec<PackedJob>>,
    /// Norms, biases and frequency factors, dequantized, by weight number.
    vectors: Vec<Option<Vec<f32>>>,
    tables: HashMap<WeightId, Table>,
    specs: Vec<WeightSpec>,
}

impl Weights {
    /// Read, pack and release every weight of the plan.
    ///
    /// # Errors
    /// [`Error::Weight`] if one is missing or no kernel takes its type; [`Error::Memory`].
    pub(crate) fn load(
        (program, plan): (&Program, &Plan),
        source: &dyn WeightSource,
        (pool, tuning, form): (&Pool, &Tuning, MlaChoice),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Weights> {
        let (jobs, arena_len) = layout(program, plan, tuning)?;
        let total = program.weights.iter().map(WeightSpec::bytes).sum();
        let mut packing = Packing { source, pool, done: 0, total, progress };
        let mut weights = Weights {
            arena: Buffer::new(arena_len, "the weights")?,
            latent: LatentWeights::load((program, plan), (tuning, form), &mut packing)?,
            jobs,
            vectors: vec![None; program.weights.len()],
            tables: HashMap::new(),
            specs: program.weights.clone(),
        };
        for (phase_index, phase) in plan.phases.iter().enumerate() {
            for (stream, packed) in phase.streams().iter().zip(&weights.jobs[phase_index]) {
                packing.pack(program, stream, packed, &mut weights.arena)?;
            }
        }
        for used in program.nodes.iter().flat_map(|node| node.op.facts().weights) {
            match used.reading {
                Reading::Vector | Reading::OnLoad => {
                    weights.vector_of(program, used.id, &mut packing)?;
                }
                Reading::TableRow => weights.table(plan, used.id, &mut packing)?,
                // these are in the streams of phases
                Reading::Matrix | Reading::Copies { .. } => {}
            }
        }
        (packing.progress)(Progress { done: total, total });
        Ok(weights)
    }

    /// The jobs of a linear phase.
    pub(crate) fn jobs(&self, phase: usize) -> &[PackedJob] {
        &self.jobs[phase]
    }

    /// The matrices of latent attention.
    pub(crate) fn latent(&self) -> &LatentWeights {
        &self.latent
    }

    /// The arena that [`PackedJob::bytes`] indexes.
    pub(crate) fn arena(&self) -> &[u8] {
        self.arena.bytes()
    }

    /// A vector as f32.
    pub(crate) fn vector(&self, id: WeightId) -> &[f32] {
        self.vectors[id.0 as usize].as_deref().expect("`load` read every vector of the program")
    }

    /// Memory the weights take.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.tables.values().map(|t| if let Table::Raw(b) = t { b.len() } else { 0 });
        let vectors = self.vectors.iter().flatten().map(|v| v.len() * 4);
        (self.arena.len() + self.latent.bytes() + tables.sum::<usize>() + vectors.sum::<usize>())
            as u64
    }

    /// Bytes of matrices one step of one row reads.
    pub(crate) fn bytes_per_step(&self) -> u64 {
        let jobs: u64 = self.jobs.iter().flatten().map(PackedJob::bytes_per_step).sum();
        jobs + self.latent.bytes_per_step() as u64
    }

    /// Bytes of matrices one step of one row reads in one phase.
    pub(crate) fn bytes_of_phase(&self, phase: usize) -> u64 {
        let jobs: u64 = self.jobs[phase].iter().map(PackedJob::bytes_per_step).sum();
        jobs + self.latent.bytes_of_phase(phase) as u64
    }

    /// Row `row` of an embedding table.
    pub(crate) fn embed(&self, id: WeightId, row: usize, out: &mut [f32]) {
        let spec = &self.specs[id.0 as usize];
        match &self.tables[&id] {
            Table::Raw(bytes) => {
                let len =
                    spec.ty.row_bytes(spec.cols).expect("the recorder accepted whole blocks only");
                let format = quant::format(spec.ty).expect("`load` checked the type");
                format.dequantize(&bytes.bytes()[row * len..(row + 1) * len], out);
            }
            Table::Packed { phase, job } => {
                let packed = &self.jobs[*phase][*job];
                let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
                let matrix = &packed.matrices[0];
                let panel = &self.arena()[packed.bytes(panel..panel + 1, 0)];
                matrix.kernel.unpack_row(panel, lane, out);
            }
        }
    }

    fn vector_of(
        &mut self,
        program: &Program,
        id: WeightId,
        packing: &mut Packing<'_>,
    ) -> Result<()> {
        if self.vectors[id.0 as usize].is_none() {
            let spec = program.weight(id);
            let format = quant::format(spec.ty).ok_or_else(|| unusable(spec))?;
            let mut vector = vec![0.0; spec.rows * spec.cols];
            format.dequantize(packing.source.bytes(spec)?, &mut vector);
            self.vectors[id.0 as usize] = Some(vector);
        }
        Ok(())
    }

    fn table(&mut self, plan: &Plan, id: WeightId, packing: &mut Packing<'_>) -> Result<()> {
        let alone = |job: &Job| matches!(job, Job::One { matrix, .. } if matrix.weight == id);
        let packed = plan.phases.iter().enumerate().find_map(|(phase, p)| match p {
            Phase::Linear(linear) => {
                linear.jobs.iter().position(alone).map(|job| Table::Packed { phase, job })
            }
            _ => None,
        });
        let table = match packed {
            Some(table) => table,
            None => {
                let spec = &self.specs[id.0 as usize];
                quant::format(spec.ty).ok_or_else(|| unusable(spec))?;
                Table::Raw(packing.copy(spec)?)
            }
        };
        self.tables.insert(id, table);
        Ok(())
    }
}

fn unusable(spec: &WeightSpec) -> Error {
    let problem = format!("type {} with rows of {} cannot be used as a weight", spec.ty, spec.cols);
    Error::Weight { name: spec.name.clone(), problem }
}

/// Choose kernels and places for every matrix.
fn layout(program: &Program, plan: &Plan, tuning: &Tuning) -> Result<(Vec<Vec<PackedJob>>, usize)> {
    let mut end = 0;
    let mut phases = Vec::new();
    for phase in &plan.phases {
        let mut packed = Vec::new();
        for Stream { weights, n_copies, n_used } in phase.streams() {
            let matrices = weights.iter().map(|id| {
                let spec = program.weight(*id);
                let kernel = tuning.linear(spec.ty).ok_or_else(|| unusable(spec))?;
                let panel_bytes = kernel.panel_bytes(spec.cols);
                let few = kernel.tiling(LOCAL_ROWS, spec.cols);
                assert!(
                    few.is_none(),
                    "{} arranges rows that workers keep to themselves",
                    kernel.name()
                );
                let rows = spec.rows / n_copies;
                Ok(PackedMatrix { kernel, rows, cols: spec.cols, panel_bytes })
            });
            let matrices = matrices.collect::<Result<Vec<_>>>()?;
            let n_panels = matrices[0].rows.div_ceil(PANEL_ROWS);
            let job = PackedJob { matrices, start: end, n_panels, n_copies, n_used };
            // streams start on cache lines; panels need no more
            end = (end + job.len()).next_multiple_of(64);
            packed.push(job);
        }
        phases.push(packed);
    }
    Ok((phases, end))
}

/// The loading of weights under way.
struct Packing<'a> {
    source: &'a dyn WeightSource,
    pool: &'a Pool,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(Progress),
}

impl Packing<'_> {
    /// Pack the matrices of a job into the arena, a slab of units at a time.
    fn pack(
        &mut self,
        program: &Program,
        stream: &Stream,
        packed: &PackedJob,
        arena: &mut Buffer,
    ) -> Result<()> {
        let specs: Vec<&WeightSpec> = stream.weights.iter().map(|id| program.weight(*id)).collect();
        let sources =
            specs.iter().map(|spec| self.source.bytes(spec)).collect::<Result<Vec<_>>>()?;
        let row_bytes: Vec<usize> =
            specs.iter().map(|s| s.bytes() as usize / s.rows.max(1)).collect();
        let unit_bytes = row_bytes.iter().sum::<usize>() * UNIT_PANELS * PANEL_ROWS;
        let slab = (SLAB_BYTES / unit_bytes.max(1)).max(self.pool.n());
        let out = arena.shared_as();
        let shares = Shares::new(self.pool.n());
        let per_copy = packed.n_panels.div_ceil(UNIT_PANELS);
        let n_units = packed.n_copies * per_copy;
        for first in (0..n_units).step_by(slab) {
            let units = first..(first + slab).min(n_units);
            shares.reset();
            self.pool.run(&|worker| {
                for unit in shares.take(&worker, units.len()).map(|i| units.start + i) {
                    let (copy, unit) = (unit / per_copy, unit % per_copy);
                    let panels =
                        unit * UNIT_PANELS..((unit + 1) * UNIT_PANELS).min(packed.n_panels);
                    for (m, matrix) in packed.matrices.iter().enumerate() {
                        // SAFETY: units are dealt once each, and their byte ranges do not overlap.
                        let out =
                            unsafe { out.slice_mut(packed.bytes_of(copy, panels.clone(), m)) };
                        let rows = copy * matrix.rows..(copy + 1) * matrix.rows;
                        let bytes = &sources[m][rows.start * row_bytes[m]..rows.end * row_bytes[m]];
                        pack_panels(matrix, panels.clone(), (bytes, row_bytes[m]), out);
                    }
                }
            });
            for ((spec, row_bytes), matrix) in specs.iter().zip(&row_bytes).zip(&packed.matrices) {
                let row = |unit: usize| {
                    let within = (unit % per_copy * UNIT_PANELS * PANEL_ROWS).min(matrix.rows);
                    unit / per_copy * matrix.rows + within
                };
                let rows = row(units.start)..row(units.end);
                self.done += (rows.len() * row_bytes) as u64;
                self.source.release(spec, rows);
            }
            (self.progress)(Progress { done: self.done.min(self.total), total: self.total });
        }
        Ok(())
    }

    /// Copy a tensor as it is, a slab at a time.
    fn copy(&mut self, spec: &WeightSpec) -> Result<Buffer> {
        let bytes = self.source.bytes(spec)?;
        let mut copy = Buffer::new(bytes.len(), "the embedding table")?;
        let row_bytes = bytes.len() / spec.rows.max(1);
        let out = copy.shared_as::<u8>();
        for first in (0..spec.rows).step_by((SLAB_BYTES / row_bytes.max(1)).max(1)) {
            let rows = first..(first + (SLAB_BYTES / row_bytes.max(1)).max(1)).min(spec.rows);
            let range = rows.start * row_bytes..rows.end * row_bytes;
            // SAFETY: this thread is the only one with access.
            unsafe { out.slice_mut(range.clone()) }.copy_from_slice(&bytes[range]);
            self.done += (rows.len() * row_bytes) as u64;
            self.source.release(spec, rows);
            (self.progress)(Progress { done: self.done.min(self.total), total: self.total });
        }
        Ok(copy)
    }
}

fn pack_panels(
    matrix: &PackedMatrix,
    panels: Range<usize>,
    (bytes, row_bytes): (&[u8], usize),
    out: &mut [u8],
) {
    for (panel, out) in panels.zip(out.chunks_exact_mut(matrix.panel_bytes)) {
        let rows = panel * PANEL_ROWS..((panel + 1) * PANEL_ROWS).min(matrix.rows);
        let mut slices: [&[u8]; PANEL_ROWS] = [&[]; PANEL_ROWS];
        let n = rows.len();
        for (slice, row) in slices.iter_mut().zip(rows) {
            *slice = &bytes[row * row_bytes..(row + 1) * row_bytes];
        }
        matrix.kernel.pack(&slices[..n], matrix.cols, out);
    }
}
