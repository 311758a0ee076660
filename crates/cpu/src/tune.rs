//! When rows are multiplied as they are and when in tiles: measured once for each kernel, when a model first needs it.
//!
//! Few rows are best multiplied while a panel streams past; with more of them it pays to unpack it once into the
//! first-level cache. Where the one overtakes the other depends on the machine. Bits do not depend on it.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernels::Isa;
use kernels::linear::{
    ActFormat, Activations, FEW_ROWS, LinearKernel, PANEL_ROWS, Q8Rows, Tiling, linear,
};
use quant::GgmlType;

use crate::geometry::MANY_ROWS_PANELS;

/// Columns of the matrices that are measured: whole blocks of every type.
const COLS: usize = 1024;
/// Bytes of their panels: more than a second-level cache.
const BYTES: usize = 4 << 20;
/// Each time is the best of so many.
const PASSES: usize = 5;
/// Tiles must be this much faster to be preferred: rows must be arranged, and a barrier passed, before them.
const GAIN: f64 = 0.95;

/// A kernel, and up to how many rows it reads as they are.
#[derive(Clone, Copy)]
pub(crate) struct TunedKernel {
    kernel: &'static LinearKernel,
    stream_rows: usize,
}

impl TunedKernel {
    /// Up to how many rows it reads them as they are.
    pub(crate) fn stream_rows(&self) -> usize {
        self.stream_rows
    }

    /// How `n` rows of `cols` columns are to be arranged; `None` if they are read as they are.
    pub(crate) fn tiling(&self, n: usize, cols: usize) -> Option<Tiling> {
        if n <= self.stream_rows { None } else { self.kernel.tiling(n, cols) }
    }
}

impl Deref for TunedKernel {
    type Target = LinearKernel;

    fn deref(&self) -> &LinearKernel {
        self.kernel
    }
}

impl PartialEq for TunedKernel {
    fn eq(&self, other: &TunedKernel) -> bool {
        std::ptr::eq(self.kernel, other.kernel)
    }
}

/// The kernels of an executor.
pub(crate) struct Tuning {
    isa: Isa,
    /// Rows that are read as they are, by the name of the kernel.
    found: Mutex<HashMap<&'static str, usize>>,
}

impl Tuning {
    /// Of kernels that `isa` allows.
    pub(crate) fn new(isa: Isa) -> Tuning {
        Tuning { isa, found: Mutex::default() }
    }

    /// Instruction sets that kernels may use.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// The kernel for weights of type `ty`; `None` for types that weights cannot have.
    pub(crate) fn linear(&self, ty: GgmlType) -> Option<TunedKernel> {
        let kernel = linear(ty, self.isa)?;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let stream_rows = *found.entry(kernel.name()).or_insert_with(|| stream_rows(kernel));
        Some(TunedKernel { kernel, stream_rows })
    }
}

/// Up to how many rows `kernel` is faster when it reads them as they are.
fn stream_rows(kernel: &LinearKernel) -> usize {
    let most = kernel.stream_rows();
    // plain kernels leave no choice
    let ActFormat::Q8(block) = kernel.act_format() else { return most };
    let trial = Trial::new(kernel, block, most);
    // from the most rows down, so that one disturbed figure ends the search early, on the side of streaming
    let tiled = (FEW_ROWS + 1..=most).rev().take_while(|n| {
        let [streamed, tiled] = trial.times(*n);
        tiled < GAIN * streamed
    });
    most - tiled.count()
}

/// Panels and rows to measure a kernel with.
struct Trial<'a> {
    kernel: &'a LinearKernel,
    block: usize,
    panels: Vec<u8>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

