//! `cargo xtask circles`: files of a crate that import each other in a circle.
//!
//! A circle is a strongly connected component of the graph whose nodes are files and whose edges are paths in code:
//! none of its files can be understood, moved or tested without all others. `tokens.rs` splits source text,
//! `conditions.rs` leaves out tests, `source.rs` reads paths, `modules.rs` finds the files they lead to, `graph.rs` finds
//! the circles, `report.rs` prints them. `cargo xtask tidy` holds each crate to the size in `tidy/circles.rs`.

mod conditions;
mod graph;
mod modules;
mod report;
mod source;
mod tokens;

use std::cmp::Reverse;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package, TargetKind};

pub(crate) use graph::Graph;

const HELP: &str = "\
cargo xtask circles [CRATE...] [OPTIONS]

Shows which source files of each crate import each other in a circle, the
largest circles first. For the largest of a crate it shows the single edges
whose removal makes it smallest.

An edge is a path in a file that leads to another file of the crate: in `use` or
in code, but not in comments, strings and what is only for tests. `mod x;` alone
is no edge. A path leads to the file of the deepest module it names, re-exports
are not followed. A name that the root imports from another crate is no edge.

  --edges           every edge within a circle, with lines and items
  --cut EDGE,...    as if these edges were gone: --cut 'a.rs->b.rs,c.rs->d.rs'
";

/// Prints the circles of the crates that the arguments name, or of all.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let Some(options) = Options::parse(args)? else {
        eprint!("{HELP}");
        return Ok(());
    };
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec();
    let text = options.report(&metadata.context("running cargo metadata")?)?;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing the report"),
    }
}

/// The graph of each crate of the workspace, with the crate's name.
///
/// # Errors
/// A source file is missing.
pub(crate) fn graphs(metadata: &Metadata) -> anyhow::Result<Vec<(String, Graph)>> {
    let packages = metadata.workspace_packages();
    packages.into_iter().map(|package| Ok((short_name(package), read_crate(package)?))).collect()
}

/// The name of the crate's folder: the package's without `rooflight-`.
fn short_name(package: &Package) -> String {
    package.name.trim_start_matches("rooflight-").to_owned()
}

/// Reads the library of a package, or its program if it has no library.
fn read_crate(package: &Package) -> anyhow::Result<Graph> {
    let target_is = |kinds: &[TargetKind]| {
        package.targets.iter().find(|target| kinds.iter().any(|kind| target.kind.contains(kind)))
    };
    let target = target_is(&[TargetKind::Lib, TargetKind::CDyLib])
        .or_else(|| target_is(&[TargetKind::Bin]))
        .with_context(|| format!("{} has no library or program", package.name))?;
    let (folder, file) = (target.src_path.parent(), target.src_path.file_name());
    let (folder, file) = folder.zip(file).context("a source file without a folder")?;
    modules::graph(file, |name| std::fs::read_to_string(folder.join(name)).ok())
        .with_context(|| format!("crate `{}`, in {folder}", short_name(package)))
}

/// What to show.
#[derive(Debug, Default, PartialEq)]
struct Options {
    /// Crates; all if empty.
    crates: Vec<String>,
    edges: bool,
    /// Names of edges to leave out.
    cuts: Vec<String>,
}

