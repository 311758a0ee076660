//! A model whose logits are listened to: which bits each position of a session had, for rows that stayed.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use program::{LogitRows, RowsOut, SessionId, Step, StepOut};

use crate::Watch;

/// Keeps a digest of each row of logits by session and position.
#[derive(Default)]
pub(super) struct Listened {
    heard: Mutex<BTreeMap<SessionId, BTreeMap<usize, u64>>>,
}

impl Listened {
    /// One digest of all rows that `session` yielded from position `start` on and kept.
    pub(super) fn digest(&self, session: SessionId, start: usize) -> u64 {
        let mut all = Fnv::default();
        if let Some(rows) = self.heard().get(&session) {
            for (position, row) in rows.range(start..) {
                all.write_usize(*position);
                all.write_u64(*row);
            }
        }
        all.finish()
    }

    fn heard(&self) -> MutexGuard<'_, BTreeMap<SessionId, BTreeMap<usize, u64>>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// FNV-1a: the same everywhere, and of 64 bits.
/// Source: draft-eastlake-fnv.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn row_digests(rows: &LogitRows) -> impl Iterator<Item = u64> {
    rows.rows().map(|row| {
        let mut digest = Fnv::default();
        // eight bytes at a time: rows are long
        let mut pairs = row.chunks_exact(2);
        for pair in &mut pairs {
            let bits = u64::from(pair[0].to_bits()) << 32 | u64::from(pair[1].to_bits());
            digest.0 = (digest.0 ^ bits).wrapping_mul(0x0100_0000_01B3).rotate_left(29);
        }
        pairs.remainder().iter().for_each(|x| digest.write_u64(u64::from(x.to_bits())));
        digest.finish()
    })
}

impl Watch for Listened {
    fn stepped(&self, step: &Step<'_>, starts: &[usize], out: &mut StepOut) {
        for ((sequence, start), rows) in step.sequences.iter().zip(starts).zip(&out.sequences) {
            let Ok(RowsOut::Logits(rows)) = rows else { continue };
            let wanted = sequence.outputs.range(sequence.tokens.len());
            let mut heard = self.heard();
            let heard = heard.entry(sequence.session).or_default();
            heard.extend(wanted.map(|row| start + row).zip(row_digests(rows)));
        }
    }

    fn truncated(&self, id: SessionId, len: usize) {
        if let Some(rows) = self.heard().get_mut(&id) {
            rows.split_off(&len);
        }
    }
}
