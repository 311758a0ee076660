//! Which words of a kernel's parameters can be the base of an address that it stores to.

use super::instr::{Instr, MemExt, Op, Space};

/// Sets of words of 8 bytes of the parameters, one bit each; the last bit also stands for all that
/// follow.
type Set = u64;

fn bit(word: usize) -> Set {
    1 << word.min(63)
}

/// Words of the parameters that can flow into the address of a store to global memory. What comes from
/// memory, or is put together of halves, counts as all of them.
pub(super) fn stored_params(code: &[Instr], exts: &[MemExt], n_q: usize) -> Set {
    let mut sets: Vec<Set> = vec![0; n_q];
    loop {
        let mut changed = false;
        for i in code {
            let of = |register: u32| sets[register as usize];
            let flow = match i.op {
                Op::LdParam if i.c == 8 => bit(i.a as usize / 8),
                Op::Pack32 => Set::MAX,
                Op::Mov64 | Op::Neg64 | Op::Not64 | Op::Shl64 | Op::Shr64(_) => of(i.a),
                Op::MadWide(_) => of(i.c),
                Op::Mad64 => of(i.a) | of(i.b) | of(i.c),
                Op::Add64
                | Op::Sub64
                | Op::Mul64
                | Op::And64
                | Op::Or64
                | Op::Xor64
                | Op::Min64(_)
                | Op::Max64(_)
                | Op::Div64(_)
                | Op::Rem64(_)
                | Op::Selp64 => of(i.a) | of(i.b),
                Op::Ld(_) if exts[i.ext as usize].width == 8 => {
                    for &register in &exts[i.ext as usize].regs {
                        changed |= sets[register as usize] != Set::MAX;
                        sets[register as usize] = Set::MAX;
                    }
                    continue;
                }
                _ => continue,
            };
            let set = &mut sets[i.d as usize];
            changed |= *set | flow != *set;
            *set |= flow;
        }
        if !changed {
            break;
        }
    }
    let global = |i: &&Instr| match i.op {
        Op::St(space) => space == Space::Global,
        Op::WmmaStore => exts[i.ext as usize].tile.is_some_and(|t| t.space == Space::Global),
        _ => false,
    };
    code.iter().filter(global).fold(0, |all, i| {
        let narrow = exts[i.ext as usize].narrow;
        all | if narrow { Set::MAX } else { sets[i.a as usize] }
    })
}

/// Whether a set has a word.
pub(crate) fn contains(set: Set, word: usize) -> bool {
    set & bit(word) != 0
}
