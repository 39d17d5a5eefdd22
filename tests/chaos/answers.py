"""Requests of all kinds, what a call brought of its answer, and the connection that they take."""

import dataclasses
import importlib
import pathlib
import subprocess
import sys

import grpc
from quire import messages
from quire.caller import Caller
from quire.connection import Connection
from quire.errors import calls_failing_as_ours
from quire.retries import ONE_ATTEMPT
from quire.sessions import Sessions
from quire.types import Message, Options
from quire.v1 import inference_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60  # seconds: beyond it something hangs; never how long a thing should take
# A server that was away is found again soon, and each line is a connection of its own. The library
# repeats no call: with its retries grpcio 1.51 loses the end of a call now and then when the server
# is killed, and such a call waits past its deadline for ever.
CHANNEL = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1),
           ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))
PROMPTS = ("Once upon a time", "Tom and Lily had a red ball.", "The secret number of Mia is")
PERSON = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "maxLength": 10},
                         "age": {"type": "integer", "minimum": 0, "maximum": 150}}}


class Line:
    """A tenant's connection, and the stubs on it."""

    def __init__(self, target, key=None):
        headers = (("authorization", f"Bearer {key}"),) if key else ()
        connection = Connection(target, None, list(CHANNEL), headers, ())
        self.caller = Caller(connection, PATIENCE, ONE_ATTEMPT)
        self.channel = connection.open(grpc)  # for methods without a stub
        self.inference, self.control = self.caller.inference, self.caller.control
        self.sessions = Sessions(self.caller)
        self.headers = connection.metadata()

    def close(self):
        self.caller.close()
        self.channel.close()


class Broken(Exception):
    """What came over a call contradicts itself."""


@dataclasses.dataclass
class Told:
    """What came of a call: tokens and end of each answer, or a whole reply."""

    tokens: dict = dataclasses.field(default_factory=dict)  # by index of the answer
    ends: dict = dataclasses.field(default_factory=dict)
    whole: object = None
    finished: object = None  # the last message of a stream's answer
    refused: list = dataclasses.field(default_factory=list)  # code and reason of items that failed

    def take(self, frame):
        kind = frame.WhichOneof("event")
        if kind == "tokens":
            index, ids = frame.tokens.index, frame.tokens.token_ids
            known = self.tokens.setdefault(index, [])
            known.extend(ids)
            if index in self.ends or frame.tokens.cumulative_tokens != len(known):
                raise Broken(f"answer {index} has {len(known)} tokens, and its frame says "
                             f"{frame.tokens.cumulative_tokens}; ended: {index in self.ends}")
        elif kind == "finished":
            if frame.finished.index in self.ends:
                raise Broken(f"answer {frame.finished.index} ended twice")
            self.ends[frame.finished.index] = frame.finished.reason
            self.finished = frame.finished

    def begins(self, other):
        """Whether all that is here is the beginning of `other`."""
        return (self.whole in (None, other.whole)
                and all(other.ends.get(i) == end and self.tokens.get(i) == other.tokens.get(i)
                        for i, end in self.ends.items())
                and all(ids == other.tokens.get(i, [])[:len(ids)]
                        for i, ids in self.tokens.items()))

    def equals(self, other):
        return (self.tokens, self.ends, self.whole) == (other.tokens, other.ends, other.whole)


def read(call, told, cancel_after=None):
    """Reads a stream to its end, or cancels it after so many tokens; raises QuireError."""
    with calls_failing_as_ours():
        for frame in call:
            told.take(frame)
            if cancel_after is not None and sum(map(len, told.tokens.values())) >= cancel_after:
                call.cancel()


class Streamed:
    """A request whose tokens come one by one."""

    def __init__(self, prompt, **options):
        made = messages.chat_request if isinstance(prompt, list) else messages.generate_request
        self.request = made(prompt, Options(**options))

    def run(self, line, told, timeout=PATIENCE, cancel_after=None):
        call = line.inference.Generate(self.request, timeout=timeout, metadata=line.headers)
        read(call, told, cancel_after)
        if len(told.ends) != max(1, self.request.n):
            raise Broken(f"the call is OK, with {len(told.ends)} ends")


