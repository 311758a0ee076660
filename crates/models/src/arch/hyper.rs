//! Several residual streams side by side: halves of blocks read a mix of them, and what they make is added to each.
//!
//! ```text
//! m = fn . norm(all streams in a row)
//! pre = sigmoid(scale[0] * m + base) + eps            a share of each stream in what the half reads
//! post = magnitude * sigmoid(scale[1] * m + base)     a share of what it makes for each stream
//! comb = balanced(scale[2] * m + base)                shares of streams in each other, where they mix
//! ```
//!
//! Source: arXiv:2409.19606, section 2; arXiv:2512.24880, section 4; tensor names of GGUF's `hy_v4` and `deepseek4`.

use program::{Act, Lookup, Recorder, ValueId};

use super::decoder::Layer;
use crate::{Bias, Error, HyperConnections, ModelConfig, Result, Weights};

/// As many streams of `x` as the model has: `[n, n_streams, hidden_size]`.
pub(super) fn open(r: &Recorder, c: &ModelConfig, x: ValueId) -> Result<ValueId> {
    Ok(r.concat("streams", &vec![x; settings(c)?.n_streams])?)
}

fn settings(c: &ModelConfig) -> Result<&HyperConnections> {
    c.hyper.as_ref().ok_or_else(|| Error::incomplete(c))
}

/// A block: both halves, each behind its norm.
pub(super) fn block(
    l: &Layer<'_>,
    x: ValueId,
    attend: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
    feed: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let x = half(l, "attn", x, |l, h| attend(l, l.norm("attn_norm", h)?))?;
    half(l, "ffn", x, |l, h| feed(l, l.norm("ffn_norm", h)?))
}

/// The streams after a half that reads a mix of them.
fn half(
    l: &Layer<'_>,
    name: &str,
    x: ValueId,
    of: impl Fn(&Layer<'_>, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let its = settings(l.model)?;
    let n = its.n_streams;
    let tensors = format!("hc_{name}");
    let shares = Shares::new((l.r, &l.w, l.model), &tensors, x, its)?;
    let h = l.r.mix(&format!("{name}_read"), shares.pre()?, x)?;
    let post = shares.post()?;
    let kept = match its.rounds {
        None => x,
        Some(rounds) => {
            let comb =
                l.r.view(&format!("{name}_square"), shares.part("comb", 2, 2 * n, n * n)?, n)?;
            let comb = l.r.sinkhorn(&format!("{name}_balanced"), comb, rounds, its.eps)?;
            let comb = l.r.view(&format!("{name}_shares"), comb, 1)?;
            l.r.mix(&format!("{name}_kept"), comb, x)?
        }
    };
    let y = of(l, h)?;
    let made = l.r.mix(&format!("{name}_made"), post, y)?;
    l.add(&format!("{name}_streams"), kept, made)
}

/// The mean of all streams: `[n, hidden_size]`.
pub(super) fn mean(r: &Recorder, c: &ModelConfig, name: &str, x: ValueId) -> Result<ValueId> {
    let n = settings(c)?.n_streams;
    let streams = r.view(&format!("{name}_flat"), x, 1)?;
    let stream = format!("{name}_stream");
    let part = |i: usize| r.slice(&stream, streams, i * c.hidden_size, c.hidden_size);
    let sum = |sum, i| r.add(&format!("{name}_sum"), sum, part(i)?);
    Ok(r.scale(name, (1..n).try_fold(part(0)?, sum)?, 1.0 / n as f32)?)
}

/// One stream of all, by shares of their own: `[n, hidden_size]`.
pub(super) fn close(r: &Recorder, w: &Weights<'_>, c: &ModelConfig, x: ValueId) -> Result<ValueId> {
    let its = settings(c)?;
    let shares = Shares::of((r, w, c), "output_hc", x, (its, its.n_streams, 1))?;
    Ok(r.mix("output_read", shares.pre()?, x)?)
}

/// Numbers that shares are made of, for each row.
struct Shares<'a> {
    r: &'a Recorder,
    w: &'a Weights<'a>,
    its: &'a HyperConnections,
    name: &'a str,
    made: ValueId,
    /// All of them.
    total: usize,
    /// Factors in the file.
    n_scales: usize,
}

impl<'a> Shares<'a> {
    fn new(
        of: (&'a Recorder, &'a Weights<'a>, &ModelConfig),
        name: &'a str,
        x: ValueId,
        its: &'a HyperConnections,
    ) -> Result<Shares<'a>> {
        let n = its.n_streams;
        let (total, n_scales) = match its.rounds {
            None => (2 * n, 2),
            Some(_) => ((2 + n) * n, 3),
        };
        Shares::of(of, name, x, (its, total, n_scales))
    }

    fn of(
        (r, w, c): (&'a Recorder, &'a Weights<'a>, &ModelConfig),
        name: &'a str,
        x: ValueId,
        (its, total, n_scales): (&'a HyperConnections, usize, usize),
    ) -> Result<Shares<'a>> {
        let flat = r.view(&format!("{name}_flat"), x, 1)?;
        let flat = r.norm(&format!("{name}_normed"), flat, c.plain_norm())?;
        let matrix = format!("{name}_fn");
        let weight = w.linear(&matrix, total, r.shape(flat).cols(), Bias::Never)?;
        let made = r.linear(&matrix, flat, weight)?;
        Ok(Shares { r, w, its, name, made, total, n_scales })
    }

    /// `len` numbers from `start` on, times factor `i`, plus what the file adds to them.
    fn part(&self, what: &str, i: usize, start: usize, len: usize) -> Result<ValueId> {
        let Shares { r, w, name, total, n_scales, .. } = *self;
        let name_of = |of: &str| format!("{name}_{what}_{of}");
        let x = r.slice(&name_of("made"), self.made, start, len)?;
        let scale = w.stretch(&format!("{name}_scale"), &[n_scales], i, 1)?;
        let base = w.stretch(&format!("{name}_base"), &[total], start, len)?;
        let base = r.lookup(&name_of("base"), base, Lookup::Only)?;
        Ok(r.add(&name_of("sum"), r.multiply(&name_of("scaled"), x, scale)?, base)?)
    }

    fn pre(&self) -> Result<ValueId> {
        let x = self.part("pre", 0, 0, self.its.n_streams)?;
        let x = self.r.act(&format!("{}_pre_sigmoid", self.name), Act::Sigmoid, x)?;
        Ok(self.r.shift(&format!("{}_pre", self.name), x, self.its.eps)?)
    }

    fn post(&self) -> Result<ValueId> {
        let x = self.part("post", 1, self.its.n_streams, self.its.n_streams)?;
        let x = self.r.act(&format!("{}_post_sigmoid", self.name), Act::Sigmoid, x)?;
        let x = self.r.scale(&format!("{}_post", self.name), x, self.its.magnitude)?;
        match self.its.adds_eps {
            true => Ok(self.r.shift(&format!("{}_post_shifted", self.name), x, self.its.eps)?),
            false => Ok(x),
        }
    }
}
