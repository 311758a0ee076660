//! How wide a text is: an SVG is set in the reader's own font, which may run wider than the one whose advances stand in
//! `advances.rs`, and [`width`] leaves room for that.

mod advances;

/// Units of advances in the height of a line of text.
const UNITS_PER_EM: f64 = 2048.0;

/// By how much a reader's font may be wider.
const ROOM: f64 = 1.14;

/// Advance of `c` and whether it is its own; a question mark's where none is known.
fn own_advance(c: char, bold: bool) -> (u16, bool) {
    let table = if bold { advances::MEDIUM } else { advances::REGULAR };
    let of = |c: char| table.binary_search_by_key(&c, |row| row.0).ok().map(|i| table[i].1);
    match of(c) {
        Some(own) => (own, true),
        None => (of('?').unwrap_or(0), false),
    }
}

/// Width of `c` in em.
fn advance(c: char, bold: bool) -> f64 {
    let (advance, own) = own_advance(c, bold);
    // ideographs and emoji are about square
    if !bold && !own && c > '\u{2e80}' {
        return 1.0;
    }
    f64::from(advance) / UNITS_PER_EM
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
        for table in [advances::REGULAR, advances::MEDIUM] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let known = |c: char| table.iter().any(|row| row.0 == c);
            assert!(
                (' '..='~').all(known) && "\u{b5}\u{d7}\u{2026}\u{2212}\u{2264}".chars().all(known)
            );
            assert!(table.iter().all(|row| row.1 > 0));
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
