//! Memory of latent attention: what workers share, and what each has for itself.

use crate::memory::{Buffer, Shared};

/// Elements of each kind of memory that a step needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatentNeeds {
    /// Absorbed queries.
    pub(crate) queries: usize,
    /// Outputs before they leave the latents.
    pub(crate) gathered: usize,
    /// Results of spans, in memory that all of attention shares.
    pub(super) partials: usize,
    /// By worker: floats, codes, scales, sums, arranged words.
    pub(super) worker: [usize; 5],
}

impl LatentNeeds {
    /// Floats of the results of spans.
    pub(crate) fn partials(&self) -> usize {
        self.partials
    }

    /// Bytes of each kind of memory that one worker needs.
    fn worker_bytes(&self) -> [usize; 5] {
        let [floats, codes, scales, sums, words] = self.worker;
        [4 * floats, codes, 4 * scales, 4 * sums, 4 * words]
    }
    /// All of it for `workers`, results of spans apart.
    pub(crate) fn bytes(&self, workers: usize) -> usize {
        4 * (self.queries + self.gathered) + workers * self.worker_bytes().iter().sum::<usize>()
    }

    /// The greater of both, each kind by itself.
    pub(crate) fn max(self, other: LatentNeeds) -> LatentNeeds {
        LatentNeeds {
            queries: self.queries.max(other.queries),
            gathered: self.gathered.max(other.gathered),
            partials: self.partials.max(other.partials),
            worker: std::array::from_fn(|i| self.worker[i].max(other.worker[i])),
        }
    }
}

/// The memory, kept between steps.
pub(crate) struct LatentWorkspace {
    queries: Buffer,
    gathered: Buffer,
    workers: Vec<[Buffer; 5]>,
}

/// A step's view of it.
#[derive(Clone)]
pub(crate) struct LatentMemory<'a> {
    pub(super) queries: Shared<'a, f32>,
    pub(super) gathered: Shared<'a, f32>,
    workers: Vec<Worker<'a>>,
}

#[derive(Clone)]
struct Worker<'a> {
    floats: Shared<'a, f32>,
    codes: Shared<'a, i8>,
    scales: Shared<'a, f32>,
    sums: Shared<'a, i32>,
    arranged: Shared<'a, i32>,
}

impl<'a> Worker<'a> {
    fn new([floats, codes, scales, sums, arranged]: &'a mut [Buffer; 5]) -> Worker<'a> {
        Worker {
            floats: floats.shared_as(),
            codes: codes.shared_as(),
            scales: scales.shared_as(),
            sums: sums.shared_as(),
            arranged: arranged.shared_as(),
        }
    }
}

/// Memory of one worker.
pub(crate) struct LatentScratch<'a> {
    pub(super) floats: &'a mut [f32],
    /// Two inputs' worth.
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
    arranged: &'a mut [i32],
}

/// What an input is quantized and arranged into.
pub(super) struct InputScratch<'a> {
    pub(super) codes: &'a mut [i8],
    pub(super) scales: &'a mut [f32],
    pub(super) sums: &'a mut [i32],
    pub(super) arranged: &'a mut [i32],
}

impl InputScratch<'_> {
    /// The same, for one more input.
    pub(super) fn reborrow(&mut self) -> InputScratch<'_> {
        InputScratch {
            codes: self.codes,
            scales: self.scales,
            sums: self.sums,
            arranged: self.arranged,
        }
    }
}

impl LatentWorkspace {
    pub(crate) fn new(workers: usize) -> LatentWorkspace {
        LatentWorkspace {
            queries: Buffer::empty(),
            gathered: Buffer::empty(),
            workers: (0..workers).map(|_| std::array::from_fn(|_| Buffer::empty())).collect(),
        }
    }

    /// Memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let own = [&self.queries, &self.gathered].into_iter();
        let buffers = own.chain(self.workers.iter().flatten());
        buffers.map(Buffer::len).sum()
    }

    /// Make room for a step, with `grow` for each buffer and its bytes.
    pub(crate) fn prepare(
        &mut self,
        needs: &LatentNeeds,
        grow: &dyn Fn(&mut Buffer, usize) -> program::Result<()>,
    ) -> program::Result<LatentMemory<'_>> {
        grow(&mut self.queries, 4 * needs.queries)?;
        grow(&mut self.gathered, 4 * needs.gathered)?;
        for worker in &mut self.workers {
            for (buffer, need) in worker.iter_mut().zip(needs.worker_bytes()) {
                grow(buffer, need)?;
            }
        }
        Ok(LatentMemory {
            queries: self.queries.shared_as(),
            gathered: self.gathered.shared_as(),
            workers: self.workers.iter_mut().map(Worker::new).collect(),
        })
    }
}

impl<'a> LatentMemory<'a> {
    /// The memory of worker `index`.
    ///
    /// # Safety
    /// Each worker takes its own, once per step.
    pub(crate) unsafe fn scratch(&self, index: usize) -> LatentScratch<'a> {
        let worker = &self.workers[index];
        // SAFETY: the caller's promise.
        let floats = unsafe { worker.floats.all_mut() };
        // SAFETY: as above.
        let codes = unsafe { worker.codes.all_mut() };
        // SAFETY: as above.
        let scales = unsafe { worker.scales.all_mut() };
        // SAFETY: as above.
        let sums = unsafe { worker.sums.all_mut() };
        // SAFETY: as above.
        let arranged = unsafe { worker.arranged.all_mut() };
        LatentScratch { floats, codes, scales, sums, arranged }
    }
}

impl LatentScratch<'_> {
    /// Floats, and room for two inputs.
    pub(super) fn split(&mut self) -> (&mut [f32], [InputScratch<'_>; 2]) {
        let (codes, codes_2) = self.codes.split_at_mut(self.codes.len() / 2);
        let (scales, scales_2) = self.scales.split_at_mut(self.scales.len() / 2);
        let (sums, sums_2) = self.sums.split_at_mut(self.sums.len() / 2);
        let (arranged, arranged_2) = self.arranged.split_at_mut(self.arranged.len() / 2);
        let inputs = [
            InputScratch { codes, scales, sums, arranged },
            InputScratch { codes: codes_2, scales: scales_2, sums: sums_2, arranged: arranged_2 },
        ];
        (self.floats, inputs)
    }
}
