#!/usr/bin/python3
"""Ranks as processes, and their deaths, over real gRPC: worker_process_test.py QUIRE_SERVER.

On the cpu, where a request's tokens never depend on what happens around it: whatever is done to the
workers, streams go on with the tokens of an undisturbed run.
"""
# Covers engine/worker/program/cpu_device.cc, engine/worker/program/no_gpu_device.cc

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import quire
import running_server
from conversation import PATIENCE, await_true, halt
from running_server import RunningServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
AS_PROCESS = ("--device", "cpu", "--worker-process", "on")
LONG = quire.Options(temperature=1.0, seed=7, ignore_eos=True, max_tokens=1500)
PROMPTS = ("Once upon a time", "Tell me a story about a fox.", "The secret number of Mia is")


def alive(pid):
    """Whether a process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Stream:
    """A running request whose tokens a separate thread reads."""

    def __init__(self, client, prompt, options=LONG):
        self.ids, self.error, self.finished = [], None, None
        self._stream = client.generate(prompt, options)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            for delta in self._stream:
                self.ids.extend(delta.token_ids)
            self.finished = self._stream.finished
        except quire.QuireError as error:
            self.error = error

    def await_tokens(self, count):
        await_true(lambda: len(self.ids) >= count or not self._thread.is_alive(), "tokens")

    def join(self):
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the stream never ended"
        return self


class HeldWorkers:
    """A copy of the server whose new workers wait, while held, before they load anything."""

    def __init__(self, folder):
        self._hold = pathlib.Path(folder, "hold")
        self.server = pathlib.Path(shutil.copy(running_server.BINARY, folder))
        worker = pathlib.Path(folder, "quire-worker")
        program = running_server.BINARY.with_name("quire-worker").resolve()
        worker.write_text(f"""#!/bin/sh
