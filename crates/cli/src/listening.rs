//! Where a server listens: a port, or a socket in the file system that only its owner reaches.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use server::ServerListener;

use crate::exit::Failure;
use crate::output::shown;

/// Default port of a server.
pub(crate) const PORT: u16 = 8080;

/// Where to listen.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ListenArgs {
    /// Address to listen at
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = host)]
    pub(crate) host: IpAddr,
    /// Port to listen at, 0 for any that is free
    #[arg(long, value_name = "N", default_value_t = PORT)]
    port: u16,
    /// Listen at a socket in the file system that other users cannot reach, in place of a port
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host", "port"])]
    pub(crate) socket: Option<PathBuf>,
}

/// An address; this machine's by its name.
fn host(text: &str) -> Result<IpAddr, std::net::AddrParseError> {
    match text.eq_ignore_ascii_case("localhost") {
        true => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        false => text.parse(),
    }
}

/// What listens, what to tell of it, and what is removed when it is dropped.
pub(crate) struct Listens {
    pub(crate) listener: ServerListener,
    pub(crate) address: String,
    pub(crate) socket: Option<Arc<SocketFile>>,
}

impl ListenArgs {
    /// Whether only this machine reaches it.
    pub(crate) fn is_local(&self) -> bool {
        self.socket.is_some() || self.host.is_loopback()
    }

    /// Listen.
    ///
    /// # Errors
    /// A port that is taken, a path where something else is.
    pub(crate) fn bind(&self) -> anyhow::Result<Listens> {
        if let Some(path) = &self.socket {
            let (listener, socket) = bind_socket(path)?;
            let address = format!("unix:{}", shown(path));
            return Ok(Listens { listener, address, socket: Some(Arc::new(socket)) });
        }
        let (host, port) = (self.host, self.port);
        let listener = TcpListener::bind((host, port)).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => anyhow::Error::from(Failure::Taken { host, port }),
            _ => anyhow::Error::from(error).context(format!("listening at {host}:{port}")),
        })?;
        let address = format!("http://{}", listener.local_addr()?);
        Ok(Listens { listener: listener.into(), address, socket: None })
    }
}

/// A socket of ours, removed when dropped.
#[cfg_attr(not(unix), expect(dead_code, reason = "this system has none"))]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and number of the file: what came in its place is not ours.
    file: (u64, u64),
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use rustix::fs::Mode;
    use rustix::process::umask;

    use super::*;

    /// A socket at this path that only this user reads and writes, in place of one that nobody listens at any more.
    ///
    /// # Errors
    /// A path where something else is, or that cannot be.
    pub(super) fn bind_socket(path: &Path) -> anyhow::Result<(ServerListener, SocketFile)> {
        if let Ok(there) = path.symlink_metadata() {
            let taken = |why: &str| Failure::Usage(format!("--socket {}: {why}", shown(path)));
            if !there.file_type().is_socket() {
                return Err(taken("there is something that is no socket").into());
            }
            match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)
                        .with_context(|| format!("removing {}", shown(path)))?;
                }
                _ => return Err(taken("somebody listens there already").into()),
            }
        }
        // made so that nobody else reaches it even for a moment; there is no other thread yet that would make files
        let before = umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        let listener = bound.with_context(|| format!("listening at {}", shown(path)))?;
        let made = path.symlink_metadata().with_context(|| format!("reading {}", shown(path)))?;
        let file = (made.dev(), made.ino());
        Ok((listener.into(), SocketFile { path: path.to_owned(), file }))
    }

    impl SocketFile {
        /// Remove it, if it is still ours.
        pub(crate) fn remove(&self) {
            let there = self.path.symlink_metadata();
            if there.is_ok_and(|there| (there.dev(), there.ino()) == self.file) {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }
}

#[cfg(unix)]
use unix::bind_socket;

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(not(unix))]
impl SocketFile {
    /// There is none.
    pub(crate) fn remove(&self) {}
}

#[cfg(not(unix))]
fn bind_socket(_: &std::path::Path) -> anyhow::Result<(ServerListener, SocketFile)> {
    Err(Failure::Usage("--socket: this system has none".into()).into())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_its_owners_and_takes_the_place_of_a_dead_one_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let bind = || bind_socket(&path).map_err(|error| format!("{error:#}"));
        let (listener, socket) = bind().unwrap();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        assert!(bind().err().unwrap().contains("listens there already"));
        // who dies leaves it there
        std::mem::forget(socket);
        drop(listener);
        let (_listener, socket) = bind().unwrap();
        // something else came in its place
        std::fs::rename(&path, folder.path().join("t")).unwrap();
        std::fs::write(&path, "x").unwrap();
        drop(socket);
        assert!(bind().err().unwrap().contains("no socket"));
        std::fs::remove_file(&path).unwrap();
        drop(bind().unwrap());
        assert!(path.symlink_metadata().is_err(), "it is removed");
    }
}
