//! Requests to a running model server, on this machine or another: over HTTP or a Unix domain socket.

#[cfg(unix)]
use std::borrow::Cow;
use std::path::Path;

use serde_json::Value;

use crate::transport::{ANSWER_BYTES, HubAnswer, Transport, origin};
use crate::{HubError, HubOptions};

/// Reason why a request to a model server failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// No server listens at the address.
    #[error("no server runs at {url}")]
    NotRunning {
        /// Address of the server.
        url: String,
    },
    /// The server needs a key, or another key than the one sent.
    #[error("the server at {url} wants {}", if *with_key { "another key" } else { "a key" })]
    Unauthorized {
        /// Address of the server.
        url: String,
        /// Whether a key was sent.
        with_key: bool,
    },
    /// The address is malformed.
    #[error("expected http://HOST:PORT or unix:FILE, found {url}")]
    Address {
        /// Address as given.
        url: String,
    },
    /// Any other failure.
    #[error("{url}: {problem}")]
    Failed {
        /// Address of the server.
        url: String,
        /// Description of the failure.
        problem: String,
    },
}

/// Returns the JSON that a model server answers at `path`. `url`: `http://HOST:PORT`, the same without the scheme, or `unix:FILE`.
///
/// # Errors
/// A server that is not running, cannot be reached, or refuses the request.
pub fn ask_server(url: &str, path: &str, key: Option<&str>) -> Result<Value, AskError> {
    if let Some(file) = url.strip_prefix("unix:") {
        return ask_socket(Path::new(file), path, key);
    }
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    if !matches!(origin(&url), Some(("http" | "https", host)) if !host.is_empty()) {
        return Err(AskError::Address { url });
    }
    let url = url.trim_end_matches('/').to_owned();
    let (cache, patience) = Default::default();
    let token = key.map(str::to_owned);
    let options = HubOptions { cache, endpoint: url.clone(), token, offline: false, patience };
    let transport = Transport::new(&options);
    let answer = match transport.try_get(&format!("{url}{path}")) {
        Ok(answer) => answer,
        Err(ureq::Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            return Err(AskError::NotRunning { url });
        }
        Err(error) => return Err(AskError::Failed { url, problem: error.to_string() }),
    };
    if answer.status.as_u16() == 401 {
        return Err(AskError::Unauthorized { url, with_key: key.is_some() });
    }
    let answer = answer.check().and_then(HubAnswer::json);
    answer.map_err(|error| AskError::Failed { url, problem: problem(&error) })
}

/// Returns the message of an error without the address, which [`AskError::Failed`] shows already.
fn problem(error: &HubError) -> String {
    match error {
        HubError::Transport { problem, .. } => problem.clone(),
        error => error.to_string(),
    }
}

#[cfg(not(unix))]
fn ask_socket(file: &Path, _: &str, _: Option<&str>) -> Result<Value, AskError> {
    Err(AskError::Address { url: format!("unix:{}", file.display()) })
}

#[cfg(unix)]
fn ask_socket(file: &Path, path: &str, key: Option<&str>) -> Result<Value, AskError> {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    let url = format!("unix:{}", file.display());
    let failed = |problem: String| AskError::Failed { url: url.clone(), problem };
    let io = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            AskError::NotRunning { url: url.clone() }
        }
        _ => failed(error.to_string()),
    };
    let key_line = match key {
        Some(key) if key.chars().any(char::is_control) => {
            return Err(failed("the key has characters that no header can have".to_owned()));
        }
        Some(key) => format!("Authorization: Bearer {key}\r\n"),
        None => String::new(),
    };
    let mut stream = UnixStream::connect(file).map_err(io)?;
    let silence = Some(crate::HubPatience::default().silence);
    stream
        .set_read_timeout(silence)
        .and_then(|()| stream.set_write_timeout(silence))
        .map_err(io)?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{key_line}\r\n");
    stream.write_all(request.as_bytes()).map_err(io)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer).map_err(io)?;
    let (status, body) =
        read(&answer).ok_or_else(|| failed("what listens there speaks no HTTP".to_owned()))?;
    match status {
        200 => serde_json::from_slice(&body).map_err(|error| failed(error.to_string())),
        401 => Err(AskError::Unauthorized { url: url.clone(), with_key: key.is_some() }),
        status => Err(failed(format!("the server answers {status}"))),
    }
}

/// Splits a whole HTTP response into status and body; `None` if it is not one.
#[cfg(unix)]
fn read(answer: &[u8]) -> Option<(u16, Cow<'_, [u8]>)> {
    const END: &[u8] = b"\r\n\r\n";
    let end = answer.windows(END.len()).position(|bytes| bytes == END)?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let is_chunked = head.lines().filter_map(|line| line.split_once(':')).any(|(name, value)| {
        name.eq_ignore_ascii_case("Transfer-Encoding")
            && value.trim().eq_ignore_ascii_case("chunked")
    });
    let body = &answer[end + END.len()..];
    let body = if is_chunked { Cow::Owned(joined(body)?) } else { Cow::Borrowed(body) };
    Some((status, body))
}

/// Joins the chunks of a body; `None` if it is malformed or its last chunk is missing. Trailers are left out.
/// Source: RFC 9112, section 7.1.
#[cfg(unix)]
fn joined(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let end = body.windows(2).position(|bytes| bytes == b"\r\n")?;
        let size = std::str::from_utf8(&body[..end]).ok()?;
        // a semicolon begins chunk extensions
        let size = size.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        body = &body[end + 2..];
        if size == 0 {
            return Some(all);
        }
        let rest = body.get(size..)?.strip_prefix(b"\r\n")?;
        all.extend_from_slice(&body[..size]);
        body = rest;
    }
}
