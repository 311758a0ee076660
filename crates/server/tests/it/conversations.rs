//! Tools, forms, thinking and earlier messages in requests: all four APIs accept them, and they take effect or cause a warning.

use std::sync::Arc;

use engine::ModelFormat;
use rooflight_server::{Access, ServedModel, Server, ServerLimits};
use serde_json::{Value, json};
use tokenizer::ChatTemplate;

use crate::client::{Served, demo};

/// Starts a server whose model has this chat template.
fn templated(source: &str) -> Served {
    let model = demo("demo", |model| model);
    let tokenizer = Arc::clone(model.format.tokenizer());
    let template = ChatTemplate::new(source, &tokenizer).unwrap();
    Served::providing(ServedModel {
        format: Arc::new(ModelFormat::new(tokenizer, template)),
        ..model
    })
}

const ANY: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/// Returns the number of tokens of a request's prompt, as the response reports it, and the response.
fn prompt_tokens(served: &Served, path: &str, body: &Value) -> (u64, Value) {
    let answer = served.post(path, body);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    let answer = answer.json();
    let count =
        ["/usage/prompt_tokens", "/prompt_eval_count"].iter().find_map(|at| answer.pointer(at));
    let anthropic = || {
        let of = |key: &str| answer["usage"][key].as_u64().unwrap_or(0);
        of("input_tokens") + of("cache_read_input_tokens")
    };
    let cached = answer.pointer("/usage/input_tokens_details").is_some();
    let count = match count {
        Some(count) => count.as_u64().unwrap(),
        None if cached => answer["usage"]["input_tokens"].as_u64().unwrap(),
        None => anthropic(),
    };
    (count, answer)
}

