#!/usr/bin/env python3
"""The model in plain PyTorch: the reference for fused.py and the export, and what the evaluations run.

Qwen2: RMSNorm, grouped-query attention with QKV bias and half-split RoPE, SwiGLU, tied head. Query, key and value
projections are one matrix, gate and up another, as training multiplies them.
"""
import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    """The shape of a model; `arch` is GGUF's `general.architecture`."""

    arch: str = "qwen2"
    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 512
    n_layers: int = 6
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 64
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    context_length: int = 1024

    @property
    def qkv_sizes(self) -> list[int]:
        """Rows of the query, key and value parts of `qkv`."""
        return [self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim, self.n_kv_heads * self.head_dim]


def rope_table(config: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, [context_length, head_dim / 2] f32 each."""
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(config.context_length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.attn_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.qkv = nn.Parameter(torch.empty(sum(c.qkv_sizes), c.hidden_size))
        self.qkv_bias = nn.Parameter(torch.zeros(sum(c.qkv_sizes)))
        self.attn_output = nn.Parameter(torch.empty(c.hidden_size, c.n_heads * c.head_dim))
        self.ffn_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.gate_up = nn.Parameter(torch.empty(2 * c.intermediate_size, c.hidden_size))
        self.ffn_down = nn.Parameter(torch.empty(c.hidden_size, c.intermediate_size))


class Cache:
    """Keys and values of a batch: per layer [n_rows, n_kv_heads, context_length, head_dim]."""

    def __init__(self, config: Config, n_rows: int, length: int):
        shape = (config.n_layers, n_rows, config.n_kv_heads, length, config.head_dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)


class Qwen2(nn.Module):
    def __init__(self, config: Config = Config()):
        super().__init__()
        self.config = config
        self.token_embd = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.output_norm = nn.Parameter(torch.ones(config.hidden_size))
        self.cos, self.sin = rope_table(config)

    def initialize(self, seed: int) -> "Qwen2":
        """Normal weights of variance 1 / inputs; zero for the matrices that write to the residual."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.token_embd.normal_(0, 0.02, generator=generator)
            for layer in self.layers:
                for w in (layer.qkv, layer.attn_output, layer.gate_up, layer.ffn_down):
                    w.normal_(0, w.shape[1] ** -0.5, generator=generator)
                for w in (layer.attn_output, layer.ffn_down):
                    w.zero_()
        return self

    def forward(self, tokens: torch.Tensor, positions=None, mask=None, cache: Cache | None = None, last=None) -> torch.Tensor:
        """Logits [rows, n, vocab_size] of `tokens` [rows, n]. `positions` [rows, n] default to 0..n. Without a cache,
        `mask` [rows, 1, n, n] (True: seen) is causal by default; with one, keys and values are appended at `positions`
        and everything up to a position is seen. `last` [rows]: the logits of that index alone, [rows, vocab_size]."""
        c, (rows, n) = self.config, tokens.shape
        if positions is None:
            positions = torch.arange(n).expand(rows, n)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]

        def rotate(x):
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        if cache is not None:
            at = torch.arange(rows)[:, None]
            mask = torch.arange(cache.keys.shape[3]) <= positions[:, None, :, None]
        x = F.embedding(tokens, self.token_embd)
        for i, layer in enumerate(self.layers):
            h = rms_norm(x, layer.attn_norm, c.rms_norm_eps)
            parts = F.linear(h, layer.qkv, layer.qkv_bias).split(c.qkv_sizes, -1)
            q, k, v = (p.view(rows, n, -1, c.head_dim).transpose(1, 2) for p in parts)
            q, k = rotate(q), rotate(k)
            if cache is not None:
                cache.keys[i][at, :, positions] = k.transpose(1, 2)
                cache.values[i][at, :, positions] = v.transpose(1, 2)
                k, v = cache.keys[i], cache.values[i]
            group = c.n_heads // c.n_kv_heads
            a = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                                               attn_mask=mask, is_causal=mask is None)
            x = x + F.linear(a.transpose(1, 2).reshape(rows, n, -1), layer.attn_output)
            h = rms_norm(x, layer.ffn_norm, c.rms_norm_eps)
            gate, up = F.linear(h, layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.ffn_down)
        if last is not None:
            x = x[torch.arange(rows), last]
        return F.linear(rms_norm(x, self.output_norm, c.rms_norm_eps), self.token_embd)

    @torch.no_grad()
    def generate(self, prompts: list[list[int]], stop: set[int], most: int) -> list[list[int]]:
        """The greedy continuation of each prompt, up to a token of `stop` (left out) or `most` tokens."""
        lengths = torch.tensor([len(p) for p in prompts])
        most = min(most, self.config.context_length - int(lengths.max()))
        cache = Cache(self.config, len(prompts), int(lengths.max()) + max(most, 0))
        padded = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.long)
        for row, prompt in zip(padded, prompts):
            row[: len(prompt)] = torch.tensor(prompt)
        token = self(padded, cache=cache, last=lengths - 1).argmax(-1)
        replies: list[list[int]] = [[] for _ in prompts]
        done = [False] * len(prompts)
        for step in range(most):
            for i, t in enumerate(token.tolist()):
                done[i] = done[i] or t in stop
                if not done[i]:
                    replies[i].append(t)
            if all(done) or step + 1 == most:
                break
            token = self(token[:, None], positions=(lengths + step)[:, None], cache=cache)[:, 0].argmax(-1)
        return replies


ARCHITECTURES = {"qwen2": Qwen2}


def build(config: Config) -> Qwen2:
    return ARCHITECTURES[config.arch](config)


def load(path: Path | str) -> tuple[Qwen2, dict]:
    """The model of a checkpoint, and the checkpoint."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    model = build(Config(**checkpoint["config"]))
    model.load_state_dict(checkpoint["model"])
    return model.eval().requires_grad_(False), checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the shape of the model, or of a checkpoint's.")
    parser.add_argument("checkpoint", nargs="?", type=Path)
    parser.add_argument("--arch", default="qwen2", choices=sorted(ARCHITECTURES))
    args = parser.parse_args()
    model = load(args.checkpoint)[0] if args.checkpoint else build(Config(arch=args.arch))
    print(json.dumps(asdict(model.config), indent=2))
    for name, p in model.named_parameters():
        print(f"{name:28} {list(p.shape)}")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
