//! The imports between files, their circles, and what cutting an edge does to them.

use std::collections::BTreeMap;

/// An import of one file by another: from, to.
pub(super) type Edge = (usize, usize);

/// A place where a file uses another.
#[derive(Debug)]
pub(super) struct Usage {
    pub(super) line: usize,
    /// The path behind the other file's module; empty if it is the module itself.
    pub(super) item: String,
}

/// Files and the imports between them. Files are in the order of their names.
pub(crate) struct Graph {
    pub(super) files: Vec<String>,
    pub(super) edges: BTreeMap<Edge, Vec<Usage>>,
}

/// An edge, and what is left of a circle without it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cut {
    /// Number of files in the largest circle that is left; 1 if none is.
    pub(super) left: usize,
    /// Number of places to change.
    pub(super) places: usize,
    pub(super) edge: Edge,
}

impl Graph {
    /// Sorts the files by name. Edges are indices into `files`.
    pub(super) fn new(files: &[String], edges: Vec<(usize, usize, Usage)>) -> Graph {
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|file| &files[*file]);
        let mut place = vec![0; files.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        let files = order.iter().map(|file| files[*file].clone()).collect();
        let mut graph = Graph { files, edges: BTreeMap::new() };
        for (from, to, usage) in edges {
            graph.edges.entry((place[from], place[to])).or_default().push(usage);
        }
        graph
    }

    /// An edge as `from.rs->to.rs`.
    pub(super) fn name(&self, (from, to): Edge) -> String {
        format!("{}->{}", self.files[from], self.files[to])
    }

    /// Removes the edge with this name; false if there is none.
    pub(super) fn cut(&mut self, name: &str) -> bool {
        let Some(edge) = self.edges.keys().copied().find(|edge| self.name(*edge) == name) else {
            return false;
        };
        self.edges.remove(&edge).is_some()
    }

    /// Circles: files that import each other, directly or by way of others. The largest come first.
    pub(super) fn circles(&self) -> Vec<Vec<usize>> {
        find_circles(self.files.len(), self.edges.keys().copied())
    }

    /// Number of files in the largest circle; 1 if there is none.
    pub(crate) fn largest_circle(&self) -> usize {
        self.circles().first().map_or(1, Vec::len)
    }

    /// Edges between files of a circle.
    pub(super) fn edges_within(&self, circle: &[usize]) -> Vec<Edge> {
        let is_within = |(from, to): &Edge| circle.contains(from) && circle.contains(to);
        self.edges.keys().copied().filter(is_within).collect()
    }

    /// The edges of a circle that make it smaller when they are cut one at a time, the best first.
    pub(super) fn cuts(&self, circle: &[usize]) -> Vec<Cut> {
        let edges = self.edges_within(circle);
        let mut cuts: Vec<Cut> = edges
            .iter()
            .map(|cut| {
                let rest = edges.iter().copied().filter(|edge| edge != cut);
                let left = find_circles(self.files.len(), rest).first().map_or(1, Vec::len);
                Cut { left, places: self.edges[cut].len(), edge: *cut }
            })
            .filter(|cut| cut.left < circle.len())
            .collect();
        cuts.sort();
        cuts
    }
}

/// Strongly connected components of more than one node, the largest first; nodes are in order.
fn find_circles(n_nodes: usize, edges: impl Iterator<Item = Edge>) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); n_nodes];
    for (from, to) in edges {
        next[from].push(to);
    }
    let mut search = Search {
        next,
        number: vec![None; n_nodes],
        lowest: vec![0; n_nodes],
        is_open: vec![false; n_nodes],
        open: Vec::new(),
        n_visited: 0,
        components: Vec::new(),
    };
    for node in 0..n_nodes {
        if search.number[node].is_none() {
            search.visit(node);
        }
    }
    let mut circles = search.components;
    circles.retain(|component| component.len() > 1);
    circles.iter_mut().for_each(|circle| circle.sort_unstable());
    circles.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle[0]));
    circles
}

/// Tarjan's search for strongly connected components.
///
/// Nodes are numbered as they are visited. A node stays open until its component is complete: no node reachable from
/// it leads to an open one with a lower number.
struct Search {
    next: Vec<Vec<usize>>,
    number: Vec<Option<usize>>,
    /// The lowest number of an open node that is known to be reachable.
    lowest: Vec<usize>,
    is_open: Vec<bool>,
    /// Open nodes in the order of their numbers.
    open: Vec<usize>,
    n_visited: usize,
    components: Vec<Vec<usize>>,
}

