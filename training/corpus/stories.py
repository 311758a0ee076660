"""Short stories from a plot grammar, with questions about them."""

from . import names
from .core import article, cap
from .lexicon import COLOURS, OBJECTS, PLACES

# Animals which may be heroes: English, Chinese
HEROES = [("fox", "狐狸"), ("cat", "小猫"), ("dog", "小狗"), ("rabbit", "兔子"), ("bear", "小熊"), ("mouse", "老鼠"), ("duck", "鸭子"), ("owl", "猫头鹰"),
          ("frog", "青蛙"), ("lion", "狮子"), ("panda", "熊猫"), ("penguin", "企鹅"), ("monkey", "猴子"), ("elephant", "大象"), ("tiger", "老虎"), ("horse", "小马"), ("wolf", "狼"), ("dragon", "龙"), ("robot", "机器人"), ("bird", "小鸟"), ("pig", "小猪")]
PEOPLE = [("girl", "小女孩"), ("boy", "小男孩")]
_OUTSIDE = [p for p in PLACES if p[0] not in ("attic", "cellar", "hall", "kitchen")]
KIND = [("little", "小小的"), ("kind", "善良的"), ("brave", "勇敢的"), ("clever", "聪明的"), ("shy", "害羞的"), ("merry", "快乐的")]
WEATHER = [("One sunny morning", "一个晴朗的早上"), ("One cold day", "有一天，天气很冷"), ("One rainy afternoon", "一个下雨的下午"), ("One quiet evening", "一个安静的傍晚"), ("One windy day", "一个刮风的日子"), ("One day", "有一天")]
THINGS = [o for o in OBJECTS if o[0] in ("key", "ball", "hat", "coin", "map", "bell", "ring", "umbrella", "scarf", "drum", "letter", "mirror", "basket", "kite", "shell", "lamp", "book", "box")]


def _names(rng, lang, split, hero):
    """Two names which are easy to tell apart; a girl or boy gets a fitting one."""
    if lang == "zh":
        while True:
            a, b = names.name(rng, lang, split), names.name(rng, lang, split)
            if hero in ("girl", "boy") and set(a) & set("勇强军刚伟磊杰建国志涛超" if hero == "girl" else "丽芳艳霞兰梅雪佳静"):
                continue
            if a[:2] != b[:2] and not set(a) & set(b):
                return a, b
    while True:
        a, b = names.common(rng, split), names.common(rng, split)
        if rng.random() < 0.25:
            a = names.word_en(rng, split, "name").capitalize()
        if hero in ("girl", "boy") and names.is_common(a) and (a in names.FEMALE) != (hero == "girl"):
            continue
        if a[0] != b[0]:
            return a, b


def _moral(rng, lang):
    if lang == "zh":
        return rng.choice(("从那天起，他们成了最好的朋友。", "大家都很高兴。", "那天晚上，他们都睡得很香。", "他们高高兴兴地回家了。"))
    return rng.choice(("From that day on, they were best friends.", "Everybody was happy.", "That night they slept very well.", "Then they went home, tired and happy."))


