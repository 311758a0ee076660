//! Weight-panel products: `out[row] = sum over k of w[row][k] * x[k]`, for every weight type.
//!
//! Weights are packed once into panels of [`PANEL_ROWS`] rows; the layout is in `format.rs` and is the same for every
//! instruction set. Quantized weights read activations as 8-bit blocks of 32 or 256 ([`QUANTIZE_Q8`]), plain weights
//! read f32. Lane = weight row, and each lane adds its products in ascending order of columns, so that the bits depend on
//! neither the instruction set nor the number of activation rows.
//!
//! Read `format.rs` for the arithmetic, `naive.rs` for its obvious form, then `generic/quads/stream.rs`.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod fetch;
mod float;
mod format;
mod formats;
mod generic;
mod naive;
mod pack;
mod portable;
mod quantize;
mod row;
mod table;

use quant::GgmlType;

pub use quantize::{QUANTIZE_Q8, QuantizeQ8};
pub use table::{linear, linear_kernels};

use crate::lanes::prefetch as prefetch_line;
use crate::{Isa, Level};

/// Weight rows per panel; lane = weight row.
pub const PANEL_ROWS: usize = 16;

/// Activation columns that may have a scale of their own in [`Q8Rows`].
pub const Q8_BLOCK: usize = 32;

/// Activation columns that share a scale where weights have blocks of 256.
pub const Q8_WHOLE: usize = 256;

/// What a kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActFormat {
    /// Rows of f32.
    F32,
    /// Rows of 8-bit blocks of at least so many columns: [`Q8_BLOCK`] or [`Q8_WHOLE`].
    Q8(usize),
}

/// Activation rows in 8-bit blocks, as [`QUANTIZE_Q8`] writes them.
#[derive(Clone, Copy, Debug)]
pub struct Q8Rows<'a> {
    /// `[n][stride]`, in -127..=127.
    pub codes: &'a [i8],
    /// `[n][cols / 32]`; those of a block are equal.
    pub scales: &'a [f32],
    /// `[n][cols / 16]`: sum of each 16 codes.
    pub sums: &'a [i32],
    /// Rows.
    pub n: usize,
    /// Columns, a multiple of `block`.
    pub cols: usize,
    /// Columns that share a scale: [`Q8_BLOCK`] or [`Q8_WHOLE`].
    pub block: usize,
    /// Distance between rows of `codes`, at least `cols`.
    pub stride: usize,
    /// Which rows of the slices these are, `[n]`; `None` for the first `n`.
    pub pick: Option<&'a [u32]>,
}

/// One row of [`Q8Rows`].
#[derive(Clone, Copy)]
struct Q8Row<'a> {
    codes: &'a [i8],
    scales: &'a [f32],
    sums: &'a [i32],
}

impl<'a> Q8Rows<'a> {
    /// Row `c`.
    #[inline(always)]
    fn row(&self, c: usize) -> Q8Row<'a> {
        let c = self.pick.map_or(c, |pick| pick[c] as usize);
        Q8Row {
            codes: &self.codes[c * self.stride..][..self.cols],
            scales: &self.scales[c * (self.cols / 32)..][..self.cols / 32],
            sums: &self.sums[c * (self.cols / 16)..][..self.cols / 16],
        }
    }

    /// `N` rows from `first` on; those beyond the last repeat it.
    fn rows<const N: usize>(&self, first: usize) -> [Q8Row<'a>; N] {
        std::array::from_fn(|c| self.row((first + c).min(self.n - 1)))
    }
}

/// Activation rows in f32.
#[derive(Clone, Copy, Debug)]
pub struct F32Rows<'a> {
    /// `[n][stride]`.
    pub x: &'a [f32],
    /// Rows.
    pub n: usize,
    /// Columns.
    pub cols: usize,
    /// Distance between rows, at least `cols`.
    pub stride: usize,
    /// Which rows of `x` these are, `[n]`; `None` for the first `n`.
    pub pick: Option<&'a [u32]>,
}

