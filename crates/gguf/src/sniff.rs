//! What a file is that is not a GGUF file, from its first bytes.

use crate::escape;
use crate::header::HEADER;

/// Longest beginning of a file that is looked at.
const HEAD: usize = 512;

/// `(first bytes, what such a file is)`.
const MAGICS: &[(&[u8], &str)] = &[
    (b"FUGG", "byte-swapped magic: a file for big-endian machines"),
    (b"lmgg", "old GGML file (before GGUF): convert or download again as GGUF"),
    (b"fmgg", "old GGMF file (before GGUF): convert or download again as GGUF"),
    (b"tjgg", "old GGJT file (before GGUF): convert or download again as GGUF"),
    (b"algg", "old GGLA adapter file (before GGUF): convert or download again as GGUF"),
    (b"ggml", "old GGML file (before GGUF), byte-swapped"),
    (
        b"version https://git-lfs",
        "git LFS pointer, not the file itself: download again, e.g. with `git lfs pull`",
    ),
    (b"PK\x03\x04", "zip archive (PyTorch files are such): unpack or convert it"),
    (b"PK\x05\x06", "empty zip archive"),
    (b"\x1f\x8b", "gzip archive: unpack it"),
    (b"\x28\xb5\x2f\xfd", "zstd archive: unpack it"),
    (b"\xfd7zXZ\0", "xz archive: unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip archive: unpack it"),
    (b"\x89HDF", "HDF5 file: convert it"),
    (b"\x80\x02", "Python pickle (PyTorch checkpoint): convert it"),
    (b"\x7fELF", "program (ELF)"),
    (b"%PDF", "PDF document"),
];

/// Says in words what a file with these bytes is. `bytes` do not start with the GGUF magic.
pub(crate) fn describe(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(HEAD)];
    if let Some((_, what)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return (*what).to_owned();
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let starts = |tag: &[u8]| text.get(..tag.len()).is_some_and(|t| t.eq_ignore_ascii_case(tag));
    if [&b"<!doctype html"[..], b"<html", b"<head", b"<!--"].iter().any(|tag| starts(tag)) {
        return "web page (HTML): the download got a page instead of the file; download again"
            .to_owned();
    }
    if starts(b"<?xml") {
        return "XML text, perhaps an error message of a server: download again".to_owned();
    }
    if head.get(8..10).is_some_and(|json| json.starts_with(b"{")) && head[6..8] == [0, 0] {
        return "safetensors file: convert it".to_owned();
    }
    if text.starts_with(b"{") || text.starts_with(b"[") {
        return "JSON text, perhaps an error message of a server: download again".to_owned();
    }
    if bytes.len() < HEADER {
        return format!("file too short: {} bytes, a GGUF header has {HEADER}", bytes.len());
    }
    if head.iter().all(|&b| b == 0) {
        return "it starts with zeros, as unfinished downloads do: download again".to_owned();
    }
    format!("it starts with \"{}\", expected \"GGUF\"", escape(&head[..4], 40))
}
