//! Recurrences over 16 lanes, for every instruction set that has them.

use super::{KeyField, STRIP, ScanForm, ScanRows, SelectiveRows};
use crate::lanes::{Simd, exp};

/// Four sums of every fourth, added in pairs.
#[inline(always)]
fn fold<S: Simd>(simd: S, sums: [S::V; 4]) -> S::V {
    simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3]))
}

/// The [`SCAN`](super::SCAN) op.
#[inline(always)]
pub(super) fn scan<S: Simd>(
    simd: S,
    rows: &ScanRows<'_>,
    state: &mut [f32],
    out: Option<&mut [f32]>,
) {
    // which form it is, is known outside of the loops: each has loops of its own
    match rows.form {
        ScanForm::Linear => strips(simd, ScanForm::Linear, rows, state, out),
        ScanForm::Delta => strips(simd, ScanForm::Delta, rows, state, out),
        ScanForm::Wkv6 => strips(simd, ScanForm::Wkv6, rows, state, out),
        ScanForm::Wkv7 => strips(simd, ScanForm::Wkv7, rows, state, out),
    }
}

#[inline(always)]
fn strips<S: Simd>(
    simd: S,
    form: ScanForm,
    rows: &ScanRows<'_>,
    state: &mut [f32],
    mut out: Option<&mut [f32]>,
) {
    let n = rows.betas.len();
    let width = rows.values.len() / n.max(1);
    // a strip stays in the first-level cache for all rows
    for (number, strip) in state.chunks_exact_mut(rows.key_dim * STRIP).enumerate() {
        let strip = strip.as_chunks_mut::<STRIP>().0;
        let from = rows.from.map(|from| {
            from[number * rows.key_dim * STRIP..][..rows.key_dim * STRIP].as_chunks::<STRIP>().0
        });
        let at = number * STRIP;
        let reads = matches!(form, ScanForm::Delta | ScanForm::Wkv7);
        if out.is_none() && !reads && n > 0 {
            unread(simd, rows, at, width, from, strip);
            continue;
        }
        if let Some(from) = from {
            strip.copy_from_slice(from);
        }
        for row in 0..n {
            let at = row * width + at;
            let value = rows.values[at..].first_chunk().expect("a strip of values");
            let value = simd.load(value);
            match &mut out {
                None => silent(simd, form, rows, row, value, strip),
                Some(out) => {
                    let y = one(simd, form, rows, row, value, strip);
                    let out = out[at..].first_chunk_mut().expect("a strip of results");
                    simd.store(y, out);
                }
            }
        }
    }
}

/// Rows that change a strip and do not read it, four in one pass over it.
#[inline(always)]
fn unread<S: Simd>(
    simd: S,
    rows: &ScanRows<'_>,
    at: usize,
    width: usize,
    mut from: Option<&[[f32; STRIP]]>,
    strip: &mut [[f32; STRIP]],
) {
    let n = rows.betas.len();
    for first in (0..n).step_by(4) {
        let place = Place { first, at, width };
        match n - first {
            1 => together::<S, 1>(simd, rows, place, from, strip),
            2 => together::<S, 2>(simd, rows, place, from, strip),
            3 => together::<S, 3>(simd, rows, place, from, strip),
            _ => together::<S, 4>(simd, rows, place, from, strip),
        }
        from = None;
    }
}

/// Where the values of rows from `first` on are.
#[derive(Clone, Copy)]
struct Place {
    first: usize,
    at: usize,
    width: usize,
}

#[inline(always)]
fn together<S: Simd, const N: usize>(
    simd: S,
    rows: &ScanRows<'_>,
    place: Place,
    from: Option<&[[f32; STRIP]]>,
    strip: &mut [[f32; STRIP]],
) {
    let (mut values, mut keyed) = ([simd.splat(0.0); N], [[&[] as &[f32]; 2]; N]);
    for row in 0..N {
        let number = place.first + row;
        let value = rows.values[number * place.width + place.at..].first_chunk();
        values[row] = simd.load(value.expect("a strip of values"));
        keyed[row] = [rows.field(number, KeyField::Decay), rows.field(number, KeyField::Key)];
    }
    for i in 0..rows.key_dim {
        let mut s = simd.load(match from {
            Some(from) => &from[i],
            None => &strip[i],
        });
        for row in 0..N {
            let [decay, key] = [keyed[row][0][i], keyed[row][1][i]];
            s = changed(simd, ScanForm::Linear, s, [decay, key, 0.0], [values[row]; 2]);
        }
        simd.store(s, &mut strip[i]);
    }
}

/// `S^T by` of a strip.
#[inline(always)]
fn read<S: Simd>(simd: S, by: &[f32], strip: &[[f32; STRIP]]) -> S::V {
    let mut sums = [simd.splat(0.0); 4];
    let (fours, rest) = by.as_chunks::<4>();
    let (strips, strip_rest) = strip.as_chunks::<4>();
    for (by, s) in fours.iter().zip(strips) {
        for i in 0..4 {
            sums[i] = simd.fma(simd.splat(by[i]), simd.load(&s[i]), sums[i]);
        }
    }
    for (i, (by, s)) in rest.iter().zip(strip_rest).enumerate() {
        sums[i] = simd.fma(simd.splat(*by), simd.load(s), sums[i]);
    }
    fold(simd, sums)
}

