//! A picture as SVG text.

use std::fmt::Write as _;

use crate::palette::Ink;
use crate::scene::{Anchor, Item, Picture, Stroke, Text};

/// The reader's own font.
const FONTS: &str =
    "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans',sans-serif";

pub(crate) fn write(picture: &Picture) -> String {
    let mut out = String::new();
    let (w, h) = (Px(picture.width), Px(picture.height));
    let (title, description) = (Xml(&picture.title), Xml(&picture.description));
    put(
        &mut out,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rooflight-plot\" role=\"img\" width=\"{w}\" height=\"{h}\" \
         viewBox=\"0 0 {w} {h}\">\n<title>{title}</title>\n<desc>{description}</desc>\n<style>\n{}</style>\n",
            style(picture)
        ),
    );
    put(&mut out, format_args!("<rect class=\"f-p\" width=\"{w}\" height=\"{h}\"/>\n"));
    for shape in &picture.items {
        item(&mut out, shape);
        out.push('\n');
    }
    out.push_str("</svg>\n");
    out
}

/// Writing to a `String` cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// Classes of inks in both themes: `f-` fills, `l-` lines.
fn style(picture: &Picture) -> String {
    let shades =
        picture.items.iter().any(|item| matches!(item, Item::Rect { ink: Ink::Shade(_), .. }));
    let inks: Vec<Ink> =
        Ink::all().filter(|ink| shades || Ink::of_shades().all(|shade| shade != *ink)).collect();
    let mut out = format!(
        ".rooflight-plot text{{font-family:{FONTS};font-variant-numeric:tabular-nums}}\n\
         .rooflight-plot polyline{{fill:none;stroke-linejoin:round;stroke-linecap:round}}\n\
         .rooflight-plot .halo{{paint-order:stroke;stroke-width:4px;stroke-linejoin:round}}\n"
    );
    let rules = |out: &mut String, theme: fn(Ink) -> u32| {
        for &ink in &inks {
            let (class, colour) = (ink.class(), theme(ink));
            put(
                out,
                format_args!(
                    ".rooflight-plot .f-{class}{{fill:#{colour:06x}}} .rooflight-plot .l-{class}{{stroke:#{colour:06x}}}\n"
                ),
            );
        }
        put(out, format_args!(".rooflight-plot .halo{{stroke:#{:06x}}}\n", theme(Ink::Paper)));
    };
    rules(&mut out, Ink::light);
    out.push_str("@media (prefers-color-scheme:dark){\n");
    rules(&mut out, Ink::dark);
    out.push_str("}\n");
    out
}

fn item(out: &mut String, shape: &Item) {
    match shape {
        Item::Rect { rect, ink, opacity } => put(
            out,
            format_args!(
                "<rect class=\"f-{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}/>",
                ink.class(),
                Px(rect.x),
                Px(rect.y),
                Px(rect.w),
                Px(rect.h),
                Opacity(*opacity)
            ),
        ),
        Item::Line { points, stroke } => line(out, points, stroke),
        Item::Area { points, ink, opacity } => put(
            out,
            format_args!(
                "<polygon class=\"f-{}\" points=\"{}\"{}/>",
                ink.class(),
                Points(points),
                Opacity(*opacity)
            ),
        ),
        Item::Dot { at, radius, ink } => put(
            out,
            format_args!(
                "<circle class=\"f-{} l-p\" cx=\"{}\" cy=\"{}\" r=\"{}\" stroke-width=\"1.5\"/>",
                ink.class(),
                Px(at[0]),
                Px(at[1]),
                Px(*radius)
            ),
        ),
        Item::Text(t) => text(out, t),
    }
}

fn line(out: &mut String, points: &[[f64; 2]], stroke: &Stroke) {
    put(
        out,
        format_args!(
            "<polyline class=\"l-{}\" points=\"{}\" stroke-width=\"{}\"",
            stroke.ink.class(),
            Points(points),
            Px(stroke.width)
        ),
    );
    if let Some([dash, gap]) = stroke.dash {
        put(out, format_args!(" stroke-dasharray=\"{} {}\"", Px(dash), Px(gap)));
    }
    out.push_str("/>");
}

fn text(out: &mut String, t: &Text) {
    let halo = if t.halo { " halo" } else { "" };
    put(
        out,
        format_args!(
            "<text class=\"f-{}{halo}\" x=\"{}\" y=\"{}\" font-size=\"{}\"",
            t.ink.class(),
            Px(t.x),
            Px(t.y),
            Px(t.size)
        ),
    );
    match t.anchor {
        Anchor::Start => {}
        Anchor::Middle => out.push_str(" text-anchor=\"middle\""),
        Anchor::End => out.push_str(" text-anchor=\"end\""),
    }
    if t.bold {
        out.push_str(" font-weight=\"600\"");
    }
    put(out, format_args!(">{}</text>", Xml(&t.text)));
}

/// A length: at most two decimals.
struct Px(f64);

impl std::fmt::Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hundredths = (self.0 * 100.0).round();
        if hundredths % 100.0 == 0.0 {
            write!(f, "{:.0}", hundredths / 100.0 + 0.0)
        } else if hundredths % 10.0 == 0.0 {
            write!(f, "{:.1}", hundredths / 100.0)
        } else {
            write!(f, "{:.2}", hundredths / 100.0)
        }
    }
}

struct Points<'a>(&'a [[f64; 2]]);

impl std::fmt::Display for Points<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, [x, y]) in self.0.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            write!(f, "{space}{},{}", Px(*x), Px(*y))?;
        }
        Ok(())
    }
}

struct Opacity(f64);

impl std::fmt::Display for Opacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 < 1.0 { write!(f, " fill-opacity=\"{}\"", Px(self.0)) } else { Ok(()) }
    }
}

/// Text that XML takes as text: markup escaped, characters that XML forbids replaced.
struct Xml<'a>(&'a str);

impl std::fmt::Display for Xml<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\u{fffe}' | '\u{ffff}' => f.write_str("\u{fffd}")?,
                c if c.is_control() => f.write_str("\u{fffd}")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short() {
        for (x, want) in [(1.0, "1"), (-0.001, "0"), (1.5, "1.5"), (2.126, "2.13"), (0.1, "0.1")] {
            assert_eq!(Px(x).to_string(), want);
        }
    }

    #[test]
    fn markup_in_text_is_text() {
        let evil = "</text><script>\"&\u{0}\u{1b}[31m\u{ffff}";
        assert_eq!(
            Xml(evil).to_string(),
            "&lt;/text&gt;&lt;script&gt;&quot;&amp;\u{fffd}\u{fffd}[31m\u{fffd}"
        );
    }

    #[test]
    fn both_themes_have_every_ink_that_is_used() {
        let mut picture = crate::Bars::grouped("").picture();
        for shades in [false, true] {
            if shades {
                let rect = crate::scene::Rect { x: 0.0, y: 0.0, w: 1.0, h: 1.0 };
                picture.rect(rect, Ink::shade(1.0), 1.0);
            }
            let style = style(&picture);
            let (light, dark) = style.split_once("@media (prefers-color-scheme:dark)").unwrap();
            for ink in Ink::all() {
                let class = format!(".f-{}{{", ink.class());
                let used = shades || !Ink::of_shades().any(|shade| shade == ink);
                assert_eq!([light.contains(&class), dark.contains(&class)], [used; 2], "{ink:?}");
            }
        }
    }
}
