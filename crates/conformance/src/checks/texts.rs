//! Programs that say something of a whole text: means of rows, the first row.

use std::sync::Arc;

use program::{
    Attention, CacheKind, CacheSpec, Error, Executor, Mask, Model, OutputKind, OutputRows, Outputs,
    Program, Recorder, Result, Score, Sequence, Step, StepOut, ValueId, Wanted,
};
use quant::GgmlType;

use super::ops::{VOCAB, input, weight};
use crate::made::EXACT;
use crate::{Made, Random, assert_close};

const WIDTH: usize = 33;

/// A layer of attention that looks both ways, then the mean of rows or those that are wanted, and a matrix.
fn program(mean: bool) -> Arc<Program> {
    let r = Recorder::new();
    let record = || -> Result<ValueId> {
        let x = input(&r, WIDTH)?;
        let matrix = |name, rows| weight(&r, name, GgmlType::F32, rows, WIDTH);
        let [q, k, v] = ["q", "k", "v"].map(|name| r.linear(name, x, matrix(name, WIDTH)));
        let kind = CacheKind::Heads { n_kv_heads: 3, key_dim: 11, value_dim: 11, window: None };
        let cache = r.cache(CacheSpec { layer: 0, kind });
        let score = Score { mask: Mask::Around(40), ..Score::causal(0.3) };
        let at = Attention { score, ..Attention::causal(cache, None, 1.0) };
        let heads = [r.view("qs", q?, 3)?, r.view("ks", k?, 3)?, r.view("vs", v?, 3)?];
        let x = r.add("sum", x, r.attention("attn", at, &heads)?)?;
        let rows = if mean { r.mean_rows("rows", x)? } else { r.select_rows("rows", x)? };
        r.linear("said", rows, matrix("said", 7))
    };
    let said = record().expect("the check records a valid program");
    Arc::new(r.finish(&[(OutputKind::Hidden, said)]))
}

/// Texts of odd lengths in one step, each of which wants other rows.
fn said(model: &dyn Model) -> Vec<Vec<f32>> {
    let wanted = [OutputRows::First, OutputRows::Last, OutputRows::All, OutputRows::First];
    let tokens = [1, 7, 135, 130].map(|n| Random::new(n as u64).tokens(n, VOCAB));
    let sequences: Vec<_> = (tokens.iter().zip(wanted))
        .map(|(tokens, rows)| Sequence {
            session: model.open(&EXACT).expect("a session opens"),
            tokens,
            outputs: Outputs { rows, what: Wanted::Hidden },
            prompt: None,
            rows: &[],
        })
        .collect();
    let out = model.step(&Step { sequences: &sequences }).and_then(StepOut::all).expect("a step");
    for sequence in &sequences {
        let again = Step { sequences: &[*sequence] };
        let refused = model.step(&again).and_then(StepOut::single);
        assert!(matches!(refused, Err(Error::Operand { .. })), "a text in two steps: {refused:?}");
    }
    out.into_iter().map(|rows| rows.into_hidden().hidden).collect()
}

pub(super) fn whole(executor: &dyn Executor) {
    let mut found = Vec::new();
    for mean in [false, true] {
        let made = Made::new(executor, &program(mean), 12);
        let rows = said(&*made.tested);
        assert_eq!(rows.iter().map(|rows| rows.len() / 7).collect::<Vec<_>>(), [1, 1, 135, 1]);
        for (i, (found, want)) in rows.iter().zip(said(&*made.oracle)).enumerate() {
            assert_close(found, &want, 1e-9, &format!("text {i}, means {mean}"));
        }
        found.push(rows);
    }
    let [rows, means] = &found[..] else { unreachable!("two programs") };
    // all rows of a text have one mean, and it is that of the rows: the matrix has no bias
    for mean in means[2].chunks_exact(7) {
        let of_rows: Vec<f32> =
            (0..7).map(|i| rows[2].iter().skip(i).step_by(7).sum::<f32>() / 135.0).collect();
        assert_close(mean, &of_rows, 1e-9, "the mean of what rows say");
    }
}
