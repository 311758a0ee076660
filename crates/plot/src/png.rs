//! A picture as a bitmap: the light theme, letters as outlines.

use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Mask, Paint, Path, PathBuilder, Pixmap, StrokeDash,
    Transform,
};

use crate::palette::Ink;
use crate::scene::{Anchor, Item, Picture, Point, Stroke, Text};
use crate::{Error, Result, font};

/// Most pixels of a side.
const LARGEST: f64 = 16_384.0;

pub(crate) fn write(picture: &Picture, scale: f64) -> Result<Vec<u8>> {
    let (width, height) = ((picture.width * scale).ceil(), (picture.height * scale).ceil());
    let too_large = || Error::TooLarge { width, height };
    let fits = |side: f64| (1.0..=LARGEST).contains(&side);
    if !fits(width) || !fits(height) {
        return Err(too_large());
    }
    let pixmap = Pixmap::new(width as u32, height as u32).ok_or_else(too_large)?;
    let mut canvas = Canvas { pixmap, scale: Transform::from_scale(scale as f32, scale as f32) };
    canvas.pixmap.fill(colour(Ink::Paper, 1.0));
    for item in &picture.items {
        canvas.item(item);
    }
    canvas.pixmap.encode_png().map_err(|e| Error::Png(e.to_string()))
}

fn colour(ink: Ink, opacity: f64) -> Color {
    let [_, r, g, b] = ink.light().to_be_bytes();
    Color::from_rgba8(r, g, b, (opacity.clamp(0.0, 1.0) * 255.0).round() as u8)
}

fn paint(ink: Ink, opacity: f64) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color(colour(ink, opacity));
    paint
}

const NO_MASK: Option<&Mask> = None;

struct Canvas {
    pixmap: Pixmap,
    scale: Transform,
}

impl Canvas {
    fn fill(&mut self, path: Option<&Path>, ink: Ink, opacity: f64, to: Transform) {
        if let Some(path) = path {
            self.pixmap.fill_path(path, &paint(ink, opacity), FillRule::Winding, to, NO_MASK);
        }
    }

    fn stroke(&mut self, path: Option<&Path>, stroke: &Stroke, to: Transform) {
        let Some(path) = path else { return };
        let dash =
            stroke.dash.and_then(|[on, off]| StrokeDash::new(vec![on as f32, off as f32], 0.0));
        let how = tiny_skia::Stroke {
            width: stroke.width as f32,
            line_cap: LineCap::Round,
            line_join: LineJoin::Round,
            dash,
            ..tiny_skia::Stroke::default()
        };
        self.pixmap.stroke_path(path, &paint(stroke.ink, 1.0), &how, to, NO_MASK);
    }

    fn item(&mut self, item: &Item) {
        let scale = self.scale;
        match item {
            Item::Rect { rect, ink, opacity } => {
                let path = through(
                    &[
                        [rect.x, rect.y],
                        [rect.right(), rect.y],
                        [rect.right(), rect.bottom()],
                        [rect.x, rect.bottom()],
                    ],
                    true,
                );
                self.fill(path.as_ref(), *ink, *opacity, scale);
            }
            Item::Line { points, stroke } => {
                self.stroke(through(points, false).as_ref(), stroke, scale);
            }
            Item::Area { points, ink, opacity } => {
                self.fill(through(points, true).as_ref(), *ink, *opacity, scale);
            }
            Item::Dot { at, radius, ink } => {
                let circle = PathBuilder::from_circle(at[0] as f32, at[1] as f32, *radius as f32);
                self.fill(circle.as_ref(), *ink, 1.0, scale);
                self.stroke(circle.as_ref(), &Stroke::solid(Ink::Paper, 1.5), scale);
            }
            Item::Text(text) => self.text(text),
        }
    }