impl Search {
    /// Visits a node. Recursion is as deep as the longest chain of files.
    fn visit(&mut self, node: usize) {
        let number = self.n_visited;
        self.n_visited += 1;
        self.number[node] = Some(number);
        self.lowest[node] = number;
        self.is_open[node] = true;
        self.open.push(node);
        for to in std::mem::take(&mut self.next[node]) {
            match self.number[to] {
                None => {
                    self.visit(to);
                    self.lowest[node] = self.lowest[node].min(self.lowest[to]);
                }
                Some(number) if self.is_open[to] => {
                    self.lowest[node] = self.lowest[node].min(number);
                }
                Some(_) => {}
            }
        }
        if self.lowest[node] == number {
            let first = self.open.iter().rposition(|open| *open == node).unwrap_or_default();
            let component = self.open.split_off(first);
            component.iter().for_each(|node| self.is_open[*node] = false);
            self.components.push(component);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A graph of edges such as `a->b c->d`.
    pub(in super::super) fn graph(edges: &str) -> Graph {
        let edges: Vec<(&str, &str)> =
            edges.split_whitespace().map(|edge| edge.split_once("->").expect("an edge")).collect();
        let mut files: Vec<String> = Vec::new();
        let mut place = |name: &str| {
            files.iter().position(|file| file == name).unwrap_or_else(|| {
                files.push(name.to_owned());
                files.len() - 1
            })
        };
        let usage = |line: usize| Usage { line: line + 1, item: "X".to_owned() };
        let edges = edges
            .iter()
            .enumerate()
            .map(|(line, (a, b))| (place(a), place(b), usage(line)))
            .collect();
        Graph::new(&files, edges)
    }

    fn named_circles(graph: &Graph) -> Vec<String> {
        let names = |circle: &Vec<usize>| -> String {
            circle.iter().map(|file| graph.files[*file].as_str()).collect()
        };
        graph.circles().iter().map(names).collect()
    }

    #[test]
    fn circles_are_found_largest_first() {
        for (edges, expected) in [
            ("", &[][..]),
            ("a->b b->c a->c", &[]),
            ("b->a a->b", &["ab"]),
            ("a->b b->c c->a c->d d->e e->d", &["abc", "de"]),
            ("x->y y->x a->b b->c c->a", &["abc", "xy"]),
            // two ways back
            ("a->b b->c c->b c->d d->a d->e", &["abcd"]),
            // a finished component is not open any more
            ("a->b b->a c->a c->d d->c", &["ab", "cd"]),
        ] {
            assert_eq!(named_circles(&graph(edges)), expected, "{edges}");
        }
        assert_eq!(graph("a->b b->c").largest_circle(), 1);
        assert_eq!(graph("a->b b->a c->d d->e e->c").largest_circle(), 3);
    }

    #[test]
    fn every_circle_is_that_of_a_search_from_each_file() {
        // pseudo-random graphs beside the definition: two files are in a circle if each reaches the other
        let mut state = 1_u64;
        for _ in 0..200 {
            let mut edges = Vec::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                edges.push(((state >> 40) as usize % 8, (state >> 50) as usize % 8));
            }
            let mut reaches = [[false; 8]; 8];
            for (from, to) in &edges {
                reaches[*from][*to] = true;
            }
            for by in 0..8 {
                for from in 0..8 {
                    for to in 0..8 {
                        reaches[from][to] |= reaches[from][by] && reaches[by][to];
                    }
                }
            }
            let is_mutual = |a: usize, b: usize| reaches[a][b] && reaches[b][a];
            let found = find_circles(8, edges.iter().copied());
            for a in 0..8 {
                for b in (0..8).filter(|b| *b != a) {
                    let in_one = found.iter().any(|c| c.contains(&a) && c.contains(&b));
                    assert_eq!(in_one, is_mutual(a, b), "{edges:?}");
                }
            }
        }
    }

    #[test]
    fn a_cut_edge_opens_its_circle() {
        let mut graph = graph("a->b b->c c->a c->d d->c");
        assert_eq!(named_circles(&graph), ["abcd"]);
        assert!(!graph.cut("a->d"), "there is no such edge");
        assert!(graph.cut("d->c"));
        assert_eq!(named_circles(&graph), ["abc"]);
        assert!(!graph.cut("d->c"), "it was cut");
        assert!(graph.cut("c->a"));
        assert!(named_circles(&graph).is_empty());
    }

    #[test]
    fn the_best_cuts_come_first() {
        // `c` is in two circles; `a->b` is used in two places
        let graph = graph("a->b a->b b->c c->a c->d d->c");
        let cuts: Vec<_> = graph
            .cuts(&graph.circles()[0])
            .into_iter()
            .map(|cut| (graph.name(cut.edge), cut.left, cut.places))
            .collect();
        let expected =
            [("b->c", 2, 1), ("c->a", 2, 1), ("a->b", 2, 2), ("c->d", 3, 1), ("d->c", 3, 1)];
        assert_eq!(cuts, expected.map(|(edge, left, places)| (edge.to_owned(), left, places)));
    }

    #[test]
    fn a_cut_that_changes_nothing_is_left_out() {
        // two ways from each file to each other
        let graph = graph("a->b b->c c->a b->a c->b a->c");
        assert!(graph.cuts(&graph.circles()[0]).is_empty());
    }
}
