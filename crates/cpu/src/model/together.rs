//! Threads, models and panics on one team.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use conformance::{MemoryWeights, tiny_config, tiny_model};
use program::{CacheOptions, CacheType, Model, Outputs, Rows, Sequence, Step, StepOut};
use quant::GgmlType;

use super::CpuModel;
use crate::plan::Job;
use crate::schedule::LoadedPhase;
use crate::{Cpu, Options};

const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 400);

fn cpu(threads: usize) -> Cpu {
    Cpu::new(&Options { threads: Some(threads), ..Options::default() })
}

fn load(cpu: &Cpu, architecture: &str) -> CpuModel {
    let program = tiny_model(&tiny_config(architecture, 64, false), GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 5);
    CpuModel::load(program, &weights, cpu.workshop(), &mut |_| {}).expect("it loads")
}

/// The logits of a prompt and some steps of a session of its own.
fn chat(model: &CpuModel, seed: u32, steps: usize) -> Vec<f32> {
    let session = model.open(&CACHE).expect("a session");
    let mut logits = Vec::new();
    for step in 0..=steps as u32 {
        let prompt: Vec<u32> =
            (0..if step == 0 { 150 } else { 1 }).map(|i| (seed * 31 + step * 7 + i) % 97).collect();
        let sequence =
            Sequence { session, tokens: &prompt, outputs: Outputs::LAST, prompt: None, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        logits.extend(out.expect("a step").into_logits().logits);
    }
    model.close(session);
    logits
}

/// Every chat by a thread of its own, at the same time; equal to the same chats alone.
fn together(chats: &[(&CpuModel, u32)]) {
    let alone: Vec<_> = chats.iter().map(|(model, seed)| chat(model, *seed, 12)).collect();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let running: Vec<_> = chats
                .iter()
                .map(|&(model, seed)| scope.spawn(move || chat(model, seed, 12)))
                .collect();
            for (running, alone) in running.into_iter().zip(&alone) {
                assert!(running.join().expect("no panic") == *alone, "other bits beside others");
            }
        });
    }
}

#[test]
fn two_threads_share_a_model() {
    for architecture in ["qwen2", "qwen3moe", "deepseek2"] {
        let model = load(&cpu(2), architecture);
        together(&[(&model, 1), (&model, 2)]);
    }
}

#[test]
fn two_models_share_a_team() {
    let cpu = cpu(3);
    let models = ["qwen3", "deepseek2"].map(|architecture| load(&cpu, architecture));
    together(&[(&models[0], 1), (&models[1], 2), (&models[0], 3)]);
}

/// The width of what a linear phase of many rows writes first.
fn width(model: &mut CpuModel, phase: usize) -> Option<&mut usize> {
    let LoadedPhase::Linear(linear) = &mut model.schedule.phases[phase] else { return None };
    let (Job::One { out, .. } | Job::Gated { out, .. }) = &mut linear.jobs[0].job;
    (out.rows == Rows::Tokens).then_some(&mut out.cols)
}

/// A phase that cannot run stops the step on whichever worker meets it; sessions, other models and later steps go on.
#[test]
fn a_panic_inside_a_step_harms_nothing_else() {
    for threads in 1..=3 {
        let cpu = cpu(threads);
        let (mut model, other) = (load(&cpu, "qwen3moe"), load(&cpu, "qwen2"));
        let (expected, of_other) = (chat(&model, 1, 3), chat(&other, 2, 3));
        for phase in 0..model.schedule.phases.len() {
            let Some(cols) = width(&mut model, phase) else { continue };
            // all rows but the first are written far outside of any buffer
            let right = std::mem::replace(cols, 1 << 40);
            let caught = catch_unwind(AssertUnwindSafe(|| chat(&model, 1, 3)));
            let Err(panic) = caught else { panic!("phase {phase} cannot run") };
            let said = panic.downcast_ref::<&str>().copied().unwrap_or("something else");
            assert_eq!(said, "part outside the shared slice", "the cause, not who waited for it");
            assert!(chat(&other, 2, 3) == of_other, "another model on the same team");
            width(&mut model, phase).into_iter().for_each(|cols| *cols = right);
        }
        assert!(chat(&model, 1, 3) == expected, "{threads} threads: the same model, repaired");
        assert_eq!(Arc::strong_count(&model.pool), 3);
    }
}
