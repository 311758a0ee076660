//! Agreement with the `gguf` Python package, from `data/fixtures.bin` (see `data/make_fixtures.py`).

use quant::{FORMATS, GgmlType, format};

static FIXTURES: &[u8] = include_bytes!("../data/fixtures.bin");

struct Record {
    ty: GgmlType,
    kind: u32,
    bytes: &'static [u8],
    floats: Vec<f32>,
}

fn records() -> Vec<Record> {
    let mut rest = FIXTURES;
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at_checked(n)?;
        rest = tail;
        Some(head)
    };
    let mut records = Vec::new();
    while let Some(header) = take(16) {
        let word =
            |i: usize| u32::from_le_bytes(header[4 * i..4 * i + 4].try_into().expect("four bytes"));
        let bytes = take(word(2) as usize).expect("bytes");
        let floats = take(4 * word(3) as usize).expect("floats");
        records.push(Record {
            ty: GgmlType::from_number(word(0)).expect("a known type"),
            kind: word(1),
            bytes,
            floats: floats
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes(b.try_into().expect("four bytes")))
                .collect(),
        });
    }
    records
}

#[test]
fn dequantized_weights_are_equal_to_the_bit() {
    for r in records().iter().filter(|r| r.kind == 0) {
        let mut got = vec![f32::NAN; r.floats.len()];
        // One byte off: blocks may lie at any address.
        let shifted = [&[0], r.bytes].concat();
        format(r.ty).unwrap().dequantize(&shifted[1..], &mut got);
        for (i, (got, want)) in got.iter().zip(&r.floats).enumerate() {
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{} weight {i}: {got} instead of {want}",
                r.ty
            );
        }
    }
}

#[test]
fn quantized_bytes_are_equal() {
    for r in records().iter().filter(|r| r.kind == 1) {
        let mut got = vec![0; r.bytes.len()];
        assert!(format(r.ty).unwrap().quantize(&r.floats, &mut got));
        for (b, (got, want)) in
            got.chunks(r.ty.block_bytes()).zip(r.bytes.chunks(r.ty.block_bytes())).enumerate()
        {
            assert_eq!(got, want, "{} block {b}", r.ty);
        }
    }
}

#[test]
fn every_format_has_a_record() {
    let records = records();
    for f in FORMATS {
        assert!(records.iter().any(|r| r.ty == f.ty() && r.kind == 0), "{} has no fixture", f.ty());
    }
}
