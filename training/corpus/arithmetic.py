"""One-step arithmetic, counting and drills."""

from .core import FULL, in_split
from .lexicon import ANIMALS, FOODS, OBJECTS
from . import names


def allowed(op: str, a: int, b: int, split: str) -> bool:
    """True where the sum or difference belongs to the split.

    The smallest ones, which everybody asks first, are never held out.
    """
    if max(a, b) <= 5:
        return split == "train"
    return in_split("arith", f"{min(a, b)}+{max(a, b)}" if op == "+" else f"{a}-{b}", split)


def problem(rng, split: str):
    """`(a, op, b, result)` with operands and result in 0..99.

    Sums and differences obey the split, a sum together with its mirror
    image; products up to 9 x 9 occur in both.
    """
    while True:
        r = rng.random()
        if r < 0.12 and split == "train":
            a, b = rng.randint(0, 9), rng.randint(0, 9)
            return a, "x", b, a * b
        top = 10 if r < 0.35 else 20 if r < 0.55 else 99
        if rng.random() < 0.5:
            total = rng.randint(0, 2 * top if top < 99 else 99)
            a = rng.randint(max(0, total - top), min(top, total))
            b = total - a
            if allowed("+", a, b, split):
                return a, "+", b, total
        else:
            a = rng.randint(0, top)
            b = rng.randint(0, a)
            if allowed("-", a, b, split):
                return a, "-", b, a - b


_ASK_EN = {
    "+": ["What is {a} + {b}?", "{a} + {b}", "{a} + {b} = ?", "{a}+{b}=", "{a}+{b}", "What is {a} plus {b}?", "How much is {a} + {b}?", "Calculate {a} + {b}.", "Add {a} and {b}.", "what's {a}+{b}?", "Can you add {a} and {b}?", "What's {a} + {b}?", "{a} + {b} =", "What is {a}+{b}?"],
    "-": ["What is {a} - {b}?", "{a} - {b}", "{a} - {b} = ?", "{a}-{b}=", "{a}-{b}", "What is {a} minus {b}?", "How much is {a} - {b}?", "Calculate {a} - {b}.", "Take {b} away from {a}.", "what's {a}-{b}?", "Subtract {b} from {a}.", "{a} - {b} =", "What is {a}-{b}?"],
    "x": ["What is {a} x {b}?", "{a} x {b}", "{a} x {b} = ?", "{a}*{b}=", "What is {a} times {b}?", "How much is {a} * {b}?", "Calculate {a} x {b}.", "Multiply {a} by {b}.", "what's {a}*{b}?"],
}
_ASK_ZH = {
    "+": ["{a} + {b}等于多少？", "{a}+{b}=？", "{a}+{b}=", "{a}加{b}等于多少？", "{a}加{b}等于几？", "请计算{a} + {b}。", "{a}加上{b}是多少？", "算一下{a}+{b}", "{a} + {b} = ?", "{a}+{b}等于几？", "{a}+{b}"],
    "-": ["{a} - {b}等于多少？", "{a}-{b}=？", "{a}-{b}=", "{a}减{b}等于多少？", "{a}减{b}等于几？", "请计算{a} - {b}。", "{a}减去{b}是多少？", "算一下{a}-{b}", "{a} - {b} = ?", "{a}-{b}等于几？", "{a}-{b}"],
    "x": ["{a} x {b}等于多少？", "{a}*{b}=？", "{a}乘{b}等于多少？", "{a}乘以{b}等于几？", "请计算{a} x {b}。", "{a}乘以{b}是多少？", "算一下{a}*{b}"],
}


def question(rng, lang: str, split: str):
    """A question, its reply and the equation inside the reply."""
    a, op, b, result = problem(rng, split)
    ask = rng.choice((_ASK_ZH if lang == "zh" else _ASK_EN)[op]).format(a=a, b=b)
    equation = f"{a} {op} {b} = {result}"
    return ask, equation + ("。" if lang == "zh" else "."), equation