impl Options {
    /// Parses the arguments; `None` if they ask for help.
    fn parse(args: &[String]) -> anyhow::Result<Option<Options>> {
        let mut options = Options::default();
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            match arg {
                "--edges" => options.edges = true,
                "--cut" => {
                    let edges = args.next().context("--cut needs edges: --cut 'a.rs->b.rs'")?;
                    for edge in edges.split(',') {
                        let (from, to) = edge.split_once("->").with_context(|| {
                            format!("--cut: expected an edge such as a.rs->b.rs, found `{edge}`")
                        })?;
                        options.cuts.push(format!("{}->{}", from.trim(), to.trim()));
                    }
                }
                "help" | "-h" | "--help" => return Ok(None),
                option if option.starts_with('-') => bail!("{option}: no such option\n{HELP}"),
                name => options.crates.push(name.trim_start_matches("rooflight-").to_owned()),
            }
        }
        ensure!(
            options.cuts.is_empty() || options.crates.len() == 1,
            "--cut needs the name of one crate, whose edges to cut"
        );
        Ok(Some(options))
    }

    fn report(&self, metadata: &Metadata) -> anyhow::Result<String> {
        let packages = metadata.workspace_packages();
        let names: Vec<String> = packages.iter().map(|package| short_name(package)).collect();
        for name in &self.crates {
            ensure!(names.contains(name), "no crate `{name}`; there are: {}", names.join(" "));
        }
        let is_wanted = |name| self.crates.is_empty() || self.crates.contains(name);
        let mut graphs = Vec::new();
        for (name, package) in names.iter().zip(packages).filter(|(name, _)| is_wanted(name)) {
            let mut graph = read_crate(package)?;
            for cut in &self.cuts {
                ensure!(
                    graph.cut(cut),
                    "--cut: crate `{name}` has no edge {cut}, or it is given twice; \
                     `cargo xtask circles {name} --edges` shows those in circles"
                );
            }
            graphs.push((name, graph));
        }
        graphs.sort_by_key(|(name, graph)| (Reverse(graph.largest_circle()), *name));
        let report = |(name, graph): &(&String, Graph)| report::report(name, graph, self.edges);
        Ok(graphs.iter().map(report).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> anyhow::Result<Option<Options>> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_say_what_to_show() {
        let options = |crates: &[&str], edges, cuts: &[&str]| Options {
            crates: crates.iter().map(|name| (*name).to_owned()).collect(),
            edges,
            cuts: cuts.iter().map(|edge| (*edge).to_owned()).collect(),
        };
        for (args, expected) in [
            (&[][..], options(&[], false, &[])),
            (&["cli", "rooflight-cpu", "--edges"], options(&["cli", "cpu"], true, &[])),
            (&["rooflight"], options(&["rooflight"], false, &[])),
            (
                &["cli", "--cut", "a.rs->b.rs, c.rs -> d.rs"],
                options(&["cli"], false, &["a.rs->b.rs", "c.rs->d.rs"]),
            ),
        ] {
            assert_eq!(parse(args).expect("valid"), Some(expected), "{args:?}");
        }
        assert_eq!(parse(&["cli", "--help"]).expect("valid"), None);
    }

    #[test]
    fn arguments_that_mean_nothing_are_refused() {
        for (args, expected) in [
            (&["cli", "--cut"][..], "--cut needs edges"),
            (&["cli", "--cut", "a.rs"], "expected an edge such as a.rs->b.rs, found `a.rs`"),
            (&["--cut", "a.rs->b.rs"], "--cut needs the name of one crate"),
            (&["cli", "cpu", "--cut", "a.rs->b.rs"], "--cut needs the name of one crate"),
            (&["--edge"], "--edge: no such option"),
        ] {
            let error = parse(args).expect_err("refused").to_string();
            assert!(error.contains(expected), "{args:?}: {error}");
        }
    }

    #[test]
    fn crates_and_cuts_are_those_of_the_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let metadata = MetadataCommand::new().current_dir(root).no_deps().exec().expect("metadata");
        let report = |args: &[&str]| {
            let options = parse(args).expect("valid").expect("no help");
            options.report(&metadata).map_err(|error| error.to_string())
        };
        let xtask = report(&["xtask"]).expect("a crate");
        assert!(xtask.starts_with("xtask: "), "{xtask}");
        let error = report(&["nonsense"]).expect_err("no crate");
        assert!(error.starts_with("no crate `nonsense`; there are: "), "{error}");
        let error = report(&["xtask", "--cut", "tidy.rs->tidy.rs"]).expect_err("no edge");
        assert!(error.starts_with("--cut: crate `xtask` has no edge tidy.rs->tidy.rs"), "{error}");
        let cut = report(&["xtask", "--cut", "tidy.rs->licenses.rs"]).expect("an edge");
        assert_ne!(cut, xtask);
    }

    #[test]
    fn a_made_up_crate_has_its_circles() {
        let files = [
            (
                "lib.rs",
                "//! use crate::chat::never;\npub mod chat; mod terminal; mod text; pub use chat::Chat;",
            ),
            (
                "chat/mod.rs",
                "mod edit; use edit::Line; use crate::{terminal::Screen as Shown, text};
                 fn f() { text::width(\"crate::Chat\") }",
            ),
            (
                "chat/edit.rs",
                "use super::Chat; use super::super::text::{self, Width}; fn f(c: &'static char) -> char { '\"' }",
            ),
            ("terminal.rs", "use crate::text; #[cfg(test)] mod tests { use crate::chat::Chat; }"),
            ("text.rs", "mod wide; fn f() { wide::g(r#\"use crate::chat;\"#) }"),
            ("text/wide.rs", "pub use super::Width;"),
        ];
        let read = |name: &str| {
            files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned())
        };
        let graph = modules::graph("lib.rs", read).expect("all files");
        let expected = "\
made-up: 6 files, 9 edges, 2 circles
  circle of 2 files: chat/edit.rs, chat/mod.rs
    chat/edit.rs->chat/mod.rs 1 Chat
    chat/mod.rs->chat/edit.rs 1 Line
  largest remaining circle after cutting one edge:
    none  chat/edit.rs->chat/mod.rs (1 place)
    none  chat/mod.rs->chat/edit.rs (1 place)
  circle of 2 files: text.rs, text/wide.rs
    text.rs->text/wide.rs 1 g
    text/wide.rs->text.rs 1 Width
";
        assert_eq!(report::report("made-up", &graph, true), expected);
    }
}
