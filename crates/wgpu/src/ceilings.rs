//! What a device can do at most, measured by kernels that do nothing else: reading, multiply-adds, products of bytes, and
//! what a dispatch and a submission take when there is nothing to do.

use std::time::{Duration, Instant};

use program::{Ceilings, ComputeCeiling, ReadCeiling, Result};

use crate::backend::{Binding, Buffer, Command, Usage, Write};
use crate::device::Gpu;
use crate::kernels::{CEILINGS, Shader, ceiling};

/// Lanes of a workgroup, and workgroups: enough for any device to have more of them than it runs at once.
const LANES: u64 = 256;
const GROUPS: u32 = 1024;
/// Bytes that all lanes read when each reads four quads.
const TURN: u64 = LANES * GROUPS as u64 * 4 * 16;
/// Bytes that are read over and over, as far as a buffer has room: what caches hold, and what none does.
const WORKING_SETS: [u64; 3] = [TURN, 8 * TURN, 32 * TURN];
/// What takes less is repeated: a submission takes some of it too.
const LONG_ENOUGH: Duration = Duration::from_millis(25);
/// Times that each figure is taken; the best counts.
const SAMPLES: usize = 5;
/// Of what takes long where the processor plays the device.
const SLOW: Duration = Duration::from_millis(200);
/// Dispatches of one submission that do nothing.
const DISPATCHES: u32 = 256;

/// What is run: so many dispatches of a shader, each with so many workgroups.
struct Load<'a> {
    shader: &'a Shader,
    groups: u32,
    /// Quads that a lane reads in a round.
    each: u32,
    rounds: u32,
    dispatches: u32,
}

struct Meter<'a> {
    gpu: &'a Gpu,
    data: Buffer,
    out: Buffer,
    constants: Buffer,
}

impl Meter<'_> {
    /// On `bytes` of data.
    fn new(gpu: &Gpu, bytes: u64) -> Result<Meter<'_>> {
        Ok(Meter {
            gpu,
            data: gpu.buffer("what is read to measure", bytes, Usage::Storage)?,
            out: gpu.buffer("what measuring finds", 16, Usage::Storage)?,
            constants: gpu.buffer("constants of a measurement", 16, Usage::Constants)?,
        })
    }

    fn run(&self, load: &Load<'_>) -> Result<Duration> {
        let kernel = self.gpu.kernel(load.shader)?;
        let words = [load.each, load.rounds, 0, 0];
        let bytes = bytemuck::cast_slice(&words);
        self.gpu
            .write("constants of a measurement", &[Write { to: &self.constants, at: 0, bytes }])?;
        let bound = [&self.constants, &self.data, &self.out].map(Binding::whole).to_vec();
        let bindings = self.gpu.bindings(&[(&CEILINGS, bound)])?.remove(0);
        let groups = [load.groups, 1, 1];
        let one = Command::Dispatch { kernel: &kernel, bindings: &bindings, groups };
        let commands = vec![one; load.dispatches as usize];
        let started = Instant::now();
        self.gpu.run("measuring", &commands)?;
        Ok(started.elapsed())
    }

    /// The best of a few times.
    fn best(&self, load: &Load<'_>, samples: usize) -> Result<Duration> {
        (0..samples).try_fold(Duration::MAX, |best, _| Ok(best.min(self.run(load)?)))
    }

    /// Rounds a second, of as many as take long enough.
    fn rounds_per_second(&self, shader: &Shader, each: u32) -> Result<f64> {
        let mut load = Load { shader, groups: GROUPS, each, rounds: 1, dispatches: 1 };
        // what is made when a shader first runs is not timed
        self.run(&Load { rounds: 0, ..load })?;
        let mut took = self.run(&load)?;
        while took < LONG_ENOUGH {
            load.rounds *= 2;
            took = self.run(&load)?;
        }
        let samples = if took < SLOW { SAMPLES } else { 2 };
        let best = took.min(self.best(&load, samples - 1)?);
        Ok(f64::from(load.rounds) / best.as_secs_f64())
    }
}

