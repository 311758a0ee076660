//! Which shapes of workgroups are fastest here: small models of nothing but matrices, timed in one shape after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use program::{
    CacheOptions, CacheStorage, CacheType, Error, KernelShape, Model, OutputKind, OutputRows,
    Outputs, ProductType, Program, Recorder, Result, RowsOut, Sequence, SessionId, Step, Wanted,
    WeightBytes, WeightSource, WeightSpec,
};
use quant::GgmlType;

use crate::adapter::Gpu;
use crate::dispatch::AT_ONCE;
use crate::formats::device_format;
use crate::kernels::{MATMAT_TILE, Shapes, TeamShape};
use crate::model::GpuModel;

/// Rows and columns of a matrix, and bytes of all: those of models, more than caches of cards hold. Where the processor
/// plays the device, small ones say as much.
const CARD: Workload = Workload { side: 4096, bytes: 192 << 20 };
const SOFTWARE: Workload = Workload { side: 1024, bytes: 1 << 20 };
/// A card that had nothing to do runs slowly at first: so long it is kept busy before anything is timed.
const WARM: Duration = Duration::from_millis(100);
/// Times that a shape is tried; the best counts.
const SAMPLES: usize = 5;
/// What is not faster by so much is not chosen: times are not that exact.
const GAIN: f64 = 0.98;
/// The same of what rounds more: it has to be worth that.
const GAIN_OF_ROUNDING: f64 = 0.95;
/// Rows of activations in a step.
const MOST_ROWS: usize = MATMAT_TILE;
/// A matrix by which it is seen whether products are right.
const CHECKED: Workload = Workload { side: 1024, bytes: 1 };

#[derive(Clone, Copy)]
struct Workload {
    side: usize,
    bytes: u64,
}

/// The same bytes for every matrix.
struct Bytes(Vec<u8>);

impl Bytes {
    /// For such matrices.
    fn of(program: &Program, byte: impl Fn(usize) -> u8) -> Bytes {
        let most = program.weights.iter().map(WeightSpec::bytes).max().unwrap_or(0);
        Bytes((0..most as usize).map(byte).collect())
    }
}

impl WeightSource for Bytes {
    fn bytes(&self, spec: &WeightSpec) -> Result<WeightBytes<'_>> {
        let problem = || Error::Weight { name: spec.name.clone(), problem: "not made".into() };
        self.0.get(..spec.bytes() as usize).ok_or_else(problem)
    }
}

