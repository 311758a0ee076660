//! Places layers and experts on a GPU without enough memory for the whole model.
//!
//! `plan --placement` shows this placement. `--executor wgpu` and `--executor auto` use it unless the user says what the GPU
//! gets.

use executors::{ExecutorKind, ExecutorOptions, GpuFacts, Started};
use planner::devices;
use planner::{CardBeside, Cost, CostOptions, Machine, PlacedStep, Placements};
use program::{
    CacheOptions, CacheType, DeviceLayers, DeviceShare, Division, Executor, KvPolicy,
    MemoryOptions, Program,
};

use super::to_run::ToRun;
use crate::fit;
use crate::machine::{ceilings, memory};
use crate::units::decimal_bytes;

/// Latency of one submission to a GPU that was not measured, in seconds. Frameworks are said to lose about 90 us for each layer
/// whose experts run on the processor.
pub const SUBMISSION: f64 = 100e-6;

/// A placement and the data that it was chosen by.
pub struct Placing {
    /// All possible placements.
    pub placements: Placements,
    /// Rates of the processor and the GPU, and the memory of the GPU.
    pub beside: CardBeside,
    /// The chosen placement.
    pub best: PlacedStep,
    n_layers: usize,
}

/// Counts the memory that a placement takes on a GPU.
#[derive(Clone, Copy)]
pub struct Counter<'a> {
    /// Executor of the GPU.
    pub executor: &'a dyn Executor,
    /// Maximum number of tokens per step.
    pub chunk: usize,
}

impl Counter<'_> {
    /// Returns the bytes that the program takes on the GPU, as the executor counts them. Returns `None` if it cannot run the
    /// program.
    fn taken(&self, program: &Program, cache: &CacheOptions, share: DeviceShare) -> Option<u64> {
        let options = MemoryOptions { cache: *cache, sessions: 1, chunk: self.chunk };
        let division = Division::of(program, self.executor, share).ok()?;
        Some(division.device_needs(self.executor, &options).ok()?.total())
    }
}

impl Placing {
    /// Finds the fastest placement of a program and its cache that fits in the memory of the GPU. Counts memory with `counter`
    /// if there is one, else by the sizes in the file.
    pub fn of(
        program: &Program,
        cache: &CacheOptions,
        beside: CardBeside,
        counter: Option<Counter<'_>>,
    ) -> Placing {
        let n_layers = program.nodes.iter().filter_map(|node| node.layer).max();
        let n_layers = n_layers.map_or(0, |last| last + 1);
        let placements = Placements::of(program, &on_a_gpu(cache));
        // a counter includes the workspace; without one, space is reserved for it
        let room = (beside.memory + fit::PASS as f64).max(0.0);
        let memory = if counter.is_some() { room } else { beside.memory.max(0.0) };
        let beside = CardBeside { memory, ..beside };
        let mut taken =
            |placed: &PlacedStep| counter?.taken(program, cache, share(placed, n_layers));
        let best = placements.best_within(&beside, room, &mut taken);
        Placing { placements, beside, best, n_layers }
    }

    /// Formats the placement as command line options: `-ngl all --n-cpu-moe 12`.
    pub fn options(&self) -> String {
        let layers = match self.best.layers {
            n if n > self.n_layers => "all".to_owned(),
            n => n.to_string(),
        };
        let apart = match self.best.apart {
            0 => String::new(),
            n => format!(" --n-cpu-moe {n}"),
        };
        format!("-ngl {layers}{apart}")
    }

    /// Whether the GPU has all of the model.
    pub fn is_whole(&self) -> bool {
        self.best.layers > self.n_layers && self.best.apart == 0
    }

    /// Number of layers that the processor has, and number of further layers whose experts it has.
    pub fn on_processor(&self) -> [usize; 2] {
        on_processor(self.n_layers, &self.best)
    }

    fn share(&self) -> DeviceShare {
        share(&self.best, self.n_layers)
    }
}

/// The output counts as one of the layers that a placement has on the card.
fn on_processor(n_layers: usize, placed: &PlacedStep) -> [usize; 2] {
    let layers = (n_layers + 1).saturating_sub(placed.layers).min(n_layers);
    [layers, placed.apart.min(n_layers).saturating_sub(layers)]
}

fn share(placed: &PlacedStep, n_layers: usize) -> DeviceShare {
    let layers = match placed.layers {
        n if n > n_layers => DeviceLayers::All,
        n => DeviceLayers::Last(n),
    };
    DeviceShare { apart: placed.apart, ..layers.into() }
}

/// Returns the cache options with types that a GPU supports: q8_0 becomes f16.
pub fn on_a_gpu(cache: &CacheOptions) -> CacheOptions {
    let kept = |ty| if ty == CacheType::Q8_0 { CacheType::F16 } else { ty };
    CacheOptions { k: kept(cache.k), v: kept(cache.v), ..*cache }
}

/// Returns the bytes that are left for weights and cache in `memory` bytes, after tokenizer tables, code and workspace.
pub fn room(memory: f64) -> f64 {
    memory - (memory::OVERHEAD + fit::PASS) as f64
}

/// A started executor with its placement.
pub struct PlacedStart {
    /// Options of the executor, including the part of the model on the GPU.
    pub chosen: ExecutorOptions,
    /// The executor.
    pub started: Started,
    /// Message about an automatic placement: `-ngl 20 --n-cpu-moe 12: 7.80 GB of 8.00 GB`.
    pub told: Option<String>,
}

