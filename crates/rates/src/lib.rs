//! What kernels reach on this machine, measured: [`measure`] fills in [`Rates`], which the planner's expectations are made
//! of. Small programs with made-up weights are run by the executor itself, so that packing, threads and kernels are those
//! that run models.
//!
//! Times are medians, since what is wanted is the usual time; ceilings are bests.

#![forbid(unsafe_code)]

mod latent;
mod scan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use program::{
    Act, Attention, CacheOptions, CacheSpec, CacheType, Error, Executor, Model, OutputKind,
    Outputs, Program, Prompt, Recorder, Result, Rope, RopePairs, RopeScaling, Sequence, SessionId,
    Step, ValueId, WeightId, WeightSource, WeightSpec, read_memory,
};
use quant::GgmlType;

use planner::{AttentionRate, AttentionShape, LinearRate, Overheads, Rates, WantedRates};

/// Bytes of the matrices that are multiplied with few rows: caches hold at most a part of them.
pub const FAR: u64 = 256 << 20;
/// Bytes of the matrices for many rows, which take long and depend less on memory.
const FAR_ENOUGH: u64 = 48 << 20;
/// Rows of passes that memory binds.
const FEW_ROWS: [usize; 4] = [1, 2, 4, 8];
/// Rows of passes that arithmetic binds; the largest, which takes all memory that the others need, comes first.
const MANY_ROWS: [usize; 6] = [512, 256, 128, 64, 32, 16];
/// Tokens of a pass that fills a cache.
const CHUNK: usize = 512;
/// Multiply-adds of attention that filling a cache may take.
const FILL_MACS: u64 = 2_000_000_000;
/// Seconds of a pass of many rows beyond which it is not measured: what it takes follows from fewer rows.
const LONGEST: f64 = 4.0;
/// Each figure is a median of at least so many passes ...
const PASSES: usize = 3;
/// ... and of more, up to so many, while they take less than this; fewer if they take four times as long.
const MOST_PASSES: usize = 15;
const TIME: Duration = Duration::from_millis(25);

/// Conditions that end a measurement early.
#[derive(Clone, Copy)]
pub struct MeasureControl<'a> {
    /// Callback before each pass that returns whether to stop.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    /// Time in seconds beyond which a pass of many rows is not measured: its time follows from fewer rows.
    pub longest_pass: f64,
}

impl MeasureControl<'_> {
    /// Returns a control that measures everything, except passes that take very long.
    pub fn whole() -> MeasureControl<'static> {
        MeasureControl { stop: &|| false, longest_pass: LONGEST }
    }
}

/// Measure what is wanted, but for shapes of attention and of what recurs that the executor does not run. `progress` is told what part is done, from 0 to 1.
/// If measuring is stopped, the complete parts are returned.
///
/// # Errors
/// Memory, or an executor that does not tell what its phases take.
pub fn measure(
    executor: &dyn Executor,
    wanted: &WantedRates,
    progress: &mut dyn FnMut(f64),
    control: &MeasureControl<'_>,
) -> Result<Rates> {
    let mut rates = Rates::default();
    match measure_into(&mut rates, executor, wanted, (progress, control)) {
        Ok(()) => Ok(rates),
        // overheads outside the layers are known only after all layers were measured
        Err(Error::Cancelled) => Ok(Rates { linear: rates.linear, ..Rates::default() }),
        Err(error) => Err(error),
    }
}

