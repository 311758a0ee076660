//! [`Deadlines`]: a connection whose client must say what it wants, and read what it is told, in time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// From the first byte of a request to the last one of its head.
const HEAD: Duration = Duration::from_secs(5);
/// A client that takes nothing for so long is gone.
const STALLED: Duration = Duration::from_secs(30);

/// Whether a request of a connection is being answered: odd while one is, and another number for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answering(Arc<AtomicUsize>);

impl Answering {
    /// One begins to be answered, or ends.
    pub(crate) fn turn(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often one began or ended.
    pub(crate) fn turns(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes to and from a client.
pub(crate) struct Deadlines<S> {
    stream: S,
    answering: Answering,
    /// Runs while a head comes; of the request before which it began.
    head: Option<Pin<Box<Sleep>>>,
    seen: usize,
    /// Runs while the client takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Deadlines<S> {
    /// Of a connection; `answering` turns while a request of it is answered.
    pub(crate) fn new(stream: S, answering: Answering) -> Deadlines<S> {
        Deadlines { stream, answering, head: None, seen: 0, stalled: None }
    }

    /// What a write came to, or that it takes too long.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALLED)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Deadlines<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut me.stream).poll_read(context, buffer);
        let turn = me.answering.turns();
        if turn != me.seen {
            (me.head, me.seen) = (None, turn);
        }
        if turn % 2 == 1 {
            return read;
        }
        let came = buffer.filled().len() > before;
        if came && me.head.is_none() {
            me.head = Some(Box::pin(sleep(HEAD)));
        }
        if let Some(timer) = &mut me.head {
            let late =
                timer.deadline() <= Instant::now() || timer.as_mut().poll(context).is_ready();
            if late {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Deadlines<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    use super::*;
    use crate::paused_clock::run;

    /// A client that takes a byte now and then is not gone; one that takes none is.
    #[test]
    fn who_reads_nothing_is_gone() {
        run(async {
            let (mut client, server) = duplex(64);
            let mut server = Deadlines::new(server, Answering::default());
            let slow = async {
                for _ in 0..10 {
                    tokio::time::sleep(STALLED - Duration::from_secs(1)).await;
                    client.read_exact(&mut [0; 64]).await.unwrap();
                }
                client
            };
            let written = async {
                server.write_all(&[7; 11 * 64]).await.unwrap();
                server
            };
            let (_client, mut server) = tokio::join!(slow, written);
            let start = Instant::now();
            let error = server.write_all(&[7; 64]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(start.elapsed() >= STALLED && start.elapsed() < 2 * STALLED);
        });
    }

    #[test]
    fn a_head_comes_in_time_and_a_body_may_take_longer() {
        run(async {
            let (mut client, server) = duplex(64);
            let answering = Answering::default();
            let mut server = Deadlines::new(server, answering.clone());
            // nothing is asked: no deadline of ours
            assert!(timeout(3 * HEAD, server.read_u8()).await.is_err());
            client.write_all(b"GET").await.unwrap();
            server.read_exact(&mut [0; 3]).await.unwrap();
            let error = timeout(2 * HEAD, server.read_u8()).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            answering.turn();
            assert!(timeout(3 * HEAD, server.read_u8()).await.is_err(), "it waits for a body");
        });
    }
}
