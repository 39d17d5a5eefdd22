#!/usr/bin/env python3
"""Makes tests/testdata/families: small tokenizers in the shapes of published model families, and
what `tokenizers` answers for 20,000 strings each.

Adds to make_tokenizers.py the shapes that are not only byte-level. The strings come from the same
generator, with the changes to recipe.json that recipe.json of this directory lists. Of each block
of 20 strings two 32-bit hashes are kept: of the ids, and of offsets and decoded text.

usage: pip install tokenizers==0.23.3 sentencepiece==0.2.3; make_family_tokenizers.py DIRECTORY
       [FAMILY...]
"""

import collections
import json
import os
import struct
import sys
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

from make_tokenizers import STRINGS, Random, expect_states, fold, make_string, special
from make_tokenizers import training_text

BLOCK = 20
SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BIG = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def bpe(lines, size, pre_tokenizer, alphabet=110, byte_fallback=True, **model):
    """A BPE over characters with SentencePiece's spaces."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    first = ["<unk>", "<s>", "</s>"] + (BYTES if byte_fallback else [])
    trainer = trainers.BpeTrainer(
        vocab_size=size, limit_alphabet=alphabet, special_tokens=first, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    data["normalizer"] = data["pre_tokenizer"] = None
    data["model"].update(byte_fallback=byte_fallback, **model)
    return Tokenizer.from_str(json.dumps(data))


def words(lines, size, **options):
    return bpe(lines, size, pre_tokenizers.Metaspace(), **options)


def frame(tokenizer, single):
    names = [part for part in single.split() if part != "$A"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=f"{single} {single.replace('$A', '$B:1')}",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in names],
    )


def llama_decoder(*strip):
    return decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )


def llama2(lines):
    tokenizer = words(lines, 1400, fuse_unk=True)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = llama_decoder(decoders.Strip(" ", 1, 0))
    frame(tokenizer, "<s> $A")
    return tokenizer


def gemma(lines):
    # Without a pre-tokenizer, so tokens have spaces inside too.
    tokenizer = bpe(lines, 1300, None, fuse_unk=True)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = llama_decoder()
    tokenizer.add_special_tokens([special("<start_of_turn>"), special("<end_of_turn>")])
    tokenizer.add_tokens([AddedToken(s, normalized=False) for s in ("\n\n", "<table>", "  ")])
    frame(tokenizer, "<s> $A")
    return tokenizer


def mistral(lines):
    tokenizer = words(lines, 1300, fuse_unk=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = llama_decoder(decoders.Strip(" ", 1, 0))
    tokenizer.add_special_tokens([special("[INST]"), special("[/INST]")])
    frame(tokenizer, "<s> $A")
    return tokenizer


def phi3(lines):
    tokenizer = words(lines, 1300, fuse_unk=True)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = llama_decoder(decoders.Strip(" ", 1, 0))
    tokenizer.add_special_tokens(
        [special(s, rstrip=True) for s in ("<|user|>", "<|end|>", "<|assistant|>")]
    )
    tokenizer.add_tokens(
        [
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("the", single_word=True, lstrip=True),
            AddedToken("[END]", rstrip=True),
        ]
    )
    return tokenizer


def byte_level(lines, size, pre_tokenizer, normalizer=None, lacks=0, **model):
    """A BPE over bytes; without tokens of the `lacks` bytes that are rarest in `lines`."""
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=[] if lacks else pre_tokenizers.ByteLevel.alphabet(),
        limit_alphabet=256 - lacks,
        special_tokens=[special("<s>"), special("</s>"), special("<unk>")],
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def deepseek(lines):
    cjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in (r"\p{N}{1,3}", cjk, BIG)]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = byte_level(lines, 900, pre_tokenizers.Sequence([*splits, last]))
    frame(tokenizer, "<s> $A")
    return tokenizer


def command_r(lines):
    steps = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
    tokenizer = byte_level(lines, 900, pre_tokenizers.Sequence(steps), normalizers.NFC())
    frame(tokenizer, "<s> $A </s>")
    return tokenizer


def falcon3(lines):
    steps = [
        pre_tokenizers.Punctuation(behavior="contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
    ]
    return byte_level(lines, 900, pre_tokenizers.Sequence(steps))


def smollm(lines):
    """Its vocabulary lacks bytes, which are left out."""
    steps = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
    return byte_level(lines, 900, pre_tokenizers.Sequence(steps), lacks=100)


def unknown_bytes(lines):
    """The unknown token stands for the bytes that it lacks."""
    steps = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return byte_level(lines, 900, steps, lacks=120, unk_token="<unk>", fuse_unk=True)


def roberta(lines):
    forms = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.NFD()])
    tokenizer = byte_level(lines, 900, pre_tokenizers.ByteLevel(add_prefix_space=True), forms)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return tokenizer


def unknown(lines):
    """Without byte fallback: unknown characters, each a token of its own."""
    tokenizer = words(lines, 900, alphabet=70, byte_fallback=False, fuse_unk=False)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.CharDelimiterSplit("_"),
            pre_tokenizers.Punctuation(behavior="merged_with_previous"),
            pre_tokenizers.Metaspace(prepend_scheme="always"),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.Strip(" ", 1, 0), decoders.Fuse()]
    )
    tokenizer.post_processor = processors.BertProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return tokenizer


def precompiled_charsmap(recipe):
    """A small map in SentencePiece's format: some compatible forms, and some that vanish."""
    import unicodedata

    rules = {}
    for first, last in recipe["ranges"]:
        for c in list(range(first, last + 1))[::7]:
            form = unicodedata.normalize("NFKC", chr(c)) if not 0xD800 <= c < 0xE000 else chr(c)
            if form != chr(c) and len(rules) < 400:
                rules[(c,)] = [ord(x) for x in form]
    for c in (0, 1, 0x200B, 0x200D, 0xFEFF, 0x7F):
        rules[(c,)] = []
    rules[(0x65, 0x301)] = [0xE9]
    rules[(0x9,)] = rules[(0xA,)] = rules[(0xA0,)] = rules[(0x3000,)] = [0x20]
    with tempfile.TemporaryDirectory() as work:
        with open(work + "/rules.tsv", "w", encoding="utf-8") as out:
            for source, target in rules.items():
                if source in ((0,),):
                    continue
                cells = [" ".join(f"{c:X}" for c in part) for part in (source, target)]
                out.write("\t".join(cells) + "\n")
        with open(work + "/text", "w", encoding="utf-8") as out:
            out.write("a few words to train\n" * 50)
        sentencepiece.SentencePieceTrainer.train(
            input=work + "/text",
            model_prefix=work + "/m",
            vocab_size=20,
            hard_vocab_limit=False,
            normalization_rule_tsv=work + "/rules.tsv",
            minloglevel=2,
        )
        from sentencepiece import sentencepiece_model_pb2 as proto

        model = proto.ModelProto()
        with open(work + "/m.model", "rb") as file:
            model.ParseFromString(file.read())
        return model.normalizer_spec.precompiled_charsmap


