//! Access control of a server: API keys, host names, browser origins.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use server::{Access, WebOrigin};

use crate::exit::Failure;
use crate::listening::ListenArgs;
use crate::output::shown;
use crate::ui;

/// Access control: API keys, host names, browser origins.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AccessArgs {
    /// API key that requests must send; several: A,B. Other users see it in the process list, unlike --api-key-file and the
    /// variable
    #[arg(long, value_name = "KEY", value_delimiter = ',', hide_env_values = true)]
    api_key: Vec<String>,
    /// File with API keys, one per line
    ///
    /// Every request must send one of them
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Let web pages of this origin use the server
    ///
    /// https://chat.example, app://obsidian.md, chrome-extension://ID; may be given several times, or as A,B. Without it browsers
    /// are blocked
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    cors: Vec<WebOrigin>,
    /// Another host name for this machine in requests; may be given several times
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Allow access from other machines without a key
    #[arg(long)]
    insecure_no_auth: bool,
}

impl AccessArgs {
    /// Returns the access control for a server that listens on this address.
    ///
    /// # Errors
    /// A file without keys, an empty key, or a server that other machines could reach without a key.
    pub(crate) fn access(&self, listen: &ListenArgs) -> anyhow::Result<Access> {
        let keys = self.keys()?;
        let access = |hosts: Option<Vec<String>>| {
            Ok(Access::new(&keys, hosts).with_origins(self.cors.clone()))
        };
        // web pages cannot connect to a Unix socket, so host names need no check
        if listen.socket.is_some() {
            return access(None);
        }
        if listen.is_local() {
            return access(Some(self.allowed_host.clone()));
        }
        if keys.is_empty() && !self.insecure_no_auth {
            let problem = format!(
                "--host {}: others would reach it; give a key by --api-key-file FILE, or --insecure-no-auth",
                listen.host
            );
            return Err(Failure::Usage(problem).into());
        }
        // a client with the key cannot be a page that uses DNS rebinding: host names are checked only without a key
        let without_key = keys.is_empty() && !self.allowed_host.is_empty();
        access(without_key.then(|| self.allowed_host.clone()))
    }

    fn keys(&self) -> anyhow::Result<Vec<String>> {
        let mut keys: Vec<String> = self.api_key.iter().map(|key| key.trim().to_owned()).collect();
        if keys.iter().any(String::is_empty) {
            return Err(Failure::Usage("--api-key: expected a key, found none".into()).into());
        }
        if !keys.is_empty() && is_on_command_line("--api-key") {
            ui::warn(
                "--api-key: other users can read the key in the process list; ROOFLIGHT_API_KEY or --api-key-file FILE hides it",
            );
        }
        if let Some(path) = &self.api_key_file {
            let own = keys_in_file(path)?;
            if others_can_read(path) {
                ui::warn(&format!(
                    "--api-key-file {}: other users can read the keys: chmod 600 makes it yours alone",
                    shown(path)
                ));
            }
            if own.is_empty() {
                let problem = format!("--api-key-file {}: there is no key in it", shown(path));
                return Err(Failure::Usage(problem).into());
            }
            keys.extend(own);
        }
        Ok(keys)
    }

    /// Returns the additional host names and allowed origins for the startup message.
    pub(crate) fn told(&self) -> String {
        let names = self.allowed_host.iter().map(|name| format!(", also as {name}"));
        let pages = self.cors.iter().map(|origin| format!(", pages of {origin} allowed"));
        names.chain(pages).collect()
    }
}

/// Reads a file with API keys, one per line. Blank lines are skipped.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn keys_in_file(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", shown(path)))?;
    let keys = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(keys.map(str::to_owned).collect())
}

/// Whether this option is on the process's command line, where other users can read it.
fn is_on_command_line(option: &str) -> bool {
    std::env::args_os().any(|arg| {
        let arg = arg.to_string_lossy();
        arg.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

/// Whether the file permissions let other users read it.
fn others_can_read(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|found| found.permissions().mode() & 0o044 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}
