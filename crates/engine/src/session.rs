//! [`Session`]: the tokens of one conversation and the cache that holds them.
//!
//! The rule of this file: `tokens` always lists exactly what the model's cache holds, also after an error or a cancel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use program::{
    CacheOptions, KeptPart, KeptSessions, LogitRows, Model, OutputKind, Outputs, PEAK, Prompt,
    RowsOut, Sequence, SessionId, Step,
};

use crate::alike::alike;
use crate::{Error, Result};

/// Tokens fed at once unless told otherwise.
pub const DEFAULT_CHUNK: usize = 512;

/// One conversation on a shared model. Dropping it frees the cache.
pub struct Session {
    model: Arc<dyn Model>,
    id: SessionId,
    tokens: Vec<u32>,
    cache: CacheOptions,
    chunk: usize,
}

/// How far a prompt has come, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Tokens at the start of the prompt that the cache held already.
    pub cached: usize,
    /// Tokens computed so far.
    pub done: usize,
    /// Tokens to compute: `cached + total` is the prompt's length.
    pub total: usize,
}

/// What feeding a prompt did.
#[derive(Clone, Debug, PartialEq)]
pub struct Fed {
    /// Tokens taken from the cache.
    pub cached: usize,
    /// Tokens computed.
    pub computed: usize,
    /// Scores of the token after the prompt; `None` if cancelled before its end.
    pub logits: Option<Scores>,
}

/// One row of logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// `[vocab_size]`.
    pub(crate) logits: Vec<f32>,
    /// As in [`LogitRows::peaks`].
    pub(crate) peaks: Vec<f32>,
}

impl Scores {
    /// Make tokens so unlikely that no sampler draws them; a logit that is no number stays one, to be told.
    pub(crate) fn ban(&mut self, tokens: &[u32]) {
        for &token in tokens {
            let logit = &mut self.logits[token as usize];
            if logit.is_finite() {
                *logit = f32::MIN;
            }
        }
    }
}

impl Scores {
    /// The scores of each row, in order: those of a single row, which a plain step yields, are moved and not copied.
    pub(crate) fn each(mut rows: LogitRows) -> impl Iterator<Item = Scores> {
        let (n, n_peaks) = (rows.vocab_size, rows.vocab_size.div_ceil(PEAK));
        let n_rows = rows.rows().len();
        (0..n_rows).map(move |i| match n_rows {
            1 => std::mem::take(&mut rows).into(),
            _ => Scores {
                logits: rows.logits[i * n..][..n].to_vec(),
                peaks: rows.peaks[i * n_peaks..][..n_peaks].to_vec(),
            },
        })
    }
}

impl From<LogitRows> for Scores {
    /// # Panics
    /// If there is not one row.
    fn from(out: LogitRows) -> Scores {
        assert_eq!(out.logits.len(), out.vocab_size, "one row of logits");
        Scores { logits: out.logits, peaks: out.peaks }
    }
}

impl std::ops::Deref for Scores {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.logits
    }
}

impl Session {
    /// Tokens fed at once.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// An empty session that holds at most `cache.capacity` tokens and feeds `chunk` of them at once (0: 512).
    ///
    /// # Errors
    /// If the model does not support the cache options.
    pub fn new(model: Arc<dyn Model>, cache: CacheOptions, chunk: usize) -> Result<Session> {
        let id = model.open(&cache)?;
        let chunk = if chunk == 0 { DEFAULT_CHUNK } else { chunk };
        Ok(Session { model, id, tokens: Vec::new(), cache, chunk })
    }

    /// A session that has of these tokens what is kept under a name, or as many of them as can be had.
    ///
    /// # Errors
    /// Those of [`new`](Self::new) and of [`KeptSessions::restore`].
    pub(crate) fn restored(
        (model, cache, chunk): (Arc<dyn Model>, CacheOptions, usize),
        (kept, name): (&dyn KeptSessions, &str),
        tokens: &[u32],
        go_on: &dyn Fn() -> bool,
    ) -> Result<(Session, KeptPart)> {
        let mut session = Session::new(model, cache, chunk)?;
        let part = kept.restore(name, session.id, tokens, go_on)?;
        session.tokens.extend_from_slice(&tokens[..part.positions.min(tokens.len())]);
        Ok((session, part))
    }

