//! Who may ask: programs of this machine, by a name that only it has, or whoever has the key. A web page that a browser
//! shows is refused, wherever its requests come from, unless its origin is allowed (`origins.rs`).

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::Owner;
use sha2::{Digest, Sha256};

use crate::App;
use crate::error::{ApiError, Result};
use crate::origins::{self, WebOrigin};
use crate::places::Peer;

/// Who may ask.
#[derive(Clone, Debug)]
pub struct Access {
    /// Digests of keys, one of which is needed; none: no key is.
    keys: Vec<[u8; 32]>,
    /// Names besides this machine's own by which it may be addressed, without ports; `None`: any.
    hosts: Option<Vec<String>>,
    /// Origins whose pages may also use the server.
    origins: Vec<WebOrigin>,
}

/// Whose a request is: the number of its key, from 1; 0 where none is needed. What one has said is nobody else's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeyId {
    number: u64,
    owner: Owner,
}

impl KeyId {
    /// Sessions of one scope may share what they computed.
    pub(crate) fn scope(self) -> u64 {
        self.number
    }

    /// Whose a conversation on disk is, also after the server was started anew with other keys; it does not tell the key.
    pub(crate) fn owner(self) -> Owner {
        self.owner
    }

    /// The key of this number and digest.
    fn of(number: usize, key: &[u8; 32]) -> KeyId {
        let digest =
            Sha256::new().chain_update(b"rooflight: whose a conversation is").chain_update(key);
        let digest: [u8; 32] = digest.finalize().into();
        KeyId { number: number as u64, owner: std::array::from_fn(|i| digest[i]) }
    }
}

/// The client of a request, for shares of what is scarce: its key where keys are configured, else the address that it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ClientId {
    /// A socket in the file system, whose clients all belong to one user.
    #[default]
    Local,
    /// The number of a key.
    Key(u64),
    /// An address; of IPv6 the network of 64 bits, which one machine may have to itself.
    Address(IpAddr),
}

impl ClientId {
    /// The client that has this key and comes from this address.
    pub(crate) fn new(key: KeyId, address: Option<IpAddr>) -> ClientId {
        match (key.number, address) {
            (0, None) => ClientId::Local,
            (0, Some(IpAddr::V6(address))) => {
                // an IPv4 client of a socket for both is known by its own address
                let own = address.to_ipv4_mapped().map(IpAddr::V4);
                let network = u128::from(address) >> 64 << 64;
                ClientId::Address(own.unwrap_or(IpAddr::V6(network.into())))
            }
            (0, Some(address)) => ClientId::Address(address),
            (number, _) => ClientId::Key(number),
        }
    }

    /// The client of the request with this head.
    pub(crate) fn of(parts: &Parts) -> ClientId {
        let key = parts.extensions.get().copied().unwrap_or_default();
        let peer: Option<&Peer> = parts.extensions.get();
        ClientId::new(key, peer.and_then(|peer| peer.address))
    }
}

/// Most bytes of a path with its query.
const URI_BYTES: usize = 8 << 10;

/// Needs no key: it says nothing but that the server is there.
const OPEN: [&str; 2] = ["/health", "/v1/health"];

impl Access {
    /// For whoever has one of `keys` (everybody, if there are none) and addresses the server by a name of this machine
    /// or one of `hosts`, or by any name at all (`None`).
    pub fn new(keys: &[String], hosts: Option<Vec<String>>) -> Access {
        let mut digests: Vec<[u8; 32]> = Vec::new();
        for key in keys {
            let digest = Sha256::digest(key.as_bytes()).into();
            if !digests.contains(&digest) {
                digests.push(digest);
            }
        }
        let keys = digests;
        Access { keys, hosts, origins: Vec::new() }
    }

    /// Returns the same rules, which also allow pages of these origins.
    #[must_use]
    pub fn with_origins(self, origins: Vec<WebOrigin>) -> Access {
        Access { origins, ..self }
    }

    /// Returns the origins whose pages may use the server.
    pub(crate) fn origins(&self) -> &[WebOrigin] {
        &self.origins
    }

    /// Whether a key is needed.
    pub fn needs_key(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The key of this number, from 1.
    #[cfg(test)]
    pub(crate) fn key(&self, number: usize) -> KeyId {
        KeyId::of(number, &self.keys[number - 1])
    }

    /// Whose a request is.
    fn check(&self, path: &str, headers: &HeaderMap) -> Result<KeyId> {
        self.check_host(headers)?;
        origins::check(&self.origins, headers)?;
        match self.needs_key() && !OPEN.contains(&path) {
            true => self.check_key(headers),
            false => Ok(KeyId::default()),
        }
    }

    /// A page that has its own name point to this machine is known by that name.
    fn check_host(&self, headers: &HeaderMap) -> Result<()> {
        let mut given = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (given.next(), given.next()) else {
            return Err(ApiError::forbidden("expected one Host"));
        };
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let host = host.to_str().unwrap_or_default();
        let name = without_port(host);
        let own = name.eq_ignore_ascii_case("localhost")
            || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
            || hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        match own {
            true => Ok(()),
            false => Err(ApiError::forbidden(
                "this server is not addressed by that Host: --allowed-host names others than localhost",
            )),
        }
    }

    /// All keys are compared as a whole, so that time tells nothing of where they differ.
    fn check_key(&self, headers: &HeaderMap) -> Result<KeyId> {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|text| text.strip_prefix("Bearer "));
        let given = bearer.or_else(|| headers.get("x-api-key").and_then(|v| v.to_str().ok()));
        let digest: [u8; 32] = Sha256::digest(given.unwrap_or_default().as_bytes()).into();
        let differs = |key: &[u8; 32]| key.iter().zip(&digest).fold(0, |sum, (a, b)| sum | (a ^ b));
        let known = (self.keys.iter().enumerate())
            .fold(0, |known, (i, key)| known.max((i + 1) * usize::from(differs(key) == 0)));
        if known > 0 { Ok(KeyId::of(known, &digest)) } else { Err(ApiError::unauthorized()) }
    }
}

