//! Several charts in one picture.

use crate::bars::Bars;
use crate::heat::HeatMap;
use crate::layout::{self, Draw, Words};
use crate::lines::Lines;
use crate::scene::{Picture, Rect};
use crate::waterfall::Waterfall;

/// A chart in a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Panel {
    /// Lines.
    Lines(Lines),
    /// Bars.
    Bars(Bars),
    /// Steps from one total to another.
    Waterfall(Waterfall),
    /// Shares in rows and columns.
    HeatMap(HeatMap),
}

impl From<Lines> for Panel {
    fn from(chart: Lines) -> Panel {
        Panel::Lines(chart)
    }
}

impl From<Bars> for Panel {
    fn from(chart: Bars) -> Panel {
        Panel::Bars(chart)
    }
}

impl From<Waterfall> for Panel {
    fn from(chart: Waterfall) -> Panel {
        Panel::Waterfall(chart)
    }
}

impl From<HeatMap> for Panel {
    fn from(chart: HeatMap) -> Panel {
        Panel::HeatMap(chart)
    }
}

impl Panel {
    fn chart(&self) -> &dyn Draw {
        match self {
            Panel::Lines(chart) => chart,
            Panel::Bars(chart) => chart,
            Panel::Waterfall(chart) => chart,
            Panel::HeatMap(chart) => chart,
        }
    }
}

/// Charts beside and below each other under one title.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    words: Words,
    columns: usize,
    width: f64,
    panels: Vec<Panel>,
}

/// Between panels.
const GAP: [f64; 2] = [28.0, 24.0];

impl Figure {
    /// Without panels, one column, 760 pixels wide.
    pub fn new(title: impl Into<String>) -> Figure {
        Figure { words: Words::titled(title), columns: 1, width: 760.0, panels: Vec::new() }
    }

    /// What stands below the title.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> Figure {
        self.words.subtitle = text.into();
        self
    }

    /// A sentence below the panels.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Figure {
        self.words.notes.push(text.into());
        self
    }

    /// How many panels stand beside each other, and the width of the picture in pixels.
    #[must_use]
    pub fn columns(self, columns: usize, width: f64) -> Figure {
        let width = if width.is_finite() { width.clamp(200.0, 8000.0) } else { 760.0 };
        Figure { columns: columns.clamp(1, 8), width, ..self }
    }

    /// One more panel, after the others: to the right, then below. Its own width does not matter here.
    #[must_use]
    pub fn panel(mut self, panel: impl Into<Panel>) -> Figure {
        self.panels.push(panel.into());
        self
    }

    /// Width of a panel.
    fn panel_width(&self, width: f64) -> f64 {
        (width - GAP[0] * (self.columns - 1) as f64) / self.columns as f64
    }

    /// Panels that stand beside each other, and the height they need.
    fn bands(&self, width: f64) -> impl Iterator<Item = (&[Panel], f64)> {
        let width = self.panel_width(width);
        self.panels.chunks(self.columns).map(move |band| {
            let heights = band.iter().map(|panel| panel.chart().height(width, false));
            (band, heights.fold(0.0, f64::max))
        })
    }
}

impl Draw for Figure {
    fn words(&self) -> &Words {
        &self.words
    }

    fn natural_width(&self) -> f64 {
        self.width
    }

    fn height(&self, width: f64, large: bool) -> f64 {
        let bands: f64 = self.bands(width).map(|(_, height)| height + GAP[1]).sum();
        let bands = (bands - GAP[1]).max(0.0);
        self.words.head_height(width, large) + bands + self.words.notes_height(width)
    }

    fn draw(&self, picture: &mut Picture, area: Rect, large: bool) {
        let mut y = self.words.draw_head(picture, area, large);
        let w = self.panel_width(area.w);
        for (band, _) in self.bands(area.w) {
            let mut lowest = y;
            for (i, panel) in band.iter().enumerate() {
                let x = area.x + i as f64 * (w + GAP[0]);
                let h = panel.chart().height(w, false);
                panel.chart().draw(picture, Rect { x, y, w, h }, false);
                lowest = lowest.max(y + h);
            }
            y = lowest + GAP[1];
        }
        self.words.draw_notes(picture, area);
    }

    fn describe(&self) -> String {
        let panels: Vec<String> = self
            .panels
            .iter()
            .map(|p| layout::sentences([p.chart().words().title.as_str(), &p.chart().describe()]))
            .collect();
        let subtitle = std::iter::once(self.words.subtitle.as_str());
        layout::sentences(subtitle.chain(panels.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::Series;

    #[test]
    fn panels_stand_beside_and_below_each_other() {
        let chart =
            |title: &str| Lines::new(title).series(Series::new("s", [(0.0, 1.0), (1.0, 2.0)]));
        let figure = Figure::new("All").columns(2, 900.0).panel(chart("one")).panel(chart("two"));
        let one_row = figure.picture();
        let two_rows = figure.clone().panel(Bars::grouped("three").row("r", [1.0])).picture();
        assert!(two_rows.height > one_row.height + 100.0 && two_rows.width == 900.0);
        for title in ["All", "one", "two", "three"] {
            assert!(two_rows.svg().contains(&format!(">{title}<")), "{title}");
        }
        assert!(two_rows.description.contains("one. Line chart"), "{}", two_rows.description);
        assert!(Figure::new("Empty").svg().contains("Empty"));
    }
}
