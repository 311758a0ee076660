//! Convolution phases: sums over each row and those before it, channel by channel.

use kv::StateStep;

use super::blocks::StateMemory;
use super::{Exec, SequenceRows};
use crate::pool::Worker;
use crate::schedule::LoadedConv;

/// Channels of an item.
const CHANNELS: usize = 256;

/// Some channels of one sequence.
struct Stretch<'a> {
    conv: &'a LoadedConv,
    rows: SequenceRows,
    step: &'a StateStep,
    memory: StateMemory<'a>,
    first: usize,
    n: usize,
}

impl Exec<'_> {
    /// Items are channels of a sequence: whoever has them computes and keeps all of theirs.
    pub(super) fn causal_conv(&self, worker: &Worker<'_>, conv: &LoadedConv) {
        let channels = conv.phase.x.n;
        let per_sequence = channels.div_ceil(CHANNELS);
        let number = self.attention[conv.phase.cache.0 as usize].state().number;
        worker.section(|section| {
            for item in section.take(self.sequences.len() * per_sequence) {
                let (sequence, stretch) = (item / per_sequence, item % per_sequence);
                let first = stretch * CHANNELS;
                self.stretch(&Stretch {
                    conv,
                    rows: self.sequences[sequence],
                    step: self.blocks.state_step(sequence),
                    memory: self.blocks.state(number, sequence),
                    first,
                    n: CHANNELS.min(channels - first),
                });
            }
        });
    }

    /// Channels of the row at a position; `None` before the first one.
    fn channels<'s>(
        &'s self,
        stretch: &Stretch<'s>,
        position: usize,
        back: usize,
    ) -> Option<&'s [f32]> {
        let Stretch { conv, rows, step, memory, first, n } = stretch;
        let (all, reach) = (conv.phase.x.n, conv.phase.reach());
        let position = position.checked_sub(back)?;
        let (from, shared) = if position >= rows.start {
            let x = conv.phase.x;
            let row = rows.first_row + position - rows.start;
            return Some(&self.row(x.operand, row)[x.start + first..][..*n]);
        } else if position >= step.base {
            (StateStep::slot(position) * all, memory.ring)
        } else {
            // rows before the state are what it is
            ((position + reach - step.base) * all, memory.base?)
        };
        // SAFETY: states and rows that were kept before; the step writes other slots.
        Some(unsafe { shared.slice(from + first..from + first + n) })
    }

    fn stretch(&self, stretch: &Stretch<'_>) {
        let Stretch { conv, rows, step, memory, first, n } = stretch;
        let (all, width, out) = (conv.phase.x.n, conv.phase.width, conv.phase.out);
        for row in 0..rows.n {
            let position = rows.start + row;
            let at = (rows.first_row + row) * out.cols + first;
            // SAFETY: an item's channels of a sequence are its alone.
            let sums = unsafe { self.value(out).slice_mut(at..at + n) };
            match conv.phase.bias {
                Some(bias) => sums.copy_from_slice(&self.weights.vector(bias)[*first..][..*n]),
                None => sums.fill(0.0),
            }
            if conv.phase.taps.is_none() {
                if let Some(before) = self.channels(stretch, position, 1) {
                    sums.copy_from_slice(before);
                }
                continue;
            }
            for (i, taps) in conv.taps.chunks_exact(all).enumerate() {
                if let Some(x) = self.channels(stretch, position, (width - 1 - i) * conv.phase.step)
                {
                    self.kernels.add_product.call(&taps[*first..][..*n], x, sums);
                }
            }
            if let Some(act) = conv.phase.act {
                self.kernels.act.call(act, sums);
            }
        }
        if let (Some(fold), Some(memory)) = (step.fold, memory.fold) {
            let reach = conv.phase.reach();
            for i in 0..reach {
                let from = i * all + first;
                // SAFETY: as above.
                let kept = unsafe { memory.slice_mut(from..from + n) };
                match self.channels(stretch, fold + i, reach) {
                    Some(x) => kept.copy_from_slice(x),
                    None => kept.fill(0.0),
                }
            }
        }
        for position in step.stored_from..step.new.end {
            let Some(x) = self.channels(stretch, position, 0) else { continue };
            let from = StateStep::slot(position) * all + first;
            // SAFETY: as above; slots of the step are not read in it.
            unsafe { memory.stored.slice_mut(from..from + n) }.copy_from_slice(x);
        }
    }
}
