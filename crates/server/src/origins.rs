//! [`WebOrigin`]: web pages that may use the server, and the CORS headers for browsers. A page may use the server only if its origin
//! was allowed by name.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
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

    /// Reads an origin and returns it as browsers write it: without a trailing slash, in lower case, without an empty port or the
    /// default one of the scheme, IP addresses in their shortest form.
    ///
    /// # Errors
    /// If the text is not exactly one origin, or no browser would send it; the error describes what is wrong.
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
        let (scheme, address) =
            (scheme.to_ascii_lowercase(), rest.strip_suffix('/').unwrap_or(rest));
        let mut letters = scheme.bytes();
        let is_scheme = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let is_address = |text: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~[]:".contains(&byte);
            !text.is_empty() && !text.starts_with(':') && text.bytes().all(is_allowed)
        };
        let with_path = address.split_once(['/', '?', '#']);
        if let Some((origin, _)) = with_path.filter(|(origin, _)| is_scheme && is_address(origin)) {
            return Err(format!("an origin has no path: give {scheme}://{origin}"));
        }
        if !is_scheme || !is_address(address) || text.len() > MOST_BYTES {
            return Err(EXPECTED.to_owned());
        }
        // colons within brackets belong to the host
        let colon = address.rfind(':').filter(|colon| !address[*colon..].contains(']'));
        let (host, port) = match colon {
            Some(colon) => (&address[..colon], &address[colon + 1..]),
            None => (address, ""),
        };
        let (host, port) = (host_of(&scheme, host)?, port_of(&scheme, port)?);
        Ok(WebOrigin(match port {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        }))
    }
}

/// Returns a host as browsers write it.
fn host_of(scheme: &str, host: &str) -> std::result::Result<String, String> {
    let wrong = || Err(format!("`{host}` is no host name or IP address"));
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return address.map_or_else(wrong, |address| Ok(format!("[{address}]")));
    }
    if host.is_empty() || host.contains(['[', ']', ':']) {
        return wrong();
    }
    // for the web's schemes, browsers read a host that ends with a number as an IPv4 address
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && matches!(scheme, "http" | "https") && host.parse::<Ipv4Addr>().is_err() {
        return wrong();
    }
    Ok(host.to_ascii_lowercase())
}

/// Returns the port that browsers write: `None` for an empty one and for the default one of the scheme.
fn port_of(scheme: &str, port: &str) -> std::result::Result<Option<u16>, String> {
    if port.is_empty() {
        return Ok(None);
    }
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse::<u16>().ok().filter(|_| is_number);
    let number = number.ok_or_else(|| format!("`{port}` is no port: expected 0 to 65535"))?;
    let implied = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    Ok(Some(number).filter(|number| Some(*number) != implied))
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
            ("http://LOCALHOST:80/", "http://localhost"),
            ("http://localhost:", "http://localhost"),
            ("http://localhost:/", "http://localhost"),
            ("http://localhost:03000", "http://localhost:3000"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://my_host.7z", "http://my_host.7z"),
            ("http://[::1]:5173", "http://[::1]:5173"),
            ("http://[::1]", "http://[::1]"),
            ("http://[0:0:0:0:0:0:0:1]:80", "http://[::1]"),
            ("app://obsidian.md", "app://obsidian.md"),
            ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
            ("vscode-webview://0f3a", "vscode-webview://0f3a"),
            ("vscode-webview://1234", "vscode-webview://1234"),
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
            "https://a//",
            "https://a?b",
            "http://a:99999",
            "http://a:x",
            "http://a:1:2",
            "http://::1",
            "http://[::1",
            "http://[::1]x",
            "http://[a]:80",
            "http://127.1",
            "http://256.0.0.1",
            "https://me@a",
            "https://a b",
            "https://a,https://b",
            "://a",
            "1http://a",
            "http://:80",
            "http://a\r\nx: y",
            &format!("http://{}", "a".repeat(MOST_BYTES)),
        ] {
            assert!(read(wrong).is_err_and(|told| !told.contains('\n')), "{wrong}");
        }
        for (wrong, told) in [
            ("http://A:80/chat", "an origin has no path: give http://A:80"),
            ("http://a:99999", "`99999` is no port: expected 0 to 65535"),
            ("http://[::1", "`[:` is no host name or IP address"),
            ("http://127.1", "`127.1` is no host name or IP address"),
        ] {
            assert_eq!(read(wrong).unwrap_err(), told);
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
