//! The rules of the house that no compiler checks. Each rule is a function that adds findings.

mod circles;
mod licenses;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use cargo_metadata::{DependencyKind, Metadata};

use crate::licenses::Graph;

/// Which crates of the house a crate may name. Any other edge is a finding.
const MAY_USE: &[(&str, &[&str])] = &[
    ("quant", &[]),
    ("gguf", &["quant"]),
    ("program", &["quant"]),
    ("kernels", &["quant"]),
    ("kv", &[]),
    ("cpu", &["program", "kernels", "kv", "quant"]),
    ("cuda", &[]),
    ("cuda-software", &[]),
    ("ptx", &[]),
    ("wgpu", &["program", "kv", "quant", "cuda", "ptx"]),
    ("models", &["program", "gguf", "quant"]),
    ("tokenizer", &["gguf"]),
    ("planner", &["program", "quant"]),
    ("plot", &[]),
    ("rates", &["planner", "program", "quant"]),
    ("console", &["kernels", "plot", "program", "rooflight"]),
    ("executors", &["cpu", "kernels", "program", "wgpu"]),
    ("engine", &["program", "tokenizer"]),
    ("grammar", &["engine", "tokenizer"]),
    ("server", &["engine", "grammar", "program", "tokenizer", "tools"]),
    ("tools", &["engine", "grammar", "tokenizer"]),
    ("testing", &[]),
    ("hub", &[]),
    ("chats", &[]),
    ("demo-model", &["gguf"]),
    (
        "rooflight",
        &[
            "engine",
            "executors",
            "gguf",
            "kernels",
            "models",
            "planner",
            "program",
            "quant",
            "rates",
            "tokenizer",
        ],
    ),
    ("conformance", &["program", "models", "quant", "gguf", "testing"]),
    (
        "cli",
        &[
            "chats",
            "demo-model",
            "conformance",
            "quant",
            "rooflight",
            "gguf",
            "program",
            "kernels",
            "console",
            "executors",
            "models",
            "tokenizer",
            "planner",
            "engine",
            "grammar",
            "hub",
            "server",
            "plot",
            "tools",
        ],
    ),
    (
        "lab",
        &[
            "console",
            "cpu",
            "executors",
            "gguf",
            "kernels",
            "models",
            "planner",
            "plot",
            "program",
            "quant",
        ],
    ),
    ("make-model", &["models", "gguf", "quant", "tokenizer"]),
    ("xtask", &[]),
];

/// Beyond [`MAY_USE`], tests may use these.
const DEV_ONLY: &[&str] =
    &["conformance", "cuda-software", "testing", "models", "gguf", "quant", "tokenizer"];

/// Most lines of a Rust file. Generated data is exempt and says so in its first line.
const MAX_LINES: usize = 600;

/// Where `unsafe` may stand.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/kernels/",
    "crates/cpu/src/",
    "crates/cuda/src/",
    "crates/cuda-software/",
    "crates/wgpu/src/experimental.rs",
    "fuzz/fuzz_targets/forms.rs",
];

/// Where features may be asked for: they choose what is linked.
const MAY_CONFIGURE: &[&str] = &[
    "crates/executors/src/lib.rs",
    "crates/cli/src/commands/mod.rs",
    "crates/cli/src/names/mod.rs",
    "crates/conformance/src/lib.rs",
    "crates/wgpu/src/lib.rs",
];

/// Words with one meaning: what we do not say, and what we say instead.
const WORDS: &[(&str, &str)] = &[
    ("n_embd", "hidden_size"),
    ("n_ff", "intermediate_size"),
    ("n_head_kv", "n_kv_heads"),
    ("hidden_dim", "hidden_size or intermediate_size"),
    ("TODO", "an issue"),
    ("FIXME", "an issue"),
];

