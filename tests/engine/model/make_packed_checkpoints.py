#!/usr/bin/env python3
"""Makes the checkpoints with matrices of integers in tests/testdata/models, and their logits in
float64.

Needs numpy alone; the tests that read the result do not need it. Run from the repository root:

    python3 tests/engine/model/make_packed_checkpoints.py

The bytes are laid out as their writers lay them out: compressed-tensors (elements less the middle
of their range, eight or four in a word along the inputs), AutoAWQ (eight outputs in a word, in the
order 0 2 4 6 1 3 5 7) and AutoGPTQ (eight or four inputs in a word, zeros less one in the first
form of the format, g_idx with the group of each input). The decoder of
make_quantized_checkpoints.py then reads the files that were written, unpacks them element by
element by the same descriptions, and computes, without rounding anything,
    y[n] = sum_k x[k] * scale[n, group of k] * (element[n, k] - zero[n, group of k]).
expected.json has bf16_relative_error besides: that of the same arithmetic with vectors of 16 bits.
"""

import argparse
import json
import pathlib

import make_quantized_checkpoints as floats
import numpy as np

SHAPE = dict(floats.SHAPE, intermediate_size=128)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
READ = dict(floats.READ, F16=(np.float16, lambda a: a.astype(np.float64)),
            I8=(np.int8, lambda a: a), I32=(np.int32, lambda a: a.view(np.uint32)),
            I64=(np.int64, lambda a: a))


def pack(values, bits, axis, order=None):
    """Unsigned integers in words along an axis, the first in the low bits."""
    per_word = 32 // bits
    values = np.moveaxis(values, axis, -1).astype(np.uint64)
    values = np.pad(values, [(0, 0), (0, -values.shape[-1] % per_word)])
    values = values.reshape(*values.shape[:-1], -1, per_word)
    words = np.zeros(values.shape[:-1], np.uint64)
    for i, element in enumerate(order or range(per_word)):
        words |= values[..., element] << np.uint64(bits * i)
    return np.moveaxis(words.astype(np.uint32), -1, axis).view(np.int32)


def unpack(words, bits, axis, size, order=None):
    per_word = 32 // bits
    words = np.moveaxis(words, axis, -1)
    values = np.zeros((*words.shape, per_word), np.int64)
    for i, element in enumerate(order or range(per_word)):
        values[..., element] = (words >> np.uint32(bits * i)) & np.uint32(2**bits - 1)
    values = values.reshape(*words.shape[:-1], -1)[..., :size]
    return np.moveaxis(values, -1, axis)


class Decoder(floats.Decoder):
    """Reads the matrices of a case from its file."""

    def __init__(self, folder):
        floats.READ = READ
        super().__init__(folder)
        self.case = CASES[folder.name]
        self.matrices = {}

    def tensor(self, name):
        return self.tensors[self.prefix + name][1]

    def product(self, x, name, split=False):
        if self.prefix + name + ".weight_packed" not in self.tensors and \
                self.prefix + name + ".qweight" not in self.tensors and \
                self.tensors.get(self.prefix + name + ".weight", "F")[0] != "I8":
            return x @ self.tensor(name + ".weight").T
        if self.prefix + name not in self.matrices:
            self.matrices[self.prefix + name] = self.matrix(name, x.shape[1])
        return x @ self.matrices[self.prefix + name].T

    def matrix(self, name, inputs):
        """[outputs, inputs] in float64."""
        bits, kind = self.case["bits"], self.case["kind"]
        middle = 2 ** (bits - 1)
        if kind in ("awq", "gptq"):
            scales = self.tensor(name + ".scales").T
            order = AWQ_ORDER if kind == "awq" else None
            outputs = len(scales)
            words = self.tensor(name + ".qweight")
            elements = unpack(words, bits, 1 if kind == "awq" else 0,
                              outputs if kind == "awq" else inputs, order).T
            zeros = unpack(self.tensor(name + ".qzeros"), bits, 1, outputs, order).T
            if kind == "gptq" and self.case["config"]["checkpoint_format"] == "gptq":
                zeros = (zeros + 1) % 2**bits
            groups_name = name + ".g_idx"
        else:
            scales = self.tensor(name + ".weight_scale")
            outputs = len(scales)
            if kind == "plain":
                elements = self.tensor(name + ".weight").astype(np.int64) + middle
            else:
                elements = unpack(self.tensor(name + ".weight_packed"), bits, 1, inputs)
                assert list(self.tensor(name + ".weight_shape")) == [outputs, inputs]
            zeros = np.full(scales.shape, middle)
            if self.prefix + name + ".weight_zero_point" in self.tensors:
                zeros = self.tensor(name + ".weight_zero_point")
                if zeros.dtype == np.int8:
                    zeros = zeros.astype(np.int64) + middle
                else:
                    zeros = unpack(zeros, bits, 0, outputs)
            groups_name = name + ".weight_g_idx"
        groups = np.arange(inputs) // (inputs // scales.shape[1])
        if self.prefix + groups_name in self.tensors:
            groups = self.tensor(groups_name).astype(np.int64)
        return scales[:, groups] * (elements - zeros[:, groups])


