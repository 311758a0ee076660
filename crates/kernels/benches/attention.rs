//! Attention over a cache of 4096 keys: the step form in bytes of cache per second, the prompt form in FLOP per second
//! (elements), per kernel.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kernels::Isa;
use kernels::attention::{
    ATTEND, BLOCK, ElemType, HeadBlock, HeadShape, MERGE, Partials, QueryRows, Seen, scratch_floats,
};

const KEYS: usize = 4096;

/// Keys and values of one head, block after block.
struct Cache {
    shape: HeadShape,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Cache {
    /// `copies` distinct caches' worth of blocks, so that reads come from memory.
    fn new(shape: HeadShape, copies: usize) -> Cache {
        let blocks = KEYS / BLOCK * copies;
        let (mut keys, mut values) =
            (vec![0; blocks * shape.key_bytes()], vec![0; blocks * shape.value_bytes()]);
        let row: Vec<f32> = (0..shape.key_dim).map(|d| (d as f32 * 0.7).sin()).collect();
        for position in 0..blocks * BLOCK {
            let (block, at) = (position / BLOCK, position % BLOCK);
            shape.store_key(&mut keys[block * shape.key_bytes()..][..shape.key_bytes()], at, &row);
            let row = &row[..shape.value_dim];
            shape.store_value(
                &mut values[block * shape.value_bytes()..][..shape.value_bytes()],
                at,
                row,
            );
        }
        Cache { shape, keys, values }
    }

    fn blocks(&self, copy: usize) -> impl Iterator<Item = HeadBlock<'_>> {
        let keys = self.keys.chunks_exact(self.shape.key_bytes());
        let values = self.values.chunks_exact(self.shape.value_bytes());
        let blocks = keys.zip(values).skip(copy * (KEYS / BLOCK)).take(KEYS / BLOCK);
        blocks.map(|(keys, values)| HeadBlock { shape: self.shape, keys, values })
    }

    fn bytes(&self) -> usize {
        (self.shape.key_bytes() + self.shape.value_bytes()) * (KEYS / BLOCK)
    }
}

/// `n` rows that see all keys.
fn attend(c: &mut Criterion, group: &str, n: usize, copies: usize) {
    let mut group = c.benchmark_group(group);
    for (dim, ty) in
        [(64, ElemType::F16), (128, ElemType::F16), (64, ElemType::Q8_0), (64, ElemType::F32)]
    {
        let shape = HeadShape { key_dim: dim, value_dim: dim, k: ty, v: ty };
        let cache = Cache::new(shape, copies);
        if copies > 1 {
            group.throughput(Throughput::Bytes(cache.bytes() as u64));
        } else {
            group.throughput(Throughput::Elements((4 * n * KEYS * dim) as u64));
        }
        let (q, seen) = (vec![0.1; n * dim], vec![Seen::first(BLOCK); n]);
        let rows = QueryRows::plain(&q, &seen);
        let mut memory = vec![0.0; 2 * Partials::floats(n, &shape)];
        let (state, part) = memory.split_at_mut(Partials::floats(n, &shape));
        let (mut state, mut part) =
            (Partials::new(state, n, &shape), Partials::new(part, n, &shape));
        let mut scratch = vec![0.0; scratch_floats(n, &shape)];
        for kernel in ATTEND.available(Isa::detect()).filter(|kernel| kernel.isa() != Isa::NONE) {
            let merge = MERGE.pick(kernel.isa());
            let mut copy = 0;
            group.bench_function(
                BenchmarkId::new(format!("{}/{ty:?}", kernel.name()), format!("{n}x{dim}")),
                |b| {
                    b.iter(|| {
                        state.clear();
                        for block in cache.blocks(copy) {
                            kernel.call(&block, &rows, &mut part, &mut scratch);
                            merge.call(&mut state, &part);
                        }
                        copy = (copy + 1) % copies;
                        black_box(&state);
                    });
                },
            );
        }
    }
}

/// A step: the query heads of one group; the cache comes from memory.
fn step(c: &mut Criterion) {
    for n in [1, 4, 6, 7] {
        attend(c, "attend/step", n, 128);
    }
}

/// A prompt: 64 rows; the cache is in a near cache. Beside it the heads of a step, to tell arithmetic from memory.
fn prompt(c: &mut Criterion) {
    attend(c, "attend/near", 6, 1);
    attend(c, "attend/prompt", 64, 1);
}

criterion_group!(benches, step, prompt);
criterion_main!(benches);
