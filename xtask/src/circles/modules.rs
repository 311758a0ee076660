//! Finds the files of a crate and the files that their paths lead to.
//!
//! A path leads to the file of the deepest module it names: `crate::a::b::Item` to `a/b.rs`. Re-exports are not
//! followed: an item that `lib.rs` re-exports from `a.rs` is an import from `lib.rs`. There is one exception, names that
//! the root imports from another crate: they belong to that crate.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use super::graph::{Graph, Usage};
use super::source::{Declaration, Import, Path, Source};

/// Index of the root among the modules.
const ROOT: usize = 0;

/// Reads a crate: `root` is the name of its first file, `read` returns the text of a file, or `None` if there is none.
///
/// # Errors
/// A file that a module declaration needs cannot be read.
pub(super) fn graph(root: &str, read: impl Fn(&str) -> Option<String>) -> anyhow::Result<Graph> {
    let mut modules = Modules::load(root, read)?;
    modules.import_modules();
    Ok(modules.graph())
}

/// A module, with a file of its own or within one.
#[derive(Default)]
struct Module {
    /// Index of its file.
    file: usize,
    parent: usize,
    is_private: bool,
    /// Where files of its children are, ending with a slash; empty for the root.
    folder: String,
    children: BTreeMap<String, usize>,
    /// Modules that `use` brings into scope.
    imported: BTreeMap<String, usize>,
}

struct Modules {
    modules: Vec<Module>,
    /// Names of files.
    files: Vec<String>,
    /// Paths of all files, each with the module it is in.
    paths: Vec<(usize, Path)>,
}

impl Modules {
    fn load(root: &str, read: impl Fn(&str) -> Option<String>) -> anyhow::Result<Modules> {
        let modules = vec![Module::default()];
        let mut all = Modules { modules, files: Vec::new(), paths: Vec::new() };
        let text = read(root).with_context(|| format!("cannot read {root}"))?;
        let mut unread = vec![(ROOT, root.to_owned(), text)];
        while let Some((module, file, text)) = unread.pop() {
            // one file may be declared twice, for different systems
            if all.files.contains(&file) {
                continue;
            }
            for declared in all.add_file(module, &file, &text) {
                let name = &declared.name;
                let path = format!("{}{name}", all.modules[declared.parent].folder);
                let places = [format!("{path}.rs"), format!("{path}/mod.rs")];
                let found = places.into_iter().find_map(|place| Some((read(&place)?, place)));
                let (text, place) = found.with_context(|| {
                    format!(
                        "cannot read {path}.rs or {path}/mod.rs, which `mod {name};` in {file} names; \
                         `#[path]` is not supported"
                    )
                })?;
                unread.push((all.add(declared), place, text));
            }
        }
        Ok(all)
    }

    /// The module of a declaration whose parent is an index into `modules`. It is new unless it was declared before, for
    /// another system.
    fn add(&mut self, Declaration { name, parent, is_private }: Declaration) -> usize {
        let new = self.modules.len();
        let Module { file, ref folder, .. } = self.modules[parent];
        let folder = format!("{folder}{name}/");
        let child = *self.modules[parent].children.entry(name).or_insert(new);
        if child == new {
            self.modules.push(Module { file, parent, is_private, folder, ..Module::default() });
        }
        self.modules[child].is_private &= is_private;
        child
    }

    /// Reads the text of a module's file. Returns the modules it declares in other files; their parents are indices into
    /// `modules`.
    fn add_file(&mut self, module: usize, name: &str, text: &str) -> Vec<Declaration> {
        self.modules[module].file = self.files.len();
        self.files.push(name.to_owned());
        let source = Source::read(text);
        let mut scopes = vec![module];
        for declared in source.scopes.into_iter().skip(1) {
            let parent = scopes[declared.parent];
            scopes.push(self.add(Declaration { parent, ..declared }));
        }
        self.paths.extend(source.paths.into_iter().map(|path| (scopes[path.scope], path)));
        let declared = source.declarations.into_iter();
        declared.map(|module| Declaration { parent: scopes[module.parent], ..module }).collect()
    }

    /// Follows a path as far as modules go: the module, and how many names led there. `None` for another crate's.
    fn follow(&self, from: usize, names: &[String]) -> Option<(usize, usize)> {
        let (first, names) = names.split_first()?;
        let mut module = match first.as_str() {
            "crate" => ROOT,
            "self" => from,
            "super" => self.modules[from].parent,
            name => {
                let start = &self.modules[from];
                *start.children.get(name).or_else(|| start.imported.get(name))?
            }
        };
        let mut followed = 1;
        for name in names {
            module = match self.modules[module].children.get(name) {
                _ if name == "super" => self.modules[module].parent,
                Some(child) if self.may_name(from, *child) => *child,
                _ => break,
            };
            followed += 1;
        }
        Some((module, followed))
    }

