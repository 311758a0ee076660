//! Weights whose numbers are hard to read: scales that are no normal half floats, many parts, odd shapes.

use std::sync::Arc;

use conformance::{Made, MemoryWeights, Random, assert_close, tiny_config, tiny_model};
use gpu::{GpuExecutor, GpuOptions};
use program::{
    Attention, CacheKind, CacheOptions, CacheSpec, CacheType, Executor, KernelShape, KernelTuning,
    LinearWeight, Model, OutputKind, Outputs, ProductType, Program, Recorder, Sequence, Step,
    StepOut, WeightSpec,
};
use quant::GgmlType;

use crate::{device, open};

const ROWS: usize = 77;

/// A table, a product of its rows, and the table again as the head.
fn program(ty: GgmlType, cols: usize) -> Arc<Program> {
    let r = Recorder::new();
    let weight =
        |name: &str, rows, ty| r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 });
    let table = weight("token_embd.weight", ROWS, ty);
    let x = r.embed(table).expect("it embeds");
    let square = LinearWeight::from(weight("square", cols, ty));
    let y = r.linear("y", x, square).expect("it fits");
    let rows = r.select_rows("rows", y).expect("rows are selected");
    let logits = r.linear("logits", rows, LinearWeight::from(table)).expect("it fits");
    Arc::new(r.finish(&[(OutputKind::Logits, logits)]))
}

/// Rows so long that more lanes share them: by one chunk more than they are shared out evenly, and by a few less; their sums
/// through memory and, where the device has them, through subgroups.
#[test]
fn long_rows() {
    let Some(device) = open() else { return };
    let r = Recorder::new();
    let weight = |name: &str, ty, rows, cols| {
        r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 })
    };
    let x = r.embed(weight("token_embd.weight", GgmlType::F32, ROWS, 64)).expect("it embeds");
    let up = LinearWeight::from(weight("up", GgmlType::F32, 4128, 64));
    let wide = r.linear("wide", x, up).expect("it fits");
    let mut sum = None;
    for (ty, cols) in [(GgmlType::Q8_0, 4128), (GgmlType::Q4K, 2048), (GgmlType::F16, 3990)] {
        let name = format!("down.{ty}");
        let part = r.slice(&format!("part.{ty}"), wide, 0, cols).expect("it is within");
        let down = LinearWeight::from(weight(&name, ty, 65, cols));
        let y = r.linear(&format!("y.{ty}"), part, down).expect("it fits");
        sum = Some(sum.map_or(y, |sum| r.add(&format!("sum.{ty}"), sum, y).expect("alike")));
    }
    let rows = r.select_rows("rows", sum.expect("some were added")).expect("rows are selected");
    let program = Arc::new(r.finish(&[(OutputKind::Logits, rows)]));
    let weights = MemoryWeights::random(&program, 7);
    compare(&device, &program, &weights, "long rows");
    let shape = |ty, at_once| {
        let (rows, teams, product) = (4, 4, ProductType::F32);
        KernelShape { ty, at_once, rows, teams, product, subgroups: true }
    };
    let types = [GgmlType::Q8_0, GgmlType::Q4K, GgmlType::F16];
    let shapes: Vec<_> = types.iter().flat_map(|ty| [1, 4].map(|n| shape(*ty, n))).collect();
    device.set_shapes(&shapes);
    compare(&device, &program, &weights, "long rows by subgroups");
}

/// Selected rows of a slice that begins where no product can read, and selected rows that a product and a norm read.
#[test]
fn selections_that_are_made() {
    let Some(device) = device() else { return };
    let r = Recorder::new();
    let weight = |name: &str, rows, cols| {
        let ty = GgmlType::F32;
        r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 })
    };
    let x = r.embed(weight("token_embd.weight", ROWS, 96)).expect("it embeds");
    // attention reads all rows of it
    let part = r.slice("part", x, 3, 64).expect("it is within");
    let kind = CacheKind::Heads { n_kv_heads: 1, key_dim: 64, value_dim: 64, window: None };
    let at = Attention::causal(r.cache(CacheSpec { layer: 0, kind }), None, 0.1);
    let attended = r.attention("attended", at, &[part; 3]).expect("it attends");
    let rows = r.select_rows("rows", part).expect("rows are selected");
    let y = r.linear("y", rows, LinearWeight::from(weight("y", 96, 64))).expect("it fits");
    let rows = r.select_rows("attended rows", attended).expect("rows are selected");
    let seen = r.linear("seen", rows, LinearWeight::from(weight("seen", 96, 64))).expect("it fits");
    let y = r.add("both", y, seen).expect("they are alike");
    let beside = r.select_rows("beside", x).expect("rows are selected");
    let norm = r.rms_norm("norm", beside, weight("norm", 1, 96), 1e-6).expect("it fits");
    let z = r.linear("z", beside, LinearWeight::from(weight("z", 96, 96))).expect("it fits");
    let sum = r.add("sum", y, norm).expect("they are alike");
    let logits = r.add("logits", sum, z).expect("they are alike");
    let program = Arc::new(r.finish(&[(OutputKind::Logits, logits)]));
    compare(device, &program, &MemoryWeights::random(&program, 4), "selections");
}

