#!/usr/bin/env python3
"""Write a checkpoint as GGUF files: F16 and Q8_0 (norms and biases stay f32), with tokenizer and chat template."""
import argparse
import json
from pathlib import Path

import gguf

import tokenizer as tokens
from model import Qwen2, load

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DESCRIPTION = (
    "A very small English and Chinese chat model, trained from nothing on a procedural corpus by training/make.sh of Rooflight. "
    "It knows small talk, copying, counting, one-step sums and finding what its context says; it is for trying and measuring."
)
TYPES = {"f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
FILE_TYPES = {"f16": gguf.LlamaFileType.MOSTLY_F16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}


def tensors(model: Qwen2):
    """GGUF name and f32 array of each tensor."""
    def array(x):
        return x.detach().float().contiguous().numpy()

    yield "token_embd.weight", array(model.token_embd)
    for i, layer in enumerate(model.layers):
        parts = zip("qkv", layer.qkv.split(model.config.qkv_sizes), layer.qkv_bias.split(model.config.qkv_sizes))
        yield f"blk.{i}.attn_norm.weight", array(layer.attn_norm)
        for letter, weight, bias in parts:
            yield f"blk.{i}.attn_{letter}.weight", array(weight)
            yield f"blk.{i}.attn_{letter}.bias", array(bias)
        yield f"blk.{i}.attn_output.weight", array(layer.attn_output)
        yield f"blk.{i}.ffn_norm.weight", array(layer.ffn_norm)
        gate, up = layer.gate_up.chunk(2)
        yield f"blk.{i}.ffn_gate.weight", array(gate)
        yield f"blk.{i}.ffn_up.weight", array(up)
        yield f"blk.{i}.ffn_down.weight", array(layer.ffn_down)
    yield "output_norm.weight", array(model.output_norm)


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


def write(path: Path, kind: str, model: Qwen2, words, checkpoint: dict) -> None:
    c = model.config
    writer = gguf.GGUFWriter(path, c.arch)
    n = sum(p.numel() for p in model.parameters())
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name("Rooflight demo 5M")
    writer.add_basename("Rooflight-demo")
    writer.add_size_label("5M")
    writer.add_author("Rooflight")
    writer.add_organization("Rooflight")
    writer.add_version("1")
    writer.add_license("MIT OR Apache-2.0")
    writer.add_description(DESCRIPTION)
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
    writer.add_head_count_kv(c.n_kv_heads)
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_vocab_size(c.vocab_size)
    write_vocabulary(writer, words)
    for name, x in tensors(model):
        ty = TYPES[kind] if x.ndim == 2 else gguf.GGMLQuantizationType.F32
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
    parser.add_argument("--name", default="rooflight-demo-5m")
    args = parser.parse_args()
    model, checkpoint = load(args.checkpoint or args.work / "model.pt")
    out = args.out or args.work
    out.mkdir(parents=True, exist_ok=True)
    for kind in args.types:
        write(out / f"{args.name}-{kind}.gguf", kind, model, tokens.load(args.work), checkpoint)


if __name__ == "__main__":
    main()
