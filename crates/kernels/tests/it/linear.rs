//! Every panel kernel against the naive one, to the bit, and the naive one against an f64 product of the same
//! quantized activations.

#![expect(clippy::unwrap_used, reason = "a failing test says where it failed")]

use kernels::linear::{
    ActFormat, Activations, F32Rows, LinearKernel, PANEL_ROWS, Q8Rows, QUANTIZE_Q8, linear,
    linear_kernels,
};
use kernels::{Isa, Level};
use quant::GgmlType;

use crate::support::{isas, sizes};

/// A small generator: what matters is that cases repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) ^ (self.0 >> 17)
    }

    /// In -1..1.
    fn f32(&mut self) -> f32 {
        (self.next() & 0xff_ffff) as f32 / 8_388_608.0 - 1.0
    }
}

/// Where a block of `ty` keeps its f16 scales.
fn f16_fields(ty: GgmlType) -> &'static [usize] {
    match ty {
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::Iq4Nl => &[0],
        GgmlType::Iq4Xs | GgmlType::Iq3S => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4K | GgmlType::Q5K => &[0, 2],
        GgmlType::Q2K => &[80, 82],
        GgmlType::Q3K => &[108],
        GgmlType::Q6K => &[208],
        GgmlType::Tq1_0 => &[52],
        GgmlType::Tq2_0 => &[64],
        _ => &[],
    }
}

/// What the codes of a case are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    Random,
    /// Every byte of the codes has this value: the extremes of every format are among 0x00, 0x80, 0x7f and 0xff.
    All(u8),
}

/// File bytes of one row with scales of about 0.01.
fn row(ty: GgmlType, cols: usize, fill: Fill, random: &mut Random) -> Vec<u8> {
    match ty {
        GgmlType::F32 => (0..cols).flat_map(|_| random.f32().to_le_bytes()).collect(),
        GgmlType::F16 => {
            (0..cols).flat_map(|_| half::f16::from_f32(random.f32()).to_le_bytes()).collect()
        }
        GgmlType::Bf16 => {
            (0..cols).flat_map(|_| half::bf16::from_f32(random.f32()).to_le_bytes()).collect()
        }
        _ => {
            let mut bytes = vec![0u8; ty.row_bytes(cols).unwrap()];
            for byte in &mut bytes {
                *byte = match fill {
                    Fill::Random => random.next() as u8,
                    Fill::All(value) => value,
                };
            }
            for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                for at in f16_fields(ty) {
                    let d = half::f16::from_f32(0.01 + 0.005 * random.f32());
                    block[*at..][..2].copy_from_slice(&d.to_le_bytes());
                }
                if ty == GgmlType::Mxfp4 {
                    block[0] = 120 + (random.next() % 4) as u8;
                }
            }
            bytes
        }
    }
}

/// One product: weights as in the file, activations quantized for those who want them so.
struct Case {
    ty: GgmlType,
    rows: usize,
    cols: usize,
    n: usize,
    /// Columns that share an activation scale.
    block: usize,
    stride: usize,
    weights: Vec<Vec<u8>>,
    x: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

/// The rows in tiles, if `kernel` can have them so.
fn arranged(kernel: &LinearKernel, x: &Activations<'_>) -> Vec<i32> {
    let Some(tiling) = kernel.tiling(x.n(), x.cols()) else { return Vec::new() };
    assert!(tiling.n_tiles * tiling.tile_rows >= x.n(), "{}: tiles for all rows", kernel.name());
    let mut words = vec![0x5a5a; tiling.words()];
    for (tile, out) in words.chunks_exact_mut(tiling.tile_words).enumerate() {
        kernel.arrange(x, tile, out);
    }
    words
}

impl Case {
    fn new(ty: GgmlType, rows: usize, cols: usize, n: usize, fill: Fill) -> Case {
        let block = if ty.block_len() == 256 { 256 } else { 32 };
        Case::of_blocks(block, ty, rows, cols, n, fill)
    }

