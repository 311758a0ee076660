//! What a model makes of its last rows: logits, or what it says of a text as a whole.

use program::{Act, LinearWeight, Norm, OutputKind, Recorder, ValueId};

use super::ProgramOutputs;
use crate::{Bias, ModelConfig, Pooling, Result, TextHead, Weights};

/// The results of a program whose residual stream is `x` `[n, hidden_size]`; `norm` is the last one, where there is one.
pub(super) fn record(
    r: &Recorder,
    w: &Weights<'_>,
    c: &ModelConfig,
    x: ValueId,
    norm: Option<Norm>,
) -> Result<ProgramOutputs> {
    let normed = |x| norm.map_or(Ok(x), |norm| r.norm("output_norm", x, norm));
    let mut outputs = Vec::new();
    let h = match &c.text {
        Some(TextHead { pooling: Pooling::Mean, .. }) => r.mean_rows("rows", normed(x)?)?,
        None if c.hands_hidden => {
            let all = normed(x)?;
            outputs.push((OutputKind::Rows, all));
            r.select_rows("rows", all)?
        }
        // the head runs only where something is wanted
        _ => normed(r.select_rows("rows", x)?)?,
    };
    let said = match &c.text {
        None => {
            outputs.extend([
                (OutputKind::Logits, logits(r, c, w.output(c)?, h)?),
                (OutputKind::Hidden, h),
            ]);
            return Ok(outputs);
        }
        Some(text @ TextHead { pooling: Pooling::Rank, .. }) => classify(r, w, text, h)?,
        Some(text) => embed(r, w, text, h)?,
    };
    Ok(vec![(OutputKind::Hidden, said)])
}

/// `[selected, vocab_size]`.
pub(super) fn logits(
    r: &Recorder,
    c: &ModelConfig,
    output: LinearWeight,
    h: ValueId,
) -> Result<ValueId> {
    let mut logits = r.linear("output", h, output)?;
    if let Some(factor) = c.logit_scale {
        logits = r.scale("output_scaled", logits, factor)?;
    }
    if let Some(bound) = c.logit_softcap {
        logits = r.act("output_softcap", Act::Softcap(bound), logits)?;
    }
    Ok(logits)
}

/// The matrices behind the pooling, one after the other.
fn embed(r: &Recorder, w: &Weights<'_>, text: &TextHead, mut h: ValueId) -> Result<ValueId> {
    for (name, rows) in ["dense_2", "dense_3"].into_iter().zip(text.dense) {
        if let Some(rows) = rows {
            h = r.linear(name, h, w.linear(name, rows, r.shape(h).cols(), Bias::IfPresent)?)?;
        }
    }
    Ok(h)
}

/// A score for each label: `output . tanh(cls . h)`, one of the two left out where the file does so.
fn classify(r: &Recorder, w: &Weights<'_>, text: &TextHead, mut h: ValueId) -> Result<ValueId> {
    if let Some(rows) = text.classifier {
        h = r.linear("cls", h, w.linear("cls", rows, r.shape(h).cols(), Bias::IfPresent)?)?;
        h = r.act("cls_act", Act::Tanh, h)?;
    }
    if let Some(rows) = text.labels {
        let output = w.linear("cls.output", rows, r.shape(h).cols(), Bias::IfPresent)?;
        h = r.linear("cls.output", h, output)?;
    }
    Ok(h)
}
