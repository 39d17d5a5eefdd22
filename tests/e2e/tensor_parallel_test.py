#!/usr/bin/python3
"""Ranks of one model as processes, their deaths and their stops, over real gRPC:
tensor_parallel_test.py QUIRE_SERVER.

On the cpu: tokens are those of one rank, whatever is done to the processes. Waits follow the order
of events; times have generous bounds only.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import grpc

import quire
import running_server
import worker_process_test
from conversation import PATIENCE, await_true, halt, spoken
from quire import SessionState
from running_server import RunningServer
from worker_process_test import PROMPTS, HeldWorkers, Stream, alive

TURNS = 4
# Of streams to which two things, or one, are done before they end.
LONG = dataclasses.replace(worker_process_test.LONG, max_tokens=1000)
SHORTER = dataclasses.replace(LONG, max_tokens=500)
SAMPLING = quire.Options(temperature=0.8, top_p=0.95, max_tokens=40, skip_special_tokens=False)
REQUESTS = (
    ("Once upon a time", {"temperature": 0}),
    ("The secret number of Mia is", {"temperature": 0, "repetition_penalty": 1.3}),
    ("Tell me a story about a fox.", {"temperature": 1.0, "seed": 3}),
    ("What is a KV cache?", {"temperature": 0.9, "top_k": 20, "seed": 4}),
    ("How do I plant a seed?", {"temperature": 1.2, "top_p": 0.9, "min_p": 0.02, "seed": 5}),
    ("Hello", {"temperature": 1.0, "presence_penalty": 0.7, "frequency_penalty": 0.5, "seed": 6}),
    ("A dragon who was lonely", {"temperature": 0, "logit_bias": {5: 3.0, 9: -50.0}}),
)
# Longer than a step of a busy machine, with its processes waiting for a core.
TIMEOUT = ("--worker-step-timeout", "1s")
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # grpc.health.v1.HealthCheckResponse


def say(client, name, turn):
    """One turn of a session: its tokens and its end."""
    done = client.generate_text(
        spoken(turn), SAMPLING, seed=turn, session_id=name, create_session=True
    )
    return list(done.token_ids), done.finished


def outputs(client):
    """The tokens of all requests, sent at once, and of the turns of a session beside them."""

    def run(request):
        prompt, options = request
        done = client.generate_text(prompt, quire.Options(**options), max_tokens=80)
        return list(done.token_ids)

    with concurrent.futures.ThreadPoolExecutor(len(REQUESTS)) as pool:
        running = [pool.submit(run, request) for request in REQUESTS]
        turns = [say(client, "talk", turn)[0] for turn in range(TURNS)]
        return [future.result() for future in running] + turns


def pids_of(log, rank):
    """The process ids of all processes of a rank so far, including dead ones."""
    return [int(pid) for pid in re.findall(rf"worker started rank={rank} pid=(\d+)", log)]


def stopped_in(log):
    """Rank, process and offence of each stopped worker that the log names."""
    return re.findall(r'reason="worker (\d+) \(pid (\d+)\) is stopped by a signal and holds up '
                      r"(its group, which has finished no \w+|the start)", log)


class Server(worker_process_test.Server):
    """A server whose ranks are processes."""

    def __init__(self, ranks, *flags, binary=None):
        super().__init__("--tensor-parallel-size", str(ranks), *flags, binary=binary)
        self.ranks = ranks

    def rank(self, rank):
        """The newest process of a rank."""
        return pids_of(self.log(), rank)[-1]

    def await_group(self, number):
        """Waits until the server has started the processes of its group of a number, from 1."""
        await_true(lambda: len(pids_of(self.log(), self.ranks - 1)) == number, "another group")

    def await_restarts(self, number):
        """Waits until that many groups have replaced another one and are used."""
        await_true(lambda: self.log().count("workers restarted") == number, "a restarted group")
        self.await_health(SERVING)

    def await_health(self, answer):
        with grpc.insecure_channel(self.target) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            await_true(lambda: check(b"", timeout=PATIENCE) == answer, "another health")


class TensorParallelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        one = RunningServer("--device", "cpu", "--worker-process", "off")
        with contextlib.closing(quire.QuireClient(one.target, timeout=120)) as client:
            cls.outputs = outputs(client)
            cls.streams = [list(client.generate_text(p, LONG).token_ids) for p in PROMPTS]
        one.stop()

    def start_streams(self, server, options=LONG):
        streams = [Stream(server.client, prompt, options) for prompt in PROMPTS]
        for stream in streams:
            stream.await_tokens(50)
            self.assertIsNone(stream.finished, "ended before anything could be done to it")
        return streams

    def check(self, streams, options=LONG):
        for stream, expected in zip(streams, self.streams):
            self.assertIsNone(stream.join().error)
            self.assertEqual(stream.ids, expected[: options.max_tokens])

    def check_turn(self, turn, said):
        ids, finished = said
        self.assertEqual(ids, self.outputs[len(REQUESTS) + turn])
        return finished.residency

    def test_ranks_give_the_tokens_of_one(self):
        for ranks in (2, 4):
            for process in ("on", "off"):
                flags = ("--tensor-parallel-size", str(ranks), "--worker-process", process)
                server = RunningServer("--device", "cpu", *flags)
                with contextlib.closing(quire.QuireClient(server.target, timeout=120)) as client:
                    self.assertEqual(outputs(client), self.outputs, flags)
                self.assertEqual(server.stop(), 0)

    def test_streams_continue_when_any_rank_is_killed(self):
        with Server(2) as server:
            streams = self.start_streams(server)
            for rank in (0, 1):
                before = [server.rank(0), server.rank(1)]
                os.kill(before[rank], signal.SIGKILL)
                server.await_restarts(rank + 1)
                self.assertIn(f"worker {rank} (pid {before[rank]}) was killed by signal 9",
                              server.log())
                self.assertFalse(any(alive(pid) for pid in before), "the group ends together")
                streams[0].await_tokens(len(streams[0].ids) + 50)
                self.assertIsNone(streams[0].finished, "ended before the second death")
            self.check(streams)
            self.assertEqual(server.metric("quire_engine_recoveries_total"), 2)
            self.assertEqual(server.metric("quire_rank_mismatches_total"), 0)

    def test_a_stopped_rank_is_named_and_its_group_replaced(self):
        with Server(2, *TIMEOUT) as server:
            streams = self.start_streams(server)
            stopped = []
            for rank in (1, 0):
                pid = server.rank(rank)
                stopped.append((str(rank), str(pid), "its group, which has finished no step"))
                halt(pid)
                server.await_restarts(len(stopped))
                self.assertEqual(stopped_in(server.log()), stopped)
                streams[0].await_tokens(len(streams[0].ids) + 50)
                self.assertIsNone(streams[0].finished, "ended before the second stop")
            self.check(streams)

    def test_ranks_may_be_killed_while_they_start(self):
        for rank in (0, 1):
            with tempfile.TemporaryDirectory() as folder:
                held = HeldWorkers(folder)
                with Server(2, binary=held.server) as server:
                    streams = self.start_streams(server, SHORTER)
                    held.hold()
                    os.kill(server.rank(1 - rank), signal.SIGKILL)
                    server.await_group(2)
                    late = Stream(server.client, PROMPTS[1], SHORTER)
                    server.await_health(NOT_SERVING)
                    self.assertEqual(server.get("/readyz"), (503, "recovering\n"))
                    os.kill(server.rank(rank), signal.SIGKILL)  # has described nothing
                    server.await_group(3)
                    held.release()
                    self.kill_while_it_loads(server.rank(rank))
                    server.await_group(4)
                    self.check(streams, SHORTER)
                    self.assertEqual(late.join().ids, streams[1].ids)
                    server.await_health(SERVING)

    @staticmethod
    def kill_while_it_loads(pid):
        """As soon as a process reads the weights; it may be ready by then."""
        maps = pathlib.Path(f"/proc/{pid}/maps")
        await_true(lambda: "safetensors" in maps.read_text() or "quire ranks" in maps.read_text(),
                   "a loading worker")
        os.kill(pid, signal.SIGKILL)

    def test_a_rank_that_is_stopped_while_its_group_restarts_is_named(self):
        for rank in (0, 1):
            with tempfile.TemporaryDirectory() as folder:
                held = HeldWorkers(folder)
                with Server(2, *TIMEOUT, binary=held.server) as server:
                    streams = self.start_streams(server, SHORTER)
                    held.hold()
                    os.kill(server.rank(1 - rank), signal.SIGKILL)
                    server.await_group(2)
                    pid = server.rank(rank)
                    halt(pid)
                    held.release()
                    server.await_health(NOT_SERVING)
                    server.await_group(3)
                    self.assertEqual(stopped_in(server.log()), [(str(rank), str(pid), "the start")])
                    self.check(streams, SHORTER)

    def test_kv_on_the_host_survives_ranks_that_die_or_stop_in_a_copy(self):
        for rank in (0, 1):
            # A fourth death within five minutes would end the server.
            with Server(2, *TIMEOUT, "--session-idle-offload-after", "1h") as server:
                self.lose_ranks_in_copies(server, rank, 1 - rank)

    def lose_ranks_in_copies(self, server, rank, other):
        self.check_turn(0, say(server.client, "talk", 0))
        self.offload(server)
        os.kill(server.rank(other), signal.SIGKILL)
        server.await_restarts(1)
        residency = self.check_turn(1, say(server.client, "talk", 1))
        self.assertGreater(residency.host_tokens, 0)
        self.assertEqual((residency.device_tokens, residency.recomputed_tokens), (0, 0))
        # The copy of the last turn's KV waits for the stopped rank, which then dies.
        halt(server.rank(rank))
        server.client.sessions.offload("talk")
        await_true(lambda: server.metric("quire_kv_copies_in_flight") > 0, "a copy")
        os.kill(server.rank(rank), signal.SIGKILL)
        server.await_restarts(2)
        residency = self.check_turn(2, say(server.client, "talk", 2))
        self.assertGreater(residency.host_tokens, 0)
        self.assertGreater(residency.recomputed_tokens, 0)
        # The same, with a rank that stays stopped.
        stopped = server.rank(other)
        halt(stopped)
        server.client.sessions.offload("talk")
        server.await_restarts(3)
        self.assertEqual(stopped_in(server.log()),
                         [(str(other), str(stopped), "its group, which has finished no store")])
        residency = self.check_turn(3, say(server.client, "talk", 3))
        self.assertGreater(residency.host_tokens, 0)

    @staticmethod
    def offload(server):
        server.client.sessions.offload("talk")
        await_true(lambda: server.client.sessions.get("talk").state == SessionState.HOST,
                   "KV on the host")


class StartAndEndTest(unittest.TestCase):
    """The first start and the end of a server whose rank does not go on."""

    def start_held(self, act):
        """The exit code and the log of servers whose rank 0, or 1, suffers `act` at the start."""
        flags = (*worker_process_test.AS_PROCESS, "--tensor-parallel-size", "2", *TIMEOUT)
        ended = []
        for rank in (0, 1):
            with tempfile.TemporaryDirectory() as folder:
                held, log = HeldWorkers(folder), pathlib.Path(folder, "log")
                held.hold()
                with open(log, "w", encoding="utf-8") as file, subprocess.Popen(
                    [held.server, "--port", "0", "--metrics-port", "0", *flags],
                    stdout=file, stderr=file) as process:
                    try:
                        await_true(lambda: pids_of(log.read_text(), 1), "two ranks")
                        pid = pids_of(log.read_text(), rank)[0]
                        os.kill(pid, act)
                        held.release()
                        ended.append((process.wait(PATIENCE), pid, log.read_text()))
                    finally:
                        process.kill()
        return ended

    def test_a_rank_that_is_killed_at_the_first_start_is_named(self):
        for rank, (code, pid, log) in enumerate(self.start_held(signal.SIGKILL)):
            self.assertEqual(code, 5, log)
            self.assertIn(f"worker {rank} (pid {pid}) was killed by signal 9 (Killed)", log)

    def test_a_rank_that_is_stopped_at_the_first_start_is_named(self):
        for rank, (code, pid, log) in enumerate(self.start_held(signal.SIGSTOP)):
            self.assertEqual(code, 5, log)
            self.assertIn(f"worker {rank} (pid {pid}) is stopped by a signal and holds up the "
                          "start", log)
            self.assertFalse(alive(pid))

    def test_a_stopped_rank_does_not_hold_up_the_end(self):
        with Server(2) as idle, Server(2) as idle_too, \
                Server(2, "--shutdown-timeout", "1s") as busy:
            stream = Stream(busy.client, PROMPTS[0])
            stream.await_tokens(50)
            stopped = [idle.rank(0), idle_too.rank(1), busy.rank(1)]
            for pid in stopped:
                halt(pid)
            begin = time.monotonic()
            servers = (idle, idle_too, busy)
            for server in servers:
                server.process.terminate()
            codes = [server.process.wait(PATIENCE) for server in servers]
            # Five seconds for the ranks of an idle server; the same after --shutdown-timeout.
            self.assertLess(time.monotonic() - begin, 30)
            self.assertEqual(codes[:2], [0, 0])
            self.assertIn(codes[2], (0, 1))
            await_true(lambda: not any(alive(pid) for pid in stopped), "the ranks' end")


if __name__ == "__main__":
    unittest.main()