class Whole(Streamed):
    """A request whose answer comes in one message."""

    def run(self, line, told, timeout=PATIENCE, cancel_after=None):
        with calls_failing_as_ours():
            done = line.inference.GenerateUnary(self.request, timeout=timeout,
                                                metadata=line.headers)
        answer = messages.completion_of(done)
        told.whole = [(each.text, list(each.token_ids), each.finished.reason)
                      for each in (answer, *answer.further_answers)]


class Items:
    """Texts that are read: scored, or made vectors. Each is told once, in any order."""

    def __init__(self, method, request, value):
        self.method, self.value = method, value
        self.request = messages.read_items(request, PROMPTS, {})

    def run(self, line, told, timeout=PATIENCE, cancel_after=None):
        call = getattr(line.inference, self.method)(self.request, timeout=timeout,
                                                    metadata=line.headers)
        found = {}
        with calls_failing_as_ours():
            for item in call:
                if item.index in found:
                    raise Broken(f"item {item.index} is told twice")
                if item.HasField("status"):
                    told.refused.append((item.status.code, item.status.reason or None))
                found[item.index] = None if item.HasField("status") else self.value(item)
        if len(found) < len(PROMPTS):
            raise Broken(f"the call is OK, with {len(found)} of {len(PROMPTS)} items")
        told.whole = None if told.refused else found


class Foreign:
    """A request in the protocol of vLLM."""

    def __init__(self, folder):
        subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={folder}",
                        "field/vllm_inference.proto"], check=True)
        sys.path.insert(0, str(folder))
        self.types = importlib.import_module("field.vllm_inference_pb2")
        self.request = self.types.GenerateRequest(text=PROMPTS[0], temperature=0.0)
        self.request.stopping.max_new_tokens = 24
        self.request.response.output_token_ids = True

    def run(self, line, told, timeout=PATIENCE, cancel_after=None):
        method = line.channel.unary_unary(
            "/vllm.Inference/Generate", request_serializer=self.types.GenerateRequest
            .SerializeToString, response_deserializer=self.types.GenerateResponse.FromString)
        with calls_failing_as_ours():
            told.whole = list(method(self.request, timeout=timeout,
                                     metadata=line.headers).outputs.token_ids)


def rounded(values):
    return tuple(round(value, 4) for value in values)


def kinds(folder):
    """A few requests of each kind, by name; `folder` is for generated modules."""
    found = {}
    for seed, prompt in enumerate(PROMPTS):
        free = {"temperature": 1.0, "seed": seed, "ignore_eos": True}
        found[f"stream {seed}"] = Streamed(prompt, max_tokens=60 + 70 * seed, **free)
        found[f"whole {seed}"] = Whole(prompt, max_tokens=20, **free)
        found[f"answers {seed}"] = Streamed(prompt, max_tokens=25, n=3, **free)
        found[f"regex {seed}"] = Streamed(prompt, max_tokens=30, seed=seed,
                                          regex="[A-Z][a-z]{2,6}( and [A-Z][a-z]{2,6}){1,2}")
        found[f"schema {seed}"] = Whole(prompt, max_tokens=50, seed=seed, json_schema=PERSON)
        found[f"chat {seed}"] = Streamed([Message("user", prompt)], max_tokens=40, seed=seed,
                                         temperature=0.9)
    # Long, and greedy: its tokens are those of a cache that others fill too.
    found["story"] = Streamed(PROMPTS[0], max_tokens=400, temperature=0.0, ignore_eos=True)
    found["score"] = Items("Score", inference_pb2.ScoreRequest(),
                           lambda item: (round(item.sum, 3), item.count))
    found["embed"] = Items("Embed", inference_pb2.EmbedRequest(),
                           lambda item: rounded(item.embedding))
    found["vllm"] = Foreign(folder)
    return found
