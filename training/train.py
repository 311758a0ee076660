#!/usr/bin/env python3
"""Train the model. Ends after a given number of tokens; can be stopped (SIGTERM) and resumed at any time.

The first part of training goes over short rows, the rest over long ones (see data.py). Learning rates rise over the
first steps, stay, and fall linearly to zero. The log is work/train.jsonl.
"""
import argparse
import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import data
import fused
import recall
import tokenizer as tokens
from model import ARCHITECTURES, build
from muon import Optimizer


class Rows:
    """The rows of one length in order, shard after shard; waits for shards that are not there yet."""

    def __init__(self, work: Path, name: str, end: int):
        self.work, self.name, self.end, self.shard, self.row, self.held = work, name, end, 0, 0, None

    def take(self, n: int):
        parts = []
        while n:
            if self.held is None:
                self.held = self._read()
            some = [x[self.row : self.row + n] for x in self.held]
            self.row += len(some[0])
            n -= len(some[0])
            parts.append(some)
            if self.row == len(self.held[0]):
                self.shard, self.row, self.held = self.shard + 1, 0, None
        return data.targets(*(np.concatenate(x) for x in zip(*parts)), self.end)

    def _read(self):
        path = data.shard_path(self.work, self.name, "train", self.shard)
        if not path.exists():
            print(f"waiting for {path.name}", flush=True)
            while not path.exists():
                time.sleep(2)
        with np.load(path) as f:
            return f["ids"], f["weights"]


def learning_rate(done: float, total: float, warm_up: float, decay: float) -> float:
    """Factor of the peak rates after `done` of `total` tokens."""
    return min(1.0, (done + 1) / warm_up, max(0.0, (total - done) / (decay * total)))


@torch.no_grad()
def heldout_loss(model, work: Path, end: int, n_rows: int) -> float:
    """Mean weighted loss over long held-out rows."""
    with np.load(data.shard_path(work, "long", "heldout", 0)) as f:
        ids, targets, weights, start = (torch.from_numpy(x) for x in data.targets(f["ids"][:n_rows], f["weights"][:n_rows], end))
    at = torch.arange(ids.shape[1])
    total = 0.0
    for i in range(len(ids)):
        seen = (at[None, :] >= start[i][:, None]) & (at[None, :] <= at[:, None])
        logits = model(ids[i : i + 1].long(), mask=seen[None, None])[0]
        total += float((F.cross_entropy(logits, targets[i].long(), reduction="none") * weights[i]).sum())
    return total / float(weights.sum())


