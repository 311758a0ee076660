//! What recurs, on the matrix of a head: rows that change it one after another, in numbers of the matrix per second, per
//! kernel. Shapes of Qwen3.5 (a delta net), Mamba-2 and RWKV 7.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kernels::Isa;
use kernels::scan::{KEY_FIELDS, SCAN, ScanForm, ScanRows};

const SHAPES: &[(ScanForm, usize, usize)] =
    &[(ScanForm::Delta, 128, 128), (ScanForm::Linear, 128, 64), (ScanForm::Wkv7, 64, 64)];

/// `n` rows; `reads`: what they read is wanted.
fn scan(c: &mut Criterion, group: &str, n: usize, reads: bool) {
    let mut group = c.benchmark_group(group);
    for &(form, key_dim, width) in SHAPES {
        let numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|i| 0.5 + 0.1 * (i as f32 * 0.7).sin()).collect()
        };
        let (keyed, values) = (numbers(n * KEY_FIELDS * key_dim), numbers(n * width));
        let (from, betas) = (numbers(key_dim * width), numbers(n));
        let rows = ScanRows {
            form,
            key_dim,
            from: Some(&from),
            keyed: &keyed,
            values: &values,
            betas: &betas,
        };
        let (mut state, mut out) = (from.clone(), values.clone());
        group.throughput(Throughput::Elements((n * key_dim * width) as u64));
        for kernel in SCAN.available(Isa::detect()).filter(|kernel| kernel.isa() != Isa::NONE) {
            let id = BenchmarkId::new(
                format!("{}/{form:?}", kernel.name()),
                format!("{n}x{key_dim}x{width}"),
            );
            group.bench_function(id, |b| {
                b.iter(|| {
                    kernel.call(&rows, &mut state, reads.then_some(&mut out[..]));
                    black_box((&state, &out));
                });
            });
        }
    }
}

/// Rows of a prompt, and those since the last snapshot before a step.
fn rows(c: &mut Criterion) {
    scan(c, "scan/prompt", 16, true);
    scan(c, "scan/again", 5, false);
    scan(c, "scan/step", 1, true);
}

criterion_group!(benches, rows);
criterion_main!(benches);
