//! [`WebOrigin`]: web pages that may use the server, and the CORS headers for browsers. A page may use the server only if its origin
//! was allowed by name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::App;
use crate::error::{ApiError, Result};

/// Maximum length of an origin, in bytes.
const MOST_BYTES: usize = 200;

/// Origin of a page, as browsers write it in the header `Origin`: scheme, host and port (`https://chat.example`, `app://obsidian.md`,
/// `chrome-extension://ID`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl FromStr for WebOrigin {
    type Err = String;

    /// Reads an origin. A trailing slash, capital letters and the default port of the scheme make no difference.
    ///
    /// # Errors
    /// A text that is not exactly one origin; the error describes what is wrong.
    fn from_str(text: &str) -> std::result::Result<WebOrigin, String> {
        const EXPECTED: &str =
            "expected an origin, for example https://chat.example or app://obsidian.md";
        if text.contains('*') {
            return Err("pages are allowed one by one: give each origin in full".to_owned());
        }
        if text.eq_ignore_ascii_case("null") {
            return Err(
                "`null` is the origin of any sandboxed page or local file: serve the page from an address and give that"
                    .to_owned(),
            );
        }
        let (scheme, rest) = text.split_once("://").ok_or(EXPECTED)?;
        let (scheme, host) = (scheme.to_ascii_lowercase(), rest.strip_suffix('/').unwrap_or(rest));
        let mut letters = scheme.bytes();
        let is_scheme = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let is_host = !host.is_empty()
            && !host.starts_with(':')
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~[]:".contains(&byte));
        if !is_scheme || !is_host || text.len() > MOST_BYTES {
            return Err(EXPECTED.to_owned());
        }
        let implied = match &*scheme {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix(implied).unwrap_or(&host);
        Ok(WebOrigin(format!("{scheme}://{host}")))
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the origin of a request, if it has exactly one `Origin` header and that is allowed.
pub(crate) fn allowed<'h>(
    allowed: &[WebOrigin],
    headers: &'h HeaderMap,
) -> Option<&'h HeaderValue> {
    let mut given = headers.get_all(header::ORIGIN).iter();
    let (origin, None) = (given.next()?, given.next()) else { return None };
    allowed.iter().any(|allowed| allowed.0.as_bytes() == origin.as_bytes()).then_some(origin)
}

/// Refuses a request that a browser sends for a page whose origin is not among `origins`.
///
/// # Errors
/// 403, with the option that allows the page.
pub(crate) fn check(origins: &[WebOrigin], headers: &HeaderMap) -> Result<()> {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    let is_of_page = headers.contains_key(header::ORIGIN)
        || site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"));
    if !is_of_page || allowed(origins, headers).is_some() {
        return Ok(());
    }
    let named = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let named = named.and_then(|origin| origin.parse::<WebOrigin>().ok());
    let what = named.map_or_else(
        || "one with --cors ORIGIN".to_owned(),
        |origin| format!("this one with --cors {origin}"),
    );
    Err(ApiError::forbidden(format!("browser requests are blocked; allow {what}")))
}

/// Whether a request is a CORS preflight, by which a browser asks if a page may send a request.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

const PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// Returns the answer to a preflight for an allowed page: it may send the request. [`for_pages`] adds the origin.
pub(crate) fn preflight(asked: &HeaderMap) -> Response {
    /// Number of seconds for which a browser may cache the answer.
    const KEPT: &str = "600";
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let mut tell = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    tell(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS");
    tell(header::ACCESS_CONTROL_MAX_AGE, KEPT);
    if asked.get(PRIVATE_NETWORK).is_some_and(|asked| asked.as_bytes() == b"true") {
        tell(ALLOW_PRIVATE_NETWORK, "true");
    }
    tell(header::VARY, "Access-Control-Request-Headers, Access-Control-Request-Private-Network");
    // all names may be sent: the guard checks the headers of the request itself
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

/// Response headers that pages may read.
const EXPOSED: &str = "retry-after, x-request-id, request-id, x-should-retry";

/// Middleware outside of everything that answers: lets allowed pages read the responses, including errors.
pub(crate) async fn for_pages(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let origins = app.access.origins();
    if origins.is_empty() {
        return next.run(request).await;
    }
    let page = allowed(origins, request.headers()).cloned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(page) = page {
        let exposed = HeaderValue::from_static(EXPOSED);
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_as_browsers_write_them() {
        let read = |text: &str| text.parse::<WebOrigin>().map(|origin| origin.to_string());
        for (given, origin) in [
            ("https://chat.example", "https://chat.example"),
            ("HTTPS://Chat.Example:443/", "https://chat.example"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://localhost:80", "http://localhost"),
            ("https://localhost:80", "https://localhost:80"),
            ("http://[::1]:5173", "http://[::1]:5173"),
            ("app://obsidian.md", "app://obsidian.md"),
            ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
            ("vscode-webview://0f3a", "vscode-webview://0f3a"),
        ] {
            assert_eq!(read(given).as_deref(), Ok(origin), "{given}");
        }
        for wrong in [
            "",
            "*",
            "https://*.example",
            "null",
            "NULL",
            "chat.example",
            "https://",
            "https:///",
            "https://a/b",
            "https://a?b",
            "https://me@a",
            "https://a b",
            "https://a,https://b",
            "://a",
            "1http://a",
            "http://:80",
            "http://a\r\nx: y",
            &format!("http://{}", "a".repeat(MOST_BYTES)),
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    /// Several `Origin` headers are refused: it is unknown which of them a page or a proxy sent.
    #[test]
    fn one_exact_origin_is_allowed() {
        let origins: Vec<WebOrigin> = vec!["https://chat.example".parse().unwrap()];
        let checked = |given: &[&str]| {
            let mut headers = HeaderMap::new();
            for origin in given {
                headers.append(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
            }
            check(&origins, &headers).map_err(|error| error.message)
        };
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&["https://chat.example"]), Ok(()));
        for other in [
            "http://chat.example",
            "https://chat.example:8443",
            "https://chat.example.evil.com",
            "https://evil.com",
            "https://xchat.example",
            "https://chat.example/",
        ] {
            let told = checked(&[other]).unwrap_err();
            let own = other.trim_end_matches('/');
            assert!(told.ends_with(&format!("allow this one with --cors {own}")), "{told}");
        }
        for given in [&["null"][..], &["https://chat.example", "https://evil.com"], &["\"<b>"]] {
            let told = checked(given).unwrap_err();
            assert!(!told.contains('<') && told.contains("allow "), "{told}");
        }
    }
}
