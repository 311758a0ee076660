//! Sessions on disk over restarts: what their numbers depend on, and the way to the folder that has them.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kernels::Isa;
use kv::{ContentKey, SessionStore, SessionStoreOptions};
use program::{CacheKind, Error, KeptPlace, Program, Result};

use crate::digest::Digest;
use crate::mla::MlaChoice;

/// A folder of sessions that outlive the process. One process has it, for all its models.
#[derive(Clone, Debug)]
pub struct SessionFolder {
    store: Arc<SessionStore>,
    /// The program that computes.
    kernels: Arc<str>,
    /// How paths in it begin.
    prefix: Arc<str>,
}

/// The folders that a model's sessions may be kept in.
#[derive(Clone, Debug, Default)]
pub struct SessionFolders {
    /// Conversations that came to rest.
    pub conversations: Option<SessionFolder>,
    /// What somebody saved by a name.
    pub saved: Option<SessionFolder>,
}

impl SessionFolder {
    /// A folder of conversations that take at most `max_bytes`: the one that was used longest ago goes for another.
    ///
    /// # Errors
    /// [`Error::Disk`]: another process has it, or what the system says.
    pub fn conversations(path: &Path, max_bytes: u64) -> Result<SessionFolder> {
        SessionFolder::open(path, SessionStoreOptions { max_bytes: Some(max_bytes), lets_go: true })
    }

    /// How many conversations went when it was opened, for they took more than they may.
    pub fn let_go_at_open(&self) -> usize {
        self.store.let_go_at_open()
    }

    /// A folder of what is saved by names, and stays.
    ///
    /// # Errors
    /// As [`conversations`](Self::conversations).
    pub fn saved(path: &Path) -> Result<SessionFolder> {
        SessionFolder::open(path, SessionStoreOptions::default())
    }

    /// The sessions in it.
    pub(crate) fn store(&self) -> &SessionStore {
        &self.store
    }

    /// Something that went wrong in it, told by names of files alone.
    pub(crate) fn problem(&self, error: &dyn Display, is_damage: bool) -> Error {
        Error::Disk { problem: error.to_string().replace(&*self.prefix, ""), is_damage }
    }

    fn open(path: &Path, options: SessionStoreOptions) -> Result<SessionFolder> {
        let kernels = own_file().map_err(|error| {
            let what = "reading this program, which is part of what caches depend on";
            Error::disk(format!("{what}: {error}"))
        })?;
        let store = SessionStore::open(path, options);
        let store = store.map_err(|error| Error::disk(error.to_string()))?;
        let prefix = format!("{}/", store.folder().display());
        Ok(SessionFolder { store: Arc::new(store), kernels: kernels.into(), prefix: prefix.into() })
    }
}

/// This program by its contents: another build may have kernels that add in another order.
fn own_file() -> std::io::Result<String> {
    // also where the file was replaced meanwhile, it is the one that runs
    let file = File::open("/proc/self/exe");
    let mut file = file.or_else(|_| File::open(std::env::current_exe()?))?;
    let mut digest = Digest::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("{} {}", env!("CARGO_PKG_VERSION"), digest.finish())),
            n => digest.add(&buffer[..n]),
        }
    }
}

/// What a model has to do with sessions on disk.
#[derive(Default)]
pub(crate) struct KeptBy {
    folders: SessionFolders,
    /// What their numbers depend on, but for what a session's options say.
    key: ContentKey,
    /// How many sessions are being written to disk.
    busy: AtomicUsize,
    /// Number of writes that have ended.
    ended: AtomicUsize,
    /// Number of these that [`KeptBy::give_way`] has reported.
    seen: AtomicUsize,
    /// A step needs the memory of the sessions that are being written.
    give_way: AtomicBool,
}

/// A session is being written to disk as long as this exists. Its memory must be free, or its session let go, before this
/// is dropped: [`give_way`](KeptBy::give_way) relies on that.
pub(crate) struct Keeping<'a>(&'a KeptBy);

