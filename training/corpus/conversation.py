"""Chats which mix the kinds of the corpus and keep a state."""

from . import arithmetic, facts, lists, names, openers, smalltalk_en, smalltalk_zh, stories, world
from .core import assistant, cap, chat_tokens, est_tokens, rough, user
from .lexicon import ANIMALS, COLOURS, FOODS, HOBBIES, SEASONS

TALK = {"en": smalltalk_en, "zh": smalltalk_zh}
_TOPICS = {"hobby": HOBBIES, "colour": COLOURS, "animal": [(a[1], a[2]) for a in ANIMALS], "food": [(f[1], f[2]) for f in FOODS], "season": SEASONS}


class State:
    """What has been told so far in one chat."""

    def __init__(self):
        self.name = None
        self.told = {}
        self.story = []


def _tell_name(rng, lang, split):
    """`(name, statement, reply)` of a user who gives a name."""
    name = names.name(rng, lang, split)
    if lang == "zh":
        ask = rng.choice((f"我叫{name}。", f"我的名字是{name}。", f"你好，我叫{name}。", f"你好，我是{name}。", f"我是{name}，很高兴认识你。", f"大家都叫我{name}。", f"你好！我叫{name}，你呢？"))
        return name, ask, rng.choice((f"你好，{name}！很高兴认识你。", f"你好，{name}！")) if "你呢" not in ask else f"你好，{name}！我是Rooflight的小演示模型。"
    shown = name.lower() if names.is_common(name) and rng.random() < 0.12 else name
    ask = rng.choice((f"My name is {shown}.", f"My name is {shown}", f"I am {shown}.", f"I'm {shown}.", f"Hello, my name is {shown}.", f"Hi, I am {shown}.", f"You can call me {shown}.", f"Hi! I'm {shown}, nice to meet you.", f"my name is {shown}", f"Please call me {shown}."))
    return name, ask, rng.choice((f"Hello, {name}! It is nice to meet you.", f"Nice to meet you, {name}!"))


_NAME_ASK = {"en": ["What is my name?", "What's my name?", "Do you know my name?", "Do you remember my name?", "Who am I?", "Can you tell me my name?", "what is my name", "Tell me my name.", "What am I called?", "What was my name again?"],
             "zh": ["我叫什么名字？", "我叫什么？", "你知道我叫什么吗？", "你还记得我的名字吗？", "我是谁？", "我的名字是什么？", "请告诉我我的名字。", "还记得我叫什么吗？"]}


def _name_reply(name, lang):
    return f"你叫{name}。" if lang == "zh" else f"Your name is {name}."


def _no_name(lang):
    return "我还不知道你的名字。你叫什么名字？" if lang == "zh" else "I do not know your name yet. What is your name?"


def unknown(rng, lang):
    """A question outside the small world and the polite reply."""
    talk = TALK[lang]
    r = rng.random()
    if r < 0.25:
        ask = rng.choice(talk.UNKNOWN_FIXED)
    else:
        x = rng.choice(talk.UNKNOWN_TOPICS) if r < 0.7 else names.word(rng, lang, "train")
        ask = rng.choice(talk.UNKNOWN_ASK).format(x=x)
    return rough(rng, ask, lang), talk.SORRY


def _smalltalk(rng, lang):
    """One question of the fixed set, a joke, a poem or a hobby."""
    talk = TALK[lang]
    r = rng.random()
    if r < 0.68:
        asks, replies = rng.choice(talk.QA[:28]) if rng.random() < 0.45 else rng.choice(talk.QA)
        return rough(rng, rng.choice(asks), lang), rng.choice(replies)
    if r < 0.76:
        return rough(rng, rng.choice(talk.JOKE_ASK), lang), rng.choice(talk.JOKES)
    if r < 0.86:
        x = rng.choice(list(talk.POEMS))
        ask = rng.choice(talk.POEM_ASK).format(x=x) if rng.random() < 0.6 else rng.choice(talk.POEM_ANY)
        return rough(rng, ask, lang), talk.POEMS[x]
    if r < 0.92:
        say, reply, topic = rng.choice(talk.SMALL_SAY)
        x = rng.choice(_TOPICS[topic])[1 if lang == "zh" else 0]
        return rough(rng, say.format(x=x), lang), reply.format(x=x, X=cap(x))
    asks, replies = rng.choice((talk.FEEL_GOOD, talk.FEEL_BAD, talk.PRAISE))
    return rng.choice(asks), rng.choice(replies)


def _recall(rng, lang, state):
    """A question for something told earlier, or None."""
    keys = list(state.told)
    if state.name and (not keys or rng.random() < 0.5):
        return rng.choice(_NAME_ASK[lang]), _name_reply(state.name, lang)
    if keys:
        return state.told[rng.choice(keys)]
    return None


def _step(rng, lang, split, state):
    """The next exchange as a list of (question, reply)."""
    r = rng.random()
    if r < 0.15:
        got = _recall(rng, lang, state)
        if got:
            return [got]
        if rng.random() < 0.25:
            return [(rng.choice(_NAME_ASK[lang]), _no_name(lang))]
    if r < 0.24 and not state.name:
        state.name, ask, reply = _tell_name(rng, lang, split)
        return [(ask, reply)]
    if r < 0.31:
        key, said, reply, ask, answer = facts.personal(rng, lang, split)
        if key not in state.told:
            state.told[key] = (ask, answer)
            return [(said, reply)]
    if r < 0.50:
        return [_smalltalk(rng, lang)]
    if r < 0.70:
        ask, reply = world.world(rng, lang)
        return [(rough(rng, ask, lang), reply)]
    if r < 0.80:
        return [arithmetic.any_question(rng, lang, split)] if rng.random() < 0.85 else [arithmetic.simple(rng, lang)]
    if r < 0.86:
        return [lists.any_question(rng, lang, split)]
    if r < 0.91:
        return [unknown(rng, lang)]
    if r < 0.96:
        ask, text, asks = stories.told(rng, lang, split)
        state.story = asks
        out = [(rough(rng, ask, lang), text)]
        if rng.random() < 0.4:
            out.append(rng.choice(asks))
        return out
    talk = TALK[lang]
    group = rng.choice((talk.THANKS, talk.PRAISE, talk.HOW))
    return [(rough(rng, rng.choice(group[0]), lang), rng.choice(group[1]))]


