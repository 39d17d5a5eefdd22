#!/usr/bin/env python3
"""Makes tests/testdata/tokenizers: small tokenizers and what the `tokenizers` package answers.

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
FNV = 0xCBF29CE484222325

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A pattern without a scanner of its own: case and marks count.
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
LARGE, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{LARGE}*{SMALL}+{CONTRACTION}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{LARGE}+{SMALL}*{CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


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
        made_up.append(
            "".join(
                random.pick(consonants) + random.pick(vowels) for _ in range(1 + random.below(4))
            )
        )
    for _ in range(6000):
        line = []
        for _ in range(4 + random.below(20)):
            kind = random.below(20)
            if kind < 10:
                word = recipe["words"][
                    min(random.below(len(recipe["words"])), random.below(len(recipe["words"])))
                ]
            elif kind < 15:
                word = made_up[min(random.below(1500), random.below(1500), random.below(1500))]
            elif kind < 18:
                word = random.pick(recipe["code"])
            elif kind < 19:
                word = str(random.below(10 ** (1 + random.below(6))))
            else:
                word = make_string(random, recipe, 2)
            line.append(word[:1].upper() + word[1:] if random.below(10) == 0 else word)
        yield random.pick([" ", " ", " ", "  ", "\n", ", "]).join(line) + random.pick(
            [".", "\n", "!\n\n", "", "  "]
        )


def split(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def special(content, **options):
    return AddedToken(content, special=True, normalized=False, **options)


def train(vocab, lines, pre_tokenizer, normalizer=None, first=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(first),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def gpt2(lines):
    tokenizer = train(
        2000,
        lines,
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        first=[special("<|endoftext|>")],
    )
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
    tokenizer.add_special_tokens(
        [
            special(s)
            for s in (
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eot_id|>",
            )
        ]
    )
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{bos} $A",
                pair=f"{bos} $A {bos}:1 $B:1",
                special_tokens=[(bos, tokenizer.token_to_id(bos))],
            ),
        ]
    )
    return json.loads(tokenizer.to_str())


def qwen2(lines):
    tokenizer = train(2000, lines, split(QWEN2), normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(
        add_prefix_space=False, trim_offsets=False, use_regex=False
    )
    tokenizer.add_special_tokens(
        [special(s) for s in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    )
    tokenizer.add_tokens(
        [AddedToken(s, normalized=False) for s in ("<tool_call>", "</tool_call>", "<think>")]
    )
    return json.loads(tokenizer.to_str())


def prefixed(lines):
    tokenizer = train(
        1000,
        lines,
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        normalizers.Sequence([normalizers.NFC()]),
    )
    tokenizer.add_special_tokens([special("<s>"), special("</s>"), special("<mask>", lstrip=True)])
    tokenizer.add_tokens(
        [
            AddedToken("[END]", rstrip=True, normalized=False),
            AddedToken("naïve"),
            AddedToken("    "),
            AddedToken("<|im_", lstrip=True, rstrip=True),
        ]
    )
    tokenizer.post_processor = processors.Sequence(
        [
            processors.TemplateProcessing(
                single="<s> $A </s>",
                pair="<s> $A </s> $B:1 </s>:1",
                special_tokens=[
                    ("<s>", tokenizer.token_to_id("<s>")),
                    ("</s>", tokenizer.token_to_id("</s>")),
                ],
            ),
            processors.ByteLevel(add_prefix_space=True, trim_offsets=True),
        ]
    )
    return json.loads(tokenizer.to_str())


def digits(lines):
    tokenizer = train(
        900,
        lines,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        ),
    )
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return json.loads(tokenizer.to_str())


def cased(lines):
    tokenizer = train(1500, lines, split(CASED))
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return json.loads(tokenizer.to_str())


def fnv(values, state=FNV):
    for value in values:
        state = ((state ^ value) * 0x100000001B3) & MASK
    return state


def fold(state):
    return (state ^ (state >> 32)) & 0xFFFFFFFF


def expect_states(tokenizer, index, text, id_state=FNV, rest_state=FNV):
    """Adds string number `index`, whose bits choose the options, to two hashes: of its ids, and of
    its offsets and decoded texts."""
    tokenizer.encode_special_tokens = not index & 2
    encoding = tokenizer.encode(text, add_special_tokens=bool(index & 1))
    ids = encoding.ids
    byte_at = [0]
    for c in text:
        byte_at.append(byte_at[-1] + len(c.encode()))
    rest = fnv((byte_at[edge] for offset in encoding.offsets for edge in offset), rest_state)
    skip = bool(index & 4)
    rest = fnv(tokenizer.decode(ids, skip_special_tokens=skip).encode(), rest)
    rest = fnv(tokenizer.decode(ids[::-1], skip_special_tokens=skip).encode(), rest)
    return fnv(ids, id_state), rest


def main():
    directory = sys.argv[1]
    with open(os.path.join(directory, "recipe.json"), encoding="utf-8") as file:
        recipe = json.load(file)
    lines = list(training_text(Random(1), recipe))
    for make in (gpt2, llama3, qwen2, prefixed, digits, cased):
        name = make.__name__
        data = json.dumps(make(lines), ensure_ascii=False, separators=(",", ":"))
        with open(os.path.join(directory, name + ".json"), "w", encoding="utf-8") as out:
            out.write(data + "\n")
        tokenizer = Tokenizer.from_str(data)
        random = Random(2026)
        with open(os.path.join(directory, name + ".expected"), "wb") as out:
            for index in range(STRINGS):
                states = expect_states(tokenizer, index, make_string(random, recipe))
                out.write(struct.pack("<II", *map(fold, states)))
        print(name, len(data), flush=True)


if __name__ == "__main__":
    main()
