//! Recurrences one number at a time: what every other kernel must repeat to the bit.

use super::{KeyField, STRIP, ScanForm, ScanRows, SelectiveRows};
use crate::math::exp;

/// The sum over rows of `by[i] * column(i)`: of every fourth row, and then of these.
fn sum(by: &[f32], column: impl Fn(usize) -> f32) -> f32 {
    let mut sums = [0.0f32; 4];
    for (i, by) in by.iter().enumerate() {
        sums[i % 4] = by.mul_add(column(i), sums[i % 4]);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// The [`SCAN`](super::SCAN) op.
pub(super) fn scan(rows: &ScanRows<'_>, state: &mut [f32], mut out: Option<&mut [f32]>) {
    let (n, key_dim) = (rows.betas.len(), rows.key_dim);
    let width = rows.values.len() / n.max(1);
    if let Some(from) = rows.from {
        state.copy_from_slice(from);
    }
    for row in 0..n {
        let field = |field| rows.field(row, field);
        let [decay, key] = [KeyField::Decay, KeyField::Key].map(field);
        for column in 0..width {
            let strip = column / STRIP * key_dim * STRIP + column % STRIP;
            let value = rows.values[row * width + column];
            let at = |i: usize| strip + i * STRIP;
            let read = |state: &[f32], by: &[f32]| sum(by, |i| state[at(i)]);
            let mut y = 0.0;
            let known = match rows.form {
                ScanForm::Linear => 0.0,
                ScanForm::Delta | ScanForm::Wkv7 => read(state, field(KeyField::Erase)),
                ScanForm::Wkv6 => {
                    let bonus = field(KeyField::Bonus);
                    let seen = |i: usize| bonus[i].mul_add(value, state[at(i)]);
                    if out.is_some() {
                        y = sum(field(KeyField::Query), seen);
                    }
                    0.0
                }
            };
            for i in 0..key_dim {
                let s = &mut state[at(i)];
                *s = match rows.form {
                    ScanForm::Linear | ScanForm::Wkv6 => key[i].mul_add(value, decay[i] * *s),
                    ScanForm::Delta => {
                        key[i].mul_add((value - known) * rows.betas[row], decay[i] * *s)
                    }
                    ScanForm::Wkv7 => {
                        let bonus = field(KeyField::Bonus)[i];
                        key[i].mul_add(value, bonus.mul_add(known, decay[i] * *s))
                    }
                };
            }
            if let Some(out) = &mut out {
                out[row * width + column] = match rows.form {
                    ScanForm::Wkv6 => y,
                    _ => read(state, field(KeyField::Query)),
                };
            }
        }
    }
}

/// The [`SELECTIVE_SCAN`](super::SELECTIVE_SCAN) op.
pub(super) fn selective(rows: &SelectiveRows<'_>, state: &mut [f32], mut out: Option<&mut [f32]>) {
    let key_dim = state.len() / STRIP;
    for row in 0..rows.times.len() / STRIP {
        let keyed = row * key_dim..(row + 1) * key_dim;
        for lane in 0..STRIP {
            let (time, value) = (rows.times[row * STRIP + lane], rows.values[row * STRIP + lane]);
            for (i, key) in rows.keys[keyed.clone()].iter().enumerate() {
                let s = &mut state[i * STRIP + lane];
                let decay = exp(time * rows.rates[i * STRIP + lane]);
                *s = key.mul_add(time * value, decay * *s);
            }
            if let Some(out) = &mut out {
                let column = |i: usize| state[i * STRIP + lane];
                out[row * STRIP + lane] = sum(&rows.queries[keyed.clone()], column);
            }
        }
    }
}
