//! Rates of what recurs: one layer in a small program.

use program::{
    CacheOptions, CacheType, Executor, Outputs, Program, Result, ScanKind, ScanRule, ValueId,
};

use crate::{CHUNK, EPS, Pass, Run, WIDTH, Weights, begin, finish, median, outside, over, weight};
use planner::{Overheads, ScanRate, ScanShape};

/// Steps from one that writes a state to the next, in executors that write few; steps that are timed, whole rounds of these;
/// and such before them, after which every round is like the one before.
const ROUND: usize = 8;
const STEPS: usize = 3 * ROUND;
const BEFORE: usize = 2 * ROUND;

/// Seconds of one layer, and what a step costs outside its phases.
pub(super) fn measure(
    executor: &dyn Executor,
    weights: &mut Weights<'_>,
    shape: ScanShape,
) -> Result<(ScanRate, Overheads)> {
    let program = one_layer(&shape)?;
    let n_logits = program.vocab_size() as f64;
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, CHUNK + BEFORE + STEPS + ROUND);
    let run = Run::new(executor, weights, program, cache)?;
    run.warm(CHUNK, Outputs::NONE)?;
    let prompts = run.repeat(0, &|| run.pass(CHUNK, Outputs::NONE))?;
    // as a session's: what stays is committed, so that states need not wait for what may be taken back
    let steps = |n: usize, outputs| -> Result<Vec<Pass>> {
        let step = |_| {
            run.commit()?;
            run.pass(1, outputs)
        };
        (0..n).map(step).collect()
    };
    steps(BEFORE, Outputs::NONE)?;
    // its state was driven out by the head, as other layers do
    let far = steps(STEPS, Outputs::LAST)?;
    let bare = steps(ROUND, Outputs::NONE)?;
    let scan = |pass: &Pass| pass.sum(|_, kind| kind == "scan").1;
    let rows = over(&prompts, |pass| pass.sum(|_, kind| kind == "rows").1);
    let elements = (CHUNK * shape.dims.n_heads * shape.dims.value_dim) as f64;
    let overheads = Overheads { element: rows / elements, ..outside(&bare, &far, n_logits) };
    // some steps of a round read more rows than others
    let like = |place: usize| median(far.iter().skip(place).step_by(ROUND).map(scan).collect());
    let step = (0..ROUND).map(like).sum::<f64>() / ROUND as f64;
    let token = over(&prompts, scan) / CHUNK as f64;
    Ok((ScanRate { shape, step, token }, overheads))
}

/// A recurrence with a norm of its values, before a head as far away as the other layers of a model.
fn one_layer(shape: &ScanShape) -> Result<Program> {
    let ScanShape { rule, dims, by_row } = *shape;
    let (r, x) = begin()?;
    let rows = |name: &str, groups: usize, dim: usize| -> Result<ValueId> {
        let rows = r.linear(name, x, weight(&r, name, groups * dim, WIDTH))?;
        r.view(name, rows, groups)
    };
    let keys = |name: &str| rows(name, dims.n_key_heads, dims.key_dim);
    let heads = |name: &str, dim: usize| rows(name, dims.n_heads, dim);
    let vector = |name: &str, n: usize| weight(&r, name, 1, n);
    let (q, k) = (keys("q")?, keys("k")?);
    let v = heads("v", dims.value_dim)?;
    let v = r.rms_norm("v_norm", v, vector("v_norm", dims.value_dim), EPS)?;
    let decay = |by_row: bool| heads("g", if by_row { dims.key_dim } else { 1 });
    let (kind, more) = match rule {
        ScanRule::Delta => (ScanKind::Delta { eps: EPS }, vec![decay(by_row)?, heads("beta", 1)?]),
        ScanRule::Linear => (ScanKind::Linear { scale: 1.0 }, vec![decay(by_row)?]),
        ScanRule::Lightning => (ScanKind::Lightning { factor: 1.0 }, Vec::new()),
        ScanRule::Ssd => {
            let [a, d] = ["a", "d"].map(|name| vector(name, dims.n_heads));
            (ScanKind::Ssd { a, d }, vec![heads("dt", 1)?])
        }
        ScanRule::Selective => {
            let a = weight(&r, "a", dims.value_dim, dims.key_dim);
            let d = vector("d", dims.value_dim);
            (ScanKind::Selective { a, d }, vec![heads("dt", dims.value_dim)?])
        }
        ScanRule::Wkv6 => {
            let first = vector("first", dims.n_heads * dims.key_dim);
            (ScanKind::Wkv6 { first }, vec![decay(true)?])
        }
        ScanRule::Wkv7 => {
            let more = [decay(true)?, heads("a", dims.key_dim)?, heads("b", dims.key_dim)?];
            (ScanKind::Wkv7, more.to_vec())
        }
    };
    let out = r.scan("scan", kind, dims.by_turns, &[[q, k, v].as_slice(), &more].concat())?;
    finish(r, out, dims.n_heads * dims.value_dim)
}
