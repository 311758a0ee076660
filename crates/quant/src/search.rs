//! The searches behind the quantizers of the K formats and of IQ4: integer codes, integer scales and f16 factors that bring the
//! weighted squared error of a block close to its least.
//!
//! A group's real-valued scale (and min) comes from trying a range of step sizes: each gives codes by rounding, the
//! codes give the best scale by least squares, and the pair with the least error wins. The scales of a block are then
//! rounded to integers against a common factor, and each group takes the neighbouring integers that serve it best.

use half::f16;

use crate::formats::rounding::extreme;

/// Weights in a block of every K format.
const LEN: usize = 256;

/// A quantized block of an affine format: `w = d * scale * code - dmin * min`.
pub(crate) struct Affine<const GROUPS: usize> {
    pub(crate) d: f16,
    pub(crate) dmin: f16,
    pub(crate) scales: [u8; GROUPS],
    pub(crate) mins: [u8; GROUPS],
    pub(crate) codes: [u8; LEN],
}

/// A quantized block of a symmetric format: `w = d * scale * value`; `codes` are `value + zero`.
pub(crate) struct Symmetric<const GROUPS: usize> {
    pub(crate) d: f16,
    pub(crate) scales: [i8; GROUPS],
    pub(crate) codes: [u8; LEN],
}

/// Quantizes 256 weights in `GROUPS` groups, with codes in `0..=max_code` and scales and mins in `0..=max_level`.
pub(crate) fn affine<const GROUPS: usize>(
    x: &[f32],
    max_code: u8,
    max_level: u8,
) -> Affine<GROUPS> {
    let len = LEN / GROUPS;
    let top = f32::from(max_code);
    let mut fits = [Line::default(); GROUPS];
    for (fit, x) in fits.iter_mut().zip(x.chunks_exact(len)) {
        *fit = fit_line(x, &importance(x), top);
    }
    let levels = f32::from(max_level);
    let d = to_f16(fits.iter().fold(0.0, |m, fit| fit.scale.max(m)) / levels);
    let dmin = to_f16(fits.iter().fold(0.0, |m, fit| (-fit.offset).max(m)) / levels);

    let mut block = Affine { d, dmin, scales: [0; GROUPS], mins: [0; GROUPS], codes: [0; LEN] };
    for (g, (x, codes)) in x.chunks_exact(len).zip(block.codes.chunks_exact_mut(len)).enumerate() {
        let weights = importance(x);
        let line = |scale: f32, min: f32| Line {
            scale: d.to_f32() * scale,
            offset: -(dmin.to_f32() * min),
        };
        let mut best = (f32::INFINITY, 0.0, 0.0);
        for scale in neighbours(fits[g].scale, d, 0.0, levels) {
            for min in neighbours(-fits[g].offset, dmin, 0.0, levels) {
                let line = line(scale, min);
                let error = line.error(x, &weights, line.rounder(0.0, top));
                if error < best.0 {
                    best = (error, scale, min);
                }
            }
        }
        (block.scales[g], block.mins[g]) = (best.1 as u8, best.2 as u8);
        let round = line(best.1, best.2).rounder(0.0, top);
        for (code, &x) in codes.iter_mut().zip(x) {
            *code = round(x) as u8;
        }
    }
    block
}

/// Quantizes 256 weights in `GROUPS` groups, with values in `-zero..zero` and scales in `-max_level..max_level`.
pub(crate) fn symmetric<const GROUPS: usize>(
    x: &[f32],
    zero: u8,
    max_level: u8,
) -> Symmetric<GROUPS> {
    let len = LEN / GROUPS;
    let half = f32::from(zero);
    let mut fits = [0.0f32; GROUPS];
    for (fit, x) in fits.iter_mut().zip(x.chunks_exact(len)) {
        *fit = fit_scale(x, &importance(x), half);
    }
    let levels = f32::from(max_level);
    let d = factor(&fits, levels);

    let mut block = Symmetric { d, scales: [0; GROUPS], codes: [0; LEN] };
    for (g, (x, codes)) in x.chunks_exact(len).zip(block.codes.chunks_exact_mut(len)).enumerate() {
        let weights = importance(x);
        let mut best = (f32::INFINITY, 0.0);
        for level in neighbours(fits[g], d, -levels, levels - 1.0) {
            let line = Line { scale: d.to_f32() * level, offset: 0.0 };
            let error = line.error(x, &weights, line.rounder(-half, half - 1.0));
            if error < best.0 {
                best = (error, level);
            }
        }
        block.scales[g] = best.1 as i8;
        let line = Line { scale: d.to_f32() * best.1, offset: 0.0 };
        let round = line.rounder(-half, half - 1.0);
        for (code, &x) in codes.iter_mut().zip(x) {
            *code = (round(x) + half) as u8;
        }
    }
    block
}

/// Weights that share a scale where values come from a table.
const TABLE_GROUP: usize = 32;

