//! Random JSON schemas and the bundled model: every reply that comes to an end parses and satisfies its schema, and is the
//! same with and without drafts. `ROOFLIGHT_SCHEMAS=1000` tries so many.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use engine::{
    DraftMode, Drafters, Generated, Request, Sampler, SamplerOptions, Session, StopReason,
    Suffixes, Turn,
};
use executors::ExecutorOptions;
use grammar::{CompileBudget, Form, FormSource, TokenTrie};
use program::{CacheOptions, CacheType, Model};
use serde_json::{Map, Value, json};
use tokenizer::Tokenizer;

const SEED: u64 = 20_261_123;

/// Numbers of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

const NAMES: [&str; 8] = ["name", "age", "the end", "é", "a\"b", "list", "x", "kind"];

/// A schema that something short satisfies. `node`: it may name `#/$defs/node`.
fn schema(dice: &mut Dice, depth: u64, node: bool) -> Value {
    match dice.below(if depth == 0 { 8 } else { 12 }) {
        0 => json!({ "type": dice.one(&["null", "boolean"]) }),
        1 => {
            let least = dice.below(900) as i64 - 450;
            json!({ "type": "integer", "minimum": least, "maximum": least + dice.below(300) as i64 })
        }
        2 => json!({ "type": "number", "minimum": -3, "maximum": dice.below(50) }),
        3 => json!({ "type": "string", "maxLength": 1 + dice.below(12) }),
        4 => {
            json!({ "type": "string", "minLength": dice.below(3), "maxLength": 3 + dice.below(9) })
        }
        5 => json!({ "type": "string", "pattern": "^[a-c]{1,4}x?$" }),
        6 => json!({ "enum": [dice.one(&NAMES), dice.below(99), null, { "a": [true] }] }),
        7 => match node {
            true => json!({ "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] }),
            false => json!({ "const": dice.one(&NAMES) }),
        },
        8 | 9 => {
            let least = dice.below(3);
            json!({ "type": "array", "items": schema(dice, depth - 1, node), "minItems": least, "maxItems": least + dice.below(3) })
        }
        10 => object(dice, depth, node),
        _ => json!({ "anyOf": [schema(dice, depth - 1, node), schema(dice, depth - 1, node)] }),
    }
}

fn object(dice: &mut Dice, depth: u64, node: bool) -> Value {
    let mut properties = Map::new();
    for _ in 0..dice.below(4) {
        let name = dice.one(&NAMES).to_owned();
        properties.insert(name, schema(dice, depth - 1, node));
    }
    let required: Vec<&String> = properties.keys().filter(|_| dice.below(3) > 0).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn whole_schema(dice: &mut Dice) -> Value {
    if dice.below(4) > 0 {
        return schema(dice, 3, false);
    }
    let mut root = object(dice, 3, true);
    let node = json!({
        "type": "object", "additionalProperties": false, "required": ["v", "next"],
        "properties": { "v": schema(dice, 0, false), "next": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/node" }] } },
    });
    root["$defs"] = json!({ "node": node });
    root
}

/// The definition, as far as these schemas go.
fn satisfies(value: &Value, schema: &Value, root: &Value) -> bool {
    let least = |key: &str, n: f64| schema[key].as_f64().is_none_or(|least| n >= least);
    let most = |key: &str, n: f64| schema[key].as_f64().is_none_or(|most| n <= most);
    if schema["$ref"] == "#/$defs/node" {
        return satisfies(value, &root["$defs"]["node"], root);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|inner| satisfies(value, inner, root));
    }
    if let Some(all) = schema["enum"].as_array() {
        return all.contains(value);
    }
    if let Some(only) = schema.get("const") {
        return value == only;
    }
    match (schema["type"].as_str(), value) {
        (Some("null"), Value::Null) | (Some("boolean"), Value::Bool(_)) => true,
        (Some("integer"), Value::Number(n)) if n.as_i64().is_none() => false,
        (Some("integer" | "number"), Value::Number(n)) => {
            n.as_f64().is_some_and(|n| least("minimum", n) && most("maximum", n))
        }
        (Some("string"), Value::String(text)) => {
            let n = text.chars().count() as f64;
            let core = text.strip_suffix('x').unwrap_or(text);
            let letters = core.bytes().all(|b| (b'a'..=b'c').contains(&b));
            let pattern =
                schema.get("pattern").is_none() || (letters && (1..=4).contains(&core.len()));
            pattern && least("minLength", n) && most("maxLength", n)
        }
        (Some("array"), Value::Array(items)) => {
            let n = items.len() as f64;
            let each = items.iter().all(|item| satisfies(item, &schema["items"], root));
            each && least("minItems", n) && most("maxItems", n)
        }
        (Some("object"), Value::Object(object)) => {
            let required = schema["required"].as_array();
            let there = |name: &Value| name.as_str().is_some_and(|name| object.contains_key(name));
            let known = |name: &str, value: &Value| {
                schema["properties"].get(name).is_some_and(|inner| satisfies(value, inner, root))
            };
            required.is_some_and(|names| names.iter().all(there))
                && object.iter().all(|(name, value)| known(name, value))
        }
        _ => false,
    }
}

struct Bundled {
    model: Arc<dyn Model>,
    tokenizer: Arc<Tokenizer>,
    trie: TokenTrie,
}

fn bundled() -> Bundled {
    let gguf = demo_model::open().expect("the bundled model is whole");
    let loaded = models::load(&gguf).expect("the bundled model is whole");
    let cpu =
        ExecutorOptions { threads: Some(2), ..Default::default() }.start().expect("it starts");
    let model = cpu
        .load(loaded.program, &models::GgufWeights(&gguf), &mut |_| ())
        .expect("the bundled model is whole");
    let tokenizer =
        Arc::new(Tokenizer::from_gguf(gguf.metadata()).expect("the bundled model is whole"));
    let trie = TokenTrie::new(Arc::clone(&tokenizer)).expect("the bundled model is whole");
    Bundled { model: Arc::from(model), tokenizer, trie }
}

/// A reply of a form; every third one is the likeliest.
fn reply(bundled: &Bundled, form: &Form, seed: u64, drafters: Option<&mut Drafters>) -> Generated {
    let temperature = if seed.is_multiple_of(3) { 0.0 } else { 0.9 };
    let options = SamplerOptions { seed: Some(seed), temperature, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(options)
        .expect("the bundled model is whole")
        .with_constraint(form.begin())
        .expect("the bundled model is whole");
    let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 512);
    let mut session =
        Session::new(Arc::clone(&bundled.model), cache, 0).expect("the bundled model is whole");
    let prompt = bundled
        .tokenizer
        .encode("Tell me about the little bird as JSON.")
        .expect("the bundled model is whole");
    let request = Request {
        prompt: &prompt,
        max_tokens: Some(300),
        stop: &[],
        ignore_eog: false,
        split_thoughts: false,
        cancel: &Arc::new(AtomicBool::new(false)),
    };
    let mut turn = Turn::new(&mut session, &mut sampler, &*bundled.tokenizer, &request);
    if let Some(drafters) = drafters {
        turn = turn.drafted(drafters);
    }
    turn.alone(&mut |_| ()).expect("nothing stops it")
}

#[test]
fn finished_replies_satisfy_their_schemas_with_and_without_drafts() {
    let wanted = std::env::var("ROOFLIGHT_SCHEMAS").map_or(25, |n| n.parse().unwrap());
    let bundled = bundled();
    let mut dice = Dice(SEED);
    let mut finished = 0;
    let suffixes = Arc::new(Mutex::new(Suffixes::default()));
    for case in 0..wanted {
        let schema = whole_schema(&mut dice);
        let source = FormSource::JsonSchema(schema.to_string());
        let form = Form::compile(&source, &bundled.trie, &CompileBudget::default())
            .unwrap_or_else(|error| panic!("{schema}: {error}"));
        let plain = reply(&bundled, &form, case, None);
        let mut drafters = Drafters::new(DraftMode::Auto, &suffixes);
        let drafted = reply(&bundled, &form, case, Some(&mut drafters));
        assert_eq!(drafted.tokens, plain.tokens, "{schema}");
        if matches!(plain.stop, StopReason::EndOfGeneration(_)) {
            let value: Value = serde_json::from_str(&plain.raw)
                .unwrap_or_else(|error| panic!("{schema}: {}: {error}", plain.raw));
            assert!(satisfies(&value, &schema, &schema), "{schema}: {}", plain.raw);
            finished += 1;
        }
    }
    testing::covered(&format!("{finished} finished replies to {wanted} schemas"));
    assert!(finished * 10 >= wanted * 8, "{finished} of {wanted} finished");
}