/// Measures what is wanted and adds each complete part to `rates`.
fn measure_into(
    rates: &mut Rates,
    executor: &dyn Executor,
    wanted: &WantedRates,
    (progress, control): (&mut dyn FnMut(f64), &MeasureControl<'_>),
) -> Result<()> {
    let WantedRates { types, attention: shapes, latent, scans } = wanted;
    let parts = types.len() + shapes.len() + latent.len() + scans.len();
    let parts = parts.max(1) as f64;
    let mut done = 0.0;
    let mut advance = || {
        done += 1.0;
        progress(done / parts);
    };
    let mut weights = Weights::new(*control);
    can_tell(executor, &mut weights)?;
    for ty in &wanted.types {
        rates.linear.push(linear(executor, &mut weights, *ty)?);
        weights.types.clear();
        advance();
    }
    let mut outside = Vec::new();
    for shape in &wanted.attention {
        if let Some((rate, overheads)) = known(attention(executor, &mut weights, *shape))? {
            rates.attention.push(rate);
            outside.push(overheads);
        }
        advance();
    }
    for shape in &wanted.latent {
        if let Some((rate, overheads)) = known(latent::measure(executor, &mut weights, *shape))? {
            rates.latent.push(rate);
            outside.push(overheads);
        }
        advance();
    }
    for shape in &wanted.scans {
        if let Some((rate, overheads)) = known(scan::measure(executor, &mut weights, *shape))? {
            rates.scans.push(rate);
            outside.push(overheads);
        }
        advance();
    }
    let of = |part: fn(&Overheads) -> f64| median(outside.iter().map(part).collect());
    rates.overheads =
        Overheads { step: of(|o| o.step), logit: of(|o| o.logit), element: of(|o| o.element) };
    Ok(())
}

/// A step of one token through matrices of a type, and nothing else that takes time: bytes of weights, and the seconds of a
/// usual step. For executors that do not tell what their phases take.
///
/// # Errors
/// Memory, or an executor that does not have this type.
pub fn step(executor: &dyn Executor, ty: GgmlType) -> Result<(u64, f64)> {
    let mut weights = Weights::new(MeasureControl::whole());
    let large = (FAR as f64 / (large_weights() * ty.bits_per_weight() / 8.0)).ceil() as usize;
    let program = matrices(ty, 0, large)?;
    let wide = program.weights.iter().filter(|spec| spec.name.starts_with("large"));
    let bytes = wide.map(WeightSpec::bytes).sum();
    weights.prepare(&program);
    let model = executor.load(Arc::new(program), &weights, &mut |_| ())?;
    let session = model.open(&CacheOptions::new(CacheType::F16, CacheType::F16, 1))?;
    let sequence =
        Sequence { session, tokens: &[0], outputs: Outputs::NONE, prompt: None, rows: &[] };
    let once = || -> Result<f64> {
        model.truncate(session, 0)?;
        let start = Instant::now();
        model.step(&Step { sequences: &[sequence] })?.single()?;
        Ok(start.elapsed().as_secs_f64())
    };
    // memory is taken, shaders are made
    once()?;
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < MOST_PASSES && !enough(times.len(), start.elapsed(), TIME) {
        times.push(once()?);
    }
    Ok((bytes, median(times)))
}

/// What was measured, if the executor has such layers at all.
fn known<T>(measured: Result<T>) -> Result<Option<T>> {
    match measured {
        Err(Error::Unsupported(_)) => Ok(None),
        measured => measured.map(Some),
    }
}

/// Have an executor that does not tell what its phases take say so at once, not after the largest pass.
fn can_tell(executor: &dyn Executor, weights: &mut Weights<'_>) -> Result<()> {
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 1);
    Run::new(executor, weights, matrices(GgmlType::F32, 0, 0)?, cache)?.warm(1, Outputs::NONE)
}

/// The middle one; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Made-up weights: one row of each type, over and over.
struct Weights<'a> {
    types: HashMap<GgmlType, Vec<u8>>,
    control: MeasureControl<'a>,
}

/// Weights in the row that is repeated; whole blocks of every type.
const ROW: usize = 4096;

impl<'a> Weights<'a> {
    fn new(control: MeasureControl<'a>) -> Weights<'a> {
        Weights { types: HashMap::new(), control }
    }

    /// Have bytes ready for every weight of `program`.
    fn prepare(&mut self, program: &Program) {
        for spec in &program.weights {
            let wanted = spec.bytes() as usize;
            let bytes = self.types.entry(spec.ty).or_insert_with(|| row(spec.ty));
            if bytes.len() < wanted {
                let period = row(spec.ty);
                *bytes = period.iter().copied().cycle().take(wanted).collect();
            }
        }
    }
}

/// Bytes of [`ROW`] weights about as large as those of models.
fn row(ty: GgmlType) -> Vec<u8> {
    let mut state = 1_u32;
    let x: [f32; ROW] = std::array::from_fn(|_| {
        // any numbers do that are neither equal nor ordered
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.1
    });
    // as an f16, the scale of a block, this is 0.065
    let mut bytes = vec![0x2C; ty.row_bytes(ROW).unwrap_or(0)];
    if let Some(format) = quant::format(ty) {
        format.quantize(&x, &mut bytes);
    }
    bytes
}

impl WeightSource for Weights<'_> {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        let bytes = self.types.get(&spec.ty).and_then(|b| b.get(..spec.bytes() as usize));
        let problem = || Error::Weight { name: spec.name.clone(), problem: "not made".into() };
        read_memory(bytes.ok_or_else(problem)?, spec, first, out)
    }
}

