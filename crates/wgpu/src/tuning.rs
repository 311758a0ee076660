//! Which shapes of workgroups are fastest here: small models of nothing but matrices, timed in one shape after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use program::{
    CacheOptions, CacheStorage, CacheType, Error, KernelShape, Model, OutputKind, OutputRows,
    Outputs, ProductType, Program, Recorder, Result, RowsOut, Sequence, SessionId, Step, Wanted,
    WeightSource, WeightSpec, read_memory,
};
use quant::GgmlType;

use crate::device::Gpu;
use crate::dispatch::AT_ONCE;
use crate::formats::{DeviceFormat, device_format};
use crate::kernels::{MATMAT_TILE, Shader, Shapes, TeamShape};
use crate::model::GpuModel;

/// Rows and columns of a matrix, and bytes of all: those of models, more than caches of cards hold. Where the processor
/// plays the device, small ones say as much.
const CARD: Workload = Workload { rows: 4096, cols: 4096, bytes: 192 << 20 };
const SOFTWARE: Workload = Workload { rows: 1024, cols: 1024, bytes: 1 << 20 };
/// A card that had nothing to do runs slowly at first: so long it is kept busy before anything is timed.
const WARM: Duration = Duration::from_millis(100);
/// Times that a shape is tried; the best counts.
const SAMPLES: usize = 5;
/// What is not faster by so much is not chosen: times are not that exact.
const GAIN: f64 = 0.98;
/// The same of what rounds more: it has to be worth that.
const GAIN_OF_ROUNDING: f64 = 0.95;
/// How often a result is made again before it is trusted.
const REPEATED: usize = 3;
/// Maximum number of rows of activations in a step. On devices with larger tiles ([`crate::kernels::WIDE`]) tiles are timed
/// with this many rows, because fewer rows do not use the larger tiles.
const MOST_ROWS: usize = 256;
/// A matrix by which it is seen whether products are right.
/// Its rows are so long that more lanes share them.
const CHECKED: Workload = Workload { rows: 512, cols: 2048, bytes: 1 };

#[derive(Clone, Copy)]
struct Workload {
    rows: usize,
    cols: usize,
    bytes: u64,
}

/// In tiles each weight is multiplied with many rows: a small part of them says as much.
const OF_TILES: u64 = 8;

/// The same bytes for every matrix.
struct Bytes(Vec<u8>);

impl Bytes {
    /// Zeros for such matrices: what they are multiplied with is as fast as with any others.
    fn zeros(program: &Program) -> Bytes {
        let most = program.weights.iter().map(WeightSpec::bytes).max().unwrap_or(0);
        Bytes(vec![0; most as usize])
    }

    /// Numbers for a matrix, of the size that those of models have, of all codes and both signs.
    fn scattered(program: &Program) -> Bytes {
        let mut bytes = Bytes::zeros(program);
        let Some(spec) = program.weights.first() else { return bytes };
        let values: Vec<f32> = (0..spec.rows * spec.cols).map(|i| 0.1 * scattered(i)).collect();
        let made = quant::format(spec.ty).is_some_and(|its| its.quantize(&values, &mut bytes.0));
        if !made {
            // types without a quantizer have blocks that begin with an f16
            for (i, byte) in bytes.0.iter_mut().enumerate() {
                *byte = (128.0 * scattered(i)) as i8 as u8;
            }
            for block in bytes.0.chunks_exact_mut(spec.ty.block_bytes()) {
                block[..2].copy_from_slice(&SMALL_HALF);
            }
        }
        bytes
    }
}

/// 2^-8.
const SMALL_HALF: [u8; 2] = 0x1c00u16.to_le_bytes();

impl WeightSource for Bytes {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        let problem = || Error::Weight { name: spec.name.clone(), problem: "not made".into() };
        let bytes = self.0.get(..spec.bytes() as usize).ok_or_else(problem)?;
        read_memory(bytes, spec, first, out)
    }
}

/// A number from -1 to 1 of a row that looks like chance, the same each time.
fn scattered(i: usize) -> f32 {
    let bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    bits as f32 / (1 << 23) as f32 - 1.0
}

/// One matrix after another, as often as it takes.
fn program(ty: GgmlType, load: Workload) -> Result<Program> {
    let Workload { rows, cols, bytes } = load;
    let spec = |n| WeightSpec { name: format!("w{n}"), ty, rows, cols, start: 0 };
    let n = bytes.div_ceil(spec(0).bytes().max(1));
    let r = Recorder::new();
    let mut x = r.input("x", cols);
    for i in 0..n {
        x = r.linear(&format!("y{i}"), x, r.weight(spec(i)))?;
    }
    Ok(r.finish(&[(OutputKind::Rows, x)]))
}

