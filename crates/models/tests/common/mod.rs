//! A small model file to be spoilt.

use gguf::{Gguf, OwnedValue, Writer};
use models::LoadedModel;
use quant::GgmlType;

/// Keys and tensors of a GGUF that is not written yet.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) keys: Vec<(String, OwnedValue)>,
    pub(crate) tensors: Vec<(String, GgmlType, Vec<u64>)>,
}

impl File {
    /// A valid model: hidden 64, 2 layers, 4 heads of 16, 2 key-value heads, 320 tokens.
    pub(crate) fn new(architecture: &str) -> File {
        let mut file = File { keys: Vec::new(), tensors: Vec::new() };
        file.keys.push(("general.architecture".into(), architecture.into()));
        for (key, value) in [
            ("context_length", 512u32),
            ("block_count", 2),
            ("embedding_length", 64),
            ("feed_forward_length", 96),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
        ] {
            file.set(&format!("{architecture}.{key}"), value);
        }
        file.set(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-6f32);
        let tokens: Vec<String> = (0..320).map(|i| format!("t{i}")).collect();
        file.set("tokenizer.ggml.tokens", tokens.iter().map(String::as_str).collect::<Vec<_>>());
        file.tensor("token_embd.weight", &[64, 320]);
        file.tensor("output_norm.weight", &[64]);
        for i in 0..2 {
            for (name, dims) in [
                ("attn_norm.weight", &[64][..]),
                ("attn_q.weight", &[64, 64]),
                ("attn_k.weight", &[64, 32]),
                ("attn_v.weight", &[64, 32]),
                ("attn_output.weight", &[64, 64]),
                ("ffn_norm.weight", &[64]),
                ("ffn_gate.weight", &[64, 96]),
                ("ffn_up.weight", &[64, 96]),
                ("ffn_down.weight", &[96, 64]),
            ] {
                file.tensor(&format!("blk.{i}.{name}"), dims);
            }
            let own: &[(&str, u64)] = match architecture {
                "qwen2" => &[("attn_q.bias", 64), ("attn_k.bias", 32), ("attn_v.bias", 32)],
                "qwen3" => &[("attn_q_norm.weight", 16), ("attn_k_norm.weight", 16)],
                _ => &[],
            };
            own.iter().for_each(|(name, len)| file.tensor(&format!("blk.{i}.{name}"), &[*len]));
        }
        file
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<OwnedValue>) {
        self.keys.retain(|(k, _)| k != key);
        self.keys.push((key.into(), value.into()));
    }

    pub(crate) fn unset(&mut self, key: &str) {
        self.keys.retain(|(k, _)| k != key);
    }

    pub(crate) fn tensor(&mut self, name: &str, dims: &[u64]) {
        self.typed(name, GgmlType::F32, dims);
    }

    pub(crate) fn typed(&mut self, name: &str, ty: GgmlType, dims: &[u64]) {
        self.drop(name);
        self.tensors.push((name.into(), ty, dims.to_vec()));
    }

    pub(crate) fn drop(&mut self, name: &str) {
        self.tensors.retain(|(n, ..)| n != name);
    }

    pub(crate) fn open(&self) -> Gguf {
        let mut writer = Writer::new();
        for (key, value) in &self.keys {
            writer.set(key.clone(), value.clone());
        }
        for (name, ty, dims) in &self.tensors {
            let rows: u64 = dims[1..].iter().product();
            let row_bytes = ty.row_bytes(dims[0] as usize).expect("whole blocks");
            writer.tensor(name.clone(), *ty, dims, vec![0; row_bytes * rows as usize]);
        }
        Gguf::from_bytes(writer.to_bytes().expect("a valid file")).expect("a valid file")
    }

    pub(crate) fn load(&self) -> Result<LoadedModel, String> {
        models::load(&self.open()).map_err(|e| e.to_string())
    }
}
