//! Tests of whole texts, in pieces and at any width.

use super::*;
use crate::wrap::columns_of;

/// Renders a text in one piece, and checks that pieces of it give the same output.
fn rendered(text: &str, columns: usize, styles: bool) -> String {
    let mut whole = Markdown::new(columns, true, styles);
    let out = whole.push(text) + &whole.finish();
    for size in [1, 3, 7] {
        let mut pieces = Markdown::new(columns, true, styles);
        let chars: Vec<char> = text.chars().collect();
        let pushed = chars.chunks(size).map(|piece| pieces.push(&piece.iter().collect::<String>()));
        let pushed: String = pushed.collect();
        assert_eq!(pushed + &pieces.finish(), out, "in pieces of {size}: {text:?}");
    }
    out
}

/// Renders a text with escape sequences written as `<1>`, and resets as `<>`.
fn shown(text: &str, columns: usize) -> String {
    let out = rendered(text, columns, true).replace("\x1b[0m", "<>");
    let mut parts = out.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| format!("<{}", part.replacen('m', ">", 1)));
    first + &rest.collect::<String>()
}

#[test]
fn blocks_are_shown_by_their_structure() {
    for (text, want) in [
        ("# Title\ntext", "<1;4>Title<>\ntext"),
        ("  # Title\n  ## Part\n", "<1;4>Title<>\n<1>Part<>\n"),
        ("### A *b*\n", "<1>A <><1;3>b<>\n"),
        ("#tag and ####### seven\n", "#tag and ####### seven\n"),
        ("- one\n* **two**\n  + three\n", "\u{2022} one\n\u{2022} <1>two<>\n  \u{2022} three\n"),
        ("1. one\n2) two\n3.14 is pi\n2024\n", "1. one\n2) two\n3.14 is pi\n2024\n"),
        ("> said\n> > twice\n", "<2>\u{2502} <>said\n<2>\u{2502} \u{2502} <>twice\n"),
        ("**bold** start\n*it* too\n", "<1>bold<> start\n<3>it<> too\n"),
        ("-5 and - 6\n+1\n-\n", "-5 and - 6\n+1\n-\n"),
        ("a\n\nb\n", "a\n\nb\n"),
        ("a `x*y*` b", "a <36>x*y*<> b"),
    ] {
        assert_eq!(shown(text, 60), want, "{text:?}");
    }
    let rule = "\u{2500}".repeat(RULE);
    for text in ["---", "* * *", "___"] {
        assert_eq!(shown(text, 60), format!("<2>{rule}<>"), "{text}");
    }
}

#[test]
fn code_stays_as_it_is_written() {
    let text = "See:\n```rust\nfn f() { a * b * c; } // **not bold**, and a long line\n  ``\n\n```\n# After\n";
    let out = shown(text, 30);
    let start = format!("See:\n<2>\u{2500}\u{2500} rust {}<>\n", "\u{2500}".repeat(22));
    let code = "<36>fn f() { a * b * c; } // **not bold**, and a long line<>\n<36>  ``<>\n\n";
    let end = format!("<2>{}<>\n<1;4>After<>\n", "\u{2500}".repeat(30));
    assert_eq!(out, start + code + &end);
    // three marks do not end a block that four began, and a block without an end extends to the end of the text
    let out = rendered("````\n```\n# x", 20, false);
    assert!(out.ends_with("\n```\n# x"), "{out}");
    let quoted = rendered("> ```\n> a\n> ```\nb", 10, false);
    let rule = "\u{2500}".repeat(8);
    assert_eq!(quoted, format!("\u{2502} {rule}\n\u{2502} a\n\u{2502} {rule}\nb"));
    assert!(rendered("```inline``` text\n", 30, false).starts_with("```inline``` text"));
}

#[test]
fn lines_of_items_and_quotes_are_indented() {
    let item = rendered("- one two three four\n", 10, false);
    assert_eq!(item, "\u{2022} one two \n  three \n  four\n");
    let numbered = rendered("12. one two three\n", 11, false);
    assert_eq!(numbered, "12. one two\n    three\n");
    let quote = rendered("> one two three\n", 9, false);
    assert_eq!(quote, "\u{2502} one two\n\u{2502} three\n");
}

