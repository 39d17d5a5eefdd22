#!/usr/bin/python3
"""Guesses over gRPC: speculation_test.py SERVER QUIRE.

The same tokens and log probabilities with guesses and without, alone, among others and in sessions;
and what the protocol, the metrics and the command say of them.
"""

import concurrent.futures
import pathlib
import subprocess
import sys
import unittest

import quire
from running_server import RunningServer

QUIRE = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
STORY = "Once upon a time there was a fox who lived near the river. "
PROMPTS = (STORY, STORY * 4, "The fox said: yes, yes, yes, yes, ", STORY * 12)
# The demo model repeats itself where it is greedy or drawn towards a token.
WAYS = (
    quire.Options(temperature=0.0),
    quire.Options(temperature=0.0, repetition_penalty=1.05),
    quire.Options(seed=3, temperature=0.3),
    quire.Options(seed=4, temperature=1.0, logit_bias={5: 9.0}),
    quire.Options(seed=5, temperature=1.0, logit_bias={9: 8.0}, frequency_penalty=0.01),
    quire.Options(seed=6, temperature=1.0, top_p=0.9),
)
TOKENS = 250


def server(test, *flags):
    running = RunningServer(*flags)
    test.addCleanup(running.stop)
    return running


def outputs(target, neighbours):
    asks = [(prompt, way) for prompt in PROMPTS for way in WAYS]
    with quire.QuireClient(target, timeout=200) as client:

        def run(ask):
            return client.generate_text(
                ask[0], ask[1], max_tokens=TOKENS, ignore_eos=True, logprobs=True
            )

        with concurrent.futures.ThreadPoolExecutor(neighbours) as pool:
            return list(pool.map(run, asks))


class SpeculationTest(unittest.TestCase):
    def test_tokens_and_logprobs_are_the_same_with_guesses(self):
        plain = outputs(server(self).target, 3)
        self.assertEqual({done.finished.usage.guessed_tokens for done in plain}, {0})
        self.assertEqual(plain[0].accepted.options.max_guesses, 0)
        for neighbours in (1, 4):
            running = server(self, "--speculate", "8", "--speculate-step-tokens", "32")
            guessed = outputs(running.target, neighbours)
            for before, after in zip(plain, guessed):
                self.assertEqual(after.token_ids, before.token_ids)
                self.assertEqual(after.logprobs, before.logprobs)
            self.assertEqual(guessed[0].accepted.options.max_guesses, 8)
            right = sum(done.finished.usage.accepted_guesses for done in guessed)
            verified = sum(done.finished.usage.guessed_tokens for done in guessed)
            self.assertGreater(right, 500)
            self.assertGreater(verified, right)
            self.check_metrics(running, verified, right)

    def check_metrics(self, running, verified, right):
        for name, count in (
            ("quire_guessed_tokens_total", verified),
            ("quire_accepted_guesses_total", right),
            ("vllm:spec_decode_num_draft_tokens_total", verified),
            ("vllm:spec_decode_num_accepted_tokens_total", right),
        ):
            self.assertEqual(running.metric(name), count, name)

    def test_a_request_says_how_many(self):
        running = server(self, "--speculate", "6")
        with quire.QuireClient(running.target, timeout=100) as client:
            self.assertEqual(client.info().max_guesses, 6)
            ask = {"temperature": 0.0, "max_tokens": 200, "ignore_eos": True,
                   "logit_bias": {5: 50.0}}  # fmt: skip
            without = client.generate_text(STORY, max_guesses=0, **ask)
            self.assertEqual(without.finished.usage.guessed_tokens, 0)
            three = client.generate_text(STORY, max_guesses=3, **ask)
            self.assertEqual(three.accepted.options.max_guesses, 3)
            self.assertGreater(three.finished.usage.accepted_guesses, 100)
            self.assertEqual(three.token_ids, without.token_ids)
            with self.assertRaisesRegex(quire.QuireError, "speculation.max_guesses.*0 and 6"):
                client.generate_text(STORY, max_guesses=7)
        command = [str(QUIRE), "generate", "--server", running.target, "--max-guesses", "2",
                   "--stats", "--ignore-eos", "--logit-bias", "5=50", "-n", "100",
                   STORY]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        self.assertRegex(done.stderr, r"guessed tokens: +\d+, \d+ of them right")

    def test_turns_of_a_session_end_at_the_same_place(self):
        answers = []
        for flags in ((), ("--speculate", "8")):
            with quire.QuireClient(server(self, *flags).target, timeout=100) as client:
                turns = []
                for number, stop in enumerate(("river", "fox", ".", "said")):
                    done = client.generate_text(
                        STORY * 3 if number == 0 else " " + STORY, temperature=0.0,
                        max_tokens=120, stop=stop, session_id="fox",
                        create_session=True)  # fmt: skip
                    turns.append((done.text, done.token_ids, done.finished.reason,
                                  done.finished.position))
                answers.append(turns)
        self.assertEqual(answers[1], answers[0])


if __name__ == "__main__":
    unittest.main()
