//! Hugging Face's cache: `models--org--name/{blobs/DIGEST, snapshots/COMMIT/file -> blob, refs/main}`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::name::quant_of;
use crate::remote::{part_of, same_model};
use crate::{HubError, RemoteFile, RemoteModel, Result};

/// Folders within a snapshot that are looked into.
const DEPTH: usize = 4;

/// A model that is here, whole: its first part where it has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedFile {
    /// `org/name`.
    pub repository: String,
    /// The commit it is of.
    pub commit: String,
    /// Its name there, folders included.
    pub file: String,
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of all its parts.
    pub bytes: u64,
    /// When it came.
    pub modified: SystemTime,
    /// What it alone is called.
    name: String,
}

/// What is here.
#[derive(Debug, Default)]
pub struct CachedModels {
    /// Models, by their names.
    pub files: Vec<CachedFile>,
    /// Folders that could not be read: what is in them is not among the models.
    pub unread: Vec<HubError>,
}

impl CachedFile {
    /// `org/name:TYPE`, or with the file in place of a type that its name does not say, or that several files have.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is a short name of it.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let stem = self.file.rsplit('/').next().unwrap_or(&self.file);
        let stem = part_of(stem).map_or(stem, |(base, ..)| base);
        let stem = stem.strip_suffix(".gguf").unwrap_or(stem);
        let repository = self.repository.rsplit('/').next().unwrap_or_default();
        let plain = |text: &str| {
            let text = text.to_ascii_lowercase();
            text.strip_suffix("-gguf").unwrap_or(&text).to_owned()
        };
        let (wanted, quant) = match name.rsplit_once(':') {
            Some((name, quant)) => (plain(name), Some(quant.to_ascii_uppercase())),
            None => (plain(name), None),
        };
        let is_of = quant.is_none_or(|quant| quant_of(&self.file) == Some(quant));
        is_of && (plain(stem) == wanted || plain(repository) == wanted)
    }
}

/// What was taken out of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Files.
    pub files: usize,
    /// Bytes that are free now.
    pub bytes: u64,
}

/// The cache.
pub(crate) struct HubCache {
    root: PathBuf,
}

/// Folders of one model.
pub(crate) struct Shelf {
    /// Its folder.
    pub(crate) root: PathBuf,
    /// Where locks are.
    pub(crate) locks: PathBuf,
}

impl HubCache {
    pub(crate) fn new(root: PathBuf) -> HubCache {
        HubCache { root }
    }

    /// The folders of a model.
    pub(crate) fn shelf(&self, repository: &str) -> Shelf {
        let name = format!("models--{}", repository.replace('/', "--"));
        Shelf { root: self.root.join(&name), locks: self.root.join(".locks").join(name) }
    }

