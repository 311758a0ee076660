"""Fixed facts of the small world as questions and replies."""

from .core import article, cap, join_and
from .lexicon import (ANIMALS, CITIES, COLOURS, DAYS, DAYS_ZH, DEFINITIONS, FOODS, MONTHS, MONTHS_ZH, NUMBER_WORDS, NUMBER_ZH,
                      OPPOSITES, SEASONS, WORDS)


def _animal_en(rng):
    a, plural, _, _, sound, _, colour, _, legs, home, _, food, _, size = rng.choice(ANIMALS)
    kind = rng.randrange(7)
    the = article(a)
    if kind == 0:
        if not sound:
            return f"What sound does {the} make?", f"{cap(the)} is very quiet."
        return rng.choice((f"What sound does {the} make?", f"What does {the} say?", f"What does the {a} say?", f"What noise does {the} make?")), f"{cap(the)} says {sound}."
    if kind == 1:
        ask = rng.choice((f"What colour is {the}?", f"What color is {the}?", f"Which colour is {the}?", f"What colour are {plural}?"))
        return ask, f"{cap(the)} is {colour}."
    if kind == 2:
        reply = f"{cap(the)} has no legs." if legs == 0 else f"{cap(the)} has {NUMBER_WORDS[legs]} legs."
        return rng.choice((f"How many legs does {the} have?", f"How many legs do {plural} have?", f"How many legs has {the}?")), reply
    if kind == 3:
        return rng.choice((f"Where does {the} live?", f"Where do {plural} live?", f"Where can I find {the}?")), f"{cap(the)} lives {home}."
    if kind == 4:
        return rng.choice((f"What does {the} eat?", f"What do {plural} eat?", f"What does {the} like to eat?")), f"{cap(the)} eats {food}."
    if kind == 5:
        reply = f"{cap(the)} is an animal. It lives {home} and eats {food}."
        return rng.choice((f"What is {the}?", f"Tell me about {plural}.", f"Tell me something about {plural}.", f"Tell me about the {a}.")), reply
    other = rng.choice(ANIMALS)
    if abs(other[-1] - size) < 2:
        return f"Is {the} an animal?", f"Yes, {the} is an animal."
    big, small = (a, other[0]) if size > other[-1] else (other[0], a)
    if rng.random() < 0.5:
        return f"Which is bigger, {the} or {article(other[0])}?", f"{cap(article(big))} is bigger than {article(small)}."
    return f"Which is smaller, {the} or {article(other[0])}?", f"{cap(article(small))} is smaller than {article(big)}."


def _animal_zh(rng):
    _, _, a, m, _, sound, _, colour, legs, _, home, _, food, size = rng.choice(ANIMALS)
    kind = rng.randrange(7)
    if kind == 0:
        ask = rng.choice((f"{a}怎么叫？", f"{a}是怎么叫的？", f"{a}的叫声是什么？"))
        return ask, f"{a}的叫声是“{sound}”。" if sound else f"{a}很安静，很少叫。"
    if kind == 1:
        return rng.choice((f"{a}是什么颜色的？", f"{a}是什么颜色？", f"{a}什么颜色？")), f"{a}是{colour}{'' if colour.endswith('的') else '的'}。"
    if kind == 2:
        reply = f"{a}没有腿。" if legs == 0 else f"{a}有{NUMBER_ZH[legs]}条腿。"
        return rng.choice((f"{a}有几条腿？", f"一{m}{a}有几条腿？", f"{a}有多少条腿？")), reply
    if kind == 3:
        return rng.choice((f"{a}住在哪里？", f"{a}生活在哪里？", f"哪里能找到{a}？")), f"{a}住在{home}。"
    if kind == 4:
        return rng.choice((f"{a}吃什么？", f"{a}喜欢吃什么？", f"{a}爱吃什么？")), f"{a}吃{food}。"
    if kind == 5:
        return rng.choice((f"什么是{a}？", f"{a}是什么？", f"介绍一下{a}。", f"给我讲讲{a}。")), f"{a}是一种动物，住在{home}，吃{food}。"
    other = rng.choice(ANIMALS)
    if abs(other[-1] - size) < 2:
        return f"{a}是动物吗？", f"是的，{a}是动物。"
    big, small = (a, other[2]) if size > other[-1] else (other[2], a)
    if rng.random() < 0.5:
        return rng.choice((f"{a}和{other[2]}，哪个大？", f"{a}大还是{other[2]}大？")), f"{big}比{small}大。"
    return rng.choice((f"{a}和{other[2]}，哪个小？", f"{a}小还是{other[2]}小？")), f"{small}比{big}小。"


