//! An opened model: the parts, their metadata and all tensors.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::cursor::Cursor;
use crate::source::Source;
use crate::{Error, Metadata, OwnedValue, Result, TensorInfo, escape, header, shards, tensors};

/// A GGUF model, whole: one file or all shards, opened and checked. `Send` and `Sync`.
///
/// Header, metadata and tensor table are held in memory. Weights are read from the file where they are asked for:
/// another program that shortens the file meanwhile makes that an error.
pub struct Gguf {
    version: u32,
    parts: Vec<Source>,
    paths: Vec<PathBuf>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Indices into `tensors`, ordered by name.
    by_name: Vec<u32>,
}

/// One file, checked.
pub(crate) struct OpenFile {
    pub(crate) tables: Tables,
    source: Source,
    path: Option<PathBuf>,
}

/// Header, metadata and tensor table of one file.
pub(crate) struct Tables {
    version: u32,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
    /// Bytes of header, metadata and tensor table.
    len: u64,
}

/// Bytes read of a file at first: enough for all but the vocabularies.
const FIRST_READ: u64 = 1 << 20;
/// Most bytes of header, metadata and tensor table of one file, which are held in memory.
const MAX_TABLES: u64 = 1 << 30;

impl Tables {
    fn parse(cursor: &mut Cursor<'_>, index: u32) -> Result<Tables> {
        let header = header::read(cursor)?;
        let metadata = Metadata::parse(cursor, header.n_pairs)?;
        let tensors = tensors::read(cursor, &header, &metadata, index)?;
        let len = cursor.passed().len() as u64;
        Ok(Tables { version: header.version, metadata, tensors, len })
    }

    /// Reads the beginning of a file, and more of it where the tables go on after that.
    fn read(source: &Source, path: &Path, index: u32) -> Result<Tables> {
        let mut bytes = Vec::new();
        let mut wanted = FIRST_READ;
        loop {
            source.extend(&mut bytes, wanted.min(source.len()), path)?;
            let mut cursor = Cursor::in_part(&bytes, source.len());
            let parsed = Tables::parse(&mut cursor, index);
            match cursor.missing() {
                None => return parsed,
                Some(end) if end > MAX_TABLES => {
                    let problem = format!(
                        "metadata and tensor table are longer than {} GiB",
                        MAX_TABLES >> 30
                    );
                    return Err(Error::Malformed { place: "header".to_owned(), problem });
                }
                // all is parsed again: in parts four times as large, that is a third more in all
                Some(end) => wanted = end.max(4 * bytes.len() as u64),
            }
        }
    }
}

impl OpenFile {
    pub(crate) fn open(path: &Path, index: u32) -> Result<OpenFile> {
        let source = Source::open(path).map_err(|error| Error::io(path, error))?;
        let tables = Tables::read(&source, path, index)?;
        Ok(OpenFile { tables, source, path: Some(path.to_owned()) })
    }

    fn in_memory(bytes: Vec<u8>, index: u32) -> Result<OpenFile> {
        let tables = Tables::parse(&mut Cursor::new(&bytes), index)?;
        Ok(OpenFile { tables, source: Source::Memory(bytes), path: None })
    }

    /// The same part, counted as number `index` (from 0).
    pub(crate) fn with_index(mut self, index: u32) -> OpenFile {
        self.tables.tensors.iter_mut().for_each(|tensor| tensor.part = index);
        self
    }
}

impl Gguf {
    /// Opens and checks the model that `path` is, or is a part of: any shard opens all.
    ///
    /// Metadata is that of the first part. Reads the header, the metadata and the tensor table, not the weights.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::MissingPart`] for files that cannot be read, otherwise what is wrong with the file:
    /// see [`Error::kind`].
    pub fn open(path: &Path) -> Result<Gguf> {
        Gguf::assemble(shards::complete(path, OpenFile::open(path, 0)?)?)
    }