fn logits(model: &dyn Model, tokens: &[u32]) -> Vec<f32> {
    let options = CacheOptions::new(CacheType::F32, CacheType::F32, 64);
    let session = model.open(&options).expect("a session opens");
    let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    model.close(session);
    out.expect("a step").into_logits().logits
}

/// Rows that go three ways through a matrix: one, a few, a tile of many.
const WIDTHS: [usize; 3] = [1, 6, 30];

fn compare(device: &dyn Executor, program: &Arc<Program>, weights: &MemoryWeights, what: &str) {
    let made = Made::with(device, program, weights);
    for n in WIDTHS {
        let tokens = Random::new(n as u64).tokens(n, ROWS);
        let (found, want) = (logits(&*made.tested, &tokens), logits(&*made.oracle, &tokens));
        assert_close(&found, &want, 1e-9, &format!("{what}, {n} rows"));
    }
}

/// Scales of real models are that small: a device that takes them for zero would compute nonsense.
#[test]
fn scales_below_normal_half_floats() {
    let Some(device) = device() else { return };
    for ty in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q6K, GgmlType::Q4K, GgmlType::Q2K] {
        let program = program(ty, 256);
        let mut weights = MemoryWeights::random(&program, 4);
        for spec in &program.weights {
            let random = &mut Random::new(8);
            let tiny = |_| (random.normal() * 2e-4) as f32;
            weights.set(spec, &(0..spec.rows * spec.cols).map(tiny).collect::<Vec<_>>());
        }
        compare(device, &program, &weights, &format!("tiny scales of {ty}"));
    }
}

/// The device, as if it had no larger buffers.
fn small(most_bytes: u64) -> Option<GpuExecutor> {
    device()?;
    let options = GpuOptions { most_bytes: Some(most_bytes), ..crate::options() };
    Some(GpuExecutor::open(&options).expect("it opened"))
}

/// Buffers of a device end somewhere: a matrix is then some parts, each with its own planes.
#[test]
fn matrices_in_parts() {
    // just enough for 32 rows of values
    let Some(small) = small(64 << 10) else { return };
    for ty in [GgmlType::F32, GgmlType::Q4_0, GgmlType::Q5K] {
        let program = program(ty, 512);
        let weights = MemoryWeights::random(&program, 4);
        compare(&small, &program, &weights, &format!("{ty} in parts"));
    }
}

/// A table is looked up in those of its parts that have a token of the step.
#[test]
fn a_table_in_parts() {
    let Some(small) = small(96 << 10) else { return };
    for architecture in ["qwen2", "gemma2"] {
        let program = tiny_model(&tiny_config(architecture, 256, false), GgmlType::F32);
        let weights = MemoryWeights::random(&program, 4);
        let made = Made::with(&small, &program, &weights);
        let mut dispatched = [[3, 4], [3, 96], [96, 96]].map(|tokens| {
            let before = small.counts().dispatches;
            let (found, want) = (logits(&*made.tested, &tokens), logits(&*made.oracle, &tokens));
            assert_close(&found, &want, 1e-9, &format!("{architecture}: {tokens:?}"));
            small.counts().dispatches - before
        });
        // rows 0 to 95 are in one part, the last in another
        dispatched[1] -= 1;
        assert_eq!(dispatched, [dispatched[0]; 3], "{architecture}");
    }
}

/// The same of experts and of what latents become keys and values by, of which parts have some.
#[test]
fn pieces_in_parts() {
    let Some(small) = small(256 << 10) else { return };
    for (architecture, joint) in [("qwen2moe", false), ("deepseek2", false), ("deepseek2", true)] {
        let mut config = tiny_config(architecture, 256, false);
        for latent in config.layers.iter_mut().filter_map(|layer| layer.latent.as_mut()) {
            latent.joint = joint;
        }
        let program = tiny_model(&config, GgmlType::F32);
        let weights = MemoryWeights::random(&program, 4);
        compare(&small, &program, &weights, &format!("{architecture} in parts, joint {joint}"));
    }
}

/// Keys for whose queries there is no room in workgroup memory.
#[test]
fn wide_heads() {
    let Some(device) = device() else { return };
    for (key_dim, value_dim) in [(258, 64), (512, 512), (1024, 100)] {
        let mut config = tiny_config("llama", 64, false);
        for layer in &mut config.layers {
            (layer.head_dim, layer.value_dim) = (key_dim, value_dim);
        }
        let program = tiny_model(&config, GgmlType::F32);
        let weights = MemoryWeights::random(&program, 4);
        compare(device, &program, &weights, &format!("keys of {key_dim}, values of {value_dim}"));
    }
}
