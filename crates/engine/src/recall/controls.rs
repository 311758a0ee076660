//! Questions that need several places of a text together: variables traced through others, marks counted, numbers added.

use super::draft::{Draft, Filler};
use super::draw::Draw;
use super::filler::sentence;
use super::needles::{gap, opening};
use super::{Language, RecallAnswer};

/// Chains of variables, and how many are in each.
const CHAINS: usize = 3;
const LINKS: usize = 4;

/// Three chains of variables, `x7 = 4821.` and `x31 = x7.`; asked is which have the value of one.
pub(super) fn tracing(draw: &mut Draw, language: Language) -> Draft {
    let opening = opening(draw, language);
    let numbers: Vec<usize> = (1..100).collect();
    let names = draw.some(&numbers, CHAINS * LINKS);
    let names: Vec<String> = names.iter().map(|number| format!("x{number}")).collect();
    let chains: Vec<&[String]> = names.chunks(LINKS).collect();
    let mut values: Vec<String> = Vec::new();
    while values.len() < CHAINS {
        let value = draw.digits(4);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let mut turns: Vec<usize> = (0..CHAINS * LINKS).map(|i| i % CHAINS).collect();
    draw.shuffle(&mut turns);
    let mut places: Vec<f64> = turns.iter().map(|_| draw.share()).collect();
    places.sort_by(f64::total_cmp);
    let end = if language == Language::English { "." } else { "。" };
    let mut said = [0; CHAINS];
    let mut hidden = Vec::new();
    for (chain, place) in turns.into_iter().zip(places) {
        let link = said[chain];
        said[chain] += 1;
        let from = if link == 0 { &values[chain] } else { &chains[chain][link - 1] };
        hidden.push((place, format!("{} = {from}{end}", chains[chain][link])));
    }
    let asked = draw.below(CHAINS);
    let question = match language {
        Language::English => {
            format!("Which variables have the value {}? Name all of them.", values[asked])
        }
        Language::Chinese => format!("哪些变量的值是{}？请全部写出。", values[asked]),
    };
    let others =
        (0..CHAINS).filter(|chain| *chain != asked).flat_map(|chain| chains[chain].to_vec());
    let answer = RecallAnswer::Exactly { all: chains[asked].to_vec(), others: others.collect() };
    let filler = Filler::Sentences(draw.clone(), language);
    Draft { opening, gap: gap(language), filler, hidden, question, answer }
}

/// Lines of which 3 to 15 begin with a star.
pub(super) fn count(draw: &mut Draw, language: Language) -> Draft {
    let n = 3 + draw.below(13);
    let mut line = || (draw.share(), format!("* {}", sentence(draw, language)));
    let hidden = (0..n).map(|_| line()).collect();
    let (opening, question) = match language {
        Language::English => (
            "Read these lines.\n",
            "How many of the lines begin with a star (*)? Answer with the number.",
        ),
        Language::Chinese => ("请读下面的每一行。\n", "有多少行以星号（*）开头？请回答数字。"),
    };
    Draft {
        opening: opening.to_owned(),
        gap: "\n",
        filler: Filler::Sentences(draw.clone(), language),
        hidden,
        question: question.to_owned(),
        answer: RecallAnswer::Total(n as u64),
    }
}

/// 3 to 8 numbers from 2 to 50 to add.
pub(super) fn sum(draw: &mut Draw, language: Language) -> Draft {
    let opening = opening(draw, language);
    let (mut total, mut hidden) = (0, Vec::new());
    for _ in 0..3 + draw.below(6) {
        let number = 2 + draw.below(49);
        total += number;
        let line = match language {
            Language::English => format!("Add {number} to the total."),
            Language::Chinese => format!("总数加上{number}。"),
        };
        hidden.push((draw.share(), line));
    }
    let question = match language {
        Language::English => {
            "The total was 0 at first. What is it at the end? Answer with the number."
        }
        Language::Chinese => "总数一开始是0，最后是多少？请回答数字。",
    };
    Draft {
        opening,
        gap: gap(language),
        filler: Filler::Sentences(draw.clone(), language),
        hidden,
        question: question.to_owned(),
        answer: RecallAnswer::Total(total as u64),
    }
}
