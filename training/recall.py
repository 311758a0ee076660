#!/usr/bin/env python3
"""Ask a checkpoint the held-out questions of the corpus, greedily, and count the right answers."""
import argparse
import os
import re
import unicodedata
from pathlib import Path

import torch

import tokenizer as tokens
from corpus import tasks
from model import load


def render(messages: list[dict], system: str | None = None) -> str:
    """ChatML with the beginning of a reply."""
    if system:
        messages = [{"role": "system", "content": system}, *messages]
    text = "".join(f"{tokens.IM_START}{m['role']}\n{m['content']}{tokens.IM_END}\n" for m in messages)
    return text + f"{tokens.IM_START}assistant\n"


def fits(model, words, item, most: int = 64) -> bool:
    """Whether question and reply fit the trained context."""
    return len(words.encode(render(item.messages)).ids) + most <= model.config.context_length


def normalize(text: str) -> str:
    """Without case, spaces and punctuation."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in text if unicodedata.category(c)[0] in "LN")


def reply(model, words, chats: list[list[dict]], most: int = 64) -> list[str]:
    stop = {words.token_to_id(t) for t in (tokens.END, tokens.IM_END)}
    prompts = [words.encode(render(chat)).ids for chat in chats]
    return [words.decode(ids) for ids in model.generate(prompts, stop, most)]


def right(item, text: str) -> bool:
    """Whether the reply contains the answer; a number must stand alone."""
    answer = str(item.answer)
    if answer.isdigit():
        return re.search(rf"(?<!\d){answer}(?!\d)", unicodedata.normalize("NFKC", text)) is not None
    return normalize(answer) in normalize(text)


def ask(model, words, items: list, batch: int = 10) -> list[tuple]:
    """(item, reply, right) of each item; those of about one length together."""
    order = sorted(items, key=lambda i: sum(len(m["content"]) for m in i.messages))
    out = []
    for at in range(0, len(order), batch):
        some = order[at : at + batch]
        for item, text in zip(some, reply(model, words, [i.messages for i in some])):
            out.append((item, text, right(item, text)))
    return out


def scores(model, words, n: int, seed: int) -> dict[str, float]:
    """Part of `n` questions answered right, by kind."""
    out = {}
    for kind, items in tasks(seed, n).items():
        results = ask(model, words, [i for i in items if fits(model, words, i)])
        out[kind] = sum(r[2] for r in results) / max(1, len(results))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", nargs="?", type=Path, default=Path(__file__).parent / "work" / "model.pt")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work", help="folder of tokenizer.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", "--items", type=int, default=100, help="per kind")
    parser.add_argument("--kind", help="this kind alone")
    parser.add_argument("--show", type=int, default=0, help="print this many wrong replies per kind")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, words = load(args.checkpoint)[0], tokens.load(args.work)
    for kind, items in tasks(args.seed, args.items).items():
        if args.kind in (None, kind):
            asked = [i for i in items if fits(model, words, i)]
            results = ask(model, words, asked)
            by_lang = {lang: [r[2] for r in results if r[0].lang == lang] for lang in sorted({i.lang for i in asked})}
            detail = "  ".join(f"{lang} {sum(r) / len(r):.0%}" for lang, r in by_lang.items())
            print(f"{kind:24} {sum(r[2] for r in results) / max(1, len(results)):6.1%}  of {len(results)}  ({detail}; {len(items) - len(asked)} too long)", flush=True)
            for item, text, _ in [r for r in results if not r[2]][: args.show]:
                print(f"    depth {item.depth} expected {item.answer!r} got {text!r} after {item.messages[-1]['content'][-80:]!r}")


if __name__ == "__main__":
    main()
