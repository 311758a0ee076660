#!/usr/bin/env python3
"""Write a checkpoint as GGUF files: F16 and Q8_0 (norms, biases and routers stay f32), with tokenizer and chat template."""
import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf

import tokenizer as tokens
from decoder import Decoder
from model import load, qkv_sizes
from model_deepseek import kv_b_sizes

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DESCRIPTION = (
    "A very small English and Chinese chat model{kind}, trained from nothing on a procedural corpus by the scripts in training/ of Rooflight. "
    "It knows small talk, copying, counting, one-step sums and finding what its context says; it is for trying and measuring."
)
TYPES = {"f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
FILE_TYPES = {"f16": gguf.LlamaFileType.MOSTLY_F16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}


def swiglu(suffix: str, gate_up, down):
    """Of matrices, or of stacks of these."""
    gate, up = gate_up.chunk(2, -2)
    yield f"ffn_gate{suffix}.weight", gate
    yield f"ffn_up{suffix}.weight", up
    yield f"ffn_down{suffix}.weight", down


def qwen2_layer(layer, c):
    for letter, weight, bias in zip("qkv", layer.qkv.split(qkv_sizes(c)), layer.qkv_bias.split(qkv_sizes(c))):
        yield f"attn_{letter}.weight", weight
        yield f"attn_{letter}.bias", bias
    yield "attn_output.weight", layer.attn_output
    yield "ffn_norm.weight", layer.ffn_norm
    yield from swiglu("", layer.gate_up, layer.ffn_down)


def deepseek2_layer(layer, c):
    yield "attn_q.weight", layer.attn_q
    yield "attn_kv_a_mqa.weight", layer.attn_kv_a
    yield "attn_kv_a_norm.weight", layer.attn_kv_a_norm
    k_b, v_b = (w.unflatten(0, (c.n_heads, -1)) for w in layer.attn_kv_b.split(kv_b_sizes(c)))
    yield "attn_k_b.weight", k_b.mT  # [n_heads, kv_lora_rank, nope_dim]: it multiplies queries
    yield "attn_v_b.weight", v_b
    yield "attn_output.weight", layer.attn_output
    yield "ffn_norm.weight", layer.ffn_norm
    if layer.dense:
        return (yield from swiglu("", layer.gate_up, layer.ffn_down))
    yield "ffn_gate_inp.weight", layer.router
    yield from swiglu("_exps", layer.experts_gate_up, layer.experts_down)
    yield from swiglu("_shexp", layer.shared_gate_up, layer.shared_down)


def tensors(model: Decoder):
    """GGUF name and f32 array of each tensor."""
    def array(x):
        return x.detach().float().contiguous().numpy()

    yield "token_embd.weight", array(model.token_embd)
    for i, layer in enumerate(model.layers):
        yield f"blk.{i}.attn_norm.weight", array(layer.attn_norm)
        for name, x in ARCHITECTURES[model.config.arch].layer(layer, model.config):
            yield f"blk.{i}.{name}", array(x)
    yield "output_norm.weight", array(model.output_norm)


def qwen2_shape(writer: gguf.GGUFWriter, c) -> None:
    writer.add_head_count_kv(c.n_kv_heads)


def deepseek2_shape(writer: gguf.GGUFWriter, c) -> None:
    writer.add_head_count_kv(1)
    writer.add_key_length(c.kv_lora_rank + c.rope_dims)
    writer.add_value_length(c.kv_lora_rank)
    writer.add_key_length_mla(c.head_dim)
    writer.add_value_length_mla(c.value_dim)
    writer.add_kv_lora_rank(c.kv_lora_rank)
    writer.add_rope_dimension_count(c.rope_dims)
    writer.add_leading_dense_block_count(c.n_dense_layers)
    writer.add_expert_count(c.n_experts)
    writer.add_expert_used_count(c.n_experts_used)
    writer.add_expert_shared_count(c.n_shared_experts)
    writer.add_expert_feed_forward_length(c.expert_size)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_weights_norm(False)


@dataclass(frozen=True)
class Architecture:
    """How its models are called and written."""

    file: str  # name of the files, without type
    name: str
    size: str
    kind: str  # for the description
    layer: Callable
    shape: Callable


ARCHITECTURES = {
    "qwen2": Architecture("rooflight-demo-5m", "Rooflight demo 5M", "5M", "", qwen2_layer, qwen2_shape),
    "deepseek2": Architecture("rooflight-demo-moe", "Rooflight demo MoE", "8x5.6M", " with latent attention and experts",
                              deepseek2_layer, deepseek2_shape),
}


def write_vocabulary(writer: gguf.GGUFWriter, words) -> None:
    content = json.loads(words.to_str())
    names = [None] * words.get_vocab_size()
    types = [gguf.TokenType.NORMAL] * len(names)
    for name, token in content["model"]["vocab"].items():
        names[token] = name
    for added in content["added_tokens"]:
        names[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.UNUSED
    merges = [" ".join(m) if isinstance(m, list) else m for m in content["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    end, im_end = (words.token_to_id(t) for t in (tokens.END, tokens.IM_END))
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(im_end)
    writer.add_eot_token_id(im_end)
    writer.add_pad_token_id(end)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write(path: Path, kind: str, model: Decoder, words, checkpoint: dict) -> None:
    c = model.config
    this = ARCHITECTURES[c.arch]
    writer = gguf.GGUFWriter(path, c.arch)
    n = sum(p.numel() for p in model.parameters())
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(this.name)
    writer.add_basename("Rooflight-demo")
    writer.add_size_label(this.size)
    writer.add_author("Rooflight")
    writer.add_organization("Rooflight")
    writer.add_version("1")
    writer.add_license("MIT OR Apache-2.0")
    writer.add_description(DESCRIPTION.format(kind=this.kind))
    writer.add_tags(["text-generation", "chat", "demo"])
    writer.add_languages(["en", "zh"])
    writer.add_array("general.datasets", ["procedural corpus of training/corpus, no downloaded text"])
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_float32("general.sampling.temp", 0.4)  # a small model is sure of little: what it is sure of is right
    for key in ("seed", "step", "tokens"):
        writer.add_uint64(f"rooflight.training.{key}", int(checkpoint[key]))
    writer.add_uint64("rooflight.training.parameters", n)
    writer.add_block_count(c.n_layers)
    writer.add_context_length(c.context_length)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.n_heads)
    this.shape(writer, c)
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_vocab_size(c.vocab_size)
    write_vocabulary(writer, words)
    for name, x in tensors(model):
        ty = gguf.GGMLQuantizationType.F32 if x.ndim == 1 or "ffn_gate_inp" in name else TYPES[kind]
        writer.add_tensor(name, gguf.quants.quantize(x, ty) if ty != gguf.GGMLQuantizationType.F32 else x, raw_dtype=ty)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", nargs="?", type=Path, help="work/model.pt by default")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work", help="folder of tokenizer.json")
    parser.add_argument("--out", type=Path, help="folder of the files; the work folder by default")
    parser.add_argument("--types", nargs="+", default=sorted(TYPES), choices=sorted(TYPES))
    parser.add_argument("--name", help="of the files, without type; by default that of the architecture")
    args = parser.parse_args()
    model, checkpoint = load(args.checkpoint or args.work / "model.pt")
    out = args.out or args.work
    out.mkdir(parents=True, exist_ok=True)
    for kind in args.types:
        write(out / f"{args.name or ARCHITECTURES[model.config.arch].file}-{kind}.gguf", kind, model, tokens.load(args.work), checkpoint)


if __name__ == "__main__":
    main()
