//! Which layers and experts a card gets that has no room for all of a model: the placement that `plan --placement` names, and
//! that `--executor wgpu` and `auto` obey where nobody says what the GPU is to have.

use executors::{ExecutorKind, ExecutorOptions, GpuFacts, Started};
use planner::devices::{self, DeviceMatch};
use planner::{CardBeside, Cost, CostOptions, Machine, PlacedStep, Placements};
use program::{
    CacheOptions, CacheType, DeviceLayers, DeviceShare, Division, Executor, KvPolicy,
    MemoryOptions, Program,
};

use super::to_run::ToRun;
use crate::fit;
use crate::machine::{ceilings, memory};
use crate::units::decimal_bytes;

/// Seconds in which a card answers, where it was not measured: some 90 us are what frameworks are said to lose each time
/// that a layer's experts are the processor's.
pub const SUBMISSION: f64 = 100e-6;

/// A placement and what it was chosen by.
pub struct Placing {
    /// All placements.
    pub placements: Placements,
    /// The processor and the card.
    pub beside: CardBeside,
    /// The chosen placement.
    pub best: PlacedStep,
    n_layers: usize,
}

/// What counts the memory of a card.
#[derive(Clone, Copy)]
pub struct Counter<'a> {
    /// That of the card.
    pub executor: &'a dyn Executor,
    /// Most tokens of a step.
    pub chunk: usize,
}

impl Counter<'_> {
    /// Bytes that the card would take, as its executor counts.
    fn taken(&self, program: &Program, cache: &CacheOptions, share: DeviceShare) -> Option<u64> {
        let options = MemoryOptions { cache: *cache, sessions: 1, chunk: self.chunk };
        let division = Division::of(program, self.executor, share).ok()?;
        Some(division.device_needs(self.executor, &options).ok()?.total())
    }
}

impl Placing {
    /// The fastest placement of a program with such a cache that the card has room for, as the executor counts if there is
    /// one, else by what the file keeps.
    pub fn of(
        program: &Program,
        cache: &CacheOptions,
        beside: CardBeside,
        counter: Option<Counter<'_>>,
    ) -> Placing {
        let n_layers = program.nodes.iter().filter_map(|node| node.layer).max();
        let n_layers = n_layers.map_or(0, |last| last + 1);
        let placements = Placements::of(program, &on_a_gpu(cache));
        // an executor counts what steps work in, which is left room for where there is none
        let room = (beside.memory + fit::PASS as f64).max(0.0);
        let memory = if counter.is_some() { room } else { beside.memory.max(0.0) };
        let beside = CardBeside { memory, ..beside };
        let mut taken =
            |placed: &PlacedStep| counter?.taken(program, cache, share(placed, n_layers));
        let best = placements.best_within(&beside, room, &mut taken);
        Placing { placements, beside, best, n_layers }
    }

    /// `-ngl all --n-cpu-moe 12`.
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

    fn share(&self) -> DeviceShare {
        share(&self.best, self.n_layers)
    }
}

fn share(placed: &PlacedStep, n_layers: usize) -> DeviceShare {
    let layers = match placed.layers {
        n if n > n_layers => DeviceLayers::All,
        n => DeviceLayers::Last(n),
    };
    DeviceShare { apart: placed.apart, ..layers.into() }
}

/// A cache as a GPU keeps it.
pub fn on_a_gpu(cache: &CacheOptions) -> CacheOptions {
    let kept = |ty| if ty == CacheType::Q8_0 { CacheType::F16 } else { ty };
    CacheOptions { k: kept(cache.k), v: kept(cache.v), ..*cache }
}

/// Bytes of a memory for weights and cache: what is left beside the tables, code and workspace of a run.
pub fn room(memory: f64) -> f64 {
    memory - (memory::OVERHEAD + fit::PASS) as f64
}

/// What a GPU got.
pub struct PlacedStart {
    /// Options of the executor, with its share.
    pub chosen: ExecutorOptions,
    /// The executor.
    pub started: Started,
    /// What was chosen for the user, and why: `-ngl 20 --n-cpu-moe 12: 7.80 GB of 8.00 GB`.
    pub told: Option<String>,
}

/// Start a GPU for a model: with all of it, or what was asked for, or what its memory has room for.
///
/// # Errors
/// As [`ExecutorOptions::start_for`].
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

/// The machines of a placement; `None` if one of them cannot be measured.
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

/// Bytes of a card's memory that a model may have, and by whom they are known if not by the user: what the system says is
/// free, else what is published of it. Where a GPU shares the machine's, what was asked for alone.
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
    match devices::find(name) {
        DeviceMatch::One(device) => Some((device.memory? as u64, " (published; --gpu-memory)")),
        _ => None,
    }
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
