//! Lists of keys and values: one value asked for, or the last value of each key.

use std::collections::HashSet;

use super::draft::{ChangingKey, Draft, Filler, new_word, pair};
use super::draw::Draw;
use super::filler::fill;
use super::{Language, RecallAnswer};

/// A list with a pair in the middle of each tenth, of which `tenth` is asked for. Phrases are those of
/// `training/corpus/retrieval.py`.
pub(super) fn key_value(
    text: &mut Draw,
    own: &mut Draw,
    language: Language,
    tenth: usize,
) -> Draft {
    let openings: &[&str] = match language {
        Language::English => &[
            "Here is a list:",
            "Remember these:",
            "Here are some keys and values:",
            "This is the list:",
        ],
        Language::Chinese => &["下面是一个列表：", "请记住这些：", "列表如下："],
    };
    let opening = text.of(openings).to_owned();
    let mut known = HashSet::new();
    let mut asked: Vec<(String, String)> = Vec::new();
    while asked.len() < 10 {
        let value = text.digits(4);
        if asked.iter().all(|(_, other)| *other != value) {
            asked.push((new_word(text, language, &mut known), value));
        }
    }
    let hidden = (0..10).map(|i| {
        let (key, value) = &asked[i];
        ((i as f64 + 0.5) / 10.0, pair(language, key, value))
    });
    let questions: &[&str] = match language {
        Language::English => &[
            "What is the value of {key}?",
            "What is the value of {key}?",
            "Tell me the value of {key}.",
            "Which value does {key} have?",
            "Give me the value for {key}.",
        ],
        Language::Chinese => {
            &["“{key}”的值是什么？", "“{key}”的值是多少？", "“{key}”是什么？", "“{key}”对应什么？"]
        }
    };
    let (key, value) = &asked[tenth];
    Draft {
        opening,
        gap: "",
        hidden: hidden.collect(),
        question: fill(own.of(questions), &[("{key}", key)]),
        answer: RecallAnswer::InOrder(vec![value.clone()]),
        filler: Filler::Pairs {
            draw: text.clone(),
            language,
            taken: asked.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect(),
        },
    }
}

/// Keys whose values change.
const N_KEYS: usize = 4;

/// A list in which the values of four keys change, whose last values are asked for.
pub(super) fn last(draw: &mut Draw, language: Language) -> Draft {
    let mut known = HashSet::new();
    let mut keys: Vec<ChangingKey> = Vec::new();
    while keys.len() < N_KEYS {
        let last = draw.digits(4);
        if keys.iter().all(|other| other.last != last) {
            let key = new_word(draw, language, &mut known);
            // the first changes to the end
            let until = if keys.is_empty() { 1.0 } else { 0.3 + 0.7 * draw.share() };
            keys.push(ChangingKey { key, last, until });
        }
    }
    draw.shuffle(&mut keys);
    let names: Vec<&str> = keys.iter().map(|key| key.key.as_str()).collect();
    let (opening, question) = match language {
        Language::English => (
            "Here is a list. Each line gives a key a new value:",
            format!("What are the last values of {}, in this order?", names.join(", ")),
        ),
        Language::Chinese => (
            "列表如下，每一行给一个键新的值：",
            format!("“{}”最后的值依次是什么？", names.join("”、“")),
        ),
    };
    let answer = RecallAnswer::InOrder(keys.iter().map(|key| key.last.clone()).collect());
    Draft {
        opening: opening.to_owned(),
        gap: "",
        filler: Filler::Changes { draw: draw.clone(), language, keys },
        hidden: Vec::new(),
        question,
        answer,
    }
}
