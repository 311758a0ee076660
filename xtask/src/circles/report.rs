//! The report on a crate's circles, in lines of at most 80 columns.

use std::fmt::Write as _;

use super::graph::Graph;

/// Columns of a line, unless one name is longer.
const WIDTH: usize = 80;
/// Most edges that are shown as the best to cut.
const MAX_CUTS: usize = 10;

/// Describes the circles of a crate, with every edge in them if `with_edges`.
pub(super) fn report(name: &str, graph: &Graph, with_edges: bool) -> String {
    let circles = graph.circles();
    let counted = [
        count(graph.files.len(), "file"),
        count(graph.edges.len(), "edge"),
        if circles.is_empty() { "no circles".to_owned() } else { count(circles.len(), "circle") },
    ];
    let mut text = format!("{name}: {}\n", counted.join(", "));
    for (index, circle) in circles.iter().enumerate() {
        let files = circle.iter().map(|file| graph.files[*file].as_str());
        wrap(&mut text, &format!("  circle of {} files:", circle.len()), files);
        if with_edges {
            write_edges(&mut text, graph, circle);
        }
        if index == 0 {
            write_cuts(&mut text, graph, circle);
        }
    }
    text
}

/// Writes the edges of a circle with the lines and items that they consist of.
fn write_edges(text: &mut String, graph: &Graph, circle: &[usize]) {
    for edge in graph.edges_within(circle) {
        let usages = graph.edges[&edge].iter().map(|usage| {
            let item = if usage.item.is_empty() { "(the module)" } else { &usage.item };
            format!("{} {item}", usage.line)
        });
        wrap(text, &format!("    {}", graph.name(edge)), usages);
    }
}

/// Writes the single edges whose cut makes a circle smallest.
fn write_cuts(text: &mut String, graph: &Graph, circle: &[usize]) {
    let cuts = graph.cuts(circle);
    if cuts.is_empty() {
        text.push_str("  no single edge makes it smaller\n");
        return;
    }
    text.push_str("  largest remaining circle after cutting one edge:\n");
    for cut in cuts.iter().take(MAX_CUTS) {
        let left = if cut.left == 1 { "none".to_owned() } else { cut.left.to_string() };
        let (edge, places) = (graph.name(cut.edge), count(cut.places, "place"));
        let line = format!("    {left:>4}  {edge}");
        wrap(text, &line, [format!("({places})")]);
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Writes `start` and the items behind it, with commas between them. Further lines are indented by four
/// columns more than `start`.
fn wrap(text: &mut String, start: &str, items: impl IntoIterator<Item: AsRef<str>>) {
    let indent = start.len() - start.trim_start().len() + 4;
    let mut line = start.to_owned();
    let mut items = items.into_iter().peekable();
    while let Some(item) = items.next() {
        let comma = if items.peek().is_some() { "," } else { "" };
        let item = item.as_ref();
        if line.chars().count() + 1 + item.chars().count() + comma.len() > WIDTH {
            _ = writeln!(text, "{line}");
            line = format!("{:indent$}{item}{comma}", "");
        } else {
            _ = write!(line, " {item}{comma}");
        }
    }
    _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph;
    use super::*;

    #[test]
    fn a_report_counts_circles_and_cuts() {
        let graph = graph("a->b b->c c->a c->d d->c d->e e->f f->e");
        let expected = "\
cpu: 6 files, 8 edges, 2 circles
  circle of 4 files: a, b, c, d
  largest remaining circle after cutting one edge:
       2  a->b (1 place)
       2  b->c (1 place)
       2  c->a (1 place)
       3  c->d (1 place)
       3  d->c (1 place)
  circle of 2 files: e, f
";
        assert_eq!(report("cpu", &graph, false), expected);
    }

    #[test]
    fn edges_are_shown_with_their_lines() {
        let with_edges = report("cpu", &graph("a->b b->a a->b"), true);
        let expected = "\
cpu: 2 files, 2 edges, 1 circle
  circle of 2 files: a, b
    a->b 1 X, 3 X
    b->a 2 X
  largest remaining circle after cutting one edge:
    none  b->a (1 place)
    none  a->b (2 places)
";
        assert_eq!(with_edges, expected);
    }

    #[test]
    fn crates_without_circles_take_one_line() {
        assert_eq!(report("kv", &graph("a->b"), true), "kv: 2 files, 1 edge, no circles\n");
        let all_ways = graph("a->b b->c c->a b->a c->b a->c");
        assert!(report("kv", &all_ways, false).ends_with("\n  no single edge makes it smaller\n"));
    }

    #[test]
    fn long_lists_are_wrapped() {
        let name = |n: usize| format!("folder/file_{n:02}.rs");
        let edges: Vec<String> =
            (0..40).map(|n| format!("{}->{}", name(n), name((n + 1) % 40))).collect();
        let report = report("cpu", &graph(&edges.join(" ")), true);
        assert!(report.lines().all(|line| line.len() <= WIDTH), "{report}");
        let second = report.lines().nth(2).expect("a list of two lines and more");
        assert!(second.starts_with("      folder/file_03.rs, "), "{report}");
    }
}
