//! Requests over HTTP: redirects are followed here, so that the token goes to the hub alone and nothing leaves HTTPS.

use std::time::Duration;

use ureq::http::{HeaderMap, StatusCode, header};
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body, RequestBuilder};

use crate::source::passes;
use crate::{HubError, HubOptions, Result};

/// A server that does not take the connection is not waited for longer.
const CONNECT: Duration = Duration::from_secs(15);
/// How often a question that is no file is asked, and the longest pause between.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(30);
/// Redirects of one request.
const REDIRECTS: usize = 6;
/// Most bytes of an answer that is no file.
pub(crate) const ANSWER_BYTES: u64 = 32 << 20;

/// Asks servers.
pub(crate) struct Transport {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    /// How long servers are waited for.
    pub(crate) patience: HubPatience,
}

/// How long servers are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubPatience {
    /// One that sends nothing for so long is asked again; however slow it is, one that sends is not.
    pub silence: Duration,
    /// A download of which nothing comes for so long, however often it is tried, is given up.
    pub outage: Duration,
}

impl Default for HubPatience {
    /// Half a minute of silence, ten minutes of outage.
    fn default() -> HubPatience {
        HubPatience { silence: Duration::from_secs(30), outage: Duration::from_secs(600) }
    }
}

/// What came back, behind all redirects.
pub(crate) struct HubAnswer {
    /// Where from.
    pub(crate) url: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// How redirects are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Wherever they lead.
    All,
    /// To other names of the same thing on the same server, not to where its bytes are.
    SameServer,
}

