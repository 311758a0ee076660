"""Facts told in the context and asked back, with distractors."""

from . import names
from .core import USER, article, turns
from .filler import sentence
from .lexicon import COLOURS, DISHES, JOBS, NUMBER_WORDS, NUMBER_ZH, OBJECTS, PLACES


def _fact(rng, lang, split, who, obj, place):
    """One fact: `(sentence, [(question, reply), ...])`."""
    kind = rng.randrange(7)
    colour = rng.choice(COLOURS)
    while not names.pair_ok("fact", colour[0], obj[0], split):
        colour = rng.choice(COLOURS)
    n = rng.randint(2, 9)
    dish, job, age = rng.choice(DISHES), rng.choice(JOBS), rng.randint(5, 80)
    if lang == "zh":
        o, m, c, p = obj[2], obj[3], colour[1], place[3]
        if kind == 0:
            return f"{who}有一{m}{c}的{o}。", [(f"谁有{c}的{o}？", f"{who}有{c}的{o}。"), (f"{who}有什么？", f"{who}有一{m}{c}的{o}。"), (f"{who}的{o}是什么颜色的？", f"{who}的{o}是{c}的。")]
        if kind == 1:
            return f"{o}{p}。", [(f"{o}在哪里？", f"{o}{p}。"), (f"什么东西{p}？", f"{o}{p}。")]
        if kind == 2:
            return f"{who}{p}。", [(f"{who}在哪里？", f"{who}{p}。"), (f"谁{p}？", f"{who}{p}。")]
        if kind == 3:
            return f"{who}喜欢{dish[1]}。", [(f"{who}喜欢什么？", f"{who}喜欢{dish[1]}。")]
        if kind == 4:
            return f"{who}有{NUMBER_ZH[n]}{m}{o}。", [(f"{who}有几{m}{o}？", f"{who}有{NUMBER_ZH[n]}{m}{o}。"), (f"谁有{NUMBER_ZH[n]}{m}{o}？", f"{who}有{NUMBER_ZH[n]}{m}{o}。")]
        if kind == 5:
            return f"{who}今年{age}岁。", [(f"{who}多大了？", f"{who}今年{age}岁。"), (f"{who}几岁？", f"{who}今年{age}岁。")]
        return f"{who}是一位{job[1]}。", [(f"{who}是做什么的？", f"{who}是一位{job[1]}。")]
    o, os, c, p = obj[0], obj[1], colour[0], place[1]
    if kind == 0:
        return f"{who} has {article(c)} {o}.", [(f"Who has the {c} {o}?", f"It is {who}."), (f"What does {who} have?", f"{article(c).capitalize()} {o}."), (f"What colour is the {o} of {who}?", f"The {o} is {c}.")]
    if kind == 1:
        return f"The {o} is {p}.", [(f"Where is the {o}?", f"The {o} is {p}."), (f"What is {p}?", f"The {o} is {p}.")]
    if kind == 2:
        return f"{who} is {p}.", [(f"Where is {who}?", p.capitalize() + "."), (f"Who is {p}?", f"It is {who}.")]
    if kind == 3:
        return f"{who} likes {dish[0]}.", [(f"What does {who} like?", dish[0].capitalize() + ".")]
    if kind == 4:
        return f"{who} has {NUMBER_WORDS[n]} {os}.", [(f"How many {os} does {who} have?", f"{NUMBER_WORDS[n].capitalize()} {os}."), (f"Who has {NUMBER_WORDS[n]} {os}?", f"It is {who}.")]
    if kind == 5:
        return f"{who} is {age} years old.", [(f"How old is {who}?", f"{age} years old."), (f"Who is {age} years old?", f"It is {who}.")]
    return f"{who} is {article(job[0])}.", [(f"What does {who} do?", article(job[0]).capitalize() + "."), (f"What is the job of {who}?", article(job[0]).capitalize() + ".")]


_INTRO = {"en": ["Here are some facts.", "Remember this.", "I will tell you something.", "Listen."], "zh": ["请记住下面的事。", "我告诉你几件事。", "听好了。", "请听我说。"]}
_OK = {"en": ["I will remember that.", "Thank you, I will remember it."], "zh": ["好的，我记住了。", "谢谢你告诉我，我记住了。"]}


def facts(rng, lang, split, n):
    """`n` facts which do not contradict each other."""
    people, objects, places = names.names(rng, lang, split, n), rng.sample(OBJECTS, n), rng.sample(PLACES, n)
    out, used = [], set()
    while len(out) < n:
        i = len(out)
        text, asks = _fact(rng, lang, split, people[i], objects[i], places[i])
        # A number, dish or job asked for by value must be unique.
        keys = {q for q, _ in asks}
        if keys & used:
            continue
        used |= keys
        out.append((text, asks))
    return out


