//! Models by name: [`ModelName`] says which, [`Hub`] finds it, in Hugging Face's cache on this machine or over HTTP, and
//! brings it from there to here.
//!
//! name -> files of a commit (`remote.rs`) -> parts of each, over several connections (`source.rs`), until its digest is
//! right (`download.rs`) -> the cache's layout, which other tools share (`cache.rs`). A file that is not whole never has its final
//! name. Nothing here knows models, terminals or the environment.

#![forbid(unsafe_code)]

mod ask;
mod backoff;
mod cache;
mod download;
mod error;
mod journal;
mod name;
mod remote;
mod short;
mod source;
mod transport;

use std::path::PathBuf;
use std::sync::Arc;

pub use ask::{AskError, ask_server};
pub use cache::{CachedFile, CachedModels, Removed};
pub use download::{PullProgress, PullStage};
pub use error::{HubError, Result};
pub use name::ModelName;
pub use remote::{RemoteFile, RemoteModel};
pub use short::SHORT_NAMES;
pub use transport::HubPatience;

use cache::HubCache;
use transport::Transport;

/// Items that only this crate's tests use.
#[doc(hidden)]
pub mod internals {
    pub use crate::backoff::Backoff;
    pub use crate::journal::Journal;
    pub use crate::name::pick;
    pub use crate::remote::{escaped, is_model_file, part_of};
    pub use crate::transport::{origin, target};
}

/// Where models come from, and where they lie.
#[derive(Clone, PartialEq, Eq)]
pub struct HubOptions {
    /// The folder with a folder for each model: `models--org--name`.
    pub cache: PathBuf,
    /// Address of the hub, without a slash at its end.
    pub endpoint: String,
    /// What says who asks. It is sent to the hub alone.
    pub token: Option<String>,
    /// Nothing is asked for: only what is here can be had.
    pub offline: bool,
    /// How long servers are waited for.
    pub patience: HubPatience,
}

impl std::fmt::Debug for HubOptions {
    /// Without the token: who prints options does not mean to tell it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HubOptions { cache, endpoint, token, offline, patience } = self;
        f.debug_struct("HubOptions")
            .field("cache", cache)
            .field("endpoint", endpoint)
            .field("token", &token.as_ref().map(|_| "…"))
            .field("offline", offline)
            .field("patience", patience)
            .finish()
    }
}

/// The hub that Hugging Face runs.
pub const ENDPOINT: &str = "https://huggingface.co";

impl HubOptions {
    /// As the variables say that Hugging Face's tools read; `variable` looks one up. `home`: the user's folder.
    ///
    /// `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `HF_HOME/hub`, else `XDG_CACHE_HOME/huggingface/hub`, else
    /// `~/.cache/huggingface/hub`; `HF_ENDPOINT`; `HF_TOKEN`, else what is in `HF_TOKEN_PATH` or `HF_HOME/token`;
    /// `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// [`HubError::NoFolder`] if nothing says where the cache is; an endpoint that is no address.
    pub fn from_variables(
        variable: &dyn Fn(&str) -> Option<std::ffi::OsString>,
        home: Option<PathBuf>,
    ) -> Result<HubOptions> {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let text = |name: &str| path(name).and_then(|path| path.to_str().map(str::to_owned));
        let base = path("XDG_CACHE_HOME").or_else(|| home.map(|home| home.join(".cache")));
        let base = path("HF_HOME").or_else(|| base.map(|base| base.join("huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.or_else(|| base.as_ref().map(|base| base.join("hub")));
        let file = path("HF_TOKEN_PATH").or_else(|| base.map(|base| base.join("token")));
        let kept = || file.and_then(|file| std::fs::read_to_string(file).ok());
        let token = text("HF_TOKEN").or_else(kept).map(|token| token.trim().to_owned());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        transport::check_address(&endpoint)?;
        let truth = |value: String| matches!(&*value.to_lowercase(), "1" | "true" | "yes" | "on");
        Ok(HubOptions {
            cache: cache.ok_or(HubError::NoFolder)?,
            endpoint,
            token: token.filter(|token| !token.is_empty()),
            offline: text("HF_HUB_OFFLINE").is_some_and(truth),
            patience: HubPatience::default(),
        })
    }
}

impl HubOptions {
    /// Whether the token is sent unencrypted over a network: it is, and the hub's address is an `http://` one of another machine.
    pub fn sends_token_in_clear(&self) -> bool {
        let server = transport::origin(&self.endpoint);
        self.token.is_some()
            && !self.offline
            && server.is_some_and(|(scheme, host)| scheme == "http" && !is_this_machine(&host))
    }
}

/// Whether a host, with a port or without, is this machine.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or(host),
    };
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    name == "localhost" || name.parse().is_ok_and(is_loopback)
}

/// A hub and the cache beside it.
pub struct Hub {
    options: HubOptions,
    cache: HubCache,
    transport: Arc<Transport>,
}

impl Hub {
    /// With these options. Nothing is asked or made yet.
    pub fn new(options: HubOptions) -> Hub {
        let cache = HubCache::new(options.cache.clone());
        let transport = Arc::new(Transport::new(&options));
        Hub { options, cache, transport }
    }

    /// How it was set up.
    pub fn options(&self) -> &HubOptions {
        &self.options
    }

    /// All models that are here, whole, and which folders could not be read.
    ///
    /// # Errors
    /// A cache that cannot be read.
    pub fn cached(&self) -> Result<CachedModels> {
        self.cache.list()
    }

    /// The model of this name that is here: of several types of weights the one that is asked for, else the usual one; of the
    /// commit that is asked for. A name without a revision means the latest that is here.
    ///
    /// # Errors
    /// A cache that cannot be read.
    pub fn find_cached(&self, name: &ModelName) -> Result<Option<CachedFile>> {
        let own = |file: &CachedFile| file.repository.eq_ignore_ascii_case(&name.repository);
        let files = self.cache.list()?.files.into_iter().filter(own);
        let (of_it, others): (Vec<_>, Vec<_>) =
            files.partition(|file| self.cache.is_at(file, &name.revision));
        let older = || if name.is_latest() { name.chosen(others) } else { None };
        Ok(name.chosen(of_it).or_else(older))
    }

    /// The one model that is here and is called so: as [`CachedFile::name`] has it, by its file without `.gguf`, or by its
    /// repository without the organisation; `None` if there is none.
    ///
    /// # Errors
    /// [`HubError::Ambiguous`] if several are; a cache that cannot be read.
    pub fn find_by_short_name(&self, name: &str) -> Result<Option<CachedFile>> {
        let all = self.cache.list()?.files;
        let listed = |file: &&CachedFile| file.name().eq_ignore_ascii_case(name);
        if let Some(file) = all.iter().filter(listed).max_by_key(|file| file.modified) {
            return Ok(Some(file.clone()));
        }
        let mut found: Vec<CachedFile> =
            all.into_iter().filter(|file| file.is_called(name)).collect();
        // the same file of several commits is one
        found.sort_by(|a, b| a.name().cmp(b.name()).then(b.modified.cmp(&a.modified)));
        found.dedup_by(|a, b| a.name() == b.name());
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => {
                let names = found.iter().map(CachedFile::name).collect::<Vec<_>>().join(", ");
                Err(HubError::Ambiguous { name: name.to_owned(), names })
            }
        }
    }

    /// Take a model out of the cache; what other commits or files share stays.
    ///
    /// # Errors
    /// What cannot be removed.
    pub fn remove(&self, file: &CachedFile) -> Result<Removed> {
        self.cache.remove(file)
    }
}
