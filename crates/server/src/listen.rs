//! Connections: how many, how long each may take to say what it wants, and how they end.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::deadlines::{Answering, Deadlines};
use crate::intake::{Intake, ServerLimits};
use crate::models::Models;
use crate::places::{Peer, Places, TakenPlace};
use crate::unread::Unread;
use crate::{Access, App, Offers, ServedModel, api};

/// Connections at once.
const MOST_CONNECTIONS: usize = 256;
/// Files that a server opens besides its connections: models, caches, logs, downloads.
const OTHER_FILES: usize = 64;
/// Connections at once where hardly any files may be opened.
const LEAST_CONNECTIONS: usize = 8;
/// A connection on which nothing is asked for so long is closed.
const IDLE: Duration = Duration::from_secs(15);
/// Most headers of a request.
const MOST_HEADERS: usize = 100;
/// Most bytes of its headers.
const HEADER_BYTES: usize = 16 << 10;
/// Threads that get requests ready go when there was nothing to do for so long.
const SPARE: Duration = Duration::from_secs(2);
/// Number of task polls between two checks of the sockets. A connection that sends or receives a large body is ready at each poll, and
/// a poll may take a millisecond: with tokio's default of 61, two such connections would delay all others by a tenth of a second.
const POLLS_PER_IO: u32 = 4;
/// Bytes that the system may hold of what a client has not taken; it takes twice as many, its own counted.
const UNTAKEN: usize = 64 << 10;
/// How long it may take until a reply that is ended is told so.
const LAST: Duration = Duration::from_secs(1);

/// A server that listens. It answers that the model is being loaded until [`provide`](Server::provide) gives it one.
pub struct Server {
    runtime: Runtime,
    address: Option<SocketAddr>,
    app: Arc<App>,
    end: oneshot::Sender<Duration>,
    connections: JoinHandle<()>,
}

impl Server {
    /// Listen, for whoever has `access`, within the default limits.
    ///
    /// # Errors
    /// If the system refuses threads or the listener.
    pub fn start(listener: impl Into<ServerListener>, access: Access) -> io::Result<Server> {
        Server::start_within(ServerLimits::default(), listener, access)
    }