    fn of_blocks(
        block: usize,
        ty: GgmlType,
        rows: usize,
        cols: usize,
        n: usize,
        fill: Fill,
    ) -> Case {
        let mut random = Random((rows * 31 + cols * 7 + n) as u64);
        let weights = (0..rows).map(|_| row(ty, cols, fill, &mut random)).collect();
        let stride = cols.next_multiple_of(64) + 64;
        let mut x = vec![f32::NAN; n * stride];
        let mut codes = vec![99; n * stride];
        let (mut scales, mut sums) = (vec![0.0; n * (cols / 32)], vec![0; n * (cols / 16)]);
        for c in 0..n {
            let x = &mut x[c * stride..][..cols];
            for (k, x) in x.iter_mut().enumerate() {
                *x = match fill {
                    Fill::Random => random.f32() * (1.0 + (k % 5) as f32),
                    Fill::All(_) => [1.0, -1.0][c % 2],
                };
            }
            if cols.is_multiple_of(32) {
                let (d, s) = (
                    &mut scales[c * cols / 32..][..cols / 32],
                    &mut sums[c * cols / 16..][..cols / 16],
                );
                let codes = &mut codes[c * stride..][..cols];
                QUANTIZE_Q8.naive().call(x, block, codes, d, s);
            }
        }
        Case { ty, rows, cols, n, block, stride, weights, x, codes, scales, sums }
    }

    fn activations(&self, format: ActFormat) -> Activations<'_> {
        let (n, cols, stride) = (self.n, self.cols, self.stride);
        match format {
            ActFormat::F32 => Activations::F32(F32Rows { x: &self.x, n, cols, stride, pick: None }),
            ActFormat::Q8(_) => Activations::Q8(Q8Rows {
                block: self.block,
                codes: &self.codes,
                scales: &self.scales,
                sums: &self.sums,
                n,
                cols,
                stride,
                pick: None,
            }),
        }
    }

    fn pack(&self, kernel: &LinearKernel) -> Vec<u8> {
        let bytes = kernel.panel_bytes(self.cols);
        let mut panels = vec![0xee; bytes * self.rows.div_ceil(PANEL_ROWS)];
        for (rows, panel) in self.weights.chunks(PANEL_ROWS).zip(panels.chunks_exact_mut(bytes)) {
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            kernel.pack(&rows, self.cols, panel);
        }
        panels
    }

    /// Runs a kernel with guards around its tile and scratch.
    fn run(&self, kernel: &LinearKernel) -> Vec<f32> {
        self.multiply(kernel, &self.activations(kernel.act_format()))
    }

    /// [`run`](Self::run) with these activations: as they are, and in tiles, where the kernel can do both.
    fn multiply(&self, kernel: &LinearKernel, x: &Activations<'_>) -> Vec<f32> {
        let tiles = arranged(kernel, x);
        let streams = x.n() <= kernel.stream_rows();
        assert!(streams || !tiles.is_empty(), "{}: a way for {} rows", kernel.name(), x.n());
        let out = self.multiply_as(kernel, x, if streams { &[] } else { &tiles });
        if streams && !tiles.is_empty() {
            let other = self.multiply_as(kernel, x, &tiles);
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&other), bits(&out), "{}: {} rows in tiles", kernel.name(), x.n());
        }
        out
    }

    /// [`run`](Self::run) with these activations, in tiles if there are any.
    fn multiply_as(
        &self,
        kernel: &LinearKernel,
        x: &Activations<'_>,
        arranged: &[i32],
    ) -> Vec<f32> {
        const GUARD: usize = 64;
        let panels = self.pack(kernel);
        let n_panels = self.rows.div_ceil(PANEL_ROWS);
        let len = n_panels * x.n() * PANEL_ROWS;
        let mut tile = vec![12345.0; len + 2 * GUARD];
        let scratch_len = kernel.scratch_bytes();
        let mut scratch = vec![0xa5; scratch_len + 2 * GUARD];
        let (out, scratch_out) = (&mut tile[GUARD..][..len], &mut scratch[GUARD..][..scratch_len]);
        kernel.run(&panels, x, arranged, out, scratch_out);
        let guards = tile[..GUARD].iter().chain(&tile[GUARD + len..]);
        assert!(guards.into_iter().all(|v| *v == 12345.0), "{}: tile overrun", kernel.name());
        let guards = scratch[..GUARD].iter().chain(&scratch[GUARD + scratch_len..]);
        assert!(guards.into_iter().all(|v| *v == 0xa5), "{}: scratch overrun", kernel.name());
        tile[GUARD..][..len].to_vec()
    }

    /// The greatest error of `tile` as a part of the sum of magnitudes, against f64.
    fn error(&self, format: ActFormat, tile: &[f32]) -> f64 {
        let mut worst = 0.0f64;
        let mut w = vec![0.0; self.cols];
        for (r, bytes) in self.weights.iter().enumerate() {
            quant::format(self.ty).unwrap().dequantize(bytes, &mut w);
            for c in 0..self.n {
                let (mut sum, mut magnitude) = (0.0f64, 1e-30f64);
                for (k, w) in w.iter().enumerate() {
                    let x = match format {
                        ActFormat::F32 => f64::from(self.x[c * self.stride + k]),
                        ActFormat::Q8(_) => {
                            let d = self.scales[c * (self.cols / 32) + k / 32];
                            f64::from(self.codes[c * self.stride + k]) * f64::from(d)
                        }
                    };
                    sum += f64::from(*w) * x;
                    magnitude += (f64::from(*w) * x).abs();
                }
                let got =
                    f64::from(tile[(r / PANEL_ROWS * self.n + c) * PANEL_ROWS + r % PANEL_ROWS]);
                worst = worst.max((got - sum).abs() / magnitude);
            }
        }
        worst
    }
}