def story_question(rng, lang: str, split: str):
    """A sum as a short story about things."""
    while True:
        a, op, b, result = problem(rng, split)
        if op != "x" and 2 <= a <= 30 and 2 <= b <= 30 and result >= 2:
            break
    who = names.name(rng, lang, split)
    if lang == "zh":
        thing, m = rng.choice([(o[2], o[3]) for o in OBJECTS] + [(f[2], "个") for f in FOODS[:3]])
        first = f"{who}有{a}{m}{thing}，"
        more = f"又得到了{b}{m}。" if op == "+" else f"送出去了{b}{m}。"
        return first + more + rng.choice((f"现在有多少{m}{thing}？", f"现在一共有几{m}？" if op == "+" else f"还剩几{m}？")), f"{a} {op} {b} = {result}，现在有{result}{m}{thing}。"
    thing = rng.choice([o[1] for o in OBJECTS] + [f[1] for f in FOODS])
    more = f"gets {b} more" if op == "+" else f"gives {b} away"
    ask = rng.choice(("How many {t} are there now?", "How many {t} does {w} have now?")).format(t=thing, w=who)
    return f"If {who} has {a} {thing} and {more}, {ask[0].lower() + ask[1:]}", f"{a} {op} {b} = {result}, so there are {result} {thing}."


def counting(rng, lang: str, split: str):
    """How many words are in a short list, or how often one occurs in it."""
    n = rng.randint(2, 9)
    i = 2 if lang == "zh" else 0
    pool = [x[i] for x in OBJECTS + ANIMALS + FOODS]
    sep = "、" if lang == "zh" else ", "
    if rng.random() < 0.5:
        words = rng.sample(pool, n)
        text = sep.join(words)
        if lang == "zh":
            return rng.choice((f"这里有几个词：{text}？", f"数一数有几个词：{text}。", f"{text}，一共有几个词？")), f"一共有{n}个词。"
        return rng.choice((f"How many words are in this list: {text}?", f"Count the words: {text}.", f"Count these: {text}.")), f"There are {n} words."
    n = max(n, 3)
    a, b = rng.sample(pool, 2)
    words = [rng.choice((a, b)) for _ in range(n)]
    words[rng.randrange(n)] = a
    count = words.count(a)
    text = sep.join(words)
    if lang == "zh":
        return f"“{a}”出现了几次：{text}？", f"“{a}”出现了{count}次。"
    times = "1 time" if count == 1 else f"{count} times"
    return f"How many times does {a} occur: {text}?", f"It occurs {times}."


def drill(rng, split: str, max_tokens: int):
    """A plain document of equations; only the results have full weight."""
    parts = []
    n = rng.randint(6, max(7, min(40, max_tokens // 21)))
    mode = rng.random()
    for _ in range(n):
        if mode < 0.25:
            ask, reply, _ = question(rng, "en", split)
            while ask[-1] not in "?.":
                ask, reply, _ = question(rng, "en", split)
            parts += [(ask, 0.1), (" " + reply, FULL), ("\n", 0.1)]
            continue
        a, op, b, result = problem(rng, split)
        parts += [(f"{a} {op} {b} =", 0.05), (f" {result}", FULL), ("\n", 0.1)]
    return parts


def sequence(rng, lang: str, split: str):
    """Counting on, up or down."""
    step = rng.choice((1, 1, 1, 2, 5, 10))
    n = rng.randint(3, 8)
    start = rng.randint(0, 20)
    seq = [start + step * i for i in range(n)]
    if rng.random() < 0.3:
        seq.reverse()
    sep = "、" if lang == "zh" else ", "
    text = sep.join(map(str, seq))
    if step == 1 and rng.random() < 0.5:
        if lang == "zh":
            return f"从{seq[0]}数到{seq[-1]}。", text + "。"
        return rng.choice((f"Count from {seq[0]} to {seq[-1]}.", f"Can you count from {seq[0]} to {seq[-1]}?")), text + "."
    nxt = seq[-1] + (seq[-1] - seq[-2])
    if nxt < 0:
        nxt, seq = seq[0] + step, seq[::-1]
        text = sep.join(map(str, seq))
    if lang == "zh":
        return f"下一个数是什么：{text}？", f"下一个数是{nxt}。"
    return rng.choice((f"What comes next: {text}?", f"Which number is next: {text}?")), f"The next number is {nxt}."


def any_question(rng, lang: str, split: str):
    """A question of any kind in this module and its reply."""
    r = rng.random()
    if r < 0.68:
        return question(rng, lang, split)[:2]
    if r < 0.80:
        return story_question(rng, lang, split)
    if r < 0.93:
        return counting(rng, lang, split)
    return sequence(rng, lang, split)


def simple(rng, lang: str):
    """The sums which newcomers type first."""
    a, b = rng.choice(((1, 1), (2, 2), (2, 3), (3, 4), (5, 5), (1, 2)))
    ask = rng.choice((_ASK_ZH if lang == "zh" else _ASK_EN)["+"]).format(a=a, b=b)
    return ask, f"{a} + {b} = {a + b}" + ("。" if lang == "zh" else ".")


