"""Command line: look at samples, tasks and figures of the corpus."""

import argparse
import itertools
import time

from . import MIXTURE, heldout_texts, tagged_documents, tasks, text_of
from .core import est_tokens


def _sample(args):
    for kind, lang, doc in itertools.islice(tagged_documents(args.seed, args.split, args.max_tokens, args.kind), args.n):
        print(f"== {kind} {lang} (about {est_tokens(text_of(doc))} tokens)")
        print("".join(f"[{s.weight}]{s.text}" for s in doc) if args.weights else text_of(doc))


def _stats(args):
    start = time.perf_counter()
    rows, chars = {}, set()
    for kind, lang, doc in itertools.islice(tagged_documents(args.seed, args.split, args.max_tokens, args.kind), args.n):
        text = "".join(s.text for s in doc)
        row = rows.setdefault(kind, [0, 0, 0, 0, 0])
        row[0] += 1
        row[1] += est_tokens(text)
        row[2] += len(text.encode())
        row[3] = max(row[3], est_tokens(text))
        row[4] += sum(est_tokens(s.text) for s in doc if s.weight >= 1 and not s.special)
        chars.update(text)
    spent = time.perf_counter() - start
    tokens = sum(r[1] for r in rows.values())
    size = sum(r[2] for r in rows.values())
    for kind in MIXTURE:
        if kind in rows:
            n, t, b, top, full = rows[kind]
            print(f"{kind:12} {n:7} documents  {t / n:6.0f} tokens each  at most {top:5}  share {t / tokens:6.1%}  full weight {full / t:6.1%}  {b / n:6.0f} bytes")
    print(f"{size / 1e6:.2f} MB in {spent:.1f} s, {size / 1e6 / spent:.2f} MB/s; {sum(ord(c) > 0x3000 for c in chars)} characters beyond Latin")


def _tasks(args):
    for kind, items in tasks(args.seed, args.n).items():
        for item in items:
            print(f"== {kind} {item.lang} depth {item.depth} answer {item.answer!r}")
            for m in item.messages:
                print(f"{m['role']}: {m['content']}")


def _texts(args):
    for name, text in heldout_texts(args.seed).items():
        print(f"== {name}: {len(text.encode())} bytes\n{text[:800]}")


def main():
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="corpus", description=__doc__)
    parser.add_argument("what", choices=("sample", "stats", "tasks", "texts"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--split", choices=("train", "heldout"), default="train")
    parser.add_argument("--kind", choices=tuple(MIXTURE))
    parser.add_argument("--max-tokens", type=int, default=1000)
    parser.add_argument("--weights", action="store_true", help="show the loss weights")
    args = parser.parse_args()
    {"sample": _sample, "stats": _stats, "tasks": _tasks, "texts": _texts}[args.what](args)


if __name__ == "__main__":
    main()
