//! Recurrences: any cut of the rows gives the same bits, read or not.

use kernels::Isa;
use kernels::scan::{KEY_FIELDS, SCAN, SELECTIVE_SCAN, STRIP, ScanForm, ScanRows, SelectiveRows};

use crate::support::{Random, assert_same_bits, compare, sizes};

const FORMS: [ScanForm; 4] = [ScanForm::Linear, ScanForm::Delta, ScanForm::Wkv6, ScanForm::Wkv7];

/// Rows of a matrix, strips, rows that change it.
const SHAPES: &[(usize, usize, usize)] =
    sizes(&[(1, 1, 1), (3, 2, 5), (4, 1, 2), (16, 5, 9), (33, 3, 4), (128, 8, 3)], &[(3, 1, 2)]);

/// Numbers of a recurrence.
pub(crate) struct Case {
    key_dim: usize,
    n: usize,
    keyed: Vec<f32>,
    values: Vec<f32>,
    betas: Vec<f32>,
    state: Vec<f32>,
}

impl Case {
    fn new(key_dim: usize, strips: usize, n: usize) -> Case {
        let mut random = Random::new((key_dim * 100 + strips * 10 + n) as u64);
        let width = strips * STRIP;
        Case {
            key_dim,
            n,
            keyed: random.floats(n * KEY_FIELDS * key_dim, 1.0),
            values: random.floats(n * width, 2.0),
            betas: random.floats(n, 1.0),
            state: random.floats(key_dim * width, 3.0),
        }
    }

    fn rows(&self, form: ScanForm, rows: std::ops::Range<usize>) -> ScanRows<'_> {
        let (fields, width) = (KEY_FIELDS * self.key_dim, self.values.len() / self.n);
        ScanRows {
            form,
            key_dim: self.key_dim,
            from: None,
            keyed: &self.keyed[rows.start * fields..rows.end * fields],
            values: &self.values[rows.start * width..rows.end * width],
            betas: &self.betas[rows],
        }
    }

    fn selective(&self) -> SelectiveRows<'_> {
        let keyed = self.n * self.key_dim;
        SelectiveRows {
            rates: &self.keyed[..self.key_dim * STRIP],
            keys: &self.keyed[self.key_dim..][..keyed],
            queries: &self.keyed[..keyed],
            times: &self.betas,
            values: &self.values[..self.betas.len()],
        }
    }
}

pub(crate) fn scan() -> Vec<&'static str> {
    let mut names = Vec::new();
    for (key_dim, strips, n) in SHAPES.iter().copied() {
        let case = Case::new(key_dim, strips, n);
        for form in FORMS {
            for reads in [true, false] {
                let what = format!("{form:?} {key_dim} x {strips}, {n} rows, {reads}");
                names.extend(compare(&SCAN, &what, |kernel| {
                    let (mut state, mut out) = (case.state.clone(), case.values.clone());
                    let wanted = reads.then_some(&mut out[..]);
                    kernel.call(&case.rows(form, 0..n), &mut state, wanted);
                    let (mut other, mut same) = (vec![f32::NAN; state.len()], case.values.clone());
                    let wanted = reads.then_some(&mut same[..]);
                    let from = Some(&case.state[..]);
                    let rows = ScanRows { from, ..case.rows(form, 0..n) };
                    kernel.call(&rows, &mut other, wanted);
                    assert_same_bits(&other, &state, &format!("{what}, from another matrix"));
                    assert_same_bits(&same, &out, &format!("{what}, from another matrix"));
                    state.iter().chain(&out).map(|x| x.to_bits()).collect()
                }));
            }
        }
    }
    names
}

pub(crate) fn selective() -> Vec<&'static str> {
    let mut names = Vec::new();
    for (key_dim, n) in [(1, 1), (3, 5), (16, 7), (17, 2)] {
        let mut random = Random::new(key_dim as u64);
        let case = Case {
            keyed: random.floats(key_dim * STRIP.max(n + 1), 1.0),
            betas: random.floats(n * STRIP, 1.0),
            values: random.floats(n * STRIP, 2.0),
            state: random.floats(key_dim * STRIP, 3.0),
            key_dim,
            n,
        };
        for reads in [true, false] {
            names.extend(compare(&SELECTIVE_SCAN, &format!("{key_dim}, {n} rows"), |kernel| {
                let (mut state, mut out) = (case.state.clone(), case.values.clone());
                kernel.call(&case.selective(), &mut state, reads.then_some(&mut out[..]));
                state.iter().chain(&out).map(|x| x.to_bits()).collect()
            }));
        }
    }
    names
}

#[test]
fn cuts_change_no_bit() {
    let kernel = SCAN.pick(Isa::detect());
    for (key_dim, strips, n) in SHAPES.iter().copied().filter(|shape| shape.2 > 1) {
        let case = Case::new(key_dim, strips, n);
        let width = strips * STRIP;
        for form in FORMS {
            let (mut whole, mut out) = (case.state.clone(), vec![0.0; n * width]);
            kernel.call(&case.rows(form, 0..n), &mut whole, Some(&mut out));
            for cut in 1..n {
                let (mut state, mut rest) = (case.state.clone(), vec![0.0; (n - cut) * width]);
                kernel.call(&case.rows(form, 0..cut), &mut state, None);
                kernel.call(&case.rows(form, cut..n), &mut state, Some(&mut rest));
                let what = format!("{form:?} {key_dim} x {strips}, {n} rows cut at {cut}");
                assert_same_bits(&state, &whole, &what);
                assert_same_bits(&rest, &out[cut * width..], &what);
            }
        }
    }
}

#[test]
fn a_delta_replaces_what_a_key_holds() {
    // what the key (1, 0) holds, after a decay of a half, becomes the value; the rest is halved
    let (mut state, mut out) = ([[8.0; STRIP], [2.0; STRIP]].concat(), [0.0; STRIP]);
    let rows = ScanRows {
        form: ScanForm::Delta,
        key_dim: 2,
        from: None,
        // decay, key, erase, nothing, query
        keyed: &[0.5, 0.5, 1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 10.0, 1.0],
        values: &[3.0; STRIP],
        betas: &[1.0],
    };
    SCAN.naive().call(&rows, &mut state, Some(&mut out));
    assert_eq!(state, [[3.0; STRIP], [1.0; STRIP]].concat());
    assert_eq!(out, [31.0; STRIP]);
}
