//! Malformed files, class by class: what each must be told.

use crate::build::{Raw, error};

const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Checks `(what it is, the file, what the message must contain)`.
fn check(cases: Vec<(&str, Raw, &[&str])>) {
    for (name, raw, fragments) in cases {
        let text = error(raw.0);
        for fragment in fragments {
            assert!(text.contains(fragment), "{name}: expected `{fragment}` in: {text}");
        }
    }
}

fn file(bytes: &[u8]) -> Raw {
    Raw(bytes.to_vec())
}

#[test]
fn not_gguf() {
    let big_endian = Raw(b"GGUF".to_vec()).u32(3_u32.swap_bytes()).zeros(40);
    check(vec![
        ("empty", file(b""), &["file too short: 0 bytes"]),
        ("three bytes", file(b"GGU"), &["file too short: 3 bytes"]),
        ("few bytes", file(b"hello"), &["file too short: 5 bytes"]),
        (
            "only the magic",
            file(b"GGUF"),
            &["truncated: header needs at least 24 bytes, file has 4"],
        ),
        (
            "cut header",
            file(b"GGUF\x03\0\0\0\0\0\0"),
            &["truncated: header", "(45 %)", "download again"],
        ),
        ("other magic", file(&[b'X'; 64]), &["not a GGUF file", "\"XXXX\"", "expected \"GGUF\""]),
        ("escaped magic", file(&[0x1b; 64]), &["\\u{1b}"]),
        (
            "page",
            file(b"\r\n<!DOCTYPE html><html><body>Not found"),
            &["web page", "download again"],
        ),
        ("page 2", file(b"<HTML>"), &["web page"]),
        ("json", file(b"{\"error\":\"Repository not found\"}"), &["JSON text", "download again"]),
        (
            "lfs",
            file(b"version https://git-lfs.example/spec/v1\noid sha256:0"),
            &["git LFS pointer", "download again"],
        ),
        ("zip", file(b"PK\x03\x04\x14\0\0\0\x08\0archive/data.pkl"), &["zip archive"]),
        ("gzip", file(b"\x1f\x8b\x08\0"), &["gzip"]),
        ("old", file(b"lmgg\0\0\0\0"), &["old GGML"]),
        ("old 2", file(b"tjgg\x03\0\0\0"), &["old GGJT"]),
        ("safetensors", file(b"\x10\x27\0\0\0\0\0\0{\"__metadata__\":{}}"), &["safetensors"]),
        ("zeros", file(&[0; 4096]), &["zeros", "download again"]),
        ("swapped magic", file(b"FUGG\0\0\0\x03"), &["big-endian"]),
        ("big-endian", big_endian, &["big-endian", "version 3"]),
        ("version 0", Raw::new(0, 0, 0), &["unsupported GGUF version 0 (supported: 2..3)"]),
        ("version 1", Raw::new(1, 0, 0), &["unsupported GGUF version 1 "]),
        ("version 4", Raw::new(4, 0, 0), &["unsupported GGUF version 4 "]),
        ("version 2^32-1", Raw::new(u32::MAX, 0, 0), &["unsupported GGUF version 4294967295"]),
    ]);
}

#[test]
fn counts() {
    for count in [u64::MAX, 1 << 63, 1 << 40, 1 << 32] {
        let fragment = format!(" {count} cannot fit in 40 bytes");
        let fragments = [fragment.as_str()];
        check(vec![
            ("n_tensors", Raw::new(3, count, 0).zeros(40), &fragments),
            ("n_kv", Raw::new(3, 0, count).zeros(40), &fragments),
        ]);
    }
    let one = Raw::new(3, 0, 2).string(b"a").u32(U32).u32(1).u64(20).zeros(10);
    let entry = Raw::new(3, 2, 0).tensor(b"a", &[8], 0, 0).zeros(16);
    check(vec![
        (
            "n_kv, in limit",
            Raw::new(3, 0, 1000).zeros(40),
            &["truncated: header with n_kv 1000", "13024 bytes"],
        ),
        (
            "n_kv, over limit",
            Raw::new(3, 0, 1_000_001).zeros(13_000_014),
            &["1000001 is over the limit of 1000000"],
        ),
        (
            "n_tensors, over limit",
            Raw::new(3, 200_001, 0).zeros(4_800_024),
            &["200001 is over the limit of 200000"],
        ),
        ("n_kv off by one", one.clone(), &["truncated: metadata pair 2 of 2"]),
        ("n_tensors off by one", entry, &["n_dims 0 (1..4)"]),
    ]);
}

