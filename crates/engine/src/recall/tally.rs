//! Right answers counted, with the interval that so few leave open (Wilson, JASA 22, 1927).

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

#[cfg(test)]
mod tests {
    use super::*;

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