/// Under Miri one type of each kind: of floats, with a min and without, with high bits, with scales of groups, of values by a table.
pub(crate) fn is_tested(ty: GgmlType) -> bool {
    const FEW: [GgmlType; 7] = [
        GgmlType::F32,
        GgmlType::Bf16,
        GgmlType::Q4_0,
        GgmlType::Q5_1,
        GgmlType::Mxfp4,
        GgmlType::Q4K,
        GgmlType::Iq3S,
    ];
    !cfg!(miri) || FEW.contains(&ty)
}

fn naive_kernels() -> impl Iterator<Item = &'static LinearKernel> {
    linear_kernels().filter(|k| k.level() == Level::Naive && is_tested(k.ty()))
}

/// The fewest columns of a matrix that is quantized in blocks.
fn shortest(ty: GgmlType) -> usize {
    ty.block_len().max(32)
}

/// Those that this CPU runs.
fn available_kernels() -> impl Iterator<Item = &'static LinearKernel> {
    linear_kernels().filter(|k| Isa::detect().contains(k.isa()) && is_tested(k.ty()))
}

/// Kernels of `ty` to test against the naive one; instruction sets that the CPU lacks are named, or fail if required.
fn others(ty: GgmlType) -> impl Iterator<Item = &'static LinearKernel> {
    isas("matrices");
    let cpu = Isa::detect();
    linear_kernels()
        .filter(move |k| k.ty() == ty && k.level() != Level::Naive && cpu.contains(k.isa()))
}

fn check(ty: GgmlType, rows: usize, cols: usize, n: usize, fill: Fill) {
    check_case(&Case::new(ty, rows, cols, n, fill), fill);
}

fn check_case(case: &Case, fill: Fill) {
    let Case { ty, rows, cols, n, .. } = *case;
    let naive = naive_kernels().find(|k| k.ty() == ty).unwrap();
    let want = case.run(naive);
    if n <= 4 || cols <= 512 {
        let error = case.error(naive.act_format(), &want);
        assert!(error < 2e-6, "{} {rows}x{cols} n={n} {fill:?}: error {error}", naive.name());
    }
    for kernel in others(ty) {
        let got = case.run(kernel);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let (panel, c, r) = (i / 16 / n, i / 16 % n, i % 16);
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{} {rows}x{cols} n={n} {fill:?}, panel {panel} row {r} column {c}: {got} for {want}",
                kernel.name()
            );
        }
    }
}

