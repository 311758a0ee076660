//! The output head in two stages: the greatest logit is that of all logits, whatever the head holds.

use std::sync::Arc;

use conformance::golden::argmax;
use conformance::{MemoryWeights, nmse};
use cpu::{Cpu, Options};
use kernels::Isa;
use program::{
    CacheOptions, CacheType, Error, Executor, LEFT_OUT, Model, OutputKind, Outputs, Program,
    Recorder, Result, Sequence, SessionId, Step, StepOut, WeightSpec,
};
use quant::GgmlType;

/// More than one unit of panels, the last panel not full.
const VOCAB: usize = 16 * 64 + 9;
const HIDDEN: usize = 512;
const TYPES: [GgmlType; 2] = [GgmlType::Q8_0, GgmlType::Q6K];

/// A table and a head of type `ty`. Tied, they are the same: each token is its own likeliest successor by far.
fn program(ty: GgmlType, tied: bool) -> Program {
    let r = Recorder::new();
    let weight = |name: &str, rows, cols| {
        let ty = if rows == 1 { GgmlType::F32 } else { ty };
        r.weight(WeightSpec { name: name.into(), ty, rows, cols })
    };
    let record = || -> Result<_> {
        let table = weight("embed", VOCAB, HIDDEN);
        let rows = r.select_rows("rows", r.embed(table)?)?;
        let x = r.rms_norm("norm", rows, weight("output_norm.weight", 1, HIDDEN), 1e-6)?;
        r.linear("head", x, if tied { table } else { weight("head", VOCAB, HIDDEN) })
    };
    let logits = record().expect("a program");
    r.finish(&[(OutputKind::Logits, logits)])
}

/// A loaded model with a session.
struct Run {
    model: Box<dyn Model>,
    session: SessionId,
}

impl Run {
    fn new(program: &Arc<Program>, weights: &MemoryWeights, options: &Options) -> Run {
        let model = Cpu::new(options).load(Arc::clone(program), weights, &mut |_| {});
        let model = model.expect("it loads");
        let cache = CacheOptions { k: CacheType::F16, v: CacheType::F16, capacity: 1 << 20 };
        let session = model.open(&cache).expect("a session");
        Run { model, session }
    }

    fn step(&self, tokens: &[u32], outputs: Outputs) -> Result<StepOut> {
        let sequence = Sequence { session: self.session, tokens, outputs, prompt: None };
        self.model.step(&Step { sequences: &[sequence] })
    }

    fn row(&self, token: u32, outputs: Outputs) -> StepOut {
        self.step(&[token], outputs).expect("a step")
    }
}

fn settings() -> Vec<Options> {
    let isas = Isa::NAMES.iter().map(|(_, isa)| *isa).filter(|isa| Isa::detect().contains(*isa));
    let threads = [1, 2, 3].map(|n| (n, Isa::detect()));
    let each = threads.into_iter().chain(isas.map(|isa| (2, isa)));
    let options = |(threads, isa)| Options {
        threads: Some(threads),
        isa: Some(isa),
        two_stage_head_bytes: Some(0),
        ..Options::default()
    };
    each.map(options).collect()
}

/// `best` is right about what it knows of `all`; returns how many logits it left out.
fn check_best(best: &StepOut, all: &StepOut, what: &str) -> usize {
    assert_eq!(argmax(&best.logits), argmax(&all.logits), "{what}: the greatest");
    for (i, (found, want)) in best.logits.iter().zip(&all.logits).enumerate() {
        assert!(found == want || *found == LEFT_OUT, "{what}: logit {i} is {found}, not {want}");
    }
    assert_eq!(best.peaks, StepOut::new(best.logits.clone(), VOCAB).peaks, "{what}: peaks");
    best.logits.iter().filter(|logit| **logit == LEFT_OUT).count()
}

#[test]
fn a_clear_winner_is_found_among_few() {
    for ty in TYPES {
        let program = Arc::new(program(ty, true));
        let weights = MemoryWeights::random(&program, 3);
        let whole = Run::new(&program, &weights, &Options::default());
        let mut first: Option<Vec<StepOut>> = None;
        for options in settings() {
            let split = Run::new(&program, &weights, &options);
            let tokens = [0, 1, 63, 64, 500, VOCAB as u32 - 1];
            let left_out = || split.model.stats().weight_bytes_left_out;
            let all = tokens.map(|token| {
                let (all, best) =
                    (split.row(token, Outputs::Last), split.row(token, Outputs::Best));
                let n_left_out = check_best(&best, &all, &format!("{ty} {options:?}"));
                assert!(n_left_out > VOCAB * 9 / 10, "{ty} {options:?}: {n_left_out} left out");
                assert_eq!(argmax(&best.logits), token);
                let error = nmse(&all.logits, &whole.row(token, Outputs::Last).logits);
                assert!(error < 1e-11, "{ty}: NMSE {error:e} beside one matrix");
                all
            });
            // of 8.5 bits a weight 4.5 are read everywhere, of 6.6 bits 4.6; one panel in 65 is read again
            let head = ty.row_bytes(HIDDEN).map_or(0, |bytes| bytes * VOCAB * tokens.len()) as f64;
            let share = left_out() as f64 / head;
            let most = if ty == GgmlType::Q8_0 { 4.0 / 8.5 } else { 2.0 / 6.5625 };
            assert!(share > most - 0.15 && share < most, "{ty}: {share} of the bytes left out");
            let before = left_out();
            split.row(1, Outputs::Last);
            assert_eq!(left_out(), before, "{ty}: all logits");
            let first = first.get_or_insert_with(|| all.to_vec());
            assert!(*first == all, "{ty} {options:?}: the bits");
            // every row of a batch, in tiles or not
            let rows = split.step(&tokens, Outputs::All).expect("a step");
            for (row, all) in rows.rows().zip(&all) {
                assert!(row == all.logits, "{ty} {options:?}: rows of a batch");
            }
            let best = split.step(&tokens, Outputs::Best).expect("a step");
            check_best(&best, &all[tokens.len() - 1], "the last of a batch");
        }
    }
}

