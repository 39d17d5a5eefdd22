#!/usr/bin/python3
"""Lost clients and connections, in real processes: detach_client_test.py SERVER QUIRE."""

import asyncio
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import quire
import quire.aio
from running_server import RunningServer

QUIRE = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
PROMPT = "Once upon a time"
OPTIONS = {"max_tokens": 200, "seed": 7, "temperature": 1.0, "ignore_eos": True}
FLAGS = ("--max-tokens", "200", "--seed", "7", "--temperature", "1", "--ignore-eos")
# Of a call that is cut after some thousand bytes: its answers have more, however few frames they
# come in. Those of 200 tokens may have fewer on a busy machine, where a frame has many tokens.
LONG = OPTIONS | {"max_tokens": 2000}
LONG_FLAGS = ("--max-tokens", "2000", *FLAGS[2:])
WAIT_SECONDS = 60


class CuttingProxy:
    """Passes connections of a Unix socket on; the first is cut after so many bytes of answers."""

    def __init__(self, target, cut_after):
        self._folder = tempfile.TemporaryDirectory()
        self._path = f"{self._folder.name}/proxy.sock"
        self.target = f"unix:{self._path}"
        self._to = target.removeprefix("unix:")
        self._left = cut_after
        self.connections = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._to)
            first = self.connections == 1
            for pair in ((client, server, False), (server, client, first)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source, sink, counted):
        try:
            while data := source.recv(4096):
                # Exactly so many: the first answers may come in one piece with later ones.
                passed = data[: self._left] if counted else data
                sink.sendall(passed)
                if counted:
                    self._left -= len(passed)
                    if self._left == 0:
                        break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self._listener.close()
        self._folder.cleanup()


class DetachTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = RunningServer("--max-detach-seconds", "120")
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=120)
        cls.addClassCleanup(cls.client.close)
        cls.whole = cls.client.generate_text(PROMPT, logprobs=True, top_logprobs=3, **OPTIONS)

    def quire(self, *arguments, target=None):
        return [QUIRE, *arguments, "--server", target or self.server.target]

    def detached(self):
        _, page = self.server.get("/metrics")
        line = next(l for l in page.splitlines() if l.startswith("quire_detached_streams{"))
        return int(float(line.split()[-1]))

    def wait_for(self, condition):
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_a_stream_that_is_left_anywhere_goes_on(self):
        for cut in (1, 2, 3, 17, 100, 199, 200):
            name = f"left-{cut}"
            stream = self.client.generate(
                PROMPT, request_id=name, detach_seconds=60, logprobs=True, top_logprobs=3,
                prompt_logprobs=0, **OPTIONS
            )
            before = []
            for delta in stream:
                before.append(delta)
                if stream.tokens >= cut:
                    break
            stream.cancel()
            self.assertEqual(stream.accepted.options.detach_seconds, 60)
            rest = self.client.attach(name, after_tokens=stream.tokens)
            deltas = before + list(rest)
            self.assertEqual("".join(delta.text for delta in deltas), self.whole.text)
            ids = [token for delta in deltas for token in delta.token_ids]
            self.assertEqual(tuple(ids), self.whole.token_ids)
            scores = [score for delta in deltas for score in delta.scores]
            self.assertEqual(tuple(scores), self.whole.scores)
            again = list(self.client.attach(name))
            self.assertEqual("".join(delta.text for delta in again), self.whole.text)
            self.assertEqual(again[0].prompt_scores, before[0].prompt_scores)
            self.assertEqual(rest.finished.usage.completion_tokens, 200)

    def test_a_client_that_is_killed_costs_nothing(self):
        command = self.quire(
            "generate", "--json", "--detach-seconds", "60", "--request-id", "killed", *FLAGS, PROMPT
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            tokens, text = 0, ""
            for line in process.stdout:
                frame = json.loads(line)
                tokens = frame.get("tokens", {}).get("cumulative_tokens", tokens)
                text += frame.get("tokens", {}).get("text", "")
                if tokens >= 5:
                    break
            process.send_signal(signal.SIGKILL)
        command = self.quire("attach", "killed", "--after", str(tokens))
        rest = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertEqual((text + rest).rstrip("\n"), self.whole.text.rstrip("\n"))
        self.wait_for(lambda: self.detached() == 0)

    def test_the_command_goes_on_by_itself_when_its_connection_is_cut(self):
        proxy = CuttingProxy(self.server.target, cut_after=3000)
        self.addCleanup(proxy.close)
        command = self.quire(
            "generate", "--detach-seconds", "60", *LONG_FLAGS, PROMPT, target=proxy.target
        )
        whole = self.client.generate_text(PROMPT, **LONG)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the connection is lost", done.stderr)
        self.assertGreater(proxy.connections, 1)
        self.assertEqual(done.stdout.replace("\n", ""), whole.text.replace("\n", ""))

    def test_the_client_goes_on_by_itself_when_its_connection_is_cut(self):
        options = {"detach_seconds": 60, "logprobs": True, "top_logprobs": 3, **OPTIONS}

        def judge(stream, deltas):
            self.assertEqual("".join(delta.text for delta in deltas), self.whole.text)
            ids = [token for delta in deltas for token in delta.token_ids]
            self.assertEqual(tuple(ids), self.whole.token_ids)
            scores = [score for delta in deltas for score in delta.scores]
            self.assertEqual(tuple(scores), self.whole.scores)
            self.assertEqual(stream.finished.usage.completion_tokens, 200)

        async def awaited(target):
            async with quire.aio.QuireClient(target, timeout=120) as client:
                stream = client.generate(PROMPT, **options)
                judge(stream, [delta async for delta in stream])

        for cut in (600, 3000, 8000):  # bytes of answers, the server's settings among them
            for way in ("blocking", "asyncio"):
                with self.subTest(cut=cut, way=way):
                    proxy = CuttingProxy(self.server.target, cut_after=cut)
                    self.addCleanup(proxy.close)
                    if way == "asyncio":
                        asyncio.run(awaited(proxy.target))
                    else:
                        with quire.QuireClient(proxy.target, timeout=120) as client:
                            stream = client.generate(PROMPT, **options)
                            judge(stream, list(stream))
                    self.assertGreater(proxy.connections, 1)

    def test_without_retries_a_cut_is_the_end(self):
        proxy = CuttingProxy(self.server.target, cut_after=3000)
        self.addCleanup(proxy.close)
        with quire.QuireClient(proxy.target, timeout=120, retries=None) as client:
            stream = client.generate(PROMPT, request_id="cut", detach_seconds=60, **LONG)
            with self.assertRaises(quire.Unavailable):
                list(stream)
            self.assertGreater(stream.tokens, 0)

    def test_without_detach_a_cut_is_the_end(self):
        proxy = CuttingProxy(self.server.target, cut_after=3000)
        self.addCleanup(proxy.close)
        command = self.quire("generate", *LONG_FLAGS, PROMPT, target=proxy.target)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 24, done.stderr)

    def test_errors_have_their_classes(self):
        with self.assertRaises(quire.NotFound) as caught:
            list(self.client.attach("never"))
        self.assertEqual(caught.exception.reason, "REQUEST_NOT_FOUND")
        with self.assertRaises(quire.InvalidRequest):
            list(self.client.generate(PROMPT, detach_seconds=121, **OPTIONS))
        with self.assertRaises(quire.InvalidRequest):
            self.client.generate_text(PROMPT, detach_seconds=1, **OPTIONS)


if __name__ == "__main__":
    unittest.main()