    fn text(&mut self, text: &Text) {
        let em = text.size / font::UNITS_PER_EM;
        let width: f64 = text.text.chars().map(|c| font::advance(c, text.bold) * text.size).sum();
        let mut x = match text.anchor {
            Anchor::Start => text.x,
            Anchor::Middle => text.x - width / 2.0,
            Anchor::End => text.x - width,
        };
        let mut path = PathBuilder::new();
        for c in text.text.chars() {
            trace(font::outline(c, text.bold), [x, text.y], em, &mut path);
            x += font::advance(c, text.bold) * text.size;
        }
        let path = path.finish();
        if text.halo {
            self.stroke(path.as_ref(), &Stroke::solid(Ink::Paper, 4.0), self.scale);
        }
        self.fill(path.as_ref(), text.ink, 1.0, self.scale);
    }
}

fn through(points: &[Point], close: bool) -> Option<Path> {
    let (first, rest) = points.split_first()?;
    let mut path = PathBuilder::new();
    path.move_to(first[0] as f32, first[1] as f32);
    for [x, y] in rest {
        path.line_to(*x as f32, *y as f32);
    }
    if close {
        path.close();
    }
    path.finish()
}

/// Add an outline of the font to `path`, its origin at `at`, `em` pixels to a unit.
fn trace(outline: &str, at: Point, em: f64, path: &mut PathBuilder) {
    let mut rest = outline;
    while let Some(command) = rest.chars().next() {
        rest = &rest[1..];
        let end = rest.find(|c: char| c.is_ascii_uppercase()).unwrap_or(rest.len());
        let mut numbers = rest[..end].split(' ').filter_map(|n| n.parse::<f64>().ok());
        let mut next = || {
            let (x, y) = (numbers.next().unwrap_or(0.0), numbers.next().unwrap_or(0.0));
            ((at[0] + x * em) as f32, (at[1] - y * em) as f32)
        };
        match command {
            'M' => {
                let (x, y) = next();
                path.move_to(x, y);
            }
            'L' => {
                let (x, y) = next();
                path.line_to(x, y);
            }
            'Q' => {
                let ((cx, cy), (x, y)) = (next(), next());
                path.quad_to(cx, cy, x, y);
            }
            _ => path.close(),
        }
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Rect;

    fn picture(items: Vec<Item>) -> Picture {
        Picture {
            width: 40.0,
            height: 20.0,
            title: String::new(),
            description: String::new(),
            items,
        }
    }

    fn pixels(items: Vec<Item>) -> Pixmap {
        Pixmap::decode_png(&write(&picture(items), 2.0).unwrap()).unwrap()
    }

    fn at(pixmap: &Pixmap, x: u32, y: u32) -> [u8; 3] {
        let c = pixmap.pixel(x, y).unwrap();
        [c.red(), c.green(), c.blue()]
    }

    #[test]
    fn shapes_are_where_they_should_be() {
        let rect = Rect { x: 0.0, y: 0.0, w: 20.0, h: 20.0 };
        let map = pixels(vec![Item::Rect { rect, ink: Ink::Text, opacity: 1.0 }]);
        assert_eq!((map.width(), map.height()), (80, 40));
        assert_eq!(at(&map, 10, 10), [0x1c, 0x21, 0x28]);
        assert_eq!(at(&map, 60, 10), [255; 3]);
    }

    #[test]
    fn letters_leave_ink() {
        let dark = |text: &str| {
            let map = pixels(vec![Item::Text(Text::new(text, 2.0, 15.0, 14.0))]);
            map.pixels().iter().filter(|p| p.red() < 128).count()
        };
        assert_eq!(dark(" "), 0);
        assert!(dark("i") > 10 && dark("iii") > 2 * dark("i") && dark("\u{6f22}") > 10);
    }

    #[test]
    fn sizes_out_of_bounds_are_an_error() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(
                matches!(write(&picture(vec![]), scale), Err(Error::TooLarge { .. })),
                "{scale}"
            );
        }
    }
}
