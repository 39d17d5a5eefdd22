#!/usr/bin/env python3
"""Makes tests/testdata/converted: directories that have only a tokenizer.model or a tekken.json,
and the ids that `sentencepiece` and `tiktoken` give for 20,000 strings each.

The strings are those of tests/server/text/make_family_tokenizers.py. Of each block of 20 strings
one 32-bit hash of the ids is kept.

usage: pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0 protobuf;
       make_converted.py DIRECTORY [NAME...]
"""

import base64
import collections
import json
import os
import struct
import sys
import tempfile

import sentencepiece
import tiktoken
from sentencepiece import sentencepiece_model_pb2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../text"))
import make_family_tokenizers as families
import make_tokenizers as base

PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = 20
SPACES = ["\u2581" * count for count in range(2, 9)]


def train(path, lines, **options):
    counts = collections.Counter("".join(lines))
    known = {c for c, _ in counts.most_common(150)} - {"\0", "\n", "\r"}
    lines = ["".join(c if c in known else " " for c in line) for line in lines]
    with tempfile.TemporaryDirectory() as work:
        with open(work + "/text", "w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in lines)
        sentencepiece.SentencePieceTrainer.train(
            input=work + "/text", model_prefix=work + "/m", minloglevel=2, **options
        )
        os.replace(work + "/m.model", path)
    return sentencepiece.SentencePieceProcessor(model_file=path).encode


def llama(directory, lines, _):
    return train(
        directory + "/tokenizer.model",
        lines,
        model_type="bpe",
        vocab_size=1100,
        byte_fallback=True,
        split_digits=True,
        character_coverage=0.999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )


def unigram(directory, lines, _):
    return train(
        directory + "/tokenizer.model",
        lines,
        model_type="unigram",
        vocab_size=700,
        character_coverage=0.999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )


def symbols(directory, lines, _):
    """As Gemma has them: runs of spaces and newlines, and tags; no space before the text."""
    return train(
        directory + "/tokenizer.model",
        lines,
        model_type="bpe",
        vocab_size=1100,
        byte_fallback=True,
        split_digits=True,
        character_coverage=0.999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["\n", "\n\n", "\n\n\n", *SPACES, "<table>", "<|user|>", "the", "ing"],
    )


def prefixed(directory, lines, _):
    """Symbols behind the space that begins a text."""
    return train(
        directory + "/tokenizer.model",
        lines,
        model_type="bpe",
        vocab_size=1100,
        byte_fallback=True,
        character_coverage=0.999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        user_defined_symbols=["<|user|>", "[INST]", *SPACES, "\u2581word", "er"],
    )


def unused(directory, lines, recipe):
    """A Unigram model, a tenth of whose pieces are not used."""
    unigram(directory, lines, recipe)
    path = directory + "/tokenizer.model"
    model = sentencepiece_model_pb2.ModelProto()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    for piece in model.pieces[10::10]:
        if len(piece.piece) > 1:
            piece.type = piece.UNUSED
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    return sentencepiece.SentencePieceProcessor(model_file=path).encode


def tekken(directory, lines, _):
    pre = base.split(PATTERN)
    model = json.loads(base.train(900, lines, pre).to_str())["model"]
    byte_of = {}
    others = 256
    for byte in range(256):
        itself = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        byte_of[chr(byte if itself else others)] = byte
        others += not itself
    ranks = {}
    for token in sorted(model["vocab"], key=lambda t: (len(t) > 1, model["vocab"][t])):
        ranks[bytes(byte_of[c] for c in token)] = len(ranks)
    data = {
        "config": {
            "pattern": PATTERN,
            "num_vocab_tokens": len(ranks),
            "default_vocab_size": len(ranks) - 30 + SPECIAL,
            "default_num_special_tokens": SPECIAL,
            "version": "v3",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for token, rank in ranks.items()
        ],
    }
    with open(directory + "/tekken.json", "w", encoding="utf-8") as out:
        out.write(json.dumps(data, separators=(",", ":")) + "\n")
    used = {token: rank for token, rank in ranks.items() if rank < len(ranks) - 30}
    encoding = tiktoken.Encoding("tekken", pat_str=PATTERN, mergeable_ranks=used, special_tokens={})
    return lambda text: [SPECIAL + rank for rank in encoding.encode(text)]


def main():
    directory = sys.argv[1]
    recipe = families.read_recipe(os.path.join(directory, "../families"))
    lines = list(base.training_text(base.Random(1), recipe))
    for make in (llama, unigram, tekken, symbols, prefixed, unused):
        if len(sys.argv) > 2 and make.__name__ not in sys.argv[2:]:
            continue
        own = os.path.join(directory, make.__name__)
        os.makedirs(own, exist_ok=True)
        encode = make(own, lines, recipe)
        random = base.Random(2026)
        with open(os.path.join(own, "expected"), "wb") as out:
            for _ in range(0, base.STRINGS, families.BLOCK):
                state = base.FNV
                for _ in range(families.BLOCK):
                    # SentencePiece ends a text at a zero byte.
                    text = base.make_string(random, recipe).replace("\0", "0")
                    state = base.fnv(encode(text), state)
                out.write(struct.pack("<I", base.fold(state)))
        print(make.__name__, flush=True)


if __name__ == "__main__":
    main()
