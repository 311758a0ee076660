#!/usr/bin/env python3
"""Loss and gradients of model.Qwen2 on a CPU with AVX512-BF16, about twice as fast as autograd.

Weights are kept in f32 and multiplied in bf16; the residual and all sums are f32. What is no product with a weight
stands in fused.cpp, compiled on first use. `Plain` is the same by autograd, for other machines. Run this file to
compare both and to measure them.
"""
import argparse
import ctypes
import hashlib
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F

from decoder import Config, Decoder
from model import Qwen2
from muon import multiplies_bf16

SOURCE = Path(__file__).with_name("fused.cpp")
MICRO = 2048  # tokens per forward and backward pass: what lies between stays in the cache
HEAD_ROWS = 1024  # rows of logits held at once


def available(model: Decoder) -> bool:
    """Whether Fused can train this model on this machine."""
    return isinstance(model, Qwen2) and multiplies_bf16()


def library() -> ctypes.CDLL:
    """fused.cpp, compiled for this machine. It shares PyTorch's OpenMP threads: a second pool would fight for cores."""
    openmp = next(iter((Path(torch.__file__).parent / "lib").glob("libgomp*")), None)
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    out = SOURCE.parent / "work" / f"fused-{name}.so"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        new = out.with_suffix(f".{os.getpid()}")
        command = [os.environ.get("CXX", "g++"), "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", str(SOURCE), "-o", str(new)]
        if openmp:
            command += ["-nodefaultlibs", str(openmp), "-lstdc++", "-lm", "-lgcc_s", "-lgcc", "-lpthread", "-lc"]
        subprocess.run(command, check=True)
        new.rename(out)
    return ctypes.CDLL(str(out))


def pointer(x: torch.Tensor | None) -> ctypes.c_void_p:
    assert x is None or x.is_contiguous()
    return ctypes.c_void_p(0 if x is None else x.data_ptr())


