#!/usr/bin/env python3
"""Makes tests/testdata/tokenizers: small tokenizers and what the `tokenizers` package does with them.

Trains byte-level BPE tokenizers of every supported shape on text made here, and records for 20,000
strings each what `tokenizers` answers. The strings are made from recipe.json by a generator that
tokenizer_parity_test.cc repeats in C++; so only two 32-bit hashes per string are kept: one of the
ids, one of the byte offsets and of the decoded text.

usage: pip install tokenizers==0.23.3; make_tokenizers.py DIRECTORY
"""

import json
import os
import struct
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

STRINGS = 20000
MASK = (1 << 64) - 1

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A pattern without a scanner of its own: case and marks count.
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

RECIPE = {
    "words": """the of and a to in is you that it he was for on are as with his they I at be this have from or
one had by word but not what all were we when your can said there use an each which she do how their if
will up other about out many then them these so some her would make like him into time has look two more
write go see number no way could people my than first water been call who oil its now find long down day
did get come made may part über naïve café façade Straße señor ÉCOLE Ωμέγα привет мир שלום مرحبا नमस्ते สวัสดี
こんにちは 世界 東京 한국어 你好 ﬁne ǅ İstanbul don't I'm we'll they've O'Neill HELLO World iPhone x86_64 2nd 3.14""".split(),
    "code": ["def ", "(self", "):\n", "    ", "\t", "return ", "if (", " == ", " != ", "->", "=>", "::", "{\n", "}\n",
             "};", "//", "/*", "*/", "#include <", ">\n", "std::vector<int>", "0x1F", "1e-9", "\"str\"", "'c'", "f\"{x}\"",
             "&&", "||", "...", "[i]", "++", "\\n", "\r\n", "template<", "printf(\"%d\\n\", ", ");", "None", "self.x",
             "import os\n", "https://example.org/a?b=c&d=%20", "<div class=\"x\">", "</div>", "SELECT * FROM t;", "$VAR", "@x"],
    "separators": [" ", " ", " ", " ", "  ", "\n", "\n\n", "\t", ", ", ". ", "! ", "? ", "'s ", "'LL ", "-", "—", "…", "/", "", "\u00a0"],
    "spaces": [" ", " ", " ", "\n", "\r", "\t", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\u00a0", "\u1680", "\u180e", "\u2003", "\u200b",
               "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff", "a", "Z", "1", ".", "\u4e16", "\u0301"],
    "digits": ["0", "1", "2", "3", "42", "1234567", "٣", "५", "Ⅷ", "²", "½", "①", "一", "𝟘", "𐄇", ",", ".", "-", " ", "e", "x", "%"],
    "quotes": ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'vE", "'m", "'M", "'ll", "'Ll", "'d", "'D", "'", "''",
               "'\u017f", "\u2019s", "'r", "'v", "'l", "'lx", "x", "it", "\u212a", " ", "!", "\n", "'\u0301s"],
    "marks": ["\u0300", "\u0301", "\u0302", "\u0303", "\u0308", "\u030a", "\u0313", "\u0315", "\u031b", "\u0323", "\u0327", "\u0328", "\u0331",
              "\u0334", "\u0338", "\u0340", "\u0341", "\u0343", "\u0344", "\u0345", "\u035c", "\u0360", "\u0591", "\u064b", "\u0651", "\u093c",
              "\u094d", "\u09be", "\u09d7", "\u0b3e", "\u0dca", "\u0dcf", "\u102e", "\u1dce", "\u1dfa", "\u20d0", "\u302a", "\u3099", "\u309a",
              "\u0897", "\u1abf", "\U000113b8", "\U000110ba", "\U00011127", "\U0001d165", "\U0001d16e", "\U0001e8d0"],
    "bases": ["a", "e", "i", "o", "u", "A", "E", "O", "n", "s", "c", "d", "y", "w", "\u00e4", "\u00ea", "\u01b0", "\u1ea5", "\u0391", "\u03b1",
              "\u03b9", "\u0418", "\u05d0", "\u0627", "\u0915", "\u0928", "\u09c7", "\u0b47", "\u0dd9", "\u1025", "\u30ab", "\u30cf", "\u3046",
              "\u212b", "\u2126", "\u0958", "\ufb1d", "\uf900", "\U0002f800", "\u0344", "\u1100", "\u1161", "\u11a8", "\uac00", "\uac01", "\u1112",
              "\u1175", "\u11c2", "\U00011099", "\U00011131", "\U0001d15e", "=", "<", ">", " ", "1", "\u2260"],
    "runs": ["a", " ", "\n", "\t", ".", "!", "=", "-", "0", "e\u0301", "é", "世", "😀", "\u200d", "ab", "the ", "\r\n", "'", "\u00a0", "Ⅷ", "\u0301", "한", "<"],
    "specials": ["<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|im_start|>", "<|im_end|>",
                 "<tool_call>", "</tool_call>", "<think>", "<s>", "</s>", "<mask>", "[END]", "nai\u0308ve", "naïve", "    ", "  ",
                 "<|im_start", "|>", "<|", "<", "<|endoftext|", "<|im_end|><|im_start|>", "tool_call>"],
    "ranges": [[0x20, 0x7e], [0x00, 0xff], [0x100, 0x24f], [0x250, 0x36f], [0x370, 0x3ff], [0x400, 0x52f], [0x591, 0x5f4], [0x600, 0x6ff],
               [0x900, 0x97f], [0xe00, 0xe7f], [0x1100, 0x11ff], [0x1e00, 0x1fff], [0x2000, 0x206f], [0x2070, 0x218f], [0x2460, 0x24ff],
               [0x2e80, 0x2fdf], [0x3040, 0x30ff], [0x4e00, 0x9fff], [0xa640, 0xa6ff], [0xac00, 0xd7a3], [0xe000, 0xe0ff], [0xf900, 0xfaff],
               [0xfb00, 0xfb4f], [0xfe00, 0xfeff], [0xff00, 0xffef], [0x10000, 0x107ff], [0x10d00, 0x10dff], [0x11000, 0x11fff],
               [0x13000, 0x143ff], [0x16a00, 0x16fff], [0x1cc00, 0x1ceff], [0x1d000, 0x1d7ff], [0x1e000, 0x1e9ff], [0x1f000, 0x1faff],
               [0x20000, 0x2a6df], [0x2ebf0, 0x2fa1f], [0x31350, 0x323af], [0xe0000, 0xe01ef], [0x10fff0, 0x10ffff]],
}


