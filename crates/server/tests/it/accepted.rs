//! Fields that clients send, in every API: they are accepted, those without effect cause a warning, and the others have an effect.

use serde_json::{Value, json};

use crate::client::Served;

const CHAT: &str = "/v1/chat/completions";

/// Endpoints that return replies, each with a body for two tokens, and the position of the reply's text.
fn endpoints() -> [(&'static str, Value, &'static str); 7] {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let two = json!({ "num_predict": 2 });
    [
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 2 }),
            "/choices/0/message/content",
        ),
        ("/v1/completions", json!({ "prompt": "hi", "max_tokens": 2 }), "/choices/0/text"),
        (
            "/v1/responses",
            json!({ "input": "hi", "max_output_tokens": 2 }),
            "/output/0/content/0/text",
        ),
        ("/v1/messages", json!({ "messages": messages, "max_tokens": 2 }), "/content/0/text"),
        (
            "/api/chat",
            json!({ "model": "demo", "messages": messages, "options": two, "stream": false }),
            "/message/content",
        ),
        (
            "/api/generate",
            json!({ "model": "demo", "prompt": "hi", "options": two, "stream": false }),
            "/response",
        ),
        ("/completion", json!({ "prompt": "hi", "n_predict": 2 }), "/content"),
    ]
}