    /// Whether a module may name another one: if not, the name is that of an item, such as a function of the same name.
    fn may_name(&self, from: usize, module: usize) -> bool {
        let Module { parent, is_private, .. } = self.modules[module];
        let mut around = from;
        while is_private && around != parent {
            if around == ROOT {
                return false;
            }
            around = self.modules[around].parent;
        }
        true
    }

    /// Brings the modules into scope that `use` imports, until nothing is new: one import may need another.
    fn import_modules(&mut self) {
        loop {
            let mut is_new = false;
            for (at, name, target) in self.imports() {
                let module = &mut self.modules[at];
                if !module.children.contains_key(&name) && !module.imported.contains_key(&name) {
                    module.imported.insert(name, target);
                    is_new = true;
                }
            }
            if !is_new {
                return;
            }
        }
    }

    /// The modules that `use` imports, as far as they are known: where, under which name, and which.
    fn imports(&self) -> Vec<(usize, String, usize)> {
        let mut imports = Vec::new();
        for (at, path) in self.paths.iter().filter(|(_, path)| path.import != Import::None) {
            let target = match self.follow(*at, path.modules()) {
                Some((target, followed)) if followed == path.modules().len() => target,
                _ => continue,
            };
            if let Import::Name(name) = &path.import {
                imports.push((*at, name.clone(), target));
            } else {
                let Module { children, imported, .. } = &self.modules[target];
                let all = children.iter().chain(imported);
                let visible = all.filter(|(_, module)| self.may_name(*at, **module));
                imports.extend(visible.map(|(name, module)| (*at, name.clone(), *module)));
            }
        }
        imports
    }

    /// Names that the root imports from other crates.
    fn names_from_other_crates(&self) -> BTreeSet<&str> {
        let imports = self.paths.iter().filter(|(at, _)| *at == ROOT);
        imports
            .filter_map(|(at, path)| match &path.import {
                Import::Name(name) if self.follow(*at, &path.names).is_none() => {
                    Some(name.as_str())
                }
                _ => None,
            })
            .collect()
    }

    /// The edges between different files.
    fn graph(self) -> Graph {
        let from_other_crates = self.names_from_other_crates();
        let mut edges = Vec::new();
        for (at, path) in &self.paths {
            let Some((target, followed)) = self.follow(*at, path.modules()) else { continue };
            let item = &path.names[followed..];
            if target == ROOT
                && item.first().is_some_and(|n| from_other_crates.contains(n.as_str()))
            {
                continue;
            }
            let (from, to) = (self.modules[*at].file, self.modules[target].file);
            if from != to {
                edges.push((from, to, Usage { line: path.line, item: item.join("::") }));
            }
        }
        Graph::new(&self.files, edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The edges of a made-up crate, each with what it uses.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let read = |name: &str| {
            files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned())
        };
        let graph = graph(files[0].0, read).expect("all files are there");
        let shown = |(edge, usages): (&(usize, usize), &Vec<Usage>)| {
            let items: Vec<&str> = usages.iter().map(|usage| usage.item.as_str()).collect();
            format!("{} {}", graph.name(*edge), items.join(" ")).trim_end().to_owned()
        };
        graph.edges.iter().map(shown).collect()
    }

