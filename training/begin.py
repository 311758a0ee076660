#!/usr/bin/env python3
"""Take a GGUF file that export.py wrote apart again, for more training: WORK/base.pt and WORK/tokenizer.json.

Quantized matrices come back rounded as they are in the file.
"""
import argparse
from dataclasses import asdict
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import models

import tokenizer as tokens
from export import ARCHITECTURES, tensors
from model import build


def value(reader: gguf.GGUFReader, key: str):
    if (field := reader.get_field(key)) is None:
        raise SystemExit(f"{key} is missing: expected a file written by export.py")
    return field.contents()


def vocabulary(reader: gguf.GGUFReader):
    """The tokenizer of the file: its tokens, but for the added ones at the end, and its merges."""
    names, types = value(reader, "tokenizer.ggml.tokens"), value(reader, "tokenizer.ggml.token_type")
    ordinary = {name: i for i, (name, ty) in enumerate(zip(names, types)) if ty == gguf.TokenType.NORMAL}
    words = tokens.blank()
    words.model = models.BPE(vocab=ordinary, merges=[tuple(m.split(" ")) for m in value(reader, "tokenizer.ggml.merges")])
    words.add_tokens([name for name, ty in zip(names, types) if ty == gguf.TokenType.UNUSED])
    words.add_special_tokens(tokens.SPECIAL)
    assert [words.token_to_id(name) for name in names] == list(range(len(names)))
    return words


def weights(reader: gguf.GGUFReader, model) -> None:
    """Fills `model` with the file's tensors. `tensors` gives export's view of the parameters: of joined ones, parts."""
    stored = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    with torch.no_grad():
        for name, view in tensors(model):
            found = stored.pop(name)
            if view.shape != found.shape:
                raise SystemExit(f"{name}: expected shape {view.shape}, found {found.shape}")
            np.copyto(view, found)
    if stored:
        raise SystemExit(f"tensors that the model has no place for: {', '.join(stored)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).parents[1] / "assets" / f"{ARCHITECTURES['qwen2'].file}-q8_0.gguf")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work" / "tune")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.file)
    if (arch := value(reader, "general.architecture")) != "qwen2":
        raise SystemExit(f"{args.file}: expected architecture qwen2, found {arch}")
    model = build(arch)
    weights(reader, model)
    args.work.mkdir(parents=True, exist_ok=True)
    vocabulary(reader).save(str(args.work / "tokenizer.json"))
    done = {key: int(value(reader, f"rooflight.training.{key}")) for key in ("seed", "step", "tokens")}
    torch.save({"config": asdict(model.config), "model": model.state_dict(), "seconds": 0.0, **done}, args.work / "base.pt")
    print(f"{args.file.name}: step {done['step']}, {done['tokens'] / 1e6:.1f}M tokens")


if __name__ == "__main__":
    main()
