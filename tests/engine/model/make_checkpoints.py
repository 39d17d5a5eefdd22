#!/usr/bin/env python3
"""Makes tests/testdata/models: small random checkpoints, and what transformers makes of them.

Needs torch and transformers 5; the tests that read the result need neither. The output is fixed by
the seeds below up to the arithmetic of the machine's torch. Run from the repository root:

    python3 tests/engine/model/make_checkpoints.py --out tests/testdata/models

Each checkpoint folder holds config.json, generation_config.json, *.safetensors and
  expected.json  prompts, their 64 greedy tokens, the positions whose logits are kept, and the error
                 of transformers in bf16 against itself in f32, the tolerance of our bf16;
  expected.f32   the kept logits, little-endian float32, prompt by prompt, [positions, vocab_size].
rope.json holds rotary tables of well-known configurations.

With --wide the checkpoints have the head dims of published models and weights of 16 bits, as a
GPU's kernels want them; a few megabytes each, so they are made where they are needed and not kept.
Their expected.json holds the margin of every greedy step besides: where the best logit is hardly
better than the second, another order of roundings may choose the second.
"""

import argparse
import copy
import json
import pathlib

import torch
from family_cases import FAMILY_CASES, SHAPE_CASES, SMALL, longrope, rope
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

NUM_GREEDY = 64
PROMPT_LENGTHS = (1, 17, 300)
# Smallest accepted gap between the best and the second logit of a greedy step, as a fraction of the
# row's root mean square: a thousand times the error of float32, so that equality of the tokens is a
# property of the model and not of the order of a sum.
MIN_MARGIN = 2e-3

BASE = dict(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=112,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
)


