#!/usr/bin/python3
"""OpenAI's API by the gateway smg, a program of others, in front of real servers: gateway_test.py
SERVER. The client is the openai package; expected texts are those of transformers
(tests/testdata/demo_model/greedy.json).
"""

import concurrent.futures
import copy
import hashlib
import io
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import python_tools

try:
    TOOLS = python_tools.interpreter()
except unittest.SkipTest as reason:
    print(f"skipped: {reason}")
    sys.exit(0)
if TOOLS != sys.executable:
    os.execv(TOOLS, [TOOLS, *sys.argv])

import grpc
import openai
import quire
import smg_grpc_proto
from google.protobuf import descriptor_pb2
from smg_grpc_proto import vllm_engine_pb2, vllm_engine_pb2_grpc
from smg_grpc_proto.generated import common_pb2

import gateway
from gateway import PATIENCE, Gateway, Server, fetch, wait_for
from parrot_model import write_parrot

ROOT = python_tools.ROOT
GREEDY = json.loads((ROOT / "tests/testdata/demo_model/greedy.json").read_text())["cases"]
# Cases whose tokens no rounding changes, by far, and that end by themselves.
CERTAIN = [case for case in GREEDY if "messages" in case and min(case["margins"]) > 1]
# One cache hit in eight goes to a server without that prefix otherwise, to warm it.
STEADY = ["--worker-warmup-divert-every", "0", "--worker-warmup-secs", "0"]


def client_of(url, **options):
    return openai.OpenAI(
        base_url=f"{url}/v1", api_key="none", timeout=PATIENCE, max_retries=0, **options
    )


def user(text):
    return [{"role": "user", "content": text}]


class OneServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.gateway = Gateway([cls.server])
        cls.addClassCleanup(cls.gateway.stop)
        cls.client = client_of(cls.gateway.url)

    def chat(self, messages, **options):
        return self.client.chat.completions.create(model="demo", messages=messages, **options)

    def refused(self, kind, text, **options):
        """A chat that is refused with an error of `kind` whose message has `text`."""
        with self.assertRaises(kind) as refused:
            self.chat(user("Hello"), **options)
        self.assertIn(text, refused.exception.message)

    def test_lists_the_model(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["demo"])

    def test_chats_equal_those_of_transformers(self):
        self.assertGreaterEqual(len(CERTAIN), 6)
        for case in CERTAIN:
            with self.subTest(text=case["expected_text"]):
                done = self.chat(case["messages"], temperature=0, max_tokens=96)
                self.assertEqual(done.choices[0].message.content, case["expected_text"])
                self.assertEqual(done.choices[0].finish_reason, "stop")
                self.assertEqual(done.usage.prompt_tokens, len(case["prompt_ids"]))
                self.assertEqual(done.usage.completion_tokens, len(case["expected_ids"]))

    def test_streamed_chats_equal_those_of_transformers(self):
        for case in CERTAIN:
            chunks = list(
                self.chat(
                    case["messages"],
                    temperature=0,
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            self.assertEqual(text, case["expected_text"])
            self.assertGreater(len(chunks), 3, "a stream of one chunk is none")
            self.assertEqual(chunks[-1].usage.completion_tokens, len(case["expected_ids"]))

    def test_completions_equal_those_of_transformers(self):
        for case in (c for c in GREEDY if "text" in c):
            # Up to the first close call between two tokens, and a byte less: a token may be a part
            # of a character.
            certain = next((i for i, m in enumerate(case["margins"]) if m < 0.004), 96)
            ask = {
                "model": "demo",
                # The gateway adds no special tokens to the text of a completion.
                "prompt": "<|bos|>" + case["text"],
                "temperature": 0,
                "max_tokens": max(certain - 1, 1),
            }
            done = self.client.completions.create(**ask)
            self.assertTrue(case["expected_text"].startswith(done.choices[0].text))
            self.assertEqual(done.usage.prompt_tokens, len(case["prompt_ids"]))
            streamed = self.client.completions.create(**ask, stream=True)
            text = "".join(chunk.choices[0].text for chunk in streamed if chunk.choices)
            self.assertEqual(text, done.choices[0].text)

    def test_several_outputs_differ_and_a_seed_repeats_them(self):
        def ask(**options):
            done = self.chat(user("Tell me a story."), n=3, max_tokens=30, seed=5, **options)
            return [choice.message.content for choice in done.choices]

        texts = ask()
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(ask(), texts)

    def test_outputs_of_one_request_are_streamed_beside_each_other(self):
        texts = {}
        for chunk in self.chat(
            user("Tell me a story."), n=3, max_tokens=30, seed=5, stream=True
        ):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        done = self.chat(user("Tell me a story."), n=3, max_tokens=30, seed=5)
        self.assertEqual(texts, {c.index: c.message.content for c in done.choices})

    def test_a_stop_string_ends_the_text_before_it(self):
        done = self.chat(user("What is the opposite of hot?"), temperature=0, stop=[" cold"])
        self.assertEqual(done.choices[0].message.content, "The opposite of hot is")
        self.assertEqual(done.choices[0].finish_reason, "stop")

    def test_log_probabilities_of_the_drawn_tokens(self):
        done = self.chat(
            user("What is the opposite of hot?"), temperature=0, logprobs=True, top_logprobs=0
        )
        tokens = done.choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in tokens), "The opposite of hot is cold.")
        # The margins of these tokens are above 8, so each has nearly all of the probability.
        for token in tokens:
            self.assertTrue(-0.01 < token.logprob <= 0, token)
        done = self.chat(
            user("What is the opposite of hot?"), temperature=0, logprobs=True, top_logprobs=3
        )
        for token in done.choices[0].logprobs.content:
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertEqual(len({top.token for top in token.top_logprobs}), 3)
            mass = [math.exp(top.logprob) for top in token.top_logprobs]
            self.assertEqual(mass, sorted(mass, reverse=True))
            self.assertLessEqual(sum(mass), 1.0001)

    def test_refusals_have_their_code_and_our_words(self):
        schema = {"name": "x", "schema": {"type": "nonsense"}}
        bad, ours = openai.BadRequestError, "sampling_params."
        self.refused(
            bad,
            f"{ours}json_schema: ",
            response_format={"type": "json_schema", "json_schema": schema},
        )
        self.refused(bad, f"{ours}regex: ", extra_body={"regex": "("})
        self.refused(bad, "sampling_params.max_tokens: ", max_tokens=4096)
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="nope", messages=user("Hello"))
        status, text = fetch(f"{self.gateway.url}/v1/embeddings", {"model": "demo", "input": "a"})
        self.assertEqual(status, 501)
        self.assertIn("embeddings are not served", text)
        # None of these harmed the server.
        self.assertEqual(self.chat(user("Hello"), max_tokens=3).usage.completion_tokens, 3)

    def test_a_response_format_holds(self):
        schema = {
            "type": "object",
            "properties": {"age": {"type": "integer"}, "kind": {"enum": ["cat", "dog"]}},
            "required": ["age", "kind"],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}
        text = self.chat(user("A pet?"), response_format=form, max_tokens=60).choices[0].message
        pet = json.loads(text.content)
        self.assertEqual(list(pet), ["age", "kind"])
        self.assertIn(pet["kind"], ("cat", "dog"))
        text = self.chat(user("A pet?"), response_format={"type": "json_object"}, max_tokens=40)
        self.assertIsInstance(json.loads(text.choices[0].message.content), dict)

    def test_a_forced_tool_call_is_made_and_an_offered_one_is_left_to_the_model(self):
        parameters = {"type": "object", "properties": {"on": {"type": "boolean"}},
                      "required": ["on"]}  # fmt: skip
        function = {"name": "f", "description": "d", "parameters": parameters}
        tools = [{"type": "function", "function": function}]
        forced = self.chat(user("Now!"), tools=tools, tool_choice="required", max_tokens=100)
        for call in forced.choices[0].message.tool_calls:
            self.assertEqual(call.function.name, "f")
            self.assertIsInstance(json.loads(call.function.arguments)["on"], bool)
        self.assertTrue(forced.choices[0].message.tool_calls)
        # The demo model's template has no place for tools: it answers as without them.
        with_tools = self.chat(user("What is the opposite of hot?"), temperature=0, tools=tools)
        self.assertEqual(with_tools.choices[0].message.content, "The opposite of hot is cold.")
        self.assertIsNone(with_tools.choices[0].message.tool_calls)

    def test_a_client_that_leaves_ends_its_request(self):
        def cancelled():
            return self.server.metric("quire_requests_finished_total", 'reason="CANCELLED"')

        for options in ({}, {"n": 3}):
            before = cancelled()
            stream = self.chat(
                user("Tell me a story."),
                stream=True,
                max_tokens=4000,
                extra_body={"ignore_eos": True},
                **options,
            )
            next(iter(stream))
            stream.close()
            outputs = options.get("n", 1)
            wait_for(lambda: cancelled() == before + outputs, "the request's end in the server")
            wait_for(lambda: self.server.metric("quire_streams_open") == 0, "the call's end")

    def test_the_tokenizer_arrives_whole(self):
        with grpc.insecure_channel(self.server.address) as channel:
            stub = vllm_engine_pb2_grpc.VllmEngineStub(channel)
            parts = list(stub.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=PATIENCE))
        archive = b"".join(part.data for part in parts)
        self.assertEqual(parts[-1].sha256, hashlib.sha256(archive).hexdigest())
        self.assertEqual({part.sha256 for part in parts[:-1]}, {""})
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            self.assertIsNone(files.testzip())
            for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
                self.assertEqual(files.read(name), (ROOT / "models/demo" / name).read_bytes())
            self.assertNotIn("model.safetensors", files.namelist())

    def test_the_gateway_flushes_caches(self):
        self.chat(user("Tell me a story."), max_tokens=40)
        status, text = fetch(f"{self.gateway.url}/flush_cache", {})
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text)["workers_flushed"], 1, text)


