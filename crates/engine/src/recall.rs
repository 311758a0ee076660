//! Recall: does a model find and repeat what its context says? Questions with one right answer, counted by kind.
//!
//! A reply is right when it contains the answer, letters and digits compared, case and everything else ignored. The
//! interval beside a share is Wilson's (JASA 22, 1927): with few questions it is wide, and says so.

use std::collections::BTreeMap;

/// How often the right answer was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Questions asked.
    pub asked: u64,
    /// Questions answered right.
    pub right: u64,
}

impl Tally {
    /// Count one reply.
    pub fn add(&mut self, right: bool) {
        self.asked += 1;
        self.right += u64::from(right);
    }

    /// Share of right answers, 0 to 1; 0 if nothing was asked.
    pub fn share(&self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.right as f64 / self.asked as f64 }
    }

    /// The 95 % interval of the share: what the true one may be, given so few questions.
    pub fn interval(&self) -> (f64, f64) {
        const Z: f64 = 1.959_964;
        if self.asked == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (self.asked as f64, self.share());
        let scale = 1.0 / (1.0 + Z * Z / n);
        let middle = (p + Z * Z / (2.0 * n)) * scale;
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt() * scale;
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }
}

/// Scores by kind of question, and for questions that have a place in their context, by tenth of its depth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recall {
    kinds: BTreeMap<String, Tally>,
    depths: BTreeMap<String, [Tally; 10]>,
}

impl Recall {
    /// Count a reply to a question of this kind. `depth`: where in the context the answer stands, 0 at its start, 1 at
    /// its end.
    pub fn add(&mut self, kind: &str, depth: Option<f64>, right: bool) {
        self.kinds.entry(kind.to_owned()).or_default().add(right);
        if let Some(depth) = depth {
            let tenth = ((depth.clamp(0.0, 1.0) * 10.0) as usize).min(9);
            self.depths.entry(kind.to_owned()).or_default()[tenth].add(right);
        }
    }

    /// Scores by kind, in the order of their names.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, Tally)> {
        self.kinds.iter().map(|(kind, score)| (kind.as_str(), *score))
    }

    /// Scores of a kind by tenth of depth, if its questions have one.
    pub fn depths(&self, kind: &str) -> Option<&[Tally; 10]> {
        self.depths.get(kind)
    }

    /// All questions together.
    pub fn total(&self) -> Tally {
        self.kinds.values().fold(Tally::default(), |sum, score| Tally {
            asked: sum.asked + score.asked,
            right: sum.right + score.right,
        })
    }
}

/// Does `reply` contain `answer`? An answer without letters or digits is compared as it stands.
pub fn answers(reply: &str, answer: &str) -> bool {
    let (reply_letters, answer_letters) = (letters(reply), letters(answer));
    if answer_letters.is_empty() {
        return reply.contains(answer);
    }
    // A number must not be the middle of a longer one: "12" does not answer "312".
    reply_letters.match_indices(&answer_letters).any(|(at, found)| {
        let before = reply_letters[..at].chars().next_back();
        let after = reply_letters[at + found.len()..].chars().next();
        let splits = |edge: Option<char>, inside: Option<char>| {
            edge.is_some_and(|c| c.is_ascii_digit()) && inside.is_some_and(|c| c.is_ascii_digit())
        };
        !splits(before, found.chars().next()) && !splits(after, found.chars().next_back())
    })
}

/// Letters and digits, lower-case; one space where others stood between them.
fn letters(text: &str) -> String {
    let lower = text.chars().flat_map(char::to_lowercase);
    let spaced: String = lower.map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
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
    fn the_interval_holds_the_share_and_narrows() {
        let few = Tally { asked: 10, right: 9 };
        let many = Tally { asked: 1000, right: 900 };
        for score in [few, many] {
            let (low, high) = score.interval();
            assert!(low < score.share() && score.share() < high);
        }
        let width = |score: Tally| score.interval().1 - score.interval().0;
        assert!(width(many) < width(few) / 5.0);
        // Wilson, 9 of 10: 0.596 to 0.982
        assert!(
            (few.interval().0 - 0.5958).abs() < 1e-3 && (few.interval().1 - 0.9821).abs() < 1e-3
        );
        assert_eq!(Tally::default().interval(), (0.0, 1.0));
    }

    #[test]
    fn scores_add_up_by_kind_and_depth() {
        let mut recall = Recall::default();
        for (depth, right) in [(0.0, true), (0.05, false), (1.0, true), (7.0, true)] {
            recall.add("passkey", Some(depth), right);
        }
        recall.add("name", None, true);
        assert_eq!(recall.total(), Tally { asked: 5, right: 4 });
        let depths = recall.depths("passkey").unwrap();
        assert_eq!((depths[0].asked, depths[0].right, depths[9].asked), (2, 1, 2));
        assert!(recall.depths("name").is_none());
        assert_eq!(recall.kinds().map(|(kind, _)| kind).collect::<Vec<_>>(), ["name", "passkey"]);
    }
}
