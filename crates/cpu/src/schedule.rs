//! The schedule of a step: phases in the order they run, each with its packed weights and work lists.

use program::{CacheId, Program, Rope, WeightId};

use crate::plan::{
    AttentionPhase, Buffers, Cached, ExpandPhase, ExpertsPhase, Job, LatentPhase, Norm, Operand,
    RowOp,
};
use crate::pool::PhaseShares;
use crate::weights::{HeadMatrix, PackedJob, PackedLatent, PackedMatrix, Table};

/// A job of a linear phase and the panels it reads.
pub(crate) struct LoadedJob {
    pub(crate) job: Job,
    pub(crate) packed: PackedJob,
    /// Whether it writes the logits as they are: it then finds their peaks on the way.
    pub(crate) is_head: bool,
}

/// Linear layers that read the same input.
pub(crate) struct LoadedLinear {
    pub(crate) x: Operand,
    pub(crate) norm: Option<Norm>,
    pub(crate) jobs: Vec<LoadedJob>,
    pub(crate) shares: PhaseShares,
}

impl LoadedLinear {
    /// The matrices of all jobs.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> + Clone {
        self.jobs.iter().flat_map(|job| &job.packed.matrices)
    }
}

/// Attention over keys and values.
pub(crate) struct LoadedAttention {
    pub(crate) phase: AttentionPhase,
    pub(crate) shares: PhaseShares,
}

/// Attention over latents.
pub(crate) struct LoadedLatent {
    pub(crate) phase: LatentPhase,
    pub(crate) matrices: PackedLatent,
    pub(crate) shares: PhaseShares,
}

/// Keys and values of every head, made of latents.
pub(crate) struct LoadedExpand {
    pub(crate) phase: ExpandPhase,
    pub(crate) matrices: PackedLatent,
}

/// The experts of a layer.
pub(crate) struct LoadedExperts {
    pub(crate) phase: ExpertsPhase,
    /// Gates and ups.
    pub(crate) wide: PackedJob,
    pub(crate) down: PackedJob,
    pub(crate) shares: PhaseShares,
}

/// A phase, ready to run.
pub(crate) enum Loaded {
    Embed { table: Table, out: Operand },
    Rows(Vec<RowOp>),
    Linear(LoadedLinear),
    Attention(LoadedAttention),
    Latent(LoadedLatent),
    Expand(LoadedExpand),
    Experts(LoadedExperts),
    SelectRows { x: Operand, out: Operand },
}

impl Loaded {
    /// The jobs whose panels stand in the arena, in order.
    pub(crate) fn jobs(&self) -> Vec<&PackedJob> {
        match self {
            Loaded::Linear(linear) => linear.jobs.iter().map(|job| &job.packed).collect(),
            Loaded::Experts(experts) => vec![&experts.wide, &experts.down],
            Loaded::Embed { .. }
            | Loaded::Rows(_)
            | Loaded::Attention(_)
            | Loaded::Latent(_)
            | Loaded::Expand(_)
            | Loaded::SelectRows { .. } => Vec::new(),
        }
    }

    /// The small matrices of latent attention, if that is what it is.
    pub(crate) fn latent(&self) -> Option<&PackedLatent> {
        match self {
            Loaded::Latent(latent) => Some(&latent.matrices),
            Loaded::Expand(expand) => Some(&expand.matrices),
            Loaded::Embed { .. }
            | Loaded::Rows(_)
            | Loaded::Linear(_)
            | Loaded::Attention(_)
            | Loaded::Experts(_)
            | Loaded::SelectRows { .. } => None,
        }
    }

    /// Its work lists, if it has any.
    pub(crate) fn shares(&self) -> Option<&PhaseShares> {
        match self {
            Loaded::Linear(LoadedLinear { shares, .. })
            | Loaded::Attention(LoadedAttention { shares, .. })
            | Loaded::Latent(LoadedLatent { shares, .. })
            | Loaded::Experts(LoadedExperts { shares, .. }) => Some(shares),
            Loaded::Embed { .. }
            | Loaded::Rows(_)
            | Loaded::Expand(_)
            | Loaded::SelectRows { .. } => None,
        }
    }

    /// Bytes of matrices one step of one row reads.
    pub(crate) fn bytes_per_step(&self) -> u64 {
        let jobs: u64 = self.jobs().into_iter().map(PackedJob::bytes_per_step).sum();
        jobs + self.latent().map_or(0, |latent| latent.bytes_per_step() as u64)
    }

    /// Kind of work, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Loaded::Embed { .. } => "embed",
            Loaded::Rows(_) | Loaded::SelectRows { .. } => "rows",
            Loaded::Linear(_) => "linear",
            Loaded::Attention(_) | Loaded::Latent(_) | Loaded::Expand(_) => "attention",
            Loaded::Experts(_) => "experts",
        }
    }

    /// What it computes, by the weight or cache it reads first.
    pub(crate) fn name(&self, program: &Program) -> String {
        let weight = |id: WeightId| program.weight(id).name.clone();
        let layer = |id: CacheId| program.cache(id).layer;
        match self {
            Loaded::Embed { table, .. } => weight(table.weight()),
            Loaded::Linear(linear) => {
                linear.matrices().next().map_or_else(String::new, |m| weight(m.weight))
            }
            Loaded::Attention(attention) => format!("blk.{}.attn", layer(attention.phase.cache)),
            Loaded::Latent(latent) => format!("blk.{}.attn", layer(latent.phase.inputs.cache)),
            Loaded::Expand(expand) => {
                format!("blk.{}.attn_expand", layer(expand.phase.inputs.cache))
            }
            Loaded::Experts(experts) => weight(experts.phase.gate),
            Loaded::Rows(_) | Loaded::SelectRows { .. } => String::new(),
        }
    }
}

/// What a step runs.
pub(crate) struct Schedule {
    pub(crate) phases: Vec<Loaded>,
    pub(crate) buffers: Buffers,
    /// Distinct rotations.
    pub(crate) ropes: Vec<Rope>,
    /// What each cache of the program keeps; `None` for one that no phase uses.
    pub(crate) caches: Vec<Option<Cached>>,
    pub(crate) logits: Option<Operand>,
    /// What the head reads, if the program yields it.
    pub(crate) hidden: Option<Operand>,
}

impl Schedule {
    /// Every matrix in the arena.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &PackedJob> {
        self.phases.iter().flat_map(Loaded::jobs)
    }

    /// Every small matrix of latent attention.
    pub(crate) fn head_matrices(&self) -> impl Iterator<Item = &HeadMatrix> {
        self.phases.iter().filter_map(Loaded::latent).flat_map(PackedLatent::all)
    }

    /// Phases that run where nobody wants logits: all but the head, where that stands alone at the end.
    pub(crate) fn without_head(&self) -> usize {
        match self.phases.as_slice() {
            [rest @ .., Loaded::Linear(LoadedLinear { jobs, .. })] if matches!(jobs.as_slice(), [job] if job.is_head) => {
                rest.len()
            }
            all => all.len(),
        }
    }

    /// Whether a phase finds the peaks of the logits as it writes them.
    pub(crate) fn finds_peaks(&self) -> bool {
        self.phases.iter().any(|phase| match phase {
            Loaded::Linear(linear) => linear.jobs.iter().any(|job| job.is_head),
            _ => false,
        })
    }
}