impl Keeping<'_> {
    /// Whether nobody needs the memory that it has.
    pub(crate) fn may_go_on(&self) -> bool {
        !self.0.give_way.load(Ordering::Relaxed)
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long those who put sessions on disk may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);

impl KeptBy {
    /// For a model with this digest.
    pub(crate) fn new(
        folders: &SessionFolders,
        program: &Program,
        model: String,
        isa: Isa,
        mla: MlaChoice,
    ) -> KeptBy {
        let is_latent = |kind: &CacheKind| matches!(kind, CacheKind::Latent { .. });
        let latents = program.caches.iter().any(|cache| is_latent(&cache.kind));
        let key = ContentKey {
            model,
            executor: "cpu".into(),
            device: processor(),
            isa: set_name(isa),
            latent_form: if latents { mla.name().into() } else { String::new() },
            ..ContentKey::default()
        };
        KeptBy { folders: folders.clone(), key, ..KeptBy::default() }
    }

    /// What numbers in a folder depend on, but for what a session's options say.
    pub(crate) fn key(&self, folder: &SessionFolder) -> ContentKey {
        ContentKey { kernels: folder.kernels.to_string(), ..self.key.clone() }
    }

    /// A session is going to be written to disk. The caller must not wait for a session: a step that holds that session may
    /// wait for the writer.
    pub(crate) fn begin(&self) -> Keeping<'_> {
        // who waits for others to stop says so again
        if self.busy.fetch_add(1, Ordering::AcqRel) == 0 {
            self.give_way.store(false, Ordering::Relaxed);
        }
        Keeping(self)
    }

    /// Asks writers of sessions to stop and waits for them, because they hold memory that a step needs. Returns whether a write
    /// has ended since the last call: looking for memory again may succeed then.
    pub(crate) fn give_way(&self) -> bool {
        let since = Instant::now();
        while self.busy.load(Ordering::Acquire) > 0 && since.elapsed() < PATIENCE {
            self.give_way.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = self.ended.load(Ordering::Acquire);
        self.seen.swap(ended, Ordering::AcqRel) != ended
    }

    /// The folder of a place, if there is one.
    pub(crate) fn folder(&self, place: KeptPlace) -> Option<&SessionFolder> {
        match place {
            KeptPlace::Conversations => self.folders.conversations.as_ref(),
            KeptPlace::Saved => self.folders.saved.as_ref(),
        }
    }
}

impl SessionFolders {
    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.conversations.is_none() && self.saved.is_none()
    }
}

/// The name of an instruction set, or what is in it where it has none.
fn set_name(isa: Isa) -> String {
    match isa.name() {
        "mixed" => format!("{isa:?}"),
        name => name.to_owned(),
    }
}

/// The processor's name.
fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = all.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::KeptBy;

    /// A step that needs memory waits for the writer, and is told once of one that has stopped, also before it asked.
    #[test]
    fn a_writer_that_has_stopped_is_told_once() {
        let kept = KeptBy::default();
        assert!(!kept.give_way(), "nobody writes");
        drop(kept.begin());
        assert!(kept.give_way(), "its memory may have come free since the step looked");
        assert!(!kept.give_way(), "which it knows now");
        let keeping = kept.begin();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while keeping.may_go_on() {
                    std::thread::yield_now();
                }
            });
            assert!(kept.give_way(), "it had to wait");
        });
    }

    #[test]
    fn names_are_the_same_everywhere() {
        let long = "x".repeat(65);
        for name in [
            "",
            ".",
            "..",
            ".x",
            "../x",
            "a/b",
            "a b",
            "\u{ff41}",
            "x\n",
            "A-b_c.d",
            &long,
            &long[1..],
        ] {
            assert_eq!(kv::is_name(name), program::is_kept_name(name), "{name:?}");
        }
    }
}
