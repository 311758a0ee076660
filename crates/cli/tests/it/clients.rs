//! Programs that people use talk to `rooflight serve`: skipped where python has them not.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::{Place, text};
use crate::serving::Serving;

/// What a text with these headers is answered with.
fn post(serving: &Serving, body: &str, headers: &str) -> String {
    let mut connection = serving.connect();
    connection.send("POST", "/v1/completions", headers, body);
    let answer = connection.answer().unwrap();
    format!("{} {}", answer.status, answer.body)
}

/// Packages, each with what it is tried by.
const CLIENTS: [(&str, &str); 4] = [
    ("openai", "openai_chats.py"),
    ("openai", "openai_responses.py"),
    ("anthropic", "anthropic_messages.py"),
    ("ollama", "ollama_chats.py"),
];
/// Those that wrap others.
const WRAPPERS: [(&str, &str); 4] = [
    ("litellm", "openai_wrappers.py"),
    ("litellm", "ollama_wrappers.py"),
    ("langchain_openai", "openai_wrappers.py"),
    ("instructor", "openai_wrappers.py"),
];

/// Libraries that run agents.
const AGENTS: [(&str, &str); 2] =
    [("agents", "openai_agents.py"), ("pydantic_ai", "openai_agents.py")];

fn are_served(clients: &[(&str, &str)], model: &[&str], place: &Place) {
    let python = std::env::var("ROOFLIGHT_CLIENTS_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut serving = None;
    for (package, script) in clients {
        // to import some of them takes seconds
        let finds =
            format!("import importlib.util as u, sys; sys.exit(not u.find_spec('{package}'))");
        let has = Command::new(&python).args(["-c", &finds]).stderr(Stdio::null()).status();
        if !has.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {python} has no package {package}");
            continue;
        }
        let serving = serving.get_or_insert_with(|| Serving::start(place, model));
        let script = format!("{}/tests/clients/{script}", env!("CARGO_MANIFEST_DIR"));
        let args = [&*script, &*serving.port, package];
        let output = Command::new(&python).args(args).output().unwrap();
        assert!(output.status.success(), "{package}: {}", text(&output.stderr));
        eprint!("{}", text(&output.stdout));
    }
}

#[test]
fn clients_are_served() {
    are_served(&CLIENTS, &[], &Place::new());
}

#[test]
fn clients_that_wrap_others_are_served() {
    are_served(&WRAPPERS, &[], &Place::new());
}

#[test]
fn clients_that_run_agents_are_served() {
    are_served(&AGENTS, &[], &Place::new());
}

