//! [`ChatStore`] and [`ChatFile`]: files in a folder, each written by one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::entry::{Entry, Line};
use crate::{Error, MAX_BYTES, Result, Tree};

/// Upper bound (exclusive) on the numbers used as message identifiers.
const MAX_NUMBER: u64 = 1 << 53;

/// Extension of the file names.
const ENDING: &str = "jsonl";

/// A folder of conversations, which is created with the first file.
#[derive(Clone, Debug)]
pub struct ChatStore {
    folder: PathBuf,
}

/// A conversation that this process writes. The file stays locked until this value is dropped.
#[derive(Debug)]
pub struct ChatFile {
    file: File,
    path: PathBuf,
    /// Number of the next message.
    next: u64,
}

impl ChatStore {
    /// Returns the store in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> ChatStore {
        ChatStore { folder: folder.into() }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the most recently written conversation; `None` if there is none.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn last(&self) -> Result<Option<PathBuf>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(Error::io(&self.folder))?,
        };
        let written = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry.ok()?;
            let path = entry.path();
            let is_chat = path.extension().is_some_and(|ending| ending == ENDING);
            // `metadata` follows no link, and only regular files are accepted, so no pipe can block the reader
            let found = entry.metadata().ok().filter(|found| found.is_file() && is_chat)?;
            Some((found.modified().unwrap_or(UNIX_EPOCH), path))
        };
        Ok(entries.filter_map(written).max().map(|(_, path)| path))
    }

    /// Creates a conversation: a file with a unique name, readable by its owner only.
    ///
    /// # Errors
    /// A folder that cannot be written to.
    pub fn begin(&self) -> Result<ChatFile> {
        make_private_folder(&self.folder).map_err(Error::io(&self.folder))?;
        let now = now().replace(':', "-");
        for n in 0_u32.. {
            let name = format!("{now}-{}-{n}.{ENDING}", std::process::id());
            let path = self.folder.join(name);
            match private().create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < 1000 => {}
                opened => {
                    let file = opened.map_err(Error::io(&path))?;
                    lock(&file, &path)?;
                    return Ok(ChatFile { file, path, next: 1 });
                }
            }
        }
        unreachable!("the last name of the loop is opened or refused")
    }

    /// Reads a conversation and opens it for appending.
    ///
    /// # Errors
    /// [`Error::InUse`]; a file that cannot be read and written.
    pub fn open(&self, path: &Path) -> Result<(ChatFile, Tree)> {
        let mut file = private().read(true).open(path).map_err(Error::io(path))?;
        lock(&file, path)?;
        let tree = read(&mut file, path)?;
        // other programs may use identifiers that are not numbers
        let numbers = tree.entries().iter().filter_map(|entry| entry.id.parse::<u64>().ok());
        let next = numbers.filter(|n| *n < MAX_NUMBER).max().unwrap_or(0) + 1;
        let mut chat = ChatFile { file, path: path.to_owned(), next };
        chat.end_line().map_err(Error::io(path))?;
        Ok((chat, tree))
    }

    /// Reads a conversation, even while another process writes it.
    ///
    /// # Errors
    /// A file that cannot be read, or that is larger than [`MAX_BYTES`].
    pub fn read(&self, path: &Path) -> Result<Tree> {
        let mut file = File::open(path).map_err(Error::io(path))?;
        read(&mut file, path)
    }
}

impl ChatFile {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a message, sets its `id` and `time`, and returns its `id`.
    ///
    /// # Errors
    /// A file that cannot be written to.
    pub fn append(&mut self, entry: Entry) -> Result<String> {
        let (id, time) = (self.next.to_string(), now());
        let entry = Entry { id: id.clone(), time: time.clone(), ..entry };
        self.write(&Line::Entry(Box::new(entry)), &time)?;
        self.next += 1;
        Ok(id)
    }

    /// Records that the conversation continues after this message; `None`: before the first message.
    ///
    /// # Errors
    /// A file that cannot be written to.
    pub fn set_head(&mut self, id: Option<&str>) -> Result<()> {
        self.write(&Line::Head(id.map(str::to_owned)), &now())
    }

    fn write(&mut self, line: &Line, time: &str) -> Result<()> {
        self.file.write_all(line.text(time).as_bytes()).map_err(Error::io(&self.path))
    }

