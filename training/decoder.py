"""What the models have in common: norms, rotation, the cache, the frame of a decoder and greedy generation."""
from dataclasses import dataclass

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
    def rope_dims(self) -> int:
        """Elements of a head that rotate."""
        return self.head_dim

    @property
    def value_dim(self) -> int:
        return self.head_dim


def rope_table(config: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, [context_length, rope_dims / 2] f32 each."""
    half = config.rope_dims // 2
    frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(config.context_length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def swiglu(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = F.linear(x, gate_up).chunk(2, -1)
    return F.linear(F.silu(gate) * up, down)


class Cache:
    """Keys and values of a batch: per layer [n_rows, n_kv_heads, length, head_dim or value_dim]."""

    def __init__(self, config: Config, n_rows: int, length: int):
        shape = (config.n_layers, n_rows, config.n_kv_heads, length)
        self.keys, self.values = torch.zeros(*shape, config.head_dim), torch.zeros(*shape, config.value_dim)


@dataclass
class Place:
    """Where the tokens of a pass stand. cos, sin [rows, 1, n, rope_dims / 2]; positions [rows, n]."""

    positions: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    mask: torch.Tensor | None
    cache: Cache | None

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention of [rows, heads, n, dim] to what is cached and to these keys: [rows, n, n_heads * value_dim]."""
        if self.cache is not None:
            at = torch.arange(len(q))[:, None]
            self.cache.keys[layer][at, :, self.positions] = k.transpose(1, 2)
            self.cache.values[layer][at, :, self.positions] = v.transpose(1, 2)
            k, v = self.cache.keys[layer], self.cache.values[layer]
        group = q.shape[1] // k.shape[1]
        a = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                                           attn_mask=self.mask, is_causal=self.mask is None)
        return a.transpose(1, 2).flatten(2)


class Decoder(nn.Module):
    """Embedding, layers of attention and feed-forward, tied head. A kind of model gives `layers`, each with parameters
    `attn_norm` and `ffn_norm`, and the two methods; matrices are [outputs, inputs] or stacks of these."""

    RESIDUAL = ("attn_output", "ffn_down")  # the matrices that write to the residual

    def __init__(self, config: Config, layers):
        super().__init__()
        self.config = config
        self.token_embd = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(layers)
        self.output_norm = nn.Parameter(torch.ones(config.hidden_size))
        self.cos, self.sin = rope_table(config)
        self.auxiliary: torch.Tensor | float = 0.0  # what training adds to the mean loss of the last pass

    def attention(self, i: int, layer: nn.Module, h: torch.Tensor, place: Place) -> torch.Tensor:
        raise NotImplementedError

    def feed_forward(self, layer: nn.Module, h: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    @property
    def parts(self) -> dict[str, list[int]]:
        """Rows of the matrices that a parameter of a layer joins, for the optimizer."""
        return {}

    def initialize(self, seed: int):
        """Normal weights of variance 1 / inputs; zero for the matrices that write to the residual."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.token_embd.normal_(0, 0.02, generator=generator)
            for layer in self.layers:
                for name, w in layer.named_parameters():
                    if w.dim() > 1:
                        w.normal_(0, w.shape[-1] ** -0.5, generator=generator)
                    if name in self.RESIDUAL:
                        w.zero_()
        return self

    def forward(self, tokens: torch.Tensor, positions=None, mask=None, cache: Cache | None = None, last=None) -> torch.Tensor:
        """Logits [rows, n, vocab_size] of `tokens` [rows, n]. `positions` [rows, n] default to 0..n. Without a cache,
        `mask` [rows, 1, n, n] (True: seen) is causal by default; with one, keys and values are appended at `positions`
        and everything up to a position is seen. `last` [rows]: the logits of that index alone, [rows, vocab_size]."""
        c, (rows, n) = self.config, tokens.shape
        if positions is None:
            positions = torch.arange(n).expand(rows, n)
        if cache is not None:
            mask = torch.arange(cache.keys.shape[3]) <= positions[:, None, :, None]
        place = Place(positions, self.cos[positions][:, None], self.sin[positions][:, None], mask, cache)
        self.auxiliary = 0.0
        x = F.embedding(tokens, self.token_embd)
        for i, layer in enumerate(self.layers):
            x = x + self.attention(i, layer, rms_norm(x, layer.attn_norm, c.rms_norm_eps), place)
            x = x + self.feed_forward(layer, rms_norm(x, layer.ffn_norm, c.rms_norm_eps))
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
