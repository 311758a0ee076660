//! What a package wants passed on with it, read from the files of its published folder.
//!
//! Files count by their names: `LICENSE`, `COPYING`, `COPYRIGHT`, `NOTICE` and the like, also in folders inside, where
//! code of others is. Those of licences that are offered but not chosen are left out, and so are files that only point
//! to others. Where the text of a licence is missing, the standard one takes its place.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Expression, Package, rank};

/// The licence whose text is printed once for all.
pub(super) const APACHE: &str = "Apache-2.0";

/// Stands for the text of the Apache License inside other texts.
const APACHE_REFERENCE: &str = "(Here is the text of the Apache License, Version 2.0, as above.)";

/// Terms of licences that packages name without publishing their text, as SPDX has them. Those of the MIT License are in
/// our own.
const STANDARD: &[(&str, &str)] = &[("BSL-1.0", include_str!("texts/BSL-1.0.txt"))];

/// Folders whose files are not part of a library.
const NOT_LINKED: &[&str] = &["benches", "examples", "fuzz", "target", "test", "tests"];

/// Shorter texts without a copyright line grant nothing: they say which files do.
const SHORTEST_LICENCE: usize = 1_000;

/// Terms of a package or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// Name and version of the package, with the file if that is about a part.
    pub(super) subject: String,
    /// Licence, where that is certain.
    pub(super) licence: Option<String>,
    /// Copyright lines before the terms.
    pub(super) copyright: Vec<String>,
    /// Lines of the terms.
    pub(super) terms: String,
}

/// What a package wants passed on.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) list: Vec<Notice>,
    /// Needs the text of the Apache License.
    pub(super) apache: bool,
    /// Has a file that may be the text of any of its licences.
    unnamed: bool,
}

/// Reads the notices of a package; `mit_terms` are the terms of the MIT licence.
///
/// # Errors
/// If its licences are not allowed, a file cannot be read, or a text is missing that has no standard form here.
pub(super) fn read(package: &Package, mit_terms: &str) -> anyhow::Result<Notices> {
    let subject = format!("{} {}", package.name, package.version);
    let text = package.license.as_deref().with_context(|| format!("{subject} has no licence"))?;
    let expression = Expression::parse(text).context(subject.clone())?;
    let chosen = expression
        .choose(&|licence| rank(&package.name, licence))
        .with_context(|| format!("{subject}: `{text}` is not allowed"))?;
    let mut files = Vec::new();
    for path in licence_files(&package.folder)? {
        let bytes = std::fs::read(package.folder.join(&path))
            .with_context(|| format!("{subject}: reading {}", path.display()))?;
        files.push((path.to_string_lossy().replace('\\', "/"), clean(&bytes)));
    }
    let mut notices = from_files(&subject, &expression.licences(), &chosen, &files);
    for licence in chosen.iter().filter(|licence| **licence != APACHE) {
        let is_text = |notice: &Notice| notice.licence.as_deref() == Some(licence);
        if !notices.unnamed && !notices.list.iter().any(is_text) {
            let mut standard = STANDARD.iter().copied().chain([("MIT", mit_terms)]);
            let (_, terms) = standard.find(|(name, _)| name == licence).with_context(|| {
                format!("{subject} has no text of {licence}, nor has xtask/src/licenses/texts")
            })?;
            notices.list.push(Notice {
                subject: subject.clone(),
                licence: Some((*licence).to_owned()),
                copyright: vec![holders(package)],
                terms: terms.to_owned(),
            });
        }
    }
    Ok(notices)
}

/// Copyright line of a package that has published none, from the authors of its manifest.
fn holders(package: &Package) -> String {
    match package.authors.as_slice() {
        [] => format!("Copyright (c) the {} authors", package.name),
        authors => format!("Copyright (c) {}", authors.join(", ")),
    }
}

