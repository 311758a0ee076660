//! Where labels go so that they do not hide each other.

use crate::scene::{Point, Rect};

/// Positions in order, at least `gap` apart between `low` and `high`, as near as possible to those `wanted`, by least
/// squares. If there is no room, the gap is what room there is.
pub(crate) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let n = wanted.len();
    if n == 0 {
        return Vec::new();
    }
    let gap = if n > 1 { gap.min((high - low).max(0.0) / (n - 1) as f64) } else { gap };
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // With the gaps taken out, positions must not descend: neighbours that would are pooled at their mean.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (i, index) in order.iter().enumerate() {
        let mut pool = (wanted[*index] - i as f64 * gap, 1);
        while let Some(last) = pools.last().copied().filter(|last| last.0 >= pool.0) {
            let count = last.1 + pool.1;
            pool = ((last.0 * last.1 as f64 + pool.0 * pool.1 as f64) / count as f64, count);
            pools.pop();
        }
        pools.push(pool);
    }
    let top = (high - (n - 1) as f64 * gap).max(low);
    let flat = pools.iter().flat_map(|(at, count)| std::iter::repeat_n(at.clamp(low, top), *count));
    let mut placed = vec![0.0; n];
    for (i, (index, at)) in order.iter().zip(flat).enumerate() {
        placed[*index] = at + i as f64 * gap;
    }
    placed
}

/// A label in the strip above a plot, with a line down to the axis or without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Above {
    /// Where it wants its middle to be, and where its line runs.
    pub(crate) at: f64,
    /// Its width.
    pub(crate) width: f64,
    /// Does it have a line?
    pub(crate) line: bool,
}

/// Between labels, and between a label and the line of another.
const GAP: f64 = 6.0;

/// The left end and the row, from 0 at the bottom, of each label between `left` and `right`. No two overlap, and if it
/// can be helped no label stands on the line of another.
pub(crate) fn above(labels: &[Above], left: f64, right: f64) -> Vec<(f64, usize)> {
    let by = |key: fn(&Above) -> f64| {
        let mut order: Vec<usize> = (0..labels.len()).collect();
        order.sort_by(|a, b| key(&labels[*a]).total_cmp(&key(&labels[*b])));
        order
    };
    // None of these is best for all: a wide label is hard to get past, and labels at an end cannot give way.
    let orders = [by(|l| -l.at), by(|l| l.at), by(|l| l.width)];
    let tries = orders.map(|order| above_in_order(labels, &order, left, right));
    let rows = |places: &[(f64, usize)]| places.iter().map(|p| p.1).max();
    let best = tries.into_iter().min_by_key(|(hidden, places)| (*hidden, rows(places)));
    best.map_or_else(Vec::new, |(_, places)| places)
}

/// One label after the other, each in the lowest row where it fits; and how many fit nowhere.
fn above_in_order(
    labels: &[Above],
    order: &[usize],
    left: f64,
    right: f64,
) -> (usize, Vec<(f64, usize)>) {
    // Does a line at `at` run through a label that starts at `x`?
    let crosses = |at: f64, x: f64, width: f64| x - GAP / 2.0 < at && at < x + width + GAP / 2.0;
    let mut hidden = 0;
    let mut placed: Vec<Option<(f64, usize)>> = vec![None; labels.len()];
    for &index in order {
        let label = labels[index];
        let latest = (right - label.width).max(left);
        let candidates =
            [label.at - label.width / 2.0, label.at - 3.0, label.at + 3.0 - label.width]
                .map(|x| x.clamp(left, latest));
        let free = |x: f64, row: usize| {
            labels.iter().zip(&placed).all(|(other, place)| {
                let Some((other_x, other_row)) = *place else { return true };
                let apart = x + label.width + GAP <= other_x || other_x + other.width + GAP <= x;
                // A line runs through all rows below its label.
                match row.cmp(&other_row) {
                    std::cmp::Ordering::Equal => apart,
                    std::cmp::Ordering::Less => !other.line || !crosses(other.at, x, label.width),
                    std::cmp::Ordering::Greater => {
                        !label.line || !crosses(label.at, other_x, other.width)
                    }
                }
            })
        };
        let mut spots = (0..labels.len()).flat_map(|row| candidates.map(|x| (x, row)));
        let found = spots.find(|(x, row)| free(*x, *row));
        // Nothing free: a row of its own above all others, its line across what is below.
        let top = placed.iter().flatten().map(|p| p.1 + 1).max().unwrap_or(0);
        hidden += usize::from(found.is_none());
        placed[index] = Some(found.unwrap_or((candidates[0], top)));
    }
    (hidden, placed.into_iter().map(|place| place.unwrap_or((left, 0))).collect())
}

