//! Laying out rows of bars: names at the left, values at the ends.

use crate::axis::{Axis, Ruler};
use crate::font;
use crate::layout::{Key, LINE, TEXT, Words, X_HEIGHT, draw_legend, draw_x, legend_height};
use crate::palette::Ink;
use crate::place::{Above, above};
use crate::scene::{Anchor, Picture, Rect, Stroke, Text};

/// Part of a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BarPart {
    /// `None`: from the base of the axis.
    pub(crate) from: Option<f64>,
    pub(crate) to: f64,
    pub(crate) ink: Ink,
}

/// A bar, and what stands at its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) parts: Vec<BarPart>,
    pub(crate) text: String,
}

/// A name and its bars.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// A chart of bars.
pub(crate) struct BarRows<'a> {
    pub(crate) words: &'a Words,
    pub(crate) axis: &'a Axis,
    pub(crate) legend: Vec<Key>,
    pub(crate) rows: Vec<Row>,
    pub(crate) marks: &'a [(f64, String)],
    /// A thin line from the end of each bar to the next one.
    pub(crate) connected: bool,
}

/// Height of a bar alone in its row, and of one among several, which must leave room for its text.
const BAR: [f64; 2] = [20.0, 16.0];
/// Between rows.
const GAP: f64 = 10.0;

/// What is known before drawing.
struct BarLayout {
    ruler: Ruler,
    left: f64,
    plot_width: f64,
    /// What is shown of a mark's name, its left end and its row.
    strip: Vec<(String, f64, usize)>,
}

impl BarRows<'_> {
    fn plan(&self, width: f64) -> BarLayout {
        let widest = |texts: &mut dyn Iterator<Item = &str>| {
            texts.map(|text| font::width(text, TEXT, false)).fold(0.0, f64::max)
        };
        let left =
            widest(&mut self.rows.iter().map(|row| row.name.as_str())).min(0.4 * width) + 10.0;
        let bars = || self.rows.iter().flat_map(|row| &row.bars);
        let right = widest(&mut bars().map(|bar| bar.text.as_str())).min(0.3 * width) + 10.0;
        let plot_width = (width - left - right).max(40.0);
        let ends = bars().flat_map(|bar| &bar.parts).flat_map(|p| [p.to, p.from.unwrap_or(p.to)]);
        let values = ends.chain(self.marks.iter().map(|mark| mark.0));
        let ruler = Ruler::across(self.axis, &values, plot_width, TEXT, true);
        let on = |at: &f64| (0.0..=1.0).contains(at);
        let shown: Vec<(String, Above)> = self
            .marks
            .iter()
            .filter_map(|(value, label)| {
                let at = ruler.at(*value).filter(on)? * plot_width;
                let label = font::fit(label, TEXT, plot_width);
                let width = font::width(&label, TEXT, false);
                Some((label, Above { at, width, line: true }))
            })
            .collect();
        let labels: Vec<Above> = shown.iter().map(|s| s.1).collect();
        let places = above(&labels, 0.0, plot_width);
        let strip = shown.into_iter().zip(places).map(|((label, _), (x, row))| (label, x, row));
        BarLayout { left, plot_width, strip: strip.collect(), ruler }
    }

    fn row_height(row: &Row) -> f64 {
        match row.bars.len() {
            0 | 1 => BAR[0] + GAP,
            n => n as f64 * BAR[1] + GAP,
        }
    }

    fn rows_height(&self) -> f64 {
        self.rows.iter().map(Self::row_height).sum::<f64>().max(40.0)
    }

    pub(crate) fn height(&self, width: f64, large: bool) -> f64 {
        self.words.head_height(width, large)
            + legend_height(&self.legend, width)
            + strip_height(&self.plan(width))
            + self.rows_height()
            + X_HEIGHT
            + self.words.notes_height(width)
    }

    pub(crate) fn draw(&self, picture: &mut Picture, area: Rect, large: bool) {
        let plan = self.plan(area.w);
        let mut y = self.words.draw_head(picture, area, large);
        y = draw_legend(picture, &self.legend, Rect { y, ..area }) + strip_height(&plan);
        let plot = Rect { x: area.x + plan.left, y, w: plan.plot_width, h: self.rows_height() };
        draw_x(picture, plot, &plan.ruler, true);
        let at = |value: f64| plan.ruler.at(value).map(|at| plot.x + at.clamp(0.0, 1.0) * plot.w);
        let base = at(plan.ruler.base()).unwrap_or(plot.x);
        let mut values = Vec::new();
        let mut top = plot.y;
        // Where the last bar ended.
        let mut end: Option<[f64; 2]> = None;
        for row in &self.rows {
            let height = Self::row_height(row);
            let name = font::fit(&row.name, TEXT, plan.left - 10.0);
            let name = Text::new(name, plot.x - 8.0, top + height / 2.0 + 4.0, TEXT);
            picture.text(name.anchor(Anchor::End));
            let thick = if row.bars.len() > 1 { BAR[1] } else { BAR[0] };
            for (i, bar) in row.bars.iter().enumerate() {
                let y = top + GAP / 2.0 + i as f64 * thick;
                let mut right = base;
                for part in &bar.parts {
                    let from = part.from.map_or(Some(base), at);
                    let Some((from, to)) = from.zip(at(part.to)) else { continue };
                    if let Some([x, last]) = end.filter(|_| self.connected) {
                        picture.line([[x, last], [x, y]], Stroke::solid(Ink::Axis, 1.0));
                    }
                    let (x, w) = (from.min(to), (to - from).abs());
                    // What is too small to be seen is still there.
                    let rect = Rect { x, y: y + 0.5, w: w.max(1.0), h: thick - 1.0 };
                    picture.rect(rect, part.ink, 1.0);
                    right = right.max(x + w);
                    end = Some([to, y + thick]);
                }
                let text = font::fit(&bar.text, TEXT, 0.3 * area.w);
                values.push(Text::new(text, right + 6.0, y + thick / 2.0 + 4.0, TEXT).halo());
            }
            top += height;
        }
        picture.line([[base, plot.y], [base, plot.bottom()]], Stroke::solid(Ink::Axis, 1.0));
        self.draw_marks(picture, plot, &plan);
        // Values last: no line runs through them.
        for text in values {
            picture.text(text);
        }
        if self.rows.is_empty() {
            let text = Text::new("no data", plot.x + plot.w / 2.0, plot.y + plot.h / 2.0, TEXT);
            picture.text(text.anchor(Anchor::Middle).ink(Ink::Muted));
        }
        self.words.draw_notes(picture, area);
    }

    fn draw_marks(&self, picture: &mut Picture, plot: Rect, plan: &BarLayout) {
        let on = |at: &f64| (0.0..=1.0).contains(at);
        let ats = self.marks.iter().filter_map(|mark| plan.ruler.at(mark.0).filter(on));
        for (at, (label, x, row)) in ats.zip(&plan.strip) {
            let bottom = plot.y - 4.0 - *row as f64 * LINE;
            let line = plot.x + at * plot.w;
            picture.line([[line, bottom], [line, plot.bottom()]], Stroke::dashed(Ink::Text, 1.2));
            picture.text(Text::new(label, plot.x + x, bottom - 4.0, TEXT));
        }
    }
}

fn strip_height(plan: &BarLayout) -> f64 {
    let rows = plan.strip.iter().map(|s| s.2 + 1).max().unwrap_or(0);
    if rows == 0 { 0.0 } else { rows as f64 * LINE + 4.0 }
}