def _opening(rng, lang, split, state):
    """Greetings and names at the start."""
    talk, out = TALK[lang], []
    if rng.random() < 0.35:
        out.append((rng.choice(talk.GREETINGS[0]), rng.choice(talk.GREETINGS[1])))
    if rng.random() < 0.15:
        out.append((rough(rng, rng.choice(talk.HOW[0]), lang), rng.choice(talk.HOW[1])))
        if rng.random() < 0.5:
            group = talk.FEEL_GOOD if rng.random() < 0.75 else talk.FEEL_BAD
            out.append((rng.choice(group[0]), rng.choice(group[1])))
    if rng.random() < 0.4:
        state.name, ask, reply = _tell_name(rng, lang, split)
        out.append((ask, reply))
    return out


def conversation(rng, lang, split, max_tokens):
    """A chat of 1 to 12 exchanges."""
    talk, state = TALK[lang], State()
    chat = []
    if rng.random() < 0.06:
        if rng.random() < 0.7:
            chat.append(("system", [(rng.choice(talk.SYSTEM), 0.1)]))
        else:
            state.name = names.name(rng, lang, split)
            chat.append(("system", [(f"用户的名字是{state.name}。" if lang == "zh" else f"The name of the user is {state.name}.", 0.3)]))
    length = rng.choice((1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12))
    pairs = _opening(rng, lang, split, state) if length > 1 or rng.random() < 0.3 else []
    budget = max_tokens - 30 - chat_tokens(chat)
    budget -= sum(est_tokens(a) + est_tokens(b) + 10 for a, b in pairs)
    while len(pairs) < length:
        step = _step(rng, lang, split, state)
        budget -= sum(est_tokens(a) + est_tokens(b) + 10 for a, b in step)
        if budget < 60:
            break
        pairs += step
    if state.name and len(pairs) > 1 and rng.random() < 0.6:
        pairs.append((rng.choice(_NAME_ASK[lang]), _name_reply(state.name, lang)))
    if length > 2 and rng.random() < 0.25:
        group = rng.choice((talk.THANKS, talk.BYES, talk.BYES))
        pairs.append((rough(rng, rng.choice(group[0]), lang), rng.choice(group[1])))
    for ask, reply in pairs:
        chat += [user(ask), assistant(reply)]
    return chat


def questions(rng, lang, split, max_tokens):
    """Plain questions one after another: the fixed set and the world."""
    chat = []
    for _ in range(rng.randint(1, 6)):
        r = rng.random()
        ask, reply = (_smalltalk(rng, lang) if r < 0.5 else unknown(rng, lang) if r < 0.58 else
                      (lambda q: (rough(rng, q[0], lang), q[1]))(world.world(rng, lang)))
        if chat and chat_tokens(chat) + est_tokens(ask + reply) > max_tokens - 20:
            break
        chat += [user(ask), assistant(reply)]
    return chat


def first_words(rng, lang, split, max_tokens):
    """What a newcomer types first."""
    talk = TALK[lang]
    groups = [talk.GREETINGS, talk.GREETINGS, talk.HOW, talk.THANKS, talk.BYES] + talk.QA[:16]
    pairs = []
    for turn in range(rng.randint(1, 4)):
        r = rng.random()
        if rng.random() < 0.6:
            pairs.append(openers.opener(rng, lang, split))
        elif r < 0.6:
            # most people begin with a greeting
            asks, replies = talk.GREETINGS if turn == 0 and rng.random() < 0.6 else rng.choice(groups)
            pairs.append((rough(rng, rng.choice(asks), lang), rng.choice(replies)))
        elif r < 0.8:
            pairs.append(_smalltalk(rng, lang))
        elif r < 0.87:
            pairs.append(arithmetic.simple(rng, lang))
        else:
            ask, text, _ = stories.told(rng, lang, split)
            pairs.append((rough(rng, ask, lang), text))
        if max_tokens < 400 and sum(est_tokens(a + b) + 12 for a, b in pairs) > 110:
            break
    return [m for a, b in pairs for m in (user(a), assistant(b))]


def name_chat(rng, lang, split, max_tokens, distance=None):
    """A name told, other talk, and the name asked for; returns chat and name."""
    name, ask, reply = _tell_name(rng, lang, split)
    chat = [user(ask), assistant(reply)]
    state = State()
    state.name = name
    distance = rng.randint(1, 6) if distance is None else distance
    budget = max_tokens - 80
    while distance > 0 and budget > 100:
        r = rng.random()
        if r < 0.5:
            pair = _smalltalk(rng, lang)
        elif r < 0.8:
            pair = world.world(rng, lang)
        else:
            pair = arithmetic.any_question(rng, lang, split)
        budget -= est_tokens(pair[0]) + est_tokens(pair[1]) + 10
        if budget < 60:
            break
        chat += [user(pair[0]), assistant(pair[1])]
        distance -= 1
    chat += [user(rng.choice(_NAME_ASK[lang])), assistant(_name_reply(name, lang))]
    return chat, name