    /// How its cache is kept.
    pub(crate) fn cache(&self) -> CacheOptions {
        self.cache
    }

    /// The model it runs on.
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// The tokens the cache holds, in order.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// With how many of these the tokens that the cache holds begin.
    pub fn shares(&self, tokens: &[u32]) -> usize {
        alike(&self.tokens, tokens)
    }

    /// Number of tokens the cache holds.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the cache holds nothing.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Most tokens it may hold.
    pub fn capacity(&self) -> usize {
        self.cache.capacity
    }

    /// Bytes of memory the cache takes now.
    ///
    /// # Errors
    /// If the model has lost the session.
    pub fn cache_bytes(&self) -> Result<u64> {
        Ok(self.model.cache_bytes(self.id)?)
    }

    /// What the policy of its cache left out, where that was measured.
    ///
    /// # Errors
    /// If the model has lost the session.
    pub fn readings(&self) -> Result<program::Readings> {
        Ok(self.model.readings(self.id)?)
    }

    /// Make the cache hold exactly `tokens`, computing only what follows the longest common prefix with what it, or another
    /// session of the model that it can share with, holds; the last token is always computed, for its logits. `on_progress` is called before the first chunk and after each.
    /// `cancel` is read before each chunk; what was computed until then stays.
    ///
    /// # Errors
    /// No tokens, more than fit (nothing is changed then), or a failure of the model (the session then holds what was
    /// computed before it).
    pub fn feed(
        &mut self,
        tokens: &[u32],
        cancel: &AtomicBool,
        on_progress: &mut dyn FnMut(Prefill),
    ) -> Result<Fed> {
        let cached = self.begin(tokens)?;
        let total = tokens.len() - cached;
        on_progress(Prefill { cached, done: 0, total });
        let mut logits = None;
        for chunk in tokens[cached..].chunks(self.chunk) {
            if cancel.load(Ordering::Relaxed) {
                break;
            }
            let last = self.tokens.len() + chunk.len() == tokens.len();
            let outputs = if last { Outputs::LAST } else { Outputs::NONE };
            let out = self.run(chunk, outputs, Some(Prompt { start: cached, len: total }))?;
            logits = last.then(|| out.into_logits().into());
            on_progress(Prefill { cached, done: self.tokens.len() - cached, total });
        }
        Ok(Fed { cached, computed: self.tokens.len() - cached, logits })
    }

