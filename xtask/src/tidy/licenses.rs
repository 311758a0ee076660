//! What the house takes from others: where packages come from, under which licences, and that the program names them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use crate::licenses::{
    ALLOWED_FOR, Expression, FILE, Graph, Package, PackageId, packages_of, rank,
};

/// Packages that nothing may depend on, and why.
const BANNED: &[(&str, &str)] = &[
    ("native-tls", "TLS is rustls, the same on every system"),
    ("openssl-sys", "TLS is rustls, which needs no library of the system"),
];

/// The registry that packages come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks the lock file, the licences of all packages and the list of those that are linked.
pub(super) fn check(root: &Path, graph: &Graph, findings: &mut Vec<String>) -> anyhow::Result<()> {
    let read = |file: &str| {
        std::fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))
    };
    let locked = locked(&read("Cargo.lock")?);
    origins(&locked, findings);
    let packages = graph.packages();
    licences(&packages, findings);
    if graph.all_platforms {
        exceptions(&packages, ALLOWED_FOR, findings);
    }
    let named = packages_of(&read(FILE).unwrap_or_default());
    // on one platform fewer are linked than are named, but none that is not locked
    let may_be_named = match graph.all_platforms {
        true => graph.linked.clone(),
        false => locked.into_iter().map(|package| package.id).collect(),
    };
    notices(&named, &graph.linked, &may_be_named, findings);
    Ok(())
}

/// A package of `Cargo.lock`.
#[derive(Debug, PartialEq, Eq)]
struct Locked {
    id: PackageId,
    /// Registry or repository; none for a folder.
    source: Option<String>,
}

fn locked(text: &str) -> Vec<Locked> {
    let value = |package: &str, key: &str| {
        let lines = package.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        values.next().map(|value| value.trim_matches('"').to_owned())
    };
    let packages = text.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            let id = (value(package, "name")?, value(package, "version")?);
            Some(Locked { id, source: value(package, "source") })
        })
        .collect()
}

/// Packages that are banned, or come from elsewhere than crates.io.
fn origins(locked: &[Locked], findings: &mut Vec<String>) {
    for Locked { id: (name, version), source } in locked {
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| banned == name) {
            findings.push(format!("package `{name}` {version} is banned: {why}"));
        }
        if let Some(source) = source.as_ref().filter(|source| *source != REGISTRY) {
            findings.push(format!("package `{name}` {version} is not from crates.io: {source}"));
        }
    }
}

/// Packages without a licence, or without one that is allowed.
fn licences(packages: &[Package], findings: &mut Vec<String>) {
    for package in packages {
        let subject = format!("package `{}` {}", package.name, package.version);
        let Some(text) = &package.license else {
            findings.push(format!("{subject} has no licence"));
            continue;
        };
        match Expression::parse(text) {
            Err(error) => findings.push(format!("{subject}: {error:#}")),
            Ok(expression) => {
                if expression.choose(&|licence| rank(&package.name, licence)).is_none() {
                    findings.push(format!(
                        "{subject}: the licence `{text}` is not allowed by xtask/src/licenses.rs"
                    ));
                }
            }
        }
    }
}

/// Exceptions that no package needs.
fn exceptions(packages: &[Package], allowed_for: &[(&str, &str)], findings: &mut Vec<String>) {
    for (name, licence) in allowed_for {
        let needs = |package: &Package| {
            let text = package.license.as_deref().unwrap_or_default();
            let has = |expression: Expression| expression.licences().contains(licence);
            package.name == *name && Expression::parse(text).is_ok_and(has)
        };
        if !packages.iter().any(needs) {
            findings.push(format!(
                "`{name}` may have the licence {licence} by xtask/src/licenses.rs and has not"
            ));
        }
    }
}