fn check_all(rows: usize, blocks: &[usize], n: &[usize], fill: Fill) {
    for kernel in naive_kernels() {
        let ty = kernel.ty();
        for cols in blocks.iter().map(|k| k.next_multiple_of(ty.block_len())) {
            for n in n {
                check(ty, rows, cols, *n, fill);
            }
        }
    }
}

#[test]
fn every_row_count_agrees_to_the_bit() {
    for rows in sizes(&[1, 15, 16, 17, 50][..], &[1, 17]) {
        check_all(*rows, sizes(&[32, 288], &[32]), sizes(&[1, 4], &[1]), Fill::Random);
    }
    check_all(sizes(81, 15), sizes(&[160], &[96]), sizes(&[1, 3, 7, 13], &[1]), Fill::Random);
}

#[test]
fn every_number_of_activation_rows_agrees_to_the_bit() {
    let all = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 33, 70][..];
    check_all(sizes(17, 1), sizes(&[544], &[32]), sizes(all, &[2, 9]), Fill::Random);
}

#[test]
fn every_length_agrees_to_the_bit() {
    let all = &[32, 64, 96, 128, 224, 256, 512, 896, 2816][..];
    check_all(sizes(16, 3), sizes(all, &[96]), sizes(&[1, 5, 14], &[1]), Fill::Random);
}

/// Types with blocks of 32 beside K types: the input they share is quantized in blocks of 256.
#[test]
fn every_type_reads_blocks_of_256() {
    for naive in naive_kernels().filter(|kernel| kernel.act_format() == ActFormat::Q8(32)) {
        for &n in sizes(&[1, 3, 6, 13][..], &[2]) {
            let (ty, cols) = (naive.ty(), sizes(512, 256));
            let rows = sizes(33, 3);
            check_case(&Case::of_blocks(256, ty, rows, cols, n, Fill::Random), Fill::Random);
        }
    }
}

#[test]
fn extreme_codes_do_not_overflow() {
    for fill in sizes(&[0x00, 0x0f, 0x7f, 0x80, 0xf0, 0xff][..], &[0x80]) {
        let rows = sizes(16, 2);
        check_all(rows, sizes(&[256], &[32]), sizes(&[1, 2, 6, 14], &[2]), Fill::All(*fill));
    }
}

/// One row and many rows give the same bits: the rows of a batch do not see each other.
#[test]
fn bits_do_not_depend_on_the_number_of_rows() {
    for kernel in available_kernels() {
        let (rows, cols, n) = sizes((33, 512, 21), (5, shortest(kernel.ty()), 2));
        let many = Case::new(kernel.ty(), rows, cols, n, Fill::Random);
        let all = many.run(kernel);
        for c in [0, n / 3, n - 1] {
            let one = Case {
                n: 1,
                x: many.x[c * many.stride..][..many.stride].to_vec(),
                codes: many.codes[c * many.stride..][..many.stride].to_vec(),
                scales: many.scales[c * cols / 32..][..cols / 32].to_vec(),
                sums: many.sums[c * cols / 16..][..cols / 16].to_vec(),
                weights: many.weights.clone(),
                ..many
            };
            for (panel, got) in one.run(kernel).chunks_exact(16).enumerate() {
                let want = &all[(panel * n + c) * 16..][..16];
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(got), bits(want), "{} column {c}", kernel.name());
            }
        }
    }
}

/// Rows picked from many are multiplied as if they stood one after another.
#[test]
fn picked_rows_are_those_rows() {
    for kernel in available_kernels() {
        let (rows, weight_rows, cols) = sizes((21, 33, 256), (3, 5, shortest(kernel.ty())));
        let many = Case::new(kernel.ty(), weight_rows, cols, rows, Fill::Random);
        let all = many.run(kernel);
        for &n in sizes(&[1, 2, 4, 5, 9, 13][..], &[2]) {
            let pick: Vec<u32> = (0..n).map(|c| (c * 13 + 20) % rows as u32).collect();
            let (n, picked) = (pick.len(), Some(pick.as_slice()));
            let x = match many.activations(kernel.act_format()) {
                Activations::F32(x) => Activations::F32(F32Rows { n, pick: picked, ..x }),
                Activations::Q8(x) => Activations::Q8(Q8Rows { n, pick: picked, ..x }),
            };
            for (panel, got) in many.multiply(kernel, &x).chunks_exact(16 * n).enumerate() {
                for (got, c) in got.chunks_exact(16).zip(&pick) {
                    let want = &all[(panel * rows + *c as usize) * 16..][..16];
                    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(got), bits(want), "{} row {c} of {n}", kernel.name());
                }
            }
        }
    }
}

