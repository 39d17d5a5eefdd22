#!/usr/bin/python3
"""GenerateBatch with the demo model and all clients: generate_batch_test.py QUIRE_SERVER QUIRE.

The expected answers are those of GenerateUnary.
"""
# Covers clients/python/quire/client.py, server/batch/generate_items.cc, clients/cpp/batch.cc

import asyncio
import concurrent.futures
import json
import subprocess
import sys
import unittest

import grpc
import quire
import quire.aio
from running_server import RunningServer

QUIRE = sys.argv.pop(1) if len(sys.argv) > 1 else None
OPTIONS = quire.Options(temperature=0.9, max_tokens=12)


def run_quire_batch(target, lines):
    command = [QUIRE, "--server", target, "batch", "-"]
    return subprocess.run(
        command, input=b"".join(lines), capture_output=True, timeout=300, check=False
    )


class GenerateBatchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer("--device", "cpu")
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def test_items_have_the_answers_of_calls(self):
        items = []
        for seed in range(40):
            several = {"n": 2} if seed % 8 == 0 else {}
            own = quire.Options(temperature=0.9, max_tokens=5 + seed, seed=seed, **several)
            items.append((f"Once upon a time {seed}", own))
        results = {item.index: item for item in self.client.generate_batch(items)}
        self.assertEqual(sorted(results), list(range(40)))
        for index, (prompt, own) in enumerate(items):
            self.assertIsNone(results[index].fault)
            alone = self.client.generate_text(prompt, own)
            self.assertEqual(results[index].completion.token_ids, alone.token_ids)
            self.assertEqual(results[index].completion.text, alone.text)
            self.assertEqual(
                [a.text for a in results[index].completion.further_answers],
                [a.text for a in alone.further_answers],
            )

    def test_a_bad_item_fails_alone(self):
        items = ["One", [10**6], ("Two", quire.Options(temperature=-1)), "Three"]
        results = {i.index: i for i in self.client.generate_batch(items, OPTIONS, seed=4)}
        faults = [results[i].fault and (results[i].fault.code, results[i].fault.field)
                  for i in range(4)]  # fmt: skip
        self.assertEqual(
            faults, [None, (3, "token_ids.ids"), (3, "sampling.temperature"), None]
        )
        self.assertIsNone(results[1].completion)
        alone = self.client.generate_text("Three", OPTIONS, seed=4)
        self.assertEqual(results[3].completion.text, alone.text)

    def test_a_text_is_no_list_of_items(self):
        with self.assertRaises(TypeError):
            self.client.generate_batch("One")

    def quire_batch(self, lines):
        done = run_quire_batch(self.server.target, lines)
        results = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, done.stderr.decode(), {r["line"]: r for r in results}

    def test_the_command_answers_files_of_any_length(self):
        # More lines than a call takes.
        lines = [
            quire.job_line(f"line-{number}", f"Story {number}", max_tokens=2, seed=number)
            for number in range(1, 1101)
        ]
        code, errors, results = self.quire_batch(lines)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(sorted(results), list(range(1, 1101)))
        for number in (1, 1024, 1025, 1100):
            self.assertEqual(results[number]["custom_id"], f"line-{number}")
            alone = self.client.generate_text(f"Story {number}", max_tokens=2, seed=number)
            self.assertEqual(results[number]["result"]["text"], alone.text)

    def test_long_lines_of_the_command_share_no_call(self):
        # Together they are more than a message may have, and each more than the model's context.
        lines = [quire.job_line("long", "a" * size) for size in (1_900_000, 2_500_000)]
        _, errors, results = self.quire_batch([*lines, quire.job_line("short", "Once")])
        self.assertEqual(errors, "quire: 2 of 3 lines failed\n")
        self.assertEqual([n for n in sorted(results) if "status" in results[n]], [1, 2])
        self.assertIn("result", results[3])

    def test_a_bad_line_of_the_command_fails_alone(self):
        good = quire.job_line("good", "Once", max_tokens=2, temperature=0)
        lines = [
            good,
            b"\n",
            b'{"custom_id": "cut", "request": {\n',
            b'{"custom_id": "none"}\n',
            b'{"request": {"text": "x"}}\n',
            quire.job_line("hot", "Once", temperature=-1),
            good.replace(b'"text"', b'"txet"'),
            good.rstrip(),  # the last line may lack its end
        ]
        code, errors, results = self.quire_batch(lines)
        self.assertEqual(code, 13)  # INVALID_ARGUMENT
        self.assertEqual(errors, "quire: 5 of 7 lines failed\n")
        fields = {n: r["status"]["field"] for n, r in results.items() if "status" in r}
        self.assertEqual(
            fields,
            {3: "line", 4: "request", 5: "custom_id", 6: "sampling.temperature", 7: "request"},
        )
        self.assertEqual(results[4]["status"]["message"], "request: missing")
        self.assertIn("txet", results[7]["status"]["message"])
        self.assertEqual(results[1]["result"]["text"], results[8]["result"]["text"])

    def test_asyncio(self):
        async def ask():
            async with quire.aio.QuireClient(self.server.target, timeout=120) as client:
                return [i async for i in client.generate_batch(["One", "Two"], OPTIONS, seed=7)]

        for item in asyncio.run(ask()):
            alone = self.client.generate_text(("One", "Two")[item.index], OPTIONS, seed=7)
            self.assertEqual(item.completion.text, alone.text)


class OlderServerTest(unittest.TestCase):
    """A server from before GenerateBatch had lines."""

    def test_the_command_names_what_the_server_lacks(self):
        def find_no_request(_request, context):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "requests: must have 1 to 1024 requests, not 0",
            )

        with concurrent.futures.ThreadPoolExecutor() as threads:
            server = grpc.server(threads)
            method = grpc.unary_stream_rpc_method_handler(find_no_request)
            server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(
                    "quire.v1.Inference", {"GenerateBatch": method}
                )]  # fmt: skip
            )
            port = server.add_insecure_port("localhost:0")
            server.start()
            done = run_quire_batch(f"localhost:{port}", [quire.job_line("one", "Once")])
            server.stop(None)
        self.assertEqual(done.returncode, 22)  # UNIMPLEMENTED
        self.assertIn("takes no lines of files; update the server", done.stderr.decode())
        self.assertEqual(done.stdout, b"")


if __name__ == "__main__":
    unittest.main()
