#!/usr/bin/python3
"""One model over several hosts, and the ends of their processes: multi_host_test.py QUIRE_SERVER.

Hosts are processes of this machine with addresses of their own, or network namespaces where root
can make them. Tokens expected are those of as many ranks on one host.
"""
# Covers engine/worker/remote/relay.cc, engine/worker/remote/hosted_rank.cc,
# engine/worker/remote/node_agent.cc

import contextlib
import hmac
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import quire
import running_server
from conversation import PATIENCE, await_true, halt, spoken
from quire import SessionState
from running_server import RunningServer

CPU = ("--device", "cpu", "--cpu-threads", "1")
LONG = quire.Options(temperature=1.0, seed=7, ignore_eos=True, max_tokens=300)
PROMPTS = ("Once upon a time", "Tell me a story about a fox.")
TURNS = (0, 1, 2, 5)  # the last asks for a number of the first
LEADER_HOST = "127.0.0.2"
ADDRESS = "10.77.0.1:52051"  # in a namespace
KEY = "a secret of sixteen bytes or more\n"


def alive(pid):
    """Whether a process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def free_address(host=LEADER_HOST):
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


class Stream:
    """A running request whose tokens a separate thread reads."""

    def __init__(self, client, prompt):
        self.ids, self.error = [], None
        self._stream = client.generate(prompt, LONG)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            for delta in self._stream:
                self.ids.extend(delta.token_ids)
        except quire.QuireError as error:
            self.error = error

    def await_tokens(self, count):
        await_true(lambda: len(self.ids) >= count or not self._thread.is_alive(), "tokens")
        assert self.error is None and len(self.ids) < LONG.max_tokens, "ended too early"

    def join(self):
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the stream never ended"
        return self


class Follower:
    """The process of a node that follows."""

    def __init__(self, address, *flags, node=1, nodes=2, prefix=()):
        self._log = running_server.LogFile()
        self.process = subprocess.Popen(
            [*prefix, running_server.BINARY, "--nnodes", str(nodes), "--node-rank", str(node),
             "--leader-address", address, *flags], stdout=self._log, stderr=self._log)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._log.close()

    def log(self):
        return self._log.text()

    def workers(self):
        return [int(pid) for pid in re.findall(r"worker started rank=\d+ pid=(\d+)", self.log())]

    def worker(self):
        """The process id of the live worker of a node with one rank; waits for it."""
        await_true(lambda: self.workers() and alive(self.workers()[-1]), "a living worker")
        return self.workers()[-1]


class Leader(RunningServer):
    """The leader of a group; its followers run already."""

    def __init__(self, address, *flags, ranks=2, nodes=2, prefix=()):
        group = ("--tensor-parallel-size", str(ranks), "--nnodes", str(nodes), "--leader-address",
                 address)
        binary = None
        with contextlib.ExitStack() as stack:
            if prefix:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                binary = pathlib.Path(folder, "quire-server")
                binary.write_text(f"#!/bin/sh\nexec {' '.join(prefix)} {running_server.BINARY} "
                                  '"$@"\n')
                binary.chmod(0o755)
            super().__init__(*CPU, *group, *flags, binary=binary)
        self.client = quire.QuireClient(self.target, timeout=120)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.close()
        self.stop()

    def relays(self):
        return [int(pid) for pid in re.findall(r"worker started rank=1 pid=(\d+)", self.log())]

    def await_ready(self):
        await_true(lambda: self.get("/readyz") == (200, "ok\n"), "ready again")


@contextlib.contextmanager
def group_of_two(*flags):
    """A leader and a follower with one rank each."""
    address = free_address()
    with Follower(address) as follower, Leader(address, *flags) as leader:
        yield leader, follower


class MultiHostTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = {ranks: cls.tokens_of_one_host(ranks) for ranks in (2, 4)}

    @staticmethod
    def tokens_of_one_host(ranks):
        server = RunningServer(*CPU, "--tensor-parallel-size", str(ranks))
        client = quire.QuireClient(server.target, timeout=120)
        tokens = [list(client.generate_text(prompt, LONG).token_ids) for prompt in PROMPTS]
        client.close()
        server.stop()
        return tokens

    def check(self, streams, ranks=2):
        for stream, expected in zip(streams, self.expected[ranks]):
            self.assertIsNone(stream.join().error)
            self.assertEqual(stream.ids, expected)

    def started(self, leader):
        streams = [Stream(leader.client, prompt) for prompt in PROMPTS]
        for stream in streams:
            stream.await_tokens(30)
        return streams

    def test_two_ranks_on_two_hosts_give_the_tokens_of_one_host(self):
        with group_of_two() as (leader, follower):
            self.check([Stream(leader.client, prompt) for prompt in PROMPTS])
            worker = follower.worker()
            self.assertEqual(leader.stop(), 0)
            await_true(lambda: not alive(worker), "the worker's end")
            self.assertIsNone(follower.process.poll())
            follower.process.send_signal(signal.SIGTERM)
            self.assertEqual(follower.process.wait(PATIENCE), 0)

    def test_four_ranks_on_two_hosts_give_the_tokens_of_one_host(self):
        address = free_address()
        with Follower(address) as follower, Leader(address, ranks=4) as leader:
            self.check([Stream(leader.client, prompt) for prompt in PROMPTS], ranks=4)
            self.assertEqual(len(follower.workers()), 2)

    def test_streams_continue_when_a_remote_worker_is_killed(self):
        with group_of_two() as (leader, follower):
            streams = self.started(leader)
            os.kill(follower.worker(), signal.SIGKILL)
            self.check(streams)
            self.assertEqual(len(follower.workers()), 2)
            self.assertRegex(leader.log(), r"worker 1 \(pid \d+\): node 1 \(127\.0\.0\.1:\d+\): "
                                           r"its worker \(pid \d+\) was killed by signal 9")

    def test_streams_continue_when_a_relay_is_killed(self):
        with group_of_two() as (leader, follower):
            streams = self.started(leader)
            os.kill(leader.relays()[-1], signal.SIGKILL)
            self.check(streams)
            self.assertEqual(len(leader.relays()), 2)
            self.assertEqual(len(follower.workers()), 2)

    def test_a_stopped_remote_worker_is_replaced(self):
        with group_of_two("--worker-step-timeout", "1") as (leader, follower):
            streams = self.started(leader)
            halt(follower.worker())
            self.check(streams)
            self.assertEqual(len(follower.workers()), 2)
            self.assertIn("has finished no step for", leader.log())

    def test_the_leader_waits_for_a_lost_node_and_streams_continue(self):
        address = free_address()
        with contextlib.ExitStack() as stack:
            follower = stack.enter_context(Follower(address))
            leader = stack.enter_context(Leader(address, "--worker-step-timeout", "3"))
            streams = self.started(leader)
            worker = follower.worker()
            follower.process.kill()
            await_true(lambda: leader.get("/readyz") == (503, "recovering\n"), "recovering")
            await_true(lambda: "waiting for nodes missing=1" in leader.log(), "the missing node")
            await_true(lambda: not alive(worker), "the end of the node's worker")
            self.assertEqual(leader.get("/livez")[0], 200)
            time.sleep(6)  # twice the time in which a group must start
            stack.enter_context(Follower(address))
            self.check(streams)
            leader.await_ready()
            self.assertRegex(leader.log(), r"worker 1 \(pid \d+\): node 1 \(127\.0\.0\.1:\d+\): ")
            self.assertEqual(leader.metric("quire_engine_recoveries_total"), 1)

    def test_a_follower_serves_one_leader_after_another(self):
        address = free_address()
        with Follower(address) as follower:
            with Leader(address) as leader:
                streams = self.started(leader)
                worker = follower.worker()
                leader.process.kill()
                await_true(lambda: not alive(worker), "the worker's end")
                for stream in streams:
                    self.assertIsNotNone(stream.join().error)
            with Leader(address) as leader:
                self.check([Stream(leader.client, prompt) for prompt in PROMPTS])

    def talk(self, leader, between):
        """The tokens of a conversation whose KV is on the host before every turn but the first."""
        tokens, residency = [], []
        for turn in TURNS:
            if turn > 0:
                leader.client.sessions.offload("talk")
                await_true(lambda: leader.client.sessions.get("talk").state == SessionState.HOST,
                           "KV on the host")
                between(turn)
            done = leader.client.generate_text(
                spoken(turn), quire.Options(temperature=0.8, max_tokens=40), seed=turn,
                session_id="talk", create_session=True)
            tokens.append(list(done.token_ids))
            residency.append(done.finished.residency)
        return tokens, residency

    def test_kv_in_host_memory_survives_a_worker_but_not_its_node(self):
        server = RunningServer(*CPU, "--tensor-parallel-size", "2", "--kv-offloading-size", "0")
        client = quire.QuireClient(server.target, timeout=120)
        expected = [
            list(client.generate_text(
                spoken(turn), quire.Options(temperature=0.8, max_tokens=40), seed=turn,
                session_id="talk", create_session=True).token_ids) for turn in TURNS]
        client.close()
        server.stop()

        address = free_address()
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            follower = stack.enter_context(Follower(address))
            leader = stack.enter_context(Leader(address, "--session-dir", folder))

            def disturb(turn):
                deaths = leader.metric("quire_engine_recoveries_total")
                if turn == 1:
                    return
                if turn == 2:
                    os.kill(follower.worker(), signal.SIGKILL)
                if turn == TURNS[3]:
                    follower.process.kill()
                    stack.enter_context(Follower(address))
                await_true(
                    lambda: leader.metric("quire_engine_recoveries_total") > deaths, "recovery")
                leader.await_ready()

            tokens, residency = self.talk(leader, disturb)
            for turn in (1, 2):
                self.assertGreater(residency[turn].host_tokens, 0, f"turn {turn}")
            self.assertEqual(tokens, expected)
            # The new process of the node has no pages, and says so rather than give wrong ones.
            self.assertEqual(residency[3].host_tokens, 0)
            self.assertGreater(residency[3].recomputed_tokens, 0)
            exported = b"".join(leader.client.sessions.export("talk"))
            self.assertLess(len(exported), 1 << 16, "an export carries tokens only")
            position = leader.client.sessions.get("talk").position
            self.assertEqual(leader.stop(), 0)
            with Leader(address, "--session-dir", folder) as later:
                kept = later.client.sessions.get("talk")
                self.assertEqual((kept.position, kept.host_tokens), (position, 0))


class Impostor:
    """A follower with the key of a leader without one, which may send whatever a test wants."""

    def __init__(self, address):
        host, port = address.split(":")
        for _ in range(PATIENCE * 20):
            try:
                self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        mine = os.urandom(32)
        self.send(1, json.dumps({"version": self.version(), "nonce": mine.hex()}).encode())
        theirs = bytes.fromhex(json.loads(self.receive()[1])["nonce"])
        text = b"quire follower " + mine + theirs + b"1 of 2, 0"
        proof = hmac.new(b"", text, "sha256").hexdigest()
        self.send(3, json.dumps({"node": 1, "nodes": 2, "local": 0, "proof": proof}).encode())
        assert json.loads(self.receive()[1])["rank"] == 1

    @staticmethod
    def version():
        done = subprocess.run([running_server.BINARY, "--version"], capture_output=True, text=True,
                              check=True)
        return done.stdout.split()[1]  # "quire-server 0.1.0 (commit ...)"

    def send(self, kind, data):
        self.socket.sendall(struct.pack("<II", kind, len(data)) + data)

    def receive(self):
        head = self.socket.recv(8, socket.MSG_WAITALL)
        kind, length = struct.unpack("<II", head)
        return kind, self.socket.recv(length, socket.MSG_WAITALL) if length else b""

    def close(self):
        self.socket.close()


class GreetingTest(unittest.TestCase):
    """Nodes that may not join."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def key(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return ("--group-key-file", str(path))

    def test_another_key_is_refused_by_name(self):
        address = free_address()
        good, other = self.key("good", KEY), self.key("other", KEY[::-1])
        with Follower(address, *other) as stranger:
            with Follower(address, *good), Leader(address, *good) as leader:
                await_true(lambda: "the group key differs from the leader's" in stranger.log(),
                           "the stranger's reason")
                await_true(lambda: re.search("refused a node .*group key differs", leader.log()),
                           "the leader's reason")
                self.assertNotIn("joined the leader", stranger.log())
                self.assertEqual(
                    leader.client.generate_text(PROMPTS[0], LONG, max_tokens=3)
                    .finished.usage.completion_tokens, 3)

    def refused(self, *flags):
        done = subprocess.run(
            [running_server.BINARY, "--port", "0", "--metrics-port", "0", *CPU, "--nnodes", "2",
             *flags], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_without_a_key_only_loopback_addresses_are_taken(self):
        for flags in (("--tensor-parallel-size", "2", "--leader-address", ":52051"),
                      ("--node-rank", "1", "--leader-address", "192.0.2.1:52051")):
            self.assertIn("--group-key-file", self.refused(*flags))

    def test_unusable_settings_are_named(self):
        short = self.key("short", "fifteen bytes!!\n")
        address = ("--leader-address", free_address())
        self.assertIn("holds 15 bytes",
                      self.refused("--tensor-parallel-size", "2", *address, *short))
        with socket.create_server((LEADER_HOST, 0)) as other:
            taken = f"{LEADER_HOST}:{other.getsockname()[1]}"
            self.assertIn("cannot listen there: Address already in use", self.refused(
                "--tensor-parallel-size", "2", "--leader-address", taken))
        self.assertIn("give HOST:PORT", self.refused("--node-rank", "1", "--leader-address", "a"))
        self.assertIn("must be a multiple", self.refused("--tensor-parallel-size", "3", *address))
        self.assertIn("needs --leader-address", self.refused("--tensor-parallel-size", "2"))

    def test_a_plan_waits_for_no_node(self):
        done = subprocess.run(
            [running_server.BINARY, *CPU, "--nnodes", "2", "--tensor-parallel-size", "2",
             "--leader-address", free_address(), "--dry-run"], capture_output=True, text=True,
            timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"nnodes": 2', done.stdout)

    def test_a_node_that_sends_nonsense_is_named(self):
        message = 6
        for data, reason in (
                (struct.pack("<II", message, 2) + b"{}", "is not one object"),
                (struct.pack("<II", 10, 4) + b"????", "a frame that does not belong there"),
                (struct.pack("<II", message, 1 << 31), "a frame of 2147483648 bytes"),
                (b"\xff" * 16, "bytes that are no frame")):
            address = free_address()
            with subprocess.Popen(
                    [running_server.BINARY, "--port", "0", "--metrics-port", "0", *CPU, "--nnodes",
                     "2", "--tensor-parallel-size", "2", "--leader-address", address],
                    stderr=subprocess.PIPE, text=True) as leader:
                impostor = Impostor(address)
                self.assertEqual(impostor.receive()[0], message)
                impostor.socket.sendall(data)
                log = leader.communicate(timeout=PATIENCE)[1]
                impostor.close()
            self.assertEqual(leader.returncode, 5)
            self.assertRegex(log, r"worker 1 \(pid \d+\): node 1 \(127\.0\.0\.1:\d+\): .*"
                             + reason)

    def test_a_stranger_that_sends_nonsense_disturbs_no_group(self):
        address = free_address()
        with Follower(address), Leader(address) as leader:
            host, port = address.split(":")
            for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes(64), os.urandom(5000), b"\1"):
                with socket.create_connection((host, int(port))) as stranger:
                    stranger.sendall(noise)
            leader.client.generate_text(PROMPTS[0], LONG, max_tokens=3)
            await_true(lambda: "bytes that are no frame" in leader.log(), "the refusal")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


class NamespaceTest(unittest.TestCase):
    """Two network namespaces, joined by a pair of virtual interfaces."""

    def setUp(self):
        self.names = [f"quire{os.getpid()}{side}" for side in "ab"]
        made = [run("ip", "netns", "add", name).returncode for name in self.names] \
            if os.geteuid() == 0 and pathlib.Path("/sbin/ip").exists() else [1]
        self.addCleanup(lambda: [run("ip", "netns", "del", name) for name in self.names])
        if any(made) or not self.join():
            self.skipTest("network namespaces need root and ip netns")

    def join(self):
        ends = [f"q{os.getpid()}{side}" for side in "ab"]
        done = [run("ip", "link", "add", ends[0], "netns", self.names[0], "type", "veth", "peer",
                    "name", ends[1], "netns", self.names[1])]
        for number, (name, end) in enumerate(zip(self.names, ends), 1):
            inside = ("ip", "-n", name)
            done += [run(*inside, "address", "add", f"10.77.0.{number}/24", "dev", end),
                     run(*inside, "link", "set", end, "up"),
                     run(*inside, "link", "set", "lo", "up")]
        return all(each.returncode == 0 for each in done)

    @contextlib.contextmanager
    def group(self, *flags):
        """A leader and a follower with one rank each, in namespaces and with a key."""
        inside = [("ip", "netns", "exec", name) for name in self.names]
        with tempfile.NamedTemporaryFile("w", suffix=".key") as key:
            key.write(KEY)
            key.flush()
            flags += ("--group-key-file", key.name)
            with Follower(ADDRESS, *flags, prefix=inside[1]) as follower, \
                    Leader(ADDRESS, *flags, prefix=inside[0]) as leader:
                yield leader, follower

    def check_through(self, leader, disturb):
        """Streams have the tokens of one host, whatever is done to the group meanwhile."""
        streams = [Stream(leader.client, prompt) for prompt in PROMPTS]
        for stream in streams:
            stream.await_tokens(30)
        disturb()
        expected = MultiHostTest.tokens_of_one_host(2)
        self.assertEqual([stream.join().ids for stream in streams], expected)

    def test_two_namespaces_give_the_tokens_of_one_host(self):
        with self.group() as (leader, follower):
            self.check_through(leader, lambda: os.kill(follower.worker(), signal.SIGKILL))
            self.assertIn("node 1 (10.77.0.2:", leader.log())

    def test_a_lost_connection_between_ranks_is_noticed_and_named(self):
        if run("ss", "-K", "state", "listening", "sport", "=", ":1").returncode != 0:
            self.skipTest("ss cannot end connections here")
        with self.group() as (leader, _):
            port = ADDRESS.rpartition(":")[2]
            self.check_through(leader, lambda: run(
                "ip", "netns", "exec", self.names[0], "ss", "-K", "state", "established", "sport",
                "!=", f":{port}", "dport", "!=", f":{port}"))
            self.assertRegex(leader.log(), r"it has lost .*rank [01] \(10\.77\.0\.[12] port \d+\)")

    def test_a_cut_between_hosts_is_noticed_and_healed(self):
        with self.group("--worker-step-timeout", "1") as (leader, _):
            def cut():
                link = ("ip", "-n", self.names[1], "link", "set", f"q{os.getpid()}b")
                run(*link, "down")
                await_true(lambda: "waiting for nodes missing=1" in leader.log(), "the cut")
                run(*link, "up")

            self.check_through(leader, cut)


if __name__ == "__main__":
    unittest.main()
