//! Super-blocks: choosing in two levels, so that what a query looks at grows 16 times slower than what it chooses from.
//!
//! A super-block has [`ContextMemory::SUPER`] neighbouring blocks. What stands for it is, channel by channel, the greatest
//! and the least of the vectors that stand for its blocks; what it promises is at least what each of its blocks promises.

use std::ops::Range;

use super::{BlockAnchor, ContextMemory, greatest};

impl ContextMemory {
    /// Blocks in a super-block. They begin at multiples of it.
    pub const SUPER: usize = 16;

    /// Vectors of a key's width that stand for a super-block.
    pub const SUPER_VECTORS: usize = 2;

    /// Super-blocks that suit the other settings: as many as hold 65,536 positions and what is chosen; 0, which is all, where
    /// nothing is chosen or all blocks must be looked at.
    pub fn suited_supers(&self) -> u32 {
        let looks_at_all = self.certificate.is_some() || self.anchor == BlockAnchor::All;
        if looks_at_all || self.n_blocks == 0 {
            return 0;
        }
        let size = Self::SUPER as u32;
        (65_536 / (size * self.block)).max(self.n_blocks.div_ceil(size))
    }

    /// Whether something stands for super-blocks.
    pub fn has_supers(&self) -> bool {
        self.n_supers > 0 && self.n_blocks > 0
    }

    /// The super-blocks all of whose blocks a query at `position` may choose.
    pub fn supers(&self, position: usize) -> Range<usize> {
        let Range { start, end } = self.finished(position);
        let first = start.div_ceil(Self::SUPER);
        first..(end / Self::SUPER).max(first)
    }

    /// Whether a query at `position` looks at the blocks of few super-blocks; else it looks at all finished blocks.
    pub fn looks_at_few(&self, position: usize) -> bool {
        self.has_supers() && self.supers(position).len() > self.n_supers as usize
    }

    /// The super-blocks whose blocks a query at `position` looks at, in ascending order: the `n_supers` that promise most, of
    /// equals the earlier, and those of which not all blocks are finished or come after the first positions. `promises` are
    /// those of [`supers`](Self::supers).
    pub fn look_at(&self, position: usize, promises: &[f32], looked: &mut Vec<u32>) {
        let (finished, whole) = (self.finished(position), self.supers(position));
        greatest(self.n_supers as usize, promises, looked);
        looked.iter_mut().for_each(|number| *number += whole.start as u32);
        if finished.start < whole.start * Self::SUPER {
            looked.insert(0, whole.start as u32 - 1);
        }
        if finished.end > whole.end * Self::SUPER {
            looked.push(whole.end as u32);
        }
    }

    /// Most super-blocks that a query looks at which looks at few.
    pub fn most_looked_at(&self) -> usize {
        self.n_supers as usize + 2
    }

    /// Blocks of a super-block that a query at `position` may choose.
    pub fn blocks_of(&self, position: usize, number: usize) -> Range<usize> {
        let Range { start, end } = self.finished(position);
        let first = (number * Self::SUPER).max(start);
        first..((number + 1) * Self::SUPER).min(end).max(first)
    }

    /// How many blocks a query at `position` looks at, and how many super-blocks before that; none where nothing is chosen.
    pub fn looks(&self, position: usize) -> [usize; 2] {
        let (finished, whole) = (self.finished(position), self.supers(position));
        if !self.chooses(position) {
            [0, 0]
        } else if self.looks_at_few(position) {
            let left_out = whole.len() - self.n_supers as usize;
            [finished.len() - left_out * Self::SUPER, whole.len()]
        } else {
            [finished.len(), 0]
        }
    }

    /// The blocks among `blocks` that promise most, in ascending order; of equals the earlier.
    pub fn choose_among(&self, blocks: &[u32], promises: &[f32], chosen: &mut Vec<u32>) {
        self.choose_of(|i| blocks[i as usize], promises, chosen);
    }

    /// Super-blocks of which everything is known that stands for their blocks, once `ended` blocks have come to an end.
    pub fn known_supers(&self, ended: usize) -> usize {
        ended.saturating_sub(self.anchor_lag()) / Self::SUPER
    }

