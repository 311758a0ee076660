//! [`Unread`]: what cannot be read as a request is refused in the shape of an API, as everything else is.
//!
//! The HTTP library answers such bytes itself, with a status and no body, and offers no way to say more. Its answers are known
//! by that: everything of ours that refuses has a body. They are written anew on their way out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::deadlines::Answering;
use crate::error::{ApiError, ErrorShape};

/// Statuses that it answers with, and why.
const REFUSALS: [(&str, &str); 3] = [
    ("400 ", "this is no request of HTTP/1.1"),
    ("414 ", "the path is too long"),
    ("431 ", "more headers, or more bytes of them, than are read"),
];
/// Bytes of a request's first line that say which API it is of.
const LINE: usize = 256;

/// Bytes to and from a client.
pub(crate) struct Unread<S> {
    stream: S,
    answering: Answering,
    /// How the request begins that comes, or is answered.
    line: Vec<u8>,
    /// What [`Answering::turns`] was when that began.
    seen: usize,
    /// What is written in place of an answer, and how far that is.
    instead: Option<(Vec<u8>, usize)>,
}

impl<S> Unread<S> {
    /// Of a connection; `answering` turns while a request of it is answered.
    pub(crate) fn new(stream: S, answering: Answering) -> Unread<S> {
        Unread { stream, answering, line: Vec::new(), seen: 0, instead: None }
    }

    /// Note how a request begins: with its first bytes, however few come at once.
    fn note(&mut self, came: &[u8]) {
        let turns = self.answering.turns();
        // while one is answered, what comes is its body
        if !turns.is_multiple_of(2) {
            return;
        }
        if turns != self.seen {
            self.line.clear();
            self.seen = turns;
        }
        // what is left of a body hardly begins as a method does
        let begins = came.first().is_some_and(u8::is_ascii_uppercase);
        if begins || !self.line.is_empty() {
            let room = LINE - self.line.len();
            self.line.extend_from_slice(&came[..came.len().min(room)]);
        }
    }
}

/// What is said in place of an answer of the library to a request that begins so; `None` if it is none.
fn instead(answer: &[u8], line: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(answer.get(..answer.len().min(LINE))?).ok()?;
    let status = text.strip_prefix("HTTP/1.1 ")?;
    let (_, problem) = REFUSALS.iter().find(|(code, _)| status.starts_with(code))?;
    let head = text.strip_suffix("\r\n\r\n")?.to_ascii_lowercase();
    if !head.contains("\r\ncontent-length: 0") || head.contains("\r\ncontent-type:") {
        return None;
    }
    let path = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let shape = ErrorShape::of_path(&String::from_utf8_lossy(path));
    let body = ApiError::invalid(*problem).to_shape(shape).to_string();
    let status = status.lines().next().unwrap_or_default();
    let length = body.len();
    Some(
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .into_bytes(),
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut me.stream).poll_read(context, buffer);
        me.note(&buffer.filled()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = &mut *self;
        if me.instead.is_none() {
            me.instead = instead(bytes, &me.line).map(|text| (text, 0));
        }
        let Some((text, written)) = &mut me.instead else {
            return Pin::new(&mut me.stream).poll_write(context, bytes);
        };
        while *written < text.len() {
            let n = ready!(Pin::new(&mut me.stream).poll_write(context, &text[*written..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += n;
        }
        me.instead = None;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        match first {
            Some(first) if self.instead.is_some() || instead(first, &self.line).is_some() => {
                self.poll_write(context, first)
            }
            _ => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// What the HTTP library says of too many headers.
    const REFUSED: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    /// The first line counts, however it comes and whatever comes behind it; of each request of a connection its own.
    #[test]
    fn refusals_have_the_shape_of_the_request_that_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut client, server) = duplex(4096);
            let answering = Answering::default();
            let mut server = Unread::new(server, answering.clone());
            let mut says = async |pieces: &[&str]| {
                for piece in pieces {
                    client.write_all(piece.as_bytes()).await.unwrap();
                    server.read_exact(&mut vec![0; piece.len()]).await.unwrap();
                }
                server.write_all(REFUSED.as_bytes()).await.unwrap();
                let mut said = vec![0; 4096];
                let n = client.read(&mut said).await.unwrap();
                String::from_utf8(said[..n].to_vec()).unwrap()
            };
            let said = says(&["GE", "T /api/tags HTTP/1.1\r\nX: ", "YYYY", "Z: 1\r\n"]).await;
            assert!(said.contains("{\"error\":\"more headers"), "{said}");
            // it is answered, and its body comes
            answering.turn();
            let said = says(&["{\"a\": ", "GET /v1/messages HTTP/1.1"]).await;
            assert!(said.contains("{\"error\":\"more headers"), "{said}");
            answering.turn();
            let said = says(&["}", "POST /v1/messages HTTP/1.1\r\n", "GET /api/tags"]).await;
            assert!(said.contains("{\"type\":\"error\""), "{said}");
        });
    }

    #[test]
    fn answers_of_ours_go_out_as_they_are() {
        let said = instead(REFUSED.as_bytes(), b"GET /api/tags HTTP/1.1\r\n").unwrap();
        let said = String::from_utf8(said).unwrap();
        assert!(said.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{said}");
        assert!(
            said.ends_with("{\"error\":\"more headers, or more bytes of them, than are read\"}")
        );
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1",
            "data: HTTP/1.1 400 \r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(instead(other.as_bytes(), b""), None, "{other}");
        }
    }
}
