"""Writes fixtures.bin: what the `gguf` package (0.19.0) makes of random blocks and floats.

    python make_fixtures.py        # needs gguf and numpy; the output is the same on every run

Layout, little endian, records until the end of the file:
    u32 type number, u32 kind (0: bytes dequantize to floats, 1: floats quantize to bytes),
    u32 n_bytes, u32 n_floats, bytes, f32 floats
"""

from pathlib import Path
import struct

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

# Type: byte offsets of the f16 fields of a block.
F16_FIELDS = {
    T.F16: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_NL: [0], T.IQ4_XS: [0], T.IQ3_S: [0], T.TQ1_0: [52], T.TQ2_0: [64],
    T.BF16: [], T.F32: [],
}
QUANTIZED = [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.TQ1_0, T.TQ2_0]
# Zero, smallest subnormal, largest, and their negatives.
EXTREMES = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x7BFF, 0xFBFF], dtype="<u2")


def random_blocks(rng, ty):
    length, size = GGML_QUANT_SIZES[ty]
    blocks = rng.integers(0, 256, (24 if length == 32 else 8 if length == 256 else 256, size), dtype=np.uint8)
    if ty in (T.BF16, T.F32):
        blocks[:, -1] &= 0xBF  # keeps the exponent finite
    for offset in F16_FIELDS.get(ty, []):
        field = blocks[:, offset : offset + 2].copy().view("<u2")
        infinite = (field & 0x7C00) == 0x7C00
        field = np.where(infinite, field & ~np.uint16(0x4000), field).astype("<u2")
        field[: len(EXTREMES), 0] = EXTREMES
        blocks[:, offset : offset + 2] = field.view(np.uint8)
    return blocks


def sample_floats(rng, length):
    n = max(length, 32)
    rows = [
        rng.standard_normal(n) * 0.02,
        rng.standard_normal(n),
        rng.uniform(-3, 5, n),
        0.1 + 2 * np.cos(np.arange(n)),
        np.zeros(n),
        np.full(n, -1.5),
        rng.standard_normal(n) * 1e-6,
        np.abs(rng.standard_t(2, n)) * 100,
        np.round(rng.standard_normal(n) * 4) / 8,
    ]
    return np.concatenate(rows).astype("<f4")


def record(ty, kind, data, floats):
    data = np.ascontiguousarray(data).view(np.uint8).tobytes()
    floats = np.ascontiguousarray(floats, dtype="<f4").tobytes()
    return struct.pack("<4I", ty, kind, len(data), len(floats) // 4) + data + floats


def main():
    rng = np.random.default_rng(42)
    out = b""
    for ty in F16_FIELDS:
        blocks = random_blocks(rng, ty)
        out += record(ty, 0, blocks, dequantize(blocks, ty))
    for ty in QUANTIZED:
        x = sample_floats(rng, GGML_QUANT_SIZES[ty][0])
        out += record(ty, 1, quantize(x, ty), x)
    # drawn apart, so that what stands before is what it was
    blocks = random_blocks(np.random.default_rng(43), T.MXFP4)
    out += record(T.MXFP4, 0, blocks, dequantize(blocks, T.MXFP4))
    Path(__file__).with_name("fixtures.bin").write_bytes(out)


main()