def context(rng, lang, split, max_tokens):
    """Facts in one message or over several turns, then questions."""
    n = rng.randint(1, 9 if max_tokens > 400 else 4)
    told = facts(rng, lang, split, n)
    questions = [rng.choice(asks) for _, asks in rng.sample(told, rng.randint(1, n))]
    gap = "" if lang == "zh" else " "
    if n > 1 and rng.random() < 0.3:
        chat, k = [], 0
        while k < n:
            step = rng.randint(1, 3)
            lead = rng.choice(_INTRO[lang]) + gap if k == 0 or lang == "en" else ""
            chat.append((lead + gap.join(t for t, _ in told[k:k + step]), rng.choice(_OK[lang])))
            k += step
        return turns(chat + questions)
    lines = [(t, USER) for t, _ in told]
    if rng.random() < 0.4:
        for _ in range(rng.randint(1, 8)):
            lines.insert(rng.randint(0, len(lines)), (sentence(rng, lang), 0.1))
    parts = [(rng.choice(_INTRO[lang]), USER)] + [(gap + t, w) for t, w in lines]
    if rng.random() < 0.6:
        joint = gap if rng.random() < 0.6 else "\n"
        return turns([(parts + [(joint + questions[0][0], USER)], questions[0][1])] + questions[1:])
    return turns([(parts, rng.choice(_OK[lang]))] + questions)


def personal(rng, lang, split):
    """Something the user tells: `(statement, reply, question, answer)`."""
    k = rng.randrange(6)
    if lang == "zh":
        pet = rng.choice([("狗", "一只"), ("猫", "一只"), ("兔子", "一只")])
        if k == 0:
            v = rng.choice(COLOURS)[1]
            return "colour", f"我最喜欢的颜色是{v}。", f"{v}很好看！", rng.choice(("我最喜欢什么颜色？", "我最喜欢的颜色是什么？")), f"你最喜欢的颜色是{v}。"
        if k == 1:
            v = names.name(rng, lang, split)[-2:] if rng.random() < 0.5 else names.word(rng, lang, split)
            return "pet" + pet[0], f"我的{pet[0]}叫{v}。", f"{v}是个好名字！", f"我的{pet[0]}叫什么？", f"你的{pet[0]}叫{v}。"
        if k == 2:
            age = rng.randint(6, 80)
            return "age", f"我今年{age}岁。", "谢谢你告诉我。", rng.choice(("我今年几岁？", "我多大了？")), f"你今年{age}岁。"
        if k == 3:
            v = rng.choice(DISHES)[1]
            return "food", f"我最喜欢吃{v}。", f"{v}很好吃！", "我最喜欢吃什么？", f"你最喜欢吃{v}。"
        if k == 4:
            v = rng.choice(JOBS)[1]
            return "job", f"我是一位{v}。", f"{v}是很好的工作！", rng.choice(("我是做什么的？", "我的工作是什么？")), f"你是一位{v}。"
        v = names.digits(rng, split)
        return "number", f"请记住这个数：{v}。", "好的，我记住了。", "我让你记住的数是什么？", f"你让我记住的数是{v}。"
    pet = rng.choice(("dog", "cat", "rabbit"))
    if k == 0:
        v = rng.choice(COLOURS)[0]
        return "colour", f"My favourite colour is {v}.", f"{v.capitalize()} is a nice colour!", rng.choice(("What is my favourite colour?", "Which colour do I like best?", "What's my favorite color?")), f"Your favourite colour is {v}."
    if k == 1:
        v = names.name(rng, lang, split)
        return "pet" + pet, rng.choice((f"My {pet} is called {v}.", f"I have a {pet}. Its name is {v}.")), f"That is a nice name for a {pet}!", rng.choice((f"What is the name of my {pet}?", f"What is my {pet} called?")), f"Your {pet} is called {v}."
    if k == 2:
        age = rng.randint(6, 80)
        return "age", rng.choice((f"I am {age} years old.", f"I'm {age} years old.")), "Thank you for telling me.", "How old am I?", f"You are {age} years old."
    if k == 3:
        v = rng.choice(DISHES)[0]
        return "food", rng.choice((f"My favourite food is {v}.", f"I like to eat {v} best.")), f"{v.capitalize()} {'are' if v[-1] == 's' else 'is'} very good!", rng.choice(("What is my favourite food?", "What do I like to eat?")), f"Your favourite food is {v}."
    if k == 4:
        v = rng.choice(JOBS)[0]
        return "job", rng.choice((f"I am {article(v)}.", f"I work as {article(v)}.")), "That is a good job!", rng.choice(("What is my job?", "What do I do?")), f"You are {article(v)}."
    v = names.digits(rng, split)
    return "number", rng.choice((f"Remember this number: {v}.", f"Please remember the number {v}.")), "I will remember it.", rng.choice(("What is the number that I told you?", "Which number did I tell you?")), f"The number is {v}."