/// Models of matrices of a type, to be timed and to be looked at.
struct Trial {
    gpu: Arc<Gpu>,
    format: &'static DeviceFormat,
    /// Of a row of the matrices that are timed.
    chunks: usize,
    /// Rows of activations of a step that times or checks tiles.
    tile_rows: usize,
    ty: GgmlType,
    timed: Trying,
    /// The same, but less of it.
    timed_in_tiles: Trying,
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
        weights: fn(&Program) -> Bytes,
    ) -> Result<Trying> {
        let program = program(ty, load)?;
        let bytes = weights(&program);
        let storage = CacheStorage::default();
        let model = GpuModel::load(gpu, Arc::new(program), &bytes, &storage, &mut |_| ())?;
        model.time_phases(true);
        let session = model.open(&CacheOptions::new(CacheType::F32, CacheType::F32, MOST_ROWS))?;
        Ok(Trying { model, session, x: (0..MOST_ROWS * load.cols).map(scattered).collect() })
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
        let timed = Trying::load(gpu, ty, load, Bytes::zeros)?;
        let less = Workload { bytes: load.bytes / OF_TILES, ..load };
        let timed_in_tiles = Trying::load(gpu, ty, less, Bytes::zeros)?;
        let checked = Trying::load(gpu, ty, CHECKED, Bytes::scattered)?;
        let format = device_format(ty)
            .ok_or_else(|| Error::Unsupported(format!("matrices of type {ty} on a GPU")))?;
        let (gpu, chunks) = (Arc::clone(gpu), format.row_words(load.cols).chunks);
        let is_wide = gpu.able().has_wide() && !gpu.is_software();
        let tile_rows = if is_wide { MOST_ROWS } else { MATMAT_TILE };
        Ok(Trial { gpu, format, chunks, tile_rows, ty, timed, timed_in_tiles, checked })
    }

    /// Rows of activations of a step that times or checks this many rows at once.
    fn rows(&self, at_once: usize) -> usize {
        if at_once == MATMAT_TILE { self.tile_rows } else { at_once }
    }

    fn reshape(&mut self, at_once: usize, shape: TeamShape) {
        let shapes = Shapes::only(shape.told(self.ty, at_once));
        self.timed.model.reshape(&shapes);
        self.timed_in_tiles.model.reshape(&shapes);
        self.checked.model.reshape(&shapes);
    }
}

fn bits(numbers: &[f32]) -> impl Iterator<Item = u32> + '_ {
    numbers.iter().map(|x| x.to_bits())
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
        // the shapes that were tried and not taken
        gpu.forget_kernels();
    }
    Ok(chosen)
}

/// What shapes are tried on.
trait Tried {
    /// Such shapes are tried next: what they need may be made ahead, all at once.
    fn prepare(&self, _at_once: usize, _shapes: &[TeamShape]) {}
    /// The best time of so many rows in such a shape: by the device's own clock, if it has one.
    fn time(&mut self, at_once: usize, shape: TeamShape) -> Result<Duration>;
    /// Whether products in such a shape are what they should be beside the usual ones: kernels that few drivers were seen to
    /// run are not trusted before.
    fn is_right(&mut self, at_once: usize, shape: TeamShape) -> Result<bool>;
}

impl Tried for Trial {
    fn prepare(&self, at_once: usize, shapes: &[TeamShape]) {
        let (gpu, format) = (&self.gpu, self.format);
        let is_tried = |shape: &&TeamShape| {
            shape.is_possible(at_once) && shape.is_able(format, at_once, gpu.able())
        };
        let shader = |shape: &TeamShape| match at_once {
            MATMAT_TILE if shape.is_wide(gpu.able()) => Shader::wide(format),
            MATMAT_TILE => Shader::matmat(format, *shape, gpu.able()),
            _ => Shader::matvec(format, at_once, shape.over(self.chunks)),
        };
        gpu.make_kernels(&shapes.iter().filter(is_tried).map(shader).collect::<Vec<_>>());
    }

    fn time(&mut self, at_once: usize, shape: TeamShape) -> Result<Duration> {
        self.reshape(at_once, shape);
        let n_rows = self.rows(at_once);
        let timed = if at_once == MATMAT_TILE { &self.timed_in_tiles } else { &self.timed };
        let once = || -> Result<Duration> {
            let started = Instant::now();
            timed.step(n_rows, Outputs::NONE)?;
            let elapsed = started.elapsed();
            let phases = timed.model.phases();
            let told = phases.iter().map(|phase| phase.elapsed).sum();
            Ok(if phases.is_empty() { elapsed } else { told })
        };
        // the shader is made
        once()?;
        (0..SAMPLES).try_fold(Duration::MAX, |best, _| Ok(best.min(once()?)))
    }

