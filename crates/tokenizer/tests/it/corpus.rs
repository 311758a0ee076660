//! The fuzzer's seed files and mutations of them, run without the fuzzer.

use testing::{Dice, mutations, seeds};
use tokenizer::Offered;

use crate::harness::{template_render, vocabulary_encode};

/// Mutations of each seed; `ROOFLIGHT_MUTATIONS=100000` tries more.
const MUTATIONS: u64 = 60;

fn place(noise: &mut Dice, data: &[u8]) -> usize {
    noise.below(data.len() + 1)
}

/// Cuts, copies, and puts in words and pieces of other seeds, a few times over.
fn mutate(noise: &mut Dice, seed: &[u8], other: &[u8], words: &[String]) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..1 + noise.below(3) {
        let (a, b) = (place(noise, &data), place(noise, &data));
        let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 40));
        match noise.below(6) {
            0 => drop(data.drain(from..to)),
            1 => {
                let copy = data[from..to].to_vec();
                let at = place(noise, &data);
                data.splice(at..at, copy);
            }
            2 if from < data.len() => data[from] = noise.below(256) as u8,
            3 => {
                let (a, b) = (place(noise, other), place(noise, other));
                data.splice(from..from, other[a.min(b)..a.max(b)].iter().copied());
            }
            _ => {
                let word = &words[noise.below(words.len())];
                data.splice(from..to.min(from + noise.below(8)), word.bytes());
            }
        }
    }
    data
}

/// How many inputs were tried, and how many of the mutations went through.
fn run(
    target: &str,
    words: &[String],
    begin: impl Fn(&mut Dice) -> String,
    try_one: fn(&[u8]) -> bool,
) -> (u64, u64) {
    let seeds = seeds(target);
    let mut noise = Dice::new(1);
    let (mut tried, mut through) = (0, 0);
    for (name, seed) in &seeds {
        // The name says whether it is refused.
        assert_eq!(try_one(seed), !name.starts_with("refused-"), "{name}");
        tried += 1;
        for _ in 0..mutations(MUTATIONS) {
            let other = &seeds[noise.below(seeds.len())].1;
            let data = match noise.below(2) {
                0 => mutate(&mut noise, seed, other, words),
                _ => [begin(&mut noise).as_bytes(), seed].concat(),
            };
            let outcome = std::panic::catch_unwind(|| try_one(&data));
            match outcome {
                Ok(ok) => through += u64::from(ok),
                Err(_) => {
                    panic!("{target}, mutation of {name}: {:?}", String::from_utf8_lossy(&data))
                }
            }
            tried += 1;
        }
    }
    eprintln!("{target}: {tried} inputs, {through} mutations went through");
    (tried, through)
}

