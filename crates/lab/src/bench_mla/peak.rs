//! Peak memory of the forms: how long a context each can have in so much memory.

use executors::ExecutorOptions;
use program::MemoryNeeds;

use super::cell::{Load, Row};
use super::layer::LayerPlan;

/// One form in a memory of a given size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Peak {
    pub(super) row: Row,
    /// Most positions that it can hold and go through; 0 if none.
    pub(super) longest: usize,
    /// What they take, at the moment when it is most.
    pub(super) needs: MemoryNeeds,
}

/// Longest context that is looked for: the executor numbers positions with 32 bits.
const MOST: usize = 1 << 30;

impl Peak {
    /// The longest context of `load`'s form within `room` bytes of cache and work memory; weights come on top.
    ///
    /// # Errors
    /// Widths that are not whole blocks of the type.
    pub(super) fn find(options: &ExecutorOptions, load: &Load, room: u64) -> program::Result<Peak> {
        let plan = LayerPlan::new(options, &load.layer(), load.form)?;
        let taken = |positions: usize| {
            plan.needs(positions, load.queries).map(|needs| MemoryNeeds { weights: 0, ..needs })
        };
        // what fits, and what does not
        let (mut fits, mut too_long) = (0, MOST);
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            if taken(middle)?.total() <= room {
                fits = middle;
            } else {
                too_long = middle;
            }
        }
        let needs = if fits > 0 { taken(fits)? } else { MemoryNeeds::default() };
        Ok(Peak { row: load.row(), longest: fits, needs })
    }
}

#[cfg(test)]
mod tests {
    use cpu::MlaForm;

    use super::super::cell::tests::load;
    use super::super::layer::LayerBench;
    use super::*;

    /// A pass at the longest context takes no more memory than there is, and the form without copies gets further than
    /// the one with them, which gets further than the one that caches keys and values.
    #[test]
    fn a_form_without_copies_gets_furthest() {
        let options = &ExecutorOptions { threads: Some(2), ..ExecutorOptions::default() };
        let room = 24 << 20;
        let find = |form| {
            let load = Load { shape: super::super::cell::Shape::V2Lite, ..load(form, 4) };
            let peak = Peak::find(options, &load, room).expect("it is told");
            let Peak { longest, needs, .. } = peak;
            assert!(needs.total() <= room && longest > 64, "{peak:?}");
            let bench = LayerBench::new(options, &load.layer(), form).expect("it loads");
            let measure = bench.measure(longest - 4, 4, 1).expect("it runs");
            assert!(measure.cache_bytes + measure.work_bytes <= room, "{measure:?} {peak:?}");
            // a quarter more would not have fitted
            let more = bench.needs(longest + longest / 4, 4).expect("it is told");
            assert!(more.cache + more.work > room, "{more:?}");
            longest
        };
        let [expanded, compressed, absorbed, elided] = MlaForm::ALL.map(find);
        assert!(elided > absorbed && absorbed > expanded, "{elided} {absorbed} {expanded}");
        assert!(compressed > expanded, "{compressed} {expanded}");
    }
}
