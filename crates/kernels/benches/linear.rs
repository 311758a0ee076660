//! Panel products: bytes of weights for one activation row, which is bound by memory, multiplications for many,
//! which are bound by arithmetic; and a plain read of the same bytes as the ceiling of the first.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kernels::Isa;
use kernels::linear::{
    ActFormat, Activations, F32Rows, LinearKernel, PANEL_ROWS, Q8_WHOLE, Q8Rows, QUANTIZE_Q8,
    linear_kernels,
};

const COLS: usize = 2816;
/// More than a cache holds.
const WEIGHTS: usize = 288 << 20;
/// Panels per call.
const PANELS: usize = 16;

/// Activation rows in both formats.
struct Rows {
    x: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
    n: usize,
}

impl Rows {
    fn new(n: usize) -> Rows {
        let x: Vec<f32> = (0..n * COLS).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect();
        let (mut codes, mut scales) = (vec![0; n * COLS], vec![0.0; n * COLS / 32]);
        let mut sums = vec![0; n * COLS / 16];
        let quantize = QUANTIZE_Q8.pick(Isa::detect());
        quantize.call(&x, Q8_WHOLE, &mut codes, &mut scales, &mut sums);
        Rows { x, codes, scales, sums, n }
    }

    fn get(&self, format: ActFormat) -> Activations<'_> {
        let (n, cols, stride) = (self.n, COLS, COLS);
        match format {
            ActFormat::F32 => Activations::F32(F32Rows { x: &self.x, n, cols, stride, pick: None }),
            ActFormat::Q8(_) => Activations::Q8(Q8Rows {
                codes: &self.codes,
                scales: &self.scales,
                sums: &self.sums,
                n,
                cols,
                block: Q8_WHOLE,
                stride,
                pick: None,
            }),
        }
    }
}

fn available() -> impl Iterator<Item = &'static LinearKernel> {
    let isa = Isa::detect();
    linear_kernels().filter(move |k| isa.contains(k.isa()) && k.isa() != Isa::NONE)
}

/// Fills panels with one packed panel after another; the codes do not matter for the time.
fn weights(kernel: &LinearKernel, buffer: &mut [u8]) -> usize {
    let row: Vec<u8> =
        (0..kernel.ty().row_bytes(COLS).unwrap_or(0)).map(|i| (i * 37 % 59) as u8).collect();
    let bytes = kernel.panel_bytes(COLS);
    let used = buffer.len() / (PANELS * bytes) * PANELS * bytes;
    for panel in buffer[..used].chunks_exact_mut(bytes) {
        kernel.pack(&[row.as_slice(); PANEL_ROWS], COLS, panel);
    }
    used
}

fn gemv(c: &mut Criterion) {
    let mut group = c.benchmark_group("linear/gemv");
    group.sample_size(10);
    // Not zeros: untouched pages of zeros are one page, which would be read from the cache.
    let mut buffer = vec![1u8; WEIGHTS];
    let rows = Rows::new(1);
    group.throughput(Throughput::Bytes(WEIGHTS as u64));
    group.bench_function("read", |b| {
        b.iter(|| {
            black_box(&buffer).as_chunks::<8>().0.iter().fold(0, |a, w| a ^ u64::from_le_bytes(*w))
        });
    });
    for kernel in available() {
        let used = weights(kernel, &mut buffer);
        let mut tile = vec![0.0; PANELS * PANEL_ROWS];
        let x = rows.get(kernel.act_format());
        group.throughput(Throughput::Bytes(used as u64));
        group.bench_function(BenchmarkId::new(kernel.name(), 1), |b| {
            b.iter(|| {
                for panels in buffer[..used].chunks_exact(PANELS * kernel.panel_bytes(COLS)) {
                    kernel.run(panels, &x, &[], &mut tile, &mut []);
                }
            });
        });
    }
}

fn gemm(c: &mut Criterion) {
    let mut group = c.benchmark_group("linear/gemm");
    group.sample_size(10);
    for n in [8, 64, 512] {
        let rows = Rows::new(n);
        for kernel in available() {
            let mut panels = vec![0; PANELS * kernel.panel_bytes(COLS)];
            weights(kernel, &mut panels);
            let mut tile = vec![0.0; PANELS * PANEL_ROWS * n];
            let mut scratch = vec![0; kernel.scratch_bytes()];
            let x = rows.get(kernel.act_format());
            let tiling = kernel.tiling(n, COLS);
            let mut arranged = vec![0; tiling.map_or(0, |tiling| tiling.words())];
            for (tile, out) in
                arranged.chunks_exact_mut(tiling.map_or(1, |t| t.tile_words)).enumerate()
            {
                kernel.arrange(&x, tile, out);
            }
            group.throughput(Throughput::Elements((PANELS * PANEL_ROWS * COLS * n) as u64));
            group.bench_function(BenchmarkId::new(kernel.name(), n), |b| {
                b.iter(|| kernel.run(&panels, &x, &arranged, &mut tile, &mut scratch));
            });
        }
    }
}

criterion_group!(benches, gemv, gemm);
criterion_main!(benches);
