//! Templates made to hang or to fill the memory, each with the whole budget: all end at a bound.

use super::measure;

/// Allocations that a rendering may need beside what it is charged, as a multiple of that.
const OVERHEAD: u64 = 40;
/// And what the engine and the compiled template take in any case.
const FIXED: u64 = 64 << 20;

/// Expressions that are one step of the engine each, over `s` of eight million bytes and others.
const SINGLE: &[&str] = &[
    "('{0}' * 4000000).format('a' * 1000000)",
    "('{0:9999}' * 1000000).format(1)",
    "('{:>9999}{:<9999}' * 500000).format(1, 2)",
    "('%s' * 1000000) | format('a' * 8000000)",
    "'%(a)s%(a)s%(a)s%(a)s%(a)s' | format({'a': 'b' * 8000000})",
    "('%(a)s' * 1000000) | format({'a': 'b' * 1000000})",
    "('%9999d' * 2000000) | format(1)",
    "('%.9999f' * 2000000) | format(1.5)",
    "('{a}' * 2000000).format(a='b' * 1000000)",
    "('{0}' * 2000000).format(['a' * 1000000])",
    "('a' * 8000000).strip('b' * 1000000 ~ 'a')",
    "('a' * 8000000).lstrip('b' * 1000000 ~ 'a')",
    "('a' * 8000000).rstrip('b' * 1000000 ~ 'a')",
    "('a' * 8000000) | trim('b' * 1000000 ~ 'a')",
    "strftime_now('%A' * 2000000)",
    "('a ' * 4000000).split()",
    "('a ' * 4000000) | split",
    "('a,' * 4000000).split(',')",
    "('a,' * 4000000).rsplit(',')",
    "('a\n' * 4000000).splitlines()",
    "('\n' * 8000000) | lines",
    "('a' * 8000000) | list",
    "('a' * 8000000) | sort",
    "('a' * 8000000) | unique",
    "('a' * 8000000) | map('upper')",
    "('a' * 8000000) | select",
    "('\"' * 8000000) | escape",
    "('\n' * 4000000) | indent(1000)",
    "('a' * 4000000).replace('a', 'b' * 1000)",
    "('a' * 4000000) | replace('', 'b' * 1000)",
    "([['a' * 1000] * 1000] * 600) | sum(start=[])",
    "(['a' * 1000] * 100000) | sum(start='')",
    "(['a' * 1000] * 100000) | join('b' * 1000)",
    "('b' * 1000).join(['a' * 1000] * 100000)",
    "([['a' * 1000] * 1000] * 1000) | string",
    "([['a' * 1000] * 1000] * 1000) | tojson",
    "([['a' * 1000] * 1000] * 1000) | upper",
    "([['a' * 1000] * 1000] * 1000) | escape",
    "([['a' * 1000] * 1000] * 1000) ~ ''",
    "([['a' * 1000] * 1000] * 1000) == ([['a' * 1000] * 1000] * 1000)",
    "([['a' * 1000] * 1000] * 1000) < ([['a' * 1000] * 1000] * 1000)",
    "'b' in ([['a' * 1000] * 1000] * 1000)",
    "([['a' * 1000] * 1000] * 1000) is eq([['a' * 1000] * 1000] * 1000)",
    "([['a' * 1000] * 1000] * 1000) | unique",
    "([['a' * 1000] * 1000] * 1000) | sort",
    "(['a' * 4000000, 'b'] * 200000) | min",
    "(['a' * 4000000, 'b'] * 200000) | max",
    "([{'a': 'b' * 100000}] * 1000) | sort(attribute='a,a,a,a,a,a,a,a,a,a,a')",
    "([{'a': 'b'}] * 100000) | map(attribute='a.' * 1000000) | list",
    "([{'a': 'b'}] * 100000) | selectattr('a.' * 1000000) | list",
    "([{'a': 'b'}] * 100000) | sort(attribute='a.' * 1000000)",
    "([{'a': 'b'}] * 100000) | min(attribute='a.' * 1000000)",
    "([{'a': 'b'}] * 100000) | sum(attribute='a.' * 1000000)",
    "(['a' * 4000000] * 100000) | select('in', 'a' * 4000000 ~ 'b') | list",
    "(['a' * 4000000] * 100000) | select('equalto', 'a' * 3999999 ~ 'b') | list",
    "(['a' * 4000000] * 100000) | map('replace', 'a', 'bb') | list",
    "(['a' * 4000000] * 100000).count('a' * 3999999 ~ 'b')",
    "raise_exception([['a' * 1000] * 1000] * 1000)",
];

