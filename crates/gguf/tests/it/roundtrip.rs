//! What the writer writes, the reader reads, and written again it is the same file.

use std::io::Write;

use gguf::{GgmlType, Gguf, OwnedValue, Value, ValueType, Writer};
use proptest::prelude::*;

use crate::build::sample;

fn scalar(ty: ValueType) -> BoxedStrategy<OwnedValue> {
    match ty {
        ValueType::U8 => any::<u8>().prop_map(OwnedValue::from).boxed(),
        ValueType::I8 => any::<i8>().prop_map(OwnedValue::from).boxed(),
        ValueType::U16 => any::<u16>().prop_map(OwnedValue::from).boxed(),
        ValueType::I16 => any::<i16>().prop_map(OwnedValue::from).boxed(),
        ValueType::U32 => any::<u32>().prop_map(OwnedValue::from).boxed(),
        ValueType::I32 => any::<i32>().prop_map(OwnedValue::from).boxed(),
        ValueType::U64 => any::<u64>().prop_map(OwnedValue::from).boxed(),
        ValueType::I64 => any::<i64>().prop_map(OwnedValue::from).boxed(),
        ValueType::F32 => any::<u32>().prop_map(|bits| f32::from_bits(bits).into()).boxed(),
        ValueType::F64 => any::<u64>().prop_map(|bits| f64::from_bits(bits).into()).boxed(),
        ValueType::Bool => any::<bool>().prop_map(OwnedValue::from).boxed(),
        ValueType::String => any::<Vec<u8>>().prop_map(OwnedValue::String).boxed(),
        ValueType::Array => array(0),
    }
}

/// Arrays of any type, nested up to `depth` more levels.
fn array(depth: usize) -> BoxedStrategy<OwnedValue> {
    let types: Vec<ValueType> = ValueType::all().filter(|&ty| ty != ValueType::Array).collect();
    let flat = prop::sample::select(types).prop_flat_map(|ty| {
        prop::collection::vec(scalar(ty), 0..5).prop_map(move |items| OwnedValue::Array(ty, items))
    });
    if depth == 0 {
        return flat.boxed();
    }
    let nested = prop::collection::vec(array(depth - 1), 0..4)
        .prop_map(|items| OwnedValue::Array(ValueType::Array, items));
    prop_oneof![flat, nested].boxed()
}

fn value() -> impl Strategy<Value = OwnedValue> {
    let types: Vec<ValueType> = ValueType::all().collect();
    prop_oneof![prop::sample::select(types).prop_flat_map(scalar), array(7)]
}

fn tensor() -> impl Strategy<Value = (GgmlType, Vec<u64>, Vec<u8>)> {
    let ty = prop::sample::select(GgmlType::all().collect::<Vec<_>>());
    (ty, 1_u64..4, prop::collection::vec(1_u64..4, 0..4), any::<u8>()).prop_map(
        |(ty, blocks, rest, byte)| {
            let n_blocks = blocks * rest.iter().product::<u64>();
            let mut dims = vec![blocks * ty.block_len() as u64];
            dims.extend(rest);
            let len = n_blocks as usize * ty.block_bytes();
            (ty, dims, (0..len).map(|i| byte.wrapping_add(i as u8)).collect())
        },
    )
}

fn rewrite(gguf: &Gguf) -> Writer {
    let mut writer = Writer::new();
    writer.version(gguf.version());
    for (key, value) in gguf.metadata().iter() {
        writer.set(key, OwnedValue::from(value));
    }
    for t in gguf.tensors() {
        writer.tensor(
            &t.name,
            t.ty().expect("the writer knows only such"),
            &t.dims,
            gguf.bytes(t).expect("its bytes are in the file"),
        );
    }
    writer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn whatever_is_written_reads_back(
        version in 2_u32..=3,
        align in prop::option::of(3_u32..10),
        pairs in prop::collection::btree_map(".{0,12}", value(), 0..8),
        tensors in prop::collection::btree_map(".{0,12}", tensor(), 0..6),
    ) {
        let mut writer = Writer::new();
        writer.version(version);
        if let Some(log) = align {
            writer.set("general.alignment", 1_u32 << log);
        }
        for (key, value) in &pairs {
            writer.set(key, value.clone());
        }
        for (name, (ty, dims, bytes)) in &tensors {
            writer.tensor(name, *ty, dims, bytes.clone());
        }
        let bytes = writer.to_bytes().unwrap();
        let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
        prop_assert_eq!(gguf.version(), version);
        prop_assert_eq!(gguf.metadata().len(), pairs.len() + usize::from(align.is_some()));
        for (key, value) in &pairs {
            prop_assert_eq!(gguf.metadata().get(key).map(|v| v.ty()), Some(value.ty()));
        }
        for (name, (ty, dims, data)) in &tensors {
            let t = gguf.tensor(name).unwrap();
            let bytes = gguf.bytes(t).unwrap();
            prop_assert_eq!((t.ty().unwrap(), &t.dims, &bytes[..]), (*ty, dims, &data[..]));
        }
        // To the bit, so values and NaN payloads too.
        prop_assert_eq!(rewrite(&gguf).to_bytes().unwrap(), bytes);
    }
}

