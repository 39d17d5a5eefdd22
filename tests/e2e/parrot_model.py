"""A checkpoint that answers every chat with the same words: the pieces of a text are tokens, and
each token's only successor is the next piece. Attention and the feed-forward network add nothing,
so the logits after token t are lm_head times the embedding of t.
"""

import array
import json
import struct

from python_tools import ROOT

ASSISTANT, END = 5, 6  # of the demo model's tokenizer, which this one extends
SIZE = 64  # of everything; more than pieces
TEMPLATE = (
    "{%- if tools -%}{{- '<|system|>' + (tools | tojson) + '<|end|>' -}}{%- endif -%}"
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def _matrix(rows, columns, ones):
    """Zeros but for the places of `ones`, as float32."""
    values = array.array("f", bytes(4 * rows * columns))
    for row, column in ones:
        values[row * columns + column] = 1.0
    return (rows, columns), values.tobytes()


def _write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def write_parrot(folder, pieces):
    """Writes the checkpoint whose every answer is `pieces`, joined."""
    tokenizer = json.loads((ROOT / "models/demo/tokenizer.json").read_text())
    first = len(tokenizer["model"]["vocab"])
    same = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for i, piece in enumerate(pieces):
        tokenizer["added_tokens"].append(
            {"id": first + i, "content": piece, "special": False, **same}
        )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((ROOT / "models/demo/tokenizer_config.json").read_text())
    settings["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    vocab = first + len(pieces)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": SIZE, "intermediate_size": SIZE, "head_dim": SIZE, "num_hidden_layers": 1,
        "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": vocab,
        "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": END,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    # The token that is said, by what comes before it.
    chain = [ASSISTANT, *range(first, vocab), END]
    zeros = _matrix(SIZE, SIZE, [])
    ones = ((SIZE,), array.array("f", [1.0] * SIZE).tobytes())
    tensors = {
        "model.embed_tokens.weight": _matrix(
            vocab, SIZE, [(token, i) for i, token in enumerate(chain[:-1])]
        ),
        "lm_head.weight": _matrix(vocab, SIZE, [(token, i) for i, token in enumerate(chain[1:])]),
        "model.norm.weight": ones,
        "model.layers.0.input_layernorm.weight": ones,
        "model.layers.0.post_attention_layernorm.weight": ones,
    }
    for part in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o"):
        tensors[f"model.layers.0.{part}_proj.weight"] = zeros
    for part in ("gate", "up", "down"):
        tensors[f"model.layers.0.mlp.{part}_proj.weight"] = zeros
    _write_safetensors(folder / "model.safetensors", tensors)
