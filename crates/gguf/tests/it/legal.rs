//! Odd files that are right: refusing them would be a failure too.

use gguf::{Gguf, Value, ValueType};

use crate::build::{Raw, exercise};

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

fn load(raw: Raw) -> Gguf {
    let gguf = Gguf::from_bytes(raw.0).expect("this file is right");
    exercise(&gguf);
    gguf
}

#[test]
fn no_tensors_and_no_pairs() {
    let gguf = load(Raw::new(2, 0, 0));
    assert!(gguf.metadata().is_empty() && gguf.tensors().is_empty());
    assert_eq!(gguf.version(), 2);
    assert!(
        gguf.metadata()
            .architecture()
            .unwrap_err()
            .to_string()
            .contains("`general.architecture` is missing")
    );
}

#[test]
fn odd_keys_and_strings() {
    let key = [b'k'; 65_536];
    let raw =
        Raw::new(3, 0, 4).string(b"").u32(STRING).string(b"").string(&key).u32(U8).bytes(&[1]);
    let gguf = load(
        raw.string(b"\xff\x1b").u32(STRING).string(b"\xfe").string(b"a b\n").u32(BOOL).bytes(&[2]),
    );
    let m = gguf.metadata();
    assert_eq!(m.str("").unwrap(), Some(""));
    assert_eq!(m.u32(std::str::from_utf8(&key).unwrap()).unwrap(), Some(1));
    assert_eq!(m.get("\\xff\\u{1b}"), Some(Value::String(b"\xfe")));
    assert!(m.str("\\xff\\u{1b}").unwrap_err().to_string().contains("\\xfe"));
    assert_eq!(m.bool("a b\n").unwrap(), Some(true), "any byte but 0 is true");
}

#[test]
fn arrays() {
    let nested =
        (1..8).fold(Raw::new(3, 0, 4).string(b"deep").u32(ARRAY), |raw, _| raw.u32(ARRAY).u64(1));
    let raw = nested.u32(U8).u64(2).bytes(&[5, 6]);
    let raw = raw.string(b"empty").u32(ARRAY).u32(STRING).u64(0);
    let raw = raw
        .string(b"hollow")
        .u32(ARRAY)
        .u32(ARRAY)
        .u64(2)
        .u32(U32)
        .u64(0)
        .u32(STRING)
        .u64(1)
        .string(b"s");
    let gguf = load(raw.string(b"flags").u32(ARRAY).u32(BOOL).u64(3).bytes(&[0, 1, 255]));
    let m = gguf.metadata();
    assert_eq!(m.strings("empty").unwrap().unwrap().len(), 0);
    assert_eq!(m.bools("flags").unwrap().unwrap(), [false, true, true]);
    let Some(Value::Array(mut array)) = m.get("deep") else { panic!("deep is an array") };
    for _ in 1..8 {
        assert_eq!((array.ty(), array.len()), (ValueType::Array, 1));
        let Some(Value::Array(inner)) = array.iter().next() else { panic!("it holds an array") };
        array = inner;
    }
    assert_eq!(array.iter().collect::<Vec<_>>(), [Value::U8(5), Value::U8(6)]);
    let Some(Value::Array(hollow)) = m.get("hollow") else { panic!("hollow is an array") };
    assert_eq!(hollow.iter().map(|v| v.to_string()).collect::<Vec<_>>(), ["[0 u32]", "[1 string]"]);
}

#[test]
fn odd_tensors() {
    let raw = Raw::new(3, 6, 0).tensor(b"", &[8], 0, 0).tensor(&[b'n'; 300], &[8], 0, 32);
    // Over each other, out of order, without data of its own, of a type that was removed, of a type unknown.
    let raw = raw.tensor(b"overlap", &[8], 0, 32).tensor(b"first", &[1], 0, 0);
    let gguf = load(
        raw.tensor(b"removed", &[32], 4, 64)
            .tensor(b"unknown", &[u64::MAX >> 2], 4_000_000_000, 64)
            .pad()
            .zeros(64),
    );
    assert_eq!(gguf.tensors().len(), 6);
    let unknown = gguf.tensor("unknown").unwrap();
    assert_eq!((unknown.byte_len(), gguf.bytes(unknown).unwrap().len()), (0, 0));
    assert_eq!(
        unknown.ty().unwrap_err().to_string(),
        "tensor `unknown`: type 4000000000 is not supported"
    );
    assert_eq!(gguf.tensor("removed").unwrap().type_name(), "type 4");
}

/// Bytes after the last tensor, and no padding after it, are both fine.
#[test]
fn ends() {
    let exact = Raw::entry(b"t", &[3], 0, 0).pad().zeros(12);
    load(exact.clone());
    load(exact.zeros(1000));
}

#[test]
fn alignments() {
    for (n, offset) in [(1_u32, 12), (8, 16), (64, 64), (1 << 20, 1 << 20)] {
        let raw = Raw::new(3, 2, 1).string(b"general.alignment").u32(U32).u32(n);
        // Names as long as to make the table end at a multiple of 4.
        let raw = raw.tensor(b"aaaa", &[3], 0, 0).tensor(b"bbbbbbb", &[3], 0, offset);
        let data = raw.0.len().next_multiple_of(n as usize);
        let missing = data - raw.0.len() + offset as usize;
        assert_eq!(data % 4, 0, "the test's own names");
        let gguf = load(raw.zeros(missing).bytes(&[1; 12]));
        assert_eq!(gguf.bytes(gguf.tensor("bbbbbbb").unwrap()).unwrap(), [1; 12]);
    }
}