/// What is known of a row before it changes a strip: what it erases, and what it adds.
#[inline(always)]
fn begin<S: Simd>(
    simd: S,
    form: ScanForm,
    rows: &ScanRows<'_>,
    row: usize,
    value: S::V,
    strip: &[[f32; STRIP]],
) -> [S::V; 2] {
    match form {
        ScanForm::Linear | ScanForm::Wkv6 => [value; 2],
        ScanForm::Delta => {
            let known = read(simd, rows.field(row, KeyField::Erase), strip);
            [known, simd.mul(simd.sub(value, known), simd.splat(rows.betas[row]))]
        }
        ScanForm::Wkv7 => [read(simd, rows.field(row, KeyField::Erase), strip), value],
    }
}

/// A row of a strip as it becomes.
#[inline(always)]
fn changed<S: Simd>(
    simd: S,
    form: ScanForm,
    s: S::V,
    [decay, key, bonus]: [f32; 3],
    [known, added]: [S::V; 2],
) -> S::V {
    let kept = simd.mul(simd.splat(decay), s);
    let kept = match form {
        ScanForm::Wkv7 => simd.fma(simd.splat(bonus), known, kept),
        ScanForm::Linear | ScanForm::Delta | ScanForm::Wkv6 => kept,
    };
    simd.fma(simd.splat(key), added, kept)
}

#[inline(always)]
fn silent<S: Simd>(
    simd: S,
    form: ScanForm,
    rows: &ScanRows<'_>,
    row: usize,
    value: S::V,
    strip: &mut [[f32; STRIP]],
) {
    let begun = begin(simd, form, rows, row, value, strip);
    let field = |field| rows.field(row, field);
    let [decay, key, bonus] = [KeyField::Decay, KeyField::Key, KeyField::Bonus].map(field);
    for (((s, decay), key), bonus) in strip.iter_mut().zip(decay).zip(key).zip(bonus) {
        simd.store(changed(simd, form, simd.load(s), [*decay, *key, *bonus], begun), s);
    }
}

/// Change a row of a strip, and add what is read of it. A function and no closure: a closure that the compiler leaves a
/// function of its own knows nothing of the caller's instruction set.
#[inline(always)]
fn seen<S: Simd>(
    simd: S,
    form: ScanForm,
    s: &mut [f32; STRIP],
    [decay, key, bonus, query]: [f32; 4],
    begun: [S::V; 2],
    [value, sum]: [S::V; 2],
) -> S::V {
    let old = simd.load(s);
    let new = changed(simd, form, old, [decay, key, bonus], begun);
    simd.store(new, s);
    let seen = match form {
        ScanForm::Wkv6 => simd.fma(simd.splat(bonus), value, old),
        ScanForm::Linear | ScanForm::Delta | ScanForm::Wkv7 => new,
    };
    simd.fma(simd.splat(query), seen, sum)
}

#[inline(always)]
fn one<S: Simd>(
    simd: S,
    form: ScanForm,
    rows: &ScanRows<'_>,
    row: usize,
    value: S::V,
    strip: &mut [[f32; STRIP]],
) -> S::V {
    let begun = begin(simd, form, rows, row, value, strip);
    let field = |field| rows.field(row, field);
    let [decay, key, bonus] = [KeyField::Decay, KeyField::Key, KeyField::Bonus].map(field);
    let query = field(KeyField::Query);
    let mut sums = [simd.splat(0.0); 4];
    let (fours, rest) = strip.as_chunks_mut::<4>();
    let n = fours.len();
    let (decays, keys) = (decay.as_chunks::<4>().0, key.as_chunks::<4>().0);
    let (bonuses, queries) = (bonus.as_chunks::<4>().0, query.as_chunks::<4>().0);
    let by = decays.iter().zip(keys).zip(bonuses).zip(queries);
    for (s, (((decay, key), bonus), query)) in fours.iter_mut().zip(by) {
        for i in 0..4 {
            let by = [decay[i], key[i], bonus[i], query[i]];
            sums[i] = seen(simd, form, &mut s[i], by, begun, [value, sums[i]]);
        }
    }
    for (i, s) in rest.iter_mut().enumerate() {
        let at = 4 * n + i;
        let by = [decay[at], key[at], bonus[at], query[at]];
        sums[i] = seen(simd, form, s, by, begun, [value, sums[i]]);
    }
    fold(simd, sums)
}

/// The [`SELECTIVE_SCAN`](super::SELECTIVE_SCAN) op.
#[inline(always)]
pub(super) fn selective<S: Simd>(
    simd: S,
    rows: &SelectiveRows<'_>,
    state: &mut [f32],
    mut out: Option<&mut [f32]>,
) {
    let (strip, rates) = (state.as_chunks_mut::<STRIP>().0, rows.rates.as_chunks::<STRIP>().0);
    let key_dim = strip.len();
    let values = rows.values.as_chunks::<STRIP>().0;
    for (row, (time, value)) in rows.times.as_chunks::<STRIP>().0.iter().zip(values).enumerate() {
        let keyed = row * key_dim..(row + 1) * key_dim;
        let (keys, queries) = (&rows.keys[keyed.clone()], &rows.queries[keyed]);
        let time = simd.load(time);
        let added = simd.mul(time, simd.load(value));
        let mut sums = [simd.splat(0.0); 4];
        let each = strip.iter_mut().zip(rates).zip(keys).zip(queries);
        for (i, (((s, rate), key), query)) in each.enumerate() {
            let decay = exp(simd, simd.mul(time, simd.load(rate)));
            let new = simd.fma(simd.splat(*key), added, simd.mul(decay, simd.load(s)));
            simd.store(new, s);
            sums[i % 4] = simd.fma(simd.splat(*query), new, sums[i % 4]);
        }
        if let Some(out) = &mut out {
            let out = out[row * STRIP..].first_chunk_mut().expect("a strip of results");
            simd.store(fold(simd, sums), out);
        }
    }
}