/// The models of a folder are named before the server listens, and one that cannot be served is left out. A folder without
/// models is an error, and nothing listens.
#[test]
fn the_models_of_a_folder_are_served() {
    let place = Place::new();
    for folder in ["models", "models/deeper", "none"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    for name in ["one.gguf", "two.gguf", "deeper/three.gguf"] {
        place.write(&format!("models/{name}"), conformance::demo_gguf());
    }
    place.write("models/broken.gguf", "no model");
    place.write("models/notes.txt", "no model");
    place.write("none/notes.txt", "no model");
    let serving = Serving::start(&place, &["models"]);
    let listed = serving.get("/v1/models").json();
    let names: Vec<&Value> =
        listed["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["one", "two"]);
    let port = text(&place.run(&["ps", "--port", &serving.port]).stdout);
    assert!(port.contains("one") && !port.contains("two"), "{port}");
    let told = serving.ended();
    assert!(told.contains("\n3 models in models: broken, one, two\n"), "{told}");
    assert!(told.contains("not served: opening models/broken.gguf"), "{told}");
    assert!(told.contains("\nloaded on demand: two\n"), "{told}");
    let none = place.run(&["serve", "none", "--port", "0"]);
    let told = text(&none.stderr);
    assert_eq!(none.status.code(), Some(2), "{told}");
    assert!(told.starts_with("error: none: there are no GGUF files in this folder"), "{told}");
}

/// Two files, one of which is loaded when it is asked for; `ps` tells so.
#[test]
fn several_models_are_served_by_their_names() {
    let place = Place::new();
    std::fs::create_dir(place.path("sub")).unwrap();
    for name in ["one.gguf", "two.gguf", "sub/one.gguf"] {
        place.write(name, conformance::demo_gguf());
    }
    let serving = Serving::start(&place, &["one.gguf", "two.gguf", "--keepalive", "1h"]);
    let url = format!("http://127.0.0.1:{}", serving.port);
    let loaded = || text(&place.run(&["ps", "--url", &url]).stdout);
    let first = loaded();
    assert!(first.contains("one") && !first.contains("two"), "{first}");
    let answer = post(&serving, r#"{"model": "two", "prompt": "the", "max_tokens": 3}"#, "");
    assert!(answer.starts_with("200") && answer.contains("\"model\":\"two\""), "{answer}");
    let both = loaded();
    assert!(both.contains("one") && both.contains("two"), "{both}");
    drop(serving);
    // two of one name cannot be told apart
    let twice = place.run(&["serve", "--port", "0", "one.gguf", "sub/one.gguf"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(text(&twice.stderr).contains("two models are called one"), "{}", text(&twice.stderr));
    for (args, told) in [
        (&["one.gguf", "-a", "x", "-a", "y"][..], "several names are A,B"),
        (&["one.gguf", "two.gguf", "-a", "x,y"], "give -a for each model: -a x -a y"),
        (&["one.gguf", "-a", ","], "expected a name"),
        (&["one.gguf", "-a", "x,x"], "two models are called x"),
    ] {
        let refused = place.run(&[&["serve", "--port", "0"], args].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(text(&refused.stderr).contains(told), "{args:?}: {}", text(&refused.stderr));
    }
    let args = ["one.gguf", "two.gguf", "-a", "x,y", "-a", "z"];
    let serving = Serving::start(&place, &args);
    for (name, model) in [("x", "x"), ("y", "x"), ("z", "z")] {
        let body = format!(r#"{{"model": "{name}", "prompt": "the", "max_tokens": 2}}"#);
        let answer = post(&serving, &body, "");
        assert!(answer.contains(&format!("\"model\":\"{model}\"")), "{name}: {answer}");
    }
    let told = serving.ended();
    assert!(
        told.contains("serving x (also y), ") && told.contains("loaded on demand: z"),
        "{told}"
    );
}

/// The harness scores answers by the log probabilities of prompt tokens. With `ROOFLIGHT_REQUIRE_HARNESS` set, a missing
/// harness is a failure.
#[test]
fn the_harness_scores_a_task() {
    let python = std::env::var("ROOFLIGHT_HARNESS_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = ["-c", "import lm_eval, transformers"];
    let has = Command::new(&python).args(has).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        let required = std::env::var_os("ROOFLIGHT_REQUIRE_HARNESS").is_some();
        assert!(!required, "{python} has no lm_eval and transformers");
        eprintln!("skipped: {python} has no lm_eval and transformers");
        return;
    }
    let serving = Serving::start(&Place::new(), &[]);
    let folder = env!("CARGO_MANIFEST_DIR");
    let script = format!("{folder}/tests/clients/harness_scores.py");
    let model = format!("{folder}/../demo-model/assets/rooflight-demo-5m-q8_0.gguf");
    let args = [&*script, &*serving.port, "lm_eval", &*model];
    let output = Command::new(&python).args(args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    eprint!("{}", text(&output.stdout));
}

#[test]
fn embeddings_are_served() {
    let place = Place::new();
    let known = conformance::golden::texts().into_iter().find(|known| known.name == "bert-mean");
    place.write("mean.gguf", &known.unwrap().file);
    let clients = ["openai", "litellm", "langchain_openai"];
    are_served(&clients.map(|client| (client, "openai_embeddings.py")), &["mean.gguf"], &place);
}

/// What a server replies to these messages.
fn ask(serving: &Serving, messages: &Value) -> Value {
    let body = json!({"messages": messages, "max_tokens": 20, "temperature": 0});
    let answer = serving.post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Turns of models that recur, one after another and side by side, are those of a server that sees them for the first time.
#[test]
fn models_that_recur_are_served() {
    let place = Place::new();
    for name in ["qwen35", "rwkv7"] {
        let file = format!("{name}.gguf");
        place.write(&file, conformance::golden::model(name));
        let said = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
        let serving = Serving::start(&place, &[&file]);
        let user = |text: &str| json!({"role": "user", "content": text});
        let first = said(&ask(&serving, &json!([user("hello there")])));
        let turns = ["and then?", "why is that?", "what else?", "hm"].map(|text| {
            json!([user("hello there"), {"role": "assistant", "content": first}, user(text)])
        });
        let warm = ask(&serving, &turns[0]);
        let cached = warm["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert!(cached.is_some_and(|cached| cached > 0), "{name}: {warm}");
        assert_eq!(said(&ask(&serving, &turns[0])), said(&warm), "{name}: a reply begun anew");
        let together: Vec<Value> = std::thread::scope(|scope| {
            let asked = turns.each_ref().map(|turn| scope.spawn(|| said(&ask(&serving, turn))));
            asked.into_iter().map(|reply| reply.join().unwrap()).collect()
        });
        assert_eq!(together[0], said(&warm), "{name}: beside others");
        for (turn, reply) in turns.iter().zip(&together) {
            let cold = Serving::start(&place, &[&file]);
            assert_eq!(&said(&ask(&cold, turn)), reply, "{name}: {turn}");
        }
    }
}