impl Trial<'_> {
    /// For up to `n` rows in blocks of `block` columns.
    fn new(kernel: &LinearKernel, block: usize, n: usize) -> Trial<'_> {
        let panel_bytes = kernel.panel_bytes(COLS);
        // as an f16, the scale of a block, this is 0.065
        let row = vec![0x2C; kernel.ty().row_bytes(COLS).unwrap_or(0)];
        let mut panel = vec![0; panel_bytes];
        kernel.pack(&[row.as_slice(); PANEL_ROWS], COLS, &mut panel);
        Trial {
            kernel,
            block,
            panels: panel.repeat(BYTES.div_ceil(panel_bytes)),
            codes: vec![64; n * COLS],
            scales: vec![0.01; n * COLS / 32],
            sums: vec![16 * 64; n * COLS / 16],
        }
    }

    /// `n` of the rows.
    fn rows(&self, n: usize) -> Activations<'_> {
        Activations::Q8(Q8Rows {
            codes: &self.codes,
            scales: &self.scales,
            sums: &self.sums,
            n,
            cols: COLS,
            block: self.block,
            stride: COLS,
            pick: None,
        })
    }

    /// The times for `n` rows as they are and in tiles, in seconds, taken in turn.
    fn times(&self, n: usize) -> [f64; 2] {
        let (kernel, x) = (self.kernel, self.rows(n));
        let mut arranged = Vec::new();
        if let Some(tiling) = kernel.tiling(n, COLS) {
            arranged.resize(tiling.words(), 0);
            for (tile, out) in arranged.chunks_exact_mut(tiling.tile_words).enumerate() {
                kernel.arrange(&x, tile, out);
            }
        }
        let mut scratch = vec![0; kernel.scratch_bytes()];
        let mut out = vec![0.0; MANY_ROWS_PANELS * n * PANEL_ROWS];
        let panel_bytes = kernel.panel_bytes(COLS);
        let mut best = [Duration::MAX; 2];
        for _ in 0..PASSES {
            for (best, arranged) in best.iter_mut().zip([&[][..], &arranged]) {
                let start = Instant::now();
                for panels in self.panels.chunks(MANY_ROWS_PANELS * panel_bytes) {
                    let out = &mut out[..panels.len() / panel_bytes * n * PANEL_ROWS];
                    kernel.run(panels, &x, arranged, out, &mut scratch);
                }
                *best = start.elapsed().min(*best);
            }
        }
        best.map(|time| time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conformance::{MemoryWeights, tiny_config, tiny_model};
    use kernels::linear::linear_kernels;
    use program::{CacheOptions, CacheType, Model, Outputs, Sequence, Step};

    use super::*;
    use crate::load::Workshop;
    use crate::mla::MlaChoice;
    use crate::model::CpuModel;
    use crate::pool::Team;

    /// Every kernel reads `rows` rows as they are, or as near to that as it can.
    fn fixed(isa: Isa, rows: usize) -> Tuning {
        let rows = |k: &'static LinearKernel| (k.name(), rows.clamp(FEW_ROWS, k.stream_rows()));
        Tuning { isa, found: Mutex::new(linear_kernels().map(rows).collect()) }
    }

    /// What was measured changes no bit: 3 to 9 rows at once, with every threshold that can be.
    #[test]
    fn bits_do_not_depend_on_thresholds() {
        let pool = Arc::new(Team::new(2));
        let tokens: Vec<u32> = (0..48).map(|i| i * 29 % 97).collect();
        let run = |ty, isa, rows| {
            let program = tiny_model(&tiny_config("qwen2", 256, true), ty);
            let weights = MemoryWeights::random(&program, 4);
            let tuning = Arc::new(fixed(isa, rows));
            let (mla, storage) = (MlaChoice::default(), &program::CacheStorage::default());
            let (kept, layer) = (&crate::SessionFolders::default(), &kv::DiskLayer::default());
            let (pool, tuning) = (&pool, &tuning);
            let workshop = Workshop { pool, tuning, mla, storage, lender: None, kept, layer };
            let model = CpuModel::load(program, &weights, workshop, &mut |_| {}).expect("it loads");
            let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 64);
            let session = model.open(&cache).expect("a session");
            let mut rest = tokens.as_slice();
            let mut logits = Vec::new();
            for n in [3, 4, 5, 6, 7, 8, 9] {
                let (tokens, others) = rest.split_at(n);
                let sequence =
                    Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
                let out = model.step(&Step { sequences: &[sequence] }).expect("a step");
                let out = out.single().expect("rows").into_logits();
                logits.extend(out.logits.into_iter().map(f32::to_bits));
                rest = others;
            }
            logits
        };
        for ty in [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::Q4K, GgmlType::Q6K, GgmlType::F16] {
            let want = run(ty, Isa::NONE, FEW_ROWS);
            let isas = testing::isas("cpu: tuning", Isa::NAMES, |isa| Isa::detect().contains(isa));
            for (name, isa) in isas.into_iter().filter(|(_, isa)| *isa != Isa::NONE) {
                for rows in FEW_ROWS..=9 {
                    assert!(run(ty, isa, rows) == want, "{ty}, {name} up to {rows} rows");
                }
            }
        }
    }

    #[test]
    fn every_kernel_has_a_threshold_within_what_it_can() {
        for isa in [Isa::NONE, Isa::AVX2, Isa::AVX512] {
            let tuning = Tuning::new(isa.and(Isa::detect()));
            for ty in GgmlType::all().filter(|ty| quant::format(*ty).is_some()) {
                let Some(tuned) = tuning.linear(ty) else { panic!("{ty} has a kernel") };
                let rows = tuned.stream_rows;
                assert!((FEW_ROWS..=tuned.kernel.stream_rows()).contains(&rows), "{ty}: {rows}");
                assert!(tuned.tiling(rows, COLS).is_none(), "{ty}");
                let more = tuned.kernel.tiling(rows + 1, COLS);
                assert!(more.is_some() && tuned.tiling(rows + 1, COLS) == more, "{ty}");
                assert_eq!(tuning.linear(ty).map(|again| again.stream_rows), Some(rows), "{ty}");
            }
        }
    }
}
