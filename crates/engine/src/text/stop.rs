//! Stop strings, which may arrive in pieces.

/// The strings that end a reply.
pub(super) struct Stops {
    strings: Vec<String>,
}

/// What a scan found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan<'a> {
    /// No stop string yet, but the last so many bytes may become one.
    Held(usize),
    /// `stop` starts at this byte.
    Found {
        /// Where it starts.
        at: usize,
        /// Which.
        stop: &'a str,
    },
}

impl Stops {
    /// Empty strings are no stop strings.
    pub(super) fn new(strings: &[String]) -> Self {
        Stops { strings: strings.iter().filter(|s| !s.is_empty()).cloned().collect() }
    }

    /// Look at the text that has not been passed on. The stop string that is complete first wins, whatever the pieces
    /// the text came in; of two complete at once the longer.
    pub(super) fn scan(&self, text: &str) -> Scan<'_> {
        let strings = self.strings.iter().map(String::as_str);
        let found = strings.filter_map(|stop| Some((text.find(stop)?, stop)));
        if let Some((at, stop)) = found.min_by_key(|(at, stop)| (at + stop.len(), *at)) {
            return Scan::Found { at, stop };
        }
        let held = self.strings.iter().map(|stop| held_for(text, stop)).max();
        Scan::Held(held.unwrap_or(0))
    }
}

/// Length of the longest end of `text` that is a beginning of `string`, but not all of it.
pub(super) fn held_for(text: &str, string: &str) -> usize {
    let longest = text.len().min(string.len().saturating_sub(1));
    (1..=longest)
        .rev()
        .find(|&n| text.as_bytes()[text.len() - n..] == string.as_bytes()[..n])
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Scan, Stops};

    /// What passes and which stop string ends it, for text that comes in pieces.
    fn run(stops: &[String], pieces: &[&str]) -> (String, Option<String>) {
        let stops = Stops::new(stops);
        let (mut passed, mut held) = (String::new(), String::new());
        for piece in pieces {
            held.push_str(piece);
            match stops.scan(&held) {
                Scan::Held(n) => passed.extend(held.drain(..held.len() - n)),
                Scan::Found { at, stop } => return (passed + &held[..at], Some(stop.to_owned())),
            }
        }
        (passed + &held, None)
    }

    #[test]
    fn beginnings_are_held_back() {
        let strings = ["User:".to_owned(), String::new()];
        let stops = Stops::new(&strings);
        assert_eq!(stops.scan("hello Us"), Scan::Held(2));
        assert_eq!(stops.scan("hello Use!"), Scan::Held(0));
        assert_eq!(stops.scan("hello User: x"), Scan::Found { at: 6, stop: "User:" });
        assert_eq!(Stops::new(&[]).scan("abc"), Scan::Held(0));
        let wide = ["\u{20AC}x".to_owned()];
        assert_eq!(Stops::new(&wide).scan("a\u{20AC}"), Scan::Held(3));
    }

    proptest! {
        /// Every split of the text gives the same end, and what passes holds no stop string.
        #[test]
        fn splits_do_not_matter(text in "[ab\u{20AC}]{0,12}", stops in prop::collection::vec("[ab\u{20AC}]{0,4}", 0..4)) {
            let single: Vec<String> = text.chars().map(String::from).collect();
            let single: Vec<&str> = single.iter().map(String::as_str).collect();
            let want = run(&stops, &single);
            for (cut, _) in text.char_indices() {
                prop_assert_eq!(&run(&stops, &[&text[..cut], &text[cut..]]), &want);
            }
            prop_assert!(stops.iter().filter(|s| !s.is_empty()).all(|s| !want.0.contains(s.as_str())));
            prop_assert_eq!(want.1.is_some(), stops.iter().any(|s| !s.is_empty() && text.contains(s.as_str())));
        }
    }
}
