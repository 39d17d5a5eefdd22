"""The least possible time: for the bytes to read at the available bandwidth
or for the multiplications at the available peak, whichever takes longer.

Bandwidth and peak are measured on a CPU in the run that uses them (bench/kernels/roofline_main.cc)
and known for a GPU. Formulas: docs/benchmarks.md, "Floors".
"""

import dataclasses
import json
import pathlib


@dataclasses.dataclass
class Machine:
    bytes_per_second: float
    flops_per_second: float


# Copy bandwidth and dense bf16 rate measured on the device, not the data sheet's.
GPUS = {"H200": Machine(4.3e12, 790e12)}


@dataclasses.dataclass
class Model:
    """The cost of one token."""

    linear: int  # parameters of the layers' matrices
    head: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    weight_bytes: int = 2  # of one parameter
    kv_bytes: int = 2  # of one element of the cache

    @classmethod
    def load(cls, directory, kv_bytes):
        config = json.loads((pathlib.Path(directory) / "config.json").read_text())
        hidden, layers = config["hidden_size"], config["num_hidden_layers"]
        heads = config["num_attention_heads"]
        kv_heads = config.get("num_key_value_heads") or heads
        head_dim = config.get("head_dim") or hidden // heads
        attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
        dense = 3 * hidden * config["intermediate_size"]
        weight_bytes = 4 if config.get("torch_dtype") == "float32" else 2
        return cls(
            linear=layers * (attention + dense),
            head=hidden * config["vocab_size"],
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            weight_bytes=weight_bytes,
            kv_bytes=kv_bytes,
        )

    def bytes_of_weights(self):
        return self.weight_bytes * (self.linear + self.head)

    def kv_bytes_per_token(self):
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_bytes

    def decode_step(self, machine, batch, context):
        """Seconds of a step that gives each of `batch` sequences one token."""
        moved = self.bytes_of_weights() + batch * context * self.kv_bytes_per_token()
        attention = 4 * self.heads * self.head_dim * self.layers * context
        flops = batch * (2 * (self.linear + self.head) + attention)
        return max(moved / machine.bytes_per_second, flops / machine.flops_per_second)

    def prefill_flops(self, tokens):
        """Operations of a prompt: causal attention counts once, the head for the last token."""
        attention = 2 * tokens**2 * self.heads * self.head_dim * self.layers
        return 2 * self.linear * tokens + attention + 2 * self.head

    def prefill(self, machine, tokens):
        """Seconds to the first token of a prompt alone."""
        moved = self.bytes_of_weights()
        return max(
            moved / machine.bytes_per_second, self.prefill_flops(tokens) / machine.flops_per_second
        )

    def offline(self, machine, prompt, output, batch):
        """Output tokens a second at most, with `batch` sequences at once and prompts overlapped
        with decoding: a step reads weights and cache, or multiplies every token, if longer."""
        context = prompt + output / 2
        moved = self.bytes_of_weights() + batch * context * self.kv_bytes_per_token()
        attention = 4 * self.heads * self.head_dim * self.layers * context
        decode_flops = 2 * (self.linear + self.head) + attention
        flops = batch * (decode_flops + self.prefill_flops(prompt) / output)
        step = max(moved / machine.bytes_per_second, flops / machine.flops_per_second)
        return batch / step
