#!/usr/bin/env python3
"""Makes the 8-bit checkpoints of tests/testdata/models, and what their arithmetic gives in float64.

Needs numpy alone; the tests that read the result do not need it. Run from the repository root:

    python3 tests/engine/model/make_quantized_checkpoints.py

The decoder below is written for this script: llama and qwen3 as transformers computes them, with
8-bit matrices as docs/models.md says. It reads the files that it wrote, so that the bytes and the
names count. Of a product with an 8-bit matrix
    y[n] = sum_k e[k] * W[n, k] * s * S[n],  s = max |x| / 448,  e[k] = e4m3(x[k] / s),
or of 8-bit integers s = max |x| / 127 and e[k] = round(x[k] / s), where W and S are stored, and
every token has its own s. On several ranks the inputs of o_proj and down_proj are split, and each
rank's share of a token has an s of its own. Where scales are those of blocks of 128 x 128, every
run of 128 inputs of a token has its own s, and its own S by 128 outputs. Where a case has scales of
attention's keys and values, these become e4m3(x / s) * s with the s of their head.

Rounding to e4m3 is not continuous: where x[k] / s is close to a tie, float32 may round it the
other way, by an eighth of its size. Later roundings follow, and soon the logits differ as much as
if activations had been rounded at random. So prompts are built token by token, of tokens whose
roundings are all further from a tie than MARGIN, several times the error of float32. There the
tolerance is that of float32. expected.json has wide_relative_error besides: the distance of the
same weights without rounding activations, which is what an error of that arithmetic looks like, and
bf16_relative_error: that of the same arithmetic with vectors of 16 bits, for a GPU's bound.
"""

import argparse
import json
import pathlib

import numpy as np

E4M3_MAX = 448.0
INT8_MAX = 127.0
BLOCK = 128
SCALES = (".weight_scale", ".weight_scale_inv")  # endings of their names
# In units of an element after scaling, where the largest is 448. The error of float32 of a vector
# is about 2^-24 of its size for each of the roundings on its way: 6e-8 * 100 * sqrt(10) = 2e-5.
MARGIN = 2e-4

SHAPE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=128, max_position_embeddings=512,
             rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1,
             eos_token_id=2, torch_dtype="bfloat16")


def e4m3_values():
    """The finite values of the codes 0 to 126, ascending, and those of all 256 codes."""
    values = []
    for code in range(127):
        exponent, fraction = code >> 3, code & 7
        size = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0**-9
        values.append(size)
    table = np.full(256, np.nan)
    table[:127] = values
    table[128:255] = -table[:127]
    return np.array(values), table


POSITIVE, TABLE = e4m3_values()
TIES = (POSITIVE[1:] + POSITIVE[:-1]) / 2


def to_e4m3(x):
    """Codes of the nearest values, ties to the even code, and the distance to the nearest tie."""
    size = np.minimum(np.abs(x), E4M3_MAX)
    code = np.searchsorted(TIES, size)
    is_tie = (code < len(TIES)) & (TIES[np.minimum(code, len(TIES) - 1)] == size)
    code = np.where(is_tie & (code % 2 == 1), code + 1, code)
    nearest = np.minimum(np.abs(size - TIES[np.clip(code - 1, 0, None)]),
                         np.abs(size - TIES[np.minimum(code, len(TIES) - 1)]))
    return (code + np.where(np.signbit(x), 128, 0)).astype(np.uint8), nearest


def to_int8(x):
    """The nearest integers, ties to the even one, and the distance to the nearest tie."""
    return np.rint(x).astype(np.int8), np.abs(np.abs(x) - np.floor(np.abs(x)) - 0.5)


# By the type of safetensors: the largest element, and the function that rounds.
NARROW = {"F8_E4M3": (E4M3_MAX, to_e4m3), "I8": (INT8_MAX, to_int8)}


def to_bf16(x):
    """Bits of the nearest bfloat16."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


READ = {"BF16": (np.uint16, from_bf16), "F32": (np.float32, lambda a: a.astype(np.float64)),
        "F8_E4M3": (np.uint8, lambda codes: TABLE[codes]),
        "I8": (np.int8, lambda a: a.astype(np.float64))}


def write_safetensors(path, tensors):
    """tensors: name -> (type of safetensors, array of its bits)."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (kind, array) in sorted(tensors.items()):
        begin = len(data)
        data += array.tobytes()
        header[name] = dict(dtype=kind, shape=list(array.shape), data_offsets=[begin, len(data)])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name == "__metadata__":
            continue
        kind, widen = READ[entry["dtype"]]
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(raw[begin:end], kind).reshape(entry["shape"])
        tensors[name] = entry["dtype"], widen(bits)
    return tensors