    fn is_right(&mut self, at_once: usize, shape: TeamShape) -> Result<bool> {
        // with larger tiles fewer rows still have the usual ones
        let rows = [at_once, self.rows(at_once)];
        for n_rows in &rows[usize::from(rows[0] == rows[1])..] {
            if !self.is_right_for(*n_rows, at_once, shape)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Trial {
    /// The same for one number of rows of activations.
    fn is_right_for(&mut self, n_rows: usize, at_once: usize, shape: TeamShape) -> Result<bool> {
        let mut results = |shape: TeamShape| {
            self.reshape(at_once, shape);
            self.checked.step(n_rows, Outputs { rows: OutputRows::All, what: Wanted::Rows })
        };
        let Ok(got) = results(shape) else { return Ok(false) };
        // several times: what a race makes is not the same each time
        for _ in 0..REPEATED {
            if !results(shape).is_ok_and(|again| bits(&again).eq(bits(&got))) {
                return Ok(false);
            }
        }
        if shape.subgroups && at_once < MATMAT_TILE {
            let want = results(TeamShape { subgroups: false, ..shape })?;
            if bits(&want).ne(bits(&got)) {
                return Ok(false);
            }
        }
        let want = results(TeamShape::USUAL)?;
        Ok(got.len() == want.len() && error(&want, &got) <= most_error(shape.product))
    }
}

/// The fastest shape: of rows with the usual teams first, then of teams with as many rows, then of products, which others than
/// these may gain most by several rows, and at last with subgroups or without. Of tiles, of all products by matrices or not.
fn fastest<T: Tried>(
    at_once: usize,
    able: impl Fn(TeamShape) -> bool,
    tried: &mut T,
) -> Result<TeamShape> {
    const ROWS: [usize; 3] = [2, 4, 8];
    let mut best = (TeamShape::USUAL, tried.time(at_once, TeamShape::USUAL)?);
    let try_out =
        |tried: &mut T, best: &mut (TeamShape, Duration), shape: TeamShape| -> Result<()> {
            let gain = if shape.product == best.0.product { GAIN } else { GAIN_OF_ROUNDING };
            let is_new = shape.subgroups || shape.product != ProductType::F32;
            if shape == best.0 || !shape.is_possible(at_once) || !able(shape) {
                return Ok(());
            }
            if is_new && !tried.is_right(at_once, shape)? {
                return Ok(());
            }
            // what a driver makes no pipeline of is not taken; one that is lost fails at the usual shape, too
            let Ok(took) = tried.time(at_once, shape) else { return Ok(()) };
            if took.as_secs_f64() < gain * best.1.as_secs_f64() {
                *best = (shape, took);
            }
            Ok(())
        };
    let mut try_all = |best: &mut (TeamShape, Duration), shapes: &[TeamShape]| -> Result<()> {
        tried.prepare(at_once, shapes);
        shapes.iter().try_for_each(|shape| try_out(tried, best, *shape))
    };
    let usual = best.0;
    try_all(&mut best, &ROWS.map(|rows| TeamShape { rows, ..usual }))?;
    let so_far = best.0;
    try_all(&mut best, &[1, 4, 8].map(|teams| TeamShape { teams, ..so_far }))?;
    let exact = best.0;
    let products = ProductType::ALL.into_iter().flat_map(|product| {
        let rows = ROWS.into_iter().map(move |rows| TeamShape { rows, product, ..exact });
        let in_matrices = TeamShape { product, subgroups: true, ..exact };
        rows.chain((at_once == MATMAT_TILE).then_some(in_matrices))
    });
    try_all(&mut best, &products.collect::<Vec<_>>())?;
    if at_once < MATMAT_TILE {
        let shape = TeamShape { subgroups: true, ..best.0 };
        try_all(&mut best, &[shape])?;
    }
    // what was timed first had no better conditions than what came after it
    let usual = tried.time(at_once, TeamShape::USUAL)?;
    let gain = if best.0.product == ProductType::F32 { GAIN } else { GAIN_OF_ROUNDING };
    let gains = best.1.as_secs_f64() < gain * usual.as_secs_f64();
    Ok(if gains { best.0 } else { TeamShape::USUAL })
}

#[cfg(test)]
mod tests;