/// Quantizes 32 weights to the values of an ascending table: the scale, and the codes for the scale as f16 has it.
pub(crate) fn table(x: &[f32], table: &'static [i8; 16]) -> (f16, [u8; TABLE_GROUP]) {
    let steps = Steps::new(table);
    let d = to_f16(fit_table(x, &importance(x), &steps));
    let mut codes = [0; TABLE_GROUP];
    steps.codes(x, d.to_f32(), &mut codes);
    (d, codes)
}

/// Quantizes 256 weights in 8 groups to the values of an ascending table, with scales in `-max_level..max_level`.
pub(crate) fn grouped_table(x: &[f32], table: &'static [i8; 16], max_level: u8) -> Symmetric<8> {
    let steps = Steps::new(table);
    let mut fits = [0.0f32; LEN / TABLE_GROUP];
    for (fit, x) in fits.iter_mut().zip(x.chunks_exact(TABLE_GROUP)) {
        *fit = fit_table(x, &importance(x), &steps);
    }
    let levels = f32::from(max_level);
    let d = factor(&fits, levels);
    let mut block = Symmetric { d, scales: [0; LEN / TABLE_GROUP], codes: [0; LEN] };
    let groups = x.chunks_exact(TABLE_GROUP).zip(block.codes.chunks_exact_mut(TABLE_GROUP));
    for (g, (x, codes)) in groups.enumerate() {
        let weights = importance(x);
        let mut best = (f32::INFINITY, 0.0);
        for level in neighbours(fits[g], d, -levels, levels - 1.0) {
            let scale = d.to_f32() * level;
            let error = error_of(x, &weights, &steps.values(x, scale), scale);
            if error < best.0 {
                best = (error, level);
            }
        }
        block.scales[g] = best.1 as i8;
        steps.codes(x, d.to_f32() * best.1, codes);
    }
    block
}

/// A table as the steps between its values, so that the nearest ones are found at the speed of vectors.
struct Steps {
    lowest: f32,
    /// Twice the midpoint between a value and the next, and the step between them.
    steps: [(f32, f32); 15],
}

impl Steps {
    fn new(table: &[i8; 16]) -> Steps {
        let value = |i: usize| f32::from(table[i]);
        let steps = std::array::from_fn(|i| (value(i) + value(i + 1), value(i + 1) - value(i)));
        Steps { lowest: value(0), steps }
    }

    /// The values of the table nearest to `x / scale`.
    fn values(&self, x: &[f32], scale: f32) -> [f32; TABLE_GROUP] {
        let inverse = if scale == 0.0 { 0.0 } else { 2.0 / scale };
        let mut values = [self.lowest; TABLE_GROUP];
        for &(doubled, step) in &self.steps {
            for (value, x) in values.iter_mut().zip(x) {
                *value += if x * inverse > doubled { step } else { 0.0 };
            }
        }
        values
    }

    /// Their codes.
    fn codes(&self, x: &[f32], scale: f32, codes: &mut [u8]) {
        let inverse = if scale == 0.0 { 0.0 } else { 2.0 / scale };
        for (code, x) in codes.iter_mut().zip(x) {
            *code = self.steps.iter().map(|step| u8::from(x * inverse > step.0)).sum();
        }
    }
}

/// The scale, of either sign, that represents 32 weights best with the values of a table.
fn fit_table(x: &[f32], weights: &[f32], steps: &Steps) -> f32 {
    let extreme = extreme(x);
    let mut best = extreme / steps.lowest;
    let mut least = error_of(x, weights, &steps.values(x, best), best);
    for step in -STEPS..=STEPS {
        let mut scale = extreme / (steps.lowest + step as f32);
        for _ in 0..REFINEMENTS {
            let values = steps.values(x, scale);
            let (mut wxv, mut wvv) = (0.0, 0.0);
            for ((x, w), v) in x.iter().zip(weights).zip(&values) {
                wxv += w * x * v;
                wvv += w * v * v;
            }
            scale = wxv / wvv;
            if !scale.is_finite() {
                break;
            }
            let error = error_of(x, weights, &values, scale);
            if error < least {
                (least, best) = (error, scale);
            }
        }
    }
    best
}

/// The weighted squared error of 32 weights with these values.
fn error_of(x: &[f32], weights: &[f32], values: &[f32; TABLE_GROUP], scale: f32) -> f32 {
    let terms = x.iter().zip(weights).zip(values);
    terms.map(|((x, w), v)| w * square(scale * v - x)).sum()
}

/// What codes stand for: `scale * code + offset`.
#[derive(Clone, Copy, Default)]
struct Line {
    scale: f32,
    offset: f32,
}

impl Line {
    /// The way from a weight to the code in `low..=high` whose value is nearest.
    fn rounder(self, low: f32, high: f32) -> impl Fn(f32) -> f32 + Copy {
        let inverse = if self.scale == 0.0 { 0.0 } else { 1.0 / self.scale };
        move |x| ((x - self.offset) * inverse).max(low).min(high) + ROUND - ROUND
    }

