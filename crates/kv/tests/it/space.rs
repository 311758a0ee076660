//! Which pages of a file are taken.

use kv::internals::Space;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

    /// No page belongs to two, the file stays within its bound, and what is given back is found again.
    #[test]
    fn runs_are_apart(
        steps in proptest::collection::vec((any::<bool>(), 1u64..9, any::<prop::sample::Index>()), 1..80),
        most in 1u64..60,
    ) {
        let mut space = Space::new(most, []);
        let mut held: Vec<(u64, u64)> = Vec::new();
        for (take, pages, which) in steps {
            if take {
                match space.take(pages) {
                    Some(first) => {
                        prop_assert!(held.iter().all(|(f, n)| f + n <= first || first + pages <= *f));
                        held.push((first, pages));
                    }
                    None => {
                        let mut runs = held.clone();
                        runs.sort_unstable();
                        let ends = runs.iter().map(|(f, n)| f + n);
                        let starts = runs.iter().map(|(f, _)| *f).chain([most]);
                        let longest = std::iter::once(0).chain(ends).zip(starts).map(|(a, b)| b - a).max();
                        prop_assert!(longest < Some(pages), "{:?} pages were free", longest);
                    }
                }
            } else if !held.is_empty() {
                let (first, pages) = held.swap_remove(which.index(held.len()));
                space.give(first, pages);
            }
            prop_assert_eq!(space.taken(), held.iter().map(|(_, n)| n).sum::<u64>());
            prop_assert_eq!(space.end(), held.iter().map(|(f, n)| f + n).max().unwrap_or(0));
            prop_assert!(space.end() <= most);
            // a file that is opened again has the same free runs
            let mut runs = held.clone();
            runs.sort_unstable();
            let again = Space::new(most, runs);
            let free = |space: &Space| space.free().collect::<Vec<_>>();
            prop_assert_eq!(free(&again), free(&space));
            prop_assert_eq!((again.end(), again.taken()), (space.end(), space.taken()));
        }
    }
}
