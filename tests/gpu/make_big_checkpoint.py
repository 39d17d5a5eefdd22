#!/usr/bin/env python3
"""Writes a checkpoint of a llama's shape with random bf16 weights, to measure loading.

    make_big_checkpoint.py CONFIG OUT

CONFIG is a config.json (bench/gpu/models holds some); OUT gets it, four safetensors shards with
their index, and a tokenizer with as many tokens as the model: the demo model's, grown by merges.
"""
import concurrent.futures
import functools
import json
import math
import pathlib
import random
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARDS = 4
PATTERN_VALUES = 1 << 25  # written again and again: 64 MiB


def tensor_shapes(config):
    """Names and shapes, in the order of the model."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    kv_heads = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        attention, mlp = (f"model.layers.{layer}.{part}" for part in ("self_attn", "mlp"))
        yield f"{attention}.q_proj.weight", (heads, hidden)
        yield f"{attention}.k_proj.weight", (kv_heads, hidden)
        yield f"{attention}.v_proj.weight", (kv_heads, hidden)
        yield f"{attention}.o_proj.weight", (hidden, heads)
        yield f"{mlp}.gate_proj.weight", (wide, hidden)
        yield f"{mlp}.up_proj.weight", (wide, hidden)
        yield f"{mlp}.down_proj.weight", (hidden, wide)
        yield f"model.layers.{layer}.input_layernorm.weight", (hidden,)
        yield f"model.layers.{layer}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not config.get("tie_word_embeddings", False):
        yield "lm_head.weight", (config["vocab_size"], hidden)


def small_values(count):
    """Random bf16 of either sign between 1/128 and 1/32: a sign, an exponent, random fractions."""
    source = random.Random(1)
    values = bytearray(2 * count)
    values[0::2] = source.randbytes(count)
    signs = bytes(0x3C | sign & 0x80 for sign in range(256))
    values[1::2] = source.randbytes(count).translate(signs)
    return bytes(values)


@functools.cache
def pattern():
    return small_values(PATTERN_VALUES)


def random_content(name, shape):
    """The bytes of a tensor, in parts: the pattern again and again."""
    size = 2 * math.prod(shape)
    for begin in range(0, size, len(pattern())):
        yield memoryview(pattern())[: min(len(pattern()), size - begin)]


def write_shard(path, tensors, content):
    """One safetensors file: the length of its header, the header, the data."""
    header, at = {}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors:
            for part in content(name, shape):
                file.write(part)
    return list(header)


def write_checkpoint(config_path, out, content=random_content):
    """Writes config, tokenizer and shards to the folder `out`; returns the bytes and the number of
    the shards. `content` gives a tensor's bytes in parts, by name and shape."""
    config = json.loads(config_path.read_text())
    (out / "config.json").write_text(config_path.read_text())
    (out / "tokenizer.json").write_text(json.dumps(grown_tokenizer(config["vocab_size"])))
    tensors = list(tensor_shapes(config))
    each = -(-len(tensors) // SHARDS)
    parts = [tensors[i : i + each] for i in range(0, len(tensors), each)]
    names = [f"model-{i + 1:05}-of-{len(parts):05}.safetensors" for i in range(len(parts))]
    pattern()  # once, before the threads want it
    with concurrent.futures.ThreadPoolExecutor() as pool:
        paths = [out / name for name in names]
        written = list(pool.map(write_shard, paths, parts, [content] * len(parts)))
    where = {tensor: name for name, held in zip(names, written) for tensor in held}
    total = sum(path.stat().st_size for path in paths)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))
    return total, len(parts)


def grown_tokenizer(vocab_size):
    """The demo model's tokenizer with merges of its tokens until it has so many."""
    tokenizer = json.loads((ROOT / "models/demo/tokenizer.json").read_text())
    vocab, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    words = [word for word in vocab if not word.startswith("<|")]
    for first in words:
        for second in words:
            if len(vocab) >= vocab_size:
                return tokenizer
            if first + second not in vocab:
                vocab[first + second] = len(vocab)
                merges.append([first, second])
    return tokenizer


def write_shape(model, folder):
    """Makes `folder` a model with the shape of bench/gpu/models/MODEL and no weights."""
    config = ROOT / f"bench/gpu/models/{model}/config.json"
    shutil.copy(config, folder)
    tokenizer = grown_tokenizer(json.loads(config.read_text())["vocab_size"])
    (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def main():
    config_path, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    total, shards = write_checkpoint(config_path, out)
    print(f"{total / 1e9:.2f} GB in {shards} shards")


if __name__ == "__main__":
    main()