/// The same in loops, where each turn reads eight megabytes and makes nothing.
const REPEATED: &[&str] = &[
    "t in s",
    "s in t",
    "s == u",
    "s != u",
    "s < u",
    "s <= u",
    "s > u",
    "s >= u",
    "t not in s",
    "s is eq u",
    "s is in [u]",
    "s is lower",
    "s is upper",
    "s.count(t)",
    "s.find(t)",
    "s.rfind(t)",
    "s.startswith(u)",
    "s.endswith('b' ~ u)",
    "s.islower()",
    "s.isalpha()",
    "s.isascii()",
    "s.isspace() or s.isalnum()",
    "s | length",
    "s[7999999]",
    "s[-1]",
    "s[:1]",
    "{s: 1}[u]",
    "messages[0][s]",
    "messages[0].get(s)",
    "s in messages[0]",
    "loop.changed(s, u)",
    "s | int(0)",
    "s | float(0)",
    "s is startingwith u",
    "s is filter",
    "s is test",
    "l | length and 1 in l",
    "l == m",
    "l < m",
    "l.count(1)",
    "l | min",
    "l | max",
    "l | sum",
    "l | first and l[9:]",
    "l | last",
    "(l | reverse)[0]",
    "s | first and s | last",
    "n == o",
    "s | attr(s)",
    "s is sameas u",
];

/// Renders; the complaint if it neither ends at a bound nor leaves the memory alone.
fn fault(source: &str) -> Option<String> {
    let measured = measure(source, None);
    let charged = measured.usage.made + measured.usage.work;
    let told = format!(
        "{source:.200}: {} allocated, {:?}, {:?}",
        measured.allocated, measured.usage, measured.error
    );
    let fits = measured.allocated <= FIXED + OVERHEAD * charged;
    (!measured.is_bounded() || !fits).then_some(told)
}

#[track_caller]
fn all_bounded(sources: impl Iterator<Item = String>) {
    let faults: Vec<String> = sources.filter_map(|source| fault(&source)).collect();
    assert!(faults.is_empty(), "not bounded:\n{}", faults.join("\n"));
}

#[test]
fn one_expression_ends_at_a_bound() {
    all_bounded(
        SINGLE
            .iter()
            .map(|expression| format!("{{% set x = {expression} %}}{{{{ x }}}}{{{{ x }}}}")),
    );
}

#[test]
fn reading_in_a_loop_ends_at_a_bound() {
    all_bounded(REPEATED.iter().map(|expression| {
        format!(
            "{{% set s = 'a' * 3000000 %}}{{% set u = 'a' * 3000000 %}}{{% set t = 'a' * 64 ~ 'b' %}}\
             {{% set l = [0] * 60000 %}}{{% set m = [0] * 60000 %}}{{% set n = [l] %}}{{% set o = [m] %}}\
             {{% for i in range(90000) %}}{{% if {expression} %}}{{% endif %}}{{% endfor %}}"
        )
    }));
}

/// Each variable keeps what a call made.
#[test]
fn what_variables_keep_ends_at_a_bound() {
    for expression in
        ["strftime_now('%A' * 500)", "s | upper", "s.lower()", "s | trim", "s[1:]", "s | safe"]
    {
        let sets: String = (0..3_900).map(|i| format!("{{% set a{i} = {expression} %}}")).collect();
        let source = format!("{{% set s = ' b' * 500000 %}}{sets}");
        let measured = measure(&source, None);
        // Short texts may be kept; what is kept is what was charged.
        assert!(
            measured.usage.made < 20 << 20 && measured.allocated < 512 << 20,
            "{expression}: {:?}",
            measured.usage
        );
    }
}

/// Each operator of a chain copies all before it.
#[test]
fn long_chains_end_at_a_bound() {
    all_bounded(["+", "~"].into_iter().map(|operator| {
        let chain = format!("s{}", format!(" {operator} 'b'").repeat(400));
        format!("{{% set s = 'a' * 3000000 %}}{{% for i in range(9000) %}}{{% if {chain} %}}{{% endif %}}{{% endfor %}}")
    }));
}

/// Names and constants are looked up at each use: long ones are refused or charged.
#[test]
fn long_names_end_at_a_bound() {
    let name = "a".repeat(300_000);
    let source = format!(
        "{{% for i in range(90000) %}}{{% if messages[0]['{name}'] %}}{{% endif %}}{{% endfor %}}"
    );
    all_bounded([source].into_iter());
}
