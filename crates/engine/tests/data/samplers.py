"""Write samplers.txt: what llama.cpp's samplers leave of stored logits.

    pip install xllamacpp==2026.10.11549     # llama.cpp as a library, its functions exported
    python samplers.py > samplers.txt

Lines: `row NAME LOGITS..`, `before NAME TOKENS..`, then for each case `case ROW BEFORE SETTINGS..` followed by one `left`
for each choice: `left TOKEN:PROBABILITY..`, with `chosen TOKEN` after it where what comes next depends on it.
Settings are those of `sampler/settings.rs`, beside `samplers=LETTERS`, `bias=TOKEN:BIAS,..` and `breakers=TOKEN+TOKEN,..`.
"""

import ctypes as c
import importlib.metadata
import math
import random
import sys
from pathlib import Path

import xllamacpp

LIB = c.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))


class Token(c.Structure):
    _fields_ = [("id", c.c_int32), ("logit", c.c_float), ("p", c.c_float)]


class Tokens(c.Structure):
    _fields_ = [("data", c.POINTER(Token)), ("size", c.c_size_t), ("selected", c.c_int64), ("sorted", c.c_bool)]


class Bias(c.Structure):
    _fields_ = [("token", c.c_int32), ("bias", c.c_float)]


class Vector(c.Structure):
    """A `std::vector`."""

    _fields_ = [("begin", c.c_void_p), ("end", c.c_void_p), ("room", c.c_void_p)]


F, I, U, Z, P = c.c_float, c.c_int32, c.c_uint32, c.c_size_t, c.c_void_p
SIGNATURES = {
    "llama_sampler_init_logit_bias": [I, I, P],
    "llama_sampler_init_penalties": [I, I, F, F, F],
    "llama_sampler_init_top_n_sigma": [F],
    "llama_sampler_init_top_k": [I],
    "llama_sampler_init_typical": [F, Z],
    "llama_sampler_init_top_p": [F, Z],
    "llama_sampler_init_min_p": [F, Z],
    "llama_sampler_init_xtc": [F, F, Z, U],
    "llama_sampler_init_temp_ext": [F, F, F],
    "llama_sampler_init_mirostat_v2": [U, F, F],
    "llama_sampler_init_adaptive_p": [F, F, U],
}
# breakers as tokens, so that no vocabulary is needed
DRY = "_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE"
KEEP = []


def make(name, *values):
    function = getattr(LIB, "llama_sampler_init_" + name)
    function.argtypes, function.restype = SIGNATURES["llama_sampler_init_" + name], P
    return P(function(*values))


def vector(items, kind):
    array = (kind * max(len(items), 1))(*items)
    KEEP.append(array)
    start = c.addressof(array)
    end = start + len(items) * c.sizeof(kind)
    return Vector(start, end, end)


DEFAULTS = {
    "temperature": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.05, "top-n-sigma": -1.0, "typical": 1.0, "min-keep": 0,
    "xtc-probability": 0.0, "xtc-threshold": 0.1, "dynatemp-range": 0.0, "dynatemp-exp": 1.0, "repeat-penalty": 1.0,
    "repeat-last-n": 64, "presence-penalty": 0.0, "frequency-penalty": 0.0, "dry-multiplier": 0.0, "dry-base": 1.75,
    "dry-allowed-length": 2, "dry-penalty-last-n": 64, "mirostat": 0, "mirostat-ent": 5.0, "mirostat-lr": 0.1,
    "adaptive-target": -1.0, "adaptive-decay": 0.9, "samplers": "edskypmxt", "bias": "", "breakers": "",
}


