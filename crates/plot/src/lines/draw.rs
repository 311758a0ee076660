//! Laying out a line chart: measure everything at a given width, then draw.

use super::{Lines, Mark, Series, Style};
use crate::axis::Ruler;
use crate::font;
use crate::layout::{
    Key, LINE, Sign, TEXT, X_HEIGHT, draw_legend, draw_x, draw_y, legend_height, y_width,
};
use crate::palette::{Ink, N_SERIES};
use crate::place::{Above, above, spot, spread};
use crate::scene::{Anchor, Item, Picture, Point, Rect, Stroke, Text};

/// Most of the width that names at the ends of lines may take.
const MOST_NAMES: f64 = 0.3;
/// Between the plot and the names at its right.
const LEADER: f64 = 18.0;

/// A name to be written near a point.
#[derive(Clone, Copy)]
struct Name<'a> {
    text: &'a str,
    at: Point,
}

/// Everything that is known before drawing.
pub(super) struct Drawing<'a> {
    chart: &'a Lines,
    large: bool,
    x: Ruler,
    y: Ruler,
    /// Width of all.
    width: f64,
    /// Left of the plot.
    left: f64,
    /// Width of the plot.
    plot_width: f64,
    /// Names stand in a legend, not at the ends of lines.
    legend: Vec<Key>,
    /// Marks and bands named above the plot: their index, what is shown, and where.
    strip: Vec<(usize, String, f64, usize)>,
}