class Fused:
    """Adds the gradients of batches to the `grad` of a model's parameters.

    Parts of a batch are shared out to workers of one thread each, as they get free: where other programs want the
    machine too, nobody waits for a core within a product.
    """

    def __init__(self, model: Qwen2, n_workers: int):
        self.c, self.lib, self.model = model.config, library(), model
        c = self.c
        assert c.head_dim == 64 and c.hidden_size % 16 == 0 and c.intermediate_size % 16 == 0 and c.vocab_size % 16 == 0
        self.cos, self.sin = (t.contiguous() for t in (model.cos, model.sin))
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        # The first worker's gradients are the model's own.
        self.grads = [{name: p.grad if i == 0 else torch.zeros_like(p) for name, p in model.named_parameters()} for i in range(n_workers)]
        self.pool = ThreadPoolExecutor(n_workers, initializer=torch.set_num_threads, initargs=(1,))
        self.refresh()

    def refresh(self) -> None:
        """Takes over the parameters; call after each change of them."""
        self.half = {name: p.detach().bfloat16() for name, p in self.model.named_parameters() if p.dim() == 2 or "bias" in name}

    def accumulate(self, tokens, targets, weights, start, total_weight: float) -> float:
        """The gradients of sum(weights * loss) / total_weight are added. All [rows, length]: int32 tokens, targets and
        start (of each position's document in its row), f32 weights. Returns sum(weights * loss)."""
        rows = max(1, MICRO // tokens.shape[1])
        parts = queue.SimpleQueue()
        for part in zip(*(x.split(rows) for x in (tokens, targets, weights, start))):
            parts.put(part)

        def work(grads):
            loss = 0.0
            while True:
                try:
                    part = parts.get_nowait()
                except queue.Empty:
                    return loss
                loss += self._accumulate(grads, *part, total_weight)

        loss = sum(self.pool.map(work, self.grads))
        for name, grad in self.grads[0].items():
            for other in self.grads[1:]:
                grad += other[name]
                other[name].zero_()
        return loss

    def _norm(self, x, y, weight):
        total, h = torch.empty_like(x) if y is not None else x, torch.empty(x.shape, dtype=torch.bfloat16)
        scale = torch.empty(len(x))
        self.lib.add_norm(pointer(x), pointer(y), pointer(weight.detach()), pointer(total), pointer(h), pointer(scale),
                          ctypes.c_long(len(x)), self.c.hidden_size, ctypes.c_float(self.c.rms_norm_eps))
        return total, h, scale

    def _norm_backward(self, dh, x, scale, weight, dweight, dx, fresh=False):
        dy = torch.empty(x.shape, dtype=torch.bfloat16)
        self.lib.add_norm_backward(pointer(dh), pointer(x), pointer(scale), pointer(weight.detach()), pointer(dx), pointer(dy),
                                   pointer(dweight), ctypes.c_long(len(x)), self.c.hidden_size, int(fresh))
        return dy

    @torch.no_grad()
    def _accumulate(self, grads, tokens, targets, weights, start, total_weight: float) -> float:
        c, lib, half = self.c, self.lib, self.half
        rows, length = tokens.shape
        assert length % 64 == 0 and length <= 1024
        n, dims = rows * length, (rows, length, c.n_heads, c.n_kv_heads)
        x, saved, y = F.embedding(tokens.view(-1), self.model.token_embd.detach()), [], None
        for i, layer in enumerate(self.model.layers):
            w = {k: half[f"layers.{i}.{k}"] for k in ("qkv", "qkv_bias", "attn_output", "gate_up", "ffn_down")}
            x1, h1, r1 = self._norm(x, y, layer.attn_norm)
            qkv = F.linear(h1, w["qkv"], w["qkv_bias"])
            a, lse = torch.empty(n, c.n_heads * 64, dtype=torch.bfloat16), torch.empty(rows * c.n_heads * length)
            lib.attention(pointer(qkv), pointer(start), pointer(self.cos), pointer(self.sin), pointer(a), pointer(lse), *dims)
            x2, h2, r2 = self._norm(x1, F.linear(a, w["attn_output"]), layer.ffn_norm)
            gate_up = F.linear(h2, w["gate_up"])
            g = torch.empty(n, c.intermediate_size, dtype=torch.bfloat16)
            lib.swiglu(pointer(gate_up), pointer(g), ctypes.c_long(n), c.intermediate_size)
            x, y = x2, F.linear(g, w["ffn_down"])
            saved.append((i, layer, w, x1, h1, r1, qkv, a, lse, x2, h2, r2, gate_up, g))
        x, h, r = self._norm(x, y, self.model.output_norm)

        loss, dh = self._head(h, targets.view(-1), weights.view(-1), total_weight, grads["token_embd"])
        dx = torch.empty_like(x)
        dy = self._norm_backward(dh, x, r, self.model.output_norm, grads["output_norm"], dx, fresh=True)
        while saved:
            i, layer, w, x1, h1, r1, qkv, a, lse, x2, h2, r2, gate_up, g = saved.pop()
            into = {k: grads[f"layers.{i}.{k}"] for k, _ in layer.named_parameters()}
            into["ffn_down"] += dy.t() @ g
            dg = dy @ w["ffn_down"]
            lib.swiglu_backward(pointer(gate_up), pointer(dg), ctypes.c_long(n), c.intermediate_size)
            into["gate_up"] += gate_up.t() @ h2
            dy = self._norm_backward(gate_up @ w["gate_up"], x2, r2, layer.ffn_norm, into["ffn_norm"], dx)
            into["attn_output"] += dy.t() @ a
            da, dqkv = dy @ w["attn_output"], torch.empty_like(qkv)
            lib.attention_backward(pointer(qkv), pointer(a), pointer(da), pointer(lse), pointer(start), pointer(self.cos),
                                   pointer(self.sin), pointer(dqkv), *dims)
            into["qkv"] += dqkv.t() @ h1
            into["qkv_bias"] += dqkv.sum(0, dtype=torch.float32)
            dy = self._norm_backward(dqkv @ w["qkv"], x1, r1, layer.attn_norm, into["attn_norm"], dx)
        grads["token_embd"].index_add_(0, tokens.view(-1), dx)
        return loss

    def _head(self, h, targets, weights, total_weight, grad):
        """Sum of the weighted loss, and the gradient of `h`. Rows of weight 0 take no part."""
        embd = self.half["token_embd"]
        dh, total = torch.zeros_like(h), 0.0
        kept = weights.nonzero().view(-1)
        everything = len(kept) == len(h)
        for at in kept.split(HEAD_ROWS):
            some = h[at[0] : at[-1] + 1] if everything else h[at]
            logits = some @ embd.t()
            loss, target, weight = torch.empty(len(at)), targets[at], weights[at]
            share = weight / total_weight
            self.lib.cross_entropy(pointer(logits), pointer(target), pointer(share), pointer(loss),
                                   ctypes.c_long(len(at)), self.c.vocab_size)
            total += float(loss @ weight)
            dh[at] = logits @ embd
            grad += logits.t() @ some
        return total, dh


class Plain:
    """What Fused does, by autograd in f32, for any model; adds its auxiliary loss."""

    def __init__(self, model: Decoder, n_threads: int):
        self.model = model
        torch.set_num_threads(n_threads)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)

    def refresh(self) -> None:
        pass

    def accumulate(self, tokens, targets, weights, start, total_weight: float) -> float:
        rows, loss = max(1, MICRO // tokens.shape[1]), 0.0
        for part in zip(*(x.split(rows) for x in (tokens, targets, weights, start))):
            loss += self._accumulate(*part, total_weight, len(part[0]) / len(tokens))
        return loss

    def _accumulate(self, tokens, targets, weights, start, total_weight: float, share: float) -> float:
        at = torch.arange(tokens.shape[1])
        seen = (at[None, None, :] >= start[:, :, None]) & (at[None, :] <= at[:, None])
        logits = self.model(tokens.long(), mask=seen[:, None])
        loss = (F.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), reduction="none") * weights.flatten()).sum()
        (loss / total_weight + share * self.model.auxiliary).backward()
        return float(loss.detach())


