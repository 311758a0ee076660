//! [`Endpoints`]: the router, and beside each route what `/openapi.json` says of it, made of the tables that requests are
//! checked by: what is told cannot be another thing than what is done.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use engine::SAMPLER_SETTINGS;
use serde_json::{Map, Value, json};

use super::paths::{KnownPaths, unversioned};
use crate::App;
use crate::fields::{Field, Takes};

/// Routes and what is told of them.
#[derive(Default)]
pub(super) struct Endpoints {
    routes: Vec<(String, MethodRouter<Arc<App>>)>,
    paths: Map<String, Value>,
    known: KnownPaths,
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
        route: MethodRouter<Arc<App>>,
        method: &'static str,
        mut what: Value,
    ) -> Endpoints {
        self.known.add(path, method);
        self.routes.push((path.to_owned(), route));
        let refused = |about: &str| json!({ "description": about });
        what["responses"] = json!({
            "200": { "description": "What was asked for" },
            "400": refused("A field that cannot be obeyed, by its name"),
            "401": refused("A key is needed"),
            "403": refused("A web page that --cors does not allow, or a Host that is not this machine's"),
            "500": refused("The model cannot be loaded, or failed: the same again would, too"),
            "503": refused("The model is being loaded, or there is no place or memory: see Retry-After"),
        });
        let is_post = method == "post";
        if is_post {
            what["responses"]["413"] = refused("A body that is too large");
            what["responses"]["415"] =
                refused("A body of another type than JSON, or in an unknown coding");
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

    /// Builds the router: all endpoints, `/openapi.json`, and the answers to unknown paths and methods. An endpoint under `/v1` is
    /// also served without `/v1`, unless another endpoint has that path.
    /// `strict`: whether fields that are not listed are refused.
    pub(super) fn finish(self, strict: bool) -> Router<Arc<App>> {
        let Endpoints { routes, mut paths, mut known } = self;
        const SCHEMA: &str = "/post/requestBody/content/application~1json/schema";
        for path in paths.values_mut() {
            if let Some(schema) = path.pointer_mut(SCHEMA) {
                schema["additionalProperties"] = json!(!strict);
            }
        }
        let fields = match strict {
            true => "Fields that are not listed, or have no effect, are refused by their names.",
            false => {
                "Fields that are not listed are ignored, and named in `warnings` of the response."
            }
        };
        let description = format!(
            "{fields} Paths under /v1 are served without /v1, too, except /v1/completions."
        );
        let document = Arc::new(json!({
            "openapi": "3.1.0",
            "info": {
                "title": "rooflight serve",
                "version": env!("CARGO_PKG_VERSION"),
                "description": description,
            },
            "paths": paths,
        }));
        let tell = move || async move { Json((*document).clone()) };
        let mut router = Router::new().route("/openapi.json", get(tell));
        for (path, route) in routes {
            if let Some(short) = unversioned(&path).filter(|short| !known.has(short)) {
                known.alias(short, &path);
                router = router.route(short, route.clone());
            }
            router = router.route(&path, route);
        }
        known.add("/openapi.json", "get");
        let known = Arc::new(known);
        let others = Arc::clone(&known);
        let missing = move |uri: Uri| async move { known.missing(uri.path()) };
        let not_allowed =
            move |method: Method, uri: Uri| async move { others.not_allowed(&method, uri.path()) };
        router.fallback(missing).method_not_allowed_fallback(not_allowed)
    }
}

/// What is told of a body.
fn body(takes: Takes) -> Value {
    let schema = json!({
        "type": "object",
        "properties": properties(takes),
    });
    json!({ "required": true, "content": { "application/json": { "schema": schema } } })
}

fn properties(takes: Takes) -> Map<String, Value> {
    const TOLD: &str = "the response names it in `warnings`";
    let read = |values: &[&str]| -> Vec<Value> {
        values.iter().map(|value| serde_json::from_str(value).unwrap_or(Value::Null)).collect()
    };
    let mut all = Map::new();
    for (name, field) in takes.fields() {
        let told = match field {
            Field::Honoured => json!({}),
            Field::NoEffect(why) => json!({ "description": format!("Without effect: {why}.") }),
            Field::Ignored(why) => json!({ "description": format!("Ignored: {why}; {TOLD}.") }),
            Field::Fixed(values) => {
                let values = values.join(" or ");
                let told =
                    format!("Only {values} is supported; another value is ignored, and {TOLD}.");
                json!({ "description": told })
            }
            Field::Refused(why) => json!({ "description": format!("Refused: {why}.") }),
            Field::Only(values) => {
                json!({ "description": "Nothing else is supported.", "enum": read(values) })
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
