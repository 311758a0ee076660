//! The printed page: Rooflight's licences, the list of packages, then each text once with the packages that it is of.

use std::path::Path;

use anyhow::Context;

use super::notice::{APACHE, Notice, clean, read, split};
use super::{Package, PackageId};

/// Columns of a page; only words that are longer exceed it.
const WIDTH: usize = 100;

/// Heading of the list of packages.
const PACKAGES: &str = "Packages";

const INTRODUCTION: &str = "\
Rooflight may be used under the MIT License or the Apache License, Version 2.0, at your choice.

Its program contains the packages that are listed here, some of them on Linux, macOS or Windows only. Of \
several licences that a package offers (OR), one is chosen. The texts below name the packages that are \
used under them.

It also contains Rust's standard library, which is used under the Apache License, Version 2.0. Its tables \
of Unicode are under the Unicode License V3; both texts are below.";

/// Terms that several packages share, and what each of them writes before.
struct Section {
    title: String,
    terms: String,
    /// Copyright lines, and what they are of.
    holders: Vec<(Vec<String>, Vec<String>)>,
}

/// Writes the page about linked packages, which are sorted.
pub(super) fn write(root: &Path, packages: &[Package]) -> anyhow::Result<String> {
    let own = |file: &str| {
        let bytes = std::fs::read(root.join(file)).with_context(|| format!("reading {file}"))?;
        anyhow::Ok(clean(&bytes))
    };
    let (apache, mit) = (own("LICENSE-APACHE")?, own("LICENSE-MIT")?);
    let (copyright, mit_terms) = split(&mit);
    let mut apache_users = vec!["Rooflight".to_owned(), "Rust's standard library".to_owned()];
    let mut notices = vec![Notice {
        subject: "Rooflight".to_owned(),
        licence: Some("MIT".to_owned()),
        copyright,
        terms: mit_terms.clone(),
    }];
    for package in packages {
        let read = read(package, &mit_terms)?;
        if read.apache {
            apache_users.push(format!("{} {}", package.name, package.version));
        }
        notices.extend(read.list);
    }
    let mut page = format!("{}\n", wrap(INTRODUCTION));
    page += &format!("\n{}\n", heading(PACKAGES));
    for Package { name, version, license, .. } in packages {
        page += &format!("{name} {version}  {}\n", license.as_deref().unwrap_or_default());
    }
    page +=
        &format!("\n{}\n{}\n\n{}\n", heading(APACHE), list(&apache_users), wrap(apache.trim_end()));
    for Section { title, terms, holders } in sections(notices) {
        page += &format!("\n{}", heading(&title));
        for (copyright, subjects) in holders {
            let mut lines = Vec::new();
            if subjects != [title.as_str()] {
                lines.push(list(&subjects));
            }
            lines.extend(copyright.iter().map(|line| wrap(&format!("    {line}"))));
            if !lines.is_empty() {
                page += &format!("\n{}\n", lines.join("\n"));
            }
        }
        page += &format!("\n{}\n", wrap(terms.trim_end()));
    }
    Ok(page)
}

/// Packages that a page lists.
pub(crate) fn packages_of(page: &str) -> Vec<PackageId> {
    let begin = format!("{}\n", heading(PACKAGES));
    let list = page.split_once(&begin).map_or("", |(_, list)| list);
    list.lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, rest) = line.split_once(' ')?;
            let (version, _) = rest.split_once("  ")?;
            Some((name.to_owned(), version.to_owned()))
        })
        .collect()
}

