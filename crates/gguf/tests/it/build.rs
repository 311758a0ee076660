//! Files made by hand, byte by byte, so that they can be wrong in any way.

use gguf::{GgmlType, Gguf, OwnedValue, Writer};

/// Bytes of a GGUF file under construction.
#[derive(Clone)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    pub(crate) fn new(version: u32, n_tensors: u64, n_pairs: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(version).u64(n_tensors).u64(n_pairs)
    }

    /// A version 3 file with one pair: this key, then what follows.
    pub(crate) fn pair(key: &[u8], ty: u32) -> Raw {
        Raw::new(3, 0, 1).string(key).u32(ty)
    }

    /// A version 3 file with one tensor entry and no data.
    pub(crate) fn entry(name: &[u8], dims: &[u64], ty: u32, offset: u64) -> Raw {
        Raw::new(3, 1, 0).tensor(name, dims, ty, offset)
    }

    pub(crate) fn tensor(self, name: &[u8], dims: &[u64], ty: u32, offset: u64) -> Raw {
        let raw = self.string(name).u32(dims.len() as u32);
        dims.iter().fold(raw, |raw, &d| raw.u64(d)).u32(ty).u64(offset)
    }

    pub(crate) fn u32(self, x: u32) -> Raw {
        self.bytes(&x.to_le_bytes())
    }

    pub(crate) fn u64(self, x: u64) -> Raw {
        self.bytes(&x.to_le_bytes())
    }

    pub(crate) fn string(self, text: &[u8]) -> Raw {
        self.u64(text.len() as u64).bytes(text)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn zeros(self, n: usize) -> Raw {
        self.bytes(&vec![0; n])
    }

    /// Zeros up to a multiple of the default alignment.
    pub(crate) fn pad(mut self) -> Raw {
        self.0.resize(self.0.len().next_multiple_of(32), 0);
        self
    }
}

/// A small file with every type of value and tensors of several types; its last tensor ends at the file's end.
pub(crate) fn sample() -> Writer {
    let mut w = Writer::new();
    w.set("general.architecture", "qwen2")
        .set("general.name", "sample \u{1f600}")
        .set("general.alignment", 32_u32);
    w.set("u8", 1_u8).set("i8", -1_i8).set("u16", 2_u16).set("i16", -2_i16).set("i32", -3_i32);
    w.set("u64", 4_u64)
        .set("i64", -4_i64)
        .set("f32", 0.5_f32)
        .set("f64", 0.25_f64)
        .set("bool", true);
    w.set("tokens", ["a", "", "\u{120}bc"])
        .set("scores", [0.0_f32, -1.0, -2.0])
        .set("types", [1_i32, 2, 3]);
    w.set("flags", [true, false]).set("empty", Vec::<u32>::new());
    let inner = |items: [u16; 2]| OwnedValue::from(items);
    w.set("nested", OwnedValue::Array(gguf::ValueType::Array, vec![inner([1, 2]), inner([3, 4])]));
    w.tensor("token_embd.weight", GgmlType::Q4_0, &[32, 3], (0..54).collect::<Vec<u8>>());
    w.tensor("output_norm.weight", GgmlType::F32, &[32], vec![7; 128]);
    w.tensor("rope_freqs.weight", GgmlType::F16, &[4, 2, 2, 2], vec![9; 64]);
    w
}

/// Uses everything a model offers; returns something that depends on all of it.
pub(crate) fn exercise(gguf: &Gguf) -> u64 {
    let mut sum = gguf.file_bytes() + u64::from(gguf.version());
    for (key, value) in gguf.metadata().iter() {
        let copy = OwnedValue::from(value);
        assert_eq!(gguf.metadata().get(key).map(|v| v.ty()), Some(copy.ty()));
        sum += value.to_string().len() as u64
            + gguf.metadata().f32s(key).map_or(0, |v| v.map_or(0, |v| v.len() as u64));
        let strings = gguf.metadata().strings(key).ok().flatten();
        sum += strings.map_or(0, |s| s.map(|s| s.len() as u64).sum());
    }
    for tensor in gguf.tensors() {
        assert!(gguf.tensor(&tensor.name).is_some());
        assert_eq!(tensor.cols() * tensor.rows(), tensor.elements());
        let bytes = gguf.bytes(tensor).expect("its bytes are in the file");
        if let Ok(ty) = tensor.ty() {
            assert_eq!(
                bytes.len() as u64 * ty.block_len() as u64,
                tensor.elements() * ty.block_bytes() as u64
            );
        }
        sum += bytes.iter().map(|&b| u64::from(b)).sum::<u64>();
    }
    sum
}

/// The message of the error this file gives, after the checks every message must pass.
pub(crate) fn error(bytes: Vec<u8>) -> String {
    match Gguf::from_bytes(bytes) {
        Ok(gguf) => format!("loaded: {gguf:?}"),
        Err(error) => {
            let text = error.to_string();
            assert!(text.chars().count() <= 400, "{} characters: {text}", text.chars().count());
            assert!(!text.chars().any(char::is_control), "control characters: {text:?}");
            text
        }
    }
}
