#!/usr/bin/python3
"""Several answers to a request, against requests for one: answers_test.py QUIRE_SERVER QUIRE."""

import concurrent.futures
import math
import pathlib
import re
import subprocess
import sys
import unittest

import quire
from running_server import RunningServer

QUIRE = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
TALE = "Once upon a time there was a little dog who lived in a small house near the forest. "
# Of the demo model's blocks of 16 tokens: none, some and a part, and the same without BOS.
PROMPTS = ("Tom", TALE * 3, [9] * 32, [9] * 33)
SEED = 2**64 - 3  # the fourth answer's seed is 0


def alone(client, prompt, index, **options):
    """The answer that a request for one gets, with the seed of answer `index`."""
    seed = (options.pop("seed", SEED) + index) % 2**64
    return client.generate_text(prompt, seed=seed, **options)


def streamed(client, prompt, **options):
    """Texts, ids and log probabilities of the answers of one stream, and its ends, by index."""
    texts, ids, logprobs = {}, {}, {}
    stream = client.generate(prompt, **options)
    for delta in stream:
        texts[delta.index] = texts.get(delta.index, "") + delta.text
        ids.setdefault(delta.index, []).extend(delta.token_ids)
        logprobs.setdefault(delta.index, []).extend(delta.logprobs)
    return texts, ids, logprobs, stream.ends


