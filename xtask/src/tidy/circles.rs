//! How large the circles of imports in each crate may be.

use cargo_metadata::Metadata;

/// Most files in the largest circle of a crate. Crates without a row may have no circle.
///
/// The numbers are those that the crates have. They may only become smaller; a larger one needs a reason in the commit.
const LARGEST: &[(&str, usize)] = &[
    ("chats", 2),
    ("cli", 3),
    ("conformance", 28),
    ("cpu", 28),
    ("cuda", 8),
    ("cuda-software", 11),
    ("engine", 70),
    ("gguf", 12),
    ("grammar", 18),
    ("hub", 9),
    ("kernels", 22),
    ("kv", 12),
    ("lab", 2),
    ("models", 86),
    ("planner", 3),
    ("plot", 9),
    ("program", 32),
    ("ptx", 5),
    ("quant", 20),
    ("rates", 3),
    ("rooflight", 24),
    ("server", 74),
    ("testing", 2),
    ("tokenizer", 20),
    ("tools", 31),
    ("wgpu", 14),
    ("xtask", 8),
];

/// Compares the largest circle of each crate with its number.
pub(super) fn check(metadata: &Metadata, findings: &mut Vec<String>) -> anyhow::Result<()> {
    let graphs = crate::circles::graphs(metadata)?;
    let measured: Vec<(&str, usize)> =
        graphs.iter().map(|(name, graph)| (name.as_str(), graph.largest_circle())).collect();
    compare(&measured, LARGEST, findings);
    Ok(())
}

/// Crates with a larger circle than they may have, and numbers that are larger than they need to be.
fn compare(measured: &[(&str, usize)], largest: &[(&str, usize)], findings: &mut Vec<String>) {
    for (name, size) in measured {
        let row = largest.iter().find(|(of, _)| of == name).map(|(_, most)| *most);
        match (row, row.unwrap_or(1)) {
            (_, most) if *size > most => findings.push(format!(
                "crate `{name}`: {size} files import each other in a circle, at most {most} may: \
                 `cargo xtask circles {name}` shows them"
            )),
            (Some(_), _) if *size == 1 => findings.push(format!(
                "crate `{name}` has no circle of imports: remove its row in xtask/src/tidy/circles.rs"
            )),
            (_, most) if *size < most => findings.push(format!(
                "crate `{name}`: its largest circle of imports has {size} files: \
                 lower {most} to {size} in xtask/src/tidy/circles.rs"
            )),
            _ => {}
        }
    }
    for (name, _) in largest.iter().filter(|(name, _)| !measured.iter().any(|(of, _)| of == name)) {
        findings.push(format!("no crate `{name}`: remove its row in xtask/src/tidy/circles.rs"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_may_not_grow_and_numbers_follow_them() {
        let found = |measured: &[(&str, usize)]| {
            let mut findings = Vec::new();
            compare(measured, &[("cli", 76), ("hub", 2)], &mut findings);
            findings
        };
        let same = [("cli", 76), ("hub", 2), ("plot", 1)];
        assert!(found(&same).is_empty());
        for (name, size, expected) in [
            ("cli", 77, "crate `cli`: 77 files import each other in a circle, at most 76 may"),
            ("plot", 2, "crate `plot`: 2 files import each other in a circle, at most 1 may"),
            ("cli", 70, "crate `cli`: its largest circle of imports has 70 files: lower 76 to 70"),
            ("hub", 1, "crate `hub` has no circle of imports: remove its row"),
        ] {
            let measured = same.map(|(of, now)| (of, if of == name { size } else { now }));
            let findings = found(&measured);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(findings[0].starts_with(expected), "{findings:?}");
        }
        let gone = found(&same[..1]);
        assert_eq!(gone, ["no crate `hub`: remove its row in xtask/src/tidy/circles.rs"]);
    }
}