# name -> config class, changes to BASE, and how to store it. "old" writes config.json as
# transformers 4 did (rope_theta, rope_scaling, torch_dtype): most published checkpoints are so.
CASES = {
    "llama": (LlamaConfig, dict(vocab_size=259, num_hidden_layers=3), dict(old=True)),
    "llama-tied-bias": (
        LlamaConfig,
        dict(num_key_value_heads=4, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
        {},
    ),
    # For eight ranks, four of which hold each key/value head, and a vocabulary that leaves the last
    # rank without a token.
    "llama-8-heads": (
        LlamaConfig,
        dict(vocab_size=261, num_attention_heads=8, num_key_value_heads=2),
        {},
    ),
    "llama-llama3": (
        LlamaConfig,
        dict(
            head_dim=32,
            intermediate_size=96,
            rope_parameters=rope(
                500000.0,
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=128,
            ),
        ),
        dict(old=True),
    ),
    "llama-linear": (
        LlamaConfig,
        dict(rope_parameters=rope(rope_type="linear", factor=4.0)),
        dict(old=True, old_type_key="type"),
    ),
    "llama-yarn": (
        LlamaConfig,
        dict(
            head_dim=32,
            intermediate_size=96,
            rope_parameters=rope(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=128
            ),
        ),
        {},
    ),
    "llama-bf16": (LlamaConfig, dict(), dict(dtype=torch.bfloat16)),
    "llama-f16": (LlamaConfig, dict(), dict(dtype=torch.float16, old=True)),
    "llama-sharded": (LlamaConfig, dict(intermediate_size=96), dict(max_shard_size="100KB")),
    "mistral": (MistralConfig, dict(sliding_window=32), dict(old=True)),
    "qwen2": (Qwen2Config, dict(rope_parameters=rope(1000000.0)), dict(old=True)),
    "qwen2-sliding": (
        Qwen2Config,
        dict(
            num_hidden_layers=3,
            intermediate_size=96,
            use_sliding_window=True,
            sliding_window=32,
            max_window_layers=1,
        ),
        {},
    ),
    "qwen3": (
        Qwen3Config,
        dict(
            head_dim=32,
            intermediate_size=96,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        {},
    ),
}

# --wide makes head_dim 32 of a case of CASES 128.
WIDE = dict(hidden_size=256, intermediate_size=320, head_dim=64)
WIDE_HEAD_DIM = 128  # of the other cases, where they do not say another

ROPE_CASES = {
    "default-10k": (128, 4096, rope()),
    "linear": (128, 8192, rope(rope_type="linear", factor=2.0)),
    "llama-3.1": (
        128,
        131072,
        rope(
            500000.0,
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=8192,
        ),
    ),
    "llama-3.2": (
        64,
        131072,
        rope(
            500000.0,
            rope_type="llama3",
            factor=32.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=8192,
        ),
    ),
    "qwen-yarn": (
        128,
        131072,
        rope(1000000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768),
    ),
    "yarn-all-keys": (
        64,
        16384,
        rope(
            10000.0,
            rope_type="yarn",
            factor=16.0,
            original_max_position_embeddings=1024,
            beta_fast=64.0,
            beta_slow=2.0,
            attention_factor=1.25,
        ),
    ),
    "yarn-mscale": (
        64,
        163840,
        rope(
            10000.0,
            rope_type="yarn",
            factor=40.0,
            original_max_position_embeddings=4096,
            mscale=0.8,
            mscale_all_dim=0.5,
        ),
    ),
    # The largest position makes these past their original lengths, or just within.
    "dynamic-past": (128, 32768, rope(50000000.0, rope_type="dynamic", factor=6.0)),
    "dynamic-within": (128, 131072, rope(50000000.0, rope_type="dynamic", factor=6.0)),
    "longrope-long": (64, 131072, longrope(4096, 32)),
    "longrope-short": (64, 262144, longrope(131072, 32)),
    "yarn-no-truncate": (
        64,
        131072,
        rope(
            150000.0,
            rope_type="yarn",
            factor=32.0,
            original_max_position_embeddings=4096,
            truncate=False,
        ),
    ),
}
ROPE_POSITIONS = (1, 1000, 131071)


def randomize(model, generator, width, store):
    """Weights so large that tokens vary and attention is peaked; norms and biases random too."""
    spread = 0.2 * (BASE["hidden_size"] / width) ** 0.5
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("bias"):
            p.data = 0.3 * noise
        elif "norm" in name:
            p.data = (0.0 if store.get("zeros") else 1.0) + 0.3 * noise
        elif "embed_tokens" in name:
            p.data = store.get("embedding", 0.5) * noise
        else:
            p.data = spread * noise
    model.tie_weights()


def to_old_form(path, type_key):
    config = json.loads(path.read_text())
    parameters = config.pop("rope_parameters")
    if "full_attention" in parameters:
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        parameters = parameters["full_attention"]
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in parameters:
            config[key] = parameters.pop(key)
    if parameters["rope_type"] == "longrope":
        parameters.pop("original_max_position_embeddings")  # stands beside rope_scaling
    rope_type = parameters.pop("rope_type")
    scaling = {type_key: rope_type, **parameters}
    config["rope_scaling"] = None if rope_type == "default" else scaling
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    config["transformers_version"] = "4.45.0"
    path.write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def logits_of(model, ids, positions):
    out = model(torch.tensor([ids]), use_cache=False, logits_to_keep=torch.tensor(positions))
    return out.logits[0].float()


def greedy(model, prompt):
    """The greedy continuation, every step recomputed without a cache, and the steps' margins; it
    ends at a step whose margin is too small."""
    ids, margins = list(prompt), []
    for _ in range(NUM_GREEDY):
        row = logits_of(model, ids, [len(ids) - 1])[0]
        best = torch.topk(row, 2)
        margins.append(float((best.values[0] - best.values[1]) / row.square().mean().sqrt()))
        ids.append(int(best.indices[0]))
        if margins[-1] < MIN_MARGIN:
            break
    return ids[len(prompt) :], margins


def relative(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def finish(folder, change):
    """Gives the stored checkpoint another form; see family_cases.py."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    tensors = change(config, load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path.write_text(json.dumps(config, indent=2) + "\n")


def find_prompt(model, length, vocab_size, generator):
    for _ in range(400):
        prompt = torch.randint(0, vocab_size, (length,), generator=generator).tolist()
        tokens, margins = greedy(model, prompt)
        if min(margins) >= MIN_MARGIN and len(set(tokens)) >= min(12, vocab_size // 13):
            return prompt, tokens, margins
    raise RuntimeError("no prompt has a clear greedy continuation: change the weights")


def widened(name, settings, store):
    dtype = torch.float16 if store.get("dtype") == torch.float16 else torch.bfloat16
    store = {**store, "dtype": dtype, **store.get("wide_store", {})}
    if name in CASES:
        head_dim = 128 if settings.get("head_dim") == 32 else 64
        return {**settings, **WIDE, "head_dim": head_dim}, store
    text = settings.get("text_config", settings)
    head_dim = store.get("head_dim", WIDE_HEAD_DIM)
    wide = dict(WIDE, head_dim=head_dim)
    if "head_dim" not in text:  # the family has no such key: the width decides
        wide.pop("head_dim")
        wide["hidden_size"] = text["num_attention_heads"] * head_dim
    text = {**text, **wide, **store.get("wide", {})}
    return {**settings, "text_config": text} if "text_config" in settings else text, store


def case_of(name):
    """The configuration, what it is, and how to store it."""
    if name in CASES:
        config_class, changes, store = CASES[name]
        return config_class, {**BASE, "rope_parameters": rope(), **changes}, store
    config_class, changes, store = {**FAMILY_CASES, **SHAPE_CASES}[name]
    store = {"dtype": torch.bfloat16, **store}
    if "text_config" in changes:
        return config_class, changes, store
    return config_class, {**SMALL, "rope_parameters": rope(), **changes}, store


def make_case(name, out, wide):
    config_class, settings, store = case_of(name)
    if wide:
        settings, store = widened(name, settings, store)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(sum(name.encode()))
    config = config_class(**copy.deepcopy(settings))
    text = config.get_text_config()
    model_class = store.get("model", AutoModelForCausalLM)
    make = model_class._from_config if "model" in store else model_class.from_config
    model = make(config)
    randomize(model, generator, text.hidden_size, store)
    folder = out / name
    model.to(store.get("dtype", torch.float32)).save_pretrained(
        folder, max_shard_size=store.get("max_shard_size", "1GB")
    )
    if store.get("old"):
        to_old_form(folder / "config.json", store.get("old_type_key", "rope_type"))

    # The expected values come from the stored checkpoint, read back.
    model, bf16 = (
        model_class.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager"
        ).eval()
        for dtype in (torch.float32, torch.bfloat16)
    )
    expected_rope = text.rope_parameters
    read_rope = model.config.get_text_config().rope_parameters
    assert {k: expected_rope[k] for k in expected_rope} == {
        k: read_rope[k] for k in expected_rope
    }, (expected_rope, read_rope)
    f64 = copy.deepcopy(model).double()

    kept, prompts, errors_bf16, error_f64, margin = [], [], [], 0.0, float("inf")
    for length in store.get("lengths", PROMPT_LENGTHS):
        prompt, tokens, margins = find_prompt(model, length, text.vocab_size, generator)
        ids = prompt + tokens[:-1]
        marks = {0, length // 3, 2 * length // 3, length - 1, length + 20, len(ids) - 1}
        positions = sorted(marks)
        rows = logits_of(model, ids, positions)
        kept.append(rows)
        errors_bf16.append(relative(logits_of(bf16, ids, positions), rows))
        error_f64 = max(error_f64, relative(rows, logits_of(f64, ids, positions)))
        margin = min(margin, *margins)
        prompts.append(dict(tokens=prompt, greedy=tokens, positions=positions))
        if wide:
            prompts[-1]["margins"] = margins
    expected = dict(
        vocab_size=text.vocab_size, bf16_relative_error=max(errors_bf16), prompts=prompts
    )
    if "finish" in store:
        finish(folder, store["finish"])
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    (folder / "expected.f32").write_bytes(torch.cat(kept).contiguous().numpy().tobytes())
    print(
        f"{name}: margin {margin:.4f}, f32 against f64 {error_f64:.1e}, "
        f"bf16 against f32 {max(errors_bf16):.4f}, "
        f"distinct {[len(set(p['greedy'])) for p in prompts]}",
        flush=True,
    )


def make_rope(out):
    tables = {}
    for name, (head_dim, max_position, parameters) in ROPE_CASES.items():
        config = LlamaConfig(
            hidden_size=head_dim,
            num_attention_heads=1,
            head_dim=head_dim,
            max_position_embeddings=max_position,
            rope_parameters=dict(parameters),
        )
        embedding = LlamaRotaryEmbedding(config)
        cos, sin = embedding(torch.zeros(1), torch.tensor([ROPE_POSITIONS]))
        half = head_dim // 2
        tables[name] = dict(
            head_dim=head_dim,
            max_position=max_position,
            rope_parameters=parameters,
            inv_freq=embedding.inv_freq.tolist(),
            attention_scaling=embedding.attention_scaling,
            positions=ROPE_POSITIONS,
            cos=cos[0, :, :half].tolist(),
            sin=sin[0, :, :half].tolist(),
        )
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(table)}" for name, table in tables.items())
    (out / "rope.json").write_text("{\n" + rows + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/testdata/models"))
    parser.add_argument("--names", action="store_true", help="print the names and stop")
    parser.add_argument("--wide", action="store_true", help="for a GPU: see above")
    parser.add_argument("--only", nargs="*", help="names; all by default")
    args = parser.parse_args()
    every = [*CASES, *FAMILY_CASES, *SHAPE_CASES]
    if not args.wide:
        every = ["rope", *(name for name in every if not case_of(name)[2].get("only_wide"))]
    if args.names:
        print("\n".join(every))
        return
    torch.set_num_threads(1)  # small matrices are not worth two
    args.out.mkdir(parents=True, exist_ok=True)
    for name in every if args.only is None else args.only:
        make_rope(args.out) if name == "rope" else make_case(name, args.out, args.wide)


if __name__ == "__main__":
    main()
