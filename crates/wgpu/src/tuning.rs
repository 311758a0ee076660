//! Which shapes of workgroups are fastest here: small models of nothing but matrices, timed in one shape after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use program::{
    CacheOptions, CacheStorage, CacheType, Error, KernelShape, Model, OutputKind, Outputs, Program,
    Recorder, Result, Sequence, SessionId, Step, WeightBytes, WeightSource, WeightSpec,
};
use quant::GgmlType;

use crate::adapter::Gpu;
use crate::formats::device_format;
use crate::kernels::{Shapes, TeamShape};
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
/// Rows of activations at once that there are kernels for.
const AT_ONCE: [usize; 2] = [1, 4];

#[derive(Clone, Copy)]
struct Workload {
    side: usize,
    bytes: u64,
}

/// Matrices of zeros: what they are multiplied with is as fast as with any others.
struct Zeros(Vec<u8>);

impl WeightSource for Zeros {
    fn bytes(&self, spec: &WeightSpec) -> Result<WeightBytes<'_>> {
        let problem = || Error::Weight { name: spec.name.clone(), problem: "not made".into() };
        self.0.get(..spec.bytes() as usize).ok_or_else(problem)
    }
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

/// A model to be timed.
struct Timed {
    model: GpuModel,
    session: SessionId,
    x: Vec<f32>,
}

impl Timed {
    fn load(gpu: &Arc<Gpu>, ty: GgmlType, load: Workload) -> Result<Timed> {
        let program = program(ty, load)?;
        let most = program.weights.iter().map(WeightSpec::bytes).max().unwrap_or(0);
        let zeros = Zeros(vec![0; most as usize]);
        let storage = CacheStorage::default();
        let model = GpuModel::load(gpu, Arc::new(program), &zeros, &storage, &mut |_| ())?;
        model.time_phases(true);
        let session = model.open(&CacheOptions::new(CacheType::F32, CacheType::F32, AT_ONCE[1]))?;
        Ok(Timed { model, session, x: vec![1.0; AT_ONCE[1] * load.side] })
    }

    /// The best time of so many rows in such a shape: by the device's own clock, if it has one.
    fn time(&mut self, key: (GgmlType, usize), shape: TeamShape) -> Result<Duration> {
        let ((ty, at_once), TeamShape { rows, teams }) = (key, shape);
        self.model.reshape(&Shapes::of(&[KernelShape { ty, at_once, rows, teams }]));
        let x = &self.x[..at_once * self.x.len() / AT_ONCE[1]];
        let sequence = Sequence {
            session: self.session,
            tokens: &[0; AT_ONCE[1]][..at_once],
            outputs: Outputs::NONE,
            prompt: None,
            rows: &[x],
        };
        let once = || -> Result<Duration> {
            self.model.truncate(self.session, 0)?;
            let started = Instant::now();
            self.model.step(&Step { sequences: &[sequence] })?.single()?;
            let elapsed = started.elapsed();
            let phases = self.model.phases();
            let told = phases.iter().map(|phase| phase.elapsed).sum();
            Ok(if phases.is_empty() { elapsed } else { told })
        };
        // the shader is made
        once()?;
        (0..SAMPLES).try_fold(Duration::MAX, |best, _| Ok(best.min(once()?)))
    }
}