impl<'a> F32Rows<'a> {
    /// Row `c`.
    #[inline(always)]
    fn row(&self, c: usize) -> &'a [f32] {
        let c = self.pick.map_or(c, |pick| pick[c] as usize);
        &self.x[c * self.stride..][..self.cols]
    }

    /// The first `N` rows; those beyond the last repeat it.
    fn rows<const N: usize>(&self) -> [&'a [f32]; N] {
        std::array::from_fn(|c| self.row(c.min(self.n - 1)))
    }
}

/// Activation rows in the format of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Activations<'a> {
    /// Rows of f32.
    F32(F32Rows<'a>),
    /// Rows of 8-bit blocks.
    Q8(Q8Rows<'a>),
}

impl Activations<'_> {
    /// Rows.
    pub fn n(&self) -> usize {
        match self {
            Activations::F32(x) => x.n,
            Activations::Q8(x) => x.n,
        }
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        match self {
            Activations::F32(x) => x.cols,
            Activations::Q8(x) => x.cols,
        }
    }

    fn check(&self, want: ActFormat) {
        match self {
            Activations::F32(x) => {
                assert_eq!(want, ActFormat::F32, "activation format");
                assert!(x.stride >= x.cols, "stride {} below {} columns", x.stride, x.cols);
                let n = picked(x.pick, x.n);
                assert!(x.x.len() >= rows_len(n, x.stride, x.cols), "f32 activations too short");
            }
            Activations::Q8(x) => {
                assert!(
                    matches!(want, ActFormat::Q8(least) if least <= x.block),
                    "activation format"
                );
                assert!([Q8_BLOCK, Q8_WHOLE].contains(&x.block), "blocks of {}", x.block);
                assert!(x.cols.is_multiple_of(x.block), "{} columns are not whole blocks", x.cols);
                assert!(x.stride >= x.cols, "stride {} below {} columns", x.stride, x.cols);
                let n = picked(x.pick, x.n);
                assert!(
                    x.codes.len() >= rows_len(n, x.stride, x.cols),
                    "activation codes too short"
                );
                assert!(x.scales.len() >= n * x.cols / 32, "activation scales too short");
                assert!(x.sums.len() >= n * x.cols / 16, "activation sums too short");
            }
        }
    }
}

/// Rows that slices must hold for these `n` rows to be among them.
fn picked(pick: Option<&[u32]>, n: usize) -> usize {
    pick.map_or(n, |pick| {
        assert_eq!(pick.len(), n, "rows picked");
        pick.iter().max().map_or(0, |last| *last as usize + 1)
    })
}

/// Elements from the first to the last of `n` rows.
fn rows_len(n: usize, stride: usize, cols: usize) -> usize {
    if n == 0 { 0 } else { (n - 1) * stride + cols }
}

/// One call of a kernel, its lengths checked.
struct Job<'a, 'b> {
    /// Whole panels, one after another.
    panels: &'a [u8],
    x: &'a Activations<'b>,
    /// The rows in tiles; empty if they are read as they are.
    arranged: &'a [i32],
    /// `[panel][n][16]`.
    tile: &'a mut [f32],
    scratch: &'a mut [u8],
}

impl<'b> Job<'_, 'b> {
    fn q8(&self) -> Q8Rows<'b> {
        match self.x {
            Activations::Q8(x) => *x,
            Activations::F32(_) => unreachable!("`run` compared the formats"),
        }
    }

    fn f32(&self) -> F32Rows<'b> {
        match self.x {
            Activations::F32(x) => *x,
            Activations::Q8(_) => unreachable!("`run` compared the formats"),
        }
    }
}

/// The body of a kernel. A kernel of an instruction set may only be called on a CPU that has it.
type Body = unsafe fn(&mut Job<'_, '_>);

/// How a kernel wants many activation rows: rearranged, once for all panels, in tiles of a few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Tiles that hold all rows.
    pub n_tiles: usize,
    /// Rows of a tile; a last tile that is not full repeats the last row.
    pub tile_rows: usize,
    /// 32-bit words of a tile.
    pub tile_words: usize,
}

