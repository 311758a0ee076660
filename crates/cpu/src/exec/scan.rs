//! Recurrence phases: each head's matrix, from the state before through the rows since to the rows of the step.
//!
//! A row has the same bits whichever state it is reached from: rows change a matrix one after another, each by the same
//! operations.

use std::ops::Range;

use kernels::rows::Unary;
use kernels::scan::{KEY_FIELDS, KeyField, STRIP, ScanForm, ScanRows, SelectiveRows};
use kv::StateStep;
use program::{ScanDims, ScanKind, alibi_slope};

use super::blocks::StateMemory;
use super::{Exec, Scratch, SequenceRows};
use crate::plan::ScanPhase;
use crate::pool::Worker;
use crate::schedule::LoadedScan;

/// Rows that are made ready at a time.
const ROWS: usize = 16;
/// Strips of an item whose columns go on their own.
const STRIPS: usize = 4;

/// Floats of scratch that a worker needs.
pub(crate) fn scan_floats(phase: &ScanPhase) -> usize {
    let key_dim = phase.scan.dims.key_dim;
    if phase.is_selective() {
        // a strip; keys and queries; times, values and results
        return key_dim * STRIP + ROWS * (2 * key_dim + 3 * STRIP);
    }
    phase.head_floats() + ROWS * (KEY_FIELDS * key_dim + 2 * phase.width() + 1)
}

/// Where one sequence stands.
struct Place<'a> {
    phase: &'a ScanPhase,
    rates: &'a [f32],
    rows: SequenceRows,
    step: &'a StateStep,
    memory: StateMemory<'a>,
    row_floats: usize,
}

/// Memory of a head.
struct HeadScratch<'a> {
    state: &'a mut [f32],
    keyed: &'a mut [f32],
    values: &'a mut [f32],
    out: &'a mut [f32],
    betas: &'a mut [f32],
}

