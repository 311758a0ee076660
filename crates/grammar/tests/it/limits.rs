//! How large expressions and grammars may be.

use grammar::internals::check_text;

fn told(text: &str) -> String {
    check_text("grammar", text).map_or_else(|error| error.to_string(), |()| "fine".into())
}

#[test]
fn what_is_too_large_is_told() {
    assert_eq!(told("a{3,10000}[x(]{2}"), "fine");
    assert_eq!(told("a{3,10001}"), "grammar: repetitions: at most 10000, found 10001");
    assert!(told("a{99999999999999999999999}").contains("repetitions"));
    assert_eq!(told(&"(".repeat(128)), "fine");
    assert!(told(&"(".repeat(129)).contains("brackets within each other: at most 128"));
    assert_eq!(told(&"\\(".repeat(500)), "fine");
    assert_eq!(told(&"()".repeat(500)), "fine");
    assert!(told(&"x".repeat(300_000)).contains("bytes: at most 262144, found 300000"));
    assert_eq!(told("{\"a\": 99999}"), "fine");
    assert_eq!(told("(a{100}b){100}|c{10000}"), "fine");
    for nested in ["((a{100}b)c){101}", "a{100}{101}", "(a{2}|(b{99})){99}{2}"] {
        assert!(told(nested).contains("repetitions: at most 10000"), "{nested}");
    }
}