    /// The same, within these limits.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_within(
        limits: ServerLimits,
        listener: impl Into<ServerListener>,
        access: Access,
    ) -> io::Result<Server> {
        let listener = listener.into();
        let address = match &listener {
            ServerListener::Tcp(listener) => Some(listener.local_addr()?),
            #[cfg(unix)]
            ServerListener::Unix(_) => None,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("rooflight-http")
            .thread_keep_alive(SPARE)
            .event_interval(POLLS_PER_IO)
            .global_queue_interval(POLLS_PER_IO)
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            Listening::of(listener)?
        };
        let (models, requests) = Default::default();
        let intake = Intake::new(limits);
        let app = Arc::new(App { access, models, requests, intake });
        let (end, ended) = oneshot::channel();
        let connections = runtime.spawn(serve(listener, Arc::clone(&app), ended));
        Ok(Server { runtime, address, app, end, connections })
    }

    /// Where it listens, if that is a port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What to [`run`](Self::run) until: that the system asks the program to end (Ctrl-C, SIGTERM; `hangup`: that its terminal
    /// closes, too). Asked a second time, or before there is a model, `at_once` is called.
    ///
    /// # Errors
    /// If signals cannot be had.
    pub fn asked_to_end(
        &self,
        hangup: bool,
        at_once: impl FnOnce() + Send + 'static,
    ) -> io::Result<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let mut signals = {
            let _inside = self.runtime.enter();
            EndSignals::new(hangup)?
        };
        let (asked, wait) = oneshot::channel();
        let app = Arc::clone(&self.app);
        self.runtime.spawn(async move {
            signals.wait().await;
            if app.models.get().is_some() {
                // who does not wait any more has ended already
                let _ = asked.send(());
                signals.wait().await;
            }
            at_once();
        });
        Ok(Box::pin(async {
            let _ = wait.await;
        }))
    }

    /// Serve this model from now on, for as long as the server runs.
    ///
    /// # Errors
    /// If the system refuses the thread that computes.
    ///
    /// # Panics
    /// If there is something already.
    pub fn provide(&self, model: ServedModel) -> io::Result<()> {
        self.begin(Models::fixed(model)?);
        Ok(())
    }

    /// Serve these models from now on: `first` is the first of them, loaded; others are loaded when they are asked for.
    ///
    /// # Errors
    /// If the system refuses the thread that computes.
    ///
    /// # Panics
    /// If there is something already, or nothing is given.
    pub fn offer(&self, offers: Offers, first: ServedModel) -> io::Result<()> {
        self.begin(Models::offered(offers, first)?);
        Ok(())
    }

    fn begin(&self, models: Models) {
        let models = Arc::new(models);
        self.runtime.spawn(Arc::clone(&models).watch());
        assert!(self.app.models.set(models).is_ok(), "something is served already");
    }

    /// Serve until `end`; then no connection is taken, and replies that are being made may come to their end for so long as
    /// `drain`. Those that have not by then are cut, and say so. What is to be kept goes to disk.
    pub fn run(self, end: impl Future<Output = ()>, drain: Duration) {
        let Server { runtime, app, end: ends, connections, .. } = self;
        runtime.block_on(async {
            end.await;
            let seconds = drain.as_secs_f64();
            tracing::info!("shutting down: finishing open requests (up to {seconds} s)");
            // it waits for nothing else
            let _ = ends.send(drain);
            let _ = connections.await;
        });
        // a template that is being rendered may take its time, which nobody waits for
        runtime.shutdown_background();
        if let Some(models) = app.models.get() {
            models.rest();
        }
    }
}

/// Where clients come from.
pub enum ServerListener {
    /// A port.
    Tcp(TcpListener),
    /// A socket in the file system.
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener),
}

impl From<TcpListener> for ServerListener {
    fn from(listener: TcpListener) -> ServerListener {
        ServerListener::Tcp(listener)
    }
}

#[cfg(unix)]
impl From<std::os::unix::net::UnixListener> for ServerListener {
    fn from(listener: std::os::unix::net::UnixListener) -> ServerListener {
        ServerListener::Unix(listener)
    }
}

/// The same, with the runtime that waits for them.
enum Listening {
    Tcp(tokio::net::TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

/// Who has come.
enum Stream {
    Tcp(tokio::net::TcpStream, IpAddr),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

impl Listening {
    fn of(listener: ServerListener) -> io::Result<Listening> {
        match listener {
            ServerListener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Listening::Tcp(tokio::net::TcpListener::from_std(listener)?))
            }
            #[cfg(unix)]
            ServerListener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Listening::Unix(tokio::net::UnixListener::from_std(listener)?))
            }
        }
    }

    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listening::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                // a token is sent when it is there
                let _ = stream.set_nodelay(true);
                #[cfg(unix)]
                let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, UNTAKEN);
                Ok(Stream::Tcp(stream, from.ip()))
            }
            #[cfg(unix)]
            Listening::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

/// What all connections share.
struct Connections {
    service: TowerToHyperService<Router>,
    http: http1::Builder,
    graceful: GracefulShutdown,
}

impl Connections {
    /// Serve one, until its client leaves or it has to go.
    fn serve<S>(&self, stream: S, address: Option<IpAddr>, place: TakenPlace)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let answering = Answering::default();
        let stream = Deadlines::new(Unread::new(stream, answering.clone()), answering.clone());
        let service = self.service.clone();
        let peer = Peer { address, waits: place.waits().clone() };
        let answered = service_fn(move |mut request: hyper::Request<Incoming>| {
            let (service, answering) = (service.clone(), answering.clone());
            let mut uri = std::mem::take(request.uri_mut());
            api::tidy_path(&mut uri, request.extensions_mut());
            *request.uri_mut() = uri;
            request.extensions_mut().insert(peer.clone());
            answering.turn();
            async move {
                let response = service.call(request).await;
                answering.turn();
                response
            }
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), answered);
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    // a client that goes away is no error of ours
                    tracing::debug!(%error, "a connection ended");
                },
                () = place.has_to_go() => tracing::debug!("a connection made room for another"),
            }
        });
    }
}

