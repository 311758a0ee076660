//! Variants of paths that clients use: extra slashes, a missing `/v1`, or a slightly wrong name.

use std::collections::HashMap;

use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, Method, StatusCode, Uri};
use strsim::osa_distance;

use crate::error::ApiError;
use crate::fields::brief_text;

/// Original path of a request whose path [`tidy`] changed.
#[derive(Clone, Debug)]
pub(crate) struct AskedPath(pub(crate) String);

/// Removes extra slashes, so that `//v1/models/` becomes `/v1/models`: some base URLs end in a slash, others do not.
pub(crate) fn tidy(uri: &mut Uri, extensions: &mut Extensions) {
    let path = uri.path();
    if path.len() < 2 || (!path.ends_with('/') && !path.contains("//")) {
        return;
    }
    let parts = path.split('/').filter(|part| !part.is_empty());
    let mut tidied: String = parts.flat_map(|part| ["/", part]).collect();
    if tidied.is_empty() {
        tidied.push('/');
    }
    if let Some(query) = uri.query() {
        tidied.push('?');
        tidied.push_str(query);
    }
    let Ok(tidied) = tidied.parse::<PathAndQuery>() else { return };
    let asked = AskedPath(path.to_owned());
    let mut new = uri.clone().into_parts();
    new.path_and_query = Some(tidied);
    if let Ok(new) = Uri::from_parts(new) {
        *uri = new;
        extensions.insert(asked);
    }
}

/// Returns the path of an endpoint without `/v1`, if it begins with `/v1`: some clients' base URLs end in `/v1`, others do not.
pub(super) fn unversioned(path: &str) -> Option<&str> {
    path.strip_prefix("/v1").filter(|rest| rest.starts_with('/'))
}

/// Paths of all endpoints, for the answers to requests for other paths.
#[derive(Debug, Default)]
pub(super) struct KnownPaths {
    /// Paths in the order in which they were added, each with the methods that it accepts.
    paths: Vec<(String, Vec<&'static str>)>,
    /// Aliases, each with the path that it stands for.
    aliases: HashMap<String, String>,
}

/// Maximum length of a path that is compared by edit distance.
const LONGEST: usize = 60;
/// Maximum edit distance between a path and a suggestion.
const EDITS: usize = 2;

impl KnownPaths {
    /// Adds a path, or another method (`get`) of it.
    pub(super) fn add(&mut self, path: &str, method: &'static str) {
        match self.paths.iter_mut().find(|(known, _)| known == path) {
            Some((_, methods)) => methods.push(method),
            None => self.paths.push((path.to_owned(), vec![method])),
        }
    }

    /// Adds an alias for a path.
    pub(super) fn alias(&mut self, alias: &str, path: &str) {
        self.aliases.insert(alias.to_owned(), path.to_owned());
    }

    /// Whether there is an endpoint with this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|(known, _)| known == path)
    }