    pub(crate) fn list(&self) -> Result<CachedModels> {
        let mut all = CachedModels::default();
        for folder in entries(&self.root)? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some((organisation, model)) =
                name.strip_prefix("models--").and_then(|name| name.split_once("--"))
            else {
                continue;
            };
            let repository = format!("{organisation}/{model}");
            let mut own = Vec::new();
            // what is wrong with one folder does not hide what is in others
            let mut read = |result: Result<()>| all.unread.extend(result.err());
            let snapshots = entries(&folder.join("snapshots")).unwrap_or_else(|error| {
                read(Err(error));
                Vec::new()
            });
            for snapshot in snapshots {
                let commit = snapshot.file_name().unwrap_or_default().to_string_lossy();
                let mut files = Vec::new();
                read(walk(&snapshot, "", DEPTH, &mut files));
                own.extend(models(&repository, &commit, &snapshot, &files));
            }
            all.files.extend(named(own));
        }
        all.files.sort_by(|a, b| (&a.repository, &a.file).cmp(&(&b.repository, &b.file)));
        Ok(all)
    }

    /// Whether a file is of this revision: its commit, the first digits of that, or what a branch was at when it was asked for.
    pub(crate) fn is_at(&self, file: &CachedFile, revision: &str) -> bool {
        /// Digits that tell commits apart.
        const LEAST: usize = 7;
        let hex = revision.bytes().all(|byte| byte.is_ascii_hexdigit());
        let path = self.shelf(&file.repository).root.join("refs").join(revision);
        // a branch that is called as a commit begins is the branch
        match fs::read_to_string(path) {
            Ok(commit) => commit.trim() == file.commit,
            Err(_) => hex && revision.len() >= LEAST && file.commit.starts_with(revision),
        }
    }

    /// Put a file that is whole where it belongs, under the commit it is of.
    pub(crate) fn place(&self, model: &RemoteModel, file: &RemoteFile) -> Result<PathBuf> {
        let shelf = self.shelf(&model.name.repository);
        let path = shelf.root.join("snapshots").join(&model.commit).join(&file.path);
        let folder = path.parent().unwrap_or(&shelf.root);
        fs::create_dir_all(folder).map_err(HubError::io(folder))?;
        let up = "../".repeat(file.path.split('/').count() + 1);
        let target = format!("{up}blobs/{}", file.digest);
        if fs::read_link(&path).is_ok_and(|there| there == Path::new(&target)) {
            return Ok(path);
        }
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&new);
        link(&shelf.blob(file), &target, &new).map_err(HubError::io(&new))?;
        fs::rename(&new, &path).map_err(HubError::io(&path))?;
        Ok(path)
    }

    /// Remember which commit a branch is at.
    pub(crate) fn set_revision(&self, model: &RemoteModel) -> Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if model.name.revision == model.commit {
            return Ok(());
        }
        let refs = self.shelf(&model.name.repository).root.join("refs");
        fs::create_dir_all(&refs).map_err(HubError::io(&refs))?;
        let path = refs.join(&model.name.revision);
        // whoever else writes it, in this process or another, has a file of its own
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = refs.join(format!(".rooflight.{}.{number}", std::process::id()));
        fs::write(&new, &model.commit).map_err(HubError::io(&new))?;
        fs::rename(&new, &path).map_err(HubError::io(&path))
    }

    pub(crate) fn remove(&self, file: &CachedFile) -> Result<Removed> {
        let shelf = self.shelf(&file.repository);
        let mut removed = Removed { files: 0, bytes: 0 };
        // a name in the cache means all commits that have it
        for snapshot in entries(&shelf.root.join("snapshots"))? {
            let mut files = Vec::new();
            walk(&snapshot, "", DEPTH, &mut files)?;
            for (name, path) in files.iter().filter(|(name, _)| same_model(name, &file.file)) {
                let blob = fs::read_link(path).ok().and_then(|target| {
                    let blob = path.parent()?.join(target);
                    fs::canonicalize(blob).ok()
                });
                // a link that leads elsewhere names nothing of ours
                let own = fs::canonicalize(shelf.root.join("blobs")).ok();
                let blob = blob.filter(|blob| own.is_some_and(|own| blob.starts_with(own)));
                let plain = blob.is_none();
                let bytes = fs::metadata(path).map_or(0, |data| data.len());
                fs::remove_file(path).map_err(HubError::io(path))?;
                removed.files += 1;
                match blob {
                    Some(blob) if !shelf.is_linked(&blob)? => {
                        fs::remove_file(&blob).map_err(HubError::io(&blob))?;
                        removed.bytes += bytes;
                    }
                    _ if plain => removed.bytes += bytes,
                    _ => {}
                }
                prune(&snapshot.join(name), &shelf.root.join("snapshots"));
            }
        }
        if entries(&shelf.root.join("snapshots"))?.is_empty() {
            shelf.sweep()?;
        }
        Ok(removed)
    }
}

impl Shelf {
    /// Nothing of the model is here any more: remove what downloads that were given up left, what says where its branches
    /// are, and folders that hold nothing. What another process brings here stays, and so do files that are not ours.
    fn sweep(&self) -> Result<()> {
        let mut busy = false;
        for path in entries(&self.root.join("blobs"))? {
            let ours = path.extension().is_some_and(|end| end == "rooflight" || end == "journal");
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let lock = fs::File::open(self.locks.join(format!("{stem}.lock")));
            // held until it is gone
            let held = lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err());
            busy |= held;
            if ours && !held {
                fs::remove_file(&path).map_err(HubError::io(&path))?;
            }
        }
        let refs = self.root.join("refs");
        if !busy {
            for path in entries(&refs)?.into_iter().filter(|path| path.is_file()) {
                fs::remove_file(&path).map_err(HubError::io(&path))?;
            }
        }
        for folder in
            [refs, self.root.join("snapshots"), self.root.join("blobs"), self.root.clone()]
        {
            // one that holds something stays
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }

