"""Names, made-up words and numbers, each drawn inside a split."""

from .core import held_out, in_split

COMMON_EN = """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mary Nora Oscar Paul Rosa Sam Tom Uma Vera Will
Alice Bob Carol Dan Eva Frank Gina Hugo Ivy John Karen Liam Mia Noah Olga Peter Quinn Ruth Simon Tina Victor Wendy Zoe Adam Bella
Chris Diana Eric Fiona George Helen Ian Julia Kevin Lucy Max Nina Oliver Polly Robert Sara Tim Ursula Walter Amy Arthur Beth Carl
Daisy Edward Ella Fred Gwen Hannah Isaac Jane Joe Laura Lily Mark Martin Michael Molly Nick Patrick Rachel Rose Sally Sophie Steve
Susan Thomas James Maria Linda Jim Lena Alex Anton Bruno Cora Dora Elsa Finn Hans Ida Jonas Kai Lara Marco Nadia Otto Pia Ralf""".split()

SURNAMES = "王李张刘陈杨黄赵吴周徐孙马朱胡林郭何高罗郑梁谢宋唐许邓冯韩曹"
GIVEN = "明华丽芳伟军静敏强磊洋勇艳杰涛超兰霞平刚文玉春雪梅云月星海天宇晨佳欣思雨子志建国安乐"
ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "gr", "kr", "tr", "sh", "th", "st"]
VOWELS = ["a", "e", "i", "o", "u", "a", "o", "ai", "ea", "ou"]
CODAS = ["", "", "", "n", "l", "r", "s", "m", "k"]
SOUNDS_ZH = "阿巴达卡拉马那萨塔瓦加利米尼西比迪波多科洛莫诺索图布库鲁木努苏特维兹克雷贝德尔安东林罗"


def word_en(rng, split: str, kind: str = "word") -> str:
    """A made-up English-looking word of two or three syllables."""
    choice = rng.choice
    while True:
        n = 2 if rng.random() < 0.65 else 3
        word = "".join([choice(ONSETS) + choice(VOWELS) for _ in range(n)]) + choice(CODAS)
        if in_split(kind, word, split):
            return word


def word_zh(rng, split: str) -> str:
    """A made-up Chinese-looking word of two or three characters."""
    while True:
        word = "".join(rng.sample(SOUNDS_ZH, 2 if rng.random() < 0.6 else 3))
        if in_split("word", word, split):
            return word


def word(rng, lang: str, split: str) -> str:
    """A made-up word."""
    return word_zh(rng, split) if lang == "zh" else word_en(rng, split)


_EN = {s: [n for n in COMMON_EN if in_split("name", n.lower(), s)] for s in ("train", "heldout")}


def common(rng, split: str) -> str:
    """A common English name."""
    return rng.choice(_EN[split])


FEMALE = frozenset("""Anna Clara Emma Grace Iris Kate Mary Nora Rosa Uma Vera Alice Carol Eva Gina Ivy Karen Mia Olga Ruth Tina
Wendy Zoe Bella Diana Fiona Helen Julia Lucy Nina Polly Sara Ursula Amy Beth Daisy Ella Gwen Hannah Jane Laura Lily Molly Rachel
Rose Sally Sophie Susan Maria Linda Lena Cora Dora Elsa Ida Lara Nadia Pia""".split())


def is_common(name: str) -> bool:
    """True for a common English name."""
    return name in COMMON_EN


def name(rng, lang: str, split: str) -> str:
    """A person's name."""
    if lang == "zh":
        while True:
            given = "".join(rng.sample(GIVEN, 2 if rng.random() < 0.75 else 1))
            if rng.random() < 0.2:
                full = "小" + rng.choice(GIVEN)
            else:
                full = rng.choice(SURNAMES) + given
            if in_split("name", full, split):
                return full
    if rng.random() < 0.4:
        return common(rng, split)
    return word_en(rng, split, "name").capitalize()


def names(rng, lang: str, split: str, n: int) -> list:
    """`n` different names; in Chinese none shares its first character."""
    out = []
    while len(out) < n:
        new = name(rng, lang, split)
        if all(new != o and new[:2] != o[:2] for o in out):
            out.append(new)
    return out


def digits(rng, split: str, low: int = 4, high: int = 6) -> str:
    """A number of `low` to `high` digits without a leading zero."""
    while True:
        n = rng.randint(low, high)
        number = str(rng.randrange(10 ** (n - 1), 10**n))
        if in_split("number", number, split):
            return number


def pair_ok(kind: str, a: str, b: str, split: str) -> bool:
    """True where the combination of `a` and `b` belongs to the split.

    Held-out texts may use any combination of held-out names.
    """
    return split == "heldout" or not held_out(kind, a + "|" + b)