/// Notices in the files of a package: paths in its folder and texts.
fn from_files(
    subject: &str,
    offered: &[&str],
    chosen: &[&str],
    files: &[(String, String)],
) -> Notices {
    let mut notices = Notices { apache: chosen.contains(&APACHE), ..Notices::default() };
    for (path, text) in files {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let named: Vec<&str> =
            offered.iter().copied().filter(|licence| is_named(file, licence)).collect();
        let licence = named.iter().copied().find(|licence| chosen.contains(licence));
        if licence.is_none() && !named.is_empty() {
            continue;
        }
        let (text, has_apache) = without_apache(text);
        notices.apache |= has_apache;
        let is_notice = file.to_uppercase().starts_with("NOTICE");
        let is_pointer = licence.is_none() && !is_notice && is_pointer(&text);
        if licence == Some(APACHE) || text.trim() == APACHE_REFERENCE || is_pointer {
            continue;
        }
        let only = match chosen {
            [only] if *only != APACHE && folder.is_empty() && !is_notice => Some(*only),
            _ => None,
        };
        let (copyright, terms) = split(&text);
        let licence = licence.or(only).map(str::to_owned);
        notices.unnamed |= licence.is_none() && folder.is_empty() && !is_notice;
        let is_part = !folder.is_empty() || licence.is_none();
        let subject = if is_part { format!("{subject} ({path})") } else { subject.to_owned() };
        notices.list.push(Notice { subject, licence, copyright, terms });
    }
    notices
}

/// Files with licences in a folder and those inside, as sorted paths from there.
fn licence_files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if entry.file_type()?.is_dir() {
                if !NOT_LINKED.contains(&name.as_str()) && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if has_licence_name(&name) {
                files.push(path.strip_prefix(root).unwrap_or(&path).to_path_buf());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn has_licence_name(file: &str) -> bool {
    let file = file.to_uppercase();
    let starts = ["LICENSE", "LICENCE", "UNLICENSE", "NOTICE", "COPYING", "COPYRIGHT"];
    let code = [".RS", ".C", ".H", ".PY", ".JS", ".JSON", ".TOML", ".YML", ".HTML"];
    starts.iter().any(|start| file.starts_with(start))
        && !code.iter().any(|end| file.ends_with(end))
}

/// The name of a file tells that it has the text of a licence: `LICENSE-MIT`, `LICENSE.APACHE`.
fn is_named(file: &str, licence: &str) -> bool {
    let file = file.to_uppercase();
    let words: Vec<&str> = file.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let licence = licence.to_uppercase();
    let family = licence.split(['-', ' ']).next().unwrap_or_default();
    let has_family = words.contains(&family) || (family == "BSL" && words.contains(&"BOOST"));
    has_family && words.contains(&"EXCEPTION") == licence.contains("EXCEPTION")
}

/// Text for any terminal: lines without blanks at the end, tabs and control characters.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\t', "    ");
    let is_text = |c: &char| !c.is_control() && *c != '\u{feff}';
    let line = |line: &str| line.chars().filter(is_text).collect::<String>().trim_end().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Replaces the text of the Apache License by a reference to it, and tells whether there was one.
fn without_apache(text: &str) -> (String, bool) {
    let lines: Vec<&str> = text.lines().collect();
    let find = |from: usize, what: &str| {
        lines.iter().skip(from).position(|line| line.trim() == what).map(|at| from + at)
    };
    let begin = (0..lines.len()).find(|at| {
        let next = lines[at + 1..].iter().map(|line| line.trim()).find(|line| !line.is_empty());
        lines[*at].trim() == "Apache License" && next == Some("Version 2.0, January 2004")
    });
    let Some((begin, mut end)) =
        begin.and_then(|begin| Some((begin, find(begin, "END OF TERMS AND CONDITIONS")?)))
    else {
        return (text.to_owned(), false);
    };
    // the appendix tells how to apply the licence; its notice ends so
    let next = lines[end + 1..].iter().map(|line| line.trim()).find(|line| !line.is_empty());
    if next.is_some_and(|line| line.starts_with("APPENDIX")) {
        end = find(end, "limitations under the License.").unwrap_or(end);
    }
    let parts = [&lines[..begin], &[APACHE_REFERENCE], &lines[end + 1..]];
    (parts.concat().join("\n"), true)
}

fn is_pointer(text: &str) -> bool {
    text.len() < SHORTEST_LICENCE && !text.lines().any(is_copyright)
}

/// `Copyright (c) 2020 Somebody`, also in comments.
fn is_copyright(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '/', '*', '#', '-']).to_lowercase();
    let holds = ["(c)", "©"].iter().any(|sign| line.contains(sign))
        || line.contains(|c: char| c.is_ascii_digit());
    holds && ["copyright", "(c)", "©"].iter().any(|start| line.starts_with(start))
}

