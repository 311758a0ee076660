//! Files of the file system: absent, of other kinds, with long headers, changed while they are open.

use std::fs::{File, OpenOptions};
use std::path::Path;

use gguf::{Error, ErrorKind, GgmlType, Gguf, Writer};

use crate::build::{Raw, exercise, sample};

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
fn files_equal_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let bytes = sample().to_bytes().unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let (file, memory) = (Gguf::open(&path).unwrap(), Gguf::from_bytes(bytes).unwrap());
    assert_eq!(exercise(&file), exercise(&memory));
    assert_eq!((file.paths(), memory.paths()), (&[path][..], &[][..]));
}

#[test]
fn shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Gguf>();
    check::<gguf::Error>();
}

/// A file of three tensors, of which the header alone is longer than what is read of a file at first.
fn large_header() -> Writer {
    let mut writer = Writer::new();
    let words: Vec<String> = (0..300_000).map(|i| format!("word {i}")).collect();
    writer.set("words", words);
    for name in ["a", "b", "c"] {
        writer.tensor(name, GgmlType::I8, &[10_000], vec![name.as_bytes()[0]; 10_000]);
    }
    writer
}

#[test]
fn long_headers_are_read_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let bytes = large_header().to_bytes().unwrap();
    assert!(bytes.len() > 5 << 20, "{} bytes", bytes.len());
    std::fs::write(&path, &bytes).unwrap();
    let opened = Gguf::open(&path).unwrap();
    assert_eq!(exercise(&opened), exercise(&Gguf::from_bytes(bytes).unwrap()));
    let header = Gguf::header_bytes(&path).unwrap();
    assert!(header > 5 << 20 && header < opened.file_bytes() - 30_000, "{header}");
}

/// What a file said stays as it was read, and what is read of it later is an error where it is lost: no signal.
#[cfg_attr(miri, ignore = "it reads files at once")]
#[test]
fn files_that_become_shorter_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    large_header().write_to(&mut File::create(&path).unwrap()).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    gguf.check_unchanged().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| gguf.tensor(name).unwrap());
    let header = Gguf::header_bytes(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();

    let within_b = header.next_multiple_of(32) + 15_000;
    file.set_len(within_b).unwrap();
    assert_eq!(gguf.bytes(a).unwrap(), vec![b'a'; 10_000]);
    for tensor in [b, c] {
        let error = gguf.bytes(tensor).unwrap_err();
        assert!(matches!(error, Error::Shortened { has, .. } if has == within_b), "{error}");
        assert_eq!(error.kind(), ErrorKind::Malformed);
    }
    gguf.read(b, 100, &mut [0; 1000]).unwrap();
    let past_end = gguf.read(b, 9_999, &mut [0; 2]).unwrap_err();
    assert!(matches!(past_end, Error::Tensor { .. }), "{past_end}");

    file.set_len(0).unwrap();
    assert!(gguf.bytes(a).is_err());
    let words = gguf.metadata().strings("words").unwrap().unwrap();
    assert!(words.enumerate().all(|(i, word)| word == format!("word {i}").as_bytes()));

    let error = gguf.check_unchanged().unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");

    // nor is what is written there meanwhile taken for what was read
    file.set_len(header + 30_000).unwrap();
    assert_eq!(gguf.metadata().strings("words").unwrap().unwrap().count(), 300_000);
    assert_eq!(gguf.bytes(a).unwrap(), vec![0; 10_000]);
}

/// A length that the file backs with nothing takes no memory.
#[cfg_attr(miri, ignore = "it reads files at once")]
#[test]
fn long_headers_of_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.gguf");
    let length: u64 = 5 << 30;
    let header = Raw::new(3, 0, 1).string(b"key").u32(8).u64(length);
    std::fs::write(&path, header.0).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(length + 1000).unwrap();
    let error = Gguf::open(&path).unwrap_err();
    assert_eq!(error.to_string(), "header: metadata and tensor table are longer than 1 GiB");
}

/// A file of the same length that was written anew may be read in part before, in part after.
#[cfg_attr(miri, ignore = "it reads files at once")]
#[test]
fn files_that_are_written_anew_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let bytes = sample().to_bytes().unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    OpenOptions::new().write(true).open(&path).unwrap().set_modified(past).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    gguf.check_unchanged().unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(gguf.check_unchanged(), Err(Error::Changed { .. })));
    // a new file in its place is another one: this one stays as it was
    let gguf = Gguf::open(&path).unwrap();
    std::fs::write(dir.path().join("new.gguf"), b"other").unwrap();
    std::fs::rename(dir.path().join("new.gguf"), &path).unwrap();
    gguf.check_unchanged().unwrap();
    assert_eq!(exercise(&gguf), exercise(&Gguf::from_bytes(bytes).unwrap()));
}
