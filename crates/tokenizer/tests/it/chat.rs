//! Chat templates: whose text is whose, what templates may call, and what they may take.

use crate::common::{CONTROL, USER_DEFINED, Vocabulary, decode, joined};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use tokenizer::{ChatTemplate, Error, Message, RenderOptions, Span, Tokenizer};

const CONTROLS: &[&str] = &[
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<|user|>",
    "<|Assistant|>",
    "[INST]",
    "[|user|]",
    "<a",
    "<a>",
];

static GO: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

static VOCABULARY: LazyLock<Tokenizer> = LazyLock::new(|| {
    let mut v = Vocabulary::byte_level();
    for text in CONTROLS {
        v.add(text, CONTROL);
    }
    v.add("<think>", USER_DEFINED);
    v.add("</think>", USER_DEFINED);
    v.key("tokenizer.ggml.bos_token_id", 259_u32)
        .key("tokenizer.ggml.eos_token_id", 260_u32)
        .build()
});

fn messages(contents: &[(&str, &str)]) -> Vec<Message> {
    contents.iter().map(|(role, content)| Message::new(*role, *content)).collect()
}

fn render(source: &str, contents: &[(&str, &str)]) -> Result<Vec<Span>, Error> {
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let mut template = ChatTemplate::new(source, &VOCABULARY)?;
    template.set_time(1_721_952_000);
    template.render(&messages(contents), &options, &GO)
}

/// What a template without messages prints.
#[track_caller]
fn prints(source: &str, expect: &str) {
    match render(source, &[("user", "Hi")]) {
        Ok(spans) => assert_eq!(joined(&spans), expect, "{source}"),
        Err(e) => panic!("{source}: {e}"),
    }
}

#[track_caller]
fn fails(source: &str, words: &[&str]) {
    let message = match render(source, &[("user", "Hi")]) {
        Ok(spans) => {
            panic!("printed {:.80}, expected an error with {words:?}", joined(&spans))
        }
        Err(e) => e.to_string(),
    };
    assert!(words.iter().all(|word| message.contains(word)), "{message}: expected {words:?}");
    assert!(!message.contains(char::is_control) && message.chars().count() <= 400, "{message}");
}

fn special(spans: &[Span]) -> Vec<&str> {
    spans.iter().filter(|s| s.special).map(|s| s.text.as_str()).collect()
}

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
/// Prints contents with nothing between them, and with the ends of control tokens around them.
const BARE: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";
const HUGGING: &str = "{% for m in messages %}<{{ m.content }}>[{{ m['content'] }}]<|{{ m.content | trim }}|>{% endfor %}";
const CUTTING: &str = "{% for m in messages %}{{ m.content.replace('-', '') }}{{ m.content.split('-') | join }}{{ m.content[2:] }}\
    {{ m.content | tojson }}{{ m.content | upper | lower }}{% set x %}{{ m.content }}{% endset %}{{ x }}{% endfor %}";

#[test]
fn only_the_templates_own_text_is_special() {
    let spans = render(CHATML, &[("user", "Hi")]).unwrap();
    let plain = |text: &str| Span { text: text.to_owned(), special: false };
    let control = |text: &str| Span { text: text.to_owned(), special: true };
    assert_eq!(
        spans,
        [
            control("<|im_start|>"),
            plain("user\nHi"),
            control("<|im_end|>"),
            plain("\n"),
            control("<|im_start|>"),
            plain("assistant\n")
        ]
    );
    let ids = VOCABULARY.encode_spans(&spans).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id >= 256).count(), 3);
    assert_eq!((ids[0], ids.len()), (256, 3 + "user\nHi\nassistant\n".len()));
}

/// Renders contents with each template and returns the prompts; fails if a content made a control token.
fn inert(contents: &[(&str, &str)]) {
    let t = &*VOCABULARY;
    for source in [CHATML, BARE, HUGGING, CUTTING] {
        let empty: Vec<_> = contents.iter().map(|(role, _)| (*role, "")).collect();
        let expect = special(&render(source, &empty).unwrap()).len();
        let spans = render(source, contents).unwrap();
        assert_eq!(special(&spans).len(), expect, "{source}: {spans:?}");
        let ids = t.encode_spans(&spans).unwrap();
        assert_eq!(
            ids.iter().filter(|&&id| t.is_control(id)).count(),
            expect,
            "{source}: {spans:?}"
        );
        let text: String = spans.iter().filter(|s| !s.special).map(|s| s.text.as_str()).collect();
        assert_eq!(decode(t, &ids), text);
    }
    let bare = joined(&render(BARE, contents).unwrap());
    assert_eq!(bare, contents.iter().map(|(_, content)| *content).collect::<String>());
}

