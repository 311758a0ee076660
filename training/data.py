#!/usr/bin/env python3
"""Generate and encode the training data: rows of tokens with loss weights, in shards on disk.

A shard is generated from its own seed, so shards can be made in any order and by several processes; training reads
them as they appear. `short` shards are rows of 256 tokens packed from documents of at most 256, for the first part of
training, `long` ones rows of 1024 from documents of all lengths. No document is cut: rows are filled by best fit and
padded with <|endoftext|> of weight 0.
"""
import argparse
import bisect
import os
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import tokenizer as tokens

SHORT, LONG = 256, 1024
LENGTHS = {"short": SHORT, "long": LONG}
MOST = 1000  # tokens of a document asked of the corpus, whose estimate is a little off


def shard_path(work: Path, name: str, split: str, shard: int) -> Path:
    return work / "data" / f"{name}-{split}-{shard:03}.npz"


def encode(tokenizer, document) -> tuple[np.ndarray, np.ndarray]:
    """Token ids uint16 and their loss weights in percent, uint8."""
    text = "".join(s.text for s in document)
    ends, weights, at = [], [], 0
    for segment in document:
        at += len(segment.text)
        ends.append(at)
        weights.append(round(100 * segment.weight))
    encoding = tokenizer.encode(text)
    first = np.fromiter((o[0] for o in encoding.offsets), np.int64, len(encoding.ids))
    of_segment = np.searchsorted(np.array(ends), first, side="right")
    return np.array(encoding.ids, np.uint16), np.array(weights, np.uint8)[of_segment]


def pack(documents: list, length: int, end: int, rng: random.Random):
    """Rows [n, length] of tokens and weights: longest first, each into the fullest row that has room."""
    order = sorted(range(len(documents)), key=lambda i: -len(documents[i][0]))
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (free places, row), sorted
    for i in order:
        need = len(documents[i][0])
        at = bisect.bisect_left(room, (need, -1))
        if at == len(room):
            rows.append([i])
            left = (length - need, len(rows) - 1)
        else:
            free, row = room.pop(at)
            rows[row].append(i)
            left = (free - need, row)
        if left[0] >= 8:
            bisect.insort(room, left)
    rng.shuffle(rows)
    ids = np.full((len(rows), length), end, np.uint16)
    weights = np.zeros((len(rows), length), np.uint8)
    for r, row in enumerate(rows):
        rng.shuffle(row)
        at = 0
        for i in row:
            n = len(documents[i][0])
            ids[r, at : at + n], weights[r, at : at + n] = documents[i]
            at += n
    return ids, weights


def targets(ids: np.ndarray, weights: np.ndarray, end: int):
    """What training needs of rows: (tokens, targets, weights f32, start), [rows, length], int32 but for the weights.
    `start` is each position's document's first; nothing is predicted across documents."""
    ids = ids.astype(np.int32)
    following = np.concatenate((ids[:, 1:], ids[:, :1]), 1)
    w = np.concatenate((weights[:, 1:], np.zeros_like(weights[:, :1])), 1).astype(np.float32) / 100
    is_end = ids == end
    w[is_end] = 0
    places = np.arange(1, ids.shape[1] + 1, dtype=np.int32)
    after = np.maximum.accumulate(np.where(is_end, places, 0), 1)
    start = np.concatenate((np.zeros_like(after[:, :1]), after[:, :-1]), 1).astype(np.int32)
    return ids, following, w, start


def make_shard(work: Path, seed: int, tuning: bool, name: str, split: str, shard: int, n_tokens: int) -> str:
    from corpus import MIXTURE, TUNING, documents

    tokenizer = tokens.load(work)
    end = tokenizer.token_to_id(tokens.END)
    rng = random.Random(f"{seed} {name} {split} {shard}")
    length = LENGTHS[name]
    kept, done, dropped = [], 0, 0
    for document in documents(rng.getrandbits(48), split, min(length, MOST), TUNING if tuning else MIXTURE):
        pair = encode(tokenizer, document)
        if len(pair[0]) > length:
            dropped += 1
            continue
        kept.append(pair)
        done += len(pair[0])
        if done >= n_tokens:
            break
    ids, weights = pack(kept, length, end, rng)
    path = shard_path(work, name, split, shard)
    new = path.with_suffix(".new.npz")
    np.savez(new, ids=ids, weights=weights)
    new.rename(path)
    return (f"{path.name}: {len(kept)} documents, {done} tokens in {ids.size} places, mean weight {weights.mean() / 100:.2f}; "
            f"{dropped} documents too long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument("--short-shards", type=int, default=20)
    parser.add_argument("--long-shards", type=int, default=32)
    parser.add_argument("--shard-tokens", type=int, default=1_000_000)
    parser.add_argument("--tuning", action="store_true", help="the mixture of tune.sh")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", type=int, metavar="N", help="print N rows of the first shards, decoded, and stop")
    args = parser.parse_args()
    if args.show:
        return show(args.work, args.show)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    (args.work / "data").mkdir(parents=True, exist_ok=True)
    wanted = [("long", "heldout", 0, args.shard_tokens // 10)]
    wanted += [("short", "train", i, args.shard_tokens) for i in range(args.short_shards)]
    wanted += [("long", "train", i, args.shard_tokens) for i in range(args.long_shards)]
    with ProcessPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(make_shard, args.work, args.seed, args.tuning, *w) for w in wanted if not shard_path(args.work, *w[:3]).exists()]
        for job in jobs:
            print(job.result(), flush=True)


def show(work: Path, n: int) -> None:
    """Tokens with their weights, as training sees them."""
    tokenizer = tokens.load(work)
    for name in LENGTHS:
        with np.load(shard_path(work, name, "train", 0)) as f:
            for ids, weights in zip(f["ids"][:n].tolist(), f["weights"][:n].tolist()):
                print("|".join(tokenizer.decode([t], skip_special_tokens=False) + ("" if w == 100 else f"~{w}") for t, w in zip(ids, weights)))
                print("=" * 20)


if __name__ == "__main__":
    main()