/// A loaded program with one session.
struct Run<'a> {
    model: Box<dyn Model>,
    session: SessionId,
    control: MeasureControl<'a>,
}

/// The time of one pass: of its phases by name and kind, and outside of them.
struct Pass {
    phases: Vec<(String, &'static str, f64)>,
    outside: f64,
}

impl Pass {
    /// Number and time of the phases that `which` picks by name and kind.
    fn sum(&self, which: impl Fn(&str, &str) -> bool) -> (f64, f64) {
        let picked = self.phases.iter().filter(|(name, kind, _)| which(name, kind));
        picked.fold((0.0, 0.0), |(n, sum), (_, _, time)| (n + 1.0, sum + time))
    }
}

impl<'a> Run<'a> {
    fn new(
        executor: &dyn Executor,
        weights: &mut Weights<'a>,
        program: Program,
        cache: CacheOptions,
    ) -> Result<Run<'a>> {
        weights.prepare(&program);
        let model = executor.load(Arc::new(program), weights, &mut |_| ())?;
        model.time_phases(true);
        let session = model.open(&cache)?;
        Ok(Run { model, session, control: weights.control })
    }

    /// One pass of `n` tokens.
    fn pass(&self, n: usize, outputs: Outputs) -> Result<Pass> {
        self.pass_of(n, outputs, None)
    }

    /// One pass of `n` tokens, a prompt of their own if it is given.
    fn pass_of(&self, n: usize, outputs: Outputs, prompt: Option<Prompt>) -> Result<Pass> {
        if (self.control.stop)() {
            return Err(Error::Cancelled);
        }
        let tokens: Vec<u32> = (0..n as u32).map(|token| token % TOKENS as u32).collect();
        let sequences =
            [Sequence { session: self.session, tokens: &tokens, outputs, prompt, rows: &[] }];
        let start = Instant::now();
        let out = self.model.step(&Step { sequences: &sequences })?.single()?;
        let wall = start.elapsed().as_secs_f64();
        drop(out);
        let phases = self.model.phases().into_iter();
        let phases: Vec<_> = phases.map(|p| (p.name, p.kind, p.elapsed.as_secs_f64())).collect();
        if phases.is_empty() {
            return Err(Error::Unsupported("an executor that does not time its phases".into()));
        }
        let inside: f64 = phases.iter().map(|(_, _, time)| time).sum();
        Ok(Pass { phases, outside: (wall - inside).max(0.0) })
    }

    /// Passes of `n` tokens on a cache of `depth` positions.
    fn passes(&self, depth: usize, n: usize, outputs: Outputs) -> Result<Vec<Pass>> {
        self.repeat(depth, &|| self.pass(n, outputs))
    }

    /// Passes of each of these numbers of tokens, in turns.
    fn rounds(&self, sizes: &[usize]) -> Result<Vec<Vec<Pass>>> {
        let time = TIME * sizes.len() as u32;
        let mut passes: Vec<Vec<Pass>> = sizes.iter().map(|_| Vec::new()).collect();
        let start = Instant::now();
        for round in 1..=MOST_PASSES {
            for (n, passes) in sizes.iter().zip(&mut passes) {
                self.model.truncate(self.session, 0)?;
                passes.push(self.pass(*n, Outputs::NONE)?);
            }
            if enough(round, start.elapsed(), time) {
                break;
            }
        }
        Ok(passes)
    }

    /// A pass after `depth` positions, over and over.
    fn repeat(&self, depth: usize, pass: &dyn Fn() -> Result<Pass>) -> Result<Vec<Pass>> {
        let mut passes = Vec::new();
        let start = Instant::now();
        while passes.len() < MOST_PASSES {
            self.model.truncate(self.session, depth)?;
            passes.push(pass()?);
            if enough(passes.len(), start.elapsed(), TIME) {
                break;
            }
        }
        Ok(passes)
    }

