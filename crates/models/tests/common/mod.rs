//! A small model file to be spoilt.

use gguf::{Gguf, OwnedValue, Writer};
use models::LoadedModel;
use quant::GgmlType;

const HEADS: &[(&str, &[u64])] = &[
    ("attn_norm.weight", &[64]),
    ("attn_q.weight", &[64, 64]),
    ("attn_k.weight", &[64, 32]),
    ("attn_v.weight", &[64, 32]),
    ("attn_output.weight", &[64, 64]),
    ("ffn_norm.weight", &[64]),
];
const LATENT: &[(&str, &[u64])] = &[
    ("attn_norm.weight", &[64]),
    ("attn_q.weight", &[64, 64]),
    ("attn_kv_a_mqa.weight", &[64, 36]),
    ("attn_kv_a_norm.weight", &[32]),
    ("attn_k_b.weight", &[12, 32, 4]),
    ("attn_v_b.weight", &[32, 8, 4]),
    ("attn_output.weight", &[32, 64]),
    ("ffn_norm.weight", &[64]),
];
const SANDWICH: &[(&str, &[u64])] =
    &[("post_attention_norm.weight", &[64]), ("post_ffw_norm.weight", &[64])];
const DENSE: &[(&str, &[u64])] =
    &[("ffn_gate.weight", &[64, 96]), ("ffn_up.weight", &[64, 96]), ("ffn_down.weight", &[96, 64])];
const EXPERTS: &[(&str, &[u64])] = &[
    ("ffn_gate_inp.weight", &[64, 8]),
    ("ffn_gate_exps.weight", &[64, 24, 8]),
    ("ffn_up_exps.weight", &[64, 24, 8]),
    ("ffn_down_exps.weight", &[24, 64, 8]),
];
const SHARED: &[(&str, &[u64])] = &[
    ("ffn_gate_shexp.weight", &[64, 48]),
    ("ffn_up_shexp.weight", &[64, 48]),
    ("ffn_down_shexp.weight", &[48, 64]),
];

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
        let latent = architecture == "deepseek2";
        if latent {
            file.latent_keys();
        }
        let experts = latent || architecture.ends_with("moe");
        if experts {
            file.expert_keys(architecture);
        }
        for i in 0..2 {
            file.tensors_of(i, if latent { LATENT } else { HEADS });
            let own: &[(&str, &[u64])] = match architecture {
                "qwen2" | "qwen2moe" => {
                    &[("attn_q.bias", &[64]), ("attn_k.bias", &[32]), ("attn_v.bias", &[32])]
                }
                "qwen3" | "qwen3moe" => {
                    &[("attn_q_norm.weight", &[16]), ("attn_k_norm.weight", &[16])]
                }
                "gemma2" => SANDWICH,
                "gemma3" => &[
                    ("attn_q_norm.weight", &[16]),
                    ("attn_k_norm.weight", &[16]),
                    ("post_attention_norm.weight", &[64]),
                    ("post_ffw_norm.weight", &[64]),
                ],
                _ => &[],
            };
            file.tensors_of(i, own);
            // The first layer of DeepSeek is dense.
            file.tensors_of(i, if experts && !(latent && i == 0) { EXPERTS } else { DENSE });
            if architecture == "qwen2moe" {
                file.tensors_of(i, &[("ffn_gate_inp_shexp.weight", &[64])]);
            }
            if architecture == "qwen2moe" || (latent && i == 1) {
                file.tensors_of(i, SHARED);
            }
        }
        file
    }

    /// Keys of 12 + 4, values of 8, latents of 32; queries straight from the layer's input.
    fn latent_keys(&mut self) {
        for (key, value) in [
            ("attention.head_count_kv", 1u32),
            ("attention.kv_lora_rank", 32),
            ("attention.key_length", 36),
            ("attention.value_length", 32),
            ("attention.key_length_mla", 16),
            ("attention.value_length_mla", 8),
            ("rope.dimension_count", 4),
        ] {
            self.set(&format!("deepseek2.{key}"), value);
        }
    }

    /// 8 experts of 24, of which 2 are used; DeepSeek: one dense layer, 2 shared experts.
    fn expert_keys(&mut self, architecture: &str) {
        let own: &[(&str, u32)] = match architecture {
            "deepseek2" => &[("leading_dense_block_count", 1), ("expert_shared_count", 2)],
            "qwen2moe" => &[("expert_shared_feed_forward_length", 48)],
            _ => &[],
        };
        let all =
            [("expert_count", 8), ("expert_used_count", 2), ("expert_feed_forward_length", 24)];
        for (key, value) in all.iter().chain(own) {
            self.set(&format!("{architecture}.{key}"), *value);
        }
    }

    fn tensors_of(&mut self, layer: usize, tensors: &[(&str, &[u64])]) {
        tensors.iter().for_each(|(name, dims)| self.tensor(&format!("blk.{layer}.{name}"), dims));
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
