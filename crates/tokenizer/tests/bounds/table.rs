//! Every filter, test, function, method and operator that a template can name, with a large receiver, a large argument,
//! both, and in a loop. A name without a row fails.

use tokenizer::{Offered, Usage};

use super::measure;

/// What a call reads or makes at least, so what it must be charged.
#[derive(Clone, Copy, PartialEq)]
enum Least {
    /// Nothing that grows: it looks at kinds, or at one element.
    Nothing,
    /// All of the receiver.
    Receiver,
    /// All of the argument.
    Argument,
    /// All of both.
    Both,
    /// The smaller of both.
    Smaller,
    /// Each part of the receiver with each of the argument.
    Product,
}
use Least::{Argument, Both, Nothing, Product, Receiver, Smaller};

/// A call: `r` is the receiver and `a` the argument, in the given kind.
struct Row {
    kind: Kind,
    name: &'static str,
    call: &'static str,
    least: Least,
}

/// What `r` and `a` are made of; sizes are in bytes of text, or in elements.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Texts of the letter `a`.
    Text,
    /// A list of short texts; `a` is a text.
    List,
    /// A list that holds one long text; `a` is a text.
    Long,
    /// A map of many keys; `a` is a text.
    Map,
}

macro_rules! rows {
    ($($kind:ident $name:literal $call:literal $least:ident;)*) => {
        &[$(Row { kind: Kind::$kind, name: $name, call: $call, least: $least }),*]
    };
}

const FILTERS: &[Row] = rows! {
    Text "abs" "(r | length) | abs" Receiver;
    Text "attr" "messages[0] | attr(a)" Argument;
    Text "bool" "r | bool" Nothing;
    Text "capitalize" "r | capitalize" Receiver;
    Text "count" "r | count" Receiver;
    Text "d" "r | d(a)" Nothing;
    Text "default" "missing | default(a)" Nothing;
    Map "dictsort" "r | dictsort" Receiver;
    Text "e" "r | e" Receiver;
    Text "escape" "r | escape" Receiver;
    List "first" "r | first" Nothing;
    Text "float" "r | float(0.0)" Receiver;
    Text "format" "'%s' | format(a)" Argument;
    Text "format" "('%%' ~ r ~ '%s%s') | format(a, a)" Both;
    Text "indent" "r | indent" Receiver;
    Text "int" "r | int(0)" Receiver;
    Map "items" "r | items" Receiver;
    List "join" "r | join(a)" Product;
    List "last" "r | last" Nothing;
    Text "length" "r | length" Receiver;
    List "length" "r | length" Nothing;
    Text "lines" "r | lines" Receiver;
    Text "list" "r | list" Receiver;
    List "list" "r | list" Receiver;
    Text "lower" "r | lower" Receiver;
    List "map" "r | map('replace', 'b', a)" Receiver;
    List "map" "r | map('trim', a)" Product;
    List "map" "r | map(attribute=a)" Product;
    Long "max" "r | max" Receiver;
    List "min" "r | min(attribute=a)" Product;
    List "reject" "r | reject('startingwith', a)" Product;
    List "rejectattr" "r | rejectattr('x', 'equalto', a)" Receiver;
    Text "replace" "r | replace('b', a)" Receiver;
    Text "replace" "r | replace('a', a)" Product;
    Text "reverse" "r | reverse" Receiver;
    List "reverse" "r | reverse" Receiver;
    Text "round" "(r | length) | round" Receiver;
    Text "safe" "r | safe" Receiver;
    List "select" "r | select('equalto', a)" Receiver;
    List "selectattr" "r | selectattr('x', 'equalto', a)" Receiver;
    Long "sort" "r | sort" Receiver;
    List "sort" "r | sort(attribute=a)" Product;
    Text "split" "r | split(a)" Both;
    Text "string" "r | string" Nothing;
    Long "string" "r | string" Receiver;
    List "sum" "r | map('length') | sum" Receiver;
    Text "title" "r | title" Receiver;
    Text "tojson" "r | tojson" Receiver;
    Map "tojson" "r | tojson" Receiver;
    Text "trim" "r | trim(a)" Product;
    Long "unique" "r | unique" Receiver;
    Text "upper" "r | upper" Receiver;
};

