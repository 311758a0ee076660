//! GBNF as Lark.

use grammar::internals::to_lark;

#[test]
fn rules_become_terminals_where_they_can() {
    let lark = to_lark("root ::= item (\",\" item)* # list\nitem ::= [a-z]+ | \"(\" root \")\"\n")
        .unwrap();
    assert_eq!(lark, "start: r0\nr0: r1 (\",\" r1)*\nr1: /[a-z]/+ | \"(\" r0 \")\"\n");
    let lark =
        to_lark("root ::= word-1 \"!\"?\nword-1 ::= [^\\]\\n/]{2,3} \"\\x41\\u00e9\"\n").unwrap();
    assert_eq!(lark, "start: T0\nT0: T1 \"!\"?\nT1: /[^\\x{5d}\\x{a}\\x{2f}]/{2,3} \"Aé\"\n");
    assert_eq!(
        to_lark("root ::= | \"a\" .").unwrap(),
        "start: T0\nT0: (\"a\" /[\\x{0}-\\x{10ffff}]/)?\n"
    );
    assert!(to_lark("root ::=\n  \"a\" |\n  (\n \"b\"\n )\n").is_ok());
}

#[test]
fn what_is_wrong_is_named() {
    let told = |text: &str| to_lark(text).unwrap_err().to_string();
    assert!(told("a ::= \"x\"").ends_with("there is no rule `root`"));
    assert!(told("root ::= b").ends_with("rule `root` names `b`, which is not there"));
    assert!(told("root ::= \"a\"\nroot ::= \"b\"").ends_with("`root` is there twice"));
    assert!(told("root ::= \"a\" root").contains("never comes to an end"));
    assert!(told("root ::= \"a").contains("line 1"), "{}", told("root ::= \"a"));
    assert!(told("root ::= \"a\"\n\nx = 3").contains("line 3"));
    assert!(told("root ::= <think>").contains("tokens"));
    assert!(told("root ::= [z-a]").contains("line 1"));
    assert!(told("root ::= \"a\"{3,2}").contains("line 1"));
    assert!(told("root ::= )").contains("line 1"));
    assert!(told("root ::= []").contains("never comes to an end"));
}
