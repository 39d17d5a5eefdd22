#!/usr/bin/python3
"""The demo model on a real server, compared with transformers: demo_model_test.py SERVER.

tests/testdata/demo_model/greedy.json holds prompts with their greedy tokens and, for each token,
how far the second choice was behind (its margin). The server adds in another order than PyTorch, so
where a margin is below CLOSE the second choice may win, and the comparison of that case ends there.
"""

import concurrent.futures
import json
import pathlib
import unittest

import quire
from running_server import RunningServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
GREEDY = json.loads((ROOT / "tests/testdata/demo_model/greedy.json").read_text())
# Logits are sums of 256 products of size about 1; rounding in float32 moves them by less than 256 *
# 2^-24 times the sum of the sizes, 0.004, and a hundred times less as a rule.
CLOSE = 0.004
EOS_IDS = (1, 6)


def prompt_of(case):
    """The prompt as a user sends it: text, or messages for the chat template."""
    if "text" in case:
        return case["text"]
    return [quire.Message(m["role"], m["content"]) for m in case["messages"]]


class DemoModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer()
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def check(self, case, done):
        """The tokens equal the expected ones up to the first pair of close logits."""
        expected, got = case["expected_ids"], list(done.token_ids)
        for i, (token, margin) in enumerate(zip(expected, case["margins"])):
            if margin < CLOSE and got[i : i + 1] != [token]:
                self.assertGreater(i, 0, "a close call at the first token proves nothing")
                return i
            self.assertEqual(got[i : i + 1], [token], f"{case['kind']} token {i}, margin {margin}")
        self.assertEqual(got, expected)
        if expected[-1] in EOS_IDS:
            self.assertEqual(done.finished.reason, quire.FinishReason.EOS)
            self.assertEqual(done.text, case["expected_text"])
        return len(expected)

    def test_prompts_become_the_expected_tokens(self):
        for case in GREEDY["cases"]:
            ids = [t.id for t in self.client.tokenize(prompt_of(case))]
            self.assertEqual(ids, case["prompt_ids"], case["kind"])

    def test_greedy_tokens_equal_those_of_transformers(self):
        compared = total = 0
        for case in GREEDY["cases"]:
            with self.subTest(kind=case["kind"], prompt=str(case.get("text", ""))[-40:]):
                length = len(case["expected_ids"])
                done = self.client.generate_text(
                    prompt_of(case), temperature=0.0, max_tokens=length
                )
                compared += self.check(case, done)
                total += length
                self.assertIn(case.get("value", ""), done.text)
        self.assertGreater(compared, 0.8 * total)

    def test_batched_requests_equal_single_ones(self):
        def run(case):
            return self.client.generate_text(case["prompt_ids"], temperature=0.0, max_tokens=64)

        alone = [run(case).token_ids for case in GREEDY["cases"]]
        with concurrent.futures.ThreadPoolExecutor(len(alone)) as pool:
            together = [done.token_ids for done in pool.map(run, GREEDY["cases"])]
        self.assertEqual(alone, together)

    def test_a_conversation_remembers_a_number(self):
        turns = [quire.Message("user", "Remember this: The secret number of Mia is 4172.")]
        for i in range(4):
            done = self.client.generate_text(turns, temperature=0.7, seed=i, max_tokens=600)
            self.assertEqual(done.finished.reason, quire.FinishReason.EOS)
            turns.append(quire.Message("assistant", done.text))
            turns.append(quire.Message("user", "Tell me a long story about a fox."))
        turns[-1] = quire.Message("user", "What is the secret number of Mia?")
        self.assertGreater(len(self.client.tokenize(turns)), 900)
        done = self.client.generate_text(turns, temperature=0.0)
        self.assertEqual(done.text, "The secret number of Mia is 4172.")

    def test_stories_end_with_eos(self):
        for seed in range(3):
            done = self.client.generate_text("Once upon a time", seed=seed, max_tokens=1500)
            self.assertEqual(done.finished.reason, quire.FinishReason.EOS)
            self.assertAlmostEqual(done.accepted.options.temperature, 0.7, places=6)
            self.assertGreater(len(done.token_ids), 60)


if __name__ == "__main__":
    unittest.main()