def save(path: Path, **content) -> None:
    new = path.with_suffix(".new")
    torch.save(content, new)
    new.rename(path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument("--arch", default="qwen2", choices=sorted(ARCHITECTURES))
    parser.add_argument("--tokens", type=float, default=24e6, help="to train on; may be changed when resuming")
    parser.add_argument("--short", type=float, default=0.38, help="part of the tokens in short rows, at first")
    parser.add_argument("--batch", type=int, default=16384, help="tokens per step")
    parser.add_argument("--small", type=float, default=0.5, help="part of the tokens in steps of half a batch, at first")
    parser.add_argument("--lr", type=float, default=0.02, help="peak rate of the matrices in layers")
    parser.add_argument("--adam-lr", type=float, default=3e-3, help="peak rate of embedding, norms and biases")
    parser.add_argument("--warm-up", type=float, default=1e6, help="tokens of rising rates")
    parser.add_argument("--decay", type=float, default=0.5, help="part of the tokens with falling rates, at the end")
    parser.add_argument("--checkpoint-minutes", type=float, default=4)
    parser.add_argument("--eval-minutes", type=float, default=10)
    parser.add_argument("--eval-items", type=int, default=20, help="per kind of question; 0: none")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--base", type=Path, help="checkpoint to begin with, instead of random weights; its tokens and steps are counted too")
    parser.add_argument("--resume", action="store_true", help="go on from work/checkpoint.pt, where it exists")
    parser.add_argument("--plain", action="store_true", help="by autograd, also where the fused step can run")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_flush_denormal(True)
    checkpoint = args.work / "checkpoint.pt"
    words = tokens.load(args.work)
    end = words.token_to_id(tokens.END)
    before = {"tokens": 0, "step": 0}
    model = build(args.arch).initialize(args.seed)
    if args.base:
        base = torch.load(args.base, weights_only=True)
        model.load_state_dict(base["model"])
        before = {key: base[key] for key in before}
    config = model.config
    optimizer = Optimizer(model, args.lr, args.adam_lr)
    short, long = Rows(args.work, "short", end), Rows(args.work, "long", end)
    done, step, seconds = 0, 0, 0.0
    if args.resume and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done, step, seconds = state["tokens"], state["step"], state["seconds"]
        for rows, place in ((short, state["short"]), (long, state["long"])):
            rows.shard, rows.row = place
        print(f"resumed at step {step}, {done / 1e6:.1f}M tokens")
    if fused.available(model) and not args.plain:
        engine = fused.Fused(model, args.threads)
    else:
        engine = fused.Plain(model, args.threads)
        print("gradients by autograd: the fused step is for qwen2 on CPUs with AVX512-BF16", flush=True)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    signal.signal(signal.SIGINT, lambda *_: stop.append(1))
    log = open(args.work / "train.jsonl", "a", buffering=1)

    def write(**content):
        log.write(json.dumps({"step": step, "tokens": done, **content}) + "\n")

    def checkpoint_now():
        save(checkpoint, config=asdict(config), model=model.state_dict(), optimizer=optimizer.state_dict(), tokens=done, step=step,
             seconds=seconds, short=(short.shard, short.row), long=(long.shard, long.row), seed=args.seed)

    def evaluate():
        started = time.time()
        torch.set_num_threads(args.threads)
        loss = heldout_loss(model, args.work, end, 32)
        scores = recall.scores(model, words, args.eval_items, args.seed) if args.eval_items else {}
        write(heldout=loss, recall=scores, seconds=seconds)
        print(f"held-out loss {loss:.4f} ({time.time() - started:.0f} s)  " + "  ".join(f"{k} {v:.0%}" for k, v in scores.items()), flush=True)

    write(event="start", args={k: str(v) for k, v in vars(args).items()})
    saved = evaluated = shown = time.time()
    shown_at, loss_sum, loss_n = done, 0.0, 0
    while done < args.tokens and not stop:
        began = time.time()
        in_short = done < args.short * args.tokens
        rows, length = (short, data.SHORT) if in_short else (long, data.LONG)
        size = args.batch // 2 if done < args.small * args.tokens else args.batch
        batch = [torch.from_numpy(x) for x in rows.take(size // length)]
        total_weight = float(batch[2].sum())
        loss = engine.accumulate(*batch, total_weight)
        norm = optimizer.step(factor := learning_rate(done, args.tokens, args.warm_up, args.decay))
        engine.refresh()
        done, step, seconds = done + size, step + 1, seconds + time.time() - began
        loss_sum, loss_n = loss_sum + loss / total_weight, loss_n + 1
        if step % 20 == 0:
            speed = (done - shown_at) / (time.time() - shown)
            write(loss=loss_sum / loss_n, lr=factor, norm=norm, speed=speed, length=length, seconds=seconds)
            print(f"step {step}  {done / 1e6:.2f}M tokens  loss {loss_sum / loss_n:.4f}  rate {factor:.2f}  norm {norm:.2f}  "
                  f"{speed:.0f} tokens/s  {(args.tokens - done) / speed / 60:.0f} min left", flush=True)
            shown, shown_at, loss_sum, loss_n = time.time(), done, 0.0, 0
        if time.time() - saved > 60 * args.checkpoint_minutes:
            checkpoint_now()
            saved = time.time()
        if args.eval_minutes and time.time() - evaluated > 60 * args.eval_minutes:
            evaluate()
            evaluated = shown = time.time()
            shown_at = done
    checkpoint_now()
    if done >= args.tokens:
        save(args.work / "model.pt", config=asdict(config), model=model.state_dict(), tokens=before["tokens"] + done, step=before["step"] + step, seconds=seconds, seed=args.seed)
        evaluate()
    log.close()
    print(f"{'stopped' if stop else 'finished'} at step {step}, {done / 1e6:.2f}M tokens, {seconds / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