class AnswersTest(unittest.TestCase):
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer("--max-num-seqs", "12", *cls.FLAGS)
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def test_each_answer_is_that_of_its_seed_alone(self):
        for prompt in PROMPTS:
            options = {"max_tokens": 40, "temperature": 1.4, "logprobs": True}
            one = [alone(self.client, prompt, i, **options) for i in range(6)]
            self.assertGreater(len({done.token_ids for done in one}), 2, "the seeds differ")
            texts, ids, logprobs, ends = streamed(self.client, prompt, n=6, seed=SEED, **options)
            whole = self.client.generate_text(prompt, n=6, seed=SEED, **options)
            answers = (whole, *whole.further_answers)
            self.assertEqual(len(answers), 6)
            for i, done in enumerate(one):
                self.assertEqual(tuple(ids[i]), done.token_ids)
                self.assertEqual(texts[i], done.text)
                self.assertEqual(tuple(logprobs[i]), done.logprobs)
                self.assertEqual(ends[i].reason, done.finished.reason)
                self.assertEqual(ends[i].seed, (SEED + i) % 2**64)
                mean = math.fsum(done.logprobs) / len(done.logprobs)
                self.assertAlmostEqual(ends[i].mean_logprob, mean, places=5)
                self.assertEqual(answers[i].token_ids, done.token_ids)
                self.assertEqual(answers[i].text, done.text)
                self.assertEqual(answers[i].finished.index, i)
            told = [end.request_usage for end in ends.values() if end.request_usage]
            self.assertEqual(len(told), 1)
            self.assertEqual(told[0].prompt_tokens, one[0].finished.usage.prompt_tokens)
            tokens = sum(len(done.token_ids) for done in one)
            self.assertEqual(told[0].completion_tokens, tokens)
            self.assertEqual(whole.finished.request_usage.completion_tokens, tokens)

    def test_the_best_are_those_with_the_highest_mean(self):
        options = {"max_tokens": 30, "temperature": 1.3}
        for prompt in PROMPTS:
            one = [alone(self.client, prompt, i, logprobs=True, **options) for i in range(7)]
            means = [math.fsum(done.logprobs) / len(done.logprobs) for done in one]
            best = sorted(range(7), key=lambda i: -means[i])
            texts, ids, logprobs, ends = streamed(
                self.client, prompt, n=3, best_of=7, seed=SEED, **options
            )
            whole = self.client.generate_text(prompt, n=3, best_of=7, seed=SEED, **options)
            answers = (whole, *whole.further_answers)
            self.assertEqual(sorted(ends), [0, 1, 2])
            for place in range(3):
                expected = one[best[place]]
                self.assertEqual(ends[place].seed, (SEED + best[place]) % 2**64)
                self.assertAlmostEqual(ends[place].mean_logprob, means[best[place]], places=5)
                self.assertEqual(tuple(ids[place]), expected.token_ids)
                self.assertEqual(texts[place], expected.text)
                self.assertEqual(answers[place].token_ids, expected.token_ids)
                self.assertEqual(logprobs[place], [], "they were not asked for")
            tokens = sum(len(done.token_ids) for done in one)
            self.assertEqual(whole.finished.request_usage.completion_tokens, tokens)

    def test_answers_do_not_depend_on_what_runs_beside_them(self):
        options = {"max_tokens": 40, "temperature": 1.0, "n": 4}

        def ask(seed):
            done = self.client.generate_text(TALE, seed=seed, **options)
            return [answer.token_ids for answer in (done, *done.further_answers)]

        quiet = [ask(100 * seed) for seed in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(ask, [100 * seed for seed in range(8)])), quiet)

    def test_each_follows_the_structure_and_ends_at_its_stop_string(self):
        names = "[A-Z][a-z]{2,6}( and [A-Z][a-z]{2,6}){1,2}"
        options = {"regex": names, "max_tokens": 60, "temperature": 1.5}
        texts, _, _, _ = streamed(self.client, TALE, n=4, seed=5, **options)
        for i in range(4):
            self.assertTrue(re.fullmatch(names, texts[i]), texts[i])
            self.assertEqual(texts[i], alone(self.client, TALE, i, seed=5, **options).text)
        options = {"stop": [" the", "."], "max_tokens": 60, "temperature": 1.0}
        texts, _, _, ends = streamed(self.client, TALE, n=4, seed=6, **options)
        for i in range(4):
            done = alone(self.client, TALE, i, seed=6, **options)
            self.assertEqual((texts.get(i, ""), ends[i].stop_text),
                             (done.text, done.finished.stop_text))  # fmt: skip

    def test_scores_of_the_prompt_come_once(self):
        options = {"max_tokens": 5, "temperature": 1.0, "prompt_logprobs": 2, "top_logprobs": 1}
        first = alone(self.client, TALE, 0, seed=3, **options)
        whole = self.client.generate_text(TALE, n=3, seed=3, **options)
        self.assertEqual([s.token_id for s in whole.prompt_scores],
                         [s.token_id for s in first.prompt_scores])  # fmt: skip
        self.assertEqual(len(whole.further_answers[1].scores), 5)
        best = self.client.generate_text(TALE, best_of=3, seed=3, **options)
        self.assertEqual(len(best.prompt_scores), len(first.prompt_scores))

    def test_the_command_prints_them_one_after_the_other(self):
        flags = ("--temperature", "1", "--seed", "9", "--max-tokens", "12", "--answers", "3")
        for more in ((), ("--no-stream",), ("--best-of", "5")):
            out = subprocess.run(
                [QUIRE, "generate", "--server", self.server.target, *flags, *more, TALE],
                capture_output=True, text=True, timeout=60, check=True,
            ).stdout  # fmt: skip
            best_of = 5 if more == ("--best-of", "5") else None
            done = self.client.generate_text(
                TALE, n=3, best_of=best_of, seed=9, temperature=1.0, max_tokens=12
            )
            texts = [done.text] + [answer.text for answer in done.further_answers]
            parts = re.split(r"^--- [0-2]\n", out, flags=re.M)
            self.assertEqual([p.rstrip("\n") for p in parts[1:]], [t.rstrip("\n") for t in texts])


class WithoutCacheTest(AnswersTest):
    FLAGS = ("--no-enable-prefix-caching",)


class SmallPoolTest(unittest.TestCase):
    """Answers of a default length that do not fit together wait, and are preempted."""

    def test_answers_are_those_of_their_seeds(self):
        server = RunningServer(
            "--max-num-seqs", "12", "--num-gpu-blocks-override", "40", "--max-model-len", "256"
        )
        self.addCleanup(server.stop)
        with quire.QuireClient(server.target, timeout=120) as client:
            options = {"temperature": 1.0, "ignore_eos": True}
            _, ids, _, ends = streamed(client, TALE, n=10, seed=1, **options)
            self.assertGreater(sum(end.usage.preemptions for end in ends.values()), 0)
            for i in range(10):
                done = alone(client, TALE, i, seed=1, **options)
                self.assertEqual(tuple(ids[i]), done.token_ids)
            with self.assertRaises(quire.InvalidRequest) as caught:
                client.generate_text(TALE, n=10, max_tokens=100, temperature=1.0)
            self.assertIn("10 answers of up to 100 tokens", str(caught.exception))
            load = client.load()
            self.assertEqual(load.free_blocks, load.total_blocks)


if __name__ == "__main__":
    unittest.main()