/// Files that this process may have open; `None` if there is no limit, or no way to ask.
fn open_files_limit() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    None
}

/// Connections at once in a process that may have this many files open.
fn connection_limit(files: Option<u64>) -> usize {
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(OTHER_FILES).clamp(LEAST_CONNECTIONS, MOST_CONNECTIONS)
}

/// Whether the process or the system has no file left.
fn out_of_files(error: &io::Error) -> bool {
    #[cfg(unix)]
    return [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
    #[cfg(not(unix))]
    return false;
}

/// Take connections until `end`, and wait for those that are there.
async fn serve(listener: Listening, app: Arc<App>, end: oneshot::Receiver<Duration>) {
    let service = TowerToHyperService::new(api::router(Arc::clone(&app)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEADER_BYTES);
    let places = Places::new(connection_limit(open_files_limit()));
    let connections = Connections { service, http, graceful: GracefulShutdown::new() };
    let mut end = std::pin::pin!(end);
    let drain = loop {
        let accepted = async {
            let stream = listener.accept().await?;
            Ok::<_, io::Error>((stream, places.take().await))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            drain = &mut end => break drain.unwrap_or_default(),
        };
        match accepted {
            Ok((Stream::Tcp(stream, from), place)) => connections.serve(stream, Some(from), place),
            #[cfg(unix)]
            Ok((Stream::Unix(stream), place)) => connections.serve(stream, None, place),
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                // a client that is gone already needs nothing; where no file can be opened a connection has to close
                if out_of_files(&error) {
                    places.make_room();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    drop(listener);
    let mut all = std::pin::pin!(connections.graceful.shutdown());
    if tokio::time::timeout(drain, &mut all).await.is_err() {
        tracing::info!("replies that are still being made end here");
        if let Some(models) = app.models.get() {
            models.end_replies();
        }
        let _ = tokio::time::timeout(LAST, all).await;
    }
}

/// Ways to ask a program to end.
#[cfg(unix)]
struct EndSignals(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl EndSignals {
    fn new(hangup: bool) -> io::Result<EndSignals> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        kinds.extend(hangup.then(SignalKind::hangup));
        kinds.into_iter().map(signal).collect::<io::Result<_>>().map(EndSignals)
    }

    async fn wait(&mut self) {
        std::future::poll_fn(|context| {
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Ways to ask a program to end.
#[cfg(not(unix))]
struct EndSignals;

#[cfg(not(unix))]
impl EndSignals {
    fn new(_: bool) -> io::Result<EndSignals> {
        Ok(EndSignals)
    }

    async fn wait(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        assert_eq!(connection_limit(None), MOST_CONNECTIONS);
        assert_eq!(connection_limit(Some(u64::MAX)), MOST_CONNECTIONS);
        assert_eq!(connection_limit(Some(256)), 256 - OTHER_FILES);
        assert_eq!(connection_limit(Some(65)), LEAST_CONNECTIONS);
        assert_eq!(connection_limit(Some(0)), LEAST_CONNECTIONS);
    }

    #[cfg(unix)]
    #[test]
    fn only_a_lack_of_files_closes_a_connection() {
        let error = |errno: rustix::io::Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(out_of_files(&error(rustix::io::Errno::MFILE)));
        assert!(out_of_files(&error(rustix::io::Errno::NFILE)));
        assert!(!out_of_files(&error(rustix::io::Errno::CONNABORTED)));
        assert!(!out_of_files(&io::ErrorKind::OutOfMemory.into()));
    }
}
