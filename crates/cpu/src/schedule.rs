//! The schedule of a step: phases in the order they run, each with its packed weights.

use program::{CacheId, Norm, Program, Prompt, WeightId};

use crate::mla::{MlaChoice, MlaForm};
use crate::plan::{
    AttentionPhase, ConvPhase, ExpandPhase, ExpertsPhase, IndexerPhase, Job, LatentPhase, Operand,
    Plan, RowOp, ScanPhase, TableRows,
};
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
}

impl LoadedLinear {
    /// The matrices of all jobs.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> + Clone {
        self.jobs.iter().flat_map(|job| &job.packed.matrices)
    }
}

/// Attention over latents.
pub(crate) struct LoadedLatent {
    pub(crate) phase: LatentPhase,
    pub(crate) matrices: PackedLatent,
}

/// Keys and values of every head, made of latents.
pub(crate) struct LoadedExpand {
    pub(crate) phase: ExpandPhase,
    pub(crate) matrices: PackedLatent,
}

/// Sums over rows.
pub(crate) struct LoadedConv {
    pub(crate) phase: ConvPhase,
    /// `[width][channels]`; empty until the weights are loaded, and where there are none.
    pub(crate) taps: Vec<f32>,
}

/// A recurrence of all heads.
pub(crate) struct LoadedScan {
    pub(crate) phase: ScanPhase,
    /// `[strip][key_dim][16]`: how fast columns that go on their own decay, in the order in which they are read; empty until
    /// the weights are loaded, and where heads have whole matrices.
    pub(crate) rates: Vec<f32>,
}

/// The experts of a layer.
pub(crate) struct LoadedExperts {
    pub(crate) phase: ExpertsPhase,
    /// Gates and ups.
    pub(crate) wide: PackedJob,
    pub(crate) down: PackedJob,
}

/// A phase, ready to run.
pub(crate) enum LoadedPhase {
    Embed { table: Table, by: TableRows, out: Operand },
    Rows(Vec<RowOp>),
    Linear(LoadedLinear),
    Attention(AttentionPhase),
    Indexer(IndexerPhase),
    Latent(LoadedLatent),
    Expand(LoadedExpand),
    Conv(LoadedConv),
    Scan(LoadedScan),
    Experts(LoadedExperts),
    SelectRows { x: Operand, out: Operand },
    MeanRows { x: Operand, out: Operand },
}

impl LoadedPhase {
    /// The jobs whose panels stand in the arena, in order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &PackedJob> {
        let (linear, experts): (&[LoadedJob], _) = match self {
            LoadedPhase::Linear(linear) => (&linear.jobs, None),
            LoadedPhase::Experts(experts) => (&[], Some([&experts.wide, &experts.down])),
            LoadedPhase::Embed { .. }
            | LoadedPhase::Rows(_)
            | LoadedPhase::Attention(_)
            | LoadedPhase::Indexer(_)
            | LoadedPhase::Latent(_)
            | LoadedPhase::Expand(_)
            | LoadedPhase::Conv(_)
            | LoadedPhase::Scan(_)
            | LoadedPhase::SelectRows { .. }
            | LoadedPhase::MeanRows { .. } => (&[], None),
        };
        linear.iter().map(|job| &job.packed).chain(experts.into_iter().flatten())
    }

    /// The small matrices of latent attention, if that is what it is.
    pub(crate) fn latent(&self) -> Option<&PackedLatent> {
        match self {
            LoadedPhase::Latent(latent) => Some(&latent.matrices),
            LoadedPhase::Expand(expand) => Some(&expand.matrices),
            LoadedPhase::Embed { .. }
            | LoadedPhase::Rows(_)
            | LoadedPhase::Linear(_)
            | LoadedPhase::Attention(_)
            | LoadedPhase::Indexer(_)
            | LoadedPhase::Experts(_)
            | LoadedPhase::Conv(_)
            | LoadedPhase::Scan(_)
            | LoadedPhase::SelectRows { .. }
            | LoadedPhase::MeanRows { .. } => None,
        }
    }

    /// Bytes of matrices one step of one row reads, by their sizes.
    pub(crate) fn bytes_per_step(&self) -> u64 {
        let jobs: u64 = self.jobs().map(PackedJob::bytes_per_step).sum();
        jobs + self.latent().map_or(0, |latent| latent.bytes_per_step() as u64)
    }

    /// Kind of work, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            LoadedPhase::Embed { .. } => "embed",
            LoadedPhase::Rows(_)
            | LoadedPhase::SelectRows { .. }
            | LoadedPhase::MeanRows { .. } => "rows",
            LoadedPhase::Linear(_) => "linear",
            LoadedPhase::Attention(_)
            | LoadedPhase::Indexer(_)
            | LoadedPhase::Latent(_)
            | LoadedPhase::Expand(_) => "attention",
            LoadedPhase::Conv(_) => "conv",
            LoadedPhase::Scan(_) => "scan",
            LoadedPhase::Experts(_) => "experts",
        }
    }

    /// What it computes, by the weight or cache it reads first.
    pub(crate) fn name(&self, program: &Program) -> String {
        let weight = |id: WeightId| program.weight(id).name.clone();
        let layer = |id: CacheId| program.cache(id).layer;
        match self {
            LoadedPhase::Embed { table, .. } => weight(table.weight()),
            LoadedPhase::Linear(linear) => {
                linear.matrices().next().map_or_else(String::new, |m| weight(m.weight))
            }
            LoadedPhase::Attention(attention) => {
                format!("blk.{}.attn", layer(attention.cache))
            }
            LoadedPhase::Indexer(indexer) => format!("blk.{}.indexer", layer(indexer.at.cache)),
            LoadedPhase::Latent(latent) => format!("blk.{}.attn", layer(latent.phase.inputs.cache)),
            LoadedPhase::Expand(expand) => {
                format!("blk.{}.attn_expand", layer(expand.phase.inputs.cache))
            }
            LoadedPhase::Conv(conv) => format!("blk.{}.conv", layer(conv.phase.cache)),
            LoadedPhase::Scan(scan) => format!("blk.{}.scan", layer(scan.phase.scan.cache)),
            LoadedPhase::Experts(experts) => weight(experts.phase.gate),
            LoadedPhase::Rows(_)
            | LoadedPhase::SelectRows { .. }
            | LoadedPhase::MeanRows { .. } => String::new(),
        }
    }
}

