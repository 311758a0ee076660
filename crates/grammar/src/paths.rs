//! References between the parts of a form: the longest path that they make, and sets of parts that they decide.
//!
//! The compiler follows a reference by recursion, so that a chain of them takes stack, although no part of it is nested deeply. Here
//! the longest chain is computed first, without recursion.

use std::collections::{HashMap, HashSet};

use crate::{Result, limits};

/// Levels on the longest path: references, and what is nested around each. The compiler's thread has room for several times as many.
const LEVELS: u64 = 2_000;

/// References from one part, or the root of the sum of squares over several.
const FAN_OUT: u64 = 5_000;

/// Parts of a form that others refer to by name: definitions of a schema, rules of a grammar.
#[derive(Default)]
pub(crate) struct References<'t> {
    numbers: HashMap<&'t str, usize>,
    parts: Vec<Part<'t>>,
}

struct Part<'t> {
    name: &'t str,
    /// Levels nested within the part itself.
    levels: u64,
    /// Parts that it refers to.
    to: Vec<usize>,
}

impl<'t> References<'t> {
    /// The number of the part with this name, which is added if it is new.
    fn number(&mut self, name: &'t str) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.parts.push(Part { name, levels: 0, to: Vec::new() });
            self.parts.len() - 1
        })
    }

    /// Says that the part `name` has this many levels within itself. The greatest number counts.
    pub(crate) fn nested(&mut self, name: &'t str, levels: u64) {
        let part = self.number(name);
        self.parts[part].levels = self.parts[part].levels.max(levels);
    }

    /// Says that the part `from` refers to the part `to`.
    pub(crate) fn refers(&mut self, from: &'t str, to: &'t str) {
        let (from, to) = (self.number(from), self.number(to));
        self.parts[from].to.push(to);
    }

    /// The least set of parts that holds each part which `belongs`, given the parts that are in the set already.
    ///
    /// A part is looked at again only after one that it refers to has come in, so that a chain takes linear time.
    pub(crate) fn least_set(
        &self,
        belongs: impl Fn(&str, &HashSet<&'t str>) -> bool,
    ) -> HashSet<&'t str> {
        let mut referred_by = vec![Vec::new(); self.parts.len()];
        for (from, part) in self.parts.iter().enumerate() {
            part.to.iter().for_each(|to| referred_by[*to].push(from));
        }
        let mut set = HashSet::new();
        let mut rest: Vec<usize> = (0..self.parts.len()).collect();
        while let Some(part) = rest.pop() {
            let name = self.parts[part].name;
            if !set.contains(name) && belongs(name, &set) {
                set.insert(name);
                rest.extend(&referred_by[part]);
            }
        }
        set
    }

    /// Refuses a form whose longest path has too many levels.
    ///
    /// # Errors
    /// [`TooLarge`](crate::GrammarError::TooLarge).
    pub(crate) fn check(&self, what: &'static str) -> Result<()> {
        limits::check(what, "references through one another", self.longest(), LEVELS)
    }

    /// Refuses a form one part of which has too many references: [`least_set`](Self::least_set) looks at all of them again after
    /// each.
    ///
    /// # Errors
    /// [`TooLarge`](crate::GrammarError::TooLarge).
    pub(crate) fn check_fan_out(&self, what: &'static str) -> Result<()> {
        let squares: u64 = self.parts.iter().map(|part| (part.to.len() as u64).pow(2)).sum();
        limits::check(what, "references from one part", squares.isqrt(), FAN_OUT)
    }

    /// Levels on the longest path. Parts that refer to each other in a circle count together, once each: the compiler goes through
    /// each part once.
    fn longest(&self) -> u64 {
        let circles = self.circles();
        let mut of_circle = vec![0_u64; circles.iter().max().map_or(0, |last| last + 1)];
        for (part, circle) in self.parts.iter().zip(&circles) {
            of_circle[*circle] = of_circle[*circle].saturating_add(part.levels + 1);
        }
        // circles are numbered so that a reference to another one leads to a lower number
        let mut by_circle: Vec<usize> = (0..self.parts.len()).collect();
        by_circle.sort_by_key(|part| circles[*part]);
        let mut below = vec![0_u64; of_circle.len()];
        for part in by_circle {
            let circle = circles[part];
            for to in self.parts[part].to.iter().map(|to| circles[*to]).filter(|to| *to != circle) {
                below[circle] = below[circle].max(below[to].saturating_add(of_circle[to]));
            }
        }
        of_circle.iter().zip(below).map(|(own, below)| own.saturating_add(below)).max().unwrap_or(0)
    }

    /// For each part the number of its circle, the strongly connected component: parts that lead to each other have the same one.
    ///
    /// Source: Tarjan, "Depth-first search and linear graph algorithms", 1972; with a stack of its own in place of recursion.
    fn circles(&self) -> Vec<usize> {
        const NEW: usize = usize::MAX;
        let n = self.parts.len();
        let (mut order, mut lowest, mut circles) = (vec![NEW; n], vec![NEW; n], vec![NEW; n]);
        let (mut open, mut visits) = (Vec::new(), Vec::new());
        let (mut n_seen, mut n_circles) = (0, 0);
        for start in 0..n {
            if order[start] != NEW {
                continue;
            }
            // a part and how many of its references have been followed
            visits.push((start, 0));
            while let Some((part, next)) = visits.pop() {
                if next == 0 {
                    (order[part], lowest[part]) = (n_seen, n_seen);
                    n_seen += 1;
                    open.push(part);
                }
                if let Some(&to) = self.parts[part].to.get(next) {
                    visits.push((part, next + 1));
                    if order[to] == NEW {
                        visits.push((to, 0));
                    } else if circles[to] == NEW {
                        lowest[part] = lowest[part].min(order[to]);
                    }
                    continue;
                }
                if let Some(&(parent, _)) = visits.last() {
                    lowest[parent] = lowest[parent].min(lowest[part]);
                }
                if lowest[part] == order[part] {
                    while let Some(member) = open.pop() {
                        circles[member] = n_circles;
                        if member == part {
                            break;
                        }
                    }
                    n_circles += 1;
                }
            }
        }
        circles
    }
}
