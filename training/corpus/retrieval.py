"""Pass keys, key-value lists and several needles in filler.

Every long context is followed by several questions, so that one long
document teaches several look-ups.
"""

import math

from . import names
from .core import FILLER, USER, est_tokens, turns
from .filler import sentence
from .lexicon import COLOURS, DISHES, PLACES, WORDS_EN, ZH_KEYS


def length(rng, max_tokens: int) -> int:
    """A context length: log-uniform, with more weight on the long ones."""
    top = int(0.96 * max_tokens)
    if rng.random() < 0.4:
        return rng.randint(top // 2, top)
    return int(math.exp(rng.uniform(math.log(60), math.log(top))))


class Needle:
    """A sentence to hide, the questions for it, the reply and the core of the reply."""

    def __init__(self, text, asks, reply, value):
        self.text, self.asks, self.reply, self.value = text, asks, reply, value


def pass_key(rng, lang, split) -> Needle:
    """The classic pass key."""
    key = names.digits(rng, split, 5, 5) if rng.random() < 0.8 else names.digits(rng, split)
    if lang == "zh":
        text = rng.choice((f"密钥是{key}。", f"密钥是{key}。", f"密钥是{key}，请记住。", f"请记住，密钥是{key}。"))
        return Needle(text, ["密钥是什么？", "密钥是多少？", "请告诉我密钥。", "上面的密钥是什么？"], f"密钥是{key}。", key)
    text = rng.choice((f"The pass key is {key}.", f"The pass key is {key}.", f"The pass key is {key}. Remember it.", f"Remember this: the pass key is {key}."))
    return Needle(text, ["What is the pass key?", "What was the pass key?", "Tell me the pass key.", "What is the pass key in the text?", "Which pass key did I tell you?"], f"The pass key is {key}.", key)


def _value(rng, lang, split):
    r = rng.random()
    if r < 0.6:
        return names.digits(rng, split, 4, 5)
    if r < 0.85:
        return names.word(rng, lang, split)
    return rng.choice(ZH_KEYS if lang == "zh" else WORDS_EN)


def code(rng, lang, split, place) -> Needle:
    """The code of a place."""
    v = names.digits(rng, split, 4, 5)
    if lang == "zh":
        z = place[2]
        return Needle(f"{z}的密码是{v}。", [f"{z}的密码是什么？", f"{z}的密码是多少？", f"请告诉我{z}的密码。"], f"{z}的密码是{v}。", v)
    e = place[0]
    return Needle(f"The code for the {e} is {v}.", [f"What is the code for the {e}?", f"Tell me the code for the {e}.", f"What was the code for the {e}?"], f"The code for the {e} is {v}.", v)


def person(rng, lang, split, who) -> Needle:
    """Something about a named person."""
    k = rng.randrange(4)
    if lang == "zh":
        if k == 0:
            v = names.digits(rng, split, 4, 5)
            return Needle(f"{who}的号码是{v}。", [f"{who}的号码是多少？", f"{who}的号码是什么？"], f"{who}的号码是{v}。", v)
        if k == 1:
            v = rng.choice(COLOURS)[1]
            return Needle(f"{who}最喜欢的颜色是{v}。", [f"{who}最喜欢的颜色是什么？", f"{who}最喜欢什么颜色？"], f"{who}最喜欢的颜色是{v}。", v)
        if k == 2:
            v = rng.choice(DISHES)[1]
            return Needle(f"{who}最喜欢吃的是{v}。", [f"{who}最喜欢吃什么？"], f"{who}最喜欢吃的是{v}。", v)
        v = names.word(rng, lang, split)
        return Needle(f"{who}的暗号是“{v}”。", [f"{who}的暗号是什么？"], f"{who}的暗号是“{v}”。", v)
    if k == 0:
        v = names.digits(rng, split, 4, 5)
        return Needle(f"The number of {who} is {v}.", [f"What is the number of {who}?", f"Tell me the number of {who}."], f"The number of {who} is {v}.", v)
    if k == 1:
        v = rng.choice(COLOURS)[0]
        return Needle(f"The favourite colour of {who} is {v}.", [f"What is the favourite colour of {who}?", f"Which colour does {who} like best?"], f"The favourite colour of {who} is {v}.", v)
    if k == 2:
        v = rng.choice(DISHES)[0]
        return Needle(f"The favourite food of {who} is {v}.", [f"What is the favourite food of {who}?", f"What does {who} like to eat?"], f"The favourite food of {who} is {v}.", v)
    v = names.word(rng, lang, split)
    return Needle(f"The secret word of {who} is {v}.", [f"What is the secret word of {who}?", f"Tell me the secret word of {who}."], f"The secret word of {who} is {v}.", v)


def magic(rng, lang, split) -> Needle:
    """The magic word."""
    v = names.word(rng, lang, split)
    if lang == "zh":
        return Needle(f"咒语是“{v}”。", ["咒语是什么？", "请告诉我咒语。"], f"咒语是“{v}”。", v)
    return Needle(f"The magic word is {v}.", ["What is the magic word?", "Tell me the magic word."], f"The magic word is {v}.", v)


def needles(rng, lang, split, n) -> list:
    """`n` different needles."""
    places = rng.sample(PLACES, min(n, len(PLACES)))
    people = names.names(rng, lang, split, n)
    out, seen = [], set()
    while len(out) < n:
        r = rng.random()
        if r < 0.3 and "key" not in seen:
            seen.add("key")
            out.append(pass_key(rng, lang, split))
        elif r < 0.4 and "magic" not in seen:
            seen.add("magic")
            out.append(magic(rng, lang, split))
        elif r < 0.7 and places:
            out.append(code(rng, lang, split, places.pop()))
        elif people:
            out.append(person(rng, lang, split, people.pop()))
    return out


_INTRO = {"en": ["", "Read this text.\n", "Here is a text. Remember what is important.\n", "Read the text and answer the question.\n", "There is something important in this text. Find it.\n"],
          "zh": ["", "请读这段文字。\n", "下面的文字里有重要的内容，请记住。\n", "请读下面的文字，再回答问题。\n", "这段文字里藏着重要的内容。\n"]}


def haystack(rng, lang, hidden, tokens, depth=None):
    """Message parts: an introduction, then filler with the needles in it.

    `depth` puts a single needle at that fraction of the filler.
    """
    intro = rng.choice(_INTRO[lang])
    budget = tokens - sum(est_tokens(h.text) for h in hidden) - 30
    # Many of the Chinese filler sentences are few tokens.
    share = 0.36 if lang == "zh" else 1.0
    lines = []
    while budget > 0:
        s = sentence(rng, lang)
        budget -= est_tokens(s) * share
        lines.append((s, FILLER))
    if depth is not None:
        lines.insert(round(depth * len(lines)), (hidden[0].text, FILLER))
    else:
        spots = sorted((rng.randint(0, len(lines)) for _ in hidden), reverse=True)
        for spot, h in zip(spots, hidden[::-1]):
            lines.insert(spot, (h.text, USER))
    gap = "" if lang == "zh" else " "
    parts = [(intro, USER)] if intro else []
    for i, (s, w) in enumerate(lines):
        parts.append((s if i == 0 else gap + s, w))
    return parts


_READ = {"en": [("Please read this.", "I have read it."), ("Remember this text.", "I have read it.")], "zh": [("请读一读。", "我读完了。"), ("请记住这段文字。", "我读完了。")]}


def _assemble(rng, lang, parts, questions):
    """A chat of the text, the first question in the same message or after it, and the rest."""
    if rng.random() < 0.85:
        first = parts + [("\n" + questions[0][0], USER)]
        return turns([(first, questions[0][1])] + questions[1:])
    ask, reply = rng.choice(_READ[lang])
    return turns([(parts + [("\n" + ask, USER)], reply)] + questions)


def passkey(rng, lang, split, max_tokens):
    """Needles in filler, each asked for in a turn of its own."""
    target = length(rng, max_tokens)
    n = 1 if rng.random() < 0.2 or target < 100 else rng.randint(2, max(2, min(8, target // 45)))
    hidden = [pass_key(rng, lang, split)] if n == 1 else needles(rng, lang, split, n)
    budget = target - sum(est_tokens(h.reply) + 22 for h in hidden)
    parts = haystack(rng, lang, hidden, max(30, budget))
    order = rng.sample(hidden, n)
    return _assemble(rng, lang, parts, [(rng.choice(h.asks), h.reply) for h in order])


def both(rng, lang, a, b):
    """The question for two needles in order, and its reply."""
    if lang == "zh":
        x, y = a.reply[:-1].split("的密码是")[0], b.reply[:-1].split("的密码是")[0]
        ask = rng.choice((f"{x}和{y}的密码分别是什么？", f"{x}的密码是什么？{y}的密码呢？", f"请告诉我{x}和{y}的密码。"))
        return ask, f"{a.reply[:-1]}，{b.reply}"
    x, y = (h.reply[13:].split(" is ")[0] for h in (a, b))
    ask = rng.choice((f"What are the codes for {x} and {y}?", f"What is the code for {x}, and what is the code for {y}?", f"Tell me the codes for {x} and {y}."))
    return ask, f"{a.reply[:-1]} and {b.reply[0].lower()}{b.reply[1:]}"


def two_needles(rng, lang, split, max_tokens):
    """Codes of two or more places; one or two are asked for in each turn."""
    target = length(rng, max_tokens)
    n = rng.choice((2, 2, 3, 4)) if target > 150 else 2
    hidden = [code(rng, lang, split, p) for p in rng.sample(PLACES, n)]
    asks = rng.choice((2, 3)) if target > 150 else rng.choice((1, 2))
    parts = haystack(rng, lang, hidden, max(30, target - asks * 45))
    questions = []
    for i in range(asks):
        a, b = rng.sample(hidden, 2)
        questions.append(both(rng, lang, a, b) if (i + rng.randrange(2)) % 2 == 0 else (rng.choice(a.asks), a.reply))
    return _assemble(rng, lang, parts, questions)


def _kv(rng, lang, split, n):
    """`n` keys with values; keys and values each of one style."""
    style, kinds = rng.random(), rng.random()
    out, seen = [], set()
    while len(out) < n:
        r = rng.random()
        if style < 0.35:
            key = rng.choice(ZH_KEYS if lang == "zh" else WORDS_EN)
        elif style < 0.7 or r < 0.5:
            key = names.word(rng, lang, split)
        elif r < 0.8:
            key = rng.choice(ZH_KEYS if lang == "zh" else WORDS_EN)
        else:
            key = names.name(rng, lang, split)
        if key in seen:
            continue
        seen.add(key)
        value = names.digits(rng, split, 4, 4) if kinds < 0.6 else _value(rng, lang, split)
        out.append((key, value))
    return out


def _kv_text(rng, lang, pairs):
    """The list as message parts; each key is written as in the questions."""
    if lang == "zh":
        form = rng.randrange(3)
        parts = [(rng.choice(("下面是一个列表：", "请记住这些：", "列表如下：")), USER)]
        for k, v in pairs:
            quoted = v if v.isdigit() else f"“{v}”"
            parts.append(((f"\n“{k}”：{quoted}", f"\n“{k}”的值是{quoted}。", f"“{k}”是{quoted}；")[form], FILLER))
        return parts
    form = rng.randrange(4)
    parts = [(rng.choice(("Here is a list:", "Remember these:", "Here are some keys and values:", "This is the list:")), USER)]
    for k, v in pairs:
        parts.append(((f"\n- {k}: {v}", f"\n- {k} = {v}", f" The value of {k} is {v}.", f" {k} = {v};")[form], FILLER))
    return parts


def _kv_ask(rng, lang, key, value):
    if lang == "zh":
        quoted = value if value.isdigit() else f"“{value}”"
        return rng.choice((f"“{key}”的值是什么？", f"“{key}”的值是多少？", f"“{key}”是什么？", f"“{key}”对应什么？")), f"“{key}”的值是{quoted}。"
    return rng.choice((f"What is the value of {key}?", f"What is the value of {key}?", f"Tell me the value of {key}.", f"Which value does {key} have?", f"Give me the value for {key}.")), f"The value of {key} is {value}."


def key_value(rng, lang, split, max_tokens):
    """A list of 5 to 40 pairs with several questions."""
    most = max(6, min(40, (max_tokens - 150) // 15))
    n = min(most, int(math.exp(rng.uniform(math.log(5), math.log(41)))))
    pairs = _kv(rng, lang, split, n)
    asked = rng.sample(pairs, min(n, rng.randint(3, 9 if max_tokens > 300 else 4)))
    parts = _kv_text(rng, lang, pairs)
    return _assemble(rng, lang, parts, [_kv_ask(rng, lang, k, v) for k, v in asked])


def passkey_item(rng, lang, depth, tokens):
    """A held-out pass key question at a depth: `(chat, answer)`."""
    needle = pass_key(rng, lang, "heldout")
    parts = haystack(rng, lang, [needle], tokens - 40, depth) + [("\n" + rng.choice(needle.asks), USER)]
    return [("user", parts)], needle.value


def two_needles_item(rng, lang, tokens):
    """A held-out question for one or both of two codes: `(chat, answer)`."""
    hidden = [code(rng, lang, "heldout", p) for p in rng.sample(PLACES, 2)]
    parts = haystack(rng, lang, hidden, tokens - 60)
    a, b = rng.sample(hidden, 2)
    ask, answer = both(rng, lang, a, b) if rng.random() < 0.5 else (rng.choice(a.asks), a.value)
    return [("user", parts + [("\n" + ask, USER)])], answer


def key_value_item(rng, lang):
    """A held-out key-value question: `(chat, answer)`."""
    pairs = _kv(rng, lang, "heldout", rng.randint(5, 40))
    parts = _kv_text(rng, lang, pairs)
    key, value = rng.choice(pairs)
    ask, _ = _kv_ask(rng, lang, key, value)
    return [("user", parts + [("\n" + ask, USER)])], value
