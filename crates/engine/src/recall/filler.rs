//! Plain sentences between which things are hidden, as `training/corpus/filler.py` makes them: no digits, nothing to ask.

use super::Language;
use super::draw::Draw;
use super::lexicon::{
    ANIMALS, COLOURS, FOODS, JOBS, MADE_EN, MADE_ZH, OBJECTS, PLACES, PLAIN_EN, PLAIN_ZH,
};

/// One plain sentence.
pub(super) fn sentence(draw: &mut Draw, language: Language) -> String {
    let (plain, list) = match language {
        Language::English => (0.5, PLAIN_EN),
        Language::Chinese => (0.35, PLAIN_ZH),
    };
    if draw.share() < plain {
        return draw.of(list).to_owned();
    }
    match language {
        Language::English => english(draw),
        Language::Chinese => chinese(draw),
    }
}

/// The noun behind `a` or `an`.
fn article(noun: &str) -> String {
    let an = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if an { "an" } else { "a" })
}

fn english(draw: &mut Draw) -> String {
    let animal = article(draw.of(ANIMALS).0);
    let upper = format!("A{}", &animal[1..]);
    fill(
        draw.of(MADE_EN),
        &[
            ("{A}", &upper),
            ("{A2}", &animal),
            ("{p}", draw.of(PLACES).1),
            ("{j}", draw.of(JOBS).0),
            ("{c}", &article(draw.of(COLOURS).0)),
            ("{o}", draw.of(OBJECTS).0),
            ("{f}", draw.of(FOODS).0),
        ],
    )
}

fn chinese(draw: &mut Draw) -> String {
    let (_, animal, animals) = draw.of(ANIMALS);
    let (_, object, objects) = draw.of(OBJECTS);
    let form = draw.of(MADE_ZH);
    let place = draw.of(PLACES).3;
    // "the garden is quiet", not "in the garden"
    let place = if form.starts_with("{p}") { &place['在'.len_utf8()..] } else { place };
    let words = [
        ("{m}", animals),
        ("{a}", animal),
        ("{p}", place),
        ("{j}", draw.of(JOBS).1),
        ("{om}", objects),
        ("{c}", draw.of(COLOURS).1),
        ("{o}", object),
        ("{f}", draw.of(FOODS).1),
    ];
    fill(form, &words)
}

/// `form` with words in place of their names.
pub(super) fn fill(form: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(form.to_owned(), |text, (name, word)| text.replace(name, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_whole_and_have_no_digits() {
        let mut draw = Draw::named("filler");
        for language in [Language::English, Language::Chinese] {
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..2000 {
                let text = sentence(&mut draw, language);
                assert!(!text.contains(['{', '}']) && text.ends_with(['.', '。']), "{text}");
                assert!(!text.contains(|c: char| c.is_ascii_digit()), "{text}");
                seen.insert(text);
            }
            assert!(seen.len() > 300, "{}", seen.len());
        }
    }

    /// What the bundled model was trained on, word for word.
    #[test]
    fn sentences_are_those_of_the_corpus() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../training/corpus/filler.py");
        let corpus = std::fs::read_to_string(corpus).unwrap();
        for list in [PLAIN_EN, PLAIN_ZH, MADE_EN, MADE_ZH] {
            let missing: Vec<_> = list.iter().filter(|text| !corpus.contains(**text)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }
}