#[test]
fn tables_are_aligned_and_what_is_none_is_text() {
    let table = "Before\n| a | bb |\n|---|---:|\n| 1 | 2 |\n\nafter";
    let out = rendered(table, 40, false);
    let line = "\u{2500}\u{2500}\u{253c}\u{2500}\u{2500}\u{2500}";
    assert_eq!(out, format!("Before\na \u{2502} bb\n{line}\n1 \u{2502}  2\n\nafter"));
    assert_eq!(rendered("| a | b\nc\n", 40, false), "| a | b\nc\n");
    assert_eq!(rendered("|x|\n|y|\n", 40, false), "|x|\n|y|\n");
    assert_eq!(rendered("| a |\n|---|", 40, false), "a\n\u{2500}\n");
}

#[test]
fn without_styles_marks_within_lines_stay() {
    let out = rendered("## Head\n- **bold** `code`\n", 40, false);
    assert_eq!(out, "## Head\n\u{2022} **bold** `code`\n");
    let styled = rendered("## Head **x**\n> a\n```\nb\n```\n", 40, true);
    assert!(styled.contains('\x1b'));
}

/// Builds a text from random pieces of Markdown syntax and words.
fn made_up(seed: u64) -> String {
    let pieces = [
        "word",
        "two words ",
        "**",
        "*",
        "_",
        "`",
        "```",
        "\n",
        "\n\n",
        "# ",
        "- ",
        "1. ",
        "> ",
        "|",
        "|---|---|\n",
        "| a | b |\n",
        "[x](y)",
        "\u{4f60}\u{597d}",
        "\\",
        "~~",
        " ",
        "longerwordthanmost",
        "\u{1f600}",
        "<b>",
        "---\n",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..40).map(|_| pieces[next() as usize % pieces.len()]).collect()
}

/// For any input, no letter is lost or added, and the output ends in the terminal's usual style.
#[test]
fn no_letter_is_lost() {
    let letters = |text: &str| {
        let mut all: Vec<char> = text.chars().filter(|c| c.is_alphabetic()).collect();
        all.sort_unstable();
        all
    };
    let without_escapes = |text: &str| {
        let mut plain = String::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                '\x1b' => drop(rest.by_ref().find(char::is_ascii_alphabetic)),
                c => plain.push(c),
            }
        }
        plain
    };
    for seed in 0..2000 {
        let text = made_up(seed);
        // the language of code is shortened, and cells without a head are dropped
        let text = text
            .replace("~~~", "~~ ~")
            .replace("```", "\n```\n")
            .replace('|', if seed % 2 == 0 { "" } else { "|" });
        for columns in [8, 20, 79] {
            for styles in [true, false] {
                let out = rendered(&text, columns, styles);
                let plain = without_escapes(&out);
                if seed % 2 == 0 {
                    assert_eq!(letters(&plain), letters(&text), "{seed}: {text:?}\n{out:?}");
                }
                assert!(styles || !out.contains('\x1b'), "{seed}");
                let ended = out.rfind("\x1b[").is_none_or(|at| out[at..].starts_with("\x1b[0m"));
                assert!(ended, "{seed}: {out:?}");
            }
        }
    }
}

/// Lists, quotes and tables fit the terminal. Code and words that are too long are left for the terminal to break.
#[test]
fn lines_stay_within_the_terminal() {
    let text = "# A heading of some length\n- an item that has *some* length to it\n  - another item, deeper than that\n\
                > a quote that goes on for a while, **with emphasis** in it\n\n| one | two | three |\n|---|---|---|\n\
                | some text in here | more of it | and the last cell of them |\n\nA paragraph of `code` and words.\n";
    for columns in 20..100 {
        let out = rendered(text, columns, false);
        for line in out.lines() {
            assert!(columns_of(line.trim_end()) <= columns, "{columns}: {line:?}");
        }
    }
}

/// The cost of an endless line of marks is at most linear in its length.
#[test]
fn hostile_lines_are_held_for_a_while_only() {
    for piece in ["*a ", "`", "[", "**", "_a", "|", "> ", "#", "-", "1", "\\", "~~~", "*a_b`c["] {
        let mut markdown = Markdown::new(40, true, true);
        let mut held = 0;
        let text = piece.repeat(20_000 / piece.len());
        let mut shown = 0;
        for c in text.chars() {
            shown += markdown
                .push(c.encode_utf8(&mut [0; 4]))
                .chars()
                .filter(|c| !c.is_whitespace())
                .count();
            held = held.max(markdown.line.len());
        }
        assert!(held <= MAX_ROW + MAX_START, "{piece}: {held}");
        assert!(shown > 100, "{piece}");
    }
}