class ToolsTest(unittest.TestCase):
    """The gateway makes tool calls of a model's text. This model says nothing else."""

    PIECES = (
        "<tool_call>\n", '{"name": "weather", ', '"arguments": {"city": "Paris"}}', "\n</tool_call>"
    )  # fmt: skip
    TOOLS = (
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather of a city.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        },
    )

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        write_parrot(pathlib.Path(folder.name), cls.PIECES)
        server = Server("--model", folder.name, "--served-model-name", "demo")
        cls.addClassCleanup(server.stop)
        front = Gateway([server], "--tool-call-parser", "qwen")
        cls.addClassCleanup(front.stop)
        cls.client = client_of(front.url)

    def ask(self, **options):
        return self.client.chat.completions.create(
            model="demo", messages=user("How is the weather?"), temperature=0, **options
        )

    def check(self, name, arguments, finish_reason):
        self.assertEqual(name, "weather")
        self.assertEqual(json.loads(arguments), {"city": "Paris"})
        self.assertEqual(finish_reason, "tool_calls")

    def test_text_becomes_a_tool_call(self):
        done = self.ask(tools=self.TOOLS)
        choice = done.choices[0]
        (call,) = choice.message.tool_calls
        self.check(call.function.name, call.function.arguments, choice.finish_reason)
        self.assertIsNone(choice.message.content)
        plain = self.ask()
        self.assertEqual(plain.choices[0].message.content, "".join(self.PIECES))
        self.assertEqual(plain.choices[0].finish_reason, "stop")
        self.assertGreater(done.usage.prompt_tokens, plain.usage.prompt_tokens, "tools are told")

    def test_streamed_text_becomes_a_tool_call(self):
        name, arguments, reason = "", "", None
        for chunk in self.ask(tools=self.TOOLS, stream=True):
            self.assertFalse(chunk.choices[0].delta.content)
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
            reason = chunk.choices[0].finish_reason or reason
        self.check(name, arguments, reason)