fn with(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Fields that clients send to various servers. No API refuses a request because of them.
fn strangers() -> Value {
    json!({
        "enable_thinking": false, "think": false, "options": { "num_ctx": 64 }, "keep_alive": "5m",
        "num_ctx": 64, "id_slot": 0, "n_probs": 1, "cache_control": { "type": "ephemeral" },
        "thinking": { "type": "disabled" }, "reasoning": { "effort": "none" }, "provider": { "order": ["a"] },
        "session_id": "s", "user_id": "u", "stop_token_ids": [1], "skip_special_tokens": true,
        "guided_json": null, "best_of": 1, "web_search_options": { "search_context_size": "low" },
        "template": "x", "timings_per_token": true, "verbosity": "low", "top_logprobs": 5,
        "cache_prompt": false, "transforms": ["middle-out"], "min_tokens": 1, "foo": { "a": [1, { "b": 2 }] },
    })
}

#[test]
fn fields_of_other_servers_are_accepted_in_every_api() {
    let served = Served::new();
    for (path, body, text) in endpoints() {
        let plain = served.post(path, &body).json();
        let mut all = json!({});
        for (name, value) in strangers().as_object().unwrap() {
            // the API has a different field with this name
            let own: &[&str] = match path {
                "/api/chat" | "/api/generate" => &["options"],
                "/v1/responses" => &["thinking", "top_logprobs"],
                _ => &[],
            };
            if own.contains(&name.as_str()) {
                continue;
            }
            all[name] = value.clone();
            let answer = served.post(path, &with(&body, &json!({ name: value })));
            assert_eq!(answer.status, 200, "{path} {name}: {answer:?}");
            let answer = answer.json();
            assert_eq!(answer.pointer(text), plain.pointer(text), "{path} {name}");
            let warnings = answer["warnings"].to_string();
            if ["foo", "num_ctx", "transforms", "min_tokens"].contains(&name.as_str()) {
                let told = format!("unknown field \\\"{name}\\\": ignored");
                assert!(warnings.contains(&told), "{path} {name}: {warnings}");
            }
        }
        let answer = served.post(path, &with(&body, &all));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(answer.json().pointer(text), plain.pointer(text), "{path}");
        assert!(answer.json()["warnings"].as_array().unwrap().len() > 3, "{path}");
        assert_eq!(plain.get("warnings"), None, "{path}: nothing is told where nothing is ignored");
    }
}

#[test]
fn what_is_ignored_is_told_in_streams_and_in_answers_that_are_no_replies() {
    let served = Served::new();
    const TOLD: &str = r#"unknown field \"foo\": ignored"#;
    for (path, body, _) in endpoints() {
        let streamed = served.post(path, &with(&body, &json!({ "stream": true, "foo": 1 })));
        assert!(streamed.status == 200 && streamed.body.contains(TOLD), "{path}: {streamed:?}");
    }
    let messages = json!([{ "role": "user", "content": "hi" }]);
    for (path, body) in [
        ("/tokenize", json!({ "content": "hi" })),
        ("/detokenize", json!({ "tokens": [1] })),
        ("/apply-template", json!({ "messages": messages })),
        ("/v1/messages/count_tokens", json!({ "messages": messages })),
        ("/api/show", json!({ "model": "demo" })),
        ("/api/chat", json!({ "model": "demo" })),
    ] {
        let plain = served.post(path, &body);
        assert!(plain.status == 200 && plain.json().get("warnings").is_none(), "{path}: {plain:?}");
        let told = served.post(path, &with(&body, &json!({ "foo": 1 })));
        assert!(told.status == 200 && told.body.contains(TOLD), "{path}: {told:?}");
        assert!(told.json()["warnings"].is_array(), "{path}");
    }
    let vectors = Served::reading("bert-mean");
    for (path, body) in [
        ("/v1/embeddings", json!({ "input": "hi", "foo": 1 })),
        ("/api/embed", json!({ "model": "demo", "input": "hi", "foo": 1 })),
        ("/api/embeddings", json!({ "model": "demo", "prompt": "hi", "foo": 1 })),
    ] {
        let told = vectors.post(path, &body);
        assert!(told.status == 200 && told.body.contains(TOLD), "{path}: {told:?}");
    }
    let ranked = json!({ "query": "a", "documents": ["b"], "foo": 1 });
    let told = Served::reading("qwen3-reranker").post("/v1/rerank", &ranked);
    assert!(told.status == 200 && told.body.contains(TOLD), "{told:?}");
}

/// With `--strict` nothing is ignored: unknown fields and fields without effect are refused by name in every API.
#[test]
fn a_strict_server_refuses_what_it_would_ignore() {
    let served = Served::strict();
    for (path, body, _) in endpoints() {
        assert_eq!(served.post(path, &body).status, 200, "{path}");
        let empty =
            with(&body, &json!({ "foo": [], "bar": {}, "baz": "", "qux": null, "quux": false }));
        assert_eq!(served.post(path, &empty).status, 200, "{path}: what is empty asks for nothing");
        let unknown = served.post(path, &with(&body, &json!({ "foo": 1 })));
        assert_eq!(unknown.status, 400, "{path}");
        let error = unknown.json()["error"].clone();
        let message = error["message"].as_str().or(error.as_str()).unwrap();
        assert_eq!(message, "unknown field \"foo\"", "{path}");
        assert!(error.is_string() || path == "/v1/messages" || error["param"] == "foo", "{path}");
    }
    let refused = |more: Value, name: &str| {
        let (path, body, _) = &endpoints()[0];
        let answer = served.post(path, &with(body, &more));
        assert_eq!(
            (answer.status, &answer.json()["error"]["param"]),
            (400, &json!(name)),
            "{answer:?}"
        );
    };
    refused(json!({ "id_slot": 0 }), "id_slot");
    refused(json!({ "verbosity": "low" }), "verbosity");
    refused(json!({ "top_logprobs": 5 }), "top_logprobs");
    refused(json!({ "stream_options": { "foo": 1 } }), "stream_options.foo");
    refused(
        json!({ "messages": [{ "role": "user", "content": "x", "mood": 1 }] }),
        "messages[0].mood",
    );
}

/// Objects within known fields are checked like the body: unknown fields cause warnings, or errors on a strict server.
#[test]
fn unknown_fields_of_nested_objects_are_told_and_refused() {
    let (served, strict) = (Served::new(), Served::strict());
    let text = json!({ "type": "text", "text": "x", "mood": 1 });
    let user = json!({ "role": "user", "content": "x" });
    let function = json!({ "name": "f", "arguments": "{}", "mood": 1 });
    let calls = json!([user, { "role": "assistant", "content": "", "tool_calls": [
        { "id": "a", "type": "function", "function": function, "index": 0 }] },
        { "role": "tool", "tool_call_id": "a", "content": "y" }]);
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } });
    let odd_tool = with(&tool, &json!({ "mood": 1 }));
    let choice = json!({ "type": "function", "function": { "name": "f", "mood": 1 } });
    let schema = json!({ "name": "n", "strict": true, "schema": { "enum": [1] }, "mood": 1 });
    let item = json!({ "type": "message", "role": "user", "content": "x", "mood": 1, "id": "i" });
    let part =
        json!({ "role": "user", "content": [{ "type": "input_text", "text": "x", "mood": 1 }] });
    let format =
        json!({ "type": "json_schema", "name": "n", "schema": { "enum": [1] }, "mood": 1 });
    for (path, more, field) in [
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "content": [text] }] }),
            "messages[0].content[0].mood",
        ),
        (CHAT, json!({ "messages": calls }), "messages[1].tool_calls[0].function.mood"),
        (CHAT, json!({ "tools": [{ "name": "g" }, odd_tool] }), "tools[1].mood"),
        (CHAT, json!({ "tools": [tool], "tool_choice": choice }), "tool_choice.function.mood"),
        (
            CHAT,
            json!({ "response_format": { "type": "json_schema", "json_schema": schema } }),
            "response_format.json_schema.mood",
        ),
        (
            CHAT,
            json!({ "structured_outputs": { "regex": "a", "mood": 1 } }),
            "structured_outputs.mood",
        ),
        (CHAT, json!({ "thinking": { "type": "disabled", "mood": 1 } }), "thinking.mood"),
        ("/v1/responses", json!({ "input": [item] }), "input[0].mood"),
        ("/v1/responses", json!({ "input": [part] }), "input[0].content[0].mood"),
        ("/v1/responses", json!({ "text": { "format": format } }), "text.format.mood"),
        ("/v1/messages", json!({ "system": [text] }), "system[0].mood"),
        ("/v1/messages", json!({ "output_config": { "mood": 1 } }), "output_config.mood"),
        (
            "/api/chat",
            json!({ "messages": [{ "role": "user", "content": "x", "mood": 1 }] }),
            "messages[0].mood",
        ),
    ] {
        let (_, body, _) = endpoints().into_iter().find(|(known, ..)| *known == path).unwrap();
        let body = with(&body, &more);
        let told = served.post(path, &body);
        assert_eq!(told.status, 200, "{path}: {told:?}");
        let note = format!("unknown field \"{field}\": ignored");
        let notes = told.json()["warnings"].clone();
        assert!(notes.as_array().unwrap().contains(&json!(note)), "{path}: {note}: {notes}");
        let refused = strict.post(path, &body);
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        assert!(refused.json()["error"].to_string().contains(field), "{path}: {refused:?}");
    }
}