const TESTS: &[Row] = rows! {
    Text "!=" "r | select('!=', a)" Receiver;
    Text "<" "[r] | select('<', a) | list" Smaller;
    Text "<=" "[r] | select('<=', a) | list" Smaller;
    Text "==" "[r] | select('==', a) | list" Smaller;
    Text ">" "[r] | select('>', a) | list" Smaller;
    Text ">=" "[r] | select('>=', a) | list" Smaller;
    Text "boolean" "r is boolean" Nothing;
    Text "defined" "r is defined" Nothing;
    Text "divisibleby" "(r | length) is divisibleby 3" Receiver;
    Text "endingwith" "r is endingwith(a)" Smaller;
    Text "eq" "r is eq(a)" Smaller;
    Text "equalto" "r is equalto(a)" Smaller;
    Text "escaped" "r is escaped" Nothing;
    Text "even" "r is even" Nothing;
    Text "false" "r is false" Nothing;
    Text "filter" "a is filter" Argument;
    Text "float" "r is float" Nothing;
    Text "ge" "r is ge(a)" Smaller;
    Text "greaterthan" "r is greaterthan(a)" Smaller;
    Text "gt" "r is gt(a)" Smaller;
    Text "in" "a is in(r)" Receiver;
    Long "in" "a is in(r)" Receiver;
    Text "int" "r is int" Nothing;
    Text "integer" "r is integer" Nothing;
    Text "iterable" "r is iterable" Nothing;
    Text "le" "r is le(a)" Smaller;
    Text "lessthan" "r is lessthan(a)" Smaller;
    Text "lower" "r is lower" Receiver;
    Text "lt" "r is lt(a)" Smaller;
    Text "mapping" "r is mapping" Nothing;
    Text "ne" "r is ne(a)" Smaller;
    Text "none" "r is none" Nothing;
    Text "number" "r is number" Nothing;
    Text "odd" "r is odd" Nothing;
    Text "safe" "r is safe" Nothing;
    Text "sameas" "r is sameas(a)" Smaller;
    Text "sequence" "r is sequence" Nothing;
    Text "startingwith" "r is startingwith(a)" Smaller;
    Text "string" "r is string" Nothing;
    Text "test" "a is test" Argument;
    Text "true" "r is true" Nothing;
    Text "undefined" "r is undefined" Nothing;
    Text "upper" "r is upper" Receiver;
};

const FUNCTIONS: &[Row] = rows! {
    Text "raise_exception" "true or raise_exception(r)" Nothing;
    Text "range" "range(r | length % 1000)" Receiver;
    Text "strftime_now" "strftime_now(r[:900])" Receiver;
    Text "namespace" "namespace(x=r)" Receiver;
    Map "dict" "dict(r)" Receiver;
};

const TEXT_METHODS: &[Row] = rows! {
    Text "capitalize" "r.capitalize()" Receiver;
    Text "count" "r.count(a)" Both;
    Text "endswith" "r.endswith(a)" Smaller;
    Text "find" "r.find(a)" Both;
    Text "format" "(r ~ '{0}{0}').format(a)" Both;
    Text "isalnum" "r.isalnum()" Receiver;
    Text "isalpha" "r.isalpha()" Receiver;
    Text "isascii" "r.isascii()" Receiver;
    Text "isdigit" "r.isdigit()" Nothing;
    Text "islower" "r.islower()" Receiver;
    Text "isnumeric" "r.isnumeric()" Nothing;
    Text "isspace" "r.isspace()" Nothing;
    Text "isupper" "r.isupper()" Receiver;
    List "join" "a.join(r)" Product;
    Text "lower" "r.lower()" Receiver;
    Text "lstrip" "r.lstrip(a)" Product;
    Text "removeprefix" "r.removeprefix(a)" Receiver;
    Text "removesuffix" "r.removesuffix(a)" Receiver;
    Text "replace" "r.replace('a', a)" Product;
    Text "rfind" "r.rfind(a)" Both;
    Text "rsplit" "r.rsplit(a)" Both;
    Text "rsplit" "r.rsplit(a, 1)" Both;
    Text "rstrip" "r.rstrip(a)" Product;
    Text "split" "r.split(a)" Both;
    Text "split" "r.split()" Receiver;
    Text "splitlines" "r.splitlines()" Receiver;
    Text "startswith" "r.startswith(a)" Smaller;
    Text "strip" "r.strip(a)" Product;
    Text "title" "r.title()" Receiver;
    Text "upper" "r.upper()" Receiver;
};

