//! `cargo xtask licenses`: writes the file that `rooflight licenses` prints, the licences of everything that is linked
//! into the program.
//!
//! A package that offers several licences is taken under the first of [`ALLOWED`] that it offers. The Apache License
//! needs its text only once; of other licences, texts that differ in their copyright lines alone are printed once, with
//! all of these lines. A package whose published folder has no text of its licence gets the standard text of that
//! licence, with the authors of its manifest.
//!
//! Packages come from `cargo metadata`, but what is linked from `cargo tree`: the former adds up the features that any
//! crate of the workspace asks for, also in tests. Procedural macros and build scripts are not linked.
//!
//! The list is checked by `tidy/licenses.rs`.

mod expression;
mod notice;
mod page;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use cargo_metadata::{CargoOpt, Metadata, MetadataCommand};

pub(crate) use self::expression::Expression;
pub(crate) use self::page::packages_of;

/// The written file, seen from the repository's root.
pub(crate) const FILE: &str = "crates/cli/assets/licenses.txt";

/// Licences that every package may have; of several that it offers, the first here is chosen.
///
/// The Apache License comes first, for its text is the same for all. Then come short texts that are printed once, with
/// the copyright lines of all packages.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "MIT",
    "ISC",
    "Zlib",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "MIT-0",
    "BSL-1.0",
    "Unicode-3.0",
    "CC0-1.0",
    "Apache-2.0 WITH LLVM-exception",
];

/// Licences that single packages may have.
pub(crate) const ALLOWED_FOR: &[(&str, &str)] = &[
    // certificates of authorities: data, whose licence is to be passed on
    ("webpki-roots", "CDLA-Permissive-2.0"),
];

/// Platforms that the program is built for.
const PLATFORMS: [&str; 6] = [
    "aarch64-apple-darwin",
    "aarch64-pc-windows-msvc",
    "aarch64-unknown-linux-gnu",
    "x86_64-apple-darwin",
    "x86_64-pc-windows-msvc",
    "x86_64-unknown-linux-gnu",
];

/// Writes the file.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let graph = Graph::new(root)?;
    ensure!(graph.all_platforms, "packages for some platforms are missing: they need a network");
    let linked: Vec<Package> = graph
        .packages()
        .into_iter()
        .filter(|package| graph.linked.contains(&package.id()))
        .collect();
    let text = page::write(root, &linked)?;
    let path = root.join(FILE);
    std::fs::create_dir_all(path.parent().expect("it is in a folder"))?;
    std::fs::write(&path, &text).with_context(|| format!("writing {FILE}"))?;
    eprintln!("licenses: {} packages, {} bytes in {FILE}", linked.len(), text.len());
    Ok(())
}

/// Place of a licence of `package` in the order of choice; `None` if the package may not have it.
pub(crate) fn rank(package: &str, licence: &str) -> Option<usize> {
    let special = ALLOWED_FOR.iter().position(|entry| *entry == (package, licence));
    let general = ALLOWED.iter().position(|allowed| *allowed == licence);
    general.or_else(|| special.map(|place| ALLOWED.len() + place))
}

/// A package of another project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression of its manifest.
    pub(crate) license: Option<String>,
    authors: Vec<String>,
    /// Folder that its manifest is in.
    folder: PathBuf,
}

/// Name and version.
pub(crate) type PackageId = (String, String);

impl Package {
    pub(crate) fn id(&self) -> PackageId {
        (self.name.clone(), self.version.clone())
    }

    /// A package without files.
    #[cfg(test)]
    pub(crate) fn example(name: &str, license: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            license: license.map(str::to_owned),
            authors: Vec::new(),
            folder: PathBuf::new(),
        }
    }
}

/// Packages that the workspace depends on.
pub(crate) struct Graph {
    pub(crate) metadata: Metadata,
    /// Packages of other projects that are linked into the program.
    pub(crate) linked: BTreeSet<PackageId>,
    /// Complete; otherwise only packages for this machine are known.
    pub(crate) all_platforms: bool,
}