/// A switch, a level or a budget of thinking that the model's template does not know causes a warning in every API, or an error on a
/// strict server. The template of this model knows none.
#[test]
fn thinking_without_effect_is_told_and_refused_in_every_api() {
    let (served, strict) = (Served::new(), Served::strict());
    let on = "thinking cannot be turned on";
    let (level, budget) = ("has no levels of it", "reasoning budget of 2000 tokens");
    for (path, more, told) in [
        (CHAT, json!({ "think": true }), on),
        (CHAT, json!({ "reasoning_effort": "minimal" }), level),
        (CHAT, json!({ "chat_template_kwargs": { "enable_thinking": true } }), on),
        (CHAT, json!({ "chat_template_kwargs": { "colour": 1 } }), "no variable `colour`"),
        ("/v1/responses", json!({ "reasoning": { "effort": "low" } }), level),
        ("/v1/messages", json!({ "thinking": { "type": "adaptive" } }), on),
        (
            "/v1/messages",
            json!({ "thinking": { "type": "enabled", "budget_tokens": 2000 } }),
            budget,
        ),
        ("/v1/messages", json!({ "output_config": { "effort": "low" } }), level),
        ("/api/chat", json!({ "think": "high" }), level),
        ("/api/generate", json!({ "think": true }), on),
    ] {
        let (_, body, _) = endpoints().into_iter().find(|(known, ..)| *known == path).unwrap();
        let body = with(&body, &more);
        let answer = served.post(path, &body);
        assert_eq!(answer.status, 200, "{path} {more}: {answer:?}");
        let notes = answer.json()["warnings"].clone();
        let notes = notes.as_array().unwrap();
        assert_eq!(notes.len(), 1, "{path} {more}: {notes:?}");
        assert!(notes[0].as_str().unwrap().contains(told), "{path} {more}: {notes:?}");
        let refused = strict.post(path, &body);
        assert!(refused.status == 400 && refused.body.contains(told), "{path} {more}: {refused:?}");
    }
    // endpoints that return a prompt or its length give the same warnings
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    for (path, more, told) in [
        ("/apply-template", json!({ "reasoning_effort": "high" }), level),
        ("/apply-template", json!({ "think": true }), on),
        ("/v1/messages/count_tokens", json!({ "output_config": { "effort": "low" } }), level),
    ] {
        let body = with(&body, &more);
        let answer = served.post(path, &body).json();
        let notes = answer["warnings"].as_array().unwrap_or_else(|| panic!("{path}: {answer}"));
        assert!(notes.len() == 1 && notes[0].as_str().unwrap().contains(told), "{path}: {notes:?}");
        let refused = strict.post(path, &body);
        assert!(refused.status == 400 && refused.body.contains(told), "{path}: {refused:?}");
    }
    let tools = json!({ "tools": [{ "name": "f", "input_schema": { "type": "object" } }] });
    let counted = served.post("/v1/messages/count_tokens", &with(&body, &tools)).json();
    assert!(counted["warnings"].to_string().contains("no tool support"), "{counted}");
    // the model has no thoughts: turning them off causes no warning
    for (path, more) in [
        (CHAT, json!({ "enable_thinking": false })),
        (CHAT, json!({ "reasoning_effort": "none" })),
        ("/v1/responses", json!({ "reasoning": { "effort": "none" } })),
        ("/v1/messages", json!({ "thinking": { "type": "disabled" } })),
        ("/api/chat", json!({ "think": false })),
    ] {
        let (_, body, _) = endpoints().into_iter().find(|(known, ..)| *known == path).unwrap();
        for server in [&served, &strict] {
            let answer = server.post(path, &with(&body, &more));
            assert!(
                answer.status == 200 && answer.json()["warnings"].is_null(),
                "{path} {more}: {answer:?}"
            );
        }
    }
}