    #[test]
    fn paths_lead_to_the_deepest_module() {
        let lib = ("lib.rs", "mod a; mod c;");
        let c = ("c.rs", "");
        for (a, b, expected) in [
            ("mod b; use crate::c::d::E;", "", &["a.rs->c.rs d::E"][..]),
            ("mod b; fn f() { b::g() }", "use super::F;", &["a.rs->a/b.rs g", "a/b.rs->a.rs F"]),
            ("mod b; use self::b::*;", "use super::super::c;", &["a.rs->a/b.rs *", "a/b.rs->c.rs"]),
            (
                "mod b;",
                "use crate::{a::{self, b::X}, c, Y};",
                &["a/b.rs->a.rs", "a/b.rs->c.rs", "a/b.rs->lib.rs Y"],
            ),
            ("mod b;", "use std::fmt; use c::d; fn f() { a::g() }", &[]),
        ] {
            assert_eq!(edges(&[lib, ("a.rs", a), ("a/b.rs", b), c]), expected, "{a} {b}");
            // the other way to name the same files
            let mut expected: Vec<_> =
                expected.iter().map(|e| e.replace("a.rs", "a/mod.rs")).collect();
            expected.sort();
            assert_eq!(edges(&[lib, ("a/mod.rs", a), ("a/b.rs", b), c]), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_declaration_alone_is_no_edge() {
        assert!(
            edges(&[("lib.rs", "pub mod a;"), ("a.rs", "pub(crate) mod b;"), ("a/b.rs", "")])
                .is_empty()
        );
    }

    #[test]
    fn imported_modules_are_followed() {
        let files = |a| {
            edges(&[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", a),
                ("b.rs", "pub mod c;"),
                ("b/c.rs", ""),
            ])
        };
        let expected = ["a.rs->b.rs", "a.rs->b/c.rs d"];
        for a in [
            "use super::b; fn f() { b::c::d() }",
            "use crate::b as x; fn f() { x::c::d() }",
            "fn f() { y::c::d() } use x as y; use crate::b as x;",
        ] {
            let found = files(a);
            assert_eq!([&found[0], found.last().expect("edges")], expected, "{a}");
        }
        assert_eq!(files("use crate::b::*; fn f() { c::d() }"), ["a.rs->b.rs *", "a.rs->b/c.rs d"]);
        assert_eq!(files("use super::*; fn f() { b::d() }"), ["a.rs->b.rs d", "a.rs->lib.rs *"]);
    }

    #[test]
    fn a_function_is_not_the_module_of_its_name() {
        let a = "mod sort; pub use sort::sort; pub mod find; pub use find::find;";
        let files = |b| {
            let files = [("a.rs", a), ("a/sort.rs", ""), ("a/find.rs", ""), ("b.rs", b)];
            let mut edges = edges(&[&[("lib.rs", "mod a; mod b;")], &files[..]].concat());
            edges.retain(|edge| edge.starts_with("b.rs"));
            edges
        };
        assert_eq!(
            files("fn f() { crate::a::sort(); crate::a::find() }"),
            ["b.rs->a.rs sort find"]
        );
        // `sort` is private: what can be imported is the function. `find` may be both
        assert_eq!(files("use crate::a::{sort, find};"), ["b.rs->a.rs sort", "b.rs->a/find.rs"]);
        assert_eq!(files("use crate::a::*; fn f() { sort::x() }"), ["b.rs->a.rs *"]);
    }

    #[test]
    fn re_exports_are_edges_of_who_re_exports() {
        let lib = "mod a; mod b; pub use a::A; pub use other::{Other, Third as Renamed};";
        let b = "use crate::{A, Other}; fn f(x: crate::Renamed, y: crate::Third) {}";
        let found = edges(&[("lib.rs", lib), ("a.rs", ""), ("b.rs", b)]);
        // what comes of another crate is no edge; `Third` is no name of the root
        assert_eq!(found, ["b.rs->lib.rs A Third", "lib.rs->a.rs A"]);
    }

    #[test]
    fn modules_within_a_file_are_the_file() {
        let a = "pub mod unix { use super::f; use super::super::b::g; use self::h; mod c; }
                 mod windows { use super::*; fn f() { d::x() } } mod d;";
        let b = "use crate::a::unix::X;";
        let found = edges(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", a),
            ("a/unix/c.rs", "use super::Y;"),
            ("a/d.rs", ""),
            ("b.rs", b),
        ]);
        assert_eq!(
            found,
            ["a.rs->a/d.rs x", "a.rs->b.rs g", "a/unix/c.rs->a.rs Y", "b.rs->a.rs X"]
        );
    }

    #[test]
    fn code_of_tests_is_no_edge() {
        let lib = "mod a; #[cfg(test)] mod tests; #[cfg(all(test, unix))] mod b { use crate::a::X; }
                   #[cfg(unix)] mod sys { use crate::a::Y; } #[cfg(windows)] mod sys { use crate::a::Z; }
                   #[cfg(unix)] pub mod a; #[cfg(windows)] mod a;";
        assert_eq!(edges(&[("lib.rs", lib), ("a.rs", "")]), ["lib.rs->a.rs Y Z"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = |text: &str| {
            let read = |name: &str| (name == "lib.rs").then(|| text.to_owned());
            graph("lib.rs", read).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(
            error("mod a;")
                .starts_with("cannot read a.rs or a/mod.rs, which `mod a;` in lib.rs names")
        );
        assert_eq!(error(""), "");
        assert!(graph("main.rs", |_| None).is_err());
    }
}
