#!/usr/bin/env python3
"""The models in plain PyTorch: the reference for fused.py and the export, and what the evaluations run.

Qwen2 is here: grouped-query attention with QKV bias and half-split RoPE, SwiGLU. Query, key and value projections are
one matrix, gate and up another, as training multiplies them. Other architectures have their own files.
"""
import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import model_deepseek
from decoder import Config, Decoder, swiglu


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.attn_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.qkv = nn.Parameter(torch.empty(sum(qkv_sizes(c)), c.hidden_size))
        self.qkv_bias = nn.Parameter(torch.zeros(sum(qkv_sizes(c))))
        self.attn_output = nn.Parameter(torch.empty(c.hidden_size, c.n_heads * c.head_dim))
        self.ffn_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.gate_up = nn.Parameter(torch.empty(2 * c.intermediate_size, c.hidden_size))
        self.ffn_down = nn.Parameter(torch.empty(c.hidden_size, c.intermediate_size))


def qkv_sizes(c: Config) -> list[int]:
    """Rows of the query, key and value parts of `qkv`."""
    return [c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim, c.n_kv_heads * c.head_dim]


class Qwen2(Decoder):
    def __init__(self, config: Config = Config()):
        super().__init__(config, (Layer(config) for _ in range(config.n_layers)))

    @property
    def parts(self) -> dict[str, list[int]]:
        return {"qkv": qkv_sizes(self.config), "gate_up": [self.config.intermediate_size] * 2}

    def attention(self, i, layer, h, place):
        def rotate(x):
            a, b = x.chunk(2, -1)
            return torch.cat((a * place.cos - b * place.sin, b * place.cos + a * place.sin), -1)

        c, (rows, n) = self.config, h.shape[:2]
        parts = F.linear(h, layer.qkv, layer.qkv_bias).split(qkv_sizes(c), -1)
        q, k, v = (p.view(rows, n, -1, c.head_dim).transpose(1, 2) for p in parts)
        return F.linear(place.attend(i, rotate(q), rotate(k), v), layer.attn_output)

    def feed_forward(self, layer, h):
        return swiglu(h, layer.gate_up, layer.ffn_down)


ARCHITECTURES = {"qwen2": (Config, Qwen2), "deepseek2": (model_deepseek.Config, model_deepseek.DeepSeek2)}


def build(arch: str, **config) -> Decoder:
    """A model without weights; what `config` does not say is as the architecture has it."""
    make_config, make_model = ARCHITECTURES[arch]
    return make_model(make_config(arch=arch, **config))


def load(path: Path | str) -> tuple[Decoder, dict]:
    """The model of a checkpoint, and the checkpoint."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    model = build(**checkpoint["config"])
    model.load_state_dict(checkpoint["model"])
    return model.eval().requires_grad_(False), checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the shape of the model, or of a checkpoint's.")
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument("--arch", default="qwen2", choices=sorted(ARCHITECTURES))
    args = parser.parse_args()
    model = load(args.checkpoint)[0] if args.checkpoint else build(args.arch)
    print(json.dumps(asdict(model.config), indent=2))
    for name, p in model.named_parameters():
        print(f"{name:28} {list(p.shape)}")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