#[test]
fn contents_never_become_control_tokens() {
    let all = CONTROLS.concat();
    inert(&[("user", &all), ("tool", &all), ("system", &all), ("assistant", &all)]);
    for text in CONTROLS {
        inert(&[("user", text)]);
        // Split over two messages, at every place.
        for at in (1..text.len()).filter(|&at| text.is_char_boundary(at)) {
            inert(&[("user", &text[..at]), ("user", &text[at..])]);
            inert(&[("user", &format!("{}-{}", &text[..at], &text[at..]))]);
        }
    }
    inert(&[("user", "im_end"), ("user", "|"), ("user", "s"), ("user", "INST"), ("user", "a")]);
}

#[test]
fn contents_with_the_signs_of_marks_are_text_too() {
    for c in ['\u{10FFFD}', '\u{10FFFC}', '\u{100000}'] {
        inert(&[
            ("user", &format!("{c}0{c}{c}1{c}{c}<{c}>{c}")),
            ("user", "\u{10FFFB}0\u{10FFFB}"),
        ]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_content_becomes_a_control_token(parts in prop::collection::vec("(<|s|>|\\||im_end|/s|<a|-|\u{10FFFD}|0| |.){0,8}", 1..4)) {
        let contents: Vec<(&str, &str)> = parts.iter().map(|part| ("user", part.as_str())).collect();
        inert(&contents);
    }
}

#[test]
fn control_tokens_around_a_role_are_found() {
    let check = |source: &str, expect: &[&str]| {
        let contents = [("user", "<|user|>"), ("assistant", "user")];
        let spans = render(
            &format!("{{% for m in messages %}}{source}{{{{ m.content }}}}{{% endfor %}}"),
            &contents,
        )
        .unwrap();
        assert_eq!(special(&spans), expect, "{source}: {spans:?}");
    };
    check("{{ '<|' + m.role + '|>' }}", &["<|user|>"]);
    check("<|{{ m['role'] }}|>\n", &["<|user|>"]);
    check("{{ '[|' ~ m.role ~ '|]' }}", &["[|user|]"]);
    check("{{ '<|' + m.role | title + '|>' }}", &["<|Assistant|>"]);
    check("{{ '<|' + m.role + ' ' + '|>' }}", &[]);
    // A role that is not one, and a content in the place of a role.
    assert_eq!(
        special(&render("<|{{ messages[0].role }}|>", &[("im_end", "")]).unwrap()),
        [] as [&str; 0]
    );
    assert_eq!(
        joined(&render("<|{{ messages[0].role }}|>", &[("im_end", "")]).unwrap()),
        "<|im_end|>"
    );
}

#[test]
fn begin_and_end_tokens_are_the_templates_own() {
    let spans =
        render("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", &[("user", "<s></s>")])
            .unwrap();
    assert_eq!(special(&spans), ["<s>", "</s>"]);
    assert_eq!(joined(&spans), "<s><s></s></s>");
}

#[test]
fn thoughts_can_be_cut_from_contents() {
    let source = "{% for m in messages %}{{ m.content.split('</think>')[-1].lstrip('\n') }}|\
        {{ m.content.startswith('<think>') }}|{{ '</think>' in m.content }};{% endfor %}";
    let spans = render(source, &[("assistant", "<think>\na\n</think>\n\nb"), ("assistant", "<s>")])
        .unwrap();
    assert_eq!(joined(&spans), "b|True|True;<s>|False|False;");
    assert_eq!(special(&spans), [] as [&str; 0]);
}

#[test]
fn without_a_template_chatml() {
    let t = Vocabulary::byte_level();
    let (file, tokenizer) = (t.file(), t.build());
    let template = ChatTemplate::from_gguf(file.metadata(), &tokenizer).unwrap();
    assert!(template.is_fallback());
    let prompt = joined(
        &template
            .render(&messages(&[("system", "S"), ("user", "U")]), &RenderOptions::default(), &GO)
            .unwrap(),
    );
    assert_eq!(prompt, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n");
    let with = t.key("tokenizer.chat_template", "{{ messages|length }}");
    let template = ChatTemplate::from_gguf(with.file().metadata(), &tokenizer).unwrap();
    assert!(!template.is_fallback());
    let wrong = with.key("tokenizer.chat_template", vec!["a", "b"]);
    let message =
        ChatTemplate::from_gguf(wrong.file().metadata(), &tokenizer).err().unwrap().to_string();
    assert!(message.contains("tokenizer.chat_template"), "{message}");
}

#[test]
fn white_space_is_trimmed_as_jinja_is_told_to() {
    prints("{% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb");
    prints("a\n    {%- if true -%}   b   {%- endif %}\n\nc", "ab\nc");
    prints("{# note #}\nx {{ 'y' }}\nz\n\n", "x y\nz\n");
    prints("{% raw %}{{ x }}{% endraw %}", "{{ x }}");
    prints("a{% generation %}b{% endgeneration %}c", "abc");
    prints("q\"uo\\te\t'{{ \"d'\\\"\" }}", "q\"uo\\te\t'd'\"");
}

#[test]
fn expressions_mean_what_they_meant() {
    prints(
        "{{ 1 + 2 * 3 - 4 // 3 }} {{ 2 ** 3 * 2 }} {{ -3 + 1 }} {{ 7 % 4 * 2 }} {{ 1.5 * 2 }}",
        "6 16 -2 6 3.0",
    );
    prints("{{ 'a' ~ 1 + 2 ~ 'b' }} {{ 'a' + 'b' ~ 3 }} {{ 'x' * 3 ~ '|' }}", "a12b ab3 xxx|");
    prints(
        "{{ ([1, 2] + [3])[1:] | join('-') }} {{ 'abc'[::-1] }} {{ messages[0]['content'][-1] }}",
        "2-3 cba i",
    );
    prints(
        "{{ 'y' if 1 + 1 == 2 and not false else 'n' }} {{ 3 is not none and 4 is divisibleby 2 }}",
        "y True",
    );
    prints(
        "{{ {'a': 1 + 1, 'b': [x]}['a'] }} {{ (1, 2)|length }} {{ none }}{{ missing }}",
        "2 2 None",
    );
    prints(
        "{% set a, b = 1, 'q' %}{% for k, v in {'z': 1}.items() %}{{ k ~ v + b }}{% endfor %}",
        "z1q",
    );
    prints(
        "{% set ns = namespace(n=0, t='') %}{% for i in range(4) if i is odd %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
        "4",
    );
    prints(
        "{% macro f(x, y='d' ~ 'e') %}<{{ x }}{{ y }}>{% endmacro %}{{ f(1) }}{{ f('a' + 'b', y=2) }}",
        "<1de><ab2>",
    );
    prints(
        "{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}{% filter upper %}b{% endfilter %}",
        "A1B",
    );
    prints(
        "{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{% endfor %}{% if x is defined %}n{% elif 'H' in messages[0].content %}y{% endif %}",
        "0Truey",
    );
    prints(
        "{% for i in [1,2,3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% if i > 2 %}{% break %}{% endif %}{% endfor %}",
        "13",
    );
    prints(
        "{{ messages | map(attribute='content') | list | length }} {{ messages | selectattr('role', 'equalto', 'user') | list | count }}",
        "1 1",
    );
    prints(
        "{{ 'a b'.split()|last }} {{ ' x '.strip() }} {{ 'abcabc'.replace('b', '') }} {{ 'a,b,c'.rsplit(',', 1)[0] }} {{ 'ab'.removeprefix('a') }}",
        "b x acac a,b b",
    );
    prints(
        "{{ '%s=%d' | format('a', 3) }} {{ '{}-{}'.format(1, 2) }} {{ ','.join(['a', 1]) }} {{ 'a\nb' | indent(2) }}",
        "a=3 1-2 a,1 a\n  b",
    );
}

#[test]
fn what_transformers_adds() {
    prints(
        "{{ {'b': 'é<\"\\n', 'a': [1, 2.5, none, true, {}, []]} | tojson }}",
        r#"{"b": "é<\"\n", "a": [1, 2.5, null, true, {}, []]}"#,
    );
    prints(
        "{{ {'b': 'é😀', 'a': 1} | tojson(ensure_ascii=true, sort_keys=true) }}",
        r#"{"a": 1, "b": "\u00e9\ud83d\ude00"}"#,
    );
    prints(
        "{{ {'b': [1, {}], 'a': {'c': 2}} | tojson(indent=2) }}",
        "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": {\n    \"c\": 2\n  }\n}",
    );
    prints("{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}", "[1,{\"a\":2}]");
    prints(
        "{{ tools is iterable }}{{ tools is none }}{{ nope is iterable }}{{ [] is iterable }}{{ 'a' is iterable }}",
        "FalseTrueFalseTrueTrue",
    );
    prints("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024");
    fails(
        "{{ 1 }}\n{{ raise_exception('no \u{1b}[31msystem\nrole') }}",
        &["line 2", "no \\u{1b}[31msystem\\nrole"],
    );
}

#[test]
fn malformed_templates_name_the_line() {
    fails("a\n{% if x %}\nb", &["line"]);
    fails("a\n\n{{ 1 + }}", &["line 3"]);
    fails("{{ (1 }}", &["line 1"]);
    fails("{{ 'a }}", &["line 1"]);
    fails("{% frob %}", &["line 1", "frob"]);
    fails("x\n{{ messages[5].content.x }}", &["line 2", "undefined"]);
    fails("x\n{{ 'a' | nosuch }}", &["line 2", "nosuch"]);
    fails("{% endif %}", &["line 1"]);
    for tag in ["include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'", "block x"] {
        fails(&format!("{{% {tag} %}}"), &["not supported"]);
    }
    fails("{{ rooflight_text(1) }}", &["reserved"]);
    fails("{{ ''.__class__.__mro__ }}", &["undefined"]);
}

#[test]
fn depth_is_bounded_before_anything_recurses() {
    fails(&"{% if true %}".repeat(20_000), &["nested deeper than 64"]);
    fails(
        &format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(3_000)),
        &["nested deeper than 64"],
    );
    fails(
        &format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000)),
        &["nested deeper than 64"],
    );
    fails(&format!("{{{{ {} }}}}", "[".repeat(50_000)), &["not closed"]);
    fails(&format!("{{{{ 1{} }}}}", " + 1".repeat(50_000)), &["500 operations"]);
    fails(&format!("{{{{ a{} }}}}", ".b".repeat(50_000)), &["500 operations"]);
    fails(&format!("{{{{ a{} }}}}", "|upper".repeat(50_000)), &["500 operations"]);
    fails(&format!("{{{{ {}1 }}}}", "not ".repeat(50_000)), &["500 operations"]);
    fails(&format!("{{{{ {}1 }}}}", "-".repeat(50_000)), &["500 operations"]);
    fails(&"{{ 1 }}".repeat(5_000), &["4000 tags"]);
    fails(&"x".repeat((1 << 20) + 1), &["1048577 bytes"]);
    fails("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", &["recursion limit"]);
    // Brackets do not hide how deep what is compiled gets.
    let level = |inner: String| format!("({inner}{})", " + 1".repeat(60));
    fails(
        &format!("{{{{ {} }}}}", (0..40).fold("1".to_owned(), |inner, _| level(inner))),
        &["500 operations"],
    );
    fails(&format!("{{{{ {} }}}}", "b".repeat(300)), &["name of more than 256 bytes"]);
    // Just inside the bounds: must work.
    prints(&format!("{}x{}", "{% if true %}".repeat(60), "{% endif %}".repeat(60)), "x");
    prints(&format!("{{{{ {}1{} }}}}", "(".repeat(60), ")".repeat(60)), "1");
    prints(&format!("{{{{ 'a'{} }}}}", " + 'a'".repeat(300)), &"a".repeat(301));
    prints(&format!("{{{{ 0{} }}}}", " - 1 + 1".repeat(50)), "0");
}

#[test]
fn steps_are_bounded() {
    fails("{% for i in range(1000000000) %}{% endfor %}", &["range"]);
    fails(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        &["steps"],
    );
    fails(
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ i * j }}{% endfor %}{% endfor %}",
        &["steps"],
    );
}