def stage(letter, s, n_vocab):
    keep = s["min-keep"]
    match letter:
        case "e":
            return make("penalties", n_vocab, s["repeat-last-n"], s["repeat-penalty"], s["frequency-penalty"], s["presence-penalty"])
        case "d":
            breakers = [[int(t) for t in b.split("+")] for b in s["breakers"].split(",") if b]
            outer = vector([vector(b, c.c_int32) for b in breakers], Vector)
            KEEP.append(outer)
            function = getattr(LIB, DRY)
            function.argtypes, function.restype = [F, F, I, I, P], P
            numbers = [s["dry-" + name] for name in ("multiplier", "base", "allowed-length", "penalty-last-n")]
            return P(function(*numbers, c.byref(outer)))
        case "s":
            return make("top_n_sigma", s["top-n-sigma"])
        case "k":
            return make("top_k", s["top-k"])
        case "y":
            return make("typical", s["typical"], keep)
        case "p":
            return make("top_p", s["top-p"], keep)
        case "m":
            return make("min_p", s["min-p"], keep)
        case "x":
            return make("xtc", s["xtc-probability"], s["xtc-threshold"], keep, 1)
        case "t":
            return make("temp_ext", s["temperature"], s["dynatemp-range"], s["dynatemp-exp"])


for name, arguments in {"llama_sampler_apply": [P, P], "llama_sampler_accept": [P, I], "llama_sampler_free": [P]}.items():
    getattr(LIB, name).argtypes, getattr(LIB, name).restype = arguments, None


def softmax(tokens):
    """Probabilities of what is left, by f64."""
    left = [(t.id, t.logit) for t in tokens.data[: tokens.size] if t.logit > -math.inf]
    top = max(logit for _, logit in left)
    total = sum(math.exp(logit - top) for _, logit in left)
    return sorted((token, math.exp(logit - top) / total) for token, logit in left)


def run(logits, before, settings, choices):
    s = DEFAULTS | settings
    chain = []
    if s["bias"]:
        biases = [Bias(int(t), float(b)) for t, b in (pair.split(":") for pair in s["bias"].split(","))]
        array = (Bias * len(biases))(*biases)
        chain.append(make("logit_bias", len(logits), len(biases), array))
    if s["mirostat"]:
        chain += [stage("t", s, len(logits)), make("mirostat_v2", 7, s["mirostat-ent"], s["mirostat-lr"])]
    else:
        letters = [x for x in s["samplers"] if x != "d" or s["dry-multiplier"]]
        chain += [stage(letter, s, len(logits)) for letter in letters]
        if s["adaptive-target"] >= 0:
            chain.append(make("adaptive_p", s["adaptive-target"], s["adaptive-decay"], 7))
    chooses = s["mirostat"] or s["adaptive-target"] >= 0
    accept = lambda token: [LIB.llama_sampler_accept(sampler, token) for sampler in chain]
    for token in before:
        accept(token)
    for _ in range(choices):
        array = (Token * len(logits))(*[Token(i, x, 0) for i, x in enumerate(logits)])
        tokens = Tokens(array, len(logits), -1, False)
        for sampler in chain:
            LIB.llama_sampler_apply(sampler, c.byref(tokens))
        left = softmax(tokens)
        print("left", *[f"{token}:{p:.5g}" for token, p in left if p > 1e-7])
        if chooses:
            chosen = tokens.data[tokens.selected].id
            print("chosen", chosen)
            accept(chosen)
    for sampler in chain:
        LIB.llama_sampler_free(sampler)


