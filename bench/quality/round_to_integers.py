#!/usr/bin/env python3
"""Writes a copy of a checkpoint whose matrices are integers, as compressed-tensors packs them, each
element rounded to the nearest: what a format costs without any calibration.

    python3 bench/quality/round_to_integers.py MODEL OUT [--bits 4] [--group 128]

Needs numpy. MODEL has one file of bfloat16 tensors, as models/demo has. Then
    build/release/bench/quality_bench MODEL TEXT OUT
"""

import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/engine/model"))
import make_packed_checkpoints as packed  # noqa: E402
import make_quantized_checkpoints as floats  # noqa: E402


def rounded(values, bits, group):
    """Elements from 0 up, and the scales of groups of columns: the largest of a group is the
    outermost element on its side."""
    middle = 2 ** (bits - 1)
    runs = values.reshape(len(values), -1, group)
    scales = np.maximum(runs.max(-1) / (middle - 1), -runs.min(-1) / middle)
    scales = floats.from_bf16(floats.to_bf16(np.where(scales == 0, 1, scales)))
    elements = np.rint(runs / scales[..., None]).clip(-middle, middle - 1) + middle
    return elements.reshape(values.shape).astype(np.int64), scales


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--group", type=int, choices=(32, 64, 128), default=128)
    args = parser.parse_args()
    tensors = {}
    for name, (_, values) in floats.read_safetensors(args.model / "model.safetensors").items():
        if values.ndim != 2 or ".layers." not in name:
            tensors[name] = "BF16", floats.to_bf16(values)
            continue
        elements, scales = rounded(values, args.bits, args.group)
        tensors[name + "_packed"] = "I32", packed.pack(elements, args.bits, 1)
        tensors[name + "_scale"] = "BF16", floats.to_bf16(scales)
        tensors[name + "_shape"] = "I64", np.array(values.shape, np.int64)
    config = json.loads((args.model / "config.json").read_text())
    config["quantization_config"] = packed.compressed_tensors(args.bits, args.group)
    args.out.mkdir(parents=True, exist_ok=True)
    for file in args.model.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, args.out)
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    floats.write_safetensors(args.out / "model.safetensors", tensors)


if __name__ == "__main__":
    main()
