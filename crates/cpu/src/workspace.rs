//! Memory of a step: value buffers, prepared activations, scratch of each worker. It grows to the largest step seen.

use std::time::Duration;

use program::{PEAK, Result, Rows};

use crate::cache::CacheShape;
use crate::exec::{
    Acts, Arrangements, ExpertsShape, LatentMemory, LatentNeeds, LatentWorkspace, MixScratch,
    PhaseShares, ScratchParts, StepRows, kernel_scratch, q8_stride, scratch_floats, tile_floats,
};
use crate::geometry::LOCAL_ROWS;
use crate::memory::{Buffer, Shared};
use crate::plan::{BufferId, ExpandPhase, LatentPhase, Phase, Plan};
use crate::pool::{Pool, Shares};
use crate::weights::Weights;

/// Partial results of attention that a step may keep: bounds the memory of splitting a long cache by blocks.
const MAX_PARTIAL_FLOATS: usize = 16 << 20;

/// All memory of steps, kept between them.
pub(crate) struct Workspace {
    buffers: Vec<Buffer>,
    acts: ActBuffers,
    /// What gates and ups of experts make.
    inner: ActBuffers,
    /// `[worker]`.
    mixtures: Vec<MixScratch>,
    partials: Buffer,
    peaks: Buffer,
    latent: LatentWorkspace,
    /// `[worker]`: tiles, row, kernel, attention.
    scratch: Vec<[Buffer; 4]>,
    shares: Vec<PhaseShares>,
    times: Vec<Duration>,
    n_workers: usize,
}

/// A step's view of the workspace.
pub(crate) struct Memory<'a> {
    /// By value; those that no phase keeps have none.
    pub(crate) values: Vec<Shared<'a, f32>>,
    pub(crate) acts: Acts<'a>,
    pub(crate) inner: Acts<'a>,
    pub(crate) mixtures: Shared<'a, MixScratch>,
    pub(crate) partials: Shared<'a, f32>,
    pub(crate) peaks: Shared<'a, f32>,
    pub(crate) latent: LatentMemory<'a>,
    pub(crate) scratch: Vec<ScratchParts<'a>>,
    pub(crate) shares: &'a [PhaseShares],
    pub(crate) times: Shared<'a, Duration>,
}

/// Buffers above this are given back once a step needs far less.
const KEPT: usize = 64 << 20;

/// Replace `buffer` if it is shorter than `len`, or large and far longer.
fn grow(buffer: &mut Buffer, len: usize) -> Result<()> {
    if buffer.len() < len || (buffer.len() > KEPT && buffer.len() / 16 > len) {
        // the old memory goes before the new is asked for
        *buffer = Buffer::empty();
        *buffer = Buffer::new(len, "the workspace")?;
    }
    Ok(())
}

/// Memory of [`Acts`].
struct ActBuffers {
    normed: Buffer,
    codes: Buffer,
    scales: Buffer,
    sums: Buffer,
    arranged: Buffer,
}

impl ActBuffers {
    fn empty() -> ActBuffers {
        let [normed, codes, scales, sums, arranged] = std::array::from_fn(|_| Buffer::empty());
        ActBuffers { normed, codes, scales, sums, arranged }
    }

    /// Room for `rows` of `cols` as f32 and as 8-bit blocks, and for the words that are arranged of them.
    fn grow(&mut self, rows: [usize; 2], cols: usize, words: usize) -> Result<()> {
        let [f32_rows, q8_rows] = rows;
        grow(&mut self.normed, f32_rows * cols * 4)?;
        grow(&mut self.codes, q8_rows * q8_stride(cols))?;
        grow(&mut self.scales, q8_rows * cols.div_ceil(32) * 4)?;
        grow(&mut self.sums, q8_rows * cols.div_ceil(16) * 4)?;
        grow(&mut self.arranged, 4 * words)
    }

    fn all(&self) -> [&Buffer; 5] {
        [&self.normed, &self.codes, &self.scales, &self.sums, &self.arranged]
    }

    fn share(&mut self) -> Acts<'_> {
        Acts {
            normed: self.normed.shared_as(),
            codes: self.codes.shared_as(),
            scales: self.scales.shared_as(),
            sums: self.sums.shared_as(),
            arranged: self.arranged.shared_as(),
        }
    }
}

impl Workspace {
    pub(crate) fn new(plan: &Plan, pool: &Pool) -> Workspace {
        let n = pool.n();
        let shares =
            |_| PhaseShares { main: Shares::new(n), side: Shares::new(n), last: Shares::new(n) };
        Workspace {
            buffers: plan.buffers.specs.iter().map(|_| Buffer::empty()).collect(),
            acts: ActBuffers::empty(),
            inner: ActBuffers::empty(),
            mixtures: (0..n).map(|_| MixScratch::default()).collect(),
            partials: Buffer::empty(),
            peaks: Buffer::empty(),
            latent: LatentWorkspace::new(n),
            scratch: (0..n).map(|_| std::array::from_fn(|_| Buffer::empty())).collect(),
            shares: (0..plan.phases.len()).map(shares).collect(),
            times: vec![Duration::ZERO; plan.phases.len()],
            n_workers: n,
        }
    }