    /// Adds a line break if the last line has none, so that the rest of a killed process's line is a separate, invalid line.
    fn end_line(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length > 0 {
            let mut last = [0];
            self.file.seek(SeekFrom::Start(length - 1))?;
            self.file.read_exact(&mut last)?;
            if last != *b"\n" {
                self.file.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

fn read(file: &mut File, path: &Path) -> Result<Tree> {
    let found = file.metadata().map_err(Error::io(path))?.len();
    if found > MAX_BYTES {
        return Err(Error::TooLarge { path: path.to_owned(), most: MAX_BYTES, found });
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(Error::io(path))?;
    Ok(Tree::read(&bytes))
}

/// Locks a file. On file systems without locks it succeeds: nothing then keeps two processes from writing the same file.
fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Options for a file that only its owner can read and that is only appended to.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(folder)
}

/// Returns the current time: `2026-11-27T11:10:22Z`.
fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parent: Option<&str>, role: &str, content: &str) -> Entry {
        Entry {
            parent: parent.map(str::to_owned),
            role: role.into(),
            content: content.into(),
            ..Entry::default()
        }
    }

    fn contents(tree: &Tree) -> Vec<&str> {
        tree.path().into_iter().map(|entry| entry.content.as_str()).collect()
    }

    #[test]
    fn a_conversation_is_continued_where_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let store = ChatStore::new(folder.path().join("state/chats"));
        assert_eq!(store.last().unwrap(), None);
        let mut chat = store.begin().unwrap();
        let first = chat.append(message(None, "user", "hi\nthere")).unwrap();
        let reply = chat.append(message(Some(&first), "assistant", "hello")).unwrap();
        let path = chat.path().to_owned();
        assert!(matches!(store.open(&path), Err(Error::InUse { .. })));
        assert_eq!(contents(&store.read(&path).unwrap()), ["hi\nthere", "hello"]);
        drop(chat);

        assert_eq!(store.last().unwrap().as_ref(), Some(&path));
        let (mut chat, tree) = store.open(&path).unwrap();
        assert_eq!(contents(&tree), ["hi\nthere", "hello"]);
        let other = chat.append(message(Some(&reply), "user", "and?")).unwrap();
        assert!(![&first, &reply].contains(&&other));
        chat.set_head(Some(&first)).unwrap();
        drop(chat);
        assert_eq!(contents(&store.read(&path).unwrap()), ["hi\nthere"]);
    }

    #[test]
    fn the_line_of_a_killed_process_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = ChatStore::new(folder.path());
        let mut chat = store.begin().unwrap();
        let id = chat.append(message(None, "user", "one")).unwrap();
        chat.append(message(Some(&id), "assistant", "two")).unwrap();
        let path = chat.path().to_owned();
        drop(chat);
        let whole = std::fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in first..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut chat, tree) = store.open(&path).unwrap();
            // a line that lacks only its line break is complete
            let kept = if cut + 1 == whole.len() { 2 } else { 1 };
            assert_eq!(tree.path().len(), kept, "{cut}");
            let parent = tree.path().last().unwrap().id.clone();
            chat.append(message(Some(&parent), "user", "three")).unwrap();
            drop(chat);
            let tree = store.read(&path).unwrap();
            assert_eq!(contents(&tree).last(), Some(&"three"), "{cut}");
            assert_eq!(tree.path().len(), kept + 1, "{cut}");
        }
    }

    #[test]
    fn processes_and_conversations_have_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let store = ChatStore::new(folder.path());
        let chats: Vec<_> = (0..20).map(|_| store.begin().unwrap()).collect();
        let mut paths: Vec<_> = chats.iter().map(ChatFile::path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), 20);
    }

    #[cfg(unix)]
    #[test]
    fn files_are_private_and_nothing_else_is_taken_for_one() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let store = ChatStore::new(folder.path().join("chats"));
        let chat = store.begin().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(chat.path()), mode(store.folder())), (0o600, 0o700));
        std::fs::write(store.folder().join("notes.txt"), "x").unwrap();
        symlink("/dev/zero", store.folder().join("z.jsonl")).unwrap();
        std::fs::create_dir(store.folder().join("folder.jsonl")).unwrap();
        assert_eq!(store.last().unwrap().as_deref(), Some(chat.path()));
    }
}