/// What made the engine panic.
#[test]
fn arithmetic_that_cannot_be_done_is_an_error() {
    fails("{{ 4 is divisibleby 0 }}", &["divisible by 0"]);
    fails("{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", &["cycle"]);
    fails("{% macro f() %}{% endmacro %}{{ f(*[1]) }}", &["unpacking"]);
    fails("{% macro f() %}{% endmacro %}{{ f(**{'a': 1}) }}", &["unpacking"]);
    fails(
        "{{ range(9223372036854775807, -9223372036854775807, -9223372036854775807) }}",
        &["2^53"],
    );
    prints(
        "{{ 'abc'[1:2:-1] }}{{ [1, 2][::-9223372036854775807] }}{{ 6 is divisibleby 3 }}",
        "[2]True",
    );
}

#[test]
fn comparisons_and_indices_mean_what_they_meant() {
    prints(
        "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' not in 'b' }} {{ not 'a' in 'ab' }}",
        "True False True True False",
    );
    prints(
        "{{ 'a' ~ 1 == 'a1' and 1 + 1 in [2] or x }} {{ 'y' if 'H' in messages[0].content else 'n' }}",
        "True y",
    );
    prints(
        "{{ x == none }} {{ x in [1] }} {{ 'x' in x }} {{ 'role' in messages[0] }} {{ none == none }}",
        "False False False True True",
    );
    prints(
        "{{ -[1, 2][0] }} {{ 'ab'[-1] }} {{ (1, 2)[0] }} {{ {'a': {'b': [5]}}['a']['b'][0] + 1 }}",
        "-1 b 1 6",
    );
    prints(
        "{{ 'abc'[1:][0] }} {{ 'äöü'[1:] }} {{ [1, 2, 3][-2:] }} {{ (1, 2, 3)[:2] }} {{ x[1:] }}",
        "b öü [2, 3] (1, 2) []",
    );
    prints(
        "{{ messages[0]['content'][0] }} {{ messages[-1].role }} {{ messages[9] is defined }}",
        "H user False",
    );
    prints(
        "{% for c in 'ab' if c != 'a' %}{{ c }}{% endfor %}{% for i in range(3) if i in [0, 2] %}{{ i }}{% endfor %}",
        "b02",
    );
    prints(
        "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }}{% endfor %}",
        "TrueaFalsebTruea",
    );
    prints(
        "{{ 'a  b c '.split(none, 1) }} {{ ' a b'.split() }} {{ 'a,b,c'.rsplit(',') }} {{ 'a,b'.rsplit(',', 0) }}",
        "['a', 'b c'] ['a', 'b'] ['a', 'b', 'c'] ['a,b']",
    );
    prints(
        "{{ 3 is in [3] }} {{ 3 is not in [3] }} {{ 4 is divisibleby 2 }} {{ 'a' is eq 'a' }}",
        "True False True True",
    );
    fails("{{ 1 in 2 }}", &["line 1"]);
    fails("{{ [1] in 'a' }}", &["text"]);
}

