//! GGUF files: header, metadata, tensor table, shards, file naming; reader and writer.
//!
//! A file from a stranger never panics, hangs or over-allocates here: sizes are checked `u64`, nothing is allocated
//! that the file's own bytes do not back, arrays stay borrowed byte ranges and nested ones are walked without
//! recursion. No file is mapped: see `source.rs`. What the numbers *mean* (hyper-parameters, shapes, vocabularies) is not judged here but in `models` and
//! `tokenizer`. Start reading at [`Gguf::open`], then `header.rs`, `metadata.rs` and `tensors.rs`.
//!
//! Source: the GGUF specification of the ggml project (`docs/gguf.md`), versions 2 and 3, little-endian.
#![forbid(unsafe_code)]

mod cursor;
mod error;
mod escape;
mod file_types;
mod header;
mod metadata;
pub mod naming;
mod owned;
mod reader;
mod shards;
mod sniff;
mod source;
mod tensors;
mod value;
mod writer;

pub use error::{Error, ErrorKind, Result};
pub use escape::escape;
pub use file_types::{FILE_TYPES, FileType};
pub use metadata::Metadata;
pub use owned::{Element, OwnedValue};
pub use quant::GgmlType;
pub use reader::Gguf;
pub use tensors::TensorInfo;
pub use value::{Array, Items, Strings, Value, ValueType};
pub use writer::Writer;
