//! What all charts share: titles, legends, notes, grid and axes.

use crate::axis::Ruler;
use crate::font;
use crate::palette::Ink;
use crate::scene::{Anchor, Picture, Rect, Stroke, Text};
use crate::{Bars, Figure, HeatMap, Lines, Waterfall};

/// Size of running text, in pixels.
pub(crate) const TEXT: f64 = 12.0;
/// Height of its lines.
pub(crate) const LINE: f64 = 16.0;
/// Space around a picture.
pub(crate) const MARGIN: f64 = 20.0;

/// Title, subtitle and notes of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Words {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) notes: Vec<String>,
}

impl Words {
    pub(crate) fn titled(title: impl Into<String>) -> Words {
        Words { title: title.into(), ..Words::default() }
    }

    /// The lines above a chart, each with its distance from the line before it.
    fn head(&self, width: f64, large: bool) -> Vec<(f64, Text)> {
        let size = if large { 17.0 } else { 14.0 };
        let title = font::wrap(&self.title, size, true, width).into_iter();
        let title = title.map(|line| (size * 1.3, Text::new(line, 0.0, 0.0, size).bold()));
        let subtitle = font::wrap(&self.subtitle, TEXT, false, width).into_iter();
        let subtitle = subtitle.map(|line| (LINE, Text::new(line, 0.0, 0.0, TEXT).ink(Ink::Muted)));
        title.chain(subtitle).collect()
    }

    /// Height of title and subtitle and the space below them.
    pub(crate) fn head_height(&self, width: f64, large: bool) -> f64 {
        let head = self.head(width, large);
        if head.is_empty() { 0.0 } else { head.iter().map(|line| line.0).sum::<f64>() + 12.0 }
    }

    /// Draw title and subtitle; the y below them.
    pub(crate) fn draw_head(&self, picture: &mut Picture, area: Rect, large: bool) -> f64 {
        let mut y = area.y;
        for (height, text) in self.head(area.w, large) {
            y += height;
            picture.text(Text { x: area.x, y: y - 0.25 * height, ..text });
        }
        area.y + self.head_height(area.w, large)
    }

    fn lines(&self, width: f64) -> impl Iterator<Item = String> {
        self.notes.iter().flat_map(move |note| font::wrap(note, TEXT, false, width))
    }

    /// Height of the notes and the space above them.
    pub(crate) fn notes_height(&self, width: f64) -> f64 {
        let lines = self.lines(width).count();
        if lines == 0 { 0.0 } else { lines as f64 * LINE + 10.0 }
    }

    /// Draw the notes at the foot of `area`.
    pub(crate) fn draw_notes(&self, picture: &mut Picture, area: Rect) {
        let mut y = area.bottom() - self.notes_height(area.w) + 10.0;
        for line in self.lines(area.w) {
            y += LINE;
            picture.text(Text::new(line, area.x, y - 4.0, TEXT).ink(Ink::Muted));
        }
    }
}

/// One entry of a legend.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// A line as the series has it, or a square in the ink of its bars.
    pub(crate) sign: Sign,
}

/// What stands before a name in a legend.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sign {
    Line(Stroke),
    Square(Ink),
}

const SIGN: f64 = 24.0;

/// Each key's place, left end and row, in lines of `width`.
fn legend_places(keys: &[Key], width: f64) -> Vec<(f64, usize, String)> {
    let (mut x, mut row) = (0.0, 0);
    let mut places = Vec::new();
    for key in keys {
        let name = font::fit(&key.name, TEXT, (width - SIGN).max(SIGN));
        let needed = SIGN + font::width(&name, TEXT, false);
        if x > 0.0 && x + needed > width {
            (x, row) = (0.0, row + 1);
        }
        places.push((x, row, name));
        x += needed + 16.0;
    }
    places
}

/// Height of a legend and the space below it.
pub(crate) fn legend_height(keys: &[Key], width: f64) -> f64 {
    legend_places(keys, width).last().map_or(0.0, |last| (last.1 + 1) as f64 * LINE + 8.0)
}