/// Empty values of unsupported fields request nothing.
#[test]
fn empty_values_ask_for_nothing_wherever_they_stand() {
    let served = Served::new();
    for empty in [json!([]), json!({}), json!(""), json!(null), json!(false)] {
        for (path, body, text) in endpoints() {
            let plain = served.post(path, &body).json();
            for name in [
                "lora",
                "mcp_servers",
                "functions",
                "audio",
                "previous_response_id",
                "context",
                "foo",
            ] {
                let answer = served.post(path, &with(&body, &json!({ name: empty })));
                assert_eq!(answer.status, 200, "{path} {name} {empty}: {answer:?}");
                let answer = answer.json();
                assert_eq!(answer.pointer(text), plain.pointer(text), "{path} {name} {empty}");
                assert_eq!(answer.get("warnings"), None, "{path} {name} {empty}");
            }
            if let Some(messages) = body.get("messages") {
                let mut messages = messages.clone();
                (messages[0]["images"], messages[0]["annotations"]) =
                    (empty.clone(), empty.clone());
                let answer = served.post(path, &with(&body, &json!({ "messages": messages })));
                assert!(
                    answer.status == 200 && answer.json().get("warnings").is_none(),
                    "{path} {empty}"
                );
            }
        }
    }
}

#[test]
fn ollamas_options_are_accepted_by_all_their_names() {
    let served = Served::new();
    let told = |path: &str, text: &str, options: Value| -> Vec<String> {
        let body = json!({ "model": "demo", text: "hi", "stream": false, "options": options });
        let answer = served.post(path, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let warnings = answer["warnings"].as_array().map_or(&[][..], Vec::as_slice);
        warnings.iter().map(|note| note.as_str().unwrap().to_owned()).collect()
    };
    let replies = json!({
        "num_keep": 5, "seed": 4, "num_predict": 2, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.7,
        "repeat_last_n": 33, "temperature": 0.8, "repeat_penalty": 1.2, "presence_penalty": 1.5,
        "frequency_penalty": 1.0, "stop": ["\n", "user:"], "num_ctx": 100, "mirostat": 0, "mirostat_tau": 5.0,
        "mirostat_eta": 0.1, "numa": false, "use_mlock": false, "low_vram": false,
    });
    assert_eq!(told("/api/generate", "prompt", replies), [""; 0]);
    let others = json!({
        "penalize_newline": false, "tfs_z": 0.5, "vocab_only": true, "embedding_only": true,
        "logits_all": true, "rope_frequency_base": 1e6, "rope_frequency_scale": 1.0, "foo": 1,
    });
    let notes = told("/api/generate", "prompt", others.clone());
    assert_eq!(notes.len(), 8, "{notes:?}");
    for (note, name) in notes.iter().zip(others.as_object().unwrap().keys()) {
        assert!(note.contains(&format!("options.{name}")), "{note}");
    }
    // settings of the whole server, and the options that set them
    let hardware = json!({
        "num_batch": 2, "num_gpu": 1, "main_gpu": 1, "num_thread": 8, "use_mmap": true, "use_mlock": true,
        "low_vram": true, "numa": true, "f16_kv": true, "num_gqa": 8,
    });
    let notes = told("/api/generate", "prompt", hardware.clone());
    let ways = [
        "-ub N",
        "-ngl N",
        "--adapter",
        "-t N",
        "weights",
        "weights",
        "--gpu-memory",
        "system",
        "-ctk",
        "file",
    ];
    assert_eq!(notes.len(), ways.len(), "{notes:?}");
    for ((note, name), way) in notes.iter().zip(hardware.as_object().unwrap().keys()).zip(ways) {
        assert!(note.starts_with(&format!("options.{name}: ignored: ")), "{note}");
        assert!(note.contains(way), "{note}");
    }
    let vectors = Served::reading("bert-mean");
    for (path, field) in [("/api/embed", "input"), ("/api/embeddings", "prompt")] {
        let options = json!({ "num_gpu": 1, "temperature": 0 });
        let body = json!({ "model": "demo", field: "hi", "options": options });
        let warnings = vectors.post(path, &body).json()["warnings"].clone();
        assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{path}: {warnings}");
        assert!(warnings[0].as_str().unwrap().starts_with("options.num_gpu: ignored"), "{path}");
    }
    // no limit, as in Ollama
    let body = json!({ "model": "demo", "prompt": "hi", "stream": false, "options": { "num_predict": 0 } });
    assert!(served.post("/api/generate", &body).json()["eval_count"].as_u64().unwrap() > 0);
}

/// Text that JavaScript cut within an emoji, numbers from languages with a single number type, and messages that histories contain.
#[test]
fn odd_values_that_clients_send_are_read() {
    let served = Served::new();
    let sent = |content: &str| {
        let body = format!(
            r#"{{"messages": [{{"role": "user", "content": "{content}"}}], "max_tokens": 2.0}}"#
        );
        let headers =
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        served.send(
            (crate::client::head("POST", "/v1/chat/completions", &headers) + &body).as_bytes(),
        )
    };
    let cut = sent("hi \\ud83d");
    assert_eq!(cut.status, 200, "{cut:?}");
    let same = sent("hi \u{fffd}").json();
    assert_eq!(cut.json()["choices"][0]["message"], same["choices"][0]["message"]);
    assert!(cut.json()["warnings"][0].as_str().unwrap().contains("U+FFFD"), "{cut:?}");
    assert_eq!(same.get("warnings"), None);
    assert_eq!(same["usage"]["completion_tokens"], 2);
    let history = json!([
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": [{ "type": "refusal", "refusal": "no" }], "refusal": null,
          "annotations": [], "audio": null, "function_call": null, "tool_calls": null },
        { "role": "assistant", "content": null, "refusal": "no" },
        { "role": "user", "content": "y", "name": "Ada" },
    ]);
    let answer =
        served.post("/v1/chat/completions", &json!({ "messages": history, "max_tokens": 1 }));
    assert!(answer.status == 200 && answer.json().get("warnings").is_none(), "{answer:?}");
    let function = json!({ "name": "f", "parameters": { "type": "object" } });
    for tools in [
        json!([{ "function": function }]),
        json!([function]),
        json!([{ "type": null, "function": function }]),
    ] {
        let body = json!({ "messages": [{ "role": "user", "content": "x" }], "tools": tools, "max_tokens": 1 });
        let answer = served.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Fields of other servers have the effect that they have there.
#[test]
fn fields_of_other_servers_take_effect() {
    let served = Served::new();
    let ask = |path: &str, more: Value| {
        let body = with(&json!({ "prompt": "once", "max_tokens": 12, "logprobs": 0 }), &more);
        let answer = served.post(path, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let texts = "/v1/completions";
    let plain = ask(texts, json!({ "ignore_eos": true }));
    let text = |answer: &Value| answer["choices"][0]["text"].as_str().unwrap().to_owned();
    // a stop token is not part of the reply
    let ids: Vec<u32> = served
        .post("/completion", &json!({ "prompt": "once", "n_predict": 12, "return_tokens": true, "ignore_eos": true }))
        .json()["tokens"].as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect();
    let stop = ids[5];
    let first = ids.iter().position(|id| *id == stop).unwrap();
    let ended = ask(texts, json!({ "stop_token_ids": [stop], "ignore_eos": true }));
    assert_eq!(ended["usage"]["completion_tokens"], first);
    assert_eq!(ended["choices"][0]["finish_reason"], "stop");
    assert!(text(&plain).starts_with(&text(&ended)));
    // a banned token is never chosen
    let banned = ask(texts, json!({ "logit_bias": [[ids[0], false]] }));
    assert_ne!(
        banned["choices"][0]["logprobs"]["tokens"][0],
        plain["choices"][0]["logprobs"]["tokens"][0]
    );
    for (form, allowed) in [
        (json!({ "guided_choice": ["yes", "no"] }), &["yes", "no"][..]),
        (json!({ "guided_regex": "(ab|cd)" }), &["ab", "cd"]),
        (json!({ "guided_grammar": "root ::= \"one\" | \"two\"" }), &["one", "two"]),
        (json!({ "guided_json": { "enum": [1, 2] } }), &["1", "2"]),
        (json!({ "structured_outputs": { "choice": ["up", "down"] } }), &["up", "down"]),
    ] {
        let reply = text(&ask(texts, form.clone()));
        assert!(allowed.contains(&&*reply), "{form}: {reply}");
    }
    let chat =
        json!({ "messages": [{ "role": "user", "content": "hi" }], "n_predict": 3, "n_probs": 2 });
    let chat = served.post("/v1/chat/completions", &chat).json();
    assert_eq!(chat["usage"]["completion_tokens"], 3);
    assert_eq!(
        chat["choices"][0]["logprobs"]["content"][0]["top_logprobs"].as_array().unwrap().len(),
        2
    );
    // DRY sees no repetition across its breakers: if every letter is one, DRY has no effect
    let dry = |breakers: Value| {
        let options = json!({ "prompt": "the end of it, the end of it, the end", "max_tokens": 24, "ignore_eos": true,
                              "dry_multiplier": 50.0, "dry_allowed_length": 1, "dry_penalty_last_n": -1 });
        text(&ask(texts, with(&options, &json!({ "dry_sequence_breakers": breakers }))))
    };
    let letters: Vec<String> = "abcdefghijklmnop".chars().map(String::from).collect();
    assert_ne!(dry(json!([])), dry(json!(letters)));
}

#[test]
fn pieces_have_times_where_that_is_asked_for() {
    let served = Served::new();
    let messages = json!([{ "role": "user", "content": "hi" }]);
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 4, "ignore_eos": true }),
        ),
        ("/completion", json!({ "prompt": "hi", "n_predict": 4, "ignore_eos": true })),
    ] {
        let counts = |timings: bool| -> Vec<u64> {
            let body = with(&body, &json!({ "stream": true, "timings_per_token": timings }));
            let (events, _) = served.post(path, &body).events();
            let pieces = &events[..events.len() - 1];
            pieces
                .iter()
                .filter_map(|event| event.pointer("/timings/predicted_n")?.as_u64())
                .collect()
        };
        let told = counts(true);
        assert!(
            !told.is_empty() && told.is_sorted() && *told.last().unwrap() <= 4,
            "{path}: {told:?}"
        );
        assert_eq!(counts(false), [0; 0], "{path}");
    }
}
