"""Floors against figures worked out elsewhere by hand for Llama-3.1-8B on one H200."""

import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness import floors  # noqa: E402

LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


class FloorsTest(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(LLAMA_8B))
            self.model = floors.Model.load(folder, kv_bytes=2)
        self.h200 = floors.GPUS["H200"]

    def test_counts_parameters_and_bytes(self):
        self.assertAlmostEqual(self.model.linear / 1e9, 6.979, places=3)
        self.assertAlmostEqual(self.model.head / 1e9, 0.525, places=3)
        self.assertAlmostEqual(self.model.bytes_of_weights() / 1e9, 15.01, places=2)
        self.assertEqual(self.model.kv_bytes_per_token(), 131072)

    def test_decode_steps(self):
        for batch, context, ms in ((1, 512, 3.51), (8, 2048, 3.99), (64, 2048, 7.49),
                                   (256, 512, 7.49), (32, 8192, 11.48)):
            seconds = self.model.decode_step(self.h200, batch, context)
            self.assertAlmostEqual(seconds * 1e3, ms, delta=0.006)

    def test_prompts(self):
        for tokens, ms in ((512, 9.1), (2048, 37.6), (8192, 167), (32768, 935)):
            seconds = self.model.prefill(self.h200, tokens)
            self.assertAlmostEqual(seconds * 1e3, ms, delta=0.006 * ms)

    def test_offline_grid(self):
        for prompt, output, batch, rate in ((1000, 1000, 637, 19529), (128, 128, 4973, 27138),
                                            (2048, 128, 452, 3185), (128, 2048, 829, 25428)):
            self.assertAlmostEqual(
                self.model.offline(self.h200, prompt, output, batch), rate, delta=0.01 * rate
            )


if __name__ == "__main__":
    unittest.main()