    /// Why super-blocks do not go with the other settings, if they do not.
    pub(super) fn wrong_supers(&self) -> Option<String> {
        let whole = "all blocks looked at (0)";
        if self.n_supers > 0 && self.certificate.is_some() {
            return Some(format!(
                "few super-blocks looked at and a proof of what it leaves out: {whole}"
            ));
        }
        if !self.has_supers() {
            return None;
        }
        if self.anchor == BlockAnchor::All {
            return Some(format!(
                "few super-blocks looked at and all keys read to choose: {whole}"
            ));
        }
        let least = (self.n_blocks as usize).div_ceil(Self::SUPER);
        ((self.n_supers as usize) < least).then(|| {
            format!(
                "the {} best blocks of {} super-blocks of {}: at least {least} super-blocks",
                self.n_blocks,
                self.n_supers,
                Self::SUPER
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(n_init: u32, n_supers: u32) -> ContextMemory {
        ContextMemory { n_init, n_local: 128, n_supers, ..ContextMemory::suited(1024) }
    }

    /// What a query looks at falls into super-blocks, without gaps and without what it may not choose.
    #[test]
    fn a_query_looks_at_blocks_of_few_super_blocks() {
        for (n_init, n_supers) in [(0, 1), (64, 1), (1024, 2), (1088, 1)] {
            let memory = memory(n_init, n_supers);
            assert_eq!(memory.check(), Ok(()));
            for position in (0..9000).step_by(37) {
                let (finished, whole) = (memory.finished(position), memory.supers(position));
                let all = (0..200).map(|number| memory.blocks_of(position, number));
                let blocks: Vec<usize> = all.flatten().collect();
                assert_eq!(blocks, finished.clone().collect::<Vec<_>>(), "{position}");
                if !memory.looks_at_few(position) {
                    assert!(whole.len() <= n_supers as usize);
                    continue;
                }
                let promises: Vec<f32> = whole.clone().map(|s| (s * 5 % 7) as f32).collect();
                let mut looked = Vec::new();
                memory.look_at(position, &promises, &mut looked);
                assert!(looked.is_sorted() && looked.len() <= memory.most_looked_at());
                let of = |number: &u32| memory.blocks_of(position, *number as usize);
                let n: usize = looked.iter().map(|number| of(number).len()).sum();
                assert_eq!([n, whole.len()], memory.looks(position), "{position}");
                let in_whole = looked.iter().filter(|s| whole.contains(&(**s as usize)));
                let least = in_whole.map(|s| promises[*s as usize - whole.start]);
                let least = least.fold(f32::INFINITY, f32::min);
                let more = promises.iter().filter(|promise| **promise > least).count();
                assert!(more < n_supers as usize, "{position}: {looked:?}");
                assert!(looked.iter().all(|number| !of(number).is_empty()), "{position}");
            }
        }
    }

    #[test]
    fn the_usual_ones_hold_what_is_looked_at_whole() {
        for trained in [1024, 32_768] {
            let memory = ContextMemory::suited(trained);
            let last = 65_535 + (memory.n_init + memory.n_local) as usize;
            assert!(!memory.looks_at_few(last - 1), "{trained}");
            assert!(memory.looks_at_few(last + 2 * ContextMemory::SUPER * memory.block as usize));
            let [at_64k, at_1m] = [1 << 16, 1 << 20].map(|position| {
                let [blocks, supers] = memory.looks(position);
                blocks + supers
            });
            assert!(at_1m < 5 * at_64k / 2, "{at_64k} {at_1m}");
        }
    }

    #[test]
    fn super_blocks_are_known_with_their_last_block() {
        let memory = memory(0, 1);
        assert_eq!([15, 16, 31, 32].map(|ended| memory.known_supers(ended)), [0, 1, 1, 2]);
        let late = ContextMemory { anchor: BlockAnchor::Products, ..memory };
        assert_eq!(late.anchor_lag(), 2);
        assert_eq!([1, 17, 18, 34].map(|ended| late.known_supers(ended)), [0, 0, 1, 2]);
    }

    #[test]
    fn settings_that_do_not_go_with_them_are_refused() {
        let said = |change: fn(&mut ContextMemory)| {
            let mut memory = memory(0, 1);
            change(&mut memory);
            memory.check().map_err(|error| error.to_string())
        };
        assert_eq!(said(|m| m.n_blocks = 16), Ok(()));
        assert!(said(|m| m.n_blocks = 17).is_err_and(|e| e.contains("at least 2 super-blocks")));
        assert!(said(|m| m.anchor = BlockAnchor::All).is_err_and(|e| e.contains("all keys")));
        let proof = |m: &mut ContextMemory| m.certificate = super::super::Certificate::new(0.1);
        assert!(said(proof).is_err_and(|e| e.contains("proof")));
    }
}
