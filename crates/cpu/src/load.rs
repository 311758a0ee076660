//! From a lowered program to a schedule with its weights: choose kernels and places, then read and pack.

use std::sync::Arc;

use kernels::scan::STRIP;
use kv::DiskLayer;
use program::{CacheStorage, Program, Progress, Result, ScanKind, WeightSource};

use crate::kept::SessionFolders;
use crate::memory::Buffer;
use crate::mla::MlaChoice;
use crate::plan::{Job, Phase, Plan};
use crate::pool::Team;
use crate::schedule::{
    LoadedConv, LoadedExpand, LoadedExperts, LoadedJob, LoadedLatent, LoadedLinear, LoadedPhase,
    LoadedScan, Schedule,
};
use crate::tune::Tuning;
use crate::weights::{
    Copies, Lender, PackedJob, PackedLatent, Packing, Table, WeightMemory, n_ones, vectors,
};

/// What programs are loaded with.
#[derive(Clone, Copy)]
pub(crate) struct Workshop<'a> {
    pub(crate) pool: &'a Arc<Team>,
    pub(crate) tuning: &'a Arc<Tuning>,
    /// How latent attention is computed.
    pub(crate) mla: MlaChoice,
    pub(crate) storage: &'a CacheStorage,
    /// A model of the same file, whose weights are not kept again.
    pub(crate) lender: Option<Lender<'a>>,
    /// Where sessions are kept over restarts.
    pub(crate) kept: &'a SessionFolders,
    /// What stands between caches and their disk.
    pub(crate) layer: &'a DiskLayer,
}

/// A schedule whose weights have places, and the memory that those make up.
pub(crate) struct Placed {
    pub(crate) schedule: Schedule,
    /// Bytes of the arena of panels.
    pub(crate) arena: usize,
    /// Bytes of the small matrices of latent attention.
    pub(crate) latent: usize,
}

/// Choose a kernel and a place for every matrix of `plan`, which is `program` lowered.
///
/// # Errors
/// [`program::Error::Weight`] if no kernel takes the type of one.
pub(crate) fn place(program: &Program, plan: Plan, workshop: Workshop<'_>) -> Result<Placed> {
    let Plan { phases, hidden_phase, buffers, ropes, caches, logits, hidden, inputs, handed } =
        plan;
    let (mut arena, mut latent) = (0, 0);
    let Workshop { tuning, mla, lender, .. } = workshop;
    let mut loaded = Vec::with_capacity(phases.len());
    let mut tables = Vec::new();
    for phase in phases {
        loaded.push(match phase {
            Phase::Embed { table: weight, by, out } => {
                tables.push((loaded.len(), weight));
                let table = Table::place(weight, program.weight(weight), lender)?;
                LoadedPhase::Embed { table, by, out }
            }
            Phase::Rows(ops) => LoadedPhase::Rows(ops),
            Phase::SelectRows { x, out } => LoadedPhase::SelectRows { x, out },
            Phase::MeanRows { x, out } => LoadedPhase::MeanRows { x, out },
            Phase::Linear(linear) => {
                let mut jobs = Vec::with_capacity(linear.jobs.len());
                for job in linear.jobs {
                    let weights: Vec<_> = job.matrices().map(|m| m.weight).collect();
                    let lent = match (lender, weights.as_slice()) {
                        (Some(lender), &[only]) => lender.job(only, program.weight(only)),
                        _ => None,
                    };
                    let place =
                        || PackedJob::place(program, &weights, Copies::ONE, tuning, &mut arena);
                    let packed = lent.map_or_else(place, Ok)?;
                    let is_head = matches!(&job, Job::One { out, .. } if Some(*out) == logits);
                    jobs.push(LoadedJob { job, packed, is_head });
                }
                let (x, norm) = (linear.x, linear.norm);
                LoadedPhase::Linear(LoadedLinear { x, norm, jobs })
            }
            Phase::Attention(phase) => LoadedPhase::Attention(phase),
            Phase::Indexer(phase) => LoadedPhase::Indexer(phase),
            Phase::Latent(phase) => {
                // queries that select come to the latents, whatever form others take
                let mla = phase.chosen.map_or(mla, |_| MlaChoice::Auto);
                let matrices =
                    PackedLatent::place(program, &phase.inputs, mla, tuning, &mut latent)?;
                LoadedPhase::Latent(LoadedLatent { phase, matrices })
            }
            Phase::Expand(phase) => {
                let matrices =
                    PackedLatent::place(program, &phase.inputs, mla, tuning, &mut latent)?;
                LoadedPhase::Expand(LoadedExpand { phase, matrices })
            }
            Phase::Conv(phase) => LoadedPhase::Conv(LoadedConv { phase, taps: Vec::new() }),
            Phase::Scan(phase) => LoadedPhase::Scan(LoadedScan { phase, rates: Vec::new() }),
            Phase::Experts(phase) => {
                let joint = phase.gate == phase.up && phase.alone.is_none();
                let copies = Copies { n: phase.n_experts, n_used: phase.n_used, joint };
                let both = [phase.gate, phase.up];
                let wide = if phase.alone.is_some() { &both[..1] } else { &both };
                let wide = PackedJob::place(program, wide, copies, tuning, &mut arena)?;
                let down = PackedJob::place(program, &[phase.down], copies, tuning, &mut arena)?;
                LoadedPhase::Experts(LoadedExperts { phase, wide, down })
            }
        });
    }
    let mut schedule = Plan {
        phases: loaded,
        hidden_phase,
        buffers,
        ropes,
        caches,
        logits,
        hidden,
        inputs,
        handed,
    };
    for (at, weight) in tables {
        // a table that is also a matrix of its own is kept once
        let packed = schedule.jobs().find(|job| job.only() == Some(weight)).cloned();
        if let (Some(packed), LoadedPhase::Embed { table, .. }) = (packed, &mut schedule.phases[at])
        {
            *table = Table::Packed(packed);
        }
    }
    Ok(Placed { schedule, arena, latent })
}

