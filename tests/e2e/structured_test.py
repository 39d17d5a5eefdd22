#!/usr/bin/python3
"""Structured outputs of a real server with the demo model, which was never taught to write JSON:
structured_test.py QUIRE_SERVER."""

import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import quire
from running_server import BINARY, RunningServer

PROMPT = "Once upon a time"
NAMES = "[A-Z][a-z]{2,6}( and [A-Z][a-z]{2,6}){1,2}"


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "moods": {"type": "array", "items": {"enum": ["glad", "sad", None]}, "maxItems": 3},
        "pet": {"$ref": "#/$defs/pet"},
    },
    "required": ["name", "age", "pet"],
    "additionalProperties": False,
    "$defs": {
        "pet": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {"kind": {"const": "cat"}, "of": {"$ref": "#/$defs/pet"}},
                    "required": ["kind", "of"],
                    "additionalProperties": False,
                },
            ]
        }
    },
}


class StructuredTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer("--max-num-seqs", "8")
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def test_expressions_choices_and_grammars(self):
        sentence = 'root ::= who " " ("ran" | "slept") "."\nwho ::= "Tom" | "Lily" " and " who\n'
        for seed in range(6):
            done = self.client.generate_text(PROMPT, regex=NAMES, max_tokens=60, seed=seed)
            self.assertTrue(re.fullmatch(NAMES, done.text), done.text)
            self.assertEqual(done.finished.reason, quire.FinishReason.EOS)
            done = self.client.generate_text(PROMPT, choice=["sunny", "rainy", "cold"], seed=seed)
            self.assertIn(done.text, ("sunny", "rainy", "cold"))
            done = self.client.generate_text(PROMPT, grammar=sentence, max_tokens=60, seed=seed)
            self.assertTrue(re.fullmatch(r"(Lily and )*Tom (ran|slept)\.", done.text), done.text)

    def test_schemas_accept_what_was_asked_by_them(self):
        judge = jsonschema.Draft202012Validator(PERSON)
        for seed in range(8):
            done = self.client.generate_text(
                PROMPT, json_schema=PERSON, max_tokens=120, seed=seed, temperature=1.5
            )
            judge.validate(json.loads(done.text))
            self.assertLessEqual(len(done.token_ids), 120)
        numbers = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
        done = self.client.generate_text(PROMPT, json_schema=json.dumps(numbers), max_tokens=60)
        jsonschema.validate(json.loads(done.text), numbers)

    def test_any_object_parses_also_when_it_is_cut(self):
        for seed, most in enumerate((4, 10, 20, 60, 120)):
            done = self.client.generate_text(
                PROMPT, json_object=True, max_tokens=most, seed=seed, temperature=2.0
            )
            self.assertIsInstance(json.loads(done.text), dict, done.text)

    def test_answers_are_complete_however_few_tokens_they_get(self):
        for most in (12, 16, 25, 60):
            done = self.client.generate_text(
                PROMPT, regex=r"\((a+|b+|c+)*\)", max_tokens=most, seed=most, temperature=3.0
            )
            self.assertTrue(re.fullmatch(r"\([abc]*\)", done.text), done.text)
            self.assertLessEqual(len(done.token_ids), most)

    def test_the_reason_says_that_no_answer_is_so_short(self):
        for most in (1, 3, 9):
            done = self.client.generate_text(PROMPT, regex="[ab]{200}", max_tokens=most)
            self.assertTrue(re.fullmatch("[ab]+", done.text), done.text)
            self.assertEqual(done.finished.reason, quire.FinishReason.TRUNCATED)

    def test_an_answer_does_not_depend_on_its_neighbours(self):
        def ask(seed):
            structured = {"regex": NAMES + "[.!]{20}"} if seed % 2 else {}
            return self.client.generate_text(
                PROMPT, max_tokens=60, seed=seed, temperature=1.0, **structured
            ).token_ids

        alone = [ask(seed) for seed in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            self.assertEqual(list(pool.map(ask, range(12))), alone)

    def test_refusals_name_the_field(self):
        cases = (
            ({"json_schema": '{"type": '}, "structured_output.json_schema"),
            ({"json_schema": {"not": {}}}, "not"),
            ({"json_schema": {"$ref": "https://example.com/schema.json"}}, "$ref"),
            ({"regex": "a("}, "structured_output.regex"),
            ({"grammar": "root ::= missing"}, "structured_output.grammar"),
            ({"choice": [""]}, "structured_output.choice.texts"),
            ({"choice": ["a"], "ignore_eos": True}, "ignore_eos"),
            ({"choice": ["a"], "min_tokens": 3}, "min_tokens"),
            ({"choice": ["a"], "allowed_token_ids": [1]}, "sampling.allowed_token_ids"),
        )
        for options, words in cases:
            with self.subTest(words), self.assertRaises(quire.QuireError) as refused:
                self.client.generate_text(PROMPT, **options)
            self.assertIn(words, str(refused.exception))

    def test_turns_of_a_session(self):
        talk = self.client.conversation("structured")
        with talk.say("Is it cold?", max_tokens=10, choice=["yes", "no"]) as stream:
            self.assertIn("".join(d.text for d in stream), ("yes", "no"))
        with talk.say(" And then?", max_tokens=10, min_tokens=10, temperature=0) as stream:
            self.assertTrue("".join(d.text for d in stream))

    def test_the_command_line(self):
        def quire_generate(*flags):
            quire_command = pathlib.Path(BINARY).parent / "quire"
            command = [quire_command, "--server", self.server.target, "generate", PROMPT, *flags]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.rstrip("\n")

        self.assertIn(quire_generate("--choice", "yes", "--choice", "no"), ("yes", "no"))
        self.assertRegex(quire_generate("--regex", "[0-9]{3}"), "^[0-9]{3}$")
        with tempfile.NamedTemporaryFile("w", suffix=".gbnf") as file:
            file.write('root ::= "<" [a-z]+ ">"')
            file.flush()
            text = quire_generate("--grammar", file.name, "--max-tokens", "20")
            self.assertRegex(text, "^<[a-z]+>$")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(PERSON, file)
            file.flush()
            text = quire_generate("--json-schema", file.name, "--max-tokens", "120")
            jsonschema.validate(json.loads(text), PERSON)
        text = quire_generate("--json-object", "--max-tokens", "40")
        self.assertIsInstance(json.loads(text), dict)

    def test_metrics_count_them(self):
        self.client.generate_text(PROMPT, choice=["one", "two"])
        page = self.server.get("/metrics")[1]
        self.assertRegex(page, r'quire_grammars_total\{[^}]*result="compiled"[^}]*\} [1-9]')
        self.assertRegex(page, r"quire_mask_seconds_count\{[^}]*\} [1-9]")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
