#!/usr/bin/env python3
"""Train the tokenizer: byte-level BPE with Qwen2's pre-tokenizer on a sample of the corpus.

Tokens are the 256 bytes, then merges, then <|endoftext|>, <|im_start|> and <|im_end|> as the last three.
"""
import argparse
import json
import unicodedata
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END, IM_START, IM_END = SPECIAL
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")


def blank() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(texts, vocab_size: int) -> Tokenizer:
    """A run of Chinese has no spaces, so merges learned on it would join a name with the words beside it, here one way
    and there another. The characters of names are learned by themselves."""
    from corpus.names import GIVEN, SOUNDS_ZH, SURNAMES

    alone = "".join(sorted(set(SURNAMES + GIVEN + SOUNDS_ZH + "小")))
    learner = blank()
    learner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.Split(Regex(f"[{alone}]"), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    ordinary = vocab_size - len(SPECIAL)
    learner.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=ordinary, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), min_frequency=2, show_progress=False))
    tokenizer = blank()
    tokenizer.model = learner.model
    # A small corpus may have fewer merges than there is room for; unused tokens keep the special ones last.
    tokenizer.add_tokens([f"<|unused_{i}|>" for i in range(ordinary - tokenizer.get_vocab_size())])
    tokenizer.add_special_tokens(SPECIAL)
    assert [tokenizer.token_to_id(t) for t in SPECIAL] == list(range(ordinary, vocab_size))
    return tokenizer


def load(work: Path) -> Tokenizer:
    return Tokenizer.from_file(str(work / "tokenizer.json"))


def corpus_texts(seed: int, n_bytes: int):
    """What stands between control tokens, about `n_bytes` of it."""
    from corpus import documents

    for document in documents(seed, "train"):
        pieces = [""]
        for segment in document:
            if segment.special:
                pieces.append("")
            else:
                pieces[-1] += segment.text
        for piece in filter(None, pieces):
            yield unicodedata.normalize("NFC", piece)
            n_bytes -= len(piece.encode())
        if n_bytes <= 0:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--megabytes", type=float, default=8, help="of text to learn from")
    args = parser.parse_args()
    tokenizer = train(corpus_texts(args.seed, int(args.megabytes * 1e6)), args.vocab_size)
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(args.work / "tokenizer.json"))
    used = len(json.loads(tokenizer.to_str())["model"]["vocab"])
    sample = list(islice(corpus_texts(args.seed + 1, 200_000), 500))
    tokens = sum(len(e.ids) for e in tokenizer.encode_batch(sample))
    print(f"{used} tokens and {len(SPECIAL)} special ones; {sum(map(len, sample)) / tokens:.2f} characters per token")


if __name__ == "__main__":
    main()