    /// What the session holds stays.
    fn commit(&self) -> Result<()> {
        self.model.commit(self.session, self.model.len(self.session)?)
    }

    /// A pass that is not timed: memory is taken, threads wake.
    fn warm(&self, n: usize, outputs: Outputs) -> Result<()> {
        self.model.truncate(self.session, 0)?;
        self.pass(n, outputs).map(drop)
    }
}

/// Whether so many passes in the time `spent` are enough where they should take `time`.
fn enough(passes: usize, spent: Duration, time: Duration) -> bool {
    spent > 4 * time || passes >= PASSES && spent > time
}

/// The median over passes of a figure.
fn over(passes: &[Pass], figure: impl Fn(&Pass) -> f64) -> f64 {
    median(passes.iter().map(figure).collect())
}

/// Tokens of the made-up vocabularies.
const TOKENS: usize = 64;
/// Width of small matrices, as of half a billion weights.
const SMALL: usize = 1024;
/// Widths of large ones, as of a few billion weights.
const LARGE: (usize, usize) = (2048, 3072);
const EPS: f32 = 1e-6;

/// Matrices of one type, small ones and large ones.
fn linear(executor: &dyn Executor, weights: &mut Weights<'_>, ty: GgmlType) -> Result<LinearRate> {
    let none = CacheOptions::new(CacheType::F16, CacheType::F16, CHUNK);
    let bytes = |count: usize| (count as f64 * ty.bits_per_weight() / 8.0) as u64;
    // half of the bytes small, half of them large
    let n_matrices = |all: u64| {
        let each =
            [SMALL * SMALL, 3 * LARGE.0 * LARGE.1].map(|count| (all / 2).div_ceil(bytes(count)));
        each.map(|count| count as usize)
    };
    let [small, large] = n_matrices(FAR);
    let run = Run::new(executor, weights, matrices(ty, small, large)?, none)?;
    let n_phases = (small + 2 * large) as f64;
    let weights_of = (small as f64 * (SMALL * SMALL) as f64, large as f64 * large_weights());
    let mut points = Vec::new();
    let (mut phase, mut beside) = (0.0, 0.0);
    run.warm(8, Outputs::NONE)?;
    for rows in FEW_ROWS {
        let passes = run.passes(0, rows, Outputs::NONE)?;
        let solved = passes.iter().map(|pass| {
            // two kinds of phases, two unknowns: time = phases * p + weights * w
            let (n_small, t_small) = pass.sum(|name, _| name.starts_with("small"));
            let (n_large, t_large) = pass.sum(|name, _| name.starts_with("large"));
            let determinant = n_small * weights_of.1 - n_large * weights_of.0;
            let phase = (t_small * weights_of.1 - t_large * weights_of.0) / determinant;
            let phase = phase.min(t_small / n_small / 2.0).max(0.0);
            let left = t_small + t_large - phase * (n_small + n_large);
            (phase, left / (weights_of.0 + weights_of.1))
        });
        let (phases, seconds): (Vec<f64>, Vec<f64>) = solved.unzip();
        if rows == 1 {
            phase = median(phases);
            beside = over(&passes, |pass| pass.sum(|_, kind| kind == "rows").1) / n_phases;
        }
        points.push((rows as u64, median(seconds)));
    }
    let of_eight = points.last().map_or(0.0, |(_, seconds)| *seconds);
    drop(run);
    let [small, large] = n_matrices(FAR_ENOUGH);
    let run = Run::new(executor, weights, matrices(ty, small, large)?, none)?;
    let n_weights = (small * SMALL * SMALL) as f64 + large as f64 * large_weights();
    // an eighth of what eight rows take is the most that one of many takes
    let time = |rows: usize| rows as f64 / 8.0 * of_eight * n_weights;
    let [.., fewest] = MANY_ROWS;
    let sizes = MANY_ROWS
        .into_iter()
        .filter(|rows| *rows == fewest || time(*rows) <= weights.control.longest_pass);
    let sizes: Vec<usize> = sizes.collect();
    run.warm(sizes[0], Outputs::NONE)?;
    // norms that are phases of their own belong to the matrix behind them
    let phase = phase + beside;
    // chunks of prompts are chosen by how these compare: a busy moment must not fall on one of them alone
    for (rows, passes) in sizes.iter().zip(run.rounds(&sizes)?) {
        let seconds = over(&passes, |pass| {
            let (n, time) = pass.sum(|name, kind| kind == "linear" && name != "widen");
            let (_, norms) = pass.sum(|_, kind| kind == "rows");
            (time + norms - n * phase) / n_weights
        });
        points.push((*rows as u64, seconds));
    }
    points.sort_by_key(|(rows, _)| *rows);
    Ok(LinearRate { ty, points, phase })
}