#[test]
fn typed_getters() {
    let gguf = Gguf::from_bytes(sample().to_bytes().unwrap()).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.architecture().unwrap(), "qwen2");
    assert_eq!(m.str("general.name").unwrap(), Some("sample \u{1f600}"));
    for (key, value) in [("u8", 1), ("u16", 2), ("u64", 4), ("general.alignment", 32)] {
        assert_eq!(m.u32(key).unwrap(), Some(value), "{key}");
        assert_eq!(m.u64(key).unwrap(), Some(u64::from(value)), "{key}");
    }
    assert_eq!(m.f32("f32").unwrap(), Some(0.5));
    assert_eq!(m.f32("f64").unwrap(), Some(0.25));
    assert_eq!(m.bool("bool").unwrap(), Some(true));
    assert_eq!(
        m.strings("tokens").unwrap().unwrap().collect::<Vec<_>>(),
        [&b"a"[..], b"", "\u{120}bc".as_bytes()]
    );
    assert_eq!(m.f32s("scores").unwrap().unwrap(), [0.0, -1.0, -2.0]);
    assert_eq!(m.i32s("types").unwrap().unwrap(), [1, 2, 3]);
    assert_eq!(m.u32s("types").unwrap().unwrap(), [1, 2, 3]);
    assert_eq!(m.bools("flags").unwrap().unwrap(), [true, false]);
    assert_eq!(m.array_len("nested").unwrap(), Some(2));
    assert_eq!(m.u32s("empty").unwrap(), Some(vec![]));
    assert_eq!((m.u32("absent").unwrap(), m.strings("absent").unwrap().is_none()), (None, true));
    assert_eq!(m.get("i64"), Some(Value::I64(-4)));
    assert_eq!(
        m.iter().next().map(|(key, value)| (key, value.to_string())),
        Some(("general.architecture", "\"qwen2\"".into()))
    );
}

#[test]
fn getters_name_what_they_found() {
    let gguf = Gguf::from_bytes(sample().to_bytes().unwrap()).unwrap();
    let m = gguf.metadata();
    let check = |error: Option<gguf::Error>, expect: &str| {
        assert_eq!(error.expect("an error").to_string(), expect)
    };
    check(m.u32("i32").err(), "key `i32`: expected integer 0..2^32, found i32 -3");
    check(m.u64("bool").err(), "key `bool`: expected integer 0..2^64, found bool true");
    check(m.f32("u8").err(), "key `u8`: expected f32, found u8 1");
    check(m.bool("u8").err(), "key `u8`: expected bool, found u8 1");
    check(m.str("tokens").err(), "key `tokens`: expected string (UTF-8), found array of 3 strings");
    check(
        m.strings("general.name").err(),
        "key `general.name`: expected array of strings, found string \"sample \u{1f600}\"",
    );
    check(
        m.strings("scores").err(),
        "key `scores`: expected array of strings, found array of 3 f32",
    );
    check(m.f32s("types").err(), "key `types`: expected array of f32, found element 0: i32 1");
    check(m.array_len("u8").err(), "key `u8`: expected array, found u8 1");
}

#[test]
fn bytes_that_come_later_make_the_same_file() {
    let dims: [(&str, &[u64]); 2] = [("a", &[3, 2]), ("b", &[5])];
    let (mut whole, mut later) = (Writer::new(), Writer::new());
    for (name, dims) in dims {
        let len = 4 * dims.iter().product::<u64>() as usize;
        whole.tensor(name, GgmlType::F32, dims, name.repeat(len));
        later.tensor_later(name, GgmlType::F32, dims);
    }
    let mut out = Vec::new();
    let piecewise = &mut |name: &str, out: &mut dyn Write| {
        (0..if name == "a" { 6 } else { 5 })
            .try_for_each(|_| out.write_all(&name.repeat(4).into_bytes()))
    };
    later.write_with(&mut out, piecewise).unwrap();
    assert_eq!(out, whole.to_bytes().unwrap());

    let short = later.write_with(&mut Vec::new(), &mut |_, out| out.write_all(&[0; 20]));
    let expect = "tensor `a`: 20 bytes are not those of F32 [3, 2]";
    assert_eq!(short.unwrap_err().to_string(), expect);
    assert!(later.to_bytes().is_err(), "nothing writes them");
    let mut odd = Writer::new();
    odd.tensor_later("t", GgmlType::Q4_0, &[33]);
    assert!(odd.to_bytes().is_err(), "no whole blocks");
}

#[test]
fn writer_refuses_what_cannot_be_read() {
    let check = |writer: &Writer, expect: &str| {
        assert_eq!(writer.to_bytes().unwrap_err().to_string(), expect)
    };
    check(Writer::new().version(1), "unsupported GGUF version 1 (supported: 2..3)");
    check(
        Writer::new().tensor("t", GgmlType::F32, &[3], [0; 8]),
        "tensor `t`: 8 bytes are not those of F32 [3]",
    );
    check(
        Writer::new().tensor("t", GgmlType::Q4_0, &[33], [0; 18]),
        "tensor `t`: 18 bytes are not those of Q4_0 [33]",
    );
    check(
        Writer::new().tensor("t", GgmlType::F32, &[], []),
        "tensor `t`: shape [], expected 1..4 dimensions, none zero",
    );
    check(
        Writer::new().set("general.alignment", 12_u32),
        "key `general.alignment`: expected u32, a power of two, found u32",
    );
    let mixed = OwnedValue::Array(ValueType::U8, vec![OwnedValue::U8(1), OwnedValue::Bool(true)]);
    check(Writer::new().set("k", mixed), "key `k`: expected u8, found element of type bool");
}
