//! What a card should have that cannot hold all of a model.

use models::{Mixture, find_published};
use planner::{
    CardBeside, Cost, CostOptions, Machine, PlacedKind, PlacedStep, Placements, Prediction,
};
use program::{CacheOptions, CacheType, Program};
use std::sync::Arc;

const DEPTH: usize = 4096;
const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, DEPTH);

fn program(model: &str) -> Arc<Program> {
    let config = find_published(model).expect("a published model");
    let mixture = Mixture::from_name("Q4_K_M").expect("a file type");
    let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
    models::from_config(&config, &ty).expect("whole blocks").program
}

/// A card with ten times the processor's bandwidth, and so much memory.
fn beside(memory: f64) -> CardBeside {
    CardBeside {
        processor: Machine { barrier: 0.0, ..Machine::uniform(50e9, 1e12) },
        card: Machine { barrier: 0.0, ..Machine::uniform(500e9, 10e12) },
        memory,
        submission: 50e-6,
    }
}

fn limit(program: &Program, machine: &Machine) -> f64 {
    let cost = Cost::of(program, &CostOptions::default());
    Prediction::of_step(&cost, DEPTH as u64 - 1, machine).limit()
}

#[test]
fn what_fits_goes_whole_and_what_does_not_stays() {
    let program = program("qwen2.5-7b");
    let placements = Placements::of(&program, &CACHE);
    let (all, none) = (beside(1e12), beside(0.0));
    let placed = placements.best(&all);
    assert_eq!((placed.layers, placed.apart, placed.submissions), (29, 0, 1));
    assert!((placed.seconds - limit(&program, &all.card) - all.submission).abs() < 1e-9);
    let placed = placements.best(&none);
    assert_eq!((placed.layers, placed.card_bytes, placed.submissions), (0, 0, 0));
    assert!((placed.seconds - limit(&program, &none.processor)).abs() < 1e-9);
}

/// Experts are what saves least for a byte: few of them are read. The first to stay are theirs.
#[test]
fn experts_stay_with_the_processor_first() {
    let placements = Placements::of(&program("qwen3-30b-a3b"), &CACHE);
    let room = beside(12e9);
    let density = |kind| placements.of_kind(kind).density(&room.processor, &room.card);
    assert!(density(PlacedKind::Output) > 8.0 * density(PlacedKind::Experts));
    assert!(density(PlacedKind::Layer) > 8.0 * density(PlacedKind::Experts));
    let placed = placements.best(&room);
    assert_eq!(placed.layers, 49, "{placed:?}");
    assert!((10..40).contains(&placed.apart) && placed.submissions == 1 + placed.apart);
    let whole = (0..=49).map(|layers| placements.step(layers, 0, &room));
    let whole = whole.filter(|step| step.card_bytes as f64 <= room.memory);
    let whole = whole.map(|step| step.seconds).fold(f64::INFINITY, f64::min);
    assert!(placed.seconds < 0.95 * whole, "{} {whole}", placed.seconds);
    // where the card answers late, whole layers are better: their experts ask it no more
    let late = CardBeside { submission: 0.1, ..room };
    assert_eq!(placements.best(&late).submissions, 0, "nothing is worth that");
    let late = CardBeside { submission: 2e-3, ..room };
    let placed = placements.best(&late);
    assert!(placed.apart == 0 && placed.layers > 20 && placed.submissions == 1, "{placed:?}");
}

#[test]
fn more_memory_is_never_slower_and_all_bytes_are_somewhere() {
    for model in ["qwen2.5-0.5b", "qwen3-30b-a3b", "deepseek-v2-lite"] {
        let program = program(model);
        let placements = Placements::of(&program, &CACHE);
        let mut last = f64::INFINITY;
        for gigabytes in 0..30 {
            let placed = placements.best(&beside(1e9 * f64::from(gigabytes)));
            assert!(placed.seconds <= last, "{model}: {gigabytes} GB");
            assert!(placed.card_bytes as f64 <= 1e9 * f64::from(gigabytes));
            last = placed.seconds;
        }
        let weights: u64 = program.weights.iter().map(|spec| spec.bytes()).sum();
        let cache: u64 = program.caches.iter().map(|c| c.kind.bytes(DEPTH, &CACHE)).sum();
        let all = placements.step(usize::MAX, 0, &beside(0.0));
        assert_eq!((all.card_bytes, all.processor_bytes), (weights + cache, 0), "{model}");
        let none = placements.step(0, 0, &beside(0.0));
        assert_eq!((none.card_bytes, none.processor_bytes), (0, weights + cache), "{model}");
        // a table that is read at both ends is kept at both where they are apart
        let parted = placements.step(3, 1, &beside(0.0));
        let both = parted.card_bytes + parted.processor_bytes;
        let is_tied = model == "qwen2.5-0.5b";
        assert_eq!(both > weights + cache, is_tied, "{model}: {both}");
        let all = all.card_bytes;
        let kinds: u64 =
            PlacedKind::ALL.iter().map(|kind| placements.of_kind(*kind).resident).sum();
        assert!(kinds <= all && 2 * kinds > all, "{model}: all but the embedding");
    }
}