def compressed_tensors(bits, group, fmt="pack-quantized", symmetric=True, **weights):
    strategy = "group" if group else "channel"
    weights = dict(dict(actorder=None, block_structure=None, dynamic=False, group_size=group,
                        num_bits=bits, observer="minmax", observer_kwargs={}, strategy=strategy,
                        symmetric=symmetric, type="int"), **weights)
    return dict(config_groups=dict(group_0=dict(
        input_activations=None, output_activations=None, targets=["Linear"], weights=weights)),
        format=fmt, global_compression_ratio=None, ignore=["lm_head"], kv_cache_scheme=None,
        quant_method="compressed-tensors", quantization_status="compressed")


def awq(group, wide=None):
    return dict(backend="autoawq", bits=4, do_fuse=False, exllama_config=None,
                fuse_max_seq_len=None, group_size=group, modules_to_fuse=None,
                modules_to_not_convert=wide, quant_method="awq", version="gemm", zero_point=True)


def gptq(bits, group, form="gptq", desc_act=False, sym=False):
    return dict(bits=bits, checkpoint_format=form, damp_percent=0.01, desc_act=desc_act,
                group_size=group, lm_head=False, quant_method="gptq", static_groups=False, sym=sym,
                true_sequential=True)


# name -> family, the packing, bits, columns that share a scale (0: all), changes of the shape,
# zeros (none: the middle; words or bytes), groups in any order, and the description.
CASES = {
    "int4-ct": dict(family="llama", kind="ct", bits=4, group=32,
                    config=compressed_tensors(4, 32)),
    "int4-ct-zeros": dict(
        family="qwen3", kind="ct", bits=4, group=64, zeros="I32", shape=dict(head_dim=32),
        wide=["model.layers.1.mlp.down_proj"],
        config=dict(compressed_tensors(4, 64, symmetric=False, actorder="weight"),
                    ignore=["lm_head", "model.layers.1.mlp.down_proj"])),
    "int4-ct-order": dict(family="llama", kind="ct", bits=4, group=32, order=True,
                          config=compressed_tensors(4, 32, actorder="group")),
    "int8-ct": dict(family="qwen3", kind="ct", bits=8, group=0, shape=dict(head_dim=16),
                    config=compressed_tensors(8, None)),
    "int8-plain": dict(family="llama", kind="plain", bits=8, group=0, zeros="I8",
                       config=compressed_tensors(8, None, "int-quantized", False)),
    "int4-awq": dict(family="llama", kind="awq", bits=4, group=32, zeros="I32", config=awq(32)),
    "int4-awq-wide": dict(family="qwen3", kind="awq", bits=4, group=64, zeros="I32",
                          shape=dict(head_dim=32), wide=["model.layers.0.mlp."],
                          config=awq(64, ["layers.0.mlp"])),
    "int4-gptq": dict(family="llama", kind="gptq", bits=4, group=32, zeros="I32",
                      config=gptq(4, 32)),
    "int4-gptq-order": dict(family="qwen3", kind="gptq", bits=4, group=32, order=True,
                            shape=dict(head_dim=16),
                            config=gptq(4, 32, desc_act=True, sym=True)),
    "int8-gptq": dict(family="qwen3", kind="gptq", bits=8, group=-1, zeros="I32",
                      shape=dict(head_dim=16), config=gptq(8, -1, "gptq_v2")),
}