/// Check everything and report every finding.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    let graph = Graph::new(root)?;
    dependencies(&graph.metadata, &mut findings);
    licenses::check(root, &graph, &mut findings)?;
    circles::check(&graph.metadata, &mut findings)?;
    let files = rust_files(root)?;
    let untested = sources_with(root, &|manifest| manifest.contains("\ndoctest = false\n"))?;
    let without_tests = sources_with(root, &|manifest| {
        let library = manifest.split("\n[").find(|section| section.starts_with("lib]"));
        library.is_some_and(|section| section.contains("\ntest = false\n"))
    })?;
    for path in &files {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        file(&name, &text, &mut findings);
        if untested.iter().any(|folder| name.starts_with(folder.as_str())) {
            examples(&name, &text, &mut findings);
        }
        if without_tests.iter().any(|folder| name.starts_with(folder.as_str())) {
            unit_tests(&name, &text, &mut findings);
        }
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    ensure!(findings.is_empty(), "tidy: {} findings", findings.len());
    eprintln!("tidy: {} files, all in order", files.len());
    Ok(())
}

/// Edges between the crates of the house, from `cargo metadata`.
fn dependencies(metadata: &Metadata, findings: &mut Vec<String>) {
    let short = |name: &str| name.trim_start_matches("rooflight-").to_owned();
    let packages = metadata.workspace_packages();
    let house: Vec<String> = packages.iter().map(|p| short(&p.name)).collect();
    let mut edges = Vec::new();
    for package in packages {
        let from = short(&package.name);
        for dependency in &package.dependencies {
            let to = short(&dependency.name);
            if house.contains(&to) && dependency.path.is_some() {
                let in_tests = dependency.kind == DependencyKind::Development;
                edges.push(Edge { from: from.clone(), to, in_tests });
            }
        }
        if !MAY_USE.iter().any(|(name, _)| *name == from) {
            findings.push(format!(
                "crate `{from}` has no row in the dependency table of xtask/src/tidy.rs"
            ));
        }
    }
    check_edges(&edges, MAY_USE, findings);
}

/// A dependency between two crates of the house.
struct Edge {
    from: String,
    to: String,
    in_tests: bool,
}

/// Edges that the table does not allow, and permissions that no crate uses.
fn check_edges(edges: &[Edge], may_use: &[(&str, &[&str])], findings: &mut Vec<String>) {
    let allows = |edge: &Edge| {
        may_use.iter().any(|(from, to)| *from == edge.from && to.contains(&edge.to.as_str()))
    };
    let in_tests = |edge: &Edge| edge.in_tests && DEV_ONLY.contains(&edge.to.as_str());
    for edge in edges.iter().filter(|edge| !allows(edge) && !in_tests(edge)) {
        findings.push(format!("crate `{}` may not depend on `{}`", edge.from, edge.to));
    }
    for (from, allowed) in may_use {
        for to in allowed.iter().filter(|to| !edges.iter().any(|e| e.from == *from && e.to == **to))
        {
            findings.push(format!(
                "crate `{from}` may depend on `{to}` by xtask/src/tidy.rs and does not"
            ));
        }
    }
    for to in DEV_ONLY.iter().filter(|to| !edges.iter().any(|e| e.to == **to && !allows(e))) {
        findings.push(format!("tests may depend on `{to}` by xtask/src/tidy.rs; none needs that"));
    }
}

/// Rules on one file.
fn file(name: &str, text: &str, findings: &mut Vec<String>) {
    let generated = text.lines().next().is_some_and(|line| line.contains("@generated"));
    let lines = text.lines().count();
    if lines > MAX_LINES && !generated {
        findings.push(format!("{name}: {lines} lines; at most {MAX_LINES}"));
    }
    let is_tidy = name.ends_with("xtask/src/tidy.rs");
    let may_be_unsafe = UNSAFE_ALLOWED.iter().any(|prefix| name.starts_with(prefix)) || is_tidy;
    let may_configure = MAY_CONFIGURE.contains(&name) || is_tidy;
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        let mut found = |what: String| findings.push(format!("{name}:{}: {what}", number + 1));
        if !may_be_unsafe
            && ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                .iter()
                .any(|u| code.contains(u))
        {
            found(format!("`unsafe` outside {}", UNSAFE_ALLOWED.join(", ")));
        }
        if !may_configure && code.contains("cfg(feature") {
            found("`cfg(feature` where nothing is chosen that is linked".into());
        }
        if code.contains("target-cpu=native") && !is_tidy {
            found("`target-cpu=native`: detection is at run time".into());
        }
        if !is_tidy {
            for (bad, good) in WORDS {
                if words(line).any(|word| word == *bad) {
                    found(format!("`{bad}`: say {good}"));
                }
            }
        }
    }
}

