//! How large expressions and grammars may be.

use grammar::FormSource;
use grammar::internals::{check_lark, check_regex, read_schema, to_lark};

use crate::common::compile;

fn told(text: &str) -> String {
    check_regex(text).map_or_else(|error| error.to_string(), |()| "fine".into())
}

fn told_of_lark(text: &str) -> String {
    check_lark(text).map_or_else(|error| error.to_string(), |()| "fine".into())
}

#[test]
fn what_is_too_large_is_told() {
    assert_eq!(told("a{3,10000}[x(]{2}"), "fine");
    assert_eq!(told("a{3,10001}"), "regular expression: repetitions: at most 10000, found 10001");
    let nested = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
    assert_eq!(told(&nested(120)), "fine");
    assert!(told(&nested(140)).contains("brackets within each other: at most 128"));
    assert_eq!(told(&"\\(".repeat(500)), "fine");
    assert_eq!(told(&"()".repeat(500)), "fine");
    assert!(told(&"x".repeat(300_000)).contains("bytes: at most 262144, found 300000"));
    assert_eq!(told("(a{100}b){100}|c{10000}"), "fine");
    for nested in
        ["((a{100}b)c){101}", "(a{100}){101}", "(?:(a{2}|(b{99})){99}){2}", "(a{1000}[)]){1000}"]
    {
        assert!(told(nested).contains("repetitions: at most 10000"), "{nested}");
    }
    // left to the compiler
    assert_eq!(told("("), "fine");
}

/// Runs of parts that may be empty take time by their square, classes of Unicode and those without regard to case by their number.
#[test]
fn costly_expressions_are_refused() {
    let too_costly =
        |text: &str| told(text).contains("estimated milliseconds to compile: at most 1000");
    assert!(!too_costly(&"a?".repeat(3000)) && too_costly(&"a?".repeat(12_000)));
    assert!(!too_costly(&"a?b".repeat(12_000)) && too_costly(&"(a|b*)".repeat(12_000)));
    assert!(!too_costly(&r"\pL".repeat(1000)) && too_costly(&r"\pL".repeat(30_000)));
    let wide = r"[\x{100}-\x{10ffff}]";
    assert!(!too_costly(&wide.repeat(1000)) && too_costly(&format!("(?i){}", wide.repeat(1000))));
}

/// Lark is measured as the compiler cuts it: nothing is hidden in what only looks like a string, a comment or an expression.
#[test]
fn lark_is_measured_as_the_compiler_cuts_it() {
    let chain = |link: &dyn Fn(usize) -> String| {
        let rules: String = (0..3000).map(|i| format!("r{i}: {}\n", link(i + 1))).collect();
        told_of_lark(&format!("start: r0\n{rules}r3000: \"b\"\n"))
    };
    let too_long = |link: &dyn Fn(usize) -> String| {
        let told = chain(link);
        assert!(
            told.contains("references through one another: at most 2000"),
            "{told}: {}",
            link(7)
        );
    };
    too_long(&|i| format!("r{i}"));
    // an expression over two lines, of which the second one looks like the beginning of a string
    too_long(&|i| format!("/a\n\" / r{i} /\n\"/"));
    too_long(&|i| format!("\"a\"ir{i}"));
    too_long(&|i| format!("/a/ir{i}"));
    too_long(&|i| format!("\"\\\\\" r{i}"));
    too_long(&|i| format!("/[\"]/ r{i} /[\"]/"));
    too_long(&|i| format!("r{i}X"));
    too_long(&|i| format!("2r{i}"));
    too_long(&|i| format!("\"a\" # \"\n | r{i}"));
    too_long(&|i| format!("%json {{\"const\": \"\\\"\"}} r{i}"));
    // a comment refers to nothing
    assert_eq!(chain(&|i| format!("\"a\" // r{i}")), "fine");
    assert_eq!(chain(&|i| format!("\"r{i}\" /r{i}/ # r{i}")), "fine");

    let product = ["a{101}~100", "(a{100} \"x)\"){101}", "(\"a\" ~ 2..101)~100"];
    for product in product {
        assert!(
            told_of_lark(&format!("start: {product}")).contains("repetitions: at most 10000"),
            "{product}"
        );
    }
    assert_eq!(told_of_lark("start: a{100} a{101}"), "fine");
    assert!(
        told_of_lark(&format!("start: {}", "(\")\" ".repeat(200)))
            .contains("brackets within each other")
    );
    assert!(told_of_lark("start: %json {\"multipleOf\": 1e9}").contains("multipleOf"));
    assert!(told_of_lark("start: %json {\"x-guidance\": {}}").contains("is not a keyword here"));
    assert!(told_of_lark("start: %json {\"a\"").contains("JSON within it: EOF"));
    assert!(
        told_of_lark(&format!("start: T\nT: {}", ["/a/"; 10].join(" & ")))
            .contains("`&` and `~`: at most 8, found 9")
    );
    assert!(
        told_of_lark("start: <[5]> \"a\"")
            .contains("`<[5]>`: tokens cannot be named, only their texts")
    );
    assert!(told_of_lark("start: <|im_start|>").contains("tokens cannot be named"));
    assert_eq!(told_of_lark("start: T~3..5\nT: ~\"a\" & /b/"), "fine");
}

