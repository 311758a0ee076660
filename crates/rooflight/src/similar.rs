//! Suggestions for a mistyped word.

use strsim::osa_distance;

/// Maximum number of edits between a word and its suggestion.
const MOST_EDITS: usize = 2;

/// Returns the candidate nearest to `word`: at most two edits away, and fewer than half of the word's characters. An edit
/// inserts, removes or replaces a character, or swaps two adjacent ones. Of equally near candidates, returns the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = MOST_EDITS.min(word.chars().count().saturating_sub(1) / 2);
    let near = candidates.into_iter().map(|candidate| (osa_distance(word, candidate), candidate));
    let near = near.filter(|(edits, _)| *edits <= most);
    near.min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_suggested() {
        let commands = ["run", "list", "recall", "template", "logits", "complete", "verify"];
        for (word, want) in [
            ("lst", Some("list")),
            ("temlpate", Some("template")),
            ("logit", Some("logits")),
            ("ru", None),
            ("update", None),
            ("version", None),
            ("hello", None),
            ("nope", None),
            ("logs", None),
        ] {
            assert_eq!(nearest(word, commands), want, "{word}");
        }
    }
}
