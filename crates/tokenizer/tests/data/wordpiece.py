#!/usr/bin/env python3
"""Writes wordpiece.json: a small vocabulary, texts, and the ids that transformers' BertTokenizer makes of them.

    pip install transformers tokenizers; ./wordpiece.py > wordpiece.json
"""
import json, os, random, sys, tempfile

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [
    "", " ", "Hello, world!", "hello world", "HELLO  WORLD", "unaffable running runner", "don't can't it's",
    "Café naïve façade Ångström", "cafe\u0301 A\u030angstro\u0308m", "Résumé ÉTÉ İstanbul ıI ß ẞ Σίσυφος ΣΑΣ",
    "中文字符", "我爱北京天安门 and Beijing", "日本語のテキスト カタカナ", "한국어 텍스트 각", "豈更車", "𠀀𪛖𫝀",
    "a\u0000b\ufffdc\u200bd\u00ade", "tab\there\nline\r\nnext\u00a0nbsp\u3000wide\u2028sep\x85nel", "\u202aembed\u202c\ufeff",
    "1234567890 3.14159 1,000,000 ½ ² ٣", "$100 + €50 = ¥? <b> ^ ~ ` | \\ @#%&*()", "«quoted» “curly” ‘single’ — – … · ¿¡ 、。！",
    "👩‍👩‍👧 emoji 🇩🇪 ❤️ 👍🏽", "[CLS] is text [SEP] here [MASK] [UNK]", "word" * 30, "x" * 100, "x" * 101, "é" * 100, "é" * 101,
    "हिन्दी नमस्ते", "ไทย ภาษา", "עברית שָׁלוֹם", "العَرَبِيَّة", "Việt Nam tiếng", "dž Ǆ ǅ ﬁ ﬀ", "snake_case camelCase kebab-case",
    "http://example.com/?q=1&r=2", "def f(x):\n    return x**2  # code", "zzqx unknownword qqq", "a.b.c", "...", "o'clock rock'n'roll",
]


def random_texts(rng, n):
    pools = ["abcdefghij ", "ABCÉéñüÅ ", "0123456789.,", "中文字日本 あア", "\u0301\u0308\u0327ae ", " \t\n\u00a0", "!?-_'\"$+=", "👩\u200d🇩❤\ufe0f", "αβγΣςд ", "\u0000\u200b\ufffda"]
    for _ in range(n):
        yield "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, 30)))


def main():
    rng = random.Random(14)
    texts = TEXTS + list(random_texts(rng, 160))
    # Half of the vocabulary keeps case and accents, so that both ways of reading differ.
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=SPECIAL, show_progress=False, limit_alphabet=400)
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    small = normalizers.BertNormalizer(lowercase=True)
    corpus = TEXTS + [small.normalize_str(t) for t in TEXTS * 3] + ["the quick brown fox runs, running unaffable affable " * 3]
    learner.train_from_iterator(corpus, trainer)
    vocab = learner.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    tables = []
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "vocab.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(tokens) + "\n")
        for lowercase, strip in [(True, None), (False, None), (True, False), (False, True)]:
            t = BertTokenizer(vocab={token: i for i, token in enumerate(tokens)}, do_lower_case=lowercase, strip_accents=strip)
            # Control tokens are never read from text: their spelling is plain text here.
            t.backend_tokenizer.encode_special_tokens = True
            assert t.convert_tokens_to_ids("[SEP]") == 3 and len(t) == len(tokens)
            ids = [t.backend_tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
            whole = t("Hello, world!")["input_ids"]
            pair = t("Hello, world!", "don't")["input_ids"]
            tables.append({"lowercase": lowercase, "strip_accents": strip, "ids": ids, "whole": whole, "pair": pair})
    json.dump({"tokens": tokens, "texts": texts, "tables": tables}, sys.stdout, ensure_ascii=True)
    print()


main()