impl Exec<'_> {
    /// Items are the heads of a sequence, or some of its strips, and its rows to be kept.
    pub(super) fn scan(&self, worker: &Worker<'_>, scan: &LoadedScan, scratch: &mut Scratch<'_>) {
        let LoadedScan { phase, rates } = scan;
        let cache = self.attention[phase.scan.cache.0 as usize].state();
        let heads = match phase.is_selective() {
            true => (phase.width() / STRIP).div_ceil(STRIPS),
            false => phase.scan.dims.n_heads,
        };
        let stored = |sequence: usize| {
            let step = self.blocks.state_step(sequence);
            step.new.end - step.stored_from
        };
        let n_items: usize = (0..self.sequences.len()).map(|s| heads + stored(s)).sum();
        worker.section(|section| {
            for item in section.take(n_items) {
                let (mut sequence, mut item) = (0, item);
                while item >= heads + stored(sequence) {
                    item -= heads + stored(sequence);
                    sequence += 1;
                }
                let place = Place {
                    phase,
                    rates,
                    rows: self.sequences[sequence],
                    step: self.blocks.state_step(sequence),
                    memory: self.blocks.state(cache.number, sequence),
                    row_floats: cache.row,
                };
                if item >= heads {
                    self.keep_row(&place, place.step.stored_from + item - heads);
                } else if phase.is_selective() {
                    self.selective(&place, item * STRIPS, scratch.attention);
                } else {
                    self.head(&place, item, scratch.attention);
                }
            }
        });
    }

    /// What the row at a position gives as input `i`, or reads with if that is 0 and it is a row of the step.
    fn given<'s>(&'s self, place: &Place<'s>, i: usize, position: usize) -> &'s [f32] {
        let input = place.phase.inputs[i];
        if position >= place.rows.start {
            let row = place.rows.first_row + position - place.rows.start;
            return &self.row(input.operand, row)[input.start..][..input.n];
        }
        let from = StateStep::slot(position) * place.row_floats + place.phase.offset(i);
        // SAFETY: rows that were kept before; the step writes other slots.
        unsafe { place.memory.ring.slice(from..from + input.n) }
    }

    fn keep_row(&self, place: &Place<'_>, position: usize) {
        let from = StateStep::slot(position) * place.row_floats;
        // SAFETY: each row is one item's; slots of the step are not read in it.
        let kept = unsafe { place.memory.stored.slice_mut(from..from + place.row_floats) };
        let mut rest = kept;
        for i in 1..place.phase.inputs.len() {
            let given = self.given(place, i, position);
            let (part, after) = rest.split_at_mut(given.len());
            part.copy_from_slice(given);
            rest = after;
        }
    }

    /// Stretches of positions from the state on, none of which contains the first new row or the place of a new state within,
    /// and whether that comes after it.
    fn stretches(step: &StateStep) -> impl Iterator<Item = (Range<usize>, bool)> {
        let mut ends = [Some(step.new.start), step.fold, Some(step.new.end)];
        ends.sort_unstable();
        let (fold, mut from) = (step.fold, step.base);
        ends.into_iter().flatten().filter_map(move |end| {
            let stretch = from..end.max(from);
            from = stretch.end;
            (!stretch.is_empty()).then_some((stretch, fold == Some(end)))
        })
    }

    fn head(&self, place: &Place<'_>, head: usize, scratch: &mut [f32]) {
        let (phase, step) = (place.phase, place.step);
        let ScanDims { key_dim, value_dim, .. } = phase.scan.dims;
        let (floats, width) = (phase.head_floats(), phase.width());
        let own = head * floats..(head + 1) * floats;
        let (state, rest) = scratch.split_at_mut(floats);
        let (keyed, rest) = rest.split_at_mut(ROWS * KEY_FIELDS * key_dim);
        let (values, rest) = rest.split_at_mut(ROWS * width);
        let (out, betas) = rest.split_at_mut(ROWS * width);
        let mut scratch = HeadScratch { state, keyed, values, out, betas };
        // SAFETY: no step writes the state it starts from.
        let mut from = place.memory.base.map(|base| unsafe { base.slice(own.clone()) });
        if from.is_none() {
            scratch.state.fill(0.0);
        }
        let d = match phase.scan.kind {
            ScanKind::Ssd { d, .. } => Some(self.weights.vector(d)[head]),
            _ => None,
        };
        for (stretch, folds) in Self::stretches(step) {
            let is_new = stretch.start >= step.new.start;
            for first in stretch.clone().step_by(ROWS) {
                let rows = first..stretch.end.min(first + ROWS);
                let n = rows.len();
                for (i, position) in rows.clone().enumerate() {
                    self.ready(place, head, position, i, &mut scratch);
                }
                let HeadScratch { state, keyed, values, out, betas } = &mut scratch;
                let form = match phase.scan.kind {
                    ScanKind::Delta { .. } => ScanForm::Delta,
                    ScanKind::Wkv6 { .. } => ScanForm::Wkv6,
                    ScanKind::Wkv7 => ScanForm::Wkv7,
                    _ => ScanForm::Linear,
                };
                let ready = ScanRows {
                    form,
                    key_dim,
                    from: from.take(),
                    keyed: &keyed[..n * KEY_FIELDS * key_dim],
                    values: &values[..n * width],
                    betas: &betas[..n],
                };
                let out = &mut out[..n * width];
                self.kernels.scan.call(&ready, state, is_new.then_some(&mut *out));
                for (read, position) in out.chunks_exact(width).zip(rows).filter(|_| is_new) {
                    let row = place.rows.first_row + position - place.rows.start;
                    let at = row * phase.out.cols + head * value_dim;
                    // SAFETY: a head's columns are one item's.
                    let out = unsafe { self.value(phase.out).slice_mut(at..at + value_dim) };
                    out.copy_from_slice(&read[..value_dim]);
                    if let Some(d) = d {
                        let x = &self.given(place, 2, position)[head * value_dim..];
                        out.iter_mut().zip(x).for_each(|(y, x)| *y += d * x);
                    }
                }
            }
            if let (true, Some(fold)) = (folds, place.memory.fold) {
                // SAFETY: a head's matrix is one item's.
                unsafe { fold.slice_mut(own.clone()) }.copy_from_slice(scratch.state);
            }
        }
    }

    /// Make row `i` of a batch ready: that of `position`.
    fn ready(
        &self,
        place: &Place<'_>,
        head: usize,
        position: usize,
        i: usize,
        scratch: &mut HeadScratch<'_>,
    ) {
        let ScanPhase { scan, .. } = place.phase;
        let dims @ ScanDims { n_heads, key_dim, value_dim, .. } = scan.dims;
        let width = place.phase.width();
        let is_new = position >= place.step.new.start;
        let of = |input: usize, head: usize, width: usize| {
            &self.given(place, input, position)[head * width..(head + 1) * width]
        };
        let key = of(1, dims.key_head(head), key_dim);
        let query = is_new.then(|| of(0, dims.key_head(head), key_dim));
        let values = &mut scratch.values[i * width..(i + 1) * width];
        values[value_dim..].fill(0.0);
        values[..value_dim].copy_from_slice(of(2, head, value_dim));
        let fields = &mut scratch.keyed[i * KEY_FIELDS * key_dim..][..KEY_FIELDS * key_dim];
        let mut each = fields.chunks_exact_mut(key_dim);
        let mut fields: [&mut [f32]; KEY_FIELDS] =
            std::array::from_fn(|_| each.next().expect("a row has all fields"));
        let decay = |fields: &mut [&mut [f32]], g: &[f32]| {
            let decay = &mut *fields[KeyField::Decay as usize];
            if g.len() == n_heads {
                let mut one = [g[head]];
                self.kernels.act.call(Unary::Exp, &mut one);
                decay.fill(one[0]);
            } else {
                decay.copy_from_slice(&g[head * key_dim..(head + 1) * key_dim]);
                self.kernels.act.call(Unary::Exp, decay);
            }
        };
        let [k, q] = [KeyField::Key as usize, KeyField::Query as usize];
        match scan.kind {
            ScanKind::Delta { eps } => {
                decay(&mut fields, self.given(place, 3, position));
                // a root mean square is a length but for the number of elements
                let unit = |x: &[f32], out: &mut [f32], scale: f32| {
                    let ones = self.weights.ones(key_dim);
                    let eps = (eps / key_dim as f32).max(f32::MIN_POSITIVE);
                    self.kernels.rms_norm.call(x, ones, eps, out);
                    out.iter_mut().for_each(|x| *x *= scale);
                };
                unit(key, fields[k], 1.0 / (key_dim as f32).sqrt());
                if let Some(query) = query {
                    unit(query, fields[q], 1.0 / key_dim as f32);
                }
                let (decays, rest) = fields.split_at_mut(1);
                let (keys, rest) = rest.split_at_mut(1);
                let erase = rest[0].iter_mut().zip(&*decays[0]).zip(&*keys[0]);
                erase.for_each(|((erase, decay), key)| *erase = decay * key);
                scratch.betas[i] = self.given(place, 4, position)[head];
                return;
            }
            ScanKind::Linear { scale } => {
                decay(&mut fields, self.given(place, 3, position));
                let query = query.unwrap_or(key);
                fields[q].iter_mut().zip(query).for_each(|(q, x)| *q = x * scale);
                fields[k].copy_from_slice(key);
                scratch.betas[i] = 1.0;
                return;
            }
            ScanKind::Lightning { factor } => {
                let slope = alibi_slope(head, n_heads, 8.0) * f64::from(factor);
                fields[KeyField::Decay as usize].fill((-slope).exp() as f32);
            }
            ScanKind::Ssd { a, .. } => {
                let dt = self.given(place, 3, position)[head];
                let mut one = [dt * self.weights.vector(a)[head]];
                self.kernels.act.call(Unary::Exp, &mut one);
                fields[KeyField::Decay as usize].fill(one[0]);
                values.iter_mut().for_each(|x| *x *= dt);
            }
            ScanKind::Wkv6 { first } => {
                decay(&mut fields, self.given(place, 3, position));
                let first = &self.weights.vector(first)[head * key_dim..];
                let bonus = fields[KeyField::Bonus as usize].iter_mut().zip(key).zip(first);
                bonus.for_each(|((bonus, key), first)| *bonus = key * first);
            }
            ScanKind::Wkv7 => {
                decay(&mut fields, self.given(place, 3, position));
                fields[KeyField::Erase as usize].copy_from_slice(of(4, head, key_dim));
                fields[KeyField::Bonus as usize].copy_from_slice(of(5, head, key_dim));
            }
            ScanKind::Selective { .. } => unreachable!("its columns go on their own"),
        }
        fields[k].copy_from_slice(key);
        fields[q].copy_from_slice(query.unwrap_or(key));
        scratch.betas[i] = 1.0;
    }

    /// Some strips, from `first` on, of the only head.
    fn selective(&self, place: &Place<'_>, first: usize, scratch: &mut [f32]) {
        let (phase, step) = (place.phase, place.step);
        let ScanKind::Selective { d, .. } = phase.scan.kind else {
            unreachable!("the caller found one");
        };
        let d = self.weights.vector(d);
        let ScanDims { key_dim, value_dim, .. } = phase.scan.dims;
        let floats = key_dim * STRIP;
        let (state, rest) = scratch.split_at_mut(floats);
        let (keys, rest) = rest.split_at_mut(ROWS * key_dim);
        let (queries, rest) = rest.split_at_mut(ROWS * key_dim);
        let (times, rest) = rest.split_at_mut(ROWS * STRIP);
        let (values, rest) = rest.split_at_mut(ROWS * STRIP);
        let out = &mut rest[..ROWS * STRIP];
        for strip in first..(first + STRIPS).min(phase.width() / STRIP) {
            let own = strip * floats..(strip + 1) * floats;
            let columns = strip * STRIP..value_dim.min((strip + 1) * STRIP);
            let n_columns = columns.len();
            match place.memory.base {
                // SAFETY: no step writes the state it starts from.
                Some(base) => state.copy_from_slice(unsafe { base.slice(own.clone()) }),
                None => state.fill(0.0),
            }
            let lanes = |x: &[f32], lanes: &mut [f32]| {
                lanes[n_columns..].fill(0.0);
                lanes[..n_columns].copy_from_slice(&x[columns.clone()]);
            };
            for (stretch, folds) in Self::stretches(step) {
                let is_new = stretch.start >= step.new.start;
                for from in stretch.clone().step_by(ROWS) {
                    let rows = from..stretch.end.min(from + ROWS);
                    let n = rows.len();
                    for (i, position) in rows.clone().enumerate() {
                        let keyed = i * key_dim..(i + 1) * key_dim;
                        let key = self.given(place, 1, position);
                        keys[keyed.clone()].copy_from_slice(key);
                        let query = if is_new { self.given(place, 0, position) } else { key };
                        queries[keyed].copy_from_slice(query);
                        let at = i * STRIP..(i + 1) * STRIP;
                        lanes(self.given(place, 2, position), &mut values[at.clone()]);
                        lanes(self.given(place, 3, position), &mut times[at]);
                    }
                    let ready = SelectiveRows {
                        rates: &place.rates[own.clone()],
                        keys: &keys[..n * key_dim],
                        queries: &queries[..n * key_dim],
                        times: &times[..n * STRIP],
                        values: &values[..n * STRIP],
                    };
                    let out = &mut out[..n * STRIP];
                    self.kernels.selective_scan.call(&ready, state, is_new.then_some(&mut *out));
                    let read = out.chunks_exact(STRIP).zip(values.chunks_exact(STRIP));
                    for ((read, x), position) in read.zip(rows).filter(|_| is_new) {
                        let row = place.rows.first_row + position - place.rows.start;
                        let at = row * phase.out.cols + columns.start;
                        // SAFETY: a strip's columns are one item's.
                        let out = unsafe { self.value(phase.out).slice_mut(at..at + n_columns) };
                        let terms = read.iter().zip(x).zip(&d[columns.clone()]);
                        out.iter_mut().zip(terms).for_each(|(y, ((read, x), d))| {
                            *y = read + d * x;
                        });
                    }
                }
                if let (true, Some(fold)) = (folds, place.memory.fold) {
                    // SAFETY: a strip is one item's.
                    unsafe { fold.slice_mut(own.clone()) }.copy_from_slice(state);
                }
            }
        }
    }
}
