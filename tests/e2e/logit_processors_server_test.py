#!/usr/bin/python3
"""Logit processors: named sets have the effect of the same lists in a request:
logit_processors_server_test.py QUIRE_SERVER."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import quire
from running_server import BINARY, RunningServer

PROMPT = "Once upon a time"
FOLDER = tempfile.TemporaryDirectory()
PATH = pathlib.Path(FOLDER.name) / "processors.json"
SETS = {
    "biased": {"logit_bias": [{"text": " the", "bias": 30}, {"token": 9, "bias": -3}]},
    "polite": {"bad_words": [" was", "little"], "banned_token_ids": [13]},
    "narrow": {"allowed_token_ids": list(range(300, 340))},
}


class LogitProcessorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        PATH.write_text(json.dumps(SETS), encoding="utf-8")
        cls.server = RunningServer("--logit-processors", str(PATH))
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def ids(self, text):
        return [token.id for token in self.client.tokenize(text, add_special_tokens=False)]

    def ask(self, **options):
        return self.client.generate_text(
            PROMPT, max_tokens=40, seed=5, temperature=1.0, ignore_eos=True, **options
        )

    def test_the_server_lists_them(self):
        self.assertEqual(list(self.client.info().logit_processors), ["biased", "narrow", "polite"])

    def test_each_is_the_same_as_its_lists(self):
        (the,) = self.ids(" the")
        words = [self.ids(text) for text in (" was", "  was", "little", " little")]
        same = {
            "biased": {"logit_bias": {the: 30, 9: -3}},
            "polite": {"bad_word_ids": words, "banned_token_ids": [13]},
            "narrow": {"allowed_token_ids": SETS["narrow"]["allowed_token_ids"]},
        }
        plain = self.ask().token_ids
        for name, lists in same.items():
            named = self.ask(logit_processors=[name])
            self.assertEqual(named.token_ids, self.ask(**lists).token_ids, name)
            self.assertNotEqual(named.token_ids, plain, name)
        both = {**same["narrow"], **same["polite"]}
        self.assertEqual(
            self.ask(logit_processors=["polite", "narrow"]).token_ids, self.ask(**both).token_ids
        )

    def test_lists_of_the_request_are_kept(self):
        (the,) = self.ids(" the")
        named = self.ask(logit_processors=["biased"], logit_bias={the: -30, 7: 1.5})
        self.assertEqual(
            named.token_ids, self.ask(logit_bias={the: 0, 9: -3, 7: 1.5}).token_ids
        )

    def test_refusals(self):
        for options, words in (
            ({"logit_processors": ["rude"]}, "name 'rude'; it has biased, narrow, polite"),
            ({"logit_processors": ["polite", "polite"]}, "names 'polite' twice"),
            ({"logit_processors": ["narrow"], "allowed_token_ids": [5]}, "allow no token"),
            ({"logit_processors": ["biased"], "logit_bias": {9: -99}}, "logit_bias: of token 9"),
        ):
            with self.subTest(words), self.assertRaisesRegex(quire.InvalidRequest, words):
                self.ask(**options)

    def test_the_command_names_them(self):
        command = [pathlib.Path(BINARY).parent / "quire", "--server", self.server.target]
        flags = ["generate", PROMPT, "--logit-processor", "narrow", "--max-tokens", "8",
                 "--temperature", "0", "--print-ids"]  # fmt: skip
        done = subprocess.run(
            [*command, *flags], capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        ids = [int(word) for word in done.stdout.replace(",", " ").split()]
        self.assertTrue(ids)
        self.assertTrue(all(300 <= each < 340 for each in ids), ids)

    def test_a_wrong_file_ends_start_and_check(self):
        wrong = pathlib.Path(FOLDER.name) / "wrong.json"
        wrong.write_text('{"a": {"logit_bias": [{"text": "two words", "bias": 1}]}}')
        words = "a.logit_bias[0].text: is "
        for flags in (["--port", "0", "--metrics-port", "0"], ["--check"]):
            done = subprocess.run(
                [BINARY, *flags, "--logit-processors", str(wrong)],
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