#[test]
fn lengths() {
    for len in [u64::MAX, 1 << 63, 1 << 40, 1 << 32] {
        let remaining = format!("length {len} > remaining 9");
        let fragments = [remaining.as_str(), " 1 of 1"];
        check(vec![
            ("key", Raw::new(3, 0, 1).u64(len).zeros(9), &fragments),
            ("name", Raw::new(3, 1, 0).u64(len).zeros(9), &["header with", "n_tensors 1"]),
            ("name 2", Raw::new(3, 1, 0).u64(len).zeros(40), &["entry 1 of 1", "remaining 40"]),
            (
                "string",
                Raw::pair(b"k", STRING).u64(len).zeros(9),
                &["length", "remaining 9", "key `k`"],
            ),
        ]);
        let array = format!("array needs {} bytes, 9 remain", len.saturating_mul(4));
        check(vec![("array", Raw::pair(b"k", ARRAY).u32(U32).u64(len).zeros(9), &[&array])]);
    }
    check(vec![
        (
            "key one past the end",
            Raw::new(3, 0, 1).u64(10).zeros(9),
            &["truncated: metadata pair 1 of 1 needs"],
        ),
        (
            "string one past the end",
            Raw::pair(b"k", STRING).u64(10).zeros(9),
            &["truncated", "key `k`", "(98 %)"],
        ),
        (
            "2^30 elements",
            Raw::pair(b"k", ARRAY).u32(U32).u64(1 << 30).zeros(9),
            &["key `k`", "array of 1073741824 u32", "array needs 4294967296 bytes, 9 remain"],
        ),
        (
            "long key",
            Raw::new(3, 0, 1).u64(65_537).zeros(70_000),
            &["key length 65537 is over the limit of 65536"],
        ),
        (
            "string in array",
            Raw::pair(b"k", ARRAY).u32(STRING).u64(1).u64(u64::MAX).zeros(9),
            &["key `k`", "string length 18446744073709551615 > remaining 9"],
        ),
    ]);
}

#[test]
fn types_and_duplicates() {
    let nested = |depth: usize| {
        let raw = Raw::pair(b"k", ARRAY);
        (1..depth).fold(raw, |raw, _| raw.u32(ARRAY).u64(1)).u32(U32).u64(1).u32(5)
    };
    let twice = Raw::new(3, 0, 3).string(b"a").u32(BOOL).zeros(1).string(b"b").u32(BOOL).zeros(1);
    let tensors =
        Raw::new(3, 2, 0).tensor(b"t", &[8], 0, 0).tensor(b"t", &[8], 0, 32).pad().zeros(64);
    check(vec![
        ("type 13", Raw::pair(b"k", 13).zeros(8), &["unknown type 13", "key `k`"]),
        ("type 2^32-1", Raw::pair(b"k", u32::MAX).zeros(8), &["unknown type 4294967295"]),
        (
            "array of type 13",
            Raw::pair(b"k", ARRAY).u32(13).u64(0),
            &["array of unknown type 13", "key `k`"],
        ),
        ("nested 9 deep", nested(9), &["key `k`", "nested deeper than 8"]),
        ("nested 100,000 deep", nested(100_000), &["nested deeper than 8"]),
        ("duplicate key", twice.string(b"a").u32(U32).u32(1), &["duplicate key `a`"]),
        ("duplicate tensor", tensors, &["duplicate tensor `t`"]),
    ]);
}

