//! A model that says what it is told to, at its own speed: texts that repeat and texts that do not can be measured with any
//! weights.

use engine::Watch;
use program::{PEAK, RowsOut, Step, StepOut};

/// Makes `text[p]` the likeliest token of position `p`, whatever the model computed.
pub(super) struct Forced {
    pub(super) text: Vec<u32>,
}

impl Watch for Forced {
    fn stepped(&self, step: &Step<'_>, starts: &[usize], out: &mut StepOut) {
        for ((sequence, start), rows) in step.sequences.iter().zip(starts).zip(&mut out.sequences) {
            let Ok(RowsOut::Logits(rows)) = rows else { continue };
            let n = rows.vocab_size;
            let n_peaks = n.div_ceil(PEAK);
            let wanted = sequence.outputs.range(sequence.tokens.len());
            for (i, row) in wanted.enumerate() {
                let Some(&token) = self.text.get(start + row + 1) else { continue };
                rows.logits[i * n + token as usize] = f32::MAX;
                rows.peaks[i * n_peaks + token as usize / PEAK] = f32::MAX;
            }
        }
    }
}
