//! Which replies are right. Letters and digits are compared; case and everything else is ignored.

use std::fmt;

/// What a right reply to a question says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecallAnswer {
    /// All of these, in this order.
    InOrder(Vec<String>),
    /// All of these, in any order, and none of the others.
    Exactly {
        /// What it names.
        all: Vec<String>,
        /// What it does not.
        others: Vec<String>,
    },
    /// This number, and no other after it.
    Total(u64),
}

impl RecallAnswer {
    /// Whether `reply` is right.
    pub fn right(&self, reply: &str) -> bool {
        match self {
            RecallAnswer::InOrder(wanted) => in_order(reply, wanted),
            RecallAnswer::Exactly { all, others } => {
                let said = |word: &String| answers(reply, word);
                all.iter().all(said) && !others.iter().any(said)
            }
            RecallAnswer::Total(number) => last_number(reply) == Some(number.to_string()),
        }
    }
}

/// As one would write it.
impl fmt::Display for RecallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecallAnswer::InOrder(all) | RecallAnswer::Exactly { all, .. } => {
                f.write_str(&all.join(", "))
            }
            RecallAnswer::Total(number) => write!(f, "{number}"),
        }
    }
}

/// Does `reply` contain `answer`? An answer without letters or digits is compared as it stands.
pub fn answers(reply: &str, answer: &str) -> bool {
    let wanted = letters(answer);
    if wanted.is_empty() {
        reply.contains(answer)
    } else {
        end_of(&letters(reply), &wanted).is_some()
    }
}

/// Does `reply` contain all of these, each behind the one before it?
fn in_order(reply: &str, wanted: &[String]) -> bool {
    let reply = letters(reply);
    let mut rest = reply.as_str();
    wanted.iter().all(|answer| match end_of(rest, &letters(answer)) {
        Some(end) => {
            rest = &rest[end..];
            true
        }
        None => false,
    })
}

/// Where the first `wanted` ends in `reply`, both as [`letters`]. A number must not be the middle of a longer one: "12"
/// does not answer "312".
fn end_of(reply: &str, wanted: &str) -> Option<usize> {
    let splits = |edge: Option<char>, inside: Option<char>| {
        edge.is_some_and(|c| c.is_ascii_digit()) && inside.is_some_and(|c| c.is_ascii_digit())
    };
    let alone = |(at, found): &(usize, &str)| {
        let before = reply[..*at].chars().next_back();
        let after = reply[at + found.len()..].chars().next();
        !splits(before, found.chars().next()) && !splits(after, found.chars().next_back())
    };
    reply.match_indices(wanted).find(alone).map(|(at, found)| at + found.len())
}

/// Letters and digits, lower-case; one space where others stood between them.
fn letters(text: &str) -> String {
    let lower = text.chars().flat_map(char::to_lowercase);
    let spaced: String = lower.map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The last digits that stand together, without zeros before them.
fn last_number(reply: &str) -> Option<String> {
    let mut numbers = reply.split(|c: char| !c.is_ascii_digit());
    let last = numbers.rfind(|digits| !digits.is_empty())?;
    let short = last.trim_start_matches('0');
    Some(if short.is_empty() { "0" } else { short }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_as_people_would() {
        for (reply, answer, right) in [
            ("The pass key is 48213.", "48213", true),
            ("The pass key is 148213.", "48213", false),
            ("12 + 7 = 19.", "19", true),
            ("It is 190.", "19", false),
            ("Your name is Tibolo!", "tibolo", true),
            ("red, blue and green", "red blue", true),
            ("密码是 48213。", "48213", true),
            ("你叫王小明。", "王小明", true),
            ("你叫王明。", "王小明", false),
            ("", "x", false),
            ("a + b", "+", true),
        ] {
            assert_eq!(answers(reply, answer), right, "{reply} | {answer}");
        }
    }

    #[test]
    fn several_answers_come_in_order() {
        let wanted = |words: &[&str]| {
            RecallAnswer::InOrder(words.iter().map(|&word| word.to_owned()).collect())
        };
        let reply = "The code for the garden is 12345 and the code for the hill is 678.";
        for (words, right) in [
            (&["12345", "678"][..], true),
            (&["678", "12345"], false),
            (&["12345", "12345"], false),
            (&["2345"], false),
            (&["12345", "67"], false),
        ] {
            assert_eq!(wanted(words).right(reply), right, "{words:?}");
        }
        assert_eq!(wanted(&["1", "2"]).to_string(), "1, 2");
    }

    #[test]
    fn names_are_told_from_longer_ones_and_from_others() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let wanted = RecallAnswer::Exactly { all: words(&["x1", "x20"]), others: words(&["x2"]) };
        for (reply, right) in [
            ("x20 and x1.", true),
            ("X1, X20", true),
            ("x1", false),
            ("x1, x2, x20", false),
            ("x12 and x20", false),
        ] {
            assert_eq!(wanted.right(reply), right, "{reply}");
        }
    }

    #[test]
    fn a_total_is_the_last_number() {
        let wanted = RecallAnswer::Total(12);
        for (reply, right) in [
            ("5 + 7 = 12.", true),
            ("12", true),
            ("012", true),
            ("1 to 12, so 11", false),
            ("", false),
        ] {
            assert_eq!(wanted.right(reply), right, "{reply}");
        }
    }
}