    /// Bytes of header, metadata and tensor table of one file; others of the same model are not looked for.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn header_bytes(path: &Path) -> Result<u64> {
        Ok(OpenFile::open(path, 0)?.tables.len)
    }

    /// A model in memory, in one part; other shards are not looked for.
    ///
    /// # Errors
    /// As [`Gguf::open`], without those of the file system.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Gguf> {
        Gguf::assemble(vec![OpenFile::in_memory(bytes, 0)?])
    }

    fn assemble(parts: Vec<OpenFile>) -> Result<Gguf> {
        let (mut sources, mut paths, mut tensors) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = None;
        for part in parts {
            let Tables { version, metadata, tensors: its, .. } = part.tables;
            tensors.extend(its);
            sources.push(part.source);
            paths.extend(part.path);
            first.get_or_insert((version, metadata));
        }
        let (version, metadata) = first.expect("a model has at least one part");
        let mut by_name: Vec<u32> = (0..).take(tensors.len()).collect();
        by_name.sort_unstable_by(|&a, &b| tensors[a as usize].name.cmp(&tensors[b as usize].name));
        let same = |[a, b]: &&[u32; 2]| tensors[*a as usize].name == tensors[*b as usize].name;
        if let Some(two) = by_name.array_windows().find(same) {
            let problem =
                format!("duplicate tensor `{}`", escape(&tensors[two[0] as usize].name, 80));
            return Err(Error::Malformed { place: "tensor table".to_owned(), problem });
        }
        Ok(Gguf { version, parts: sources, paths, metadata, tensors, by_name })
    }

    /// The metadata, of the first part if there are several.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Sets the value of a metadata key, or adds the key. The file is not changed; readers of this [`Gguf`] see the new
    /// value.
    pub fn override_metadata(&mut self, key: &str, value: impl Into<OwnedValue>) {
        self.metadata.set(key, &value.into());
    }

    /// All tensors in file order, part after part.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let at =
            self.by_name.binary_search_by(|&i| (*self.tensors[i as usize].name).cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[at] as usize])
    }

    /// Reads bytes of one of this model's tensors: those from byte `first` of the tensor on, into all of `out`.
    ///
    /// # Errors
    /// [`Error::Shortened`] if the file lost these bytes since it was opened, [`Error::Io`] if it cannot be read, and
    /// [`Error::Tensor`] if the tensor is shorter than that.
    ///
    /// # Panics
    /// If `t` is of another model with more parts.
    pub fn read(&self, t: &TensorInfo, first: usize, out: &mut [u8]) -> Result<()> {
        if first.checked_add(out.len()).is_none_or(|end| end > t.len) {
            let problem = format!("{} bytes from byte {first} on of {}", out.len(), t.len);
            return Err(Error::tensor(&t.name, problem));
        }
        let path = self.paths.get(t.part()).map_or(Path::new(""), PathBuf::as_path);
        self.parts[t.part()].read(t.start + first as u64, out, path, "the tensor data")
    }

    /// All bytes of one of this model's tensors: whole blocks, row after row. Empty if its type is unknown.
    ///
    /// # Errors
    /// As [`Gguf::read`]; [`Error::Io`] as well if there is no memory for them.
    ///
    /// # Panics
    /// As [`Gguf::read`].
    pub fn bytes(&self, t: &TensorInfo) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let path = self.paths.get(t.part()).map_or(Path::new(""), PathBuf::as_path);
        out.try_reserve_exact(t.len)
            .map_err(|_| Error::io(path, std::io::ErrorKind::OutOfMemory.into()))?;
        out.resize(t.len, 0);
        self.read(t, 0, &mut out)?;
        Ok(out)
    }

    /// Checks that no file was written to since it was opened: what was read before is of one state of the file then. Ask it
    /// when the weights are read.
    ///
    /// # Errors
    /// [`Error::Changed`]; [`Error::Io`] if the system does not tell.
    pub fn check_unchanged(&self) -> Result<()> {
        for (source, path) in self.parts.iter().zip(&self.paths) {
            match source.is_unchanged() {
                Ok(true) => {}
                Ok(false) => return Err(Error::Changed { path: crate::error::show_path(path) }),
                Err(error) => return Err(Error::io(path, error)),
            }
        }
        Ok(())
    }

    /// The files, in the order of the parts; none for a model in memory.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Bytes of all files together, when they were opened.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(Source::len).sum()
    }

    /// GGUF version of the first part.
    pub fn version(&self) -> u32 {
        self.version
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Gguf");
        out.field("version", &self.version)
            .field("paths", &self.paths)
            .field("bytes", &self.file_bytes());
        out.field("pairs", &self.metadata.len()).field("tensors", &self.tensors.len()).finish()
    }
}
