#!/usr/bin/python3
"""KServe v2 with the client of Triton: kserve_test.py QUIRE_SERVER.

The conversation is held by triton_calls.py in the environment of scripts/python-tools, which has
tritonclient; its answers are compared here with quire.v1's and with the demo model's greedy text.
"""

import json
import pathlib
import subprocess
import unittest

import python_tools
import quire
from running_server import RunningServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
GREEDY = json.loads((ROOT / "tests/testdata/demo_model/greedy.json").read_text())
CASE = next(case for case in GREEDY["cases"] if case["kind"] == "plain")
SECONDS = 240


class KserveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = python_tools.interpreter()
        cls.server = RunningServer("--served-model-name", "demo")
        cls.addClassCleanup(cls.server.stop)
        client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(client.close)
        done = client.generate_text(CASE["text"], temperature=0.0, max_tokens=40)
        cls.text = done.text
        script = ROOT / "tests/e2e/triton_calls.py"
        run = subprocess.run(
            [python, script, cls.server.target, CASE["text"]],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )
        if run.returncode != 0:
            raise AssertionError(f"triton_calls.py failed:\n{run.stdout}\n{run.stderr}")
        cls.got = json.loads(run.stdout)

    def test_the_client_finds_server_and_model_ready(self):
        self.assertEqual(self.got["ready"], [True, True, True, False])
        self.assertEqual(self.got["metadata"]["inputs"][0]["name"], "text_input")
        self.assertEqual(self.got["metadata"]["outputs"][0]["name"], "text_output")
        self.assertTrue(self.got["decoupled"])
        self.assertIn("statistics", self.got["server"]["extensions"])

    def test_one_answer_is_that_of_quire_v1(self):
        self.assertEqual(self.got["answer"], self.text)
        self.assertEqual(self.got["finish_reason"], "length")
        self.assertEqual(self.got["num_input_tokens"], len(CASE["prompt_ids"]))
        self.assertEqual(self.got["num_output_tokens"], 40)
        self.assertEqual(self.got["answer_by_json"], self.text)

    def test_two_requests_on_one_stream(self):
        for name in ("first", "second"):
            self.assertEqual("".join(self.got["streamed"][name]), self.text)
            self.assertGreater(len(self.got["streamed"][name]), 2)
        self.assertEqual(self.got["finals"], ["first", "second"])

    def test_refusals_name_what_is_not_done(self):
        for what, code, words in (
            ("sequence", "StatusCode.INVALID_ARGUMENT", "parameters.sequence_"),
            ("priority", "StatusCode.INVALID_ARGUMENT", "priority"),
            ("tensor", "StatusCode.INVALID_ARGUMENT", "bad_words"),
            ("model", "StatusCode.NOT_FOUND", "not served"),
            ("shared_memory", "StatusCode.UNIMPLEMENTED", "contents in the request"),
            ("repository", "StatusCode.UNIMPLEMENTED", "one model"),
            ("trace", "StatusCode.UNIMPLEMENTED", "--otlp-endpoint"),
        ):
            self.assertEqual(self.got["refused"][what][0], code, what)
            self.assertIn(words, self.got["refused"][what][1], what)
        self.assertIn("INVALID_ARGUMENT: beam_width", self.got["stream_error"])

    def test_refusals_are_counted_by_method(self):
        page = self.server.get("/metrics")[1]
        self.assertRegex(
            page,
            r'code="INVALID_ARGUMENT",method="inference.GRPCInferenceService/ModelInfer"} 3\b',
        )


if __name__ == "__main__":
    unittest.main()