/// Returns the source folders of the crates whose manifest satisfies `says`.
fn sources_with(root: &Path, says: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<String>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).context("reading crates")? {
        let entry = entry?;
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap_or_default();
        if says(&format!("{manifest}\n")) {
            folders.push(format!("crates/{}/src/", entry.file_name().to_string_lossy()));
        }
    }
    Ok(folders)
}

/// Unit tests in a library that is not built for tests: nobody runs them.
fn unit_tests(name: &str, text: &str, findings: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        if line.trim() == "#[test]" {
            findings.push(format!(
                "{name}:{}: a test that never runs: `test = false` in its manifest",
                number + 1
            ));
        }
    }
}

/// Examples that would be tested if the manifest did not leave them out.
fn examples(name: &str, text: &str, findings: &mut Vec<String>) {
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let document = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(language) = document.and_then(|text| text.trim().strip_prefix("```")) else {
            continue;
        };
        if !inside && !["text", "ignore"].contains(&language) {
            let number = number + 1;
            findings.push(format!(
                "{name}:{number}: an example, but `doctest = false` in its manifest"
            ));
        }
        inside = !inside;
    }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Rust files of the product, build outputs left out.
fn rust_files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["crates", "xtask", "fuzz"].iter().map(|f| root.join(f)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        file(name, text, &mut findings);
        findings
    }

    #[test]
    fn each_rule_finds_its_breach() {
        assert_eq!(findings("crates/engine/src/a.rs", "fn f() { unsafe { g() } }").len(), 1);
        assert_eq!(findings("crates/cpu/src/a.rs", "fn f() { unsafe { g() } }").len(), 0);
        assert_eq!(findings("crates/engine/src/a.rs", "#[cfg(feature = \"x\")]").len(), 1);
        assert_eq!(findings("crates/engine/src/a.rs", "let n_embd = 3;").len(), 1);
        assert_eq!(findings("crates/engine/src/a.rs", &"\n".repeat(601)).len(), 1);
        assert_eq!(
            findings("crates/engine/src/a.rs", &format!("// @generated\n{}", "\n".repeat(601)))
                .len(),
            0
        );
    }

    #[test]
    fn examples_that_nobody_tests_are_found() {
        let found = |text: &str| {
            let mut findings = Vec::new();
            examples("crates/a/src/lib.rs", text, &mut findings);
            findings.len()
        };
        assert_eq!(found("//! ```text\n//! a | b\n//! ```\nfn f() {} // ```"), 0);
        assert_eq!(found("/// ```\n/// f();\n/// ```\n"), 1);
        assert_eq!(found("    /// ```text\n    /// ```\n    /// ```rust\n    /// ```\n"), 1);
    }

    #[test]
    fn tests_that_never_run_are_found() {
        let mut findings = Vec::new();
        unit_tests("crates/a/src/b.rs", "fn a() {}\n    #[test]\n    fn b() {}\n", &mut findings);
        let found = "crates/a/src/b.rs:2: a test that never runs: `test = false` in its manifest";
        assert_eq!(findings, [found]);
    }

    #[test]
    fn edges_and_permissions_are_the_same() {
        let edge =
            |from: &str, to: &str, in_tests| Edge { from: from.into(), to: to.into(), in_tests };
        // what tests alone may use is used
        let mut edges: Vec<Edge> = DEV_ONLY.iter().map(|to| edge("cpu", to, true)).collect();
        edges.push(edge("cpu", "kernels", false));
        let check = |edges: &[Edge]| {
            let mut findings = Vec::new();
            check_edges(edges, &[("cpu", &["kernels"])], &mut findings);
            findings
        };
        assert!(check(&edges).is_empty());
        let without_kernels = check(&edges[..edges.len() - 1]);
        assert_eq!(
            without_kernels,
            ["crate `cpu` may depend on `kernels` by xtask/src/tidy.rs and does not"]
        );
        let without_tests = check(&edges[1..]);
        assert!(without_tests[0].contains("none needs that"), "{without_tests:?}");
        edges.push(edge("cpu", "models", false));
        edges.push(edge("kernels", "quant", false));
        assert_eq!(
            check(&edges),
            ["crate `cpu` may not depend on `models`", "crate `kernels` may not depend on `quant`"]
        );
    }

    #[test]
    fn the_repository_is_in_order() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask stands in the root");
        run(root).expect("no findings");
    }
}