class Checkpoint(floats.Checkpoint):
    def __init__(self, case, config, random):
        self.orders = {}
        super().__init__(case, config, random)

    def matrix(self, name, values):
        case, random = self.case, self.random
        if any(name.startswith(wide) for wide in case.get("wide", ())):
            return self.bf16(name + ".weight", values)
        outputs, inputs = values.shape
        levels, middle = 2 ** case["bits"], 2 ** (case["bits"] - 1)
        group = case["group"] if case["group"] > 0 else inputs
        blocks = inputs // group
        # Every element of the range, and scales that no other row or group has.
        elements = random.integers(0, levels, (outputs, inputs))
        scales = 0.15 / (0.29 * levels) * random.uniform(0.6, 1.4, (outputs, blocks))
        scales[random.integers(0, outputs), random.integers(0, blocks)] = 0
        zeros = np.full((outputs, blocks), middle)
        if "zeros" in case:
            zeros = random.integers(middle - levels // 4, middle + levels // 4, (outputs, blocks))
            zeros[0, 0], zeros[1, 0] = 0, levels - 1
        groups = np.arange(inputs) // group
        if case.get("order"):
            # Matrices with one input were sorted alike.
            key = (name.split(".")[2], "gate" if "gate" in name or "up_" in name else
                   name[-6:] if "o_proj" in name or "down" in name else "qkv")
            groups = self.orders.setdefault(key, random.permutation(groups))
        self.store(name, elements, scales, zeros, groups)

    def store(self, name, elements, scales, zeros, groups):
        kind, bits = self.case["kind"], self.case["bits"]
        middle = 2 ** (bits - 1)
        if kind in ("awq", "gptq"):
            order = AWQ_ORDER if kind == "awq" else None
            if kind == "gptq" and self.case["config"]["checkpoint_format"] == "gptq":
                zeros = (zeros - 1) % 2**bits
            along = 1 if kind == "awq" else 0
            self.put(name + ".qweight", "I32", pack(elements.T, bits, along, order))
            self.put(name + ".qzeros", "I32", pack(zeros.T, bits, 1, order))
            self.put(name + ".scales", "F16", scales.T.astype(np.float16))
            if kind == "gptq":
                self.put(name + ".g_idx", "I32", groups.astype(np.int32))
            return
        if kind == "plain":
            self.put(name + ".weight", "I8", (elements - middle).astype(np.int8))
        else:
            self.put(name + ".weight_packed", "I32", pack(elements, bits, 1))
            self.put(name + ".weight_shape", "I64", np.array(elements.shape, np.int64))
        self.bf16(name + ".weight_scale", scales)
        if self.case.get("zeros") == "I8":
            self.put(name + ".weight_zero_point", "I8", (zeros - middle).astype(np.int8))
        elif "zeros" in self.case:
            self.put(name + ".weight_zero_point", "I32", pack(zeros, bits, 0))
        if self.case.get("order"):
            self.put(name + ".weight_g_idx", "I32", groups.astype(np.int32))

    def put(self, name, kind, array):
        self.tensors[name] = kind, np.ascontiguousarray(array)


def make_case(name, out):
    case, folder = CASES[name], out / name
    random = np.random.default_rng(sum(name.encode()))
    config = dict(architectures=[floats.ARCHITECTURES[case["family"]]], model_type=case["family"],
                  **SHAPE)
    config.update(case.get("shape", {}))
    config["quantization_config"] = case["config"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    floats.write_safetensors(folder / "model.safetensors",
                             Checkpoint(case, config, random).tensors)
    decoder = Decoder(folder)
    prompts, kept, half = [], [], []
    for length in (1, 17, 100):
        ids = random.integers(0, config["vocab_size"], length).tolist()
        positions = sorted({0, length // 3, 2 * length // 3, length - 1})
        kept.append(decoder.run(ids, wide=True)[positions])
        half.append(floats.relative(decoder.run(ids, wide=True, half=True)[positions], kept[-1]))
        prompts.append(dict(tokens=ids, greedy=[], positions=positions))
    expected = dict(vocab_size=config["vocab_size"], bf16_relative_error=max(half),
                    prompts=prompts)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    logits = np.concatenate(kept)
    (folder / "expected.f32").write_bytes(logits.astype(np.float32).tobytes())
    print(f"{name}: logits of {np.sqrt(np.mean(logits**2)):.2f}, in bf16 {min(half):.1e} to "
          f"{max(half):.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/testdata/models"))
    parser.add_argument("--only", nargs="*", default=list(CASES))
    args = parser.parse_args()
    for name in args.only:
        make_case(name, args.out)


if __name__ == "__main__":
    main()
