//! Connections: how many, how long each may take to say what it wants, and how they end.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::deadlines::{Answering, Deadlines};
use crate::models::Models;
use crate::unread::Unread;
use crate::{Access, App, Offers, ServedModel, api};

/// Connections at once.
const MOST_CONNECTIONS: usize = 256;
/// A connection on which nothing is asked for so long is closed.
const IDLE: Duration = Duration::from_secs(15);
/// Most headers of a request.
const MOST_HEADERS: usize = 100;
/// Most bytes of its headers.
const HEADER_BYTES: usize = 16 << 10;
/// How long replies may go on after the server was asked to end.
const DRAIN: Duration = Duration::from_secs(30);

/// A server that listens. It answers that the model is being loaded until [`provide`](Server::provide) gives it one.
pub struct Server {
    runtime: Runtime,
    address: SocketAddr,
    app: Arc<App>,
    end: oneshot::Sender<()>,
    connections: JoinHandle<()>,
}

impl Server {
    /// Listen, for whoever has `access`.
    ///
    /// # Errors
    /// If the system refuses threads or the listener.
    pub fn start(listener: TcpListener, access: Access) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("rooflight-http")
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let app = Arc::new(App { access, models: OnceLock::new() });
        let (end, ended) = oneshot::channel();
        let connections = runtime.spawn(serve(listener, Arc::clone(&app), ended));
        Ok(Server { runtime, address, app, end, connections })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to [`run`](Self::run) until: that the system asks the program to end (Ctrl-C, SIGTERM). Asked a second time, or
    /// before there is a model, `at_once` is called.
    ///
    /// # Errors
    /// If signals cannot be had.
    pub fn asked_to_end(
        &self,
        at_once: impl FnOnce() + Send + 'static,
    ) -> io::Result<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let mut signals = {
            let _inside = self.runtime.enter();
            EndSignals::new()?
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

    /// Serve until `end`; then no connection is taken, and replies that are being made may come to their end.
    pub fn run(self, end: impl Future<Output = ()>) {
        let Server { runtime, end: ends, connections, .. } = self;
        runtime.block_on(async {
            end.await;
            // it waits for nothing else
            let _ = ends.send(());
            let _ = connections.await;
        });
        // a template that is being rendered may take its time, which nobody waits for
        runtime.shutdown_background();
    }
}

/// Take connections until `end`, and wait for those that are there.
async fn serve(listener: tokio::net::TcpListener, app: Arc<App>, end: oneshot::Receiver<()>) {
    let service = TowerToHyperService::new(api::router(app));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEADER_BYTES);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut end = std::pin::pin!(end);
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let accepted = async { (place.await, listener.accept().await) };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            _ = &mut end => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(_) => {
                // no more files, or a client that is gone already: others may come
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        // a token is sent when it is there
        let _ = stream.set_nodelay(true);
        let answering = Answering::default();
        let stream = Deadlines::new(Unread::new(stream, answering.clone()), answering.clone());
        let service = service.clone();
        let answered = service_fn(move |request| {
            let (service, answering) = (service.clone(), answering.clone());
            answering.turn();
            async move {
                let response = service.call(request).await;
                answering.turn();
                response
            }
        });
        let connection = http.serve_connection(TokioIo::new(stream), answered);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // a client that goes away is no error of ours
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// Ways to ask a program to end.
#[cfg(unix)]
struct EndSignals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl EndSignals {
    fn new() -> io::Result<EndSignals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(EndSignals(signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Ways to ask a program to end.
#[cfg(not(unix))]
struct EndSignals;

#[cfg(not(unix))]
impl EndSignals {
    fn new() -> io::Result<EndSignals> {
        Ok(EndSignals)
    }

    async fn wait(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
