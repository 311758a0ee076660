"""Sorting, reversing, copying, picking from lists, and induction drills."""

from . import names
from .core import FULL
from .lexicon import WORDS_EN, WORDS_ZH

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _words(rng, lang, split, n):
    r = rng.random()
    if r < 0.65:
        return rng.sample(WORDS_ZH if lang == "zh" else WORDS_EN, n)
    out = []
    while len(out) < n:
        w = names.word(rng, lang, split)
        if w not in out:
            out.append(w)
    return out


def sort_numbers(rng, lang, split):
    """Three to five numbers in order."""
    nums = rng.sample(range(100) if rng.random() < 0.6 else range(21), rng.randint(3, 5))
    down = rng.random() < 0.25
    done = sorted(nums, reverse=down)
    if lang == "zh":
        text, reply = "、".join(map(str, nums)), "、".join(map(str, done))
        if down:
            return rng.choice((f"把这些数从大到小排列：{text}。", f"从大到小排序：{text}")), reply + "。"
        return rng.choice((f"把这些数从小到大排列：{text}。", f"从小到大排序：{text}", f"给这些数排序：{text}。")), reply + "。"
    text, reply = ", ".join(map(str, nums)), ", ".join(map(str, done))
    if down:
        return rng.choice((f"Sort these numbers from big to small: {text}.", f"Sort from high to low: {text}")), reply + "."
    return rng.choice((f"Sort these numbers: {text}.", f"Sort: {text}", f"Sort from small to big: {text}.", f"Put these numbers in order: {text}.")), reply + "."


def biggest(rng, lang, split):
    """The biggest or the smallest of some numbers."""
    nums = rng.sample(range(100), rng.randint(2, 5))
    big = rng.random() < 0.6
    best = max(nums) if big else min(nums)
    if lang == "zh":
        text = "、".join(map(str, nums))
        return (f"哪个数最大：{text}？", f"最大的数是{best}。") if big else (f"哪个数最小：{text}？", f"最小的数是{best}。")
    text = ", ".join(map(str, nums))
    word = rng.choice(("biggest", "largest")) if big else "smallest"
    return f"Which number is the {word}: {text}?", f"The {word} number is {best}."


def sort_words(rng, lang, split):
    """English words in alphabetical order; Chinese sorts numbers instead."""
    if lang == "zh":
        return sort_numbers(rng, lang, split)
    words, firsts = [], set()
    n = rng.randint(3, 5)
    while len(words) < n:
        w = rng.choice(WORDS_EN)
        if w[0] not in firsts:
            firsts.add(w[0])
            words.append(w)
    ask = rng.choice(("Sort these words: {t}.", "Sort the words in alphabetical order: {t}.", "Put these words in alphabetical order: {t}.", "Sort: {t}"))
    return ask.format(t=", ".join(words)), ", ".join(sorted(words)) + "."


def reverse(rng, lang, split):
    """A short list backwards."""
    if rng.random() < 0.4:
        items = list(map(str, rng.sample(range(10), rng.randint(3, 5))))
    else:
        items = _words(rng, lang, split, rng.randint(2, 5))
    if lang == "zh":
        return rng.choice(("把这个列表倒过来：{t}。", "倒着说：{t}。")).format(t="、".join(items)), "、".join(items[::-1]) + "。"
    return rng.choice(("Reverse this list: {t}.", "Say this list backwards: {t}.", "Reverse: {t}")).format(t=", ".join(items)), ", ".join(items[::-1]) + "."


def copy(rng, lang, split):
    """An exact copy of words, letters, digits or one sentence."""
    r = rng.random()
    if r < 0.2:
        text = " ".join(rng.choice(_LETTERS) for _ in range(rng.randint(3, 10)))
    elif r < 0.45:
        text = names.digits(rng, split)
    elif r < 0.6:
        text = names.word(rng, lang, split)
    elif r < 0.85:
        text = ("、" if lang == "zh" else ", ").join(_words(rng, lang, split, rng.randint(2, 8)))
    else:
        text = "".join(_words(rng, lang, split, 4)) if lang == "zh" else " ".join(_words(rng, lang, split, rng.randint(3, 7)))
    if lang == "zh":
        return rng.choice(("请重复：{t}", "跟我说：{t}", "重复这句话：{t}", "照抄：{t}", "请照着说一遍：{t}")).format(t=text), text
    return rng.choice(("Repeat: {t}", "Say this: {t}", "Copy this: {t}", "Repeat after me: {t}", "Please repeat: {t}", "Say: {t}")).format(t=text), text


def pick(rng, lang, split):
    """The first, last or n-th word of a list; or what follows a word."""
    n = rng.randint(3, 6)
    items = _words(rng, lang, split, n)
    i = rng.randrange(n)
    r = rng.random()
    if lang == "zh":
        text = "、".join(items)
        if r < 0.35 and i < n - 1:
            return f"列表：{text}。“{items[i]}”后面是什么？", f"“{items[i]}”后面是“{items[i + 1]}”。"
        if i == n - 1:
            return f"列表：{text}。最后一个词是什么？", f"最后一个词是“{items[-1]}”。"
        return f"列表：{text}。第{'一二三四五六'[i]}个词是什么？", f"第{'一二三四五六'[i]}个词是“{items[i]}”。"
    text = ", ".join(items)
    if r < 0.35 and i < n - 1:
        return f"The list is: {text}. What comes after {items[i]}?", f"After {items[i]} comes {items[i + 1]}."
    if i == n - 1:
        return f"The list is: {text}. What is the last word?", f"The last word is {items[-1]}."
    nth = ("first", "second", "third", "fourth", "fifth", "sixth")[i]
    return f"The list is: {text}. What is the {nth} word?", f"The {nth} word is {items[i]}."


_KINDS = (sort_numbers, sort_numbers, sort_words, reverse, copy, copy, copy, pick, pick, biggest)


def any_question(rng, lang, split):
    """A question of any kind in this module and its reply."""
    return rng.choice(_KINDS)(rng, lang, split)


def induction(rng, split: str, max_tokens: int):
    """Random words, then the same words again: only the repeat counts."""
    lang = "zh" if rng.random() < 0.4 else "en"
    style = rng.random()
    longest = max(12, min(100, max_tokens // 7))
    n = rng.randint(8, longest)
    words = []
    for _ in range(n):
        r = rng.random()
        if style < 0.3:
            words.append(rng.choice(WORDS_ZH if lang == "zh" else WORDS_EN))
        elif style < 0.5:
            words.append(names.digits(rng, split) if r < 0.5 else rng.choice(WORDS_ZH if lang == "zh" else WORDS_EN))
        elif r < 0.5:
            words.append(names.word(rng, lang, split))
        elif r < 0.65:
            words.append(names.name(rng, lang, split))
        else:
            words.append(names.digits(rng, split))
    sep = "、" if lang == "zh" else " "
    if style >= 0.3:
        words = words[: max(6, longest // 2)]
    end = "。\n" if lang == "zh" else ".\n"
    text = sep.join(words) + end
    parts = [(text, 0.0), (text, FULL)]
    if rng.random() < 0.3 and len(text) < 60:
        parts.append((text, FULL))
    return parts
