//! What a step yields: which rows are read back, and what each sequence gets of them.

use std::cmp::Reverse;

use program::{
    AmongRow, Candidate, CandidateRows, Error, HiddenRows, LogitRows, OutputKind, OutputRows,
    Result, Rows, RowsOut, Sequence, Wanted, rows_among,
};

use super::step::Running;
use crate::backend::Command;
use crate::batch::Batch;
use crate::dispatch;
use crate::plan::{GpuPlan, Place, RowsSpec};
use crate::slots::Slots;
use crate::workspace::StepMemory;

/// A value that is read back whole.
struct Region {
    kind: OutputKind,
    place: Place,
    spec: RowsSpec,
    /// From a row to the next one.
    stride: usize,
    n_rows: usize,
    /// Its first number among all that is read.
    start: usize,
}

/// The likeliest tokens of selected rows.
struct Best {
    /// Of a list.
    k: usize,
    n_rows: usize,
    /// Whether the device joined the lists of a row; else there is one for each stretch.
    joined: bool,
    /// Its first number among all that is read: a token is two.
    start: usize,
    /// Logits that are told, behind these.
    n_told: usize,
    vocab_size: usize,
}

/// What is read back of a step.
pub(super) struct Readback {
    regions: Vec<Region>,
    best: Option<Best>,
    len: usize,
    /// Timestamps that are read back behind that, at most.
    n_stamps: usize,
}

/// Most tokens that are looked for on the device, of a row (a top-k of 256 takes one more) and of all rows of a step: of more
/// the host takes all logits.
const MOST_BEST: usize = 257;
const MOST_OF_ALL: usize = 1 << 14;

/// Up to how many of the likeliest tokens of a row the device finds.
pub(super) fn most_best(plan: &GpuPlan) -> usize {
    dispatch::logits(plan).map_or(0, |(_, vocab_size)| MOST_BEST.min(vocab_size.saturating_sub(1)))
}