impl Transport {
    pub(crate) fn new(options: &HubOptions) -> Transport {
        let config = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(options.patience.silence))
            // of each read: a body may take as long as its link needs
            .timeout_per_read(Some(options.patience.silence))
            .user_agent(concat!("rooflight/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = Agent::new_with_config(config);
        let HubOptions { endpoint, token, patience, .. } = options.clone();
        Transport { agent, endpoint, token, patience }
    }

    /// Ask for `url` as [`get`](Self::get) does, a few times where the server says that it is busy.
    pub(crate) fn get_patiently(
        &self,
        url: &str,
        range: Option<(u64, u64)>,
        follow: Follow,
    ) -> Result<HubAnswer> {
        let mut tried = 1;
        loop {
            let answer = self.get(url, range, follow)?;
            let wait = wait_asked_for(&answer).unwrap_or(Duration::from_secs(1 << tried));
            if tried == TRIES || !passes(answer.status) || wait > PAUSE {
                return Ok(answer);
            }
            tried += 1;
            std::thread::sleep(wait);
        }
    }

    /// Ask for `url`; `range` of it, if that is given.
    pub(crate) fn get(
        &self,
        url: &str,
        range: Option<(u64, u64)>,
        follow: Follow,
    ) -> Result<HubAnswer> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let mut request = self.request(&url);
            if let Some((start, end)) = range {
                request = request.header("Range", format!("bytes={start}-{}", end - 1));
            }
            let response = request.call().map_err(|error| failed(&url, &error))?;
            let (parts, body) = response.into_parts();
            let location = parts.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            let next = match location.filter(|_| parts.status.is_redirection()) {
                Some(location) => target(&url, location)?,
                None => {
                    return Ok(HubAnswer {
                        url,
                        status: parts.status,
                        headers: parts.headers,
                        body,
                    });
                }
            };
            if follow == Follow::SameServer && origin(&next) != origin(&url) {
                return Ok(HubAnswer { url, status: parts.status, headers: parts.headers, body });
            }
            url = next;
        }
        Err(protocol(&url, "a file behind a few redirects", "ever more of them"))
    }

    /// Sends one GET request to `url` and follows no redirects. The error holds the reason if the server cannot be reached.
    pub(crate) fn try_get(&self, url: &str) -> std::result::Result<HubAnswer, ureq::Error> {
        let (parts, body) = self.request(url).call()?.into_parts();
        let (url, status, headers) = (url.to_owned(), parts.status, parts.headers);
        Ok(HubAnswer { url, status, headers, body })
    }

    /// Builds a GET request for `url`, with the token only if `url` belongs to the hub itself.
    fn request(&self, url: &str) -> RequestBuilder<WithoutBody> {
        let request = self.agent.get(url).header("Accept-Encoding", "identity");
        match self.token.as_ref().filter(|_| self.is_hub(url)) {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// Whether the hub itself answers at this address.
    fn is_hub(&self, url: &str) -> bool {
        origin(url) == origin(&self.endpoint)
    }
}

impl HubAnswer {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    pub(crate) fn json(mut self) -> Result<serde_json::Value> {
        let body = self.body.with_config().limit(ANSWER_BYTES).read_to_vec();
        let body = body.map_err(|error| failed(&self.url, &error))?;
        serde_json::from_slice(&body)
            .map_err(|error| protocol(&self.url, "JSON", &error.to_string()))
    }

    /// That it came to something.
    pub(crate) fn check(self) -> Result<HubAnswer> {
        match self.status.is_success() {
            true => Ok(self),
            false => {
                let wait = wait_asked_for(&self).map(|wait| wait.as_secs());
                let wait =
                    wait.map(|s| format!(", and asks to wait for {s} s")).unwrap_or_default();
                let problem = format!("the server answers {}{wait}", self.status);
                Err(HubError::Transport { url: shown(&self.url).to_owned(), problem })
            }
        }
    }
}

/// How long a server asks to be left alone: `Retry-After` in seconds (as a date it is rare, and not read), or what is left of
/// the time in which it counts, which Hugging Face tells as `RateLimit: "api";r=0;t=55`.
pub(crate) fn wait_asked_for(answer: &HubAnswer) -> Option<Duration> {
    let seconds = |text: &str| text.trim().parse().ok().map(Duration::from_secs);
    let told = answer.header("retry-after").and_then(seconds);
    let limited = answer.status == StatusCode::TOO_MANY_REQUESTS;
    told.or_else(|| {
        let limits = answer.header("ratelimit").filter(|_| limited)?;
        limits.split(';').find_map(|part| seconds(part.trim().strip_prefix("t=")?))
    })
}

/// A server that could not be reached, or broke off.
pub(crate) fn failed(url: &str, problem: &dyn std::fmt::Display) -> HubError {
    HubError::Transport { url: shown(url).to_owned(), problem: one_line(&problem.to_string()) }
}

/// A server that did not do what it must.
pub(crate) fn protocol(url: &str, expected: impl Into<String>, found: &str) -> HubError {
    let url = shown(url).to_owned();
    HubError::Protocol { url, expected: expected.into(), found: one_line(found) }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

/// Without its query, which may hold a signature.
fn shown(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Scheme, name and port of an address.
pub fn origin(url: &str) -> Option<(&str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    // a name before an `@` is whom to be, and not whom to ask
    let host = authority.rsplit('@').next()?.to_ascii_lowercase();
    let port = if scheme == "https" { ":443" } else { ":80" };
    Some((scheme, host.strip_suffix(port).map_or(host.clone(), str::to_owned)))
}

/// That this is the address of a server.
pub(crate) fn check_address(url: &str) -> Result<()> {
    match origin(url) {
        Some(("http" | "https", host)) if !host.is_empty() => Ok(()),
        _ => Err(protocol(url, "http:// or https:// and a name", url)),
    }
}

/// Where a redirect leads.
///
/// # Errors
/// A redirect to no address, or away from HTTPS.
pub fn target(from: &str, location: &str) -> Result<String> {
    let (scheme, rest) = from.split_once("://").unwrap_or(("https", from));
    // a path may have an address in its query
    let to = if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if location.starts_with('/') {
        let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        format!("{scheme}://{host}{location}")
    } else if location.contains("://") {
        location.to_owned()
    } else {
        return Err(protocol(from, "a redirect to an address", location));
    };
    match (scheme, to.split_once("://")) {
        (_, Some(("https", _))) | ("http", Some(("http", _))) => Ok(to),
        _ => Err(protocol(from, "a redirect that stays with HTTPS", &to)),
    }
}
