#!/usr/bin/env python3
"""Makes tests/testdata/frames.json: the ids that transformers 4 puts before and behind a text, for
tokenizer_config.json of several classes beside a tokenizer.json of tests/testdata/families.

usage: pip install transformers==4.57.6 tokenizers==0.22.2; make_frames.py TESTDATA
"""

import json
import os
import sys
import tempfile

import transformers

# As DeepSeek-R1-Distill-Qwen-7B has it: no tokens around a text.
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": False,
    "use_regex": True,
}
TOKENS = {
    "bos_token": {
        "__type": "AddedToken",
        "content": "<s>",
        "lstrip": False,
        "normalized": True,
        "rstrip": False,
        "single_word": False,
    },
    "eos_token": "</s>",
}
FLAGS = [
    {},
    {"add_bos_token": True},
    {"add_bos_token": False},
    {"add_eos_token": True},
    {"add_bos_token": True, "add_eos_token": False},
    {"add_bos_token": False, "add_eos_token": True},
    {"add_bos_token": True, "add_eos_token": True},
]
# Where neither flag is given, Quire reads tokenizer.json alone; the first classes then have BOS.
CLASSES = [
    ("deepseek", "LlamaTokenizerFast", FLAGS[1:]),
    ("deepseek", "Qwen2Tokenizer", FLAGS),
    ("deepseek", "PreTrainedTokenizerFast", FLAGS),
    ("llama2", "LlamaTokenizer", FLAGS[1:]),
    ("gemma", "GemmaTokenizer", FLAGS[1:]),
    ("gemma", "GemmaTokenizerFast", FLAGS[1:]),
    ("command_r", "CohereTokenizerFast", FLAGS[1:]),
    ("command_r", "CohereTokenizer", FLAGS[1:]),
]
TEXT = "the word"


def measure(testdata, case):
    with open(f"{testdata}/families/{case['tokenizer']}.json", encoding="utf-8") as file:
        tokenizer = json.load(file)
    if "post_processor" in case:
        tokenizer["post_processor"] = case["post_processor"]
    with tempfile.TemporaryDirectory() as directory:
        files = {"tokenizer.json": tokenizer, "tokenizer_config.json": case["config"]}
        if "special_tokens_map" in case:
            files["special_tokens_map.json"] = case["special_tokens_map"]
        for name, value in files.items():
            with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
                json.dump(value, out)
        name = case["config"]["tokenizer_class"].removesuffix("Fast") + "Fast"
        if name == "PreTrainedTokenizerFast":
            kind = transformers.PreTrainedTokenizerFast
        else:
            kind = getattr(transformers, name)
        made = kind.from_pretrained(directory)
        ids = made(TEXT)["input_ids"]
        plain = made(TEXT, add_special_tokens=False)["input_ids"]
    at = next(i for i in range(len(ids)) if ids[i : i + len(plain)] == plain)
    return ids[:at], ids[at + len(plain) :]


def cases():
    for tokenizer, name, flags in CLASSES:
        for flag in flags:
            case = {"tokenizer": tokenizer, "config": {"tokenizer_class": name, **TOKENS, **flag}}
            yield case
            if tokenizer == "deepseek":
                yield {**case, "post_processor": BYTE_LEVEL}
    # Without names of tokens in tokenizer_config.json: those of the map, else those of the class.
    plain = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True}
    yield {"tokenizer": "llama2", "config": plain}
    swapped = {"bos_token": {"content": "</s>"}, "eos_token": "<s>"}
    yield {"tokenizer": "llama2", "config": plain, "special_tokens_map": swapped}
    yield {"tokenizer": "llama2", "config": {**plain, **TOKENS}, "special_tokens_map": swapped}
    listed = {**plain, **TOKENS, "added_tokens_decoder": {}}
    yield {"tokenizer": "llama2", "config": listed, "special_tokens_map": swapped}


def main():
    testdata = sys.argv[1]
    made = []
    for case in cases():
        before, behind = measure(testdata, case)
        made.append({**case, "before": before, "behind": behind})
    with open(os.path.join(testdata, "frames.json"), "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(case) for case in made) + "\n]\n")


if __name__ == "__main__":
    main()