    /// Time of each phase in the last step.
    pub(crate) fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Memory it takes. Of what attention may split, only what latent attention did split counts: the rest is untouched.
    pub(crate) fn bytes(&self) -> u64 {
        let buffers = self.buffers.iter().chain(self.scratch.iter().flatten()).chain([&self.peaks]);
        let acts = [&self.acts, &self.inner].into_iter().flat_map(ActBuffers::all);
        let bytes: usize = buffers.chain(acts).map(Buffer::len).sum();
        (bytes + self.latent.bytes()) as u64
    }

    /// Memory for a step of `n_tokens` rows, `n_selected` of them with outputs.
    pub(crate) fn prepare(
        &mut self,
        (plan, weights): (&Plan, &Weights),
        (n_tokens, n_selected): (usize, usize),
        (shapes, forms): (&[CacheShape], StepRows<'_>),
    ) -> Result<Memory<'_>> {
        let rows_of = |rows| match rows {
            Rows::Tokens => n_tokens,
            Rows::Selected => n_selected,
        };
        for (buffer, spec) in self.buffers.iter_mut().zip(&plan.buffers.specs) {
            grow(buffer, rows_of(spec.rows) * spec.cols * 4)?;
        }
        let jobs = (0..plan.phases.len()).flat_map(|phase| weights.jobs(phase));
        let kernel_bytes = kernel_scratch(jobs);
        let rows = n_tokens.max(n_selected);
        let mut experts = ExpertsShape::default();
        let (mut cols, mut words) = (0, 0);
        let mut latent = LatentNeeds::default();
        for (index, phase) in plan.phases.iter().enumerate() {
            match phase {
                Phase::Linear(linear) => {
                    cols = cols.max(linear.x.cols);
                    words = words.max(Arrangements::of(weights.jobs(index), rows).words());
                }
                Phase::Experts(phase) => {
                    let n = rows_of(phase.x.rows);
                    experts = experts.or(ExpertsShape::new(phase, weights.jobs(index), n));
                    cols = cols.max(phase.x.cols);
                }
                Phase::Latent(LatentPhase { inputs, .. })
                | Phase::Expand(ExpandPhase { inputs, .. }) => {
                    let cache = shapes[inputs.cache.0 as usize].as_latent();
                    let matrices = weights.latent().layer(index).all();
                    let sizes = (&inputs.dims, cache);
                    latent = latent.max(LatentNeeds::of(sizes, forms, matrices, self.n_workers));
                }
                _ => {}
            }
        }
        let act_rows = rows.max(self.n_workers * LOCAL_ROWS);
        self.acts.grow([act_rows; 2], cols, words.max(experts.words))?;
        let inner_rows =
            [experts.f32, experts.q8].map(|kept| usize::from(kept) * experts.inner_rows);
        self.inner.grow(inner_rows, experts.width, experts.inner_words)?;
        let heads = || shapes.iter().filter_map(CacheShape::as_heads);
        let attention_floats = heads().map(scratch_floats).max().unwrap_or(0);
        let latent_matrices = weights.latent().matrices();
        let kernel_bytes =
            latent_matrices.map(|m| m.kernel.scratch_bytes()).fold(kernel_bytes, usize::max);
        for [tiles, row, kernel, attention] in &mut self.scratch {
            grow(tiles, 4 * tile_floats(rows).max(experts.tile_floats))?;
            grow(row, cols * 4)?;
            grow(kernel, kernel_bytes)?;
            grow(attention, attention_floats * 4)?;
        }
        // steps split attention by block only with few tiles, and only if the partials fit here
        if !shapes.is_empty() && self.partials.len() == 0 {
            self.partials = Buffer::new(MAX_PARTIAL_FLOATS * 4, "the workspace")?;
        }
        if let Some(logits) = plan.logits {
            grow(&mut self.peaks, rows_of(logits.rows) * logits.cols.div_ceil(PEAK) * 4)?;
        }
        for shares in &self.shares {
            shares.main.reset();
            shares.side.reset();
            shares.last.reset();
        }
        let buffers: Vec<Shared<'_, f32>> =
            self.buffers.iter_mut().map(Buffer::shared_as).collect();
        let none = Shared::read_only(&[]);
        let value = |buffer: &Option<BufferId>| buffer.map_or(none, |b| buffers[b.0]);
        Ok(Memory {
            values: plan.buffers.of.iter().map(value).collect(),
            acts: self.acts.share(),
            inner: self.inner.share(),
            mixtures: Shared::new(&mut self.mixtures),
            partials: self.partials.shared_as(),
            peaks: self.peaks.shared_as(),
            latent: self.latent.prepare(&latent, &grow)?,
            scratch: self.scratch.iter_mut().map(parts).collect(),
            shares: &self.shares,
            times: Shared::new(&mut self.times),
        })
    }
}

fn parts([tiles, row, kernel, attention]: &mut [Buffer; 4]) -> ScratchParts<'_> {
    ScratchParts {
        tiles: tiles.shared_as(),
        row: row.shared_as(),
        kernel: kernel.shared_as(),
        attention: attention.shared_as(),
    }
}
