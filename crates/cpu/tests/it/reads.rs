//! What kernels read of the matrices, counted as they run, against what the program says.

use std::collections::BTreeSet;
use std::sync::Arc;

use conformance::{MemoryWeights, tiny_config, tiny_model, trace};
use cpu::{Cpu, Options};
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheType, Executor, Model, Op, Outputs, Program, Sequence, Step, StepOut,
    WeightSpec,
};
use quant::GgmlType;

/// A model of 2 layers, 64 wide.
fn program(architecture: &str, ty: GgmlType) -> Arc<Program> {
    tiny_model(&tiny_config(architecture, 64, false), ty)
}

fn load(executor: &dyn Executor, program: &Arc<Program>) -> Box<dyn Model> {
    let weights = MemoryWeights::random(program, 3);
    executor.load(Arc::clone(program), &weights, &mut |_| ()).expect("it loads")
}

fn cpu(threads: usize) -> Cpu {
    Cpu::new(&Options { threads: Some(threads), ..Options::default() })
}

/// Bytes that phases of this kind read in steps over `tokens` in chunks, by step.
fn read(model: &dyn Model, tokens: &[u32], chunk: usize, kind: &str, outputs: Outputs) -> Vec<u64> {
    let cache = CacheOptions::new(CacheType::F32, CacheType::F32, tokens.len());
    let session = model.open(&cache).expect("it opens");
    let read = tokens.chunks(chunk).map(|tokens| {
        let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
        model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single).expect("it steps");
        let phases = model.phases();
        phases.iter().filter(|phase| phase.kind == kind).map(|phase| phase.weight_bytes).sum()
    });
    let read = read.collect();
    model.close(session);
    read
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 7 % 97) as u32).collect()
}

/// Bytes of a matrix in panels of 16 rows.
fn in_panels(spec: &WeightSpec, rows: usize) -> u64 {
    spec.ty.row_bytes(spec.cols).expect("whole blocks") as u64 * rows.next_multiple_of(16) as u64
}

/// A pass reads each matrix of layers and head once, however many rows share it: a prompt in chunks reads the model
/// once for each chunk, token by token once for each token.
#[test]
fn a_pass_reads_each_matrix_once() {
    for ty in [GgmlType::F32, GgmlType::Q8_0] {
        let program = program("qwen2", ty);
        let matrices = program.nodes.iter().filter_map(|node| match node.op {
            Op::Linear { weight, .. } => Some(program.weight(weight)),
            _ => None,
        });
        let held: u64 = matrices.map(|spec| in_panels(spec, spec.rows)).sum();
        for threads in [1, 2, 3] {
            let model = load(&cpu(threads), &program);
            assert_eq!(model.stats().weight_bytes_per_step, held, "{ty} packs as it is");
            for (n, chunk) in [(1, 1), (5, 1), (40, 40), (96, 32), (500, 500), (512, 128)] {
                let read = read(&*model, &tokens(n), chunk, "linear", Outputs::ALL);
                assert_eq!(read, vec![held; n.div_ceil(chunk)], "{ty}: {n} by {chunk}");
            }
            // of more rows than stay in a core's cache, the panels are read again
            let read_again = read(&*model, &tokens(600), 600, "linear", Outputs::ALL);
            assert_eq!(read_again, [2 * held]);
            // the head is not read where no logits are wanted
            let mut weights = program.weights.iter();
            let head = weights.find(|spec| spec.name == "output.weight").expect("a head");
            let read = read(&*model, &tokens(40), 40, "linear", Outputs::NONE);
            let without = held - in_panels(head, head.rows);
            assert!(read[0] <= without, "{read:?} {without} {}", head.name);
        }
    }
}

/// Of experts a pass reads those that its rows use, each once: counted again from the routes that the interpreter takes.
#[test]
fn a_pass_reads_the_experts_in_use_once() {
    let program = program("qwen3moe", GgmlType::F32);
    let oracle = load(&Interpreter, &program);
    let experts = program.nodes.iter().filter_map(|node| match &node.op {
        Op::Experts { gate, up, down, n_experts, .. } => {
            Some((node.inputs[1], [*gate, *up, *down], *n_experts))
        }
        _ => None,
    });
    let experts: Vec<_> = experts.collect();
    assert_eq!(experts.len(), 2);
    for n in [1, 2, 3, 40] {
        let tokens = tokens(n);
        let values = trace(&*oracle, &tokens).expect("it keeps values").values;
        let want: u64 = experts
            .iter()
            .map(|(routes, matrices, n_experts)| {
                let name = &program.value(*routes).name;
                let routes = values.iter().find(|value| value.name == *name).expect("routes");
                let n_used = routes.cols / 2;
                let ids = routes.data.chunks_exact(routes.cols).flat_map(|row| &row[..n_used]);
                let used: BTreeSet<u32> = ids.map(|id| *id as u32).collect();
                let one = matrices.map(|id| {
                    let spec = program.weight(id);
                    in_panels(spec, spec.rows / n_experts)
                });
                used.len() as u64 * one.iter().sum::<u64>()
            })
            .sum();
        for threads in [1, 2] {
            let model = load(&cpu(threads), &program);
            let read = read(&*model, &tokens, n, "experts", Outputs::ALL);
            assert_eq!(read, [want], "{n} rows, {threads} threads");
        }
    }
}

/// Latent attention reads the matrices of its heads, once where queries are absorbed.
#[test]
fn latent_attention_counts_its_matrices() {
    let program = program("deepseek2", GgmlType::F32);
    let model = load(&cpu(2), &program);
    let absorbed = read(&*model, &tokens(40), 20, "attention", Outputs::ALL);
    let held: u64 = program
        .nodes
        .iter()
        .filter(|node| matches!(node.op, Op::LatentAttention(_)))
        .flat_map(|node| node.op.facts().weights)
        .map(|used| program.weight(used.id))
        .filter(|spec| spec.rows > 1)
        .map(|spec| in_panels(spec, spec.rows))
        .sum();
    assert_eq!(absorbed, [held, held]);
}
