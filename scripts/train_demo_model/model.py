"""A Llama decoder in PyTorch and the Muon optimizer, both as small as training needs them."""

import json
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "vocab_size": 2048,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
HIDDEN, LAYERS, VOCAB = CONFIG["hidden_size"], CONFIG["num_hidden_layers"], CONFIG["vocab_size"]
HEADS, KV_HEADS, HEAD_DIM = (
    CONFIG["num_attention_heads"],
    CONFIG["num_key_value_heads"],
    CONFIG["head_dim"],
)


def rope_tables(length, device):
    """cos and sin, [length][head_dim / 2]."""
    exponents = torch.arange(0, HEAD_DIM, 2, device=device, dtype=torch.float32) / HEAD_DIM
    angles = torch.outer(
        torch.arange(length, device=device, dtype=torch.float32), CONFIG["rope_theta"] ** -exponents
    )
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotary embedding of x [batch][heads][length][head_dim], pairs (i, i + head_dim / 2)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        inner = CONFIG["intermediate_size"]
        self.input_layernorm = nn.RMSNorm(HIDDEN, eps=CONFIG["rms_norm_eps"])
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, eps=CONFIG["rms_norm_eps"])
        self.gate_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.up_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.down_proj = nn.Linear(inner, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        y = self.input_layernorm(x)
        q = self.q_proj(y).view(batch, length, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(y).view(batch, length, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(y).view(batch, length, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = HEADS // KV_HEADS
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).reshape(batch, length, HEADS * HEAD_DIM))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Decoder(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=CONFIG["rms_norm_eps"])
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02 if "embed" in name else HIDDEN**-0.5)

    def forward(self, ids, cos, sin):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def loss(self, rows, cos, sin):
        """Mean cross entropy of every next token of rows [batch][length + 1]."""
        logits = self(rows[:, :-1], cos, sin)
        return F.cross_entropy(logits.float().view(-1, VOCAB), rows[:, 1:].reshape(-1))

    def save(self, folder: pathlib.Path):
        """Writes config.json and model.safetensors in the Hugging Face layout, weights in bf16."""
        from safetensors.torch import save_file

        tensors = {}
        for name, parameter in self.named_parameters():
            for part, group in (
                ("q_proj", "self_attn"),
                ("k_proj", "self_attn"),
                ("v_proj", "self_attn"),
                ("o_proj", "self_attn"),
                ("gate_proj", "mlp"),
                ("up_proj", "mlp"),
                ("down_proj", "mlp"),
            ):
                name = name.replace("." + part, f".{group}.{part}")
            tensors["model." + name] = parameter.detach().to(torch.bfloat16).contiguous().cpu()
        save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


def orthogonalized(matrices):
    """The nearest semi-orthogonal matrices to `matrices` [n][rows][columns], roughly.

    Five steps of a quintic Newton-Schulz iteration; its coefficients push all singular values into
    about [0.7, 1.2], which is as good as 1 for an update.
    """
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


class Muon:
    """Momentum whose steps are orthogonalized, for the matrices inside the layers."""

    def __init__(self, parameters, momentum=0.95, decay=0.05):
        self.momentum, self.decay = momentum, decay
        self.groups = {}
        for parameter in parameters:
            self.groups.setdefault(parameter.shape, []).append(parameter)
        self.velocity = {
            s: torch.zeros(len(g), *s, device=g[0].device) for s, g in self.groups.items()
        }

    @torch.no_grad()
    def step(self, rate):
        for shape, group in self.groups.items():
            gradient = torch.stack([p.grad for p in group])
            velocity = self.velocity[shape].lerp_(gradient, 1 - self.momentum)
            update = orthogonalized(gradient.lerp(velocity, self.momentum)).float()
            scale = rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, change in zip(group, update.unbind()):
                parameter.mul_(1 - rate * self.decay).sub_(change, alpha=scale)
