//! The known name that an unknown one was probably meant to be.

/// Longest name that is compared, in bytes.
const LONGEST: usize = 40;

/// The name among `known` that is within two edits of `name`, and shares most of its letters; the nearest, of equals the first.
pub(super) fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    if name.len() > LONGEST {
        return None;
    }
    let most = (name.len() / 3).min(2);
    let with_distance = known.map(|known| (distance(name.as_bytes(), known.as_bytes()), known));
    let near = with_distance.filter(|(edits, _)| (1..=most).contains(edits));
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

/// Insertions, deletions, replacements and swaps of neighbours that make one of the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut edits = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                let swapped: &Vec<usize> = &before_last;
                edits = edits.min(swapped[j - 1] + 1);
            }
            row.push(edits);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_within_two_edits_are_suggested() {
        let near = |name: &str| {
            nearest(
                name,
                ["temperature", "top_p", "n", "stop", "seed"].map(str::to_owned).into_iter(),
            )
        };
        for (name, meant) in [
            ("temprature", Some("temperature")),
            ("tempreature", Some("temperature")),
            ("topp", Some("top_p")),
            ("tpo_p", Some("top_p")),
            ("stops", Some("stop")),
            ("sede", Some("seed")),
            ("x", None),
            ("mood", None),
            ("provider", None),
        ] {
            assert_eq!(near(name).as_deref(), meant, "{name}");
        }
        assert_eq!(near(&"temperature".repeat(9_000)), None);
        assert_eq!((distance(b"", b"abc"), distance(b"ab", b"ba")), (3, 1));
    }
}
