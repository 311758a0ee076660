#!/usr/bin/env python3
"""Write the golden cases of models that embed and rank texts: one JSON file for each, beside this script.

    pip install numpy
    make.py

A file is the recipe of a model (`arch`, `kv`, `tensors`, as in ../archs) and its `cases`: token ids, and what the model says
of that text, before it is normalized. Formulas are those of transformers' modeling files and of sentence-transformers'
modules, in double precision, on the random weights that the recipe stands for.
"""
import hashlib, json, math, pathlib
import numpy as np

HERE, SEED, VOCAB = pathlib.Path(__file__).resolve().parent, 0, 512
HIDDEN, HEADS, WIDTH, LAYERS = 64, 4, 96, 2
LENGTHS = (1, 7, 150)  # the last is longer than a block of a cache
NONE, MEAN, CLS, LAST, RANK = range(5)


def values(model, key, ne):
    """A tensor's values: `ne` is GGUF's order, the array's shape its reverse. As values.rs draws them."""
    name = int.from_bytes(hashlib.sha256(f"{model}/{key}".encode()).digest()[:6], "little")
    x = np.random.default_rng([SEED, name]).standard_normal(tuple(reversed(ne)), dtype=np.float32)
    if key.endswith(".bias"):
        x = np.float32(0.1) * x
    elif "norm" in key:
        x = np.float32(1) + np.float32(0.1) * x
    elif key == "position_embd.weight":
        x = np.float32(0.5) * x
    else:
        x = x * np.float32(ne[0] ** -0.5)
    if len(ne) > 1:  # five significant bits
        u = x.view(np.uint32)
        x = ((u + np.uint32(0x3FFFF) + ((u >> np.uint32(19)) & np.uint32(1))) & np.uint32(0xFFF80000)).view(np.float32)
    return x.astype(np.float64)


erf = np.vectorize(math.erf)
gelu = lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))
gelu_tanh = lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
silu = lambda x: x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Model:
    """Tensors are listed as they are first used."""

    def __init__(self, name, arch, pooling, eps_key, **kv):
        self.name, self.arch, self.tensors, self.kept = name, arch, {}, {}
        self.pooling = pooling
        uint = {"block_count": LAYERS, "embedding_length": HIDDEN, "feed_forward_length": WIDTH, "context_length": 256,
                "attention.head_count": HEADS, "pooling_type": pooling}
        self.kv = {k: ["UINT32", v] for k, v in uint.items()} | {eps_key: ["FLOAT32", self.eps]} | kv

    def get(self, key, *ne):
        if key not in self.kept:
            self.tensors[key], self.kept[key] = list(ne), values(self.name, key, ne)
        return self.kept[key]

    def linear(self, key, x, out, bias=True):
        y = x @ self.get(f"{key}.weight", x.shape[-1], out).T
        return y + self.get(f"{key}.bias", out) if bias else y

    def layer_norm(self, key, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * self.get(f"{key}.weight", x.shape[-1]) + self.get(f"{key}.bias", x.shape[-1])

    def rms_norm(self, key, x):
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * self.get(f"{key}.weight", x.shape[-1])

    def attend(self, q, k, v, sees, slopes=None):
        """`[n, heads, dim]` each; `sees(i, j)` tells whether position i sees j."""
        n, i, j = len(q), *np.ogrid[: len(q), : len(q)]
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
        s = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[2])
        if slopes is not None:
            s = s - slopes[:, None, None] * abs(i - j)
        s = np.where(np.broadcast_to(sees(i, j), (n, n)), s, -np.inf)
        return np.einsum("hij,jhd->ihd", softmax(s), v).reshape(n, -1)

    def said(self, x):
        """Of rows, what the model says of a text."""
        if self.pooling == MEAN:
            return x.mean(0)
        return x[-1] if self.pooling == LAST or self.arch == "qwen3" else x[0]