class Random:
    """splitmix64; below() by remainder, which is even enough here and the same everywhere."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n

    def pick(self, items):
        return items[self.below(len(items))]


def code_point(random, first, last):
    c = first + random.below(last - first + 1)
    # Surrogates are not text; the digits of Unicode 17 depend on the compiler of the package.
    if 0xD800 <= c <= 0xDFFF or 0x11DE0 <= c <= 0x11DE9 or 0x16FF4 <= c <= 0x16FF6:
        return "?"
    return chr(c)


def make_string(random, recipe, kind=None):
    if kind is None:
        kind = random.below(12)
    out = []
    if kind == 0:
        for _ in range(1 + random.below(16)):
            out.append(random.pick(recipe["words"]))
            out.append(random.pick(recipe["separators"]))
    elif kind == 1:
        for _ in range(1 + random.below(20)):
            out.append(code_point(random, 0, 0x10FFFF))
    elif kind == 2:
        for _ in range(1 + random.below(6)):
            first, last = random.pick(recipe["ranges"])
            for _ in range(1 + random.below(8)):
                out.append(code_point(random, first, last))
    elif kind <= 6:
        name = ("spaces", "digits", "quotes", "code")[kind - 3]
        for _ in range(1 + random.below(24)):
            out.append(random.pick(recipe[name]))
    elif kind == 7:
        for _ in range(1 + random.below(10)):
            out.append(random.pick(recipe["bases"]))
            for _ in range(random.below(5)):
                out.append(random.pick(recipe["marks"]))
    elif kind == 8:
        for _ in range(1 + random.below(10)):
            out.append(random.pick(recipe["specials"]))
            if random.below(2):
                out.append(random.pick(recipe["separators"]))
            if random.below(2):
                out.append(random.pick(recipe["words"]))
    elif kind == 9:
        for _ in range(1 + random.below(2)):
            out.append(random.pick(recipe["runs"]) * (1 + random.below(200)))
    elif kind == 10:
        for _ in range(2 + random.below(3)):
            out.append(make_string(random, recipe, random.below(10)))
    # kind 11: the empty string and single characters
    elif random.below(20):
        first, last = random.pick(recipe["ranges"])
        out.append(code_point(random, first, last))
    return "".join(out)


def training_text(random, recipe):
    """Lines with words of skewed frequency, made-up words, code and other scripts."""
    vowels, consonants = "aeiou", "bcdfghklmnprstvwz"
    made_up = []
    for _ in range(1500):
        made_up.append("".join(random.pick(consonants) + random.pick(vowels) for _ in range(1 + random.below(4))))
    for _ in range(6000):
        line = []
        for _ in range(4 + random.below(20)):
            kind = random.below(20)
            if kind < 10:
                word = recipe["words"][min(random.below(len(recipe["words"])), random.below(len(recipe["words"])))]
            elif kind < 15:
                word = made_up[min(random.below(1500), random.below(1500), random.below(1500))]
            elif kind < 18:
                word = random.pick(recipe["code"])
            elif kind < 19:
                word = str(random.below(10 ** (1 + random.below(6))))
            else:
                word = make_string(random, recipe, 2)
            line.append(word[:1].upper() + word[1:] if random.below(10) == 0 else word)
        yield random.pick([" ", " ", " ", "  ", "\n", ", "]).join(line) + random.pick([".", "\n", "!\n\n", "", "  "])


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def special(content, **options):
    return AddedToken(content, special=True, normalized=False, **options)


def train(vocab, lines, pre_tokenizer, normalizer=None, first=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=list(first), show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def gpt2(lines):
    tokenizer = train(2000, lines, pre_tokenizers.ByteLevel(add_prefix_space=False), first=[special("<|endoftext|>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    data = json.loads(tokenizer.to_str())
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return data


def llama3(lines):
    tokenizer = train(2200, lines, split(LLAMA3))
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    # Whole words that no merge leads to: only ignore_merges finds them.
    for word in ("Ġnumber", "Ġpeople", "Ġwater", "printf", "ĠO", "..."):
        data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([special(s) for s in (
        "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")])
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                      special_tokens=[(bos, tokenizer.token_to_id(bos))])])
    return json.loads(tokenizer.to_str())


def qwen2(lines):
    tokenizer = train(2000, lines, split(QWEN2), normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.add_special_tokens([special(s) for s in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(s, normalized=False) for s in ("<tool_call>", "</tool_call>", "<think>")])
    return json.loads(tokenizer.to_str())


def prefixed(lines):
    tokenizer = train(1000, lines, pre_tokenizers.ByteLevel(add_prefix_space=True),
                      normalizers.Sequence([normalizers.NFC()]))
    tokenizer.add_special_tokens([special("<s>"), special("</s>"), special("<mask>", lstrip=True)])
    tokenizer.add_tokens([AddedToken("[END]", rstrip=True, normalized=False), AddedToken("naïve"),
                          AddedToken("    "), AddedToken("<|im_", lstrip=True, rstrip=True)])
    tokenizer.post_processor = processors.Sequence([
        processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[
            ("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))]),
        processors.ByteLevel(add_prefix_space=True, trim_offsets=True)])
    return json.loads(tokenizer.to_str())


def digits(lines):
    tokenizer = train(900, lines, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return json.loads(tokenizer.to_str())


def cased(lines):
    tokenizer = train(1500, lines, split(CASED))
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return json.loads(tokenizer.to_str())


def fnv(values, state=0xCBF29CE484222325):
    for value in values:
        state = ((state ^ value) * 0x100000001B3) & MASK
    return state


def fold(state):
    return (state ^ (state >> 32)) & 0xFFFFFFFF


def expect(tokenizer, index, text):
    """The two hashes of string number `index`, whose bits choose the options."""
    tokenizer.encode_special_tokens = not index & 2
    encoding = tokenizer.encode(text, add_special_tokens=bool(index & 1))
    ids = encoding.ids
    byte_at = [0]
    for c in text:
        byte_at.append(byte_at[-1] + len(c.encode()))
    rest = fnv(byte_at[edge] for offset in encoding.offsets for edge in offset)
    skip = bool(index & 4)
    rest = fnv(tokenizer.decode(ids, skip_special_tokens=skip).encode(), rest)
    rest = fnv(tokenizer.decode(ids[::-1], skip_special_tokens=skip).encode(), rest)
    return fold(fnv(ids)), fold(rest)


def main():
    directory = sys.argv[1]
    with open(os.path.join(directory, "recipe.json"), "w", encoding="utf-8") as out:
        json.dump(RECIPE, out, ensure_ascii=True, indent=0)
        out.write("\n")
    lines = list(training_text(Random(1), RECIPE))
    for make in (gpt2, llama3, qwen2, prefixed, digits, cased):
        name = make.__name__
        data = json.dumps(make(lines), ensure_ascii=False, separators=(",", ":"))
        with open(os.path.join(directory, name + ".json"), "w", encoding="utf-8") as out:
            out.write(data + "\n")
        tokenizer = Tokenizer.from_str(data)
        random = Random(2026)
        with open(os.path.join(directory, name + ".expected"), "wb") as out:
            for index in range(STRINGS):
                out.write(struct.pack("<II", *expect(tokenizer, index, make_string(random, RECIPE))))
        print(name, len(data), flush=True)


if __name__ == "__main__":
    main()
