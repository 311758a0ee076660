#!/usr/bin/env python3
"""Perplexity of a checkpoint in PyTorch (f32), on the tokens and windows of `rooflight perplexity`: windows without
overlap, the second half of each scored but for its first token."""
import argparse
import math
import os
from pathlib import Path

import torch
import torch.nn.functional as F

import tokenizer as tokens
from model import load


@torch.no_grad()
def perplexity(model, ids: list[int], context: int) -> tuple[float, int]:
    """The perplexity, and the number of tokens scored."""
    total, n, first = 0.0, 0, context // 2
    for at in range(0, len(ids) - context + 1, context):
        window = torch.tensor(ids[at : at + context])
        logits = model(window[None])[0, first:-1].double()
        total += float(F.cross_entropy(logits, window[first + 1 :], reduction="sum"))
        n += context - first - 1
    return math.exp(total / n), n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="work/model.pt by default")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work", help="folder of tokenizer.json")
    parser.add_argument("-c", "--ctx-size", type=int, default=512)
    parser.add_argument("--special", action="store_true", help="read the names of special tokens as those tokens")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, words = load(args.checkpoint or args.work / "model.pt")[0], tokens.load(args.work)
    words.encode_special_tokens = not args.special
    for path in args.texts:
        ids = words.encode(path.read_text(encoding="utf-8")).ids
        value, n = perplexity(model, ids, args.ctx_size)
        print(f"{path.name}: perplexity {value:.4f} over {n} tokens")


if __name__ == "__main__":
    main()
