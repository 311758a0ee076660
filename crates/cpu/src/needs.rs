//! How much memory a step needs besides weights and caches.

use program::{PEAK, Rows};

use crate::cache::CacheShape;
use crate::exec::{
    Arrangements, ContextNeeds, ExpertsShape, LatentNeeds, StepRows, index_scores, index_scratch,
    kernel_scratch, q8_stride, scratch_floats, split_floats, tile_floats,
};
use crate::geometry::LOCAL_ROWS;
use crate::schedule::{LoadedExpand, LoadedLatent, LoadedPhase, Schedule};
use crate::weights::PackedLatent;

/// The rows of a step and the caches they read.
#[derive(Clone, Copy)]
pub(crate) struct StepShape<'a> {
    pub(crate) n_tokens: usize,
    /// Rows with outputs.
    pub(crate) n_selected: usize,
    /// `[cache]`.
    pub(crate) caches: &'a [CacheShape],
    pub(crate) rows: StepRows<'a>,
}

impl StepShape<'_> {
    /// Rows of a value.
    fn rows_of(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.n_tokens,
            Rows::Selected => self.n_selected,
        }
    }
}

/// Bytes of prepared activations: as f32, codes, scales, sums, arranged words.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActNeeds(pub(crate) [usize; 5]);

impl ActNeeds {
    /// For so many rows of `cols` as f32 and so many as 8-bit blocks, and the words that are arranged of them.
    fn new(f32_rows: usize, q8_rows: usize, cols: usize, words: usize) -> ActNeeds {
        ActNeeds([
            f32_rows * cols * 4,
            q8_rows * q8_stride(cols),
            q8_rows * cols.div_ceil(32) * 4,
            q8_rows * cols.div_ceil(16) * 4,
            4 * words,
        ])
    }
}

/// What a step needs, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// `[buffer]`.
    pub(crate) buffers: Vec<usize>,
    pub(crate) acts: ActNeeds,
    /// Of what gates and ups of experts make.
    pub(crate) inner: ActNeeds,
    /// Of each worker: tiles, row, kernel, attention.
    pub(crate) scratch: [usize; 4],
    pub(crate) peaks: usize,
    pub(crate) latent: LatentNeeds,
    /// Results of parts of a cache, before they are folded.
    pub(crate) partials: usize,
    pub(crate) context: ContextNeeds,
}

impl Needs {
    /// Of a step of `workers`.
    pub(crate) fn of(schedule: &Schedule, step: &StepShape<'_>, workers: usize) -> Needs {
        let rows = step.n_tokens.max(step.n_selected);
        let mut experts = ExpertsShape::default();
        let (mut cols, mut words, mut split, mut index) = (0, 0, 0, 0);
        let (mut latent, mut context) = (LatentNeeds::default(), ContextNeeds::default());
        for phase in &schedule.phases {
            match phase {
                LoadedPhase::Linear(linear) => {
                    cols = cols.max(linear.x.cols);
                    words = words.max(Arrangements::of(linear.matrices(), rows).words());
                }
                LoadedPhase::Experts(phase) => {
                    let n = step.rows_of(phase.phase.x.rows);
                    experts = experts.or(ExpertsShape::new(phase, n));
                    cols = cols.max(phase.phase.x.cols);
                }
                LoadedPhase::Latent(LoadedLatent { phase, matrices, .. }) => {
                    let cache = step.caches[phase.inputs.cache.0 as usize].as_latent();
                    let (dims, rows) = (&phase.inputs.dims, step.rows);
                    let chosen = phase.chosen.map(|chosen| chosen.select.limit());
                    let matrices = PackedLatent::all(matrices);
                    let needs = LatentNeeds::of(dims, cache, rows, chosen, matrices, workers);
                    latent = latent.max(needs);
                }
                LoadedPhase::Expand(LoadedExpand { phase, matrices }) => {
                    let dims = &phase.inputs.dims;
                    let matrices = PackedLatent::all(matrices);
                    let needs = LatentNeeds::of(dims, None, step.rows, None, matrices, workers);
                    latent = latent.max(needs);
                }
                LoadedPhase::Indexer(phase) => {
                    let cache = step.caches[phase.at.cache.0 as usize].keys();
                    let sequences = step.rows.sequences;
                    split = split.max(index_scores(phase, sequences));
                    index = index.max(index_scratch(phase, &cache, sequences));
                }
                LoadedPhase::Attention(phase) => {
                    let cache = step.caches[phase.cache.0 as usize].heads();
                    let sequences = step.rows.sequences;
                    split = split.max(split_floats(phase, cache, sequences, workers));
                    context = context.max(ContextNeeds::of(phase, cache, sequences));
                }
                LoadedPhase::Conv(_)
                | LoadedPhase::Scan(_)
                | LoadedPhase::Embed { .. }
                | LoadedPhase::Rows(_)
                | LoadedPhase::SelectRows { .. }
                | LoadedPhase::MeanRows { .. } => {}
            }
        }
        let act_rows = rows.max(workers * LOCAL_ROWS);
        let [f32_rows, q8_rows] =
            [experts.f32, experts.q8].map(|kept| usize::from(kept) * experts.inner_rows);
        let heads = || step.caches.iter().filter_map(CacheShape::as_heads);
        let states = step.caches.iter().filter_map(|cache| Some(cache.as_state()?.scratch));
        let attention = heads().map(scratch_floats).chain(states).max().unwrap_or(0).max(index);
        let jobs = schedule.jobs().flat_map(|job| &job.matrices).map(|m| m.kernel);
        let kernels = jobs.chain(schedule.head_matrices().map(|m| m.kernel));
        let peaks = |logits: crate::plan::Operand| {
            step.rows_of(logits.rows) * logits.cols.div_ceil(PEAK) * 4
        };
        let bytes = |spec: &crate::plan::BufferSpec| step.rows_of(spec.rows) * spec.cols * 4;
        Needs {
            buffers: schedule.buffers.specs.iter().map(bytes).collect(),
            acts: ActNeeds::new(act_rows, act_rows, cols, words.max(experts.words)),
            inner: ActNeeds::new(f32_rows, q8_rows, experts.width, experts.inner_words),
            scratch: [
                4 * tile_floats(rows).max(experts.tile_floats),
                cols * 4,
                kernel_scratch(kernels),
                attention * 4,
            ],
            peaks: schedule.logits.map_or(0, peaks),
            partials: 4 * split.max(latent.partials()),
            latent,
            context,
        }
    }

    /// All of it, for `workers`.
    pub(crate) fn bytes(&self, workers: usize) -> u64 {
        let buffers: usize = self.buffers.iter().sum();
        let acts: usize = self.acts.0.iter().chain(&self.inner.0).sum();
        let scratch = workers * self.scratch.iter().sum::<usize>();
        let all = buffers + acts + scratch + self.peaks + self.partials + self.context.bytes();
        (all + self.latent.bytes(workers)) as u64
    }

    /// The greater of both, each kind by itself: what is kept after both steps.
    pub(crate) fn max(mut self, other: &Needs) -> Needs {
        let each = |a: &mut [usize], b: &[usize]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
        };
        each(&mut self.buffers, &other.buffers);
        each(&mut self.acts.0, &other.acts.0);
        each(&mut self.inner.0, &other.inner.0);
        each(&mut self.scratch, &other.scratch);
        self.peaks = self.peaks.max(other.peaks);
        self.partials = self.partials.max(other.partials);
        self.latent = self.latent.max(other.latent);
        self.context = self.context.max(other.context);
        self
    }
}
