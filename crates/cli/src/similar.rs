//! Suggestions for a word that was mistyped.

/// Most edits between a word and its suggestion.
const MOST_EDITS: usize = 2;

/// The candidate that is nearest to `word`: at most two edits away, and fewer than half of the word's letters. An edit inserts,
/// removes or replaces a character or swaps two neighbours. Of equally near ones the first.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let most = MOST_EDITS.min(word.chars().count().saturating_sub(1) / 2);
    let near = candidates.into_iter().map(|candidate| (edits(word, candidate), candidate));
    let near = near.filter(|(edits, _)| *edits <= most);
    near.min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// Edits from one word to the other.
///
/// Source: the optimal string alignment distance (Damerau, 1964).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, want) in [
            ("", "abc", 3),
            ("serve", "serve", 0),
            ("sevre", "serve", 1),
            ("tokenise", "tokenize", 1),
            ("lsit", "list", 1),
            ("kitten", "sitting", 3),
            ("version", "verify", 3),
        ] {
            assert_eq!((edits(a, b), edits(b, a)), (want, want), "{a} {b}");
        }
    }

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