def _en(rng, kind, first, other, hero, friend, thing, place, place2):
    adj, colour = rng.choice(KIND)[0], rng.choice(COLOURS)[0]
    day = rng.choice(WEATHER)[0]
    obj = thing[0]
    female = hero == "girl" or hero != "boy" and (first in names.FEMALE or not names.is_common(first) and rng.random() < 0.5)
    he, his, him = ("she", "her", "her") if female else ("he", "his", "him")
    s = [rng.choice((f"Once upon a time there was {article(adj)} {hero} named {first}.", f"There was once {article(adj)} {hero} named {first}.", f"Long ago there lived {article(adj)} {hero} named {first}."))]
    if kind == 0:
        s += [f"{cap(he)} had {article(colour)} {obj} and loved it very much.", f"{day}, the {obj} was gone.", f"{first} looked everywhere, but {he} could not find it.",
              f"Then {he} met {article(friend)} named {other}.", rng.choice((f"“Why are you sad?” asked {other}.", f"“What is wrong?” asked {other}.")), f"“I have lost my {obj},” said {first}.",
              f"They looked together, and {other} found the {obj} {place[1]}.", f"“Thank you!” said {first}."]
        asks = [(f"What did {first} lose?", f"{cap(article(obj))}."), (f"Who found the {obj}?", f"It was {other}."), (f"Where was the {obj}?", f"The {obj} was {place[1]}.")]
    elif kind == 1:
        s += [f"{day}, {he} walked to the {place[0]}.", f"There {he} saw {article(friend)} named {other}, who was crying.", f"“I cannot find the way home,” said {other}.",
              f"“Do not cry, I will help you,” said {first}.", f"{cap(he)} took out {article(colour)} {obj} and gave it to {other} as a present.", f"Then they went to the {place2[0]} together, and there was the home of {other}."]
        asks = [(f"What did {other} get?", f"{cap(article(colour))} {obj}."), (f"Who was crying?", f"It was {other}."), (f"Where did {first} walk?", f"To the {place[0]}.")]
    elif kind == 2:
        s += [f"{day}, {he} found {article(colour)} {obj} {place[1]}.", f"“Whose {obj} is this?” thought {first}.", f"{cap(he)} asked everybody, and at last {he} came to {article(friend)} named {other}.",
              f"“That is my {obj}!” cried {other}. “I have looked for it all day.”", f"{first} gave the {obj} back, and {other} made {him} a big cake."]
        asks = [(f"What did {first} find?", f"{cap(article(colour))} {obj}."), (f"Whose {obj} was it?", f"It was the {obj} of {other}."), (f"Where was the {obj}?", f"It was {place[1]}.")]
    elif kind == 3:
        s += [f"{cap(he)} wanted to see the {place[0]}, but the way was long.", f"“I will go with you,” said {his} friend {other}, {article(friend)}.", f"{day}, they set out.",
              f"First they came to the {place2[0]} and rested.", f"Then the wind blew, and they were a little afraid.", f"But {first} sang a song, and soon they saw the {place[0]}.", "It was more beautiful than they had dreamed."]
        asks = [(f"Where did they want to go?", f"To the {place[0]}."), (f"Who went with {first}?", f"It was {other}."), (f"Where did they rest?", f"They rested at the {place2[0]}.")]
    elif kind == 4:
        s += [f"{cap(he)} wanted to learn to {rng.choice(('sing', 'dance', 'swim', 'paint', 'cook'))}, but it was hard.", f"“I will never learn it,” said {first}.", f"{article(friend).capitalize()} named {other} heard this.",
              f"“Try a little every day,” said {other}.", f"So {first} went to the {place[0]} every day and tried again.", f"After a year, {he} did it very well, and {other} gave {him} {article(colour)} {obj}."]
        asks = [(f"What did {other} give to {first}?", f"{cap(article(colour))} {obj}."), (f"Where did {first} go every day?", f"To the {place[0]}.")]
    else:
        s += [f"{cap(he)} lived near the {place[0]} with {his} friend {other}, {article(friend)}.", f"{day}, {he} had only one small cake.", f"{other} was very hungry.", f"“Take half of my cake,” said {first}.",
              f"The next day {other} came back with {article(colour)} {obj}.", f"“This is for you, because you shared with me,” said {other}."]
        asks = [(f"What did {other} bring?", f"{cap(article(colour))} {obj}."), (f"Where did {first} live?", f"Near the {place[0]}.")]
    s.append(_moral(rng, "en"))
    asks += [(f"What was the name of the {hero}?", f"The {hero} was named {first}.")]
    return " ".join(s), asks


_MEASURE = {"小女孩": "一个", "小男孩": "一个", "机器人": "一个", "小马": "一匹", "大象": "一头", "狮子": "一头", "龙": "一条"}


