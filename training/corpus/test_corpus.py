"""Tests of the corpus generator: `python -m unittest corpus.test_corpus`."""

import itertools
import os
import random
import re
import subprocess
import sys
import unittest

from corpus import MIXTURE, documents, heldout_texts, tagged_documents, tasks, text_of
from corpus.arithmetic import allowed
from corpus.core import IM_END, IM_START, Segment, _tidy, est_tokens, held_out
from corpus.names import _EN
from corpus.openers import opener

SUM = re.compile(r"(?<!\d)(\d{1,2}) ([+-]) (\d{1,2}) = (\d{1,2})(?!\d)")


def take(n, **kw):
    return list(itertools.islice(documents(7, **kw), n))


class Corpus(unittest.TestCase):
    def test_train_never_emits_what_is_held_out(self):
        shunned = set(_EN["heldout"])
        self.assertTrue(shunned)
        for doc in take(6000, split="train"):
            text = text_of(doc)
            self.assertFalse(shunned & set(re.findall(r"[A-Z][a-z]+", text)), text)
            for number in re.findall(r"\d{4,6}", text):
                self.assertFalse(held_out("number", number), number)
            for a, op, b, _ in SUM.findall(text):
                self.assertTrue(allowed(op, int(a), int(b), "train"), (a, op, b))
            for name in re.findall(r"(?:[Mm]y name is|call me) ([A-Z][a-z]+)", text) + re.findall(r"(?:我叫|名字是|大家都叫我)(\w{2,3})[。，]", text):
                self.assertFalse(held_out("name", name.lower()), name)

    def test_equations_are_right(self):
        for doc in take(2000, split="train"):
            for a, op, b, c in SUM.findall(text_of(doc)):
                self.assertEqual(int(a) + int(b) if op == "+" else int(a) - int(b), int(c))

    def test_same_seed_same_documents_whatever_the_hash_seed(self):
        code = "import itertools,hashlib;from corpus import *;print(hashlib.md5(''.join(text_of(d) for d in itertools.islice(documents(3,'train'),300)).encode()).hexdigest())"
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        out = {subprocess.run([sys.executable, "-c", code], cwd=here, env={**os.environ, "PYTHONHASHSEED": s}, check=True, capture_output=True).stdout for s in ("1", "2")}
        self.assertEqual(len(out), 1)
        self.assertNotEqual(take(20, split="train"), take(20, split="heldout"))

    def test_documents_are_well_formed(self):
        for limit in (256, 1000):
            for kind, lang, doc in itertools.islice(tagged_documents(5, "train", limit), 3000):
                text = text_of(doc)
                self.assertLessEqual(est_tokens(text), limit * (1.1 if lang == "en" else 2.5), text)
                self.assertEqual(doc[-1], Segment("<|endoftext|>", 0.3, True))
                self.assertEqual(text.count(IM_START), text.count(IM_END))
                self.assertIsNone(re.search(r"\{\w*\}", text), text)
                self.assertNotIn("  ", text)
                self.assertTrue(all(s.text for s in doc))
                self.assertTrue(any(s.weight == 1.0 for s in doc), kind)
                for s in doc:
                    self.assertEqual(s.special, s.text.startswith("<|") and s.text.endswith("|>"))

    def test_every_kind_occurs(self):
        kinds = {k for k, _, _ in itertools.islice(tagged_documents(1), 2000)}
        self.assertEqual(kinds, set(MIXTURE))

    def test_boundaries_follow_the_pre_tokenizer(self):
        self.assertEqual(_tidy([("a. ", 1), ("B", 2)]), [("a.", 1), (" B", 2)])
        self.assertEqual(_tidy([("好。", 1), ("天", 2)]), [("好", 1), ("。天", 2)])
        self.assertEqual(_tidy([("好。", 1), ("\n天", 2)]), [("好。\n", 1), ("天", 2)])

    def test_tasks_are_answerable_and_held_out(self):
        for kind, items in tasks(1, 20).items():
            self.assertEqual(len(items), 20)
            self.assertEqual({i.lang for i in items}, {"en", "zh"})
            for item in items:
                self.assertEqual(item.messages[-1]["role"], "user")
                context = "".join(m["content"] for m in item.messages).lower()
                self.assertLess(est_tokens(context), 1030 if item.lang == "en" else 2500)
                if kind in ("passkey", "name", "keyvalue"):
                    self.assertIn(item.answer.lower(), context)
                if kind == "passkey":
                    self.assertTrue(held_out("number", item.answer))
                if kind == "arithmetic":
                    a, op, b, _, _ = item.answer.split()
                    self.assertTrue(allowed(op, int(a), int(b), "heldout"))
        depths = [i.depth for i in tasks(1, 20)["passkey"]]
        self.assertEqual((min(depths), max(depths)), (0.0, 1.0))

    def test_what_is_measured_on_stays_as_it_is(self):
        """More of what people ask must not change the texts in assets/heldout, or no figure can be compared."""
        assets = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "assets", "heldout")
        for name, text in heldout_texts(1).items():
            with open(os.path.join(assets, name), encoding="utf-8") as f:
                self.assertEqual(f.read(), text, name)

    def test_first_prompts_have_one_kind_of_reply(self):
        for lang in ("en", "zh"):
            rng, replies = random.Random(1), {}
            for _ in range(30_000):
                ask, reply = opener(rng, lang, "train")
                self.assertTrue(ask and reply and "{x}" not in ask + reply and "{n}" not in ask, (ask, reply))
                replies.setdefault(ask, set()).add(reply)
            for ask, reply in {"en": [("Say hello", "Hello!"), ("Count to five.", "1, 2, 3, 4, 5."), ("What is 2 + 2?", "2 + 2 = 4.")],
                               "zh": [("说你好", "你好！"), ("数到五", "1、2、3、4、5。"), ("1+1等于几？", "1 + 1 = 2。")]}[lang]:
                self.assertEqual(replies[ask], {reply})

    def test_heldout_texts_are_small(self):
        size = sum(len(t.encode()) for t in heldout_texts(1).values())
        self.assertTrue(30_000 <= size <= 65_000, size)


if __name__ == "__main__":
    unittest.main()
