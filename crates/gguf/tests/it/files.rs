//! Files of the file system: absent, of other kinds, mapped and given back.

use std::path::Path;

use gguf::{ErrorKind, GgmlType, Gguf, Writer};

use crate::build::{exercise, sample};

#[test]
fn absent_and_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let check = |path: &Path, kind: ErrorKind, fragment: &str| {
        let error = Gguf::open(path).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(fragment), "{error}");
    };
    check(&dir.path().join("none.gguf"), ErrorKind::NotFound, "none.gguf`: ");
    check(dir.path(), ErrorKind::Io, "it is a directory");
    let empty = dir.path().join("empty.gguf");
    std::fs::write(&empty, "").unwrap();
    check(&empty, ErrorKind::Malformed, "file too short: 0 bytes");
    if cfg!(unix) {
        check(Path::new("/dev/zero"), ErrorKind::Io, "it is not a regular file");
    }
    let long = dir.path().join(format!("\u{1b}[31m{}", "x".repeat(3000)));
    let text = Gguf::open(&long).unwrap_err().to_string();
    assert!(text.chars().count() <= 400 && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn mapped_equals_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let bytes = sample().to_bytes().unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let (mapped, memory) = (Gguf::open(&path).unwrap(), Gguf::from_bytes(bytes).unwrap());
    assert_eq!(exercise(&mapped), exercise(&memory));
    assert_eq!((mapped.paths(), memory.paths()), (&[path][..], &[][..]));
}

#[test]
fn shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Gguf>();
    check::<gguf::Error>();
}

/// Released pages leave this process's memory and come back with the same content. (Miri has neither.)
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "nothing is mapped")]
#[test]
fn release_gives_memory_back() {
    const LEN: usize = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.gguf");
    let mut writer = Writer::new();
    writer.tensor("t", GgmlType::I8, &[LEN as u64], vec![3; LEN]);
    writer.write_to(&mut std::fs::File::create(&path).unwrap()).unwrap();
    drop(writer);
    let gguf = Gguf::open(&path).unwrap();
    let t = gguf.tensor("t").unwrap();
    let sum = || gguf.bytes(t).iter().map(|&b| u64::from(b)).sum::<u64>();
    assert_eq!(sum(), 3 * LEN as u64);
    let before = resident_file_bytes();
    gguf.release(t, 0..LEN);
    let after = resident_file_bytes();
    assert!(after + LEN / 2 < before, "resident before {before}, after {after}");
    gguf.release(t, LEN - 1..usize::MAX);
    gguf.release(t, usize::MAX..usize::MAX);
    assert_eq!(sum(), 3 * LEN as u64);
}

#[cfg(target_os = "linux")]
fn resident_file_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let field = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<usize>().ok())
            .map_or(0, |kib| kib * 1024)
    };
    // A file on tmpfs counts as shared memory.
    field("RssFile:") + field("RssShmem:")
}
