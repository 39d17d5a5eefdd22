#!/usr/bin/python3
"""Files in OpenAI's batch format, as jobs and by `quire batch`: openai_lines_test.py SERVER QUIRE.

The answers expected are those of quire.v1's own calls. The shape of results is checked with
OpenAI's published schema, of which `check_shape` has the required members.
"""
# Covers server/lines/request_line.cc, server/batch/generate_items.cc, clients/cpp/batch.cc

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import quire
from running_server import RunningServer

QUIRE = sys.argv.pop(1) if len(sys.argv) > 1 else None
CHAT = [{"role": "system", "content": "You tell stories."},
        {"role": "user", "content": "Tell a story about a fox"}]  # fmt: skip
TOOL = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
    "additionalProperties": False}}}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"z": {"type": "boolean"}, "a": {"type": "boolean"}},
          "required": ["z", "a"], "additionalProperties": False}  # fmt: skip


def line(custom_id, body, url="/v1/chat/completions"):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def chat(custom_id, **members):
    return line(custom_id, {"model": "demo", "messages": CHAT, "seed": 7, **members})


def completion(custom_id, **members):
    body = {"model": "demo", "prompt": "Once upon a time", "seed": 7, **members}
    return line(custom_id, body, "/v1/completions")


LINES = [
    chat("chat", max_tokens=12, temperature=0.9, top_p=0.9),
    completion("completion", max_completion_tokens=None),
    chat("several", n=3, max_completion_tokens=5, temperature=0.8),
    chat("scores", max_tokens=4, temperature=0, logprobs=True, top_logprobs=2),
    completion("old scores", max_tokens=4, temperature=0, logprobs=1),
    chat("schema", response_format={"type": "json_schema", "json_schema": {
        "name": "two", "strict": True, "schema": SCHEMA}}),
    chat("call", tools=[TOOL], tool_choice="required"),
    chat("penalties", max_tokens=8, presence_penalty=1.5, frequency_penalty=1,
         repetition_penalty=1.2, min_p=0.01, top_k=50, logit_bias={"5": -100}, stop=["."]),
    chat("parts", max_tokens=3, messages=[
        {"role": "user", "content": [{"type": "text", "text": "Tell"}]}]),
]  # fmt: skip
BAD = [  # the line, the status of HTTP and the body's member
    (chat("hot", temperature=3000), 400, "temperature"),
    (chat("long", max_tokens=1_000_000), 400, "max_tokens"),
    (chat("schema", response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "nothing"}}}), 400, "response_format"),
    (completion("many", logprobs=21), 400, "logprobs"),
    (chat("store", store=True), 400, "store"),
    (chat("image", messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400,
     "messages[0].content[0].type"),
    (chat("other", model="gpt-4o-mini"), 404, None),
    (line("embedding", {"input": "x"}, "/v1/embeddings"), 400, "url"),
]  # fmt: skip
OURS = json.loads(quire.job_line("ours", "Once upon a time", max_tokens=3, seed=7))


def file_of(lines):
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


class OpenAiLinesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        flags = ("--session-dir", cls.folder, "--tool-call-parser", "hermes")
        cls.server = RunningServer("--device", "cpu", *flags)
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)

    def quire(self, *arguments, data=b""):
        command = [QUIRE, "--server", self.server.target, *arguments]
        done = subprocess.run(command, input=data, capture_output=True, timeout=300, check=False)
        results = [json.loads(each) for each in done.stdout.splitlines()]
        return done.returncode, done.stderr.decode(), results

    def by_job(self, data):
        code, errors, results = self.quire("job", "create", "-", "--wait", data=data)
        self.assertEqual(code, 0, errors)
        return results

    def by_batch(self, data):
        return self.quire("batch", "-", data=data)[2]

    def check_shape(self, result):
        self.assertEqual(set(result), {"id", "custom_id", "response", "error"}, result)
        self.assertIsNone(result["error"])
        self.assertEqual(set(result["response"]), {"status_code", "request_id", "body"})

    def answers(self, results):
        """The bodies by custom_id."""
        for result in results:
            self.check_shape(result)
            self.assertEqual(result["response"]["status_code"], 200, result)
        self.assertEqual(len({result["id"] for result in results}), len(results))
        return {result["custom_id"]: result["response"]["body"] for result in results}

    def test_answers_are_those_of_calls(self):
        for ask in (self.by_job, self.by_batch):
            with self.subTest(ask.__name__):
                self.check_answers(self.answers(ask(file_of(LINES))))

    def check_answers(self, bodies):
        ask = self.client.generate_text
        self.assertEqual(set(bodies), {each["custom_id"] for each in LINES})
        alone = ask(CHAT, seed=7, max_tokens=12, temperature=0.9, top_p=0.9)
        body = bodies["chat"]
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["model"], "demo")
        (choice,) = body["choices"]
        self.assertEqual(
            choice["message"], {"role": "assistant", "content": alone.text, "refusal": None}
        )
        self.assertEqual(choice["finish_reason"], "length")
        usage = alone.finished.usage
        self.assertEqual(body["usage"]["prompt_tokens"], usage.prompt_tokens)
        self.assertEqual(body["usage"]["completion_tokens"], 12)
        self.assertEqual(body["usage"]["total_tokens"], usage.prompt_tokens + 12)

        alone = ask("Once upon a time", seed=7, max_tokens=16)
        self.assertEqual(bodies["completion"]["object"], "text_completion")
        self.assertEqual(bodies["completion"]["choices"][0]["text"], alone.text)

        alone = ask(CHAT, seed=7, max_tokens=5, temperature=0.8, n=3)
        texts = [alone.text, *(answer.text for answer in alone.further_answers)]
        choices = bodies["several"]["choices"]
        self.assertEqual([choice["index"] for choice in choices], [0, 1, 2])
        self.assertEqual([choice["message"]["content"] for choice in choices], texts)
        self.assertEqual(bodies["several"]["usage"]["completion_tokens"], 15)

        alone = ask(CHAT, seed=7, max_tokens=8, presence_penalty=1.5, frequency_penalty=1,
                    repetition_penalty=1.2, min_p=0.01, top_k=50, logit_bias={5: -100},
                    stop=["."])  # fmt: skip
        self.assertEqual(bodies["penalties"]["choices"][0]["message"]["content"], alone.text)
        alone = ask([{"role": "user", "content": "Tell"}], seed=7, max_tokens=3)
        self.assertEqual(bodies["parts"]["choices"][0]["message"]["content"], alone.text)
        self.check_structures(bodies)
        self.check_scores(bodies)

    def check_structures(self, bodies):
        content = bodies["schema"]["choices"][0]["message"]["content"]
        self.assertEqual(list(json.loads(content)), ["z", "a"])
        (choice,) = bodies["call"]["choices"]
        self.assertEqual(choice["finish_reason"], "tool_calls")
        self.assertIsNone(choice["message"]["content"])
        for call in choice["message"]["tool_calls"]:
            self.assertEqual((call["type"], call["function"]["name"]), ("function", "add"))
            self.assertIn(json.loads(call["function"]["arguments"])["a"], (True, False))

    def check_scores(self, bodies):
        alone = self.client.generate_text(CHAT, max_tokens=4, temperature=0, top_logprobs=2)
        choice = bodies["scores"]["choices"][0]
        content = choice["logprobs"]["content"]
        written = b"".join(bytes(entry["bytes"]) for entry in content)
        self.assertEqual(written.decode().strip(), choice["message"]["content"].strip())
        for entry, score in zip(content, alone.scores, strict=True):
            self.assertEqual(entry["logprob"], score.logprob)
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
            self.assertEqual([top["logprob"] for top in entry["top_logprobs"]],
                             list(score.top.values()))  # fmt: skip
            self.assertEqual(entry["top_logprobs"][0]["token"], entry["token"])  # greedy
        choice = bodies["old scores"]["choices"][0]
        tokens = choice["logprobs"]["tokens"]
        self.assertEqual("".join(tokens).strip(), choice["text"].strip())
        self.assertEqual(choice["logprobs"]["text_offset"][1], len(tokens[0]))
        self.assertEqual(len(choice["logprobs"]["token_logprobs"]), 4)

    def test_a_bad_line_fails_alone(self):
        data = file_of([LINES[0], *(bad for bad, _, _ in BAD), OURS]) + b'{"custom_id": "cut'
        for ask in (self.by_job, self.by_batch):
            with self.subTest(ask.__name__):
                results = ask(data)
                self.assertEqual(len(results), len(BAD) + 3)
                found = {r["id"]: r for r in results if "id" in r}
                for number, (bad, code, param) in enumerate(BAD, 2):
                    result = found.pop(f"batch_req_{number}")
                    self.check_shape(result)
                    self.assertEqual(result["custom_id"], bad["custom_id"])
                    self.assertEqual(result["response"]["status_code"], code, result)
                    error = result["response"]["body"]["error"]
                    self.assertEqual(set(error), {"message", "type", "param", "code"})
                    self.assertEqual(error["param"], param, error)
                self.assertEqual([r["custom_id"] for r in found.values()], ["chat"])
                ours = {r["line"]: r for r in results if "line" in r}
                self.assertEqual(len(ours[len(BAD) + 2]["result"]["token_ids"]), 3)
                self.assertEqual(ours[len(BAD) + 3]["status"]["field"], "line")

    def test_the_command_counts_failures_and_takes_a_model(self):
        lines = [chat("a", model="x"), chat("b", model=None, max_tokens=1)]
        code, errors, results = self.quire("batch", "-", data=file_of(lines))
        self.assertEqual((code, errors), (15, "quire: 1 of 2 lines failed\n"))  # NOT_FOUND
        self.assertEqual(len(results), 2)
        results = self.quire("--model", "x", "batch", "-", data=file_of(lines[1:]))[2]
        self.assertEqual(results[0]["response"]["status_code"], 404)


if __name__ == "__main__":
    unittest.main()