const MAP_METHODS: &[Row] = rows! {
    Map "get" "r.get(a)" Argument;
    Map "items" "r.items()" Receiver;
    Map "keys" "r.keys()" Receiver;
    Map "values" "r.values()" Receiver;
};

const LIST_METHODS: &[Row] = rows! {
    List "count" "r.count(a)" Receiver;
    Long "count" "r.count(a)" Receiver;
};

/// Operators have no list to be compared with: these are all of the grammar that can read or make more than a little.
const OPERATORS: &[Row] = rows! {
    Text "+" "r + a" Both;
    List "+" "r + r" Receiver;
    Text "~" "r ~ a" Both;
    List "~" "r ~ a" Both;
    Text "*" "r * 3" Receiver;
    List "*" "r * 3" Receiver;
    Text "==" "r == a" Smaller;
    Text "!=" "r != a" Smaller;
    Text "<" "r < a" Smaller;
    Text "<=" "r <= a" Smaller;
    Text ">" "r > a" Smaller;
    Text ">=" "r >= a" Smaller;
    Text "chain" "r <= a <= r" Smaller;
    List "==" "r == (r | list)" Receiver;
    Map "==" "r == dict(r)" Receiver;
    Text "in" "a in r" Receiver;
    Text "not in" "a not in r" Receiver;
    List "in" "a in r" Receiver;
    Long "in" "a in r" Receiver;
    Map "in" "a in r" Argument;
    Text "[]" "r[-1]" Receiver;
    Map "[]" "r[a]" Argument;
    Text "[:]" "r[1:]" Receiver;
    List "[:]" "r[::-1]" Receiver;
    List "[literal]" "[r, a]" Both;
    Text "{literal}" "{a: r}" Both;
    Text "(literal)" "(a, r)" Both;
};

/// Sizes of the variants, in elements or bytes.
const LARGE: u64 = 3_000;
const SMALL: u64 = 7;
/// Work and memory of a rendering here.
const LIMITS: Usage = Usage { made: 2 << 20, work: 24 << 20 };
/// What may be allocated beside what is charged: the engine, the compiled template; and how many times what is charged.
const FIXED: u64 = 8 << 20;
const OVERHEAD: u64 = 60;

