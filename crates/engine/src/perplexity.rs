//! Perplexity of a text: how surprised the model is by its own next token, as llama.cpp's `perplexity` counts it.
//!
//! The text is cut into windows of `context` tokens without overlap; in each the second half is scored, so that every
//! scored token has at least `context / 2` tokens before it. What is left at the end is not used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use program::{CacheOptions, Model, Outputs};

use crate::{Error, Result, Session};

/// Rows of logits held at once: at most this times the vocabulary, in f32.
const SCORED_AT_ONCE: usize = 64;

/// The measure so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// `exp` of the mean negative log likelihood of the scored tokens.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Tokens scored.
    pub tokens: usize,
    /// Windows done.
    pub windows: usize,
}

/// One window is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Windows in all.
    pub total: usize,
    /// The measure over those done.
    pub so_far: Perplexity,
}

/// How the measure is taken.
#[derive(Clone, Copy, Debug)]
pub struct PerplexityOptions {
    /// The cache; its capacity is the length of a window.
    pub cache: CacheOptions,
    /// Replaces the first token of each window, for models whose texts begin with it.
    pub bos: Option<u32>,
    /// Most tokens fed at once; 0 for 512. Of those that are scored, at most 64.
    pub chunk: usize,
}

/// How many windows `n_tokens` tokens make.
pub fn windows(n_tokens: usize, context: usize) -> usize {
    n_tokens.checked_div(context).unwrap_or(0)
}

/// Perplexity of `tokens` in windows of `options.cache.capacity` tokens. `on_window` is called after each window; `cancel` is read before each, and what
/// was measured until then is returned, `None` if nothing was.
///
/// # Errors
/// Windows under 4 tokens, fewer tokens than one window, non-finite logits, or a failure of the model.
pub fn perplexity(
    model: &Arc<dyn Model>,
    options: PerplexityOptions,
    tokens: &[u32],
    cancel: &AtomicBool,
    on_window: &mut dyn FnMut(Window),
) -> Result<Option<Perplexity>> {
    let PerplexityOptions { cache, bos, chunk } = options;
    let context = cache.capacity;
    if context < 4 {
        return Err(Error::Setting {
            name: "perplexity context",
            expected: "4 tokens or more",
            found: context.to_string(),
        });
    }
    let total = windows(tokens.len(), context);
    if total == 0 {
        return Err(Error::TextTooShort { context, found: tokens.len() });
    }
    let mut session = Session::new(Arc::clone(model), cache, chunk)?;
    let mut sums = Sums::default();
    let mut so_far = None;
    for window in tokens.chunks_exact(context) {
        if cancel.load(Ordering::Relaxed) {
            break;
        }
        let mut window = window.to_vec();
        window[0] = bos.unwrap_or(window[0]);
        score_window(&mut session, &window, &mut sums)?;
        sums.windows += 1;
        so_far = Some(sums.perplexity());
        on_window(Window { total, so_far: sums.perplexity() });
    }
    Ok(so_far)
}

/// Score the tokens of the window's second half, but for the first of them.
fn score_window(session: &mut Session, window: &[u32], sums: &mut Sums) -> Result<()> {
    let first = window.len() / 2;
    session.clear()?;
    for chunk in window[..first].chunks(session.chunk()) {
        session.append(chunk, Outputs::NONE)?;
    }
    // The row of token i scores token i + 1, so the last token has nothing to score and is not fed.
    let at_once = SCORED_AT_ONCE.min(session.chunk());
    let mut scored = first;
    while scored < window.len() - 1 {
        let end = (scored + at_once).min(window.len() - 1);
        let out = session.append(&window[scored..end], Outputs::ALL)?.into_logits();
        for (row, position) in out.rows().zip(scored..end) {
            sums.add(nll(row, window[position + 1], position + 1)?);
        }
        scored = end;
    }
    Ok(())
}

/// `-ln softmax(logits)[token]`.
fn nll(logits: &[f32], token: u32, position: usize) -> Result<f64> {
    let Some(&logit) = logits.get(token as usize) else {
        return Err(program::Error::Token { token, vocab_size: logits.len() }.into());
    };
    let bad = logits.iter().zip(0..).find(|(x, _)| !x.is_finite());
    if let Some((&value, token)) = bad {
        return Err(Error::NonFinite { position, token, value });
    }
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from((x - max).exp())).sum();
    Ok(sum.ln() - f64::from(logit - max))
}

/// Running sums over the scored tokens.
#[derive(Default)]
struct Sums {
    nll: f64,
    nll_squared: f64,
    tokens: usize,
    windows: usize,
}

impl Sums {
    fn add(&mut self, nll: f64) {
        self.nll += nll;
        self.nll_squared += nll * nll;
        self.tokens += 1;
    }

    fn perplexity(&self) -> Perplexity {
        let n = self.tokens as f64;
        let mean = self.nll / n;
        let value = mean.exp();
        // Rounding can make the variance of equal numbers negative, and one number has none.
        let variance = (self.nll_squared / n - mean * mean).max(0.0);
        let error = if self.tokens > 1 { (variance / (n - 1.0)).sqrt() * value } else { 0.0 };
        Perplexity { value, error, tokens: self.tokens, windows: self.windows }
    }
}
