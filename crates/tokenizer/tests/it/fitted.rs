//! Rewriting of conversations that a template rejects or loses a part of, prompts that end inside the last message, reasoning effort.

use std::sync::Arc;

use tokenizer::{
    ChatTemplate, Effort, Message, RenderOptions, TemplateVariables, ToolCall, ToolDeclarations,
};

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::from_source(source).unwrap()
}

fn rendered(template: &ChatTemplate, messages: &[Message], options: &RenderOptions<'_>) -> String {
    let spans = template.render(messages, options, &Arc::default());
    let spans = spans.unwrap_or_else(|error| panic!("{error}: {messages:?}"));
    spans.iter().map(|span| span.text.as_str()).collect()
}

fn reply_prompt(template: &ChatTemplate, messages: &[Message]) -> String {
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    rendered(template, messages, &options)
}

fn message(role: &str, text: &str) -> Message {
    Message::new(role, text)
}

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "look".into(), arguments: "{\"at\": \"the map\"}".into() }
}

fn calling(ids: &[&str]) -> Message {
    Message { tool_calls: ids.iter().map(|id| call(id)).collect(), ..message("assistant", "") }
}

fn result(id: &str, text: &str) -> Message {
    Message::result(&call(id), text)
}

/// Template that rejects system messages and requires alternating roles, like that of Gemma 2.
const TURNS: &str = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
    {% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}\
    [{{ m.role }}]{{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// Template that drops system messages without an error.
const DEAF: &str = "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}\n{% endif %}{% endfor %}";

/// Template that accepts any conversation.
const ANY: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

#[test]
fn roles_and_orders_that_a_template_refuses_or_loses_are_rewritten_and_told() {
    let conversation = [
        message("system", "Be brief."),
        message("system", "Be kind."),
        message("user", "One."),
        message("user", "Two."),
        message("assistant", "Yes."),
        message("assistant", "Indeed."),
        message("system", "Now in French."),
        message("user", "Three."),
    ];
    let turns = template(TURNS);
    let (fitted, notes) = turns.fitted(&conversation);
    assert_eq!(
        reply_prompt(&turns, &fitted),
        "[user]Be brief.\n\nBe kind.\n\nOne.\n\nTwo.\n[assistant]Yes.\n\nIndeed.\n[user]Now in French.\n\nThree.\n[assistant]"
    );
    assert_eq!(notes.len(), 5, "{notes:?}");
    assert!(
        notes.iter().all(|note| note.starts_with("messages: the model's chat template takes no "))
    );
    let (fitted, _) = template(DEAF).fitted(&conversation[1..3]);
    assert_eq!(*fitted, [message("user", "Be kind.\n\nOne.")]);
    // a conversation that the template accepts does not change
    let (fitted, notes) = template(ANY).fitted(&conversation);
    assert_eq!((&*fitted, notes.len()), (&conversation[..], 0));
    let (fitted, _) = turns.fitted(&conversation[4..5]);
    assert_eq!(
        reply_prompt(&turns, &[&fitted[..], &conversation[7..]].concat()),
        "[user]\n[assistant]Yes.\n[user]Three.\n[assistant]"
    );
    let (fitted, notes) = turns.fitted(&conversation[3..5]);
    assert_eq!((&*fitted, notes.len()), (&conversation[3..5], 0));
}

/// Template that requires ids of nine characters, and alternating roles except for tools, like that of Mistral.
const NINE: &str = "{% set ns = namespace(i=0) %}{% for m in messages %}{% if not (m.role == 'tool' or m.tool_calls) %}\
    {% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}{% set ns.i = ns.i + 1 %}{% endif %}\
    {% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}\
    <{{ c.function.name }} {{ c.id }} {{ c.function.arguments | tojson }}>{% endfor %}\
    {% if m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('nine') }}{% endif %}({{ m.tool_call_id }}){% endif %}\
    [{{ m.role }}]{{ m.content or '' }}\n{% endfor %}";

#[test]
fn ids_have_the_form_of_the_family_and_results_those_of_their_calls() {
    let nine = template(NINE);
    let id = |text: &str, after: &str| {
        let rest = &text[text.find(after).unwrap() + after.len()..];
        rest.chars().take_while(char::is_ascii_alphanumeric).collect::<String>()
    };
    for foreign in ["call_abc123", "toolu_01A09q90qw90lq917835lq9", "x", "pyd_ai_0123456789abcdef"]
    {
        let conversation = [
            message("user", "q"),
            calling(&[foreign]),
            result(foreign, "ok"),
            message("user", "And?"),
        ];
        let (fitted, _) = nine.fitted(&conversation);
        let text = reply_prompt(&nine, &fitted);
        let given = id(&text, "<look ");
        assert_eq!((given.len(), id(&text, "(")), (9, given.clone()), "{text}");
        assert_eq!(*fitted, *nine.fitted(&conversation).0, "the same for the same id");
        assert!(text.contains("[tool]ok\n[assistant]\n[user]And?"), "{text}");
    }
    // an id in the right format is kept, and the ids of two calls differ
    let both = [
        message("user", "q"),
        calling(&["abcDEF123", "call_1"]),
        result("call_1", "a"),
        result("abcDEF123", "b"),
    ];
    let (fitted, notes) = nine.fitted(&both);
    let ids: Vec<&str> = fitted[1].tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert!(ids[0] == "abcDEF123" && ids[1] != ids[0] && ids[1].len() == 9, "{ids:?}");
    assert_eq!(fitted[2].tool_call_id.as_deref(), Some(ids[1]));
    assert!(notes.is_empty(), "ids mean nothing: {notes:?}");
}

#[test]
fn several_calls_become_messages_of_their_own_with_their_results() {
    let one = template(
        "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('single') }}{% endif %}\
         <{{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].id }} {{ m.tool_calls[0].function.arguments | tojson }}>{% endif %}\
         [{{ m.role }}]{{ m.content or '' }}\n{% endfor %}",
    );
    let conversation = [
        message("user", "q"),
        calling(&["a", "b"]),
        result("b", "2"),
        result("a", "1"),
        message("user", "?"),
    ];
    let (fitted, notes) = one.fitted(&conversation);
    let text = reply_prompt(&one, &fitted);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(
        at("<look a") < at("[tool]1")
            && at("[tool]1") < at("<look b")
            && at("<look b") < at("[tool]2"),
        "{text}"
    );
    assert_eq!(notes.len(), 1);
}

/// Every real template accepts the conversations that clients send, and loses none of their text.
#[test]
fn real_templates_take_what_clients_send() {
    let folder = match testing::shared() {
        Ok(shared) => shared.join("templates"),
        Err(why) => return testing::golden_skipped(&format!("templates: {why}")),
    };
    let (system, user) = (|text: &str| message("system", text), |text: &str| message("user", text));
    let assistant = |text: &str| message("assistant", text);
    let plain = [
        vec![system("ALPHA"), user("BETA")],
        vec![system("ALPHA"), system("BETA"), user("GAMMA")],
        vec![user("ALPHA"), assistant("BETA"), system("GAMMA"), user("DELTA")],
        vec![user("ALPHA"), user("BETA")],
        vec![user("ALPHA"), assistant("BETA"), assistant("GAMMA"), user("DELTA")],
        vec![assistant("ALPHA"), user("BETA")],
        vec![system("ALPHA"), assistant("BETA"), user("GAMMA")],
    ];
    let ids = ["call_abc123DEF", "toolu_01"];
    let with_tools = [
        vec![user("ALPHA"), calling(&ids[..1]), result(ids[0], "BETA"), user("GAMMA")],
        vec![user("ALPHA"), calling(&ids), result(ids[0], "BETA"), result(ids[1], "GAMMA")],
        vec![
            system("ALPHA"),
            user("BETA"),
            calling(&ids),
            result(ids[1], "GAMMA"),
            result(ids[0], "DELTA"),
            user("OMEGA"),
        ],
        vec![user("ALPHA"), result("gone", "BETA")],
    ];
    let declared = "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"description\": \"?\", \"parameters\": \
                    {\"type\": \"object\", \"properties\": {\"at\": {\"type\": \"string\"}}}}}]";
    let declared = ToolDeclarations::from_json(declared).unwrap();
    let mut n = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jinja") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let template = template(&std::fs::read_to_string(&path).unwrap());
        let style = *template.tool_style();
        let tools = (style.declares && style.writes_calls).then_some(&declared);
        let tooled = with_tools.iter().filter(|_| style.writes_results);
        for (messages, tools) in plain.iter().map(|m| (m, None)).chain(tooled.map(|m| (m, tools))) {
            let (fitted, notes) = template.fitted(messages);
            let options =
                RenderOptions { add_generation_prompt: true, tools, ..Default::default() };
            let spans = template.render(&fitted, &options, &Arc::default());
            let spans = spans.unwrap_or_else(|error| panic!("{name}: {error}: {messages:?}"));
            let text: String = spans.iter().map(|span| span.text.as_str()).collect();
            for said in messages.iter().map(|m| m.content.as_str()) {
                assert!(
                    text.contains(said),
                    "{name}: {said} is lost of {messages:?}: {notes:?}: {text}"
                );
            }
            n += 1;
        }
    }
    assert!(n > 47 * 7, "{n}");
}

#[test]
fn a_prompt_ends_within_the_last_message() {
    let going_on = RenderOptions { continue_final_message: true, ..RenderOptions::default() };
    let messages = [message("user", "Count"), message("assistant", "one, two, \n")];
    for source in [ANY, TURNS] {
        let text = rendered(&template(source), &messages, &going_on);
        assert_eq!(text, "[user]Count\n[assistant]one, two, \n", "even where the template trims");
    }
    // with a template that loses the text of replies, the text follows the beginning of an answer
    let lost = "{% for m in messages %}{% if m.role == 'user' %}[user]{{ m.content }}\n{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    assert_eq!(
        rendered(&template(lost), &messages, &going_on),
        "[user]Count\n[assistant]one, two, \n"
    );
    // the text comes from the user, so it contains no control tokens
    let spans = template(ANY).render(&messages, &going_on, &Arc::default()).unwrap();
    assert!(
        spans.last().is_some_and(|span| !span.special && span.text.ends_with("one, two, \n")),
        "{spans:?}"
    );
}

