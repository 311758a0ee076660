"""The mixture of kinds, the endless stream of documents and the recall tasks."""

import random

from . import arithmetic, conversation, facts, lists, retrieval, stories
from .core import FULL, USER, Item, est_tokens, messages_of, plain, render, rough, text_of, turns, user

# Kind: share of tokens, first guess of tokens per document.
MIXTURE = {
    "chat": (0.20, 220),
    "first_words": (0.09, 120),
    "questions": (0.08, 130),
    "name": (0.06, 180),
    "story": (0.06, 200),
    "facts": (0.09, 150),
    "arith_drill": (0.12, 270),
    "arith_chat": (0.05, 160),
    "lists": (0.05, 110),
    "passkey": (0.12, 500),
    "two_needles": (0.09, 450),
    "key_value": (0.09, 340),
    "induction": (0.04, 250),
}
# For a short training of a finished model: all it knows, and first prompts above all.
TUNING = {**MIXTURE, "first_words": (0.9, 120)}
ZH_SHARE = 0.5
MAX_TOKENS = 1000


def _some(rng, make, low, high):
    return turns([make() for _ in range(rng.randint(low, high))])


def _arith(rng, lang, split):
    ask, reply = arithmetic.any_question(rng, lang, split)
    return (rough(rng, ask, lang, False), reply) if rng.random() < 0.3 else (ask, reply)


def _story(rng, lang, split, max_tokens):
    parts = []
    for _ in range(rng.randint(1, min(3, max(1, max_tokens // 160)))):
        if parts:
            parts.append(("\n\n", USER))
        parts.append((stories.story(rng, lang, split)[0], FULL))
    return plain(parts)


def document(rng, kind: str, lang: str, split: str, max_tokens: int) -> list:
    """One document of a kind."""
    if kind == "story":
        return _story(rng, lang, split, max_tokens)
    if kind == "arith_drill":
        return plain(arithmetic.drill(rng, split, max_tokens))
    if kind == "induction":
        return plain(lists.induction(rng, split, max_tokens))
    if kind == "chat":
        chat = conversation.conversation(rng, lang, split, max_tokens)
    elif kind == "questions":
        chat = conversation.questions(rng, lang, split, max_tokens)
    elif kind == "first_words":
        chat = conversation.first_words(rng, lang, split, max_tokens)
    elif kind == "name":
        chat = conversation.name_chat(rng, lang, split, max_tokens)[0]
    elif kind == "facts":
        chat = facts.context(rng, lang, split, max_tokens)
    elif kind == "arith_chat":
        chat = _some(rng, lambda: _arith(rng, lang, split), 2, min(8, max_tokens // 40))
    elif kind == "lists":
        chat = _some(rng, lambda: lists.any_question(rng, lang, split), 1, min(5, max_tokens // 60))
    elif kind == "passkey":
        chat = retrieval.passkey(rng, lang, split, max_tokens)
    elif kind == "two_needles":
        chat = retrieval.two_needles(rng, lang, split, max_tokens)
    elif kind == "key_value":
        chat = retrieval.key_value(rng, lang, split, max_tokens)
    else:
        raise ValueError(f"unknown kind {kind!r}, expected one of {', '.join(MIXTURE)}")
    return render(chat)


def tagged_documents(seed, split="train", max_tokens=MAX_TOKENS, kind=None, mixture=MIXTURE):
    """Endless `(kind, language, document)`; `kind` limits it to one."""
    if split not in ("train", "heldout"):
        raise ValueError(f"unknown split {split!r}, expected train or heldout")
    rng = random.Random(f"corpus {seed} {split} {max_tokens} {kind}")
    kinds = [kind] if kind else list(mixture)
    if kind and kind not in MIXTURE:
        raise ValueError(f"unknown kind {kind!r}, expected one of {', '.join(MIXTURE)}")
    # Running totals turn shares of tokens into chances of documents.
    size = {k: mixture[k][1] * min(1.0, max_tokens / MAX_TOKENS) * 10 for k in kinds}
    count = {k: 10 for k in kinds}
    weights, made = [], 0
    while True:
        if made % 500 == 0:
            weights = [mixture[k][0] * count[k] / size[k] for k in kinds]
        made += 1
        chosen = rng.choices(kinds, weights)[0]
        lang = "zh" if rng.random() < ZH_SHARE else "en"
        doc = document(rng, chosen, lang, split, max_tokens)
        size[chosen] += est_tokens("".join([s.text for s in doc]))
        count[chosen] += 1
        yield chosen, lang, doc


def documents(seed, split="train", max_tokens=MAX_TOKENS, mixture=MIXTURE):
    """Endless documents; the same seed, split, limit and mixture give the same ones."""
    for _, _, doc in tagged_documents(seed, split, max_tokens, mixture=mixture):
        yield doc


def _arith_item(rng, lang):
    ask, _, equation = arithmetic.question(rng, lang, "heldout")
    return [user(ask)], equation


def tasks(seed, n: int, fits=None) -> dict:
    """`n` held-out items of each kind, English and Chinese in turn. One that does not pass `fits` is made again, shorter."""
    out = {"passkey": [], "keyvalue": [], "two_needles": [], "arithmetic": [], "name": []}
    for kind, items in out.items():
        for i in range(n):
            rng = random.Random(f"task {kind} {seed} {i}")
            item = _task(rng, kind, i, n, 1.0)
            shorter = 0.9
            while fits and not fits(item):
                item = _task(rng, kind, i, n, shorter)
                shorter *= 0.9
            items.append(item)
    return out


def _task(rng: random.Random, kind: str, i: int, n: int, scale: float) -> Item:
    lang, depth = ("en", "zh")[i % 2], None
    if kind == "passkey":
        depth = (i // 2) / max(1, (n + 1) // 2 - 1)
        chat, answer = retrieval.passkey_item(rng, lang, depth, int(scale * rng.choice((200, 400, 600, 800, 980))))
    elif kind == "keyvalue":
        chat, answer = retrieval.key_value_item(rng, lang)
    elif kind == "two_needles":
        chat, answer = retrieval.two_needles_item(rng, lang, int(scale * rng.choice((150, 300, 500, 700, 980))))
    elif kind == "arithmetic":
        chat, answer = _arith_item(rng, lang)
    else:
        chat, answer = conversation.name_chat(rng, lang, "heldout", int(scale * 900), rng.randint(1, 6))
        chat = chat[:-1]
    return Item(kind, lang, messages_of(chat), answer, depth)


def heldout_texts(seed) -> dict:
    """Plain texts for perplexity: chats and stories, English and Chinese."""
    out = {}
    for lang in ("en", "zh"):
        rng = random.Random(f"heldout text {seed} {lang}")
        chats, tales = [], []
        while sum(map(len, chats)) < (14_000 if lang == "en" else 5_000):
            kind = rng.choice(("chat", "questions", "name", "facts", "chat"))
            chats.append(text_of(document(rng, kind, lang, "heldout", MAX_TOKENS)))
        while sum(map(len, tales)) < (8_000 if lang == "en" else 2_800):
            tales.append(text_of(document(rng, "story", lang, "heldout", MAX_TOKENS)))
        out[f"chat-{lang}.txt"] = "".join(chats)
        out[f"story-{lang}.txt"] = "".join(tales)
    return out


__all__ = ["MAX_TOKENS", "MIXTURE", "TUNING", "document", "documents", "heldout_texts", "tagged_documents", "tasks"]
