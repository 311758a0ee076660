//! What a text is made of: filler of any length, what is hidden in it, the question.

use super::draw::Draw;
use super::filler::sentence;
use super::{Language, RecallAnswer};

/// A text and its question before it has a length.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// What stands before the first line.
    pub(super) opening: String,
    /// What stands between two lines.
    pub(super) gap: &'static str,
    pub(super) filler: Filler,
    /// Lines among the filler, and behind which share of it: 0 before its first line, 1 behind its last.
    pub(super) hidden: Vec<(f64, String)>,
    pub(super) question: String,
    pub(super) answer: RecallAnswer,
}

/// Lines of which there may be any number. More of them begin like fewer, but of [`Filler::Changes`].
#[derive(Clone, Debug)]
pub(super) enum Filler {
    Sentences(Draw, Language),
    /// Of a list: keys that are made up, and values that are none of `taken`.
    Pairs {
        draw: Draw,
        language: Language,
        taken: Vec<String>,
    },
    /// New values of a few keys; each has its last one somewhere.
    Changes {
        draw: Draw,
        language: Language,
        keys: Vec<ChangingKey>,
    },
}

/// A key whose value changes.
#[derive(Clone, Debug)]
pub(super) struct ChangingKey {
    pub(super) key: String,
    /// Its last value, which stands nowhere else.
    pub(super) last: String,
    /// The share of the lines behind which it does not change, above 0.
    pub(super) until: f64,
}

impl Filler {
    /// `n` lines.
    pub(super) fn lines(&self, n: usize) -> Vec<String> {
        match self {
            Filler::Sentences(draw, language) => {
                let mut draw = draw.clone();
                (0..n).map(|_| sentence(&mut draw, *language)).collect()
            }
            Filler::Pairs { draw, language, taken } => pairs(draw.clone(), *language, taken, n),
            Filler::Changes { draw, language, keys } => changes(draw.clone(), *language, keys, n),
        }
    }
}

fn pairs(mut draw: Draw, language: Language, taken: &[String], n: usize) -> Vec<String> {
    let mut known: std::collections::HashSet<String> = taken.iter().cloned().collect();
    let line = |_| {
        let key = new_word(&mut draw, language, &mut known);
        pair(language, &key, &other_number(&mut draw, taken))
    };
    (0..n).map(line).collect()
}

/// A word that is not known yet; where short ones become rare, a longer one.
pub(super) fn new_word(
    draw: &mut Draw,
    language: Language,
    known: &mut std::collections::HashSet<String>,
) -> String {
    let mut tries = 0;
    loop {
        let word = draw.word(language, 2 + tries / 8);
        tries += 1;
        if known.insert(word.clone()) {
            return word;
        }
    }
}

/// A number of four digits that is none of `taken`.
fn other_number(draw: &mut Draw, taken: &[String]) -> String {
    loop {
        let number = draw.digits(4);
        if !taken.contains(&number) {
            return number;
        }
    }
}

fn changes(mut draw: Draw, language: Language, keys: &[ChangingKey], n: usize) -> Vec<String> {
    let taken: Vec<String> = keys.iter().map(|key| key.last.clone()).collect();
    let mut lines: Vec<(usize, String)> = Vec::with_capacity(n);
    for i in 0..n {
        let alive = |k: &usize| i < keys.len() || (i as f64) < keys[*k].until * n as f64;
        let alive: Vec<usize> = (0..keys.len()).filter(alive).collect();
        // each has a value at least once
        let key = if i < keys.len() { i } else { draw.of(&alive) };
        lines.push((key, other_number(&mut draw, &taken)));
    }
    for (k, key) in keys.iter().enumerate() {
        if let Some(line) = lines.iter_mut().rev().find(|line| line.0 == k) {
            line.1.clone_from(&key.last);
        }
    }
    lines.iter().map(|(k, value)| pair(language, &keys[*k].key, value)).collect()
}

/// A line of a list, as in the bundled model's corpus.
pub(super) fn pair(language: Language, key: &str, value: &str) -> String {
    match language {
        Language::English => format!("\n- {key}: {value}"),
        Language::Chinese => format!("\n“{key}”：{value}"),
    }
}

impl Draft {
    /// The message with `n` lines of filler.
    pub(super) fn text(&self, n: usize) -> String {
        let lines = self.filler.lines(n);
        let mut hidden: Vec<(usize, &str)> = self
            .hidden
            .iter()
            .map(|(at, text)| ((at * n as f64).round() as usize, &**text))
            .collect();
        hidden.sort_by_key(|(at, _)| *at);
        let mut text = self.opening.clone();
        let mut hidden = hidden.into_iter().peekable();
        let mut first = true;
        let mut push = |line: &str| {
            if !first {
                text.push_str(self.gap);
            }
            first = false;
            text.push_str(line);
        };
        for (i, line) in lines.iter().enumerate() {
            while let Some((_, line)) = hidden.next_if(|(at, _)| *at <= i) {
                push(line);
            }
            push(line);
        }
        hidden.for_each(|(_, line)| push(line));
        text.push('\n');
        text + &self.question
    }
}