/// Joins notices whose terms differ in white space only. The first section stays first, others are sorted by title.
fn sections(notices: Vec<Notice>) -> Vec<Section> {
    let key = |terms: &str| terms.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut sections: Vec<(String, bool, Section)> = Vec::new();
    for Notice { subject, licence, copyright, terms } in notices {
        let key = key(&terms);
        let title = licence.clone().unwrap_or_else(|| subject.clone());
        let at = sections.iter().position(|(other, ..)| *other == key).unwrap_or_else(|| {
            let section = Section { title: title.clone(), terms, holders: Vec::new() };
            sections.push((key, licence.is_some(), section));
            sections.len() - 1
        });
        let (_, has_licence, section) = &mut sections[at];
        if licence.is_some() && !*has_licence {
            (*has_licence, section.title) = (true, title);
        }
        match section.holders.iter_mut().find(|(lines, _)| *lines == copyright) {
            Some((_, subjects)) => subjects.push(subject),
            None => section.holders.push((copyright, vec![subject])),
        }
    }
    let mut sections: Vec<Section> = sections.into_iter().map(|(.., section)| section).collect();
    if let [_, rest @ ..] = sections.as_mut_slice() {
        rest.sort_by(|a, b| a.title.cmp(&b.title));
    }
    sections
}

fn heading(title: &str) -> String {
    format!("{title}\n{}\n", "=".repeat(title.chars().count()))
}

fn list(items: &[String]) -> String {
    // blanks inside an item stay: no line ends between a package and its version
    let glued: Vec<String> = items.iter().map(|item| item.replace(' ', "\u{a0}")).collect();
    wrap(&glued.join(", ")).replace('\u{a0}', " ")
}

/// Breaks lines that are too long at blanks; what follows is indented alike.
fn wrap(text: &str) -> String {
    let mut wrapped: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.chars().count() <= WIDTH {
            wrapped.push(line.to_owned());
            continue;
        }
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let mut current = indent.clone();
        for word in line.trim_start().split(' ') {
            let is_full = current.chars().count() + 1 + word.chars().count() > WIDTH;
            if is_full && current != indent {
                wrapped.push(std::mem::replace(&mut current, indent.clone()));
            }
            if current != indent {
                current.push(' ');
            }
            current.push_str(word);
        }
        wrapped.push(current);
    }
    wrapped.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(subject: &str, licence: Option<&str>, copyright: &str, terms: &str) -> Notice {
        Notice {
            subject: subject.to_owned(),
            licence: licence.map(str::to_owned),
            copyright: vec![copyright.to_owned()],
            terms: terms.to_owned(),
        }
    }

    #[test]
    fn equal_terms_are_one_section() {
        let found = sections(vec![
            notice("us", Some("MIT"), "(c) us", "be\nfree"),
            notice("a 1 (src/LICENSE)", None, "(c) a", "use it"),
            notice("b 1", Some("MIT"), "(c) b", "be  free"),
            notice("c 1", Some("ISC"), "(c) c", "use it"),
            notice("d 1", Some("MIT"), "(c) b", "be free"),
            notice("e 1", Some("0BSD"), "(c) e", "as you like"),
        ]);
        let titles: Vec<&str> = found.iter().map(|section| section.title.as_str()).collect();
        assert_eq!(titles, ["MIT", "0BSD", "ISC"]);
        let owned = |text: &str| vec![text.to_owned()];
        assert_eq!(
            found[0].holders,
            [
                (owned("(c) us"), owned("us")),
                (owned("(c) b"), vec!["b 1".to_owned(), "d 1".to_owned()])
            ]
        );
        assert_eq!(found[2].holders.len(), 2);
    }

    #[test]
    fn the_list_of_packages_is_read_as_it_is_written() {
        let page = format!(
            "Us\n\n{}\na 1.0  MIT\nb 2.0+x  (A OR B)\n\nMIT\n===\nc 1  x\n",
            heading(PACKAGES)
        );
        let id = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(packages_of(&page), [id("a", "1.0"), id("b", "2.0+x")]);
        assert!(packages_of("nothing").is_empty());
    }

    #[test]
    fn long_lines_are_broken() {
        let words = format!("  {}", "word ".repeat(40).trim_end());
        let wrapped = wrap(&words);
        assert!(wrapped.lines().count() == 3 && wrapped.lines().all(|l| l.starts_with("  word")));
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH), "{wrapped}");
        let long = "x".repeat(WIDTH + 1);
        assert_eq!(wrap(&long), long);
        let items: Vec<String> = (0..20).map(|n| format!("package {n}")).collect();
        assert!(list(&items).lines().all(|line| line.starts_with("package ")));
    }
}