/// A byte of a row that looks like chance, the same each time.
fn scattered(i: usize) -> u8 {
    ((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// One matrix after another, as often as it takes.
fn program(ty: GgmlType, load: Workload) -> Result<Program> {
    let Workload { side, bytes } = load;
    let spec = |n| WeightSpec { name: format!("w{n}"), ty, rows: side, cols: side, start: 0 };
    let n = bytes.div_ceil(spec(0).bytes().max(1));
    let r = Recorder::new();
    let mut x = r.input("x", side);
    for i in 0..n {
        x = r.linear(&format!("y{i}"), x, r.weight(spec(i)))?;
    }
    Ok(r.finish(&[(OutputKind::Rows, x)]))
}

/// Models of matrices of a type, to be timed and to be looked at.
struct Trial {
    ty: GgmlType,
    /// Its matrices are zeros: what they are multiplied with is as fast as with any others.
    timed: Trying,
    checked: Trying,
}

/// A model with a session.
struct Trying {
    model: GpuModel,
    session: SessionId,
    x: Vec<f32>,
}

impl Trying {
    fn load(
        gpu: &Arc<Gpu>,
        ty: GgmlType,
        load: Workload,
        byte: impl Fn(usize) -> u8,
    ) -> Result<Trying> {
        let program = program(ty, load)?;
        let bytes = Bytes::of(&program, byte);
        let storage = CacheStorage::default();
        let model = GpuModel::load(gpu, Arc::new(program), &bytes, &storage, &mut |_| ())?;
        model.time_phases(true);
        let session = model.open(&CacheOptions::new(CacheType::F32, CacheType::F32, MOST_ROWS))?;
        let x = |i| f32::from(scattered(i)) / 128.0 - 1.0;
        Ok(Trying { model, session, x: (0..MOST_ROWS * load.side).map(x).collect() })
    }

    /// A step of so many rows, and what they become if that is wanted.
    fn step(&self, n_rows: usize, outputs: Outputs) -> Result<Vec<f32>> {
        self.model.truncate(self.session, 0)?;
        let sequence = Sequence {
            session: self.session,
            tokens: &[0; MOST_ROWS][..n_rows],
            outputs,
            prompt: None,
            rows: &[&self.x[..n_rows * self.x.len() / MOST_ROWS]],
        };
        let out = self.model.step(&Step { sequences: &[sequence] })?.single()?;
        Ok(match out {
            RowsOut::Rows(rows) => rows.concat(),
            _ => Vec::new(),
        })
    }
}

impl Trial {
    fn load(gpu: &Arc<Gpu>, ty: GgmlType) -> Result<Trial> {
        let load = if gpu.is_software() { SOFTWARE } else { CARD };
        let timed = Trying::load(gpu, ty, load, |_| 0)?;
        // such a byte begins no f16 or f32 that is infinite or large, wherever scales lie in a block
        let checked = Trying::load(gpu, ty, CHECKED, |i| scattered(i) & 0x3b)?;
        Ok(Trial { ty, timed, checked })
    }

    fn reshape(&mut self, at_once: usize, shape: TeamShape) {
        let shapes = Shapes::only(shape.told(self.ty, at_once));
        self.timed.model.reshape(&shapes);
        self.checked.model.reshape(&shapes);
    }
}

/// Squared and by the squares of what is wanted.
fn error(want: &[f32], got: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let of = |want: f32| square(f64::from(want));
    let off = want.iter().zip(got).map(|(want, got)| square(f64::from(*want) - f64::from(*got)));
    off.sum::<f64>() / want.iter().copied().map(of).sum::<f64>()
}

/// What rounding may make of that.
fn most_error(product: ProductType) -> f64 {
    match product {
        ProductType::F32 => 1e-10,
        ProductType::F16 => 1e-5,
        ProductType::Int8 => 1e-3,
    }
}

/// For each of these types, how it is multiplied fastest.
///
/// # Errors
/// [`program::Error::Memory`], [`program::Error::Device`].
pub(crate) fn tune(
    gpu: &Arc<Gpu>,
    types: &[GgmlType],
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<KernelShape>> {
    let types = types.iter().filter_map(|ty| device_format(*ty));
    let parts = (types.clone().count() * AT_ONCE.len()).max(1) as f64;
    let mut chosen = Vec::new();
    for format in types {
        let mut trial = Trial::load(gpu, format.ty)?;
        let started = Instant::now();
        while started.elapsed() < WARM {
            trial.time(1, TeamShape::USUAL)?;
        }
        for at_once in AT_ONCE {
            let able = |shape: TeamShape| shape.is_able(format, at_once, gpu.able());
            let shape = fastest(at_once, able, &mut trial)?;
            chosen.push(shape.told(format.ty, at_once));
            progress(chosen.len() as f64 / parts);
        }
    }
    Ok(chosen)
}

/// What shapes are tried on.
trait Tried {
    /// The best time of so many rows in such a shape: by the device's own clock, if it has one.
    fn time(&mut self, at_once: usize, shape: TeamShape) -> Result<Duration>;
    /// Whether products in such a shape are what they should be beside the usual ones: kernels that few drivers were seen to
    /// run are not trusted before.
    fn is_right(&mut self, at_once: usize, shape: TeamShape) -> Result<bool>;
}

impl Tried for Trial {
    fn time(&mut self, at_once: usize, shape: TeamShape) -> Result<Duration> {
        self.reshape(at_once, shape);
        let once = || -> Result<Duration> {
            let started = Instant::now();
            self.timed.step(at_once, Outputs::NONE)?;
            let elapsed = started.elapsed();
            let phases = self.timed.model.phases();
            let told = phases.iter().map(|phase| phase.elapsed).sum();
            Ok(if phases.is_empty() { elapsed } else { told })
        };
        // the shader is made
        once()?;
        (0..SAMPLES).try_fold(Duration::MAX, |best, _| Ok(best.min(once()?)))
    }

    fn is_right(&mut self, at_once: usize, shape: TeamShape) -> Result<bool> {
        let mut results = |shape: TeamShape| {
            self.reshape(at_once, shape);
            self.checked.step(at_once, Outputs { rows: OutputRows::All, what: Wanted::Rows })
        };
        let got = results(shape)?;
        if shape.subgroups && at_once < MATMAT_TILE {
            let want = results(TeamShape { subgroups: false, ..shape })?;
            if got.iter().map(|x| x.to_bits()).ne(want.iter().map(|x| x.to_bits())) {
                return Ok(false);
            }
        }
        let want = results(TeamShape::USUAL)?;
        Ok(got.len() == want.len() && error(&want, &got) <= most_error(shape.product))
    }
}

/// The fastest shape: of rows with the usual teams first, then of teams with as many rows, then of products, which others than
/// these may gain most by several rows, and at last with subgroups or without. Of tiles, of all products by matrices or not.
fn fastest(
    at_once: usize,
    able: impl Fn(TeamShape) -> bool,
    tried: &mut impl Tried,
) -> Result<TeamShape> {
    const ROWS: [usize; 3] = [2, 4, 8];
    let mut best = (TeamShape::USUAL, tried.time(at_once, TeamShape::USUAL)?);
    let mut try_out = |best: &mut (TeamShape, Duration), shape: TeamShape| -> Result<()> {
        let gain = if shape.product == best.0.product { GAIN } else { GAIN_OF_ROUNDING };
        let is_new = shape.subgroups || shape.product != ProductType::F32;
        if shape == best.0 || !shape.is_possible(at_once) || !able(shape) {
            return Ok(());
        }
        if is_new && !tried.is_right(at_once, shape)? {
            return Ok(());
        }
        let took = tried.time(at_once, shape)?;
        if took.as_secs_f64() < gain * best.1.as_secs_f64() {
            *best = (shape, took);
        }
        Ok(())
    };
    for rows in ROWS {
        let shape = TeamShape { rows, ..best.0 };
        try_out(&mut best, shape)?;
    }
    for teams in [1, 4, 8] {
        let shape = TeamShape { teams, ..best.0 };
        try_out(&mut best, shape)?;
    }
    let exact = best.0;
    for product in ProductType::ALL {
        for rows in ROWS {
            try_out(&mut best, TeamShape { rows, product, ..exact })?;
        }
        if at_once == MATMAT_TILE {
            try_out(&mut best, TeamShape { product, subgroups: true, ..exact })?;
        }
    }
    let shape = TeamShape { subgroups: true, ..best.0 };
    try_out(&mut best, shape)?;
    // what was timed first had no better conditions than what came after it
    let usual = tried.time(at_once, TeamShape::USUAL)?;
    let gain = if best.0.product == ProductType::F32 { GAIN } else { GAIN_OF_ROUNDING };
    let gains = best.1.as_secs_f64() < gain * usual.as_secs_f64();
    Ok(if gains { best.0 } else { TeamShape::USUAL })
}

#[cfg(test)]
mod tests;