class PromptsTest(unittest.TestCase):
    """The gateway renders chats by itself: to the prompts that jinja2 prints for the same template,
    which are those of quire.v1 (chat_templates_test.py).
    """

    FAMILY = "qwen3.jinja"
    GOLDENS = json.loads((ROOT / "tests/testdata/chat_templates/goldens.json").read_text())

    @classmethod
    def setUpClass(cls):
        cls.server = Server(
            "--chat-template", str(ROOT / "tests/testdata/chat_templates/families" / cls.FAMILY)
        )
        cls.addClassCleanup(cls.server.stop)
        front = Gateway([cls.server])
        cls.addClassCleanup(front.stop)
        cls.client = client_of(front.url)
        cls.direct = quire.QuireClient(cls.server.address, timeout=PATIENCE)
        cls.addClassCleanup(cls.direct.close)

    def chats(self):
        """Those that OpenAI's API can say, and what jinja2 prints for them."""
        for name, _, number, outcome, text in self.GOLDENS["cases"]:
            chat = copy.deepcopy(self.GOLDENS["chats"][number])
            tools = [m for m in chat["messages"] if m["role"] == "tool"]
            sayable = all(isinstance(m["content"], (str, type(None))) for m in chat["messages"])
            if (name, outcome) != (self.FAMILY, "ok") or not sayable or "documents" in chat:
                continue
            if chat["add_generation_prompt"] and all("tool_call_id" in m for m in tools):
                yield chat, text

    def expect_prompt(self, chat, text, **extra):
        """The gateway's prompt for the chat is `text`: its KV is found under the tokens of that."""
        for message in chat["messages"]:
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        done = self.client.chat.completions.create(
            model="demo", messages=chat["messages"], tools=chat.get("tools", openai.omit),
            max_tokens=1, extra_body={"chat_template_kwargs": chat.get("kwargs", {}), **extra},
        )  # fmt: skip
        ids = [token.id for token in self.direct.tokenize(text, add_special_tokens=False)]
        self.assertEqual(done.usage.prompt_tokens, len(ids), text)
        again = self.direct.generate_text(ids, max_tokens=1)
        self.assertEqual(again.finished.usage.cached_tokens, (len(ids) - 1) // 16 * 16, text)

    def test_tools_calls_results_and_variables(self):
        chats = list(self.chats())
        self.assertGreater(len(chats), 8)
        self.assertTrue(any("tools" in chat and "kwargs" in chat for chat, _ in chats))
        for chat, text in chats:
            self.expect_prompt(chat, text)

    def test_the_last_message_is_continued(self):
        messages = user("Tell me a story.") + [{"role": "assistant", "content": "The fox"}]
        ids = [t.id for t in self.direct.tokenize(messages, continue_final_message=True)]
        text = self.direct.detokenize(ids, skip_special_tokens=False)
        self.assertTrue(text.endswith("The fox"))
        self.expect_prompt({"messages": messages}, text, continue_final_message=True)

    def test_what_the_gateway_drops(self):
        text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        document = {"title": "T", "text": "x"}
        for extra in ({"documents": [document]}, {"add_generation_prompt": False}):
            self.expect_prompt({"messages": user("Hi")}, text, **extra)
        parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
        self.expect_prompt({"messages": user(parts)}, text.replace("Hi", "H\ni"))


def messages_of(folder, files):
    """The facts of .proto files that are seen on the wire. A name may have an underscore behind it
    where a language cannot have the name itself.
    """
    with tempfile.TemporaryDirectory() as temporary:
        out = f"{temporary}/set.pb"
        subprocess.run(
            ["protoc", f"-I{folder}", f"-o{out}", "--include_imports", *files], check=True
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out).read_bytes())
    facts = set()

    def add(prefix, message):
        name = f"{prefix}.{message.name}"
        facts.add(name)
        for field in message.field:
            group = ""
            if field.HasField("oneof_index"):
                group = message.oneof_decl[field.oneof_index].name
            facts.add(
                (name, field.name.rstrip("_"), field.number, field.type, field.label,
                 field.type_name, group, field.proto3_optional)
            )  # fmt: skip
        for nested in message.nested_type:
            add(name, nested)

    for file in files.file:
        for message in file.message_type:
            add(file.package, message)
        for enum in file.enum_type:
            facts.update((file.package, enum.name, v.name, v.number) for v in enum.value)
        for service in file.service:
            for method in service.method:
                facts.add(
                    (file.package, service.name, method.name, method.input_type,
                     method.output_type, method.client_streaming, method.server_streaming)
                )  # fmt: skip
    return facts


class ProtocolTest(unittest.TestCase):
    def test_names_numbers_and_types_are_those_of_the_field(self):
        theirs = messages_of(
            pathlib.Path(smg_grpc_proto.__file__).parent / "proto", ["vllm_engine.proto"]
        )
        ours = messages_of(ROOT / "proto", ["field/vllm_engine.proto"])
        self.assertEqual(ours, theirs)

    def test_a_newer_field_is_refused_by_its_number(self):
        server = Server()
        self.addCleanup(server.stop)
        request = vllm_engine_pb2.GenerateRequest(
            tokenized=vllm_engine_pb2.TokenizedInput(input_ids=[884])
        )
        with grpc.insecure_channel(server.address) as channel:
            generate = channel.unary_stream("/vllm.grpc.engine.VllmEngine/Generate")
            with self.assertRaises(grpc.RpcError) as refused:
                list(generate(request.SerializeToString() + b"\xa0\x06\x01", timeout=PATIENCE))
        self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("field number 100: ", refused.exception.details())