impl Graph {
    /// Reads manifests of packages for all platforms; cargo downloads those that are missing.
    ///
    /// Without a network only packages for this machine are read, and a line says so.
    pub(crate) fn new(root: &Path) -> anyhow::Result<Graph> {
        if let Ok(graph) = Graph::read(root, &PLATFORMS, &["--offline"]) {
            return Ok(graph);
        }
        let error = match Graph::read(root, &PLATFORMS, &[]) {
            Ok(graph) => return Ok(graph),
            Err(error) => error,
        };
        let error = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
        eprintln!("skipped: licences of packages for other platforms: {error}");
        let here = Graph::read(root, &["host-tuple"], &["--offline"])?;
        Ok(Graph { all_platforms: false, ..here })
    }

    fn read(root: &Path, platforms: &[&str], options: &[&str]) -> anyhow::Result<Graph> {
        let with = |option: &str| -> Vec<String> {
            let platforms = platforms.iter().flat_map(|platform| [option, platform]);
            let options = options.iter().copied().chain(["--locked"]);
            options.chain(platforms).map(str::to_owned).collect()
        };
        let metadata = MetadataCommand::new()
            .current_dir(root)
            .features(CargoOpt::AllFeatures)
            .other_options(with("--filter-platform"))
            .exec()
            .context("running cargo metadata")?;
        let tree = Command::new(env!("CARGO"))
            .args(["tree", "--package", "rooflight-cli", "--features", "hub,wgpu,cuda"])
            .args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"])
            .args(with("--target"))
            .current_dir(root)
            .output()
            .context("running cargo tree")?;
        if !tree.status.success() {
            bail!("cargo tree failed: {}", String::from_utf8_lossy(&tree.stderr));
        }
        let own: Vec<&str> =
            metadata.workspace_packages().iter().map(|p| p.name.as_str()).collect();
        let linked = linked(&String::from_utf8_lossy(&tree.stdout), &own);
        Ok(Graph { metadata, linked, all_platforms: true })
    }

    /// Packages of other projects, for any purpose.
    pub(crate) fn packages(&self) -> Vec<Package> {
        let own = &self.metadata.workspace_members;
        let mut packages: Vec<Package> = self
            .metadata
            .packages
            .iter()
            .filter(|package| !own.contains(&package.id))
            .map(|package| Package {
                name: package.name.to_string(),
                version: package.version.to_string(),
                license: package.license.clone(),
                authors: package.authors.clone(),
                folder: package.manifest_path.parent().map(PathBuf::from).unwrap_or_default(),
            })
            .collect();
        packages.sort();
        packages
    }
}

/// Packages that `cargo tree` lists, without those of the workspace.
fn linked(tree: &str, own: &[&str]) -> BTreeSet<PackageId> {
    tree.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (name, version) = (words.next()?, words.next()?);
            let version = version.strip_prefix('v')?;
            (!own.contains(&name)).then(|| (name.to_owned(), version.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_packages_are_read_once_and_without_our_own() {
        let tree =
            "rooflight v0.1.0 (/home/us)\nserde v1.0.2\n\nash v0.38.0+1.3 (*)\nserde v1.0.2 (*)\n";
        let id = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let expected = BTreeSet::from([id("ash", "0.38.0+1.3"), id("serde", "1.0.2")]);
        assert_eq!(linked(tree, &["rooflight", "rooflight-cpu"]), expected);
    }

    #[test]
    fn a_licence_for_one_package_is_for_no_other() {
        assert_eq!(rank("serde", "Apache-2.0"), Some(0));
        let (package, licence) = ALLOWED_FOR[0];
        assert_eq!(rank(package, licence), Some(ALLOWED.len()));
        assert_eq!(rank("serde", licence), None);
        assert_eq!(rank(package, "GPL-3.0-only"), None);
    }
}