/// For each of these types, the shapes that are faster than the usual one, or this.
///
/// # Errors
/// [`program::Error::Memory`], [`program::Error::Device`].
pub(crate) fn tune(
    gpu: &Arc<Gpu>,
    types: &[GgmlType],
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<KernelShape>> {
    let types = types.iter().filter(|ty| device_format(**ty).is_some());
    let parts = (types.clone().count() * AT_ONCE.len()).max(1) as f64;
    let mut chosen = Vec::new();
    for &ty in types {
        let load = if gpu.is_software() { SOFTWARE } else { CARD };
        let mut timed = Timed::load(gpu, ty, load)?;
        let started = Instant::now();
        while started.elapsed() < WARM {
            timed.time((ty, 1), TeamShape::USUAL)?;
        }
        for at_once in AT_ONCE {
            let shape = fastest(at_once, |shape| timed.time((ty, at_once), shape))?;
            let TeamShape { rows, teams } = shape;
            chosen.push(KernelShape { ty, at_once, rows, teams });
            progress(chosen.len() as f64 / parts);
        }
    }
    Ok(chosen)
}

/// The fastest shape: of those with the usual teams first, then of those with as many rows.
fn fastest(
    at_once: usize,
    mut time: impl FnMut(TeamShape) -> Result<Duration>,
) -> Result<TeamShape> {
    let mut best = (TeamShape::USUAL, time(TeamShape::USUAL)?);
    let mut try_out = |best: &mut (TeamShape, Duration), shape: TeamShape| -> Result<()> {
        if shape.is_possible(at_once) {
            let took = time(shape)?;
            if took.as_secs_f64() < GAIN * best.1.as_secs_f64() {
                *best = (shape, took);
            }
        }
        Ok(())
    };
    for rows in [4, 8] {
        try_out(&mut best, TeamShape { rows, ..TeamShape::USUAL })?;
    }
    let rows = best.0.rows;
    for teams in [1, 4, 8] {
        try_out(&mut best, TeamShape { rows, teams })?;
    }
    // what was timed first had no better conditions than what came after it
    let usual = time(TeamShape::USUAL)?;
    let gains = best.1.as_secs_f64() < GAIN * usual.as_secs_f64();
    Ok(if gains { best.0 } else { TeamShape::USUAL })
}

#[cfg(test)]
mod tests {
    use conformance::{MemoryWeights, Random, deep_config, tiny_model};

    use super::*;
    use crate::model::tests::device;

    fn possible() -> Vec<(usize, TeamShape)> {
        let teams = |rows| [1, 2, 4, 8].map(|teams| TeamShape { rows, teams });
        let shapes: Vec<_> = [2, 4, 8].into_iter().flat_map(teams).collect();
        let all = AT_ONCE.into_iter().flat_map(|n| shapes.iter().map(move |shape| (n, *shape)));
        all.filter(|(at_once, shape)| shape.is_possible(*at_once)).collect()
    }

    /// Products of several shapes are the same numbers: matrices, gates, experts, with one row and several.
    #[test]
    fn no_bit_depends_on_a_shape() {
        let Some(gpu) = device(None) else { return };
        let gpu = Arc::new(gpu);
        for (name, ty, width) in [
            ("qwen2moe", GgmlType::F32, 64),
            ("deepseek2", GgmlType::F16, 64),
            ("llama", GgmlType::Q4K, 1280),
        ] {
            let program = tiny_model(&deep_config(name, width, false, 2), ty);
            let weights = MemoryWeights::random(&program, 3);
            let storage = CacheStorage::default();
            let loaded =
                GpuModel::load(&gpu, Arc::clone(&program), &weights, &storage, &mut |_| ());
            let mut model = loaded.expect("it loads");
            let tokens = Random::new(4).tokens(8, program.vocab_size());
            let mut logits = |shapes: &[KernelShape]| -> Vec<u32> {
                model.reshape(&Shapes::of(shapes));
                let options = CacheOptions::new(CacheType::F32, CacheType::F32, 16);
                let session = model.open(&options).expect("a session opens");
                let chunks = [&tokens[..6], &tokens[6..7], &tokens[7..]];
                let outputs = Outputs::ALL;
                let found = chunks.map(|tokens| {
                    let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
                    let out = model.step(&Step { sequences: &[sequence] });
                    out.and_then(program::StepOut::single).expect("a step").into_logits().logits
                });
                found.concat().iter().map(|x| x.to_bits()).collect()
            };
            let want = logits(&[]);
            let types: Vec<_> = program.weights.iter().map(|spec| spec.ty).collect();
            // for one row and for four
            for [one, four] in [[(8, 8), (8, 4)], [(4, 1), (4, 8)], [(2, 8), (8, 1)]] {
                let shapes = types.iter().flat_map(|ty| {
                    let shape = |at_once, (rows, teams)| {
                        assert!(TeamShape { rows, teams }.is_possible(at_once));
                        KernelShape { ty: *ty, at_once, rows, teams }
                    };
                    [shape(1, one), shape(4, four)]
                });
                let shapes: Vec<_> = shapes.collect();
                assert!(logits(&shapes) == want, "{name}: {one:?} {four:?}");
            }
        }
    }

    #[test]
    fn the_fastest_is_chosen_and_nothing_that_cannot_be() {
        let mut tried = Vec::new();
        let chosen = |at_once, tried: &mut Vec<TeamShape>, like: TeamShape| {
            fastest(at_once, |shape| {
                tried.push(shape);
                let off = shape.rows.abs_diff(like.rows) + shape.teams.abs_diff(like.teams);
                Ok(Duration::from_micros(100 + 10 * off as u64))
            })
            .expect("all can be timed")
        };
        for (at_once, like) in possible() {
            let found = chosen(at_once, &mut tried, like);
            assert_eq!(found, like, "{at_once}");
            assert!(tried.drain(..).all(|shape| shape.is_possible(at_once)));
        }
        // as fast as the usual one: that one stays
        let same = fastest(1, |_| Ok(Duration::from_micros(7))).expect("all can be timed");
        assert_eq!(same, TeamShape::USUAL);
        let slower = KernelShape { ty: GgmlType::F32, at_once: 4, rows: 8, teams: 8 };
        let shapes = Shapes::of(&[slower, KernelShape { teams: 3, ..slower }]);
        assert_eq!(shapes.get(GgmlType::F32, 4), TeamShape::USUAL, "there is no room for it");
    }

    #[test]
    fn a_device_is_tuned_once_for_all_models() {
        let Some(gpu) = device(None) else { return };
        let gpu = Arc::new(gpu);
        let mut told = Vec::new();
        let types = [GgmlType::Q4_0, GgmlType::I32, GgmlType::F16];
        let chosen = tune(&gpu, &types, &mut |part| told.push(part)).expect("it is measured");
        let keys: Vec<_> = chosen.iter().map(|its| (its.ty, its.at_once)).collect();
        let (q, f) = (GgmlType::Q4_0, GgmlType::F16);
        assert_eq!(keys, [(q, 1), (q, 4), (f, 1), (f, 4)], "no matrix is of integers");
        assert_eq!(told, [0.25, 0.5, 0.75, 1.0]);
        gpu.set_shapes(Shapes::of(&chosen));
        for its in chosen {
            let shape = TeamShape { rows: its.rows, teams: its.teams };
            assert_eq!(gpu.shapes().get(its.ty, its.at_once), shape);
        }
    }
}
