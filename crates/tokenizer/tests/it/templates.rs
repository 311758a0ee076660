//! What templates compute: slices, and dates.

use std::sync::Arc;

use crate::common::joined;
use tokenizer::{ChatTemplate, Message, RenderOptions, TemplateVariables};

/// What a template prints at a time, in seconds since 1970.
fn printed(source: &str, seconds: i64) -> String {
    let mut template = ChatTemplate::from_source(source).unwrap();
    template.set_time(seconds);
    let messages = [Message::new("user", "Hi")];
    joined(&template.render(&messages, &RenderOptions::default(), &Arc::default()).unwrap())
}

/// What Python 3 answers to `list(range(5))[start:stop:step]`, spelled out from its rule: walk from `start` by
/// `step` while inside.
fn expected(start: Option<i64>, stop: Option<i64>, step: i64, len: i64) -> Vec<usize> {
    let clamp = |at: i64| {
        let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
        (if at < 0 { at + len } else { at }).clamp(low, high)
    };
    let first = start.map_or(if step > 0 { 0 } else { len - 1 }, clamp);
    let last = stop.map_or(if step > 0 { len } else { -1 }, clamp);
    let mut at = first;
    let mut all = Vec::new();
    while (step > 0 && at < last) || (step < 0 && at > last) {
        all.push(usize::try_from(at).expect("inside"));
        at += step;
    }
    all
}

#[test]
fn slices_are_pythons() {
    let bounds: Vec<Option<i64>> = (-7..=7).map(Some).chain([None]).collect();
    let steps = [-7, -3, -2, -1, 1, 2, 3, 7];
    let numbers: Vec<String> = (-7..=7).map(|at| at.to_string()).collect();
    let numbers = numbers.join(", ");
    for len in 0..=5 {
        let list = format!("{:?}", (0..len).collect::<Vec<i64>>());
        let source = format!(
            "{{% for start in [{numbers}, none] %}}{{% for stop in [{numbers}, none] %}}{{% for step in {steps:?} %}}\
             {{{{ {list}[start:stop:step] }}}};{{% endfor %}}{{% endfor %}}{{% endfor %}}"
        );
        let all = printed(&source, 0);
        let mut found = all.split_terminator(';');
        for &start in &bounds {
            for &stop in &bounds {
                for step in steps {
                    let expect = format!("{:?}", expected(start, stop, step, len));
                    assert_eq!(found.next(), Some(&*expect), "{start:?}:{stop:?}:{step} of {len}");
                }
            }
        }
        assert_eq!(found.next(), None);
    }
    let (least, most) = ("(-9223372036854775807 - 1)", "9223372036854775807");
    assert_eq!(printed(&format!("{{{{ [0, 1, 2][{most}:{least}:{least}] }}}}"), 0), "[2]");
    assert_eq!(printed(&format!("{{{{ [0, 1, 2][{least}:{most}:{most}] }}}}"), 0), "[0]");
}

#[test]
fn dates_are_those_of_the_calendar() {
    let date =
        |pattern: &str, seconds| printed(&format!("{{{{ strftime_now('{pattern}') }}}}"), seconds);
    let check = |seconds, expect| assert_eq!(date("%Y-%m-%d %H:%M:%S %a %j", seconds), expect);
    check(0, "1970-01-01 00:00:00 Thu 001");
    check(951_782_400, "2000-02-29 00:00:00 Tue 060");
    check(1_721_951_999, "2024-07-25 23:59:59 Thu 207");
    check(4_102_444_800, "2100-01-01 00:00:00 Fri 001");
    check(-1, "1969-12-31 23:59:59 Wed 365");
    assert_eq!(
        date("%d %b %Y, %-d. %B %y %I:%M %p %% %Q", 1_721_952_000),
        "26 Jul 2024, 26. July 24 12:00 AM % %Q"
    );
    assert_eq!(date("%F %T %Z %-m%", 1_721_952_000), "2024-07-26 00:00:00 UTC 7%");
}

#[test]
fn variables_are_counted_as_they_would_be_written() {
    for text in ["{}", r#"{"a":[1,-2.5,null],"b":{"c":"x\n\u0001é"}}"#] {
        let written: serde_json::Value = serde_json::from_str(text).unwrap();
        let variables = TemplateVariables::from_json(text).unwrap();
        assert_eq!(variables.bytes(), written.to_string().len());
    }
}