impl<'a> Drawing<'a> {
    pub(super) fn of(chart: &'a Lines, width: f64, large: bool) -> Drawing<'a> {
        let y = Ruler::new(&chart.y, chart.ys(), (chart.size[1] / 48.0) as usize, true);
        let left = y_width(&y);
        let names = || chart.series.iter().filter(|s| s.shown());
        let widest = names().map(|s| font::width(&s.name, TEXT, false)).fold(0.0, f64::max);
        let at_ends =
            names().count() as f64 * LINE <= chart.size[1] && widest <= MOST_NAMES * width;
        let right = match at_ends && widest > 0.0 {
            true => LEADER + widest,
            // Half of the last tick's text.
            false => 16.0,
        };
        let plot_width = (width - left - right).max(40.0);
        let x = Ruler::across(&chart.x, &chart.xs(), plot_width, TEXT, false);
        let key = |(series, stroke): (&Series, Stroke)| Key {
            name: series.name.clone(),
            sign: Sign::Line(stroke),
        };
        let legend = match at_ends {
            true => Vec::new(),
            false => chart.strokes().filter(|(s, _)| s.shown()).map(key).collect(),
        };
        let mut plan =
            Drawing { chart, large, x, y, width, left, plot_width, legend, strip: Vec::new() };
        plan.strip = plan.strip();
        plan
    }

    /// Place the names of vertical lines and bands.
    fn strip(&self) -> Vec<(usize, String, f64, usize)> {
        let mut shown = Vec::new();
        for (i, mark) in self.chart.marks.iter().enumerate() {
            let (at, label, line) = match mark {
                Mark::X(x, label) => (self.inside(*x), label, true),
                Mark::Band([from, to], label) => {
                    let ends = self.band(*from, *to);
                    (ends.map(|[from, to]| (from + to) / 2.0), label, false)
                }
                Mark::Y(..) | Mark::Point(..) => continue,
            };
            let Some(at) = at else { continue };
            let label = font::fit(label, TEXT, self.plot_width);
            let width = font::width(&label, TEXT, false);
            shown.push((i, label, Above { at: at * self.plot_width, width, line }));
        }
        let labels: Vec<Above> = shown.iter().map(|s| s.2).collect();
        let places = above(&labels, 0.0, self.plot_width);
        let zip = shown.into_iter().zip(places);
        zip.map(|((i, label, _), (x, row))| (i, label, x, row)).collect()
    }

    /// Where on the axis `x` is, if it is on it.
    fn inside(&self, x: f64) -> Option<f64> {
        self.x.at(x).filter(|at| (0.0..=1.0).contains(at))
    }

    /// The part of a band on the axis. A band may begin before it or end after it, even at infinity.
    fn band(&self, from: f64, to: f64) -> Option<[f64; 2]> {
        let at = |v: f64, beyond: f64| self.x.at(v).unwrap_or(beyond).clamp(0.0, 1.0);
        let ends = [at(from, 0.0), at(to, 1.0)];
        (from < to && ends[0] < ends[1]).then_some(ends)
    }

    fn strip_height(&self) -> f64 {
        let rows = self.strip.iter().map(|s| s.3 + 1).max().unwrap_or(0);
        if rows == 0 { 0.0 } else { rows as f64 * LINE + 4.0 }
    }

    /// Height of what names the vertical axis.
    fn label_height(&self) -> f64 {
        if self.y.label.is_empty() { 8.0 } else { LINE + 8.0 }
    }

    pub(super) fn height(&self) -> f64 {
        let words = &self.chart.words;
        words.head_height(self.width, self.large)
            + legend_height(&self.legend, self.width)
            + self.label_height()
            + self.strip_height()
            + self.chart.size[1]
            + X_HEIGHT
            + words.notes_height(self.width)
    }

    pub(super) fn draw(&self, picture: &mut Picture, area: Rect) {
        let words = &self.chart.words;
        let mut y = words.draw_head(picture, area, self.large);
        y = draw_legend(picture, &self.legend, Rect { y, ..area });
        let label = font::fit(&self.y.label, TEXT, area.w);
        picture.text(Text::new(label, area.x, y + 12.0, TEXT).ink(Ink::Muted));
        y += self.label_height() + self.strip_height();
        let plot = Rect { x: area.x + self.left, y, w: self.plot_width, h: self.chart.size[1] };
        self.draw_bands(picture, plot);
        draw_y(picture, plot, &self.y);
        draw_x(picture, plot, &self.x, false);
        let base = Stroke::solid(Ink::Axis, 1.0);
        picture.line([[plot.x, plot.bottom()], [plot.right(), plot.bottom()]], base);
        let lines = self.chart.series.iter().map(|s| self.pieces(s, plot)).collect::<Vec<_>>();
        self.draw_marks(picture, plot);
        self.draw_series(picture, plot, &lines);
        let mut texts: Vec<Rect> = Vec::new();
        if lines.iter().all(Vec::is_empty) {
            let [x, y] = [plot.x + plot.w / 2.0, plot.y + plot.h / 2.0];
            let text = Text::new("no data", x, y, TEXT).anchor(Anchor::Middle).ink(Ink::Muted);
            texts.push(text.bounds());
            picture.text(text);
        }
        self.draw_ends(picture, plot, &lines, &mut texts);
        self.draw_labels(picture, plot, &lines, &mut texts);
        words.draw_notes(picture, area);
    }

    fn draw_bands(&self, picture: &mut Picture, plot: Rect) {
        for mark in &self.chart.marks {
            let Mark::Band([from, to], _) = mark else { continue };
            let Some([from, to]) = self.band(*from, *to) else { continue };
            let rect = Rect { x: plot.x + from * plot.w, w: (to - from) * plot.w, ..plot };
            picture.rect(rect, Ink::Grid, 0.6);
        }
    }

    /// Vertical and horizontal lines, and what is named above the plot.
    fn draw_marks(&self, picture: &mut Picture, plot: Rect) {
        let stroke = Stroke::dashed(Ink::Axis, 1.2);
        for mark in &self.chart.marks {
            if let Mark::Y(y, _) = mark
                && let Some(at) = self.y.at(*y).filter(|at| (0.0..=1.0).contains(at))
            {
                let y = plot.bottom() - at * plot.h;
                picture.line([[plot.x, y], [plot.right(), y]], stroke);
            }
        }
        for (index, label, x, row) in &self.strip {
            let bottom = plot.y - 4.0 - *row as f64 * LINE;
            if let Mark::X(at, _) = self.chart.marks[*index]
                && let Some(at) = self.inside(at)
            {
                let x = plot.x + at * plot.w;
                picture.line([[x, bottom], [x, plot.bottom()]], stroke);
            }
            picture.text(Text::new(label, plot.x + x, bottom - 4.0, TEXT));
        }
    }

    /// The parts of a series inside the plot, in pixels.
    fn pieces(&self, series: &Series, plot: Rect) -> Vec<Vec<Point>> {
        let mut pieces: Vec<Vec<Point>> = Vec::new();
        let mut last: Option<Point> = None;
        for [x, y] in &series.points {
            let at = self.x.at(*x).zip(self.y.at(*y));
            let here = at.map(|(x, y)| [plot.x + x * plot.w, plot.bottom() - y * plot.h]);
            if let Some(here) = here
                && let Some((from, to)) = plot.clip(last.unwrap_or(here), here)
            {
                match pieces.last_mut() {
                    Some(piece) if last.is_some() && piece.last() == Some(&from) => piece.push(to),
                    _ if from == to => pieces.push(vec![to]),
                    _ => pieces.push(vec![from, to]),
                }
            }
            last = here;
        }
        pieces
    }

    fn draw_series(&self, picture: &mut Picture, plot: Rect, lines: &[Vec<Vec<Point>>]) {
        for ((series, Stroke { ink, .. }), pieces) in self.chart.strokes().zip(lines) {
            for piece in pieces.iter().filter(|piece| series.style.area && piece.len() > 1) {
                let mut points = piece.clone();
                points.push([piece[piece.len() - 1][0], plot.bottom()]);
                points.push([piece[0][0], plot.bottom()]);
                picture.items.push(Item::Area { points, ink, opacity: 0.14 });
            }
        }
        for ((series, stroke), pieces) in self.chart.strokes().zip(lines) {
            for piece in pieces {
                if piece.len() > 1 {
                    picture.line(piece.clone(), stroke);
                }
                let lone = piece.len() == 1;
                for at in piece.iter().filter(|_| series.style.dots || lone) {
                    picture.items.push(Item::Dot { at: *at, radius: 3.5, ink: stroke.ink });
                }
            }
        }
        for mark in &self.chart.marks {
            if let Some(at) = self.point(mark, plot) {
                picture.items.push(Item::Dot { at, radius: 4.5, ink: Ink::Text });
            }
        }
    }

    /// Where the dot of a marked point is.
    fn point(&self, mark: &Mark, plot: Rect) -> Option<Point> {
        let Mark::Point([x, y], _) = mark else { return None };
        let on = |at: &f64| (0.0..=1.0).contains(at);
        let (x, y) = self.x.at(*x).filter(on).zip(self.y.at(*y).filter(on))?;
        Some([plot.x + x * plot.w, plot.bottom() - y * plot.h])
    }

    /// Names at the right of lines that reach the right, beside the ends of others.
    fn draw_ends(
        &self,
        picture: &mut Picture,
        plot: Rect,
        lines: &[Vec<Vec<Point>>],
        texts: &mut Vec<Rect>,
    ) {
        if !self.legend.is_empty() {
            return;
        }
        let named = self.chart.strokes().zip(lines).filter(|((s, _), _)| s.shown());
        let ends = named.filter_map(|(s, pieces)| Some((s, *pieces.last()?.last()?)));
        let (right, inner): (Vec<_>, Vec<_>) =
            ends.partition(|(_, end)| end[0] >= plot.right() - 0.06 * plot.w);
        let wanted: Vec<f64> = right.iter().map(|(_, end)| end[1]).collect();
        let placed = spread(&wanted, LINE, plot.y, plot.bottom());
        for (((series, stroke), end), y) in right.into_iter().zip(placed) {
            let x = plot.right() + LEADER;
            let leader = Stroke { width: 1.0, dash: None, ..stroke };
            let bend = [plot.right().max(end[0]) + 2.0, end[1]];
            picture.line([[end[0], end[1]], bend, [x - 4.0, y]], leader);
            picture.text(Text::new(&series.name, x, y + 4.0, TEXT));
        }
        let all: Vec<Vec<Point>> = lines.iter().flatten().cloned().collect();
        for ((series, _), end) in inner {
            self.beside(picture, plot, Name { text: &series.name, at: end }, texts, &all);
        }
    }

    /// Names of marked points and horizontal lines.
    fn draw_labels(
        &self,
        picture: &mut Picture,
        plot: Rect,
        lines: &[Vec<Vec<Point>>],
        texts: &mut Vec<Rect>,
    ) {
        let mut all: Vec<Vec<Point>> = lines.iter().flatten().cloned().collect();
        for (index, ..) in &self.strip {
            if let Mark::X(x, _) = self.chart.marks[*index]
                && let Some(at) = self.inside(x)
            {
                let x = plot.x + at * plot.w;
                all.push(vec![[x, plot.y], [x, plot.bottom()]]);
            }
        }
        for mark in &self.chart.marks {
            match mark {
                Mark::Point(_, label) => {
                    if let Some(at) = self.point(mark, plot) {
                        self.beside(picture, plot, Name { text: label, at }, texts, &all);
                    }
                }
                Mark::Y(y, label) => {
                    let Some(at) = self.y.at(*y) else { continue };
                    let y = plot.bottom() - at * plot.h;
                    let label = font::fit(label, TEXT, plot.w - 8.0);
                    let w = font::width(&label, TEXT, false);
                    let lefts = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
                    let candidates = [y - 14.0, y + 3.0].into_iter().flat_map(|top| {
                        lefts.map(|at| {
                            let x = plot.x + 4.0 + at * (plot.w - w - 8.0);
                            (0.0, Rect { x, y: top, w, h: TEXT })
                        })
                    });
                    write(picture, spot(candidates, &plot, texts, &all), label, texts);
                }
                Mark::X(..) | Mark::Band(..) => {}
            }
        }
    }

    /// Write a name near a point, where it hides least.
    fn beside(
        &self,
        picture: &mut Picture,
        plot: Rect,
        name: Name<'_>,
        texts: &mut Vec<Rect>,
        lines: &[Vec<Point>],
    ) {
        let label = font::fit(name.text, TEXT, plot.w - 16.0);
        let w = font::width(&label, TEXT, false);
        let [x, y] = name.at;
        // Further away it must hide less to be worth it.
        let far = [(0.0, 10.0), (12.0, 18.0), (40.0, 36.0)];
        let around = far.into_iter().flat_map(|(cost, d)| {
            [
                [x + d, y - TEXT / 2.0],
                [x + d * 0.6, y - TEXT - d * 0.6],
                [x - w - d * 0.6, y - TEXT - d * 0.6],
                [x - w / 2.0, y - TEXT - d],
                [x + d * 0.6, y + d * 0.6],
                [x - w / 2.0, y + d],
                [x - w - d, y - TEXT / 2.0],
                [x - w - d * 0.6, y + d * 0.6],
            ]
            .map(|[x, y]| (cost, Rect { x, y, w, h: TEXT }))
        });
        write(picture, spot(around, &plot, texts, lines), label, texts);
    }
}

/// Write `label` into `place` and remember that it is taken. A label without a place is in the description only.
fn write(picture: &mut Picture, place: Option<Rect>, label: String, texts: &mut Vec<Rect>) {
    if let Some(place) = place {
        picture.text(Text::new(label, place.x, place.y + 0.8 * TEXT, TEXT).halo());
        texts.push(place);
    }
}

impl Series {
    /// Has it a name to be shown?
    fn shown(&self) -> bool {
        !self.name.is_empty()
    }
}

impl Lines {
    /// Each series and how it is drawn.
    fn strokes(&self) -> impl Iterator<Item = (&Series, Stroke)> {
        self.series.iter().enumerate().map(|(place, series)| {
            let n = series.colour.unwrap_or(place);
            let Style { dashed, thick, pale, .. } = series.style;
            // Colours that repeat differ in dashes.
            let dashed = dashed || n >= N_SERIES && !pale;
            let stroke = Stroke {
                ink: if pale { Ink::Axis } else { Ink::series(n) },
                width: if thick { 3.0 } else { 2.0 },
                dash: dashed.then_some([6.0, 4.0]),
            };
            (series, stroke)
        })
    }
}