def unigram(lines, size, first, **model):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=first, unk_token="<unk>", show_progress=False
    )
    counts = collections.Counter("".join(lines))
    known = {c for c, _ in counts.most_common(150)}
    usual = ["".join(c for c in line if c in known) for line in lines[:3000]]
    tokenizer.train_from_iterator(usual, trainer)
    data = json.loads(tokenizer.to_str())
    data["model"].update(model)
    data["model"]["vocab"] = [[t, round(s, 5)] for t, s in data["model"]["vocab"]]
    return Tokenizer.from_str(json.dumps(data))


def t5(lines, recipe):
    tokenizer = unigram(lines, 800, ["<pad>", "</s>", "<unk>"])
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(precompiled_charsmap(recipe)),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), SPACE),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens([special("<extra_id_0>", rstrip=True), special("<mask>")])
    frame(tokenizer, "$A </s>")
    return tokenizer


def xlnet(lines):
    tokenizer = unigram(lines, 900, ["<unk>", "<s>", "</s>", *BYTES], byte_fallback=True)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def deepseek_coder(lines):
    """As DeepSeek LLM and Coder cut text, with spaces at the end of a line."""
    patterns = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[\u4e00-\u9fa5\uac00-\ud7a3]+")
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    steps = [
        *splits,
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return byte_level(lines, 900, pre_tokenizers.Sequence(steps))


def words_of_lines(lines):
    """Word characters and the begins of lines."""
    patterns = (r"^\s*\w", r"[\w']+|[^\w\s]+$", r"\W+(?=\w)")
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return byte_level(lines, 900, pre_tokenizers.Sequence([*splits, last]))


def byte_normalized(lines):
    """The byte alphabet by the normalizer."""
    forms = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    return byte_level(lines, 900, pre_tokenizers.Split("\u0120", "merged_with_next"), forms)


FAMILIES = (llama2, gemma, mistral, phi3, deepseek, command_r, falcon3, roberta, unknown, t5, xlnet)
FAMILIES += (deepseek_coder, words_of_lines, byte_normalized, smollm, unknown_bytes)


def read_recipe(directory):
    with open(os.path.join(directory, "../tokenizers/recipe.json"), encoding="utf-8") as file:
        recipe = json.load(file)
    with open(os.path.join(directory, "recipe.json"), encoding="utf-8") as file:
        recipe.update(json.load(file))
    return recipe


def write_expected(path, tokenizer, recipe):
    random = Random(2026)
    with open(path, "wb") as out:
        for block in range(0, STRINGS, BLOCK):
            states = ()
            for index in range(block, block + BLOCK):
                states = expect_states(tokenizer, index, make_string(random, recipe), *states)
            out.write(struct.pack("<II", *map(fold, states)))


def main():
    directory = sys.argv[1]
    recipe = read_recipe(directory)
    lines = list(training_text(Random(1), recipe))
    for make in FAMILIES:
        name = make.__name__
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        tokenizer = make(lines, recipe) if make is t5 else make(lines)
        data = json.loads(tokenizer.to_str())
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        with open(os.path.join(directory, name + ".json"), "w", encoding="utf-8") as out:
            out.write(text + "\n")
        tokenizer = Tokenizer.from_str(text)
        write_expected(os.path.join(directory, name + ".expected"), tokenizer, recipe)
        print(name, len(text), flush=True)


if __name__ == "__main__":
    main()
