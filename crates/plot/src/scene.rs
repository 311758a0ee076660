//! What a chart is laid out into: shapes in pixels, y downwards, in drawing order.

use crate::palette::Ink;
use crate::{font, svg};

/// A point in pixels.
pub(crate) type Point = [f64; 2];

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rect {
    /// Left.
    pub(crate) x: f64,
    /// Top.
    pub(crate) y: f64,
    /// Width.
    pub(crate) w: f64,
    /// Height.
    pub(crate) h: f64,
}

impl Rect {
    pub(crate) fn right(&self) -> f64 {
        self.x + self.w
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.y + self.h
    }

    /// Do the two share more than an edge?
    pub(crate) fn meets(&self, other: &Rect) -> bool {
        let overlap = |a: f64, b: f64, c: f64, d: f64| a < d - 1e-9 && c < b - 1e-9;
        overlap(self.x, self.right(), other.x, other.right())
            && overlap(self.y, self.bottom(), other.y, other.bottom())
    }

    /// The part of the way from `a` to `b` that lies inside, by Liang and Barsky; `None` if it stays outside.
    pub(crate) fn clip(&self, a: Point, b: Point) -> Option<(Point, Point)> {
        let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
        let (mut from, mut to) = (0.0_f64, 1.0_f64);
        for (p, q) in [
            (-dx, a[0] - self.x),
            (dx, self.right() - a[0]),
            (-dy, a[1] - self.y),
            (dy, self.bottom() - a[1]),
        ] {
            if p == 0.0 {
                if q < 0.0 {
                    return None;
                }
            } else if p < 0.0 {
                from = from.max(q / p);
            } else {
                to = to.min(q / p);
            }
        }
        let at = |t: f64| [a[0] + t * dx, a[1] + t * dy];
        (from <= to).then(|| (at(from), at(to)))
    }
}

/// Where a text's `x` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) ink: Ink,
    pub(crate) width: f64,
    /// Lengths of dash and gap; none for a solid line.
    pub(crate) dash: Option<[f64; 2]>,
}

impl Stroke {
    pub(crate) fn solid(ink: Ink, width: f64) -> Stroke {
        Stroke { ink, width, dash: None }
    }

    pub(crate) fn dashed(ink: Ink, width: f64) -> Stroke {
        Stroke { ink, width, dash: Some([4.0, 3.0]) }
    }
}

/// A line of text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    /// At the anchor.
    pub(crate) x: f64,
    /// Of the baseline.
    pub(crate) y: f64,
    pub(crate) anchor: Anchor,
    pub(crate) size: f64,
    pub(crate) bold: bool,
    pub(crate) ink: Ink,
    /// Surrounded by paper, where lines may run behind it.
    pub(crate) halo: bool,
    pub(crate) text: String,
}

impl Text {
    pub(crate) fn new(text: impl Into<String>, x: f64, y: f64, size: f64) -> Text {
        let text = text.into();
        Text { x, y, anchor: Anchor::Start, size, bold: false, ink: Ink::Text, halo: false, text }
    }

    #[must_use]
    pub(crate) fn anchor(self, anchor: Anchor) -> Text {
        Text { anchor, ..self }
    }

    #[must_use]
    pub(crate) fn ink(self, ink: Ink) -> Text {
        Text { ink, ..self }
    }

    #[must_use]
    pub(crate) fn bold(self) -> Text {
        Text { bold: true, ..self }
    }

    #[must_use]
    pub(crate) fn halo(self) -> Text {
        Text { halo: true, ..self }
    }

    /// What it covers.
    pub(crate) fn bounds(&self) -> Rect {
        let w = font::width(&self.text, self.size, self.bold);
        let x = match self.anchor {
            Anchor::Start => self.x,
            Anchor::Middle => self.x - w / 2.0,
            Anchor::End => self.x - w,
        };
        Rect { x, y: self.y - 0.8 * self.size, w, h: self.size }
    }
}

/// One shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    /// A filled rectangle.
    Rect { rect: Rect, ink: Ink, opacity: f64 },
    /// A line through points.
    Line { points: Vec<Point>, stroke: Stroke },
    /// A filled polygon.
    Area { points: Vec<Point>, ink: Ink, opacity: f64 },
    /// A filled circle with a rim of paper.
    Dot { at: Point, radius: f64, ink: Ink },
    /// A line of text.
    Text(Text),
}

/// A picture, laid out: shapes, and words for those who cannot see them.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) items: Vec<Item>,
}

impl Picture {
    pub(crate) fn rect(&mut self, rect: Rect, ink: Ink, opacity: f64) {
        if rect.w > 0.0 && rect.h > 0.0 {
            self.items.push(Item::Rect { rect, ink, opacity });
        }
    }

    pub(crate) fn line(&mut self, points: impl Into<Vec<Point>>, stroke: Stroke) {
        self.items.push(Item::Line { points: points.into(), stroke });
    }

    pub(crate) fn text(&mut self, text: Text) {
        if !text.text.is_empty() {
            self.items.push(Item::Text(text));
        }
    }

    /// As a standalone SVG document, which may also stand inside a page. It follows the reader's light or dark theme.
    pub fn svg(&self) -> String {
        svg::write(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_clipped() {
        let r = Rect { x: 0.0, y: 0.0, w: 10.0, h: 10.0 };
        assert_eq!(r.clip([1.0, 1.0], [9.0, 2.0]), Some(([1.0, 1.0], [9.0, 2.0])));
        assert_eq!(r.clip([-10.0, 5.0], [20.0, 5.0]), Some(([0.0, 5.0], [10.0, 5.0])));
        assert_eq!(r.clip([-5.0, 0.0], [0.0, 11.0]), None);
        assert_eq!(r.clip([5.0, 20.0], [5.0, -20.0]), Some(([5.0, 10.0], [5.0, 0.0])));
        assert_eq!(r.clip([11.0, 3.0], [12.0, 3.0]), None);
    }

    #[test]
    fn rectangles_meet_in_more_than_an_edge() {
        let a = Rect { x: 0.0, y: 0.0, w: 10.0, h: 10.0 };
        assert!(a.meets(&Rect { x: 9.0, y: 9.0, w: 5.0, h: 5.0 }));
        assert!(!a.meets(&Rect { x: 10.0, y: 0.0, w: 5.0, h: 5.0 }));
    }
}
