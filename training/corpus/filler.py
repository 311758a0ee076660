"""Plain sentences between which needles are hidden."""

from .core import article
from .lexicon import ANIMALS, COLOURS, FOODS, JOBS, OBJECTS, PLACES

EN = """The grass is green.|The sky is blue.|The sun is yellow.|Here we go.|There and back again.|The river flows to the sea.|A bird sings in the tree.
The wind is soft today.|It rained in the morning.|The children play outside.|The road is long.|The shop opens at nine.|The tea is still warm.|The train is late again.
Nobody is in a hurry.|The night was quiet.|The stars are bright.|We walked along the shore.|The bread smells good.|The door is open.|The clouds move slowly.
The old clock stopped.|The flowers need some water.|Snow fell on the hills.|The boat is small.|There is a light in the window.|The leaves turn brown.|The soup is hot.
The letter came on Monday.|It is a fine day.|The market is full of people.|The water is clear.|The moon is round tonight.|The fire is out.|The field is empty.
She closed the window.|He waited at the corner.|They talked about the weather.|We had lunch at noon.|The music stopped.|The room was dark.|The path goes up the hill.
The garden is full of roses.|The bus was almost empty.|Summer is near.|The apples are ripe.|The lake is frozen.|The days are short in winter.|Everything was calm.
The cat sleeps on the chair.|A dog barked far away.|The farmer went home.|The fish swim in the pond.|The lamp gives a soft light.|The story is an old one.|The bell rang twice.""".replace("\n", "|").split("|")

ZH = """草是绿色的。|天空很蓝。|太阳很暖和。|小河流向大海。|鸟儿在树上唱歌。|今天的风很轻。|早上下了一场雨。|孩子们在外面玩。|这条路很长。|商店九点开门。|茶还是热的。
火车又晚点了。|大家都不着急。|夜里很安静。|星星很亮。|我们在海边散步。|面包很香。|门开着。|云慢慢地走。|旧钟停了。|花儿要浇水了。|山上下雪了。|船很小。|窗里有一点光。
树叶变黄了。|汤很热。|信是星期一到的。|今天天气很好。|市场里人很多。|水很清。|今晚的月亮很圆。|火已经灭了。|田里没有人。|她关上了窗户。|他在路口等着。
他们在聊天气。|我们中午吃了饭。|音乐停了。|房间里很暗。|小路通向山上。|花园里开满了花。|车上没有几个人。|夏天快到了。|苹果熟了。|湖面结冰了。
冬天的白天很短。|一切都很平静。|猫在椅子上睡觉。|远处有一只狗在叫。|农民回家了。|鱼在水里游。|灯光很柔和。|这是一个老故事。|铃响了两次。""".replace("\n", "|").split("|")

_EN_A = ["{A} sat {p}.", "The {j} went home early.", "There was {c} {o} on the table.", "{A} ran past the house.", "The {j} bought some {f}.", "Somebody left {c} {o} {p}.",
         "The {j} likes {f}.", "It was quiet {p}.", "We saw {A2} {p}.", "The {j} talked about the weather."]
_ZH_A = ["一{m}{a}坐{p}。", "{j}很早就回家了。", "桌上有一{om}{c}的{o}。", "一{m}{a}从门前跑过。", "{j}买了一些{f}。", "有人把一{om}{c}的{o}忘{p}了。", "{j}喜欢吃{f}。", "{p}很安静。",
         "我们{p}看见了一{m}{a}。", "{j}说今天天气不错。"]


def sentence(rng, lang: str) -> str:
    """One plain sentence."""
    if rng.random() < (0.35 if lang == "zh" else 0.5):
        return rng.choice(ZH if lang == "zh" else EN)
    a, o, p, c = rng.choice(ANIMALS), rng.choice(OBJECTS), rng.choice(PLACES), rng.choice(COLOURS)
    j, f = rng.choice(JOBS), rng.choice(FOODS)
    if lang == "zh":
        place = p[3]
        text = rng.choice(_ZH_A)
        if text.startswith("{p}"):
            place = place[1:]
        return text.format(m=a[3], a=a[2], p=place, j=j[1], om=o[3], c=c[1], o=o[2], f=f[2])
    name = article(a[0])
    return rng.choice(_EN_A).format(A=name[0].upper() + name[1:], A2=name, p=p[1], j=j[0], c=article(c[0]), o=o[0], f=f[1])
