//! Suggestions of known names for unknown ones.

use strsim::osa_distance;

/// Maximum length of a name that is compared, in bytes.
const LONGEST: usize = 40;

/// Returns the name among `known` that is nearest to `name`, the first of several. It differs by at most two edits, and by at most one
/// edit for each three letters.
pub(super) fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    if name.len() > LONGEST {
        return None;
    }
    let most = (name.len() / 3).min(2);
    let with_distance = known.map(|known| (osa_distance(name, &known), known));
    let near = with_distance.filter(|(edits, _)| (1..=most).contains(edits));
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
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
    }
}