def sample_batch(rows: int, length: int, vocab_size: int):
    tokens = torch.randint(vocab_size, (rows, length), dtype=torch.int32)
    targets = torch.randint(vocab_size, (rows, length), dtype=torch.int32)
    start = torch.zeros(rows, length, dtype=torch.int32)
    for row in start:
        for cut in sorted(torch.randint(length, (2,)).tolist()):
            row[cut:] = cut
    return tokens, targets, torch.randint(0, 3, (rows, length)) / 2.0, start


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the fused step with autograd, and measure both.")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-plain", action="store_true", help="measure the fused step alone")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    models = [Qwen2(Config()).initialize(1) for _ in range(2)]
    if not available(models[0]):
        sys.exit("this CPU has no AVX512-BF16")
    for model in models:
        with torch.no_grad():
            for layer in model.layers:
                layer.qkv_bias.copy_(torch.linspace(-0.5, 0.5, len(layer.qkv_bias)))
                layer.attn_output.normal_(0, 0.05)
                layer.ffn_down.normal_(0, 0.05)
    models[1].load_state_dict(models[0].state_dict())
    batch = sample_batch(args.rows, args.length, models[0].config.vocab_size)
    steps = [Fused(models[0], args.threads)] + ([] if args.no_plain else [Plain(models[1], args.threads)])
    losses = [step.accumulate(*batch, 1000.0) for step in steps]
    if not args.no_plain:
        print("loss", losses)
        for (name, a), (_, b) in zip(models[0].named_parameters(), models[1].named_parameters()):
            print(f"{name:24} relative error of the gradient {float((a.grad - b.grad).norm() / b.grad.norm()):.4f}")
    for step in steps:
        first, n = time.time(), 0
        while time.time() - first < 5:
            step.accumulate(*batch, 1000.0)
            n += 1
        print(f"{type(step).__name__}: {n * args.rows * args.length / (time.time() - first):.0f} tokens/s")


if __name__ == "__main__":
    main()