    /// Where the bytes of a file lie.
    pub(crate) fn blob(&self, file: &RemoteFile) -> PathBuf {
        self.root.join("blobs").join(&file.digest)
    }

    /// Whether a file of any commit is this blob.
    fn is_linked(&self, blob: &Path) -> Result<bool> {
        for snapshot in entries(&self.root.join("snapshots"))? {
            let mut files = Vec::new();
            walk_all(&snapshot, DEPTH, &mut files)?;
            if files.iter().any(|file| fs::canonicalize(file).is_ok_and(|to| to == blob)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Models among files of a commit, by their first parts; those of which a part is missing are none.
fn models(
    repository: &str,
    commit: &str,
    snapshot: &Path,
    files: &[(String, PathBuf)],
) -> Vec<CachedFile> {
    let data = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let model = |(name, path): &(String, PathBuf)| {
        let modified = data(path)?.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes = match part_of(name) {
            None => data(path)?.len(),
            Some((base, 1, parts)) => {
                let part = |i| data(&snapshot.join(format!("{base}-{i:05}-of-{parts:05}.gguf")));
                (1..=parts).map(|i| Some(part(i)?.len())).sum::<Option<u64>>()?
            }
            Some(_) => return None,
        };
        Some(CachedFile {
            repository: repository.to_owned(),
            commit: commit.to_owned(),
            file: name.clone(),
            path: path.clone(),
            bytes,
            modified,
            name: String::new(),
        })
    };
    files.iter().filter_map(model).collect()
}

/// The models of a repository, with their names.
fn named(mut files: Vec<CachedFile>) -> Vec<CachedFile> {
    let quants: Vec<(Option<String>, String)> =
        files.iter().map(|file| (quant_of(&file.file), file.file.clone())).collect();
    for file in &mut files {
        let quant = quant_of(&file.file).filter(|quant| {
            // the same file of another commit is no other model
            let others = || quants.iter().filter(|(_, other)| *other != file.file);
            !others().any(|(other, _)| other.as_ref() == Some(quant))
        });
        file.name = match quant {
            Some(quant) => format!("{}:{quant}", file.repository),
            None => format!("{}/{}", file.repository, file.file),
        };
    }
    files
}

/// GGUF files below a folder, by their names from there.
///
/// # Errors
/// The first folder that cannot be read; `out` has what is in the others.
fn walk(folder: &Path, prefix: &str, depth: usize, out: &mut Vec<(String, PathBuf)>) -> Result<()> {
    let mut result = Ok(());
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let whole = format!("{prefix}{name}");
        if path.is_dir() && !path.is_symlink() && depth > 0 {
            result = result.and(walk(&path, &format!("{whole}/"), depth - 1, out));
        } else if name.to_ascii_lowercase().ends_with(".gguf") && !name.starts_with("mmproj") {
            out.push((whole, path));
        }
    }
    result
}

/// All files below a folder.
fn walk_all(folder: &Path, depth: usize, out: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(folder)? {
        match path.is_dir() && !path.is_symlink() && depth > 0 {
            true => walk_all(&path, depth - 1, out)?,
            false => out.push(path),
        }
    }
    Ok(())
}

/// What is in a folder, sorted; nothing if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(HubError::io(folder)(error)),
    };
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

/// Remove the folders above a path that hold nothing any more, below `root`.
fn prune(path: &Path, root: &Path) {
    let mut folder = path.parent();
    while let Some(empty) = folder.filter(|folder| *folder != root) {
        if fs::remove_dir(empty).is_err() {
            return;
        }
        folder = empty.parent();
    }
}

/// Make `new` another name of a blob, which is at `target` from there.
fn link(blob: &Path, target: &str, new: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let _ = blob;
        std::os::unix::fs::symlink(target, new)
    }
    #[cfg(not(unix))]
    {
        let _ = target;
        fs::hard_link(blob, new).or_else(|_| fs::copy(blob, new).map(|_| ()))
    }
}
