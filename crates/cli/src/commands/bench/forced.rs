//! A model that says what it is told to, at its own speed: texts that repeat and texts that do not can be measured with any
//! weights.

use std::sync::Arc;

use program::{
    CacheOptions, Model, PEAK, Program, Result, RowsOut, SessionId, Step, StepOut, StepStats,
};

/// Computes as `model` does, and then makes `text[p]` the likeliest token of position `p`.
pub(super) struct Forced {
    pub(super) model: Arc<dyn Model>,
    pub(super) text: Vec<u32>,
}

impl Forced {
    /// Put the text's tokens on top of what `sequences` yielded; `starts`: positions their sessions held before.
    fn force(&self, step: &Step<'_>, starts: &[usize], mut out: StepOut) -> StepOut {
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
        out
    }
}

impl Model for Forced {
    fn program(&self) -> &Arc<Program> {
        self.model.program()
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        self.model.open(options)
    }

    fn close(&self, id: SessionId) {
        self.model.close(id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        self.step_while(step, &|| true)
    }

    fn step_while(&self, step: &Step<'_>, go_on: &(dyn Fn() -> bool + Sync)) -> Result<StepOut> {
        let start = |s: &program::Sequence<'_>| self.model.len(s.session).unwrap_or(0);
        let starts: Vec<usize> = step.sequences.iter().map(start).collect();
        Ok(self.force(step, &starts, self.model.step_while(step, go_on)?))
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        self.model.len(id)
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.model.commit(id, len)
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.model.truncate(id, len)
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        self.model.fork(id, len)
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        self.model.cache_bytes(id)
    }

    fn stats(&self) -> StepStats {
        self.model.stats()
    }
}
