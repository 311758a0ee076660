//! Blocks that are always chosen: what a choice that knows where the answer stands would find is what others are measured by.

use std::fmt;

use super::ContextMemory;

/// Blocks that every query chooses which may choose them, whatever they promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GivenBlocks {
    /// Numbers, ascending; behind the last one [`NONE`](Self::NONE).
    numbers: [u32; GivenBlocks::MOST],
}

impl GivenBlocks {
    /// Most of them.
    pub const MOST: usize = 16;

    const NONE: u32 = u32::MAX;

    /// These blocks, in any order; `None` if there are none of them, or too many.
    pub fn new(blocks: impl IntoIterator<Item = u32>) -> Option<GivenBlocks> {
        let mut blocks: Vec<u32> =
            blocks.into_iter().filter(|block| *block != Self::NONE).collect();
        blocks.sort_unstable();
        blocks.dedup();
        if blocks.is_empty() {
            return None;
        }
        let mut numbers = [Self::NONE; Self::MOST];
        numbers.get_mut(..blocks.len())?.copy_from_slice(&blocks);
        Some(GivenBlocks { numbers })
    }

    /// Their numbers, ascending.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers[..self.numbers.partition_point(|number| *number != Self::NONE)]
    }

    /// Whether a block is one of them.
    pub fn has(&self, block: u32) -> bool {
        self.numbers().contains(&block)
    }
}

impl fmt::Display for GivenBlocks {
    /// `3, 4, 17`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers().iter().map(u32::to_string).collect();
        f.write_str(&numbers.join(", "))
    }
}

impl ContextMemory {
    /// Why blocks that are always chosen do not go with other settings, if they do not.
    pub(super) fn wrong_given(&self) -> Option<String> {
        let n = self.given?.numbers().len();
        if n > self.n_blocks as usize {
            return Some(format!(
                "{n} blocks that are always chosen of {} chosen: at most as many",
                self.n_blocks
            ));
        }
        (self.n_supers > 0).then(|| {
            "few super-blocks looked at and blocks that are always chosen: all blocks looked at (0)"
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_blocks_are_told_and_bounded() {
        let given = GivenBlocks::new([17, 3, 4, 3]).expect("some");
        assert_eq!((given.to_string().as_str(), given.numbers()), ("3, 4, 17", &[3, 4, 17][..]));
        assert!(given.has(4) && !given.has(5) && !given.has(u32::MAX));
        assert_eq!(GivenBlocks::new([]), None);
        assert!(GivenBlocks::new(0..16).is_some_and(|given| given.numbers().len() == 16));
        assert_eq!(GivenBlocks::new(0..17), None);
    }

    /// They come first, the others by their promise; what may not be chosen is not.
    #[test]
    fn given_blocks_are_chosen_before_others() {
        let given = GivenBlocks::new([2, 9, 40]);
        let memory =
            ContextMemory { n_blocks: 3, n_supers: 0, given, ..ContextMemory::suited(1024) };
        assert_eq!(memory.check(), Ok(()));
        let promises = [5.0, 0.0, f32::NEG_INFINITY, 4.0, 7.0, 6.0, 0.0, 0.0, 0.0, -1.0];
        let mut chosen = Vec::new();
        memory.choose(0, &promises, &mut chosen);
        assert_eq!(chosen, [2, 4, 9]);
        memory.choose(2, &promises[2..5], &mut chosen);
        assert_eq!(chosen, [2, 3, 4]);
        memory.choose(3, &promises[3..8], &mut chosen);
        assert_eq!(chosen, [3, 4, 5]);
    }

    #[test]
    fn settings_that_do_not_go_with_them_are_refused() {
        let given = GivenBlocks::new([1, 2]);
        let memory = ContextMemory { n_supers: 0, given, ..ContextMemory::suited(1024) };
        let refused = |memory: ContextMemory| memory.check().expect_err("refused").to_string();
        assert!(
            refused(ContextMemory { n_blocks: 1, ..memory }).contains("2 blocks that are always")
        );
        let few = ContextMemory { n_supers: 64, ..memory };
        assert!(refused(few).contains("all blocks looked at (0)"));
    }
}