/// Packages that are linked and not named, or named and not linked.
fn notices(
    named: &[PackageId],
    linked: &BTreeSet<PackageId>,
    may_be_named: &BTreeSet<PackageId>,
    findings: &mut Vec<String>,
) {
    for (name, version) in linked.iter().filter(|id| !named.contains(id)) {
        findings.push(format!(
            "{FILE} does not name `{name}` {version}, which is linked: run `cargo xtask licenses`"
        ));
    }
    for (name, version) in named.iter().filter(|id| !may_be_named.contains(id)) {
        findings.push(format!(
            "{FILE} names `{name}` {version}, which is not linked: run `cargo xtask licenses`"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, version: &str) -> PackageId {
        (name.to_owned(), version.to_owned())
    }

    fn found(check: impl FnOnce(&mut Vec<String>)) -> Vec<String> {
        let mut findings = Vec::new();
        check(&mut findings);
        findings
    }

    #[test]
    fn packages_from_elsewhere_and_banned_ones_are_found() {
        let text = "version = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\
                    dependencies = [\n \"serde\",\n]\n\n\
                    [[package]]\nname = \"serde\"\nversion = \"1.0.2\"\n\
                    source = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"ab\"\n";
        let packages = locked(text);
        assert_eq!(packages[0], Locked { id: id("ours", "0.1.0"), source: None });
        assert_eq!((&packages[1].id, packages.len()), (&id("serde", "1.0.2"), 2));
        assert!(found(|findings| origins(&packages, findings)).is_empty());
        for source in
            ["git+https://github.com/serde-rs/serde#1234", "registry+https://example.org/"]
        {
            let elsewhere = locked(&text.replace(REGISTRY, source));
            let expected = format!("package `serde` 1.0.2 is not from crates.io: {source}");
            assert_eq!(found(|findings| origins(&elsewhere, findings)), [expected]);
        }
        for (banned, _) in BANNED {
            let with = locked(&text.replace("name = \"serde\"", &format!("name = \"{banned}\"")));
            let findings = found(|findings| origins(&with, findings));
            assert!(findings.len() == 1 && findings[0].contains("is banned: "), "{findings:?}");
        }
    }

    #[test]
    fn licences_that_are_not_allowed_are_found() {
        let count = |name: &str, license: Option<&str>| {
            let package = Package::example(name, license);
            found(|findings| licences(&[package], findings)).len()
        };
        assert_eq!(count("a", Some("MIT OR GPL-3.0-only")), 0);
        assert_eq!(count("a", Some("MIT AND GPL-3.0-only")), 1);
        assert_eq!(count("a", Some("GPL-3.0-only")), 1);
        assert_eq!(count("a", Some("MIT, Apache-2.0")), 1);
        assert_eq!(count("a", None), 1);
        for (name, licence) in ALLOWED_FOR {
            assert_eq!(count(name, Some(licence)), 0, "{name}");
            assert_eq!(count("a", Some(licence)), 1, "{licence}");
        }
    }

    #[test]
    fn exceptions_that_no_package_needs_are_found() {
        let allowed_for = [("a", "MPL-2.0")];
        let check = |name: &str, license: &str| {
            let packages = [Package::example(name, Some(license))];
            found(|findings| exceptions(&packages, &allowed_for, findings))
        };
        assert!(check("a", "MPL-2.0").is_empty());
        let finding = "`a` may have the licence MPL-2.0 by xtask/src/licenses.rs and has not";
        assert_eq!(check("a", "MIT"), [finding]);
        assert_eq!(check("b", "MPL-2.0"), [finding]);
    }

    #[test]
    fn notices_that_differ_from_what_is_linked_are_found() {
        let linked = BTreeSet::from([id("a", "1.0"), id("b", "2.0")]);
        let check =
            |named: &[PackageId]| found(|findings| notices(named, &linked, &linked, findings));
        assert!(check(&[id("a", "1.0"), id("b", "2.0")]).is_empty());
        let missing = check(&[id("a", "1.0")]);
        assert!(missing.len() == 1 && missing[0].contains("does not name `b` 2.0"), "{missing:?}");
        let other = check(&[id("a", "1.0"), id("b", "2.1")]);
        assert_eq!(other.len(), 2, "{other:?}");
        assert!(other[1].contains("names `b` 2.1, which is not linked"), "{other:?}");
        assert_eq!(check(&[]).len(), 2);
        // without a network packages for other platforms may be named
        let locked = BTreeSet::from([id("a", "1.0"), id("b", "2.0"), id("c", "3.0")]);
        let named = [id("a", "1.0"), id("b", "2.0"), id("c", "3.0")];
        assert!(found(|findings| notices(&named, &linked, &locked, findings)).is_empty());
    }
}