#[test]
fn quantize_q8_agrees_to_the_bit() {
    let mut random = Random(5);
    let mut x: Vec<f32> = (0..2816).map(|_| random.f32() * 3.0).collect();
    x[32..64].fill(0.0);
    x[64..96].fill(1e-42);
    x[96] = f32::INFINITY;
    x[128] = f32::NAN;
    x[161] = f32::MAX;
    x[192..224].fill(f32::MIN_POSITIVE);
    for block in [32, 256] {
        let run = |kernel: &kernels::Kernel<kernels::linear::QuantizeQ8>| {
            let (mut codes, mut scales, mut sums) = (vec![0; 2816], vec![0.0; 88], vec![0; 176]);
            kernel.call(&x, block, &mut codes, &mut scales, &mut sums);
            // under Miri what is no number has bits at random
            let one = |d: &f32| if cfg!(miri) && d.is_nan() { f32::NAN } else { *d };
            (codes, scales.iter().map(|d| one(d).to_bits()).collect::<Vec<_>>(), sums)
        };
        let want = run(QUANTIZE_Q8.naive());
        let parts = block / 32;
        assert!(want.1.chunks(parts).all(|d| d.iter().all(|other| *other == d[0])), "{block}");
        if block == 32 {
            assert!(want.0[32..96].iter().all(|c| *c == 0) && want.1[1] == 0 && want.1[2] == 0);
            assert!(f32::from_bits(want.1[3]).is_infinite() && f32::from_bits(want.1[4]).is_nan());
            assert!(want.0[..32].iter().any(|c| c.abs() == 127));
        } else {
            assert!(f32::from_bits(want.1[0]).is_nan(), "a block with NaN and infinity shows one");
            assert!(want.0[256..512].iter().any(|c| c.abs() == 127));
        }
        for kernel in QUANTIZE_Q8.available(Isa::detect()) {
            assert!(run(kernel) == want, "{} in blocks of {block}", kernel.name());
        }
    }
}

#[test]
fn every_weight_type_has_a_naive_and_a_portable_kernel() {
    let mut names: Vec<_> = linear_kernels().map(LinearKernel::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), linear_kernels().count());
    for format in quant::FORMATS {
        let of_type = || linear_kernels().filter(|k| k.ty() == format.ty());
        let naive: Vec<_> = of_type().filter(|k| k.level() == Level::Naive).collect();
        assert_eq!(naive.iter().map(|k| k.isa()).collect::<Vec<_>>(), [Isa::NONE]);
        assert_eq!(of_type().next().unwrap().name(), naive[0].name(), "it comes first");
        let portable = linear(format.ty(), Isa::NONE).unwrap();
        assert_eq!((portable.isa(), portable.level()), (Isa::NONE, Level::Partial));
    }
    assert!(linear(GgmlType::I32, Isa::detect()).is_none());
}

/// Panels take about as many bytes as the file, so that a share of the bandwidth is a share of the file.
#[test]
fn panels_are_as_long_as_the_file() {
    for kernel in linear_kernels() {
        let file = 16 * kernel.ty().row_bytes(1024).unwrap();
        let share = kernel.panel_bytes(1024) as f64 / file as f64;
        let limit = match kernel.ty() {
            GgmlType::Iq3S => 1.26,
            GgmlType::Tq1_0 => 1.23,
            // a scale of two bytes for one
            GgmlType::Mxfp4 => 1.06,
            GgmlType::Q3K => 1.04,
            _ => 1.03,
        };
        assert!((0.99..limit).contains(&share), "{}: {share}", kernel.name());
    }
}
