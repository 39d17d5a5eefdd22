#!/usr/bin/python3
"""Tool calls and reasoning of a real server with the demo model, which was never taught either:
tools_test.py QUIRE_SERVER QUIRE."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import quire
from running_server import RunningServer

QUIRE = sys.argv.pop(1)
TURNS = [{"role": "user", "content": "How is the weather in Rome?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"town": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer"}},
            "required": ["town", "days"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time"}}


class ToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def check(self, call):
        arguments = json.loads(call.arguments)
        if call.name == "get_time":
            return self.assertEqual(arguments, {})
        self.assertEqual(call.name, "get_weather")
        self.assertEqual(sorted(arguments), ["days", "town"])
        self.assertIn(arguments["town"], ("Rome", "Oslo"))
        self.assertIsInstance(arguments["days"], int)
        return None

    def test_required_calls_follow_the_schemas(self):
        for seed in range(4):
            done = self.client.generate_text(
                TURNS, tools=[WEATHER, CLOCK], tool_choice="required", seed=seed, max_tokens=200
            )
            self.assertGreaterEqual(len(done.tool_calls), 1)
            self.assertEqual(done.text, "")
            self.assertEqual(done.reasoning, "")
            for call in done.tool_calls:
                self.check(call)
                self.assertRegex(call.id, "^[0-9A-Za-z]{9}$")

    def test_a_named_call_is_streamed_in_pieces(self):
        stream = self.client.chat(
            TURNS, tools=[WEATHER, CLOCK], tool_choice="get_weather", seed=3, max_tokens=200
        )
        pieces = [piece for delta in stream for piece in delta.tool_calls]
        self.assertGreater(len(pieces), 1)
        self.assertEqual([piece.name for piece in pieces[1:]], [""] * (len(pieces) - 1))
        arguments = "".join(piece.arguments for piece in pieces)
        self.check(quire.ToolCall(0, pieces[0].id, pieces[0].name, arguments))
        self.assertEqual(stream.finished.reason, quire.FinishReason.TOOL_CALLS)

    def test_reasoning_ends_when_it_is_spent(self):
        done = self.client.generate_text(
            "Once upon a time<think>", max_reasoning_tokens=8, max_tokens=40, seed=1
        )
        marker = len(self.client.tokenize("</think>", add_special_tokens=False))
        self.assertEqual(done.finished.usage.reasoning_tokens, 8 + marker)
        self.assertNotIn("think", done.text)
        begin = self.client.detokenize(done.token_ids[:8])
        self.assertEqual(done.reasoning, begin.strip("\n"))

    def test_a_structure_follows_the_reasoning(self):
        done = self.client.generate_text(
            "Once<think>", split_reasoning=True, choice=["sunny", "rainy"], max_tokens=30, seed=5
        )
        self.assertIn(done.text, ("sunny", "rainy"))
        self.assertGreater(done.finished.usage.reasoning_tokens, 0)

    def test_refusals_name_the_field(self):
        for choice, tools, field in (
            ("nobody", [CLOCK], "chat.tool_choice.function"),
            ("required", [], "chat.tool_choice"),
            ("auto", [CLOCK, CLOCK], "chat.tools[1]"),
        ):
            with self.assertRaises(quire.InvalidRequest) as caught:
                self.client.generate_text(TURNS, tools=tools, tool_choice=choice)
            self.assertEqual(caught.exception.violations[0].field, field)

    def test_the_command_prints_calls_as_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tools.json")
            path.write_text(json.dumps([WEATHER]), encoding="utf-8")
            done = subprocess.run(
                [QUIRE, "--server", self.server.target, "generate", "--tools", path,
                 "--tool-choice", "get_weather", "-n", "200", "--seed", "2", "Rome?"],
                capture_output=True, text=True, check=True, timeout=120,
            )  # fmt: skip
        name, arguments = done.stdout.split(" ", 1)
        self.check(quire.ToolCall(0, "", name, arguments))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