/// Requests with the same conversation, one for each API.
fn in_all(messages: &Value, tokens: usize) -> [(&'static str, Value); 4] {
    let anthropic: Vec<&Value> =
        messages.as_array().unwrap().iter().filter(|m| m["role"] != "system").collect();
    let system = messages.as_array().unwrap().iter().find(|m| m["role"] == "system");
    let system = system.map_or(json!(""), |m| m["content"].clone());
    [
        ("/v1/chat/completions", json!({ "messages": messages, "max_tokens": tokens })),
        ("/v1/responses", json!({ "input": messages, "max_output_tokens": tokens })),
        ("/v1/messages", json!({ "messages": anthropic, "system": system, "max_tokens": tokens })),
        (
            "/api/chat",
            json!({ "model": "demo", "messages": messages, "stream": false, "options": { "num_predict": tokens } }),
        ),
    ]
}

fn warnings(answer: &Value) -> String {
    answer["warnings"].to_string()
}

fn length(served: &Served, text: &str) -> u64 {
    served.format.tokenizer().encode(text).unwrap().len() as u64
}

#[test]
fn a_last_message_of_the_assistant_goes_on_in_every_api() {
    let served = templated(ANY);
    let messages = json!([{ "role": "user", "content": "Count" }, { "role": "assistant", "content": "one, two," }]);
    let within = length(&served, "<user>Count\n<assistant>one, two,");
    for (path, body) in in_all(&messages, 1) {
        let (count, answer) = prompt_tokens(&served, path, &body);
        assert_eq!(count, within, "{path}");
        let told = warnings(&answer).contains("the reply goes on with it");
        assert_eq!(
            told,
            path.starts_with("/v1/chat") || path == "/v1/responses",
            "{path}: {answer}"
        );
    }
    let chat = |more: Value| {
        let mut body = json!({ "messages": messages, "max_tokens": 1 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        prompt_tokens(&served, "/v1/chat/completions", &body).0
    };
    let next = length(&served, "<user>Count\n<assistant>one, two,\n<assistant>");
    assert_eq!(chat(json!({ "add_generation_prompt": true })), next);
    assert_eq!(chat(json!({ "continue_final_message": false })), next);
    assert_eq!(chat(json!({ "continue_final_message": true })), within);
    let nothing = json!({ "continue_final_message": false, "add_generation_prompt": false });
    assert_eq!(chat(nothing), length(&served, "<user>Count\n<assistant>one, two,\n"));
    let both = json!({ "messages": messages, "continue_final_message": true, "add_generation_prompt": true });
    assert_eq!(served.post("/v1/chat/completions", &both).status, 400);
}

/// A continued reply that must have a form has it as a whole: the beginning that was there, together with the rest.
#[test]
fn a_form_holds_for_what_is_there_of_a_reply_too() {
    let served = templated(ANY);
    let ask = |begun: &str| {
        let messages =
            json!([{ "role": "user", "content": "x" }, { "role": "assistant", "content": begun }]);
        let schema = json!({ "type": "object", "properties": { "a": { "enum": [12345] } }, "required": ["a"], "additionalProperties": false });
        let format =
            json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
        served.post(
            "/v1/chat/completions",
            &json!({ "messages": messages, "max_tokens": 60, "response_format": format }),
        )
    };
    let whole = ask("{\"a\": 12");
    assert_eq!(whole.status, 200, "{whole:?}");
    assert_eq!(whole.json()["choices"][0]["message"]["content"], "345}");
    let other = ask("Well, ");
    assert_eq!(other.status, 400);
    assert!(
        other.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("does not begin a reply of the form")
    );
}

/// Chat template that writes the effort level, whatever it is, as gpt-oss's does.
const LEVELS: &str = "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}Reasoning: {{ reasoning_effort }}\n\
     {% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>";

#[test]
fn every_level_of_effort_reaches_templates_that_know_it_in_every_api() {
    let served = templated(LEVELS);
    let with = |text: &str| length(&served, &format!("Reasoning: {text}\n<user>Q\n<assistant>"));
    let messages = json!([{ "role": "user", "content": "Q" }]);
    let levels = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    for (word, used) in
        levels.into_iter().zip(["low", "low", "low", "medium", "high", "high", "high"])
    {
        for (path, mut body) in in_all(&messages, 1) {
            let (key, value) = match path {
                "/v1/chat/completions" => ("reasoning_effort", json!(word)),
                "/v1/responses" => ("reasoning", json!({ "effort": word })),
                "/v1/messages" if word == "none" => ("thinking", json!({ "type": "disabled" })),
                "/v1/messages" => ("output_config", json!({ "effort": word })),
                _ if word == "none" => ("think", json!(false)),
                _ => ("think", json!(word)),
            };
            body[key] = value;
            let (count, answer) = prompt_tokens(&served, path, &body);
            assert_eq!(count, with(used), "{path} {word}: {answer}");
            assert_eq!(
                warnings(&answer).contains(&used.to_string()),
                word != used,
                "{path} {word}: {answer}"
            );
        }
        let kwargs = json!({ "messages": messages, "max_tokens": 1, "chat_template_kwargs": { "reasoning_effort": word } });
        assert_eq!(prompt_tokens(&served, "/v1/chat/completions", &kwargs).0, with(used), "{word}");
    }
    // Anthropic's thinking budget
    for (tokens, used) in [(1024, "low"), (4096, "medium"), (16_000, "high")] {
        let body = json!({ "messages": messages, "max_tokens": 1, "thinking": { "type": "enabled", "budget_tokens": tokens } });
        assert_eq!(prompt_tokens(&served, "/v1/messages", &body).0, with(used), "{tokens}");
    }
    let none = templated(ANY);
    for (path, mut body) in in_all(&messages, 1) {
        match path {
            "/v1/chat/completions" => body["reasoning_effort"] = json!("high"),
            "/v1/responses" => body["reasoning"] = json!({ "effort": "high" }),
            "/v1/messages" => body["output_config"] = json!({ "effort": "high" }),
            _ => body["think"] = json!("high"),
        }
        let (_, answer) = prompt_tokens(&none, path, &body);
        assert!(warnings(&answer).contains("effort high"), "{path}: {answer}");
    }
}

#[test]
fn variables_of_a_template_are_handed_on_and_others_are_told_of() {
    let served = templated(
        "{{ date_string | default('none') }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}",
    );
    let kwargs = json!({ "date_string": "the first of May", "colour": "red" });
    let body = json!({ "messages": [{ "role": "user", "content": "Q" }], "max_tokens": 1, "chat_template_kwargs": kwargs });
    let (count, answer) = prompt_tokens(&served, "/v1/chat/completions", &body);
    assert_eq!(count, length(&served, "the first of May<user>Q\n"));
    assert!(warnings(&answer).contains("no variable `colour`"), "{answer}");
    let own = json!({ "messages": [{ "role": "user", "content": "Q" }], "chat_template_kwargs": { "messages": [] } });
    assert_eq!(served.post("/v1/chat/completions", &own).status, 400);
}

/// Chat template that takes no system message, and only alternating messages of user and assistant.
const TURNS: &str = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
    {% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}\
    <{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>";

#[test]
fn roles_that_a_template_refuses_are_rewritten_and_told_in_every_api() {
    let served = templated(TURNS);
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "One." },
        { "role": "user", "content": "Two." },
    ]);
    let want = length(&served, "<user>Be brief.\n\nOne.\n\nTwo.\n<assistant>");
    for (path, body) in in_all(&messages, 1) {
        let (count, answer) = prompt_tokens(&served, path, &body);
        assert_eq!(count, want, "{path}");
        let told = warnings(&answer);
        assert!(
            told.contains("takes no system message") && told.contains("they are joined"),
            "{path}: {answer}"
        );
    }
}

#[test]
fn a_line_for_whoever_bills_is_no_part_of_a_prompt() {
    let served = templated(ANY);
    let header = |cch: &str| {
        format!("x-anthropic-billing-header: cc_version=2.1.36; cc_entrypoint=cli; cch={cch};")
    };
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let want = length(&served, "<system>You are a helper.\n<user>Hi\n<assistant>");
    let anthropic =
        |system: Value| json!({ "system": system, "messages": messages, "max_tokens": 1 });
    let blocks = |cch| json!([{ "type": "text", "text": header(cch) }, { "type": "text", "text": "You are a helper." }]);
    let line = |cch| json!(header(cch) + "\nYou are a helper.");
    for (n, system) in [blocks("a1b2c"), line("99999"), blocks("00000"), json!("You are a helper.")]
        .into_iter()
        .enumerate()
    {
        let (count, answer) = prompt_tokens(&served, "/v1/messages", &anthropic(system));
        assert_eq!(count, want, "{answer}");
        assert_eq!(warnings(&answer).contains("x-anthropic-billing-header"), n < 3, "{answer}");
        // the equal beginning is found in the cache
        let cached = answer["usage"]["cache_read_input_tokens"].as_u64().unwrap();
        assert!(n == 0 || cached > want / 2, "{cached} of {want}");
    }
    let openai = |content: Value| json!([{ "role": "system", "content": content }, messages[0]]);
    for content in [line("x"), blocks("y")] {
        let body = json!({ "messages": openai(content), "max_tokens": 1 });
        let (count, answer) = prompt_tokens(&served, "/v1/chat/completions", &body);
        assert_eq!(count, want);
        assert!(warnings(&answer).contains("x-anthropic-billing-header"));
    }
    // only at the beginning of the prompt
    let body = json!({ "messages": [{ "role": "user", "content": header("z") }], "max_tokens": 1 });
    let (count, _) = prompt_tokens(&served, "/v1/chat/completions", &body);
    assert_eq!(count, length(&served, &format!("<user>{}\n<assistant>", header("z"))));
}

fn tool() -> Value {
    let parameters = json!({ "type": "object", "properties": { "text": { "enum": ["a long text that takes many tokens"] }, "n": { "type": "integer" } },
                             "required": ["text", "n"], "additionalProperties": false });
    json!({ "type": "function", "name": "note", "description": "", "parameters": parameters })
}

/// Wherever a call is cut, no API returns its markup as text, and streamed replies equal whole ones.
#[test]
fn cut_calls_are_never_text_in_any_api() {
    let served = Served::new();
    let messages = json!([{ "role": "user", "content": "note" }]);
    let is_markup =
        |text: &str| text.contains('<') || text.contains("note") || text.contains("arguments");
    let mut cut_calls = 0;
    for n in 1..=60 {
        let function = json!([{ "type": "function", "function": tool() }]);
        let mut body = json!({ "messages": messages, "tools": function, "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": n });
        let whole = served.post("/v1/chat/completions", &body).json();
        let message = &whole["choices"][0]["message"];
        let reason = whole["choices"][0]["finish_reason"].as_str().unwrap();
        body["stream"] = json!(true);
        let (events, _) = served.post("/v1/chat/completions", &body).events();
        let deltas = || events.iter().filter_map(|event| event.pointer("/choices/0/delta"));
        let content: String = deltas().filter_map(|delta| delta["content"].as_str()).collect();
        assert!(
            !is_markup(&content) && !is_markup(message["content"].as_str().unwrap_or("")),
            "{n}: {content} {whole}"
        );
        assert_eq!(content, message["content"].as_str().unwrap_or(""), "{n}");
        let piece = |key: &str| {
            let at = format!("/tool_calls/0/function/{key}");
            deltas().filter_map(|delta| delta.pointer(&at)?.as_str()).collect::<String>()
        };
        let call = &message["tool_calls"][0]["function"];
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        assert_eq!(
            (piece("name"), piece("arguments")),
            (text(&call["name"]), text(&call["arguments"])),
            "{n}"
        );
        let is_cut = warnings(&whole).contains("within a call of `note`");
        let parses = serde_json::from_str::<Value>(&text(&call["arguments"])).is_ok();
        assert!(call.is_null() || parses || is_cut, "{n}: {whole}");
        assert!(!is_cut || reason == "length", "{n}: {whole}");
        cut_calls += usize::from(is_cut);
        let mut body = json!({ "input": messages, "tools": [tool()], "tool_choice": "required", "parallel_tool_calls": false, "max_output_tokens": n });
        let whole = served.post("/v1/responses", &body).json();
        body["stream"] = json!(true);
        let (events, _) = served.post("/v1/responses", &body).events();
        let ended = &events.last().unwrap()["response"]["output"];
        let items = |output: &Value| -> Vec<(String, String, String)> {
            let item = |item: &Value| {
                let said =
                    item.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default();
                (
                    text(&item["type"]),
                    text(&item["status"]),
                    said.to_owned() + &text(&item["arguments"]),
                )
            };
            output
                .as_array()
                .unwrap()
                .iter()
                .map(item)
                .filter(|(.., said)| !said.is_empty())
                .collect()
        };
        assert_eq!(items(&whole["output"]), items(ended), "{n}");
        for (kind, status, said) in items(&whole["output"]) {
            assert!(kind == "function_call" || !is_markup(&said), "{n}: {whole}");
            assert_eq!(status == "incomplete", is_cut && kind == "function_call", "{n}: {whole}");
        }

        let own = json!([{ "name": "note", "input_schema": tool()["parameters"] }]);
        let mut body = json!({ "messages": messages, "tools": own, "tool_choice": { "type": "any" }, "max_tokens": n });
        let whole = served.post("/v1/messages", &body).json();
        body["stream"] = json!(true);
        let (events, _) = served.post("/v1/messages", &body).events();
        let streamed: String =
            events.iter().filter_map(|event| event.pointer("/delta/text")?.as_str()).collect();
        let blocks = whole["content"].as_array().unwrap();
        let said: String = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        assert!(!is_markup(&said) && said == streamed, "{n}: {said:?} {streamed:?}");

        let body = json!({ "model": "demo", "messages": messages, "tools": function, "options": { "num_predict": n }, "stream": false });
        let whole = served.post("/api/chat", &body).json();
        let said = text(&whole["message"]["content"]);
        assert!(!said.contains("<tool_call"), "{n}: {whole}");
    }
    assert!(cut_calls > 5, "{cut_calls}");
}

/// Tools of unsupported types are left out and named in a warning, in every API that has such tools; the others work.
#[test]
fn tools_of_other_kinds_are_left_out_and_told() {
    let served = Served::new();
    let others = [
        json!({ "type": "web_search" }),
        json!({ "type": "custom", "name": "apply_patch", "format": { "type": "grammar", "syntax": "lark", "definition": "start: \"x\"" } }),
        json!({ "type": "namespace", "name": "mcp", "tools": [] }),
        json!({ "type": "local_shell" }),
    ];
    let messages = json!([{ "role": "user", "content": "note" }]);
    for other in &others {
        let kind = other["type"].as_str().unwrap();
        for path in ["/v1/responses", "/v1/chat/completions"] {
            let (text, length) = if path == "/v1/responses" {
                ("input", "max_output_tokens")
            } else {
                ("messages", "max_tokens")
            };
            let mut body = json!({ text: messages, length: 100, "tools": [other, tool()], "tool_choice": "required" });
            let answer = served.post(path, &body);
            assert_eq!(answer.status, 200, "{path} {kind}: {answer:?}");
            let answer = answer.json();
            assert!(
                warnings(&answer).contains(kind) && answer.to_string().contains("note"),
                "{answer}"
            );
            // a tool that is left out cannot be required
            body["tool_choice"] =
                json!({ "type": "function", "name": other["name"].as_str().unwrap_or(kind) });
            assert_eq!(served.post(path, &body).status, 400, "{path} {kind}");
        }
    }
    let body = json!({ "messages": messages, "max_tokens": 1, "tools": [{ "type": "web_search_20250305", "name": "web_search" },
                       { "name": "note", "input_schema": tool()["parameters"] }] });
    let answer = served.post("/v1/messages", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(warnings(&answer.json()).contains("web_search"));
}

/// A conversation that was accepted once is not refused later because of its earlier calls.
#[test]
fn calls_of_the_past_are_taken_whatever_their_arguments() {
    let served = Served::new();
    for arguments in ["", "  ", "null", "{\"a\": ", "[1]"] {
        let call = json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": arguments } });
        let messages = json!([{ "role": "user", "content": "q" }, { "role": "assistant", "content": null, "tool_calls": [call] },
                              { "role": "tool", "tool_call_id": "a", "content": "x" }]);
        let chat = json!({ "messages": messages, "max_tokens": 1 });
        let answer = served.post("/v1/chat/completions", &chat);
        assert_eq!(answer.status, 200, "{arguments:?}: {answer:?}");
        let items = json!([{ "role": "user", "content": "q" }, { "type": "function_call", "call_id": "a", "name": "f", "arguments": arguments },
                           { "type": "function_call_output", "call_id": "a", "output": "x" }]);
        let answer =
            served.post("/v1/responses", &json!({ "input": items, "max_output_tokens": 1 }));
        assert_eq!(answer.status, 200, "{arguments:?}: {answer:?}");
    }
}

/// Ids of new calls differ from those in the conversation, and between requests.
#[test]
fn ids_of_calls_do_not_repeat() {
    let served = Served::new();
    let mut messages = vec![json!({ "role": "user", "content": "note" })];
    let mut ids = Vec::new();
    for _ in 0..3 {
        for _ in 0..2 {
            let body = json!({ "messages": messages, "tools": [tool()], "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 200 });
            let answer = served.post("/v1/chat/completions", &body).json();
            let call = answer["choices"][0]["message"]["tool_calls"][0].clone();
            let id = call["id"].as_str().unwrap().to_owned();
            assert!(id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
            assert!(!ids.contains(&id), "{id} again: {ids:?}");
            ids.push(id.clone());
            // the first calls are removed from the history, as agents do
            messages = vec![
                json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
                json!({ "role": "tool", "tool_call_id": id, "content": "ok" }),
                json!({ "role": "user", "content": "again" }),
            ];
        }
    }
}

/// Tools and a response format in one request: the reply has calls, or text of that form.
#[test]
fn tools_and_a_response_format_go_together() {
    let served = Served::new();
    let schema = json!({ "enum": ["yes", "no"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": schema } });
    let ask = |choice: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": "note" }], "tools": [tool()], "tool_choice": choice,
                           "response_format": format, "max_tokens": 200 });
        let answer = served.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["choices"][0]["message"].clone()
    };
    let says = |message: &Value| [json!("\"yes\""), json!("\"no\"")].contains(&message["content"]);
    let calls = |message: &Value| message["tool_calls"][0]["function"]["name"] == "note";
    let (auto, none, required) = (ask("auto"), ask("none"), ask("required"));
    assert!(says(&auto) || calls(&auto), "{auto}");
    assert!(says(&none) && !calls(&none), "{none}");
    assert!(calls(&required) && !says(&required), "{required}");
}

/// Parts of a schema that are not enforced cause a warning, and the rest is enforced.
#[test]
fn annotations_that_cannot_be_held_to_are_told() {
    let served = Served::new();
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "format": "password", "maxLength": 3 },
                         "b": { "type": "string", "maxLength": 100_000, "enum": ["x"] } }, "required": ["a", "b"], "additionalProperties": false });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let body = json!({ "messages": [{ "role": "user", "content": "q" }], "response_format": format, "max_tokens": 200 });
    let answer = served.post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let told = warnings(&answer);
    assert!(told.contains("password") && told.contains("maxLength 100000"), "{told}");
    let value: Value =
        serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value["a"].as_str().unwrap().chars().count() <= 3 && value["b"] == "x", "{value}");
    // the same for the schema of a tool
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": schema } }]);
    let body = json!({ "messages": [{ "role": "user", "content": "q" }], "tools": tools, "tool_choice": "required", "max_tokens": 1 });
    let answer = served.post("/v1/chat/completions", &body).json();
    assert!(
        warnings(&answer).contains("tools: format")
            && !warnings(&answer).contains("not held to its schema"),
        "{answer}"
    );
}

/// Arguments of earlier calls take far more memory as values than as text: what a template needs for them is reserved, too.
#[test]
fn l1_arguments_of_the_past_are_reserved_as_values() {
    let limits = ServerLimits { body_memory: 16 << 20, ..ServerLimits::default() };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let access = Access::new(&[], Some(Vec::new()));
    let server = Server::start_within(limits, listener, access).unwrap();
    server.provide(demo("demo", |model| model)).unwrap();
    let served = Served::of(server);
    let ask = |arguments: String| {
        let function = json!({ "name": "f", "arguments": arguments });
        let call = json!({ "id": "a", "type": "function", "function": function });
        let messages = json!([
            { "role": "user", "content": "x" }, { "role": "assistant", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "a", "content": "y" },
        ]);
        served.post("/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 1 }))
    };
    let n = 30_000;
    let values = ask(format!("{{\"a\":[{}0]}}", "0,".repeat(n)));
    assert_eq!(values.status, 413, "{values:?}");
    // a text of this length is only too long for the context
    let text = ask(format!("{{\"a\":\"{}\"}}", "0,".repeat(n)));
    assert_eq!(
        (text.status, &text.json()["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
}
