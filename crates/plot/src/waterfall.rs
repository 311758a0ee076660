//! Waterfalls: how one number becomes another, step by step.

use crate::axis::{Axis, Unit};
use crate::layout::{self, Draw, Words};
use crate::palette::Ink;
use crate::rows::{Bar, BarPart, BarRows, Row};
use crate::scene::{Picture, Rect};

/// Totals and the steps between them, such as from a limit to what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Waterfall {
    words: Words,
    axis: Axis,
    steps: Vec<Step>,
    width: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    name: String,
    /// Of a total: all of it. Else what is added.
    value: f64,
    total: bool,
}

impl Waterfall {
    /// Without rows, 760 pixels wide.
    pub fn new(title: impl Into<String>) -> Waterfall {
        let axis = Axis::linear("", Unit::Number);
        Waterfall { words: Words::titled(title), axis, steps: Vec::new(), width: 760.0 }
    }

    /// What stands below the title.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> Waterfall {
        self.words.subtitle = text.into();
        self
    }

    /// The axis of the values; a linear one.
    #[must_use]
    pub fn values(self, axis: Axis) -> Waterfall {
        Waterfall { axis, ..self }
    }

    /// A bar from zero; the next step starts at its end.
    #[must_use]
    pub fn total(mut self, name: impl Into<String>, value: f64) -> Waterfall {
        self.steps.push(Step { name: name.into(), value, total: true });
        self
    }

    /// A bar from where the one before it ended: what this adds, or saves if it is negative.
    #[must_use]
    pub fn step(mut self, name: impl Into<String>, value: f64) -> Waterfall {
        self.steps.push(Step { name: name.into(), value, total: false });
        self
    }

    /// A sentence below the chart, such as a remedy.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Waterfall {
        self.words.notes.push(text.into());
        self
    }

    /// Width of the picture, in pixels.
    #[must_use]
    pub fn width(self, width: f64) -> Waterfall {
        Waterfall { width, ..self }
    }

    fn rows(&self) -> BarRows<'_> {
        let mut end = 0.0;
        let rows = self.steps.iter().map(|step| {
            let finite = step.value.is_finite();
            let from = (!step.total).then_some(end);
            if finite {
                end = if step.total { step.value } else { end + step.value };
            }
            let ink = match (step.total, step.value < 0.0) {
                (true, _) => Ink::series(0),
                (false, false) => Ink::series(1),
                (false, true) => Ink::series(2),
            };
            let parts = if finite { vec![BarPart { from, to: end, ink }] } else { Vec::new() };
            Row { name: step.name.clone(), bars: vec![Bar { parts, text: self.text(step) }] }
        });
        BarRows {
            words: &self.words,
            axis: &self.axis,
            legend: Vec::new(),
            rows: rows.collect(),
            marks: &[],
            connected: true,
        }
    }

    /// `13.1 ms`, or `+2.1 ms` for a step.
    fn text(&self, step: &Step) -> String {
        let value = self.axis.value(step.value);
        if step.total || step.value.is_nan() || step.value < 0.0 {
            value
        } else {
            format!("+{value}")
        }
    }
}

impl Draw for Waterfall {
    fn words(&self) -> &Words {
        &self.words
    }

    fn natural_width(&self) -> f64 {
        if self.width.is_finite() { self.width.clamp(200.0, 8000.0) } else { 760.0 }
    }

    fn height(&self, width: f64, large: bool) -> f64 {
        self.rows().height(width, large)
    }

    fn draw(&self, picture: &mut Picture, area: Rect, large: bool) {
        self.rows().draw(picture, area, large);
    }

    fn describe(&self) -> String {
        let axis = format!("Waterfall of {}", self.axis.words());
        let steps = self.steps.iter().map(|step| format!("{}: {}", step.name, self.text(step)));
        let notes = self.words.notes.iter().cloned();
        let parts: Vec<String> = std::iter::once(axis).chain(steps).chain(notes).collect();
        let words = [self.words.subtitle.as_str()].into_iter();
        layout::sentences(words.chain(parts.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_start_where_the_last_one_ended() {
        let chart = Waterfall::new("A step of 7B")
            .values(Axis::linear("time", Unit::Si("s")))
            .total("limit", 0.010)
            .step("attention", 0.004)
            .step("overlap", -0.001)
            .step("unknown", f64::NAN)
            .step("unaccounted", 0.002)
            .total("measured", 0.015);
        let ends: Vec<Option<(Option<f64>, f64)>> = chart
            .rows()
            .rows
            .iter()
            .map(|r| r.bars[0].parts.first().map(|p| (p.from, p.to)))
            .collect();
        let near = |got: Option<(Option<f64>, f64)>, from: Option<f64>, to: f64| {
            let (f, t) = got.unwrap();
            f.is_some() == from.is_some()
                && (f.unwrap_or(0.0) - from.unwrap_or(0.0)).abs() < 1e-12
                && (t - to).abs() < 1e-12
        };
        assert!(near(ends[0], None, 0.010) && near(ends[1], Some(0.010), 0.014));
        assert!(near(ends[2], Some(0.014), 0.013) && ends[3].is_none());
        assert!(near(ends[4], Some(0.013), 0.015) && near(ends[5], None, 0.015));
        let svg = chart.svg();
        for want in [">10 ms<", ">+4 ms<", ">\u{2212}1 ms<", ">-<"] {
            assert!(svg.contains(want), "{want} in {svg}");
        }
    }
}