/// How many of the likeliest tokens of each row the device is to find: 0 if somebody wants all, or most.
pub(super) fn n_best(plan: &GpuPlan, sequences: &[&Sequence<'_>]) -> usize {
    let (mut most, mut rows) = (0, 0);
    for Sequence { outputs, tokens, .. } in sequences {
        let n = outputs.count(tokens.len());
        if n == 0 {
            continue;
        }
        rows += n;
        match outputs.what {
            Wanted::Candidates { k } => most = most.max(k),
            _ if outputs.needs_logits() => return 0,
            _ => {}
        }
    }
    let few = most <= most_best(plan) && rows * most <= MOST_OF_ALL;
    if few { most } else { 0 }
}

impl Readback {
    /// What these sequences want, and up to so many timestamps.
    pub(super) fn of(
        plan: &GpuPlan,
        batch: &Batch,
        sequences: &[&Sequence<'_>],
        n_stamps: usize,
    ) -> Readback {
        let wants = |kind: OutputKind| {
            sequences.iter().any(|sequence| match kind {
                OutputKind::Logits => sequence.outputs.needs_logits(),
                OutputKind::Hidden => sequence.outputs.what == Wanted::Hidden,
                OutputKind::Rows => sequence.outputs.needs_rows(),
            })
        };
        let (mut regions, mut len): (Vec<Region>, usize) = (Vec::new(), 0);
        for &(kind, place, spec) in &plan.outputs {
            // of logits and hidden rows there is one value
            let known = kind != OutputKind::Rows && regions.iter().any(|its| its.kind == kind);
            let found = kind == OutputKind::Logits && batch.n_best > 0;
            if !known && !found && wants(kind) {
                let stride = plan.buffer(place.buffer).stride();
                let n_rows = batch.count(spec.rows);
                regions.push(Region { kind, place, spec, stride, n_rows, start: len });
                len += n_rows * stride;
            }
        }
        let best = dispatch::logits(plan).filter(|_| batch.n_best > 0).map(|(_, vocab_size)| {
            let (k, n_rows, start) = (batch.n_best, batch.n_selected, len);
            let (joined, n_told) = (batch.joins_found, batch.n_told);
            let best = Best { k, n_rows, joined, start, n_told, vocab_size };
            len += best.told_at() - start + best.n_told;
            best
        });
        Readback { regions, best, len, n_stamps }
    }

    /// Bytes of all of it.
    pub(super) fn bytes(&self) -> u64 {
        match self.n_stamps {
            0 => 4 * self.len as u64,
            n => self.stamps_at() + 8 * n as u64,
        }
    }

    /// Where timestamps begin, in bytes.
    pub(super) fn stamps_at(&self) -> u64 {
        4 * self.len.next_multiple_of(2) as u64
    }

    /// So many timestamps of what was read back.
    pub(super) fn stamps(&self, found: &[f32], n: usize) -> Vec<u64> {
        let words = &found[self.stamps_at() as usize / 4..][..2 * n];
        let stamps = words.as_chunks::<2>().0.iter();
        stamps
            .map(|[low, high]| u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32)
            .collect()
    }

    /// The copies that bring it to where the host can read.
    pub(super) fn copies<'a>(&self, workspace: &'a StepMemory, slots: &Slots) -> Vec<Command<'a>> {
        let mut commands = Vec::new();
        let to = workspace.readback();
        for Region { place, stride, n_rows, start, .. } in &self.regions {
            let bytes = 4 * (n_rows * stride) as u64;
            if bytes > 0 {
                let from = workspace.slot(slots.of(place.buffer));
                let to_at = 4 * *start as u64;
                commands.push(Command::Copy { from, from_at: 0, to, to_at, bytes });
            }
        }
        if let Some(best) = &self.best {
            let tokens = if best.joined { workspace.best() } else { workspace.found() };
            let told = 2 * best.k * best.n_rows;
            let copies = [
                (tokens, 0, best.start, best.told_at() - best.start),
                (workspace.best(), told, best.told_at(), best.n_told),
            ];
            for (from, first, at, n) in copies.into_iter().filter(|(.., n)| *n > 0) {
                let [from_at, to_at, bytes] = [first, at, n].map(|words| 4 * words as u64);
                commands.push(Command::Copy { from, from_at, to, to_at, bytes });
            }
        }
        commands
    }

    /// The rows of sequence `i` in a region, without what fills them up.
    fn rows(&self, region: &Region, batch: &Batch, found: &[f32], i: usize) -> Vec<f32> {
        let Region { spec, stride, start, place, .. } = region;
        let rows = batch.rows_of(i, spec.rows);
        let row = |row: usize| {
            let at = start + row * stride + place.offset;
            &found[at..at + spec.cols]
        };
        rows.flat_map(row).copied().collect()
    }

    /// What sequence `i` yields, all finite but for rows that are handed on.
    pub(super) fn rows_out(
        &self,
        batch: &Batch,
        found: &[f32],
        i: usize,
        running: &Running<'_, '_>,
    ) -> Result<RowsOut> {
        if let (Wanted::Candidates { k }, Some(best)) = (running.sequence.outputs.what, &self.best)
        {
            return best.rows_out(k, batch, found, i, running);
        }
        if let (Wanted::Candidates { k }, false) =
            (running.sequence.outputs.what, running.among.is_empty())
        {
            let logits = self.rows_of(Wanted::Logits, batch, found, i, running)?.into_logits();
            return Ok(rows_among(&logits, k, running.among));
        }
        let of = |what| self.rows_of(what, batch, found, i, running);
        let handed = || {
            let handed = self.regions.iter().filter(|region| region.kind == OutputKind::Rows);
            handed.map(|region| self.rows(region, batch, found, i)).collect()
        };
        match running.sequence.outputs.what {
            Wanted::Rows => Ok(RowsOut::Rows(handed())),
            Wanted::LogitsAndRows => {
                Ok(RowsOut::LogitsAndRows(of(Wanted::Logits)?.into_logits(), handed()))
            }
            what @ (Wanted::Logits | Wanted::Candidates { .. } | Wanted::Hidden) => of(what),
        }
    }

    /// The rows of one value that sequence `i` yields.
    fn rows_of(
        &self,
        what: Wanted,
        batch: &Batch,
        found: &[f32],
        i: usize,
        running: &Running<'_, '_>,
    ) -> Result<RowsOut> {
        let Sequence { outputs, tokens, .. } = running.sequence;
        let kind = if what == Wanted::Hidden { OutputKind::Hidden } else { OutputKind::Logits };
        let mut regions = self.regions.iter().filter(|region| region.kind == kind);
        let region = regions.next().filter(|_| outputs.rows != OutputRows::None);
        let Some(region) = region else { return Ok(RowsOut::none(what)) };
        let cols = region.spec.cols;
        let all = self.rows(region, batch, found, i);
        // of a value of all rows, those that are wanted
        let wanted = outputs.range(tokens.len());
        let numbers = match region.spec.rows {
            Rows::Tokens => all[wanted.start * cols..wanted.end * cols].to_vec(),
            Rows::Selected => all,
        };
        if let Some(bad) = numbers.iter().position(|x| !x.is_finite()) {
            return Err(Error::NonFinite { position: running.first_wanted() + bad / cols });
        }
        if what == Wanted::Hidden {
            return Ok(RowsOut::Hidden(HiddenRows { hidden: numbers, hidden_size: cols }));
        }
        let rows = LogitRows::new(numbers, cols);
        let Wanted::Candidates { k } = what else { return Ok(RowsOut::Logits(rows)) };
        let LogitRows { logits, vocab_size, peaks } = rows;
        Ok(RowsOut::Candidates(CandidateRows::of(&logits, vocab_size, &peaks, k)?))
    }
}

