#!/usr/bin/env python3
"""Writes splits.json: for each family of pre-tokenizers the digests of how Python's `regex` cuts 100,000 made-up texts,
1,000 to a digest. The texts are made by the same generator in `tests/it/published.rs`, from the pools written beside.

    pip install regex; ./splits.py > splits.json

The patterns are those of the models' published `tokenizer.json`: the `Split` steps in order, `Digits` as \\p{N}, the
pattern of `ByteLevel` as GPT2. Where a model has none published, they are those that llama.cpp documents.
"""
import hashlib, json, sys

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def llama(digits, letters=r"\p{L}+", spaces=REST):
    return ENDINGS + r"|[^\r\n\p{L}\p{N}]?" + letters + "|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + spaces


def gpt4o(digits, endings=ENDINGS + "?", after="[\r\n/]*", less=""):
    upper, lower = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + less + "]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + less + "]")
    before = r"[^\r\n\p{L}\p{N}]?"
    return (before + upper + "*" + lower + "+" + endings + "|" + before + upper + "+" + lower + "*" + endings
            + "|" + digits + r"| ?[^\s\p{L}\p{N}]+" + after + "|" + REST)


LLAMA3, QWEN2 = llama(r"\p{N}{1,3}"), llama(r"\p{N}")
ASCII = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]\^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"""
DEEPSEEK3 = ASCII + r"[\r\n]*|" + REST
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
CJK = r"[一-龥\u3040-ゟ゠-ヿ]+"
POWERS = r"\s*[\r\n]+" + "".join(r"|\s{%d}(?!\S)" % 2**k for k in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"
DEEPSEEK_LETTERS = r"\s?[A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"

FAMILIES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "llama-bpe": [LLAMA3],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + REST],
    "deepseek-llm": [r"[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, DEEPSEEK3],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "smollm": [r"\p{N}", GPT2],
    "gpt-4o": [gpt4o(r"\p{N}{1,3}")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", gpt4o(r"\p{N}{1,3}")],
    "tekken": [gpt4o(r"\p{N}", endings="")],
    "kimi-k2": [r"\p{Han}+|" + gpt4o(r"\p{N}{1,3}", after=r"[\r\n]*", less=r"&&[^\p{Han}]")],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + REST],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "jais-2": [llama(r"\p{N}{1,3}", spaces=POWERS)],
    "k2-horizon": [llama(r"\p{N}{1,3}", letters="(?:\\p{L}|\\p{M}|\u200c|\u200d)+")],
    "exaone-moe": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+", gpt4o(r"\p{N}")],
    "spark2_5": [r"\p{N}", CJK, ASCII + r"|[\r\n]|\s+(?!\S)|\s+"],
    "ufakzeka": [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + REST],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
              "[一-鿿㐀-䶿\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+", DEEPSEEK3],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2],
}

POOLS = [
    ["the", "of", "world", "naïve", "über", "a", "I", "lazy", "straße"],
    ["Hello", "HTTP", "fooBar", "XMLHttpRequest", "ÉTÉ", "McDonald", "iPhone", "ABCdef", "X"],
    ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "’s", "'x", "'"],
    ["0", "7", "12", "345", "6789", "1234567", "00000000", "3.14", "1,000,000", "0x1F", "1e-5"],
    ["½", "²", "٣", "१२३", "๑๒", "Ⅻ", "①", "３４５"],
    [" ", " ", " ", "  ", "   ", "    ", "\t", "\t\t", "\u00a0", "\u3000", "\u2009", "\x0b", "          "],
    ["\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\n    ", "\u2028", "\x85"],
    ["中文", "汉字测试", "我", "日本", "語", "𠀀", "㐀", "豈", "〇", "々"],
    ["ひらがな", "カタカナ", "ー", "ｱｲｳ", "한국어", "가", "ㄱㄴ", "ㄅㄆ", "ᄀ"],
    ["e\u0301", "a\u0308", "\u0301", "o\u0302\u0323", "न\u094d", "हिन्दी", "தமிழ்", "עִבְ", "العَ"],
    ["👍", "👩\u200d👧", "🇩🇪", "❤\ufe0f", "😀", "👍🏽", "\u200d", "\u200c", "\ufeff"],
    [".", ",", "!", "?", "-", "_", "(", ")", "[", "]", "{", "}", "\"", ":", ";", "...", "!?", "--", "/", "\\", "#", "@", "&", "*", "%"],
    ["$", "+", "<", "=", ">", "^", "~", "|", "`", "=>", "++", "!=", "&&", "||", "€", "£", "°", "→", "∑", "©"],
    ["…", "。", "，", "、", "！", "？", "“", "”", "‘", "’", "—", "–", "«", "»", "¿", "·", "।", "۔", "،", "：", "～"],
    ["привет", "Москва", "ΕΛΛΗΝΙΚΑ", "ελληνικά", "Ǆ", "ǅ", "ﬁ", "ªº", "ʰ", "ᴬ", "Ա", "ⅷ"],
    ["def f(x):", "return", "i++", "//", "/*", "*/", "<tag>", "</p>", "a_b", "x->y", "::", "#include", "{\n\t", "};\n"],
    ["ไทย", "ลาว", "ລາວ", "ខ្មែរ", "မြန်မာ", "ᠮᠣ"],
    ["<sentinel:12>", "IMGIMGABZ", "IMGIMGZ", "<|im_end|>"],
]
BLOCKS, TEXTS = 100, 1000


def numbers(seed):
    """SplitMix64."""
    mask = (1 << 64) - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def texts(block):
    rng = numbers(block)
    for _ in range(TEXTS):
        parts = []
        for _ in range(1 + next(rng) % 24):
            pool = POOLS[next(rng) % len(POOLS)]
            parts.append(pool[next(rng) % len(pool)])
        yield "".join(parts)


def pieces(patterns, text):
    parts = [text]
    for pattern in patterns:
        cut = []
        for part in parts:
            done = 0
            for found in pattern.finditer(part):
                cut += [part[done:found.start()], found.group()]
                done = found.end()
            cut.append(part[done:])
        parts = [part for part in cut if part]
    return parts


def main():
    families = {name: [regex.compile(p, regex.V1 if "&&" in p else regex.V0) for p in patterns] for name, patterns in FAMILIES.items()}
    digests = {name: [] for name in families}
    for block in range(BLOCKS):
        made = list(texts(block))
        for name, patterns in families.items():
            digest = hashlib.sha256()
            for text in made:
                digest.update(b"\0".join(p.encode() for p in pieces(patterns, text)) + b"\1")
            digests[name].append(digest.hexdigest()[:16])
    json.dump({"pools": POOLS, "families": digests}, sys.stdout, indent=0, ensure_ascii=True)
    print()


if __name__ == "__main__":
    main()
