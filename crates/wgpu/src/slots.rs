//! Which buffers of a plan share memory: those that are never needed at once.

use crate::plan::{GpuPlan, RowsSpec, ValueBuffer};

/// Memory for the buffers of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Slots {
    /// What each slot holds: all its buffers are alike, so that the zeros behind their rows stay zeros.
    pub(crate) specs: Vec<RowsSpec>,
    /// By buffer.
    of: Vec<usize>,
}

impl Slots {
    /// The slot of a buffer.
    pub(crate) fn of(&self, buffer: ValueBuffer) -> usize {
        self.of[buffer.0]
    }

    /// Give each buffer the slot of one that nobody reads any more, or a new one.
    pub(crate) fn assign(plan: &GpuPlan) -> Slots {
        let n = plan.buffers.len();
        let mut last_read = vec![0; n];
        for (i, work) in plan.works.iter().enumerate() {
            for place in work.inputs().into_iter().chain(work.outs()) {
                last_read[place.buffer.0] = i;
            }
        }
        for (_, place, _) in &plan.outputs {
            last_read[place.buffer.0] = usize::MAX;
        }
        let mut slots = Slots { specs: Vec::new(), of: vec![usize::MAX; n] };
        let mut free: Vec<usize> = Vec::new();
        for (place, _) in &plan.inputs {
            slots.give(plan, place.buffer, &mut free);
        }
        for (i, work) in plan.works.iter().enumerate() {
            for out in work.outs() {
                if slots.of[out.buffer.0] == usize::MAX {
                    slots.give(plan, out.buffer, &mut free);
                }
            }
            // only now: no work writes what it reads
            let all = work.inputs().into_iter().chain(work.outs());
            let mut read: Vec<_> = all.map(|place| place.buffer).collect();
            read.sort_unstable();
            read.dedup();
            free.extend(read.iter().filter(|id| last_read[id.0] == i).map(|id| slots.of[id.0]));
        }
        slots
    }

    fn give(&mut self, plan: &GpuPlan, id: ValueBuffer, free: &mut Vec<usize>) {
        let spec = *plan.buffer(id);
        let found = free.iter().position(|slot| self.specs[*slot] == spec);
        self.of[id.0] = match found {
            Some(at) => free.remove(at),
            None => {
                self.specs.push(spec);
                self.specs.len() - 1
            }
        };
    }

    /// Bytes of all slots with so many rows of tokens and of selected rows.
    pub(crate) fn bytes(&self, rows: &dyn Fn(program::Rows) -> usize) -> u64 {
        let bytes = |spec: &RowsSpec| 4 * (rows(spec.rows) * spec.stride()) as u64;
        self.specs.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use program::Rows;

    use super::*;
    use crate::kernels::Finish;
    use crate::plan::{ElementWork, GpuWork, Place};

    /// A chain of sums, each of the two before: three slots do for any length.
    #[test]
    fn no_work_writes_what_it_reads() {
        let mut plan = GpuPlan::default();
        let place = |i: usize| Place { buffer: ValueBuffer(i), offset: 0 };
        let spec = RowsSpec { rows: Rows::Tokens, cols: 5 };
        plan.buffers = vec![spec; 10];
        plan.inputs = vec![(place(0), spec), (place(1), spec)];
        for i in 2..10 {
            plan.works.push(GpuWork::Elements(ElementWork {
                value: "",
                finish: Finish::Plain,
                a: place(i - 1),
                b: Some(place(i - 2)),
                out: place(i),
                cols: 5,
                sizes: [0; 3],
                vector: None,
                factor: 0.0,
            }));
        }
        plan.outputs = vec![(program::OutputKind::Logits, place(9), spec)];
        let slots = Slots::assign(&plan);
        assert_eq!(slots.specs, [spec; 3]);
        for i in 2..10 {
            let [a, b, out] = [i - 1, i - 2, i].map(|i| slots.of(ValueBuffer(i)));
            assert!(a != out && b != out && a != b, "work {i}: {a}, {b} -> {out}");
        }
        assert_eq!(slots.bytes(&|_| 2), 3 * 2 * 32 * 4);
    }
}