fn large_weights() -> f64 {
    (3 * LARGE.0 * LARGE.1) as f64
}

/// Square matrices of [`SMALL`] and gated feed-forward layers of [`LARGE`] widths, each with norm and residual.
fn matrices(ty: GgmlType, small: usize, large: usize) -> Result<Program> {
    let r = Recorder::new();
    let vector = |name: String, cols| {
        r.weight(WeightSpec { name, ty: GgmlType::F32, rows: 1, cols, start: 0 })
    };
    let matrix = |name: String, rows, cols| r.weight(WeightSpec { name, ty, rows, cols, start: 0 });
    let table =
        WeightSpec { name: "embed".into(), ty: GgmlType::F32, rows: TOKENS, cols: SMALL, start: 0 };
    let mut x = r.embed(r.weight(table))?;
    for i in 0..small {
        r.layer(Some(i));
        let normed = r.rms_norm("norm", x, vector(format!("norm.{i}"), SMALL), EPS)?;
        let out = r.linear("out", normed, matrix(format!("small.{i}"), SMALL, SMALL))?;
        x = r.add("sum", x, out)?;
    }
    let (hidden, inner) = LARGE;
    x = r.linear("widen", x, matrix("widen".into(), hidden, SMALL))?;
    for i in 0..large {
        r.layer(Some(small + i));
        let normed = r.rms_norm("norm", x, vector(format!("wide_norm.{i}"), hidden), EPS)?;
        let gate = r.linear("gate", normed, matrix(format!("large.{i}.gate"), inner, hidden))?;
        let up = r.linear("up", normed, matrix(format!("large.{i}.up"), inner, hidden))?;
        let act = r.gated_act("act", Act::Silu, gate, up)?;
        let down = r.linear("down", act, matrix(format!("large.{i}.down"), hidden, inner))?;
        x = r.add("sum", x, down)?;
    }
    Ok(r.finish(&[]))
}

/// Positions of a cache that is filled to be measured: fewer where each costs more.
fn depth(pair_macs: u64) -> usize {
    let fits = |depth: u64| (depth * depth / 2).saturating_mul(pair_macs) <= FILL_MACS;
    let deep = (1..=8).map(|chunks| chunks * CHUNK).rev().find(|depth| fits(*depth as u64));
    deep.unwrap_or(0).max(2 * CHUNK)
}

/// Seconds of one layer's attention, and what a step costs outside its phases.
fn attention(
    executor: &dyn Executor,
    weights: &mut Weights<'_>,
    shape: AttentionShape,
) -> Result<(AttentionRate, Overheads)> {
    let deep = depth(shape.macs());
    let program = one_layer(&shape)?;
    let n_logits = program.vocab_size() as f64;
    let cache = CacheOptions::new(shape.k, shape.v, deep);
    let run = Run::new(executor, weights, program, cache)?;

    // by chunk, by round; the first round warms up
    let mut fills: Vec<Vec<Pass>> = (0..deep / CHUNK).map(|_| Vec::new()).collect();
    for round in 0..PASSES {
        run.model.truncate(run.session, 0)?;
        for fill in &mut fills {
            let pass = run.pass(CHUNK, Outputs::NONE)?;
            if round > 0 {
                fill.push(pass);
            }
        }
    }
    let pairs = |chunk: usize| (chunk * CHUNK * CHUNK + CHUNK * (CHUNK + 1) / 2) as f64;
    let last = fills.len() - 1;
    let (first, full) = (over(&fills[0], attend), over(&fills[last], attend));
    let pair = ((full - first) / (pairs(last) - pairs(0))).max(first / pairs(0) / 100.0);
    let token = ((first - pair * pairs(0)) / CHUNK as f64).max(0.0);
    let rows = over(&fills[last], |pass| pass.sum(|_, kind| kind == "rows").1);
    let elements = (CHUNK * shape.n_heads * shape.key_dim) as f64;
    let Steps { step, position, overheads } = steps(&run, deep, n_logits)?;
    let overheads = Overheads { element: rows / elements, ..overheads };
    Ok((AttentionRate { shape, step, position, token, pair }, overheads))
}