class Decoder:
    """`wide` rounds no activation, key or value to 8 bits; `half` rounds every vector between two
    operations to bfloat16, as a GPU holds it."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.of_blocks = "[128, 128]" in json.dumps(self.config.get("quantization_config"))
        self.tensors = read_safetensors(folder / "model.safetensors")

    def run(self, ids, ranks=1, wide=False, half=False):
        """The logits of all positions; self.margin is then the least distance to a tie."""
        c, self.margin = self.config, np.inf
        self.ranks, self.wide, self.half = ranks, wide, half
        heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
        dim = c.get("head_dim", c["hidden_size"] // heads)
        h = self.tensors["model.embed_tokens.weight"][1][ids]
        for i in range(c["num_hidden_layers"]):
            self.prefix = f"model.layers.{i}."
            x = self.norm(h, "input_layernorm")
            q = self.held(self.product(x, "self_attn.q_proj")).reshape(-1, heads, dim)
            k = self.held(self.product(x, "self_attn.k_proj")).reshape(-1, kv, dim)
            v = self.held(self.product(x, "self_attn.v_proj")).reshape(-1, kv, dim)
            if c["model_type"] == "qwen3":
                q, k = self.norm(q, "self_attn.q_norm"), self.norm(k, "self_attn.k_norm")
            q, k = (self.held(self.rotate(a)) for a in (q, k))
            k, v = self.kept(k, "k_scale"), self.kept(v, "v_scale")
            out = self.attention(q, np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1))
            out = self.held(out).reshape(len(ids), -1)
            h = self.held(h + self.held(self.product(out, "self_attn.o_proj", split=True)))
            x = self.norm(h, "post_attention_layernorm")
            gate, up = (self.held(self.product(x, f"mlp.{name}_proj")) for name in ("gate", "up"))
            gated = self.held(gate / (1 + np.exp(-gate)) * up)
            h = self.held(h + self.held(self.product(gated, "mlp.down_proj", split=True)))
        self.prefix = "model."
        return self.norm(h, "norm") @ self.tensors["lm_head.weight"][1].T

    def norm(self, x, name):
        weight = self.tensors[self.prefix + name + ".weight"][1]
        size = np.mean(x * x, -1, keepdims=True) + self.config["rms_norm_eps"]
        return self.held(x / np.sqrt(size) * weight)

    def held(self, x):
        """A vector as it lies between two operations."""
        return from_bf16(to_bf16(x)) if self.half else x

    def rotate(self, x):
        half = x.shape[-1] // 2
        angles = np.arange(len(x))[:, None] * self.config["rope_theta"] ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def kept(self, x, name):
        """Keys or values [token, head, dim] as an 8-bit cache keeps them."""
        kind, scale = self.tensors.get(self.prefix + "self_attn." + name, (None, None))
        if kind is None or self.wide:
            return x
        scale = np.broadcast_to(scale.reshape(-1), x.shape[1])[:, None]
        codes, distance = to_e4m3(x / scale)
        self.margin = min(self.margin, distance.min())
        return TABLE[codes] * scale

    def attention(self, q, k, v):
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v)

    def product(self, x, name, split=False):
        kind, weight = self.tensors[self.prefix + name + ".weight"]
        if kind not in NARROW:
            return x @ weight.T
        self.kind = kind
        parts = self.ranks if split else 1
        scales = next(self.tensors[self.prefix + name + ending][1] for ending in SCALES
                      if self.prefix + name + ending in self.tensors)
        if self.of_blocks:
            assert parts == 1 or x.shape[1] // parts % BLOCK == 0
            return sum(self.rounded(x[:, b:b + BLOCK]) @ weight[:, b:b + BLOCK].T
                       * np.repeat(scales[:, b // BLOCK], BLOCK)[:len(weight)]
                       for b in range(0, x.shape[1], BLOCK))
        shares = zip(np.split(x, parts, 1), np.split(weight, parts, 1))
        return sum(self.rounded(a) @ w.T for a, w in shares) * scales.reshape(-1)

    def rounded(self, x):
        if self.wide:
            return x
        most, narrow = NARROW[self.kind]
        scale = np.abs(x).max(1, keepdims=True) / most
        scaled = x / scale
        codes, distance = narrow(scaled)
        # The largest element is the largest of the type whatever the arithmetic.
        inner = np.abs(scaled) < most * (1 - 1e-6)
        self.margin = min(self.margin, distance[inner].min(initial=np.inf))
        return READ[self.kind][1](codes) * scale


def group(strategy, dynamic):
    weights = dict(actorder=None, block_structure=None, dynamic=False, group_size=None, num_bits=8,
                   observer="minmax", observer_kwargs={}, strategy=strategy, symmetric=True,
                   type="float")
    inputs = dict(weights, dynamic=dynamic, strategy="token" if dynamic else "tensor",
                  observer=None if dynamic else "minmax")
    if strategy == "block":
        weights.update(block_structure=[BLOCK, BLOCK])
        inputs.update(strategy="group", group_size=BLOCK)
    return dict(input_activations=inputs, output_activations=None, targets=["Linear"],
                weights=weights)


def compressed_tensors(strategy, dynamic, ignore, kind="float"):
    described = group(strategy, dynamic)
    for part in ("weights", "input_activations"):
        described[part]["type"] = kind
    return dict(config_groups=dict(group_0=described), format=kind + "-quantized",
                global_compression_ratio=None, ignore=ignore, kv_cache_scheme=None,
                quant_method="compressed-tensors", quantization_status="compressed")


# name -> family, changes of its shape, one scale a row, a matrix or a block, the type and the shape
# of the scales (of blocks: the ending of their name), the modules that are not 8-bit, the further
# scales in the file (`heads`: those of an 8-bit cache, which the expected values have), the numbers
# of ranks, and the two descriptions.
CASES = {
    "fp8-channel": dict(
        family="llama", rows=True, scale=("BF16", (-1, 1)),
        config=compressed_tensors("channel", True, ["lm_head"])),
    "fp8-tensor-static": dict(
        family="qwen3", shape=dict(head_dim=32), scale=("BF16", (1,)), inputs=True,
        wide=["model.layers.1.mlp.down_proj", "model.layers.0.self_attn."],
        config=compressed_tensors("tensor", False, [
            "re:.*lm_head", "model.layers.1.mlp.down_proj", "re:.*layers[.]0[.]self_attn.*"])),
    "fp8-autofp8": dict(
        family="llama", shape=dict(num_attention_heads=2), scale=("F32", (1,)), inputs=True,
        config=dict(quant_method="fp8", activation_scheme="static", ignored_layers=["lm_head"])),
    "fp8-modelopt": dict(
        family="qwen3", shape=dict(head_dim=16), scale=("F32", ()), inputs=True, kv=True,
        wide=["model.layers.0.mlp."],
        file=dict(producer=dict(name="modelopt", version="0.23.0"), quantization=dict(
            quant_algo="FP8", kv_cache_quant_algo="FP8",
            exclude_modules=["lm_head", "*layers.0.mlp*"]))),
    "fp8-autofp8-qwen3": dict(
        family="qwen3", shape=dict(head_dim=32, num_attention_heads=2), scale=("F32", (1,)),
        wide=["model.layers.1.mlp.down_proj"],
        config=dict(quant_method="fp8", activation_scheme="dynamic",
                    ignored_layers=["lm_head", "model.layers.1.mlp.down_proj"])),
    "fp8-modelopt-llama": dict(
        family="llama", scale=("F32", ()), inputs=True, wide=["model.layers.1.mlp.down_proj"],
        config=dict(quant_method="modelopt", quant_algo="FP8", kv_cache_scheme=None,
                    producer=dict(name="modelopt", version="0.29.0"),
                    ignore=["lm_head", "model.layers.1.mlp.down_proj"])),
    # Two ranks cut it at blocks; 144 inputs and 128 + 16 outputs end in the midst of one.
    "fp8-block": dict(
        family="llama", scale=("BF16", ".weight_scale_inv"), blocks=True,
        shape=dict(hidden_size=144, intermediate_size=256, num_attention_heads=4, head_dim=64,
                   num_hidden_layers=1),
        config=dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
                    weight_block_size=[BLOCK, BLOCK], modules_to_not_convert=["lm_head"])),
    # As Qwen3's own 8-bit checkpoints: the list names modules that are no matrices too.
    "fp8-block-qwen3": dict(
        family="qwen3", scale=("BF16", ".weight_scale_inv"), blocks=True,
        shape=dict(hidden_size=128, intermediate_size=256, num_attention_heads=4, head_dim=64,
                   num_hidden_layers=1),
        config=dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
                    weight_block_size=[BLOCK, BLOCK], modules_to_not_convert=[
                        "lm_head", "model.layers.0.input_layernorm",
                        "model.layers.0.post_attention_layernorm"])),
    "fp8-block-ct": dict(
        family="llama", scale=("F32", ".weight_scale"), blocks=True,
        shape=dict(hidden_size=128, intermediate_size=256, num_attention_heads=4, head_dim=64,
                   num_hidden_layers=1),
        config=compressed_tensors("block", True, ["lm_head"])),
    # One rank alone; queries, keys and values begin within blocks of the matrix that they make up.
    "fp8-block-ragged": dict(
        family="qwen3", scale=("F32", ".weight_scale"), blocks=True, ranks=(1,),
        shape=dict(hidden_size=136, intermediate_size=200, num_attention_heads=3,
                   num_key_value_heads=1, head_dim=48),
        wide=["model.layers.1.self_attn.o_proj"],
        config=compressed_tensors("block", True, ["lm_head", "model.layers.1.self_attn.o_proj"])),
    "int8-channel": dict(
        family="llama", rows=True, scale=("BF16", (-1, 1)), kind="I8",
        config=compressed_tensors("channel", True, ["lm_head"], "int")),
    "int8-tensor-static": dict(
        family="qwen3", shape=dict(head_dim=32), scale=("F32", (1,)), kind="I8", inputs=True,
        wide=["model.layers.1.mlp.down_proj"],
        config=compressed_tensors("tensor", False, ["lm_head", "model.layers.1.mlp.down_proj"],
                                  "int")),
    "fp8-kv": dict(
        family="llama", rows=True, scale=("BF16", (-1, 1)), heads=True,
        config=dict(compressed_tensors("channel", True, ["lm_head"]),
                    kv_cache_scheme=dict(group("tensor", False)["weights"], dynamic=False))),
    "fp8-kv-qwen3": dict(
        family="qwen3", shape=dict(head_dim=32), rows=True, scale=("BF16", (-1, 1)), heads=True,
        config=dict(compressed_tensors("channel", True, ["lm_head"]),
                    kv_cache_scheme=dict(group("tensor", False)["weights"], dynamic=False))),
}

ARCHITECTURES = dict(llama="LlamaForCausalLM", qwen3="Qwen3ForCausalLM")


class Checkpoint:
    """The tensors of a case, as its writer would store them."""

    def __init__(self, case, config, random):
        self.case, self.random, self.tensors = case, random, {}
        hidden, mlp = config["hidden_size"], config["intermediate_size"]
        heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
        dim = config.get("head_dim", hidden // heads)
        vocab = config["vocab_size"]
        self.bf16("model.embed_tokens.weight", 0.5 * self.normal(vocab, hidden))
        self.bf16("lm_head.weight", 0.15 * self.normal(vocab, hidden))
        self.norm("model.norm", hidden)
        for i in range(config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.norm(layer + name, hidden)
            for name, outputs, inputs in (
                ("self_attn.q_proj", heads * dim, hidden), ("self_attn.k_proj", kv * dim, hidden),
                ("self_attn.v_proj", kv * dim, hidden), ("self_attn.o_proj", hidden, heads * dim),
                ("mlp.gate_proj", mlp, hidden), ("mlp.up_proj", mlp, hidden),
                ("mlp.down_proj", hidden, mlp)):
                self.matrix(layer + name, 0.15 * self.normal(outputs, inputs))
            if config["model_type"] == "qwen3":
                for name in ("q_norm", "k_norm"):
                    self.norm(layer + "self_attn." + name, dim)
            for name in ("k_proj.k_scale", "v_proj.v_scale") if case.get("kv") else ():
                self.f32(layer + "self_attn." + name, np.float32(0.01))
            if case.get("heads"):  # keys by head, values by layer
                self.f32(layer + "self_attn.k_scale", 0.01 * random.uniform(0.8, 1.6, kv))
                self.f32(layer + "self_attn.v_scale", [0.01 + 0.003 * i])

    def normal(self, *shape):
        return self.random.standard_normal(shape)

    def bf16(self, name, values):
        self.tensors[name] = "BF16", to_bf16(values)

    def f32(self, name, value):
        self.tensors[name] = "F32", np.asarray(value, np.float32)

    def norm(self, name, width):
        self.bf16(name + ".weight", 1 + 0.3 * self.normal(width))

    def matrix(self, name, values):
        """Rows and matrices of different sizes, so that no scale may stand for another."""
        values = values * self.random.uniform(0.6, 1.2, (len(values), 1))
        values = values * self.random.uniform(0.8, 1.2)
        if any(name.startswith(wide) for wide in self.case.get("wide", ())):
            return self.bf16(name + ".weight", values)
        if self.case.get("blocks"):
            return self.blocks(name, values)
        rows = self.case.get("rows", False)
        element = self.case.get("kind", "F8_E4M3")
        most, narrow = NARROW[element]
        scale = np.abs(values).max(1 if rows else None, keepdims=True) / most
        kind, shape = self.case["scale"]
        bits = to_bf16(scale) if kind == "BF16" else scale.astype(np.float32)
        stored = READ[kind][1](bits)
        # Rounding the scale to bfloat16 may bring the largest element past the largest of the type.
        scaled = np.clip(values / stored, -most, most)
        self.tensors[name + ".weight"] = element, narrow(scaled)[0]
        self.tensors[name + ".weight_scale"] = kind, bits.reshape(shape)
        if self.case.get("inputs"):
            self.f32(name + ".input_scale", np.full(shape, 0.02))

    def blocks(self, name, values):
        kind, ending = self.case["scale"]
        grid = tuple(-(-size // BLOCK) for size in values.shape)
        values = values * spread(self.random.uniform(0.5, 1.5, grid), values.shape)
        padded = np.zeros([n * BLOCK for n in grid])
        padded[:values.shape[0], :values.shape[1]] = values
        scale = np.abs(padded.reshape(grid[0], BLOCK, grid[1], BLOCK)).max((1, 3)) / E4M3_MAX
        bits = to_bf16(scale) if kind == "BF16" else scale.astype(np.float32)
        stored = spread(READ[kind][1](bits), values.shape)
        self.tensors[name + ".weight"] = "F8_E4M3", to_e4m3(values / stored)[0]
        self.tensors[name + ending] = kind, bits


def spread(of_blocks, shape):
    """A value for each block as one for each element."""
    return np.kron(of_blocks, np.ones((BLOCK, BLOCK)))[:shape[0], :shape[1]]


def relative(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def clear_prompt(decoder, random, length, ranks):
    ids = []
    while len(ids) < length:
        for token in random.permutation(decoder.config["vocab_size"]).tolist():
            logits = decoder.run([*ids, token], ranks)
            if decoder.margin >= MARGIN:
                break
        else:
            raise RuntimeError("no token without a tie: change the seed")
        ids.append(token)
    return ids, logits


def make_case(name, out):
    case, folder = CASES[name], out / name
    random = np.random.default_rng(sum(name.encode()))
    config = dict(architectures=[ARCHITECTURES[case["family"]]], model_type=case["family"], **SHAPE)
    config.update(case.get("shape", {}))
    folder.mkdir(parents=True, exist_ok=True)
    if "config" in case:
        config["quantization_config"] = case["config"]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if "file" in case:
        (folder / "hf_quant_config.json").write_text(json.dumps(case["file"], indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", Checkpoint(case, config, random).tensors)

    decoder = Decoder(folder)
    prompts, kept, wide, half = [], [], [], []
    for length, ranks in ((1, 1), (17, 1), (100, 1), (1, 2), (100, 2)):
        if ranks not in case.get("ranks", (1, 2)):
            continue
        ids, logits = clear_prompt(decoder, random, length, ranks)
        positions = sorted({0, length // 3, 2 * length // 3, length - 1})
        kept.append(logits[positions])
        wide.append(relative(decoder.run(ids, ranks, wide=True)[positions], kept[-1]))
        half.append(relative(decoder.run(ids, ranks, half=True)[positions], kept[-1]))
        prompts.append(dict(tokens=ids, greedy=[], positions=positions, ranks=ranks))
    expected = dict(vocab_size=config["vocab_size"], wide_relative_error=min(wide),
                    bf16_relative_error=max(half), prompts=prompts)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    (folder / "expected.f32").write_bytes(np.concatenate(kept).astype(np.float32).tobytes())
    print(f"{name}: without rounding activations {min(wide):.1e} to {max(wide):.1e}, in bf16 "
          f"{min(half):.1e} to {max(half):.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/testdata/models"))
    parser.add_argument("--only", nargs="*", default=list(CASES))
    args = parser.parse_args()
    for name in args.only:
        make_case(name, args.out)


if __name__ == "__main__":
    main()