impl Tiling {
    /// `n` rows in as few tiles of at most `widest` rows as possible, `row_words` words a row.
    const fn new(n: usize, widest: usize, row_words: usize) -> Tiling {
        let n_tiles = n.div_ceil(widest);
        let tile_rows = n.div_ceil(n_tiles);
        Tiling { n_tiles, tile_rows, tile_words: tile_rows * row_words }
    }

    /// Words of all tiles.
    pub fn words(&self) -> usize {
        self.n_tiles * self.tile_words
    }
}

/// So few rows are read as they are by every kernel.
pub const FEW_ROWS: usize = 4;

/// A kernel's way with many rows.
#[derive(Clone, Copy, Debug)]
struct Arranging {
    /// Most rows that can also be read as they are.
    stream_rows: usize,
    /// The tiling of `n` rows of `cols` columns; `None` if they are always read as they are.
    tiling: Option<fn(n: usize, cols: usize) -> Tiling>,
    /// Writes one tile.
    fill: fn(x: &Activations<'_>, tiling: &Tiling, tile: usize, out: &mut [i32]),
    /// Bytes of scratch.
    scratch: usize,
}

impl Arranging {
    /// Rows are read as they are.
    const NONE: Arranging =
        Arranging { stream_rows: usize::MAX, tiling: None, fill: |_, _, _, _| (), scratch: 0 };
}

/// Packs up to 16 file rows of a number of columns.
type Pack = fn(rows: &[&[u8]], cols: usize, out: &mut [u8]);

/// Reads one row back from a panel.
type Row = fn(panel: &[u8], lane: usize, out: &mut [f32]);

/// Columns of a panel that are packed together.
#[derive(Clone, Copy, Debug)]
struct PanelBlock {
    columns: usize,
    bytes: usize,
}

/// A kernel with the layout of its weights.
#[derive(Debug)]
pub struct LinearKernel {
    name: &'static str,
    ty: GgmlType,
    isa: Isa,
    level: Level,
    act_format: ActFormat,
    block: PanelBlock,
    pack: Pack,
    row: Row,
    arranging: Arranging,
    body: Body,
}

impl LinearKernel {
    /// `linear/isa/type`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The type of its weights in the file.
    pub fn ty(&self) -> GgmlType {
        self.ty
    }

    /// Features it needs.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How hard it tries.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The activations it reads.
    pub fn act_format(&self) -> ActFormat {
        self.act_format
    }

    /// Bytes of one panel of `cols` columns.
    ///
    /// # Panics
    /// If `cols` is not a whole number of blocks of the type.
    pub fn panel_bytes(&self, cols: usize) -> usize {
        let PanelBlock { columns, bytes } = self.block;
        assert!(cols.is_multiple_of(columns), "{cols} columns are not whole blocks of {}", self.ty);
        cols / columns * bytes
    }

    /// Packs 1 to 16 rows, as they lie in the file, into one panel. Absent rows become zeros.
    ///
    /// # Panics
    /// If a row is not `cols` weights long or `out` not [`panel_bytes`](Self::panel_bytes).
    pub fn pack(&self, rows: &[&[u8]], cols: usize, out: &mut [u8]) {
        assert!((1..=PANEL_ROWS).contains(&rows.len()), "{} rows for a panel", rows.len());
        assert_eq!(out.len(), self.panel_bytes(cols), "bytes of a panel");
        for row in rows {
            assert_eq!(Some(row.len()), self.ty.row_bytes(cols), "bytes of a row");
        }
        (self.pack)(rows, cols, out);
    }

    /// Weight row `lane` of a panel, as f32: what [`pack`](Self::pack) put there. For single rows; not fast.
    ///
    /// # Panics
    /// If `panel` is not [`panel_bytes`](Self::panel_bytes) of `out.len()` columns long, or `lane` not below 16.
    pub fn unpack_row(&self, panel: &[u8], lane: usize, out: &mut [f32]) {
        assert!(lane < PANEL_ROWS, "lane {lane} of a panel");
        assert_eq!(panel.len(), self.panel_bytes(out.len()), "bytes of a panel");
        (self.row)(panel, lane, out);
    }

