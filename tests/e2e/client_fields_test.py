#!/usr/bin/python3
"""Every field of GenerateRequest can be set from Python and from the command line:
client_fields_test.py QUIRE."""

import concurrent.futures
import dataclasses
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import grpc
from quire.messages import generate_request
from quire.types import Message, Options
from quire.v1 import inference_pb2, inference_pb2_grpc

BINARY = sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin/quire"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
STRUCTURES = {
    "json_schema": {"type": "null"},
    "json_object": True,
    "regex": "a",
    "grammar": 'root ::= "a"',
    "lark": 'start: "a"',
    "choice": ["a"],
}
OPTIONS = {
    "max_tokens": 5, "min_tokens": 1, "stop": ["x"], "stop_token_ids": [3],
    "include_stop_in_output": True, "ignore_eos": True, "loop_max_tokens": 4,
    "loop_min_repeats": 3, "temperature": 0.5, "top_k": 4, "top_p": 0.5, "min_p": 0.1,
    "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1, "seed": 7,
    "logit_bias": {3: 1.0}, "top_n_sigma": 1.0, "dynatemp_range": 0.1, "dynatemp_exponent": 1.0,
    "typical_p": 0.5, "xtc_probability": 0.5, "xtc_threshold": 0.1, "dry_multiplier": 0.5,
    "dry_base": 1.5, "dry_allowed_length": 2, "dry_last_n": 10, "dry_breaker_ids": [1],
    "allowed_token_ids": [1], "banned_token_ids": [2], "bad_word_ids": [[1, 2]],
    "logit_processors": ["polite"], "n": 2, "best_of": 3, "text": True, "token_ids": True,
    "logprobs": True, "top_logprobs": 1, "logprob_token_ids": [1], "processed_logprobs": True,
    "prompt_logprobs": 1, "skip_special_tokens": False, "model": "m", "request_id": "r",
    "priority": 1, "add_special_tokens": False, "session_id": "s", "expected_position": 1,
    "create_session": True, "bypass_prefix_cache": True, "split_reasoning": True,
    "max_reasoning_tokens": 5, "min_reasoning_tokens": 1, "max_guesses": 4,
    "detach_seconds": 5.0,
}  # fmt: skip
CHAT_OPTIONS = {
    "tools": [TOOL], "tool_choice": "add", "documents": [{"title": "t"}],
    "template_kwargs": {"a": 1}, "template_name": "t",
    "template_time": datetime.datetime(2026, 1, 1), "add_generation_prompt": True,
    "continue_final_message": True,
}  # fmt: skip
# Of StopConditions and others, by the flag that sets the field.
FLAGS = {
    "--max-tokens": "5", "--min-tokens": "1", "--stop": "x", "--stop-token-ids": "3",
    "--include-stop": None, "--ignore-eos": None, "--loop-max-tokens": "4",
    "--loop-min-repeats": "3", "--temperature": "0.5", "--top-k": "4", "--top-p": "0.5",
    "--min-p": "0.1", "--repetition-penalty": "1.1", "--presence-penalty": "0.1",
    "--frequency-penalty": "0.1", "--seed": "7", "--logit-bias": "3=1", "--top-n-sigma": "1",
    "--dynatemp-range": "0.1", "--dynatemp-exponent": "1", "--typical-p": "0.5",
    "--xtc-probability": "0.5", "--xtc-threshold": "0.1", "--dry-multiplier": "0.5",
    "--dry-base": "1.5", "--dry-allowed-length": "2", "--dry-last-n": "10",
    "--dry-breaker-ids": "1", "--allowed-token-ids": "1", "--banned-token-ids": "2",
    "--bad-word-ids": "1,2", "--logit-processor": "polite", "--answers": "2", "--best-of": "3",
    "--json": None, "--logprobs": None, "--top-logprobs": "1", "--logprob-token-ids": "1",
    "--processed-logprobs": None, "--prompt-logprobs": "1", "--keep-special-tokens": None,
    "--model": "m", "--request-id": "r", "--priority": "1", "--no-special-tokens": None,
    "--session": "s", "--expected-position": "1",
    "--no-split-reasoning": None, "--max-reasoning-tokens": "5", "--min-reasoning-tokens": "1",
    "--max-guesses": "4",
}  # fmt: skip
# The command needs the ids itself, for --print-ids and --json.
NO_FLAG = {"output.token_ids"}


