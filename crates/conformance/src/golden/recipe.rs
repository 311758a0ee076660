//! Golden models as recipes: metadata, and names and shapes of tensors whose values follow from a seed.

use gguf::{OwnedValue, ValueType, Writer};
use quant::GgmlType;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::generator::Generator;
use super::values::Drawn;

/// Keys that all models have: 512 tokens.
const VOCABULARY: &str = include_str!("../../data/archs/vocabulary.json");

/// A model that can be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe<'a> {
    /// The model's name, which is part of every tensor's seed.
    pub(super) name: &'a str,
    /// `arch`; `kv`: `{key: [type, value]}`; `tensors`: `{name: [length, ..]}`, a type after the lengths if it is not F32;
    /// `emb`: the embedding's scale, if it is not the usual one.
    pub(super) model: &'a Value,
}

impl Recipe<'_> {
    /// The file's bytes.
    ///
    /// # Errors
    /// Which entry cannot be understood.
    pub(super) fn file(&self, seed: u64) -> Result<Vec<u8>, String> {
        let mut writer = Writer::new();
        let arch = self.model["arch"].as_str().ok_or("no `arch`")?;
        // llama.cpp tells some models by their names.
        let name = if arch == "phi3" { String::new() } else { format!("{}-", self.name) };
        writer.set("general.architecture", arch);
        writer.set("general.name", format!("{name}random-{seed}"));
        writer.set("general.file_type", 0_u32);
        let vocabulary: Value = serde_json::from_str(VOCABULARY).map_err(|e| e.to_string())?;
        for keys in [&self.model["kv"], &vocabulary] {
            for (key, value) in keys.as_object().ok_or("no keys")? {
                let value = value[0].as_str().and_then(|ty| metadata(ty, &value[1]));
                writer.set(key, value.ok_or_else(|| format!("key `{key}`"))?);
            }
        }
        let tensors = self.model["tensors"].as_object().ok_or("no `tensors`")?;
        for (key, shape) in tensors {
            let wrong = || format!("tensor `{key}`: {shape}");
            let shape = shape.as_array().ok_or_else(wrong)?;
            let dims: Vec<u64> = shape.iter().filter_map(Value::as_u64).collect();
            let ty = shape.iter().find_map(Value::as_str).unwrap_or("F32");
            let ty = GgmlType::from_name(ty).ok_or_else(wrong)?;
            let tied = !tensors.contains_key("output.weight");
            let embedding = self.model["emb"].as_f64();
            let drawn = Drawn { model: self.name, key, dims: &dims, seed, embedding, tied };
            writer.tensor(key, ty, &dims, encode(&drawn, ty).ok_or_else(wrong)?);
        }
        writer.to_bytes().map_err(|e| e.to_string())
    }
}

/// A metadata value of a type named as in the format's documents, `ARRAY:` before that of elements.
fn metadata(ty: &str, value: &Value) -> Option<OwnedValue> {
    if let Some(ty) = ty.strip_prefix("ARRAY:") {
        let items: Option<Vec<_>> =
            value.as_array()?.iter().map(|item| metadata(ty, item)).collect();
        let element = match ty {
            "STRING" => ValueType::String,
            "INT32" => ValueType::I32,
            "UINT32" => ValueType::U32,
            "UINT64" => ValueType::U64,
            "FLOAT32" => ValueType::F32,
            "BOOL" => ValueType::Bool,
            _ => return None,
        };
        return Some(OwnedValue::Array(element, items?));
    }
    Some(match ty {
        "STRING" => OwnedValue::String(value.as_str()?.into()),
        "UINT32" => OwnedValue::U32(value.as_u64()?.try_into().ok()?),
        "INT32" => OwnedValue::I32(value.as_i64()?.try_into().ok()?),
        "UINT64" => OwnedValue::U64(value.as_u64()?),
        "FLOAT32" => OwnedValue::F32(value.as_f64()? as f32),
        "BOOL" => OwnedValue::Bool(value.as_bool()?),
        _ => return None,
    })
}

/// A tensor's bytes.
fn encode(drawn: &Drawn<'_>, ty: GgmlType) -> Option<Vec<u8>> {
    match ty {
        GgmlType::F32 => Some(drawn.values().into_iter().flat_map(f32::to_le_bytes).collect()),
        // Experts of each token, none of them twice.
        GgmlType::I32 => {
            let mut generator = Generator::new(&[drawn.seed, 77]);
            let rows = (0..drawn.dims[1]).flat_map(|_| {
                let row = generator.permutation(8).into_iter().take(drawn.dims[0] as usize);
                row.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
            });
            Some(rows.collect())
        }
        _ => {
            let values = drawn.values();
            let row = usize::try_from(drawn.dims[0]).ok()?;
            let mut bytes = vec![0; ty.row_bytes(row)? * (values.len() / row)];
            quant::format(ty)?.quantize(&values, &mut bytes).then_some(bytes)
        }
    }
}

/// SHA-256 in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