/// A chain of `n` references by each way there is.
fn chains(n: usize) -> Vec<(&'static str, FormSource)> {
    let schema = |link: &dyn Fn(usize) -> String| {
        let links: Vec<String> = (0..n).map(|i| format!(r#""d{i}":{}"#, link(i + 1))).collect();
        FormSource::JsonSchema(format!(
            r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d{n}":{{"type":"null"}}}}}}"##,
            links.join(",")
        ))
    };
    let rules = |head: &str, last: &str, name: &dyn Fn(usize) -> String, sign: &str| {
        let links = (0..n).map(|i| format!("{} {sign} {}\n", name(i), name(i + 1)));
        FormSource::Grammar(format!(
            "{head}{}{} {sign} {last}\n",
            links.collect::<String>(),
            name(n)
        ))
    };
    vec![
        ("bare", schema(&|i| format!(r##"{{"$ref":"#/$defs/d{i}"}}"##))),
        ("items", schema(&|i| format!(r##"{{"items":{{"$ref":"#/$defs/d{i}"}}}}"##))),
        (
            "properties",
            schema(&|i| format!(r##"{{"properties":{{"a":{{"$ref":"#/$defs/d{i}"}}}}}}"##)),
        ),
        (
            "a property named definitions",
            schema(&|i| {
                format!(r##"{{"properties":{{"definitions":{{"$ref":"#/$defs/d{i}"}}}}}}"##)
            }),
        ),
        ("anyOf", schema(&|i| format!(r##"{{"anyOf":[{{"$ref":"#/$defs/d{i}"}}]}}"##))),
        ("rules", rules("start: r0\n", "\"x\"", &|i| format!("r{i}"), ":")),
        ("terminals", rules("start: T0\n", "\"x\"", &|i| format!("T{i}"), ":")),
        ("GBNF", rules("root ::= g0\n", "\"x\"", &|i| format!("g{i}"), "::=")),
    ]
}

/// A chain overflows the compiler's stack, which ends the process. It is refused before, and those that are allowed do not overflow.
#[test]
fn chains_of_references_are_refused_before_they_are_compiled() {
    for (way, chain) in chains(3_000) {
        let error = compile(&chain).err().unwrap_or_else(|| panic!("{way} is taken"));
        assert!(error.contains("references through one another: at most 2000"), "{way}: {error}");
    }
    // names that are no places in the text are not followed, and count as if they led through each other
    let anchors: Vec<String> = (0..3_000)
        .map(|i| format!(r##""d{i}":{{"$anchor":"d{i}","$ref":"#d{}"}}"##, i + 1))
        .collect();
    let anchors = format!(r##"{{"$ref":"#d0","$defs":{{{}}}}}"##, anchors.join(","));
    let error = compile(&FormSource::JsonSchema(anchors)).expect_err("it is too long");
    assert!(error.contains("references through one another: at most 2000"), "{error}");
    for (way, chain) in chains(400) {
        if let Err(error) = compile(&chain) {
            panic!("{way}: {error}");
        }
    }
}

/// Parts that lead to each other in a circle count once each, however often they are referred to.
#[test]
fn circles_of_references_are_no_chains() {
    let list = |n: usize| {
        let all: Vec<String> = (0..n).map(|i| format!(r##"{{"$ref":"#/$defs/d{i}"}}"##)).collect();
        let value = format!(r#"{{"anyOf":[{{"type":"null"}},{}]}}"#, all.join(","));
        let each: Vec<String> =
            (0..n).map(|i| format!(r#""d{i}":{{"type":"array","items":{value}}}"#)).collect();
        format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{}}}}}"##, each.join(","))
    };
    assert!(read_schema(&list(40)).is_ok(), "{:?}", read_schema(&list(40)));
    let rule = "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | [0-9]+\n";
    assert!(to_lark(rule).is_ok());
}
