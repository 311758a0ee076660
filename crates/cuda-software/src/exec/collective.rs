//! Instructions in which lanes of a warp exchange values.

use super::access::lanes;
use super::block::Machine;
use super::warp::{Run, Warp};
use super::{FaultKind, Trouble};
use crate::ptx::{Instr, Shuffle, Vote};

impl Warp {
    /// `shfl.sync` for the lanes of a mask.
    pub(super) fn shuffle(
        &mut self,
        machine: &Machine<'_>,
        i: &Instr,
        mode: Shuffle,
        mask: u32,
    ) -> Run<()> {
        let source = self.w[i.a as usize].0;
        let b = self.w[i.b as usize].0;
        let c = self.w[i.c as usize].0;
        let mut out = source;
        let mut found = 0_u32;
        for lane in lanes(mask) {
            let l = lane as u32;
            let by = b[lane] & 31;
            let segment = c[lane] >> 8 & 31;
            let limit = l & segment | c[lane] & 31 & !segment;
            let (from, inside) = match mode {
                Shuffle::Bfly => (l ^ by, l ^ by <= limit),
                Shuffle::Up => {
                    (l.wrapping_sub(by), l.cast_signed() - by.cast_signed() >= limit.cast_signed())
                }
                Shuffle::Down => (l + by, l + by <= limit),
                Shuffle::Idx => {
                    let from = l & segment | by & !segment;
                    (from, from <= limit)
                }
            };
            let from = if inside { from } else { l };
            if mask >> from & 1 == 0 {
                let text = format!("shfl.sync reads lane {from}, which takes no part");
                return Err(Trouble::new(FaultKind::Divergent, l, text));
            }
            out[lane] = source[from as usize];
            found |= u32::from(inside) << lane;
        }
        self.set(i.d, mask, out);
        let predicate = machine.kernel.exts[i.ext as usize].regs[1];
        self.set_predicate(predicate, mask, found);
        Ok(())
    }

    /// `vote.sync` for the lanes of a mask.
    pub(super) fn vote(&mut self, i: &Instr, mode: Vote, mask: u32) {
        let predicate = self.p[i.a as usize];
        let votes = if i.c == 1 { !predicate } else { predicate } & mask;
        let result = match mode {
            Vote::All => votes == mask,
            Vote::Any => votes != 0,
            Vote::Uni => votes == 0 || votes == mask,
            Vote::Ballot => {
                self.set(i.d, mask, [votes; 32]);
                return;
            }
        };
        self.set_predicate(i.d, mask, if result { u32::MAX } else { 0 });
    }
}