/// Splits a text into the copyright lines that it begins with and the terms.
///
/// A title before is left out where packages give one licence different titles.
pub(super) fn split(text: &str) -> (Vec<String>, String) {
    let mut copyright = Vec::new();
    let mut rest = text.trim_matches('\n');
    loop {
        let (paragraph, after) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let first = paragraph.lines().next().unwrap_or_default();
        let grants = ["ermission", "edistribution"].iter().any(|word| paragraph.contains(word));
        let names = ["MIT", "ISC", "BSD", "zlib"].iter().any(|name| paragraph.contains(name));
        let is_title =
            names && paragraph.len() < 45 && paragraph.to_lowercase().contains("license");
        if is_copyright(first) && !grants {
            copyright.extend(paragraph.lines().map(|line| line.trim().to_owned()));
        } else if !is_title || after.is_empty() {
            return (copyright, rest.to_owned());
        }
        if after.is_empty() {
            return (copyright, String::new());
        }
        rest = after.trim_start_matches('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIT: &str =
        "Permission is hereby granted, free of charge, to any person.\n\nNO WARRANTY.";
    const APACHE_TEXT: &str = "   Apache License\n Version 2.0, January 2004\n\n1. Definitions.\n\n\
                               END OF TERMS AND CONDITIONS\n\nAPPENDIX: How to apply\n\n  Copyright [yyyy]\n\n\
                               limitations under the License.";

    fn notices(offered: &[&str], chosen: &[&str], files: &[(&str, &str)]) -> Notices {
        let files: Vec<(String, String)> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        from_files("p 1.0", offered, chosen, &files)
    }

    #[test]
    fn texts_of_the_chosen_licences_are_read() {
        let mit = format!("The MIT License\n\nCopyright (c) 2020 A\nCopyright 2021 B\n\n{MIT}");
        let both = [("LICENSE-APACHE", APACHE_TEXT), ("LICENSE-MIT", &*mit)];
        let apache = notices(&["MIT", "Apache-2.0"], &["Apache-2.0"], &both);
        assert!(apache.apache && apache.list.is_empty(), "{:?}", apache.list);
        let found = notices(&["MIT", "Apache-2.0"], &["MIT"], &both);
        let expected = Notice {
            subject: "p 1.0".to_owned(),
            licence: Some("MIT".to_owned()),
            copyright: vec!["Copyright (c) 2020 A".to_owned(), "Copyright 2021 B".to_owned()],
            terms: MIT.to_owned(),
        };
        assert_eq!(found.list, [expected]);
        assert!(!found.apache);
        let unnamed = notices(&["MIT"], &["MIT"], &[("LICENSE", &mit)]);
        assert_eq!(unnamed.list, found.list);
        let of_two = notices(&["MIT", "ISC"], &["MIT", "ISC"], &[("LICENSE.a", &mit)]);
        assert!(of_two.unnamed && of_two.list[0].licence.is_none());
    }

    #[test]
    fn titles_that_differ_are_left_out() {
        let of = |title: &str| split(&format!("{title}\n\nCopyright 2021 B\n\n{MIT}"));
        let expected = (vec!["Copyright 2021 B".to_owned()], MIT.to_owned());
        for title in ["MIT License", "# The MIT License (MIT)", "\n"] {
            assert_eq!(of(title), expected, "{title}");
        }
        assert!(of("UNICODE LICENSE V3").1.starts_with("UNICODE LICENSE V3\n\nCopyright"));
    }

    #[test]
    fn parts_by_others_are_read_whatever_is_chosen() {
        let mit = format!("Copyright (c) 2020 A\n\n{MIT}");
        let found = notices(
            &["MIT", "Apache-2.0"],
            &["Apache-2.0"],
            &[
                ("COPYING", "MIT or Apache-2.0: see the other files"),
                ("LICENSE-THIRD-PARTY", &mit),
                ("NOTICE", "Made by us."),
                ("src/tables/LICENSE-UNICODE", &mit),
                ("src/vendor/LICENSE", APACHE_TEXT),
            ],
        );
        let subjects: Vec<&str> = found.list.iter().map(|n| n.subject.as_str()).collect();
        assert_eq!(
            subjects,
            ["p 1.0 (LICENSE-THIRD-PARTY)", "p 1.0 (NOTICE)", "p 1.0 (src/tables/LICENSE-UNICODE)"]
        );
        assert!(found.list.iter().all(|notice| notice.licence.is_none()));
        assert!(found.unnamed && !notices(&["MIT"], &["MIT"], &[("NOTICE", &mit)]).unnamed);
    }

    #[test]
    fn the_apache_license_is_printed_once() {
        let text = format!("Ours is\n\n{APACHE_TEXT}\n\nand more");
        let expected = format!("Ours is\n\n{APACHE_REFERENCE}\n\nand more");
        assert_eq!(without_apache(&text), (expected, true));
        assert_eq!(without_apache(MIT), (MIT.to_owned(), false));
        let without_appendix = APACHE_TEXT.split("\n\nAPPENDIX").next().expect("its terms");
        assert_eq!(without_apache(without_appendix), (APACHE_REFERENCE.to_owned(), true));
    }

    #[test]
    fn files_are_known_by_their_names() {
        for (file, licence, expected) in [
            ("LICENSE-MIT", "MIT", true),
            ("LICENSE.APACHE", "Apache-2.0", true),
            ("license-mit.md", "MIT-0", true),
            ("LICENSE-BOOST", "BSL-1.0", true),
            ("LICENSE", "MIT", false),
            ("COMMITTERS", "MIT", false),
            ("LICENSE-Apache-2.0_WITH_LLVM-exception", "Apache-2.0", false),
            ("LICENSE-Apache-2.0_WITH_LLVM-exception", "Apache-2.0 WITH LLVM-exception", true),
            ("LICENSE-APACHE", "Apache-2.0 WITH LLVM-exception", false),
        ] {
            assert_eq!(is_named(file, licence), expected, "{file} {licence}");
        }
        for file in ["LICENSE", "Licence.txt", "LICENSE.httprouter", "NOTICES.md", "UNLICENSE"] {
            assert!(has_licence_name(file), "{file}");
        }
        for file in ["license.rs", "notice.json", "README.md", "src"] {
            assert!(!has_licence_name(file), "{file}");
        }
    }

    #[test]
    fn a_text_that_is_missing_is_the_standard_one() {
        let folder = std::env::temp_dir().join(format!("rooflight-notice-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder is made");
        let package = |license: &str, authors: &[&str]| Package {
            authors: authors.iter().map(|author| (*author).to_owned()).collect(),
            folder: folder.clone(),
            ..Package::example("p", Some(license))
        };
        let list = |license, authors: &[&str]| read(&package(license, authors), MIT);
        let found = list("MIT", &["A", "B"]).expect("the standard text");
        assert_eq!(found.list[0].copyright, ["Copyright (c) A, B"]);
        assert_eq!(found.list[0].terms, MIT);
        let unnamed = list("MIT", &[]).expect("the standard text");
        assert_eq!(unnamed.list[0].copyright, ["Copyright (c) the p authors"]);
        let apache = list("MIT OR Apache-2.0", &[]).expect("no file is needed");
        assert!(apache.apache && apache.list.is_empty());
        let boost = list("BSL-1.0", &["A"]).expect("the standard text");
        assert!(boost.list[0].terms.starts_with("Boost Software License - Version 1.0"));
        assert!(list("ISC", &[]).is_err());
        assert!(list("GPL-3.0-only", &[]).is_err());
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }

    #[test]
    fn texts_are_fit_for_terminals() {
        assert_eq!(clean(b"\xef\xbb\xbfa \r\n\tb\x1b[1m\n"), "a\n    b[1m");
    }
}