/// What steps on a filled cache take in attention: whatever the depth, and for each position; and beside it.
struct Steps {
    step: f64,
    position: f64,
    overheads: Overheads,
}

/// Positions of a cache that count as few.
const SHALLOW: usize = 32;

fn steps(run: &Run<'_>, deep: usize, n_logits: f64) -> Result<Steps> {
    // within a block: the first step in a new one also waits for its memory, once in many steps
    let long = run.passes(deep - 1, 1, Outputs::LAST)?;
    let short = run.passes(SHALLOW, 1, Outputs::LAST)?;
    let bare = run.passes(SHALLOW, 1, Outputs::NONE)?;
    let (far, near) = (over(&long, attend), over(&short, attend));
    let position = ((far - near) / (deep - 1 - SHALLOW) as f64).max(near / 1e6);
    let step = (near - position * (SHALLOW + 1) as f64).max(0.0);
    Ok(Steps { step, position, overheads: outside(&bare, &short, n_logits) })
}

/// What steps cost outside their phases, without logits and with so many; elements of norms are not in it.
fn outside(bare: &[Pass], with_logits: &[Pass], n_logits: f64) -> Overheads {
    let [step, all] = [bare, with_logits].map(|passes| over(passes, |pass| pass.outside));
    Overheads { step, logit: ((all - step) / n_logits).max(0.0), element: 0.0 }
}

/// Seconds in attention.
fn attend(pass: &Pass) -> f64 {
    pass.sum(|_, kind| kind == "attention").1
}

/// Attention with a norm of its queries, before a head as far away as the other layers of a model.
fn one_layer(shape: &AttentionShape) -> Result<Program> {
    let (r, x) = begin()?;
    let f32 = |name: &str, rows, cols| weight(&r, name, rows, cols);
    let heads = |name: &str, n: usize, dim: usize| -> Result<ValueId> {
        let rows = r.linear(name, x, f32(name, n * dim, WIDTH))?;
        r.view(name, rows, n)
    };
    let q = heads("q", shape.n_heads, shape.key_dim)?;
    let q = r.rms_norm("q_norm", q, f32("q_norm", 1, shape.key_dim), EPS)?;
    let k = heads("k", shape.n_kv_heads, shape.key_dim)?;
    let v = heads("v", shape.n_kv_heads, shape.value_dim)?;
    let cache = r.cache(CacheSpec { layer: 0, kind: shape.cached() });
    let rope = Rope {
        pairs: RopePairs::HalfSplit,
        dims: shape.key_dim / 2 * 2,
        theta: 1e4,
        scaling: RopeScaling::None,
        factors: None,
    };
    let at = Attention::causal(cache, Some(rope), 1.0 / (shape.key_dim as f32).sqrt());
    let out = r.attention("attention", at, &[q, k, v])?;
    finish(r, out, shape.n_heads * shape.value_dim)
}

/// Columns of what a layer is made of.
const WIDTH: usize = 64;

/// A matrix or vector in f32.
fn weight(r: &Recorder, name: &str, rows: usize, cols: usize) -> WeightId {
    r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
}

/// A program up to its layer, and the rows that the layer reads.
fn begin() -> Result<(Recorder, ValueId)> {
    let r = Recorder::new();
    let x = r.embed(weight(&r, "embed", TOKENS, WIDTH))?;
    r.layer(Some(0));
    Ok((r, x))
}

/// A head over these rows that no cache holds: between two steps it drives out what the first left there.
fn finish(r: Recorder, rows: ValueId, cols: usize) -> Result<Program> {
    r.layer(None);
    let rows = r.select_rows("rows", rows)?;
    let n = (FAR as usize / 4).div_ceil(cols);
    let logits = r.linear("head", rows, weight(&r, "head", n, cols))?;
    Ok(r.finish(&[(OutputKind::Logits, logits)]))
}
