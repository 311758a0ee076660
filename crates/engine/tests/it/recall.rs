//! Texts of a length with a question each, by the bundled model's tokenizer and template: what stands where, read again
//! by other means than those that wrote it.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use engine::{
    ChatFormat, Error, Language, Message, ModelFormat, PromptOptions, Reasoning, RecallAnswer,
    RecallKind, RecallPlace, RecallQuestion, RecallTexts, Result,
};
use gguf::Gguf;
use tokenizer::{ChatTemplate, Tokenizer};

static FORMAT: LazyLock<ModelFormat> = LazyLock::new(|| {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../demo-model/assets/rooflight-demo-5m-q8_0.gguf");
    let gguf = Gguf::from_bytes(std::fs::read(path).unwrap()).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap();
    ModelFormat::new(Arc::new(tokenizer), template)
});

/// Tokens of a prompt, and of the words before a place in it.
fn tokens(message: &str) -> Result<usize> {
    let rendered = FORMAT.render(
        &[Message::new("user", message)],
        &PromptOptions { reasoning: Reasoning::Off, ..Default::default() },
        &Arc::default(),
    )?;
    Ok(FORMAT.encode(&rendered, true)?.len())
}

fn texts(seed: u64) -> RecallTexts<'static> {
    RecallTexts::new(seed, &tokens)
}

/// Every kind with some of its places.
fn all(questions: usize) -> impl Iterator<Item = (RecallKind, RecallPlace)> {
    let kinds =
        RecallKind::ALL.into_iter().chain([RecallKind::Needles(2), RecallKind::Needles(16)]);
    kinds.flat_map(move |kind| kind.places(questions).into_iter().map(move |place| (kind, place)))
}

/// Lines of a text behind its opening, and the question.
fn parts(question: &RecallQuestion) -> (Vec<&str>, &str) {
    let (text, asked) = question.message.rsplit_once('\n').unwrap();
    (text.lines().collect(), asked)
}

fn in_order(question: &RecallQuestion) -> &[String] {
    match &question.answer {
        RecallAnswer::InOrder(answers) => answers,
        other => panic!("{other:?}"),
    }
}