    /// The weighted squared error of `x` with the codes that `round` gives.
    fn error(self, x: &[f32], weights: &[f32], round: impl Fn(f32) -> f32) -> f32 {
        sum(x, weights, |x, w| w * square(self.scale * round(x) + self.offset - x))
    }
}

/// Adding and subtracting `1.5 * 2^23` rounds small numbers to the nearest integer, ties to even, in two instructions
/// of any processor.
const ROUND: f32 = 12_582_912.0;

/// The line, with `scale >= 0` and `offset <= 0`, that represents `x` best with codes in `0..=top`.
fn fit_line(x: &[f32], weights: &[f32], top: f32) -> Line {
    let low = x.iter().copied().fold(0.0, f32::min);
    let span = x.iter().copied().fold(0.0, f32::max) - low;
    let mut best = Line { scale: span / top, offset: low };
    let mut least = best.error(x, weights, best.rounder(0.0, top));
    for step in -STEPS..=STEPS {
        let mut line = Line { scale: span / (top + step as f32 * STEP), offset: low };
        for _ in 0..REFINEMENTS {
            let round = line.rounder(0.0, top);
            let Some(fit) = least_squares(x, weights, round) else { break };
            line = fit;
            let error = line.error(x, weights, round);
            if error < least {
                (least, best) = (error, line);
            }
        }
    }
    best
}

/// Step sizes are tried that spread the span of a group over `top - 1` to `top + 1` codes.
const STEPS: i32 = 10;
const STEP: f32 = 0.1;
/// Rounds of "codes from the line, line from the codes" for each step size.
const REFINEMENTS: usize = 2;

/// The line through the points `(round(x), x)` of least weighted squared error; `None` if it would not rise.
fn least_squares(x: &[f32], weights: &[f32], round: impl Fn(f32) -> f32) -> Option<Line> {
    let w = weights.iter().sum::<f32>();
    let wq = sum(x, weights, |x, w| w * round(x));
    let wqq = sum(x, weights, |x, w| w * square(round(x)));
    let wx = sum(x, weights, |x, w| w * x);
    let wxq = sum(x, weights, |x, w| w * x * round(x));
    let determinant = w * wqq - wq * wq;
    let mut line = Line {
        scale: (w * wxq - wx * wq) / determinant,
        offset: (wqq * wx - wq * wxq) / determinant,
    };
    if line.offset > 0.0 {
        line = Line { scale: wxq / wqq, offset: 0.0 };
    }
    (line.scale > 0.0 && line.scale.is_finite() && line.offset.is_finite()).then_some(line)
}

/// The scale, of either sign, that represents `x` best with values in `-half..half`.
fn fit_scale(x: &[f32], weights: &[f32], half: f32) -> f32 {
    let extreme = extreme(x);
    let mut best = Line { scale: extreme / -half, offset: 0.0 };
    let mut least = best.error(x, weights, best.rounder(-half, half - 1.0));
    for step in -STEPS..=STEPS {
        let mut line = Line { scale: extreme / -(half + step as f32 * STEP), offset: 0.0 };
        for _ in 0..REFINEMENTS {
            let round = line.rounder(-half, half - 1.0);
            let wxq = sum(x, weights, |x, w| w * x * round(x));
            let wqq = sum(x, weights, |x, w| w * square(round(x)));
            line.scale = wxq / wqq;
            if !line.scale.is_finite() {
                break;
            }
            let error = line.error(x, weights, round);
            if error < least {
                (least, best) = (error, line);
            }
        }
    }
    best.scale
}

/// What scales in `-levels..levels` are multiples of: that of largest magnitude becomes the one level that has no
/// counterpart of the other sign.
fn factor(scales: &[f32], levels: f32) -> f16 {
    to_f16(extreme(scales) / -levels)
}

/// How much the error of each weight counts: large weights count more, small ones do not count for nothing.
fn importance(x: &[f32]) -> Vec<f32> {
    let rms = (x.iter().map(|&x| square(x)).sum::<f32>() / x.len() as f32).sqrt();
    x.iter().map(|x| rms + x.abs()).collect()
}

/// The integers around `x / d` that lie in `low..=high`.
fn neighbours(x: f32, d: f16, low: f32, high: f32) -> impl Iterator<Item = f32> {
    let nearest = if d == f16::ZERO { 0.0 } else { (x / d.to_f32()).round().clamp(low, high) };
    [0.0, -1.0, 1.0]
        .into_iter()
        .map(move |step| nearest + step)
        .filter(move |&level| level >= low && level <= high)
}

/// Nearest f16, never infinite.
fn to_f16(x: f32) -> f16 {
    f16::from_f32(x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()))
}

/// The sum of `term(x, weight)`, taken in eight lanes so that it runs at the speed of vectors.
#[inline]
fn sum(x: &[f32], weights: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (x, w) in x.as_chunks::<8>().0.iter().zip(weights.as_chunks::<8>().0) {
        for i in 0..8 {
            lanes[i] += term(x[i], w[i]);
        }
    }
    lanes.iter().sum()
}

fn square(x: f32) -> f32 {
    x * x
}