/// An expert that every token uses takes no time of its own while the processor has the others.
#[test]
fn a_shared_expert_runs_beside_the_others() {
    let program = program("deepseek-v2-lite");
    let placements = Placements::of(&program, &CACHE);
    let beside = beside(1e12);
    let placed = placements.step(usize::MAX, usize::MAX, &beside);
    // the first of 27 layers is dense
    assert_eq!((placed.submissions, placed.waits), (27 + 26, 27));
    let time = |kind, machine: &Machine| {
        Prediction::of_work(&placements.of_kind(kind).work, machine).limit()
    };
    let on_card = [PlacedKind::Layer, PlacedKind::Output].map(|kind| time(kind, &beside.card));
    let in_turn = on_card.iter().sum::<f64>() + time(PlacedKind::Experts, &beside.processor);
    let shared = program.weights.iter().filter(|spec| spec.name.contains("_shexp"));
    let shared = shared.map(|spec| spec.bytes()).sum::<u64>() as f64 / 500e9;
    let want = in_turn - shared + 27.0 * beside.submission;
    // the embedding's row is left out
    assert!((placed.seconds - want).abs() < 1e-6, "{} {want}", placed.seconds);
    assert!(shared > 20e-6, "{shared}");
}

/// What an executor takes beside what files say is left to it.
#[test]
fn what_is_counted_better_fits() {
    let placements = Placements::of(&program("qwen3-30b-a3b"), &CACHE);
    let beside = beside(12e9);
    let by_files = placements.best(&beside);
    let mut tried = Vec::new();
    let mut taken = |placed: &PlacedStep| {
        tried.push(*placed);
        Some(placed.card_bytes + placed.card_bytes / 8 + (1 << 28))
    };
    let placed = placements.best_within(&beside, 12e9, &mut taken);
    assert_eq!(tried[0], by_files);
    let [.., before, last] = &tried[..] else { panic!("one is too much") };
    assert!(*last == placed && placed.layers == 49, "{placed:?}");
    let bytes = |placed: &PlacedStep| 1.125 * placed.card_bytes as f64 + 268e6;
    assert!(bytes(&placed) <= 12e9 && bytes(before) > 12e9 && bytes(&placed) > 11e9, "{placed:?}");
    assert!(placed.apart > by_files.apart && placed.seconds > by_files.seconds, "{placed:?}");
    // where nobody knows better, and where nothing fits
    assert_eq!(placements.best_within(&beside, 0.0, &mut |_| None), by_files);
    assert_eq!(placements.best_within(&beside, 12e9, &mut |_| Some(13 << 30)).layers, 0);
}

#[test]
fn what_is_not_divided_goes_whole_or_not_at_all() {
    let shared = Placements::of(&program("gemma-3n-e2b"), &CACHE);
    let few = shared.step(10, 0, &beside(0.0));
    assert_eq!(few.card_bytes, shared.step(1, 0, &beside(0.0)).card_bytes, "the output alone");
    assert!(shared.step(usize::MAX, 0, &beside(0.0)).processor_bytes == 0);
    let recurs = Placements::of(&program("mamba2-1.3b"), &CACHE);
    let all = recurs.step(usize::MAX, 0, &beside(0.0));
    assert_eq!(all.processor_bytes, 0, "states go with their layers");
    let chosen = Placements::of(&program("deepseek-v3.2"), &CACHE);
    let all = chosen.step(usize::MAX, 0, &beside(0.0));
    assert_eq!((all.processor_bytes, all.submissions), (0, 1), "keys go with theirs");
}