/// Random logits lie so close that nearly all must be computed: then the stages are left for a while.
#[test]
fn close_logits_are_all_computed_and_the_stages_pause() {
    for ty in TYPES {
        let program = Arc::new(program(ty, false));
        let weights = MemoryWeights::random(&program, 8);
        for options in settings() {
            let run = Run::new(&program, &weights, &options);
            let left_out = (0..60).map(|token| {
                let (all, best) = (run.row(token, Outputs::Last), run.row(token, Outputs::Best));
                check_best(&best, &all, &format!("{ty} {options:?}, token {token}"))
            });
            let left_out: Vec<usize> = left_out.collect();
            let bytes = run.model.stats().weight_bytes_left_out;
            assert!(bytes < (60 - 30) * (VOCAB * HIDDEN) as u64, "{ty}: {bytes} bytes left out");
            let paused = left_out.iter().filter(|n| **n == 0).count();
            assert!(paused >= 30, "{ty}: {left_out:?}");
            assert!(left_out.iter().all(|n| *n < VOCAB * 3 / 4), "{ty}: {left_out:?}");
        }
    }
}

/// Rows that are equal, and rows of nothing: of equals the first one.
#[test]
fn the_first_of_equals_wins() {
    for ty in TYPES {
        let program = Arc::new(program(ty, true));
        let mut weights = MemoryWeights::default();
        for spec in &program.weights {
            // every 200th row is the same, all others are zero
            let value = |i: usize| match (spec.rows, i / spec.cols % 200) {
                (1, _) => 1.0,
                (_, 7) => ((i % spec.cols) as f32 * 0.7).sin(),
                _ => 0.0,
            };
            let values: Vec<f32> = (0..spec.rows * spec.cols).map(value).collect();
            weights.set(spec, &values);
        }
        for options in settings() {
            let run = Run::new(&program, &weights, &options);
            for token in [7, 607, 8] {
                let (all, best) = (run.row(token, Outputs::Last), run.row(token, Outputs::Best));
                check_best(&best, &all, &format!("{ty} {options:?}"));
                assert_eq!(argmax(&best.logits), if token == 8 { 0 } else { 7 });
            }
        }
    }
}

/// A scale that is no number is told of, though its row is far from winning; so are activations.
#[test]
fn what_is_no_number_is_told() {
    for (ty, broken) in [(GgmlType::Q8_0, "head"), (GgmlType::Q6K, "output_norm.weight")] {
        let program = Arc::new(program(ty, false));
        let mut weights = MemoryWeights::random(&program, 8);
        let spec = program.weights.iter().find(|spec| spec.name == broken).expect("a weight");
        let mut values = vec![0.01; spec.rows * spec.cols];
        let row = 700 % spec.rows * spec.cols;
        values[row..row + spec.cols].fill(-3e38);
        weights.set(spec, &values);
        for options in settings() {
            let run = Run::new(&program, &weights, &options);
            for outputs in [Outputs::Best, Outputs::Last] {
                let found = run.step(&[5], outputs).map(|_| "logits");
                assert!(matches!(found, Err(Error::NonFinite { .. })), "{ty}: {found:?}");
            }
        }
    }
}

/// What cannot be split is not, nor what is too small.
#[test]
fn other_heads_stay_whole() {
    let large = 32 << 20;
    for (ty, least) in
        [(GgmlType::Q4_0, 0), (GgmlType::F16, 0), (GgmlType::Q8_0, large), (GgmlType::Q8_0, 0)]
    {
        let program = Arc::new(program(ty, true));
        let weights = MemoryWeights::random(&program, 3);
        let [split, whole] = [Some(least), None].map(|two_stage_head_bytes| {
            Run::new(&program, &weights, &Options { two_stage_head_bytes, ..Options::default() })
        });
        let memory = |run: &Run| run.model.stats().weight_memory;
        if ty == GgmlType::Q8_0 && least == 0 {
            let more = memory(&split) as f64 / memory(&whole) as f64;
            assert!(more > 1.05 && more < 1.07, "scales twice, and bounds: {more}");
        } else {
            assert_eq!(memory(&split), memory(&whole), "{ty}");
            assert_eq!(split.row(3, Outputs::Best), whole.row(3, Outputs::Last), "{ty}");
        }
    }
}