def main():
    draw = random.Random(20261123)
    print(f"# Made by samplers.py with xllamacpp {importlib.metadata.version('xllamacpp')} (llama.cpp).")
    rows = {
        "one": [1.5],
        "two": [0.25, -1.0],
        "few": [round(draw.gauss(0, 2), 4) for _ in range(7)],
        "odd": [round(draw.gauss(0, 3), 4) for _ in range(97)],
        "flat": [round(draw.gauss(0, 0.2), 5) for _ in range(130)],
        "sure": [round(draw.gauss(-5, 1), 4) if i != 41 else 9.0 for i in range(65)],
    }
    befores = {
        "none": [],
        "some": [3, 1, 4, 1, 5, 2, 6, 5, 3, 5],
        "song": [5, 1, 2, 3, 4, 6, 1, 2, 3, 4, 0, 1, 2, 6, 1, 2, 3],
        "loop": [2] * 30,
        "long": [draw.randrange(5) for _ in range(200)],
    }
    for name, logits in rows.items():
        print("row", name, *logits)
    for name, tokens in befores.items():
        print("before", name, *tokens)
    dry = {"dry-multiplier": 0.8, "samplers": "d"}
    cases = [
        {},
        {"top-k": 5},
        {"top-k": 0},
        {"top-k": 0, "top-p": 0.7, "min-p": 0.0},
        {"top-k": 0, "top-p": 1.0, "min-p": 0.2},
        {"top-p": 0.5, "min-keep": 9},
        {"min-p": 0.6, "min-keep": 4, "top-p": 1.0},
        {"samplers": "s", "top-n-sigma": 1.0},
        {"samplers": "s", "top-n-sigma": 0.3},
        {"samplers": "y", "typical": 0.5},
        {"samplers": "y", "typical": 0.9, "min-keep": 12},
        {"samplers": "kypmt", "typical": 0.6},
        {"samplers": "x", "xtc-probability": 1.0, "xtc-threshold": 0.05},
        {"samplers": "x", "xtc-probability": 1.0, "xtc-threshold": 0.1, "min-keep": 60},
        {"xtc-probability": 1.0, "xtc-threshold": 0.02, "top-p": 1.0},
        {"samplers": "t", "temperature": 0.5},
        {"samplers": "t", "temperature": 1.5, "dynatemp-range": 1.0},
        {"samplers": "kt", "top-k": 12, "temperature": 0.7, "dynatemp-range": 0.9, "dynatemp-exp": 2.0},
        {"samplers": "tpm", "temperature": 0.4, "top-p": 0.8, "min-p": 0.1},
        {"samplers": "tmk", "temperature": 3.0, "top-k": 9, "min-p": 0.5},
        {"samplers": "tx", "temperature": 2.0, "xtc-probability": 1.0, "xtc-threshold": 0.03},
        {"samplers": "ty", "temperature": 0.6, "typical": 0.7},
        {"samplers": "te", "temperature": 0.5, "repeat-penalty": 1.3, "repeat-last-n": 6},
        {"samplers": "ke", "top-k": 6, "presence-penalty": 3.0},
        {"repeat-penalty": 1.4},
        {"repeat-penalty": 0.7, "frequency-penalty": 0.3, "presence-penalty": -0.4, "repeat-last-n": 5},
        dry,
        dry | {"dry-base": 1.0, "dry-allowed-length": 0},
        dry | {"dry-base": 3.0, "dry-allowed-length": 1, "dry-penalty-last-n": 9},
        dry | {"breakers": "4"},
        dry | {"breakers": "3+4,0"},
        dry | {"breakers": "6,1+2+3", "dry-allowed-length": 1},
        {"dry-multiplier": 2.0, "repeat-penalty": 1.1, "top-n-sigma": 2.0, "typical": 0.95, "xtc-probability": 1.0},
        {"bias": "0:2.5", "samplers": "kt"},
        {"bias": "0:-inf", "samplers": "pt"},
        {"temperature": 0.0},
    ]
    for settings in cases:
        for row, before in [("one", "none"), ("two", "none"), ("few", "some"), ("odd", "song"), ("flat", "loop"), ("sure", "long")]:
            if settings.get("bias", "").endswith("-inf") and row == "one":
                continue
            print("case", row, before, *[f"{key}={value}" for key, value in settings.items()])
            run(rows[row], befores[before], settings, 1)
    for settings in [
        {"mirostat": 2},
        {"mirostat": 2, "mirostat-ent": 1.5, "mirostat-lr": 0.4, "temperature": 1.3},
        {"mirostat": 2, "mirostat-ent": 0.2},
        {"adaptive-target": 0.5},
        {"adaptive-target": 0.1, "adaptive-decay": 0.5, "top-k": 0, "top-p": 1.0, "min-p": 0.01},
        {"adaptive-target": 0.02, "samplers": "t"},
    ]:
        for row in ["two", "few", "odd", "flat", "sure"]:
            print("case", row, "none", *[f"{key}={value}" for key, value in settings.items()])
            run(rows[row], [], settings, 6)


if __name__ == "__main__":
    sys.exit(main())
