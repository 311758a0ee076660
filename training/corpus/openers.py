"""What people type first into a chat they do not know yet, in many phrasings, with the replies."""

from . import names, openers_en, openers_zh, smalltalk_en, smalltalk_zh, stories
from .arithmetic import _ASK_EN, _ASK_ZH
from .core import cap, rough
from .lexicon import ANIMALS, CITIES, NUMBER_WORDS, NUMBER_ZH, WORDS_EN, WORDS_ZH

TALK = {"en": openers_en, "zh": openers_zh}
SMALL = {"en": smalltalk_en, "zh": smalltalk_zh}


def _say(rng, lang, split):
    """Something to be said, which the reply says."""
    talk, r = TALK[lang], rng.random()
    if r < 0.5:
        x, reply = talk.SAY[0] if rng.random() < 0.5 else rng.choice(talk.SAY)
        return rng.choice(talk.SAY_ASK).format(x=x), reply
    if r < 0.62:
        name = names.name(rng, lang, split)
        return rng.choice(talk.SAY_TO).format(x=name), talk.SAY_TO_REPLY.format(x=name)
    if r < 0.85:
        return _pick(rng, talk.SAY_OTHER)
    word = rng.choice(WORDS_ZH if lang == "zh" else WORDS_EN) if rng.random() < 0.5 else names.word(rng, lang, split)
    return rng.choice(talk.SAY_ASK[:4]).format(x=word), f"{word}！" if lang == "zh" else f"{cap(word)}!"


def _count(rng, lang, split):
    """Numbers in order, up or down, as digits."""
    talk = TALK[lang]
    n = rng.choice((3, 5, 5, 5, 10, 10, 10, 20, rng.randint(2, 20)))
    shown = str(n)
    if n <= 10 and rng.random() < 0.5:
        shown = NUMBER_ZH[n].replace("两", "二") if lang == "zh" else NUMBER_WORDS[n]
    sep, end = ("、", "。") if lang == "zh" else (", ", ".")
    if n <= 10 and rng.random() < 0.15:
        return rng.choice(talk.COUNT_DOWN).format(n=shown), sep.join(map(str, range(n, 0, -1))) + end
    return rng.choice(talk.COUNT).format(n=shown), sep.join(map(str, range(1, n + 1))) + end


def _sum(rng, lang, split):
    """The sums that everybody tries."""
    a, b = rng.choice(((1, 1), (2, 2), (2, 2), (2, 2), (1, 2), (2, 3), (3, 3), (5, 5), (3, 4), (4, 4)))
    if lang == "zh":
        return rng.choice(_ASK_ZH["+"][:-1]).format(a=a, b=b), f"{a} + {b} = {a + b}。"
    if a < 6 and b < 6 and rng.random() < 0.12:
        return rng.choice(("What is {a} plus {b}?", "{a} plus {b}", "How much is {a} and {b}?")).format(a=NUMBER_WORDS[a], b=NUMBER_WORDS[b]), f"{a} + {b} = {a + b}."
    return rng.choice(_ASK_EN["+"] + ["what is {a}+{b}", "whats {a}+{b}"]).format(a=a, b=b), f"{a} + {b} = {a + b}."


def _story(rng, lang, split):
    if rng.random() < 0.4:
        ask, text, _ = stories.told(rng, lang, split)
        return ask, text
    text, _, hero = stories.story(rng, lang, split)
    talk = TALK[lang]
    if rng.random() < 0.6:
        return rng.choice(talk.STORY_ANY), text
    return rng.choice(talk.STORY_ASK).format(x=hero[1 if lang == "zh" else 0]), text


def _joke(rng, lang, split):
    talk, jokes = TALK[lang], SMALL[lang].JOKES + TALK[lang].JOKES
    if rng.random() < 0.85:
        return rng.choice(talk.JOKE_ASK), rng.choice(jokes)
    return rng.choice(talk.JOKE_ABOUT).format(x=rng.choice(ANIMALS)[2 if lang == "zh" else 1]), rng.choice(jokes)


def _poem(rng, lang, split):
    talk = TALK[lang]
    if rng.random() < 0.25:
        x = rng.choice(list(talk.SHORT_POEMS))
        return (rng.choice(talk.SHORT_ANY) if rng.random() < 0.6 else rng.choice(talk.SHORT_ASK).format(x=x)), talk.SHORT_POEMS[x]
    poems = {**SMALL[lang].POEMS, **talk.POEMS}
    x = rng.choice(list(poems))
    return (rng.choice(talk.POEM_ANY) if rng.random() < 0.6 else rng.choice(talk.POEM_ASK).format(x=x)), poems[x]


def _capital(rng, lang, split):
    land, land_zh, city, city_zh = rng.choice(CITIES)
    if lang == "zh":
        return rng.choice(("{x}的首都", "{x}首都是哪里", "{x}的首都是哪里", "{x}的首都是哪个城市？")).format(x=land_zh), f"{land_zh}的首都是{city_zh}。"
    ask = rng.choice(("capital of {x}", "{x} capital?", "what is the capital of {x}", "what's the capital of {x}", "The capital of {x} is"))
    return ask.format(x=land), f"The capital of {land} is {city}."


def _code(rng, lang, split):
    """The first program of everybody."""
    language = rng.choice(list(openers_en.HELLO_WORLD))
    return rng.choice(TALK[lang].CODE_ASK).format(x=language), openers_en.HELLO_WORLD[language]


def _pick(rng, groups):
    asks, replies = rng.choice(groups)
    return rng.choice(asks), rng.choice(replies)


def _old(group):
    """A question which the small talk has already, asked in more ways."""
    def ask(rng, lang, split):
        talk = TALK[lang]
        old = getattr(SMALL[lang], group) if group.isupper() else next(qa for qa in SMALL[lang].QA if qa[0][0] == talk.OLD[group])
        return rng.choice(old[0] + talk.MORE[group]), rng.choice(old[1])
    return ask


def _others(rng, lang, split):
    return _pick(rng, TALK[lang].QA)


_MAKERS = {
    "greet": _old("GREETINGS"), "how": _old("HOW"), "thanks": _old("THANKS"), "who": _old("who"), "can": _old("can"), "test": _old("test"), "sky": _old("sky"), "say": _say, "count": _count, "sum": _sum, "joke": _joke, "story": _story, "poem": _poem,
    "capital": _capital, "code": _code, "others": _others,
}
_WEIGHTS = {"say": 2.5, "count": 1.5, "greet": 1.5, "can": 1.5, "others": 5, "code": 0.7}
# Of what holds names, code or words to be said, no letter changes.
_EXACT = ("say", "code", "capital")


def opener(rng, lang: str, split: str):
    """A question and its reply."""
    kind = rng.choices(list(_MAKERS), [_WEIGHTS.get(k, 1) for k in _MAKERS])[0]
    ask, reply = _MAKERS[kind](rng, lang, split)
    return rough(rng, ask, lang, kind not in _EXACT) if len(ask) > 3 else ask, reply
