"""Peers that keep to no rule: each is a thread that goes on until it is stopped."""

import os
import random
import socket
import ssl
import threading
import urllib.error

import grpc
from answers import PATIENCE
from http2_frames import DATA, END_OF_STREAM, frame, headers, message, opening, reset
from quire import messages
from quire.errors import InvalidRequest, QuireError, calls_failing_as_ours
from quire.types import Options
from quire.v1 import inference_pb2

GENERATE = b"/quire.v1.Inference/Generate"
METHODS = (GENERATE, b"/quire.v1.Inference/Tokenize", b"/quire.v1.Control/GetLoad",
           b"/grpc.health.v1.Health/Watch", b"/quire.v1.Sessions/Import", b"/no.such/Method")
CALLS_AT_ONCE = 100


class Peer(threading.Thread):
    """`act` is repeated; a connection that is lost or refused is part of it."""

    PAUSE = 0.05  # seconds between two acts

    def __init__(self, world, seed):
        super().__init__(daemon=True, name=type(self).__name__)
        self.world, self.chance = world, random.Random(seed)
        self.lines, self.acts = [], 0

    def run(self):
        with self.world.judge.watching(self.name):
            while not self.world.stopped.wait(self.PAUSE):
                if not self.world.servers.up.is_set():
                    continue
                try:
                    self.act()
                    self.acts += 1
                except (OSError, ssl.SSLError):
                    pass
        for line in self.lines:
            line.close()

    def connect(self, port=None):
        return socket.create_connection(("127.0.0.1", port or self.world.port), timeout=1)

    def keep(self, line, most):
        """Leaves a connection open beside others."""
        self.lines.append(line)
        if len(self.lines) > most:
            self.lines.pop(0).close()


class HalfOpen(Peer):
    """Connections that say nothing, or half of a beginning."""

    def act(self):
        line = self.connect()
        line.sendall(opening()[:self.chance.randint(0, 24)])
        self.keep(line, 30)


class Unfinished(Peer):
    """Calls whose messages lack their ends."""

    def act(self):
        line = self.connect()
        frames = opening()
        for stream in range(1, 9, 2):
            frames += headers(stream, GENERATE, self.world.key_header)
            frames += frame(DATA, 0, stream, b"\0" + (4 << 20).to_bytes(4, "big") + bytes(8000))
        line.sendall(frames)
        self.keep(line, 20)


class SlowReader(Peer):
    """Long streams whose reader allows a few bytes, and then no more."""

    PAUSE = 0.5

    def act(self):
        request = messages.generate_request("Once", Options(
            max_tokens=1500, ignore_eos=True, top_logprobs=20, temperature=1.0))
        line = self.connect()
        line.sendall(opening(window=1000) + headers(1, GENERATE, self.world.key_header)
                     + frame(DATA, END_OF_STREAM, 1, message(request.SerializeToString())))
        self.keep(line, 4)


class Foreigner(Peer):
    """Other protocols, and none, on both ports."""

    def act(self):
        port = self.chance.choice((self.world.port, self.world.metrics_port))
        with self.connect(port) as line:
            way = self.chance.randrange(3)
            if way == 0:
                line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            elif way == 1:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.wrap_socket(line).close()
            else:
                line.sendall(os.urandom(self.chance.randint(1, 5000)))
            line.recv(1000)


class Flood(Peer):
    """Calls and their resets, before, within and behind the message, while `world.flood` is set."""

    PAUSE = 0.01

    def act(self):
        if not self.world.flood.wait(0.2):
            return
        with self.connect() as line:
            line.settimeout(5)
            line.sendall(opening())
            threading.Thread(target=self.drop, args=(line,), daemon=True).start()
            stream = 1
            while self.world.flood.is_set() and not self.world.stopped.wait(self.PAUSE):
                calls = range(stream, stream + 2 * CALLS_AT_ONCE, 2)
                line.sendall(b"".join(map(self.one, calls)))
                stream += 2 * CALLS_AT_ONCE

    @staticmethod
    def drop(line):
        """Reads what the server sends, or both sides would block."""
        try:
            while line.recv(65536):
                pass
        except OSError:
            pass

    def one(self, stream):
        path, way = self.chance.choice(METHODS), self.chance.randrange(3)
        end = (b"", frame(DATA, 0, stream, b"\0\0"),
               frame(DATA, END_OF_STREAM, stream, message(b"\x1a\2hi")))[way]
        return headers(stream, path, self.world.key_header) + end + reset(stream)


class BadAsker(Peer):
    """Requests that are wrong in one field each, and callers without a key."""

    PAUSE = 0.2

    def __init__(self, world, seed):
        super().__init__(world, seed)
        self.line, self.stranger = world.line(), world.line(key="")
        wrong = ({"temperature": -1.0}, {"top_p": float("nan")}, {"max_tokens": 1 << 30},
                 {"min_tokens": 9, "max_tokens": 2}, {"regex": "(("}, {"json_schema": "{"},
                 {"stop": [""]}, {"session_id": "a b"}, {"n": 1000})
        self.requests = [messages.generate_request("Once", Options(**each)) for each in wrong]
        self.requests += [messages.generate_request([1 << 20], Options()),
                          inference_pb2.GenerateRequest()]

    def act(self):
        if self.chance.random() < 0.2:
            self.ask_as_a_stranger()
            return
        request = self.chance.choice(self.requests)
        with self.world.judge.call("a wrong request"):
            try:
                with calls_failing_as_ours():
                    self.line.inference.GenerateUnary(request, metadata=self.line.headers,
                                                      timeout=PATIENCE)
                self.world.judge.fault(f"a wrong request got an answer: {request}")
            except InvalidRequest as error:
                if not error.violations:
                    self.world.judge.fault(f"no field is named: {error}, {request}")

    def ask_as_a_stranger(self):
        try:
            with calls_failing_as_ours():
                self.stranger.inference.GenerateUnary(self.requests[0], timeout=PATIENCE)
        except QuireError as error:
            if error.code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE):
                self.world.judge.fault(f"a caller without a key got {error}")


class Scraper(Peer):
    """Reads the admin port as monitoring does."""

    PAUSE = 0.3

    def act(self):
        for path in ("/metrics", "/livez", "/readyz", "/"):
            try:
                self.world.servers.page(path)
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    self.world.judge.fault(f"{path} answered {error.code}")


PEERS = (HalfOpen, Unfinished, SlowReader, Foreigner, Flood, Flood, BadAsker, Scraper)
