//! Memory of a step: value buffers, prepared activations, scratch of each worker. It grows to the largest step seen.

use std::time::Duration;

use program::Result;

use crate::exec::{
    Acts, ContextBuffers, ContextNeeds, LatentMemory, LatentWorkspace, MixScratch, ScratchParts,
};
use crate::geometry::MAX_PARTIAL_FLOATS;
use crate::memory::{Buffer, Shared};
use crate::needs::{ActNeeds, Needs};
use crate::plan::BufferId;
use crate::schedule::Schedule;

/// All memory of steps, kept between them.
pub(crate) struct Workspace {
    buffers: Vec<Buffer>,
    acts: ActBuffers,
    /// What gates and ups of experts make.
    inner: ActBuffers,
    /// `[worker]`.
    mixtures: Vec<MixScratch>,
    partials: Buffer,
    /// Most bytes of `partials` that a step touched.
    touched: usize,
    peaks: Buffer,
    /// Far queries, what rows ask, promises, super-blocks looked at, choices, sums.
    context: [Buffer; 6],
    latent: LatentWorkspace,
    /// `[worker]`: tiles, row, kernel, attention.
    scratch: Vec<[Buffer; 4]>,
    /// `[phase]`.
    times: Vec<Duration>,
    /// `[worker][phase]`.
    ends: Vec<Duration>,
    reads: Vec<u64>,
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
    pub(crate) context: ContextBuffers<'a>,
    pub(crate) latent: LatentMemory<'a>,
    pub(crate) scratch: Vec<ScratchParts<'a>>,
    pub(crate) ends: Shared<'a, Duration>,
    pub(crate) reads: Shared<'a, u64>,
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

/// Memory of [`Acts`]: as f32, codes, scales, sums, arranged words.
struct ActBuffers([Buffer; 5]);

impl ActBuffers {
    fn empty() -> ActBuffers {
        ActBuffers(std::array::from_fn(|_| Buffer::empty()))
    }

    fn grow(&mut self, needs: &ActNeeds) -> Result<()> {
        self.0.iter_mut().zip(needs.0).try_for_each(|(buffer, need)| grow(buffer, need))
    }

    fn share(&mut self) -> Acts<'_> {
        let [normed, codes, scales, sums, arranged] = &mut self.0;
        Acts {
            normed: normed.shared_as(),
            codes: codes.shared_as(),
            scales: scales.shared_as(),
            sums: sums.shared_as(),
            arranged: arranged.shared_as(),
        }
    }
}

impl Workspace {
    /// For the steps of a schedule by `workers`.
    pub(crate) fn new(schedule: &Schedule, workers: usize) -> Workspace {
        Workspace {
            buffers: schedule.buffers.specs.iter().map(|_| Buffer::empty()).collect(),
            acts: ActBuffers::empty(),
            inner: ActBuffers::empty(),
            mixtures: (0..workers).map(|_| MixScratch::default()).collect(),
            partials: Buffer::empty(),
            touched: 0,
            peaks: Buffer::empty(),
            context: std::array::from_fn(|_| Buffer::empty()),
            latent: LatentWorkspace::new(workers),
            scratch: (0..workers).map(|_| std::array::from_fn(|_| Buffer::empty())).collect(),
            times: vec![Duration::ZERO; schedule.phases.len()],
            ends: vec![Duration::ZERO; workers * schedule.phases.len()],
            reads: vec![0; workers * schedule.phases.len()],
        }
    }

    /// Count what phases take anew.
    pub(crate) fn clear_counts(&mut self) {
        self.times.fill(Duration::ZERO);
        self.reads.fill(0);
    }

    /// Add the times of a pass that has run. A phase ends when the first worker leaves it: then its items are done, and one
    /// whose core went to another program tells nothing of the phases that the others did meanwhile.
    pub(crate) fn count_times(&mut self) {
        add_times(&mut self.times, &self.ends);
    }

    /// Time of each phase since they were cleared.
    pub(crate) fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Bytes of matrices that kernels read in a phase since they were cleared, all workers together.
    pub(crate) fn read(&self, phase: usize) -> u64 {
        self.reads.iter().skip(phase).step_by(self.times.len().max(1)).sum()
    }

