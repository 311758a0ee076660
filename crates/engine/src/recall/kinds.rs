//! Kinds of questions about long texts, and where in them the answers stand.

/// What is asked of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecallKind {
    /// A key of five digits in one sentence.
    PassKey,
    /// A number of ten digits in one sentence.
    Number,
    /// One value of a list of keys and values.
    KeyValue,
    /// So many codes at as many places, asked for in another order.
    Needles(usize),
    /// All variables that have a value, by way of others.
    Tracing,
    /// How many lines are marked.
    Count,
    /// The sum of numbers at many places.
    Sum,
    /// The last values of keys whose values change all through the text.
    Last,
}

/// A language of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// English.
    English,
    /// Chinese.
    Chinese,
}

impl Language {
    /// Both, in the order in which texts take turns.
    pub const ALL: [Language; 2] = [Language::English, Language::Chinese];

    /// `en` or `zh`.
    pub fn name(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Chinese => "zh",
        }
    }
}

/// Codes of [`RecallKind::Needles`] unless told otherwise.
const NEEDLES: usize = 4;
/// Most of them.
const MOST_NEEDLES: usize = 16;

impl RecallKind {
    /// One of each.
    pub const ALL: [RecallKind; 8] = [
        RecallKind::PassKey,
        RecallKind::Number,
        RecallKind::KeyValue,
        RecallKind::Needles(NEEDLES),
        RecallKind::Tracing,
        RecallKind::Count,
        RecallKind::Sum,
        RecallKind::Last,
    ];

    /// `passkey`, ..., `needles`, or `needles:2` where there are not four.
    pub fn name(self) -> String {
        let name = match self {
            RecallKind::PassKey => "passkey",
            RecallKind::Number => "number",
            RecallKind::KeyValue => "keyvalue",
            RecallKind::Needles(NEEDLES) => "needles",
            RecallKind::Needles(n) => return format!("needles:{n}"),
            RecallKind::Tracing => "tracing",
            RecallKind::Count => "count",
            RecallKind::Sum => "sum",
            RecallKind::Last => "last",
        };
        name.to_owned()
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<RecallKind> {
        if let Some(number) = name.strip_prefix("needles:") {
            let number = number.parse().ok().filter(|n| (2..=MOST_NEEDLES).contains(n));
            return number.map(RecallKind::Needles);
        }
        RecallKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether its answers stand at one depth of the text.
    pub fn has_depth(self) -> bool {
        matches!(self, RecallKind::PassKey | RecallKind::Number | RecallKind::KeyValue)
    }

    /// Tokens that are enough for a reply.
    pub fn reply_tokens(self) -> usize {
        match self {
            RecallKind::Needles(n) => 32 * n.max(2),
            RecallKind::Tracing | RecallKind::Sum | RecallKind::Last => 128,
            _ => 48,
        }
    }

    /// Where the answers to `questions` of this kind stand, in the order in which they are asked.
    ///
    /// Ten questions of a kind with depths are one of each tenth, half of them about an English text, half about a
    /// Chinese one; the next ten have it the other way around. Fewer are spread over all depths. Of other kinds each
    /// question has a text of its own.
    pub fn places(self, questions: usize) -> Vec<RecallPlace> {
        if !self.has_depth() {
            let place = |i| RecallPlace { text: i, language: Language::ALL[i % 2], tenth: None };
            return (0..questions).map(place).collect();
        }
        let mut places = Vec::new();
        for round in 0..questions.div_ceil(10) {
            let n = (questions - 10 * round).min(10);
            for language in 0..2 {
                let text = 2 * round + language;
                let mine = (0..n).filter(|i| (i + round) % 2 == language);
                places.extend(mine.map(|i| RecallPlace {
                    text,
                    language: Language::ALL[language],
                    tenth: Some(if n == 1 { 5 } else { (2 * i * 9 + n - 1) / (2 * (n - 1)) }),
                }));
            }
        }
        places
    }
}

/// Which text a question is about, and where in it the answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallPlace {
    /// Number of the text among those of its kind and length.
    pub text: usize,
    /// Its language.
    pub language: Language,
    /// Tenth of the text, 0 to 9, in whose middle the answer stands.
    pub tenth: Option<usize>,
}

impl RecallPlace {
    /// Middle of the tenth, 0.05 to 0.95.
    pub fn depth(&self) -> Option<f64> {
        self.tenth.map(|tenth| (tenth as f64 + 0.5) / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_names() {
        for kind in RecallKind::ALL.into_iter().chain([2, 8].map(RecallKind::Needles)) {
            assert_eq!(RecallKind::parse(&kind.name()), Some(kind));
        }
        for name in ["", "needle", "needles:1", "needles:17", "needles:x", "PassKey"] {
            assert_eq!(RecallKind::parse(name), None, "{name}");
        }
    }

    #[test]
    fn depths_are_spread_evenly_over_both_languages() {
        for rounds in 1..4 {
            let places = RecallKind::PassKey.places(10 * rounds);
            let of =
                |want: &dyn Fn(&RecallPlace) -> bool| places.iter().filter(|p| want(p)).count();
            for tenth in 0..10 {
                assert_eq!(of(&|p| p.tenth == Some(tenth)), rounds);
            }
            assert_eq!(of(&|p| p.language == Language::Chinese), 5 * rounds);
        }
        let twenty = RecallKind::PassKey.places(20);
        for (tenth, language) in (0..10).flat_map(|t| Language::ALL.map(|l| (t, l))) {
            let found = twenty.iter().filter(|p| p.tenth == Some(tenth) && p.language == language);
            assert_eq!(found.count(), 1, "{tenth} {language:?}");
        }
        for n in 2..10 {
            let places = RecallKind::Number.places(n);
            let mut tenths: Vec<usize> = places.iter().map(|p| p.tenth.unwrap()).collect();
            tenths.sort_unstable();
            assert_eq!((tenths[0], tenths[n - 1], tenths.len()), (0, 9, n));
            let gaps: Vec<usize> = tenths.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gaps.iter().max().unwrap() - gaps.iter().min().unwrap() <= 1, "{tenths:?}");
        }
        assert_eq!(RecallKind::KeyValue.places(1)[0].depth(), Some(0.55));
        assert!(RecallKind::PassKey.places(0).is_empty());
    }

    #[test]
    fn what_has_no_depth_has_texts_of_its_own() {
        let places = RecallKind::Sum.places(5);
        assert!(places.iter().enumerate().all(|(i, p)| p.text == i && p.depth().is_none()));
        assert_eq!(places.iter().filter(|p| p.language == Language::English).count(), 3);
    }
}