#[test]
fn real_templates_go_on_with_the_last_message() {
    let folder = match testing::shared() {
        Ok(shared) => shared.join("templates"),
        Err(why) => return testing::golden_skipped(&format!("templates: {why}")),
    };
    let going_on = RenderOptions { continue_final_message: true, ..RenderOptions::default() };
    let messages = [message("user", "Count"), message("assistant", "one, two,")];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jinja") {
            let template = template(&std::fs::read_to_string(&path).unwrap());
            let text = rendered(&template, &messages, &going_on);
            assert!(
                text.ends_with("one, two,") && text.contains("Count"),
                "{}: {text}",
                path.display()
            );
        }
    }
}

#[test]
fn levels_of_effort_are_those_that_a_template_knows() {
    let style = |source: &str| template(source).effort_style().clone();
    let any = style(
        "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}Reasoning: {{ reasoning_effort }}",
    );
    assert_eq!(any.levels(), [Effort::Low, Effort::Medium, Effort::High]);
    assert!(any.always_thinks() && !any.takes_budget());
    let nearest = |effort| any.nearest(effort);
    assert_eq!(nearest(Effort::Minimal), Some(Effort::Low));
    assert_eq!(
        (nearest(Effort::Low), nearest(Effort::Max)),
        (Some(Effort::Low), Some(Effort::High))
    );
    let some = style(
        "{% if thinking and reasoning_effort == 'high' %}H{% elif reasoning_effort == 'max' %}M{% endif %}x",
    );
    assert_eq!(some.levels(), [Effort::High, Effort::Max]);
    assert_eq!(
        (some.nearest(Effort::Low), some.nearest(Effort::XHigh)),
        (None, Some(Effort::High))
    );
    let budget =
        style("{% if thinking_budget is defined %}Budget {{ thinking_budget }}{% endif %}x");
    assert!(budget.takes_budget() && budget.levels().is_empty());
    let none = style("{{ messages[0].content }}");
    assert!(none.levels().is_empty() && !none.takes_budget() && !none.always_thinks());
}