/// Measures the ceilings. `progress` receives the completed part, and stops the measurement by returning false.
///
/// # Errors
/// [`program::Error::Device`], [`program::Error::Memory`]; [`program::Error::Cancelled`] if `progress` stopped it.
pub(crate) fn measure(gpu: &Gpu, progress: &mut dyn FnMut(f64) -> bool) -> Result<Ceilings> {
    let lanes = (LANES * u64::from(GROUPS)) as f64;
    let seen = gpu.most_bytes();
    let sets = WORKING_SETS.iter().filter(|set| **set <= seen);
    let n_figures = (sets.clone().count() + 3) as f64;
    let mut done = 0.0;
    let mut tell = || {
        done += 1.0;
        if progress(done / n_figures) { Ok(()) } else { Err(program::Error::Cancelled) }
    };
    let reading = Shader::ceiling(ceiling::READ);
    let mut read = Vec::new();
    for &working_set in sets {
        let meter = match Meter::new(gpu, working_set) {
            // a card that is nearly full: what fits of it is measured
            Err(program::Error::Memory { .. }) if !read.is_empty() => break,
            meter => meter?,
        };
        let rounds = meter.rounds_per_second(&reading, 4 * (working_set / TURN) as u32)?;
        let bytes_per_second = rounds * working_set as f64;
        read.push(ReadCeiling { threads: 1, working_set, bytes_per_second });
        tell()?;
    }
    let meter = Meter::new(gpu, 2 * LANES * 16)?;
    let mut macs = |body: &ceiling::Body| -> Result<f64> {
        let rounds = meter.rounds_per_second(&Shader::ceiling(&body.text), 0)?;
        tell()?;
        Ok(rounds * lanes * body.macs)
    };
    let f32_macs_per_second = macs(&ceiling::floats())?;
    // where it has no instruction for it, bytes are multiplied as fast as floats
    let int8_macs_per_second = macs(&ceiling::bytes())?.max(f32_macs_per_second);
    let idle = |dispatches| Load { shader: &reading, groups: 1, each: 0, rounds: 0, dispatches };
    let one = meter.best(&idle(1), 4 * SAMPLES)?;
    let many = meter.best(&idle(DISPATCHES), SAMPLES)?;
    tell()?;
    Ok(Ceilings {
        read,
        compute: vec![ComputeCeiling { threads: 1, f32_macs_per_second, int8_macs_per_second }],
        barrier: many.saturating_sub(one) / (DISPATCHES - 1),
        submission: one,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::device;

    /// No figure is made up: what takes longer to measure is slower, and what a buffer has no room for is not measured.
    #[test]
    fn a_device_is_measured() {
        let Some(gpu) = device(None) else { return };
        let mut told = Vec::new();
        let mut tell = |part| {
            told.push(part);
            true
        };
        let ceilings = measure(&gpu, &mut tell).expect("it is measured");
        assert!(matches!(measure(&gpu, &mut |_| false), Err(program::Error::Cancelled)));
        assert!(told.is_sorted() && told.last() == Some(&1.0), "{told:?}");
        let sets: Vec<_> = ceilings.read.iter().map(|read| read.working_set).collect();
        let most = gpu.most_bytes();
        let expected: Vec<_> = WORKING_SETS.into_iter().filter(|set| *set <= most).collect();
        assert_eq!(sets, expected);
        // from the slowest that could be had to what no device reaches
        let likely = |rate: f64| (1e8..1e15).contains(&rate);
        assert!(ceilings.read.iter().all(|read| likely(read.bytes_per_second)));
        let compute = ceilings.compute(1).expect("one thread gives it work");
        assert!(likely(compute.f32_macs_per_second));
        assert!(compute.int8_macs_per_second >= compute.f32_macs_per_second);
        assert!(ceilings.submission > Duration::ZERO && ceilings.submission < SLOW);
        let small = device(Some(TURN)).expect("it opened before");
        let ceilings = measure(&small, &mut |_| true).expect("it is measured");
        assert_eq!(ceilings.read.len(), 1, "of buffers of {TURN} bytes");
    }

    /// Twice the rounds take longer: nothing is left out by a compiler that sees that nothing comes of it.
    #[test]
    fn all_rounds_are_run() {
        let Some(gpu) = device(None) else { return };
        let (floats, bytes) = (ceiling::floats(), ceiling::bytes());
        let shaders = [(ceiling::READ, 4), (&floats.text, 0), (&bytes.text, 0)];
        let meter = Meter::new(&gpu, TURN).expect("there is room");
        for (body, each) in shaders {
            let shader = Shader::ceiling(body);
            let load =
                |rounds| Load { shader: &shader, groups: GROUPS, each, rounds, dispatches: 1 };
            let time = |rounds| meter.best(&load(rounds), 3).expect("it runs").as_secs_f64();
            // few rounds take no longer than the submission; if a compiler removed the rounds, no number of them takes longer
            let mut rounds = (0..16).map(|n| 1 << n);
            assert!(
                rounds.any(|rounds| time(16 * rounds) > 3.0 * time(rounds)),
                "sixteen times the rounds take as long\n{body}"
            );
        }
    }
}
