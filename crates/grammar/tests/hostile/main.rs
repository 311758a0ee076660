//! Forms that are malformed, or whose compilation would take more time and memory than there is. The tests look at what the whole
//! process does, so that they are a program of their own, and run one by one.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

#[path = "../common/mod.rs"]
mod common;

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use grammar::internals::running_compilations;
use grammar::{CompileBudget, Form, FormChecker, FormSource, GrammarError, check_request};

use crate::common::{SMALL, compile, schema};

/// Malformed, hostile and unsatisfiable forms.
fn hostile() -> Vec<FormSource> {
    let regex = |text: &str| FormSource::Regex(text.into());
    let lark = |text: &str| FormSource::Grammar(text.into());
    let nested =
        |open: &str, n: usize, close: &str| format!("{}{}", open.repeat(n), close.repeat(n));
    let many = |n: usize| {
        (0..n).map(|i| format!("\"p{i}\":{{\"type\":\"string\"}}")).collect::<Vec<_>>().join(",")
    };
    vec![
        schema(""),
        schema("{"),
        schema("[]"),
        schema("7"),
        schema("null"),
        schema(r#"{"type":"nothing"}"#),
        schema(r#"{"type":7}"#),
        schema("false"),
        schema(r#"{"type":"integer","minimum":5,"maximum":3}"#),
        schema(r#"{"type":"string","minLength":5,"maxLength":3}"#),
        schema(r#"{"type":"array","minItems":5,"maxItems":3}"#),
        schema(r#"{"enum":[]}"#),
        schema(r##"{"$ref":"#"}"##),
        schema(r##"{"$ref":"#/nowhere"}"##),
        schema(r##"{"$ref":"https://example.com/schema.json"}"##),
        schema(r##"{"$ref":"file:///etc/passwd"}"##),
        schema(
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
        ),
        schema(r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##),
        schema(r##"{"type":"array","items":{"$ref":"#"},"minItems":2}"##),
        schema(r#"{"type":"object","properties":{"a":false},"required":["a"]}"#),
        schema(r#"{"allOf":[{"type":"string"},{"type":"integer"}]}"#),
        schema(
            r#"{"type":"array","maxItems":18446744073709551615,"minItems":18446744073709551615}"#,
        ),
        schema(r#"{"type":"string","minLength":1000000000000}"#),
        schema(r#"{"type":"string","pattern":"("}"#),
        schema(r#"{"type":"string","pattern":"(a{1000}){1000}{1000}"}"#),
        schema(r#"{"type":"string","pattern":"^+[a-z]$("}"#),
        schema(r#"{"pattern":7,"type":"string"}"#),
        schema(&nested(r#"{"items":"#, 5_500, "}")),
        schema(&nested("[", 60_000, "]")),
        schema(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, many(30_000))),
        schema(&"x".repeat(1 << 20)),
        schema("{\"type\":\"\\ud800\"}"),
        schema("{\"a\":1,}"),
        schema(r#"{"x-guidance":{"lenient":true}}"#),
        regex("("),
        regex("[z-a]"),
        regex("a{99999}"),
        regex("(((a{1000}){1000}){1000})b"),
        regex(&nested("(", 60_000, ")")),
        regex("(?=a)b"),
        regex("\\p{NoSuch}"),
        regex("a{2,1}"),
        regex("[^\\x{0}-\\x{10ffff}]"),
        lark(""),
        lark("start"),
        lark("start: missing"),
        lark("start: \"a"),
        lark("other: \"a\""),
        lark(&format!("start: {}", nested("(", 60_000, ")"))),
        lark(&(0..25_000).map(|i| format!("r{i}: \"a\"\n")).collect::<String>()),
        lark("start: /(/"),
        lark("root ::= \"a\" root"),
        lark("root ::= missing"),
        lark("root ::= \"a"),
        lark("root ::= \"a\"{99999999999999999999}"),
        lark(&format!("root ::= {}", nested("(", 60_000, ")"))),
        lark("root ::= a\na ::= b\nb ::= a"),
    ]
}

/// Forms that would take minutes or gigabytes, most of them short: what llguidance does not count.
fn costly() -> Vec<(&'static str, FormSource)> {
    costly_schemas().into_iter().chain(costly_grammars()).collect()
}

fn costly_schemas() -> Vec<(&'static str, FormSource)> {
    let schema = |text: String| FormSource::JsonSchema(text);
    let keys =
        |n: usize, pair: &dyn Fn(usize) -> String| (0..n).map(pair).collect::<Vec<_>>().join(",");
    let strings = |n: usize| keys(n, &|i| format!(r#""p{i}":{{"type":"string"}}"#));
    let alternatives = |n: usize| vec![r#"{"minProperties":0}"#; n].join(",");
    let nested = (0..8).fold(r#"{"type":"object"}"#.to_owned(), |inner, _| {
        format!(
            r#"{{"type":"object","additionalProperties":{inner},"anyOf":[{}]}}"#,
            alternatives(8)
        )
    });
    let hidden = nested.replace(r#"{"type":"object"}"#, r##"{"$ref":"#/$defs/a%20b"}"##);
    vec![
        ("multipleOf", schema(r#"{"type":"integer","multipleOf":99999989}"#.into())),
        (
            "several multipleOf",
            schema(format!(
                r#"{{"type":"number","allOf":[{}]}}"#,
                [7, 11, 13, 17, 19, 23].map(|n| format!(r#"{{"multipleOf":{n}}}"#)).join(",")
            )),
        ),
        (
            "many multipleOf",
            schema(format!(
                r#"{{"type":"object","properties":{{{}}}}}"#,
                keys(60, &|i| format!(r#""p{i}":{{"type":"integer","multipleOf":{}}}"#, 9901 + i))
            )),
        ),
        (
            "optional properties",
            schema(format!(
                r#"{{"type":"object","properties":{{{}}},"additionalProperties":false}}"#,
                strings(6000)
            )),
        ),
        (
            "optional properties of which one must be there",
            schema(format!(
                r#"{{"type":"object","properties":{{{}}},"additionalProperties":false,"minProperties":1}}"#,
                strings(300)
            )),
        ),
        (
            "patternProperties",
            schema(format!(
                r#"{{"type":"object","patternProperties":{{{}}}}}"#,
                keys(300, &|i| format!(r#""^{}$":{{"type":"integer"}}"#, "a".repeat(i + 1)))
            )),
        ),
        (
            "patterns of one text",
            schema(format!(
                r#"{{"type":"string","allOf":[{}]}}"#,
                keys(40, &|i| format!(r#"{{"pattern":"x{i}"}}"#))
            )),
        ),
        ("alternatives within each other", schema(nested)),
        (
            "alternatives by a name with an escape",
            schema(format!(
                r##"{{"$ref":"#/$defs/c%20d","$defs":{{"a b":{{"type":"object"}},"c d":{hidden}}}}}"##
            )),
        ),
    ]
}

fn costly_grammars() -> Vec<(&'static str, FormSource)> {
    let lark = |text: String| FormSource::Grammar(text);
    let regex = |text: String| FormSource::Regex(text);
    let doubled = |last: &str| {
        let rules: String = (0..30).map(|i| format!("T{i}: T{} T{}\n", i + 1, i + 1)).collect();
        format!("start: T0\n{rules}T30: {last}\n")
    };
    // expressions may have several lines: the second one looks like the beginning of a string
    let chain: String = (0..9000).map(|i| format!("r{i}: /a\n\" / r{} /\n\"/\n", i + 1)).collect();
    vec![
        ("a?a?a?", regex("a?".repeat(100_000))),
        (
            "classes that ignore case",
            regex(format!(
                "(?i){}",
                (0..1000)
                    .map(|i| format!("[\\x{{{:x}}}-\\x{{10ffff}}]", 97 + i))
                    .collect::<String>()
            )),
        ),
        ("&", lark(format!("start: T\nT: {}", ["/.*x.*/"; 40].join(" & ")))),
        ("~", lark(format!("start: T\nT: ~({})", ["~/.*x.*/"; 40].join(" | ")))),
        ("%json", lark(r#"start: %json {"type":"integer","multipleOf":99999989}"#.into())),
        ("terminals that double", lark(doubled("\"a\""))),
        (
            "terminals of GBNF that double",
            lark({
                let rules: String =
                    (0..30).map(|i| format!("t{i} ::= t{} t{}\n", i + 1, i + 1)).collect();
                format!("root ::= t0\n{rules}t30 ::= \"a\"\n")
            }),
        ),
        (
            "optional parts of a terminal",
            lark(format!("start: T\nU: \"a\"?\nT: {}", "U ".repeat(12_000))),
        ),
        ("optional parts of GBNF", lark(format!("root ::= {}", "\"a\"? ".repeat(12_000)))),
        ("many alternatives", lark(format!("start: {}", vec!["\"a\""; 40_000].join(" | ")))),
        ("a hidden chain of rules", lark(format!("start: r0\n{chain}r9000: \"b\"\n"))),
        ("a chain of repetitions", lark(format!("root ::= \"a\"{}", "?".repeat(100_000)))),
        (
            "brackets of GBNF within each other",
            lark(format!("root ::= {}", "(\")\" ".repeat(40_000))),
        ),
    ]
}

/// Bytes of this process in memory.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// Waits until no compilation runs, and returns how long that took.
fn wait_for_the_end() -> Duration {
    let start = Instant::now();
    while running_compilations() > 0 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// One test at a time counts compilations.
static ALONE: Mutex<()> = Mutex::new(());

/// A caller gives up after half a second whatever happens: what counts is that the work of a refused form ends too, and that its memory is
/// free. The process of this test runs no other compilations.
#[test]
fn hostile_forms_are_refused_soon_and_in_one_line() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let malformed = hostile().into_iter().map(|source| ("malformed", source));
    let all: Vec<_> = malformed.chain(costly()).collect();
    assert!(all.len() >= 70, "{}", all.len());
    let mut wrong = Vec::new();
    #[cfg(target_os = "linux")]
    let before = resident();
    for (name, source) in all {
        let result = compile(&source);
        let after = wait_for_the_end();
        let shown = format!("{name}: {source:?}").chars().take(90).collect::<String>();
        match result {
            Ok(_) => wrong.push(format!("{shown} is taken")),
            Err(line) if line.contains('\n') || line.len() > 400 => {
                wrong.push(format!("{shown}: {line}"))
            }
            // what is measured before is refused before anything is built
            Err(line) if name != "malformed" && line.contains("too much memory or time") => {
                wrong.push(format!("{shown}: it was begun: {line}"));
            }
            Err(_) => {}
        }
        if after > Duration::from_secs(1) {
            wrong.push(format!("{shown}: its thread went on for {after:?}"));
        }
    }
    #[cfg(target_os = "linux")]
    if resident() > before + (100 << 20) {
        wrong.push(format!("{} MB of memory are left", (resident() - before) >> 20));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The estimates refuse nothing that is used: each of these compiles.
#[test]
fn ordinary_forms_are_not_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let strings = |n: usize| {
        (0..n).map(|i| format!(r#""p{i}":{{"type":"string"}}"#)).collect::<Vec<_>>().join(",")
    };
    let words: Vec<String> = (0..2000).map(|i| format!("\"word{i}\"")).collect();
    for source in [
        schema(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, strings(500))),
        schema(&format!(
            r#"{{"type":"object","properties":{{{}}},"additionalProperties":false,"minProperties":1}}"#,
            strings(30)
        )),
        schema(&format!(r#"{{"enum":[{}]}}"#, words.join(","))),
        schema(
            r##"{"allOf":[{"$ref":"#/$defs/a"},{"properties":{"y":{"type":"integer"}}}],"$defs":{"a":{"type":"object","properties":
            {"x":{"anyOf":[{"type":"string","pattern":"^[a-z]+$"},{"type":"null"}]}},"required":["x"]}}}"##,
        ),
        schema(
            r#"{"type":"object","patternProperties":{"^x-":{"type":"string"},"^y-":{"type":"integer"}},"additionalProperties":false}"#,
        ),
        // types exclude each other, so that alternatives of them do not multiply
        schema(&format!(
            r#"{{"type":"object","properties":{{{}}},"additionalProperties":false,"allOf":[{}]}}"#,
            strings(20),
            (0..20).map(|i| format!(r#"{{"required":["p{i}"]}}"#)).collect::<Vec<_>>().join(",")
        )),
        schema(
            r#"{"type":"object","properties":{"a":{"type":"number","multipleOf":0.01,"minimum":0},"b":{"type":"string","format":"date-time"}}}"#,
        ),
        FormSource::Regex("(a{1,100}|b+)*[^\"\\x00-\\x1f]{0,1000}\\w+".into()),
        FormSource::Grammar(format!("start: {}", words.join(" | "))),
        FormSource::Grammar(
            "start: a+\na: T ~ 2..5 | /x(y|z)*/i\nT: \"t\" & ~\"u\" // no r9\n".into(),
        ),
        FormSource::Grammar("start: \"a\" %json {\"type\":\"integer\"} b\nb: \"(\" /[)]/\n".into()),
    ] {
        if let Err(error) = compile(&source) {
            panic!("{source:?}: {error}");
        }
    }
}

/// At most two forms are compiled at once. A caller waits for a place as long as its budget lasts; a place is free when its thread ends.
#[test]
fn compilations_have_two_places_until_their_threads_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    wait_for_the_end();
    // some 300 ms each, abandoned after 20
    let slow = |n: usize| {
        schema(&format!(
            r#"{{"type":"object","properties":{{{}}}}}"#,
            (0..n).map(|i| format!(r#""p{i}":{{"type":"object","properties":{{"x":{{"type":"string","maxLength":{i}}}}}}}"#))
                .collect::<Vec<_>>().join(",")
        ))
    };
    let soon = || CompileBudget::default().with_time(Duration::from_millis(20));
    // one whose time is over before it has been read is not begun
    for i in 0..50 {
        if running_compilations() == 2 {
            break;
        }
        let refused = Form::compile(&slow(1200 + i), &SMALL.1, &soon());
        assert_eq!(
            refused.unwrap_err().to_string(),
            "JSON schema: it takes too much memory or time to compile; make it smaller"
        );
    }
    assert_eq!(running_compilations(), 2, "their threads go on");
    let third = Form::compile(&FormSource::Regex("a".into()), &SMALL.1, &soon());
    assert_eq!(third.unwrap_err(), GrammarError::Busy);
    // cancelled ones end at once, with or without a place
    let cancelled = CompileBudget::new(Arc::new(AtomicBool::new(true)));
    let fourth = Form::compile(&FormSource::Regex("a".into()), &SMALL.1, &cancelled);
    assert_eq!(fourth.unwrap_err(), GrammarError::Cancelled);
    // one that waits longer gets its place
    compile(&FormSource::Regex("a".into())).unwrap();
    assert!(wait_for_the_end() < Duration::from_secs(5));
    let fifth = Form::compile(&FormSource::Regex("a".into()), &SMALL.1, &cancelled);
    assert_eq!(fifth.unwrap_err(), GrammarError::Cancelled);
}

/// Doubtful forms are compiled by another program first. One that does not answer, or ends, has the form refused; no others are asked.
#[cfg(unix)]
#[test]
fn doubtful_forms_are_checked_by_another_program() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let with = |script: &str| {
        let command = ["sh", "-c", script, "sh"].map(OsString::from).to_vec();
        let checker = FormChecker { time: Duration::from_millis(300), ..FormChecker::new(command) };
        SMALL.1.clone().with_checker(Arc::new(checker))
    };
    let doubtful = schema(&format!(r#"{{"const":"{}"}}"#, "x".repeat(5000)));
    let budget = CompileBudget::default;
    let refused =
        |script: &str| Form::compile(&doubtful, &with(script), &budget()).unwrap_err().to_string();
    let too_costly = "JSON schema: it takes too much memory or time to compile; make it smaller";
    for script in
        ["kill -9 $$", "exit 134", "cat >/dev/null; sleep 60", "cat >/dev/null; echo nonsense"]
    {
        let start = Instant::now();
        assert_eq!(refused(script), too_costly, "{script}");
        assert!(start.elapsed() < Duration::from_secs(10), "{script}: {:?}", start.elapsed());
    }
    let says = "cat >/dev/null; echo '{\"error\":\"it is odd\"}'";
    assert_eq!(refused(says), "JSON schema: it is odd");
    // its arguments are its limits, its input is a request
    let asks = "test \"$*\" = '--memory 1073741824 --seconds 1' && grep -q '\"n_tokens\":268' && echo '{\"ok\":true}'";
    Form::compile(&doubtful, &with(asks), &budget()).unwrap();
    // what is plainly small is not
    for plain in [
        schema(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#),
        FormSource::Regex("a{3}".into()),
    ] {
        Form::compile(&plain, &with("exit 1"), &budget()).unwrap();
    }
    // what intersects parts is, however small
    let combined =
        schema(r#"{"allOf":[{"type":"object"},{"properties":{"a":{"type":"string"}}}]}"#);
    assert!(Form::compile(&combined, &with("exit 1"), &budget()).is_err());
    assert!(wait_for_the_end() < Duration::from_secs(1));
}

#[test]
fn requests_of_checks_are_answered_in_a_line() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ask = |request: &str| check_request(request);
    // the compiler shows what it cannot read, which is 100 kB here
    let long = format!("start: \\\"a\\\"{}", "?".repeat(100_000));
    let answer = ask(&format!(r#"{{"kind":"grammar","text":"{long}"}}"#));
    assert!(answer.starts_with("{\"error\":") && answer.len() < 1000, "{} bytes", answer.len());
    assert_eq!(ask(r#"{"kind":"regex","text":"a+","n_tokens":1000}"#), r#"{"ok":true}"#);
    for (request, told) in [
        ("", "EOF"),
        ("{}", "invalid type"),
        (r#"{"kind":"regex","text":"(","n_tokens":300}"#, "unclosed group"),
        (r#"{"kind":"poem","text":"a"}"#, "expected json_schema, regex or grammar, found poem"),
        (
            r#"{"kind":"json_schema","text":"{\"multipleOf\":99999989}"}"#,
            "multipleOf: at most 10000",
        ),
    ] {
        let answer = ask(request);
        assert!(answer.starts_with("{\"error\":") && answer.contains(told), "{request}: {answer}");
        assert!(!answer.contains('\n'), "{answer}");
    }
}
