#!/usr/bin/env python3
"""Talk to a checkpoint in PyTorch, greedily: lines from the terminal, or the given ones."""
import argparse
from pathlib import Path

import recall
import tokenizer as tokens
from model import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("says", nargs="*", help="what the user says, turn by turn; else lines of stdin")
    parser.add_argument("--checkpoint", type=Path, help="work/model.pt by default; work/checkpoint.pt while training")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work", help="folder of tokenizer.json")
    parser.add_argument("--most", type=int, default=128, help="tokens per reply")
    args = parser.parse_args()
    model, words = load(args.checkpoint or args.work / "model.pt")[0], tokens.load(args.work)
    chat: list[dict] = []

    def turn(text: str) -> None:
        chat.append({"role": "user", "content": text})
        answer = recall.reply(model, words, [chat], args.most)[0]
        chat.append({"role": "assistant", "content": answer})

    for text in args.says:
        turn(text)
        print(f"> {text}\n{chat[-1]['content']}")
    while not args.says:
        try:
            turn(input("> "))
        except EOFError:
            return
        print(chat[-1]["content"])


if __name__ == "__main__":
    main()
