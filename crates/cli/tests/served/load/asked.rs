//! What is asked of a server under load, in the words of all its APIs, and how an answer is read.

use serde_json::{Value, json};

/// A request, each of whose replies is the same.
pub(crate) struct Asked {
    pub(crate) path: &'static str,
    pub(crate) body: Value,
}

const CHAT: &str = "/v1/chat/completions";
const TEXTS: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const OLLAMA: &str = "/api/chat";
const LLAMA: &str = "/completion";

/// All of them.
pub(crate) fn asked() -> Vec<Asked> {
    let mut all = Vec::new();
    let mut add = |path, body| all.push(Asked { path, body });
    let model = "rooflight-demo";
    let parameters = json!({
        "type": "object", "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } }, "required": ["n"],
    });
    for (i, text) in
        ["Say hello.", "Tell me a story.", "What is the sea?", "Count to ten."].iter().enumerate()
    {
        let said = json!([{ "role": "user", "content": text }]);
        let (length, seed) = (12 + 9 * i, 7 + i);
        for stream in [false, true] {
            add(
                CHAT,
                json!({ "messages": said, "max_tokens": length, "temperature": 0, "stream": stream }),
            );
            add(
                CHAT,
                json!({ "messages": said, "max_tokens": length, "seed": seed, "temperature": 1.3, "n": 2, "stream": stream }),
            );
            add(
                TEXTS,
                json!({ "prompt": text, "max_tokens": length, "seed": seed, "top_k": 5, "ignore_eos": true, "stream": stream }),
            );
            add(
                MESSAGES,
                json!({ "model": model, "messages": said, "max_tokens": length, "temperature": 0, "stream": stream }),
            );
            add(
                RESPONSES,
                json!({ "input": text, "max_output_tokens": length, "temperature": 0, "stream": stream }),
            );
            add(
                OLLAMA,
                json!({ "model": model, "messages": said, "options": { "num_predict": length, "seed": seed }, "stream": stream }),
            );
            add(
                LLAMA,
                json!({ "prompt": text, "n_predict": length, "temperature": 0, "n_probs": 2, "stream": stream }),
            );
        }
        let tool = json!({ "type": "function", "function": { "name": "double", "parameters": parameters } });
        add(
            CHAT,
            json!({ "messages": said, "tools": [tool], "tool_choice": "required", "temperature": 0, "max_tokens": 60, "stream": i % 2 == 0 }),
        );
        let form =
            json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": parameters } });
        add(
            CHAT,
            json!({ "messages": said, "response_format": form, "temperature": 0, "max_tokens": 40, "stream": i % 2 == 1 }),
        );
        // what is drafted, and a prompt of many tokens
        let again = format!("{text} {text} {text} {text} {text} {text} {text} {text}");
        add(
            TEXTS,
            json!({ "prompt": again, "max_tokens": 50, "temperature": 0, "ignore_eos": true, "stream": true }),
        );
    }
    all
}

/// Requests that are wrong: path, headers, body, and how they are refused.
pub(crate) fn nonsense() -> [(&'static str, &'static str, &'static str, u16); 9] {
    [
        (CHAT, "", "{\"messages\": [{\"role\": \"user\"", 400),
        (CHAT, "", r#"{"messages": [{"role": "user", "content": "x"}], "top_p": 7}"#, 400),
        (CHAT, "", r#"{"messages": "x", "temperature": "warm"}"#, 400),
        (TEXTS, "", r#"{"prompt": "x", "temperature": 1e300}"#, 400),
        (TEXTS, "", r#"{"prompt": "x", "model": "another"}"#, 404),
        (MESSAGES, "", r#"{"messages": []}"#, 400),
        (OLLAMA, "Origin: https://evil.com\r\n", r#"{"model": "rooflight-demo"}"#, 403),
        ("/nothing", "", "{}", 404),
        ("/health", "", "{}", 405),
    ]
}

impl Asked {
    /// What an answer says, whatever else is in it, and how many tokens it has.
    pub(crate) fn said(&self, body: &str) -> (String, usize) {
        let mut said = Said::default();
        let streams = self.body["stream"] == true;
        let lines = body.lines().filter_map(|line| match (self.path, streams) {
            (OLLAMA, true) => Some(line),
            (_, true) => line.strip_prefix("data: ").filter(|line| *line != "[DONE]"),
            (_, false) => None,
        });
        for line in lines {
            said.add(&serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
        }
        if !streams {
            said.add(&serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}")));
        }
        (said.text.join(" | "), said.tokens)
    }
}

/// What objects of an answer come to, by choice.
#[derive(Default)]
struct Said {
    text: Vec<String>,
    tokens: usize,
}

impl Said {
    fn push(&mut self, index: usize, text: &Value) {
        if self.text.len() <= index {
            self.text.resize(index + 1, String::new());
        }
        self.text[index] += text.as_str().unwrap_or_default();
    }

    fn add(&mut self, object: &Value) {
        for choice in object["choices"].as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap_or(0) as usize;
            for said in [&choice["delta"], &choice["message"]] {
                self.push(index, &said["content"]);
                for call in said["tool_calls"].as_array().into_iter().flatten() {
                    self.push(index, &call["function"]["name"]);
                    self.push(index, &call["function"]["arguments"]);
                }
            }
            self.push(index, &choice["text"]);
            self.push(index, &choice["finish_reason"]);
        }
        for at in [
            "/content",
            "/message/content",
            "/delta/text",
            "/delta/stop_reason",
            "/content/0/text",
            "/done_reason",
            "/stop_type",
        ] {
            self.push(0, object.pointer(at).unwrap_or(&Value::Null));
        }
        match object["type"].as_str() {
            Some("response.output_text.delta") => self.push(0, &object["delta"]),
            _ => self.push(0, object.pointer("/output/0/content/0/text").unwrap_or(&Value::Null)),
        }
        let tokens = object.pointer("/timings/predicted_n").and_then(Value::as_u64);
        self.tokens += tokens.unwrap_or(0) as usize;
    }
}