/// Starts a GPU executor for a model. The GPU gets what the user requested, else the whole model, else the part that fits in
/// its memory.
///
/// # Errors
/// Those of [`ExecutorOptions::start_for`].
pub(super) fn start(chosen: &ExecutorOptions, it: &ToRun<'_>) -> program::Result<PlacedStart> {
    let sessions = MemoryOptions { cache: *it.cache, sessions: 1, chunk: it.chunk };
    let start = |chosen: ExecutorOptions, device: Option<Started>, told| -> program::Result<_> {
        let started = match device {
            Some(device) => chosen.divided(device, it.program, it.storage, &sessions)?,
            None => chosen.start_for(it.program, it.storage, &sessions)?,
        };
        Ok(PlacedStart { chosen, started, told })
    };
    if it.asked.share || it.cache.policy != KvPolicy::Full {
        return start(chosen.clone(), None, None);
    }
    let device = chosen.start_with(it.storage)?;
    let memory = device.gpu.as_ref().and_then(|gpu| card_memory(gpu, it.asked.memory));
    let Some((bytes, source)) = memory else { return start(chosen.clone(), Some(device), None) };
    let counter = Counter { executor: &*device.executor, chunk: it.chunk };
    let taken = |share| counter.taken(it.program, it.cache, share);
    let whole = taken(chosen.share.clone());
    if whole.is_none_or(|whole| whole.saturating_add(memory::OVERHEAD) <= bytes) {
        return start(chosen.clone(), Some(device), None);
    }
    let beside = beside(chosen, it, counter, bytes)?;
    let Some(beside) = beside else { return start(chosen.clone(), Some(device), None) };
    let placing = Placing::of(it.program, it.cache, beside, Some(counter));
    let share = placing.share();
    let (has, memory) = (taken(share.clone()).unwrap_or(0), decimal_bytes(bytes as f64));
    let chosen = ExecutorOptions { share, ..chosen.clone() };
    if placing.best.layers == 0 {
        let mut placed = start(chosen, None, None)?;
        let adapter = device.gpu.map(|gpu| gpu.adapter).unwrap_or_default();
        placed.started.refused = Some(format!(
            "all of it on the processor: nothing that {memory}{source} of {adapter} have room for is worth asking it; -ngl N has it do so"
        ));
        return Ok(placed);
    }
    let told = format!("{}: {} of {memory}{source}", placing.options(), decimal_bytes(has as f64));
    start(chosen, Some(device), Some(told))
}

/// Returns the rates of the processor and the GPU. Returns `None` if one of them cannot be measured.
fn beside(
    chosen: &ExecutorOptions,
    it: &ToRun<'_>,
    card: Counter<'_>,
    bytes: u64,
) -> program::Result<Option<CardBeside>> {
    let CacheOptions { k, v, policy, .. } = on_a_gpu(it.cache);
    let cost = Cost::of(it.program, &CostOptions { k, v, policy, ..CostOptions::default() });
    let read = cost.step(0).total().bytes();
    let processor = ExecutorOptions { kind: ExecutorKind::Cpu, ..chosen.clone() };
    let started = processor.start_with(it.storage)?;
    let (Some(own), Some(of_card)) = (
        ceilings::kept_or_measured(it.runtime, &*started.executor),
        ceilings::kept_or_measured(it.runtime, card.executor),
    ) else {
        return Ok(None);
    };
    let machine = Machine::measured(&own.ceilings, processor.n_threads(), read);
    let card = Machine::measured(&of_card.ceilings, chosen.n_threads(), read);
    let submission = of_card.ceilings.submission.as_secs_f64();
    let memory = room(bytes as f64);
    Ok(machine.zip(card).map(|(processor, card)| CardBeside {
        processor,
        card,
        memory,
        submission,
    }))
}

/// Returns the bytes of GPU memory that a model may use, and the source of this number, formatted.
///
/// The number is the requested one, else the free memory that the system reports, else the published size. Returns `None` if
/// none is known, or if the GPU shares the machine's memory and no number is requested.
pub fn card_memory(gpu: &GpuFacts, asked: Option<u64>) -> Option<(u64, &'static str)> {
    if let Some(bytes) = asked {
        return Some((bytes, ""));
    }
    if gpu.shares_memory {
        return None;
    }
    if let Some(bytes) = gpu.bus.as_deref().and_then(memory::card) {
        return Some((bytes, " free"));
    }
    let name = gpu.adapter.split(',').next().unwrap_or_default();
    devices::card_memory(name).map(|bytes| (bytes as u64, " (published; --gpu-memory)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_asked_for_or_known() {
        let gpu = |name: &str, shares_memory| GpuFacts {
            executor: "wgpu",
            adapter: format!("{name}, vulkan, discrete"),
            driver: String::new(),
            is_software: false,
            shares_memory,
            bus: None,
            beside: None,
        };
        let bytes = |gpu, asked| card_memory(&gpu, asked).map(|(bytes, _)| bytes);
        let known = gpu("NVIDIA GeForce RTX 4090", false);
        assert_eq!(bytes(known.clone(), None), Some(24_000_000_000));
        assert_eq!(bytes(known, Some(7)), Some(7));
        assert_eq!(bytes(gpu("NVIDIA GeForce RTX 4090 Laptop GPU", false), None), None);
        assert_eq!(bytes(gpu("NVIDIA GeForce RTX 4090", true), None), None, "the machine's");
    }
}
