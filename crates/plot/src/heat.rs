//! Heat maps: shares in rows and columns, each cell coloured by its value and holding it as a number.

use crate::font;
use crate::layout::{self, Draw, LINE, TEXT, Words};
use crate::palette::{Ink, N_SHADES};
use crate::scene::{Anchor, Picture, Rect, Text};

/// Height of a row of cells.
const CELL: f64 = 26.0;
/// Widest cell.
const WIDEST: f64 = 110.0;
/// Between names and cells.
const SPACE: f64 = 8.0;
/// Height of the scale and of the rows' label beside it.
const SCALE: f64 = 26.0;
/// Width of one colour of the scale.
const SWATCH: f64 = 14.0;

/// Shares, 0 to 1, in rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    words: Words,
    /// What columns and rows are.
    labels: [String; 2],
    columns: Vec<String>,
    rows: Vec<(String, Vec<f64>)>,
    width: f64,
}

impl HeatMap {
    /// Without rows and columns, 760 pixels wide.
    pub fn new(title: impl Into<String>) -> HeatMap {
        HeatMap {
            words: Words::titled(title),
            labels: Default::default(),
            columns: Vec::new(),
            rows: Vec::new(),
            width: 760.0,
        }
    }

    /// What stands below the title.
    #[must_use]
    pub fn subtitle(mut self, text: impl Into<String>) -> HeatMap {
        self.words.subtitle = text.into();
        self
    }

    /// What the columns are, and their names.
    #[must_use]
    pub fn columns<S: Into<String>>(
        mut self,
        label: impl Into<String>,
        names: impl IntoIterator<Item = S>,
    ) -> HeatMap {
        self.labels[0] = label.into();
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// What the rows are.
    #[must_use]
    pub fn rows(mut self, label: impl Into<String>) -> HeatMap {
        self.labels[1] = label.into();
        self
    }

    /// One more row below the others, with a share for each column; what is no number is an empty cell.
    #[must_use]
    pub fn row(
        mut self,
        name: impl Into<String>,
        shares: impl IntoIterator<Item = f64>,
    ) -> HeatMap {
        self.rows.push((name.into(), shares.into_iter().collect()));
        self
    }

    /// A sentence below the map.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> HeatMap {
        self.words.notes.push(text.into());
        self
    }

    /// Width of the picture, in pixels. The height follows from the rows.
    #[must_use]
    pub fn width(self, width: f64) -> HeatMap {
        HeatMap { width, ..self }
    }

    fn cells(&self, row: &[f64]) -> impl Iterator<Item = (usize, Option<f64>)> {
        let share = |i| row.get(i).copied().filter(|share: &f64| share.is_finite());
        let shares: Vec<_> = (0..self.columns.len()).map(share).collect();
        shares.into_iter().enumerate()
    }

    /// The colours and what they mean, at the right end of `area`.
    fn draw_scale(&self, picture: &mut Picture, area: Rect) {
        let (low, high) = ("0 %", "100 %");
        let end = area.right() - font::width(high, TEXT, false);
        let start = (end - 6.0 - SWATCH * N_SHADES as f64).floor();
        for shade in 0..N_SHADES {
            let x = start + SWATCH * shade as f64;
            picture.rect(
                Rect { x, y: area.y, w: SWATCH, h: 12.0 },
                Ink::shade(shade as f64 / (N_SHADES - 1) as f64),
                1.0,
            );
        }
        let y = area.y + 10.5;
        let low = Text::new(low, start - 6.0, y, TEXT).anchor(Anchor::End);
        picture.text(low.ink(Ink::Muted));
        picture.text(Text::new(high, end, y, TEXT).ink(Ink::Muted));
    }

    fn draw_row(&self, picture: &mut Picture, (cell, shares): (Rect, &[f64])) {
        for (i, share) in self.cells(shares) {
            let x = cell.x + cell.w * i as f64;
            let text = match share {
                Some(share) => {
                    // paper between cells tells neighbours of one colour apart
                    let rect =
                        Rect { x: x + 1.0, y: cell.y + 1.0, w: cell.w - 2.0, h: cell.h - 2.0 };
                    picture.rect(rect, Ink::shade(share), 1.0);
                    let text = format!("{:.0}", share * 100.0);
                    Text::new(text, 0.0, 0.0, TEXT).ink(Ink::shade(share).over())
                }
                None => Text::new("-", 0.0, 0.0, TEXT).ink(Ink::Muted),
            };
            let (x, y) = (x + cell.w / 2.0, cell.y + cell.h / 2.0 + 4.0);
            picture.text(Text { x, y, ..text }.anchor(Anchor::Middle));
        }
    }
}

/// A share as its cell has it.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

impl Draw for HeatMap {
    fn words(&self) -> &Words {
        &self.words
    }

    fn natural_width(&self) -> f64 {
        if self.width.is_finite() { self.width.clamp(200.0, 8000.0) } else { 760.0 }
    }