/// The best of `candidates` within `bounds` that hide no text: the one that hides least of lines, in pixels, with what it
/// costs by itself. `None` if each hides a text.
pub(crate) fn spot(
    candidates: impl IntoIterator<Item = (f64, Rect)>,
    bounds: &Rect,
    texts: &[Rect],
    lines: &[Vec<Point>],
) -> Option<Rect> {
    let inside = |r: &Rect| {
        r.x >= bounds.x
            && r.y >= bounds.y
            && r.right() <= bounds.right()
            && r.bottom() <= bounds.bottom()
    };
    let hidden = |r: &Rect| {
        let pieces = lines.iter().flat_map(|line| line.windows(2));
        let covered = pieces.filter_map(|pair| r.clip(pair[0], pair[1]));
        covered.map(|(a, b)| 1.0 + (b[0] - a[0]).hypot(b[1] - a[1])).sum::<f64>()
    };
    candidates
        .into_iter()
        .filter(|(_, r)| inside(r) && !texts.iter().any(|text| text.meets(r)))
        .map(|(cost, r)| (cost + hidden(&r), r))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, r)| r)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_move_no_more_than_they_must() {
        assert_eq!(spread(&[10.0, 50.0], 14.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[50.0, 50.0], 14.0, 0.0, 100.0), [43.0, 57.0]);
        assert_eq!(spread(&[99.0, 98.0], 14.0, 0.0, 100.0), [100.0, 86.0]);
        assert_eq!(spread(&[1.0, 2.0, 3.0], 90.0, 0.0, 100.0), [0.0, 50.0, 100.0]);
        assert_eq!(spread(&[], 1.0, 0.0, 1.0), Vec::<f64>::new());
    }

    #[test]
    fn a_label_goes_where_no_line_is() {
        let bounds = Rect { x: 0.0, y: 0.0, w: 100.0, h: 100.0 };
        let at = |x, y| Rect { x, y, w: 20.0, h: 10.0 };
        let line = vec![vec![[0.0, 15.0], [100.0, 15.0]]];
        let (hides, free) = (at(10.0, 10.0), at(10.0, 40.0));
        assert_eq!(spot([(0.0, hides), (9.0, free)], &bounds, &[], &line), Some(free));
        assert_eq!(spot([(0.0, hides), (99.0, free)], &bounds, &[], &line), Some(hides));
        assert_eq!(spot([(0.0, at(90.0, 10.0))], &bounds, &[], &line), None);
        assert_eq!(spot([(0.0, hides)], &bounds, &[at(15.0, 12.0)], &line), None);
    }

    #[test]
    fn a_line_runs_beside_a_wide_label() {
        let label = |at, width| Above { at, width, line: true };
        // In the lower row the wide one would stand in the way of the other's line.
        let placed = above(&[label(311.0, 60.0), label(405.0, 279.0)], 0.0, 593.0);
        assert_eq!(placed, [(281.0, 0), (265.5, 1)]);
    }

    proptest! {
        #[test]
        fn spread_keeps_order_gap_and_bounds(
            wanted in prop::collection::vec(-50.0..150.0f64, 1..12),
        ) {
            let (gap, low, high) = (14.0, 0.0, 200.0);
            let placed = spread(&wanted, gap, low, high);
            let mut pairs: Vec<(f64, f64)> = wanted.iter().copied().zip(placed).collect();
            pairs.sort_by(|a, b| a.1.total_cmp(&b.1));
            prop_assert!(pairs.windows(2).all(|p| p[1].1 - p[0].1 >= gap - 1e-9 && p[0].0 <= p[1].0));
            prop_assert!(pairs.iter().all(|p| (low - 1e-9..=high + 1e-9).contains(&p.1)));
        }

        #[test]
        fn labels_above_are_free(
            labels in prop::collection::vec((0.0..300.0f64, 5.0..150.0f64, any::<bool>()), 0..9),
        ) {
            let labels: Vec<Above> =
                labels.into_iter().map(|(at, width, line)| Above { at, width, line }).collect();
            let placed = above(&labels, 0.0, 300.0);
            for (i, (a, p)) in labels.iter().zip(&placed).enumerate() {
                prop_assert!(p.0 >= 0.0 && p.0 + a.width <= 300.0 + 1e-9);
                for (b, q) in labels[..i].iter().zip(&placed) {
                    let overlap = p.0 < q.0 + b.width && q.0 < p.0 + a.width;
                    prop_assert!(p.1 != q.1 || !overlap);
                }
            }
        }
    }
}
