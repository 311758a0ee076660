//! Reads one source file: the modules it declares and the paths in it.

use super::conditions::without_tests;
use super::tokens::{Kind, Token, tokens};

/// What a source file says of modules.
#[derive(Debug)]
pub(super) struct Source {
    /// The file itself, whose declaration is elsewhere, and the modules with a body in it, `mod name { … }`. Each comes
    /// after its parent.
    pub(super) scopes: Vec<Declaration>,
    /// Modules with a file of their own, `mod name;`.
    pub(super) declarations: Vec<Declaration>,
    pub(super) paths: Vec<Path>,
}

/// A declaration of a module.
#[derive(Debug, Default)]
pub(super) struct Declaration {
    pub(super) name: String,
    /// Where it is declared: an index into [`Source::scopes`].
    pub(super) parent: usize,
    /// Without `pub`: only the parent and what is in it may name the module.
    pub(super) is_private: bool,
}

/// A path of at least two names, or one that `use` imports.
#[derive(Debug)]
pub(super) struct Path {
    /// Index into [`Source::scopes`].
    pub(super) scope: usize,
    pub(super) line: usize,
    /// Names without a final `self`. The first is empty for `::name`, a `*` at the end is kept.
    pub(super) names: Vec<String>,
    pub(super) import: Import,
}

impl Path {
    /// The names that may be modules: of a name that `use` imports all, of other paths not the last, which is an item.
    pub(super) fn modules(&self) -> &[String] {
        match self.import {
            Import::Name(_) => &self.names,
            Import::None | Import::All => {
                self.names.split_last().map_or(&[], |(_, modules)| modules)
            }
        }
    }
}

/// What a path brings into scope.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Import {
    /// Nothing: a path in an expression, a type or an attribute.
    None,
    /// This name: the last of the path, or that after `as`.
    Name(String),
    /// All names: `*`.
    All,
}

impl Source {
    /// Reads the text of a file, without comments, strings and what is only for tests.
    pub(super) fn read(text: &str) -> Source {
        let tokens = without_tests(&tokens(text));
        let source = Source {
            scopes: vec![Declaration::default()],
            declarations: Vec::new(),
            paths: Vec::new(),
        };
        let mut reader = Reader { tokens: &tokens, at: 0, source, scope: 0 };
        reader.read_all();
        reader.source
    }
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    source: Source,
    /// Where the reader is: an index into the scopes.
    scope: usize,
}

impl<'a> Reader<'a> {
    /// Reads to the end.
    fn read_all(&mut self) {
        // for each open brace, the scope around it
        let mut outer = Vec::new();
        while let Some(token) = self.tokens.get(self.at) {
            match token.kind {
                Kind::Mark('{') => {
                    outer.push(self.scope);
                    self.at += 1;
                }
                Kind::Mark('}') => {
                    self.scope = outer.pop().unwrap_or(0);
                    self.at += 1;
                }
                Kind::Word("mod") => self.read_module(&mut outer),
                Kind::Word("pub") => self.skip_visibility(),
                Kind::Word("use") => self.read_use(),
                Kind::Word(_) => self.read_path(),
                _ => self.at += 1,
            }
        }
    }

    /// The kind of a token: of the next one, or `ahead` tokens behind it.
    fn kind(&self, ahead: usize) -> Option<Kind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    /// The same token if it is a word.
    fn word(&self, ahead: usize) -> Option<&'a str> {
        match self.kind(ahead) {
            Some(Kind::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// The kind of the token before the next one.
    fn before(&self) -> Option<Kind<'a>> {
        self.at.checked_sub(1).map(|at| self.tokens[at].kind)
    }

    /// `mod name;` or `mod name {`.
    fn read_module(&mut self, outer: &mut Vec<usize>) {
        let (Some(name), Some(Kind::Mark(mark @ (';' | '{')))) = (self.word(1), self.kind(2))
        else {
            self.at += 1;
            return;
        };
        // `)` ends the likes of `pub(crate)`
        let is_private = !matches!(self.before(), Some(Kind::Word("pub") | Kind::Mark(')')));
        let declaration = Declaration { name: name.to_owned(), parent: self.scope, is_private };
        self.at += 3;
        if mark == ';' {
            self.source.declarations.push(declaration);
        } else {
            outer.push(self.scope);
            self.scope = self.source.scopes.len();
            self.source.scopes.push(declaration);
        }
    }

    /// `pub`. A path in `pub(in path)` names modules that enclose the file, which it does not use.
    fn skip_visibility(&mut self) {
        self.at += 1;
        if self.kind(0) == Some(Kind::Mark('(')) && self.word(1) == Some("in") {
            while self.kind(0).is_some_and(|kind| kind != Kind::Mark(')')) {
                self.at += 1;
            }
        }
    }

    /// A path outside `use`.
    fn read_path(&mut self) {
        if self.kind(1) != Some(Kind::PathSep) {
            self.at += 1;
            return;
        }
        let line = self.tokens[self.at].line;
        let before = self.before();
        let mut names = Vec::new();
        while let Some(name) = self.word(0) {
            names.push(name.to_owned());
            self.at += 1;
            if self.kind(0) != Some(Kind::PathSep) || self.word(1).is_none() {
                break;
            }
            self.at += 1;
        }
        // the rest of `<T>::name`, `::name` or `$variable::name` is no path of this crate; `$crate` is
        let is_whole = match before {
            Some(Kind::PathSep) => false,
            Some(Kind::Mark('$')) => names[0] == "crate",
            _ => true,
        };
        if is_whole && names.len() > 1 {
            self.add_path(line, names, Import::None);
        }
    }

    /// `use tree;`. In `use<'a>` nothing is imported.
    fn read_use(&mut self) {
        self.at += 1;
        self.read_tree(&mut Vec::new());
    }

    /// One tree of `use`; `prefix` are the names before it.
    fn read_tree(&mut self, prefix: &mut Vec<String>) {
        let above = prefix.len();
        loop {
            let line = self.tokens.get(self.at).map_or(0, |token| token.line);
            match self.kind(0) {
                Some(Kind::PathSep) => {
                    if prefix.is_empty() {
                        prefix.push(String::new());
                    }
                    self.at += 1;
                }
                Some(Kind::Word(name)) => {
                    prefix.push(name.to_owned());
                    self.at += 1;
                    if self.kind(0) == Some(Kind::PathSep) {
                        self.at += 1;
                        continue;
                    }
                    self.add_import(line, prefix.clone());
                    break;
                }
                Some(Kind::Mark('*')) => {
                    self.at += 1;
                    let names = [&prefix[..], &["*".to_owned()]].concat();
                    self.add_path(line, names, Import::All);
                    break;
                }
                Some(Kind::Mark('{')) => {
                    self.at += 1;
                    self.read_list(prefix);
                    break;
                }
                _ => break,
            }
        }
        prefix.truncate(above);
    }

    /// The trees between braces, up to the closing one.
    fn read_list(&mut self, prefix: &mut Vec<String>) {
        loop {
            match self.kind(0) {
                Some(Kind::Mark('}')) => {
                    self.at += 1;
                    return;
                }
                Some(Kind::Word(_) | Kind::PathSep | Kind::Mark('*' | '{')) => {
                    self.read_tree(prefix)
                }
                Some(Kind::Mark(',')) => self.at += 1,
                _ => return,
            }
        }
    }

    /// A path of `use` whose last name was read: `as` may follow.
    fn add_import(&mut self, line: usize, mut names: Vec<String>) {
        if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
            names.pop();
        }
        let mut name = names.last().cloned().unwrap_or_default();
        if self.word(0) == Some("as")
            && let Some(alias) = self.word(1)
        {
            name = alias.to_owned();
            self.at += 2;
        }
        self.add_path(line, names, Import::Name(name));
    }