class ThreeServersTest(unittest.TestCase):
    def serve(self, *flags):
        """Three servers and a gateway in front of them."""
        self.servers = [Server() for _ in range(3)]
        for server in self.servers:
            self.addCleanup(server.stop)
        self.gateway = Gateway(self.servers, *flags)
        self.addCleanup(self.gateway.stop)
        return client_of(self.gateway.url)

    def cached_tokens(self):
        return [server.metric("quire_prefix_cache_hit_tokens_total") for server in self.servers]

    def test_a_conversation_stays_at_the_server_that_has_its_kv(self):
        client = self.serve(*STEADY)
        for name in ("Clara", "Oscar", "Molly", "Peter"):
            messages = user(f"Hello, my name is {name}. Tell me a story about a fox.")
            before = self.cached_tokens()
            last = None
            for turn in range(4):
                known = self.gateway.indexed_blocks()
                done = client.chat.completions.create(
                    model="demo", messages=messages, temperature=0, max_tokens=48
                )
                usage = done.usage
                cached = usage.prompt_tokens_details.cached_tokens
                if turn > 0:
                    # All full blocks of the turn before; its last token has no KV yet.
                    self.assertGreaterEqual(cached, (last - 1) // 16 * 16 - 16, f"{name} {turn}")
                last = usage.total_tokens
                messages.append(done.choices[0].message.to_dict(mode="json"))
                messages += user("And then?")
                # Events come after the answer: the next turn is sent when the gateway knows of the
                # blocks of this one.
                wait_for(
                    lambda known=known: sum(self.gateway.indexed_blocks().values())
                    > sum(known.values()),
                    "the events of the new blocks",
                )
            gained = [now > then for now, then in zip(self.cached_tokens(), before)]
            self.assertEqual(gained.count(True), 1, f"{name} found its KV at one server: {gained}")

    def test_requests_of_a_killed_server_go_to_another(self):
        client = self.serve("--policy", "round_robin")

        def ask(i):
            case = CERTAIN[i % len(CERTAIN)]
            done = client.chat.completions.create(
                model="demo", messages=case["messages"], temperature=0
            )
            self.assertEqual(done.choices[0].message.content, case["expected_text"])

        for i in range(6):
            ask(i)
        served = [server.metric("quire_requests_finished_total") for server in self.servers]
        self.assertGreaterEqual(min(served), 2, "each server had its turn")
        self.servers[1].kill()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(24)))

    def test_a_draining_server_gets_no_more_requests_and_loses_none(self):
        client = self.serve("--policy", "round_robin")
        self.servers[2].process.terminate()
        for i in range(9):
            case = CERTAIN[i % len(CERTAIN)]
            done = client.chat.completions.create(
                model="demo", messages=case["messages"], temperature=0
            )
            self.assertEqual(done.choices[0].message.content, case["expected_text"])


# Runs a command in a network and a process table of its own, which end with it.
ALONE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--map-root-user"]
# Brings the loopback of a new network up (SIOCSIFFLAGS with IFF_UP), then runs a shell script.
LOOPBACK_UP = """
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 1, b""))
os.execvp("bash", ["bash", "-euo", "pipefail", "-c", sys.argv[1]])
"""


def readme_section():
    """The commands and the Python program of README's section on the gateway."""
    text = (ROOT / "README.md").read_text()
    section = re.search(r"^## An OpenAI URL$(.*?)^## ", text, re.M | re.S).group(1)
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", section, re.M)
    return commands, re.search(r"^```python\n(.*?)^```$", section, re.M | re.S).group(1)


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        if subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode:
            self.skipTest("unshare may not make a network here")

    def test_the_commands_work_as_they_stand(self):
        commands, program = readme_section()
        self.assertEqual(len(commands), 4)
        commands[0] = commands[0].replace("build/release/bin/quire-server", str(gateway.BINARY))
        self.assertIn(str(gateway.BINARY), commands[0])
        for i in (0, 1):
            commands[i] = commands[i].replace(" &", " >&2 &")
        marked = [f"{command}\necho; echo ====" for command in commands[2:]]
        script = "\n".join([*commands[:2], *marked, f"{TOOLS} -c '{program}'"])
        run = subprocess.run(
            [*ALONE, sys.executable, "-c", LOOPBACK_UP, script],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        whole, stream, python = run.stdout.split("====\n")
        expected = "The opposite of hot is cold."
        self.assertEqual(json.loads(whole)["choices"][0]["message"]["content"], expected)
        events = re.findall(r"^data: (.*)$", stream, re.M)
        self.assertEqual(events[-1], "[DONE]")
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), expected)
        self.assertEqual(python.strip(), expected)


if __name__ == "__main__":
    unittest.main()
