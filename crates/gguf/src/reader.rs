//! An opened model: the parts, their metadata and all tensors.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cursor::Cursor;
use crate::mmap::Source;
use crate::{Error, Metadata, Result, TensorInfo, escape, header, shards, tensors};

/// A GGUF model, whole: one file or all shards, mapped into memory and checked. `Send` and `Sync`.
///
/// A file that another program shortens while it is mapped ends this process when the lost bytes are read (SIGBUS):
/// no reader of mapped files can prevent that.
pub struct Gguf {
    version: u32,
    parts: Vec<Arc<Source>>,
    paths: Vec<PathBuf>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Indices into `tensors`, ordered by name.
    by_name: Vec<u32>,
}

/// One file, checked.
pub(crate) struct OpenFile {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
    version: u32,
    source: Arc<Source>,
    path: Option<PathBuf>,
    /// Bytes of header, metadata and tensor table.
    header: u64,
}

impl OpenFile {
    pub(crate) fn open(path: &Path, index: u32) -> Result<OpenFile> {
        let source = Source::map(path).map_err(|error| Error::io(path, error))?;
        Ok(OpenFile { path: Some(path.to_owned()), ..OpenFile::parse(source, index)? })
    }

    fn parse(source: Source, index: u32) -> Result<OpenFile> {
        let source = Arc::new(source);
        let mut cursor = Cursor::new(source.bytes());
        let header = header::read(source.bytes(), &mut cursor)?;
        let metadata = Metadata::parse(&source, &mut cursor, header.n_pairs)?;
        let tensors = tensors::read(&mut cursor, &header, &metadata, index)?;
        let read = (source.bytes().len() as u64) - cursor.remaining();
        let version = header.version;
        Ok(OpenFile { metadata, tensors, version, source, path: None, header: read })
    }

    /// The same part, counted as number `index` (from 0).
    pub(crate) fn with_index(mut self, index: u32) -> OpenFile {
        self.tensors.iter_mut().for_each(|tensor| tensor.part = index);
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
        Ok(OpenFile::open(path, 0)?.header)
    }

    /// A model in memory, in one part; other shards are not looked for.
    ///
    /// # Errors
    /// As [`Gguf::open`], without those of the file system.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Gguf> {
        Gguf::assemble(vec![OpenFile::parse(Source::memory(bytes), 0)?])
    }

    fn assemble(parts: Vec<OpenFile>) -> Result<Gguf> {
        let (mut sources, mut paths, mut tensors) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = None;
        for part in parts {
            tensors.extend(part.tensors);
            sources.push(part.source);
            paths.extend(part.path);
            first.get_or_insert((part.version, part.metadata));
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

    /// The bytes of one of this model's tensors: whole blocks, row after row. Empty if its type is unknown.
    ///
    /// The first byte is aligned for the element type.
    ///
    /// # Panics
    /// If `t` is of another model with other parts.
    pub fn bytes(&self, t: &TensorInfo) -> &[u8] {
        &self.parts[t.part()].bytes()[t.start..t.start + t.len]
    }

    /// Lets the system take back the memory of `bytes` of a tensor (whole pages inside the range): reading them again
    /// reads the file again. Does nothing for a model in memory.
    pub fn release(&self, t: &TensorInfo, bytes: Range<usize>) {
        let (start, end) = (bytes.start.min(t.len), bytes.end.min(t.len));
        self.parts[t.part()].release(t.start + start..t.start + end);
    }

    /// The files, in the order of the parts; none for a model in memory.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes().len() as u64).sum()
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
