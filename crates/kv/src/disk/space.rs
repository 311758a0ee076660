//! Which pages of a file are taken.

use std::collections::{BTreeMap, BTreeSet};

/// The pages of a file, taken and given back in runs. A free run that fits best is used again before the file grows.
pub struct Space {
    /// Pages of each free run by its first page; neighbours are one run, and none ends at `end`.
    free: BTreeMap<u64, u64>,
    /// The same as (pages, first page).
    sizes: BTreeSet<(u64, u64)>,
    /// Pages of the file.
    end: u64,
    /// Most pages of the file.
    most: u64,
    taken: u64,
}

impl Space {
    /// A file of at most `most` pages where `taken` runs (first page, pages) are, in ascending order and apart.
    pub fn new(most: u64, taken: impl IntoIterator<Item = (u64, u64)>) -> Space {
        let (free, sizes) = (BTreeMap::new(), BTreeSet::new());
        let mut space = Space { free, sizes, end: 0, most, taken: 0 };
        for (first, pages) in taken {
            if first > space.end {
                space.insert(space.end, first - space.end);
            }
            space.end = first + pages;
            space.taken += pages;
        }
        space
    }

    /// Pages of the file, free ones included.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Pages taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Free runs before the end: first page and pages.
    pub fn free(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter().map(|(first, pages)| (*first, *pages))
    }

    /// The first of `pages` pages, which are now taken; `None`: no run is long enough and the file may not grow so far.
    pub fn take(&mut self, pages: u64) -> Option<u64> {
        // the file may be longer than it may be now
        if self.taken.checked_add(pages).is_none_or(|taken| taken > self.most) {
            return None;
        }
        let found = self.sizes.range((pages, 0)..).next().copied();
        let first = match found {
            Some((run, first)) => {
                self.remove(first, run);
                if run > pages {
                    self.insert(first + pages, run - pages);
                }
                first
            }
            None => {
                let end = self.end.checked_add(pages).filter(|end| *end <= self.most)?;
                std::mem::replace(&mut self.end, end)
            }
        };
        self.taken += pages;
        Some(first)
    }

    /// Give a run back that was taken as it is.
    pub fn give(&mut self, mut first: u64, mut pages: u64) {
        self.taken -= pages;
        let before = self.free.range(..first).next_back().map(|(first, run)| (*first, *run));
        if let Some((before, run)) = before.filter(|(before, run)| before + run == first) {
            self.remove(before, run);
            (first, pages) = (before, run + pages);
        }
        if let Some(run) = self.free.get(&(first + pages)).copied() {
            self.remove(first + pages, run);
            pages += run;
        }
        if first + pages == self.end {
            self.end = first;
        } else {
            self.insert(first, pages);
        }
    }

    fn insert(&mut self, first: u64, pages: u64) {
        self.free.insert(first, pages);
        self.sizes.insert((pages, first));
    }

    fn remove(&mut self, first: u64, pages: u64) {
        self.free.remove(&first);
        self.sizes.remove(&(pages, first));
    }
}