def all_fields(descriptor, path=""):
    """Paths of the fields that hold values: "sampling.top_k"."""
    for field in descriptor.fields:
        message = field.message_type
        single = message is not None and field.label != field.LABEL_REPEATED
        if single and message.file.package == "quire.v1":
            yield from all_fields(message, f"{path}{field.name}.")
        else:
            yield path + field.name


def set_fields(message, path=""):
    known = set(all_fields(message.DESCRIPTOR))
    for field, value in message.ListFields():
        if field.name in known:
            yield path + field.name
        else:
            yield from set_fields(value, f"{path}{field.name}.")


ALL = set(all_fields(inference_pb2.GenerateRequest.DESCRIPTOR))


class Inference(inference_pb2_grpc.InferenceServicer):
    """Keeps the last request, and refuses it."""

    request = None

    def Generate(self, request, context):
        self.GenerateUnary(request, context)
        yield

    def GenerateUnary(self, request, context):
        self.request = request
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "seen")


class ClientFieldsTest(unittest.TestCase):
    def test_samples_cover_all_options_of_python(self):
        names = {field.name for field in dataclasses.fields(Options)}
        self.assertEqual(names, set(OPTIONS) | set(CHAT_OPTIONS) | set(STRUCTURES))

    def test_python_sets_every_field(self):
        found = set(set_fields(generate_request("hi", Options(**OPTIONS))))
        found |= set(set_fields(generate_request([1, 2], Options())))
        chat = [Message("user", "hi", {"name": "a"})]
        found |= set(set_fields(generate_request(chat, Options(**CHAT_OPTIONS))))
        for name, value in STRUCTURES.items():
            found |= set(set_fields(generate_request("hi", Options(**{name: value}))))
        self.assertEqual(ALL - found, set())

    def test_the_command_sets_every_field(self):
        service = Inference()
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        inference_pb2_grpc.add_InferenceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        found = set()

        def ask(*arguments, whole="--no-stream"):
            service.request = None
            command = [BINARY, "--server", f"127.0.0.1:{port}", "generate", whole]
            done = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
            )
            self.assertIsNotNone(service.request, (arguments, done.stderr))
            found.update(set_fields(service.request))

        flags = [part for pair in FLAGS.items() for part in pair if part is not None]
        ask("hi", *flags)
        ask("hi", "--print-ids", "--no-prefix-cache")  # which exclude --json and --session
        ask("--token-ids", "1,2")
        with tempfile.TemporaryDirectory() as folder:

            def written(name, text):
                path = pathlib.Path(folder) / name
                path.write_text(text, encoding="utf-8")
                return str(path)

            tools = written("tools.json", json.dumps([TOOL]))
            documents = written("documents.json", json.dumps([{"title": "t"}]))
            ask("hi", "--tools", tools, "--tool-choice", "add", "--documents", documents,
                "--template-kwargs", '{"a": 1}', "--template-name", "t",
                "--template-time", "2026-01-01T00:00:00Z")  # fmt: skip
            ask("hi", "--chat", "--no-generation-prompt")
            ask("hi", "--messages", written("messages.json", '[{"role": "user", "content": "a"}]'),
                "--continue-final-message")  # fmt: skip
            ask("hi", "--json-schema", written("schema.json", '{"type": "null"}'))
            ask("hi", "--grammar", written("a.gbnf", STRUCTURES["grammar"]))
            ask("hi", "--lark", written("a.lark", STRUCTURES["lark"]))
        ask("hi", "--json-object")
        ask("hi", "--detach-seconds", "5", whole="--quiet")
        ask("hi", "--regex", "a")
        ask("hi", "--choice", "a")
        self.assertEqual(ALL - NO_FLAG - found, set())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