    /// Get ready to read `tokens`: what the cache holds of them already, it or another session of the model, is kept, all else
    /// forgotten. Returns how many that are: all but the last at most, whose scores are wanted.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub(crate) fn begin(&mut self, tokens: &[u32]) -> Result<usize> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.check_room(tokens.len())?;
        self.truncate(self.shares(tokens).min(tokens.len() - 1))?;
        let gained = self.model.reuse(self.id, &tokens[..tokens.len() - 1])?;
        let cached = self.tokens.len() + gained;
        self.tokens.extend_from_slice(&tokens[self.tokens.len()..cached]);
        Ok(cached)
    }

    /// Begins a text like [`begin`](Self::begin), but clears the cache, so that all tokens are computed.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub(crate) fn begin_anew(&mut self, tokens: &[u32]) -> Result<usize> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.check_room(tokens.len())?;
        self.clear()?;
        Ok(0)
    }

    /// Up to how many of the likeliest tokens its model had better be asked for, rather than for all.
    pub(crate) fn most_candidates(&self) -> usize {
        self.model.most_candidates()
    }

    /// How many logits its model makes for a token: 0 if it makes none.
    pub(crate) fn n_logits(&self) -> usize {
        let program = self.model.program();
        program.output(OutputKind::Logits).map_or(0, |id| program.value(id).shape.cols())
    }

    /// What a step is asked, to append `tokens`.
    pub(crate) fn sequence<'a>(
        &self,
        tokens: &'a [u32],
        outputs: Outputs,
        prompt: Option<Prompt>,
    ) -> Sequence<'a> {
        Sequence { session: self.id, tokens, outputs, prompt, rows: &[] }
    }

    /// A step has appended `tokens`; they are tentative until [`keep`](Self::keep) says how many stay.
    pub(crate) fn appended(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
    }

    /// Keep the first `len` tokens for good, drop tentative ones after them.
    ///
    /// # Errors
    /// If the model has lost the session, or what came before the tentative ones.
    pub(crate) fn keep(&mut self, len: usize) -> Result<()> {
        if self.truncate(len)? < len {
            let problem = "rows that were not committed cannot be taken back";
            return Err(program::Error::Unsupported(problem.into()).into());
        }
        Ok(self.model.commit(self.id, len)?)
    }

    /// Append one token and return the scores of the token after it.
    ///
    /// # Errors
    /// Full context, or a failure of the model; the session is unchanged then.
    pub fn step(&mut self, token: u32) -> Result<Scores> {
        Ok(self.append(&[token], Outputs::LAST)?.into_logits().into())
    }

    /// Append tokens in one pass and return the wanted rows. No tokens: nothing happens, and no rows come.
    ///
    /// # Errors
    /// Full context, or a failure of the model; the session is unchanged then.
    pub fn append(&mut self, tokens: &[u32], outputs: Outputs) -> Result<RowsOut> {
        self.run(tokens, outputs, None)
    }

    fn run(&mut self, tokens: &[u32], outputs: Outputs, prompt: Option<Prompt>) -> Result<RowsOut> {
        if tokens.is_empty() {
            return Ok(RowsOut::none(outputs.what));
        }
        let len = self.tokens.len() + tokens.len();
        self.check_room(len)?;
        let sequence = self.sequence(tokens, outputs, prompt);
        let out = self.model.step(&Step { sequences: &[sequence] })?.single()?;
        self.appended(tokens);
        // Nothing here is speculative: what was appended is meant.
        self.keep(len)?;
        Ok(out)
    }

    /// Keep the first `len` tokens, or fewer if the cache has let go of what goes on from there; returns how many are kept.
    /// No effect if there are not more.
    ///
    /// # Errors
    /// If the model has lost the session.
    pub fn truncate(&mut self, len: usize) -> Result<usize> {
        if len < self.tokens.len() {
            let reached = self.model.truncate(self.id, len)?;
            self.tokens.truncate(reached);
        }
        Ok(self.tokens.len())
    }

    /// Forget all tokens.
    ///
    /// # Errors
    /// If the model has lost the session.
    pub fn clear(&mut self) -> Result<()> {
        self.truncate(0)?;
        Ok(())
    }

    /// A new session that shares the first `len` tokens, or as many as [`truncate`](Self::truncate) would have kept.
    ///
    /// # Errors
    /// If there are fewer tokens, or memory runs out.
    pub fn fork(&self, len: usize) -> Result<Session> {
        let id = self.model.fork(self.id, len)?;
        let (model, cache, chunk) = (Arc::clone(&self.model), self.cache, self.chunk);
        let mut fork = Session { model, id, tokens: Vec::new(), cache, chunk };
        fork.tokens.extend_from_slice(&self.tokens[..fork.model.len(id)?]);
        Ok(fork)
    }

    /// Its name on the model.
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// Whether it is a session of this model.
    pub(crate) fn is_of(&self, model: &Arc<dyn Model>) -> bool {
        Arc::ptr_eq(&self.model, model)
    }

    fn check_room(&self, wanted: usize) -> Result<()> {
        let capacity = self.capacity();
        if wanted > capacity { Err(Error::ContextFull { wanted, capacity }) } else { Ok(()) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.model.close(self.id);
    }
}
