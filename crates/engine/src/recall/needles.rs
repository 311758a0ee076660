//! What is hidden in filler and asked for: keys, numbers, codes. Phrases are those of `training/corpus/retrieval.py`.

use super::draft::{Draft, Filler};
use super::draw::Draw;
use super::filler::fill;
use super::lexicon::PLACES;
use super::{Language, RecallAnswer};

/// What stands before a text.
pub(super) fn opening(draw: &mut Draw, language: Language) -> String {
    let openings = match language {
        Language::English => [
            "",
            "Read this text.\n",
            "Here is a text. Remember what is important.\n",
            "Read the text and answer the question.\n",
            "There is something important in this text. Find it.\n",
        ],
        Language::Chinese => [
            "",
            "请读这段文字。\n",
            "下面的文字里有重要的内容，请记住。\n",
            "请读下面的文字，再回答问题。\n",
            "这段文字里藏着重要的内容。\n",
        ],
    };
    draw.of(&openings).to_owned()
}

/// Nothing in Chinese, a space in English.
pub(super) fn gap(language: Language) -> &'static str {
    match language {
        Language::English => " ",
        Language::Chinese => "",
    }
}

/// How something is hidden, and how it is asked for.
struct Phrases {
    hidden: &'static [&'static str],
    asked: &'static [&'static str],
}

fn pass_key(language: Language) -> Phrases {
    match language {
        Language::English => Phrases {
            hidden: &[
                "The pass key is {key}.",
                "The pass key is {key}.",
                "The pass key is {key}. Remember it.",
                "Remember this: the pass key is {key}.",
            ],
            asked: &[
                "What is the pass key?",
                "What was the pass key?",
                "Tell me the pass key.",
                "What is the pass key in the text?",
                "Which pass key did I tell you?",
            ],
        },
        Language::Chinese => Phrases {
            hidden: &[
                "密钥是{key}。",
                "密钥是{key}。",
                "密钥是{key}，请记住。",
                "请记住，密钥是{key}。",
            ],
            asked: &["密钥是什么？", "密钥是多少？", "请告诉我密钥。", "上面的密钥是什么？"],
        },
    }
}

fn number(language: Language) -> Phrases {
    match language {
        Language::English => Phrases {
            hidden: &["The serial number is {key}.", "Remember this: the serial number is {key}."],
            asked: &["What is the serial number?", "Tell me the serial number."],
        },
        Language::Chinese => Phrases {
            hidden: &["序列号是{key}。", "请记住，序列号是{key}。"],
            asked: &["序列号是什么？", "请告诉我序列号。"],
        },
    }
}

/// A key of five digits behind a share of the text.
pub(super) fn key(text: &mut Draw, own: &mut Draw, language: Language, depth: f64) -> Draft {
    one(text, own, language, (depth, 5, pass_key(language)))
}

/// A number of ten digits.
pub(super) fn long(text: &mut Draw, own: &mut Draw, language: Language, depth: f64) -> Draft {
    one(text, own, language, (depth, 10, number(language)))
}

/// `text` is shared by all questions about a text, `own` belongs to this one.
fn one(
    text: &mut Draw,
    own: &mut Draw,
    language: Language,
    (depth, digits, phrases): (f64, usize, Phrases),
) -> Draft {
    let opening = opening(text, language);
    let value = own.digits(digits);
    let hidden = fill(own.of(phrases.hidden), &[("{key}", &value)]);
    Draft {
        opening,
        gap: gap(language),
        filler: Filler::Sentences(text.clone(), language),
        hidden: vec![(depth, hidden)],
        question: own.of(phrases.asked).to_owned(),
        answer: RecallAnswer::InOrder(vec![value]),
    }
}

/// Codes of `n` places, one in each `n`-th part of the text.
pub(super) fn codes(draw: &mut Draw, language: Language, n: usize) -> Draft {
    let opening = opening(draw, language);
    let mut codes: Vec<(&str, String)> = Vec::new();
    for place in draw.some(PLACES, n) {
        let name = match language {
            Language::English => place.0,
            Language::Chinese => place.2,
        };
        let mut code = draw.digits(5);
        while codes.iter().any(|(_, other)| *other == code) {
            code = draw.digits(5);
        }
        codes.push((name, code));
    }
    let mut hidden = Vec::new();
    for (i, (name, code)) in codes.iter().enumerate() {
        let line = match language {
            Language::English => format!("The code for the {name} is {code}."),
            Language::Chinese => format!("{name}的密码是{code}。"),
        };
        hidden.push(((i as f64 + draw.share()) / n as f64, line));
    }
    // never in the text's order
    let order = codes.clone();
    while codes == order && n > 1 {
        draw.shuffle(&mut codes);
    }
    let names: Vec<&str> = codes.iter().map(|(name, _)| *name).collect();
    let question = ask_for_codes(draw, language, &names);
    Draft {
        opening,
        gap: gap(language),
        filler: Filler::Sentences(draw.clone(), language),
        hidden,
        question,
        answer: RecallAnswer::InOrder(codes.into_iter().map(|(_, code)| code).collect()),
    }
}

fn ask_for_codes(draw: &mut Draw, language: Language, names: &[&str]) -> String {
    let forms: &[&str] = match language {
        Language::English => &["What are the codes for {all}?", "Tell me the codes for {all}."],
        Language::Chinese => &["{all}的密码分别是什么？", "请告诉我{all}的密码。"],
    };
    fill(draw.of(forms), &[("{all}", &list(language, names))])
}

/// `the garden, the hill and the lake`.
fn list(language: Language, names: &[&str]) -> String {
    let (first, last) = names.split_at(names.len().saturating_sub(1));
    match language {
        Language::English => {
            let first: Vec<String> = first.iter().map(|name| format!("the {name}")).collect();
            format!("{} and the {}", first.join(", "), last.concat())
        }
        Language::Chinese => format!("{}和{}", first.join("、"), last.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the bundled model was trained to find, and how it was asked.
    #[test]
    fn phrases_are_those_of_the_corpus() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../training/corpus/retrieval.py");
        let corpus = std::fs::read_to_string(corpus).unwrap();
        for language in Language::ALL {
            let Phrases { hidden, asked } = pass_key(language);
            for phrase in hidden.iter().chain(asked) {
                assert!(corpus.contains(&format!("\"{phrase}\"")), "{phrase}");
            }
            let mut draw = Draw::named("openings");
            for _ in 0..30 {
                let opening = opening(&mut draw, language).replace('\n', "\\n");
                assert!(corpus.contains(&format!("\"{opening}\"")), "{opening}");
            }
        }
        assert!(
            corpus.contains("The code for the {e} is {v}.") && corpus.contains("{z}的密码是{v}。")
        );
        assert!(corpus.contains("What are the codes for {x} and {y}?"));
        assert!(corpus.contains("{x}和{y}的密码分别是什么？"));
    }

    #[test]
    fn names_are_listed() {
        let names = ["hill", "lake", "farm"];
        assert_eq!(list(Language::English, &names), "the hill, the lake and the farm");
        assert_eq!(list(Language::Chinese, &["小山", "农场"]), "小山和农场");
    }
}