    fn height(&self, width: f64, large: bool) -> f64 {
        let names = 2.0 * LINE + SPACE;
        self.words.head_height(width, large)
            + SCALE
            + CELL * self.rows.len() as f64
            + names
            + self.words.notes_height(width)
    }

    fn draw(&self, picture: &mut Picture, area: Rect, large: bool) {
        let top = self.words.draw_head(picture, area, large);
        self.draw_scale(picture, Rect { y: top, ..area });
        picture.text(Text::new(&self.labels[1], area.x, top + 10.5, TEXT).ink(Ink::Muted));
        let names = self.rows.iter().map(|(name, _)| font::width(name, TEXT, false));
        let left = names.fold(0.0, f64::max).min(area.w / 3.0);
        let room = area.w - left - SPACE;
        let w = (room / self.columns.len().max(1) as f64).min(WIDEST);
        let x = area.x + left + SPACE;
        let mut y = top + SCALE;
        for (name, shares) in &self.rows {
            let name =
                Text::new(font::fit(name, TEXT, left), x - SPACE, y + CELL / 2.0 + 4.0, TEXT);
            picture.text(name.anchor(Anchor::End));
            self.draw_row(picture, (Rect { x, y, w, h: CELL }, shares));
            y += CELL;
        }
        for (i, name) in self.columns.iter().enumerate() {
            let at = x + w * (i as f64 + 0.5);
            let name = Text::new(font::fit(name, TEXT, w), at, y + LINE, TEXT);
            picture.text(name.anchor(Anchor::Middle));
        }
        let end = x + w * self.columns.len() as f64;
        let label = Text::new(&self.labels[0], end, y + 2.0 * LINE, TEXT);
        picture.text(label.anchor(Anchor::End).ink(Ink::Muted));
        self.words.draw_notes(picture, area);
    }

    fn describe(&self) -> String {
        let [columns, rows] = &self.labels;
        let what = format!("Heat map of {rows} by {columns}");
        let rows = self.rows.iter().map(|(name, shares)| {
            let cells = self.cells(shares);
            let cells = cells.map(|(i, share)| format!("{} {}", self.columns[i], percent(share)));
            format!("{name}: {}", cells.collect::<Vec<_>>().join(", "))
        });
        let parts: Vec<String> = std::iter::once(what).chain(rows).collect();
        let words = [self.words.subtitle.as_str()].into_iter();
        layout::sentences(words.chain(parts.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Item;

    fn map() -> HeatMap {
        HeatMap::new("passkey")
            .columns("length", ["4k", "<16k>"])
            .rows("depth")
            .row("0-10 %", [1.0, 0.0])
            .row("10-20 %", [0.52, f64::NAN])
            .row("20-30 %", [0.5])
    }

    /// Rectangles in the colour of a share.
    fn rects(picture: &Picture, share: f64) -> Vec<Rect> {
        let of = |item: &Item| match item {
            Item::Rect { rect, ink, .. } if *ink == Ink::shade(share) && rect.h > 20.0 => {
                Some(*rect)
            }
            _ => None,
        };
        picture.items.iter().filter_map(of).collect()
    }

    #[test]
    fn cells_have_their_colour_and_number() {
        let picture = map().picture();
        let [full] = rects(&picture, 1.0)[..] else { panic!("one cell of 100 %") };
        let [none] = rects(&picture, 0.0)[..] else { panic!("one cell of 0 %") };
        assert!(full.y == none.y && full.right() < none.x && !full.meets(&none));
        let half = rects(&picture, 0.5);
        assert!(half.len() == 2 && half[0].x == full.x && half[1].y > half[0].y, "{half:?}");
        let svg = picture.svg();
        for want in
            [">100<", ">0<", ">52<", ">50<", ">4k<", ">&lt;16k&gt;<", ">depth<", ">10-20 %<"]
        {
            assert!(svg.contains(want), "{want} in {svg}");
        }
        // no number, and no value at all
        assert_eq!(svg.matches(">-<").count(), 2);
        assert!(svg.contains("10-20 %: 4k 52 %, &lt;16k&gt; -."), "{svg}");
    }

    #[test]
    fn what_lies_outside_has_the_colour_of_the_end() {
        assert_eq!(Ink::shade(7.0), Ink::shade(1.0));
        assert_eq!(Ink::shade(-1.0), Ink::shade(0.0));
        assert_eq!(Ink::shade(f64::NAN), Ink::shade(0.0));
    }

    #[test]
    fn everything_stays_inside_however_many_columns() {
        let mut map = HeatMap::new("many").columns("length", (0..40).map(|i| format!("{i}k")));
        for row in 0..3 {
            map = map.row(format!("a long name of row {row}"), vec![0.5; 40]);
        }
        let picture = map.picture();
        for item in &picture.items {
            if let Item::Rect { rect, .. } = item {
                assert!(
                    rect.x >= 0.0
                        && rect.right() <= picture.width
                        && rect.bottom() <= picture.height
                );
            }
        }
        assert!(HeatMap::new("empty").svg().contains("empty"));
    }
}
