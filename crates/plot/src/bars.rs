//! Bar charts: grouped and stacked. Rows run downwards, since names are longer than they are high.

use crate::axis::{Axis, Unit};
use crate::layout::{self, Draw, Key, Sign, Words};
use crate::palette::Ink;
use crate::rows::{Bar, BarPart, BarRows, Row};
use crate::scene::{Picture, Rect};

/// Bars for some categories, one or several each.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    words: Words,
    axis: Axis,
    stacked: bool,
    missing: String,
    series: Vec<String>,
    rows: Vec<(String, Vec<f64>)>,
    marks: Vec<(f64, String)>,
    width: f64,
}

impl Bars {
    fn new(title: impl Into<String>, stacked: bool) -> Bars {
        Bars {
            words: Words::titled(title),
            axis: Axis::linear("", Unit::Number),
            stacked,
            missing: "-".to_owned(),
            series: Vec::new(),
            rows: Vec::new(),
            marks: Vec::new(),
            width: 760.0,
        }
    }

    /// A row's bars stand below each other, each with its value.
    pub fn grouped(title: impl Into<String>) -> Bars {
        Bars::new(title, false)
    }

    /// A row's values add up to one bar, with their sum.
    pub fn stacked(title: impl Into<String>) -> Bars {
        Bars::new(title, true)
    }

    /// What stands below the title.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> Bars {
        self.words.subtitle = text.into();
        self
    }

    /// The axis of the values.
    #[must_use]
    pub fn values(self, axis: Axis) -> Bars {
        Bars { axis, ..self }
    }

    /// Names of the values of a row, for the legend. With one or none there is no legend.
    #[must_use]
    pub fn series<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Bars {
        self.series = names.into_iter().map(Into::into).collect();
        self
    }

    /// What to write for a value that is not finite: `-`, unless it is said here.
    #[must_use]
    pub fn missing(mut self, text: impl Into<String>) -> Bars {
        self.missing = text.into();
        self
    }

    /// One more category, with a value for each series.
    #[must_use]
    pub fn row(mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Bars {
        self.rows.push((name.into(), values.into_iter().collect()));
        self
    }

    /// A vertical line through all rows, with its name above them.
    #[must_use]
    pub fn mark(mut self, value: f64, label: impl Into<String>) -> Bars {
        self.marks.push((value, label.into()));
        self
    }

    /// A sentence below the chart.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Bars {
        self.words.notes.push(text.into());
        self
    }

    /// Width of the picture, in pixels. The height follows from the rows.
    #[must_use]
    pub fn width(self, width: f64) -> Bars {
        Bars { width, ..self }
    }

    fn rows(&self) -> BarRows<'_> {
        let rows = self.rows.iter().map(|(name, values)| Row {
            name: name.clone(),
            bars: if self.stacked { vec![self.stack(values)] } else { self.group(values) },
        });
        let names = self.series.iter().enumerate();
        let keys =
            names.map(|(i, name)| Key { name: name.clone(), sign: Sign::Square(Ink::series(i)) });
        BarRows {
            words: &self.words,
            axis: &self.axis,
            legend: if self.series.len() > 1 { keys.collect() } else { Vec::new() },
            rows: rows.collect(),
            marks: &self.marks,
            connected: false,
        }
    }

    fn group(&self, values: &[f64]) -> Vec<Bar> {
        let bar = |(i, value): (usize, &f64)| match value.is_finite() {
            true => Bar {
                parts: vec![BarPart { from: None, to: *value, ink: Ink::series(i) }],
                text: self.axis.value(*value),
            },
            false => Bar { parts: Vec::new(), text: self.missing.clone() },
        };
        values.iter().enumerate().map(bar).collect()
    }

    fn stack(&self, values: &[f64]) -> Bar {
        let mut sum = 0.0;
        let mut parts = Vec::new();
        for (i, value) in values.iter().enumerate().filter(|(_, v)| v.is_finite()) {
            let from = (i > 0).then_some(sum);
            sum += value;
            parts.push(BarPart { from, to: sum, ink: Ink::series(i) });
        }
        let text = if parts.is_empty() { self.missing.clone() } else { self.axis.value(sum) };
        Bar { parts, text }
    }
}

impl Draw for Bars {
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
        let axis = format!("Bar chart of {}", self.axis.words());
        let value = |(i, value): (usize, &f64)| {
            let value =
                if value.is_finite() { self.axis.value(*value) } else { self.missing.clone() };
            match self.series.get(i).filter(|name| !name.is_empty()) {
                Some(name) => format!("{name} {value}"),
                None => value,
            }
        };
        let rows = self.rows.iter().map(|(name, values)| {
            let values: Vec<String> = values.iter().enumerate().map(value).collect();
            format!("{name}: {}", values.join(", "))
        });
        let parts: Vec<String> = std::iter::once(axis).chain(rows).collect();
        let words = [self.words.subtitle.as_str()].into_iter();
        layout::sentences(words.chain(parts.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_beside_their_bars() {
        let chart = Bars::grouped("Speed")
            .values(Axis::linear("time", Unit::Si("s")))
            .series(["theory", "measured"])
            .missing("oom")
            .row("0.5B", [0.0019, 0.0121])
            .row("<7B>", [0.028, f64::NAN])
            .mark(0.02, "goal");
        let svg = chart.svg();
        for want in
            [">theory<", ">measured<", ">1.9 ms<", ">12.1 ms<", ">oom<", ">&lt;7B&gt;<", ">goal<"]
        {
            assert!(svg.contains(want), "{want} in {svg}");
        }
        assert!(svg.contains("0.5B: theory 1.9 ms, measured 12.1 ms."), "{svg}");
    }

    #[test]
    fn stacks_add_up() {
        let chart = Bars::stacked("Memory")
            .values(Axis::linear("memory", Unit::Si("B")))
            .series(["weights", "cache"])
            .row("4,096", [4e9, 0.5e9])
            .row("nothing", []);
        let bar = chart.stack(&[4e9, 0.5e9]);
        assert_eq!(bar.text, "4.5 GB");
        assert_eq!((bar.parts[1].from, bar.parts[1].to), (Some(4e9), 4.5e9));
        assert!(chart.svg().contains(">4.5 GB<"));
        assert!(Bars::grouped("").svg().contains("no data"));
    }
}