    /// Bytes of scratch that [`run`](Self::run) wants with arranged rows; without, it wants none.
    pub fn scratch_bytes(&self) -> usize {
        self.arranging.scratch
    }

    /// Most activation rows that [`run`](Self::run) takes as they are, while a panel streams past once or twice. Above
    /// [`FEW_ROWS`] they may be arranged instead: what is faster depends on the machine.
    pub fn stream_rows(&self) -> usize {
        self.arranging.stream_rows
    }

    /// How `n` rows of `cols` columns can be [arranged](Self::arrange) for [`run`](Self::run); `None` if it reads them
    /// as they are.
    pub fn tiling(&self, n: usize, cols: usize) -> Option<Tiling> {
        let tiling = self.arranging.tiling.filter(|_| n > FEW_ROWS)?;
        Some(tiling(n, cols))
    }

    /// Writes tile `tile` of the rows `x`, for [`run`](Self::run) with the same `x`.
    ///
    /// # Panics
    /// If these rows are read as they are, there is no such tile, or `out` is not [`Tiling::tile_words`] long.
    pub fn arrange(&self, x: &Activations<'_>, tile: usize, out: &mut [i32]) {
        x.check(self.act_format);
        let tiling = self.tiling(x.n(), x.cols()).expect("rows that are arranged");
        assert!(tile < tiling.n_tiles, "tile {tile} of {}", tiling.n_tiles);
        assert_eq!(out.len(), tiling.tile_words, "words of a tile");
        (self.arranging.fill)(x, &tiling, tile, out);
    }

    /// Multiplies consecutive panels with all rows of `x`; overwrites `tile`, which is `[n_panels][x.n][16]`.
    ///
    /// - `arranged`: all tiles that [`arrange`](Self::arrange) makes of `x`; or empty, for at most
    ///   [`stream_rows`](Self::stream_rows)
    ///
    /// # Panics
    /// If lengths do not agree, the activations have another format, or this CPU lacks [`isa`](Self::isa).
    pub fn run(
        &self,
        panels: &[u8],
        x: &Activations<'_>,
        arranged: &[i32],
        tile: &mut [f32],
        scratch: &mut [u8],
    ) {
        let panel_bytes = self.panel_bytes(x.cols());
        assert!(panel_bytes > 0 && panels.len().is_multiple_of(panel_bytes), "whole panels");
        x.check(self.act_format);
        let n_panels = panels.len() / panel_bytes;
        assert_eq!(tile.len(), n_panels * x.n() * PANEL_ROWS, "length of the output tile");
        let scratch_bytes = if arranged.is_empty() {
            assert!(x.n() <= self.stream_rows(), "{}: {} rows as they are", self.name, x.n());
            0
        } else {
            let words = self.tiling(x.n(), x.cols()).map_or(0, |tiling| tiling.words());
            assert_eq!(arranged.len(), words, "words of the arranged rows");
            self.arranging.scratch
        };
        assert!(scratch.len() >= scratch_bytes, "{}: scratch too short", self.name);
        assert!(Isa::detect().contains(self.isa), "{} cannot run on this CPU", self.name);
        if x.n() > 0 {
            let mut job = Job { panels, x, arranged, tile, scratch };
            // SAFETY: the assertion above established that this CPU has the features that the body needs.
            unsafe { (self.body)(&mut job) }
        }
    }
}

/// How hard the kernels of a type try, in the order of their names.
const LEVELS: [Level; 4] = [Level::Naive, Level::Partial, Level::Full, Level::Full];

/// The kernel of quantized type `F` that has name `which`.
const fn kernel<F: format::PanelFormat>(
    which: usize,
    isa: Isa,
    arranging: Arranging,
    body: Body,
) -> LinearKernel {
    LinearKernel {
        name: F::NAMES[which],
        ty: <F::Block as quant::Block>::TY,
        isa,
        level: LEVELS[which],
        act_format: ActFormat::Q8(F::BLOCK),
        block: PanelBlock { columns: F::BLOCK, bytes: F::BLOCK_BYTES },
        pack: pack::quantized::<F>,
        row: row::quantized::<F>,
        arranging,
        body,
    }
}