    fn add_path(&mut self, line: usize, names: Vec<String>, import: Import) {
        self.source.paths.push(Path { scope: self.scope, line, names, import });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of `text`, each as `scope names`, with `as name` where another is imported.
    fn paths(text: &str) -> Vec<String> {
        let source = Source::read(text);
        let shown = |path: &Path| {
            let mut scopes = Vec::new();
            let mut scope = path.scope;
            while scope != 0 {
                scopes.insert(0, source.scopes[scope].name.clone() + " ");
                scope = source.scopes[scope].parent;
            }
            let names = path.names.join("::");
            let alias = match &path.import {
                Import::Name(name) if path.names.last() != Some(name) => format!(" as {name}"),
                _ => String::new(),
            };
            scopes.concat() + &names + &alias
        };
        source.paths.iter().map(shown).collect()
    }

    #[test]
    fn trees_of_use_are_spelled_out() {
        for (text, expected) in [
            ("use a;", &["a"][..]),
            ("pub use a::b::C;", &["a::b::C"]),
            ("use a::{self, b::{c, d::*}, e,};", &["a", "a::b::c", "a::b::d::*", "a::e"]),
            ("use {a::b, c};", &["a::b", "c"]),
            ("use ::a::b;", &["::a::b"]),
            ("use super::super::a;", &["super::super::a"]),
            ("use self::a as b;", &["self::a as b"]),
            (
                "use crate::{self as root, a::{self as b, C as _}};",
                &["crate as root", "crate::a as b", "crate::a::C as _"],
            ),
            ("use a::{\n// crate::x\nb, /* c */ d};", &["a::b", "a::d"]),
            ("fn f() -> impl X + use<'a, T> { a::b() }", &["a::b"]),
        ] {
            assert_eq!(paths(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_outside_use() {
        for (text, expected) in [
            (
                "fn f(x: crate::a::B) -> c::D { super::e(); g() }",
                &["crate::a::B", "c::D", "super::e"][..],
            ),
            ("#[derive(a::B)] struct C;", &["a::B"]),
            ("let x = a::b::<c::D>::e; f.map(g::<u8>)", &["a::b", "c::D"]),
            ("<a::B as c::D>::E", &["a::B", "c::D"]),
            ("m!($crate::a::b, $x::c, ::d::e)", &["crate::a::b"]),
            ("pub(in crate::a) fn f() { b::c }", &["b::c"]),
            ("pub(crate) fn f(x: A<b::C>) {}", &["b::C"]),
            ("\"crate::a\"; 'b'; // c::d", &[]),
            ("#[cfg(test)] mod tests { use crate::a; } b::c", &["b::c"]),
        ] {
            assert_eq!(paths(text), expected, "{text}");
        }
    }

    #[test]
    fn modules_with_a_body_are_scopes() {
        let text = "mod a { use x; mod b { fn f() { y::z } } use w; } use v; mod c;";
        assert_eq!(paths(text), ["a x", "a b y::z", "a w", "v"]);
        let source = Source::read("mod a; pub mod b; pub(super) mod c; #[x] mod d { pub mod e; }");
        let declared: Vec<_> = source
            .declarations
            .iter()
            .map(|module| (module.name.as_str(), module.parent, module.is_private))
            .collect();
        let expected = [("a", 0, true), ("b", 0, false), ("c", 0, false), ("e", 1, false)];
        assert_eq!(declared, expected);
    }

    #[test]
    fn broken_text_ends() {
        for text in [
            "use",
            "use a::",
            "use a::{b",
            "use a as",
            "mod",
            "pub(in a",
            "a::",
            "}",
            "use {;}",
            "use a::{::b}",
            "use a::::b",
        ] {
            Source::read(text);
        }
    }
}