#[test]
fn a_cancel_stops_rendering() {
    let template = ChatTemplate::new(CHATML, &VOCABULARY).unwrap();
    let cancel = Arc::new(AtomicBool::new(true));
    let (result, usage) =
        template.measure(&messages(&[("user", "Hi")]), &RenderOptions::default(), &cancel);
    assert!(
        matches!(result, Err(Error::Cancelled)) && usage.work + usage.made == 0,
        "{result:?} {usage:?}"
    );
    // Set while it runs: the rest is not done.
    let busy =
        "{% for i in range(90000) %}{% if 'b' in messages[0].content %}{% endif %}{% endfor %}";
    let template = ChatTemplate::new(busy, &VOCABULARY).unwrap();
    let long = messages(&[("user", &"a".repeat(1 << 20))]);
    let cancel = Arc::new(AtomicBool::new(false));
    let result = std::thread::scope(|threads| {
        let rendering =
            threads.spawn(|| template.render(&long, &RenderOptions::default(), &cancel));
        cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        rendering.join().unwrap()
    });
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
}

#[test]
fn memory_is_bounded() {
    let much = &["MiB of text"];
    let double = |body: &str| {
        format!(
            "{{% set ns = namespace(s='aaaaaaaa', l=[1]) %}}{{% for i in range(60) %}}{body}{{% endfor %}}done"
        )
    };
    for body in [
        "{% set ns.s = ns.s + ns.s %}",
        "{% set ns.s = ns.s ~ ns.s %}",
        "{% set ns.s = ns.s * 2 %}",
        "{% set ns.s = ns.s.replace('a', 'aa') %}",
        "{% set ns.s = ns.s | replace('a', 'aa') %}",
        "{% set ns.s = [ns.s, ns.s] | join %}",
        "{% set ns.s = ns.s.join(['', '', '']) %}",
        "{% set ns.s = '%s%s' | format(ns.s, ns.s) %}",
        "{% set ns.s = '{0}{0}'.format(ns.s) %}",
        "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}",
        "{% set ns.l = ns.l + ns.l %}",
        "{% set ns.l = [ns.l, ns.l] %}",
        "{% set ns.l = {'a': ns.l, 'b': ns.l} %}",
        "{% set ns.l = (ns.l, ns.l) %}",
        "{% set ns.l = dict(a=ns.l, b=ns.l) %}",
        "{% set ns.l = ns.l * 2 %}",
        "{% set ns.l = ns.l + ns.l[:] %}",
    ] {
        fails(&double(body), much);
    }
    for source in [
        "{{ 'a' * 1000000000 }}",
        "{{ 99999999 * 'a' }}",
        "{{ ([1] * 1000000000) | length }}",
        "{{ (1, 2) * 1000000000 }}",
        "{{ 'a\nb' | indent(1000000000) }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{% for i in range(90000) %}{{ messages | tojson }}{{ messages | tojson }}{{ messages | tojson }}{{ messages | tojson }}{{ messages | tojson }}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l, x[1:]] %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = ns.l + [range(90000) | list] %}{% endfor %}",
    ] {
        fails(source, much);
    }
    fails("{{ '%01000000000d' | format(1) }}", &["wide"]);
    fails("{{ '{:1000000000}'.format(1) }}", &["wide"]);
    fails("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", &["namespace"]);
    fails("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", &["namespace"]);
    fails(
        "{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l] %}{% endfor %}",
        &["nested deeper"],
    );
    fails(
        &format!("{{% set x = 'a' * 1000000 %}}{}", "{{ x }}".repeat(9)),
        &["prompt of more than 83886", "bytes"],
    );
}