impl Placed {
    /// Memory of all weights once they are loaded.
    pub(crate) fn weight_bytes(&self, program: &Program) -> u64 {
        let spec = |id| program.weight(id);
        let vectors = vectors(program).into_iter().map(|id| spec(id).rows * spec(id).cols * 4);
        let bytes = self.arena + self.latent + vectors.sum::<usize>() + n_ones(program) * 4;
        bytes as u64 + table_bytes(&self.schedule)
    }

    /// Read, pack and release every weight. `program` is what was lowered, before narrowing.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if one is missing; [`program::Error::Memory`].
    pub(crate) fn load(
        self,
        program: &Program,
        source: &dyn WeightSource,
        workshop: Workshop<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Schedule, WeightMemory)> {
        let Placed { mut schedule, arena, latent } = self;
        let mut packing = Packing::new(program, source, workshop.pool, progress);
        let mut weights = WeightMemory {
            arena: Buffer::new(arena, "the weights")?,
            lender: workshop.lender.map(|lender| Arc::clone(lender.weights)),
            latent: Buffer::new(latent, "the weights")?,
            vectors: vec![None; program.weights.len()],
            ones: vec![1.0; n_ones(program)],
        };
        for matrices in schedule.phases.iter().filter_map(LoadedPhase::latent) {
            matrices.pack(&mut packing, &mut weights.latent)?;
        }
        for job in schedule.jobs().filter(|job| !job.is_lent()) {
            packing.pack(job, &mut weights.arena)?;
        }
        for id in vectors(program) {
            weights.vectors[id.0 as usize] = Some(packing.vector(id)?);
        }
        for phase in &mut schedule.phases {
            match phase {
                LoadedPhase::Embed { table, .. } => table.load(&mut packing)?,
                LoadedPhase::Conv(conv) => {
                    if let Some(taps) = conv.phase.taps {
                        conv.taps = turned(weights.vector(taps), conv.phase.width);
                    }
                }
                LoadedPhase::Scan(scan) => {
                    if let ScanKind::Selective { a, .. } = scan.phase.scan.kind {
                        scan.rates = strips(weights.vector(a), scan.phase.scan.dims.key_dim);
                    }
                }
                _ => {}
            }
        }
        packing.finish();
        Ok((schedule, weights))
    }
}

/// Rows of `cols`, column by column.
fn turned(rows: &[f32], cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|col| rows.iter().skip(col).step_by(cols)).copied().collect()
}

/// Rows of `cols`, 16 at a time column by column; rows that there are none of are zeros.
fn strips(rows: &[f32], cols: usize) -> Vec<f32> {
    let strip = |rows: &[f32]| {
        let mut strip = vec![0.0; cols * STRIP];
        for (lane, row) in rows.chunks_exact(cols).enumerate() {
            row.iter().enumerate().for_each(|(i, x)| strip[i * STRIP + lane] = *x);
        }
        strip
    };
    rows.chunks(cols * STRIP).flat_map(strip).collect()
}

/// Memory of the tables that are no matrices, and of what is kept in another order beside the file's.
pub(crate) fn table_bytes(schedule: &Schedule) -> u64 {
    let tables = schedule.phases.iter().map(|phase| match phase {
        LoadedPhase::Embed { table, .. } => table.bytes(),
        LoadedPhase::Conv(LoadedConv { phase, .. }) if phase.taps.is_some() => {
            4 * (phase.width * phase.x.n) as u64
        }
        LoadedPhase::Scan(LoadedScan { phase, .. }) if phase.is_selective() => {
            4 * phase.head_floats() as u64
        }
        _ => 0,
    });
    tables.sum()
}