def _zh(rng, kind, first, other, hero, friend, thing, place, place2):
    adj, colour = rng.choice(KIND)[1], rng.choice(COLOURS)[1]
    day = rng.choice(WEATHER)[1]
    obj, m = thing[2], thing[3]
    who, who2 = _MEASURE.get(hero, "一只"), _MEASURE.get(friend, "一只")
    he = "她" if hero == "小女孩" else "他" if hero == "小男孩" else "它"
    s = [rng.choice((f"从前，有{who}{adj}{hero}，名叫{first}。", f"很久以前，有{who}{adj}{hero}，名叫{first}。"))]
    if kind == 0:
        s += [f"{he}有一{m}{colour}的{obj}，非常喜欢。", f"{day}，{obj}不见了。", f"{first}到处找，可是找不到。", f"这时，{he}遇见了{who2}{friend}，名叫{other}。", f"{other}问：“你为什么难过？”",
              f"{first}说：“我的{obj}丢了。”", f"他们一起找，{other}{place[3]}找到了{obj}。", f"{first}说：“谢谢你！”"]
        asks = [(f"{first}丢了什么？", f"{first}丢了{obj}。"), (f"谁找到了{obj}？", f"{other}找到了{obj}。"), (f"{obj}在哪里找到的？", f"{obj}是{place[3]}找到的。")]
    elif kind == 1:
        s += [f"{day}，{he}来到{place[2]}。", f"{he}看见{who2}{friend}在哭，名叫{other}。", f"{other}说：“我找不到回家的路了。”", f"{first}说：“别哭，我来帮你。”", f"{he}拿出一{m}{colour}的{obj}，送给了{other}。",
              f"然后他们一起走到{place2[2]}，{other}的家就在那里。"]
        asks = [(f"{first}送给{other}什么？", f"{first}送给{other}一{m}{colour}的{obj}。"), ("谁在哭？", f"{other}在哭。"), (f"{first}来到了哪里？", f"{first}来到了{place[2]}。")]
    elif kind == 2:
        s += [f"{day}，{he}{place[3]}捡到了一{m}{colour}的{obj}。", f"{first}想：“这是谁的{obj}呢？”", f"{he}问了很多人，最后遇见了{who2}{friend}，名叫{other}。", f"{other}说：“这是我的{obj}！我找了一整天。”",
              f"{first}把{obj}还给了{other}，{other}给{he}做了一个大蛋糕。"]
        asks = [(f"{first}捡到了什么？", f"{first}捡到了一{m}{colour}的{obj}。"), (f"{obj}是谁的？", f"{obj}是{other}的。"), (f"{obj}是在哪里捡到的？", f"{obj}是{place[3]}捡到的。")]
    elif kind == 3:
        s += [f"{he}很想去看{place[2]}，可是路很远。", f"{he}的朋友{other}是{who2}{friend}。", f"{other}说：“我和你一起去。”", f"{day}，他们出发了。", f"他们先来到{place2[2]}，休息了一会儿。", "后来刮起了风，他们有一点害怕。",
              f"可是{first}唱起了歌，不久他们就看见了{place[2]}。", "那里比他们想的还要美。"]
        asks = [("他们想去哪里？", f"他们想去{place[2]}。"), (f"谁和{first}一起去？", f"{other}和{first}一起去。"), ("他们在哪里休息？", f"他们在{place2[2]}休息。")]
    elif kind == 4:
        s += [f"{he}想学{rng.choice(('唱歌', '跳舞', '游泳', '画画', '做饭'))}，可是觉得很难。", f"{first}说：“我永远也学不会。”", f"{who2}{friend}听见了，名叫{other}。", f"{other}说：“每天练一点就好。”",
              f"于是{first}每天到{place[2]}练习。", f"一年以后，{he}学会了，{other}送给{he}一{m}{colour}的{obj}。"]
        asks = [(f"{other}送给{first}什么？", f"{other}送给{first}一{m}{colour}的{obj}。"), (f"{first}每天到哪里练习？", f"{first}每天到{place[2]}练习。")]
    else:
        s += [f"{he}和朋友{other}住在{place[2]}旁边，{other}是{who2}{friend}。", f"{day}，{he}只有一个小蛋糕。", f"{other}很饿。", f"{first}说：“我的蛋糕分你一半吧。”", f"第二天，{other}带来了一{m}{colour}的{obj}。",
              f"{other}说：“这个送给你，因为你和我分享了蛋糕。”"]
        asks = [(f"{other}带来了什么？", f"{other}带来了一{m}{colour}的{obj}。"), (f"{first}住在哪里？", f"{first}住在{place[2]}旁边。")]
    s.append(_moral(rng, "zh"))
    asks += [(f"{hero}叫什么名字？", f"{hero}名叫{first}。")]
    return "".join(s), asks


def story(rng, lang, split, hero=None):
    """`(text, questions, hero)`; `hero` is an English and Chinese pair."""
    if hero is None:
        r = rng.random()
        # A made-up hero teaches to take the hero from the request.
        hero = rng.choice(PEOPLE) if r < 0.2 else rng.choice(HEROES) if r < 0.94 else (names.word_en(rng, split), names.word_zh(rng, split))
    friend = rng.choice([h for h in HEROES if h != hero])
    first, other = _names(rng, lang, split, hero[0])
    thing = rng.choice(THINGS)
    place, place2 = rng.sample(_OUTSIDE, 2)
    i = 1 if lang == "zh" else 0
    text, asks = (_zh if lang == "zh" else _en)(rng, rng.randrange(6), first, other, hero[i], friend[i], thing, place, place2)
    return text, asks, hero


_ASK_EN = ["Tell me a story about {x}.", "A story about {x}, please.", "Can you tell me a story about {x}?", "I would like a story about {x}.", "Write a story about {x}.", "Do you know a story about {x}?", "Please tell me a story about {x}."]
_ASK_ZH = ["给我讲一个关于{x}的故事。", "讲一个{x}的故事。", "你能讲一个{x}的故事吗？", "我想听{x}的故事。", "写一个关于{x}的故事。", "来一个{x}的故事。"]
_ANY_EN = ["Tell me a story.", "Can you tell me a story?", "A story, please.", "I want to hear a story.", "Write a short story.", "Tell me a short story.", "Do you know any stories?", "Another story, please.", "Tell me a bedtime story.", "Once more, a new story."]
_ANY_ZH = ["讲个故事。", "给我讲个故事吧。", "讲个故事", "我想听故事。", "你会讲故事吗？", "再讲一个故事。", "写一个小故事。", "讲一个睡前故事。", "请讲个故事。", "来个故事吧"]


def told(rng, lang, split):
    """A story asked for in a chat: `(request, story, questions)`."""
    text, asks, hero = story(rng, lang, split)
    if rng.random() < 0.45:
        return rng.choice(_ANY_ZH if lang == "zh" else _ANY_EN), text, asks
    if lang == "zh":
        return rng.choice(_ASK_ZH).format(x=hero[1]), text, asks
    x = article(hero[0]) if rng.random() < 0.85 else "the " + hero[0]
    return rng.choice(_ASK_EN).format(x=x), text, asks