/// A million tokens are more than 8 MiB of text; what a template makes of a few words is bounded all the same (above).
#[test]
fn a_long_conversation_is_a_long_prompt() {
    let long = "\u{4e00}\u{53ea}\u{732b}. ".repeat(1_200_000);
    let source = "{% for m in messages %}{{ '<|x|>' + m.content }}{% endfor %}";
    let spans = render(source, &[("user", &long), ("assistant", "yes")]).unwrap();
    assert_eq!(joined(&spans).len(), long.len() + 13);
}

#[test]
fn lazy_values_do_not_pile_up() {
    let source = format!(
        "{{% set x = range(3) %}}{}{{{{ x | length }}}}",
        "{% set x = x[0:] %}".repeat(3_900)
    );
    prints(&source, "3");
    prints(
        "{% set ns = namespace(x=range(3)) %}{% for i in range(9000) %}{% set ns.x = ns.x | reverse %}{% endfor %}{{ ns.x | list }}",
        "[0, 1, 2]",
    );
}

#[test]
fn a_long_conversation_is_within_the_bounds() {
    let long = "word ".repeat(100_000);
    let many: Vec<_> = (0..2_000)
        .map(|i| if i % 2 == 0 { ("user", "Hi") } else { ("assistant", "<think>a</think>b") })
        .collect();
    render(CHATML, &[("system", "x"), ("user", &long)]).unwrap();
    assert_eq!(special(&render(CHATML, &many).unwrap()).len(), 4_001);
}

proptest! {
    /// Whatever the template, rendering ends without a panic.
    #[test]
    fn any_template_ends(source in "(\\{\\{ | \\}\\}|\\{% | %\\}|if |endif|for |in |endfor|set |messages|x|\\[|\\]|\\(|\\)|\\||\\.|\\+|~|\\*|-|:|,|=|'|a|<s>|1|macro |is |not |\n){0,30}") {
        let _ = render(&source, &[("user", "Hi")]);
    }

    #[test]
    fn any_text_prints_as_it_is(text in "[^{}#%\n]{1,40}x") {
        prints(&text, &text);
    }
}
