//! Models in several files.

use std::path::PathBuf;

use gguf::{Error, ErrorKind, GgmlType, Gguf, Writer};

struct Model {
    dir: tempfile::TempDir,
    count: u32,
}

impl Model {
    /// Part `i` (from 1) has tensor `t<i>`, filled with `i`; `change` may spoil it.
    fn new(count: u32, change: impl Fn(u32, &mut Writer)) -> Model {
        let model = Model { dir: tempfile::tempdir().expect("a temporary folder"), count };
        for i in 1..=count {
            let mut w = Writer::new();
            w.set("general.architecture", format!("part{i}"));
            w.set("split.no", (i - 1) as u16).set("split.count", count as u16);
            w.set("split.tensors.count", count as i32);
            w.tensor(format!("t{i}"), GgmlType::F32, &[2], vec![i as u8; 8]);
            change(i, &mut w);
            std::fs::write(model.path(i), w.to_bytes().expect("a valid part"))
                .expect("a writable folder");
        }
        model
    }

    fn path(&self, i: u32) -> PathBuf {
        self.dir.path().join(format!("m-{i:05}-of-{:05}.gguf", self.count))
    }

    fn error(&self, i: u32) -> Error {
        Gguf::open(&self.path(i)).expect_err("a broken model")
    }
}

#[test]
fn opens_from_any_part() {
    let model = Model::new(3, |_, _| {});
    for i in 1..=3 {
        let gguf = Gguf::open(&model.path(i)).unwrap();
        assert_eq!(gguf.metadata().architecture().unwrap(), "part1");
        assert_eq!(gguf.paths(), [model.path(1), model.path(2), model.path(3)]);
        let names: Vec<&str> = gguf.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["t1", "t2", "t3"]);
        for (n, t) in gguf.tensors().iter().enumerate() {
            assert_eq!((t.part(), &gguf.bytes(t).unwrap()[..]), (n, &[n as u8 + 1; 8][..]));
        }
        assert_eq!(gguf.file_bytes(), 3 * std::fs::metadata(model.path(1)).unwrap().len());
    }
}

#[test]
fn missing_part_is_named() {
    let model = Model::new(3, |_, _| {});
    std::fs::remove_file(model.path(2)).unwrap();
    let error = model.error(3);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(
        text.starts_with("part 2 of 3 is missing: `") && text.ends_with("m-00002-of-00003.gguf`"),
        "{text}"
    );
}

#[test]
fn broken_parts() {
    type Change = fn(u32, &mut Writer);
    let check = |open: u32, change: Change, fragments: &[&str]| {
        let error = Model::new(2, change).error(open);
        assert_eq!(error.kind(), ErrorKind::Malformed);
        let text = error.to_string();
        assert!(text.len() <= 400, "{text}");
        fragments.iter().for_each(|f| assert!(text.contains(f), "expected `{f}` in {text}"));
    };
    let second = "part `m-00002-of-00002.gguf`: ";
    check(
        1,
        |_, w| {
            w.set("split.count", 65_535_u16);
        },
        &["split.count", "65535", "says 2"],
    );
    check(
        1,
        |_, w| {
            w.set("split.count", "two");
        },
        &["split.count", "string \"two\""],
    );
    check(
        1,
        |i, w| {
            w.set("split.count", 1 + i);
        },
        &[second, "split.count", "found 3"],
    );
    check(
        1,
        |_, w| {
            w.set("split.no", 1_u16);
        },
        &["split.no", "1 in part 1 of 2"],
    );
    check(
        1,
        |_, w| {
            w.set("split.no", 0_u16);
        },
        &[second, "split.no", "0 in part 2 of 2"],
    );
    check(
        2,
        |_, w| {
            w.set("split.tensors.count", 9_i32);
        },
        &["split.tensors.count", "9", "the 2 parts have 2"],
    );
    check(
        1,
        |_, w| {
            w.tensor("same", GgmlType::F32, &[1], [0; 4]).set("split.tensors.count", 4);
        },
        &["duplicate tensor `same`"],
    );
    let model = Model::new(2, |_, _| {});
    std::fs::write(model.path(2), "<html>").unwrap();
    assert!(model.error(1).to_string().starts_with(&format!("{second}not a GGUF file: web page")));
    std::fs::rename(model.path(1), model.dir.path().join("renamed.gguf")).unwrap();
    let error = Gguf::open(&model.dir.path().join("renamed.gguf")).unwrap_err().to_string();
    assert!(error.contains("does not end in -00001-of-00002.gguf"), "{error}");
}

/// A name like a shard's is only a name when the file does not say it is one.
#[test]
fn name_alone_makes_no_shard() {
    let model = Model::new(3, |_, w| {
        w.set("split.count", 0_u16);
    });
    assert_eq!(Gguf::open(&model.path(2)).unwrap().tensors().len(), 1);
}