/// An expression that compiles, with what is offered; most have operands of the wrong kind somewhere, so it is shallow.
fn expression(noise: &mut Dice, offered: &Offered, depth: usize) -> String {
    const ATOMS: &[&str] = &[
        "messages",
        "messages[0]",
        "messages[0].content",
        "messages[-1]['role']",
        "loop",
        "x",
        "none",
        "true",
        "'a b,c'",
        "''",
        "'{0} {0:>5}'",
        "'%s'",
        "0",
        "1",
        "-1",
        "7",
        "1.5",
        "9223372036854775807",
        "[]",
        "[3, 1, 2]",
        "['b', 'a']",
        "{}",
        "{'a': 1}",
        "(1, 'b')",
        "'é😀' * 9",
        "range(5)",
        "'user'",
        "[[1], [2]]",
    ];
    const OPERATORS: &[&str] = &[
        "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
        "and", "or",
    ];
    let pick = |noise: &mut Dice, of: &[&'static str]| of[noise.below(of.len())];
    if depth == 0 {
        return pick(noise, ATOMS).to_owned();
    }
    let inner = |noise: &mut Dice| expression(noise, offered, depth - 1);
    let a = inner(noise);
    let arguments = match noise.below(3) {
        0 => String::new(),
        1 => inner(noise),
        _ => format!("{}, {}", inner(noise), inner(noise)),
    };
    match noise.below(9) {
        0 | 1 => format!("(({a}) | {}({arguments}))", pick(noise, &offered.filters)),
        2 => format!("(({a}) | {})", pick(noise, &offered.filters)),
        3 => format!("(({a}) is {}({arguments}))", pick(noise, &offered.tests[6..])),
        4 => format!("({a}).{}({arguments})", pick(noise, &offered.text_methods)),
        5 => format!(
            "({a})[{}:{}:{}]",
            inner(noise),
            inner(noise),
            pick(noise, &["", "1", "-1", "-3"])
        ),
        6 => format!("({a})[{}]", inner(noise)),
        7 => format!("(({a}) | map('{}') | list)", pick(noise, &offered.filters)),
        _ => format!("({a} {} {})", pick(noise, OPERATORS), inner(noise)),
    }
}

/// What templates are written with.
const SIGNS: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "if ",
    "endif",
    "else",
    "elif ",
    "for x in ",
    "endfor",
    "set x = ",
    "set ",
    "endset",
    "macro f(x) ",
    "endmacro",
    "call f()",
    "endcall",
    "filter upper",
    "endfilter",
    "messages",
    "[0]",
    "['role']",
    ".content",
    "loop.",
    "previtem",
    "cycle(",
    "changed(",
    "namespace(x=",
    "range(9)",
    "x",
    "1",
    "-1",
    "0",
    "1.5",
    "9223372036854775807",
    "'a'",
    "''",
    "none",
    "true",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "::",
    " + ",
    " - ",
    " * ",
    " / ",
    " // ",
    " % ",
    " ** ",
    " ~ ",
    " == ",
    " != ",
    " < ",
    " >= ",
    " in ",
    " not in ",
    " not ",
    " and ",
    " or ",
    " is ",
    " if ",
    " else ",
    "=",
    "|",
    "'%s' | format(",
    "'{0:>9}'.format(",
    "attribute='content'",
    "\0",
    "user\n",
    "<|im_start|>",
    "<s>",
    "<|",
    "|>",
    "\u{10FFFD}",
];

#[test]
fn templates_of_the_corpus() {
    let offered = Offered::all();
    let mut words: Vec<String> = Vec::new();
    words.extend(offered.filters.iter().map(|name| format!(" | {name}")));
    words.extend(offered.tests.iter().map(|name| format!(" is {name} ")));
    words.extend(offered.functions.iter().map(|name| format!("{name}(")));
    for methods in [&offered.text_methods, &offered.map_methods, &offered.list_methods] {
        words.extend(methods.iter().map(|name| format!(".{name}(")));
    }
    words.extend(SIGNS.iter().copied().map(String::from));
    let begin = |noise: &mut Dice| {
        let depth = 1 + noise.below(3);
        let e = expression(noise, &offered, depth);
        match noise.below(4) {
            0 => format!("{{% for x in {e} %}}{{{{ x }}}}{{% endfor %}}"),
            1 => format!("{{% if {e} %}}y{{% endif %}}"),
            2 => format!("{{% for i in [1, 2] %}}{{% set x = {e} %}}{{{{ x }}}}{{% endfor %}}"),
            _ => format!("{{{{ {e} }}}}"),
        }
    };
    let (tried, through) = run("template_render", &words, begin, template_render);
    // Mutations that only ever fail to compile would try little.
    assert!(through * 20 > tried, "{through} of {tried} rendered");
}

#[test]
fn vocabularies_of_the_corpus() {
    let words = [
        "\n",
        "\0",
        "1",
        "2",
        "3",
        "4",
        "6",
        "<0x41>",
        "\u{2581}",
        "a b",
        "ab",
        "é",
        "\u{1F600}",
        "<s>",
        "gpt2\n",
        "t5\n",
    ];
    let words: Vec<String> = words.map(String::from).to_vec();
    let (tried, through) = run("vocabulary_encode", &words, |_| String::new(), vocabulary_encode);
    assert!(through * 20 > tried, "{through} of {tried} encoded");
}