    /// Memory it takes; of what attention may split, what it did split.
    pub(crate) fn bytes(&self) -> u64 {
        let buffers = self.buffers.iter().chain(self.scratch.iter().flatten()).chain([&self.peaks]);
        let acts = self.acts.0.iter().chain(&self.inner.0);
        let bytes: usize = buffers.chain(acts).chain(&self.context).map(Buffer::len).sum();
        (bytes + self.touched + self.latent.bytes()) as u64
    }

    /// Memory for a step of `schedule` that needs so much.
    ///
    /// # Errors
    /// [`program::Error::Memory`].
    pub(crate) fn prepare(&mut self, schedule: &Schedule, needs: &Needs) -> Result<Memory<'_>> {
        for (buffer, need) in self.buffers.iter_mut().zip(&needs.buffers) {
            grow(buffer, *need)?;
        }
        self.acts.grow(&needs.acts)?;
        self.inner.grow(&needs.inner)?;
        for buffers in &mut self.scratch {
            for (buffer, need) in buffers.iter_mut().zip(needs.scratch) {
                grow(buffer, need)?;
            }
        }
        // pages are taken as they are touched
        if needs.partials > 0 && self.partials.len() == 0 {
            self.partials = Buffer::new(MAX_PARTIAL_FLOATS * 4, "the workspace")?;
        }
        self.touched = self.touched.max(needs.partials);
        grow(&mut self.peaks, needs.peaks)?;
        let ContextNeeds { far, asked, promises, looked, chosen, sums } = needs.context;
        let context = self.context.iter_mut().zip([far, asked, promises, looked, chosen, sums]);
        context.into_iter().try_for_each(|(buffer, need)| grow(buffer, need))?;
        let buffers: Vec<Shared<'_, f32>> =
            self.buffers.iter_mut().map(Buffer::shared_as).collect();
        let none = Shared::read_only(&[]);
        let value = |buffer: &Option<BufferId>| buffer.map_or(none, |b| buffers[b.0]);
        Ok(Memory {
            values: schedule.buffers.of.iter().map(value).collect(),
            acts: self.acts.share(),
            inner: self.inner.share(),
            mixtures: Shared::new(&mut self.mixtures),
            partials: self.partials.shared_as(),
            peaks: self.peaks.shared_as(),
            context: context_buffers(&mut self.context),
            latent: self.latent.prepare(&needs.latent, &grow)?,
            scratch: self.scratch.iter_mut().map(parts).collect(),
            ends: Shared::new(&mut self.ends),
            reads: Shared::new(&mut self.reads),
        })
    }
}

fn context_buffers(buffers: &mut [Buffer; 6]) -> ContextBuffers<'_> {
    let [far, asked, promises, looked, chosen, sums] = buffers;
    ContextBuffers {
        far: far.shared_as(),
        asked: asked.shared_as(),
        promises: promises.shared_as(),
        looked: looked.shared_as(),
        chosen: chosen.shared_as(),
        sums: sums.shared_as(),
    }
}

/// `ends` is `[worker][phase]`, from the pass's beginning on.
fn add_times(times: &mut [Duration], ends: &[Duration]) {
    let n = times.len();
    let mut before = Duration::ZERO;
    for (phase, time) in times.iter_mut().enumerate() {
        let first = ends.iter().skip(phase).step_by(n).min().copied().unwrap_or(before);
        *time += first.saturating_sub(before);
        before = first.max(before);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Worker 0 is away in the first phase: what the others do meanwhile keeps its time.
    #[test]
    fn a_late_worker_moves_no_time() {
        let ms = |times: &[u64]| -> Vec<Duration> {
            times.iter().map(|ms| Duration::from_millis(*ms)).collect()
        };
        let mut times = ms(&[1, 0, 0]);
        add_times(&mut times, &ms(&[50, 51, 52, 10, 30, 35]));
        assert_eq!(times, ms(&[11, 20, 5]));
        add_times(&mut times, &ms(&[1, 2, 3, 2, 3, 4]));
        assert_eq!(times, ms(&[12, 21, 6]));
        add_times(&mut [], &[]);
    }
}