#[test]
fn alignment() {
    let key = b"general.alignment";
    check(vec![
        ("0", Raw::pair(key, U32).u32(0), &["key `general.alignment`", "power of two", "found 0"]),
        ("13", Raw::pair(key, U32).u32(13), &["found 13"]),
        ("2^31", Raw::pair(key, U32).u32(1 << 31), &["found 2147483648"]),
        (
            "string",
            Raw::pair(key, STRING).string(b"32"),
            &["key `general.alignment`", "found string \"32\""],
        ),
    ]);
}

#[test]
fn tensor_shapes() {
    let f32s = |dims: &[u64]| Raw::entry(b"t", dims, 0, 0).pad().zeros(64);
    check(vec![
        ("no dimension", f32s(&[]), &["tensor `t`: n_dims 0 (1..4)"]),
        ("five dimensions", f32s(&[1; 5]), &["n_dims 5 (1..4)"]),
        (
            "n_dims 2^32-1",
            Raw::new(3, 1, 0).string(b"t").u32(u32::MAX).zeros(64),
            &["n_dims 4294967295 (1..4)"],
        ),
        ("zero", f32s(&[4, 0]), &["tensor `t`: shape [4, 0] has a zero"]),
        ("wraps", f32s(&[1 << 32, 1 << 32]), &["too large"]),
        ("wraps to 0", f32s(&[1 << 16; 4]), &["too large"]),
        ("bytes wrap", f32s(&[1 << 62]), &["too large"]),
        ("padded sum wraps", f32s(&[(1 << 62) - 1]), &["tensor", "t`"]),
        ("i64::MAX", f32s(&[u64::MAX >> 1]), &["too large"]),
        (
            "half a block",
            Raw::entry(b"t", &[33], 2, 0).pad().zeros(64),
            &["row of 33 is not a multiple of 32 (Q4_0)"],
        ),
    ]);
}

#[test]
fn tensor_offsets() {
    let two = |second: u64| {
        Raw::new(3, 2, 0).tensor(b"a", &[8], 0, 0).tensor(b"b", &[8], 0, second).pad().zeros(64)
    };
    let at = |offset: u64| Raw::entry(b"t", &[8], 0, offset).pad().zeros(64);
    check(vec![
        ("misaligned", at(7), &["tensor `t`: offset 7 is not aligned to 32"]),
        ("past the end", at(64), &["tensor `t`", "past the end of the file"]),
        ("far past the end", two(1 << 40), &["tensor `b`", "past the end of the file"]),
        ("near 2^64", at(u64::MAX - 31), &["tensor `t`", "past the end of the file"]),
        ("data cut", file(&two(32).0[..150]), &["truncated: tensor data", "`b`", "download again"]),
        (
            "more than the file holds",
            Raw::entry(b"t", &[1 << 30], 0, 0).pad(),
            &["tensor data", "`t`", "(0 %)"],
        ),
        (
            "unaligned for its type",
            Raw::new(3, 1, 1)
                .string(b"general.alignment")
                .u32(U32)
                .u32(1)
                .tensor(b"tt", &[1], 0, 0)
                .zeros(16),
            &["tensor `tt`", "not aligned for F32"],
        ),
    ]);
}

/// Names from the file reach the terminal only escaped and cut.
#[test]
fn names_are_escaped() {
    let long =
        [b"\x1b[31m\n\0\xff".as_slice(), &[b'x'; if cfg!(miri) { 600 } else { 60_000 }]].concat();
    check(vec![
        ("key", Raw::pair(&long, 13).zeros(8), &["\\u{1b}[31m\\n\\u{0}\\", "x...`"]),
        ("tensor", Raw::entry(&long, &[0], 0, 0), &["\\u{1b}[31m\\n\\u{0}\\", "x...`"]),
        (
            "alignment",
            Raw::pair(b"general.alignment", STRING).string(&long),
            &["\\u{1b}[31m\\n\\u{0}\\xff", "x...\""],
        ),
    ]);
}