    /// Returns the error for an unknown path.
    pub(super) fn missing(&self, path: &str) -> ApiError {
        let near = self.nearest(path).map_or_else(
            || "/openapi.json lists the endpoints".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        ApiError::not_found(format!("there is no {}: {near}", brief_text(path)))
    }

    /// Returns the error for a method that a path does not accept.
    pub(super) fn not_allowed(&self, method: &Method, path: &str) -> ApiError {
        let known = self.aliases.get(path).map_or(path, |known| known);
        let methods = self.paths.iter().find(|(path, _)| path == known);
        let methods = methods.map(|(_, methods)| methods.join(" or ").to_ascii_uppercase());
        let instead = methods.map(|methods| format!(": use {methods}")).unwrap_or_default();
        let (method, path) = (brief_text(method.as_str()), brief_text(path));
        ApiError::invalid(format!("method {method} is not allowed for {path}{instead}"))
            .with_status(StatusCode::METHOD_NOT_ALLOWED)
    }

    /// Returns the endpoint that was probably meant: one within the maximum edit distance, one that follows an unknown prefix, or the
    /// first one that begins with the path.
    fn nearest(&self, path: &str) -> Option<&str> {
        let fixed =
            || self.paths.iter().map(|(path, _)| &**path).filter(|path| !path.contains('{'));
        let aliases = self.aliases.iter().map(|(alias, known)| (&**alias, &**known));
        let names: Vec<(&str, &str)> = fixed().map(|known| (known, known)).chain(aliases).collect();
        let path = path.to_ascii_lowercase();
        if path.len() <= LONGEST {
            let near = names.iter().filter_map(|(name, known)| {
                let edits = osa_distance(&path, name);
                // a short name is within a few edits of many others
                (edits <= EDITS && name.len() > 3 * edits).then_some((edits, name.len(), *known))
            });
            if let Some((_, _, known)) = near.min() {
                return Some(known);
            }
        }
        let ends = path.match_indices('/').map(|(at, _)| &path[at..]).filter(|end| end.len() > 1);
        let meant =
            |end: &str| names.iter().find(|(name, _)| *name == end).map(|(_, known)| *known);
        let longer = |known: &&str| {
            known.strip_prefix(&*path).is_some_and(|rest| path.len() > 1 && rest.starts_with('/'))
        };
        ends.filter(|end| end.len() <= LONGEST).find_map(meant).or_else(|| fixed().find(longer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_too_many_are_dropped() {
        let of = |uri: &str| {
            let (mut uri, mut extensions): (Uri, Extensions) =
                (uri.parse().unwrap(), Extensions::new());
            tidy(&mut uri, &mut extensions);
            let asked = extensions.get().map(|AskedPath(path)| path.clone());
            (uri.to_string(), asked)
        };
        for (asked, tidied) in [
            ("/v1/models/", "/v1/models"),
            ("//v1//models//", "/v1/models"),
            ("/v1/models/?a=/b//&c=/", "/v1/models?a=/b//&c=/"),
            ("//", "/"),
            ("http://localhost:80/v1/models/", "http://localhost:80/v1/models"),
        ] {
            let (uri, path) = of(asked);
            assert_eq!(uri, tidied);
            assert!(path.is_some_and(|path| asked.contains(&path)), "{asked}");
        }
        for same in ["/", "/v1/models", "/v1/models/a/b?x=//"] {
            assert_eq!(of(same), (same.to_owned(), None));
        }
    }

    #[test]
    fn the_nearest_endpoint_is_suggested() {
        let mut known = KnownPaths::default();
        for (path, method) in [
            ("/v1/chat/completions", "post"),
            ("/v1/messages", "post"),
            ("/api/chat", "post"),
            ("/api/tags", "get"),
            ("/health", "get"),
            ("/completion", "post"),
            ("/", "get"),
            ("/slots", "get"),
            ("/slots/{id}", "post"),
        ] {
            known.add(path, method);
        }
        known.alias("/chat/completions", "/v1/chat/completions");
        for (path, near) in [
            ("/v1/v1/chat/completions", Some("/v1/chat/completions")),
            ("/v2/chat/completions", Some("/v1/chat/completions")),
            ("/openai/deployments/x/chat/completions", Some("/v1/chat/completions")),
            ("/v1/messages/v1/messages", Some("/v1/messages")),
            ("/v1/api/chat", Some("/api/chat")),
            ("/V1/Messages", Some("/v1/messages")),
            ("/v1/chat/completion", Some("/v1/chat/completions")),
            ("/v1/mesages", Some("/v1/messages")),
            ("/api/tag", Some("/api/tags")),
            ("/v1", Some("/v1/chat/completions")),
            ("/v1/chat", Some("/v1/chat/completions")),
            ("/slots/0/1", None),
            ("/nope", None),
            ("/favicon.ico", None),
        ] {
            assert_eq!(known.nearest(path), near, "{path}");
        }
        let long = known.missing(&format!("/{}", "x/".repeat(4000)));
        assert!(long.message.len() < 200, "{long}");
        let refused = known.not_allowed(&Method::GET, "/chat/completions");
        assert_eq!(refused.message, "method GET is not allowed for /chat/completions: use POST");
    }
}