#[test]
fn a_switch_of_thinking_is_known_by_its_name_or_its_effect() {
    let switches = |source: &str| template(source).effort_style().switches_thinking();
    for source in [
        "{% if enable_thinking is false %}<think></think>{% endif %}",
        // only with tools
        "{% if tools and enable_thinking %}T{% endif %}x",
        "{% if not thinking %}</think>{% endif %}x",
        "{% if thinking_budget is defined %}B{% endif %}x",
        "{% if reasoning %}<|START_THINKING|>{% endif %}x",
    ] {
        assert!(switches(source), "{source}");
    }
    for source in [
        "{{ messages[0].content }}",
        "{{ messages[0].thinking }}x",
        "<think>{{ messages[0].content }}",
    ] {
        assert!(!switches(source), "{source}");
    }
}

#[test]
fn variables_reach_a_template_and_become_no_control_tokens() {
    let template = template("{{ date }}|{{ enable_thinking }}|{{ n }}");
    let variables = TemplateVariables::from_json(
        "{\"date\": \"1 May\", \"enable_thinking\": \"maybe\", \"n\": [1]}",
    )
    .unwrap();
    let options = RenderOptions {
        variables: Some(&variables),
        enable_thinking: Some(true),
        ..Default::default()
    };
    assert_eq!(rendered(&template, &[message("user", "?")], &options), "1 May|maybe|[1]");
    assert!(TemplateVariables::from_json("[1]").is_err());
}
