//! Line charts: what can be said of them. How they are laid out is in `draw.rs`.

mod draw;

use crate::axis::{Axis, Unit};
use crate::layout::{self, Draw, Words};
use crate::scene::Picture;

/// A line with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<[f64; 2]>,
    style: Style,
    colour: Option<usize>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Style {
    dashed: bool,
    thick: bool,
    dots: bool,
    area: bool,
    pale: bool,
}

impl Series {
    /// A line through `points`, in order. A point that is not finite, or not positive on a logarithmic axis, leaves a
    /// gap. An empty name is shown nowhere.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let points = points.into_iter().map(|(x, y)| [x, y]).collect();
        Series { name: name.into(), points, style: Style::default(), colour: None }
    }

    /// Dashed: theory, or what is less certain.
    #[must_use]
    pub fn dashed(mut self) -> Series {
        self.style.dashed = true;
        self
    }

    /// Thicker: the line that matters.
    #[must_use]
    pub fn thick(mut self) -> Series {
        self.style.thick = true;
        self
    }

    /// A dot at each point: measurements.
    #[must_use]
    pub fn dots(mut self) -> Series {
        self.style.dots = true;
        self
    }

    /// The area below it shaded.
    #[must_use]
    pub fn area(mut self) -> Series {
        self.style.area = true;
        self
    }

    /// In grey: a reference that is not itself the subject.
    #[must_use]
    pub fn pale(mut self) -> Series {
        self.style.pale = true;
        self
    }

    /// In the `n`-th colour instead of that of its place: for pairs such as theory and measurement.
    #[must_use]
    pub fn colour(mut self, n: usize) -> Series {
        self.colour = Some(n);
        self
    }
}

/// Something marked in a chart.
#[derive(Clone, Debug, PartialEq)]
enum Mark {
    /// A vertical line.
    X(f64, String),
    /// A horizontal line.
    Y(f64, String),
    /// A dot.
    Point([f64; 2], String),
    /// A shaded range of x.
    Band([f64; 2], String),
}

/// A line chart. Series are named at their ends where there is room, in a legend where there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    words: Words,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    marks: Vec<Mark>,
    size: [f64; 2],
}

impl Lines {
    /// A chart without series, 760 pixels wide.
    pub fn new(title: impl Into<String>) -> Lines {
        Lines {
            words: Words::titled(title),
            x: Axis::linear("", Unit::Number),
            y: Axis::linear("", Unit::Number),
            series: Vec::new(),
            marks: Vec::new(),
            size: [760.0, 300.0],
        }
    }

    /// What stands below the title: of what, on what.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> Lines {
        self.words.subtitle = text.into();
        self
    }

    /// The horizontal axis.
    #[must_use]
    pub fn x(self, x: Axis) -> Lines {
        Lines { x, ..self }
    }

    /// The vertical axis.
    #[must_use]
    pub fn y(self, y: Axis) -> Lines {
        Lines { y, ..self }
    }

    /// One more line.
    #[must_use]
    pub fn series(mut self, series: Series) -> Lines {
        self.series.push(series);
        self
    }

    /// A vertical line, with its name above the plot.
    #[must_use]
    pub fn mark_x(mut self, x: f64, label: impl Into<String>) -> Lines {
        self.marks.push(Mark::X(x, label.into()));
        self
    }

    /// A horizontal line, such as the memory there is. The axis is made to reach it.
    #[must_use]
    pub fn mark_y(mut self, y: f64, label: impl Into<String>) -> Lines {
        self.marks.push(Mark::Y(y, label.into()));
        self
    }

    /// A dot with a name.
    #[must_use]
    pub fn mark_point(mut self, x: f64, y: f64, label: impl Into<String>) -> Lines {
        self.marks.push(Mark::Point([x, y], label.into()));
        self
    }

    /// A shaded range of x, with its name above the plot.
    #[must_use]
    pub fn band(mut self, from: f64, to: f64, label: impl Into<String>) -> Lines {
        self.marks.push(Mark::Band([from, to], label.into()));
        self
    }

    /// A sentence below the chart.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Lines {
        self.words.notes.push(text.into());
        self
    }

    /// Width of the picture and height of the plot in it, in pixels.
    #[must_use]
    pub fn size(self, width: f64, height: f64) -> Lines {
        let sane = |v: f64, least: f64| if v.is_finite() { v.clamp(least, 8000.0) } else { least };
        Lines { size: [sane(width, 200.0), sane(height, 80.0)], ..self }
    }

    /// Every x that the axis must reach.
    fn xs(&self) -> impl Iterator<Item = f64> + Clone {
        self.both(0)
    }

    /// Every y.
    fn ys(&self) -> impl Iterator<Item = f64> + Clone {
        self.both(1)
    }

    fn both(&self, axis: usize) -> impl Iterator<Item = f64> + Clone {
        let whole = |p: &&[f64; 2]| p.iter().all(|v| v.is_finite());
        let points = self.series.iter().flat_map(move |s| s.points.iter().filter(whole));
        let marks = self.marks.iter().filter_map(move |mark| match (mark, axis) {
            (Mark::Y(y, _), 1) => Some(*y),
            (Mark::Point(p, _), _) => Some(p[axis]),
            // A mark or band in x is shown only where there are data.
            _ => None,
        });
        points.map(move |p| p[axis]).chain(marks)
    }
}

/// `name: 13.1 ms at 1, 75.3 ms at 500`.
fn summary(series: &Series, x: &Axis, y: &Axis) -> Option<String> {
    let mut whole = series.points.iter().filter(|p| p.iter().all(|v| v.is_finite()));
    let first = whole.next()?;
    let last = whole.next_back().unwrap_or(first);
    let at = |p: &[f64; 2]| format!("{} at {}", y.value(p[1]), x.value(p[0]));
    Some(format!("{}: {}, {}", series.name, at(first), at(last)))
}

/// What a mark says, in words.
fn said(mark: &Mark, x: &Axis, y: &Axis) -> String {
    match mark {
        Mark::X(at, label) => format!("{label} at {}", x.value(*at)),
        Mark::Y(at, label) => format!("{label} at {}", y.value(*at)),
        Mark::Point(at, label) => format!("{label} at {}, {}", x.value(at[0]), y.value(at[1])),
        Mark::Band([from, to], label) => {
            format!("{label} from {} to {}", x.value(*from), x.value(*to))
        }
    }
}

/// Series and marks in words.
fn describe(chart: &Lines) -> String {
    let axes = format!("Line chart of {} against {}", chart.y.words(), chart.x.words());
    let series = chart.series.iter().filter_map(|s| summary(s, &chart.x, &chart.y));
    let marks = chart.marks.iter().map(|m| said(m, &chart.x, &chart.y));
    let parts: Vec<String> = std::iter::once(axes).chain(series).chain(marks).collect();
    let words = [chart.words.subtitle.as_str()].into_iter();
    layout::sentences(words.chain(parts.iter().map(String::as_str)))
}

impl Draw for Lines {
    fn words(&self) -> &Words {
        &self.words
    }

    fn natural_width(&self) -> f64 {
        self.size[0]
    }

    fn height(&self, width: f64, large: bool) -> f64 {
        draw::Drawing::of(self, width, large).height()
    }

    fn draw(&self, picture: &mut Picture, area: crate::scene::Rect, large: bool) {
        draw::Drawing::of(self, area.w, large).draw(picture, area);
    }

    fn describe(&self) -> String {
        describe(self)
    }
}

#[cfg(test)]
mod tests;