_COLOUR_THINGS = [("the sky", "天空", 1), ("grass", "草", 2), ("snow", "雪", 4), ("the sun", "太阳", 3), ("milk", "牛奶", 4), ("a leaf", "树叶", 2), ("the sea", "大海", 1), ("the night", "黑夜", 5)]


def world_en(rng):
    """One question on the small world and its reply."""
    r = rng.random()
    if r < 0.36:
        return _animal_en(rng)
    if r < 0.46:
        f, plural, _, colour, _, kind, _ = rng.choice(FOODS)
        k = rng.randrange(4)
        if k == 0:
            return rng.choice((f"What colour is {article(f)}?", f"What color is {article(f)}?", f"What colour are {plural}?")), f"{cap(article(f))} is {colour}."
        if k == 1:
            return rng.choice((f"What is {article(f)}?", f"Tell me about {plural}.")), f"{cap(article(f))} is a {kind}. It is {colour}."
        if k == 2:
            other = rng.choice(("fruit", "vegetable"))
            yes = f"Yes, {article(f)} is a {kind}." if other == kind else f"No, {article(f)} is a {kind}."
            return f"Is {article(f)} a {other}?", yes
        same = rng.sample([x for x in FOODS if x[5] == kind], 3)
        return rng.choice((f"Name three {kind}s.", f"Tell me three {kind}s.", f"Give me three {kind}s.")), f"Here are three {kind}s: {join_and([x[1] for x in same], 'en')}."
    if r < 0.52:
        thing, _, c = rng.choice(_COLOUR_THINGS)
        return rng.choice((f"What colour is {thing}?", f"What color is {thing}?")), f"{cap(thing)} is {COLOURS[c][0]}."
    if r < 0.61:
        n = rng.randrange(7)
        nxt, before = DAYS[(n + 1) % 7], DAYS[n - 1]
        if rng.random() < 0.6:
            return rng.choice((f"What day comes after {DAYS[n]}?", f"Which day is after {DAYS[n]}?", f"Today is {DAYS[n]}. What day is tomorrow?")), f"{nxt} comes after {DAYS[n]}."
        return rng.choice((f"What day comes before {DAYS[n]}?", f"Which day is before {DAYS[n]}?")), f"{before} comes before {DAYS[n]}."
    if r < 0.69:
        n = rng.randrange(12)
        if rng.random() < 0.6:
            return rng.choice((f"What month comes after {MONTHS[n]}?", f"Which month is after {MONTHS[n]}?")), f"{MONTHS[(n + 1) % 12]} comes after {MONTHS[n]}."
        season = SEASONS[((n + 10) % 12) // 3][0]
        return rng.choice((f"In which season is {MONTHS[n]}?", f"What season is it in {MONTHS[n]}?")), f"{MONTHS[n]} is in {season}."
    if r < 0.73:
        i = rng.randrange(4)
        if rng.random() < 0.5:
            return rng.choice((f"What season comes after {SEASONS[i][0]}?", f"Which season is after {SEASONS[i][0]}?")), f"{cap(SEASONS[(i + 1) % 4][0])} comes after {SEASONS[i][0]}."
        return rng.choice((f"What happens in {SEASONS[i][0]}?", f"Tell me about {SEASONS[i][0]}.", f"What is {SEASONS[i][0]}?")), f"In {SEASONS[i][0]}, {SEASONS[i][2]}."
    if r < 0.81:
        a, b, _, _ = rng.choice(OPPOSITES)
        if rng.random() < 0.4 and a not in ("black", "new") and b != "light":
            a, b = b, a
        if a == "light" or a == "old" or a == "short":
            a, b = {"light": ("dark", "light"), "old": ("new", "old"), "short": ("tall", "short")}[a]
        return rng.choice((f"What is the opposite of {a}?", f"Tell me the opposite of {a}.", f"What's the opposite of {a}?", f"What is the opposite of “{a}”?")), f"The opposite of {a} is {b}."
    if r < 0.88:
        land, _, city, _ = rng.choice(CITIES)
        if rng.random() < 0.75:
            return rng.choice((f"What is the capital of {land}?", f"What's the capital of {land}?", f"Which city is the capital of {land}?", f"Tell me the capital of {land}.")), f"The capital of {land} is {city}."
        return rng.choice((f"Where is {city}?", f"In which country is {city}?", f"What is {city}?")), f"{city} is the capital of {land}."
    if r < 0.95:
        w, d, _, _ = rng.choice(DEFINITIONS)
        return rng.choice((f"What is {article(w)}?", f"What does “{w}” mean?", f"What does {w} mean?", f"Explain the word {w}.")), f"{cap(article(w))} is {d}."
    en, zh = rng.choice(WORDS)
    return rng.choice((f"How do you say “{en}” in Chinese?", f"What is {en} in Chinese?", f"Translate {en} into Chinese.", f"What is the Chinese word for {en}?")), f"“{cap(en)}” is “{zh}” in Chinese."


def world_zh(rng):
    """One Chinese question on the small world and its reply."""
    r = rng.random()
    if r < 0.36:
        return _animal_zh(rng)
    if r < 0.46:
        _, _, f, _, colour, _, kind = rng.choice(FOODS)
        k = rng.randrange(4)
        if k == 0:
            return rng.choice((f"{f}是什么颜色的？", f"{f}是什么颜色？", f"{f}什么颜色？")), f"{f}是{colour}的。"
        if k == 1:
            return rng.choice((f"什么是{f}？", f"{f}是什么？", f"介绍一下{f}。")), f"{f}是一种{kind}，是{colour}的。"
        if k == 2:
            other = rng.choice(("水果", "蔬菜"))
            return f"{f}是{other}吗？", f"是的，{f}是{kind}。" if other == kind else f"不是，{f}是{kind}。"
        same = rng.sample([x for x in FOODS if x[6] == kind], 3)
        return rng.choice((f"说出三种{kind}。", f"告诉我三种{kind}。", f"有哪些{kind}？")), f"三种{kind}：{join_and([x[2] for x in same], 'zh')}。"
    if r < 0.52:
        _, thing, c = rng.choice(_COLOUR_THINGS)
        return rng.choice((f"{thing}是什么颜色的？", f"{thing}是什么颜色？")), f"{thing}是{COLOURS[c][1]}的。"
    if r < 0.61:
        n = rng.randrange(7)
        if rng.random() < 0.6:
            return rng.choice((f"{DAYS_ZH[n]}的后一天是星期几？", f"{DAYS_ZH[n]}之后是星期几？", f"今天是{DAYS_ZH[n]}，明天星期几？")), f"{DAYS_ZH[n]}之后是{DAYS_ZH[(n + 1) % 7]}。"
        return rng.choice((f"{DAYS_ZH[n]}的前一天是星期几？", f"{DAYS_ZH[n]}之前是星期几？")), f"{DAYS_ZH[n]}之前是{DAYS_ZH[n - 1]}。"
    if r < 0.69:
        n = rng.randrange(12)
        if rng.random() < 0.6:
            return rng.choice((f"{MONTHS_ZH[n]}之后是几月？", f"{MONTHS_ZH[n]}的下一个月是几月？")), f"{MONTHS_ZH[n]}之后是{MONTHS_ZH[(n + 1) % 12]}。"
        season = SEASONS[((n + 10) % 12) // 3][1]
        return rng.choice((f"{MONTHS_ZH[n]}是什么季节？", f"{MONTHS_ZH[n]}在哪个季节？")), f"{MONTHS_ZH[n]}是{season}。"
    if r < 0.73:
        i = rng.randrange(4)
        if rng.random() < 0.5:
            return rng.choice((f"{SEASONS[i][1]}之后是什么季节？", f"{SEASONS[i][1]}过后是什么季节？")), f"{SEASONS[i][1]}之后是{SEASONS[(i + 1) % 4][1]}。"
        return rng.choice((f"{SEASONS[i][1]}是什么样的？", f"介绍一下{SEASONS[i][1]}。", f"{SEASONS[i][1]}会怎么样？")), f"{SEASONS[i][1]}，{SEASONS[i][3]}。"
    if r < 0.81:
        _, _, a, b = rng.choice(OPPOSITES)
        if rng.random() < 0.4 and a not in ("黑", "新"):
            a, b = b, a
        return rng.choice((f"“{a}”的反义词是什么？", f"{a}的反义词是什么？", f"和“{a}”相反的词是什么？")), f"“{a}”的反义词是“{b}”。"
    if r < 0.88:
        _, land, _, city = rng.choice(CITIES)
        if rng.random() < 0.75:
            return rng.choice((f"{land}的首都是哪里？", f"{land}的首都是什么？", f"{land}的首都在哪里？", f"哪里是{land}的首都？")), f"{land}的首都是{city}。"
        return rng.choice((f"{city}在哪里？", f"{city}是哪个国家的首都？", f"{city}在哪个国家？")), f"{city}是{land}的首都。"
    if r < 0.95:
        _, _, w, d = rng.choice(DEFINITIONS)
        return rng.choice((f"什么是{w}？", f"{w}是什么？", f"“{w}”是什么意思？", f"解释一下{w}。")), f"{w}是{d}。"
    en, zh = rng.choice(WORDS)
    return rng.choice((f"“{zh}”用英语怎么说？", f"{zh}的英语是什么？", f"把“{zh}”翻译成英语。")), f"“{zh}”的英语是 {en}。"


def world(rng, lang: str):
    """One question on the small world and its reply in `lang`."""
    return world_zh(rng) if lang == "zh" else world_en(rng)
