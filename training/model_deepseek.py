"""DeepSeek-V2-Lite's architecture, small: multi-head latent attention, a dense layer, then mixtures of experts.

Source: arXiv:2405.04434, section 2. Queries come straight from the layer's input; keys and values of all heads from
one normed vector of `kv_lora_rank`, beside one rotated key for all heads. A token's experts are the best by softmax over
all, with these probabilities as weights, and a shared one is always used.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import decoder
from decoder import Decoder, rms_norm, swiglu


@dataclass(frozen=True)
class Config(decoder.Config):
    arch: str = "deepseek2"
    n_kv_heads: int = 4
    head_dim: int = 96  # nope_dim + rope_dims
    rope_theta: float = 1e4
    kv_lora_rank: int = 256
    nope_dim: int = 64
    value_dim: int = 64
    n_experts: int = 8
    n_experts_used: int = 2
    expert_size: int = 256
    n_shared_experts: int = 1
    n_dense_layers: int = 1
    balance: float = 0.01  # factor of the loss that keeps the use of experts even

    @property
    def rope_dims(self) -> int:
        return self.head_dim - self.nope_dim

    @property
    def shared_size(self) -> int:
        return self.n_shared_experts * self.expert_size


class Layer(nn.Module):
    def __init__(self, c: Config, dense: bool):
        super().__init__()
        def matrix(*shape):
            return nn.Parameter(torch.empty(shape))

        self.attn_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.attn_q = matrix(c.n_heads * c.head_dim, c.hidden_size)  # per head: nope_dim rows, then those that rotate
        self.attn_kv_a = matrix(c.kv_lora_rank + c.rope_dims, c.hidden_size)
        self.attn_kv_a_norm = nn.Parameter(torch.ones(c.kv_lora_rank))
        self.attn_kv_b = matrix(sum(kv_b_sizes(c)), c.kv_lora_rank)  # keys of all heads, then values
        self.attn_output = matrix(c.hidden_size, c.n_heads * c.value_dim)
        self.ffn_norm = nn.Parameter(torch.ones(c.hidden_size))
        self.dense = dense
        if dense:
            self.gate_up = matrix(2 * c.intermediate_size, c.hidden_size)
            self.ffn_down = matrix(c.hidden_size, c.intermediate_size)
        else:
            self.router = matrix(c.n_experts, c.hidden_size)
            self.experts_gate_up = matrix(c.n_experts, 2 * c.expert_size, c.hidden_size)
            self.experts_down = matrix(c.n_experts, c.hidden_size, c.expert_size)
            self.shared_gate_up = matrix(2 * c.shared_size, c.hidden_size)
            self.shared_down = matrix(c.hidden_size, c.shared_size)


def kv_b_sizes(c: Config) -> list[int]:
    """Rows of the key and value parts of `attn_kv_b`."""
    return [c.n_heads * c.nope_dim, c.n_heads * c.value_dim]


class DeepSeek2(Decoder):
    RESIDUAL = ("attn_output", "ffn_down", "experts_down", "shared_down")

    def __init__(self, config: Config = Config()):
        super().__init__(config, (Layer(config, i < config.n_dense_layers) for i in range(config.n_layers)))

    @property
    def parts(self) -> dict[str, list[int]]:
        c = self.config
        return {"attn_kv_a": [c.kv_lora_rank, c.rope_dims], "attn_kv_b": kv_b_sizes(c), "gate_up": [c.intermediate_size] * 2,
                "experts_gate_up": [c.expert_size] * 2, "shared_gate_up": [c.shared_size] * 2}

    def attention(self, i, layer, h, place):
        def rotate(x):  # neighbours are pairs
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * place.cos - b * place.sin, b * place.cos + a * place.sin), -1).flatten(-2)

        def heads(x):
            return x.unflatten(-1, (c.n_heads, -1)).transpose(1, 2)

        c = self.config
        q_nope, q_pe = heads(F.linear(h, layer.attn_q)).split([c.nope_dim, c.rope_dims], -1)
        latent, k_pe = F.linear(h, layer.attn_kv_a).split([c.kv_lora_rank, c.rope_dims], -1)
        latent = rms_norm(latent, layer.attn_kv_a_norm, c.rms_norm_eps)
        k_nope, v = map(heads, F.linear(latent, layer.attn_kv_b).split(kv_b_sizes(c), -1))
        q = torch.cat((q_nope, rotate(q_pe)), -1)
        k = torch.cat((k_nope, rotate(k_pe[:, None]).expand(-1, c.n_heads, -1, -1)), -1)
        return F.linear(place.attend(i, q, k, v), layer.attn_output)

    def feed_forward(self, layer, h):
        if layer.dense:
            return swiglu(h, layer.gate_up, layer.ffn_down)
        return self.experts(layer, h.flatten(0, -2)).view_as(h) + swiglu(h, layer.shared_gate_up, layer.shared_down)

    def experts(self, layer: Layer, h: torch.Tensor) -> torch.Tensor:
        """The weighted sum of the experts of each row of `h` [n, hidden_size]."""
        c = self.config
        probabilities = F.linear(h, layer.router).softmax(-1)
        weights, chosen = probabilities.topk(c.n_experts_used, -1)
        out = torch.zeros_like(h)
        for e, (gate_up, down) in enumerate(zip(layer.experts_gate_up.unbind(), layer.experts_down.unbind())):
            row, choice = (chosen == e).nonzero(as_tuple=True)
            if len(row):
                out.index_add_(0, row, (swiglu(h[row], gate_up, down) * weights[row, choice, None]).to(out.dtype))
        if torch.is_grad_enabled():
            # Equations 23 to 25: 1 where all experts are used alike, up to n_experts / n_experts_used.
            share = torch.bincount(chosen.flatten(), minlength=c.n_experts) / chosen.numel()
            self.auxiliary = self.auxiliary + c.balance * c.n_experts * (share * probabilities.mean(0)).sum()
        return out
