//! Gives registers that are never alive together one place, so that those of a warp fit the
//! processor's caches: translators use a new register for each value.
//!
//! Liveness is found block by block; each register then occupies the instructions from the first
//! to the last at which it is alive or mentioned. Lanes at different instructions do not disturb
//! each other, as a register has a value for each lane.

use super::instr::{Instr, MemExt, NO_GUARD, Op};
use super::operands::{Access, visit};

/// One of the two files of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    W,
    Q,
}

/// Registers of one file and their places.
#[derive(Debug)]
pub(super) struct Places {
    /// Place of each register.
    pub(super) of: Vec<u32>,
    /// Number of places.
    pub(super) count: usize,
    /// Places that may be read before they are written.
    pub(super) unwritten: Vec<u32>,
}

/// Straight-line code.
struct Block {
    start: usize,
    end: usize,
    next: [Option<usize>; 2],
}

fn blocks(code: &[Instr]) -> Vec<Block> {
    let mut starts = vec![false; code.len() + 1];
    starts[0] = true;
    for (at, i) in code.iter().enumerate() {
        if matches!(i.op, Op::Bra | Op::Exit) {
            starts[at + 1] = true;
        }
        if i.op == Op::Bra {
            starts[i.d as usize] = true;
        }
    }
    let firsts: Vec<usize> = (0..code.len()).filter(|&at| starts[at]).collect();
    let block_at = |at: usize| firsts.binary_search(&at).ok();
    let ends = firsts[1..].iter().copied().chain([code.len()]);
    firsts
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let last = &code[end - 1];
            let falls = !matches!(last.op, Op::Bra | Op::Exit) || last.guard != NO_GUARD;
            let jump = if last.op == Op::Bra { block_at(last.d as usize) } else { None };
            let fall = if falls { block_at(end) } else { None };
            Block { start, end, next: [fall, jump] }
        })
        .collect()
}

/// Accesses of one file's registers by an instruction: reads, then writes.
fn accesses(i: &Instr, exts: &mut [MemExt], width: Width, mut f: impl FnMut(bool, u32)) {
    let (read, write) = match width {
        Width::W => (Access::ReadW, Access::WriteW),
        Width::Q => (Access::ReadQ, Access::WriteQ),
    };
    for wanted in [read, write] {
        visit(&mut i.clone(), exts, &mut |access, register| {
            if access == wanted {
                f(access == write, *register);
            }
        });
    }
}

/// Finds places for `n` registers of a file; `fixed` ones keep a place of their own, the first
/// `specials` their numbers.
pub(super) fn places(
    code: &[Instr],
    exts: &mut [MemExt],
    width: Width,
    [n, specials]: [usize; 2],
    fixed: &[u32],
) -> Places {
    let mut is_fixed = vec![false; n];
    is_fixed[..specials].fill(true);
    fixed.iter().for_each(|&r| is_fixed[r as usize] = true);
    let blocks = blocks(code);
    let spans = spans(code, exts, width, &blocks, n);

    let mut of = vec![0; n];
    let mut count = specials;
    for register in 0..n {
        if register < specials {
            of[register] = register as u32;
        } else if is_fixed[register] {
            of[register] = count as u32;
            count += 1;
        }
    }
    let mut order: Vec<usize> =
        (0..n).filter(|&r| !is_fixed[r] && spans[r].0 <= spans[r].1).collect();
    order.sort_unstable_by_key(|&r| spans[r].0);
    let mut free: Vec<u32> = Vec::new();
    // Places in use, by the end of their register's span.
    let mut used = std::collections::BinaryHeap::new();
    let mut unwritten = Vec::new();
    for register in order {
        let (start, end) = spans[register];
        while let Some(&(std::cmp::Reverse(last), place)) = used.peek() {
            if last >= start {
                break;
            }
            used.pop();
            free.push(place);
        }
        let place = free.pop().unwrap_or_else(|| {
            count += 1;
            count as u32 - 1
        });
        of[register] = place;
        used.push((std::cmp::Reverse(end), place));
        if start == 0 {
            unwritten.push(place);
        }
    }
    Places { of, count, unwritten }
}

/// First and last point at which each register is alive: twice the instruction, plus 1 for its
/// writes, plus 1. Point 0 is the start of the kernel.
fn spans(
    code: &[Instr],
    exts: &mut [MemExt],
    width: Width,
    blocks: &[Block],
    n: usize,
) -> Vec<(usize, usize)> {
    let words = n.div_ceil(64);
    let mut spans = vec![(usize::MAX, 0); n];
    // Registers that a block reads before it writes them, and those that it writes for certain.
    let mut reads = vec![vec![0_u64; words]; blocks.len()];
    let mut writes = vec![vec![0_u64; words]; blocks.len()];
    for (b, block) in blocks.iter().enumerate() {
        for (at, i) in (block.start..).zip(&code[block.start..block.end]) {
            accesses(i, exts, width, |is_write, register| {
                let (word, bit) = (register as usize / 64, 1_u64 << (register % 64));
                let point = 2 * at + 1 + usize::from(is_write);
                let span = &mut spans[register as usize];
                *span = (span.0.min(point), span.1.max(point));
                if !is_write && writes[b][word] & bit == 0 {
                    reads[b][word] |= bit;
                }
                // A guarded write leaves what some lanes had before.
                if is_write && i.guard == NO_GUARD {
                    writes[b][word] |= bit;
                }
            });
        }
    }
    let mut live = reads.clone();
    let mut changed = true;
    while changed {
        changed = false;
        for b in (0..blocks.len()).rev() {
            for next in blocks[b].next.into_iter().flatten() {
                for word in 0..words {
                    let add = live[next][word] & !writes[b][word] & !live[b][word];
                    if add != 0 {
                        live[b][word] |= add;
                        changed = true;
                    }
                }
            }
        }
    }
    let mut extend = |set: &[u64], point: usize| {
        for (word, &bits) in set.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let register = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let span = &mut spans[register];
                *span = (span.0.min(point), span.1.max(point));
            }
        }
    };
    for (b, block) in blocks.iter().enumerate() {
        let start = if block.start == 0 { 0 } else { 2 * block.start + 1 };
        extend(&live[b], start);
        for next in block.next.into_iter().flatten() {
            extend(&live[next], 2 * block.end);
        }
    }
    spans
}

/// Renames the registers of all instructions.
pub(super) fn rename(code: &mut [Instr], exts: &mut [MemExt], w: &Places, q: &Places) {
    for i in code {
        visit(i, exts, &mut |access, register| {
            let places = match access {
                Access::ReadW | Access::WriteW => w,
                Access::ReadQ | Access::WriteQ => q,
            };
            *register = places.of[*register as usize];
        });
    }
}
