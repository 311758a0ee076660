//! Models in several files: `NAME-00001-of-00003.gguf` and its siblings.

use std::path::Path;

use crate::error::show_path;
use crate::naming::Shard;
use crate::reader::OpenFile;
use crate::{Error, ErrorKind, Metadata, Result};

const COUNT_KEY: &str = "split.count";
const NO_KEY: &str = "split.no";
const TENSORS_KEY: &str = "split.tensors.count";

/// All parts of the model that the opened part `first` belongs to, in order; `first` alone if it is not sharded.
pub(crate) fn complete(path: &Path, first: OpenFile) -> Result<Vec<OpenFile>> {
    let count = first.tables.metadata.u64(COUNT_KEY)?.unwrap_or(0);
    if count <= 1 {
        return Ok(vec![first]);
    }
    let wrong_name =
        |found: String| Error::key_type(COUNT_KEY, "the number in the file's name", found);
    let Some(shard) = Shard::of(path) else {
        return Err(wrong_name(format!(
            "{count}, but the file's name does not end in -00001-of-{count:05}.gguf"
        )));
    };
    if u64::from(shard.count) != count {
        return Err(wrong_name(format!("{count}, but the file's name says {}", shard.count)));
    }
    check_number(&first.tables.metadata, shard)?;
    let mut parts = Vec::new();
    let mut first = Some(first);
    for no in 1..=shard.count {
        let sibling = Shard { no, ..shard };
        let part = match first.take_if(|_| no == shard.no) {
            Some(first) => first.with_index(no - 1),
            None => open_sibling(&sibling.sibling_of(path), sibling, no)?,
        };
        parts.push(part);
    }
    check_total(&parts)?;
    Ok(parts)
}

fn open_sibling(path: &Path, shard: Shard, no: u32) -> Result<OpenFile> {
    let name = path.file_name().map_or(path, Path::new);
    let opened = OpenFile::open(path, no - 1).and_then(|part| {
        let found = part.tables.metadata.u64(COUNT_KEY)?.unwrap_or(0);
        if found != u64::from(shard.count) {
            return Err(Error::key_type(
                COUNT_KEY,
                "the count of the other parts",
                found.to_string(),
            ));
        }
        check_number(&part.tables.metadata, shard)?;
        Ok(part)
    });
    opened.map_err(|problem| match problem.kind() {
        ErrorKind::NotFound => {
            Error::MissingPart { number: no, count: shard.count, path: show_path(path) }
        }
        _ => Error::OpenFile { part: show_path(name), problem: Box::new(problem) },
    })
}

/// `split.no` counts from 0, file names from 1.
fn check_number(metadata: &Metadata, shard: Shard) -> Result<()> {
    match metadata.u64(NO_KEY)? {
        Some(no) if no != u64::from(shard.no - 1) => Err(Error::key_type(
            NO_KEY,
            "one less than the number in the file's name",
            format!("{no} in part {} of {}", shard.no, shard.count),
        )),
        _ => Ok(()),
    }
}

fn check_total(parts: &[OpenFile]) -> Result<()> {
    let total: usize = parts.iter().map(|part| part.tables.tensors.len()).sum();
    match parts[0].tables.metadata.u64(TENSORS_KEY)? {
        Some(expected) if expected != total as u64 => Err(Error::key_type(
            TENSORS_KEY,
            "the number of tensors in all parts",
            format!("{expected}, the {} parts have {total}", parts.len()),
        )),
        _ => Ok(()),
    }
}