fn variables(kind: Kind, receiver: u64, argument: u64) -> String {
    let r = match kind {
        Kind::Text => format!("'a' * {receiver}"),
        Kind::List => format!("['a'] * {receiver}"),
        Kind::Long => format!("['a' * {receiver}, 'a' * {receiver} ~ 'b']"),
        Kind::Map => {
            let pairs: Vec<String> = (0..receiver).map(|i| format!("'k{i}': {i}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    };
    format!("{{% set r = {r} %}}{{% set a = 'a' * {argument} %}}")
}

fn least(row: &Row, receiver: u64, argument: u64) -> u64 {
    match row.least {
        Nothing => 0,
        // `strftime_now` takes no more.
        Receiver if row.name == "strftime_now" => receiver.min(900),
        Receiver => receiver,
        Argument => argument,
        Both => receiver + argument,
        Smaller => receiver.min(argument),
        // `join` puts nothing before the first.
        Product => (receiver - 1) * argument,
    }
}

/// What is wrong with a row, if anything.
fn fault(row: &Row) -> Option<String> {
    for (receiver, argument) in [(LARGE, SMALL), (SMALL, LARGE), (LARGE, LARGE)] {
        let before = variables(row.kind, receiver, argument);
        let base = measure(&before, Some(LIMITS));
        let once = measure(&format!("{before}{{% set x = {} %}}", row.call), Some(LIMITS));
        let charged = |usage: Usage| usage.made + usage.work;
        let taken = charged(once.usage) - charged(base.usage);
        let wanted = least(row, receiver, argument);
        // A call that would go beyond its limits is refused before it is done.
        let refused = once.is_bounded() && wanted > LIMITS.made;
        if once.error.is_some() && !refused {
            return Some(format!("{receiver} x {argument}: {:?}", once.error));
        }
        if taken < wanted && !refused {
            return Some(format!(
                "{receiver} x {argument}: charged {taken}, at least {wanted} expected"
            ));
        }
        let looped = measure(
            &format!(
                "{before}{{% for i in range(90000) %}}{{% if {} %}}{{% endif %}}{{% endfor %}}",
                row.call
            ),
            Some(LIMITS),
        );
        if wanted > 500 && !looped.is_bounded() {
            return Some(format!(
                "{receiver} x {argument}: no end in a loop: {:?} {:?}",
                looped.error, looped.usage
            ));
        }
        for measured in [&once, &looped] {
            let most = FIXED + OVERHEAD * charged(measured.usage);
            if measured.allocated > most {
                return Some(format!(
                    "{receiver} x {argument}: {} allocated, {:?}",
                    measured.allocated, measured.usage
                ));
            }
        }
    }
    None
}

#[track_caller]
fn check(what: &str, offered: &[&'static str], rows: &[Row]) {
    let mut faults: Vec<String> = Vec::new();
    for name in offered {
        if !rows.iter().any(|row| row.name == *name) {
            faults.push(format!("{name}: no row"));
        }
    }
    for row in rows {
        if what != "operators" && !offered.contains(&row.name) {
            faults.push(format!("{}: a row for nothing that is offered", row.name));
        }
        faults.extend(fault(row).map(|fault| format!("{} `{}`: {fault}", row.name, row.call)));
    }
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
    eprintln!("{what}: {} rows", rows.len());
}

#[test]
fn every_filter_is_charged() {
    check("filters", &Offered::all().filters, FILTERS);
}

#[test]
fn every_test_is_charged() {
    check("tests", &Offered::all().tests, TESTS);
}

#[test]
fn every_function_is_charged() {
    check("functions", &Offered::all().functions, FUNCTIONS);
}

#[test]
fn every_method_is_charged() {
    let offered = Offered::all();
    check("methods of texts", &offered.text_methods, TEXT_METHODS);
    check("methods of maps", &offered.map_methods, MAP_METHODS);
    check("methods of lists", &offered.list_methods, LIST_METHODS);
}

#[test]
fn every_operator_is_charged() {
    check("operators", &[], OPERATORS);
}

/// The names between brackets behind `field` in the engine's description of itself.
fn described(engine: &str, field: &str) -> Vec<String> {
    let (_, rest) = engine.split_once(&format!("{field}: [")).expect("the engine tells its names");
    let (names, _) = rest.split_once(']').expect("a list ends");
    names.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Methods of Python's texts, lists and maps: the engine has no list of those that it knows.
const PYTHON_METHODS: [(&str, &[&str]); 3] = [
    (
        "'a'",
        &[
            "capitalize",
            "casefold",
            "center",
            "count",
            "encode",
            "endswith",
            "expandtabs",
            "find",
            "format",
            "format_map",
            "index",
            "isalnum",
            "isalpha",
            "isascii",
            "isdecimal",
            "isdigit",
            "isidentifier",
            "islower",
            "isnumeric",
            "isprintable",
            "isspace",
            "istitle",
            "isupper",
            "join",
            "ljust",
            "lower",
            "lstrip",
            "maketrans",
            "partition",
            "removeprefix",
            "removesuffix",
            "replace",
            "rfind",
            "rindex",
            "rjust",
            "rpartition",
            "rsplit",
            "rstrip",
            "split",
            "splitlines",
            "startswith",
            "strip",
            "swapcase",
            "title",
            "translate",
            "upper",
            "zfill",
        ],
    ),
    (
        "{'a': 'a'}",
        &[
            "clear",
            "copy",
            "fromkeys",
            "get",
            "items",
            "keys",
            "pop",
            "popitem",
            "setdefault",
            "update",
            "values",
        ],
    ),
    (
        "['a']",
        &[
            "append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove",
            "reverse", "sort",
        ],
    ),
];

/// Functions and filters that come with the engine in crates of their own, or with the Python original.
const ELSEWHERE: [&str; 18] = [
    "cycler",
    "joiner",
    "pluralize",
    "filesizeformat",
    "truncate",
    "striptags",
    "wordcount",
    "wordwrap",
    "datetimeformat",
    "timeformat",
    "dateformat",
    "now",
    "random",
    "randrange",
    "lipsum",
    "urlize",
    "xmlattr",
    "forceescape",
];

/// Whether a template says that it does not know a name.
fn is_unknown(source: &str) -> bool {
    let measured = measure(source, Some(LIMITS));
    measured.error.is_some_and(|error| error.contains("unknown") || error.contains("no method"))
}

/// All that the engine brings is known here by its own account, and what of it is not offered cannot be called; what is offered
/// can.
#[test]
fn nothing_else_can_be_called() {
    let engine = minijinja::Environment::new();
    let told = format!("{engine:?}");
    let offered = Offered::all();
    let mut faults: Vec<String> = Vec::new();
    let mut tried = [0; 2];
    let mut check = |what: &str, name: &str, is_offered: bool, source: String| {
        tried[usize::from(is_offered)] += 1;
        if is_unknown(&source) == is_offered {
            let can = if is_offered { "offered and cannot" } else { "not offered and can" };
            faults.push(format!("{what} `{name}` is {can} be called: {source}"));
        }
    };
    let names = |own: &[String], offered: &[&'static str]| -> Vec<String> {
        let all = own.iter().map(String::as_str).chain(offered.iter().copied()).chain(ELSEWHERE);
        std::collections::BTreeSet::from_iter(all).into_iter().map(str::to_owned).collect()
    };
    let filters = described(&told, "filters");
    assert!(filters.len() > 40 && filters.iter().any(|name| name == "groupby"), "{filters:?}");
    for name in names(&filters, &offered.filters) {
        let source = format!("{{% set x = ['a'] | {name} %}}");
        check("filter", &name, offered.filters.contains(&&*name), source);
    }
    let tests = described(&told, "tests");
    assert!(tests.len() > 30 && tests.iter().any(|name| name == "sameas"), "{tests:?}");
    for name in names(&tests, &offered.tests) {
        let source = format!("{{% set x = ['a'] | select('{name}', 'a') | list %}}");
        check("test", &name, offered.tests.contains(&&*name), source);
    }
    let globals: Vec<String> = engine.globals().map(|(name, _)| name.to_owned()).collect();
    assert!(globals.iter().any(|name| name == "debug"), "{globals:?}");
    for name in names(&globals, &offered.functions) {
        let source = format!("{{% set x = {name}(1) %}}");
        check("function", &name, offered.functions.contains(&&*name), source);
    }
    let lists = [&offered.text_methods, &offered.map_methods, &offered.list_methods];
    for ((receiver, methods), offered) in PYTHON_METHODS.into_iter().zip(lists) {
        for name in methods {
            let source = format!("{{% set x = {receiver}.{name}() %}}");
            check("method", name, offered.contains(name), source);
        }
        assert!(offered.iter().all(|name| methods.contains(name)), "{offered:?}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(tried[0] > 90 && tried[1] > 120, "{tried:?} tried that are not offered and are");
}