/// Draw a legend at the top of `area`; the y below it.
pub(crate) fn draw_legend(picture: &mut Picture, keys: &[Key], area: Rect) -> f64 {
    for (key, (x, row, name)) in keys.iter().zip(legend_places(keys, area.w)) {
        let (x, y) = (area.x + x, area.y + row as f64 * LINE);
        match key.sign {
            Sign::Line(stroke) => {
                picture.line([[x, y + 8.0], [x + SIGN - 6.0, y + 8.0]], stroke);
            }
            Sign::Square(ink) => {
                picture.rect(Rect { x: x + 6.0, y: y + 2.0, w: 12.0, h: 12.0 }, ink, 1.0);
            }
        }
        picture.text(Text::new(name, x + SIGN, y + 12.0, TEXT));
    }
    area.y + legend_height(keys, area.w)
}

/// Vertical grid lines with their texts below, and the axis' label below those, at the right.
pub(crate) fn draw_x(picture: &mut Picture, plot: Rect, ruler: &Ruler, grid: bool) {
    for tick in &ruler.ticks {
        let Some(at) = ruler.at(tick.value) else { continue };
        let x = plot.x + at * plot.w;
        if grid {
            picture.line([[x, plot.y], [x, plot.bottom()]], Stroke::solid(Ink::Grid, 1.0));
        } else {
            picture.line(
                [[x, plot.bottom()], [x, plot.bottom() + 4.0]],
                Stroke::solid(Ink::Axis, 1.0),
            );
        }
        let text = Text::new(&tick.label, x, plot.bottom() + 18.0, TEXT);
        picture.text(text.anchor(Anchor::Middle).ink(Ink::Muted));
    }
    let label = Text::new(&ruler.label, plot.right(), plot.bottom() + 34.0, TEXT);
    picture.text(label.anchor(Anchor::End).ink(Ink::Muted));
}

/// Height of what [`draw_x`] draws below the plot.
pub(crate) const X_HEIGHT: f64 = 42.0;

/// Horizontal grid lines with their texts at the left.
pub(crate) fn draw_y(picture: &mut Picture, plot: Rect, ruler: &Ruler) {
    for tick in &ruler.ticks {
        let Some(at) = ruler.at(tick.value) else { continue };
        let y = plot.bottom() - at * plot.h;
        picture.line([[plot.x, y], [plot.right(), y]], Stroke::solid(Ink::Grid, 1.0));
        let text = Text::new(&tick.label, plot.x - 8.0, y + 4.0, TEXT);
        picture.text(text.anchor(Anchor::End).ink(Ink::Muted));
    }
}

/// Width of the texts of a vertical axis, and the space beside them.
pub(crate) fn y_width(ruler: &Ruler) -> f64 {
    let widths = ruler.ticks.iter().map(|tick| font::width(&tick.label, TEXT, false));
    widths.fold(0.0, f64::max) + 10.0
}

/// A chart that can be drawn into a part of a picture.
pub(crate) trait Draw {
    /// What stands around it.
    fn words(&self) -> &Words;
    /// The width it likes best.
    fn natural_width(&self) -> f64;
    /// The height it needs at this width; `large` titles are those of a chart that stands alone.
    fn height(&self, width: f64, large: bool) -> f64;
    /// Draw into `area`, which has the height that [`height`](Draw::height) asks for.
    fn draw(&self, picture: &mut Picture, area: Rect, large: bool);
    /// What there is to see, in words.
    fn describe(&self) -> String;
}

/// What a chart becomes, the same for every kind.
macro_rules! outputs {
    ($($chart:ty),*) => {$(
        impl $chart {
            /// Laid out.
            pub fn picture(&self) -> Picture {
                picture(self)
            }

            /// As SVG.
            pub fn svg(&self) -> String {
                self.picture().svg()
            }
        }
    )*};
}

outputs!(Bars, Figure, HeatMap, Lines, Waterfall);

/// A picture of one chart.
fn picture(chart: &dyn Draw) -> Picture {
    let width = chart.natural_width();
    let inner = width - 2.0 * MARGIN;
    let height = chart.height(inner, true);
    let words = chart.words();
    let mut picture = Picture {
        width,
        height: height + 2.0 * MARGIN,
        title: words.title.clone(),
        description: chart.describe(),
        items: Vec::new(),
    };
    let area = Rect { x: MARGIN, y: MARGIN, w: inner, h: height };
    chart.draw(&mut picture, area, true);
    picture
}

/// Sentences in a row: those that are not empty, each with a full stop.
pub(crate) fn sentences<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(part);
        if !part.ends_with('.') {
            out.push('.');
        }
    }
    out
}
