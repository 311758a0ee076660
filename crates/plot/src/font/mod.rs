//! Letters: how wide a text is, and what it looks like in a bitmap.
//!
//! Outlines of some 200 characters stand in `glyphs.rs`, so that a PNG needs no font file. An SVG is set in the reader's
//! own font, which may run wider: [`width`] leaves room for that.

mod glyphs;

/// Units of outlines and advances in the height of a line of text.
pub(crate) const UNITS_PER_EM: f64 = 2048.0;

/// By how much a reader's font may be wider than ours.
const ROOM: f64 = 1.14;

type Glyph = (char, u16, &'static str);

/// The glyph of `c`; a question mark's where there is none.
fn glyph(c: char, bold: bool) -> &'static Glyph {
    let table = if bold { glyphs::MEDIUM } else { glyphs::REGULAR };
    let of = |c: char| table.binary_search_by_key(&c, |glyph| glyph.0).ok().map(|i| &table[i]);
    of(c).or_else(|| of('?')).unwrap_or(&table[0])
}

/// Width of `c` in em.
pub(crate) fn advance(c: char, bold: bool) -> f64 {
    // Ideographs and emoji have no glyph here, and are about square in an SVG.
    if !bold && glyph(c, bold).0 != c && c > '\u{2e80}' {
        return 1.0;
    }
    f64::from(glyph(c, bold).1) / UNITS_PER_EM
}

/// Outline of `c`: absolute SVG path data in units of the em, y upwards.
pub(crate) fn outline(c: char, bold: bool) -> &'static str {
    glyph(c, bold).2
}

/// Width of a line of text of `size`, in pixels, with room for wider fonts.
pub(crate) fn width(text: &str, size: f64, bold: bool) -> f64 {
    text.chars().map(|c| advance(c, bold)).sum::<f64>() * size * ROOM
}

/// `text` if it is no wider than `most` pixels, else as much of it as fits before an ellipsis.
pub(crate) fn fit(text: &str, size: f64, most: f64) -> String {
    // A hundredth of a pixel for sums that round.
    if width(text, size, false) <= most + 0.01 {
        return text.to_owned();
    }
    let left = most - width("\u{2026}", size, false);
    let mut used = 0.0;
    let kept = text.chars().take_while(|c| {
        used += advance(*c, false) * size * ROOM;
        used <= left
    });
    let mut kept: String = kept.collect();
    kept.truncate(kept.trim_end().len());
    kept.push('\u{2026}');
    kept
}

/// `text` in lines no wider than `most` pixels, broken at spaces; a word that is too wide is cut.
pub(crate) fn wrap(text: &str, size: f64, bold: bool, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = fit(word, size, most);
        match lines.last_mut() {
            Some(line)
                if width(line, size, bold) + width(&word, size, bold) + size * 0.3 <= most =>
            {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_have_what_charts_say() {
        for table in [glyphs::REGULAR, glyphs::MEDIUM] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let known = |c: char| table.iter().any(|glyph| glyph.0 == c);
            assert!(
                (' '..='~').all(known) && "\u{b5}\u{d7}\u{2026}\u{2212}\u{2264}".chars().all(known)
            );
            let drawn = |d: &str| d.chars().all(|c| "MLQZ -0123456789".contains(c));
            assert!(table.iter().all(|glyph| glyph.1 > 0 && drawn(glyph.2)));
        }
    }

    #[test]
    fn text_is_cut_and_wrapped() {
        assert_eq!(fit("weights", 12.0, 100.0), "weights");
        let cut = fit("a name that is much too long", 12.0, 60.0);
        assert!(cut.ends_with('\u{2026}') && width(&cut, 12.0, false) <= 60.0, "{cut}");
        let lines = wrap("one two three four five six seven", 12.0, false, 80.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| width(line, 12.0, false) <= 80.0));
        assert_eq!(lines.join(" "), "one two three four five six seven");
        assert_eq!(wrap("", 12.0, false, 80.0), Vec::<String>::new());
        assert_eq!(fit("abc", 12.0, 0.0), "\u{2026}");
    }
}
