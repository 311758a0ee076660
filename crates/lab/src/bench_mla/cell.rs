//! A form of latent attention at one context: what it has to do, what that takes at least, what it took.

use std::fmt::{Display, Formatter};
use std::time::Duration;

use cpu::{MlaDims, MlaForm};
use planner::{Machine, Prediction, Resource, Work};
use program::{CacheType, Ceilings};
use quant::GgmlType;

use super::layer::{MlaLayer, MlaMeasure};

/// Published layers.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// DeepSeek-V2: 128 heads.
    V2,
    /// DeepSeek-V2-Lite: 16 heads.
    V2Lite,
}

impl Shape {
    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::V2 => "DeepSeek-V2",
            Shape::V2Lite => "DeepSeek-V2-Lite",
        }
    }

    /// As it is written on the command line.
    pub(super) fn key(self) -> &'static str {
        match self {
            Shape::V2 => "v2",
            Shape::V2Lite => "v2-lite",
        }
    }

    pub(super) fn n_heads(self) -> usize {
        match self {
            Shape::V2 => 128,
            Shape::V2Lite => 16,
        }
    }

    fn dims(self) -> MlaDims {
        let n_heads = self.n_heads();
        MlaDims { n_heads, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 }
    }
}

/// What the cells of a row of the table share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) shape: Shape,
    pub(super) form: MlaForm,
    /// New tokens.
    pub(super) queries: usize,
}

/// What one cell is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) shape: Shape,
    pub(super) form: MlaForm,
    /// New tokens.
    pub(super) queries: usize,
    /// Positions before them.
    pub(super) context: usize,
    pub(super) ty: GgmlType,
    pub(super) cache: CacheType,
}

impl Load {
    pub(super) fn row(&self) -> Row {
        let Load { shape, form, queries, .. } = *self;
        Row { shape, form, queries }
    }

    /// The layer to measure.
    pub(super) fn layer(&self) -> MlaLayer {
        let (hidden_size, q_rank) = match self.shape {
            Shape::V2 => (5120, Some(1536)),
            Shape::V2Lite => (2048, None),
        };
        let Load { ty, cache, .. } = *self;
        MlaLayer { dims: self.shape.dims(), hidden_size, q_rank, ty, cache }
    }

    /// Bytes of the cache with the new tokens in it.
    pub(super) fn cache_bytes(&self) -> u64 {
        let positions = (self.context + self.queries) as u64;
        self.cache.bytes(self.shape.dims().cache_elements(self.form)).saturating_mul(positions)
    }

    fn matrix_bytes(&self) -> u64 {
        let weights = self.shape.dims().up_weights();
        weights / self.ty.block_len() as u64 * self.ty.block_bytes() as u64
    }

    /// Bytes that are read at least: the context, and the heads' small matrices.
    pub(super) fn bytes(&self) -> u64 {
        self.matrix_bytes().saturating_add(self.cache_bytes())
    }

    /// Bytes of memory to have before it is measured, roughly: cache, matrices in both directions, queries and results.
    pub(super) fn memory(&self) -> u64 {
        let MlaDims { n_heads, rank, rope_dim, .. } = self.shape.dims();
        let rows = (4 * self.queries * n_heads * (2 * rank + rope_dim)) as u64;
        let matrices = 12 * self.matrix_bytes();
        self.cache_bytes().saturating_add(matrices).saturating_add(2 * rows)
    }

    /// FLOP of the attention: 2 per multiply-add.
    pub(super) fn flop(&self) -> u64 {
        let [context, queries] = [self.context, self.queries].map(|n| n as u64);
        2 * self.shape.dims().macs(self.form, context, queries)
    }

    /// The work behind the limit. Products with weights in blocks are of 8-bit integers, attention is in floating point.
    fn work(&self) -> Work {
        let bytes = self.bytes();
        let (dims, form) = (self.shape.dims(), self.form);
        let [context, queries] = [self.context, self.queries].map(|n| n as u64);
        let with_weights =
            dims.token_macs(form) * queries + dims.position_macs(form) * (context + queries);
        let blocks = self.ty.block_len() > 1;
        let int8_macs = if blocks { with_weights } else { 0 };
        Work {
            weight_bytes: bytes,
            most_weight_bytes: bytes,
            int8_macs,
            f32_macs: self.flop() / 2 - int8_macs,
            ..Work::default()
        }
    }
}

impl Display for Load {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Load { queries, context, .. } = self;
        write!(f, "{} {}: {queries} on {context}", self.shape.key(), self.form.name())
    }
}