while [ -e '{self._hold}' ]; do sleep 0.02; done
exec '{program}' "$@"
""")
        worker.chmod(0o755)

    def hold(self):
        self._hold.touch()

    def release(self):
        self._hold.unlink()


class Server(RunningServer):
    """A server with access to its worker processes."""

    def __init__(self, *flags, binary=None):
        super().__init__(*AS_PROCESS, *flags, binary=binary)
        self.client = quire.QuireClient(self.target, timeout=120)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.close()
        self.stop()

    def workers(self):
        """The process ids of all workers started so far, including dead ones."""
        return [int(pid) for pid in re.findall(r"worker started rank=0 pid=(\d+)", self.log())]

    def worker(self):
        """The process id of the live worker; waits for it."""
        await_true(lambda: alive(self.workers()[-1]), "a living worker")
        return self.workers()[-1]


class WorkerProcessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        undisturbed = RunningServer("--device", "cpu", "--worker-process", "off")
        client = quire.QuireClient(undisturbed.target, timeout=120)
        cls.expected = [list(client.generate_text(p, LONG).token_ids) for p in PROMPTS]
        client.close()
        undisturbed.stop()

    def check(self, streams):
        for stream, expected in zip(streams, self.expected):
            self.assertIsNone(stream.join().error)
            self.assertEqual(stream.finished.reason, quire.FinishReason.MAX_TOKENS)
            self.assertEqual(stream.ids, expected)

    def test_a_worker_process_gives_the_tokens_of_a_worker_thread(self):
        with Server() as server:
            self.check([Stream(server.client, prompt) for prompt in PROMPTS])
            worker = server.worker()
            self.assertEqual(server.stop(), 0)
            self.assertFalse(alive(worker))

    def test_streams_continue_when_the_worker_is_killed(self):
        with Server() as server:
            streams = [Stream(server.client, prompt) for prompt in PROMPTS]
            for stream in streams:
                stream.await_tokens(100)
            for stream in streams:
                self.assertIsNone(stream.finished, "ended before the worker could be killed")
            os.kill(server.worker(), signal.SIGKILL)
            self.check(streams)
            self.assertEqual(len(server.workers()), 2)
            self.assertIn("was killed by signal 9 (Killed)", server.log())
            self.assertEqual(server.metric("quire_engine_recoveries_total"), 1)
            self.assertEqual(server.metric("quire_engine_recovering"), 0)
            self.assertEqual(server.get("/readyz"), (200, "ok\n"))

    def test_a_stalled_worker_is_replaced(self):
        with Server("--worker-step-timeout", "3s") as server:
            streams = [Stream(server.client, prompt) for prompt in PROMPTS]
            streams[0].await_tokens(100)
            halt(server.worker())
            self.check(streams)
            self.assertEqual(len(server.workers()), 2)
            self.assertIn("has finished no step for", server.log())

    def test_health_is_off_and_requests_wait_until_workers_are_replaced(self):
        with tempfile.TemporaryDirectory() as folder:
            held = HeldWorkers(folder)
            with Server(binary=held.server) as server:
                stream = Stream(server.client, PROMPTS[0])
                stream.await_tokens(100)
                held.hold()
                os.kill(server.worker(), signal.SIGKILL)
                await_true(lambda: "not healthy: the workers died" in server.log(), "not healthy")
                late = Stream(server.client, PROMPTS[1])
                self.assertEqual(server.get("/readyz"), (503, "recovering\n"))
                self.assertEqual(server.get("/livez")[0], 200)
                self.assertEqual(late.ids, [])
                held.release()
                self.check([stream, late])
                await_true(lambda: server.get("/readyz") == (200, "ok\n"), "ready again")

    def test_a_request_ends_at_its_third_death_and_the_server_at_the_fourth(self):
        with Server() as server:
            stream = Stream(server.client, PROMPTS[0])
            for deaths in (1, 2, 3):
                stream.await_tokens(len(stream.ids) + 5)
                os.kill(server.worker(), signal.SIGKILL)
                await_true(lambda: len(server.workers()) == deaths + 1, "another worker")
            self.assertIsInstance(stream.join().error, quire.ServerFault)
            self.assertEqual(stream.ids, self.expected[0][: len(stream.ids)])
            # Other requests continue.
            short = server.client.generate_text(PROMPTS[1], LONG, max_tokens=20)
            self.assertEqual(list(short.token_ids), self.expected[1][:20])
            last = Stream(server.client, PROMPTS[1])
            last.await_tokens(5)
            os.kill(server.worker(), signal.SIGKILL)
            self.assertIsNotNone(last.join().error)
            self.assertEqual(last.ids, self.expected[1][: len(last.ids)])
            self.assertEqual(server.process.wait(PATIENCE), 5)
            self.assertIn("the workers failed 4 times within 300 s", server.log())

    def test_no_worker_goes_on_with_other_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "model")
            shutil.copytree(ROOT / "models" / "demo", model)
            weights, config = model / "model.safetensors", model / "config.json"
            other = pathlib.Path(folder, "other")
            data = bytearray(weights.read_bytes())
            data[len(data) // 2:] = data[len(data) // 2:][::-1]
            other.write_bytes(data)
            with Server("--model", str(model)) as server:
                stream = Stream(server.client, PROMPTS[0])
                stream.await_tokens(100)
                weights.rename(weights.with_suffix(".old"))
                other.rename(weights)  # as a download of another revision does
                os.kill(server.worker(), signal.SIGKILL)
                self.assertIsInstance(stream.join().error, quire.ServerFault)
                self.assertEqual(stream.ids, self.expected[0][: len(stream.ids)])
                self.assertEqual(server.process.wait(PATIENCE), 5)
                self.assertIn(f"{model}: the model's files are not those that the server started "
                              "with; put them back", server.log())
            weights.with_suffix(".old").rename(weights)
            with Server("--model", str(model)) as server:
                stream = Stream(server.client, PROMPTS[0])
                stream.await_tokens(100)
                weights.with_suffix(".new").write_bytes(weights.read_bytes())
                weights.with_suffix(".new").rename(weights)  # the same weights
                os.kill(server.worker(), signal.SIGKILL)
                self.check([stream])
                config.chmod(0o644)
                changed = json.loads(config.read_text()) | {"rms_norm_eps": 0.5}
                config.write_text(json.dumps(changed))
                os.kill(server.worker(), signal.SIGKILL)
                self.assertEqual(server.process.wait(PATIENCE), 5)
                self.assertIn("the model's files are not those", server.log())

    def test_a_killed_servers_worker_ends_too(self):
        with Server() as server:
            Stream(server.client, PROMPTS[0]).await_tokens(10)
            worker = server.worker()
            server.process.kill()
            await_true(lambda: not alive(worker), "the worker's end")

    def test_a_signal_to_the_process_group_drains(self):
        with Server() as server:
            stream = Stream(server.client, PROMPTS[0])
            stream.await_tokens(10)
            for pid in (server.worker(), server.process.pid):
                os.kill(pid, signal.SIGTERM)
            self.check([stream])
            self.assertEqual(server.process.wait(PATIENCE), 0)


class StartTest(unittest.TestCase):
    """The errors that an operator reads when the workers cannot start."""

    def start(self, *flags, server=None):
        return subprocess.run(
            [server or running_server.BINARY, "--port", "0", "--metrics-port", "0", *AS_PROCESS,
             *flags], capture_output=True, text=True, timeout=PATIENCE, check=False)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_broken_checkpoint_is_named(self):
        model = self.folder / "model"
        shutil.copytree(ROOT / "models" / "demo", model)
        weights = next(model.glob("*.safetensors"))
        weights.chmod(0o644)
        with open(weights, "r+b") as file:
            file.truncate(weights.stat().st_size - 100)
        done = self.start("--model", str(model))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(str(weights), done.stderr)

    def test_a_missing_tensor_is_named(self):
        model = self.folder / "model"
        shutil.copytree(ROOT / "models" / "demo", model)
        config = model / "config.json"
        config.chmod(0o644)
        deeper = json.loads(config.read_text()) | {"num_hidden_layers": 6}
        config.write_text(json.dumps(deeper))
        done = self.start("--model", str(model))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("model.layers.5.", done.stderr)
        self.assertIn("worker 0 (pid ", done.stderr)

    def test_a_missing_program_is_named(self):
        lonely = self.folder / "quire-server"
        shutil.copy(running_server.BINARY, lonely)
        done = self.start("--model", str(ROOT / "models" / "demo"), server=lonely)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(f"{self.folder}/quire-worker", done.stderr)
        self.assertIn("belongs beside quire-server", done.stderr)

    def test_a_plan_starts_no_model(self):
        done = self.start("--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"worker-process": "on"', done.stdout)
        self.assertIn("worker started", done.stderr)

    def test_a_worker_started_by_hand_says_what_it_is(self):
        worker = running_server.BINARY.with_name("quire-worker")
        for flags in ((), ("--rank=0", "--server=1"), ("--help",)):
            done = subprocess.run([worker, *flags], capture_output=True, text=True,
                                  timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("is a part of quire-server", done.stderr)


if __name__ == "__main__":
    unittest.main()
