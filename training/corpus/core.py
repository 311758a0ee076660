"""Data types of the corpus, the held-out split and the rendering of a chat.

A chat is a list of messages `(role, parts)`; parts is a list of
`(text, weight)`.  `render` turns it into segments with the ChatML control
tokens as segments of their own.
"""

from hashlib import blake2b
from typing import NamedTuple, Optional

FILLER = 0.1  # loss weight of random context
USER = 0.3  # loss weight of what a user writes
FULL = 1.0  # loss weight of what can be predicted

IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
END = "<|endoftext|>"


class Segment(NamedTuple):
    """A piece of text with its loss weight; `special` marks a control token."""

    text: str
    weight: float
    special: bool = False


class Item(NamedTuple):
    """A recall question: the greedy reply must contain `answer`."""

    kind: str
    lang: str
    messages: list
    answer: str
    depth: Optional[float] = None


_CACHE: dict = {}


def held_out(kind: str, value: str) -> bool:
    """True for the tenth of all values which training never sees."""
    key = kind + ":" + value
    got = _CACHE.get(key)
    if got is None:
        got = int.from_bytes(blake2b(key.encode(), digest_size=4).digest(), "big") % 10 == 0
        if len(_CACHE) < 400_000:
            _CACHE[key] = got
    return got


def in_split(kind: str, value: str, split: str) -> bool:
    """True where `value` may be emitted in `split`."""
    return held_out(kind, value) == (split == "heldout")


def est_tokens(text: str) -> int:
    """An estimate of the number of tokens of `text`, rather high for Chinese.

    A digit is a token, and the space or sign between numbers is another one.
    """
    digits = 0
    for d in "0123456789":
        digits += text.count(d)
    wide = (len(text.encode()) - len(text)) // 2
    return int((len(text) - digits - wide) / 4.2 + 1.4 * digits + 0.55 * wide) + 1


def _tidy(parts):
    """Move boundaries to where the pre-tokenizer splits anyway.

    The pre-tokenizer joins one punctuation mark or space with the letters
    after it, and newlines with the punctuation before them.
    """
    out = []
    for text, weight in parts:
        if not text:
            continue
        if out:
            prev, prev_weight = out[-1]
            body = text.lstrip("\n")
            prev += text[: len(text) - len(body)]
            text = body
            if text and text[0].isalpha() and prev and not prev[-1].isalnum() and prev[-1] != "\n":
                single = len(prev) < 2 or prev[-1] == " " or prev[-2].isalnum() or prev[-2].isspace()
                if single:
                    text = prev[-1] + text
                    prev = prev[:-1]
            out[-1] = (prev, prev_weight)
            if not text:
                continue
            if prev_weight == weight or not prev:
                out[-1] = (prev + text, weight)
                continue
        out.append((text, weight))
    return out


def render(chat) -> list:
    """The ChatML document of a chat, closed by the end-of-text token."""
    doc = []
    for role, parts in chat:
        reply = role == "assistant"
        edge = FULL if reply else USER
        doc.append(Segment(IM_START, USER, True))
        doc.append(Segment(role + "\n", USER))
        doc.extend(Segment(t, w) for t, w in _tidy(parts))
        doc.append(Segment(IM_END, edge, True))
        doc.append(Segment("\n", USER))
    doc.append(Segment(END, USER, True))
    return doc


def plain(parts) -> list:
    """A document without dialogue, closed by the end-of-text token."""
    doc = [Segment(t, w) for t, w in _tidy(parts)]
    doc.append(Segment(END, USER, True))
    return doc


def user(text: str):
    """A user message."""
    return ("user", [(text, USER)])


def assistant(text: str):
    """A reply."""
    return ("assistant", [(text, FULL)])


def turns(pairs) -> list:
    """A chat from (question, reply) pairs."""
    chat = []
    for question, reply in pairs:
        chat.append(user(question) if isinstance(question, str) else ("user", question))
        chat.append(assistant(reply))
    return chat


def text_of(doc) -> str:
    """The whole text of a document, control tokens included."""
    return "".join(s.text for s in doc)


def messages_of(chat) -> list:
    """A chat as role and content dictionaries."""
    return [{"role": r, "content": "".join(t for t, _ in p)} for r, p in chat]


def chat_tokens(chat) -> int:
    """Estimated tokens of a chat."""
    return sum(est_tokens("".join(t for t, _ in p)) + 5 for _, p in chat)


def article(noun: str) -> str:
    """`a` or `an` with the noun."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def cap(text: str) -> str:
    """First letter upper-case."""
    return text[:1].upper() + text[1:]


def join_and(words, lang: str) -> str:
    """`a, b and c` or its Chinese form."""
    words = list(words)
    if len(words) == 1:
        return words[0]
    if lang == "zh":
        return "、".join(words[:-1]) + "和" + words[-1]
    return ", ".join(words[:-1]) + " and " + words[-1]


def rough(rng, text: str, lang: str, lower: bool = True) -> str:
    """A question as people type it: case, punctuation, politeness.

    `lower` is false where the text holds names or words to be copied.
    """
    r = rng.random()
    if lang == "zh":
        if r < 0.12 and text[-1] in "？。！":
            return text[:-1]
        if r < 0.22 and text[-1] == "？":
            return text[:-1] + "?"
        if r < 0.30 and text[-1] == "？" and not text.startswith(("请", "你好")):
            return "请问，" + text
        if r < 0.33 and text[-1] == "？" and not text.startswith(("你好", "请")):
            return "你好，" + text
        return text
    if r < 0.18:
        text = text.lower() if lower else text[0].lower() + text[1:]
        if not lower and text.startswith("i "):
            text = "I" + text[1:]
        if rng.random() < 0.6 and text[-1] in "?.!":
            text = text[:-1]
    elif r < 0.28 and text[-1] in "?.":
        text = text[:-1]
    elif r < 0.34 and text[-1] in "?." and "lease" not in text:
        text = text[:-1] + ", please" + text[-1]
    elif r < 0.37 and lower and text[-1] == "?":
        text = rng.choice(("Hi! ", "Hello. ", "I have a question. ")) + text
    elif r < 0.38 and lower:
        text = text.upper()
    return text
