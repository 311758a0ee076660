//! Peaks of logits: those of the rows a step yields, whoever finds them.

use std::sync::Arc;

use conformance::MemoryWeights;
use cpu::{Cpu, Options};
use program::{
    CacheOptions, CacheType, Executor, LogitRows, OutputKind, Outputs, Program, Recorder, Sequence,
    Step, StepOut, WeightSpec,
};
use quant::GgmlType;

/// Seventeen peaks, the last of less than one panel.
const VOCAB: usize = 16 * 64 + 9;
const HIDDEN: usize = 64;

/// The head writes the logits, or what comes after it does.
fn program(scaled: bool) -> Program {
    let r = Recorder::new();
    let weight = |name: &str, rows| {
        r.weight(WeightSpec { name: name.into(), ty: GgmlType::Q8_0, rows, cols: HIDDEN, start: 0 })
    };
    let x = r.embed(weight("embed", VOCAB)).expect("a table");
    let rows = r.select_rows("rows", x).expect("rows");
    let mut logits = r.linear("head", rows, weight("head", VOCAB)).expect("a head");
    if scaled {
        logits = r.scale("scaled", logits, -0.5).expect("logits");
    }
    r.finish(&[(OutputKind::Logits, logits)])
}

#[test]
fn peaks_are_those_of_the_rows() {
    for scaled in [false, true] {
        let program = Arc::new(program(scaled));
        let weights = MemoryWeights::random(&program, 5);
        for threads in [1, 2, 3] {
            let cpu = Cpu::new(&Options { threads: Some(threads), ..Options::default() });
            let model = cpu.load(Arc::clone(&program), &weights, &mut |_| {}).expect("it loads");
            let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 2000);
            let session = model.open(&cache).expect("a session");
            // one row, few, many, more than a kernel sees at a time
            for n in [1, 3, 40, 600] {
                let tokens: Vec<u32> = (0..n).map(|i| (i * 7 + n) % VOCAB as u32).collect();
                for outputs in [Outputs::LAST, Outputs::ALL, Outputs::NONE] {
                    model.truncate(session, 0).expect("a shorter session");
                    let sequence =
                        Sequence { session, tokens: &tokens, outputs, prompt: None, rows: &[] };
                    let out =
                        model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
                    let out = out.expect("a step").into_logits();
                    let want = LogitRows::new(out.logits.clone(), out.vocab_size);
                    assert_eq!(out.rows().len(), outputs.count(n as usize));
                    assert_eq!(out.peaks, want.peaks, "{n} rows, {threads} threads, {scaled}");
                }
            }
        }
    }
}