fn total(question: &RecallQuestion) -> u64 {
    match question.answer {
        RecallAnswer::Total(number) => number,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn texts_have_their_length_and_are_made_again_alike() {
    for length in [700, 3000] {
        for (kind, place) in all(4) {
            let made = texts(7).question(kind, length, &place).unwrap();
            let name = format!("{} of {length}, {place:?}", kind.name());
            assert_eq!(made.tokens, tokens(&made.message).unwrap(), "{name}");
            // a sentence of the filler, or a pair of a list
            assert!(made.tokens <= length && made.tokens + 24 > length, "{name}: {}", made.tokens);
            assert_eq!(texts(7).question(kind, length, &place).unwrap(), made, "{name}");
            assert_ne!(texts(8).question(kind, length, &place).unwrap().message, made.message);
        }
    }
}

#[test]
fn answers_are_where_they_are_said_to_be() {
    for (kind, place) in all(4) {
        let made = texts(5).question(kind, 1500, &place).unwrap();
        let name = format!("{}, {place:?}", kind.name());
        match (&made.answer, made.places()) {
            (RecallAnswer::InOrder(words), Some(places)) => {
                let found: Vec<&str> = places.iter().map(|at| &made.message[at.clone()]).collect();
                assert_eq!(&found, words, "{name}");
                let asked = made.message.rfind('\n').unwrap();
                assert!(places.iter().all(|at| at.end <= asked), "{name}: {places:?}");
            }
            (RecallAnswer::Exactly { .. } | RecallAnswer::Total(_), None) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn answers_stand_at_their_depth_and_nowhere_else() {
    for kind in [RecallKind::PassKey, RecallKind::Number, RecallKind::KeyValue] {
        for place in kind.places(20) {
            let made = texts(3).question(kind, 2000, &place).unwrap();
            let [answer] = in_order(&made) else { panic!("one answer") };
            let at: Vec<usize> = made.message.match_indices(&**answer).map(|(at, _)| at).collect();
            let [at] = at[..] else { panic!("{} times: {}", at.len(), made.message) };
            let depth = tokens(&made.message[..at]).unwrap() as f64 / made.tokens as f64;
            let wanted = place.depth().unwrap();
            assert!((depth - wanted).abs() < 0.05, "{}: {depth} for {wanted}", kind.name());
        }
    }
}

/// So that what one question left in the cache serves the next.
#[test]
fn questions_about_a_text_share_what_stands_before_the_answer() {
    for kind in [RecallKind::PassKey, RecallKind::KeyValue] {
        let places: Vec<RecallPlace> =
            kind.places(10).into_iter().filter(|place| place.text == 0).collect();
        let made: Vec<String> =
            places.iter().map(|p| texts(3).question(kind, 2000, p).unwrap().message).collect();
        for ((a, b), place) in made.iter().zip(&made[1..]).zip(&places) {
            let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            let least =
                if kind == RecallKind::KeyValue { 0.9 } else { place.depth().unwrap() - 0.05 };
            assert!(same as f64 >= least * a.len() as f64, "{same} of {}", a.len());
        }
    }
}

#[test]
fn languages_take_turns_and_keys_follow_the_corpus() {
    let chinese =
        |text: &str| text.chars().filter(|c| ('\u{4e00}'..='\u{9fff}').contains(c)).count();
    for (kind, place) in all(4) {
        let made = texts(1).question(kind, 976, &place).unwrap();
        let many = chinese(&made.message) > 100;
        assert_eq!(many, place.language == Language::Chinese, "{}: {}", kind.name(), made.message);
    }
    let place = RecallKind::PassKey.places(1)[0];
    let made = texts(1).question(RecallKind::PassKey, 976, &place).unwrap();
    let key = &in_order(&made)[0];
    assert!(made.message.contains(&format!("he pass key is {key}.")), "{}", made.message);
    assert!(key.len() == 5 && made.message.matches(|c: char| c.is_ascii_digit()).count() == 5);
}

#[test]
fn a_list_has_each_key_once_and_the_value_asked_for() {
    for place in RecallKind::KeyValue.places(2) {
        let made = texts(2).question(RecallKind::KeyValue, 16_000, &place).unwrap();
        let (lines, asked) = parts(&made);
        let mut pairs = BTreeMap::new();
        for line in &lines[1..] {
            let pair = line.trim_start_matches("- ");
            let (key, value) = pair.split_once(": ").or_else(|| pair.split_once('：')).unwrap();
            assert!(pairs.insert(key.trim_matches(['“', '”']), value).is_none(), "{key} again");
        }
        assert!(pairs.len() > 900, "{}", pairs.len());
        let named: Vec<_> = pairs
            .iter()
            .filter(|(key, _)| {
                let words: BTreeSet<&str> = asked.split([' ', '?', '.', '“', '”']).collect();
                words.contains(*key)
            })
            .collect();
        let [(_, value)] = named[..] else { panic!("{asked}: {named:?}") };
        assert_eq!(in_order(&made), [(*value).to_owned()]);
    }
}

#[test]
fn codes_are_asked_for_in_another_order_than_the_texts() {
    for (n, place) in [2, 4, 8]
        .iter()
        .flat_map(|n| RecallKind::Needles(*n).places(6).into_iter().map(move |p| (*n, p)))
    {
        let made = texts(4).question(RecallKind::Needles(n), 3000, &place).unwrap();
        let (_, asked) = parts(&made);
        let codes = in_order(&made);
        let mut places = Vec::new();
        for code in codes {
            assert_eq!(made.message.matches(&**code).count(), 1);
            let at = made.message.find(&**code).unwrap();
            let before = &made.message[..at];
            let name = before.strip_suffix("的密码是").map_or_else(
                || before.strip_suffix(" is ").unwrap().rsplit_once("code for the ").unwrap().1,
                |before| before.rsplit('。').next().unwrap().rsplit('\n').next().unwrap(),
            );
            places.push((at, asked.find(name).unwrap_or_else(|| panic!("{name} in {asked}"))));
        }
        assert!(places.is_sorted_by_key(|(_, asked)| *asked), "{asked}: {places:?}");
        assert!(!places.is_sorted(), "{places:?}");
        // one in each n-th part
        places.sort_unstable();
        for (i, (at, _)) in places.iter().enumerate() {
            let depth = *at as f64 / made.message.len() as f64 * n as f64;
            assert!((i as f64 - 0.3..i as f64 + 1.3).contains(&depth), "{depth} of {i}");
        }
    }
}

#[test]
fn variables_traced_again_are_those_wanted() {
    for place in RecallKind::Tracing.places(10) {
        let made = texts(5).question(RecallKind::Tracing, 1500, &place).unwrap();
        let (_, asked) = parts(&made);
        let words: Vec<&str> = made.message.split(['.', '。', ' ', '\n']).collect();
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        // Chinese sentences end without a blank before the name
        let name = |word: &str| word[word.rfind('x').unwrap()..].to_owned();
        for (i, _) in words.iter().enumerate().filter(|(_, word)| **word == "=") {
            let from = words[i + 1];
            let value = values.get(from).cloned().unwrap_or_else(|| from.to_owned());
            assert!(value.parse::<u32>().is_ok(), "{from} before it has a value");
            assert!(values.insert(name(words[i - 1]), value).is_none());
        }
        let of = |value: &str| -> BTreeSet<String> {
            values.iter().filter(|(_, v)| *v == value).map(|(name, _)| name.clone()).collect()
        };
        let value: String = asked.chars().filter(char::is_ascii_digit).collect();
        let RecallAnswer::Exactly { all, others } = &made.answer else {
            panic!("{:?}", made.answer)
        };
        assert_eq!((of(&value), 12), (all.iter().cloned().collect(), values.len()), "{asked}");
        let rest = values.keys().filter(|name| !all.contains(name)).cloned();
        assert_eq!(rest.collect::<BTreeSet<_>>(), others.iter().cloned().collect());
        assert_eq!((all.len(), others.len()), (4, 8));
    }
}

#[test]
fn counts_sums_and_last_values_are_those_of_the_text() {
    let numbers = |text: &str| -> Vec<u64> {
        let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        digits.map(|word| word.parse().unwrap()).collect()
    };
    let mut seen = BTreeSet::new();
    for place in RecallKind::Count.places(12) {
        let made = texts(6).question(RecallKind::Count, 1200, &place).unwrap();
        let marked = made.message.lines().filter(|line| line.starts_with("* ")).count() as u64;
        assert_eq!((total(&made), (3..=15).contains(&marked)), (marked, true));
        seen.insert(marked);

        let made = texts(6).question(RecallKind::Sum, 1200, &place).unwrap();
        let (lines, _) = parts(&made);
        let added = numbers(&lines.concat());
        assert_eq!((total(&made), (3..=8).contains(&added.len())), (added.iter().sum(), true));

        let made = texts(6).question(RecallKind::Last, 1200, &place).unwrap();
        let (lines, asked) = parts(&made);
        let mut last = BTreeMap::new();
        for line in &lines[1..] {
            let (key, value) = line.split_once(": ").or_else(|| line.split_once('：')).unwrap();
            last.insert(key.trim_matches(['-', ' ', '“', '”']), value);
        }
        let mut wanted: Vec<_> =
            last.iter().map(|(key, value)| (asked.find(key).unwrap(), *value)).collect();
        wanted.sort_unstable();
        let wanted: Vec<String> = wanted.into_iter().map(|(_, value)| value.to_owned()).collect();
        assert_eq!((in_order(&made), wanted.len()), (&wanted[..], 4));
        for value in wanted {
            assert_eq!(made.message.matches(&value).count(), 1, "{value}");
        }
    }
    assert!(seen.len() > 4, "{seen:?}");
}

#[test]
fn what_is_too_short_is_refused_and_the_least_works() {
    for kind in RecallKind::ALL {
        let places = kind.places(10);
        let refused = texts(1).question(kind, 60, &places[0]).unwrap_err();
        assert!(matches!(refused, Error::RecallTooShort { length: 60, .. }), "{refused}");
        let least = texts(1).least(kind, 60, &places).unwrap();
        assert!((64..1000).contains(&least), "{}: {least}", kind.name());
        assert_eq!(texts(1).least(kind, least, &places).unwrap(), least);
        for place in &places {
            let made = texts(1).question(kind, least, place).unwrap();
            assert!(made.tokens <= least);
        }
    }
}