/// `localhost` of `localhost:8080`, `::1` of `[::1]:8080`.
fn without_port(host: &str) -> &str {
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return if rest.is_empty() || is_port(rest) { name } else { "" };
    }
    match host.find(':') {
        Some(colon) if is_port(&host[colon..]) => &host[..colon],
        Some(_) => "",
        None => host,
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Refuse who may not ask, before anything is read or done.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let length = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if length > URI_BYTES {
        let error = ApiError::invalid(format!("the path has more than {URI_BYTES} bytes"));
        return error.with_status(StatusCode::URI_TOO_LONG).into_response();
    }
    let (access, headers) = (&app.access, request.headers());
    // a browser sends the preflight without the key that the page's request will have
    let is_asked = origins::is_preflight(request.method(), headers);
    if is_asked && origins::allowed(&access.origins, headers).is_some() {
        let checked = access.check_host(headers).map(|()| origins::preflight(headers));
        return checked.unwrap_or_else(ApiError::into_response);
    }
    match access.check(request.uri().path(), headers) {
        Ok(key) => {
            request.extensions_mut().insert(key);
            let mut response = next.run(request).await;
            response.extensions_mut().insert(key);
            response
        }
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn status(access: &Access, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        access.check(path, &map).map_or_else(|error| error.status.as_u16(), |_| 200)
    }

    #[test]
    fn only_names_of_this_machine_address_it() {
        let access = Access::new(&[], Some(vec!["models.lan".into()]));
        for host in
            ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "models.lan:80"]
        {
            assert_eq!(status(&access, "/", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "",
            "evil.com",
            "evil.com:8080",
            "localhost.evil.com",
            "127.0.0.1.nip.io",
            "localhost:80:80",
            "localhost:x",
            "[::1]x",
            "10.0.0.1",
            "printer.local",
        ] {
            assert_eq!(status(&access, "/", &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&access, "/", &[]), 403);
        assert_eq!(status(&access, "/", &[("host", "localhost"), ("host", "localhost")]), 403);
    }

    #[test]
    fn clients_are_told_apart_by_key_else_by_address() {
        let address = |text: &str| Some(text.parse().unwrap());
        let of = |text| ClientId::new(KeyId::default(), address(text));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        let key = KeyId::of(3, &[7; 32]);
        assert_eq!(ClientId::new(key, address("10.0.0.1")), ClientId::Key(3));
        assert_eq!(ClientId::new(KeyId::default(), None), ClientId::Local);
    }

    #[test]
    fn no_page_may_ask() {
        let access = Access::new(&[], Some(Vec::new()));
        let with = |name, value| status(&access, "/", &[("host", "localhost"), (name, value)]);
        for origin in ["https://evil.com", "null", "http://localhost:8080"] {
            assert_eq!(with("origin", origin), 403);
        }
        assert_eq!(with("sec-fetch-site", "cross-site"), 403);
        assert_eq!(with("sec-fetch-site", "same-site"), 403);
        assert_eq!(with("sec-fetch-site", "none"), 200);
    }

    #[test]
    fn a_key_is_any_of_them_and_health_needs_none() {
        let access = Access::new(&["one".into(), "two".into()], Some(Vec::new()));
        let with =
            |path, name, value| status(&access, path, &[("host", "localhost"), (name, value)]);
        assert_eq!(with("/v1/models", "authorization", "Bearer two"), 200);
        assert_eq!(with("/v1/models", "x-api-key", "one"), 200);
        for wrong in ["Bearer three", "Bearer ", "one", "Bearer one "] {
            assert_eq!(with("/v1/models", "authorization", wrong), 401, "{wrong}");
        }
        assert_eq!(with("/health", "accept", "x"), 200);
        let keys = ["a", "b", "a", "c"].map(str::to_owned);
        let access = Access::new(&keys, None);
        let of = |key: &str| {
            let mut map = HeaderMap::new();
            map.insert(header::HOST, HeaderValue::from_static("localhost"));
            map.insert("x-api-key", HeaderValue::from_str(key).unwrap());
            access.check("/", &map).unwrap()
        };
        let ids = ["a", "b", "c"].map(of);
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    }

    /// All bytes of two digests are compared, and the same is said wherever keys part. Times are not asserted: a digest's
    /// bytes say nothing of the key, and where the compiler puts a loop makes more of a difference.
    #[test]
    fn h6_a_wrong_key_is_refused_alike_wherever_it_is_wrong() {
        let key = "k".repeat(64);
        let access = Access::new(std::slice::from_ref(&key), None);
        let with = |bytes: &[u8]| {
            let mut map = HeaderMap::new();
            map.insert("x-api-key", HeaderValue::from_bytes(bytes).unwrap());
            access.check_key(&map)
        };
        assert!(with(key.as_bytes()).is_ok());
        let refused = |bytes: &[u8]| format!("{:?}", with(bytes).unwrap_err());
        let first = refused(b"");
        for wrong in 0..key.len() {
            let mut bytes = key.clone().into_bytes();
            bytes[wrong] = b'x';
            assert_eq!(refused(&bytes), first, "wrong at {wrong}");
            assert_eq!(refused(&key.as_bytes()[..wrong]), first, "cut at {wrong}");
        }
        assert_eq!(refused(format!("{key}k").as_bytes()), first, "longer");
    }
}
