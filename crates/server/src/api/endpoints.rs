//! [`Endpoints`]: the router, and beside each route what `/openapi.json` says of it, made of the tables that requests are
//! checked by: what is told cannot be another thing than what is done.

use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::SAMPLER_SETTINGS;
use serde_json::{Map, Value, json};

use crate::App;
use crate::fields::{Field, Takes};

/// Routes and what is told of them.
#[derive(Default)]
pub(super) struct Endpoints {
    router: Router<Arc<App>>,
    paths: Map<String, Value>,
}

impl Endpoints {
    /// Something that is looked at. `about`: what it is.
    pub(super) fn get<H, T>(self, path: &str, about: &str, handler: H) -> Endpoints
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.told(path, get(handler), "get", json!({ "summary": about }))
    }

    /// Something of a model that is looked at: `?model=` says of which.
    pub(super) fn get_of_model<H, T>(self, path: &str, about: &str, handler: H) -> Endpoints
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        let model = json!({
            "name": "model",
            "in": "query",
            "description": "Its name; the first one is meant where none is given",
            "schema": { "type": "string" },
        });
        self.told(path, get(handler), "get", json!({ "summary": about, "parameters": [model] }))
    }

    /// Something that is asked for with an object.
    pub(super) fn post<H, T>(self, path: &str, about: &str, takes: Takes, handler: H) -> Endpoints
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        let what = json!({ "summary": about, "requestBody": body(takes) });
        self.told(path, post(handler), "post", what)
    }

    /// The same with a query. `query`: names, and what each says.
    pub(super) fn post_with<H, T>(
        self,
        path: &str,
        about: &str,
        query: &[(&str, &str)],
        takes: Takes,
        handler: H,
    ) -> Endpoints
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        let parameter = |(name, about): &(&str, &str)| {
            let schema = json!({ "type": "string" });
            json!({ "name": name, "in": "query", "description": about, "schema": schema })
        };
        let parameters: Vec<Value> = query.iter().map(parameter).collect();
        let what =
            json!({ "summary": about, "parameters": parameters, "requestBody": body(takes) });
        self.told(path, post(handler), "post", what)
    }

    fn told(
        mut self,
        path: &str,
        route: axum::routing::MethodRouter<Arc<App>>,
        method: &str,
        mut what: Value,
    ) -> Endpoints {
        self.router = self.router.route(path, route);
        let refused = |about: &str| json!({ "description": about });
        what["responses"] = json!({
            "200": { "description": "What was asked for" },
            "400": refused("A field that cannot be obeyed, by its name"),
            "401": refused("A key is needed"),
            "403": refused("A web page, or a Host that is not this machine's"),
            "500": refused("The model cannot be loaded, or failed: the same again would, too"),
            "503": refused("The model is being loaded, or there is no place or memory: see Retry-After"),
        });
        let is_post = method == "post";
        if is_post {
            what["responses"]["413"] = refused("A body that is too large");
            what["responses"]["415"] = refused("A body that is not application/json");
        }
        // a part of a path has another form there
        let shown = path.replace("{*", "{");
        if let Some((_, name)) = shown.split_once('{') {
            let name = name.trim_end_matches('}');
            let schema = json!({ "type": "string" });
            let part = json!({ "name": name, "in": "path", "required": true, "schema": schema });
            match &mut what["parameters"] {
                Value::Array(all) => all.insert(0, part),
                none => *none = json!([part]),
            }
        }
        // who names no model means one that is there
        if is_post || what["parameters"].is_array() {
            what["responses"]["404"] = refused("There is no such model");
        }
        self.paths.entry(shown).or_insert_with(|| json!({}))[method] = what;
        self
    }

    /// All of them, and what tells of them.
    pub(super) fn finish(self) -> Router<Arc<App>> {
        let document = Arc::new(json!({
            "openapi": "3.1.0",
            "info": {
                "title": "rooflight serve",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Fields that are not listed are refused by their names.",
            },
            "paths": self.paths,
        }));
        let tell = move || async move { Json((*document).clone()) };
        self.router.route("/openapi.json", get(tell))
    }
}

/// What is told of a body.
fn body(takes: Takes) -> Value {
    let schema = json!({
        "type": "object",
        "properties": properties(takes),
        "additionalProperties": false,
    });
    json!({ "required": true, "content": { "application/json": { "schema": schema } } })
}

fn properties(takes: Takes) -> Map<String, Value> {
    let (Takes::Fields(fields) | Takes::Settings(fields)) = takes;
    let mut all = Map::new();
    for (name, field) in fields {
        let told = match field {
            Field::Honoured => json!({}),
            Field::NoEffect(why) => json!({ "description": format!("Without effect: {why}.") }),
            Field::Only(value) => {
                let value: Value = serde_json::from_str(value).unwrap_or_default();
                json!({ "description": "Nothing else can be had here.", "const": value })
            }
            Field::Among(values) => {
                let read = |value: &&str| serde_json::from_str(value).unwrap_or(Value::Null);
                let values: Vec<Value> = values.iter().map(read).collect();
                json!({ "description": "Nothing else can be had here.", "enum": values })
            }
        };
        all.insert((*name).to_owned(), told);
    }
    if matches!(takes, Takes::Settings(_)) {
        for setting in SAMPLER_SETTINGS {
            let name = setting.name.replace('-', "_");
            all.entry(name).or_insert_with(|| json!({ "type": "number" }));
        }
    }
    all
}