/// The least time that a machine allows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Least {
    /// 0 if the machine was not measured.
    pub(super) seconds: f64,
    /// What binds.
    pub(super) by: Option<Resource>,
}

impl Least {
    /// Of a form that reads what it must once.
    pub(super) fn new(load: &Load, ceilings: &Ceilings, threads: usize) -> Least {
        let Some(machine) = Machine::measured(ceilings, threads, load.bytes()) else {
            return Least::default();
        };
        let least = Prediction::of_work(&load.work(), &machine);
        // arithmetic of both kinds is done by the same cores
        let compute = least.int8 + least.f32;
        let by = match compute > least.memory {
            true if least.int8 > least.f32 => Resource::Int8,
            true => Resource::F32,
            false => Resource::Memory,
        };
        Least { seconds: least.memory.max(compute), by: Some(by) }
    }
}

/// A cell of the tables.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) load: Load,
    /// What was measured, or why nothing was.
    pub(super) result: Result<MlaMeasure, String>,
}

impl Cell {
    /// Seconds of the attention, the median.
    pub(super) fn attention(&self) -> Option<f64> {
        median(&self.result.as_ref().ok()?.attention)
    }

    /// Seconds of the whole layer, the median.
    pub(super) fn layer(&self) -> Option<f64> {
        median(&self.result.as_ref().ok()?.layer)
    }
}

fn median(times: &[Duration]) -> Option<f64> {
    let mut times: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    match times.len() {
        0 => None,
        n if n % 2 == 0 => Some((times[middle - 1] + times[middle]) / 2.0),
        _ => Some(times[middle]),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use program::{ComputeCeiling, ReadCeiling};

    use super::*;

    /// 10 GB/s, 100 GFLOP/s, 400 GOP/s.
    pub(in super::super) fn ceilings() -> Ceilings {
        Ceilings {
            read: vec![ReadCeiling { threads: 2, working_set: 1 << 30, bytes_per_second: 1e10 }],
            compute: vec![ComputeCeiling {
                threads: 2,
                f32_macs_per_second: 5e10,
                int8_macs_per_second: 2e11,
            }],
            barrier: Duration::ZERO,
            submission: Duration::ZERO,
        }
    }

    pub(in super::super) fn load(form: MlaForm, queries: usize) -> Load {
        let (ty, cache) = (GgmlType::Q8_0, CacheType::F16);
        Load { shape: Shape::V2, form, queries, context: 1000, ty, cache }
    }

    #[test]
    fn costs_are_those_of_the_executor() {
        for shape in [Shape::V2, Shape::V2Lite] {
            for form in MlaForm::ALL {
                let load = Load { shape, ..load(form, 16) };
                let dims = load.layer().dims;
                assert_eq!(load.flop(), 2 * dims.macs(form, 1000, 16));
                assert_eq!(load.cache_bytes(), 1016 * 2 * dims.cache_elements(form));
                assert!(load.memory() > load.cache_bytes() + 2 * load.matrix_bytes());
            }
        }
        assert_eq!(load(MlaForm::Elided, 1).matrix_bytes(), 16_777_216 / 32 * 34);
    }

    #[test]
    fn each_form_has_its_own_limit() {
        let least = |form| Least::new(&load(form, 1), &ceilings(), 2);
        let near = |least: Least, seconds: f64| {
            assert!((least.seconds / seconds - 1.0).abs() < 0.01, "{least:?} {seconds}");
        };
        // 17.8 MB of matrices, 82 MB of keys and values
        near(least(MlaForm::Expanded), (17.83e6 + 82.0e6) / 1e10);
        // 1001 positions of 16.8 M multiply-adds in 8 bits, 41 M in f32
        let compressed = least(MlaForm::Compressed);
        near(compressed, 1001.0 * (16.78e6 / 2e11 + 40_960.0 / 5e10));
        assert_eq!(compressed.by, Some(Resource::Int8));
        near(least(MlaForm::Elided), 16.78e6 / 2e11 + 1001.0 * 139_264.0 / 5e10);
        assert_eq!(least(MlaForm::Elided).by, Some(Resource::F32));
        let unknown = load(MlaForm::Elided, 1);
        assert_eq!(Least::new(&unknown, &ceilings(), 7), Least::default());
    }

    #[test]
    fn medians() {
        let times = |ms: &[u64]| {
            median(&ms.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>())
        };
        assert_eq!(times(&[]), None);
        assert_eq!(times(&[3000, 1000, 2000]), Some(2.0));
        assert_eq!(times(&[1000, 2000]), Some(1.5));
    }
}