impl Best {
    fn n_lists(&self) -> usize {
        if self.joined { 1 } else { dispatch::stretches(self.vocab_size) }
    }

    /// Where logits that are told begin, among all that is read.
    fn told_at(&self) -> usize {
        self.start + 2 * self.k * self.n_lists() * self.n_rows
    }

    /// The likeliest tokens of the rows of sequence `i`, and what is told beside them.
    fn rows_out(
        &self,
        k: usize,
        batch: &Batch,
        found: &[f32],
        i: usize,
        running: &Running<'_, '_>,
    ) -> Result<RowsOut> {
        let k = k.min(self.vocab_size);
        let mut rows = Vec::new();
        let mut told = self.told_at() + batch.first_told(i);
        for (index, row) in batch.rows_of(i, Rows::Selected).enumerate() {
            let of_row = 2 * self.k * self.n_lists();
            let lists = &found[self.start + row * of_row..][..of_row];
            let tokens = lists.as_chunks::<2>().0.iter().map(|token| token.map(f32::to_bits));
            // where fewer tokens are allowed, nobody follows them
            let mut tokens: Vec<_> = tokens.filter(|[key, _]| *key != 0).collect();
            tokens.sort_unstable_by_key(|[key, token]| (Reverse(*key), *token));
            tokens.truncate(k);
            let tokens = tokens.into_iter();
            let candidates: Vec<_> =
                tokens.map(|[key, token]| Candidate { token, logit: logit(key) }).collect();
            if candidates.iter().any(|one| !one.logit.is_finite()) {
                return Err(Error::NonFinite { position: running.first_wanted() + index });
            }
            let n_told = running.among.get(index).map_or(0, |among| among.told.len());
            rows.push(AmongRow { candidates, told: found[told..told + n_told].to_vec() });
            told += n_told;
        }
        if !running.among.is_empty() {
            return Ok(RowsOut::Among(rows));
        }
        let candidates = rows.into_iter().flat_map(|row| row.candidates).collect();
        Ok(RowsOut::Candidates(CandidateRows { candidates, k }))
    }
}

/// The logit whose place in the order of `kernels/best.wgsl` this is.
fn logit(key: u32) -> f32 {
    let negative = key & 1 << 31 == 0;
    f32::from_bits(if negative { !key } else { key & !(1 << 31) })
}
