#!/usr/bin/env python3
"""Write what the model is measured on and never saw: questions as JSON lines for `rooflight recall`, texts for
`rooflight perplexity --special`."""
import argparse
import json
from pathlib import Path

import tokenizer as tokens
from corpus import heldout_texts, tasks
from recall import render

CONTEXT = 1024
REPLY = 64  # tokens left for the answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "assets" / "heldout")
    parser.add_argument("-n", type=int, default=100, help="questions of each kind")
    args = parser.parse_args()
    words = tokens.load(args.work)
    length = lambda item: len(words.encode(render(item.messages)).ids)
    kinds = tasks(args.seed, args.n, fits=lambda item: length(item) + REPLY <= CONTEXT)
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "recall.jsonl", "w", encoding="utf-8") as f:
        for kind, items in kinds.items():
            for item in items:
                line = {"kind": kind, "lang": item.lang, "messages": item.messages, "answer": str(item.answer)}
                if item.depth is not None:
                    line["depth"] = round(item.depth, 3)
                f.write(json.dumps(line, ensure_ascii=False) + "\n")
            lengths = sorted(map(length, items))
            print(f"{kind:12} {len(items)} questions of {lengths[0]} to {lengths[-1]} tokens")
    for name, text in heldout_texts(args.seed).items():
        (args.out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