/// What a step runs: a plan whose phases own what they work with.
pub(crate) type Schedule = Plan<LoadedPhase>;

impl Schedule {
    /// Every matrix in the arena.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &PackedJob> {
        self.phases.iter().flat_map(LoadedPhase::jobs)
    }

    /// Every small matrix of latent attention.
    pub(crate) fn head_matrices(&self) -> impl Iterator<Item = &HeadMatrix> {
        self.phases.iter().filter_map(LoadedPhase::latent).flat_map(PackedLatent::all)
    }

    /// How `choice` has latent attention computed for sequences whose prompts are these; nothing where there is none.
    pub(crate) fn forms(
        &self,
        choice: MlaChoice,
        prompts: impl Iterator<Item = Option<Prompt>>,
    ) -> Vec<MlaForm> {
        let mut latents = self.phases.iter().filter_map(|phase| match phase {
            LoadedPhase::Latent(latent) => Some(&latent.phase),
            _ => None,
        });
        let elides = latents.clone().all(LatentPhase::elides);
        let Some(dims) = latents.next().map(|latent| &latent.inputs.dims) else {
            return Vec::new();
        };
        let form = |prompt| match choice.choose(dims, prompt) {
            // the nearest form that computes such scores
            MlaForm::Elided if !elides => MlaForm::Absorbed,
            form => form,
        };
        prompts.map(form).collect()
    }

    /// The output head, where it stands alone at the end and its value is handed out as logits only: a step that asks
    /// for none can do without it.
    pub(crate) fn head_phase(&self) -> Option<usize> {
        let value = |operand: &Operand| operand.value;
        let logits = self.logits.as_ref().map(value);
        let mut others = self.hidden.iter().chain(&self.handed).map(value);
        let only_logits = others.all(|other| Some(other) != logits);
        match self.phases.as_slice() {
            [rest @ .., LoadedPhase::Linear(LoadedLinear { jobs, .. })]
                if only_logits && matches!(jobs.as_slice(), [job] if job.is_head) =>
            {
                Some(rest.len())
            }
            _ => None,
        }
    }

    /// Whether a phase finds the peaks of the logits as it writes them.
    pub(crate) fn finds_peaks(&self) -> bool {
        self.phases.iter().any(|phase| match phase {
            LoadedPhase::Linear(linear) => linear.jobs.iter().any(|job| job.is_head),
            _ => false,
        })
    }
}