def rotate(x, theta):
    """transformers' rotate_half, on `[n, heads, dim]`."""
    n, _, dim = x.shape
    angles = np.outer(np.arange(n), theta ** (-np.arange(0, dim, 2) / dim))[:, None]
    cos, sin = (np.concatenate([f(angles)] * 2, -1) for f in (np.cos, np.sin))
    return x * cos + np.concatenate([-x[..., dim // 2 :], x[..., : dim // 2]], -1) * sin


class Encoder(Model):
    """BertModel, NomicBertModel, JinaBertModel of version 2."""
    eps = float(np.float32(1e-12))

    def __init__(self, name, arch, pooling, **kv):
        super().__init__(name, arch, pooling, "attention.layer_norm_epsilon", **kv)
        self.kv["attention.causal"] = ["BOOL", False]

    def run(self, ids):
        m, n, everything = self, len(ids), lambda i, j: i == i
        x = m.get("token_embd.weight", HIDDEN, VOCAB)[ids]
        x = x + m.get("token_types.weight", HIDDEN, 2)[0]
        if m.arch == "bert":
            x = x + m.get("position_embd.weight", HIDDEN, 256)[:n]
        x = m.layer_norm("token_embd_norm", x)
        for i in range(LAYERS):
            b = f"blk.{i}."
            if m.arch == "nomic-bert":
                qkv = np.split(m.linear(b + "attn_qkv", x, 3 * HIDDEN, False), 3, -1)
            else:
                qkv = [m.linear(b + f"attn_{p}", x, HIDDEN) for p in "qkv"]
            q, k, v = (p.reshape(n, HEADS, -1) for p in qkv)
            slopes = None
            if m.arch == "nomic-bert":
                q, k = (rotate(p, 1000.0) for p in (q, k))
            if m.arch == "jina-bert-v2":
                slopes = 2.0 ** (-8 / HEADS * (1 + np.arange(HEADS)))
            a = m.linear(b + "attn_output", m.attend(q, k, v, everything, slopes), HIDDEN, m.arch != "nomic-bert")
            x = m.layer_norm(b + "attn_output_norm", x + a)
            if m.arch == "bert":
                f = gelu(m.linear(b + "ffn_up", x, WIDTH))
            elif m.arch == "nomic-bert":
                f = silu(m.linear(b + "ffn_gate", x, WIDTH, False)) * m.linear(b + "ffn_up", x, WIDTH, False)
            else:  # rows of gates, then what they let through
                g, u = np.split(m.linear(b + "ffn_up", x, 2 * WIDTH, False), 2, -1)
                f = gelu(g) * u
            x = m.layer_norm(b + "layer_output_norm", x + m.linear(b + "ffn_down", f, HIDDEN, m.arch != "nomic-bert"))
        h = m.said(x)
        if m.pooling == RANK:  # RobertaClassificationHead
            h = m.linear("cls.output", np.tanh(m.linear("cls", h, HIDDEN)), 1)
        return h


class Decoder(Model):
    """Qwen3Model; Gemma3TextModel with use_bidirectional_attention, then Dense modules."""
    eps, window = float(np.float32(1e-6)), 64

    def __init__(self, name, arch, pooling):
        self.gemma = arch == "gemma-embedding"
        kv = {"attention.head_count_kv": ["UINT32", 2], "attention.key_length": ["UINT32", 32],
              "attention.value_length": ["UINT32", 32], "rope.freq_base": ["FLOAT32", 1000000.0]}
        if self.gemma:
            kv |= {"attention.sliding_window": ["UINT32", self.window], "block_count": ["UINT32", 6]}
        super().__init__(name, arch, pooling, "attention.layer_norm_rms_epsilon", **kv)

    def run(self, ids):
        m, n = self, len(ids)
        x = m.get("token_embd.weight", HIDDEN, VOCAB)[ids]
        if m.gemma:
            x = x * math.sqrt(HIDDEN)
        for i in range(m.kv["block_count"][1]):
            b, slides = f"blk.{i}.", m.gemma and i % 6 < 5
            h = m.rms_norm(b + "attn_norm", x)
            q, k, v = (m.linear(b + f"attn_{p}", h, c * 32, False).reshape(n, c, 32) for p, c in zip("qkv", (HEADS, 2, 2)))
            q, k = (rotate(m.rms_norm(b + f"attn_{p}_norm", y), 1e4 if slides else 1e6) for p, y in (("q", q), ("k", k)))
            if slides:  # exclusive bound of window // 2 + 1
                sees = lambda i, j: abs(i - j) < m.window // 2 + 1
            else:
                sees = lambda i, j: (i == i) if m.gemma else j <= i
            a = m.linear(b + "attn_output", m.attend(q, k, v, sees), HIDDEN, False)
            x = x + (m.rms_norm(b + "post_attention_norm", a) if m.gemma else a)
            h = m.rms_norm(b + "ffn_norm", x)
            act = gelu_tanh if m.gemma else silu
            f = act(m.linear(b + "ffn_gate", h, WIDTH, False)) * m.linear(b + "ffn_up", h, WIDTH, False)
            f = m.linear(b + "ffn_down", f, HIDDEN, False)
            x = x + (m.rms_norm(b + "post_ffw_norm", f) if m.gemma else f)
        h = m.said(m.rms_norm("output_norm", x))
        if m.gemma:
            h = m.linear("dense_3", m.linear("dense_2", h, 128, False), HIDDEN, False)
        if m.pooling == RANK:  # rows of the head for "yes" and "no"
            h = m.linear("cls.output", h, 2, False)
        return h


MODELS = [
    Encoder("bert-mean", "bert", MEAN),
    Encoder("bert-cls", "bert", CLS),
    Encoder("bert-rank", "bert", RANK),
    Encoder("nomic-bert", "nomic-bert", MEAN, **{"rope.freq_base": ["FLOAT32", 1000.0]}),
    Encoder("jina-bert-v2", "jina-bert-v2", MEAN),
    Decoder("gemma-embedding", "gemma-embedding", MEAN),
    Decoder("qwen3-embedding", "qwen3", LAST),
    Decoder("qwen3-mean", "qwen3", MEAN),
    Decoder("qwen3-reranker", "qwen3", RANK),
]


def lines(pairs):
    return ",\n    ".join(pairs)


for m in MODELS:
    drawn = np.random.default_rng([SEED, len(m.name)])
    cases = []
    for n in LENGTHS:
        ids = [int(i) for i in drawn.integers(0, VOCAB, n)]
        cases.append(json.dumps({"tokens": ids, "said": [float(f"{x:.9g}") for x in m.run(np.array(ids))]}))
    kv = (f'"{m.arch}.{k}": {json.dumps(v)}' for k, v in m.kv.items())
    tensors = (f'"{k}": {json.dumps(v)}' for k, v in m.tensors.items())
    text = f'{{\n  "arch": "{m.arch}",\n  "cases": [\n    {lines(cases)}\n  ],\n'
    text += f'  "kv": {{\n    {lines(kv)}\n  }},\n  "tensors": {{\n    {lines(tensors)}\n  }}\n}}\n'
    (HERE / f"{m.name}.json").write_text(text)
